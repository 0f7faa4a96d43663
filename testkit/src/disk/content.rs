//! The bytes of one file, shared copy-on-write: a copy of a whole disk costs a few pointers, not its bytes.
//!
//! Blocks of 4096 bytes sit in chunks of 64. A write copies at most the chunk's pointers and the blocks it touches.
//! Blocks that were never written are absent and read as zeros, so a preallocated file costs nothing. Blocks written with
//! zeros take their room, but are one block in memory: a log that writes its files out before it uses them does it in each
//! life of each seed.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cutwater_platform::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
const CHUNK_BLOCKS: u64 = 64;

pub(crate) type Block = [u8; BLOCK_BYTES];
type Chunk = [Option<Arc<Block>>; CHUNK_BLOCKS as usize];

/// What every whole block of zeros shares.
static ZEROS: LazyLock<Arc<Block>> = LazyLock::new(|| Arc::new([0; BLOCK_BYTES]));

/// Bytes and length of a file.
#[derive(Clone, Default, Debug)]
pub(crate) struct Content {
    len: u64,
    chunks: BTreeMap<u64, Arc<Chunk>>,
    blocks: u64,
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Blocks that take room on the disk.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn block(&self, index: u64) -> Option<&Arc<Block>> {
        self.chunks.get(&(index / CHUNK_BLOCKS))?[(index % CHUNK_BLOCKS) as usize].as_ref()
    }

    /// Replaces a block; the length stays.
    pub(crate) fn set_block(&mut self, index: u64, block: Option<Arc<Block>>) {
        let (chunk, slot) = (index / CHUNK_BLOCKS, (index % CHUNK_BLOCKS) as usize);
        if block.is_none() && !self.chunks.contains_key(&chunk) {
            return;
        }
        let slot = &mut Arc::make_mut(self.chunks.entry(chunk).or_insert_with(|| Arc::new([const { None }; 64])))[slot];
        match (slot.is_some(), block.is_some()) {
            (false, true) => self.blocks += 1,
            (true, false) => self.blocks -= 1,
            _ => {}
        }
        *slot = block;
    }

    /// Copies bytes out; answers how many there were before the end.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let left = self.len.saturating_sub(offset);
        let total = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let mut done = 0;
        while done < total {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let take = (BLOCK_BYTES - within).min(total - done);
            let out = &mut buf[done..done + take];
            match self.block(at / BLOCK) {
                Some(block) => out.copy_from_slice(&block[within..within + take]),
                None => out.fill(0),
            }
            done += take;
        }
        total
    }

    /// Blocks that [`Content::write`] of this range would have to allocate.
    pub(crate) fn blocks_missing(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        (offset / BLOCK..=(offset + len - 1) / BLOCK).filter(|&b| self.block(b).is_none()).count() as u64
    }

    /// Puts bytes in and grows the file if they end behind its end.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let take = (BLOCK_BYTES - within).min(bytes.len() - done);
            let part = &bytes[done..done + take];
            if *part == ZEROS[..] {
                self.set_block(at / BLOCK, Some(ZEROS.clone()));
            } else {
                self.block_mut(at / BLOCK)[within..within + take].copy_from_slice(part);
            }
            done += take;
        }
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
    }

    fn block_mut(&mut self, index: u64) -> &mut Block {
        let (chunk, slot) = (index / CHUNK_BLOCKS, (index % CHUNK_BLOCKS) as usize);
        let slot = &mut Arc::make_mut(self.chunks.entry(chunk).or_insert_with(|| Arc::new([const { None }; 64])))[slot];
        if slot.is_none() {
            self.blocks += 1;
        }
        Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; BLOCK_BYTES])))
    }

    /// Cuts, or grows with zeros.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let first_gone = len.div_ceil(BLOCK);
            let first_chunk_gone = first_gone.div_ceil(CHUNK_BLOCKS);
            for (_, chunk) in self.chunks.split_off(&first_chunk_gone) {
                self.blocks -= chunk.iter().flatten().count() as u64;
            }
            for index in first_gone..first_chunk_gone * CHUNK_BLOCKS {
                self.set_block(index, None);
            }
            self.len = len;
            self.zero_tail();
        }
        self.len = len;
    }

    /// Restores the rule that bytes behind the end are zeros, after a block was replaced.
    pub(crate) fn zero_tail(&mut self) {
        let within = (self.len % BLOCK) as usize;
        if within > 0 && self.block(self.len / BLOCK).is_some() {
            self.block_mut(self.len / BLOCK)[within..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutwater_platform::SplitMix;

    #[test]
    fn random_writes_cuts_and_reads_agree_with_a_vector() {
        let mut random = SplitMix::new(1);
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        for round in 0..2_000u64 {
            let offset = random.below(600_000) as usize;
            if random.below(4) == 0 {
                content.set_len(offset as u64);
                plain.resize(offset, 0);
            } else {
                let bytes = vec![(round % 7) as u8; random.below(9_000) as usize];
                content.write(&bytes, offset as u64);
                if !bytes.is_empty() {
                    plain.resize(plain.len().max(offset + bytes.len()), 0);
                    plain[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
            assert_eq!(content.len(), plain.len() as u64);
            let from = random.below(600_000) as usize;
            let mut buf = vec![9; 10_000];
            let n = content.read(&mut buf, from as u64);
            assert_eq!(
                buf[..n],
                plain[from.min(plain.len())..(from + 10_000).min(plain.len()).max(from.min(plain.len()))]
            );
        }
        let (mut back, copy) = (vec![0; plain.len()], content.clone());
        assert_eq!(copy.read(&mut back, 0), plain.len());
        assert!(back == plain);
        content.set_len(0);
        assert_eq!((content.blocks(), copy.blocks() > 0), (0, true));
    }
}
