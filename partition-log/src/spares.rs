//! Memory of batches that nobody holds any more, for those that are built next.
//!
//! A batch lives for as long as the tail, and it is another thread that lets go of it than the one that made it. An
//! allocator gives such memory back to the system and asks for it again, page by page; here it goes straight to whoever
//! builds next. Bounded in bytes, the oldest go first (I-9). It deliberately keeps no small ones: for those the allocator
//! is as good.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::wal::frame::Batch;

/// Less isn't worth a lock.
const BYTES_MIN: usize = 4 << 10;
/// So many are looked at for one of the right size, the newest first: they are the most likely to be in the caches.
const LOOKED_AT: usize = 8;

/// Empty buffers, at most so many bytes of them.
#[derive(Debug)]
pub(crate) struct Spares {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    pub(crate) fn new(bytes_max: usize) -> Spares {
        Spares { bytes_max, kept: Mutex::default() }
    }

    /// Takes the memory of those batches that nobody else holds.
    pub(crate) fn give(&self, batches: Vec<Batch>) {
        let worth_it = |buffer: &Vec<u8>| (BYTES_MIN..=self.bytes_max).contains(&buffer.capacity());
        let given: Vec<Vec<u8>> = batches.into_iter().filter_map(Arc::into_inner).filter(worth_it).collect();
        let mut dropped = Vec::new();
        let mut kept = self.kept();
        for mut buffer in given {
            buffer.clear();
            kept.bytes += buffer.capacity();
            kept.buffers.push_back(buffer);
            while kept.bytes > self.bytes_max {
                let oldest = kept.buffers.pop_front().expect("bytes are of buffers");
                kept.bytes -= oldest.capacity();
                dropped.push(oldest);
            }
        }
        // Freed once the lock is released.
        drop(kept);
    }

    /// An empty buffer with room for `bytes`.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        if bytes >= BYTES_MIN && bytes <= self.bytes_max {
            let mut kept = self.kept();
            // Not much larger: a batch keeps its whole buffer for as long as it lives.
            let fits = |buffer: &Vec<u8>| (bytes..=bytes + bytes / 2).contains(&buffer.capacity());
            let found = kept.buffers.iter().rev().take(LOOKED_AT).position(fits);
            if let Some(buffer) =
                found.and_then(|nth| kept.buffers.len().checked_sub(nth + 1)).and_then(|at| kept.buffers.remove(at))
            {
                kept.bytes -= buffer.capacity();
                return buffer;
            }
        }
        Vec::with_capacity(bytes)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while the spares are locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: usize) -> Batch {
        Arc::new(vec![7; bytes])
    }

    fn held(spares: &Spares) -> (usize, usize) {
        let kept = spares.kept();
        assert_eq!(kept.bytes, kept.buffers.iter().map(Vec::capacity).sum::<usize>());
        (kept.buffers.len(), kept.bytes)
    }

    #[test]
    fn memory_that_nobody_holds_is_given_out_empty_and_once() {
        let spares = Spares::new(100_000);
        let (kept, read) = (batch(10_000), batch(10_000));
        let address = kept.as_ptr();
        spares.give(vec![kept, read.clone(), batch(100)]);
        assert_eq!(held(&spares), (1, 10_000), "one is still read, one is too small");
        let taken = spares.take(9_000);
        assert_eq!((taken.as_ptr(), taken.len(), taken.capacity()), (address, 0, 10_000));
        assert_eq!((spares.take(9_000).capacity(), held(&spares)), (9_000, (0, 0)));
        assert_eq!(*read, [7; 10_000]);
    }

    #[test]
    fn only_a_buffer_of_about_the_size_is_given_out_and_the_oldest_make_room() {
        let spares = Spares::new(100_000);
        spares.give(vec![batch(40_000), batch(20_000), batch(30_000)]);
        assert_eq!(spares.take(10_000).capacity(), 10_000, "20,000 would be kept for 10,000");
        assert_eq!(spares.take(25_000).capacity(), 30_000);
        assert_eq!(held(&spares), (2, 60_000));
        spares.give(vec![batch(50_000), batch(200_000)]);
        assert_eq!(held(&spares), (2, 70_000), "the oldest has gone, and one that is larger than all never comes");
        assert_eq!(spares.take(40_000).capacity(), 50_000);
    }
}
