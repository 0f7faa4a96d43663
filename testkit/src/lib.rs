//! The simulated world, and the judge of what happened in it.

pub mod clock;
pub mod crash;
pub mod diff;
pub mod disk;
pub mod sim;

pub use clock::SimClock;
pub use crash::{CrashAction, CrashCounts, CrashSchedule, Strike};
pub use diff::{multiset_diff, sequence_diff};
pub use disk::{DiskOp, LossPolicy, NamePolicy, SimDisk, SyncFault, TraceEntry};
pub use sim::SimPlatform;
