//! Records made from their number: for examples, benchmarks, and tests of recovery.
//!
//! * Guarantee: exactly-once, as long as `make` gives the same record for the same number.
//! * Position: the number of the next record, with the count and the number of splits.
//! * Staged at a barrier: nothing, it only reads.
//! * Commit: nothing.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater_engine::error::SourceError;
use cutwater_engine::graph::Job;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_platform::{Clock, SplitMix};

use crate::position::{Cursor, PositionError};

/// Format of a position.
const VERSION: u8 = 1;

/// A source that makes its records. See [`generate`].
pub struct Generator<T> {
    count: u64,
    splits: u64,
    per_second: Option<u64>,
    clock: Arc<dyn Clock>,
    cost: Option<GenerationCost>,
    make: Rc<dyn Fn(u64) -> T>,
}

/// `make(0)`, `make(1)` and so on, `count` records in all. `make` must depend on nothing but the number.
pub fn generate<T>(job: &Job, count: u64, make: impl Fn(u64) -> T + 'static) -> Generator<T> {
    let clock = job.environment().platform.clock.clone();
    Generator { count, splits: 1, per_second: None, clock, cost: None, make: Rc::new(make) }
}

/// As [`generate`], with random numbers that depend on `seed` and the record's number alone: the same ones whenever it is made
/// again, whatever was made before.
///
/// ```no_run
/// # use cutwater_engine::graph::Job;
/// use cutwater_sources_sinks::generator::generate_seeded;
/// # fn build(job: &Job) {
/// let bids = job.source("bids", generate_seeded(job, 1_000_000, 42, |n, random| (n, random.below(5_000))));
/// # bids.discard();
/// # }
/// ```
pub fn generate_seeded<T>(
    job: &Job,
    count: u64,
    seed: u64,
    make: impl Fn(u64, &mut SplitMix) -> T + 'static,
) -> Generator<T> {
    // One step of the generator mixes the seed, so that neighbouring seeds have nothing in common.
    let mixed = SplitMix::new(seed).next();
    generate(job, count, move |n| make(n, &mut SplitMix::new(mixed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15))))
}

/// What it costs to make records: a benchmark subtracts it from the time of its run. Clones count together.
///
/// ```no_run
/// # use cutwater_engine::graph::Job;
/// use cutwater_sources_sinks::generator::{GenerationCost, generate};
/// # fn build(job: &Job) {
/// let cost = GenerationCost::new();
/// job.source("numbers", generate(job, 1000, |n| n).metered(&cost)).discard();
/// // After the run: "1000 records made in 1.2ms".
/// println!("{cost}");
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct GenerationCost(Arc<Made>);

#[derive(Debug, Default)]
struct Made {
    records: AtomicU64,
    nanoseconds: AtomicU64,
}

impl GenerationCost {
    /// Nothing made yet.
    pub fn new() -> GenerationCost {
        GenerationCost::default()
    }

    /// Records made, those included that were made again after a restart.
    pub fn records(&self) -> u64 {
        self.0.records.load(Ordering::Relaxed)
    }

    /// The time in which they were made, that of all workers together; waiting for a rate is no part of it. Measured per batch.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.nanoseconds.load(Ordering::Relaxed))
    }
}

impl fmt::Display for GenerationCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records made in {:?}", self.records(), self.time())
    }
}

/// As [`generate`], without an end.
pub fn generate_forever<T>(job: &Job, make: impl Fn(u64) -> T + 'static) -> Generator<T> {
    generate(job, u64::MAX, make)
}

impl<T> Generator<T> {
    /// Divides the numbers among `splits` splits that are read side by side: split s makes every number n with
    /// n mod `splits` = s.
    ///
    /// # Panics
    /// If `splits` is 0.
    #[must_use]
    pub fn in_splits(self, splits: u32) -> Generator<T> {
        assert!(splits > 0, "a source needs a split");
        Generator { splits: u64::from(splits), ..self }
    }

    /// Makes at most this many records per second, all splits together, at least one per second and split.
    #[must_use]
    pub fn per_second(self, records: u64) -> Generator<T> {
        Generator { per_second: Some(records), ..self }
    }

    /// Adds up in `cost` how long making records takes. Costs two looks at the clock per batch.
    #[must_use]
    pub fn metered(self, cost: &GenerationCost) -> Generator<T> {
        Generator { cost: Some(cost.clone()), ..self }
    }
}

impl<T> fmt::Debug for Generator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generator({} records in {} splits)", self.count, self.splits)
    }
}

impl<T: Send + 'static> Source for Generator<T> {
    type Item = T;

    fn replay(&self) -> Replay {
        Replay::FromPosition
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        Ok((0..self.splits).map(|split| split.to_string()).collect())
    }

    fn open(
        &self,
        split: &str,
        position: Option<&[u8]>,
        _waker: Waker,
    ) -> Result<Box<dyn Reader<Item = T>>, SourceError> {
        let what = || format!("generator split {split}");
        let first: u64 = split.parse().map_err(|e| SourceError::fatal(what(), e))?;
        let next = match position {
            None => first,
            Some(bytes) => {
                let (next, count, splits) = decode(bytes).map_err(|e| SourceError::fatal(what(), e))?;
                if (count, splits) != (self.count, self.splits) {
                    let reason = format!(
                        "the checkpoint was taken with {count} records in {splits} splits, the job has {} in {} now",
                        self.count, self.splits
                    );
                    return Err(SourceError::fatal(what(), reason));
                }
                next
            }
        };
        let pace = self.per_second.map(|rate| Pace {
            clock: self.clock.clone(),
            per_second: (rate / self.splits).max(1),
            start: self.clock.monotonic(),
            made: 0,
        });
        let cost = self.cost.clone().map(|cost| (cost, self.clock.clone()));
        Ok(Box::new(GeneratorReader {
            next,
            count: self.count,
            step: self.splits,
            pace,
            cost,
            make: self.make.clone(),
        }))
    }
}

fn decode(bytes: &[u8]) -> Result<(u64, u64, u64), PositionError> {
    let mut cursor = Cursor::new(bytes, VERSION)?;
    let fields = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    cursor.end()?;
    Ok(fields)
}

/// How many records are due.
struct Pace {
    clock: Arc<dyn Clock>,
    per_second: u64,
    start: Duration,
    made: u64,
}

impl Pace {
    /// Records that may be made now.
    fn due(&self) -> u64 {
        let passed = self.clock.monotonic().saturating_sub(self.start);
        let due = passed.as_millis().saturating_mul(u128::from(self.per_second)) / 1000;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.made)
    }

    /// Until the next record is due.
    fn wait_ms(&self) -> u64 {
        let at = (u128::from(self.made) + 1) * 1000 / u128::from(self.per_second);
        let passed = self.clock.monotonic().saturating_sub(self.start).as_millis();
        u64::try_from(at.saturating_sub(passed)).unwrap_or(u64::MAX).max(1)
    }
}

struct GeneratorReader<T> {
    next: u64,
    count: u64,
    step: u64,
    pace: Option<Pace>,
    cost: Option<(GenerationCost, Arc<dyn Clock>)>,
    make: Rc<dyn Fn(u64) -> T>,
}

impl<T> Reader for GeneratorReader<T> {
    type Item = T;

    fn read(&mut self, out: &mut Vec<T>, max: usize) -> Result<Read, SourceError> {
        let due = self.pace.as_ref().map_or(u64::MAX, Pace::due);
        let mut left = due.min(max as u64);
        let (before, since) = (out.len(), self.cost.as_ref().map(|(_, clock)| clock.monotonic()));
        while left > 0 && self.next < self.count {
            out.push((self.make)(self.next));
            self.next = self.next.saturating_add(self.step);
            left -= 1;
            if let Some(pace) = &mut self.pace {
                pace.made += 1;
            }
        }
        if let (Some((cost, clock)), Some(since)) = (&self.cost, since) {
            let took = clock.monotonic().saturating_sub(since).as_nanos();
            cost.0.records.fetch_add((out.len() - before) as u64, Ordering::Relaxed);
            cost.0.nanoseconds.fetch_add(u64::try_from(took).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        match &self.pace {
            _ if self.next >= self.count => Ok(Read::Exhausted),
            Some(pace) if pace.due() == 0 => Ok(Read::WaitMs(pace.wait_ms())),
            _ => Ok(Read::More),
        }
    }

    fn position(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for field in [self.next, self.count, self.step] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out
    }
}
