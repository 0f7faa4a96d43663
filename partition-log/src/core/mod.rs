//! The state of the log: partitions, producers, owners, transactions. No I/O, no clock, no threads.
//!
//! Two halves. [`decide`] (and [`expire`], for what the clock asks) looks at a request and answers with the entries that carry it out, or with the reason why not;
//! it changes nothing. [`apply`] takes an entry and changes the state; it decides nothing. The running log does
//! both, one behind the other; recovery applies what it finds in the write-ahead log. So the state after N entries is the
//! same whether it was lived or replayed (I-3), and [`image`] writes it down byte for byte the same.
//!
//! The state runs ahead of the disk: it holds what has been *accepted*. What has become durable, and may be shown, is the
//! [`Effect`]s of the entries so far, which [`crate::view`] applies once their frame is on the disk (I-1, I-2).
//!
//! Invariants:
//! * A producer id belongs to at most one live transaction. Live transactions of an owner are in its `live`, others in
//!   its `outcomes` until forgotten, and never in both.
//! * `client_ids` are the clients' producer ids, and no others.
//! * `open` of a partition holds exactly the live transactions with records there.

pub(crate) mod apply;
pub(crate) mod clients;
pub(crate) mod decide;
pub(crate) mod expire;
pub(crate) mod groups;
pub(crate) mod image;
pub(crate) mod topics;

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::clients::{ClientState, Whose};
use self::groups::Groups;
use crate::owner::{OwnerId, TxnId};
use crate::policy::TopicPolicy;
use crate::producer::ProducerState;
use crate::topic::{Topic, TopicId, TopicPartition};
use crate::wal::frame::{Batch, ENDED_BYTES, MARKER_BYTES, Outcome};

/// Producer ids are reserved in blocks of this many.
pub(crate) const PRODUCER_BLOCK: i64 = 1000;

/// Everything the log knows, as of the last accepted entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) topics: Vec<TopicState>,
    pub(crate) names: BTreeMap<String, TopicId>,
    pub(crate) partition_count: usize,
    pub(crate) owners: BTreeMap<OwnerId, OwnerState>,
    /// Committed offsets of consumer groups.
    pub(crate) groups: Groups,
    /// Offsets in them and in live transactions, counted along.
    pub(crate) offsets_kept: usize,
    /// What the members of groups have agreed on, in the words of whoever manages them.
    pub(crate) memberships: BTreeMap<String, Vec<u8>>,
    /// Kafka clients by transactional id.
    pub(crate) clients: BTreeMap<String, ClientState>,
    /// The transactional ids by the clients' producer ids.
    pub(crate) client_ids: BTreeMap<i64, String>,
    /// Live transactions by producer id.
    pub(crate) txns: BTreeMap<i64, TxnState>,
    /// Producer ids of ended transactions with the epoch that their next one gets, longest unused first.
    pub(crate) free_producers: VecDeque<(i64, i16)>,
    /// Producer ids below may have been given out in some life of the log.
    pub(crate) block_end: i64,
    /// The next id of the block to give out. Not part of the image: a new life never continues a block.
    pub(crate) next_producer: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TopicState {
    /// Empty once it is deleted.
    pub(crate) name: String,
    /// What its partitions' directories are called.
    pub(crate) dir: String,
    pub(crate) partitions: Vec<PartitionState>,
    /// Its settings, as whoever set them means them.
    pub(crate) settings: BTreeMap<String, String>,
    /// What they ask of the log.
    pub(crate) policy: TopicPolicy,
    /// When it is deleted: partitions that it had, whose directories go.
    pub(crate) gone: u32,
}

/// One partition, as of the last accepted entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionState {
    pub(crate) log_end: u64,
    /// The first offset that can be read.
    pub(crate) log_start: u64,
    /// First offset of the active segment.
    pub(crate) segment_base: u64,
    /// Bytes of the active segment.
    pub(crate) segment_bytes: u64,
    pub(crate) producers: BTreeMap<i64, ProducerState>,
    /// First offset and producer id of every live transaction with records here.
    pub(crate) open: BTreeSet<(u64, i64)>,
}

impl PartitionState {
    /// The last stable offset once everything accepted is durable.
    pub(crate) fn last_stable(&self) -> u64 {
        self.open.first().map_or(self.log_end, |(first, _)| *first)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerState {
    /// The attempt that may write.
    pub(crate) attempt: u64,
    /// Open and prepared transactions, with their producer id.
    pub(crate) live: BTreeMap<Arc<TxnId>, i64>,
    pub(crate) outcomes: BTreeMap<Arc<TxnId>, Outcome>,
}

impl OwnerState {
    /// Whether a transaction of this name is live or ended.
    pub(crate) fn knows(&self, id: &TxnId) -> bool {
        // Names rise with their checkpoints, so that a new one mostly lies beyond all that have ended.
        let beyond = self.outcomes.last_key_value().is_none_or(|(last, _)| **last < *id);
        self.live.contains_key(id) || (!beyond && self.outcomes.contains_key(id))
    }
}

/// Where a live transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnPhase {
    /// Its writer may append, prepare, commit and abort.
    Open,
    /// It waits for its owner's decision, for as long as that takes.
    Prepared,
}

#[derive(Clone, Debug)]
pub(crate) struct TxnState {
    pub(crate) whose: Whose,
    pub(crate) epoch: i16,
    pub(crate) phase: TxnPhase,
    /// The wall clock when it was begun, or, once prepared, when that happened.
    pub(crate) since: i64,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// Its partitions with its first offset there.
    pub(crate) partitions: BTreeMap<TopicPartition, u64>,
    /// Partitions that a client has announced: the only ones its batches may go to, unless they bring them in themselves.
    pub(crate) declared: BTreeSet<TopicPartition>,
    /// Offsets of groups that its commit makes theirs.
    pub(crate) offsets: Groups,
}

impl TxnState {
    /// One that has just begun.
    pub(crate) fn begun(whose: Whose, epoch: i16, wall: i64) -> TxnState {
        TxnState {
            whose,
            epoch,
            phase: TxnPhase::Open,
            since: wall,
            bytes: 0,
            records: 0,
            partitions: BTreeMap::new(),
            declared: BTreeSet::new(),
            offsets: Groups::new(),
        }
    }

    /// What it takes in the entry that ends it.
    pub(crate) fn end_bytes(&self) -> usize {
        ended_bytes(self.partitions.len())
    }
}

/// Bytes of an ended transaction of this many partitions in an ending entry.
pub(crate) fn ended_bytes(partitions: usize) -> usize {
    ENDED_BYTES + partitions * MARKER_BYTES
}

/// Bytes of an ending entry beside its transactions.
pub(crate) const END_ENTRY_BYTES: usize = 1 + 4 + 1 + 8 + 4;

/// An aborted transaction in one partition, as readers need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbortedTxn {
    pub(crate) producer: i64,
    pub(crate) first: u64,
    /// The marker's offset.
    pub(crate) last: u64,
    /// The last stable offset without this transaction: the next open one's first offset, else the one behind the marker.
    pub(crate) last_stable: u64,
}

/// What becomes visible, and goes into the segments, once the entry is durable.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// A topic with this many partitions, whose directories begin with `dir`.
    Topic { topic: TopicId, dir: String, partitions: u32 },
    /// It has so many from here on.
    Partitions { topic: TopicId, partitions: u32 },
    /// It is gone.
    TopicDeleted { topic: TopicId },
    /// Nothing below can be read any more.
    LogStart { at: TopicPartition, start: u64 },
    /// The next batch of the partition begins a new segment; its producers up to here, as Kafka's snapshot file has them.
    Roll { at: TopicPartition, base: u64, producers: Arc<Vec<u8>> },
    /// A batch with offsets `base..next`; a marker may bring the transaction that it aborts.
    Batch { at: TopicPartition, base: u64, next: u64, last_stable: u64, batch: Batch, aborted: Option<AbortedTxn> },
}

impl State {
    pub(crate) fn topic(&self, topic: TopicId) -> Option<&TopicState> {
        self.topics.get(topic.0 as usize)
    }

    pub(crate) fn partition(&self, at: TopicPartition) -> Option<&PartitionState> {
        self.topic(at.topic)?.partitions.get(at.partition as usize)
    }

    pub(crate) fn partition_mut(&mut self, at: TopicPartition) -> Option<&mut PartitionState> {
        self.topics.get_mut(at.topic.0 as usize)?.partitions.get_mut(at.partition as usize)
    }

    pub(crate) fn topic_list(&self) -> Vec<Topic> {
        let listed = |(index, topic): (usize, &TopicState)| Topic {
            id: TopicId(index as u32),
            name: topic.name.clone(),
            partitions: topic.partitions.len() as u32,
        };
        self.topics.iter().enumerate().filter(|(_, topic)| !topic.name.is_empty()).map(listed).collect()
    }
}
