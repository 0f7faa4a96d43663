//! What a checkpoint store must promise.
//!
//! * After Ok of a `publish`, `record` or `claim`, the thing is there whole, whatever happens; after an error it is there
//!   whole or not at all. None of them replaces anything.
//! * What a store shows to a reader is durable: it syncs what it found before it answers.
//! * Removing is durable when it answers Ok.
//! * A writer whose attempt isn't the newest is refused (I-7). The check can't be atomic with the write that follows it;
//!   what slips through is harmless, because recovery counts a manifest of an older attempt only if the chain of bases
//!   leads to it, and because the sinks have fenced that attempt before.
//! * A sync or rename that failed poisons the store: nothing can be written through it any more. After a sync that the disk failed,
//!   what is seen may not be on the disk although later syncs say so, for later attempts of the machine as well:
//!   [`CheckpointStore::lost_sync`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use cutwater_platform::{File, IoError};
use thiserror::Error;

use super::layout::{ManifestName, StateFileName};
use super::manifest::{EncodedManifest, Manifest};
use super::record::{Base, Claimant, CommittedRecord};
use crate::checkpoint::{BaseRecorded, Published};
use crate::id::{Attempt, JobId};

/// The right to write for a job, as one of its attempts. Got by claiming an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of job {}", self.attempt, self.job)
    }
}

/// Everything that is in a store, by name. Durable when it is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreListing {
    /// Claimed attempts, rising.
    pub attempts: Vec<Attempt>,
    /// Attempts whose base is recorded, rising.
    pub bases: Vec<Attempt>,
    /// Manifests, rising.
    pub manifests: Vec<ManifestName>,
    /// Manifests known to be committed, rising.
    pub committed: Vec<ManifestName>,
    /// State files, rising.
    pub state_files: Vec<StateFileName>,
    /// Files that no Cutwater has put there, below the store's directory; ignored.
    pub strangers: Vec<String>,
}

/// A checkpoint store refused or failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system failed. Nothing has changed, or the whole change is there.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A sync or a rename failed: it is unknown whether the change is there and durable. The store takes no more writes.
    #[error("it is unknown whether {what} is on the disk, because {source}; end this attempt and start the next one")]
    Unknown {
        /// What was being made durable.
        what: String,
        /// What failed.
        source: IoError,
    },
    /// An earlier sync or rename failed.
    #[error(
        "the checkpoint store takes no writes, because a sync or rename failed before: {first}; end this attempt and start the next one"
    )]
    Poisoned {
        /// What failed first.
        first: String,
    },
    /// The directory isn't a checkpoint store.
    #[error("{} is not a checkpoint store: {what}; choose an empty directory, or bring back what is missing", dir.display())]
    NotAStore {
        /// The directory.
        dir: PathBuf,
        /// What was found or missing.
        what: String,
    },
    /// A file is damaged, foreign or too new.
    #[error("{}: {problem}. Nothing has been changed. {way_out}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        way_out: &'static str,
    },
    /// The file is another job's.
    #[error("{} belongs to job {found}, and this store to job {expected}; take the file away", path.display())]
    OtherJob {
        /// The file.
        path: PathBuf,
        /// The store's job.
        expected: JobId,
        /// The file's.
        found: JobId,
    },
    /// A newer attempt has been claimed.
    #[error("{owner} has been replaced by attempt {by} and may not write any more")]
    Fenced {
        /// Who wanted to write.
        owner: Owner,
        /// The newest attempt.
        by: Attempt,
    },
    /// The owner is none of this store's.
    #[error("{owner} has not been claimed in this checkpoint store, whose job is {job}")]
    NotClaimed {
        /// Who wanted to write.
        owner: Owner,
        /// The store's job.
        job: JobId,
    },
    /// The name is taken by something else.
    #[error("{} exists already with other contents; nothing is ever replaced", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// Nothing has this name.
    #[error("{} doesn't exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
}

/// Where checkpoints of one job are kept. See the head of the module for what every implementation must promise.
pub trait CheckpointStore: Send + Sync + fmt::Debug {
    /// The job whose store this is.
    fn job(&self) -> JobId;
    /// Where it is, for people.
    fn place(&self) -> String;
    /// Everything in it, durable.
    ///
    /// # Errors
    /// [`StoreError`].
    fn list(&self) -> Result<StoreListing, StoreError>;
    /// The highest attempt that has a claim or a base, 0 if none has: where a claim begins to look for a free number. Whoever claims
    /// a higher one makes these names durable with its own, so nothing need be synced for the answer.
    ///
    /// # Errors
    /// [`StoreError`].
    fn highest_attempt(&self) -> Result<Attempt, StoreError> {
        let listing = self.list()?;
        Ok(listing.attempts.iter().chain(&listing.bases).copied().max().unwrap_or_default())
    }

    /// Claims an attempt; `None` when somebody has it already.
    ///
    /// # Errors
    /// [`StoreError`]; the attempt may then be claimed by nobody alive, which costs a number and nothing else.
    fn claim(&self, claimant: &Claimant) -> Result<Option<Owner>, StoreError>;
    /// Who claimed an attempt.
    ///
    /// # Errors
    /// [`StoreError`].
    fn claimant(&self, attempt: Attempt) -> Result<Claimant, StoreError>;
    /// Answers an error unless `owner` is the newest attempt.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] and others.
    fn check_owner(&self, owner: &Owner) -> Result<(), StoreError>;
    /// Records where an attempt starts. Repeating it with the same base is Ok.
    ///
    /// # Errors
    /// [`StoreError::Taken`] for another base, and others.
    fn record_base(&self, owner: &Owner, base: &Base) -> Result<BaseRecorded, StoreError>;
    /// Where an attempt started.
    ///
    /// # Errors
    /// [`StoreError`].
    fn base(&self, attempt: Attempt) -> Result<Base, StoreError>;

    /// Publishes a manifest: from now on its checkpoint is complete.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Unknown`] and [`StoreError::Fenced`] the manifest may be there, and the attempt must
    /// end without committing because of it. After any other error it isn't there and never will be.
    fn publish_manifest(&self, owner: &Owner, manifest: &EncodedManifest) -> Result<Published, StoreError>;
    /// Reads a manifest, checked, and makes sure that it is durable.
    ///
    /// # Errors
    /// [`StoreError`].
    fn manifest(&self, name: ManifestName) -> Result<(Manifest, Published), StoreError>;
    /// Removes manifests and what is recorded about them, durably, manifests first.
    ///
    /// # Errors
    /// [`StoreError`]; some may be gone.
    fn remove_manifests(&self, owner: &Owner, names: &[ManifestName]) -> Result<(), StoreError>;

    /// Records that everything a manifest lists is committed. Repeating it is Ok.
    ///
    /// # Errors
    /// [`StoreError`].
    fn record_committed(&self, owner: &Owner, record: &CommittedRecord) -> Result<(), StoreError>;
    /// Reads such a record.
    ///
    /// # Errors
    /// [`StoreError`].
    fn committed(&self, name: ManifestName) -> Result<CommittedRecord, StoreError>;

    /// Begins a state file.
    ///
    /// # Errors
    /// [`StoreError`].
    fn create_state_file(&self, owner: &Owner, name: &StateFileName) -> Result<Box<dyn StateFileOut>, StoreError>;
    /// Makes the names of all finished state files durable.
    ///
    /// # Errors
    /// [`StoreError`].
    fn sync_state_files(&self, owner: &Owner) -> Result<(), StoreError>;
    /// Opens a state file for reading.
    ///
    /// # Errors
    /// [`StoreError`].
    fn open_state_file(&self, name: &str) -> Result<Arc<dyn File>, StoreError>;
    /// Removes state files, durably. Those that are gone already don't matter.
    ///
    /// # Errors
    /// [`StoreError`]; some may be gone.
    fn remove_state_files(&self, owner: &Owner, names: &[StateFileName]) -> Result<(), StoreError>;
    /// Removes what crashes have left half written. Only to be called once the owner's base is recorded. Returns how many
    /// files there were.
    ///
    /// # Errors
    /// [`StoreError`].
    fn remove_temporaries(&self, owner: &Owner) -> Result<usize, StoreError>;

    /// The first sync that the disk failed, in words. What it was to make durable can still be seen, and every later sync says Ok
    /// although the disk may never get it: an attempt that acts on it would commit output because of a manifest that a power cut
    /// takes away. Only a restart of the machine shows what is there.
    fn lost_sync(&self) -> Option<String> {
        None
    }
}

/// What the system says when the disk fails; the standard library has no kind of error for it.
const EIO: i32 = 5;

/// True if the disk failed a sync: of a file, of a directory, or of the names of directories that were being created.
pub(crate) fn is_lost_sync(error: &IoError) -> bool {
    let syncs = error.action.starts_with("sync") || error.action == CREATE_DIRS;
    syncs && error.source.raw_os_error() == Some(EIO)
}

/// Creating directories syncs their names.
pub(crate) const CREATE_DIRS: &str = "create the directory";

/// A state file being written.
pub trait StateFileOut {
    /// Appends bytes; not durable yet.
    ///
    /// # Errors
    /// [`StoreError`].
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Appends parts of whole units of 4096 bytes, in memory that begins at such a boundary; not durable yet. A store on a disk may
    /// write them past the system's cache.
    ///
    /// # Errors
    /// [`StoreError`].
    fn write_units(&mut self, parts: &[&[u8]]) -> Result<(), StoreError> {
        parts.iter().try_for_each(|part| self.write(part))
    }
    /// Makes the bytes durable. The name is so only after [`CheckpointStore::sync_state_files`].
    ///
    /// # Errors
    /// [`StoreError`].
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}
