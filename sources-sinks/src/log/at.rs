//! Where a job's log is: in this process, or behind a broker. Each request goes to the one or the other; what comes back is told
//! apart by what a job does about it.
//!
//! | what happened | the job |
//! |---|---|
//! | a newer attempt writes | ends without a trace |
//! | the broker is away, or was: something on its way was lost | ends the attempt; the next one goes on from the last checkpoint |
//! | a checkpoint's output is too large to be ended with what is prepared already | declines the checkpoint |
//! | the log here is down; output that was promised is gone; somebody else answers at the broker's address | ends the run |

use std::sync::Arc;

use cutwater_engine::error::{SinkError, SourceError};
use cutwater_partition_log::batch::BatchBuilder;
use cutwater_partition_log::remote::{
    RemoteError, RemoteLog, RemoteOwner, RemoteProducer, RemoteReader, RemoteTopic, RemoteTxn, Why,
};
use cutwater_partition_log::{
    AbortError, AppendError, ClaimError, CommitError, CommitOutcome, Consumer, FetchError, Fetched, GroupProgress,
    Isolation, Log, Offset, Owner, OwnerId, PartitionOffsets, PrepareError, TopicError, TopicId, Txn, TxnError, TxnId,
    TxnName, TxnPhase,
};

use super::group::{NAME, encode_handle, fatal, fenced};
use super::writer::Tickets;

/// A log.
#[derive(Clone, Debug)]
pub(crate) enum At {
    /// In this process.
    Here(Log),
    /// In another one.
    Broker(RemoteLog),
}

/// A topic of it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: TopicId,
    pub(crate) partitions: u32,
    remote: Option<RemoteTopic>,
}

impl From<RemoteTopic> for Found {
    fn from(topic: RemoteTopic) -> Found {
        Found { id: topic.id, partitions: topic.partitions.len() as u32, remote: Some(topic) }
    }
}

/// Reads one partition.
pub(crate) enum Records {
    Here(Consumer),
    Broker(RemoteReader),
}

impl At {
    /// The topic of this name; with `make`, a missing one is made with so many partitions, and one with another number is refused.
    pub(crate) fn topic(&self, name: &str, make: Option<u32>) -> Result<Option<Found>, TopicTrouble> {
        match (self, make) {
            (At::Here(log), None) => {
                let found = log.topic(name);
                Ok(found.map(|topic| Found { id: topic.id, partitions: topic.partitions, remote: None }))
            }
            (At::Here(log), Some(partitions)) => {
                let id = log.create_topic_if_absent(name, partitions).map_err(TopicTrouble::Here)?;
                Ok(Some(Found { id, partitions, remote: None }))
            }
            (At::Broker(log), None) => Ok(log.topic(name).map_err(TopicTrouble::Broker)?.map(Found::from)),
            (At::Broker(log), Some(partitions)) => {
                Ok(Some(log.create_topic_if_absent(name, partitions).map_err(TopicTrouble::Broker)?.into()))
            }
        }
    }

    /// No batch may be larger: what the log says, or what Kafka's brokers take if nobody says otherwise.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        match self {
            At::Here(log) => log.limits().batch_bytes_max,
            At::Broker(_) => cutwater_partition_log::batch::Limits::DEFAULT.batch_bytes,
        }
    }

    /// Where a partition stands.
    pub(crate) fn offsets(&self, topic: &Found, partition: u32) -> Result<PartitionOffsets, FetchError> {
        let at = cutwater_partition_log::TopicPartition::new(topic.id, partition);
        match (self, &topic.remote) {
            (At::Here(log), _) => log.offsets(topic.id, partition),
            (At::Broker(_), remote) => {
                let stands = remote.as_ref().and_then(|remote| remote.partitions.get(partition as usize));
                stands.copied().ok_or(FetchError::UnknownPartition { at })
            }
        }
    }

    /// A reader of the committed records of a partition that calls `news` when there is something to poll.
    pub(crate) fn records(
        &self,
        topic: &Found,
        partition: u32,
        from: u64,
        news: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Records, FetchError> {
        match (self, &topic.remote) {
            (At::Broker(log), Some(remote)) => Ok(Records::Broker(log.reader(remote, partition, Offset(from), news))),
            (At::Broker(_), None) => {
                let at = cutwater_partition_log::TopicPartition::new(topic.id, partition);
                Err(FetchError::UnknownPartition { at })
            }
            (At::Here(log), _) => {
                let consumer = log.consumer(topic.id, partition, Offset(from), Isolation::ReadCommitted)?;
                consumer.on_new_data(news);
                Ok(Records::Here(consumer))
            }
        }
    }

    /// Claims the log for an attempt.
    pub(crate) fn claim(&self, owner: OwnerId, attempt: u64) -> Result<OwnerAt, SinkError> {
        match self {
            At::Here(log) => match log.claim(&owner, attempt) {
                Ok(owner) => Ok(OwnerAt::Here(owner)),
                Err(ClaimError::Fenced(_)) => Err(fenced()),
                Err(other) => Err(fatal(other)),
            },
            At::Broker(log) => log.claim(&owner, attempt).map(OwnerAt::Broker).map_err(|e| from_remote(NAME, &e)),
        }
    }

    /// A producer for output that is visible at once; behind a broker it is fenced with its attempt, if the attempt has claimed.
    pub(crate) fn producer(&self, claimed: Option<&OwnerAt>, sink: &str) -> Result<ProducerAt, SinkError> {
        match self {
            At::Here(log) => {
                let producer = log.producer().map_err(|e| SinkError::fatal(sink, e))?;
                Ok(ProducerAt::Here(producer, Tickets::default()))
            }
            At::Broker(log) => {
                let producer = match claimed {
                    Some(OwnerAt::Broker(owner)) => owner.producer(),
                    _ => log.producer(),
                };
                producer.map(ProducerAt::Broker).map_err(|e| from_remote(sink, &e))
            }
        }
    }
}

/// A topic wasn't found or made.
#[derive(Debug)]
pub(crate) enum TopicTrouble {
    Here(TopicError),
    Broker(RemoteError),
}

impl TopicTrouble {
    pub(crate) fn of_source(&self, what: &str) -> SourceError {
        match self {
            TopicTrouble::Here(error) => SourceError::fatal(what, error),
            TopicTrouble::Broker(error) => read_from_remote(what, error),
        }
    }

    pub(crate) fn of_sink(&self, sink: &str) -> SinkError {
        match self {
            TopicTrouble::Here(error) => SinkError::fatal(sink, error),
            TopicTrouble::Broker(error) => from_remote(sink, error),
        }
    }
}

impl Records {
    /// The offset behind what was polled.
    pub(crate) fn position(&self) -> u64 {
        match self {
            Records::Here(consumer) => consumer.position().0,
            Records::Broker(reader) => reader.position().0,
        }
    }

    /// Takes what is there: about `bytes`, or what has come in one piece.
    pub(crate) fn poll(&mut self, bytes: usize, what: &str) -> Result<Fetched, SourceError> {
        match self {
            Records::Here(consumer) => consumer.poll(bytes).map_err(|e| from_fetch(what, e)),
            Records::Broker(reader) => reader.poll().map_err(|e| read_from_remote(what, &e)),
        }
    }
}

/// The right of an attempt to write.
#[derive(Clone, Debug)]
pub(crate) enum OwnerAt {
    Here(Owner),
    Broker(RemoteOwner),
}

impl OwnerAt {
    pub(crate) fn is(&self, owner: u128, attempt: u64) -> bool {
        match self {
            OwnerAt::Here(here) => (here.id().0, here.attempt()) == (owner, attempt),
            OwnerAt::Broker(there) => (there.id().0, there.attempt()) == (owner, attempt),
        }
    }

    pub(crate) fn begin(&self, name: TxnName, sink: &str) -> Result<TxnAt, SinkError> {
        match self {
            OwnerAt::Here(owner) => owner.begin(name).map(TxnAt::Here).map_err(|e| from_txn(sink, e)),
            OwnerAt::Broker(owner) => {
                owner.begin(name).map(|txn| TxnAt::Broker(Box::new(txn))).map_err(|e| from_remote(sink, &e))
            }
        }
    }

    pub(crate) fn transactions(&self) -> Result<Vec<(TxnId, TxnPhase)>, SinkError> {
        match self {
            OwnerAt::Here(owner) => {
                let live = owner.transactions().map_err(|e| from_txn(NAME, e))?;
                Ok(live.into_iter().map(|txn| (txn.id, txn.state)).collect())
            }
            OwnerAt::Broker(owner) => owner.transactions().map_err(|e| from_remote(NAME, &e)),
        }
    }

    /// The transactions whose outcome is remembered.
    pub(crate) fn ended(&self) -> Result<Vec<TxnId>, SinkError> {
        let outcomes = match self {
            OwnerAt::Here(owner) => owner.outcomes().map_err(|e| from_txn(NAME, e))?,
            OwnerAt::Broker(owner) => owner.outcomes().map_err(|e| from_remote(NAME, &e))?,
        };
        Ok(outcomes.into_iter().map(|(id, _)| id).collect())
    }

    pub(crate) fn commit(&self, ids: &[TxnId]) -> Result<CommitOutcome, SinkError> {
        match self {
            OwnerAt::Here(owner) => owner.commit(ids).map_err(from_commit),
            OwnerAt::Broker(owner) => owner.commit(ids).map_err(|e| from_remote_commit(&e)),
        }
    }

    /// The same, and says how far groups have come.
    pub(crate) fn commit_with_progress(
        &self,
        ids: &[TxnId],
        progress: &[GroupProgress],
    ) -> Result<CommitOutcome, SinkError> {
        match self {
            OwnerAt::Here(owner) => owner.commit_with_progress(ids, progress).map_err(from_commit),
            OwnerAt::Broker(owner) => owner.commit_with_progress(ids, progress).map_err(|e| from_remote_commit(&e)),
        }
    }

    /// How many were aborted.
    pub(crate) fn abort(&self, ids: &[TxnId]) -> Result<usize, SinkError> {
        let outcome = match self {
            OwnerAt::Here(owner) => owner.abort(ids).map_err(|e| match e {
                AbortError::Fenced(_) => fenced(),
                other => fatal(other),
            })?,
            OwnerAt::Broker(owner) => owner.abort(ids).map_err(|e| from_remote(NAME, &e))?,
        };
        Ok(outcome.aborted.len())
    }

    pub(crate) fn forget(&self, ids: &[TxnId]) -> Result<(), SinkError> {
        match self {
            OwnerAt::Here(owner) => owner.forget(ids).map_err(|e| from_txn(NAME, e)),
            OwnerAt::Broker(owner) => owner.forget(ids).map_err(|e| from_remote(NAME, &e)),
        }
    }
}

/// An open transaction.
#[derive(Debug)]
pub(crate) enum TxnAt {
    Here(Txn),
    Broker(Box<RemoteTxn>),
}

impl TxnAt {
    pub(crate) fn records(&self) -> u64 {
        match self {
            TxnAt::Here(txn) => txn.records(),
            TxnAt::Broker(txn) => txn.records(),
        }
    }

    pub(crate) fn append(
        &mut self,
        topic: TopicId,
        partition: u32,
        batch: &mut BatchBuilder,
        sink: &str,
    ) -> Result<(), SinkError> {
        match self {
            TxnAt::Here(txn) => txn.append(topic, partition, batch).map_err(|e| from_append(sink, e)),
            TxnAt::Broker(txn) => txn.append(topic, partition, batch).map_err(|e| from_remote(sink, &e)),
        }
    }

    /// The handle by which it is committed.
    pub(crate) fn prepare(self, sink: &str) -> Result<Vec<u8>, SinkError> {
        let prepared = match self {
            TxnAt::Here(txn) => txn.prepare().map_err(|e| from_prepare(sink, e))?,
            TxnAt::Broker(txn) => txn.prepare().map_err(|e| from_remote(sink, &e))?,
        };
        Ok(encode_handle(&prepared.id))
    }
}

/// A producer for output that is visible at once.
#[derive(Debug)]
pub(crate) enum ProducerAt {
    /// Its appends have tickets of their own.
    Here(cutwater_partition_log::Producer, Tickets),
    Broker(RemoteProducer),
}

/// What a broker's answer, or its silence, means to a sink or a commit group.
pub(crate) fn from_remote(what: &str, error: &RemoteError) -> SinkError {
    match error.refusal().map(|refusal| refusal.why) {
        Some(Why::Fenced) => fenced(),
        Some(Why::TooLarge) => SinkError::declined(what, error),
        _ if error.may_pass() => SinkError::failed(what, error),
        _ => SinkError::fatal(what, error),
    }
}

/// The same to a source.
fn read_from_remote(what: &str, error: &RemoteError) -> SourceError {
    if error.may_pass() { SourceError::transient(what, error) } else { SourceError::fatal(what, error) }
}

pub(crate) fn from_fetch(what: &str, error: FetchError) -> SourceError {
    match error {
        FetchError::Io { .. } => SourceError::transient(what, error),
        other => SourceError::fatal(what, other),
    }
}

pub(crate) fn from_append(sink: &str, error: AppendError) -> SinkError {
    match error {
        AppendError::Fenced(_) => fenced(),
        // Somebody aborted it by hand; its records come again from the last checkpoint.
        AppendError::NoTransaction { .. } => SinkError::failed(sink, error),
        // Too large, no such partition, a log that is down: the same again at the next attempt.
        other => SinkError::fatal(sink, other),
    }
}

fn from_txn(what: &str, error: TxnError) -> SinkError {
    match error {
        TxnError::Fenced(_) => fenced(),
        other => SinkError::fatal(what, other),
    }
}

fn from_prepare(sink: &str, error: PrepareError) -> SinkError {
    match error {
        PrepareError::Fenced(_) => fenced(),
        PrepareError::NotOpen { .. } | PrepareError::Incomplete { .. } => SinkError::failed(sink, error),
        PrepareError::TooLarge { .. } => SinkError::declined(sink, error),
        other => SinkError::fatal(sink, other),
    }
}

fn from_commit(error: CommitError) -> SinkError {
    match error {
        CommitError::Fenced(_) => fenced(),
        CommitError::Aborted(ids) => fatal(format!("{}; somebody aborted what a checkpoint had promised", lost(&ids))),
        CommitError::Unknown(ids) => {
            fatal(format!("{}; the log doesn't know them (is it the log of this job, or an older copy?)", lost(&ids)))
        }
        CommitError::NotPrepared(ids) => fatal(format!("{}; they were listed as prepared and are open", lost(&ids))),
        other => fatal(other),
    }
}

fn from_remote_commit(error: &RemoteError) -> SinkError {
    match error.refusal().map(|refusal| (refusal.why, &refusal.ids)) {
        Some((Why::Aborted, ids)) => from_commit(CommitError::Aborted(ids.clone())),
        Some((Why::UnknownTransaction, ids)) => from_commit(CommitError::Unknown(ids.clone())),
        Some((Why::NotPrepared, ids)) => from_commit(CommitError::NotPrepared(ids.clone())),
        _ => from_remote(NAME, error),
    }
}

/// Says which output is lost.
fn lost(ids: &[TxnId]) -> String {
    let names: Vec<String> =
        ids.iter().map(|id| format!("{} of checkpoint {} (writer {})", id.sink, id.checkpoint, id.writer)).collect();
    format!("the output of {} is lost", names.join(", "))
}
