//! The operator of tumbling windows: aggregates in keyed state, fired by the watermark.
//!
//! Invariants:
//!
//! * `open` has exactly the keys and windows that the state has. It is made from the state at the first frame after a restore.
//! * No window whose end the watermark has reached is open, once the watermark has been handled.
//! * A record is late exactly when its window ends at or below the larger of watermark and floor of its key group.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::OperatorSetup;
use cutwater_engine::operator::{Context, Flow, Operator, Saved};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, Scoped, State, StateKey, StateValue};
use cutwater_engine::time::{EventTime, Watermark};

use super::tumbling::{Tumbling, Window};
use super::{FIRED, LATE, RESULTS, shape};
use crate::floors::TimeOfKeys;
use crate::key_order::in_canonical_order;

/// What to make of a window.
pub(super) struct Functions<K, T, A, R, Init, Add, Finish> {
    pub(super) init: Init,
    pub(super) add: Add,
    pub(super) finish: Finish,
    /// Which types they take and give.
    pub(super) types: PhantomData<fn(K, T, A) -> R>,
}

/// One instance.
pub(super) struct WindowOperator<K, T, A, R, Init, Add, Finish> {
    windows: Tumbling,
    functions: Functions<K, T, A, R, Init, Add, Finish>,
    with_late: bool,
    state_limit: usize,
    state: Rc<RefCell<State<Scoped<K, i64>, A>>>,
    /// The keys of each open window, by its start; in the order of their first records.
    open: BTreeMap<i64, Vec<K>>,
    /// False until `open` was made from a restored state.
    open_is_made: bool,
    /// Up to where windows have fired.
    fired: TimeOfKeys,
    /// The watermark that is being handled.
    firing_to: Watermark,
    firing: Option<Firing<K>>,
}

/// A window that is being fired.
struct Firing<K> {
    window: Window,
    /// Keys whose results are still to be emitted.
    keys: std::vec::IntoIter<K>,
}

impl<K, T, A, R, Init, Add, Finish> WindowOperator<K, T, A, R, Init, Add, Finish>
where
    K: Data + CanonicalKey + StateKey,
    A: StateValue,
    Finish: Fn(&K, Window, A) -> R,
{
    pub(super) fn new(
        windows: Tumbling,
        functions: Functions<K, T, A, R, Init, Add, Finish>,
        with_late: bool,
        setup: &OperatorSetup,
    ) -> Self {
        let name = StateName::new("windows").expect("a name that fits");
        WindowOperator {
            windows,
            functions,
            with_late,
            state_limit: setup.environment.limits.state_bytes,
            state: Rc::new(RefCell::new(State::new(name, 1))),
            open: BTreeMap::new(),
            open_is_made: false,
            fired: TimeOfKeys::new(setup),
            firing_to: Watermark::MIN,
            firing: None,
        }
    }

    /// Finds the open windows in a state that was restored.
    fn make_open(&mut self) {
        if !std::mem::replace(&mut self.open_is_made, true) {
            for (Scoped { key, scope }, _) in self.state.borrow().iter() {
                self.open.entry(*scope).or_default().push(key.clone());
            }
        }
    }

    /// Open windows are known by their start alone, so these must not change.
    fn shape(&self) -> [i64; 2] {
        [self.windows.size_ms(), self.windows.offset_ms()]
    }

    /// True if a window is left that must fire.
    fn must_fire(&self) -> bool {
        let next = self.open.first_key_value().map(|(start, _)| self.windows.starting_at(*start));
        self.firing.is_some() || next.is_some_and(|window| window.end <= self.firing_to)
    }

    /// Begins to fire the next window: it is no longer open.
    fn begin_next(&mut self) {
        if self.firing.is_none()
            && self.must_fire()
            && let Some((start, keys)) = self.open.pop_first()
        {
            let keys = in_canonical_order(keys, |key| key).into_iter();
            self.firing = Some(Firing { window: self.windows.starting_at(start), keys });
        }
    }

    /// Fires until there are `len` results, or no window is left that must fire.
    fn fire(&mut self, len: usize) -> Vec<(EventTime, R)> {
        let mut results = Vec::with_capacity(len.min(self.state.borrow().len()));
        while results.len() < len {
            self.begin_next();
            let Some(Firing { window, keys }) = &mut self.firing else { break };
            let mut state = self.state.borrow_mut();
            results.extend(keys.take(len - results.len()).map(|key| {
                let scoped = Scoped { key, scope: window.start.0 };
                let aggregate = state.remove(&scoped).expect("an open window is in the state");
                (window.last(), (self.functions.finish)(&scoped.key, *window, aggregate))
            }));
            if keys.len() == 0 {
                self.firing = None;
            }
        }
        results
    }
}

impl<K, T, A, R, Init, Add, Finish> Operator for WindowOperator<K, T, A, R, Init, Add, Finish>
where
    K: Data + CanonicalKey + StateKey,
    T: Data,
    A: StateValue,
    R: Send + 'static,
    Init: Fn() -> A + 'static,
    Add: Fn(&mut A, &T) + 'static,
    Finish: Fn(&K, Window, A) -> R + 'static,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.make_open();
        let records = batch.take_wire::<(K, (EventTime, T))>();
        let (mut absorbed, mut late, mut late_records) = (0, 0, vec![]);
        let mut state = self.state.borrow_mut();
        for (key, (time, record)) in records {
            let window = self.windows.window_of(time);
            if window.end <= self.fired.of(&key) {
                late += 1;
                if self.with_late {
                    late_records.push((time, (key, record)));
                }
                continue;
            }
            absorbed += 1;
            let scoped = Scoped { key, scope: window.start.0 };
            let mut is_new = false;
            let aggregate = state.entry(&scoped, || {
                is_new = true;
                (self.functions.init)()
            });
            (self.functions.add)(aggregate, &record);
            if is_new {
                self.open.entry(scoped.scope).or_default().push(scoped.key);
            }
        }
        state.check_limit(self.state_limit)?;
        cx.counters().absorbed += absorbed;
        cx.counters().late += late;
        if self.with_late {
            cx.emit(LATE, late_records);
        }
        Ok(Flow::Done)
    }

    fn on_watermark(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.make_open();
        self.firing_to = watermark;
        self.resume(cx)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        while self.must_fire() {
            let len = cx.room().min(cx.batch_records());
            if len == 0 {
                return Ok(Flow::Pending);
            }
            let results = self.fire(len);
            cx.emit(RESULTS, results);
        }
        // Only now, behind the results: their time is below it.
        self.fired.advance(self.firing_to);
        cx.watermark(self.firing_to);
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.state.clone()]
    }

    fn save(&mut self) -> Vec<(String, Vec<u8>)> {
        vec![self.fired.save(FIRED), shape::save(&self.shape())]
    }

    fn restore(&mut self, saved: &Saved) -> Result<(), OperatorError> {
        shape::check(saved, &self.shape(), |shape| format!("{} ms long, moved by {} ms", shape[0], shape[1]))?;
        self.fired.restore(saved, FIRED)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
