//! `count_at_end`: how many records of its key there were, said once, when nothing more will come.
//!
//! * Emits: when the watermark reaches the end of time (every source is exhausted), each key with its count, in the order of
//!   the keys' canonical encodings. Nothing before; on an endless source, never.
//! * State: a number per key, in the state `counts`; drained when the end has come.
//! * At a barrier: the counts that changed are written. A million counts are emitted as there is room; a barrier waits for
//!   the last of them, so a restore finds either all counts or none.
//! * Counts: every record as *absorbed*.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use cutwater_engine::element::{Batch, Data};
use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Stream, TimeMode, Untimed};
use cutwater_engine::operator::{Context, Flow, Operator};
use cutwater_engine::state::{KeyedState, State, StateKey};
use cutwater_engine::time::Watermark;

use crate::count::new_counts;
use crate::key_order::in_canonical_order;

/// Adds `count_at_end` to keyed streams.
pub trait CountAtEnd<K: 'static, T: 'static, M: TimeMode> {
    /// Counts records per key and says each count once, at the end of the input.
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
    /// let out = rig.collect(stream.key_by(|word| word.clone()).count_at_end("words"));
    /// rig.push(&words, ["b", "a", "b"].map(String::from).to_vec());
    /// assert_eq!(out.take_records(), []);
    /// rig.finish();
    /// assert_eq!(out.take_records(), [("a".into(), 1), ("b".into(), 2)]);
    /// ```
    fn count_at_end(self, name: impl Into<String>) -> Stream<(K, u64)>
    where
        K: Data + CanonicalKey + StateKey,
        M::Of<T>: Data;
}

impl<K: 'static, T: 'static, M: TimeMode> CountAtEnd<K, T, M> for Keyed<K, T, M> {
    fn count_at_end(self, name: impl Into<String>) -> Stream<(K, u64)>
    where
        K: Data + CanonicalKey + StateKey,
        M::Of<T>: Data,
    {
        let make = |setup: &OperatorSetup| {
            let counts = Rc::new(RefCell::new(new_counts()));
            let limit = setup.environment.limits.state_bytes;
            let operator = AtEnd::<K, M::Of<T>> { counts, limit, draining: vec![].into_iter(), records: PhantomData };
            Ok(Box::new(operator) as Box<dyn Operator>)
        };
        self.operator(name, "count_at_end", 1, make).stream::<(K, u64), Untimed>(0)
    }
}

/// Counts, and says so when the end has come.
struct AtEnd<K, R> {
    counts: Rc<RefCell<State<K, u64>>>,
    limit: usize,
    /// What is still to be emitted.
    draining: std::vec::IntoIter<(K, u64)>,
    records: PhantomData<fn(R)>,
}

impl<K: Data + CanonicalKey + StateKey, R: Data> Operator for AtEnd<K, R> {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take_wire::<(K, R)>();
        cx.counters().absorbed += records.len() as u64;
        let mut counts = self.counts.borrow_mut();
        counts.visit(&records, |(key, _)| key, || 0, |_, count| *count += 1);
        counts.check_limit(self.limit)?;
        Ok(Flow::Done)
    }

    fn on_watermark(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        // The counts have no time, so the watermark says nothing but that everything has come.
        if watermark < Watermark::MAX {
            return Ok(Flow::Done);
        }
        self.draining = in_canonical_order(self.counts.borrow_mut().drain(), |(key, _)| key).into_iter();
        self.resume(cx)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        while self.draining.len() > 0 {
            let len = cx.room().min(cx.batch_records());
            if len == 0 {
                return Ok(Flow::Pending);
            }
            cx.emit(0, self.draining.by_ref().take(len).collect());
        }
        cx.watermark(Watermark::MAX);
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.counts.clone()]
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Untimed;
    use cutwater_engine::operator::testing::{Collected, Input, Rig, Seen};
    use cutwater_engine::time::EventTime;

    use super::*;
    use crate::key_by::KeyBy;

    fn counting(room: usize) -> (Rig, Input<u64>, Collected<(u64, u64)>) {
        let mut rig = Rig::new();
        rig.set_room(room);
        let (numbers, stream) = rig.input::<u64, Untimed>("numbers");
        let out = rig.collect(stream.key_value(|n| (n, ())).count_at_end("numbers"));
        (rig, numbers, out)
    }

    #[test]
    fn counts_come_once_in_the_order_of_keys_whatever_room_there_is() {
        for room in [1, 3, 1000] {
            let (mut rig, numbers, out) = counting(room);
            rig.push(&numbers, (0..100).rev().chain(50..60).collect());
            rig.watermark(&numbers, EventTime(5));
            assert_eq!(out.take(), [], "nothing before the end");
            rig.finish();
            let counted = |n| Seen::Record((n, if (50..60).contains(&n) { 2 } else { 1 }));
            let end = [Seen::Watermark(EventTime::MAX), Seen::End];
            assert_eq!(out.take(), (0..100).map(counted).chain(end).collect::<Vec<_>>(), "room {room}");
            assert_eq!(rig.counters("numbers").absorbed, 110);
        }
    }

    #[test]
    fn a_restore_finds_either_all_counts_or_none() {
        let (mut rig, numbers, _) = counting(2);
        rig.push(&numbers, vec![7, 7, 8, 9]);
        let before = rig.checkpoint();
        rig.watermark(&numbers, EventTime::MAX);
        let after = rig.checkpoint();

        let (mut rig, numbers, out) = counting(2);
        rig.restore(&[before]);
        rig.push(&numbers, vec![8]);
        rig.finish();
        assert_eq!(out.take_records(), [(7, 2), (8, 2), (9, 1)]);

        let (mut rig, _, out) = counting(2);
        rig.restore(&[after]);
        rig.finish();
        assert_eq!(out.take_records(), [], "all counts went out before the cut");
    }
}
