//! The simulated world, and the judge of what happened in it.
//!
//! ```text
//!              SimPlatform (one seed)
//!    ┌───────────┬────────┴──┬────────────┬──────────────┐
//!  SimDisk    SimClock     Seeded    Inline tasks    CrashCounts        twins of cutwater-platform's traits
//!    │                                                   │
//!    │ crash_at_step(n), LossPolicy                      │ CrashSchedule: one strike per point and visit
//!    └────────────────────────┬──────────────────────────┘
//!                             v
//!                 the code under test, life after life
//!                             │ what it was asked and answered
//!                             v
//!                 History ──> check() ──> Report: fifteen kinds of anomalies, each with its evidence
//! ```
//!
//! The shape of a crash test: run once and count the steps; then, for each step and each [`LossPolicy`], fork the disk,
//! strike there, restart, recover, and look whether everything acknowledged is there and nothing else.
//!
//! ```
//! use cutwater_platform::Files;
//! use cutwater_testkit::{CrashSchedule, LossPolicy, SimDisk};
//! use std::path::Path;
//!
//! let write = |disk: &SimDisk| disk.publish_bytes(Path::new("manifest"), b"complete");
//! let dry = SimDisk::new();
//! write(&dry)?;
//! for step in CrashSchedule::steps(dry.steps(), 1_000, 42) {
//!     let disk = SimDisk::new();
//!     disk.crash_at_step(step);
//!     assert!(write(&disk).is_err());
//!     for policy in LossPolicy::ALL {
//!         let found = disk.restart(policy, step).read(Path::new("manifest"), 100);
//!         assert!(found.map_or(true, |bytes| bytes == b"complete"), "step {step} {policy:?}\n{}", disk.trace_text());
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Reading order: [`disk`] (what a power cut leaves), [`refusing`] (files that can't be made), [`clock`], [`scheduler`] (who runs when), [`sim`] (the whole machine), [`crash`] (points, counts,
//! schedules), [`history`] (what was asked and answered), [`checker`] (what is wrong with it), [`diff`] (two sequences
//! compared). How to run and replay: `docs/testing.md`.
//!
//! Depends on `cutwater-platform` alone: engine and log are judged from outside.

#![forbid(unsafe_code)]

pub mod checker;
pub mod clock;
pub mod crash;
pub mod diff;
pub mod disk;
pub mod history;
pub mod refusing;
pub mod scheduler;
pub mod sim;

pub use checker::{Anomaly, AnomalyKind, Report, assert_clean, check};
pub use clock::SimClock;
pub use crash::{CrashAction, CrashCounts, CrashSchedule, Strike};
pub use diff::{multiset_diff, sequence_diff};
pub use disk::{DiskOp, LossPolicy, NamePolicy, OpFault, SimDisk, SyncFault, TraceEntry};
pub use history::{Attempt, Call, Checkpoint, History, Op, Outcome, Recorder, TxnId, Value};
pub use refusing::RefusingFiles;
pub use scheduler::{Scheduler, SchedulerLimits};
pub use sim::SimPlatform;
