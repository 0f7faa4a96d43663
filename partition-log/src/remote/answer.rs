//! What a log answers to an owner's request, as bytes. Pure; the promises are those of [`super::request`].

use std::fmt;

use super::request::{NotOwners, end, flag, ids, put_ids};
use crate::codec::{Cursor, Put};
use crate::core::TxnPhase;
use crate::error::{
    AbortError, AppendError, ClaimError, CommitError, PrepareError, ProduceError, TopicError, TxnError,
};
use crate::offset::{Offset, PartitionOffsets};
use crate::owner::TxnId;
use crate::topic::TopicId;
use crate::wal::frame::Outcome;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing was done, and why.
    Refused(Refusal),
    /// A topic, if it is there.
    Topic(Option<RemoteTopic>),
    /// Done, and there is nothing to say about it: a claim, a prepare, outcomes forgotten.
    Done,
    /// A producer and its epoch.
    Producer {
        /// Its id.
        id: i64,
        /// Its epoch.
        epoch: i16,
    },
    /// A batch was accepted; with this offset if it is durable.
    Appended(Offset),
    /// Transactions have ended.
    Ended {
        /// Now.
        now: Vec<TxnId>,
        /// Before.
        already: Vec<TxnId>,
    },
    /// Live transactions.
    Live(Vec<(TxnId, TxnPhase)>),
    /// Outcomes, and whether there are more behind them.
    Outcomes {
        /// In order of their names.
        outcomes: Vec<(TxnId, Outcome)>,
        /// Ask again, after the last one.
        more: bool,
    },
}

/// A topic of a log that another process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteTopic {
    /// Its number, which the log never uses again.
    pub id: TopicId,
    /// The UUID that it has to Kafka clients.
    pub uuid: u128,
    /// Where each of its partitions stands.
    pub partitions: Vec<PartitionOffsets>,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of reason.
    pub why: Why,
    /// The transactions that it is about.
    pub ids: Vec<TxnId>,
    /// In the log's own words.
    pub said: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

/// What a caller may have to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A newer attempt writes.
    Fenced = 1,
    /// The log takes no requests at the moment: it is being closed, or its disk failed.
    Down = 2,
    /// The disk failed while the request was on its way.
    OutcomeUnknown = 3,
    /// To be aborted, but committed.
    Committed = 4,
    /// To be committed, but aborted.
    Aborted = 5,
    /// Never begun, or forgotten.
    UnknownTransaction = 6,
    /// To be committed, but open.
    NotPrepared = 7,
    /// To be written or prepared, but not open.
    NotOpen = 8,
    /// Prepared, it couldn't be ended with the others.
    TooLarge = 9,
    /// It doesn't hold what its writer sent.
    Incomplete = 10,
    /// There are too many of something.
    TooMany = 11,
    /// It can't be done, now or later: a name that is none, a partition that isn't there, a batch that isn't one.
    Invalid = 12,
    /// Whoever asks may not.
    NotAllowed = 13,
}

impl Why {
    const ALL: [Why; 13] = [
        Why::Fenced,
        Why::Down,
        Why::OutcomeUnknown,
        Why::Committed,
        Why::Aborted,
        Why::UnknownTransaction,
        Why::NotPrepared,
        Why::NotOpen,
        Why::TooLarge,
        Why::Incomplete,
        Why::TooMany,
        Why::Invalid,
        Why::NotAllowed,
    ];

    fn of(code: u8) -> Option<Why> {
        Why::ALL.into_iter().find(|why| *why as u8 == code)
    }
}

impl Refusal {
    /// A refusal that names no transaction.
    pub fn new(why: Why, said: &dyn fmt::Display) -> Refusal {
        Refusal { why, ids: Vec::new(), said: said.to_string() }
    }

    fn about(why: Why, ids: &[TxnId], said: &dyn fmt::Display) -> Refusal {
        Refusal { ids: ids.to_vec(), ..Refusal::new(why, said) }
    }
}

impl From<TopicError> for Refusal {
    fn from(error: TopicError) -> Refusal {
        let why = match &error {
            TopicError::Down(_) => Why::Down,
            TopicError::OutcomeUnknown(_) => Why::OutcomeUnknown,
            TopicError::TooMany { .. } => Why::TooMany,
            _ => Why::Invalid,
        };
        Refusal::new(why, &error)
    }
}

impl From<ClaimError> for Refusal {
    fn from(error: ClaimError) -> Refusal {
        let why = match &error {
            ClaimError::Fenced(_) => Why::Fenced,
            ClaimError::Down(_) => Why::Down,
            ClaimError::OutcomeUnknown(_) => Why::OutcomeUnknown,
        };
        Refusal::new(why, &error)
    }
}

impl From<ProduceError> for Refusal {
    fn from(error: ProduceError) -> Refusal {
        let why = match &error {
            ProduceError::Down(_) => Why::Down,
            ProduceError::OutcomeUnknown(_) => Why::OutcomeUnknown,
        };
        Refusal::new(why, &error)
    }
}

impl From<TxnError> for Refusal {
    fn from(error: TxnError) -> Refusal {
        match &error {
            TxnError::Fenced(_) => Refusal::new(Why::Fenced, &error),
            TxnError::Down(_) => Refusal::new(Why::Down, &error),
            TxnError::OutcomeUnknown(_) => Refusal::new(Why::OutcomeUnknown, &error),
            TxnError::TooMany { .. } => Refusal::new(Why::TooMany, &error),
            TxnError::Exists { id } => Refusal::about(Why::Invalid, std::slice::from_ref(id), &error),
            TxnError::NotForgettable { ids } => Refusal::about(Why::Invalid, ids, &error),
            TxnError::InvalidName(_) => Refusal::new(Why::Invalid, &error),
        }
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Refusal {
        let why = match &error {
            AppendError::Fenced(_) => Why::Fenced,
            AppendError::Down(_) => Why::Down,
            AppendError::OutcomeUnknown(_) => Why::OutcomeUnknown,
            // A gap in the sequence: what came before it was lost with a crash of the log.
            AppendError::NoTransaction { .. } | AppendError::Sequence { .. } => Why::NotOpen,
            AppendError::TooManyPartitions { .. } => Why::TooMany,
            _ => Why::Invalid,
        };
        Refusal::new(why, &error)
    }
}

impl From<PrepareError> for Refusal {
    fn from(error: PrepareError) -> Refusal {
        match &error {
            PrepareError::Fenced(_) => Refusal::new(Why::Fenced, &error),
            PrepareError::Down(_) => Refusal::new(Why::Down, &error),
            PrepareError::OutcomeUnknown(_) => Refusal::new(Why::OutcomeUnknown, &error),
            PrepareError::NotOpen { id } => Refusal::about(Why::NotOpen, std::slice::from_ref(id), &error),
            PrepareError::Incomplete { id, .. } => Refusal::about(Why::Incomplete, std::slice::from_ref(id), &error),
            PrepareError::TooLarge { id, .. } => Refusal::about(Why::TooLarge, std::slice::from_ref(id), &error),
        }
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Refusal {
        match &error {
            CommitError::Fenced(_) => Refusal::new(Why::Fenced, &error),
            CommitError::Down(_) => Refusal::new(Why::Down, &error),
            CommitError::OutcomeUnknown(_) => Refusal::new(Why::OutcomeUnknown, &error),
            CommitError::Aborted(ids) => Refusal::about(Why::Aborted, ids, &error),
            CommitError::Unknown(ids) => Refusal::about(Why::UnknownTransaction, ids, &error),
            CommitError::NotPrepared(ids) => Refusal::about(Why::NotPrepared, ids, &error),
        }
    }
}

impl From<AbortError> for Refusal {
    fn from(error: AbortError) -> Refusal {
        match &error {
            AbortError::Fenced(_) => Refusal::new(Why::Fenced, &error),
            AbortError::Down(_) => Refusal::new(Why::Down, &error),
            AbortError::OutcomeUnknown(_) => Refusal::new(Why::OutcomeUnknown, &error),
            AbortError::Committed(ids) => Refusal::about(Why::Committed, ids, &error),
            AbortError::Unknown(ids) => Refusal::about(Why::UnknownTransaction, ids, &error),
        }
    }
}

const REFUSED: u8 = 0;
const TOPIC: u8 = 1;
const DONE: u8 = 2;
const PRODUCER: u8 = 3;
const APPENDED: u8 = 4;
const ENDED: u8 = 5;
const LIVE: u8 = 6;
const OUTCOMES: u8 = 7;

impl Answer {
    /// Appends the answer's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Refused(Refusal { why, ids, said }) => {
                out.put_u8(REFUSED);
                out.put_u8(*why as u8);
                put_ids(out, ids);
                out.put_bytes(said.as_bytes());
            }
            Answer::Topic(topic) => {
                out.put_u8(TOPIC);
                out.put_u8(u8::from(topic.is_some()));
                let Some(topic) = topic else { return };
                out.put_u32(topic.id.0);
                out.put_u128(topic.uuid);
                out.put_len(topic.partitions.len());
                for at in &topic.partitions {
                    for offset in [at.log_start, at.last_stable, at.high_watermark, at.log_end] {
                        out.put_u64(offset.0);
                    }
                }
            }
            Answer::Done => out.put_u8(DONE),
            Answer::Producer { id, epoch } => {
                out.put_u8(PRODUCER);
                out.put_i64(*id);
                out.put_i16(*epoch);
            }
            Answer::Appended(base) => {
                out.put_u8(APPENDED);
                out.put_u64(base.0);
            }
            Answer::Ended { now, already } => {
                out.put_u8(ENDED);
                put_ids(out, now);
                put_ids(out, already);
            }
            Answer::Live(live) => {
                out.put_u8(LIVE);
                out.put_len(live.len());
                for (id, phase) in live {
                    id.encode(out);
                    out.put_u8(u8::from(*phase == TxnPhase::Prepared));
                }
            }
            Answer::Outcomes { outcomes, more } => {
                out.put_u8(OUTCOMES);
                out.put_u8(u8::from(*more));
                out.put_len(outcomes.len());
                for (id, outcome) in outcomes {
                    id.encode(out);
                    out.put_u8(u8::from(*outcome == Outcome::Committed));
                }
            }
        }
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// Where it isn't one.
    pub fn decode(bytes: &[u8]) -> Result<Answer, NotOwners> {
        let cursor = &mut Cursor::new(bytes);
        let answer = match cursor.u8("kind of answer")? {
            REFUSED => {
                let why = Why::of(cursor.u8("reason")?).ok_or_else(|| cursor.malformed("reason"))?;
                Answer::Refused(Refusal { why, ids: ids(cursor)?, said: cursor.string("what was said")? })
            }
            TOPIC => {
                let some = flag(cursor, "topic")?;
                Answer::Topic(some.then(|| topic(cursor)).transpose()?)
            }
            DONE => Answer::Done,
            PRODUCER => Answer::Producer { id: cursor.i64("producer")?, epoch: cursor.i16("epoch")? },
            APPENDED => Answer::Appended(Offset(cursor.u64("offset")?)),
            ENDED => Answer::Ended { now: ids(cursor)?, already: ids(cursor)? },
            LIVE => {
                let count = cursor.len(TxnId::BYTES_MIN + 1, "transactions")?;
                let one = |cursor: &mut Cursor<'_>| {
                    let id = TxnId::decode(cursor)?;
                    let prepared = flag(cursor, "phase")?;
                    Ok::<_, NotOwners>((id, if prepared { TxnPhase::Prepared } else { TxnPhase::Open }))
                };
                Answer::Live((0..count).map(|_| one(cursor)).collect::<Result<_, _>>()?)
            }
            OUTCOMES => {
                let more = flag(cursor, "more")?;
                let count = cursor.len(TxnId::BYTES_MIN + 1, "outcomes")?;
                let one = |cursor: &mut Cursor<'_>| {
                    let id = TxnId::decode(cursor)?;
                    let committed = flag(cursor, "outcome")?;
                    Ok::<_, NotOwners>((id, if committed { Outcome::Committed } else { Outcome::Aborted }))
                };
                Answer::Outcomes { outcomes: (0..count).map(|_| one(cursor)).collect::<Result<_, _>>()?, more }
            }
            _ => return Err(NotOwners { what: "kind of answer", at: 0 }),
        };
        end(cursor)?;
        Ok(answer)
    }
}

fn topic(cursor: &mut Cursor<'_>) -> Result<RemoteTopic, NotOwners> {
    let (id, uuid) = (TopicId(cursor.u32("topic")?), cursor.u128("uuid")?);
    let count = cursor.len(4 * 8, "partitions")?;
    let one = |cursor: &mut Cursor<'_>| {
        let mut next = || cursor.u64("offset").map(Offset);
        let (log_start, last_stable, high_watermark, log_end) = (next()?, next()?, next()?, next()?);
        if log_start <= last_stable && last_stable <= high_watermark && high_watermark <= log_end {
            Ok(PartitionOffsets { log_start, last_stable, high_watermark, log_end })
        } else {
            Err(NotOwners::from(cursor.malformed("order of offsets")))
        }
    };
    Ok(RemoteTopic { id, uuid, partitions: (0..count).map(|_| one(cursor)).collect::<Result<_, _>>()? })
}
