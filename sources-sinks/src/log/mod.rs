//! The partition log as source and sink: embedded, or shared with other jobs through a broker.
//!
//! ```text
//!   job.log() --> LogHandle --.read("topic")--> LogSource     one split per partition, read-committed
//!                     |
//!                     +-------.write("topic")-> LogSink       a writer per worker, a transaction per checkpoint
//!                     |
//!                     +--------- LogCommitGroup               one per log: commits all sinks' transactions in one write
//! ```
//!
//! Reading order: this file (opening and sharing), [`record`] (what records are made of), [`source`], [`sink`] (what a program
//! says), [`writer`] (how it is done), [`group`] (commit), `follow` (how far a source has come, for others to see), [`place`] and `at` (here, or behind a broker), [`partition`].

pub mod group;
pub mod place;
pub mod record;
pub mod sink;
pub mod source;

mod at;
mod follow;
mod partition;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::error::BuildError;
use cutwater_engine::graph::{Environment, Job};
use cutwater_partition_log::remote::RemoteLog;
use cutwater_partition_log::{CloseError, Holder, Log, LogOptions, OpenError};
use cutwater_platform::Platform;

use at::At;

pub use cutwater_secure::{BrokerPlace, PasswordFrom, PlaceError, TlsPlace, UserPlace};
pub use group::LogCommitGroup;
pub use partition::partition_of_key;
pub use place::LogPlace;
pub use record::{Header, LogRecord, RecordBuf, ToRecord};
pub use sink::{Compression, LogSink};
pub use source::LogSource;

/// How long a job that is being started waits for its broker: long enough to start both at once.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The log's directory below the data directory, and what it is called in errors.
const NAME: &str = "log";

/// Gives a job its log.
pub trait JobLog {
    /// The partition log in the job's data directory, in `log`, or the one behind the broker that the run was told of
    /// ([`LogPlace`]). Opened once for the whole run and closed when it ends. If it can't be opened, the job is refused with the
    /// reason.
    fn log(&self) -> LogHandle;
}

impl JobLog for Job {
    fn log(&self) -> LogHandle {
        let shared = self.environment().shared(NAME, open);
        LogHandle { shared: shared.map_err(|e| self.refuse(e)).ok() }
    }
}

fn open(environment: &Environment) -> Result<SharedLog, BuildError> {
    match LogPlace::of(environment).map_err(|e| BuildError::refused("the place of the log", e))? {
        LogPlace::Embedded => open_here(environment),
        LogPlace::Broker(place) => {
            let refused =
                |error: &dyn fmt::Display| BuildError::refused(format!("the log at {}", place.address), error);
            let options = place.options(&environment.platform, &environment.name).map_err(|e| refused(&e))?;
            let log = RemoteLog::connect(&environment.platform, options, START_PATIENCE);
            let log = log.map_err(|e| refused(&e))?;
            Ok(SharedLog::new(environment.platform.clone(), At::Broker(log)))
        }
    }
}

fn open_here(environment: &Environment) -> Result<SharedLog, BuildError> {
    let dir = environment.dir.join(NAME);
    let holder = Holder { job: environment.name.clone(), ..Holder::default() };
    let options = LogOptions { holder, take_over: environment.take_over, ..LogOptions::default() };
    let log = Log::open(&environment.platform, &dir, options);
    let log = log.map_err(|e| {
        let what = format!("the log in {}", dir.display());
        match e {
            OpenError::Held { .. } | OpenError::TakeOver { .. } => BuildError::held(what, e),
            e => BuildError::refused(what, e),
        }
    })?;
    Ok(SharedLog::new(environment.platform.clone(), At::Here(log)))
}

/// An open log that closes itself cleanly when the run ends, and the group that commits what is written to it.
pub(crate) struct SharedLog {
    pub(crate) platform: Platform,
    pub(crate) at: At,
    pub(crate) group: Arc<LogCommitGroup>,
    /// Somebody else's, who closes it.
    lent: bool,
}

impl SharedLog {
    fn new(platform: Platform, at: At) -> SharedLog {
        let group = Arc::new(LogCommitGroup::new(at.clone(), platform.crash.clone()));
        SharedLog { platform, at, group, lent: false }
    }
}

impl Drop for SharedLog {
    fn drop(&mut self) {
        // Behind a broker, and where it is lent, it goes on without us.
        let At::Here(log) = &self.at else { return };
        if self.lent {
            return;
        }
        match log.close() {
            Ok(()) | Err(CloseError::Closed) => {}
            // Nothing is lost: the next open replays what this one could not put away.
            Err(error) => tracing::warn!(%error, "the log was not closed cleanly"),
        }
    }
}

/// A job's log. Cheap to clone.
#[derive(Clone)]
pub struct LogHandle {
    /// `None` if it could not be opened; the job has been refused then and will not run.
    shared: Option<Arc<SharedLog>>,
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.shared.is_some() { "LogHandle" } else { "LogHandle(not open)" })
    }
}

impl LogHandle {
    /// A handle to a log that the program has opened itself. It is closed when the last handle, source and sink have gone,
    /// unless the program has closed it before.
    pub fn of(platform: &Platform, log: Log) -> LogHandle {
        LogHandle { shared: Some(Arc::new(SharedLog::new(platform.clone(), At::Here(log)))) }
    }

    /// Has [`JobLog::log`] answer this log, which the program has opened itself, for the job that is being built; to be said first in its
    /// build function. It stays open when the run ends. So several runs share a log, each with a claim of its own, as those of several
    /// processes do behind a broker.
    ///
    /// # Errors
    /// The job has another log already.
    pub fn lend(log: &Log, job: &Job) -> Result<(), BuildError> {
        let lent = |environment: &Environment| {
            let mut shared = SharedLog::new(environment.platform.clone(), At::Here(log.clone()));
            shared.lent = true;
            Ok(shared)
        };
        let shared = job.environment().shared(NAME, lent)?;
        match shared.lent {
            true => Ok(()),
            false => Err(BuildError::refused("a log that is lent", "the job has opened its own before")),
        }
    }

    /// A handle to a log behind a broker that the program has connected to itself.
    pub fn through(platform: &Platform, log: RemoteLog) -> LogHandle {
        LogHandle { shared: Some(Arc::new(SharedLog::new(platform.clone(), At::Broker(log)))) }
    }

    /// Reads a topic, which must exist, from its oldest record on, waiting for more for ever. See [`LogSource`] for other
    /// beginnings and ends.
    pub fn read(&self, topic: impl Into<String>) -> LogSource {
        LogSource::new(self.clone(), topic.into())
    }

    /// Writes to a topic, which is created if it isn't there. Without a codec ([`LogSink::value`]) it takes what
    /// [`ToRecord`] has a form for: records, bytes, text, dead letters.
    pub fn write<T>(&self, topic: impl Into<String>) -> LogSink<T> {
        LogSink::new(self.clone(), topic.into())
    }

    /// The log itself, for everything else; `None` if it could not be opened, or is behind a broker ([`LogHandle::remote`]).
    pub fn log(&self) -> Option<&Log> {
        match &self.shared.as_ref()?.at {
            At::Here(log) => Some(log),
            At::Broker(_) => None,
        }
    }

    /// The log behind a broker, if that is where it is.
    pub fn remote(&self) -> Option<&RemoteLog> {
        match &self.shared.as_ref()?.at {
            At::Here(_) => None,
            At::Broker(log) => Some(log),
        }
    }

    pub(crate) fn shared(&self) -> Option<&Arc<SharedLog>> {
        self.shared.as_ref()
    }
}
