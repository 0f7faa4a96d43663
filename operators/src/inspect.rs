//! `inspect`: looks at records on their way.
//!
//! * Emits: every record unchanged.
//! * State: none; it is a stage.
//! * At a barrier: nothing to do. After a restore records are seen again that were seen before: `inspect` is at-least-once,
//!   whatever the job's guarantee. For output that counts, use a sink.

use cutwater_engine::graph::{Stream, TimeMode};

/// Adds `inspect` to streams.
pub trait Inspect<T: 'static, M: TimeMode> {
    /// Calls `look` for each record.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
    /// let out = rig.collect(stream.inspect(|n| eprintln!("saw {n}")));
    /// rig.push(&numbers, vec![1]);
    /// assert_eq!(out.take_records(), [1]);
    /// ```
    #[must_use = "a stream that leads nowhere is refused; send it to a sink, or discard it"]
    fn inspect(self, look: impl Fn(&T) + 'static) -> Stream<T, M>;
}

impl<T: 'static, M: TimeMode> Inspect<T, M> for Stream<T, M> {
    fn inspect(self, look: impl Fn(&T) + 'static) -> Stream<T, M> {
        self.stage::<T, M>("inspect", move |batch, _| {
            batch.iter().for_each(|record| look(M::value(record)));
            batch
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use cutwater_engine::graph::Untimed;
    use cutwater_engine::operator::testing::Rig;

    use super::*;

    #[test]
    fn it_sees_what_passes_in_order_and_changes_nothing() {
        let seen = Rc::new(RefCell::new(vec![]));
        let mut rig = Rig::new();
        let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
        let looks = seen.clone();
        let out = rig.collect(stream.inspect(move |n| looks.borrow_mut().push(*n)));
        rig.push(&numbers, vec![3, 1, 2]);
        assert_eq!((out.take_records(), seen.take()), (vec![3, 1, 2], vec![3, 1, 2]));
        assert_eq!(rig.counters("inspect").passed, 3);
    }
}
