//! The whole simulated machine: disk, clock, randomness, tasks and crash points under one seed.

use std::sync::Arc;

use cutwater_platform::random::Seeded;
use cutwater_platform::{Inline, NoNet, Platform, Random, Spawn, Threads};

use crate::{CrashAction, CrashCounts, LossPolicy, Scheduler, SimClock, SimDisk};

/// A machine to run code on. The same seed gives the same run, as long as tasks are inline (the default).
///
/// ```
/// use cutwater_platform::Files;
/// use cutwater_testkit::{LossPolicy, SimPlatform};
/// use std::path::Path;
///
/// let sim = SimPlatform::new(42);
/// let platform = sim.platform();
/// platform.files.publish_bytes(Path::new("manifest"), b"one")?;
/// let next = sim.restart(LossPolicy::Random);
/// assert_eq!(next.platform().files.read(Path::new("manifest"), 10)?, b"one");
/// assert!(platform.files.exists(Path::new("manifest")).is_err(), "the old machine is off");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SimPlatform {
    seed: u64,
    disk: SimDisk,
    clock: Arc<SimClock>,
    random: Arc<Seeded>,
    tasks: Tasks,
    crashes: CrashCounts,
}

#[derive(Clone, Debug)]
enum Tasks {
    Inline(Inline),
    Scheduled(Scheduler),
    Threads,
}

impl SimPlatform {
    /// A machine with an empty disk; tasks run inline.
    pub fn new(seed: u64) -> SimPlatform {
        SimPlatform::on(SimDisk::new(), seed)
    }

    /// A machine on a disk that is there already; tasks run inline.
    pub fn on(disk: SimDisk, seed: u64) -> SimPlatform {
        SimPlatform {
            seed,
            disk,
            clock: Arc::new(SimClock::new()),
            random: Arc::new(Seeded::new(seed)),
            tasks: Tasks::Inline(Inline::new()),
            crashes: CrashCounts::new(),
        }
    }

    /// The same machine with a [`Scheduler`]: workers of a job take turns, in an order that comes from the seed. Runs of whole jobs
    /// are the same for the same seed.
    #[must_use]
    pub fn with_scheduler(mut self) -> SimPlatform {
        self.tasks = Tasks::Scheduled(self.new_scheduler(self.disk.clone()));
        self
    }

    fn new_scheduler(&self, disk: SimDisk) -> Scheduler {
        Scheduler::new(self.random.next_u64(), self.clock.clone(), disk)
    }

    /// The same machine with a thread for each task. Runs are no longer the same for the same seed.
    #[must_use]
    pub fn with_threads(mut self) -> SimPlatform {
        self.tasks = Tasks::Threads;
        self
    }

    /// What code is given.
    pub fn platform(&self) -> Platform {
        let spawn: Arc<dyn Spawn> = match &self.tasks {
            Tasks::Inline(inline) => Arc::new(inline.clone()),
            Tasks::Scheduled(scheduler) => Arc::new(scheduler.clone()),
            Tasks::Threads => Arc::new(Threads),
        };
        Platform {
            files: Arc::new(self.disk.clone()),
            clock: self.clock.clone(),
            random: self.random.clone(),
            spawn,
            net: Arc::new(NoNet),
            crash: self.crashes.points(),
        }
    }

    /// The seed of the first life, for the story of a failure.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The disk of this life.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// The clock, which goes on over restarts.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// The inline tasks of this life; `None` with a scheduler or threads.
    pub fn inline(&self) -> Option<&Inline> {
        match &self.tasks {
            Tasks::Inline(inline) => Some(inline),
            Tasks::Scheduled(_) | Tasks::Threads => None,
        }
    }

    /// The scheduler of this life, if there is one.
    pub fn scheduler(&self) -> Option<&Scheduler> {
        match &self.tasks {
            Tasks::Scheduled(scheduler) => Some(scheduler),
            Tasks::Inline(_) | Tasks::Threads => None,
        }
    }

    /// The crash points, counted over all lives.
    pub fn crashes(&self) -> &CrashCounts {
        &self.crashes
    }

    /// Turns this life's power off when `point` is reached for the `nth` time from now.
    pub fn power_off_at(&self, point: impl Into<String>, nth: u64) {
        self.crashes.arm(point, nth, CrashAction::PowerOff(self.disk.clone()));
    }

    /// The next life after a power cut: the disk as [`SimDisk::restart`] leaves it, no task, nothing armed. Clock,
    /// random numbers and counts go on.
    #[must_use]
    pub fn restart(&self, policy: LossPolicy) -> SimPlatform {
        let seed = self.random.next_u64();
        self.next_life(self.disk.restart(policy, seed))
    }

    /// The next life after the process was killed, the machine not: see [`SimDisk::kill`].
    #[must_use]
    pub fn kill(&self) -> SimPlatform {
        self.next_life(self.disk.kill())
    }

    /// Another process on this machine: the same disk and clock, tasks, random numbers and crash points of its own.
    #[must_use]
    pub fn beside(&self) -> SimPlatform {
        let random = Arc::new(Seeded::new(self.random.next_u64()));
        let other = SimPlatform { random, crashes: CrashCounts::new(), ..self.clone() };
        let tasks = match &self.tasks {
            Tasks::Inline(_) => Tasks::Inline(Inline::new()),
            Tasks::Scheduled(_) => Tasks::Scheduled(other.new_scheduler(self.disk.clone())),
            Tasks::Threads => Tasks::Threads,
        };
        SimPlatform { tasks, ..other }
    }

    fn next_life(&self, disk: SimDisk) -> SimPlatform {
        self.crashes.disarm();
        let tasks = match &self.tasks {
            Tasks::Inline(_) => Tasks::Inline(Inline::new()),
            Tasks::Scheduled(_) => Tasks::Scheduled(self.new_scheduler(disk.clone())),
            Tasks::Threads => Tasks::Threads,
        };
        SimPlatform { disk, tasks, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use cutwater_platform::{Clock, Files, Open};

    use super::*;

    fn run(sim: &SimPlatform) -> std::io::Result<u64> {
        let p = sim.platform();
        let file = p.files.open(Path::new("journal"), Open::Create)?;
        for n in 0..3u64 {
            file.write_all_at(&p.random.next_u64().to_le_bytes(), n * 8)?;
            p.crash.reach("test.written");
            file.sync_data()?;
            p.clock.sleep(Duration::from_millis(1));
        }
        file.len()
    }

    #[test]
    fn an_armed_point_ends_a_life_and_the_next_one_goes_on_with_the_clock() {
        let sim = SimPlatform::new(3);
        sim.power_off_at("test.written", 2);
        assert!(run(&sim).is_err());
        let next = sim.restart(LossPolicy::AllLost);
        assert_eq!(next.disk().read_dir(Path::new("/")).expect("readable"), [], "the name was never synced");
        assert_eq!(next.clock().monotonic(), Duration::from_millis(1));
        assert_eq!(run(&next).expect("nothing is armed any more"), 24);
        assert_eq!(next.crashes().reached()["test.written"], 5);
    }

    #[test]
    fn a_process_beside_shares_disk_and_clock_and_is_struck_on_its_own() {
        let sim = SimPlatform::new(4).with_scheduler();
        let beside = sim.beside();
        beside.power_off_at("test.written", 9);
        assert_eq!(run(&sim).expect("nothing is armed here"), 24);
        assert_eq!(beside.disk().read(Path::new("journal"), 100).expect("the same disk").len(), 24);
        assert_eq!(beside.clock().monotonic(), sim.clock().monotonic());
        assert!(beside.crashes().reached().is_empty());
        sim.disk().crash();
        assert!(beside.disk().is_off());
    }

    #[test]
    fn the_same_seed_gives_the_same_lives() {
        let life = |seed| {
            let sim = SimPlatform::new(seed);
            sim.disk().crash_at_step(6);
            run(&sim).expect_err("struck");
            let next = sim.restart(LossPolicy::Random);
            (sim.disk().trace_text(), next.disk().read(Path::new("journal"), 100).ok())
        };
        assert_eq!(life(9), life(9));
        assert!((0..50).any(|seed| life(seed).1 != life(9).1));
    }
}
