//! Life of a checkpoint: triggered, pending, completed (its manifest exists), committed, retired.

mod snapshot_ref;

pub use snapshot_ref::{Blob, Committable, Counters, SnapshotRef, StateChain, StateFile, StateFileKind};
