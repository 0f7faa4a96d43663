//! Memory that all connections share: one pool for requests that are being read or carried out, one for batches on their way
//! to clients. Who finds too little waits, for as long as it can and no longer; nobody allocates first (I-9).
//!
//! A frame that is being read takes its bytes as they come, so what it announces takes nothing from others. Two rules keep frames
//! that are half read from waiting for each other:
//! * bytes are given only if after that all of them can still become whole, one after the other (Dijkstra's banker);
//! * a part of the pool is left to those that come whole, small ones, whatever large ones are being read.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Bytes to be shared out.
#[derive(Debug)]
pub(crate) struct Pool {
    size: usize,
    /// Frames that are being read leave so many bytes to others.
    kept: usize,
    books: Mutex<Books>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Books {
    free: usize,
    /// Frames that are being read.
    claims: BTreeMap<u64, Held>,
    next: u64,
    /// How many wait now, and how many had to since the beginning.
    waiting: usize,
    strains: u64,
}

/// What a frame that is being read has, and what it will have.
#[derive(Clone, Copy, Debug)]
struct Held {
    has: usize,
    announced: usize,
}

/// Bytes that one request or answer has; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    bytes: usize,
}

/// A frame that is being read; what it has is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    pool: Arc<Pool>,
    number: u64,
}

impl Books {
    /// Whether all that are being read could become whole, one after the other, with `free` bytes and what each gives back then.
    fn is_safe(&self, mut free: usize) -> bool {
        let mut waiting: Vec<(usize, usize)> =
            self.claims.values().map(|held| (held.announced.saturating_sub(held.has), held.has)).collect();
        waiting.sort_unstable();
        waiting.into_iter().all(|(lacks, has)| {
            let fits = lacks <= free;
            free += has;
            fits
        })
    }

    /// Gives a frame that is being read so many bytes in all, if that is safe.
    fn give(&mut self, number: u64, bytes: usize, limit: usize) -> bool {
        let Some(held) = self.claims.get(&number).copied() else { return false };
        let more = bytes.saturating_sub(held.has);
        let read: usize = self.claims.values().map(|held| held.has).sum();
        if more > self.free || read + more > limit {
            return false;
        }
        self.claims.insert(number, Held { has: held.has + more, ..held });
        // What whole requests have comes back by itself: only those that are being read can wait for each other.
        let safe = self.is_safe(limit - read - more);
        if safe {
            self.free -= more;
        } else {
            self.claims.insert(number, held);
        }
        safe
    }
}

impl Pool {
    /// A pool in which a frame may have up to `largest` bytes.
    pub(crate) fn new(bytes: usize, largest: usize) -> Arc<Pool> {
        let size = bytes.max(largest);
        let kept = (size / 4).min(size - largest);
        let books = Mutex::new(Books { free: size, ..Books::default() });
        Arc::new(Pool { size, kept, books, returned: Condvar::new() })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no panic under the pool's lock")
    }

    /// Waits at most so long until `done` holds; whether it does.
    fn wait(&self, patience: Duration, mut done: impl FnMut(&mut Books) -> bool) -> bool {
        let mut books = self.books();
        if done(&mut books) {
            return true;
        }
        books.waiting += 1;
        books.strains += 1;
        let mut is_done = false;
        let waited = self.returned.wait_timeout_while(books, patience, |books| {
            is_done = done(books);
            !is_done
        });
        waited.expect("no panic under the pool's lock").0.waiting -= 1;
        is_done
    }

    /// Waits at most so long for `bytes`; none if they don't come free.
    pub(crate) fn take(self: &Arc<Pool>, bytes: usize, patience: Duration) -> Option<Share> {
        let taken = self.wait(patience, |books| {
            let fits = bytes <= books.free;
            books.free -= if fits { bytes } else { 0 };
            fits
        });
        taken.then(|| Share { pool: self.clone(), bytes })
    }

    /// Waits at most so long for `least` bytes, then takes up to `most` of what is free, which may be less than the least.
    pub(crate) fn take_some(self: &Arc<Pool>, least: usize, most: usize, patience: Duration) -> Share {
        let mut bytes = 0;
        let taken = self.wait(patience, |books| {
            let enough = least <= books.free;
            bytes = if enough { most.min(books.free) } else { 0 };
            books.free -= bytes;
            enough
        });
        if !taken {
            let mut books = self.books();
            bytes = most.min(books.free);
            books.free -= bytes;
        }
        Share { pool: self.clone(), bytes }
    }

    /// Takes note of a frame of so many bytes that is about to be read.
    pub(crate) fn claim(self: &Arc<Pool>, announced: usize) -> Claim {
        let mut books = self.books();
        let number = books.next;
        books.next += 1;
        books.claims.insert(number, Held { has: 0, announced });
        Claim { pool: self.clone(), number }
    }

    /// All its bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are shared out.
    pub(crate) fn used(&self) -> usize {
        self.size - self.books().free
    }

    /// Whether somebody waits, and how many had to so far: who slept between two looks sees in the second if somebody waited.
    pub(crate) fn strain(&self) -> (bool, u64) {
        let books = self.books();
        (books.waiting > 0, books.strains)
    }

    fn give_back(&self, bytes: usize) {
        self.books().free += bytes;
        self.returned.notify_all();
    }
}

impl Claim {
    /// Waits at most so long until the frame has `bytes` in all; whether it has.
    pub(crate) fn grow(&self, bytes: usize, patience: Duration) -> bool {
        let limit = self.pool.size - self.pool.kept;
        self.pool.wait(patience, |books| books.give(self.number, bytes, limit))
    }

    /// The frame is whole: it holds nobody up any more, and ends by itself.
    pub(crate) fn into_share(self) -> Share {
        let bytes = self.pool.books().claims.remove(&self.number).map_or(0, |held| held.has);
        // Those that are still being read may have waited for just that.
        self.pool.returned.notify_all();
        Share { pool: self.pool.clone(), bytes }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let held = self.pool.books().claims.remove(&self.number);
        if let Some(held) = held {
            self.pool.give_back(held.has);
        }
    }
}

impl Share {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back all but `bytes`, if it has more.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.pool.give_back(back);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const AT_ONCE: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn who_finds_too_little_waits_until_it_is_given_back_or_its_time_is_up() {
        let pool = Pool::new(10, 10);
        let first = pool.take(8, AT_ONCE).expect("it is free");
        assert!(pool.take(5, Duration::from_millis(1)).is_none());
        assert_eq!((pool.used(), pool.strain()), (8, (false, 1)), "who gave up has taken nothing");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let share = pool.take(5, LONG);
                assert!(share.is_some() && done.load(Ordering::SeqCst), "it had to wait");
            });
            while !pool.strain().0 {
                std::thread::yield_now();
            }
            done.store(true, Ordering::SeqCst);
            drop(first);
            waiter.join().expect("no panic");
        });
        let mut most = pool.take(10, AT_ONCE).expect("all");
        most.shrink(3);
        assert_eq!((most.bytes(), pool.used()), (3, 3));
        drop((pool.take(7, AT_ONCE).expect("the rest"), most));
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn who_can_do_with_less_takes_what_is_there_when_its_time_is_up() {
        let pool = Pool::new(10, 10);
        let plenty = pool.take_some(3, 20, AT_ONCE);
        assert_eq!(plenty.bytes(), 10);
        assert_eq!(pool.take_some(3, 20, Duration::from_millis(1)).bytes(), 0);
        drop(plenty);
        let _most = pool.take(8, AT_ONCE).expect("free");
        assert_eq!(pool.take_some(3, 20, Duration::from_millis(1)).bytes(), 2);
    }

    #[test]
    fn what_is_announced_takes_nothing_and_what_has_come_does() {
        let pool = Pool::new(256, 100);
        let announced = [pool.claim(100), pool.claim(100), pool.claim(56)];
        assert_eq!(pool.used(), 0);
        assert!(pool.claim(100).grow(100, AT_ONCE), "silent ones are in nobody's way");
        assert_eq!(pool.used(), 0, "what was dropped half read is given back");
        assert!(announced[0].grow(10, AT_ONCE) && announced[0].grow(30, AT_ONCE));
        assert_eq!(pool.used(), 30);
    }

    #[test]
    fn those_that_are_being_read_can_always_become_whole_and_leave_room_for_small_ones() {
        // Frames of up to 100 in steps of 10, in every order that a shuffle comes up with.
        let mut random = cutwater_platform::SplitMix::new(3);
        for _ in 0..200 {
            let pool = Pool::new(160, 100);
            let mut reading: Vec<(Claim, usize)> = (0..8).map(|_| (pool.claim(100), 0)).collect();
            let mut whole = Vec::new();
            while !reading.is_empty() {
                let before: usize = reading.iter().map(|(_, come)| *come).sum();
                let from = (random.next() % 8) as usize;
                for n in 0..reading.len() {
                    let len = reading.len();
                    let (claim, come) = &mut reading[(from + n) % len];
                    if claim.grow(*come + 10, AT_ONCE) {
                        *come += 10;
                        break;
                    }
                }
                let after: usize = reading.iter().map(|(_, come)| *come).sum();
                if after == before {
                    assert!(whole.pop().is_some(), "{reading:?} wait for each other");
                    continue;
                }
                let held: usize = reading.iter().map(|(_, come)| *come).sum();
                assert!(held <= 160 - 40, "{held}");
                while let Some(done) = reading.iter().position(|(_, come)| *come == 100) {
                    let share = reading.swap_remove(done).0.into_share();
                    assert_eq!(share.bytes(), 100);
                    whole.push(share);
                }
            }
            drop(whole);
            assert_eq!(pool.used(), 0);
        }
    }

    #[test]
    fn a_claim_that_would_lock_two_frames_up_waits_although_there_are_bytes() {
        let pool = Pool::new(100, 100);
        let (first, second) = (pool.claim(100), pool.claim(100));
        assert!(first.grow(50, AT_ONCE));
        assert!(!second.grow(10, AT_ONCE), "then neither could become whole");
        assert!(first.grow(100, AT_ONCE));
        drop(first);
        assert!(second.grow(100, AT_ONCE));
    }
}
