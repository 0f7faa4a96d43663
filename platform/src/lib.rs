//! The world behind traits, so that a test can own it.
//!
//! ```text
//!   engine, partition-log, sources-sinks            decide; never touch the world themselves
//!        |        |         |        |        |
//!      Files    Clock    Random   Spawn  Net  CrashPoints     one trait (or hook) each, bundled in `Platform`
//!        |        |         |        |        |
//!   this crate: the real adapters          cutwater-testkit: the simulated twins
//! ```
//!
//! This is the only library crate in which `std::fs`, the wall clock and the spawning of threads are allowed (timely
//! spawns its own worker threads). Everything durable goes through [`Files`]: a crash test is then a backend, not a mock.
//!
//! Reading order: [`files`] (what is asked of a disk, and what it must promise), [`aligned`] (buffers for synced writes),
//! [`room`] (a full disk is no failed disk), [`os_files`], [`spawn`] (tasks that a thread or a test can step), [`turns`] (threads that run one after the other), [`completion`] (waiting for one answer), [`clock`],
//! [`random`], [`net`] (connections of clients), [`crash`] (named points at which a test, or a real `kill -9`, may strike).

#![forbid(unsafe_code)]

pub mod aligned;
pub mod clock;
pub mod completion;
pub mod crash;
pub mod files;
pub mod net;
pub mod os_files;
pub mod random;
pub mod room;
pub mod spawn;
pub mod turns;
pub mod wakes;

use std::sync::Arc;

pub use aligned::{AlignedBuf, BLOCK_BYTES};
pub use clock::{Clock, SystemClock, WallTime};
pub use completion::Completion;
pub use crash::{CrashHook, CrashPoints, KillSelf};
pub use files::{DirEntry, File, Files, IoContext, IoError, Lock, Open};
pub use net::{Connection, Net, NetError, NoNet, OsNet};
pub use os_files::OsFiles;
pub use random::{OsRandom, Random, SplitMix};
pub use spawn::{Inline, Spawn, Step, Stepped, Task, TaskHandle, Threads};
pub use turns::{Did, Turn, Turns};
pub use wakes::Wakes;

/// The world a part of Cutwater lives in: files, clock, randomness, threads, network and crash points.
///
/// Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Everything durable.
    pub files: Arc<dyn Files>,
    /// Wall clock and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers that must not repeat (job ids, lock nonces).
    pub random: Arc<dyn Random>,
    /// Threads, or their inline twin.
    pub spawn: Arc<dyn Spawn>,
    /// Connections to other processes.
    pub net: Arc<dyn Net>,
    /// Named points at which a test may stop the world. Does nothing unless armed.
    pub crash: CrashPoints,
}

impl Platform {
    /// The real world: this machine's file system, clock, randomness and threads. A crash point can be armed from
    /// outside through the environment variable `CUTWATER_CRASH_AT` (see [`KillSelf::from_env`]).
    pub fn real() -> Platform {
        Platform {
            files: Arc::new(OsFiles::new()),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(OsRandom),
            spawn: Arc::new(Threads),
            net: Arc::new(OsNet),
            crash: KillSelf::from_env().map(CrashPoints::armed).unwrap_or_default(),
        }
    }
}
