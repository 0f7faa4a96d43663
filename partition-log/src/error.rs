//! What can go wrong, operation by operation.
//!
//! Two answers need care by callers. *Fenced* means that a newer attempt of the owner writes: stop, don't retry.
//! *OutcomeUnknown* means that the disk failed, or was full, while the request was on its way: it may have happened or not. After a
//! failure only reopening the log tells; what a full disk holds up happens once there is room. Every other error means that nothing has happened.

use std::path::PathBuf;

use cutwater_platform::IoError;
use thiserror::Error;

use crate::batch::BatchError;
use crate::offset::Offset;
use crate::owner::{OwnerId, TxnId};
use crate::producer::SequenceError;
use crate::room::NoRoom;
use crate::topic::{InvalidName, TopicPartition};

/// Why a log takes no requests: any more, or for now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Down {
    /// For now: its disk is full. Nothing of the request has happened; reading goes on.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A write or sync failed: what is on the disk is unknown until the log is opened again.
    #[error(
        "the log has stopped because its disk failed: {reason}; look at the disk and restart the machine, which may show what the disk doesn't have, then reopen the log"
    )]
    Poisoned {
        /// What failed.
        reason: String,
    },
    /// It was closed.
    #[error("the log has been closed")]
    Closed,
}

/// A newer attempt of the owner has claimed the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "attempt {attempt} of owner {owner} is fenced: attempt {current} has claimed the log; stop, and write nothing more"
)]
pub struct Fenced {
    /// The owner.
    pub owner: OwnerId,
    /// The attempt that asked.
    pub attempt: u64,
    /// The attempt that may write.
    pub current: u64,
}

/// The disk failed, or was full, under a request that was on its way.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("it is unknown whether this happened, or will: {reason}; look before you ask again")]
pub struct OutcomeUnknown {
    /// What failed.
    pub reason: String,
}

/// A topic wasn't created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopicError {
    /// The name is none.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// It is there already.
    #[error("topic \"{name}\" exists already")]
    Exists {
        /// Its name.
        name: String,
    },
    /// It is there already with another number of partitions.
    #[error("topic \"{name}\" exists with {found} partitions, {expected} were asked for; take another name")]
    OtherPartitions {
        /// Its name.
        name: String,
        /// Partitions it has.
        found: u32,
        /// Partitions asked for.
        expected: u32,
    },
    /// There is none of this name.
    #[error("topic \"{name}\" doesn't exist")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A topic needs a partition.
    #[error("a topic needs at least one partition")]
    NoPartitions,
    /// A setting that the log acts on can't have this value.
    #[error("\"{value}\" is no value of the setting \"{setting}\"; it takes {expected}")]
    Setting {
        /// The setting.
        setting: String,
        /// The value that it was to have.
        value: String,
        /// What it can have.
        expected: &'static str,
    },
    /// The log is full of topics or partitions.
    #[error("the log can't have more than {limit} {what}; raise the limit or remove some")]
    TooMany {
        /// Topics or partitions.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// The log couldn't tidy up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TidyError {
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// No producer could be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProduceError {
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// A batch wasn't appended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// There is no such partition.
    #[error("{at} doesn't exist; create the topic first")]
    UnknownPartition {
        /// Where it should have gone.
        at: TopicPartition,
    },
    /// The batch is none, or too large.
    #[error("not appended to {at}: {source}")]
    Batch {
        /// Where it should have gone.
        at: TopicPartition,
        /// What is wrong with it.
        source: BatchError,
    },
    /// It doesn't continue what its producer sent before.
    #[error("not appended to {at}: {source}")]
    Sequence {
        /// Where it should have gone.
        at: TopicPartition,
        /// What was expected.
        source: SequenceError,
    },
    /// A newer attempt writes.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The batch's transaction isn't open: it was prepared, has ended, or never began (Kafka's `INVALID_TXN_STATE`).
    #[error("producer {producer} with epoch {epoch} has no open transaction; begin one first")]
    NoTransaction {
        /// The producer id.
        producer: i64,
        /// Its epoch.
        epoch: i16,
    },
    /// The transactional id that came with a batch isn't that of its producer, or its producer id is a job's or was never given out
    /// (Kafka's `INVALID_PRODUCER_ID_MAPPING`).
    #[error(
        "not appended to {at}: producer {producer} doesn't belong to the transactional id that came with the batch, or was not given \
         to a client by this log: ask for a producer id"
    )]
    OtherProducer {
        /// Where it should have gone.
        at: TopicPartition,
        /// The producer id.
        producer: i64,
    },
    /// A batch outside of a transaction from a producer that has one open.
    #[error("producer {producer} has a transaction open; its batches must belong to it")]
    InTransaction {
        /// The producer id.
        producer: i64,
    },
    /// The transaction could not be ended with one more partition.
    #[error("the transaction has {partitions} partitions and can't have more; split it, or raise the limit")]
    TooManyPartitions {
        /// Partitions it has.
        partitions: usize,
    },
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// The log wasn't claimed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClaimError {
    /// A newer attempt has claimed it, or this very attempt has through another handle. Attempts are used once.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// A transaction wasn't begun, or not listed, or not forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TxnError {
    /// A newer attempt writes.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The sink's name is none.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// A transaction of that name is live or has ended; names are used once.
    #[error("transaction {id} exists already")]
    Exists {
        /// Its name.
        id: TxnId,
    },
    /// The transactions belong to somebody else, or are still live.
    #[error("{} transactions can't be forgotten, the first is {}: only ended ones of the same owner can", ids.len(), ids[0])]
    NotForgettable {
        /// Which; at least one.
        ids: Vec<TxnId>,
    },
    /// Too many live transactions or kept outcomes.
    #[error("owner {owner} has {limit} {what} and can't have more; {fix}")]
    TooMany {
        /// The owner.
        owner: OwnerId,
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// What to do.
        fix: &'static str,
    },
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// What a transaction holds, counted by whoever wrote it or by the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of its batches.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
}

/// A transaction wasn't prepared. Unless fenced or unknown it is open still, and its owner should abort it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrepareError {
    /// A newer attempt writes.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// It isn't open: somebody has ended it.
    #[error("transaction {id} is not open, so it can't be prepared")]
    NotOpen {
        /// Its name.
        id: TxnId,
    },
    /// It doesn't hold what its writer sent: batches were lost on their way, or the log crashed before they were durable.
    #[error(
        "transaction {id} holds {} records in {} bytes, its writer sent {} in {}: the rest was lost; write it anew", found.records,
        found.bytes, sent.records, sent.bytes
    )]
    Incomplete {
        /// Its name.
        id: TxnId,
        /// What is there.
        found: Sent,
        /// What should be.
        sent: Sent,
    },
    /// Together with what is prepared already it couldn't be committed in one write.
    #[error(
        "ending transaction {id} with the owner's other prepared ones would take {bytes} bytes, more than {limit}; \
         commit or abort those first, use fewer partitions, or raise end_bytes_max"
    )]
    TooLarge {
        /// Its name.
        id: TxnId,
        /// Bytes the ending entry would have.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// Transactions weren't committed; none of those asked for, unless the outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// A newer attempt writes.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// These have been aborted: their records will never be visible.
    #[error("{} transactions were aborted, the first is {}", .0.len(), .0[0])]
    Aborted(Vec<TxnId>),
    /// These are not known, or no longer: nothing can be said about their records.
    #[error("{} transactions are unknown (never begun, or forgotten), the first is {}", .0.len(), .0[0])]
    Unknown(Vec<TxnId>),
    /// These are open, not prepared.
    #[error("{} transactions are not prepared, the first is {}", .0.len(), .0[0])]
    NotPrepared(Vec<TxnId>),
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// Transactions weren't aborted; none of those asked for, unless the outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AbortError {
    /// A newer attempt writes.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// These have been committed: their records are visible.
    #[error("{} transactions were committed, the first is {}", .0.len(), .0[0])]
    Committed(Vec<TxnId>),
    /// These are not known, or no longer.
    #[error("{} transactions are unknown (never begun, or forgotten), the first is {}", .0.len(), .0[0])]
    Unknown(Vec<TxnId>),
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// Nothing was read.
#[derive(Debug, Error)]
pub enum FetchError {
    /// There is no such partition.
    #[error("{at} doesn't exist; create the topic first")]
    UnknownPartition {
        /// The partition asked for.
        at: TopicPartition,
    },
    /// The offset lies outside of what can be read.
    #[error("{at} can be read from offset {start} to {end}, not at {offset}")]
    OutOfRange {
        /// The partition.
        at: TopicPartition,
        /// The offset asked for.
        offset: Offset,
        /// The first that can be read.
        start: Offset,
        /// The high watermark.
        end: Offset,
    },
    /// The segments don't hold what was written.
    #[error("{at} is damaged at offset {offset}: {what}; restore the partition's files from a backup")]
    Damaged {
        /// The partition.
        at: TopicPartition,
        /// Where reading began.
        offset: Offset,
        /// What was found.
        what: String,
    },
    /// The disk couldn't be read.
    #[error("{at} couldn't be read: {reason}")]
    Io {
        /// The partition.
        at: TopicPartition,
        /// What failed.
        reason: String,
    },
    /// The log takes no requests.
    #[error(transparent)]
    Down(#[from] Down),
    /// The disk failed meanwhile; nothing was read, but records may have been deleted.
    #[error(transparent)]
    OutcomeUnknown(#[from] OutcomeUnknown),
}

/// A log wasn't opened. Nothing that was there has been overwritten.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The limits contradict each other.
    #[error("the log's limits don't fit together: {rule}")]
    Limits {
        /// The relation that doesn't hold.
        rule: String,
    },
    /// The directory holds files that aren't a log's.
    #[error("{} is no log: it holds \"{name}\"; choose an empty directory", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// The first name that doesn't belong there.
        name: String,
    },
    /// Somebody else has it open.
    #[error(
        "{} is held by {holder}; stop that process, or ask to take over, which kills it (--take-over)", dir.display()
    )]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, as its lock file says.
        holder: String,
    },
    /// Taking over didn't work.
    #[error("{} can't be taken over from {holder}: {reason}", dir.display())]
    TakeOver {
        /// The directory.
        dir: PathBuf,
        /// Who holds it.
        holder: String,
        /// Why not.
        reason: String,
    },
    /// A newer program wrote it.
    #[error("{} has format {found}, newer than {known}: use the program that wrote it, or a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that this program reads.
        known: u32,
    },
    /// What is there can't be what was written. Opening needs a decision by a person.
    #[error(
        "{} is damaged: {what}. The log refuses to open because acknowledged records may be lost. Restore the directory \
         from a backup, or copy it and remove the damaged part by hand", path.display()
    )]
    Corrupt {
        /// The file or directory.
        path: PathBuf,
        /// What was found there, and what was expected.
        what: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// A log wasn't closed cleanly. Everything acknowledged is safe; opening it again replays it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseError {
    /// The disk failed.
    #[error("the log couldn't be closed cleanly, its disk failed: {reason}; what was acknowledged is safe")]
    Poisoned {
        /// What failed.
        reason: String,
    },
    /// It was closed before.
    #[error("the log has been closed before")]
    Closed,
}
