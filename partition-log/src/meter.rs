//! How long something takes, counted into buckets without a lock.
//!
//! [`Meter::record`] is two relaxed additions, so that a hot path can afford it. What is read while others record may miss
//! what is being added at that moment; a bucket is never counted twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts durations by their size.
#[derive(Debug)]
pub struct Meter {
    bounds: &'static [Duration],
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

/// What a [`Meter`] has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The largest duration of each bucket but the last, in order.
    pub bounds: &'static [Duration],
    /// How many fell into each bucket; one more than there are bounds, for whatever is longer than all of them.
    pub counts: Vec<u64>,
    /// All durations together.
    pub total: Duration,
}

impl Meter {
    /// Buckets up to each of `bounds`, which rise, and one for what is longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cutwater_partition_log::meter::Meter;
    ///
    /// const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(10)];
    /// let meter = Meter::new(BOUNDS);
    /// for ms in [1, 2, 2000] {
    ///     meter.record(Duration::from_millis(ms));
    /// }
    /// assert_eq!(meter.read().counts, [1, 1, 1]);
    /// assert_eq!(meter.read().total, Duration::from_millis(2003));
    /// ```
    pub fn new(bounds: &'static [Duration]) -> Meter {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Meter { bounds, buckets, nanos: AtomicU64::new(0) }
    }

    /// Counts one.
    pub fn record(&self, took: Duration) {
        let at = self.bounds.partition_point(|bound| *bound < took);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self) -> Measured {
        Measured {
            bounds: self.bounds,
            counts: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

impl Measured {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The buckets of a log's synced writes: from what a flash drive with a protected cache takes to what a tired disk does.
pub(crate) const WRITE_BOUNDS: &[Duration] = &[
    micros(50),
    micros(100),
    micros(250),
    micros(500),
    micros(1_000),
    micros(2_500),
    micros(5_000),
    micros(10_000),
    micros(25_000),
    micros(50_000),
    micros(100_000),
    micros(250_000),
    micros(1_000_000),
];
