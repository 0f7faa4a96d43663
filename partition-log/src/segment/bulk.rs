//! Writing a long run of batches past the system's cache.
//!
//! Whoever reads what is new finds it in the tail, in memory of ours. A second copy of it in the system's cache costs a multiple
//! of the write itself: pages are found, filled, kept in lists, written later. So a long run goes to the disk from a buffer of
//! ours: its whole blocks past the cache, what stands before and behind them, less than a block each, through it. Where somebody
//! reads behind the tail, runs go through the cache for some time, so that the reader, and those behind it, find them there.
//!
//! Promises:
//! * The file's bytes and its length are the same either way, and nothing is durable before a sync either way.
//! * No block is written both ways by one run, nor by the next: the block in which a run ends is completed through the cache.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};

use cutwater_platform::{AlignedBuf, BLOCK_BYTES, File};

/// A shorter run costs more in waiting for the disk than the cache costs in copying.
pub(super) const RUN_BYTES: u64 = 256 << 10;
/// At most so much goes to the disk at once: what was copied is still in the processor's cache then.
const PIECE_BYTES: usize = 1 << 20;
/// So many bytes of a partition go through the cache after somebody has read it behind the tail.
const CACHED_BYTES: u64 = 256 << 20;

/// Whether somebody reads a partition's files, which is to say: behind the tail.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Bytes written so far.
    written: AtomicU64,
    /// One more than what had been written when they were read last; 0 if they never were.
    read: AtomicU64,
}

impl Readers {
    pub(super) fn note_read(&self) {
        self.read.store(self.written.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether a run of so many bytes may go past the cache.
    pub(super) fn allow_past_cache(&self, bytes: u64) -> bool {
        let read = self.read.load(Ordering::Relaxed);
        bytes >= RUN_BYTES && (read == 0 || self.written.load(Ordering::Relaxed) - (read - 1) >= CACHED_BYTES)
    }
}

/// Writes a run at `position`: its whole blocks past the cache, by way of `staging`, whose memory is used again. `between` is called
/// when all but the end of it is written.
///
/// # Errors
/// The system's; a part may have been written.
pub(super) fn write_past_cache(
    file: &dyn File,
    batches: &[IoSlice<'_>],
    position: u64,
    staging: &mut AlignedBuf,
    between: impl FnOnce(),
) -> io::Result<()> {
    let mut run = Run { slices: batches, within: 0 };
    let (head, mut blocks) = divide(position, batches.iter().map(|batch| batch.len()).sum());
    let mut at = position;
    file.write_all_vectored_at(&run.take(head), at)?;
    at += head as u64;
    while blocks > 0 {
        let piece = blocks.min(PIECE_BYTES);
        staging.clear();
        staging.reserve(piece);
        run.take(piece).iter().for_each(|slice| staging.extend_from_slice(slice));
        file.write_past_cache_at(&[IoSlice::new(staging.as_slice())], at)?;
        at += piece as u64;
        blocks -= piece;
    }
    between();
    file.write_all_vectored_at(&run.take(usize::MAX), at)
}

/// How many of `bytes` bytes at `position` come before the first whole block, and how many lie in whole blocks. Pure.
fn divide(position: u64, bytes: usize) -> (usize, usize) {
    let block = BLOCK_BYTES as u64;
    let head = bytes.min((position.next_multiple_of(block) - position) as usize);
    (head, (bytes - head) / BLOCK_BYTES * BLOCK_BYTES)
}

/// What is left of a run.
struct Run<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first slice that are taken.
    within: usize,
}

impl<'a> Run<'a> {
    /// The next `bytes` bytes, or all that are left.
    fn take(&mut self, mut bytes: usize) -> Vec<IoSlice<'a>> {
        let mut taken = Vec::new();
        while let Some((first, rest)) = self.slices.split_first() {
            let left = &first[self.within..];
            if left.len() > bytes {
                if bytes > 0 {
                    taken.push(IoSlice::new(&left[..bytes]));
                    self.within += bytes;
                }
                break;
            }
            taken.push(IoSlice::new(left));
            bytes -= left.len();
            (self.slices, self.within) = (rest, 0);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use cutwater_platform::{Files, Open, OsFiles};

    use super::*;

    /// A file that tells which bytes went past the cache.
    #[derive(Debug)]
    struct Watched {
        file: Arc<dyn File>,
        past: Mutex<Vec<(u64, usize)>>,
    }

    impl File for Watched {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            self.file.read_at(buf, offset)
        }
        fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.file.write_all_at(bytes, offset)
        }
        fn write_all_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
            self.file.write_all_vectored_at(parts, offset)
        }
        fn write_synced_at(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
            self.file.write_synced_at(blocks, offset)
        }
        fn write_past_cache_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
            let aligned = |part: &IoSlice<'_>| (part.as_ptr() as usize).is_multiple_of(BLOCK_BYTES);
            assert!(parts.iter().all(aligned), "memory must be aligned");
            self.past.lock().expect("no panic").push((offset, parts.iter().map(|part| part.len()).sum()));
            self.file.write_past_cache_at(parts, offset)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }
    }

    #[test]
    fn runs_of_any_place_and_length_leave_the_same_file_and_only_whole_blocks_go_past_the_cache() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut staging = AlignedBuf::default();
        let lengths = [1, 61, 4_095, 4_096, 4_097, 8_192, 20_000, PIECE_BYTES + 5_000];
        for (n, first) in [0, 1, 4_000, 4_096, 9_999].into_iter().enumerate() {
            for (m, length) in lengths.into_iter().enumerate() {
                let path = dir.path().join(format!("{n}-{m}"));
                let file = OsFiles.open(&path, Open::CreateNew).expect("a new file");
                let file = Watched { file, past: Mutex::default() };
                let mut expected = vec![9; first];
                file.write_all_at(&expected, 0).expect("written");
                // Three runs, each of slices of different lengths.
                for run in 0..3u8 {
                    let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ run).collect();
                    let mut slices = Vec::new();
                    let mut rest = bytes.as_slice();
                    for step in [1, 0, 70, 5_000, usize::MAX] {
                        let (slice, behind) = rest.split_at(step.min(rest.len()));
                        slices.push(IoSlice::new(slice));
                        rest = behind;
                    }
                    let position = expected.len() as u64;
                    write_past_cache(&file, &slices, position, &mut staging, || {}).expect("written");
                    expected.extend_from_slice(&bytes);
                }
                let mut back = vec![0; file.len().expect("a length") as usize];
                file.read_exact_at(&mut back, 0).expect("readable");
                assert!(back == expected, "{first} bytes, then runs of {length}");
                let past = file.past.into_inner().expect("no panic");
                let whole = |(offset, bytes): &(u64, usize)| {
                    offset.is_multiple_of(BLOCK_BYTES as u64)
                        && bytes.is_multiple_of(BLOCK_BYTES)
                        && *bytes <= PIECE_BYTES
                };
                assert!(past.iter().all(whole), "{past:?}");
                let all: usize = past.iter().map(|(_, bytes)| bytes).sum();
                assert!(all + 3 * 2 * BLOCK_BYTES > 3 * length, "{all} of {length}, three times");
            }
        }
    }

    #[test]
    fn short_runs_and_those_after_a_read_go_through_the_cache() {
        let readers = Readers::default();
        assert!(!readers.allow_past_cache(RUN_BYTES - 1));
        assert!(readers.allow_past_cache(RUN_BYTES));
        readers.note_read();
        assert!(!readers.allow_past_cache(RUN_BYTES), "read before anything was written");
        readers.note_written(CACHED_BYTES - 1);
        assert!(!readers.allow_past_cache(RUN_BYTES));
        readers.note_written(1);
        assert!(readers.allow_past_cache(RUN_BYTES));
        readers.note_read();
        assert!(!readers.allow_past_cache(RUN_BYTES));
    }
}
