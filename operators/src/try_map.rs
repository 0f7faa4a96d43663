//! `try_map`: good records go on, bad ones go aside with the reason.
//!
//! * Emits: on the first stream what `f` made of the good records, on the second the bad ones as they came, each with what
//!   `f` said; both in order and with the records' times.
//! * State: none.
//! * At a barrier: nothing to do. Both streams are cut at the same place, so a dead-letter topic written by a transactional
//!   sink is exactly-once like the rest.
//! * Counts: bad records as *rejected*, the rest as passed.

use std::fmt::Display;
use std::marker::PhantomData;

use cutwater_engine::element::Batch;
pub use cutwater_engine::element::Rejected;
use cutwater_engine::error::OperatorError;
use cutwater_engine::graph::{Stream, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator};

/// The streams of [`TryMap::try_map`]: the good records, the bad ones.
pub type Tried<T, U, M> = (Stream<U, M>, Stream<Rejected<T>, M>);

/// Adds `try_map` to streams.
pub trait TryMap<T: 'static, M: TimeMode> {
    /// Replaces each record by `f` of it where that is `Ok`. The records for which it is an error come out of the second
    /// stream, whole, so that they can be looked at and sent in again; [`discard`](Stream::discard) it if they may be lost.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (lines, stream) = rig.input::<String, Untimed>("lines");
    /// let (numbers, bad) = stream.try_map(|line| line.parse::<u32>());
    /// let (numbers, bad) = (rig.collect(numbers), rig.collect(bad));
    /// rig.push(&lines, vec!["1".into(), "one".into()]);
    /// assert_eq!(numbers.take_records(), [1]);
    /// assert_eq!(bad.take_records()[0].record, "one");
    /// ```
    fn try_map<U: 'static, E: Display>(self, f: impl Fn(&T) -> Result<U, E> + 'static) -> Tried<T, U, M>
    where
        M::Of<T>: Send,
        M::Of<U>: Send,
        M::Of<Rejected<T>>: Send;
}

impl<T: 'static, M: TimeMode> TryMap<T, M> for Stream<T, M> {
    fn try_map<U: 'static, E: Display>(self, f: impl Fn(&T) -> Result<U, E> + 'static) -> Tried<T, U, M>
    where
        M::Of<T>: Send,
        M::Of<U>: Send,
        M::Of<Rejected<T>>: Send,
    {
        let part = move |batch: Vec<M::Of<T>>| {
            let (mut good, mut bad) = (Vec::with_capacity(batch.len()), vec![]);
            for record in batch {
                match f(M::value(&record)) {
                    Ok(value) => good.push(M::with(&record, value)),
                    Err(reason) => {
                        let reason = reason.to_string();
                        bad.push(M::map(record, |record| Rejected { record, reason }));
                    }
                }
            }
            (good, bad)
        };
        let outputs = self.operator_auto("try_map", 2, move |_| Ok(Box::new(Part { part, records: PhantomData })));
        (outputs.stream::<U, M>(0), outputs.stream::<Rejected<T>, M>(1))
    }
}

/// Parts a batch into good and bad.
struct Part<A, F> {
    part: F,
    records: PhantomData<fn(A)>,
}

impl<A, B, C, F> Operator for Part<A, F>
where
    A: Send + 'static,
    B: Send + 'static,
    C: Send + 'static,
    F: Fn(Vec<A>) -> (Vec<B>, Vec<C>) + 'static,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let (good, bad) = (self.part)(batch.take::<A>());
        cx.counters().passed += good.len() as u64;
        cx.counters().rejected += bad.len() as u64;
        cx.emit(0, good);
        cx.emit(1, bad);
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
    fn bad_records_keep_their_time_and_everything_of_themselves() {
        let mut rig = Rig::new();
        let (lines, stream) = rig.input::<String, Timed>("lines");
        let (good, bad) = stream.try_map(|line| if line.is_empty() { Err("empty") } else { Ok(line.len()) });
        let (good, bad) = (rig.collect(good), rig.collect(bad));
        rig.push(&lines, vec![(EventTime(1), "ab".into()), (EventTime(2), String::new()), (EventTime(3), "c".into())]);
        rig.watermark(&lines, EventTime(2));
        let watermark = Seen::Watermark(EventTime(2));
        assert_eq!(good.take(), [Seen::Record((EventTime(1), 2)), Seen::Record((EventTime(3), 1)), watermark]);
        let rejected = Rejected { record: String::new(), reason: "empty".to_string() };
        assert_eq!(bad.take(), [Seen::Record((EventTime(2), rejected)), Seen::Watermark(EventTime(2))]);
        let counters = rig.counters("try_map");
        assert_eq!((counters.passed, counters.rejected, counters.emitted), (2, 1, vec![2, 1]));
    }
}
