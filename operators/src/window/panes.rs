//! The operator of sliding windows: an aggregate per key and pane, merged into a window's when that fires.
//!
//! A record is added once, whatever number of windows it is in; a window costs one merge per key and pane in it. So memory
//! and work per record don't grow when windows slide in smaller steps.
//!
//! Invariants:
//!
//! * `open` has exactly the keys and panes that the state has. It is made from the state at the first frame after a restore.
//! * A pane is open while a window that has it hasn't fired: once the watermark has been handled, the last window of each
//!   open pane ends above it.
//! * A record is late exactly when the last window of its pane ends at or below the larger of watermark and floor of its key
//!   group. Of its windows, those that have fired by then don't have it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::OperatorSetup;
use cutwater_engine::operator::{Context, Flow, Operator, Saved};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, Scoped, State, StateKey, StateValue};
use cutwater_engine::time::{EventTime, Watermark};

use super::operator::Functions;
use super::sliding::{Sliding, Start};
use super::tumbling::{Tumbling, Window};
use super::{FIRED, LATE, RESULTS, shape};
use crate::floors::TimeOfKeys;
use crate::key_order::in_canonical_order;

/// One instance.
pub(super) struct PaneOperator<K, T, A, R, Init, Add, Merge, Finish> {
    windows: Sliding,
    panes: Tumbling,
    functions: Functions<K, T, A, R, Init, Add, Finish>,
    merge: Merge,
    with_late: bool,
    state_limit: usize,
    state: Rc<RefCell<State<Scoped<K, i64>, A>>>,
    /// The keys of each open pane, by its start; in the order of their first records.
    open: BTreeMap<i64, Vec<K>>,
    /// False until `open` was made from a restored state.
    open_is_made: bool,
    /// Up to where windows have fired.
    fired: TimeOfKeys,
    /// The watermark that is being handled.
    firing_to: Watermark,
    /// The window after the last one that was fired for it.
    after_fired: Option<Start>,
    firing: Option<Firing<K>>,
}

/// A window that is being fired.
struct Firing<K> {
    window: Window,
    /// Its open panes; those that no later window has go with it.
    panes: Vec<Pane>,
    /// Keys whose results are still to be emitted.
    keys: std::vec::IntoIter<K>,
}

/// A pane of a window.
struct Pane {
    start: i64,
    is_last_time: bool,
}

impl<K, T, A, R, Init, Add, Merge, Finish> PaneOperator<K, T, A, R, Init, Add, Merge, Finish>
where
    K: Data + CanonicalKey + StateKey,
    A: StateValue,
    Merge: Fn(&mut A, &A),
    Finish: Fn(&K, Window, A) -> R,
{
    pub(super) fn new(
        windows: Sliding,
        functions: Functions<K, T, A, R, Init, Add, Finish>,
        merge: Merge,
        with_late: bool,
        setup: &OperatorSetup,
    ) -> Self {
        let name = StateName::new("panes").expect("a name that fits");
        PaneOperator {
            windows,
            panes: windows.panes(),
            functions,
            merge,
            with_late,
            state_limit: setup.environment.limits.state_bytes,
            state: Rc::new(RefCell::new(State::new(name, 1))),
            open: BTreeMap::new(),
            open_is_made: false,
            fired: TimeOfKeys::new(setup),
            firing_to: Watermark::MIN,
            after_fired: None,
            firing: None,
        }
    }

    /// Finds the open panes in a state that was restored.
    fn make_open(&mut self) {
        if !std::mem::replace(&mut self.open_is_made, true) {
            for (Scoped { key, scope }, _) in self.state.borrow().iter() {
                self.open.entry(*scope).or_default().push(key.clone());
            }
        }
    }

    fn shape(&self) -> [i64; 3] {
        [self.windows.size_ms(), self.windows.slide_ms(), self.windows.offset_ms()]
    }

    /// The next window that must fire: the first one with an open pane that hasn't.
    fn next(&self) -> Option<Start> {
        let (pane, _) = self.open.first_key_value()?;
        let unfired = self.windows.first_after(self.fired.watermark())?;
        let next = self.windows.first(*pane).max(unfired).max(self.after_fired.unwrap_or(unfired));
        (self.windows.window(next).end <= self.firing_to).then_some(next)
    }

    /// Begins to fire the next window.
    fn begin(&mut self, next: Start) {
        let of_window = self.open.iter().take_while(|(start, _)| self.windows.has(next, **start));
        let (mut panes, mut keys) = (vec![], vec![]);
        for (&start, keys_of_pane) in of_window {
            panes.push(Pane { start, is_last_time: self.windows.last(start) == next });
            keys.extend(keys_of_pane.iter().cloned());
        }
        assert!(!panes.is_empty(), "the next window has the first open pane");
        let mut keys = in_canonical_order(keys, |key| key);
        keys.dedup();
        self.firing = Some(Firing { window: self.windows.window(next), panes, keys: keys.into_iter() });
        self.after_fired = Some(self.windows.next(next));
    }

    /// Fires until there are `len` results, or no window is left that must fire.
    fn fire(&mut self, len: usize) -> Vec<(EventTime, R)> {
        let mut results = vec![];
        while results.len() < len {
            if self.firing.is_none() {
                let Some(next) = self.next() else { break };
                self.begin(next);
            }
            let Some(Firing { window, panes, keys }) = &mut self.firing else { break };
            let mut state = self.state.borrow_mut();
            for key in keys.by_ref() {
                let mut scoped = Scoped { key, scope: 0 };
                let mut whole: Option<A> = None;
                for pane in panes.iter() {
                    scoped.scope = pane.start;
                    match (&mut whole, pane.is_last_time) {
                        (None, true) => whole = state.remove(&scoped),
                        (None, false) => whole = state.get(&scoped).cloned(),
                        (Some(whole), true) => {
                            state.remove(&scoped).iter().for_each(|more| (self.merge)(whole, more));
                        }
                        (Some(whole), false) => state.get(&scoped).iter().for_each(|more| (self.merge)(whole, more)),
                    }
                }
                let whole = whole.expect("a key of a pane is in the state");
                // Where the key was before, this window had fired.
                if window.end > self.fired.of(&scoped.key) {
                    results.push((window.last(), (self.functions.finish)(&scoped.key, *window, whole)));
                }
                if results.len() == len {
                    break;
                }
            }
            if keys.len() == 0 {
                panes.iter().filter(|pane| pane.is_last_time).for_each(|pane| drop(self.open.remove(&pane.start)));
                self.firing = None;
            }
        }
        results
    }
}

impl<K, T, A, R, Init, Add, Merge, Finish> Operator for PaneOperator<K, T, A, R, Init, Add, Merge, Finish>
where
    K: Data + CanonicalKey + StateKey,
    T: Data,
    A: StateValue,
    R: Send + 'static,
    Init: Fn() -> A + 'static,
    Add: Fn(&mut A, &T) + 'static,
    Merge: Fn(&mut A, &A) + 'static,
    Finish: Fn(&K, Window, A) -> R + 'static,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.make_open();
        let records = batch.take_wire::<(K, (EventTime, T))>();
        let (mut absorbed, mut late, mut late_records) = (0, 0, vec![]);
        let mut state = self.state.borrow_mut();
        for (key, (time, record)) in records {
            let pane = self.panes.window_of(time).start.0;
            if self.windows.window(self.windows.last(pane)).end <= self.fired.of(&key) {
                late += 1;
                if self.with_late {
                    late_records.push((time, (key, record)));
                }
                continue;
            }
            absorbed += 1;
            let scoped = Scoped { key, scope: pane };
            let mut is_new = false;
            let aggregate = state.entry(&scoped, || {
                is_new = true;
                (self.functions.init)()
            });
            (self.functions.add)(aggregate, &record);
            if is_new {
                self.open.entry(pane).or_default().push(scoped.key);
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
        while self.firing.is_some() || self.next().is_some() {
            let len = cx.room().min(cx.batch_records());
            if len == 0 {
                return Ok(Flow::Pending);
            }
            let results = self.fire(len);
            cx.emit(RESULTS, results);
        }
        // Only now, behind the results: their time is below it.
        self.fired.advance(self.firing_to);
        self.after_fired = None;
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
        let words = |shape: &[i64; 3]| format!("{} ms long every {} ms, moved by {} ms", shape[0], shape[1], shape[2]);
        shape::check(saved, &self.shape(), words)?;
        self.fired.restore(saved, FIRED)
    }
}

#[cfg(test)]
#[path = "panes_tests.rs"]
mod tests;
