//! Memory of all requests that are being read or carried out. Who finds too little waits; nobody allocates first.

use std::sync::{Arc, Condvar, Mutex};

/// Bytes to be shared out.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<usize>,
    returned: Condvar,
}

/// Bytes that one request has; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    pool: Arc<Pool>,
    bytes: usize,
}

impl Pool {
    pub(super) fn new(bytes: usize) -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::new(bytes), returned: Condvar::new() })
    }

    /// Waits for `bytes`, which must not be more than the whole pool.
    pub(super) fn take(self: &Arc<Pool>, bytes: usize) -> Share {
        let free = self.free.lock().expect("no panic under the pool's lock");
        let mut free = self.returned.wait_while(free, |free| *free < bytes).expect("no panic under the pool's lock");
        *free -= bytes;
        Share { pool: self.clone(), bytes }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.pool.free.lock().expect("no panic under the pool's lock") += self.bytes;
        self.pool.returned.notify_all();
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
        drop(pool.take(10));
    }
}
