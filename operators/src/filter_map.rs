//! `filter_map`: keeps what a function makes something of.
//!
//! * Emits: what the function answers, in order, with the records' times.
//! * State: none; it is a stage.
//! * At a barrier: nothing to do.
//! * Counts: a record that it answers nothing to as *filtered*, the rest as passed.

use cutwater_engine::graph::{Stream, TimeMode};

/// Adds `filter_map` to streams.
pub trait FilterMap<T: 'static, M: TimeMode> {
    /// Keeps the records for which `f` answers something, and replaces them by that.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (words, stream) = rig.input::<&str, Untimed>("words");
    /// let out = rig.collect(stream.filter_map(|word| word.parse::<u32>().ok()));
    /// rig.push(&words, vec!["1", "two", "3"]);
    /// assert_eq!(out.take_records(), [1, 3]);
    /// assert_eq!(rig.counters("filter_map").filtered, 1);
    /// ```
    ///
    /// Records that are wrong rather than unwanted belong to a dead-letter topic: see [`try_map`](crate::try_map).
    #[must_use = "a stream that leads nowhere is refused; send it to a sink, or discard it"]
    fn filter_map<U: 'static>(self, f: impl Fn(T) -> Option<U> + 'static) -> Stream<U, M>;
}

impl<T: 'static, M: TimeMode> FilterMap<T, M> for Stream<T, M> {
    fn filter_map<U: 'static>(self, f: impl Fn(T) -> Option<U> + 'static) -> Stream<U, M> {
        self.stage::<U, M>("filter_map", move |batch, counts| {
            let before = batch.len();
            let kept = batch.into_iter().filter_map(|record| {
                let time = M::with(&record, ());
                f(M::into_value(record)).map(|value| M::with(&time, value))
            });
            let after: Vec<M::Of<U>> = kept.collect();
            counts.filtered += (before - after.len()) as u64;
            after
        })
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Timed;
    use cutwater_engine::operator::testing::Rig;
    use cutwater_engine::time::EventTime;

    use super::*;

    #[test]
    fn what_is_kept_keeps_its_time_and_the_rest_is_counted() {
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u32, Timed>("numbers");
        let out = rig.collect(stream.filter_map(|n| n.checked_sub(2)));
        rig.push(&numbers, (0..4).map(|n| (EventTime(i64::from(n)), n)).collect());
        assert_eq!(out.take_records(), [(EventTime(2), 0), (EventTime(3), 1)]);
        let counters = rig.counters("filter_map");
        assert_eq!((counters.passed, counters.filtered), (2, 2));
    }
}
