//! The right to commit, as a value.
//!
//! Holding a [`Permit`] is the right to commit what it lists; nothing else is. One is only made from a [`Published`],
//! and that is only made where a manifest has been published and synced, or was found, verified and synced at recovery
//! (I-6). So a commit before its manifest can't be written down by accident.

use crate::checkpoint::Committable;
use crate::id::{Attempt, CheckpointId};

/// Proof that a manifest is durable: its name is in a synced directory and its content has been written and synced, or
/// read back and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    checkpoint: CheckpointId,
    attempt: Attempt,
    manifest_checksum: u64,
}

impl Published {
    /// Only for those who have just made the manifest durable, or found it so. `attempt` is the one that published it.
    pub(crate) fn durable(checkpoint: CheckpointId, attempt: Attempt, manifest_checksum: u64) -> Published {
        Published { checkpoint, attempt, manifest_checksum }
    }

    /// For the model of the protocol, whose store is a value in memory.
    #[cfg(feature = "model")]
    pub fn modelled(checkpoint: CheckpointId, attempt: Attempt) -> Published {
        Published::durable(checkpoint, attempt, 0)
    }

    /// The checkpoint that is complete.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The attempt that completed it.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// xxh3-64 of the manifest.
    pub fn manifest_checksum(&self) -> u64 {
        self.manifest_checksum
    }
}

/// The right to commit what one manifest lists. Committing is idempotent, so a clone gives no further right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    published: Published,
    committables: Vec<Committable>,
}

impl Permit {
    /// The right that follows from a published manifest, which lists exactly these committables.
    pub(crate) fn new(published: Published, committables: Vec<Committable>) -> Permit {
        Permit { published, committables }
    }

    /// The checkpoint that it lets commit.
    pub fn checkpoint(&self) -> CheckpointId {
        self.published.checkpoint
    }

    /// The attempt that published the manifest.
    pub fn attempt(&self) -> Attempt {
        self.published.attempt
    }

    /// xxh3-64 of the manifest.
    pub fn manifest_checksum(&self) -> u64 {
        self.published.manifest_checksum
    }

    /// All that may be committed, in the manifest's order.
    pub fn committables(&self) -> &[Committable] {
        &self.committables
    }

    /// The handles of one commit group, in the manifest's order.
    pub fn handles_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.committables.iter().filter(move |c| c.group == group).map(|c| c.handle.as_slice())
    }
}
