//! Timers of one kind: a set of (key, time), in keyed state, and in memory in the order in which they fire.
//!
//! Invariants:
//!
//! * `due` has exactly the timers of the state. It is made from the state at the first use after a restore.
//! * Timers fire by time, and at one time in the order of the keys' canonical encodings: the same in every run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cutwater_engine::exchange::{CanonicalKey, canonical_bytes};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, Scoped, State, StateKey};

/// Timers of one kind.
pub(super) struct Timers<K> {
    state: Rc<RefCell<State<Scoped<K, i64>, ()>>>,
    due: BTreeMap<(i64, Vec<u8>), K>,
    due_is_made: bool,
}

impl<K: CanonicalKey + StateKey> Timers<K> {
    /// No timers; their state has this name.
    pub(super) fn new(name: &str) -> Timers<K> {
        let state = State::new(StateName::new(name).expect("a name that fits"), 1);
        Timers { state: Rc::new(RefCell::new(state)), due: BTreeMap::new(), due_is_made: false }
    }

    pub(super) fn state(&self) -> Rc<RefCell<dyn KeyedState>> {
        self.state.clone()
    }

    /// Sets a timer. Set twice it is one.
    pub(super) fn set(&mut self, key: &K, time: i64) {
        self.make_due();
        if self.state.borrow_mut().insert(Scoped { key: key.clone(), scope: time }, ()).is_none() {
            self.due.insert((time, canonical_bytes(key)), key.clone());
        }
    }

    /// Takes a timer back, if it is set.
    pub(super) fn delete(&mut self, key: &K, time: i64) {
        self.make_due();
        if self.state.borrow_mut().remove(&Scoped { key: key.clone(), scope: time }).is_some() {
            self.due.remove(&(time, canonical_bytes(key)));
        }
    }

    /// When the next one fires.
    pub(super) fn next(&mut self) -> Option<i64> {
        self.make_due();
        self.due.first_key_value().map(|((time, _), _)| *time)
    }

    /// Takes the next one, if its time is not above `up_to`.
    pub(super) fn pop(&mut self, up_to: i64) -> Option<(i64, K)> {
        self.make_due();
        let first = self.due.first_entry().filter(|first| first.key().0 <= up_to)?;
        let ((time, _), key) = first.remove_entry();
        let removed = self.state.borrow_mut().remove(&Scoped { key: key.clone(), scope: time });
        assert!(removed.is_some(), "a timer that is due is in the state");
        Some((time, key))
    }

    fn make_due(&mut self) {
        if !std::mem::replace(&mut self.due_is_made, true) {
            let timers = self.state.borrow();
            self.due = timers.iter().map(|(t, ())| ((t.scope, canonical_bytes(&t.key)), t.key.clone())).collect();
        }
    }
}
