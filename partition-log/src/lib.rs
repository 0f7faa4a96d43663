//! A transactional, partitioned log: record batches in Kafka's format, one write-ahead log that is the commit point,
//! idempotent producers, transactions with owners, and recovery from a crash at any point.
//!
//! ```text
//!  producer, transaction                               consumer
//!        | batch                                          ^ batches below the high watermark / last stable offset
//!  +-----v------+  entries   +--------+  one synced   +---+---+
//!  | accept     |----------->| writer |-- write ----->| view  |  positions, tail of newest batches
//!  | (core: the |   queue    +--------+   then show   +---^---+
//!  |  state)    |                 |                       | older batches
//!  +------------+                 v durable effects       |
//!                          +--------------+         +-----+----+
//!                          | materialiser |-------->| segments |  Kafka's files, one directory per partition
//!                          +--------------+         +----------+
//! ```
//!
//! | | modules, in reading order |
//! |---|---|
//! | words | [`topic`], [`offset`], [`owner`], [`client`], [`group`], `producer`, [`config`], [`error`], [`status`] |
//! | bytes | [`batch`] (Kafka's record batches), `codec` (numbers and texts of our own files), `base_image` |
//! | decisions | `core` (the state machine: judge, apply), `policy`, `room` (what a full disk refuses) |
//! | the path of a write | `accept` (one lock, one queue), `wal` (frames, files, the writer, replay), `held` and `reserve` (while the disk is full), `view` (what may be seen), `materialise`, [`segment`] and `segments`, `spares` (memory used again) |
//! | start and upkeep | `recover`, `lock`, `janitor`, `retention`, `compact`, [`meter`] |
//! | handles | [`embedded`] in this process; [`remote`], the same for a process behind a broker |
//!
//! What it promises:
//!
//! * Acknowledged means synced, by group commit without a timer.
//! * A transaction becomes visible exactly when its commit is durable, in all its partitions at once (I-1). Ending any
//!   number of transactions is one atomic write, offsets of consumer groups included.
//! * Nothing at or above the high watermark, which is what is durable, is shown to any reader; the last stable offset
//!   never moves back (I-2).
//! * The state at position N is the state replayed from the log's prefix to N (I-3).
//! * At most one attempt of an owner can write; an older one is refused (I-7).
//! * Memory is bounded by [`LogLimits`] (I-9).
//! * A failed write or sync stops the log; an unknown outcome is called unknown. A write that found no room is tried again: until
//!   then what would grow the log is refused, and readers read on (`room`).
//!
//! [`embedded::group`] shows consume, transform, produce as one transaction.
//!
//! Beside all that a janitor (`janitor`) keeps the log from growing for ever: `retention`, `compact`, on what `policy` reads out of
//! a topic's settings.
//!
//! What it deliberately doesn't do: replication: one machine.

#![forbid(unsafe_code)]

pub mod batch;
pub mod client;
pub mod config;
pub mod embedded;
pub mod error;
pub mod group;
#[doc(hidden)]
pub mod look;
pub mod meter;
pub mod offset;
pub mod owner;
pub mod remote;
pub mod segment;
pub mod status;
pub mod topic;

mod accept;
mod base_image;
mod codec;
mod compact;
mod core;
mod held;
mod janitor;
mod lock;
mod materialise;
mod policy;
mod producer;
mod recover;
mod reserve;
mod retention;
mod room;
mod segments;
mod spares;
mod view;
mod wal;

pub use self::core::TxnPhase;
pub use client::{ClientError, ClientInfo, ClientPhase, ClientProducer, ProducerInfo};
pub use config::{Holder, LogLimits, LogOptions};
pub use embedded::Log;
pub use embedded::consumer::{Consumer, Fetched, Isolation};
pub use embedded::lookup::{FoundOffset, OffsetSpec};
pub use embedded::owner::{AbortOutcome, CommitOutcome, Owner};
pub use embedded::producer::{AppendTicket, BatchSource, Producer};
pub use embedded::raw::{RawFetch, Watch};
pub use embedded::rehearsal::Rehearsal;
pub use embedded::transaction::{CommitTicket, Prepared, Txn};
pub use error::{
    AbortError, AppendError, ClaimError, CloseError, CommitError, Down, Fenced, FetchError, OpenError, OutcomeUnknown,
    PrepareError, ProduceError, Sent, TidyError, TopicError, TxnError,
};
pub use group::{GroupError, GroupOffset, GroupOffsets, GroupProgress, OffsetCommit};
pub use janitor::Tidied;
pub use offset::{Offset, PartitionOffsets};
pub use owner::{OwnerId, TxnId, TxnName};
pub use policy::Cleanup;
pub use producer::SequenceError;
pub use room::NoRoom;
pub use status::{OwnerInfo, Status, TxnInfo};
pub use topic::{Topic, TopicId, TopicPartition};
pub use wal::frame::Outcome;
