//! Memory for encoded entries: blocks that begin on a boundary of the disk, and that are used again.
//!
//! The promise: the room for a block's header begins on a boundary of [`BLOCK_BYTES`] as long as the block hasn't outgrown its first
//! allocation, so that it can be written without a copy of it in the system's cache; and a state that is written again and again
//! takes its memory from a [`Pool`] instead of touching new pages each time, which costs as much as encoding.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cutwater_platform::BLOCK_BYTES;

use crate::snapshot::{BLOCK_HEADER_BYTES, BLOCK_TARGET_BYTES};

/// An eighth more than the target: the entry that fills a block ends behind it. And what alignment takes at both ends.
const CAPACITY: usize = BLOCK_HEADER_BYTES + BLOCK_TARGET_BYTES + BLOCK_TARGET_BYTES / 8 + 2 * BLOCK_BYTES;

/// Blocks that were written, to be filled again. It keeps no more of them than the state's last snapshot had.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    /// As many as `free` has.
    kept: AtomicUsize,
    kept_max: AtomicUsize,
}

impl Pool {
    /// Keeps at most so many blocks from now on.
    pub(crate) fn keep(&self, blocks: usize) {
        self.kept_max.store(blocks, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.truncate(blocks);
        self.kept.store(free.len(), Ordering::Relaxed);
    }

    /// Bytes of the blocks that wait, about.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.load(Ordering::Relaxed) * CAPACITY
    }

    fn take(&self) -> Option<Vec<u8>> {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let block = free.pop();
        self.kept.store(free.len(), Ordering::Relaxed);
        block
    }

    fn give_back(&self, mut block: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has grown is another size than is counted.
        if free.len() < self.kept_max.load(Ordering::Relaxed) && block.capacity() < 2 * CAPACITY {
            block.clear();
            free.push(block);
            self.kept.store(free.len(), Ordering::Relaxed);
        }
    }
}

/// Encoded entries behind room for their block's header.
#[derive(Default)]
pub(crate) struct FrozenBlock {
    /// Zeros up to a boundary, room for the header, entries.
    bytes: Vec<u8>,
    start: usize,
    /// How many entries.
    pub(crate) entries: u32,
    /// Of the entries' bytes, if it was computed while they were still in the processor's cache.
    pub(crate) crc: Option<u64>,
    pool: Option<Arc<Pool>>,
}

impl FrozenBlock {
    /// An empty block of the usual size.
    pub(crate) fn new(pool: Option<&Arc<Pool>>) -> FrozenBlock {
        let mut bytes = pool.and_then(|pool| pool.take()).unwrap_or_else(|| Vec::with_capacity(CAPACITY));
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        bytes.resize(start + BLOCK_HEADER_BYTES, 0);
        FrozenBlock { bytes, start, entries: 0, crc: None, pool: pool.cloned() }
    }

    /// A block that is small, and not aligned.
    pub(crate) fn small() -> FrozenBlock {
        FrozenBlock { bytes: vec![0; BLOCK_HEADER_BYTES], start: 0, entries: 0, crc: None, pool: None }
    }

    /// True before anything can be put into it.
    #[inline]
    pub(crate) fn is_absent(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where entries are put.
    #[inline]
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// True once it has as many bytes of entries as a block should.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.start + BLOCK_HEADER_BYTES + BLOCK_TARGET_BYTES
    }

    /// The entries' bytes.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.start + BLOCK_HEADER_BYTES..]
    }

    /// Other bytes for the same entries: room for the header, then what stands in the file.
    pub(crate) fn replace(&mut self, bytes: Vec<u8>) {
        let old = std::mem::replace(&mut self.bytes, bytes);
        (self.start, self.crc) = (0, None);
        if let Some(pool) = self.pool.take() {
            pool.give_back(old);
        }
    }

    /// Gives back memory that isn't filled, and the alignment with it.
    pub(crate) fn shrink(&mut self) {
        self.replace(self.bytes[self.start..].to_vec());
    }

    /// The header's room and the entries, to be written.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// The same, zeros behind them up to a boundary, and in memory that begins on one.
    pub(crate) fn aligned(&mut self) -> &mut [u8] {
        if self.bytes[self.start..].as_ptr().align_offset(BLOCK_BYTES) != 0 {
            // It was moved when it grew.
            let mut moved: Vec<u8> = Vec::with_capacity(self.bytes.len() - self.start + 2 * BLOCK_BYTES);
            let start = moved.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
            moved.resize(start, 0);
            moved.extend_from_slice(&self.bytes[self.start..]);
            (self.bytes, self.start) = (moved, start);
        }
        let length = (self.bytes.len() - self.start).next_multiple_of(BLOCK_BYTES);
        self.bytes.resize(self.start + length, 0);
        self.whole()
    }

    /// Bytes in memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Drop for FrozenBlock {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for FrozenBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenBlock({} entries in {} bytes)", self.entries, self.bytes.len() - self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_to_its_pool_unless_that_has_enough_or_it_has_grown() {
        let pool = Arc::new(Pool::default());
        pool.keep(2);
        drop([0; 3].map(|_| FrozenBlock::new(Some(&pool))));
        assert_eq!(pool.bytes(), 2 * CAPACITY);
        let mut grown = FrozenBlock::new(Some(&pool));
        assert_eq!(pool.bytes(), CAPACITY, "taken from there");
        grown.out().extend_from_slice(&vec![7; 3 * CAPACITY]);
        drop(grown);
        assert_eq!(pool.bytes(), CAPACITY);
        pool.keep(0);
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn a_block_is_aligned_and_padded_also_after_it_was_moved() {
        for length in [1, BLOCK_BYTES - BLOCK_HEADER_BYTES, 5 * CAPACITY + 1] {
            let mut block = FrozenBlock::new(None);
            block.out().extend(std::iter::repeat_n(7, length));
            assert_eq!(block.payload(), vec![7; length]);
            let bytes = block.aligned();
            assert_eq!((bytes.as_ptr() as usize % BLOCK_BYTES, bytes.len() % BLOCK_BYTES), (0, 0));
            assert!(bytes[BLOCK_HEADER_BYTES..][..length].iter().all(|b| *b == 7));
            assert!(bytes[BLOCK_HEADER_BYTES + length..].iter().all(|b| *b == 0));
            assert!(bytes.len() < BLOCK_HEADER_BYTES + length + BLOCK_BYTES);
        }
    }
}
