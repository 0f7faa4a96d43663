//! Keyed state over another number of workers. Pure.
//!
//! * Every key group of every old worker goes to exactly one new worker, the one that owns the group now.
//! * With the same number of workers every worker gets back exactly what it had.
//!
//! The number of groups never changes in a job's life; the manifest is checked for that before anything here is called.
//! Splits need no plan here: a split's position stands in the manifest under the split's own name, whoever read it
//! (`source/split.rs`).

use std::num::NonZeroU32;

use crate::exchange::{GroupAssignment, GroupRange, KeyGroups};
use crate::id::WorkerIndex;

/// A part of an old worker's keyed state that a new worker needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePiece {
    /// Whose files.
    pub from: WorkerIndex,
    /// The groups to take from them; never empty.
    pub groups: GroupRange,
    /// All groups in the old worker's files, so that the reader needn't filter.
    pub whole: bool,
}

/// From where `worker` of `new` workers loads its keyed state, if `old` workers wrote it. In the order of the old
/// workers, which is also that of the groups.
///
/// # Panics
///
/// If there is no such new worker.
pub fn state_pieces(groups: KeyGroups, old: NonZeroU32, new: NonZeroU32, worker: WorkerIndex) -> Vec<StatePiece> {
    let before = GroupAssignment::new(groups, old);
    let now = GroupAssignment::new(groups, new).range_of(worker);
    (0..old.get())
        .map(WorkerIndex)
        .filter_map(|from| {
            let had = before.range_of(from);
            let needed = had.intersection(now);
            (!needed.is_empty()).then_some(StatePiece { from, groups: needed, whole: needed == had })
        })
        .collect()
}

#[cfg(test)]
#[path = "rescale_tests.rs"]
mod tests;
