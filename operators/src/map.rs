//! `map`: one record in, one record out.
//!
//! * Emits: `f` of each record, in order, with the record's time.
//! * State: none; it is a stage, so that neighbouring stages become one operator.
//! * At a barrier: nothing to do.

use cutwater_engine::graph::{Stream, TimeMode};

/// Adds `map` to streams.
pub trait Map<T: 'static, M: TimeMode> {
    /// Replaces each record by `f` of it.
    ///
    /// `f` should depend on the record alone: what it keeps in captures is not in any snapshot.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (words, stream) = rig.input::<&str, Untimed>("words");
    /// let out = rig.collect(stream.map(|word| word.len()));
    /// rig.push(&words, vec!["a", "bcd"]);
    /// assert_eq!(out.take_records(), [1, 3]);
    /// ```
    fn map<U: 'static>(self, f: impl Fn(T) -> U + 'static) -> Stream<U, M>;
}

impl<T: 'static, M: TimeMode> Map<T, M> for Stream<T, M> {
    fn map<U: 'static>(self, f: impl Fn(T) -> U + 'static) -> Stream<U, M> {
        self.stage::<U, M>("map", move |batch, _| batch.into_iter().map(|record| M::map(record, &f)).collect())
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Timed;
    use cutwater_engine::operator::testing::{Rig, Seen};
    use cutwater_engine::time::EventTime;

    use super::*;

    #[test]
    fn a_mapped_record_keeps_its_time_and_counts_as_passed() {
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u32, Timed>("numbers");
        let out = rig.collect(stream.map(|n| n + 1).map(|n| n.to_string()));
        rig.push(&numbers, vec![(EventTime(7), 1), (EventTime(3), 2)]);
        rig.watermark(&numbers, EventTime(3));
        let records = [(EventTime(7), "2".to_string()), (EventTime(3), "3".to_string())].map(Seen::Record);
        assert_eq!(out.take(), [&records[..], &[Seen::Watermark(EventTime(3))]].concat());
        let counters = rig.counters("map, map");
        assert_eq!((counters.passed, counters.emitted), (2, vec![2]));
    }
}
