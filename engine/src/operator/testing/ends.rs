//! The two ends of a rig: where records go in, and where what came out is gathered.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::id::{CheckpointId, OperatorId};
use crate::time::Watermark;

/// What came out of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<R> {
    /// A record: `T` on an untimed stream, `(EventTime, T)` on a timed one.
    Record(R),
    /// A watermark.
    Watermark(Watermark),
    /// No data for now.
    Idle,
    /// Data again.
    Active,
    /// The barrier of a checkpoint.
    Barrier(CheckpointId),
    /// Nothing follows.
    End,
}

/// Where what came out of a stream is gathered.
#[derive(Debug)]
pub struct Collected<R> {
    pub(super) seen: Rc<RefCell<Vec<Seen<R>>>>,
}

impl<R> Collected<R> {
    /// Everything since this was last asked, in order.
    pub fn take(&self) -> Vec<Seen<R>> {
        std::mem::take(&mut self.seen.borrow_mut())
    }

    /// As [`Collected::take`], the records alone.
    pub fn take_records(&self) -> Vec<R> {
        self.take()
            .into_iter()
            .filter_map(|seen| if let Seen::Record(record) = seen { Some(record) } else { None })
            .collect()
    }
}

/// A way into the rig; `R` is how its records travel.
#[derive(Debug)]
pub struct Input<R> {
    pub(super) node: OperatorId,
    pub(super) records: PhantomData<fn(R)>,
}
