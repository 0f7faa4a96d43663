//! `flat_map`: one record in, any number out.
//!
//! * Emits: what the iterator that `f` makes of each record gives, in order, with the record's time.
//! * State: the iterator under way. It is a resumable cursor: rows are drawn from it while there is room downstream, so one
//!   record may become a million, or more than fit in memory.
//! * At a barrier: nothing to save, because a barrier waits until the rows of the records before it have been emitted whole.
//! * Counts: a record whose iterator gives nothing as *filtered*, the others as passed.

use cutwater_engine::element::Batch;
use cutwater_engine::error::OperatorError;
use cutwater_engine::graph::{Stream, TimeMode};
use cutwater_engine::operator::{Context, Flow, Operator};

/// Adds `flat_map` to streams.
pub trait FlatMap<T: 'static, M: TimeMode> {
    /// Replaces each record by the items of `f` of it. An iterator that never gives an item and never ends stops the job.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (lines, stream) = rig.input::<&str, Untimed>("lines");
    /// let out = rig.collect(stream.flat_map(|line| line.split(' ')));
    /// rig.push(&lines, vec!["to be", "or not"]);
    /// assert_eq!(out.take_records(), ["to", "be", "or", "not"]);
    /// ```
    fn flat_map<I>(self, f: impl Fn(T) -> I + 'static) -> Stream<I::Item, M>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static>,
        M::Of<T>: Send,
        M::Of<I::Item>: Send;
}

impl<T: 'static, M: TimeMode> FlatMap<T, M> for Stream<T, M> {
    fn flat_map<I>(self, f: impl Fn(T) -> I + 'static) -> Stream<I::Item, M>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static>,
        M::Of<T>: Send,
        M::Of<I::Item>: Send,
    {
        let make = move |_: &_| {
            let operator = Cursor::<T, M, _, I::IntoIter> {
                make_rows: move |record| f(record).into_iter(),
                batch: vec![].into_iter(),
                current: None,
            };
            Ok(Box::new(operator) as Box<dyn Operator>)
        };
        self.operator_auto("flat_map", 1, make).stream::<I::Item, M>(0)
    }
}

/// The place in the batch under way, and in the rows of one of its records.
struct Cursor<T: 'static, M: TimeMode, F, I> {
    make_rows: F,
    batch: std::vec::IntoIter<M::Of<T>>,
    current: Option<Rows<M::Of<()>, I>>,
}

/// The rows of one record that are still to come.
struct Rows<Time, I> {
    time: Time,
    rest: I,
    any: bool,
}

impl<T: 'static, M: TimeMode, F, I> Cursor<T, M, F, I>
where
    F: Fn(T) -> I + 'static,
    I: Iterator<Item: 'static> + 'static,
    M::Of<I::Item>: Send,
{
    /// Fills `out` up to `len` rows; less only if no row is left.
    fn fill(&mut self, out: &mut Vec<M::Of<I::Item>>, len: usize, cx: &mut Context<'_>) {
        while out.len() < len {
            if let Some(Rows { time, rest, any }) = &mut self.current {
                let before = out.len();
                out.extend(rest.take(len - before).map(|row| M::with(time, row)));
                *any |= out.len() > before;
                if out.len() == len {
                    return;
                }
                let counters = cx.counters();
                *(if *any { &mut counters.passed } else { &mut counters.filtered }) += 1;
            }
            self.current = self.batch.next().map(|record| Rows {
                time: M::with(&record, ()),
                rest: (self.make_rows)(M::into_value(record)),
                any: false,
            });
            if self.current.is_none() {
                return;
            }
        }
    }
}

impl<T: 'static, M: TimeMode, F, I> Operator for Cursor<T, M, F, I>
where
    F: Fn(T) -> I + 'static,
    I: Iterator<Item: 'static> + 'static,
    M::Of<T>: Send,
    M::Of<I::Item>: Send,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.batch = batch.take::<M::Of<T>>().into_iter();
        self.resume(cx)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        loop {
            let len = cx.room().min(cx.batch_records());
            if len == 0 {
                return Ok(if self.current.is_some() || self.batch.len() > 0 { Flow::Pending } else { Flow::Done });
            }
            let mut out = Vec::with_capacity(len);
            self.fill(&mut out, len, cx);
            let exhausted = out.len() < len;
            cx.emit(0, out);
            if exhausted {
                return Ok(Flow::Done);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use cutwater_engine::graph::{Timed, Untimed};
    use cutwater_engine::operator::testing::{Rig, Seen};
    use cutwater_engine::time::EventTime;

    use super::*;

    #[test]
    fn rows_come_in_order_whatever_room_there_is() {
        for room in [1, 2, 3, 5, 7, 100] {
            let mut rig = Rig::new();
            rig.set_room(room);
            let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
            let out = rig.collect(stream.flat_map(|n| (0..n).map(move |i| (n, i))));
            rig.push(&numbers, vec![2, 0, 3, 0]);
            rig.push(&numbers, vec![0, 1]);
            assert_eq!(out.take_records(), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (1, 0)], "room {room}");
            let counters = rig.counters("flat_map");
            assert_eq!((counters.passed, counters.filtered, counters.emitted), (3, 3, vec![6]), "room {room}");
        }
    }

    #[test]
    fn no_call_emits_more_than_there_is_room_for() {
        let largest = Rc::new(Cell::new(0));
        let mut rig = Rig::new();
        rig.set_room(10);
        let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
        let sizes = largest.clone();
        let out = rig.collect(stream.flat_map(|n| 0..n).stage::<u32, Untimed>("measure", move |batch, _| {
            sizes.set(sizes.get().max(batch.len()));
            batch
        }));
        rig.push(&numbers, vec![100_000]);
        assert_eq!((out.take_records().len(), largest.get()), (100_000, 10));
    }

    #[test]
    fn a_barrier_comes_after_all_rows_of_the_record_before_it_and_rows_have_its_time() {
        let mut rig = Rig::new();
        rig.set_room(2);
        let (numbers, stream) = rig.input::<u32, Timed>("numbers");
        let out = rig.collect(stream.flat_map(|n| 0..n));
        rig.push(&numbers, vec![(EventTime(9), 3)]);
        let snapshot = rig.checkpoint();
        let row = |n| Seen::Record((EventTime(9), n));
        let seen = out.take();
        assert_eq!(seen[..3], [row(0), row(1), row(2)]);
        assert!(matches!(seen[3..], [Seen::Barrier(_)]), "{seen:?} at {snapshot:?}");
    }
}
