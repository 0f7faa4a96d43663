//! Frozen, encoded state -> state files, on the I/O thread.
//!
//! The promise: when [`SnapshotFiles::write`] answers Ok, every file it names is durable, its directory entry too (I-5). Then,
//! and only then, a `SnapshotRef` may name it. After an error nothing may name the files of that call; they are orphans,
//! swept after the next start.

use std::sync::{Arc, Mutex, PoisonError};

use cutwater_platform::{AlignedBuf, CrashPoints, Spawn};
use thiserror::Error;

use super::compress::pack;
use super::format::{
    BLOCK_HEADER_BYTES, StateFileHeader, Totals, UNIT_BYTES, aligned_checksum, block_checksum, encode_header,
    payload_crc,
};
use super::layout::{StateFileName, StateName};
use super::store::{CheckpointStore, Owner, StateFileOut, StoreError};
use crate::checkpoint::{StateFile, StateFileKind};
use crate::config::Compression;
use crate::exchange::GroupRange;
use crate::id::{CheckpointId, InstanceId};
use crate::state::{FrozenBlock, FrozenState, LARGE_BLOCKS};

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
    /// Whether large files shall stay in the system's cache, for a restore that comes soon.
    cached: bool,
}

impl SnapshotFiles {
    /// A writer into `store` for `owner`.
    pub fn new(store: Arc<dyn CheckpointStore>, owner: Owner, crash: CrashPoints) -> SnapshotFiles {
        SnapshotFiles { store, owner, crash, compression: Compression::None, cores: None, cached: false }
    }

    /// The same, leaving large files in the system's cache, or writing them past it.
    #[must_use]
    pub fn cached(self, cached: bool) -> SnapshotFiles {
        SnapshotFiles { cached, ..self }
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
            // What is too large to say its length is refused when it is written.
            if let Some(packed) = pack(self.compression, block.payload(), BLOCK_HEADER_BYTES) {
                block.replace(packed);
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
        let bytes: usize = state.blocks.iter().map(|block| block.payload().len()).sum();
        let cached = self.cached && bytes <= CACHED_MAX_BYTES;
        let file = write_file(out.as_mut(), &self.owner, origin, &name.to_string(), state, self.compression, cached)?;
        self.crash.reach("snapshot.file-written");
        if !self.crash.is_planted("snapshot.not-synced") {
            out.finish()?;
        }
        self.crash.reach("snapshot.file-synced");
        Ok(file)
    }
}

/// Files larger than this are always written past the cache: so much unwritten memory would hold up the syncs of everybody else.
const CACHED_MAX_BYTES: usize = 256 << 20;

/// Writes one whole state file, whose blocks are packed already; the caller syncs it. If it shall be `cached`, all of it goes
/// through the system's cache.
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
    cached: bool,
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
    let aligned = compression == Compression::None && blocks.len() >= LARGE_BLOCKS;
    let encoded = encode_header(&header, aligned);
    let (prefix, seed) = encoded.map_err(|e| WriteError::Encode { state: state.clone(), reason: e.to_string() })?;
    let mut totals = Totals::default();
    let sealed = if aligned { seal_aligned } else { seal };
    let blocks = blocks.into_iter().map(|mut block| {
        let bytes = block.payload().len();
        sealed(&mut block, seed, &mut totals)
            .then_some(block)
            .ok_or(WriteError::EntryTooLarge { state: state.clone(), bytes })
    });
    let bytes = if aligned {
        let mut blocks = blocks.collect::<Result<Vec<FrozenBlock>, WriteError>>()?;
        write_aligned(out, &prefix, &mut blocks, &totals.encode(seed).0, cached)?
    } else {
        out.write(&prefix)?;
        let mut bytes = prefix.len();
        for block in blocks {
            let mut block = block?;
            out.write(block.whole())?;
            bytes += block.whole().len();
        }
        let (footer, _) = totals.encode(seed);
        out.write(&footer)?;
        bytes + footer.len()
    };
    let (_, checksum) = totals.encode(seed);
    Ok(StateFile { name: name.to_owned(), bytes: bytes as u64, checksum, entries, kind })
}

/// Fills in the header of a block; false if it is too large to have one.
fn seal(block: &mut FrozenBlock, seed: u64, totals: &mut Totals) -> bool {
    let checksum = block_checksum(seed, totals.blocks, block.entries, block.payload());
    seal_with(block, checksum, totals)
}

/// The same for an aligned file.
fn seal_aligned(block: &mut FrozenBlock, seed: u64, totals: &mut Totals) -> bool {
    let crc = block.crc.unwrap_or_else(|| payload_crc(block.payload()));
    let checksum = aligned_checksum(seed, totals.blocks, block.entries, block.payload().len(), crc);
    seal_with(block, checksum, totals)
}

fn seal_with(block: &mut FrozenBlock, checksum: u64, totals: &mut Totals) -> bool {
    let (payload, entries) = (block.payload().len(), block.entries);
    let Ok(length) = u32::try_from(payload) else { return false };
    let whole = block.whole();
    whole[0..4].copy_from_slice(&length.to_le_bytes());
    whole[4..8].copy_from_slice(&entries.to_le_bytes());
    whole[8..16].copy_from_slice(&checksum.to_le_bytes());
    totals.add(entries, payload, checksum);
    true
}

/// Writes header, blocks and footer, each in whole units; past the system's cache in one go.
fn write_aligned(
    out: &mut dyn StateFileOut,
    prefix: &[u8],
    blocks: &mut [FrozenBlock],
    footer: &[u8],
    cached: bool,
) -> Result<usize, StoreError> {
    let (mut first, mut last) = (AlignedBuf::with_capacity(UNIT_BYTES), AlignedBuf::with_capacity(UNIT_BYTES));
    first.extend_from_slice(prefix);
    first.pad_to_block();
    last.grow_with_zeros(UNIT_BYTES - footer.len());
    last.extend_from_slice(footer);
    let mut parts = Vec::with_capacity(blocks.len() + 2);
    parts.push(first.as_slice());
    parts.extend(blocks.iter_mut().map(|block| &*block.aligned()));
    parts.push(last.as_slice());
    match cached {
        true => parts.iter().try_for_each(|part| out.write(part))?,
        false => out.write_units(&parts)?,
    }
    Ok(parts.iter().map(|part| part.len()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Attempt, JobId, OperatorId, WorkerIndex};
    use crate::state::Encoder;

    /// Keeps what is written, and how much of it might have gone past the cache.
    #[derive(Default)]
    struct Out {
        bytes: Vec<u8>,
        past_cache: usize,
    }

    impl StateFileOut for Out {
        fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
            self.bytes.extend_from_slice(bytes);
            Ok(())
        }

        fn write_units(&mut self, parts: &[&[u8]]) -> Result<(), StoreError> {
            self.past_cache += parts.iter().map(|part| part.len()).sum::<usize>();
            parts.iter().try_for_each(|part| self.write(part))
        }

        fn finish(self: Box<Self>) -> Result<(), StoreError> {
            Ok(())
        }
    }

    /// A state of so many entries of a kilobyte, written.
    fn written(entries: usize, cached: bool) -> Out {
        let mut encoder = Encoder::default();
        (0..entries).for_each(|i| encoder.add(&i.to_le_bytes(), &[i as u8; 1024]));
        let name = StateName::new("counts").unwrap();
        let state = encoder.finish(&name, 7, StateFileKind::Base);
        let origin = SnapshotOrigin {
            checkpoint: CheckpointId(1),
            instance: InstanceId { operator: OperatorId(0), worker: WorkerIndex(0) },
            groups: GroupRange { start: 0, end: 1 << 16 },
        };
        let (mut out, owner) = (Out::default(), Owner { job: JobId(1), attempt: Attempt(1) });
        let file = write_file(&mut out, &owner, &origin, "a file", state, Compression::None, cached).unwrap();
        assert_eq!(file.bytes, out.bytes.len() as u64);
        out
    }

    #[test]
    fn a_file_that_shall_be_cached_is_the_same_and_never_goes_past_the_cache() {
        let (cached, direct) = (written(3_000, true), written(3_000, false));
        assert!(cached.bytes == direct.bytes);
        assert_eq!((cached.past_cache, direct.past_cache), (0, direct.bytes.len()));
    }

    #[test]
    fn a_small_file_goes_through_the_cache_in_any_case() {
        for cached in [true, false] {
            assert_eq!(written(10, cached).past_cache, 0);
        }
    }
}
