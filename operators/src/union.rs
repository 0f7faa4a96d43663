//! `union`: one stream of several of the same type.
//!
//! * Emits: every record of every stream. Each stream's order is kept; how they interleave is not defined.
//! * Watermark: the smallest of the inputs that aren't idle.
//! * State: none.
//! * At a barrier: inputs whose barrier has come wait for the others (alignment).

use std::marker::PhantomData;

use cutwater_engine::element::Batch;
use cutwater_engine::error::OperatorError;
use cutwater_engine::graph::{Stream, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator};

/// Adds `union` to streams.
pub trait Union<T: 'static, M: TimeMode> {
    /// Joins this stream and `others` into one.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (left, a) = rig.input::<u32, Untimed>("left");
    /// let (right, b) = rig.input::<u32, Untimed>("right");
    /// let out = rig.collect(a.union([b]));
    /// rig.push(&left, vec![1]);
    /// rig.push(&right, vec![2]);
    /// assert_eq!(out.take_records(), [1, 2]);
    /// ```
    #[must_use = "a stream that leads nowhere is refused; send it to a sink, or discard it"]
    fn union(self, others: impl IntoIterator<Item = Stream<T, M>>) -> Stream<T, M>
    where
        M::Of<T>: Send;
}

impl<T: 'static, M: TimeMode> Union<T, M> for Stream<T, M> {
    fn union(self, others: impl IntoIterator<Item = Stream<T, M>>) -> Stream<T, M>
    where
        M::Of<T>: Send,
    {
        let make = |_: &_| Ok(Box::new(Forward::<M::Of<T>> { records: PhantomData }) as Box<dyn Operator>);
        self.merge_with(others.into_iter().collect(), "union", make).stream::<T, M>(0)
    }
}

/// Hands batches on.
struct Forward<R> {
    records: PhantomData<fn(R)>,
}

impl<R: Send + 'static> Operator for Forward<R> {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        cx.counters().passed += batch.len() as u64;
        cx.emit(0, batch.take::<R>());
        Ok(Flow::Done)
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Timed;
    use cutwater_engine::operator::testing::{Rig, Seen};
    use cutwater_engine::time::EventTime;

    use super::*;

    #[test]
    fn the_watermark_is_the_smallest_of_the_inputs_that_are_not_idle() {
        let mut rig = Rig::new();
        let (left, a) = rig.input::<u32, Timed>("left");
        let (right, b) = rig.input::<u32, Timed>("right");
        let out = rig.collect(a.union([b]));
        rig.watermark(&left, EventTime(5));
        rig.push(&right, vec![(EventTime(1), 1)]);
        rig.watermark(&right, EventTime(3));
        rig.idle(&right);
        rig.finish();
        let watermark = |t| Seen::Watermark(t);
        let before = [Seen::Record((EventTime(1), 1)), watermark(EventTime(3)), watermark(EventTime(5))];
        // The left one ends while the right one is idle: that alone doesn't end time.
        assert_eq!(out.take(), [&before[..], &[Seen::Idle, watermark(EventTime::MAX), Seen::End]].concat());
    }
}
