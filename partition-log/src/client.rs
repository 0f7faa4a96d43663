//! Words of Kafka clients with transactional ids: who they are to the log, and why it refuses them.

use std::collections::BTreeSet;
use std::time::Duration;

use cutwater_platform::WallTime;
use thiserror::Error;

use crate::error::{Down, OutcomeUnknown};
use crate::group::GroupError;
use crate::offset::Offset;
use crate::topic::TopicPartition;
use crate::wal::frame::Outcome;

/// A producer id with its epoch: what a client shows with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProducer {
    /// The producer id.
    pub producer: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPhase {
    /// It has begun no transaction since it was initialised.
    Empty,
    /// A transaction is open.
    Ongoing,
    /// Its last transaction has ended like this.
    Ended(Outcome),
}

/// A client as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its transactional id.
    pub id: String,
    /// Its producer id and epoch.
    pub producer: ClientProducer,
    /// Where it stands.
    pub phase: ClientPhase,
    /// How long a transaction of it may stay open.
    pub timeout: Duration,
    /// When its open transaction was begun.
    pub open_since: Option<WallTime>,
    /// The partitions of its open transaction.
    pub partitions: BTreeSet<TopicPartition>,
    /// The groups that its open transaction holds offsets of.
    pub groups: Vec<String>,
}

/// A producer as one partition knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerInfo {
    /// Its id and newest epoch here.
    pub producer: ClientProducer,
    /// The last sequence of its newest batch, if one is remembered.
    pub last_sequence: Option<i32>,
    /// When its newest batch or marker came.
    pub since: WallTime,
    /// The first offset of its open transaction here.
    pub open_from: Option<Offset>,
}

/// A client's request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// No client can have this id.
    #[error("{} bytes can't be a transactional id: use 1 to 4096", id.len())]
    InvalidId {
        /// The id.
        id: String,
    },
    /// Nobody has initialised this id.
    #[error("transactional id \"{id}\" is unknown; initialise it first")]
    Unknown {
        /// The id.
        id: String,
    },
    /// The producer id isn't the client's.
    #[error("producer id {producer} doesn't belong to transactional id \"{id}\"")]
    OtherProducer {
        /// The id.
        id: String,
        /// The producer id that came with it.
        producer: i64,
    },
    /// A newer incarnation of the client has been initialised, or its transaction took too long.
    #[error("epoch {epoch} of transactional id \"{id}\" is not the current one, which is {current}; stop")]
    Fenced {
        /// The id.
        id: String,
        /// The epoch that came with it.
        epoch: i16,
        /// The epoch that may write.
        current: i16,
    },
    /// No transaction is open, or it has ended the other way.
    #[error("transactional id \"{id}\" has no open transaction")]
    NotOpen {
        /// The id.
        id: String,
    },
    /// There is no such partition.
    #[error("{at} doesn't exist; create the topic first")]
    UnknownPartition {
        /// The partition.
        at: TopicPartition,
    },
    /// The transaction could not be ended with so many partitions.
    #[error("{partitions} partitions are too many for one transaction of \"{id}\"; split it, or raise the limit")]
    TooManyPartitions {
        /// The id.
        id: String,
        /// How many it would have.
        partitions: usize,
    },
    /// The log knows too many clients.
    #[error("the log knows {limit} transactional ids and can't know more; use fewer, or raise client_ids_max")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The offsets of a group can't be taken.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}
