//! One I/O thread per worker: what must be durable is written there, in the order in which it was handed over.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cutwater_platform::spawn::panic_text;
use cutwater_platform::{Spawn, Step, Task, TaskHandle};

use crate::source::Waker;

type Work = Box<dyn FnOnce() + Send>;

/// Where work is handed over. Dropping the last handle lets the thread finish what was handed over and end.
pub(crate) struct Offload {
    queue: Arc<Queue>,
    task: TaskHandle,
}

#[derive(Default)]
struct Queue {
    work: Mutex<VecDeque<Work>>,
    closed: AtomicBool,
}

struct Runner(Arc<Queue>);

impl Task for Runner {
    fn step(&mut self) -> Step {
        let next = self.0.work.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match next {
            Some(work) => {
                work();
                Step::Again
            }
            None if self.0.closed.load(Ordering::SeqCst) => Step::Done,
            None => Step::Idle,
        }
    }
}

impl Offload {
    pub(crate) fn new(spawn: &dyn Spawn, name: &str) -> Offload {
        let queue = Arc::new(Queue::default());
        let task = spawn.spawn(name, Box::new(Runner(queue.clone())));
        Offload { queue, task }
    }

    fn submit(&self, work: Work) {
        self.queue.work.lock().unwrap_or_else(PoisonError::into_inner).push_back(work);
        self.task.wake();
    }

    /// Ends the thread once it has done what was handed over, and waits for that.
    pub(crate) fn finish(&self, spawn: &dyn Spawn) {
        self.queue.closed.store(true, Ordering::SeqCst);
        // Work never panics out of its closure (see `Results::submit`), so there is nothing to report.
        let _ = self.task.join(spawn);
    }

    /// Forgets what hasn't begun, for an attempt that has failed.
    pub(crate) fn abandon(&self) {
        self.queue.work.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Results of one operator's work, in the order in which it was handed over.
pub(crate) struct Results<R> {
    done: Arc<Mutex<VecDeque<Result<R, String>>>>,
    waker: Waker,
    under_way: usize,
}

impl<R: Send + 'static> Results<R> {
    /// `waker` activates the operator when a result has come.
    pub(crate) fn new(waker: Waker) -> Results<R> {
        Results { done: Arc::default(), waker, under_way: 0 }
    }

    /// Hands `work` to the I/O thread. A panic in it becomes an error: silence must never look like "not yet".
    pub(crate) fn submit(&mut self, offload: &Offload, work: impl FnOnce() -> R + Send + 'static) {
        self.under_way += 1;
        let (done, waker) = (self.done.clone(), self.waker.clone());
        offload.submit(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panic_text(panic.as_ref()));
            done.lock().unwrap_or_else(PoisonError::into_inner).push_back(result);
            waker.wake();
        }));
    }

    /// True while a result is still to come, or to be polled.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// The next result, if it has come; an error is the message of a panic.
    pub(crate) fn poll(&mut self) -> Option<Result<R, String>> {
        if self.under_way == 0 {
            return None;
        }
        let result = self.done.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        self.under_way -= 1;
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutwater_platform::{Inline, Threads};

    #[test]
    fn results_come_in_order_and_a_panic_is_one_of_them() {
        for spawn in [&Threads as &dyn Spawn, &Inline::new()] {
            let offload = Offload::new(spawn, "io");
            let mut results = Results::new(Waker::noop());
            results.submit(&offload, || 1);
            results.submit(&offload, || panic!("disk full"));
            results.submit(&offload, || 3);
            offload.finish(spawn);
            let got: Vec<_> = std::iter::from_fn(|| results.poll()).collect();
            assert_eq!(got, [Ok(1), Err("disk full".to_string()), Ok(3)]);
        }
    }
}
