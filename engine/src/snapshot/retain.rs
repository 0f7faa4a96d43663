//! Which state files may go. Pure.
//!
//! A file may go when no retained manifest and no pending `SnapshotRef` of the live attempt names it. The order of doing
//! it is the store's caller's: manifests first, durably, then files.

use std::collections::BTreeSet;

use super::layout::StateFileName;
use crate::checkpoint::SnapshotRef;
use crate::id::{Attempt, CheckpointId};

/// The files that `retired` name and nothing in `kept` does: what may go after those manifests have gone. Files of the live
/// attempt that no manifest names yet are never among them.
pub fn unnamed_files<'a>(
    retired: impl IntoIterator<Item = &'a SnapshotRef>,
    kept: impl IntoIterator<Item = &'a SnapshotRef>,
) -> Vec<StateFileName> {
    let kept = names(kept);
    names(retired).difference(&kept).filter_map(|name| StateFileName::parse(name)).collect()
}

/// The files in the store that nothing in `kept` names and nothing can name any more: those of attempts before `live`, and
/// those that `live` itself wrote up to its newest manifest, for checkpoint `complete` (chains are named whole, so what that
/// manifest left out was replaced). Only to be swept once the base of `live` is recorded; until then an older attempt's
/// manifest might still be chosen.
pub fn orphaned_files<'a>(
    stored: &[StateFileName],
    kept: impl IntoIterator<Item = &'a SnapshotRef>,
    live: Attempt,
    complete: CheckpointId,
) -> Vec<StateFileName> {
    let kept = names(kept);
    let over = |file: &StateFileName| file.attempt < live || (file.attempt == live && file.checkpoint <= complete);
    let orphan = |file: &&StateFileName| over(file) && !kept.contains(file.to_string().as_str());
    stored.iter().filter(orphan).cloned().collect()
}

fn names<'a>(snapshots: impl IntoIterator<Item = &'a SnapshotRef>) -> BTreeSet<&'a str> {
    let chains = snapshots.into_iter().flat_map(|snapshot| &snapshot.chains);
    chains.flat_map(|chain| &chain.files).map(|file| file.name.as_str()).collect()
}
