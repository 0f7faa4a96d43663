//! `fused`: several steps that the compiler makes one loop of.
//!
//! Chained stages pass batches: a virtual call per stage and batch, and a pass over the batch per stage. Inside `fused`
//! there is one pass, and the steps are inlined into each other. It pays where steps are tiny and records are many.
//!
//! * Emits: what the steps let through, in order, with the records' times.
//! * State: none; it is a stage.
//! * At a barrier: nothing to do.
//! * Counts: what a step drops as *filtered*, the rest as passed. The steps are those of [`Fused`], none of which makes two
//!   records of one, so that the difference says exactly that.

use std::marker::PhantomData;

use cutwater_engine::graph::{Stream, TimeMode};

/// Records on their way through fused steps.
///
/// Like an iterator, with those steps only that keep a record's time and never multiply it.
#[must_use = "return it from the closure that was given to `fused`"]
pub struct Fused<T: 'static, M: TimeMode, I> {
    rows: I,
    carries: PhantomData<fn(T, M)>,
}

impl<T: 'static, M: TimeMode, I> std::fmt::Debug for Fused<T, M, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fused<{}>", std::any::type_name::<T>())
    }
}

impl<T: 'static, M: TimeMode, I: Iterator<Item = M::Of<T>>> Fused<T, M, I> {
    fn new(rows: I) -> Self {
        Fused { rows, carries: PhantomData }
    }

    /// Replaces each record by `f` of it.
    pub fn map<U: 'static>(self, mut f: impl FnMut(T) -> U) -> Fused<U, M, impl Iterator<Item = M::Of<U>>> {
        Fused::new(self.rows.map(move |record| M::map(record, &mut f)))
    }

    /// Keeps the records for which `keep` answers true.
    pub fn filter(self, mut keep: impl FnMut(&T) -> bool) -> Fused<T, M, impl Iterator<Item = M::Of<T>>> {
        Fused::new(self.rows.filter(move |record| keep(M::value(record))))
    }

    /// Keeps the records for which `f` answers something, and replaces them by that.
    pub fn filter_map<U: 'static>(
        self,
        mut f: impl FnMut(T) -> Option<U>,
    ) -> Fused<U, M, impl Iterator<Item = M::Of<U>>> {
        Fused::new(self.rows.filter_map(move |record| {
            let time = M::with(&record, ());
            f(M::into_value(record)).map(|value| M::with(&time, value))
        }))
    }

    /// Calls `look` for each record.
    pub fn inspect(self, mut look: impl FnMut(&T)) -> Fused<T, M, impl Iterator<Item = M::Of<T>>> {
        Fused::new(self.rows.inspect(move |record| look(M::value(record))))
    }
}

/// A batch as fused steps begin with it.
pub type FusedBatch<T, M> = Fused<T, M, std::vec::IntoIter<<M as TimeMode>::Of<T>>>;

/// Adds `fused` to streams.
pub trait Fuse<T: 'static, M: TimeMode> {
    /// Takes each batch through `steps`.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
    /// let out = rig.collect(stream.fused(|batch| batch.filter(|n| n % 2 == 0).map(|n| n * n)));
    /// rig.push(&numbers, vec![1, 2, 3, 4]);
    /// assert_eq!(out.take_records(), [4, 16]);
    /// ```
    fn fused<U: 'static, I>(self, steps: impl Fn(FusedBatch<T, M>) -> Fused<U, M, I> + 'static) -> Stream<U, M>
    where
        I: Iterator<Item = M::Of<U>>;
}

impl<T: 'static, M: TimeMode> Fuse<T, M> for Stream<T, M> {
    fn fused<U: 'static, I>(self, steps: impl Fn(FusedBatch<T, M>) -> Fused<U, M, I> + 'static) -> Stream<U, M>
    where
        I: Iterator<Item = M::Of<U>>,
    {
        self.stage::<U, M>("fused", move |batch, counts| {
            let before = batch.len();
            let after: Vec<M::Of<U>> = steps(Fused::new(batch.into_iter())).rows.collect();
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
    fn fused_steps_do_what_the_same_stages_do() {
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u32, Timed>("numbers");
        let out = rig.collect(stream.fused(|batch| {
            batch.map(|n| n + 1).filter(|n| n % 2 == 0).filter_map(|n| n.checked_sub(4)).inspect(|_| ()).map(u64::from)
        }));
        rig.push(&numbers, (0..8).map(|n| (EventTime(i64::from(n)), n)).collect());
        assert_eq!(out.take_records(), [(EventTime(3), 0), (EventTime(5), 2), (EventTime(7), 4)]);
        let counters = rig.counters("fused");
        assert_eq!((counters.passed, counters.filtered), (3, 5));
    }
}
