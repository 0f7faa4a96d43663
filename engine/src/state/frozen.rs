//! A frozen state on its way to the disk: its entries, encoded in blocks.
//!
//! Encoding happens while the table is swept, on the worker: an entry is touched once, copying it out would cost as much,
//! and cloning a text key several times as much. Checksums, writing and syncing happen on the I/O thread.

use std::fmt;

use serde::Serialize;

use crate::checkpoint::StateFileKind;
use crate::snapshot::{BLOCK_HEADER_BYTES, BLOCK_TARGET_BYTES, StateName, write_entry};

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

/// Encoded entries, with room for the block's header before them.
pub(crate) struct FrozenBlock {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: u32,
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
        self.blocks.iter().map(|block| block.bytes.capacity()).sum()
    }
}

impl fmt::Debug for FrozenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenState({:?} as {:?}, {} entries)", self.name.as_str(), self.kind, self.entries)
    }
}

/// Encodes entries into blocks.
#[derive(Default)]
pub(crate) struct Encoder {
    blocks: Vec<FrozenBlock>,
    /// Room for a block's header, then entries; empty before the first one.
    open: Vec<u8>,
    open_entries: u32,
    entries: u64,
    failed: Option<String>,
}

impl Encoder {
    /// Adds an entry; `None` is a removal. After the first that can't be encoded, entries are counted and left out.
    #[inline]
    pub(super) fn entry<K: Serialize, V: Serialize>(&mut self, key: &K, value: Option<&V>) {
        self.open_block();
        if self.failed.is_some() {
            self.entries += 1;
            return;
        }
        if let Err(error) = write_entry(&(key, value), &mut self.open) {
            self.entries += 1;
            self.failed = Some(error.to_string());
            return;
        }
        self.added();
    }

    #[inline]
    fn open_block(&mut self) {
        if self.open.is_empty() {
            // An eighth more: the entry that fills a block ends behind the target.
            self.open.reserve(BLOCK_HEADER_BYTES + BLOCK_TARGET_BYTES + BLOCK_TARGET_BYTES / 8);
            self.open.resize(BLOCK_HEADER_BYTES, 0);
        }
    }

    #[inline]
    fn added(&mut self) {
        self.entries += 1;
        self.open_entries += 1;
        if self.open.len() >= BLOCK_HEADER_BYTES + BLOCK_TARGET_BYTES {
            self.close();
        }
    }

    /// Adds an entry that is encoded already.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.open_block();
        self.open.extend_from_slice(key);
        // An option of a value is a byte and the value.
        self.open.push(1);
        self.open.extend_from_slice(value);
        self.added();
    }

    fn close(&mut self) {
        if self.open_entries > 0 {
            let (bytes, entries) = (std::mem::take(&mut self.open), std::mem::take(&mut self.open_entries));
            self.blocks.push(FrozenBlock { bytes, entries });
        }
    }

    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.open.capacity() + self.blocks.iter().map(|block| block.bytes.capacity()).sum::<usize>()
    }

    /// What was encoded, and begins anew.
    pub(crate) fn finish(&mut self, name: &StateName, schema: u64, kind: StateFileKind) -> FrozenState {
        self.close();
        let Encoder { mut blocks, entries, failed, .. } = std::mem::take(self);
        if let Some(last) = blocks.last_mut() {
            // It may be a few bytes in a quarter of a megabyte, and it waits for the disk.
            last.bytes.shrink_to_fit();
        }
        FrozenState { name: name.clone(), schema, kind, entries, blocks, failed }
    }
}
