//! What an operator instance hands to the coordinator for one checkpoint.
//!
//! A [`SnapshotRef`] for checkpoint n means: everything it names is durable and verified, and together it equals the
//! effect on this instance of exactly the records before Barrier(n) on each of its input channels (I-4). It does not mean
//! that the checkpoint is complete; only the manifest does (I-5).

use serde::{Deserialize, Serialize};

use crate::id::InstanceId;

/// One instance's part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SnapshotRef {
    /// Whose snapshot this is.
    pub instance: InstanceId,
    /// Keyed state in files, one chain per named state.
    pub chains: Vec<StateChain>,
    /// Small state carried in the manifest itself: positions, watermarks.
    pub blobs: Vec<Blob>,
    /// What a sink prepared for this checkpoint; committed once the manifest exists.
    pub committables: Vec<Committable>,
    /// Records counted since the job's first start; they roll back with the state.
    pub counters: Counters,
    /// True if nothing more will come of this instance's own: an exhausted source, or any other instance that has no record
    /// in flight before it.
    pub exhausted: bool,
}

/// The name under which the records in flight before an instance stand among its chains. No state of an operator can have it.
pub const CHANNEL_STATE: &str = "+in-flight";

impl SnapshotRef {
    /// The frames that its barrier overtook, if it did.
    pub fn channel_state(&self) -> Option<&StateChain> {
        self.chains.iter().find(|chain| chain.name == CHANNEL_STATE)
    }
}

/// The files of one named state of one instance: a base and the deltas on top of it, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateChain {
    /// The state's name, unique within its operator.
    pub name: String,
    /// Fingerprint of key and value types; a mismatch refuses to restore.
    pub schema: u64,
    /// The chain. The first is a base, the others are deltas.
    pub files: Vec<StateFile>,
}

/// One durable state file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateFile {
    /// Name below the checkpoint store's `state` directory.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3-64 of the whole file.
    pub checksum: u64,
    /// Number of entries, removals included.
    pub entries: u64,
    /// What it contains.
    pub kind: StateFileKind,
}

/// What a state file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StateFileKind {
    /// Every entry.
    Base,
    /// What changed since the file before it in the chain.
    Delta,
}

/// A named piece of small state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Blob {
    /// The name, unique within its instance: a split's name, or the name of the thing stored.
    pub name: String,
    /// The bytes, in the format of whoever stored them.
    pub bytes: Vec<u8>,
}

/// The handle of something prepared: whoever holds it and a permit can commit it, any number of times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Committable {
    /// The commit group that understands it.
    pub group: String,
    /// The handle, in the group's own format.
    pub handle: Vec<u8>,
}

/// Records counted at one instance. Every consumed record is counted once: for an operator
/// `consumed = passed + filtered + absorbed + late + rejected` (I-8); `emitted` counts what left on each output port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Counters {
    /// Records taken from each input port.
    pub consumed: Vec<u64>,
    /// Records that led to output at once.
    pub passed: u64,
    /// Records dropped because the user's function said so.
    pub filtered: u64,
    /// Records taken into state.
    pub absorbed: u64,
    /// Records whose window had already fired.
    pub late: u64,
    /// Records that the user's function called bad.
    pub rejected: u64,
    /// Records sent on each output port.
    pub emitted: Vec<u64>,
}

impl Counters {
    /// Consumed records of which it is counted what became of them.
    pub(crate) fn accounted(&self) -> u64 {
        self.passed + self.filtered + self.absorbed + self.late + self.rejected
    }
}
