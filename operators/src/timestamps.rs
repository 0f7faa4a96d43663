//! `timestamps`: gives records their event time, and the stream its watermark.
//!
//! * Emits: every record with its time; after a batch the watermark `largest time seen - bound`, if it rose.
//!   [`Watermark::MAX`] from upstream passes through; smaller watermarks from upstream say nothing about these times and end
//!   here.
//! * State: the largest time seen, one number per worker. Restored on the same number of workers each takes its own;
//!   on another number all take the smallest, since nobody knows which splits they will read.
//! * At a barrier: the largest time is saved. After a restore the watermark is said again before the first record.
//! * Counts: every record as passed. A record behind the watermark is passed on as well: whoever has a window decides
//!   whether it is late.
//!
//! The bound is per worker: a worker that reads several splits in turn sees them as one stream, so the bound must cover how
//! far they are apart.

use std::marker::PhantomData;
use std::time::Duration;

use cutwater_engine::element::Batch;
use cutwater_engine::error::OperatorError;
use cutwater_engine::graph::{OperatorSetup, Stream, Timed, Untimed};
use cutwater_engine::operator::{Context, Flow, Operator, Saved};
use cutwater_engine::time::{EventTime, Watermark};

/// The name under which the largest time is saved.
const SAVED_AS: &str = "largest-time";
/// The version of its format, before eight bytes, least significant first.
const SAVED_VERSION: u8 = 1;

/// How far records may be behind the latest one and still be in time.
///
/// The bound *is* the tolerance: a window fires when the watermark, `largest time seen - bound`, reaches its end. A larger
/// bound waits longer and loses less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    ms: i64,
    idle_after: Option<Duration>,
}

impl Bounded {
    /// By this many milliseconds; 0 if times never go back.
    pub const fn millis(n: u32) -> Bounded {
        Bounded { ms: n as i64, idle_after: None }
    }

    /// By this many seconds.
    pub const fn seconds(n: u32) -> Bounded {
        Bounded { ms: n as i64 * 1000, idle_after: None }
    }

    /// By this many minutes.
    pub const fn minutes(n: u32) -> Bounded {
        Bounded { ms: n as i64 * 60_000, idle_after: None }
    }

    /// By this many hours.
    pub const fn hours(n: u32) -> Bounded {
        Bounded { ms: n as i64 * 3_600_000, idle_after: None }
    }

    /// A worker on which no record has come for this long says that it is idle, and no longer holds back the watermark of the
    /// others. If older records come on it afterwards, they may be late.
    ///
    /// This is measured in processing time: it decides when windows fire, and so which records are late, and a second run
    /// may decide otherwise. Leave it out where all splits always have records, or end.
    #[must_use]
    pub const fn idle_after(self, how_long: Duration) -> Bounded {
        Bounded { idle_after: Some(how_long), ..self }
    }

    /// The watermark after `largest`. Never MAX, which would say that nothing at all follows.
    fn watermark(self, largest: EventTime) -> Watermark {
        largest.saturating_add_ms(-self.ms).min(EventTime::MAX.saturating_add_ms(-1))
    }
}

/// Adds `timestamps` to streams without times.
pub trait Timestamps<T: 'static> {
    /// Gives each record the event time that `time` reads from it.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::{Rig, Seen};
    /// use cutwater_engine::time::EventTime;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (numbers, stream) = rig.input::<i64, Untimed>("numbers");
    /// let out = rig.collect(stream.timestamps(|n| EventTime(*n), Bounded::millis(10)));
    /// rig.push(&numbers, vec![100]);
    /// assert_eq!(out.take(), [Seen::Record((EventTime(100), 100)), Seen::Watermark(EventTime(90))]);
    /// ```
    fn timestamps(self, time: impl Fn(&T) -> EventTime + 'static, bounded: Bounded) -> Stream<T, Timed>
    where
        T: Send;
}

impl<T: 'static> Timestamps<T> for Stream<T, Untimed> {
    fn timestamps(self, time: impl Fn(&T) -> EventTime + 'static, bounded: Bounded) -> Stream<T, Timed>
    where
        T: Send,
    {
        let make = move |_: &OperatorSetup| {
            let (largest, idle, last_batch) = (None, false, Duration::ZERO);
            let operator = Assign { time, bounded, largest, idle, last_batch, records: PhantomData };
            Ok(Box::new(operator) as Box<dyn Operator>)
        };
        self.operator_auto("timestamps", 1, make).stream::<T, Timed>(0)
    }
}

/// Assigns times to one worker's share.
struct Assign<T, F> {
    time: F,
    bounded: Bounded,
    largest: Option<EventTime>,
    /// We have said that we are idle.
    idle: bool,
    /// When a batch came last; at first, when we started.
    last_batch: Duration,
    records: PhantomData<fn(T)>,
}

impl<T, F> Assign<T, F> {
    /// Begins to wait for the next batch.
    fn expect_batch(&mut self, cx: &mut Context<'_>) {
        self.last_batch = cx.now();
        if let Some(idle_after) = self.bounded.idle_after {
            cx.wake_after(idle_after);
        }
    }
}

impl<T: Send + 'static, F: Fn(&T) -> EventTime + 'static> Operator for Assign<T, F> {
    fn on_start(&mut self, cx: &mut Context<'_>) -> Result<(), OperatorError> {
        self.expect_batch(cx);
        if let Some(largest) = self.largest {
            cx.watermark(self.bounded.watermark(largest));
        }
        Ok(())
    }

    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        if std::mem::take(&mut self.idle) {
            cx.active();
        }
        self.expect_batch(cx);
        let mut timed = Vec::with_capacity(batch.len());
        let before = self.largest;
        for record in batch.take::<T>() {
            let time = (self.time)(&record);
            self.largest = self.largest.max(Some(time));
            timed.push((time, record));
        }
        cx.counters().passed += timed.len() as u64;
        cx.emit(0, timed);
        if let Some(largest) = self.largest.filter(|_| self.largest > before) {
            cx.watermark(self.bounded.watermark(largest));
        }
        Ok(Flow::Done)
    }

    fn on_watermark(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        if watermark == Watermark::MAX {
            cx.watermark(watermark);
        }
        Ok(Flow::Done)
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let Some(idle_after) = self.bounded.idle_after.filter(|_| !self.idle) else { return Ok(Flow::Done) };
        match idle_after.checked_sub(cx.now().saturating_sub(self.last_batch)) {
            // A batch has come since this was asked for.
            Some(rest) if !rest.is_zero() => cx.wake_after(rest),
            _ => {
                self.idle = true;
                cx.idle();
            }
        }
        Ok(Flow::Done)
    }

    fn save(&mut self) -> Vec<(String, Vec<u8>)> {
        let encode = |largest: EventTime| [&[SAVED_VERSION], &largest.0.to_le_bytes()[..]].concat();
        self.largest.map(|largest| (SAVED_AS.to_string(), encode(largest))).into_iter().collect()
    }

    fn restore(&mut self, saved: &Saved) -> Result<(), OperatorError> {
        let times = saved.named(SAVED_AS).map(|(_, bytes)| decode(bytes)).collect::<Result<Vec<_>, _>>()?;
        // A worker that saved nothing had seen nothing: its split may still hold the oldest records.
        let all_had_seen = saved.same_workers || times.len() == saved.instances.len();
        self.largest = times.into_iter().min().filter(|_| all_had_seen);
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> Result<EventTime, OperatorError> {
    match bytes {
        [SAVED_VERSION, time @ ..] if time.len() == 8 => {
            Ok(EventTime(i64::from_le_bytes(time.try_into().expect("eight bytes"))))
        }
        [SAVED_VERSION, ..] | [] => {
            Err(OperatorError::Failed(format!("the saved largest time has {} bytes instead of 9", bytes.len())))
        }
        [version, ..] => Err(OperatorError::Failed(format!(
            "the largest time was saved in version {version}, and this program knows {SAVED_VERSION}; use a newer program"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::operator::testing::{Collected, Input, Rig, RigSnapshot, Seen};

    use super::*;

    fn timing(mut rig: Rig, bounded: Bounded) -> (Rig, Input<i64>, Collected<(EventTime, i64)>) {
        let (times, stream) = rig.input::<i64, Untimed>("times");
        let out = rig.collect(stream.timestamps(|t| EventTime(*t), bounded));
        (rig, times, out)
    }

    fn record(t: i64) -> Seen<(EventTime, i64)> {
        Seen::Record((EventTime(t), t))
    }

    fn watermark(t: i64) -> Seen<(EventTime, i64)> {
        Seen::Watermark(EventTime(t))
    }

    #[test]
    fn the_watermark_follows_the_largest_time_and_never_goes_back() {
        let (mut rig, times, out) = timing(Rig::new(), Bounded::millis(10));
        rig.push(&times, vec![100, 105, 95]);
        rig.push(&times, vec![50]);
        rig.watermark(&times, EventTime(1_000));
        rig.push(&times, vec![106]);
        rig.finish();
        let batches = [record(100), record(105), record(95), watermark(95), record(50), record(106), watermark(96)];
        assert_eq!(out.take(), [&batches[..], &[watermark(i64::MAX), Seen::End]].concat());
    }

    #[test]
    fn times_at_the_ends_of_the_range_never_make_the_last_watermark() {
        let (mut rig, times, out) = timing(Rig::new(), Bounded::millis(0));
        rig.push(&times, vec![i64::MIN]);
        rig.push(&times, vec![i64::MAX]);
        assert_eq!(out.take()[1..], [watermark(i64::MIN), record(i64::MAX), watermark(i64::MAX - 1)]);
    }

    #[test]
    fn after_a_restore_the_watermark_is_said_again_before_the_first_record() {
        let (mut rig, times, out) = timing(Rig::new(), Bounded::seconds(1));
        rig.push(&times, vec![5_000]);
        let snapshot = rig.checkpoint();
        rig.push(&times, vec![9_000]);
        drop(out);
        let (mut rig, times, out) = timing(Rig::new(), Bounded::seconds(1));
        rig.restore(&[snapshot]);
        rig.push(&times, vec![4_500]);
        assert_eq!(out.take(), [watermark(4_000), record(4_500)]);
    }

    #[test]
    fn another_number_of_workers_goes_on_from_the_smallest_time() {
        let saved = |worker: u32, seen: Vec<i64>| -> RigSnapshot {
            let (mut rig, times, _) = timing(Rig::on_worker(worker, 2), Bounded::millis(10));
            rig.push(&times, seen);
            rig.checkpoint()
        };
        let restored = |worker, workers, snapshots: &[RigSnapshot]| {
            let (mut rig, _, out) = timing(Rig::on_worker(worker, workers), Bounded::millis(10));
            rig.restore(snapshots);
            rig.start();
            out.take()
        };
        let both = [saved(0, vec![100]), saved(1, vec![200])];
        assert_eq!(restored(0, 1, &both), [watermark(90)]);
        assert_eq!(restored(1, 2, &both), [watermark(190)], "its own on the same number of workers");
        let one_silent = [saved(0, vec![100]), saved(1, vec![])];
        assert_eq!(restored(0, 1, &one_silent), [], "a split that nobody has read may hold the oldest records");
    }

    #[test]
    fn a_silent_worker_says_that_it_is_idle_until_the_next_record() {
        let (mut rig, times, out) = timing(Rig::new(), Bounded::millis(0).idle_after(Duration::from_secs(10)));
        rig.start();
        rig.pass(Duration::from_secs(6));
        rig.push(&times, vec![1]);
        rig.pass(Duration::from_secs(6));
        assert_eq!(out.take(), [record(1), watermark(1)], "a record came six seconds ago");
        rig.pass(Duration::from_secs(4));
        rig.pass(Duration::from_secs(60));
        rig.push(&times, vec![0]);
        assert_eq!(out.take(), [Seen::Idle, Seen::Active, record(0)]);
        rig.pass(Duration::from_secs(10));
        assert_eq!(out.take(), [Seen::Idle]);
    }

    #[test]
    fn what_was_not_saved_by_this_operator_is_refused() {
        assert!(decode(&[]).is_err());
        assert!(decode(&[1, 2, 3]).is_err());
        assert!(decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]).expect_err("unknown").to_string().contains("version 2"));
        assert_eq!(decode(&[1, 5, 0, 0, 0, 0, 0, 0, 0]).expect("saved"), EventTime(5));
    }
}
