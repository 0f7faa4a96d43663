//! Waking many threads: about as many at a time as there are cores, and each that waits again wakes the next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;

/// Threads whose answers have come ([`Completion::fill`](crate::Completion::fill)) and that still sleep.
///
/// Waking a thread costs a system call, and one that is woken beside more than there are cores for takes a core from another in the
/// middle of its work, perhaps while that one holds a lock that all of them want. So a few are woken, and who has done its work and
/// waits anew ([`pause`](Wakes::pause)) wakes the next. Who never waits anew keeps its place until somebody
/// [looks after it](Wakes::settle); whoever began must do that until [nobody is left](Wakes::are_left), or [`finish`](Wakes::finish).
///
/// Promise: whoever is given to [`start`](Wakes::start) is woken at the latest by the second [`settle`](Wakes::settle) between which
/// nobody paused, and whenever somebody pauses, the one that has slept longest is.
///
/// ```
/// use cutwater_platform::{Completion, Wakes};
/// let (done, wakes) = (Completion::new(), Wakes::default());
/// wakes.start(done.fill(7).into_iter().collect());
/// wakes.finish();
/// assert_eq!(done.try_take(), Some(7));
/// ```
#[derive(Debug)]
pub struct Wakes {
    /// So many are awake at a time.
    at_once: usize,
    places: Mutex<Places>,
    /// How many sleep: to look without the lock.
    left: AtomicUsize,
}

#[derive(Debug, Default)]
struct Places {
    /// The longest sleeper first.
    asleep: VecDeque<Thread>,
    /// How many were woken and haven't paused since, as far as is known.
    awake: usize,
    /// Somebody has paused since the last look.
    moved: bool,
}

impl Default for Wakes {
    /// As many at once as there are cores.
    fn default() -> Wakes {
        Wakes::new(std::thread::available_parallelism().map_or(2, usize::from))
    }
}

impl Wakes {
    /// So many at once, at least two: one may be about to sleep.
    pub fn new(at_once: usize) -> Wakes {
        Wakes { at_once: at_once.max(2), places: Mutex::default(), left: AtomicUsize::new(0) }
    }

    /// Sees to it that these are woken, some of them now.
    pub fn start(&self, threads: Vec<Thread>) {
        if threads.is_empty() {
            return;
        }
        self.wake(|places, at_once| {
            places.asleep.extend(threads);
            let now = at_once.saturating_sub(places.awake).min(places.asleep.len());
            places.awake += now;
            places.asleep.drain(..now).collect()
        });
    }

    /// To be called by each that is about to wait: the next one takes its place.
    pub fn pause(&self) {
        self.wake(|places, _| {
            places.moved = true;
            let next = places.asleep.pop_front();
            if next.is_none() {
                places.awake = places.awake.saturating_sub(1);
            }
            next.into_iter().collect()
        });
    }

    /// Wakes all if nobody has paused since the last call: those that are awake do something else.
    pub fn settle(&self) {
        self.wake(|places, _| if std::mem::take(&mut places.moved) { VecDeque::new() } else { places.all() });
    }

    /// Wakes all that still sleep.
    pub fn finish(&self) {
        if self.are_left() {
            self.wake(|places, _| places.all());
        }
    }

    /// Whether somebody sleeps still.
    pub fn are_left(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    /// Wakes those that are chosen, once the lock is released.
    fn wake(&self, choose: impl FnOnce(&mut Places, usize) -> VecDeque<Thread>) {
        let chosen = {
            let mut places = self.places();
            let chosen = choose(&mut places, self.at_once);
            self.left.store(places.asleep.len(), Ordering::SeqCst);
            chosen
        };
        chosen.iter().for_each(Thread::unpark);
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().expect("no panic while waking")
    }
}

impl Places {
    /// Takes out all that sleep. Nobody knows how many are awake then: as if none were.
    fn all(&mut self) -> VecDeque<Thread> {
        self.awake = 0;
        std::mem::take(&mut self.asleep)
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

    const AT_ONCE: usize = 3;

    /// So many threads, each of which waits for an answer, and then pauses if it isn't `busy`.
    fn sleepers(count: usize, busy: fn(usize) -> bool) -> (Arc<Wakes>, Vec<Arc<Completion<usize>>>, Vec<Sleeper>) {
        let wakes = Arc::new(Wakes::new(AT_ONCE));
        let answers: Vec<_> = (0..count).map(|_| Arc::new(Completion::new())).collect();
        let threads = answers.iter().enumerate().map(|(n, answer)| {
            let (answer, wakes) = (answer.clone(), wakes.clone());
            std::thread::spawn(move || {
                let value = answer.wait(&Threads);
                if !busy(n) {
                    wakes.pause();
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

    fn wait_for(done: impl Fn() -> bool, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn each_that_pauses_wakes_the_next_until_nobody_is_left() {
        let (wakes, answers, threads) = sleepers(40, |_| false);
        wakes.start(fill(&answers));
        let values: Vec<usize> = threads.into_iter().map(|thread| thread.join().expect("woken")).collect();
        assert_eq!(values, (0..40).collect::<Vec<_>>());
        assert!(!wakes.are_left());
        assert_eq!(wakes.places().awake, 0, "the last ones found nobody to wake and left their places");
    }

    #[test]
    fn a_few_are_awake_at_a_time_and_those_that_come_later_wait_behind_the_others() {
        let (wakes, answers, threads) = sleepers(8, |_| true);
        let mut asleep = fill(&answers);
        let later = asleep.split_off(5);
        wakes.start(asleep);
        wait_for(|| threads[..AT_ONCE].iter().all(Sleeper::is_finished), "the first are woken at once");
        wakes.start(later);
        assert_eq!(wakes.left.load(Ordering::SeqCst), 5, "no place is free");
        wakes.pause();
        wait_for(|| threads[AT_ONCE].is_finished(), "the longest sleeper is next");
        assert_eq!(wakes.left.load(Ordering::SeqCst), 4);
        wakes.finish();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    }

    #[test]
    fn where_nobody_pauses_any_more_all_are_woken_at_the_second_look() {
        let (wakes, answers, threads) = sleepers(40, |_| true);
        wakes.start(fill(&answers));
        wait_for(|| threads[..AT_ONCE].iter().all(Sleeper::is_finished), "the first are woken at once");
        wakes.pause();
        wakes.settle();
        assert_eq!(wakes.left.load(Ordering::SeqCst), 36, "somebody had paused");
        wakes.settle();
        assert!(!wakes.are_left());
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
        // Nobody's place is taken any more.
        let (again, answers, threads) = sleepers(1, |_| true);
        drop(again);
        wakes.start(fill(&answers));
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    }
}
