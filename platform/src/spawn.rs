//! Tasks that run beside the caller: on a thread of their own, or stepped inline by a test.
//!
//! A task does a bounded piece of work per [`Task::step`] and says what comes next. On [`Threads`] a loop runs the steps
//! and parks when idle. On [`Inline`] nothing runs by itself: whoever waits *helps*, one step at a time, so that a whole
//! log lives on one thread and every I/O step is reached in the same order each time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rayon::prelude::*;

use crate::Turns;

/// What a task wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More to do at once.
    Again,
    /// Nothing to do until woken.
    Idle,
    /// Nothing to do until woken or until this much time has passed. An inline executor treats it as [`Step::Idle`].
    Wait(Duration),
    /// Finished; never step again.
    Done,
}

/// Work in steps.
pub trait Task: Send {
    /// Does a bounded piece of work.
    fn step(&mut self) -> Step;
}

/// Starts tasks.
pub trait Spawn: Send + Sync + fmt::Debug {
    /// Starts `task` under `name` (a thread's name, at most 15 bytes are shown by Linux).
    fn spawn(&self, name: &str, task: Box<dyn Task>) -> TaskHandle;
    /// True when nothing runs unless somebody [helps](Spawn::help).
    fn is_inline(&self) -> bool;
    /// Inline executors run one step of a ready task and say whether there was one. Threads answer false.
    fn help(&self) -> bool;
    /// Whoever decides which worker may run, if workers take turns. On real threads nobody does.
    fn turns(&self) -> Option<Arc<dyn Turns>> {
        None
    }
    /// Calls `piece` once with each number below `pieces` and returns when all calls have returned: side by side where there are
    /// cores for it, else one after the other. A panic in one becomes the caller's.
    fn spread(&self, pieces: usize, piece: &(dyn Fn(usize) + Sync)) {
        (0..pieces).for_each(piece);
    }
}

/// Wakes and joins a task. Dropping the handle lets the task go on.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    woken: AtomicBool,
    finished: AtomicBool,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    waker: Mutex<Option<std::thread::Thread>>,
}

impl TaskHandle {
    fn new() -> TaskHandle {
        TaskHandle {
            control: Arc::new(Control {
                woken: AtomicBool::new(true),
                finished: AtomicBool::new(false),
                thread: Mutex::new(None),
                waker: Mutex::new(None),
            }),
        }
    }

    /// Makes an idle task run again. Cheap when it is already awake.
    pub fn wake(&self) {
        if !self.control.woken.swap(true, Ordering::SeqCst)
            && let Some(thread) = self.control.waker.lock().expect("no panic while waking").as_ref()
        {
            thread.unpark();
        }
    }

    /// True once the task has answered [`Step::Done`] or panicked.
    pub fn is_finished(&self) -> bool {
        self.control.finished.load(Ordering::SeqCst)
    }

    /// True when asked from inside a step of this very task, which must not join itself.
    pub fn is_current(&self) -> bool {
        let waker = self.control.waker.lock().expect("no panic while waking");
        waker.as_ref().is_some_and(|thread| thread.id() == std::thread::current().id())
    }

    /// Waits for the end of a task that has been told to stop.
    ///
    /// # Errors
    /// The task panicked; the text is the panic's message.
    pub fn join(&self, spawn: &dyn Spawn) -> Result<(), String> {
        self.wake();
        while spawn.is_inline() && !self.is_finished() {
            assert!(spawn.help(), "joining a task that was never told to stop");
        }
        let thread = self.control.thread.lock().expect("no panic while joining").take();
        match thread.map(std::thread::JoinHandle::join) {
            Some(Err(panic)) => Err(panic_text(panic.as_ref())),
            _ => Ok(()),
        }
    }
}

/// The message of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()))
        .unwrap_or_else(|| "a panic without a message".to_string())
}

/// One thread per task.
#[derive(Debug, Default, Clone, Copy)]
pub struct Threads;

impl Threads {
    /// Threads for [`Spawn::spread`], made when they are first needed and shared by the process. `None` where there is one core, or
    /// none could be made: then the caller does it all.
    fn pool() -> Option<&'static rayon::ThreadPool> {
        static POOL: std::sync::OnceLock<Option<rayon::ThreadPool>> = std::sync::OnceLock::new();
        let make = || {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let builder = rayon::ThreadPoolBuilder::new().num_threads(cores).thread_name(|i| format!("cw-spread-{i}"));
            builder.build().ok().filter(|_| cores > 1)
        };
        POOL.get_or_init(make).as_ref()
    }
}

/// Marks the task finished even when it unwinds.
struct FinishOnDrop {
    control: Arc<Control>,
    /// False once it is known that the task goes on.
    unless_told: bool,
}

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        if self.unless_told {
            self.control.finished.store(true, Ordering::SeqCst);
        }
    }
}

impl Spawn for Threads {
    fn spread(&self, pieces: usize, piece: &(dyn Fn(usize) + Sync)) {
        match Threads::pool().filter(|_| pieces > 1) {
            Some(pool) => pool.install(|| (0..pieces).into_par_iter().for_each(piece)),
            None => (0..pieces).for_each(piece),
        }
    }

    fn spawn(&self, name: &str, mut task: Box<dyn Task>) -> TaskHandle {
        let handle = TaskHandle::new();
        let control = handle.control.clone();
        let run = move || {
            let FinishOnDrop { control, .. } = &FinishOnDrop { control, unless_told: true };
            loop {
                control.woken.store(false, Ordering::SeqCst);
                match task.step() {
                    Step::Again => {}
                    Step::Done => return,
                    Step::Idle => {
                        while !control.woken.load(Ordering::SeqCst) {
                            std::thread::park();
                        }
                    }
                    Step::Wait(how_long) => {
                        if !control.woken.load(Ordering::SeqCst) {
                            std::thread::park_timeout(how_long);
                        }
                    }
                }
            }
        };
        // The lock is held until the thread's handle is stored, so a wake-up can't miss it.
        let mut waker = handle.control.waker.lock().expect("no panic while spawning");
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(run).expect("the system starts a thread");
        *waker = Some(thread.thread().clone());
        drop(waker);
        *handle.control.thread.lock().expect("no panic while spawning") = Some(thread);
        handle
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn help(&self) -> bool {
        false
    }
}

/// A task that somebody steps by hand: what an inline executor is made of.
pub struct Stepped {
    control: Arc<Control>,
    task: Box<dyn Task>,
}

impl fmt::Debug for Stepped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_ready() { "Stepped(ready)" } else { "Stepped(idle)" })
    }
}

impl Stepped {
    /// A task that hasn't begun and is ready to, and its handle.
    pub fn new(task: Box<dyn Task>) -> (Stepped, TaskHandle) {
        let handle = TaskHandle::new();
        (Stepped { control: handle.control.clone(), task }, handle)
    }

    /// True when it was woken since its last step, or asked to be stepped again.
    pub fn is_ready(&self) -> bool {
        self.control.woken.load(Ordering::SeqCst)
    }

    /// One step on the calling thread. After [`Step::Done`], and after a panic, its handle says that it is finished.
    pub fn step(&mut self) -> Step {
        self.control.woken.store(false, Ordering::SeqCst);
        // Whose thread a task is on is known only while it is stepped.
        *self.control.waker.lock().expect("no panic while waking") = Some(std::thread::current());
        let mut finish = FinishOnDrop { control: self.control.clone(), unless_told: true };
        let step = self.task.step();
        finish.unless_told = step == Step::Done;
        *self.control.waker.lock().expect("no panic while waking") = None;
        if step == Step::Again {
            self.control.woken.store(true, Ordering::SeqCst);
        }
        step
    }
}

/// Runs tasks on the thread that waits for them, in the order in which they were started.
#[derive(Default, Clone)]
pub struct Inline {
    tasks: Arc<Mutex<VecDeque<Stepped>>>,
}

impl Inline {
    /// An executor without tasks.
    pub fn new() -> Inline {
        Inline::default()
    }

    /// Steps ready tasks until none is ready.
    pub fn run_until_idle(&self) {
        while self.help() {}
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inline")
    }
}

impl Spawn for Inline {
    fn spawn(&self, _name: &str, task: Box<dyn Task>) -> TaskHandle {
        let (stepped, handle) = Stepped::new(task);
        self.tasks.lock().expect("no panic while spawning").push_back(stepped);
        handle
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn help(&self) -> bool {
        let ready = {
            let mut tasks = self.tasks.lock().expect("no panic while helping");
            let index = tasks.iter().position(Stepped::is_ready);
            index.and_then(|i| tasks.remove(i))
        };
        // The task is out of the list while it runs: it may spawn or wake others.
        let Some(mut task) = ready else { return false };
        if task.step() != Step::Done {
            self.tasks.lock().expect("no panic while helping").push_back(task);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Completion;

    struct CountTo(u32, Arc<Completion<u32>>, u32);

    impl Task for CountTo {
        fn step(&mut self) -> Step {
            self.2 += 1;
            if self.2 < self.0 {
                return Step::Again;
            }
            self.1.complete(self.2);
            Step::Done
        }
    }

    #[test]
    fn the_same_task_runs_on_a_thread_and_inline() {
        for spawn in [&Threads as &dyn Spawn, &Inline::new()] {
            let done = Arc::new(Completion::new());
            let handle = spawn.spawn("count", Box::new(CountTo(5, done.clone(), 0)));
            assert_eq!(done.wait(spawn), 5);
            handle.join(spawn).expect("no panic");
            assert!(handle.is_finished());
        }
    }

    #[test]
    fn a_panic_in_a_task_is_reported_by_join() {
        struct Bad;
        impl Task for Bad {
            fn step(&mut self) -> Step {
                panic!("the disk is on fire")
            }
        }
        let handle = Threads.spawn("bad", Box::new(Bad));
        assert_eq!(handle.join(&Threads), Err("the disk is on fire".to_string()));
        assert!(handle.is_finished());
    }
}
