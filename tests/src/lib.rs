//! What the whole-pipeline tests share: a simulated machine that survives crashes, a golden job, and its independent judge.
//!
//! A *case* is a list of strikes, one per life of the machine. In each life the same program runs with real threads over the
//! simulated disk until it finishes or the power goes off at the armed point; then the disk loses what its policy says and the
//! next life begins, with another number of workers. The last life is not struck. What readers then see must be exactly
//! what plain Rust computes from the input.

#![forbid(unsafe_code)]

pub mod golden;
pub mod meeting;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::random::Seeded;
use cutwater_platform::{NoNet, Platform, SystemClock, Threads};
use cutwater_testkit::{CrashAction, CrashCounts, LossPolicy, RefusingFiles, SimDisk};

/// A machine with a simulated disk, real threads and a real clock.
pub struct Machine {
    disk: SimDisk,
    files: RefusingFiles,
    crashes: CrashCounts,
    seed: u64,
}

/// What the end of a life does to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process was killed; the operating system still has what it wrote.
    Kill,
    /// The power went off.
    PowerOff(LossPolicy),
}

impl Machine {
    /// A machine with an empty disk.
    pub fn new(seed: u64) -> Machine {
        Machine::on(SimDisk::new(), seed)
    }

    /// A machine with this disk.
    pub fn on(disk: SimDisk, seed: u64) -> Machine {
        // The state of the golden job that most depends on being whole.
        let is_counts = |path: &Path| {
            let in_store = path.parent().is_some_and(|dir| dir.ends_with("checkpoints/state"));
            in_store && path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("-counts"))
        };
        Machine { files: RefusingFiles::new(disk.clone(), is_counts), disk, crashes: CrashCounts::new(), seed }
    }

    /// Another machine with a copy of this one's disk.
    pub fn fork(&self, seed: u64) -> Machine {
        Machine::on(self.disk.fork(), seed)
    }

    /// Another process on the same disk, with crash points of its own.
    pub fn share(&self, seed: u64) -> Machine {
        Machine::on(self.disk.clone(), seed)
    }

    /// Does `action` when `point` is reached for the `nth` time.
    pub fn call_at(&self, point: &str, nth: u64, action: CrashAction) {
        self.crashes.arm(point, nth, action);
    }

    /// Does `action` when `point` is reached for the first time after `after` was reached for the `nth` time.
    pub fn call_next(&self, point: &'static str, after: &str, nth: u64, action: CrashAction) {
        let crashes = self.crashes.clone();
        let arm = move || crashes.arm(point, 1, action);
        self.crashes.arm(after, nth, CrashAction::Call(Box::new(arm)));
    }

    /// Its world.
    pub fn platform(&self) -> Platform {
        Platform {
            files: Arc::new(self.files.clone()),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(Seeded::new(self.seed)),
            spawn: Arc::new(Threads),
            net: Arc::new(NoNet),
            crash: self.crashes.points(),
        }
    }

    /// Its disk, to fill it up or to damage it.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Its files, to refuse state files of running counts: a checkpoint that needs one is declined, and everything else works.
    pub fn state_files(&self) -> &RefusingFiles {
        &self.files
    }

    /// The data directory on its disk.
    pub fn dir(&self) -> PathBuf {
        PathBuf::from("data")
    }

    /// Turns the power off when `point` is reached for the `nth` time.
    pub fn strike(&self, point: &str, nth: u64) {
        self.crashes.arm(point, nth, CrashAction::PowerOff(self.disk.clone()));
    }

    /// Which points were reached, and how often.
    pub fn reached(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.crashes.reached()
    }

    /// True once the power is off.
    pub fn is_off(&self) -> bool {
        self.disk.is_off()
    }

    /// The machine's next life.
    pub fn next_life(&self, end: End) -> Machine {
        let seed = self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(1);
        match end {
            End::Kill => Machine::on(self.disk.kill(), seed),
            End::PowerOff(policy) => Machine::on(self.disk.restart(policy, seed), seed),
        }
    }
}
