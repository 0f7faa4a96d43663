//! `reduce`: the records of a key so far, as one record.
//!
//! * Emits: for each record its key and what all records of that key come to by now, with the record's time. The first
//!   record of a key comes out as it is.
//! * State: a record per key, in the state `reduced`. It grows with the number of keys and is never cleared.
//! * At a barrier: the values that changed are written; the value that went out last is the value that is saved.
//! * Counts: every record as passed.
//!
//! For one final value per stretch of time there is [`reduce`](crate::window::Windowed::reduce) on windows.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Stream, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, State, StateKey, StateValue};

/// Adds `reduce` to keyed streams.
pub trait Reduce<K: 'static, T: 'static, M: TimeMode> {
    /// Combines the records of each key, in the order in which they come, and says the new value for each: `combine` puts a
    /// record into the value so far.
    ///
    /// The name must be unique in the job: the values are found again by it.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (bids, stream) = rig.input::<(String, u64), Untimed>("bids");
    /// let highest = stream.key_value(|bid| bid).reduce("highest", |highest, bid| *highest = *bid.max(highest));
    /// let highest = rig.collect(highest);
    /// rig.push(&bids, vec![("clock".into(), 30), ("clock".into(), 20), ("clock".into(), 40)]);
    /// assert_eq!(highest.take_records().into_iter().map(|(_, bid)| bid).collect::<Vec<_>>(), [30, 30, 40]);
    /// ```
    fn reduce(self, name: impl Into<String>, combine: impl Fn(&mut T, &T) + 'static) -> Stream<(K, T), M>
    where
        K: Data + CanonicalKey + StateKey,
        T: StateValue,
        M::Of<T>: Data,
        M::Of<(K, T)>: Send;
}

impl<K: 'static, T: 'static, M: TimeMode> Reduce<K, T, M> for Keyed<K, T, M> {
    fn reduce(self, name: impl Into<String>, combine: impl Fn(&mut T, &T) + 'static) -> Stream<(K, T), M>
    where
        K: Data + CanonicalKey + StateKey,
        T: StateValue,
        M::Of<T>: Data,
        M::Of<(K, T)>: Send,
    {
        let make = move |setup: &OperatorSetup| {
            let name = StateName::new("reduced").expect("a name that fits");
            let reduced = Rc::new(RefCell::new(State::<K, Option<T>>::new(name, 1)));
            let limit = setup.environment.limits.state_bytes;
            Ok(Box::new(Reducing { reduced, limit, combine, mode: PhantomData::<fn(M)> }) as Box<dyn Operator>)
        };
        self.operator(name, "reduce", 1, make).stream::<(K, T), M>(0)
    }
}

/// Combines and says what it came to.
struct Reducing<K, T, M, F> {
    /// `None` only between the making of an entry and its first record.
    reduced: Rc<RefCell<State<K, Option<T>>>>,
    limit: usize,
    combine: F,
    mode: PhantomData<fn(M)>,
}

impl<K, T, M, F> Operator for Reducing<K, T, M, F>
where
    K: Data + CanonicalKey + StateKey,
    T: StateValue,
    M: TimeMode,
    M::Of<T>: Data,
    M::Of<(K, T)>: Send,
    F: Fn(&mut T, &T) + 'static,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take_wire::<(K, M::Of<T>)>();
        cx.counters().passed += records.len() as u64;
        let mut reduced = self.reduced.borrow_mut();
        let mut values = Vec::with_capacity(records.len());
        reduced.visit(
            &records,
            |(key, _)| key,
            || None,
            |(_, record), value| {
                let record = M::value(record);
                let value = match value {
                    Some(value) => {
                        (self.combine)(value, record);
                        value
                    }
                    None => value.insert(record.clone()),
                };
                values.push(value.clone());
            },
        );
        reduced.check_limit(self.limit)?;
        cx.emit(0, records.into_iter().zip(values).map(|((key, record), v)| M::with(&record, (key, v))).collect());
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.reduced.clone()]
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Timed;
    use cutwater_engine::operator::testing::{Collected, Input, Rig};
    use cutwater_engine::time::EventTime;

    use super::*;
    use crate::key_by::KeyBy;

    type Row = (EventTime, (u64, String));

    /// Strings put behind each other: the result shows the order of everything that went in.
    fn joined(worker: u32, workers: u32) -> (Rig, Input<Row>, Collected<Row>) {
        let mut rig = Rig::on_worker(worker, workers);
        let (rows, stream) = rig.input::<(u64, String), Timed>("rows");
        let out = rig.collect(stream.key_value(|row| row).reduce("joined", |all, more| all.push_str(more)));
        (rig, rows, out)
    }

    fn row(time: i64, key: u64, text: &str) -> Row {
        (EventTime(time), (key, text.to_string()))
    }

    #[test]
    fn records_are_combined_per_key_in_their_order_and_keep_their_times() {
        let (mut rig, rows, out) = joined(0, 1);
        rig.push(&rows, vec![row(5, 1, "a"), row(3, 2, "x"), row(4, 1, "b"), row(9, 1, "c")]);
        assert_eq!(out.take_records(), [row(5, 1, "a"), row(3, 2, "x"), row(4, 1, "ab"), row(9, 1, "abc")]);
        assert_eq!((rig.counters("joined").passed, rig.counters("joined").emitted), (4, vec![4]));
    }

    #[test]
    fn values_follow_their_keys_to_other_workers_and_go_on_where_the_barrier_stood() {
        let rows_of = |text| (0..200u64).map(|key| row(0, key, text)).collect::<Vec<_>>();
        let (mut rig, rows, _) = joined(0, 1);
        rig.push(&rows, rows_of("a"));
        let mut saved = vec![rig.checkpoint()];
        rig.push(&rows, rows_of("lost"));
        for (workers, expected) in [(1, "ab"), (3, "abb"), (2, "abbb")] {
            let (mut seen, mut next) = (vec![], vec![]);
            for worker in 0..workers {
                let (mut rig, rows, out) = joined(worker, workers);
                rig.restore(&saved);
                rig.push(&rows, rows_of("b"));
                seen.extend(out.take_records());
                next.push(rig.checkpoint());
            }
            seen.sort_unstable_by_key(|(_, (key, _))| *key);
            assert_eq!(seen, rows_of(expected), "{workers} workers");
            saved = next;
        }
    }

    #[test]
    fn too_much_state_is_a_clear_error() {
        let (mut rig, rows, _) = joined(0, 1);
        rig.limits().state_bytes = 10_000;
        let error = rig.try_push(&rows, (0..10_000).map(|key| row(0, key, "a")).collect()).expect_err("too much");
        assert!(error.to_string().contains("more than the 10000 bytes"), "{error}");
    }
}
