//! Applies an entry to the state. Decides nothing.
//!
//! An entry that doesn't fit the state is [`Inconsistent`]: the running log never issues one, so at recovery it means that
//! the write-ahead log isn't what was written, whatever its checksums say.

use std::collections::btree_map;
use std::sync::Arc;

use thiserror::Error;

use super::clients::Whose;
use super::{AbortedTxn, Effect, PartitionState, State, TxnPhase, TxnState};
use crate::batch::{BatchHeader, ControlKind, assign, control_batch};
use crate::owner::TxnId;
use crate::producer::{Appended, ProducerState, last_sequence, snapshot};
use crate::topic::TopicPartition;
use crate::wal::frame::{Batch, Ended, Entry, Outcome};

/// An entry that contradicts the state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("an entry of the log contradicts the ones before it: {what}")]
pub(crate) struct Inconsistent {
    pub(crate) what: String,
}

pub(super) fn inconsistent(what: impl Into<String>) -> Inconsistent {
    Inconsistent { what: what.into() }
}

/// The epoch after which a producer id isn't used again: the largest is left unused, as in Kafka.
pub(super) const LAST_EPOCH: i16 = i16::MAX - 1;

impl State {
    /// Changes the state by one entry and adds what it makes visible.
    ///
    /// # Errors
    /// [`Inconsistent`]; the state may be half changed and must not be used any more.
    pub(crate) fn apply(&mut self, entry: &Entry, effects: &mut Vec<Effect>) -> Result<(), Inconsistent> {
        match entry {
            Entry::Append { at, wall, batch } => self.apply_append(*at, *wall, batch, effects),
            Entry::Roll { at, base } => self.apply_roll(*at, *base, effects),
            Entry::TopicCreated { topic, partitions, name } => {
                self.apply_topic_created(*topic, *partitions, name, effects)
            }
            Entry::ProducerBlock { end } => self.apply_producer_block(*end),
            Entry::Claim { owner, attempt } => {
                let owner_state = self.owners.entry(*owner).or_default();
                if *attempt <= owner_state.attempt {
                    return Err(inconsistent(format!("owner {owner} goes back to attempt {attempt}")));
                }
                owner_state.attempt = *attempt;
                Ok(())
            }
            Entry::Begin { id, producer, epoch, wall } => self.apply_begin(id, *producer, *epoch, *wall),
            Entry::Prepare { producer, wall } => {
                let txn = self.txns.get_mut(producer).ok_or_else(|| inconsistent("what is prepared isn't open"))?;
                if txn.phase != TxnPhase::Open {
                    return Err(inconsistent(format!("{} is prepared twice", txn.whose)));
                }
                txn.phase = TxnPhase::Prepared;
                txn.since = *wall;
                Ok(())
            }
            Entry::End { outcome, wall, ended } => {
                ended.iter().try_for_each(|one| self.apply_end(*outcome, *wall, one, effects))
            }
            Entry::Forget { ids } => {
                for id in ids {
                    self.owners.get_mut(&id.owner).and_then(|owner| owner.outcomes.remove(id));
                }
                Ok(())
            }
            Entry::GroupOffsets { producer, group, wall, offsets } => {
                self.apply_offsets(*producer, group, *wall, offsets)
            }
            Entry::GroupDeleted { group } => {
                let offsets = self.groups.remove(group);
                let known = offsets.is_some();
                self.offsets_kept -= offsets.map_or(0, |offsets| offsets.len());
                let managed = self.memberships.remove(group).is_some();
                match known || managed {
                    true => Ok(()),
                    false => Err(inconsistent(format!("group \"{group}\" isn't there to be deleted"))),
                }
            }
            Entry::Membership { group, members } => {
                self.memberships.insert(group.clone(), members.clone());
                Ok(())
            }
            Entry::OffsetsDeleted { group, partitions } => self.apply_offsets_deleted(group, partitions),
            Entry::Client { id, state } => self.apply_client(id, state),
            Entry::ClientTxn { producer, wall, partitions } => self.apply_client_txn(*producer, *wall, partitions),
            Entry::ClientForgotten { id } => self.apply_client_forgotten(id),
            Entry::TopicDeleted { topic } => self.apply_topic_deleted(*topic, effects),
            Entry::PartitionsAdded { topic, partitions } => self.apply_partitions_added(*topic, *partitions, effects),
            Entry::LogStart { at, start } => self.apply_log_start(*at, *start, effects),
            Entry::Settings { topic, settings } => self.apply_settings(*topic, settings),
            Entry::ForgetProducers { at, producers } => {
                let partition = self.known_partition(*at)?;
                for producer in producers {
                    partition.producers.remove(producer);
                }
                Ok(())
            }
        }
    }

    fn known_partition(&mut self, at: TopicPartition) -> Result<&mut PartitionState, Inconsistent> {
        self.partition_mut(at).ok_or_else(|| inconsistent(format!("{at} doesn't exist")))
    }

    fn apply_append(
        &mut self,
        at: TopicPartition,
        wall: i64,
        batch: &Batch,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Inconsistent> {
        let header = BatchHeader::parse(batch).map_err(|e| inconsistent(format!("a batch in {at}: {e}")))?;
        let partition = self
            .topics
            .get_mut(at.topic.0 as usize)
            .and_then(|topic| topic.partitions.get_mut(at.partition as usize))
            .ok_or_else(|| inconsistent(format!("{at} doesn't exist")))?;
        let base = partition.log_end;
        if header.base_offset.cast_unsigned() != base || header.last_offset_delta < 0 {
            let found = header.base_offset;
            return Err(inconsistent(format!("a batch in {at} begins at offset {found} where {base} is next")));
        }
        let next = base + header.last_offset_delta.cast_unsigned() as u64 + 1;
        if header.is_transactional() {
            let txn = self.txns.get_mut(&header.producer_id).filter(|txn| txn.phase == TxnPhase::Open);
            let txn = txn.ok_or_else(|| inconsistent(format!("a batch in {at} belongs to no open transaction")))?;
            txn.bytes += batch.len() as u64;
            txn.records += header.record_count.max(0).cast_unsigned() as u64;
            if let btree_map::Entry::Vacant(first) = txn.partitions.entry(at) {
                first.insert(base);
                partition.open.insert((base, header.producer_id));
            }
        }
        if header.has_producer() {
            let appended = Appended {
                first_sequence: header.base_sequence,
                last_sequence: last_sequence(header.base_sequence, header.last_offset_delta),
                base_offset: base,
                last_offset: next - 1,
            };
            partition.producers.entry(header.producer_id).or_default().append(header.producer_epoch, appended, wall);
        }
        partition.log_end = next;
        partition.segment_bytes += batch.len() as u64;
        let last_stable = partition.last_stable();
        effects.push(Effect::Batch { at, base, next, last_stable, batch: batch.clone(), aborted: None });
        Ok(())
    }

    fn apply_roll(&mut self, at: TopicPartition, base: u64, effects: &mut Vec<Effect>) -> Result<(), Inconsistent> {
        let partition = self.known_partition(at)?;
        if base != partition.log_end || base == partition.segment_base {
            let end = partition.log_end;
            return Err(inconsistent(format!("{at} ends at {end} and can't begin a segment at {base}")));
        }
        partition.segment_base = base;
        partition.segment_bytes = 0;
        let producers = Arc::new(snapshot(&partition.producers, &partition.open));
        effects.push(Effect::Roll { at, base, producers });
        Ok(())
    }

    fn apply_producer_block(&mut self, end: i64) -> Result<(), Inconsistent> {
        if end <= self.block_end {
            return Err(inconsistent("a block of producer ids lies below one given out before"));
        }
        self.next_producer = self.block_end;
        self.block_end = end;
        Ok(())
    }

    fn apply_begin(&mut self, id: &Arc<TxnId>, producer: i64, epoch: i16, wall: i64) -> Result<(), Inconsistent> {
        let taken = self.txns.contains_key(&producer) || producer >= self.block_end;
        let owner = self.owners.get_mut(&id.owner).filter(|owner| owner.attempt >= id.attempt);
        let owner = owner.ok_or_else(|| inconsistent(format!("{id} begins in an attempt that wasn't claimed")))?;
        if taken || owner.knows(id) {
            return Err(inconsistent(format!("{id} begins twice")));
        }
        owner.live.insert(id.clone(), producer);
        if self.free_producers.front() == Some(&(producer, epoch)) {
            self.free_producers.pop_front();
        } else {
            self.free_producers.retain(|(free, _)| *free != producer);
        }
        self.txns.insert(producer, TxnState::begun(Whose::Owner(id.clone()), epoch, wall));
        Ok(())
    }

    fn apply_end(
        &mut self,
        outcome: Outcome,
        wall: i64,
        ended: &Ended,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Inconsistent> {
        let producer = ended.producer;
        let txn = self.txns.remove(&producer).ok_or_else(|| inconsistent("what ends isn't live"))?;
        // A fencing end carries the next epoch, so that every batch of the old one is refused from here on. Of a client every
        // end may.
        let may_raise = outcome == Outcome::Aborted || txn.whose.owner().is_none();
        let raised = may_raise && txn.epoch.checked_add(1) == Some(ended.epoch);
        if (txn.epoch != ended.epoch && !raised) || txn.partitions.len() != ended.markers.len() {
            return Err(inconsistent(format!("{} ends as if it were another one", txn.whose)));
        }
        let kind = match outcome {
            Outcome::Committed => ControlKind::Commit,
            Outcome::Aborted => ControlKind::Abort,
        };
        for (at, offset) in &ended.markers {
            let first = txn.partitions.get(at).copied();
            let first = first.ok_or_else(|| inconsistent(format!("{} has no records in {at}", txn.whose)))?;
            let partition = self.known_partition(*at)?;
            if partition.log_end != *offset {
                return Err(inconsistent(format!("a marker in {at} stands at {offset}, not at the end")));
            }
            partition.open.remove(&(first, producer));
            let mut marker = control_batch(kind, producer, ended.epoch, 0, wall);
            assign(&mut marker, offset.cast_signed(), 0);
            partition.log_end += 1;
            partition.segment_bytes += marker.len() as u64;
            if let Some(known) = partition.producers.get_mut(&producer) {
                known.mark(ended.epoch, wall);
            } else {
                let known = ProducerState { epoch: ended.epoch, wall, ..ProducerState::default() };
                partition.producers.insert(producer, known);
            }
            let last_stable = partition.last_stable();
            let aborted = AbortedTxn { producer, first, last: *offset, last_stable };
            effects.push(Effect::Batch {
                at: *at,
                base: *offset,
                next: offset + 1,
                last_stable,
                batch: Arc::new(marker),
                aborted: (outcome == Outcome::Aborted).then_some(aborted),
            });
        }
        self.offsets_kept -= super::groups::count(&txn.offsets);
        if outcome == Outcome::Committed {
            self.settle_offsets(txn.offsets);
        }
        let id = match txn.whose {
            Whose::Owner(id) => id,
            // It keeps its producer id.
            Whose::Client(id) => {
                self.settle_client(&id, ended.epoch, outcome, wall);
                return Ok(());
            }
        };
        if ended.epoch < LAST_EPOCH {
            self.free_producers.push_back((producer, ended.epoch + 1));
        }
        if let Some(owner) = self.owners.get_mut(&id.owner) {
            owner.live.remove(&id);
            owner.outcomes.insert(id, outcome);
        }
        Ok(())
    }
}
