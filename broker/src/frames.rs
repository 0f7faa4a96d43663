//! Memory that frames are read into, used again and again.
//!
//! A frame of some ten kilobytes would otherwise be fetched from the system, filled with zeros and moved while it grows, for
//! each request. Here the memory of an answered request goes to the next one as it is: whoever reads overwrites it before
//! anybody sees it.
//!
//! Promises:
//! * The memory of a frame follows what has come, not what was promised: a buffer that isn't used again grows in pieces.
//! * What is kept is bounded in bytes, and a buffer is at most half larger than its frame (I-9).
//!
//! It deliberately keeps no small buffers and no very large ones: for those the allocator is as good.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

/// New memory grows in pieces of at most this much at first.
const PIECE_BYTES: usize = 64 << 10;
/// Sizes that are kept.
const SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=2 << 20;
/// Bytes that are kept in all.
const KEPT_BYTES: usize = 8 << 20;
/// So many are looked at for one of the right size, the newest first: they are the most likely to be in the caches.
const LOOKED_AT: usize = 8;

/// Buffers that no frame is in.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// All their bytes were written before, and are about to be written again.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A frame that is being read.
#[derive(Debug)]
pub(crate) struct Frame {
    buffer: Vec<u8>,
    bytes: usize,
    home: Arc<Frames>,
}

impl Frames {
    /// Memory for a frame of `bytes` bytes.
    pub(crate) fn take(self: &Arc<Frames>, bytes: usize) -> Frame {
        let buffer = if SIZES.contains(&bytes) { self.find(bytes) } else { None };
        Frame { buffer: buffer.unwrap_or_default(), bytes, home: self.clone() }
    }

    fn find(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut kept = self.kept();
        let fits = |buffer: &Vec<u8>| (bytes..=bytes + bytes / 2).contains(&buffer.len());
        let nth = kept.buffers.iter().rev().take(LOOKED_AT).position(fits)?;
        let at = kept.buffers.len().checked_sub(nth + 1)?;
        let buffer = kept.buffers.remove(at);
        kept.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn give(&self, buffer: Vec<u8>) {
        if !SIZES.contains(&buffer.len()) || buffer.capacity() > KEPT_BYTES {
            return;
        }
        let mut dropped = Vec::new();
        let mut kept = self.kept();
        kept.bytes += buffer.capacity();
        kept.buffers.push(buffer);
        while kept.bytes > KEPT_BYTES {
            let oldest = kept.buffers.remove(0);
            kept.bytes -= oldest.capacity();
            dropped.push(oldest);
        }
        // Freed once the lock is released.
        drop(kept);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while frames' memory is locked")
    }
}

impl Frame {
    /// Where the bytes behind the first `come` go; empty once all have come.
    pub(crate) fn behind(&mut self, come: usize) -> &mut [u8] {
        if come >= self.buffer.len() && come < self.bytes {
            let piece = (self.bytes - come).min(come.max(PIECE_BYTES));
            // No larger than it must be, as long as its size is foreseeable.
            self.buffer.reserve_exact(come + piece - self.buffer.len());
            self.buffer.resize(come + piece, 0);
        }
        let end = self.bytes.min(self.buffer.len());
        &mut self.buffer[come.min(end)..end]
    }

    /// The frame, once all of it has come. Its memory is given back when nobody holds a part of it any more.
    pub(crate) fn into_bytes(self) -> Bytes {
        if SIZES.contains(&self.bytes) { Bytes::from_owner(self) } else { Bytes::copy_from_slice(self.as_ref()) }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a frame in steps of at most `step` bytes, each with this value.
    fn read(frames: &Arc<Frames>, bytes: usize, step: usize, value: u8) -> Bytes {
        let mut frame = frames.take(bytes);
        let mut come = 0;
        loop {
            let room = frame.behind(come);
            let taken = room.len().min(step);
            if taken == 0 {
                break;
            }
            room[..taken].fill(value);
            come += taken;
        }
        assert_eq!(come, bytes);
        frame.into_bytes()
    }

    fn kept(frames: &Frames) -> Vec<usize> {
        let kept = frames.kept();
        assert_eq!(kept.bytes, kept.buffers.iter().map(Vec::capacity).sum::<usize>());
        kept.buffers.iter().map(Vec::len).collect()
    }

    #[test]
    fn an_answered_requests_memory_goes_to_the_next_frame_of_about_its_size() {
        let frames = Arc::new(Frames::default());
        for (bytes, step) in [(1, 1), (100, 7), (5_000, 999), (70_000, 4_096), (300_000, 65_536), (3 << 20, 1 << 20)] {
            let first = read(&frames, bytes, step, 1);
            let (part, address) = (first.slice(..1), first.as_ptr());
            drop(first);
            assert_eq!(kept(&frames), [0; 0], "a part is still held");
            drop(part);
            let second = read(&frames, bytes, step, 2);
            assert!(second.len() == bytes && second.iter().all(|byte| *byte == 2), "nothing is left of the first");
            assert!(!SIZES.contains(&bytes) || second.as_ptr() == address, "{bytes} bytes are used again");
            drop(second);
            frames.kept().buffers.clear();
            frames.kept().bytes = 0;
        }
    }

    #[test]
    fn no_frame_gets_much_more_than_it_needs_and_the_oldest_make_room() {
        let frames = Arc::new(Frames::default());
        drop(read(&frames, 100_000, 100_000, 1));
        let small = read(&frames, 10_000, 10_000, 2);
        assert_eq!(kept(&frames), [100_000]);
        drop(small);
        drop((0..5).map(|_| read(&frames, 2 << 20, 1 << 20, 3)).collect::<Vec<_>>());
        assert_eq!(kept(&frames), [2 << 20; 4]);
    }

    #[test]
    fn new_memory_follows_what_has_come() {
        let frames = Arc::new(Frames::default());
        let mut frame = frames.take(1 << 20);
        assert_eq!(frame.behind(0).len(), PIECE_BYTES);
        assert_eq!(frame.behind(10).len(), PIECE_BYTES - 10);
        assert_eq!(frame.behind(PIECE_BYTES).len(), PIECE_BYTES);
        assert_eq!(frame.behind(2 * PIECE_BYTES).len(), 2 * PIECE_BYTES);
        drop(frame);
        assert_eq!(kept(&frames), [4 * PIECE_BYTES], "what has come so far is of use");
    }
}
