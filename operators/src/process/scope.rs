//! What a process function may touch while it handles a record or a timer.

use std::fmt;

use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{TimeMode, Timed};
use cutwater_engine::state::StateKey;
use cutwater_engine::time::{EventTime, WallTime, Watermark};

use super::operator::Alarms;

/// A timer that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The watermark has reached this time.
    Event(EventTime),
    /// The wall clock has reached this time, or nothing more will come.
    Wall(WallTime),
}

/// The key at hand, its time, the output, the timers.
pub struct Scope<'a, K, Out: 'static, M: TimeMode> {
    pub(super) key: &'a K,
    pub(super) time: EventTime,
    pub(super) watermark: Watermark,
    pub(super) wall: WallTime,
    pub(super) out: &'a mut Vec<M::Of<Out>>,
    pub(super) alarms: &'a mut Alarms<K>,
}

impl<K: fmt::Debug, Out: 'static, M: TimeMode> fmt::Debug for Scope<'_, K, Out, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?} at {}, watermark {})", self.key, self.time, self.watermark)
    }
}

impl<K: CanonicalKey + StateKey, Out: 'static, M: TimeMode> Scope<'_, K, Out, M> {
    /// The key.
    pub fn key(&self) -> &K {
        self.key
    }

    /// Emits a record. On a stream with event times it gets the time of the record or the event-time timer at hand; from a
    /// timer of processing time, which has none, the watermark.
    pub fn emit(&mut self, record: Out) {
        self.out.push(M::at(self.time, record));
    }

    /// No record below it is still to come, for this key.
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// True when nothing more will come. Whoever sets a new timer in every timer must stop then, or the job never ends.
    pub fn input_ended(&self) -> bool {
        self.watermark == Watermark::MAX
    }

    /// Processing time, when the batch or the timer at hand began to be handled. Two attempts see different ones, so it may
    /// decide *when* something is said; what is said should depend on it only where that is the point.
    pub fn wall(&self) -> WallTime {
        self.wall
    }

    /// Sets a timer of processing time for this key: it fires when the wall clock has reached `time`, at latest a second
    /// after. One that is set twice for one time is one. Timers are state: those that came due while the job stood still fire
    /// in the order of their times before the first record; those that wait when nothing more will come fire then, in the
    /// order of their times.
    pub fn set_wall_timer(&mut self, time: WallTime) {
        self.alarms.wall.set(self.key, time.0);
    }

    /// Takes back [`Scope::set_wall_timer`].
    pub fn delete_wall_timer(&mut self, time: WallTime) {
        self.alarms.wall.delete(self.key, time.0);
    }

    /// The time that output gets.
    pub(super) fn out_time(&self) -> EventTime {
        self.time
    }
}

impl<K: CanonicalKey + StateKey, Out: 'static> Scope<'_, K, Out, Timed> {
    /// The time of the record or the event-time timer at hand; in a timer of processing time, the watermark.
    pub fn time(&self) -> EventTime {
        self.time
    }

    /// Sets an event-time timer for this key: it fires when the watermark has reached `time`; when it has already, as soon as
    /// the record or timer at hand has been handled. One that is set twice for one time is one.
    pub fn set_timer(&mut self, time: EventTime) {
        self.alarms.set_event(self.key, time, self.watermark);
    }

    /// Takes back [`Scope::set_timer`].
    pub fn delete_timer(&mut self, time: EventTime) {
        self.alarms.delete_event(self.key, time);
    }
}
