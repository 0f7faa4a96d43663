//! The contract of a source: where records come from, and how to come back to a place.
//!
//! A source is read as a set of *splits* (partitions, files). Each split is read by one worker, by a [`Reader`] of its own.
//! What exactly-once asks of a replayable source:
//!
//! * [`Reader::position`] after any number of reads is a place from which [`Source::open`] gives exactly the records that
//!   were not yet read, in the same order, whenever and on whichever worker it is opened again.
//! * Everything that decides what a split contains is resolved once and part of the position ("until latest" becomes a number).
//! * If the data behind a position has changed or is gone, opening it is an error and never a guess.

pub mod driver;
pub mod follow;
pub mod split;

use std::fmt;
use std::sync::Arc;

use crate::error::SourceError;

pub(crate) use driver::is_split;
pub use driver::{Polled, SourceDriver, SplitState};
pub use follow::Follow;

/// Where records come from.
pub trait Source: 'static {
    /// What it reads.
    type Item: Send + 'static;

    /// Whether it can be read again from a position. A source that can't is at-most-once only.
    fn replay(&self) -> Replay;

    /// The names of its splits, in any order; each worker reads some of them. Called once per attempt.
    ///
    /// # Errors
    /// The source can't be reached or isn't there.
    fn splits(&self) -> Result<Vec<String>, SourceError>;

    /// Opens a split at its beginning or where an earlier reader said it stood. `waker` may be kept and called from any
    /// thread when there is something to read after [`Read::Wait`].
    ///
    /// # Errors
    /// The split is gone, or isn't what it was when the position was taken.
    fn open(
        &self,
        split: &str,
        position: Option<&[u8]>,
        waker: Waker,
    ) -> Result<Box<dyn Reader<Item = Self::Item>>, SourceError>;

    /// Tells somebody outside how far it has come, whenever a checkpoint is committed; nobody unless it says so.
    fn follow(&self) -> Option<Arc<dyn Follow>> {
        None
    }
}

/// Whether a source can be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// From any position it ever reported.
    FromPosition,
    /// Not at all, for this reason.
    Never(String),
}

/// Reads one split.
pub trait Reader {
    /// What it reads.
    type Item;

    /// Appends at most about `max` records to `out` and says what comes next. Never blocks.
    ///
    /// # Errors
    /// The split can't be read on.
    fn read(&mut self, out: &mut Vec<Self::Item>, max: usize) -> Result<Read, SourceError>;

    /// Where to open again so that exactly the records not yet read follow.
    fn position(&self) -> Vec<u8>;
}

/// What comes after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Read again.
    More,
    /// Nothing for now: the waker will be called. It may be called too often, never too rarely.
    Wait,
    /// Nothing for now and nobody will call: ask again after this many milliseconds.
    WaitMs(u64),
    /// The split will never have another record.
    Exhausted,
}

/// Wakes the worker that waits for a split. Cheap to clone; may be called from any thread.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker(Arc::new(wake))
    }

    /// A waker that does nothing, for readers that are polled anyway.
    pub fn noop() -> Waker {
        Waker::new(|| {})
    }

    /// Wakes the worker.
    pub fn wake(&self) {
        (self.0)();
    }

    /// The same as a plain function, for libraries that ask for one.
    pub fn as_fn(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.0.clone()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
