//! What the threads of one attempt share: whether it must end, and why.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;

use crate::error::{BuildError, RunError, SinkError, SourceError};
use crate::recovery::Refusal;
use crate::snapshot::{StoreError, is_lost_sync};
use crate::state::StateLoadError;

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The next attempt may succeed.
    Restart(String),
    /// No attempt can.
    Fatal(String),
    /// A newer attempt has taken over.
    Fenced,
    /// The directory is somebody else's.
    Refused(String),
    /// This program can't go on from what is in the directory.
    Incompatible(String),
    /// Nobody reads what this sink writes any more.
    Unwanted { sink: String },
}

impl Failure {
    /// The disk failed a sync of the checkpoint store: the next attempt of this process would see, and act on, what may not be there.
    pub(crate) fn lost_sync(what: &str) -> Failure {
        Failure::Fatal(format!(
            "the disk failed a sync of the checkpoint store ({what}). What the store shows may not be on the disk: look at the disk, \
             restart the machine, run the job again"
        ))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Fenced => f.write_str("a newer attempt has taken over"),
            Failure::Unwanted { sink } => write!(f, "{sink}: whoever read it has gone away"),
            Failure::Restart(text) | Failure::Fatal(text) | Failure::Refused(text) | Failure::Incompatible(text) => {
                f.write_str(text)
            }
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        if error.fatal { Failure::Fatal(error.to_string()) } else { Failure::Restart(error.to_string()) }
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Failure {
        match error {
            SinkError::Fenced { .. } => Failure::Fenced,
            SinkError::Fatal { .. } => Failure::Fatal(error.to_string()),
            SinkError::Unwanted { what } => Failure::Unwanted { sink: what },
            other => Failure::Restart(other.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            StoreError::Fenced { .. } => Failure::Fenced,
            StoreError::Unknown { what, source } if is_lost_sync(&source) => {
                Failure::lost_sync(&format!("{what}: {source}"))
            }
            StoreError::Io(_) | StoreError::Unknown { .. } | StoreError::Poisoned { .. } => {
                Failure::Restart(error.to_string())
            }
            StoreError::NotAStore { .. } | StoreError::OtherJob { .. } => Failure::Refused(error.to_string()),
            // What is damaged or missing is so for the next attempt too.
            other => Failure::Fatal(other.to_string()),
        }
    }
}

impl From<StateLoadError> for Failure {
    fn from(error: StateLoadError) -> Failure {
        match error {
            StateLoadError::Schema { .. } | StateLoadError::Entry { .. } | StateLoadError::Migration { .. } => {
                Failure::Incompatible(error.to_string())
            }
            other => Failure::Fatal(other.to_string()),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Foreign { .. } => Failure::Incompatible(refusal.to_string()),
            other => Failure::Fatal(other.to_string()),
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Failure {
        Failure::Fatal(error.to_string())
    }
}

/// Of an attempt that nobody will repeat.
impl From<Failure> for RunError {
    fn from(failure: Failure) -> RunError {
        match failure {
            Failure::Fenced => RunError::Fenced,
            Failure::Fatal(text) | Failure::Restart(text) => RunError::Fatal(text),
            Failure::Refused(text) => RunError::Refused(text),
            Failure::Incompatible(text) => RunError::Incompatible(text),
            Failure::Unwanted { sink } => RunError::Unwanted { what: sink },
        }
    }
}

/// Shared by all workers of an attempt. The first failure stands; whatever fails afterwards is its consequence.
#[derive(Debug, Default)]
pub(crate) struct AttemptState {
    over: AtomicBool,
    left: AtomicBool,
    failure: Mutex<Option<Failure>>,
    workers: Mutex<Vec<Thread>>,
}

impl AttemptState {
    /// Registers the calling worker thread, to be woken when the attempt is over.
    pub(crate) fn join_in(&self) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(std::thread::current());
    }

    /// Ends the attempt. Capabilities stay where they are: nobody may take what hasn't happened for done (I-11).
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.over.store(true, Ordering::SeqCst);
        for thread in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            thread.unpark();
        }
    }

    /// True once the attempt has failed.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// True for the first worker that asks: it alone does what need be done once.
    pub(crate) fn is_first_to_leave(&self) -> bool {
        !self.left.swap(true, Ordering::Relaxed)
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
