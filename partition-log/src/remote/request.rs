//! What a job's attempt asks of a log that another process serves, as bytes. Pure.
//!
//! The body of a Kafka request with key [`API_KEY`]: one byte that says which operation, then its fields, little-endian, as
//! `docs/formats/owner-requests.md` lists them. Decoding never panics, allocates nothing on a length that isn't there, and refuses
//! bytes that follow the last field.

use thiserror::Error;

use crate::codec::{Cursor, Malformed, Put};
use crate::error::Sent;
use crate::group::{GroupProgress, OffsetCommit};
use crate::offset::Offset;
use crate::owner::{OwnerId, TxnId};
use crate::topic::{TopicId, TopicPartition};

/// The key of the API that carries these requests. Kafka gives its keys out from 0 on; none of ours will ever be met there.
pub const API_KEY: i16 = 17_237;
/// The version that this code speaks.
pub const API_VERSION: i16 = 1;
/// The oldest version that a server reads: it had no [`Ask::CommitWith`], and all else as it is.
pub const API_VERSION_MIN: i16 = 0;
/// Servers list the API to clients that call their software so, and to no others.
pub const SOFTWARE: &str = "cutwater";

/// Outcomes in one answer to [`Ask::Outcomes`], and names in one request that may be divided.
pub const PAGE: usize = 10_000;

/// Who asks, where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptOf {
    /// The job.
    pub owner: OwnerId,
    /// Its attempt.
    pub attempt: u64,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Where the topic of this name stands.
    Topic {
        /// Its name.
        name: String,
    },
    /// The same, created before if it isn't there.
    TopicOrNew {
        /// Its name.
        name: String,
        /// Its partitions if it is created; must be what it has if it is there.
        partitions: u32,
    },
    /// Something that only an owner's newest attempt may ask.
    Attempt {
        /// Who asks.
        of: AttemptOf,
        /// What.
        ask: Ask,
    },
}

/// What an owner's attempt asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Fence all older attempts. The one request that can't be repeated.
    Claim,
    /// A producer id for batches outside of transactions.
    Producer,
    /// Begin a transaction of this attempt.
    Begin {
        /// The checkpoint whose interval it covers.
        checkpoint: u64,
        /// The sink.
        sink: String,
        /// The writer within the sink.
        writer: u32,
    },
    /// Append a batch that bears its producer's id, epoch and sequence. Answered when it is accepted, or durable.
    Append {
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: u32,
        /// Whether the answer waits for the disk.
        durable: bool,
        /// The batch.
        batch: Vec<u8>,
    },
    /// Make a transaction durable and hand its fate to the owner, if it holds what was sent.
    Prepare {
        /// Its name.
        id: TxnId,
        /// What its writer has sent.
        sent: Sent,
    },
    /// Commit prepared transactions, all in one write.
    Commit {
        /// Their names.
        ids: Vec<TxnId>,
    },
    /// Commit prepared transactions, all in one write, and say in it where groups stand by then.
    CommitWith {
        /// Their names.
        ids: Vec<TxnId>,
        /// The groups.
        progress: Vec<GroupProgress>,
    },
    /// Abort transactions.
    Abort {
        /// Their names.
        ids: Vec<TxnId>,
    },
    /// The owner's live transactions.
    Live,
    /// Outcomes that are kept, in order of their names.
    Outcomes {
        /// Those behind this one.
        after: Option<TxnId>,
    },
    /// Forget outcomes.
    Forget {
        /// Of these transactions.
        ids: Vec<TxnId>,
    },
}

/// Bytes that are no request or no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at byte {at} is not what an owner's request or its answer has there")]
pub struct NotOwners {
    /// What was being read.
    pub what: &'static str,
    /// Where.
    pub at: usize,
}

impl From<Malformed> for NotOwners {
    fn from(malformed: Malformed) -> NotOwners {
        NotOwners { what: malformed.what, at: malformed.at }
    }
}

const TOPIC: u8 = 1;
const TOPIC_OR_NEW: u8 = 2;
const CLAIM: u8 = 3;
const PRODUCER: u8 = 4;
const BEGIN: u8 = 5;
const APPEND: u8 = 6;
const PREPARE: u8 = 7;
const COMMIT: u8 = 8;
const ABORT: u8 = 9;
const LIVE: u8 = 10;
const OUTCOMES: u8 = 11;
const FORGET: u8 = 12;
const COMMIT_WITH: u8 = 13;
/// The least bytes of a group, and of an offset.
const GROUP_BYTES_MIN: usize = 8;
const OFFSET_BYTES_MIN: usize = 4 + 4 + 8 + 4;

impl Request {
    /// Appends the request's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Topic { name } => {
                out.put_u8(TOPIC);
                out.put_bytes(name.as_bytes());
            }
            Request::TopicOrNew { name, partitions } => {
                out.put_u8(TOPIC_OR_NEW);
                out.put_bytes(name.as_bytes());
                out.put_u32(*partitions);
            }
            Request::Attempt { of, ask } => {
                out.put_u8(ask.code());
                out.put_u128(of.owner.0);
                out.put_u64(of.attempt);
                ask.encode(out);
            }
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Where it isn't one.
    pub fn decode(bytes: &[u8]) -> Result<Request, NotOwners> {
        let mut cursor = Cursor::new(bytes);
        let code = cursor.u8("operation")?;
        let request = match code {
            TOPIC => Request::Topic { name: cursor.string("topic")? },
            TOPIC_OR_NEW => {
                Request::TopicOrNew { name: cursor.string("topic")?, partitions: cursor.u32("partitions")? }
            }
            CLAIM..=COMMIT_WITH => {
                let of = AttemptOf { owner: OwnerId(cursor.u128("owner")?), attempt: cursor.u64("attempt")? };
                Request::Attempt { of, ask: Ask::decode(code, &mut cursor)? }
            }
            _ => return Err(NotOwners { what: "operation", at: 0 }),
        };
        end(&cursor)?;
        Ok(request)
    }
}

impl Ask {
    fn code(&self) -> u8 {
        match self {
            Ask::Claim => CLAIM,
            Ask::Producer => PRODUCER,
            Ask::Begin { .. } => BEGIN,
            Ask::Append { .. } => APPEND,
            Ask::Prepare { .. } => PREPARE,
            Ask::Commit { .. } => COMMIT,
            Ask::CommitWith { .. } => COMMIT_WITH,
            Ask::Abort { .. } => ABORT,
            Ask::Live => LIVE,
            Ask::Outcomes { .. } => OUTCOMES,
            Ask::Forget { .. } => FORGET,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ask::Claim | Ask::Producer | Ask::Live => {}
            Ask::Begin { checkpoint, sink, writer } => {
                out.put_u64(*checkpoint);
                out.put_u32(*writer);
                out.put_bytes(sink.as_bytes());
            }
            Ask::Append { topic, partition, durable, batch } => put_append(out, *topic, *partition, *durable, batch),
            Ask::Prepare { id, sent } => {
                id.encode(out);
                out.put_u64(sent.bytes);
                out.put_u64(sent.records);
            }
            Ask::Commit { ids } | Ask::Abort { ids } | Ask::Forget { ids } => put_ids(out, ids),
            Ask::CommitWith { ids, progress } => {
                put_ids(out, ids);
                put_progress(out, progress);
            }
            Ask::Outcomes { after } => {
                out.put_u8(u8::from(after.is_some()));
                if let Some(after) = after {
                    after.encode(out);
                }
            }
        }
    }

    fn decode(code: u8, cursor: &mut Cursor<'_>) -> Result<Ask, NotOwners> {
        Ok(match code {
            CLAIM => Ask::Claim,
            PRODUCER => Ask::Producer,
            BEGIN => {
                let (checkpoint, writer) = (cursor.u64("checkpoint")?, cursor.u32("writer")?);
                Ask::Begin { checkpoint, writer, sink: cursor.string("sink")? }
            }
            APPEND => {
                let (topic, partition) = (TopicId(cursor.u32("topic")?), cursor.u32("partition")?);
                let durable = flag(cursor, "durable")?;
                Ask::Append { topic, partition, durable, batch: cursor.bytes("batch")?.to_vec() }
            }
            PREPARE => {
                let id = TxnId::decode(cursor)?;
                Ask::Prepare { id, sent: Sent { bytes: cursor.u64("bytes")?, records: cursor.u64("records")? } }
            }
            COMMIT => Ask::Commit { ids: ids(cursor)? },
            COMMIT_WITH => Ask::CommitWith { ids: ids(cursor)?, progress: progress(cursor)? },
            ABORT => Ask::Abort { ids: ids(cursor)? },
            LIVE => Ask::Live,
            OUTCOMES => {
                let some = flag(cursor, "after")?;
                Ask::Outcomes { after: some.then(|| TxnId::decode(cursor)).transpose()? }
            }
            FORGET => Ask::Forget { ids: ids(cursor)? },
            _ => return Err(NotOwners { what: "operation", at: 0 }),
        })
    }
}

/// The bytes of an append, without copying its batch into a request first.
pub(super) fn encode_append(out: &mut Vec<u8>, of: AttemptOf, at: (TopicId, u32), durable: bool, batch: &[u8]) {
    out.put_u8(APPEND);
    out.put_u128(of.owner.0);
    out.put_u64(of.attempt);
    put_append(out, at.0, at.1, durable, batch);
}

fn put_append(out: &mut Vec<u8>, topic: TopicId, partition: u32, durable: bool, batch: &[u8]) {
    out.put_u32(topic.0);
    out.put_u32(partition);
    out.put_u8(u8::from(durable));
    out.put_bytes(batch);
}

fn put_progress(out: &mut Vec<u8>, progress: &[GroupProgress]) {
    out.put_len(progress.len());
    for GroupProgress { group, offsets } in progress {
        out.put_bytes(group.as_bytes());
        out.put_len(offsets.len());
        for OffsetCommit { at, offset, metadata } in offsets {
            out.put_u32(at.topic.0);
            out.put_u32(at.partition);
            out.put_u64(offset.0);
            out.put_bytes(metadata.as_bytes());
        }
    }
}

fn progress(cursor: &mut Cursor<'_>) -> Result<Vec<GroupProgress>, NotOwners> {
    let mut groups = Vec::new();
    for _ in 0..cursor.len(GROUP_BYTES_MIN, "groups")? {
        let group = cursor.string("group")?;
        let mut offsets = Vec::new();
        for _ in 0..cursor.len(OFFSET_BYTES_MIN, "offsets")? {
            let at = TopicPartition::new(TopicId(cursor.u32("topic")?), cursor.u32("partition")?);
            let offset = Offset(cursor.u64("offset")?);
            offsets.push(OffsetCommit { at, offset, metadata: cursor.string("metadata")? });
        }
        groups.push(GroupProgress { group, offsets });
    }
    Ok(groups)
}

pub(super) fn flag(cursor: &mut Cursor<'_>, what: &'static str) -> Result<bool, NotOwners> {
    match cursor.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(cursor.malformed(what).into()),
    }
}

pub(super) fn end(cursor: &Cursor<'_>) -> Result<(), NotOwners> {
    if cursor.is_empty() { Ok(()) } else { Err(cursor.malformed("something behind the last field").into()) }
}

pub(super) fn put_ids(out: &mut Vec<u8>, ids: &[TxnId]) {
    out.put_len(ids.len());
    for id in ids {
        id.encode(out);
    }
}

pub(super) fn ids(cursor: &mut Cursor<'_>) -> Result<Vec<TxnId>, NotOwners> {
    let count = cursor.len(TxnId::BYTES_MIN, "transactions")?;
    (0..count).map(|_| TxnId::decode(cursor).map_err(NotOwners::from)).collect()
}
