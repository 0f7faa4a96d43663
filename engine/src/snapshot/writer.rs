//! Frozen, encoded state -> state files, on the I/O thread.
//!
//! The promise: when [`SnapshotFiles::write`] answers Ok, every file it names is durable, its directory entry too (I-5). Then,
//! and only then, a `SnapshotRef` may name it. After an error nothing may name the files of that call; they are orphans,
//! swept after the next start.

use std::sync::{Arc, Mutex, PoisonError};

use cutwater_platform::{CrashPoints, Spawn};
use thiserror::Error;

use super::compress::pack;
use super::format::{BLOCK_HEADER_BYTES, StateFileHeader, Totals, block_checksum, encode_header};
use super::layout::{StateFileName, StateName};
use super::store::{CheckpointStore, Owner, StateFileOut, StoreError};
use crate::checkpoint::{StateFile, StateFileKind};
use crate::config::Compression;
use crate::exchange::GroupRange;
use crate::id::{CheckpointId, InstanceId};
use crate::state::{FrozenBlock, FrozenState};

/// A state file couldn't be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key or value can't be encoded.
    #[error("an entry of state {state:?} can't be encoded ({reason}); see cutwater_engine::state::StateValue")]
    Encode {
        /// The state.
        state: String,
        /// What the encoder said.
        reason: String,
    },
    /// One entry is larger than a block can say.
    #[error(
        "one entry of state {state:?} takes {bytes} bytes, and a block of a state file at most 4 GiB; split the value"
    )]
    EntryTooLarge {
        /// The state.
        state: String,
        /// Its encoded size.
        bytes: usize,
    },
}

/// Whose snapshot is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotOrigin {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The operator instance.
    pub instance: InstanceId,
    /// The key groups that it owns.
    pub groups: GroupRange,
}

/// One state of a snapshot, written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenState {
    /// The state.
    pub state: StateName,
    /// Its schema fingerprint.
    pub schema: u64,
    /// Base or delta.
    pub kind: StateFileKind,
    /// The durable file; `None` for a delta without entries, which needs none.
    pub file: Option<StateFile>,
}

/// Writes state files for one attempt.
#[derive(Clone, Debug)]
pub struct SnapshotFiles {
    store: Arc<dyn CheckpointStore>,
    owner: Owner,
    crash: CrashPoints,
    compression: Compression,
    /// On whose cores blocks are packed; nobody's if they aren't.
    cores: Option<Arc<dyn Spawn>>,
}

impl SnapshotFiles {
    /// A writer into `store` for `owner`.
    pub fn new(store: Arc<dyn CheckpointStore>, owner: Owner, crash: CrashPoints) -> SnapshotFiles {
        SnapshotFiles { store, owner, crash, compression: Compression::None, cores: None }
    }

    /// The same, packing what it writes, side by side on the cores that `cores` has.
    #[must_use]
    pub fn packed(self, compression: Compression, cores: Arc<dyn Spawn>) -> SnapshotFiles {
        SnapshotFiles { compression, cores: Some(cores), ..self }
    }

    pub(super) fn store(&self) -> &dyn CheckpointStore {
        self.store.as_ref()
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    pub(super) fn crash(&self) -> &CrashPoints {
        &self.crash
    }

    fn pack(&self, blocks: Vec<FrozenBlock>) -> Vec<FrozenBlock> {
        let Some(cores) = self.cores.as_ref().filter(|_| self.compression != Compression::None) else { return blocks };
        // Each block is locked once, by whoever packs it.
        let blocks: Vec<Mutex<FrozenBlock>> = blocks.into_iter().map(Mutex::new).collect();
        cores.spread(blocks.len(), &|index| {
            let mut block = blocks[index].lock().unwrap_or_else(PoisonError::into_inner);
            let raw = block.bytes.split_at(BLOCK_HEADER_BYTES).1;
            // What is too large to say its length is refused when it is written.
            if let Some(packed) = pack(self.compression, raw, BLOCK_HEADER_BYTES) {
                block.bytes = packed;
            }
        });
        blocks.into_iter().map(|block| block.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Writes the states of one snapshot durably: each file is synced, then their directory once.
    ///
    /// # Errors
    /// [`WriteError`]. After a failed sync the store is poisoned, and the attempt must end.
    pub fn write(&self, origin: &SnapshotOrigin, states: Vec<FrozenState>) -> Result<Vec<WrittenState>, WriteError> {
        let mut written = Vec::with_capacity(states.len());
        for state in states {
            let (name, schema, kind) = (state.name.clone(), state.schema, state.kind);
            let file = match (kind, state.entries) {
                (StateFileKind::Delta, 0) => None,
                _ => Some(self.write_one(origin, state)?),
            };
            written.push(WrittenState { state: name, schema, kind, file });
        }
        if written.iter().any(|state| state.file.is_some()) {
            self.store.sync_state_files(&self.owner)?;
            self.crash.reach("snapshot.dir-synced");
        }
        Ok(written)
    }

    fn write_one(&self, origin: &SnapshotOrigin, mut state: FrozenState) -> Result<StateFile, WriteError> {
        state.blocks = self.pack(state.blocks);
        let name = StateFileName {
            checkpoint: origin.checkpoint,
            attempt: self.owner.attempt,
            instance: origin.instance,
            state: state.name.clone(),
            kind: state.kind,
        };
        let mut out = self.store.create_state_file(&self.owner, &name)?;
        let file = write_file(out.as_mut(), &self.owner, origin, &name.to_string(), state, self.compression)?;
        self.crash.reach("snapshot.file-written");
        if !self.crash.is_planted("snapshot.not-synced") {
            out.finish()?;
        }
        self.crash.reach("snapshot.file-synced");
        Ok(file)
    }
}

/// Writes one whole state file, whose blocks are packed already; the caller syncs it.
///
/// # Errors
/// [`WriteError`].
pub(crate) fn write_file(
    out: &mut dyn StateFileOut,
    owner: &Owner,
    origin: &SnapshotOrigin,
    name: &str,
    state: FrozenState,
    compression: Compression,
) -> Result<StateFile, WriteError> {
    let FrozenState { name: state, schema, kind, entries, blocks, failed } = state;
    let state = state.as_str().to_owned();
    if let Some(reason) = failed {
        return Err(WriteError::Encode { state, reason });
    }
    let header = StateFileHeader {
        job: owner.job,
        attempt: owner.attempt,
        checkpoint: origin.checkpoint,
        instance: origin.instance,
        state: state.clone(),
        schema,
        kind,
        groups: origin.groups,
        entries,
        compression,
    };
    let (prefix, seed) =
        encode_header(&header).map_err(|e| WriteError::Encode { state: state.clone(), reason: e.to_string() })?;
    out.write(&prefix)?;
    let (mut bytes, mut totals) = (prefix.len() as u64, Totals::default());
    for FrozenBlock { bytes: mut block, entries } in blocks {
        let payload = block.len() - BLOCK_HEADER_BYTES;
        let Ok(length) = u32::try_from(payload) else {
            return Err(WriteError::EntryTooLarge { state, bytes: payload });
        };
        let checksum = block_checksum(seed, totals.blocks, entries, &block[BLOCK_HEADER_BYTES..]);
        block[0..4].copy_from_slice(&length.to_le_bytes());
        block[4..8].copy_from_slice(&entries.to_le_bytes());
        block[8..16].copy_from_slice(&checksum.to_le_bytes());
        out.write(&block)?;
        bytes += block.len() as u64;
        totals.add(entries, payload, checksum);
    }
    let (footer, checksum) = totals.encode(seed);
    out.write(&footer)?;
    bytes += footer.len() as u64;
    Ok(StateFile { name: name.to_owned(), bytes, checksum, entries, kind })
}
