//! `dedupe`: of records with one key, the first passes and the others don't, until the key is forgotten.
//!
//! * Emits: each record whose key isn't remembered, as it is. A key is remembered for a time to live, counted in event time
//!   from the first record ([`Since::Creation`](cutwater_engine::state::Since)), or from the latest one
//!   ([`Since::LastAccess`](cutwater_engine::state::Since)): then a key whose repetitions never pause is never forgotten.
//! * Late: a record below the watermark whose key isn't remembered. Nobody can say whether it is a repetition of one that was
//!   forgotten. With [`Deduped::with_late`] it comes out of a second stream, with [`Deduped::drop_late`] it is counted and
//!   dropped. Which records pass depends on event times and watermarks alone, not on when memory is tidied.
//! * State: a key and a time, in the state `seen`. It is bounded by the keys of one time to live (and a 64th of it): what the
//!   watermark has passed is removed, two keys per record and a thousand per watermark, so that more goes than comes.
//! * At a barrier: the new keys are written, forgotten ones as removals; and up to where time had gone per key group.
//! * Counts: first records as passed, repetitions as *filtered*, the others as *late*.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Outputs, Stream, TimeMode, Timed};
use cutwater_engine::operator::{Context, Flow, Operator, Saved};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{ExpiringState, KeyedState, StateKey, Ttl};
use cutwater_engine::time::{EventTime, Watermark};

use crate::floors::TimeOfKeys;

/// The output of first records.
const FIRSTS: usize = 0;
/// The output of late records.
const LATE: usize = 1;
/// The name under which the floors are saved.
const FLOORS: &str = "forgotten";
/// Keys that a watermark may remove.
const REMOVED_PER_WATERMARK: usize = 1024;

/// What repetitions can be dropped from: a keyed stream whose records have event times.
#[diagnostic::on_unimplemented(
    message = "repetitions can't be dropped from `{Self}`: keys are forgotten by event time, or memory would grow for ever",
    label = "not a keyed stream with event times",
    note = "first say when records happened, `.timestamps(|r| r.time, Bounded::seconds(5))`, then divide them, `.key_by(|r| r.id)`"
)]
pub trait Dedupable {
    /// The key.
    type Key: 'static;
    /// The record.
    type Record: 'static;

    /// The same stream, with its type known.
    fn into_keyed(self) -> Keyed<Self::Key, Self::Record, Timed>;
}

impl<K: 'static, T: 'static> Dedupable for Keyed<K, T, Timed> {
    type Key = K;
    type Record = T;

    fn into_keyed(self) -> Keyed<K, T, Timed> {
        self
    }
}

/// Adds `dedupe` to keyed streams with event times.
pub trait Dedupe: Sized {
    /// Lets the first record of each key pass, and drops those that follow within the time to live.
    ///
    /// The name must be unique in the job: the keys are found again by it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cutwater_engine::graph::Timed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_engine::time::EventTime;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (orders, stream) = rig.input::<(u64, String), Timed>("orders");
    /// let once = stream.key_by(|(id, _)| *id).dedupe("orders-once", Ttl::new(Duration::from_secs(60))).drop_late();
    /// let once = rig.collect(once);
    /// let order = |time, id| (EventTime(time), (id, "shoes".to_string()));
    /// rig.push(&orders, vec![order(1_000, 7), order(1_500, 7), order(61_000, 7)]);
    /// assert_eq!(once.take_records(), [order(1_000, 7), order(61_000, 7)]);
    /// ```
    fn dedupe(
        self,
        name: impl Into<String>,
        ttl: Ttl,
    ) -> Deduped<<Self as Dedupable>::Key, <Self as Dedupable>::Record>
    where
        Self: Dedupable,
        <Self as Dedupable>::Key: Data + CanonicalKey + StateKey,
        <Self as Dedupable>::Record: Data;
}

impl<K: 'static, T: 'static, M: TimeMode> Dedupe for Keyed<K, T, M> {
    fn dedupe(self, name: impl Into<String>, ttl: Ttl) -> Deduped<<Self as Dedupable>::Key, <Self as Dedupable>::Record>
    where
        Self: Dedupable,
        <Self as Dedupable>::Key: Data + CanonicalKey + StateKey,
        <Self as Dedupable>::Record: Data,
    {
        let (keyed, name) = (self.into_keyed(), name.into());
        let build = Box::new(move |with_late: bool| {
            let make = move |setup: &OperatorSetup| {
                let name = StateName::new("seen").expect("a name that fits");
                Ok(Box::new(Seen::<<Self as Dedupable>::Key, <Self as Dedupable>::Record> {
                    with_late,
                    limit: setup.environment.limits.state_bytes,
                    seen: Rc::new(RefCell::new(ExpiringState::new(name, 1, ttl))),
                    time: TimeOfKeys::new(setup),
                    records: PhantomData,
                }) as Box<dyn Operator>)
            };
            keyed.operator(name, "dedupe", if with_late { 2 } else { 1 }, make)
        });
        Deduped { build, types: PhantomData }
    }
}

/// First records; what happens to late ones is still to be said.
#[must_use = "say what happens to late records: `.with_late()` gives them as a second stream, `.drop_late()` counts and drops them"]
pub struct Deduped<K: 'static, T: 'static> {
    build: Box<dyn FnOnce(bool) -> Outputs>,
    types: PhantomData<fn(K) -> T>,
}

impl<K: 'static, T: 'static> fmt::Debug for Deduped<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deduped<{}>", std::any::type_name::<T>())
    }
}

impl<K: 'static, T: Send + 'static> Deduped<K, T> {
    /// The first records, and those that came too late to say whether they are.
    pub fn with_late(self) -> (Stream<T, Timed>, Stream<T, Timed>) {
        let outputs = (self.build)(true);
        (outputs.stream::<T, Timed>(FIRSTS), outputs.stream::<T, Timed>(LATE))
    }

    /// The first records alone. Late records are counted, and dropped.
    pub fn drop_late(self) -> Stream<T, Timed> {
        (self.build)(false).stream::<T, Timed>(FIRSTS)
    }
}

/// Remembers keys for a while.
struct Seen<K, T> {
    with_late: bool,
    limit: usize,
    seen: Rc<RefCell<ExpiringState<K, ()>>>,
    time: TimeOfKeys,
    records: PhantomData<fn(T)>,
}

impl<K: Data + CanonicalKey + StateKey, T: Data> Operator for Seen<K, T> {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take_wire::<(K, (EventTime, T))>();
        let (taken, mut firsts, mut late, mut late_records) = (records.len(), vec![], 0, vec![]);
        let mut seen = self.seen.borrow_mut();
        for (key, (time, record)) in records {
            let now = self.time.of(&key);
            // What time has passed is forgotten, whether or not it has been removed yet.
            let is_known = seen.get(&key, time.max(now)).is_some();
            if is_known {
                continue;
            }
            if time < now {
                late += 1;
                if self.with_late {
                    late_records.push((time, record));
                }
                continue;
            }
            seen.insert(&key, time, ());
            firsts.push((time, record));
        }
        seen.expire(self.time.watermark(), 2 * taken);
        seen.check_limit(self.limit)?;
        let counters = cx.counters();
        counters.passed += firsts.len() as u64;
        counters.late += late;
        counters.filtered += (taken - firsts.len()) as u64 - late;
        cx.emit(FIRSTS, firsts);
        if self.with_late {
            cx.emit(LATE, late_records);
        }
        Ok(Flow::Done)
    }

    fn on_watermark(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.time.advance(watermark);
        self.seen.borrow_mut().expire(watermark, REMOVED_PER_WATERMARK);
        cx.watermark(watermark);
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.seen.clone()]
    }

    fn save(&mut self) -> Vec<(String, Vec<u8>)> {
        vec![self.time.save(FLOORS)]
    }

    fn restore(&mut self, saved: &Saved) -> Result<(), OperatorError> {
        self.time.restore(saved, FLOORS)
    }
}

#[cfg(test)]
#[path = "dedupe_tests.rs"]
mod tests;
