//! The operator that calls a process function.
//!
//! Invariants:
//!
//! * No event-time timer is set at or below the watermark once a frame has been handled: it has fired.
//! * Timers that are due fire before the next record of the same batch, and before a watermark is passed on.
//! * Between two calls of the function it is looked whether there is room; what one call emits is not divided.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::{CanonicalKey, canonical_bytes};
use cutwater_engine::graph::{OperatorSetup, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator, Saved};
use cutwater_engine::state::{KeyedState, StateKey, StateTooLarge};
use cutwater_engine::time::{EventTime, WallTime, Watermark};

use super::scope::{Scope, Timer};
use super::states::Declare;
use super::timers::Timers;
use super::{EVENT_TIMERS, KeyedProcess, WALL_TIMERS};
use crate::floors::TimeOfKeys;

/// The name under which the watermarks are saved.
const PASSED: &str = "passed";
/// The wall clock may be set: it is looked at this often while a timer waits for it.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(1);
/// Expired entries that a watermark may remove, per state.
const REMOVED_PER_WATERMARK: usize = 1024;

/// Timers of both kinds.
pub(super) struct Alarms<K> {
    event: Timers<K>,
    pub(super) wall: Timers<K>,
    /// Set for a time that the channels haven't reached and the key's former owner had. They fire within the same frame.
    overdue: BTreeMap<(i64, Vec<u8>), K>,
    /// Up to here event-time timers fire.
    firing_to: Watermark,
}

impl<K: CanonicalKey + StateKey> Alarms<K> {
    pub(super) fn set_event(&mut self, key: &K, time: EventTime, passed: Watermark) {
        if self.firing_to < time && time <= passed {
            self.overdue.insert((time.0, canonical_bytes(key)), key.clone());
        } else {
            self.event.set(key, time.0);
        }
    }

    pub(super) fn delete_event(&mut self, key: &K, time: EventTime) {
        self.overdue.remove(&(time.0, canonical_bytes(key)));
        self.event.delete(key, time.0);
    }

    fn pop_event(&mut self) -> Option<(EventTime, K)> {
        if let Some(((time, _), key)) = self.overdue.pop_first() {
            return Some((EventTime(time), key));
        }
        self.event.pop(self.firing_to.0).map(|(time, key)| (EventTime(time), key))
    }

    fn event_is_due(&mut self) -> bool {
        !self.overdue.is_empty() || self.event.next().is_some_and(|time| time <= self.firing_to.0)
    }
}

/// One instance.
pub(super) struct ProcessOperator<K, T: 'static, M: TimeMode, P: KeyedProcess<K, T, M>> {
    function: P,
    declared: Declare<K, M>,
    state_limit: usize,
    clock: Box<dyn Fn() -> WallTime>,
    alarms: Alarms<K>,
    /// Up to where event-time timers have fired.
    time: TimeOfKeys,
    wall: WallTime,
    /// Records of the batch at hand.
    records: std::vec::IntoIter<(K, M::Of<T>)>,
    /// Woken: timers of processing time fire up to here.
    waking: Option<WallTime>,
    /// To be passed on when its timers have fired.
    passing: Option<Watermark>,
    out: Vec<M::Of<P::Out>>,
    types: PhantomData<fn(T)>,
}

/// What to call the function for.
enum Call<R> {
    Record(R),
    Timer(Timer),
}

impl<K, T, M, P> ProcessOperator<K, T, M, P>
where
    K: Data + CanonicalKey + StateKey,
    T: 'static,
    M: TimeMode,
    M::Of<T>: Data,
    M::Of<P::Out>: Send,
    P: KeyedProcess<K, T, M>,
{
    pub(super) fn new(function: P, declared: Declare<K, M>, setup: &OperatorSetup) -> Self {
        let clock = setup.environment.platform.clock.clone();
        let (event, wall) = (Timers::new(EVENT_TIMERS), Timers::new(WALL_TIMERS));
        ProcessOperator {
            function,
            declared,
            state_limit: setup.environment.limits.state_bytes,
            clock: Box::new(move || clock.wall()),
            alarms: Alarms { event, wall, overdue: BTreeMap::new(), firing_to: Watermark::MIN },
            time: TimeOfKeys::new(setup),
            wall: WallTime(i64::MIN),
            records: vec![].into_iter(),
            waking: None,
            passing: None,
            out: vec![],
            types: PhantomData,
        }
    }

    /// What comes next, in this order: timers that are due, those of a wake-up, records, what waits at the end of all.
    fn next(&mut self) -> Option<(K, Call<M::Of<T>>)> {
        if let Some((time, key)) = self.alarms.pop_event() {
            return Some((key, Call::Timer(Timer::Event(time))));
        }
        if let Some(up_to) = self.waking {
            if let Some((time, key)) = self.alarms.wall.pop(up_to.0) {
                return Some((key, Call::Timer(Timer::Wall(WallTime(time)))));
            }
            self.waking = None;
        }
        if let Some((key, record)) = self.records.next() {
            return Some((key, Call::Record(record)));
        }
        if self.passing == Some(Watermark::MAX) {
            let (time, key) = self.alarms.wall.pop(i64::MAX)?;
            self.wall = self.wall.max(WallTime(time));
            return Some((key, Call::Timer(Timer::Wall(WallTime(time)))));
        }
        None
    }

    /// True when [`Self::next`] has something, or may have.
    fn has_next(&mut self) -> bool {
        self.waking.is_some() || self.records.len() > 0 || self.passing.is_some() || self.alarms.event_is_due()
    }

    fn call(&mut self, key: &K, call: Call<M::Of<T>>) {
        let watermark = self.time.of(key).max(self.alarms.firing_to);
        let time = match &call {
            Call::Record(record) => M::time(record).unwrap_or(watermark),
            Call::Timer(Timer::Event(time)) => *time,
            Call::Timer(Timer::Wall(_)) => watermark,
        };
        let (wall, out, alarms) = (self.wall, &mut self.out, &mut self.alarms);
        let mut cx = Scope { key, time, watermark, wall, out, alarms };
        match call {
            Call::Record(record) => self.function.on_record(M::into_value(record), &mut cx),
            Call::Timer(timer) => self.function.on_timer(timer, &mut cx),
        }
    }

    fn waiting(&self) -> usize {
        self.out.len() + self.declared.sides.iter().map(|side| side.len()).sum::<usize>()
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        cx.emit(0, std::mem::take(&mut self.out));
        for (i, side) in self.declared.sides.iter().enumerate() {
            side.flush(1 + i, cx);
        }
    }

    /// Goes on until nothing is left or there is no room.
    fn go_on(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        loop {
            if self.waiting() >= cx.room().min(cx.batch_records()) {
                self.flush(cx);
            }
            if cx.room() == 0 && self.has_next() {
                return Ok(Flow::Pending);
            }
            let Some((key, call)) = self.next() else { break };
            self.call(&key, call);
        }
        self.flush(cx);
        if let Some(watermark) = self.passing.take() {
            self.time.advance(watermark);
            self.declared.expiring.iter().for_each(|state| state.forget(watermark, REMOVED_PER_WATERMARK));
            cx.watermark(watermark);
        }
        self.check_limit()?;
        self.ask_to_be_woken(cx);
        Ok(Flow::Done)
    }

    fn ask_to_be_woken(&mut self, cx: &mut Context<'_>) {
        if let Some(next) = self.alarms.wall.next() {
            let wait = u64::try_from(next.saturating_sub((self.clock)().0)).unwrap_or(0);
            cx.wake_after(Duration::from_millis(wait).min(LOOK_AT_CLOCK));
        }
    }

    fn check_limit(&mut self) -> Result<(), OperatorError> {
        let (mut bytes, mut entries, mut largest) = (0, 0, (0, String::new()));
        for state in self.states() {
            let mut state = state.borrow_mut();
            let own = state.bytes_estimate();
            (bytes, entries) = (bytes + own, entries + state.len());
            if own >= largest.0 {
                largest = (own, state.name().as_str().to_string());
            }
        }
        if bytes <= self.state_limit {
            return Ok(());
        }
        let error = StateTooLarge { state: largest.1, entries, bytes, limit: self.state_limit };
        Err(OperatorError::Failed(error.to_string()))
    }
}

impl<K, T, M, P> Operator for ProcessOperator<K, T, M, P>
where
    K: Data + CanonicalKey + StateKey,
    T: 'static,
    M: TimeMode,
    M::Of<T>: Data,
    M::Of<P::Out>: Send,
    P: KeyedProcess<K, T, M>,
{
    fn on_start(&mut self, cx: &mut Context<'_>) -> Result<(), OperatorError> {
        if self.alarms.wall.next().is_some() {
            // At once: before the first frame it is looked what has come due.
            cx.wake_after(Duration::ZERO);
        }
        Ok(())
    }

    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take_wire::<(K, M::Of<T>)>();
        cx.counters().absorbed += records.len() as u64;
        let (watermark, budget) = (self.time.watermark(), 2 * records.len());
        self.declared.expiring.iter().for_each(|state| state.forget(watermark, budget));
        self.wall = (self.clock)();
        self.records = records.into_iter();
        self.go_on(cx)
    }

    fn on_watermark(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.wall = (self.clock)();
        self.alarms.firing_to = watermark;
        self.passing = Some(watermark);
        self.go_on(cx)
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.wall = (self.clock)();
        self.waking = Some(self.wall);
        self.go_on(cx)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.go_on(cx)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        let timers = [self.alarms.event.state(), self.alarms.wall.state()];
        timers.into_iter().chain(self.declared.states.iter().cloned()).collect()
    }

    fn save(&mut self) -> Vec<(String, Vec<u8>)> {
        vec![self.time.save(PASSED)]
    }

    fn restore(&mut self, saved: &Saved) -> Result<(), OperatorError> {
        self.time.restore(saved, PASSED)
    }
}
