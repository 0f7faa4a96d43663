//! Frozen state -> state files, on the I/O thread.
//!
//! The promise: when [`SnapshotFiles::write`] answers Ok, every file it names is durable, its directory entry too (I-5). Then,
//! and only then, a `SnapshotRef` may name it. After an error nothing may name the files of that call; they are orphans,
//! swept after the next start.

use std::sync::Arc;

use cutwater_platform::CrashPoints;
use serde::Serialize;
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

use super::format::{BLOCK_HEADER_BYTES, BLOCK_TARGET_BYTES, StateFileHeader, Totals, block_checksum, encode_header};
use super::layout::{StateFileName, StateName};
use super::store::{CheckpointStore, Owner, StateFileOut, StoreError};
use crate::checkpoint::{StateFile, StateFileKind};
use crate::exchange::GroupRange;
use crate::id::{CheckpointId, InstanceId};
use crate::state::FrozenState;

/// A state file couldn't be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key or value can't be encoded.
    #[error("an entry of state {state:?} can't be encoded ({reason}); its Serialize must work with postcard")]
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
    /// A state gave another number of entries than it had said.
    #[error("state {state:?} announced {announced} entries and gave {given}: its FrozenState is wrong")]
    Miscounted {
        /// The state.
        state: String,
        /// What it had said.
        announced: u64,
        /// What came.
        given: u64,
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
}

impl SnapshotFiles {
    /// A writer into `store` for `owner`.
    pub fn new(store: Arc<dyn CheckpointStore>, owner: Owner, crash: CrashPoints) -> SnapshotFiles {
        SnapshotFiles { store, owner, crash }
    }

    /// Writes the states of one snapshot durably: each file is synced, then their directory once.
    ///
    /// # Errors
    /// [`WriteError`]. After a failed sync the store is poisoned, and the attempt must end.
    pub fn write(
        &self,
        origin: &SnapshotOrigin,
        states: &mut [Box<dyn FrozenState>],
    ) -> Result<Vec<WrittenState>, WriteError> {
        let mut written = Vec::with_capacity(states.len());
        for state in states.iter_mut() {
            let file = match (state.kind(), state.entries()) {
                (StateFileKind::Delta, 0) => None,
                _ => Some(self.write_one(origin, state.as_mut())?),
            };
            written.push(WrittenState {
                state: state.name().clone(),
                schema: state.schema(),
                kind: state.kind(),
                file,
            });
        }
        if written.iter().any(|state| state.file.is_some()) {
            self.store.sync_state_files(&self.owner)?;
            self.crash.reach("snapshot.dir-synced");
        }
        Ok(written)
    }

    fn write_one(&self, origin: &SnapshotOrigin, state: &mut dyn FrozenState) -> Result<StateFile, WriteError> {
        let header = StateFileHeader {
            job: self.owner.job,
            attempt: self.owner.attempt,
            checkpoint: origin.checkpoint,
            instance: origin.instance,
            state: state.name().as_str().to_owned(),
            schema: state.schema(),
            kind: state.kind(),
            groups: origin.groups,
            entries: state.entries(),
        };
        let name = StateFileName {
            checkpoint: origin.checkpoint,
            attempt: self.owner.attempt,
            instance: origin.instance,
            state: state.name().clone(),
            kind: state.kind(),
        };
        let mut out = self.store.create_state_file(&self.owner, &name)?;
        let mut blocks = BlockWriter::begin(out.as_mut(), &header)?;
        state.encode(&mut blocks)?;
        let (bytes, checksum, entries) = blocks.finish(header.entries)?;
        self.crash.reach("snapshot.file-written");
        out.finish()?;
        self.crash.reach("snapshot.file-synced");
        Ok(StateFile { name: name.to_string(), bytes, checksum, entries, kind: header.kind })
    }
}

/// Packs entries into checksummed blocks.
pub struct BlockWriter<'a> {
    out: &'a mut dyn StateFileOut,
    state: String,
    seed: u64,
    /// Room for the block's header, then its entries.
    block: Vec<u8>,
    block_entries: u32,
    totals: Totals,
    bytes: u64,
    hash: Box<Xxh3>,
}

impl<'a> BlockWriter<'a> {
    /// Writes the header.
    pub(crate) fn begin(
        out: &'a mut dyn StateFileOut,
        header: &StateFileHeader,
    ) -> Result<BlockWriter<'a>, WriteError> {
        let state = header.state.clone();
        let (bytes, seed) =
            encode_header(header).map_err(|e| WriteError::Encode { state: state.clone(), reason: e.to_string() })?;
        let mut block = Vec::with_capacity(BLOCK_TARGET_BYTES + BLOCK_TARGET_BYTES / 8);
        block.resize(BLOCK_HEADER_BYTES, 0);
        let totals = Totals::default();
        let mut writer =
            BlockWriter { out, state, seed, block, block_entries: 0, totals, bytes: 0, hash: Box::new(Xxh3::new()) };
        writer.write(&bytes)?;
        Ok(writer)
    }

    /// Adds an entry, encoded with postcard: `(key, Option<value>)`, `None` for a removal.
    ///
    /// # Errors
    /// The entry can't be encoded, or a full block can't be written.
    #[inline]
    pub fn entry<T: Serialize>(&mut self, entry: &T) -> Result<(), WriteError> {
        let block = std::mem::take(&mut self.block);
        self.block = postcard::to_extend(entry, block)
            .map_err(|e| WriteError::Encode { state: self.state.clone(), reason: e.to_string() })?;
        self.block_entries += 1;
        if self.block.len() >= BLOCK_HEADER_BYTES + BLOCK_TARGET_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.block_entries == 0 {
            return Ok(());
        }
        let payload = self.block.len() - BLOCK_HEADER_BYTES;
        let Ok(length) = u32::try_from(payload) else {
            return Err(WriteError::EntryTooLarge { state: self.state.clone(), bytes: payload });
        };
        let checksum =
            block_checksum(self.seed, self.totals.blocks, self.block_entries, &self.block[BLOCK_HEADER_BYTES..]);
        self.block[0..4].copy_from_slice(&length.to_le_bytes());
        self.block[4..8].copy_from_slice(&self.block_entries.to_le_bytes());
        self.block[8..16].copy_from_slice(&checksum.to_le_bytes());
        self.totals.blocks += 1;
        self.totals.entries += u64::from(self.block_entries);
        self.totals.payload += payload as u64;
        let block = std::mem::take(&mut self.block);
        self.write(&block)?;
        self.block = block;
        self.block.truncate(BLOCK_HEADER_BYTES);
        self.block_entries = 0;
        Ok(())
    }

    /// Writes the last block and the footer. Returns size, checksum and number of entries of the file.
    pub(crate) fn finish(mut self, announced: u64) -> Result<(u64, u64, u64), WriteError> {
        self.flush()?;
        let given = self.totals.entries;
        if given != announced {
            return Err(WriteError::Miscounted { state: self.state, announced, given });
        }
        let footer = self.totals.encode(self.seed);
        self.write(&footer)?;
        Ok((self.bytes, self.hash.digest(), given))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.write(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}
