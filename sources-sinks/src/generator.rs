//! Records made from their number: for examples, benchmarks, and tests of recovery.
//!
//! * Guarantee: exactly-once, as long as `make` gives the same record for the same number.
//! * Position: the number of the next record, with the count and the number of splits.
//! * Staged at a barrier: nothing, it only reads.
//! * Commit: nothing.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::error::SourceError;
use cutwater_engine::graph::Job;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_platform::Clock;

use crate::position::{Cursor, PositionError};

/// Format of a position.
const VERSION: u8 = 1;

/// A source that makes its records. See [`generate`].
pub struct Generator<T> {
    count: u64,
    splits: u64,
    per_second: Option<u64>,
    clock: Arc<dyn Clock>,
    make: Rc<dyn Fn(u64) -> T>,
}

/// `make(0)`, `make(1)` and so on, `count` records in all. `make` must depend on nothing but the number.
pub fn generate<T>(job: &Job, count: u64, make: impl Fn(u64) -> T + 'static) -> Generator<T> {
    let clock = job.environment().platform.clock.clone();
    Generator { count, splits: 1, per_second: None, clock, make: Rc::new(make) }
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
        Ok(Box::new(GeneratorReader { next, count: self.count, step: self.splits, pace, make: self.make.clone() }))
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
    make: Rc<dyn Fn(u64) -> T>,
}

impl<T> Reader for GeneratorReader<T> {
    type Item = T;

    fn read(&mut self, out: &mut Vec<T>, max: usize) -> Result<Read, SourceError> {
        let due = self.pace.as_ref().map_or(u64::MAX, Pace::due);
        let mut left = due.min(max as u64);
        while left > 0 && self.next < self.count {
            out.push((self.make)(self.next));
            self.next = self.next.saturating_add(self.step);
            left -= 1;
            if let Some(pace) = &mut self.pace {
                pace.made += 1;
            }
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
