//! A frozen state on its way to the disk: its entries, encoded in blocks.
//!
//! Encoding happens while the table is swept, on the worker: an entry is touched once, copying it out would cost as much,
//! and cloning a text key several times as much. Checksums, writing and syncing happen on the I/O thread.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::block::{FrozenBlock, Pool};
use crate::checkpoint::StateFileKind;
use crate::snapshot::{StateName, payload_crc, write_entry};

/// What a state was at a freeze: every entry (base), or every key written since the freeze before (delta).
pub struct FrozenState {
    pub(crate) name: StateName,
    pub(crate) schema: u64,
    pub(crate) kind: StateFileKind,
    pub(crate) entries: u64,
    pub(crate) blocks: Vec<FrozenBlock>,
    /// Why an entry could not be encoded; the state is then of no use.
    pub(crate) failed: Option<String>,
}

impl FrozenState {
    /// The state's name.
    pub fn name(&self) -> &StateName {
        &self.name
    }

    /// Its schema fingerprint.
    pub fn schema(&self) -> u64 {
        self.schema
    }

    /// Base or delta.
    pub fn kind(&self) -> StateFileKind {
        self.kind
    }

    /// Number of entries, removals included.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.capacity()).sum()
    }
}

impl fmt::Debug for FrozenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenState({:?} as {:?}, {} entries)", self.name.as_str(), self.kind, self.entries)
    }
}

/// A state of at least so many blocks is written past the system's cache, from memory that is kept for the next snapshot. A smaller
/// one costs little either way, and its file stays small.
pub(crate) const LARGE_BLOCKS: usize = 4;

/// Encodes entries into blocks.
#[derive(Default)]
pub(crate) struct Encoder {
    blocks: Vec<FrozenBlock>,
    open: FrozenBlock,
    entries: u64,
    failed: Option<String>,
    pool: Arc<Pool>,
}

impl Encoder {
    /// Adds an entry; `None` is a removal. After the first that can't be encoded the state is of no use.
    #[inline]
    pub(super) fn entry<K: Serialize, V: Serialize>(&mut self, key: &K, value: Option<&V>) {
        self.open_block();
        match write_entry(&(key, value), self.open.out()) {
            Ok(()) => self.added(),
            Err(error) => self.fail(&error),
        }
    }

    #[cold]
    fn fail(&mut self, error: &dyn fmt::Display) {
        self.entries += 1;
        // What was written of it stays, since nothing of this state will be.
        self.failed.get_or_insert_with(|| error.to_string());
    }

    #[inline]
    fn open_block(&mut self) {
        if self.open.is_absent() {
            self.begin();
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        self.open = FrozenBlock::new(Some(&self.pool));
    }

    #[inline]
    fn added(&mut self) {
        self.entries += 1;
        self.open.entries += 1;
        if self.open.is_full() {
            self.close();
        }
    }

    /// Adds an entry that is encoded already.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.open_block();
        let out = self.open.out();
        out.extend_from_slice(key);
        // An option of a value is a byte and the value.
        out.push(1);
        out.extend_from_slice(value);
        self.added();
    }

    #[cold]
    #[inline(never)]
    fn close(&mut self) {
        if self.open.entries > 0 {
            let mut block = std::mem::take(&mut self.open);
            // Now, while its bytes are at hand.
            block.crc = Some(payload_crc(block.payload()));
            self.blocks.push(block);
        }
    }

    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.open.capacity() + self.blocks.iter().map(FrozenBlock::capacity).sum::<usize>() + self.pool.bytes()
    }

    /// What was encoded, and begins anew.
    pub(crate) fn finish(&mut self, name: &StateName, schema: u64, kind: StateFileKind) -> FrozenState {
        self.close();
        // Left over if no entry of it could be encoded.
        self.open = FrozenBlock::default();
        let mut blocks = std::mem::take(&mut self.blocks);
        if blocks.len() < LARGE_BLOCKS {
            self.pool.keep(0);
            if let Some(last) = blocks.last_mut() {
                // It may be a few bytes in a quarter of a megabyte, and it waits for the disk.
                last.shrink();
            }
        } else {
            self.pool.keep(blocks.len());
        }
        let (entries, failed) = (std::mem::take(&mut self.entries), self.failed.take());
        FrozenState { name: name.clone(), schema, kind, entries, blocks, failed }
    }
}
