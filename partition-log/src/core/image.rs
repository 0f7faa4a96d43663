//! The state as bytes: for base images, and to compare two states (I-3).
//!
//! Everything is written in the order of its keys, so equal states give equal bytes. `docs/formats/wal.md` has the layout.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{OwnerState, PartitionState, State, TopicState, TxnPhase, TxnState};
use crate::codec::{Cursor, Malformed, Put};
use crate::owner::{OwnerId, TxnId};
use crate::producer::ProducerState;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Outcome;

impl State {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_len(self.topics.len());
        for topic in &self.topics {
            out.put_bytes(topic.name.as_bytes());
            out.put_len(topic.partitions.len());
            topic.partitions.iter().for_each(|partition| partition.encode(out));
        }
        out.put_len(self.owners.len());
        for (id, owner) in &self.owners {
            out.put_u128(id.0);
            out.put_u64(owner.attempt);
            out.put_len(owner.outcomes.len());
            for (id, outcome) in &owner.outcomes {
                id.encode(out);
                out.put_u8(u8::from(*outcome == Outcome::Committed));
            }
        }
        out.put_len(self.txns.len());
        for (producer, txn) in &self.txns {
            out.put_i64(*producer);
            txn.encode(out);
        }
        out.put_len(self.free_producers.len());
        for (producer, epoch) in &self.free_producers {
            out.put_i64(*producer);
            out.put_i16(*epoch);
        }
        out.put_i64(self.block_end);
        self.encode_groups(out);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<State, Malformed> {
        let mut state = State::default();
        for index in 0..cursor.len(8, "topics")? {
            let name = cursor.string("topic name")?;
            let len = cursor.len(PartitionState::BYTES_MIN, "partitions")?;
            let mut partitions = Vec::with_capacity(len);
            for _ in 0..len {
                partitions.push(PartitionState::decode(cursor)?);
            }
            state.partition_count += len;
            let id = TopicId(u32::try_from(index).map_err(|_| cursor.malformed("topics"))?);
            if state.names.insert(name.clone(), id).is_some() {
                return Err(cursor.malformed("topics: a name twice"));
            }
            state.topics.push(TopicState { name, partitions });
        }
        for _ in 0..cursor.len(28, "owners")? {
            let id = OwnerId(cursor.u128("owner")?);
            let mut owner = OwnerState { attempt: cursor.u64("attempt")?, ..OwnerState::default() };
            for _ in 0..cursor.len(TxnId::BYTES_MIN + 1, "outcomes")? {
                let id = TxnId::decode(cursor)?;
                let outcome = if cursor.u8("outcome")? == 1 { Outcome::Committed } else { Outcome::Aborted };
                owner.outcomes.insert(id, outcome);
            }
            state.owners.insert(id, owner);
        }
        for _ in 0..cursor.len(TxnId::BYTES_MIN + 8, "transactions")? {
            let producer = cursor.i64("producer")?;
            let txn = TxnState::decode(cursor)?;
            let owner = state.owners.get_mut(&txn.id.owner).ok_or(cursor.malformed("transaction without owner"))?;
            owner.live.insert(txn.id.clone(), producer);
            for (at, first) in &txn.partitions {
                let topic = state.topics.get_mut(at.topic.0 as usize);
                let partition = topic.and_then(|topic| topic.partitions.get_mut(at.partition as usize));
                partition.ok_or(cursor.malformed("transaction's partition"))?.open.insert((*first, producer));
            }
            state.txns.insert(producer, txn);
        }
        let len = cursor.len(10, "free producers")?;
        state.free_producers = VecDeque::with_capacity(len);
        for _ in 0..len {
            state.free_producers.push_back((cursor.i64("producer")?, cursor.i16("epoch")?));
        }
        state.block_end = cursor.i64("end of producer block")?;
        state.next_producer = state.block_end;
        state.decode_groups(cursor)?;
        Ok(state)
    }

    /// The state's bytes. Two states that answer them equally behave equally.
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

impl PartitionState {
    const BYTES_MIN: usize = 8 * 3 + 4;

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.log_end);
        out.put_u64(self.segment_base);
        out.put_u64(self.segment_bytes);
        out.put_len(self.producers.len());
        for (producer, state) in &self.producers {
            out.put_i64(*producer);
            state.encode(out);
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<PartitionState, Malformed> {
        let log_end = cursor.u64("log end")?;
        let segment_base = cursor.u64("segment base")?;
        let segment_bytes = cursor.u64("segment bytes")?;
        let mut producers = BTreeMap::new();
        for _ in 0..cursor.len(22, "producers")? {
            producers.insert(cursor.i64("producer")?, ProducerState::decode(cursor)?);
        }
        Ok(PartitionState { log_end, segment_base, segment_bytes, producers, open: BTreeSet::new() })
    }
}

impl TxnState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.put_i16(self.epoch);
        out.put_u8(u8::from(self.phase == TxnPhase::Prepared));
        out.put_i64(self.since);
        out.put_u64(self.bytes);
        out.put_u64(self.records);
        out.put_len(self.partitions.len());
        for (at, first) in &self.partitions {
            out.put_u32(at.topic.0);
            out.put_u32(at.partition);
            out.put_u64(*first);
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<TxnState, Malformed> {
        let id = TxnId::decode(cursor)?;
        let epoch = cursor.i16("epoch")?;
        let phase = if cursor.u8("phase")? == 1 { TxnPhase::Prepared } else { TxnPhase::Open };
        let (since, bytes, records) = (cursor.i64("since")?, cursor.u64("bytes")?, cursor.u64("records")?);
        let mut partitions = BTreeMap::new();
        for _ in 0..cursor.len(16, "partitions of a transaction")? {
            let at = TopicPartition::new(TopicId(cursor.u32("topic")?), cursor.u32("partition")?);
            partitions.insert(at, cursor.u64("first offset")?);
        }
        Ok(TxnState { id, epoch, phase, since, bytes, records, partitions, offsets: Default::default() })
    }
}
