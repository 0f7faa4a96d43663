//! A source around another one: counts what is read, holds it to a rate, and says how far it is.
//!
//! The count is part of the position, so it goes back with it at a recovery: it is always the record's place in the stream.

use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::error::SourceError;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_platform::Clock;

/// Called with the number of records read so far.
pub(crate) type OnRead = Arc<dyn Fn(u64) + Send + Sync>;

/// Never this many records at once when there is a rate, so that the pace is even.
const PACED_RECORDS_MAX: u64 = 64;

/// A source of one split, metered.
pub(crate) struct Metered<S> {
    pub(crate) inner: S,
    /// Records per second, at most.
    pub(crate) rate: Option<u64>,
    pub(crate) on_read: Option<OnRead>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl<S: Source> Source for Metered<S> {
    type Item = S::Item;

    fn replay(&self) -> Replay {
        self.inner.replay()
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        self.inner.splits()
    }

    fn open(
        &self,
        split: &str,
        position: Option<&[u8]>,
        waker: Waker,
    ) -> Result<Box<dyn Reader<Item = S::Item>>, SourceError> {
        let (records, position) = match position {
            None => (0, None),
            Some(bytes) => {
                let short = || SourceError::fatal(split, "the stored position has no count of records in front");
                let (count, position) = bytes.split_first_chunk().ok_or_else(short)?;
                (u64::from_le_bytes(*count), Some(position))
            }
        };
        Ok(Box::new(MeteredReader {
            inner: self.inner.open(split, position, waker)?,
            records,
            budget: self.rate.map(|rate| Budget { rate, opened: self.clock.monotonic(), read: 0 }),
            on_read: self.on_read.clone(),
            clock: self.clock.clone(),
        }))
    }
}

struct MeteredReader<T> {
    inner: Box<dyn Reader<Item = T>>,
    /// Read since the beginning of the stream.
    records: u64,
    budget: Option<Budget>,
    on_read: Option<OnRead>,
    clock: Arc<dyn Clock>,
}

impl<T> Reader for MeteredReader<T> {
    type Item = T;

    fn read(&mut self, out: &mut Vec<T>, max: usize) -> Result<Read, SourceError> {
        let mut max = max;
        if let Some(budget) = &self.budget {
            let due = budget.due(self.clock.monotonic());
            if due == 0 {
                return Ok(Read::WaitMs(1));
            }
            max = max.min(due.min(PACED_RECORDS_MAX) as usize);
        }
        let before = out.len();
        let then = self.inner.read(out, max)?;
        let read = (out.len() - before) as u64;
        self.records += read;
        if let Some(budget) = &mut self.budget {
            budget.read += read;
        }
        if let Some(on_read) = self.on_read.as_ref().filter(|_| read > 0) {
            on_read(self.records);
        }
        Ok(then)
    }

    fn position(&self) -> Vec<u8> {
        [&self.records.to_le_bytes()[..], &self.inner.position()].concat()
    }
}

/// How much may be read by now.
struct Budget {
    rate: u64,
    opened: Duration,
    read: u64,
}

impl Budget {
    fn due(&self, now: Duration) -> u64 {
        let since = now.saturating_sub(self.opened).as_micros();
        let allowed = u64::try_from(since * u128::from(self.rate) / 1_000_000).unwrap_or(u64::MAX);
        allowed.saturating_sub(self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The numbers 0..10, as a source.
    struct Ten;

    struct TenReader(u8);

    impl Source for Ten {
        type Item = u8;

        fn replay(&self) -> Replay {
            Replay::FromPosition
        }

        fn splits(&self) -> Result<Vec<String>, SourceError> {
            Ok(vec!["only".to_string()])
        }

        fn open(&self, _: &str, position: Option<&[u8]>, _: Waker) -> Result<Box<dyn Reader<Item = u8>>, SourceError> {
            Ok(Box::new(TenReader(position.map_or(0, |p| p[0]))))
        }
    }

    impl Reader for TenReader {
        type Item = u8;

        fn read(&mut self, out: &mut Vec<u8>, max: usize) -> Result<Read, SourceError> {
            let end = 10.min(usize::from(self.0) + max) as u8;
            out.extend(self.0..end);
            self.0 = end;
            Ok(if end == 10 { Read::Exhausted } else { Read::More })
        }

        fn position(&self) -> Vec<u8> {
            vec![self.0]
        }
    }

    fn metered(rate: Option<u64>, on_read: Option<OnRead>) -> Metered<Ten> {
        Metered { inner: Ten, rate, on_read, clock: Arc::new(cutwater_platform::SystemClock::new()) }
    }

    #[test]
    fn the_count_goes_back_with_the_position() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = seen.clone();
        let source = metered(None, Some(Arc::new(move |n| tell.lock().unwrap().push(n))));
        let mut out = Vec::new();
        let mut reader = source.open("only", None, Waker::noop()).unwrap();
        reader.read(&mut out, 3).unwrap();
        let position = reader.position();
        reader.read(&mut out, 3).unwrap();
        let mut reader = source.open("only", Some(&position), Waker::noop()).unwrap();
        assert_eq!(reader.read(&mut out, 100).unwrap(), Read::Exhausted);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(*seen.lock().unwrap(), [3, 6, 10]);
        assert!(source.open("only", Some(&[1, 2]), Waker::noop()).is_err());
    }

    #[test]
    fn a_rate_lets_through_what_is_due_and_no_more() {
        let budget = Budget { rate: 1000, opened: Duration::from_secs(5), read: 30 };
        assert_eq!(budget.due(Duration::from_secs(5)), 0);
        assert_eq!(budget.due(Duration::from_millis(5030)), 0);
        assert_eq!(budget.due(Duration::from_millis(5100)), 70);
        let mut reader = metered(Some(1), None).open("only", None, Waker::noop()).unwrap();
        assert_eq!(reader.read(&mut Vec::new(), 100).unwrap(), Read::WaitMs(1));
    }
}
