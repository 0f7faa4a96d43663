//! `filter`: keeps the records that a question is answered with yes for.
//!
//! * Emits: the records kept, in order, with their times.
//! * State: none; it is a stage.
//! * At a barrier: nothing to do.
//! * Counts: what is dropped as *filtered*, the rest as passed.

use cutwater_engine::graph::{Stream, TimeMode};

/// Adds `filter` to streams.
pub trait Filter<T: 'static, M: TimeMode> {
    /// Keeps the records for which `keep` answers true.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
    /// let out = rig.collect(stream.filter(|n| n % 2 == 0));
    /// rig.push(&numbers, vec![1, 2, 3, 4]);
    /// assert_eq!(out.take_records(), [2, 4]);
    /// assert_eq!(rig.counters("filter").filtered, 2);
    /// ```
    #[must_use = "a stream that leads nowhere is refused; send it to a sink, or discard it"]
    fn filter(self, keep: impl Fn(&T) -> bool + 'static) -> Stream<T, M>;
}

impl<T: 'static, M: TimeMode> Filter<T, M> for Stream<T, M> {
    fn filter(self, keep: impl Fn(&T) -> bool + 'static) -> Stream<T, M> {
        self.stage::<T, M>("filter", move |mut batch, counts| {
            let before = batch.len();
            batch.retain(|record| keep(M::value(record)));
            counts.filtered += (before - batch.len()) as u64;
            batch
        })
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Untimed;
    use cutwater_engine::operator::testing::Rig;

    use super::*;

    #[test]
    fn filters_in_one_chain_count_each_record_once() {
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
        let out = rig.collect(stream.filter(|n| n % 2 == 0).filter(|n| n % 3 == 0));
        rig.push(&numbers, (1..=12).collect());
        rig.push(&numbers, vec![5]);
        assert_eq!(out.take_records(), [6, 12]);
        let counters = rig.counters("filter, filter");
        assert_eq!((counters.passed, counters.filtered, counters.emitted), (2, 11, vec![2]));
    }
}
