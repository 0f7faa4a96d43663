//! State that forgets: a value per key with a time to live, in event time.
//!
//! Each entry has a time `until`: it is there for records below that time, and gone from it on, whether or not it has
//! been removed yet. So what an operator finds depends on event times alone and not on when somebody tidied up.
//!
//! * [`ExpiringState::expire`] removes entries whose time the watermark has reached, a bounded number per call. An expired
//!   entry is written to the next snapshot as a removal, as any other.
//! * The index of what expires when is in memory only, and is made from the entries after a restore. It holds each key once,
//!   whatever is written: an entry that was given more time is looked at when its old time has come, and queued again.
//!   Due times are kept in steps of a 64th of the time to live, so that the index stays small; by so much later, at most,
//!   memory comes back.
//!
//! Not here: the watermark (the caller has it), and processing time. An expiry by processing time would find other entries
//! after a restore than before.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::erased::OverState;
use super::handle::{State, StateTooLarge, StateValue};
use super::key::StateKey;
use crate::snapshot::StateName;
use crate::time::{EventTime, Watermark};

/// Steps of the index in one time to live.
const STEPS: i64 = 64;

/// Since when an entry's time to live is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Since {
    /// Since it was made. Later writes don't give it more time.
    Creation,
    /// Since the latest time it was written at.
    LastWrite,
    /// Since the latest time it was written or read at. A read that gives it more time is a change, and is in the next
    /// snapshot as one.
    LastAccess,
}

/// How long entries of a state live, in event time.
///
/// ```
/// use std::time::Duration;
/// use cutwater_engine::state::{Since, Ttl};
///
/// let ttl = Ttl::new(Duration::from_secs(3600)).since(Since::LastWrite);
/// assert_eq!(ttl.after_ms(), 3_600_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ttl {
    after_ms: i64,
    since: Since,
}

impl Ttl {
    /// Entries live this long after their creation; see [`Ttl::since`]. Counted in milliseconds, rounded down.
    ///
    /// # Panics
    /// If that is less than a millisecond.
    pub fn new(after: Duration) -> Ttl {
        let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        assert!(after_ms > 0, "an entry must live at least a millisecond");
        Ttl { after_ms, since: Since::Creation }
    }

    /// The same time, counted from another moment.
    #[must_use]
    pub fn since(self, since: Since) -> Ttl {
        Ttl { since, ..self }
    }

    /// The time to live, in milliseconds.
    pub fn after_ms(self) -> i64 {
        self.after_ms
    }
}

/// A value and the time from which on it is gone. What is in snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept<V> {
    until: i64,
    value: V,
}

impl<V> Kept<V> {
    /// The same with another value in it.
    pub(crate) fn try_map<B>(self, change: impl Fn(V) -> Result<B, String>) -> Result<Kept<B>, String> {
        Ok(Kept { until: self.until, value: change(self.value)? })
    }
}

/// A value per key that is forgotten after its time to live. See the head of the module.
///
/// ```
/// use std::time::Duration;
/// use cutwater_engine::snapshot::StateName;
/// use cutwater_engine::state::{ExpiringState, Ttl};
/// use cutwater_engine::time::EventTime;
///
/// let mut seen = ExpiringState::new(StateName::new("seen").unwrap(), 1, Ttl::new(Duration::from_millis(10)));
/// assert_eq!(seen.insert(&7u64, EventTime(100), "first".to_string()), None);
/// assert!(seen.get(&7, EventTime(109)).is_some());
/// assert!(seen.get(&7, EventTime(110)).is_none());
/// seen.expire(EventTime(120), 1000);
/// assert!(seen.is_empty());
/// ```
#[derive(Debug)]
pub struct ExpiringState<K, V> {
    state: State<K, Kept<V>>,
    ttl: Ttl,
    /// Keys by the step in which they are to be looked at; each key of the state once.
    due: BTreeMap<i64, Vec<K>>,
    /// False until `due` was made from a restored state.
    due_is_made: bool,
}

impl<K: StateKey, V: StateValue> ExpiringState<K, V> {
    /// An empty state; as [`State::new`]. The time to live may be another one than in the snapshot: entries keep the time
    /// they were given then.
    pub fn new(name: StateName, schema_version: u32, ttl: Ttl) -> ExpiringState<K, V> {
        ExpiringState { state: State::new(name, schema_version), ttl, due: BTreeMap::new(), due_is_made: false }
    }

    /// Number of entries, those included that have expired and wait to be removed.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// The value of `key` for a record at `at`, if its time isn't over then.
    pub fn get(&mut self, key: &K, at: EventTime) -> Option<&V> {
        let until = self.state.get(key).map(|kept| kept.until).filter(|until| at.0 < *until)?;
        let more = self.until(at);
        if self.ttl.since == Since::LastAccess && more > until {
            let kept = self.state.get_mut(key)?;
            kept.until = more;
            return Some(&kept.value);
        }
        self.state.get(key).map(|kept| &kept.value)
    }

    /// The value of `key` for a record at `at`, to be changed; made by `init` when there is none or its time is over.
    pub fn entry(&mut self, key: &K, at: EventTime, init: impl FnOnce() -> V) -> &mut V {
        self.make_due();
        let (until, since) = (self.until(at), self.ttl.since);
        let mut is_new = false;
        let mut init = Some(init);
        let mut make = || (init.take().expect("an entry is made once"))();
        let kept = self.state.entry(key, || {
            is_new = true;
            Kept { until, value: make() }
        });
        if !is_new {
            if at.0 >= kept.until {
                // Its key is queued already, at its old time.
                *kept = Kept { until, value: make() };
            } else if since != Since::Creation {
                kept.until = kept.until.max(until);
            }
        } else {
            self.due.entry(step_after(until, self.ttl)).or_default().push(key.clone());
        }
        &mut kept.value
    }

    /// Sets the value of `key` at `at` and returns the old one, if its time wasn't over.
    pub fn insert(&mut self, key: &K, at: EventTime, value: V) -> Option<V> {
        let mut value = Some(value);
        let entry = self.entry(key, at, || value.take().expect("made once"));
        value.map(|value| std::mem::replace(entry, value))
    }

    /// Removes `key` and returns its value, if its time wasn't over at `at`.
    pub fn remove(&mut self, key: &K, at: EventTime) -> Option<V> {
        // It may be made again before its place in the index has come, and would be queued twice: so it stays, expired.
        let kept = self.state.get_mut(key).filter(|kept| at.0 < kept.until)?;
        kept.until = i64::MIN;
        Some(kept.value.clone())
    }

    /// Removes entries whose time `watermark` has reached, looking at no more than `budget` keys. True when none is left.
    ///
    /// To keep memory bounded, give a batch of n records a budget of 2 n, and a watermark a constant one: then more goes
    /// than comes.
    pub fn expire(&mut self, watermark: Watermark, mut budget: usize) -> bool {
        self.make_due();
        loop {
            let Some(mut first) = self.due.first_entry().filter(|first| *first.key() <= watermark.0) else {
                return true;
            };
            let keys = first.get_mut();
            let looked_at = keys.split_off(keys.len().saturating_sub(budget));
            budget -= looked_at.len();
            if keys.is_empty() {
                first.remove();
            }
            for key in looked_at {
                let Some(until) = self.state.get(&key).map(|kept| kept.until) else { continue };
                if until <= watermark.0 {
                    self.state.remove(&key);
                } else {
                    self.due.entry(step_after(until, self.ttl)).or_default().push(key);
                }
            }
            if budget == 0 {
                return self.due.first_key_value().is_none_or(|(step, _)| *step > watermark.0);
            }
        }
    }

    /// As [`State::check_limit`].
    ///
    /// # Errors
    /// [`StateTooLarge`].
    pub fn check_limit(&mut self, limit: usize) -> Result<(), StateTooLarge> {
        self.state.check_limit(limit)
    }

    /// The index of a state that was restored.
    fn make_due(&mut self) {
        if !std::mem::replace(&mut self.due_is_made, true) {
            for (key, kept) in self.state.iter() {
                self.due.entry(step_after(kept.until, self.ttl)).or_default().push(key.clone());
            }
        }
    }

    fn until(&self, at: EventTime) -> i64 {
        at.saturating_add_ms(self.ttl.after_ms).0
    }
}

/// The end of the step that `until` lies in.
fn step_after(until: i64, ttl: Ttl) -> i64 {
    let step = (ttl.after_ms / STEPS).max(1);
    until.checked_add(step - 1).map_or(i64::MAX, |up| up.div_euclid(step).saturating_mul(step))
}

impl<K: StateKey, V: StateValue> OverState for ExpiringState<K, V> {
    type Inner = State<K, Kept<V>>;

    fn inner(&self) -> &Self::Inner {
        &self.state
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut self.state
    }

    fn bytes_beside(&self) -> usize {
        self.due.values().map(|keys| keys.capacity() * size_of::<K>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(after: u64, since: Since) -> ExpiringState<u64, u64> {
        let ttl = Ttl::new(Duration::from_millis(after)).since(since);
        ExpiringState::new(StateName::new("expiring").expect("a name that fits"), 1, ttl)
    }

    #[test]
    fn an_entry_is_there_until_its_time_whenever_it_is_removed() {
        for since in [Since::Creation, Since::LastWrite, Since::LastAccess] {
            for tidy in [false, true] {
                let mut state = state(10, since);
                let tidy_to = |state: &mut ExpiringState<u64, u64>, t| {
                    if tidy {
                        state.expire(EventTime(t), 100);
                    }
                };
                *state.entry(&1, EventTime(0), || 5) += 1;
                tidy_to(&mut state, 9);
                assert_eq!(state.get(&1, EventTime(9)), Some(&6));
                let after_read = [None, None, Some(&6)][since as usize];
                assert_eq!(state.get(&1, EventTime(12)).copied(), after_read.copied(), "{since:?}");
                tidy_to(&mut state, 12);
                *state.entry(&1, EventTime(13), || 1) += 1;
                let expected = if since == Since::LastAccess { 7 } else { 2 };
                assert_eq!(state.get(&1, EventTime(14)), Some(&expected));
                *state.entry(&1, EventTime(20), || 0) += 1;
                let at_25 = if since == Since::Creation { None } else { Some(expected + 1) };
                tidy_to(&mut state, 25);
                assert_eq!(state.get(&1, EventTime(25)).copied(), at_25, "{since:?}");
            }
        }
    }

    #[test]
    fn the_index_holds_each_key_once_and_expiry_keeps_to_its_budget() {
        let mut state = state(1_000, Since::LastWrite);
        for round in 0..50 {
            for key in 0..100 {
                *state.entry(&key, EventTime(round * 10), || 0) += 1;
            }
        }
        assert_eq!(state.due.values().map(Vec::len).sum::<usize>(), 100);
        assert!(state.expire(EventTime(1_400), 1_000), "all were given more time and are queued again");
        assert_eq!((state.len(), state.due.values().map(Vec::len).sum::<usize>()), (100, 100));
        for left in [70, 40, 10] {
            assert!(!state.expire(EventTime(2_000), 30));
            assert_eq!(state.len(), left);
        }
        assert!(state.expire(EventTime(2_000), 30));
        assert!(state.is_empty() && state.due.is_empty());
    }

    #[test]
    fn what_is_removed_is_gone_and_may_come_again() {
        let mut state = state(10, Since::Creation);
        assert_eq!(state.insert(&1, EventTime(0), 7), None);
        assert_eq!(state.insert(&1, EventTime(1), 8), Some(7));
        assert_eq!(state.remove(&1, EventTime(2)), Some(8));
        assert_eq!((state.remove(&1, EventTime(2)), state.get(&1, EventTime(2)).copied()), (None, None));
        assert_eq!(state.insert(&1, EventTime(3), 9), None);
        assert_eq!(state.get(&1, EventTime(12)), Some(&9));
        assert!(state.expire(EventTime(i64::MAX), 10));
        assert!(state.is_empty());
    }

    #[test]
    fn at_the_end_of_time_nothing_wraps() {
        let mut state = state(u64::MAX, Since::LastWrite);
        state.insert(&1, EventTime(i64::MAX - 1), 1);
        state.insert(&2, EventTime(i64::MIN), 1);
        assert_eq!(state.get(&1, EventTime(i64::MAX - 1)), Some(&1));
        state.expire(EventTime(i64::MAX), 10);
        assert!(state.is_empty());
    }
}
