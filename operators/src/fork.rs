//! `fork`: two streams of one.
//!
//! * Emits: every record on both streams, in the same order.
//! * State: none.
//! * At a barrier: it goes to both outputs in one step, so that branches that meet again are cut at the same place.

use std::marker::PhantomData;

use cutwater_engine::element::Batch;
use cutwater_engine::error::OperatorError;
use cutwater_engine::graph::{Stream, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator};

/// Adds `fork` to streams.
pub trait Fork<T: 'static, M: TimeMode> {
    /// Makes two streams of one. Records are cloned here and nowhere else.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
    /// let (all, more) = stream.fork();
    /// let (all, large) = (rig.collect(all), rig.collect(more.filter(|n| *n > 1)));
    /// rig.push(&numbers, vec![1, 2]);
    /// assert_eq!((all.take_records(), large.take_records()), (vec![1, 2], vec![2]));
    /// ```
    fn fork(self) -> (Stream<T, M>, Stream<T, M>)
    where
        M::Of<T>: Clone + Send;
}

impl<T: 'static, M: TimeMode> Fork<T, M> for Stream<T, M> {
    fn fork(self) -> (Stream<T, M>, Stream<T, M>)
    where
        M::Of<T>: Clone + Send,
    {
        let outputs = self.operator_auto("fork", 2, |_| Ok(Box::new(Twice::<M::Of<T>> { records: PhantomData })));
        (outputs.stream::<T, M>(0), outputs.stream::<T, M>(1))
    }
}

/// Says everything twice.
struct Twice<R> {
    records: PhantomData<fn(R)>,
}

impl<R: Clone + Send + 'static> Operator for Twice<R> {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take::<R>();
        cx.counters().passed += records.len() as u64;
        cx.emit(0, records.clone());
        cx.emit(1, records);
        Ok(Flow::Done)
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Untimed;
    use cutwater_engine::operator::testing::Rig;

    use super::*;
    use crate::union::Union;

    #[test]
    fn both_branches_get_everything_and_are_cut_at_the_same_place() {
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
        let (left, right) = stream.fork();
        let out = rig.collect(left.union([right]));
        rig.push(&numbers, vec![1, 2]);
        rig.checkpoint();
        rig.push(&numbers, vec![3]);
        assert_eq!(out.take_records(), [1, 2, 1, 2, 3, 3]);
        let counters = rig.counters("fork");
        assert_eq!((counters.passed, counters.emitted), (3, vec![3, 3]));
        assert_eq!(rig.counters("union").consumed, [3, 3]);
    }
}
