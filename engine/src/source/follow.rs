//! How far a source has come, for whoever watches from outside: a consumer group's offsets, say.
//!
//! A source that has such a watcher names a [`Follow`]. Whenever a checkpoint is committed, the commit group that it names is told where
//! the source stood at that checkpoint's barriers, in the same call, so that both can become visible together. It is said of committed
//! checkpoints alone, so what is seen never runs ahead of what the job has promised. Nobody in the job reads it: where a source goes on is
//! in the checkpoint.

use std::fmt;
use std::sync::Arc;

use crate::id::CheckpointId;
use crate::sink::CommitGroup;
use crate::source::SplitState;

/// Tells a commit group how far a source has come.
pub trait Follow: Send + Sync + fmt::Debug {
    /// Who is told.
    fn group(&self) -> Arc<dyn CommitGroup>;

    /// What it is told of these splits of the source, as they stood at a checkpoint; `None` for nothing.
    fn mark(&self, checkpoint: CheckpointId, splits: &[SplitState]) -> Option<Vec<u8>>;
}
