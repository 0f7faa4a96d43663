//! The contract of a sink: where records go, and how that becomes visible exactly once.
//!
//! ```text
//!   write .. write | Barrier(n) | write ..          the writer, one per worker
//!                  |
//!                seal(n)      on the worker, cheap: what was written since Barrier(n-1) is closed
//!                  |
//!               prepare       beside the worker: made durable, so that commit can't be refused any more
//!                  v
//!            committable  ->  snapshot  ->  manifest n published  ->  permit  ->  commit group: commit, once or again
//! ```
//!
//! What exactly-once asks of a sink:
//!
//! * Nothing written is visible before commit; a prepared committable survives any crash and never times out.
//! * Prepare checks everything that could make commit fail, limits included; over a limit it answers
//!   [`SinkError::Declined`]. What was sealed exists nowhere else, so the attempt ends and the next one replays it.
//! * The prepares of one writer run one after the other, in the order of their seals.
//! * Commit is idempotent and covers all its committables in one atomic step, so that a reader never sees a part of a
//!   checkpoint.
//! * [`CommitGroup::fence`] shuts out every older attempt, whatever that attempt does afterwards (I-7); what older attempts
//!   prepared stays prepared.
//!
//! At-least-once asks less: records may be visible at once, as long as a checkpoint is complete only after everything written
//! before its barrier is durable (what `seal` and `Prepare` are for then).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::GuaranteeKind;
use crate::error::SinkError;
use crate::id::{Attempt, CheckpointId, JobId, WorkerIndex};
use crate::time::EventTime;

/// Where records go.
pub trait Sink: 'static {
    /// What it takes.
    type Item: Send + 'static;

    /// The guarantees it can honour, and why not more.
    fn honours(&self) -> Honours;

    /// The group that commits what its writers prepare; `None` for a sink that isn't transactional.
    fn group(&self) -> Option<Arc<dyn CommitGroup>>;

    /// Opens the writer of one worker.
    ///
    /// # Errors
    /// The sink can't be reached, or refuses.
    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = Self::Item>>, SinkError>;
}

/// What a connector can promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Honours {
    /// The guarantees.
    pub guarantees: Vec<GuaranteeKind>,
    /// Why those are all.
    pub reason: String,
}

/// Who is writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterId {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: Attempt,
    /// The sink's name in the job.
    pub sink: String,
    /// The worker.
    pub worker: WorkerIndex,
    /// When what it writes becomes visible.
    pub visibility: Visibility,
}

/// When what a writer writes becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// As it comes: at-most-once without checkpoints, at-least-once with them. Sealing then makes sure that everything written
    /// so far is durable, and prepares nothing to be committed.
    AtOnce,
    /// When the checkpoint it belongs to is committed.
    ByCheckpoint {
        /// The checkpoint whose barrier comes next.
        first: CheckpointId,
    },
}

/// Writes one worker's share.
pub trait SinkWriter {
    /// What it takes.
    type Item;

    /// Takes records. May block for a short time when the sink's own buffers are full.
    ///
    /// # Errors
    /// The attempt ends.
    fn write(&mut self, batch: Vec<Self::Item>) -> Result<(), SinkError>;

    /// Takes records with their event times; by default the times are dropped.
    ///
    /// # Errors
    /// The attempt ends.
    fn write_timed(&mut self, batch: Vec<(EventTime, Self::Item)>) -> Result<(), SinkError> {
        self.write(batch.into_iter().map(|(_, record)| record).collect())
    }

    /// Closes what was written before Barrier(`checkpoint`) and says how to make it durable; what is written from now on
    /// belongs to the next checkpoint. `None` if there is nothing to prepare.
    ///
    /// # Errors
    /// The attempt ends.
    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError>;

    /// Called once when no record will follow and there are no checkpoints: makes what was written visible.
    ///
    /// # Errors
    /// The attempt ends.
    fn finish(&mut self) -> Result<(), SinkError>;

    /// Records taken in calls that succeeded, of which it isn't known yet whether they are where they should be. Asked when an attempt
    /// without checkpoints has failed, to say what it lost. By default what was taken is there.
    fn unconfirmed(&self) -> u64 {
        0
    }
}

/// The durable half of preparing, run beside the worker: answers the handle with which it can be committed, or `None` if what
/// was sealed is durable and visible already ([`Visibility::AtOnce`]).
pub type Prepare = Box<dyn FnOnce() -> Result<Option<Vec<u8>>, SinkError> + Send>;

/// Commits what the sinks of one external system prepared: all sinks on one log form one group.
pub trait CommitGroup: Send + Sync + fmt::Debug {
    /// The group's name, stable across restarts; committables carry it.
    fn name(&self) -> &str;

    /// Shuts out every attempt of `job` below `attempt`, durably, and becomes that attempt.
    ///
    /// # Errors
    /// [`SinkError::Fenced`] if a higher attempt has been here.
    fn fence(&self, job: JobId, attempt: Attempt) -> Result<(), SinkError>;

    /// How many transactions of this job are prepared and undecided, for the report.
    ///
    /// # Errors
    /// The group can't be reached.
    fn prepared(&self) -> Result<usize, SinkError>;

    /// Commits all handles in one atomic step; those that are committed already stay so.
    ///
    /// # Errors
    /// [`SinkError::Fatal`] if a handle is unknown or was aborted: its output is lost, and that must be said loudly.
    fn commit(&self, handles: &[Vec<u8>]) -> Result<Committed, SinkError>;

    /// As [`CommitGroup::commit`], and hears with it how far sources have come that [follow](crate::source::Source::follow) this
    /// group: `marks` are theirs, in their own format. There may be marks and no handles. What is told must not be seen before
    /// what is committed, and best is seen with it. It may be told again, and older before newer, when a job is recovered.
    ///
    /// By default nobody is told.
    ///
    /// # Errors
    /// As [`CommitGroup::commit`].
    fn commit_and_tell(&self, handles: &[Vec<u8>], marks: &[Vec<u8>]) -> Result<Committed, SinkError> {
        let _ = marks;
        if handles.is_empty() { Ok(Committed::default()) } else { self.commit(handles) }
    }

    /// Aborts every transaction of this job that is neither committed nor in `keep`, found by listing; answers how many.
    /// Called before any worker runs.
    ///
    /// # Errors
    /// The group can't be reached.
    fn abort_all_but(&self, keep: &[Vec<u8>]) -> Result<usize, SinkError>;

    /// Lets the outcomes of these handles be forgotten: no retained manifest lists them any more.
    ///
    /// # Errors
    /// The group can't be reached.
    fn forget(&self, handles: &[Vec<u8>]) -> Result<(), SinkError>;

    /// Whether what the group writes to has room, and can stay open over a pause of the job. By default it is opened anew.
    fn room(&self) -> Room {
        Room::Unknown
    }
}

/// What a commit group knows of its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing, or what it writes to must be opened anew: a pause closes it.
    Unknown,
    /// It takes everything.
    Enough,
    /// It stays open, for its readers too, and takes again what makes it larger once there is room for so many bytes of the path.
    Lacking {
        /// What was to be written.
        path: PathBuf,
        /// Bytes of that.
        bytes: u64,
    },
}

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Handles committed now.
    pub now: usize,
    /// Handles that had been committed before.
    pub already: usize,
}
