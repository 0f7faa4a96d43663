//! The state as bytes: for base images, and to compare two states (I-3).
//!
//! Everything is written in the order of its keys, so equal states give equal bytes. `docs/formats/wal.md` has the layout.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::clients::Whose;
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
        let owned = || self.txns.iter().filter_map(|(producer, txn)| Some((producer, txn, txn.whose.owner()?)));
        out.put_len(owned().count());
        for (producer, txn, id) in owned() {
            out.put_i64(*producer);
            id.encode(out);
            txn.encode_body(out);
        }
        out.put_len(self.free_producers.len());
        for (producer, epoch) in &self.free_producers {
            out.put_i64(*producer);
            out.put_i16(*epoch);
        }
        out.put_i64(self.block_end);
        self.encode_groups(out);
        self.encode_clients(out);
        out.put_len(self.memberships.len());
        for (group, members) in &self.memberships {
            out.put_bytes(group.as_bytes());
            out.put_bytes(members);
        }
        self.encode_topics(out);
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
            // A deleted topic has none.
            if !name.is_empty() && state.names.insert(name.clone(), id).is_some() {
                return Err(cursor.malformed("topics: a name twice"));
            }
            state.topics.push(TopicState { dir: name.clone(), name, partitions, ..TopicState::default() });
        }
        for _ in 0..cursor.len(28, "owners")? {
            let id = OwnerId(cursor.u128("owner")?);
            let mut owner = OwnerState { attempt: cursor.u64("attempt")?, ..OwnerState::default() };
            for _ in 0..cursor.len(TxnId::BYTES_MIN + 1, "outcomes")? {
                let id = Arc::new(TxnId::decode(cursor)?);
                let outcome = if cursor.u8("outcome")? == 1 { Outcome::Committed } else { Outcome::Aborted };
                owner.outcomes.insert(id, outcome);
            }
            state.owners.insert(id, owner);
        }
        for _ in 0..cursor.len(TxnId::BYTES_MIN + 8, "transactions")? {
            let producer = cursor.i64("producer")?;
            let id = Arc::new(TxnId::decode(cursor)?);
            let txn = TxnState::decode_body(Whose::Owner(id.clone()), cursor)?;
            let owner = state.owners.get_mut(&id.owner).ok_or(cursor.malformed("transaction without owner"))?;
            owner.live.insert(id, producer);
            state.insert_live(producer, txn).ok_or(cursor.malformed("transaction's partition"))?;
        }
        let len = cursor.len(10, "free producers")?;
        state.free_producers = VecDeque::with_capacity(len);
        for _ in 0..len {
            state.free_producers.push_back((cursor.i64("producer")?, cursor.i16("epoch")?));
        }
        state.block_end = cursor.i64("end of producer block")?;
        state.next_producer = state.block_end;
        state.decode_groups(cursor)?;
        state.offsets_kept = state.count_offsets();
        // Images of version 2 end here.
        if cursor.is_empty() {
            return Ok(state);
        }
        state.decode_clients(cursor)?;
        for _ in 0..cursor.len(8, "memberships")? {
            let group = cursor.string("group")?;
            state.memberships.insert(group, cursor.bytes("members")?.to_vec());
        }
        state.decode_topics(cursor)?;
        state.offsets_kept = state.count_offsets();
        Ok(state)
    }

    /// Takes a live transaction in; none if one of its partitions isn't there.
    pub(super) fn insert_live(&mut self, producer: i64, txn: TxnState) -> Option<()> {
        for (at, first) in &txn.partitions {
            self.partition_mut(*at)?.open.insert((*first, producer));
        }
        self.txns.insert(producer, txn);
        Some(())
    }

    /// The state's bytes. Two states that answer them equally behave equally.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.image_in(Vec::new())
    }

    /// As [`State::image`], behind whatever is in `out` already.
    pub(crate) fn image_in(&self, mut out: Vec<u8>) -> Vec<u8> {
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
        Ok(PartitionState { log_end, segment_base, segment_bytes, producers, ..PartitionState::default() })
    }
}

impl TxnState {
    /// All but whose it is, what is declared, and offsets.
    pub(super) fn encode_body(&self, out: &mut Vec<u8>) {
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

    pub(super) fn decode_body(whose: Whose, cursor: &mut Cursor<'_>) -> Result<TxnState, Malformed> {
        let epoch = cursor.i16("epoch")?;
        let phase = if cursor.u8("phase")? == 1 { TxnPhase::Prepared } else { TxnPhase::Open };
        let (since, bytes, records) = (cursor.i64("since")?, cursor.u64("bytes")?, cursor.u64("records")?);
        let mut partitions = BTreeMap::new();
        for _ in 0..cursor.len(16, "partitions of a transaction")? {
            let at = TopicPartition::new(TopicId(cursor.u32("topic")?), cursor.u32("partition")?);
            partitions.insert(at, cursor.u64("first offset")?);
        }
        Ok(TxnState { phase, bytes, records, partitions, ..TxnState::begun(whose, epoch, since) })
    }
}
