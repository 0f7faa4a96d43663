//! Which worker reads which split: the same for every worker that asks, whatever the order in which splits were listed.

use crate::id::WorkerIndex;

/// The splits that `worker` reads: the sorted splits are dealt out in turn.
///
/// ```
/// use cutwater_engine::id::WorkerIndex;
/// use cutwater_engine::source::split::splits_of;
/// let all = ["b".to_string(), "a".to_string(), "c".to_string()];
/// assert_eq!(splits_of(&all, WorkerIndex(0), 2), ["a", "c"]);
/// assert_eq!(splits_of(&all, WorkerIndex(1), 2), ["b"]);
/// ```
pub fn splits_of(all: &[String], worker: WorkerIndex, workers: u32) -> Vec<String> {
    let mut sorted = all.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted.into_iter().skip(worker.0 as usize).step_by(workers.max(1) as usize).collect()
}
