//! The operator of sessions: windows that are as long as something goes on.
//!
//! A record at `t` is alone a session `[t, t + gap)`. Sessions of a key that overlap are one: a record that comes between two
//! joins them. So records less than the gap apart belong together, and exactly the gap apart they don't.
//!
//! Invariants:
//!
//! * The open sessions of a key don't overlap, and lie in the order of their starts in one value of the state; a key without
//!   open sessions isn't in the state.
//! * `due` has each key of the state at the time that its value says it is queued at, which is not above the end of its
//!   first session. It is made from the state at the first frame after a restore.
//! * Once a watermark has been handled, every open session ends above it.
//! * A record is late exactly when it touches no open session of its key, and its own session would end at or below the
//!   larger of watermark and floor of its key group. What has fired never changes: a record that lies between a session that
//!   has fired and one that is open belongs to the open one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::OperatorSetup;
use cutwater_engine::operator::{Context, Flow, Operator, Saved};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, State, StateKey, StateValue};
use cutwater_engine::time::{EventTime, Watermark};
use serde::{Deserialize, Serialize};

use super::operator::Functions;
use super::tumbling::Window;
use super::{FIRED, LATE, RESULTS, shape};
use crate::floors::TimeOfKeys;
use crate::key_order::in_canonical_order;

/// Windows that end when a key has been silent for a while.
///
/// ```
/// use cutwater_operators::window::Sessions;
///
/// assert_eq!(Sessions::minutes(30).gap_ms(), 1_800_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sessions {
    gap_ms: i64,
}

impl Sessions {
    /// Sessions that end after `n` silent milliseconds.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn millis(n: u32) -> Sessions {
        Sessions::of(n as i64)
    }

    /// Sessions that end after `n` silent seconds.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn seconds(n: u32) -> Sessions {
        Sessions::of(n as i64 * 1000)
    }

    /// Sessions that end after `n` silent minutes.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn minutes(n: u32) -> Sessions {
        Sessions::of(n as i64 * 60_000)
    }

    /// Sessions that end after `n` silent hours.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn hours(n: u32) -> Sessions {
        Sessions::of(n as i64 * 3_600_000)
    }

    /// Sessions that end after `n` silent days of 24 hours.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn days(n: u32) -> Sessions {
        Sessions::of(n as i64 * 86_400_000)
    }

    const fn of(gap_ms: i64) -> Sessions {
        assert!(gap_ms > 0, "a session must last at least a millisecond");
        Sessions { gap_ms }
    }

    /// For how long nothing must come so that a session ends, in milliseconds.
    pub const fn gap_ms(self) -> i64 {
        self.gap_ms
    }

    /// The end of a session whose last record is at `last`.
    fn end(self, last: i64) -> EventTime {
        EventTime(last).saturating_add_ms(self.gap_ms)
    }

    /// True if a record at `t` belongs to a session from `start` to `last`.
    fn touches(self, t: i64, start: i64, last: i64) -> bool {
        let near = |a: i64, b: i64| b <= a || b.abs_diff(a) < self.gap_ms.unsigned_abs();
        near(last, t) && near(t, start)
    }
}

/// The open sessions of a key. What is in snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenSessions<A> {
    /// When the key is to be looked at next.
    queued: i64,
    /// In the order of their starts.
    open: Vec<Session<A>>,
}

/// An open session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Session<A> {
    start: i64,
    last: i64,
    aggregate: A,
}

impl<A> OpenSessions<A> {
    /// The aggregate of the session that a record at `t` belongs to, joined of those that it touches, or new.
    fn join(&mut self, t: i64, gap: Sessions, init: impl Fn() -> A, merge: impl Fn(&mut A, &A)) -> &mut A {
        let begin = self.open.partition_point(|s| s.start <= t && !gap.touches(t, s.start, s.last));
        let touched = self.open[begin..].iter().take_while(|s| gap.touches(t, s.start, s.last)).count();
        if touched == 0 {
            self.open.insert(begin, Session { start: t, last: t, aggregate: init() });
        }
        let rest: Vec<Session<A>> = self.open.drain(begin + 1..begin + touched.max(1)).collect();
        let first = &mut self.open[begin];
        for more in &rest {
            merge(&mut first.aggregate, &more.aggregate);
            first.last = first.last.max(more.last);
        }
        first.start = first.start.min(t);
        first.last = first.last.max(t);
        &mut first.aggregate
    }
}

/// One instance.
pub(super) struct SessionOperator<K, T, A, R, Init, Add, Merge, Finish> {
    gap: Sessions,
    functions: Functions<K, T, A, R, Init, Add, Finish>,
    merge: Merge,
    with_late: bool,
    state_limit: usize,
    state: Rc<RefCell<State<K, OpenSessions<A>>>>,
    /// Keys by the time at which they are to be looked at. An entry that isn't the one its key's value names means nothing:
    /// a record came before what was the key's first session.
    due: BTreeMap<i64, Vec<K>>,
    /// False until `due` was made from a restored state.
    due_is_made: bool,
    /// Up to where sessions have fired.
    fired: TimeOfKeys,
    /// The watermark that is being handled.
    firing_to: Watermark,
    /// Sessions whose results are still to be emitted.
    firing: std::vec::IntoIter<(Window, K, A)>,
}

impl<K, T, A, R, Init, Add, Merge, Finish> SessionOperator<K, T, A, R, Init, Add, Merge, Finish>
where
    K: Data + CanonicalKey + StateKey,
    A: StateValue,
{
    pub(super) fn new(
        gap: Sessions,
        functions: Functions<K, T, A, R, Init, Add, Finish>,
        merge: Merge,
        with_late: bool,
        setup: &OperatorSetup,
    ) -> Self {
        let name = StateName::new("sessions").expect("a name that fits");
        SessionOperator {
            gap,
            functions,
            merge,
            with_late,
            state_limit: setup.environment.limits.state_bytes,
            state: Rc::new(RefCell::new(State::new(name, 1))),
            due: BTreeMap::new(),
            due_is_made: false,
            fired: TimeOfKeys::new(setup),
            firing_to: Watermark::MIN,
            firing: vec![].into_iter(),
        }
    }

    /// Finds the times at which restored keys are to be looked at.
    fn make_due(&mut self) {
        if !std::mem::replace(&mut self.due_is_made, true) {
            for (key, sessions) in self.state.borrow().iter() {
                self.due.entry(sessions.queued).or_default().push(key.clone());
            }
        }
    }

    /// Takes every session that ends at or below the watermark, in the order of their ends and then of their keys.
    fn take_ended(&mut self) -> Vec<(Window, K, A)> {
        let (mut ended, mut state) = (vec![], self.state.borrow_mut());
        while let Some(first) = self.due.first_entry().filter(|first| *first.key() <= self.firing_to.0) {
            let (time, keys) = first.remove_entry();
            for key in keys {
                if state.get(&key).is_none_or(|sessions| sessions.queued != time) {
                    continue;
                }
                let Some(sessions) = state.get_mut(&key) else { continue };
                let count = sessions.open.partition_point(|s| self.gap.end(s.last) <= self.firing_to);
                ended.extend(sessions.open.drain(..count).map(|s| {
                    let window = Window { start: EventTime(s.start), end: self.gap.end(s.last) };
                    (window, key.clone(), s.aggregate)
                }));
                match sessions.open.first() {
                    Some(next) => {
                        sessions.queued = self.gap.end(next.last).0;
                        self.due.entry(sessions.queued).or_default().push(key);
                    }
                    None => drop(state.remove(&key)),
                }
            }
        }
        let mut ended = in_canonical_order(ended, |(_, key, _)| key);
        ended.sort_by_key(|(window, ..)| window.end);
        ended
    }
}

impl<K, T, A, R, Init, Add, Merge, Finish> Operator for SessionOperator<K, T, A, R, Init, Add, Merge, Finish>
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
        self.make_due();
        let records = batch.take_wire::<(K, (EventTime, T))>();
        let (mut absorbed, mut late, mut late_records) = (0, 0, vec![]);
        let mut state = self.state.borrow_mut();
        for (key, (time, record)) in records {
            let gap = self.gap;
            if gap.end(time.0) <= self.fired.of(&key)
                && !state.get(&key).is_some_and(|s| s.open.iter().any(|s| gap.touches(time.0, s.start, s.last)))
            {
                late += 1;
                if self.with_late {
                    late_records.push((time, (key, record)));
                }
                continue;
            }
            absorbed += 1;
            let mut is_new = false;
            let sessions = state.entry(&key, || {
                is_new = true;
                OpenSessions { queued: i64::MAX, open: vec![] }
            });
            (self.functions.add)(sessions.join(time.0, gap, &self.functions.init, &self.merge), &record);
            let first_end = sessions.open.first().map_or(i64::MAX, |first| gap.end(first.last).0);
            if is_new || first_end < sessions.queued {
                sessions.queued = first_end;
                self.due.entry(first_end).or_default().push(key);
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
        self.make_due();
        self.firing_to = watermark;
        self.firing = self.take_ended().into_iter();
        self.resume(cx)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        while self.firing.len() > 0 {
            let len = cx.room().min(cx.batch_records());
            if len == 0 {
                return Ok(Flow::Pending);
            }
            let sessions = self.firing.by_ref().take(len);
            let finish = &self.functions.finish;
            cx.emit(RESULTS, sessions.map(|(window, key, a)| (window.last(), finish(&key, window, a))).collect());
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
        vec![self.fired.save(FIRED), shape::save(&[self.gap.gap_ms])]
    }

    fn restore(&mut self, saved: &Saved) -> Result<(), OperatorError> {
        shape::check(saved, &[self.gap.gap_ms], |gap| format!("sessions with a gap of {} ms", gap[0]))?;
        self.fired.restore(saved, FIRED)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
