//! Which manifests stay, and which state files may go. Pure, over sets of names.
//!
//! * The newest `keep` committed manifests stay, and everything newer than the oldest of those, and what a person
//!   pinned (a savepoint).
//! * A manifest that isn't committed always stays: recovery must commit what it lists.
//! * A state file may go when no manifest that stays and no part that the live attempt may still publish names it.
//! * Manifests first, durably, then files: a manifest may never name a file that is gone (I-5). So a [`Retirement`]
//!   hands out its files only to those who say that the manifests are gone.
//! * During an attempt only files that something has *named* are candidates. A file of the live attempt that nothing
//!   has named is one whose `SnapshotRef` is still under way. What older attempts left unnamed is swept ([`sweep`]),
//!   once the base of the live attempt is recorded: from then on no older attempt can publish anything that counts.

use std::collections::BTreeSet;

use crate::id::Attempt;
use crate::snapshot::ManifestName;

/// A manifest in the store, of the live timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// Its name.
    pub name: ManifestName,
    /// Everything it lists is committed, and that is recorded.
    pub committed: bool,
    /// A person asked to keep it.
    pub pinned: bool,
    /// Names of the state files it names.
    pub files: BTreeSet<String>,
}

/// What may go, in two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retirement {
    manifests: Vec<ManifestName>,
    files: BTreeSet<String>,
    still_named: BTreeSet<String>,
}

impl Retirement {
    /// The manifests to delete, oldest first: then what is left is always the newest part of the timeline, pinned ones
    /// apart. Once they are gone, the outcomes of the committables they list may be forgotten.
    pub fn manifests(&self) -> &[ManifestName] {
        &self.manifests
    }

    /// Candidates that something still names: they stay candidates.
    pub fn still_named(&self) -> &BTreeSet<String> {
        &self.still_named
    }

    /// The files to delete. Call it when the manifests are deleted and their directory is synced.
    pub fn files_after_manifests(self) -> BTreeSet<String> {
        self.files
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.manifests.is_empty() && self.files.is_empty()
    }
}

/// What may go now.
///
/// `manifests`: all of the live timeline, in any order. `keep`: how many committed ones stay. `live`: what the live
/// attempt may still put into a manifest ([`Ledger::live_files`](super::Ledger::live_files)). `released`: what only
/// declined checkpoints may have named ([`Ledger::take_released`](super::Ledger::take_released)).
///
/// # Panics
///
/// If `keep` is 0: the newest committed checkpoint is what a crash goes back to.
pub fn retire(
    manifests: &[StoredManifest],
    keep: usize,
    live: &BTreeSet<String>,
    released: &BTreeSet<String>,
) -> Retirement {
    assert!(keep > 0, "the newest committed checkpoint must stay");
    let mut committed: Vec<ManifestName> = manifests.iter().filter(|m| m.committed).map(|m| m.name).collect();
    committed.sort_unstable();
    // Fewer than `keep`: nothing goes.
    let oldest_kept = committed.len().checked_sub(keep).map(|index| committed[index]);
    let goes = |m: &StoredManifest| m.committed && !m.pinned && oldest_kept.is_some_and(|oldest| m.name < oldest);

    let (going, staying): (Vec<_>, Vec<_>) = manifests.iter().partition(|m| goes(m));
    let named = |file: &String| live.contains(file) || staying.iter().any(|m| m.files.contains(file));
    let candidates: BTreeSet<&String> = going.iter().flat_map(|m| &m.files).chain(released).collect();
    let (still_named, files): (BTreeSet<String>, BTreeSet<String>) = candidates.into_iter().cloned().partition(named);
    let mut manifests: Vec<ManifestName> = going.iter().map(|m| m.name).collect();
    manifests.sort_unstable();
    // What a manifest that stays names comes back when that one retires; only the others must be remembered.
    let still_named = still_named.into_iter().filter(|f| !staying.iter().any(|m| m.files.contains(f))).collect();
    Retirement { manifests, files, still_named }
}

/// Proof that the base of an attempt is recorded, so that no older attempt can publish a manifest that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseRecorded {
    attempt: Attempt,
}

impl BaseRecorded {
    /// Only for those who have just made `attempts/k.base` durable.
    pub(crate) fn durable(attempt: Attempt) -> BaseRecorded {
        BaseRecorded { attempt }
    }

    /// For the model of the protocol, whose store is a value in memory.
    #[cfg(feature = "model")]
    pub fn modelled(attempt: Attempt) -> BaseRecorded {
        BaseRecorded::durable(attempt)
    }

    /// The live attempt.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }
}

/// What older attempts left behind: the manifests outside the timeline (`orphaned`), then the files of older attempts
/// that no manifest of the timeline names. Files of the live attempt are never touched. For the sweep at the start of
/// an attempt; no operator has started, so nothing else names a file.
pub fn sweep<'a>(
    base: BaseRecorded,
    timeline: &[StoredManifest],
    orphaned: impl IntoIterator<Item = ManifestName>,
    listed: impl IntoIterator<Item = (&'a str, Attempt)>,
) -> Retirement {
    let named: BTreeSet<&String> = timeline.iter().flat_map(|m| &m.files).collect();
    let mut manifests: Vec<ManifestName> = orphaned.into_iter().filter(|m| m.attempt < base.attempt).collect();
    manifests.sort_unstable();
    let files = listed
        .into_iter()
        .filter(|(_, attempt)| *attempt < base.attempt)
        .map(|(name, _)| name.to_owned())
        .filter(|name| !named.contains(name))
        .collect();
    Retirement { manifests, files, still_named: BTreeSet::new() }
}

#[cfg(test)]
#[path = "retain_tests.rs"]
mod tests;
