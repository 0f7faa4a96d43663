//! Words of consumer groups: a group's offset in a partition, and what may be asked for.

use std::collections::{BTreeMap, BTreeSet};

use cutwater_platform::WallTime;
use thiserror::Error;

use crate::error::{Down, Fenced, OutcomeUnknown};
use crate::offset::Offset;
use crate::owner::TxnId;
use crate::topic::TopicPartition;

/// The longest name of a group, in bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 249;
/// The longest text beside an offset, in bytes: what Kafka's brokers take by default.
pub const METADATA_BYTES_MAX: usize = 4096;

/// Where a group shall go on in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The partition.
    pub at: TopicPartition,
    /// The next offset that it wants to read. Not compared with the partition's end, as in Kafka.
    pub offset: Offset,
    /// Any text of at most 4096 bytes.
    pub metadata: String,
}

impl From<(TopicPartition, Offset)> for OffsetCommit {
    fn from((at, offset): (TopicPartition, Offset)) -> OffsetCommit {
        OffsetCommit { at, offset, metadata: String::new() }
    }
}

/// Where a group stands that nobody reads as: a job's, for whoever watches how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    /// The group's name.
    pub group: String,
    /// Where it stands.
    pub offsets: Vec<OffsetCommit>,
}

/// Where a group goes on in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// The next offset that it wants to read.
    pub offset: Offset,
    /// The text that was given with it.
    pub metadata: String,
    /// When it was handed in, by the log's clock.
    pub since: WallTime,
}

/// What a group has committed. A partition that isn't listed has no offset: unknown is never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupOffsets {
    /// By partition.
    pub offsets: BTreeMap<TopicPartition, GroupOffset>,
    /// Live transactions of owners that hold offsets of the group: these may still change what is above (Kafka's
    /// `UNSTABLE_OFFSET_COMMIT`).
    pub pending: Vec<TxnId>,
    /// The partitions whose offsets they, or transactions of Kafka clients, may still change.
    pub unstable: BTreeSet<TopicPartition>,
}

/// A group's offsets weren't committed, read or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GroupError {
    /// A newer attempt writes.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The transaction isn't open: it was prepared, or somebody has ended it.
    #[error("transaction {id} is not open, so it takes no offsets")]
    NotOpen {
        /// Its name.
        id: TxnId,
    },
    /// There is no such partition.
    #[error("{at} doesn't exist; create the topic first")]
    UnknownPartition {
        /// The partition.
        at: TopicPartition,
    },
    /// A group can't have this name.
    #[error("\"{name}\" is no name of a group: use 1 to {GROUP_NAME_BYTES_MAX} bytes without control characters")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The offset is beyond what a partition can have.
    #[error("offset {offset} of {at} is larger than any offset can be")]
    InvalidOffset {
        /// The partition.
        at: TopicPartition,
        /// The offset.
        offset: Offset,
    },
    /// The text beside an offset is too long.
    #[error("the text for {at} has {bytes} bytes, more than {METADATA_BYTES_MAX}; shorten it")]
    Metadata {
        /// The partition.
        at: TopicPartition,
        /// Bytes of the text.
        bytes: usize,
    },
    /// So many offsets don't fit one entry of the log.
    #[error(
        "the offsets take {bytes} bytes, more than {limit}; commit fewer partitions at once, or raise end_bytes_max"
    )]
    TooLarge {
        /// Bytes that they take.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The log keeps too many offsets.
    #[error("the log keeps {limit} offsets of groups and can't keep more; delete groups, or raise group_offsets_max")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The group can't be deleted while transactions hold offsets of it.
    #[error("group \"{group}\" has offsets in {} live transactions, the first is {}: end those first", transactions.len(), transactions[0])]
    Pending {
        /// The group.
        group: String,
        /// The transactions in words; at least one.
        transactions: Vec<String>,
    },
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}
