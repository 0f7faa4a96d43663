//! What can go wrong, per operation: who is to blame, where it happened, what to do next.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cutwater_platform::IoError;
use thiserror::Error;

use crate::config::GuaranteeKind;

/// The build function described a job that can't be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two operators have one name; state is found by name, so names must differ.
    #[error("two operators are named {name:?}; give one of them another name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name that can't stand in a path or a transaction's name.
    #[error("{name:?} can't be the name of an operator: use 1 to 200 letters, digits, '-', '_' or '.'")]
    BadName {
        /// The name.
        name: String,
    },
    /// An output that leads nowhere.
    #[error(
        "output {port} of {operator:?} leads nowhere; send it to a sink, or say .discard() if it may be thrown away"
    )]
    Unconsumed {
        /// The operator.
        operator: String,
        /// Which of its outputs.
        port: usize,
    },
    /// A job without a source.
    #[error("the job has no source; begin with job.source(..)")]
    NoSource,
    /// The build function described different graphs on different workers.
    #[error(
        "the build function made another graph on worker {worker} than at first: {difference}; it must not depend on \
             time, randomness or the worker"
    )]
    Unstable {
        /// The worker on which it differed.
        worker: usize,
        /// What differed.
        difference: String,
    },
    /// A connector can't honour the guarantee that was asked for.
    #[error("{operator:?} can't honour {wanted}: {reason}; it honours {honoured}")]
    Guarantee {
        /// The source or sink.
        operator: String,
        /// What was asked for.
        wanted: GuaranteeKind,
        /// What it honours.
        honoured: String,
        /// Why not more.
        reason: String,
    },
    /// Another process has what the job needs.
    #[error("{what}: {reason}")]
    Held {
        /// What is held.
        what: String,
        /// By whom, and what to do.
        reason: String,
    },
    /// A connector or another part of the job said no while it was being built.
    #[error("{what}: {reason}")]
    Refused {
        /// What was being built.
        what: String,
        /// Why it can't be, and what to do.
        reason: String,
    },
}

impl BuildError {
    /// `what` can't be built, because of `reason`.
    pub fn refused(what: impl Into<String>, reason: impl ToString) -> BuildError {
        BuildError::Refused { what: what.into(), reason: reason.to_string() }
    }

    /// `what` is in use by somebody else, as `reason` says.
    pub fn held(what: impl Into<String>, reason: impl ToString) -> BuildError {
        BuildError::Held { what: what.into(), reason: reason.to_string() }
    }
}

/// A source could not list its splits, open one, or read on. Ends the attempt; the next one goes on from the last checkpoint.
#[derive(Debug, Error)]
#[error("{what}: {reason}")]
pub struct SourceError {
    /// Which source and split, or file and line.
    pub what: String,
    /// What was expected, what was found, what to do.
    pub reason: String,
    /// True if trying again can't help: the run ends instead of restarting.
    pub fatal: bool,
}

impl SourceError {
    /// An error that a restart may cure.
    pub fn transient(what: impl Into<String>, reason: impl ToString) -> SourceError {
        SourceError { what: what.into(), reason: reason.to_string(), fatal: false }
    }

    /// An error that ends the run.
    pub fn fatal(what: impl Into<String>, reason: impl ToString) -> SourceError {
        SourceError { what: what.into(), reason: reason.to_string(), fatal: true }
    }
}

/// A sink could not write, prepare, commit or abort.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A newer attempt of this job has taken over; this one must end without a trace.
    #[error("a newer attempt of this job has taken over {what}")]
    Fenced {
        /// The sink or commit group.
        what: String,
    },
    /// This checkpoint's output can't be prepared; the attempt ends, nothing is lost, and the next one tries again.
    #[error("{what} could not prepare its output: {reason}")]
    Declined {
        /// The sink.
        what: String,
        /// Why, with the limit and the number found.
        reason: String,
    },
    /// It failed; the next attempt goes on from the last checkpoint.
    #[error("{what}: {reason}")]
    Failed {
        /// The sink or commit group.
        what: String,
        /// What happened.
        reason: String,
    },
    /// Something that must exist does not: going on would lose output. The run ends.
    #[error("{what}: {reason}")]
    Fatal {
        /// The sink or commit group.
        what: String,
        /// What is missing, and the way out.
        reason: String,
    },
    /// Whoever reads it has gone away and wants no more, as `head` does when it has its lines. If nothing else came of the job, and
    /// it promised nothing, the run ends with [`RunError::Unwanted`]; else this is a failure like any other.
    #[error("{what}: whoever read it has gone away")]
    Unwanted {
        /// The sink.
        what: String,
    },
}

impl SinkError {
    /// A newer attempt has taken over `what`.
    pub fn fenced(what: impl Into<String>) -> SinkError {
        SinkError::Fenced { what: what.into() }
    }

    /// `what` can't prepare this checkpoint's output, because of `reason`.
    pub fn declined(what: impl Into<String>, reason: impl ToString) -> SinkError {
        SinkError::Declined { what: what.into(), reason: reason.to_string() }
    }

    /// `what` failed, and a restart may cure it.
    pub fn failed(what: impl Into<String>, reason: impl ToString) -> SinkError {
        SinkError::Failed { what: what.into(), reason: reason.to_string() }
    }

    /// Going on would lose output of `what`: the run ends.
    pub fn fatal(what: impl Into<String>, reason: impl ToString) -> SinkError {
        SinkError::Fatal { what: what.into(), reason: reason.to_string() }
    }
}

/// An operator could not go on. Ends the attempt.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// What went wrong, in words; the next attempt may succeed.
    #[error("{0}")]
    Failed(String),
    /// A sink's writer said no; what kind of no decides how things go on.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// What an at-most-once run had read and not delivered when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Records that sources had read.
    pub read: u64,
    /// Records that sinks had written, confirmed if the sink hears of that at all.
    pub delivered: u64,
    /// Records that were between two operators or in the hand of one: lost.
    pub under_way: u64,
    /// Records that sinks were writing or had written without an answer: lost or not.
    pub unconfirmed: u64,
    /// Records that operators had taken into their state: lost as far as their results hadn't been emitted.
    pub absorbed: u64,
}

impl Loss {
    /// Records that certainly had no effect on the output.
    pub fn at_least(&self) -> u64 {
        self.under_way
    }

    /// Records that had none, or not all of it, at most.
    pub fn at_most(&self) -> u64 {
        self.under_way + self.unconfirmed + self.absorbed
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { read, delivered, under_way, unconfirmed, absorbed } = self;
        write!(f, "{read} records were read and {delivered} delivered; lost are {under_way} that were under way")?;
        if *unconfirmed > 0 {
            write!(f, ", of {unconfirmed} that were written no answer came")?;
        }
        if *absorbed > 0 {
            write!(f, ", and what {absorbed} records in states hadn't led to yet")?;
        }
        Ok(())
    }
}

/// Why a run ended without a report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The job could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The directory isn't one this job can use; nothing in it was changed.
    #[error("{0}")]
    Refused(String),
    /// This program can't go on from what is in the directory: another job graph, other types. Nothing in it was changed but
    /// the claim of an attempt.
    #[error("{0}")]
    Incompatible(String),
    /// A newer attempt of this job has taken over.
    #[error("a newer attempt of this job has taken over; this process ends without a trace")]
    Fenced,
    /// Attempt after attempt failed.
    #[error(
        "gave up after {attempts} attempts; the last one failed: {last}. Everything committed is kept; run again to go on"
    )]
    GaveUp {
        /// How many attempts there were in this run.
        attempts: u32,
        /// Why the last one failed.
        last: String,
    },
    /// A disk was full and stayed so while the job was paused: for longer than
    /// [`Options::wait_for_space`](crate::config::Options::wait_for_space), or until a stop was asked for.
    #[error(
        "no space on the disk of {}: waited {waited:?} for {needs_bytes} bytes{}; the last failure: {last}. Everything committed \
         is kept; run again to go on", path.display(), if *stopped { ", then a stop was asked for" } else { "" }
    )]
    NoSpace {
        /// What could not be written.
        path: PathBuf,
        /// The room that was asked for before going on.
        needs_bytes: u64,
        /// For how long the job was paused since its last committed checkpoint.
        waited: Duration,
        /// True if a stop ended the wait.
        stopped: bool,
        /// How the last attempt ended.
        last: String,
    },
    /// It failed in a way that a restart can't cure.
    #[error("{0}")]
    Fatal(String),
    /// An at-most-once job failed. It isn't restarted, and what it had read and not delivered is lost.
    #[error("{last}. An at-most-once job isn't restarted: {loss}")]
    Lost {
        /// Why it failed.
        last: String,
        /// What was lost, as far as it can be known.
        loss: Loss,
    },
    /// Whoever read the job's only output has gone away and wants no more: nothing is wrong, and nothing is left to do.
    #[error("{what}: whoever read it has gone away")]
    Unwanted {
        /// The sink.
        what: String,
    },
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] IoError),
}
