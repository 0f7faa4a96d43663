//! Reads from a checkpoint store what [`resolve`](super::resolve) decides from.
//!
//! Everything that is answered is durable: the store syncs what it found. A manifest that can't be read is a fact like any
//! other, because an older one may do; a damaged base or record of a commit is an error, because nothing can be decided
//! without it.

use std::collections::BTreeMap;

use super::resolve::{BaseFact, Facts, ManifestContent};
use crate::checkpoint::Published;
use crate::id::CheckpointId;
use crate::snapshot::{CheckpointStore, Manifest, ManifestName, Owner, StoreError, StoreListing};

/// What was found in a store.
#[derive(Clone, Debug)]
pub struct Found {
    /// What the decision needs.
    pub facts: Facts,
    /// The manifests that can be read, each with the proof that it is durable.
    pub manifests: BTreeMap<ManifestName, (Manifest, Published)>,
    /// All names.
    pub listing: StoreListing,
}

/// Reads the facts, as the attempt that `owner` has claimed. `foreign` says why this program can't restore from a manifest,
/// if it can't; a manifest with another hash is refused without asking. `highest_elsewhere` is the highest checkpoint number
/// in names outside the store (staged output); 0 if there is none.
///
/// # Errors
/// [`StoreError`].
pub fn read_facts(
    store: &dyn CheckpointStore,
    owner: &Owner,
    highest_elsewhere: CheckpointId,
    foreign: impl Fn(&Manifest) -> Option<String>,
) -> Result<Found, StoreError> {
    let mut listing = store.list()?;
    loop {
        match read_listed(store, owner, highest_elsewhere, &foreign, &listing) {
            // Whoever looked for a newer attempt just before this one claimed may still be removing what it has retired. What it
            // removes is finite, and it never is what this attempt will go on from.
            Err(StoreError::Missing { path }) => {
                let again = store.list()?;
                if again == listing {
                    return Err(StoreError::Missing { path });
                }
                listing = again;
            }
            other => return other,
        }
    }
}

/// Reads what was listed.
fn read_listed(
    store: &dyn CheckpointStore,
    owner: &Owner,
    highest_elsewhere: CheckpointId,
    foreign: &impl Fn(&Manifest) -> Option<String>,
    listing: &StoreListing,
) -> Result<Found, StoreError> {
    let mut bases = BTreeMap::new();
    for attempt in &listing.bases {
        let base = store.base(*attempt)?;
        bases.insert(*attempt, BaseFact { from: base.point.map(|point| point.name()), forked: base.forked });
    }
    let (mut contents, mut manifests) = (BTreeMap::new(), BTreeMap::new());
    for name in &listing.manifests {
        let content = match store.manifest(*name) {
            Ok((manifest, published)) => {
                let hash = manifest.check_hash().err().map(|e| e.to_string());
                let content = match hash.or_else(|| foreign(&manifest)) {
                    Some(reason) => ManifestContent::Foreign { reason },
                    None => ManifestContent::Good { is_final: manifest.is_final },
                };
                manifests.insert(*name, (manifest, published));
                content
            }
            Err(e @ (StoreError::Corrupt { .. } | StoreError::OtherJob { .. })) => {
                ManifestContent::Damaged { reason: e.to_string() }
            }
            Err(other) => return Err(other),
        };
        contents.insert(*name, content);
    }
    for name in &listing.committed {
        let record = store.committed(*name)?;
        let there = manifests.get(name).map(|(_, published)| published.manifest_checksum());
        if there.is_some_and(|checksum| checksum != record.manifest.checksum) {
            // Not the manifest that was committed: what it lists may never have been.
            let reason =
                "it is not the one that was committed: the record of the commit has another checksum".to_owned();
            contents.insert(*name, ManifestContent::Damaged { reason });
            manifests.remove(name);
        }
    }
    let highest_file = listing.state_files.iter().map(|file| file.checkpoint).max().unwrap_or_default();
    let facts = Facts {
        own: owner.attempt,
        claimed: listing.attempts.iter().copied().collect(),
        bases,
        manifests: contents,
        committed: listing.committed.iter().copied().collect(),
        highest_named: highest_file.max(highest_elsewhere),
    };
    Ok(Found { facts, manifests, listing: listing.clone() })
}
