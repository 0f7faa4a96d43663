//! Life of a checkpoint: triggered, pending, completed (its manifest exists), committed, retired.

mod ledger;
mod part_times;
mod patience;
mod pending;
mod permit;
mod retain;
mod snapshot_ref;
#[cfg(test)]
mod test_parts;

pub use ledger::{Declined, Ledger, ManifestDraft, Overdue, Pace, Trigger};
pub use part_times::PartTimes;
pub use patience::{OutOfPatience, Patience};
pub use pending::{Accepted, DeclineReason, Incomplete, PendingCheckpoint, Settled, SnapshotReport};
pub use permit::{Permit, Published};
pub use retain::{BaseRecorded, Retirement, StoredManifest, retire, sweep};
pub use snapshot_ref::{Blob, CHANNEL_STATE, Committable, Counters, SnapshotRef, StateChain, StateFile, StateFileKind};
