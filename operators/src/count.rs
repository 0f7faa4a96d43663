//! `count`: how many records of its key there have been so far.
//!
//! * Emits: for each record its key and the running count, with the record's time.
//! * State: a number per key, in the state `counts`. It grows with the number of keys and is never cleared.
//! * At a barrier: the counts that changed are written; the number that went out last is the number that is saved.
//! * Counts: every record as passed.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Stream, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, State, StateKey};

/// Adds `count` to keyed streams.
pub trait Count<K: 'static, T: 'static, M: TimeMode> {
    /// Counts records per key and says the new count for each.
    ///
    /// The name must be unique in the job: the counts are found again by it.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (words, stream) = rig.input::<String, Untimed>("words");
    /// let out = rig.collect(stream.key_by(|word| word.clone()).count("words"));
    /// rig.push(&words, ["a", "b", "a"].map(String::from).to_vec());
    /// assert_eq!(out.take_records(), [("a".into(), 1), ("b".into(), 1), ("a".into(), 2)]);
    /// ```
    fn count(self, name: impl Into<String>) -> Stream<(K, u64), M>
    where
        K: Data + CanonicalKey + StateKey,
        M::Of<T>: Data,
        M::Of<(K, u64)>: Send;
}

impl<K: 'static, T: 'static, M: TimeMode> Count<K, T, M> for Keyed<K, T, M> {
    fn count(self, name: impl Into<String>) -> Stream<(K, u64), M>
    where
        K: Data + CanonicalKey + StateKey,
        M::Of<T>: Data,
        M::Of<(K, u64)>: Send,
    {
        let make = |setup: &OperatorSetup| {
            let counts = Rc::new(RefCell::new(new_counts()));
            let limit = setup.environment.limits.state_bytes;
            Ok(Box::new(Running::<K, T, M> { counts, limit, numbers: vec![], records: PhantomData })
                as Box<dyn Operator>)
        };
        self.operator(name, "count", 1, make).stream::<(K, u64), M>(0)
    }
}

/// The state that counts are kept in, here and in [`count_at_end`](crate::count_at_end).
pub(crate) fn new_counts<K: StateKey>() -> State<K, u64> {
    State::new(StateName::new("counts").expect("a name that fits"), 1)
}

/// Counts and says so.
struct Running<K, T, M> {
    counts: Rc<RefCell<State<K, u64>>>,
    limit: usize,
    /// The counts of the records of one batch.
    numbers: Vec<u64>,
    records: PhantomData<fn(T, M)>,
}

impl<K, T, M> Operator for Running<K, T, M>
where
    K: Data + CanonicalKey + StateKey,
    T: 'static,
    M: TimeMode,
    M::Of<T>: Data,
    M::Of<(K, u64)>: Send,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take_wire::<(K, M::Of<T>)>();
        cx.counters().passed += records.len() as u64;
        let mut counts = self.counts.borrow_mut();
        let numbers = &mut self.numbers;
        numbers.clear();
        counts.visit(
            &records,
            |(key, _)| key,
            || 0,
            |_, count| {
                *count += 1;
                numbers.push(*count);
            },
        );
        let counted = records.into_iter().zip(numbers).map(|((key, record), n)| M::with(&record, (key, *n))).collect();
        counts.check_limit(self.limit)?;
        cx.emit(0, counted);
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.counts.clone()]
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::{Timed, Untimed};
    use cutwater_engine::operator::testing::{Collected, Input, Rig};
    use cutwater_engine::time::EventTime;

    use super::*;
    use crate::key_by::KeyBy;

    fn counting(worker: u32, workers: u32) -> (Rig, Input<u64>, Collected<(u64, u64)>) {
        let mut rig = Rig::on_worker(worker, workers);
        let (numbers, stream) = rig.input::<u64, Untimed>("numbers");
        let out = rig.collect(stream.key_by(|n| *n).count("numbers"));
        (rig, numbers, out)
    }

    #[test]
    fn a_count_goes_on_where_the_barrier_stood() {
        let (mut rig, numbers, out) = counting(0, 1);
        rig.push(&numbers, vec![1, 1, 2]);
        let snapshot = rig.checkpoint();
        rig.push(&numbers, vec![1, 1, 1]);
        assert_eq!(out.take_records(), [(1, 1), (1, 2), (2, 1), (1, 3), (1, 4), (1, 5)]);

        let (mut rig, numbers, out) = counting(0, 1);
        rig.restore(&[snapshot]);
        rig.push(&numbers, vec![1, 2]);
        assert_eq!(out.take_records(), [(1, 3), (2, 2)]);
        assert_eq!(rig.counters("numbers").passed, 5, "counters go on as well");
    }

    #[test]
    fn counts_follow_their_keys_to_other_workers() {
        let keys = || (0..200u64).collect::<Vec<_>>();
        let (mut rig, numbers, _) = counting(0, 1);
        rig.push(&numbers, keys());
        let mut saved = vec![rig.checkpoint()];
        for workers in [3, 2, 5, 1] {
            let (mut seen, mut next) = (vec![], vec![]);
            for worker in 0..workers {
                let (mut rig, numbers, out) = counting(worker, workers);
                rig.restore(&saved);
                rig.push(&numbers, keys());
                seen.extend(out.take_records());
                next.push(rig.checkpoint());
            }
            seen.sort_unstable();
            let count = seen[0].1;
            assert_eq!(seen, keys().into_iter().map(|key| (key, count)).collect::<Vec<_>>(), "{workers} workers");
            saved = next;
        }
    }

    #[test]
    fn counts_carry_the_time_of_their_record() {
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u64, Timed>("numbers");
        let out = rig.collect(stream.key_by(|n| *n).count("numbers"));
        rig.push(&numbers, vec![(EventTime(4), 1), (EventTime(2), 1)]);
        assert_eq!(out.take_records(), [(EventTime(4), (1, 1)), (EventTime(2), (1, 2))]);
    }

    #[test]
    fn too_much_state_is_a_clear_error() {
        let (mut rig, numbers, _) = counting(0, 1);
        rig.limits().state_bytes = 10_000;
        let error = rig.try_push(&numbers, (0..10_000).collect()).expect_err("10,000 counts need more");
        assert!(error.to_string().contains("more than the 10000 bytes"), "{error}");
    }
}
