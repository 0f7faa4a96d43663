//! When one instance did what for one checkpoint. Words only; who measures is the wiring, who compares is `observe`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Moments of one instance's part of a checkpoint, as the process's monotonic clock showed them. They never fall from field to
/// field; they can be compared only within one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartTimes {
    /// The first barrier was reached: everything before it on its channel had been handled. For a source, it was told to cut.
    pub reached: Duration,
    /// The last barrier was reached.
    pub cut: Duration,
    /// State is frozen, output is sealed.
    pub sealed: Duration,
    /// The frozen state is encoded and was handed to the I/O thread.
    pub encoded: Duration,
    /// State is written and synced, output is prepared.
    pub written: Duration,
}

impl PartTimes {
    /// An instance that had nothing to freeze, encode or write: a source, whose positions go into the manifest itself.
    pub fn at_once(reached: Duration, done: Duration) -> PartTimes {
        PartTimes { reached, cut: reached, sealed: done, encoded: done, written: done }
    }
}
