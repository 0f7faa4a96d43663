//! A disk that is full for a while: nothing is free at a crash point but a few blocks, others eat what the log had put by, and at a moment
//! drawn from the seed there is room again. The job must wait and go on by itself, and its output must be exact (decision 0070).
//!
//! ```text
//!   point reached -> capacity = what is used + a few blocks           told at the write, or at the sync (delayed allocation)
//!     the log gives its reserve up -> perhaps eaten by others, too
//!   room comes back: a task of the life's scheduler, due then         stepped between turns, and while a paused run sleeps
//! ```
//!
//! A run that waits for room sleeps outside of turns; so its clock steps what is due meanwhile, as the log's threads would do by themselves.

use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::Options;
use cutwater_platform::{BLOCK_BYTES, Clock, Spawn, SplitMix, Step, Task, WallTime};
use cutwater_testkit::{CrashAction, Scheduler, SimDisk, SimPlatform};

use crate::case::Strike;

/// Has the disk be full from this strike's point on, for a while.
pub(crate) fn arm_full(machine: &SimPlatform, strike: &Strike, random: &mut SplitMix, options: &mut Options) {
    let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let at_sync = pick(&[0, 0, 1]) == 1;
    let free_bytes = pick(&[0, 0, 1, 2, 5, 17]) * BLOCK_BYTES as u64;
    let for_how_long = Duration::from_micros(pick(&[2_000, 60_000, 300_000, 2_000_000, 9_000_000]));
    let is_eaten = pick(&[0, 1]) == 1;
    let scheduler = machine.scheduler().expect("made with one").clone();
    let disk = machine.disk().clone();
    if is_eaten {
        let disk = disk.clone();
        let eat = move || {
            if disk.is_limited() {
                disk.set_capacity_bytes(disk.used_bytes() + free_bytes);
            }
        };
        machine.crashes().arm("log.reserve-given-up", 1, CrashAction::Call(Box::new(eat)));
    }
    let (clock, spawn) = (machine.platform().clock, scheduler.clone());
    let fill = move || {
        disk.set_full_at_sync(at_sync);
        disk.set_capacity_bytes(disk.used_bytes() + free_bytes);
        let until = clock.monotonic() + for_how_long;
        spawn.spawn("room", Box::new(Room { disk, clock, until }));
    };
    machine.crashes().arm(&strike.point, strike.nth, CrashAction::Call(Box::new(fill)));
    options.platform.clock = Arc::new(SteppingClock { clock: machine.platform().clock, scheduler });
}

/// Room again, whether there was little or not: somebody has seen to it.
pub(crate) fn make_room(disk: &SimDisk) {
    disk.set_full_at_sync(false);
    disk.set_capacity_bytes(None);
}

/// Makes room when the time has come.
struct Room {
    disk: SimDisk,
    clock: Arc<dyn Clock>,
    until: Duration,
}

impl Task for Room {
    fn step(&mut self) -> Step {
        let now = self.clock.monotonic();
        if now < self.until {
            return Step::Wait(self.until - now);
        }
        make_room(&self.disk);
        Step::Done
    }
}

/// A clock whose sleepers step what is due meanwhile.
#[derive(Debug)]
struct SteppingClock {
    clock: Arc<dyn Clock>,
    scheduler: Scheduler,
}

impl Clock for SteppingClock {
    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, how_long: Duration) {
        self.clock.sleep(how_long);
        while self.scheduler.step_due() {}
    }
}
