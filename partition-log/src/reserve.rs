//! Room on the disk that is taken in good time, and given up when there is no other.
//!
//! A file without content beside the log. Given up, it lets what was accepted become durable and reach the segments, transactions end,
//! and records, topics and old segments be deleted, while nothing is accepted any more that makes the log larger ([`crate::room`]).
//! It is made when the log is opened, if there is so much room; the materialiser makes it again once there is.
//!
//! It promises little: others may write to the same disk. Larger than what may be queued and unmaterialised together
//! ([`crate::LogLimits`]), with twice the state's image besides, it is enough if nobody else does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutwater_platform::{Files, Open};

/// Its name in the log's directory.
pub(crate) const NAME: &str = "reserve";

/// The file, or its absence.
#[derive(Debug)]
pub(crate) struct Reserve {
    files: Arc<dyn Files>,
    path: PathBuf,
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_there: bool,
    /// When it was last tried to make it.
    tried: Option<Duration>,
}

impl Reserve {
    /// None yet. Of no bytes, there never is one.
    pub(crate) fn new(files: Arc<dyn Files>, log_dir: &Path, bytes: u64) -> Reserve {
        Reserve { files, path: log_dir.join(NAME), bytes, state: Mutex::default() }
    }

    /// Whether it is missing and hasn't been tried for since `rest` before `now`.
    pub(crate) fn is_due(&self, now: Duration, rest: Duration) -> bool {
        let state = self.state();
        self.bytes > 0 && !state.is_there && state.tried.is_none_or(|tried| now.saturating_sub(tried) >= rest)
    }

    /// Makes it if there is room; true if it is there now.
    pub(crate) fn make(&self, now: Duration) -> bool {
        let mut state = self.state();
        state.tried = Some(now);
        let made = self.files.open(&self.path, Open::Create).and_then(|file| file.take_room(self.bytes));
        if let Err(error) = &made {
            tracing::debug!(%error, path = %self.path.display(), "no room for a reserve");
            // A part of it would only be in the way.
            let _ = self.files.remove_file(&self.path);
        }
        state.is_there = made.is_ok();
        state.is_there
    }

    /// Gives the room back to the disk; false if there was none to give.
    pub(crate) fn give_up(&self) -> bool {
        let mut state = self.state();
        std::mem::take(&mut state.is_there) && self.files.remove_file(&self.path).is_ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
