//! Lives side by side: one is stopped in the middle of what it does, as by SIGSTOP, the next one takes over on the same machine, and the
//! first one comes back while the other runs, or when it is over (I-7).
//!
//! Both are processes of one job in one data directory. They share the disk and the clock, and a log that is lent to each
//! ([`LogHandle::lend`]): each has a claim of its own, as two processes behind one broker have. The log's own tasks are stepped by whichever
//! life runs, and nobody is stopped within one of their steps, for a broker isn't stopped with its clients.
//!
//! ```text
//!   driver -- baton --> life k    stopped at a point, or at a turn; comes back at a moment drawn from the seed
//!                  \--> life k+1  claims, fences, runs; may be stopped itself, or struck
//!                  \--> the log's tasks, from a task of each life
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cutwater_engine::config::Options;
use cutwater_engine::error::RunError;
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::worker::run;
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::spawn::panic_text;
use cutwater_platform::{CrashHook, CrashPoints, Did, Spawn, SplitMix, Step, Task, TaskHandle, Threads, Turn, Turns};
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::{CrashAction, CrashCounts, Scheduler, SimPlatform};

use crate::baton::{Baton, Event};
use crate::case::{End, Strike};
use crate::life::{BuildFn, Setup};
use crate::settings::{arm, decline, options};
use crate::{DATA_DIR, LOG_DIR};

/// How long a life that has nothing else to do leaves the log's tasks alone.
const LOG_STEPPED_EVERY: Duration = Duration::from_millis(1);

/// How a life ended.
pub(crate) enum Ended {
    /// As runs do.
    Run(Box<Result<Report, RunError>>),
    /// By a panic that went through it.
    Panic(String),
}

/// One of several lives.
pub(crate) struct Side {
    /// Its process.
    pub(crate) machine: SimPlatform,
    pub(crate) workers: usize,
    /// How often each point had been reached before it.
    pub(crate) before: crate::schedule::Reached,
    /// How many strikes had happened before it.
    pub(crate) struck_before: usize,
    /// True if it was stopped where its strike says.
    pub(crate) stopped: bool,
    pub(crate) control: Control,
    pub(crate) ended: Ended,
}

/// What the lives of a chain came to, in the order in which they began.
pub(crate) struct Beside {
    pub(crate) lives: Vec<Side>,
    /// A hash of who had the baton when.
    pub(crate) trace: u64,
}

/// A life that hasn't ended yet.
struct Begun {
    machine: SimPlatform,
    workers: usize,
    before: crate::schedule::Reached,
    struck_before: usize,
    stopped: bool,
    control: Control,
    ended: Arc<Mutex<Option<Ended>>>,
    thread: TaskHandle,
}

/// Lives a chain of lives: each but the last is stopped by its strike, whereupon the next one begins. The last one may be struck by something
/// that ends the machine, and then all of them.
///
/// # Errors
/// The log can't be opened.
pub(crate) fn live_beside(
    setup: &Setup,
    first: SimPlatform,
    strikes: &[Strike],
    random: &mut SplitMix,
) -> Result<Beside, String> {
    let baton = Baton::new(strikes.len() + 1, random.next());
    // The log is a process of its own.
    let of_log = first.beside();
    setup.mistakes.iter().for_each(|mistake| of_log.crashes().plant(mistake));
    let log = Log::open(&of_log.platform(), &Path::new(DATA_DIR).join(LOG_DIR), LogOptions::default());
    let log = log.map_err(|e| format!("the log can't be opened: {e}"))?;
    let mut driver = Driver { setup, strikes, random, baton, of_log, log, begun: vec![] };
    driver.begin(first);
    let mut next = Some(0);
    while let Some(life) = next {
        next = match driver.baton.run(life) {
            Event::Stopped(life) => {
                driver.begun[life].stopped = true;
                driver.begin(driver.begun[life].machine.beside());
                Some(driver.begun.len() - 1)
            }
            Event::Over(_) => driver.baton.next(),
        };
    }
    Ok(driver.end())
}

struct Driver<'a> {
    setup: &'a Setup,
    strikes: &'a [Strike],
    random: &'a mut SplitMix,
    baton: Arc<Baton>,
    of_log: SimPlatform,
    log: Log,
    begun: Vec<Begun>,
}

impl Driver<'_> {
    /// Begins the next life, which then waits for the baton.
    fn begin(&mut self, machine: SimPlatform) {
        let me = self.baton.add();
        let strike = self.strikes.get(me);
        let mut options = options(self.setup, &machine, self.random, strike);
        machine.crashes().disarm();
        let stops_at_turn = match strike {
            Some(Strike { point, nth, end: End::Stop }) if point == Strike::TURN => Some(*nth),
            Some(Strike { point, nth, end: End::Stop }) => {
                let baton = self.baton.clone();
                machine.crashes().arm(point, *nth, CrashAction::Call(Box::new(move || baton.stop(me))));
                None
            }
            strike => {
                arm(&machine, strike);
                // Whether the point is the log's or the life's, it is reached in one of the two.
                if strike.is_some_and(|s| s.point != Strike::DISK && s.end != End::Panic) {
                    arm(&self.of_log, strike);
                }
                None
            }
        };
        decline(&machine, self.random, &mut options);
        self.setup.mistakes.iter().for_each(|mistake| machine.crashes().plant(mistake));
        let (before, struck_before) = (machine.crashes().reached(), machine.crashes().struck().len());
        let scheduler = machine.scheduler().expect("made with one").clone();
        let of_log = self.of_log.scheduler().expect("made with one").clone();
        scheduler.spawn("log", Box::new(StepsLog { of_log }));
        let yields = Yields { counts: machine.crashes().clone(), baton: self.baton.clone(), me };
        options.platform.crash = CrashPoints::armed(yields);
        let turns = PacedTurns {
            scheduler: scheduler.clone(),
            baton: self.baton.clone(),
            me,
            stops_at_turn,
            taken: Arc::default(),
        };
        options.platform.spawn = Arc::new(Paced { scheduler, turns: Arc::new(turns) });
        let (control, ended) = (Control::new(), Arc::new(Mutex::new(None)));
        let workers = options.workers;
        let life = Life {
            baton: self.baton.clone(),
            me,
            build: self.setup.build.clone(),
            log: self.log.clone(),
            options,
            control: control.clone(),
            ended: ended.clone(),
        };
        let thread = Threads.spawn("life", Box::new(life));
        self.begun.push(Begun { machine, workers, before, struck_before, stopped: false, control, ended, thread });
    }

    fn end(self) -> Beside {
        let end = |begun: Begun| {
            let joined = begun.thread.join(&Threads);
            let ended = begun.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ended = ended.unwrap_or_else(|| Ended::Panic(joined.err().unwrap_or_default()));
            let Begun { machine, workers, before, struck_before, stopped, control, .. } = begun;
            // What is left of a life holds its scheduler in a circle.
            machine.scheduler().inspect(|scheduler| scheduler.forget_tasks());
            Side { machine, workers, before, struck_before, stopped, control, ended }
        };
        let lives = self.begun.into_iter().map(end).collect();
        // On a machine that is off it can't be closed; the next open sees to what is left.
        let _ = self.log.close();
        drop(self.log);
        self.of_log.scheduler().inspect(|scheduler| scheduler.forget_tasks());
        Beside { lives, trace: self.baton.trace() }
    }
}

/// The thread of a life.
struct Life {
    baton: Arc<Baton>,
    me: usize,
    build: BuildFn,
    log: Log,
    options: Options,
    control: Control,
    ended: Arc<Mutex<Option<Ended>>>,
}

impl Task for Life {
    fn step(&mut self) -> Step {
        self.baton.begin(self.me);
        let (build, log) = (self.build.clone(), self.log.clone());
        let lent = move |job: &cutwater_engine::graph::Job| {
            LogHandle::lend(&log, job)?;
            build(job)
        };
        let result = catch_unwind(AssertUnwindSafe(|| run(lent, &self.options, &self.control)));
        let ended = match result {
            Ok(result) => Ended::Run(Box::new(result)),
            Err(panic) => Ended::Panic(panic_text(panic.as_ref())),
        };
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.baton.over(self.me);
        Step::Done
    }
}

/// Steps the log's tasks, from the scheduler of each life.
struct StepsLog {
    of_log: Scheduler,
}

impl Task for StepsLog {
    fn step(&mut self) -> Step {
        if self.of_log.help() { Step::Again } else { Step::Wait(LOG_STEPPED_EVERY) }
    }
}

/// Yields at each crash point, after whatever strikes there.
struct Yields {
    counts: CrashCounts,
    baton: Arc<Baton>,
    me: usize,
}

impl CrashHook for Yields {
    fn reached(&self, point: &'static str) {
        CrashHook::reached(&self.counts, point);
        self.baton.yield_now(self.me);
    }

    fn is_planted(&self, mistake: &'static str) -> bool {
        CrashHook::is_planted(&self.counts, mistake)
    }
}

/// A life's scheduler whose workers yield between their turns.
#[derive(Debug)]
struct Paced {
    scheduler: Scheduler,
    turns: Arc<PacedTurns>,
}

impl Spawn for Paced {
    fn spawn(&self, name: &str, task: Box<dyn Task>) -> TaskHandle {
        self.scheduler.spawn(name, task)
    }

    fn is_inline(&self) -> bool {
        self.scheduler.is_inline()
    }

    fn help(&self) -> bool {
        self.scheduler.help()
    }

    fn turns(&self) -> Option<Arc<dyn Turns>> {
        Some(self.turns.clone())
    }
}

struct PacedTurns {
    scheduler: Scheduler,
    baton: Arc<Baton>,
    me: usize,
    stops_at_turn: Option<u64>,
    taken: Arc<Mutex<u64>>,
}

impl std::fmt::Debug for PacedTurns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PacedTurns({})", self.me)
    }
}

impl Turns for PacedTurns {
    fn enter(&self, member: usize, of: usize) {
        self.scheduler.enter(member, of);
    }

    fn pass(&self, member: usize, did: Did) -> Turn {
        let taken = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            *taken += 1;
            *taken
        };
        if self.stops_at_turn == Some(taken) {
            self.baton.stop(self.me);
        } else {
            self.baton.yield_now(self.me);
        }
        self.scheduler.pass(member, did)
    }

    fn leave(&self, member: usize) {
        self.scheduler.leave(member);
    }
}
