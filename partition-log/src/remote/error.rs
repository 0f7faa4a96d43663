//! What can go wrong between a job and the process that serves its log.

use std::time::Duration;

use thiserror::Error;

use super::answer::{Refusal, Why};
use super::entry::EntryError;
use crate::topic::TopicPartition;

/// A request wasn't carried out, or it isn't known whether it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RemoteError {
    /// Nobody answers there.
    #[error(
        "no broker answers at {address} (for {tried:?}; {reason}). Start one there, `cutwater broker --data DIR --listen {address}`, or \
         name the address of the one that runs"
    )]
    Away {
        /// The address.
        address: String,
        /// What was met at the last try.
        reason: String,
        /// For how long it was tried.
        tried: Duration,
    },
    /// Somebody answers who can't do what a job needs.
    #[error(
        "what answers at {address} is no Cutwater broker: {found}. Exactly-once output needs transactions that are prepared and then end \
         together (API 17237), which Apache Kafka and others don't have; name the address of a `cutwater broker`"
    )]
    Foreign {
        /// The address.
        address: String,
        /// What it said.
        found: String,
    },
    /// Somebody answers, and it doesn't come to a connection: TLS, or the user.
    #[error("the broker at {address} can't be entered: {error}")]
    Entry {
        /// The address.
        address: String,
        /// Why, and what to do about it.
        error: EntryError,
    },
    /// The connection went down behind a request that may be sent only once, or for too long: it is unknown whether it was carried out.
    #[error(
        "the connection to the broker at {address} was lost: {reason}; it is unknown whether \"{during}\" was carried out"
    )]
    Lost {
        /// The address.
        address: String,
        /// What was asked.
        during: &'static str,
        /// What was met.
        reason: String,
    },
    /// The log refused it.
    #[error("{0}")]
    Refused(Refusal),
    /// The partition can't be read where its reader stands.
    #[error("{at} can't be read at offset {offset}: {what} (Kafka's error {code})")]
    Unreadable {
        /// The partition.
        at: TopicPartition,
        /// Where the reader stands.
        offset: u64,
        /// In words.
        what: &'static str,
        /// Kafka's code.
        code: i16,
    },
    /// Batches that came aren't batches.
    #[error("what the broker sent of {at} at offset {offset} is damaged: {what}")]
    Damaged {
        /// The partition.
        at: TopicPartition,
        /// Where the reader stands.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

impl RemoteError {
    /// Why the log refused it, if it did.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            RemoteError::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether a newer attempt of the job writes.
    pub fn is_fenced(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.why == Why::Fenced)
    }

    /// Whether the same may go well later, without anybody changing the job: the broker may come back, and what was lost with it is
    /// written again from the last checkpoint.
    pub fn may_pass(&self) -> bool {
        match self {
            RemoteError::Away { .. } | RemoteError::Lost { .. } => true,
            RemoteError::Refused(refusal) => {
                matches!(refusal.why, Why::Down | Why::OutcomeUnknown | Why::NotOpen | Why::Incomplete)
            }
            RemoteError::Foreign { .. }
            | RemoteError::Entry { .. }
            | RemoteError::Unreadable { .. }
            | RemoteError::Damaged { .. } => false,
        }
    }
}
