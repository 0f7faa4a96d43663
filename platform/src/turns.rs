//! Turns: how threads that would run at the same time run one after the other instead, in an order that somebody chooses.
//!
//! A worker of a job is a thread, and so is its twin under simulation; the twin only runs while it has the *turn*. Between two
//! steps it gives the turn up and says what it did; whoever keeps the turns ([`Turns`]) chooses who goes on: a worker, a task
//! that is ready, or the clock. So a seed decides what the machine's scheduler decides otherwise, and the same seed gives the
//! same run. On real threads there are no turns ([`Spawn::turns`](crate::Spawn::turns) is `None`).

use std::fmt;
use std::time::Duration;

/// What a worker did with its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Something; there may be more.
    Work,
    /// Nothing: it waits for others, or until this moment of the monotonic clock.
    Nothing {
        /// When it wants to be asked again even if nobody else did anything.
        until: Option<Duration>,
    },
}

/// What comes of giving a turn up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is the caller's turn again.
    Again,
    /// It is the caller's turn, and its last one: it must leave.
    Leave {
        /// Why: the power went off, or nothing moves any more.
        why: String,
    },
}

/// Keeps the turns of a group of threads.
pub trait Turns: Send + Sync + fmt::Debug {
    /// Joins a group of `of` threads as number `member` and waits for the first turn. Nobody has a turn before all have come.
    fn enter(&self, member: usize, of: usize);
    /// Gives the turn up and waits for the next one.
    fn pass(&self, member: usize, did: Did) -> Turn;
    /// Gives the turn up for good.
    fn leave(&self, member: usize);
}
