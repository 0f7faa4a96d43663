//! Waking many threads: whoever wakes wakes two more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;

/// So many are woken by whoever has the answers, and by each that is awake.
const AT_ONCE: usize = 2;

/// Threads whose answers have come ([`Completion::fill`](crate::Completion::fill)) and that still sleep.
///
/// Waking a thread costs a system call. Whoever writes for sixty others would make sixty before its next write; here it
/// makes two, and the others wake each other. One that was awake already wakes nobody on, so whoever began must
/// [`finish`](Wakes::finish) at last.
///
/// ```
/// use cutwater_platform::{Completion, Wakes};
/// let (done, wakes) = (Completion::new(), Wakes::default());
/// wakes.start(done.fill(7).into_iter().collect());
/// wakes.finish();
/// assert_eq!(done.try_take(), Some(7));
/// ```
#[derive(Debug, Default)]
pub struct Wakes {
    asleep: Mutex<Vec<Thread>>,
    count: AtomicUsize,
}

impl Wakes {
    /// Sees to it that these are woken, and wakes the first of them.
    pub fn start(&self, mut threads: Vec<Thread>) {
        if threads.len() > AT_ONCE {
            let mut asleep = self.asleep();
            asleep.extend(threads.drain(AT_ONCE..));
            self.count.store(asleep.len(), Ordering::SeqCst);
        }
        threads.iter().for_each(Thread::unpark);
    }

    /// Wakes some more: to be called by each that has been woken.
    pub fn go_on(&self) {
        self.wake(AT_ONCE);
    }

    /// Wakes all that still sleep.
    pub fn finish(&self) {
        self.wake(usize::MAX);
    }

    fn wake(&self, at_most: usize) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let next = {
            let mut asleep = self.asleep();
            let left = asleep.len().saturating_sub(at_most);
            self.count.store(left, Ordering::SeqCst);
            asleep.split_off(left)
        };
        next.iter().for_each(Thread::unpark);
    }

    fn asleep(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.asleep.lock().expect("no panic while waking")
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "threads that sleep are what is tested")]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Completion, Threads};

    type Sleeper = std::thread::JoinHandle<usize>;

    /// So many threads, each of which waits for an answer; those that are `rude` wake nobody on.
    fn sleepers(count: usize, rude: fn(usize) -> bool) -> (Arc<Wakes>, Vec<Arc<Completion<usize>>>, Vec<Sleeper>) {
        let wakes = Arc::new(Wakes::default());
        let answers: Vec<_> = (0..count).map(|_| Arc::new(Completion::new())).collect();
        let threads = answers.iter().enumerate().map(|(n, answer)| {
            let (answer, wakes) = (answer.clone(), wakes.clone());
            std::thread::spawn(move || {
                let value = answer.wait(&Threads);
                if !rude(n) {
                    wakes.go_on();
                }
                value
            })
        });
        let threads = threads.collect();
        (wakes, answers, threads)
    }

    /// Fills every answer, once its thread waits for it, and answers whom to wake.
    fn fill(answers: &[Arc<Completion<usize>>]) -> Vec<Thread> {
        while !answers.iter().all(|answer| answer.is_awaited()) {
            std::thread::yield_now();
        }
        let fill = |(n, answer): (usize, &Arc<Completion<usize>>)| answer.fill(n).expect("somebody waits");
        answers.iter().enumerate().map(fill).collect()
    }

    #[test]
    fn those_that_are_woken_wake_the_others() {
        let (wakes, answers, threads) = sleepers(40, |_| false);
        wakes.start(fill(&answers));
        let values: Vec<usize> = threads.into_iter().map(|thread| thread.join().expect("woken")).collect();
        assert_eq!(values, (0..40).collect::<Vec<_>>());
        assert_eq!(wakes.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn where_one_wakes_nobody_on_the_others_sleep_until_it_is_finished() {
        let (wakes, answers, threads) = sleepers(40, |n| n < AT_ONCE);
        wakes.start(fill(&answers));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !threads[..AT_ONCE].iter().all(Sleeper::is_finished) {
            assert!(Instant::now() < deadline, "the first are woken by whoever has the answers");
            std::thread::yield_now();
        }
        assert_eq!(wakes.count.load(Ordering::SeqCst), 38, "nobody has gone on");
        wakes.finish();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    }
}
