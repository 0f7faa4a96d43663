//! A scheduler under a seed: which worker has the turn, which task is stepped, when time passes.
//!
//! One thing happens at a time. Between two steps of a worker the scheduler chooses from everything that could go on: workers
//! that have something to do, tasks that were woken or whose waiting time is over, and the clock. The choice comes from the seed
//! alone, so a run is a function of its seed; [`Scheduler::trace`] is a hash of all choices, and two runs of one seed have the
//! same (that this is so is a test, of whole jobs).
//!
//! *Style.* A scheduler that is equally fair to everybody finds little. So each seed first draws a style: how long a worker keeps
//! the turn, whether one worker is starved, whether tasks (disk writers, the log's writer) are eager or late, how fast time runs.
//!
//! *Standing still.* When nobody can go on and no time is waited for, or a run takes too many turns or too much time, every worker
//! is told to leave and why: a job that hangs is found, too.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutwater_platform::{Clock, Did, Spawn, SplitMix, Step, Stepped, Task, TaskHandle, Turn, Turns};

use crate::{SimClock, SimDisk};

/// Limits of one life of a simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Turns of workers and steps of tasks after which a run is taken for one that never ends.
    pub turns_max: u64,
    /// Simulated time after which a run is taken for one that never ends.
    pub time_max: Duration,
}

impl Default for SchedulerLimits {
    fn default() -> Self {
        SchedulerLimits { turns_max: 2_000_000, time_max: Duration::from_secs(300) }
    }
}

/// Workers, tasks and clock of one simulated machine, under one seed. Clones share everything.
///
/// ```
/// use cutwater_platform::{Spawn, Step, Task};
/// use cutwater_testkit::{Scheduler, SimClock, SimDisk};
/// use std::sync::Arc;
///
/// struct Count(u32);
/// impl Task for Count {
///     fn step(&mut self) -> Step {
///         self.0 += 1;
///         if self.0 == 3 { Step::Done } else { Step::Again }
///     }
/// }
///
/// let scheduler = Scheduler::new(7, Arc::new(SimClock::new()), SimDisk::new());
/// let task = scheduler.spawn("count", Box::new(Count(0)));
/// while scheduler.help() {}
/// assert!(task.is_finished());
/// ```
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<SimClock>,
    disk: SimDisk,
    state: Mutex<State>,
}

struct State {
    random: SplitMix,
    style: Style,
    limits: SchedulerLimits,
    began: Duration,
    members: Vec<Member>,
    entered: usize,
    /// Who has the turn.
    turn: Option<usize>,
    tasks: VecDeque<Waiting>,
    tasks_ever: u64,
    turns: u64,
    trace: u64,
    why_over: Option<String>,
}

struct Member {
    here: bool,
    idle: bool,
    until: Option<Duration>,
    wake: Arc<Condvar>,
}

struct Waiting {
    number: u64,
    stepped: Stepped,
    /// It asked to be stepped at this time, woken or not.
    due: Option<Duration>,
}

/// How a seed likes to schedule.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// Of 256: how often a worker that has more to do keeps its turn.
    stay: u64,
    /// The weight of a task against a worker's 16.
    task_weight: u64,
    /// This worker gets a turn only where the dice say so.
    starved: Option<usize>,
    /// At most so many microseconds pass per turn.
    micros_per_turn: u64,
}

impl Style {
    fn draw(random: &mut SplitMix) -> Style {
        Style {
            stay: [0, 64, 160, 240][random.below(4) as usize],
            task_weight: [1, 4, 16, 64][random.below(4) as usize],
            starved: (random.below(3) == 0).then(|| random.below(4) as usize),
            micros_per_turn: [4, 20, 100, 400][random.below(4) as usize],
        }
    }
}

/// What goes on next.
enum Next {
    Worker(usize),
    Task(Waiting),
    Over,
}

impl Scheduler {
    /// A scheduler for one life of a machine with this clock and disk.
    pub fn new(seed: u64, clock: Arc<SimClock>, disk: SimDisk) -> Scheduler {
        let mut random = SplitMix::new(seed);
        let style = Style::draw(&mut random);
        let state = State {
            random,
            style,
            limits: SchedulerLimits::default(),
            began: clock.monotonic(),
            members: vec![],
            entered: 0,
            turn: None,
            tasks: VecDeque::new(),
            tasks_ever: 0,
            turns: 0,
            trace: 0xCBF2_9CE4_8422_2325,
            why_over: None,
        };
        Scheduler { shared: Arc::new(Shared { clock, disk, state: Mutex::new(state) }) }
    }

    /// Other limits than the default ones.
    #[must_use]
    pub fn with_limits(self, limits: SchedulerLimits) -> Scheduler {
        self.state().limits = limits;
        self
    }

    /// A hash of every choice so far.
    pub fn trace(&self) -> u64 {
        self.state().trace
    }

    /// Turns of workers and steps of tasks so far.
    pub fn turns_taken(&self) -> u64 {
        self.state().turns
    }

    /// Why the run was ended from here, if it was: it stood still, or went on for too long.
    pub fn stuck(&self) -> Option<String> {
        self.state().why_over.clone()
    }

    /// Drops all tasks as they stand, at the end of a life: a task holds what it works on, and that holds this scheduler.
    pub fn forget_tasks(&self) {
        let tasks = std::mem::take(&mut self.state().tasks);
        // Outside the lock: what goes with a task may ask for something here.
        drop(tasks);
    }

    /// Steps a task that is ready or has waited long enough, for whoever lets time pass outside of turns; false if there was none.
    pub fn step_due(&self) -> bool {
        let now = self.shared.clock.monotonic();
        let task = {
            let mut state = self.state();
            let is_due = |t: &Waiting| t.stepped.is_ready() || t.due.is_some_and(|at| at <= now);
            let due: Vec<usize> = (0..state.tasks.len()).filter(|i| is_due(&state.tasks[*i])).collect();
            if due.is_empty() {
                return false;
            }
            let drawn = state.random.below(due.len() as u64) as usize;
            let task = state.tasks.remove(due[drawn]).expect("it is there");
            state.mix(8, task.number);
            state.turns += 1;
            task
        };
        self.step(task);
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps a task outside the lock: it may spawn and wake others, and wait for them.
    fn step(&self, mut task: Waiting) {
        let step = task.stepped.step();
        let mut state = self.state();
        state.everybody_may_go_on();
        task.due = match step {
            Step::Done => return,
            Step::Wait(how_long) => Some(self.shared.clock.monotonic() + how_long),
            Step::Again | Step::Idle => None,
        };
        state.tasks.push_back(task);
    }

    /// Chooses until somebody other than a task goes on; steps tasks on the calling thread. Answers who that is.
    fn choose(&self, holder: Option<usize>) -> Option<usize> {
        loop {
            let next = {
                let mut state = self.state();
                state.next(holder, &self.shared)
            };
            match next {
                Next::Worker(worker) => return Some(worker),
                Next::Task(task) => self.step(task),
                Next::Over => return self.state().members.iter().position(|m| m.here),
            }
        }
    }

    fn hand_to(&self, worker: Option<usize>) {
        let mut state = self.state();
        state.turn = worker;
        let wake = worker.and_then(|w| state.members.get(w)).map(|member| member.wake.clone());
        // Whoever wakes up needs the lock at once.
        drop(state);
        if let Some(wake) = wake {
            wake.notify_one();
        }
    }

    fn wait_for_turn(&self, member: usize) -> Turn {
        let mut state = self.state();
        while state.turn != Some(member) {
            let wake = state.members[member].wake.clone();
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.why_over {
            Some(why) => Turn::Leave { why: why.clone() },
            None => Turn::Again,
        }
    }
}

impl State {
    fn mix(&mut self, kind: u64, what: u64) {
        for word in [kind, what] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
    }

    fn everybody_may_go_on(&mut self) {
        self.members.iter_mut().for_each(|m| m.idle = false);
    }

    fn over(&mut self, why: String) -> Next {
        self.why_over.get_or_insert(why);
        Next::Over
    }

    /// The next choice. Time passes here, a little with each turn, and as far as needed when nobody can go on.
    fn next(&mut self, holder: Option<usize>, shared: &Shared) -> Next {
        self.turns += 1;
        if self.why_over.is_some() {
            return Next::Over;
        }
        if shared.disk.is_off() {
            return self.over("the power went off".to_string());
        }
        if self.turns > self.limits.turns_max {
            return self.over(format!("not over after {} turns", self.limits.turns_max));
        }
        let passes = self.random.below(self.style.micros_per_turn + 1);
        shared.clock.advance(Duration::from_micros(passes));
        loop {
            let now = shared.clock.monotonic();
            if now.saturating_sub(self.began) > self.limits.time_max {
                return self.over(format!("not over after {:?} of simulated time", self.limits.time_max));
            }
            if let Some(next) = self.choice(holder, now) {
                return next;
            }
            let of_members = self.members.iter().filter(|m| m.here).filter_map(|m| m.until);
            let of_tasks = self.tasks.iter().filter_map(|t| t.due);
            match of_members.chain(of_tasks).min() {
                // Due times are later than now, or there would have been a choice.
                Some(at) => {
                    self.mix(3, at.as_nanos() as u64);
                    shared.clock.advance(at.saturating_sub(now));
                }
                None => return self.over("it stands still: no worker and no task can go on".to_string()),
            }
        }
    }

    fn choice(&mut self, holder: Option<usize>, now: Duration) -> Option<Next> {
        let ready = |m: &Member| m.here && (!m.idle || m.until.is_some_and(|at| at <= now));
        if let Some(holder) = holder
            && self.members.get(holder).is_some_and(|m| m.here && !m.idle)
            && self.random.below(256) < self.style.stay
        {
            self.mix(1, holder as u64);
            return Some(Next::Worker(holder));
        }
        let is_ready = |t: &Waiting| t.stepped.is_ready() || t.due.is_some_and(|at| at <= now);
        let weight_of = |index: usize| if self.style.starved == Some(index) { 1 } else { 16 };
        let workers: Vec<(usize, u64)> =
            self.members.iter().enumerate().filter(|(_, m)| ready(m)).map(|(i, _)| (i, weight_of(i))).collect();
        let tasks: Vec<usize> = (0..self.tasks.len()).filter(|i| is_ready(&self.tasks[*i])).collect();
        let of_workers: u64 = workers.iter().map(|(_, weight)| weight).sum();
        let total = of_workers + tasks.len() as u64 * self.style.task_weight;
        if total == 0 {
            return None;
        }
        let mut drawn = self.random.below(total);
        for (worker, weight) in workers {
            if drawn < weight {
                self.mix(1, worker as u64);
                return Some(Next::Worker(worker));
            }
            drawn -= weight;
        }
        let index = tasks[(drawn / self.style.task_weight) as usize];
        let task = self.tasks.remove(index).expect("it is there");
        self.mix(2, task.number);
        Some(Next::Task(task))
    }
}

impl Turns for Scheduler {
    fn enter(&self, member: usize, of: usize) {
        let mut state = self.state();
        if state.members.len() != of {
            assert_eq!(state.entered, 0, "one group at a time");
            let new = || Member { here: false, idle: false, until: None, wake: Arc::default() };
            state.members = std::iter::repeat_with(new).take(of).collect();
        }
        let me = &mut state.members[member];
        (me.here, me.idle, me.until) = (true, false, None);
        state.entered += 1;
        let all_here = state.entered == of;
        drop(state);
        if all_here {
            // Which thread came last is the machine's doing, and must play no part.
            let first = self.choose(None);
            self.hand_to(first);
        }
        self.wait_for_turn(member);
    }

    fn pass(&self, member: usize, did: Did) -> Turn {
        {
            let mut state = self.state();
            state.mix(4 + u64::from(did == Did::Work), member as u64);
            if did == Did::Work {
                state.everybody_may_go_on();
            }
            let me = &mut state.members[member];
            (me.idle, me.until) = match did {
                Did::Work => (false, None),
                Did::Nothing { until } => (true, until),
            };
        }
        let next = self.choose(Some(member));
        if next != Some(member) {
            self.hand_to(next);
        }
        self.wait_for_turn(member)
    }

    fn leave(&self, member: usize) {
        let anybody = {
            let mut state = self.state();
            state.mix(6, member as u64);
            state.members[member].here = false;
            state.everybody_may_go_on();
            state.entered -= 1;
            if state.entered == 0 {
                state.members.clear();
                state.turn = None;
            }
            state.entered > 0
        };
        if anybody {
            let next = self.choose(None);
            self.hand_to(next);
        }
    }
}

impl Spawn for Scheduler {
    fn spawn(&self, _name: &str, task: Box<dyn Task>) -> TaskHandle {
        let (stepped, handle) = Stepped::new(task);
        let mut state = self.state();
        state.tasks_ever += 1;
        let number = state.tasks_ever;
        state.tasks.push_back(Waiting { number, stepped, due: None });
        handle
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn help(&self) -> bool {
        let task = {
            let mut state = self.state();
            let ready: Vec<usize> = (0..state.tasks.len()).filter(|i| state.tasks[*i].stepped.is_ready()).collect();
            if ready.is_empty() {
                return false;
            }
            let drawn = state.random.below(ready.len() as u64) as usize;
            let task = state.tasks.remove(ready[drawn]).expect("it is there");
            state.mix(7, task.number);
            state.turns += 1;
            task
        };
        self.step(task);
        true
    }

    fn turns(&self) -> Option<Arc<dyn Turns>> {
        Some(Arc::new(self.clone()))
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "Scheduler({} turns, {:?})", state.turns, state.style)
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
