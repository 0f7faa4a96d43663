//! Memory that all connections share: one pool for requests that are being read or carried out, one for batches on their way
//! to clients. Who finds too little waits; nobody allocates first (I-9).

use std::sync::{Arc, Condvar, Mutex};

/// Bytes to be shared out.
#[derive(Debug)]
pub(crate) struct Pool {
    size: usize,
    free: Mutex<usize>,
    returned: Condvar,
}

/// Bytes that one request or answer has; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    bytes: usize,
}

impl Pool {
    pub(crate) fn new(bytes: usize) -> Arc<Pool> {
        Arc::new(Pool { size: bytes, free: Mutex::new(bytes), returned: Condvar::new() })
    }

    /// Waits for `bytes`, which must not be more than the whole pool.
    pub(crate) fn take(self: &Arc<Pool>, bytes: usize) -> Share {
        let free = self.free.lock().expect("no panic under the pool's lock");
        let mut free = self.returned.wait_while(free, |free| *free < bytes).expect("no panic under the pool's lock");
        *free -= bytes;
        Share { pool: self.clone(), bytes }
    }

    /// All its bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are shared out.
    pub(crate) fn used(&self) -> usize {
        self.size - *self.free.lock().expect("no panic under the pool's lock")
    }

    fn give_back(&self, bytes: usize) {
        *self.free.lock().expect("no panic under the pool's lock") += bytes;
        self.returned.notify_all();
    }
}

impl Share {
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

    #[test]
    fn who_finds_too_little_waits_until_it_is_given_back() {
        let pool = Pool::new(10);
        let first = pool.take(8);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let share = pool.take(5);
                assert!(done.load(std::sync::atomic::Ordering::SeqCst), "it had to wait");
                drop(share);
            });
            std::thread::yield_now();
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(first);
            waiter.join().expect("no panic");
        });
        let mut most = pool.take(10);
        most.shrink(3);
        drop(pool.take(7));
        most.shrink(5);
        drop(pool.take(7));
        drop(most);
        drop(pool.take(10));
    }
}
