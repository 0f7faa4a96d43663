//! Offsets of consumer groups: committed at once, or handed to a transaction and settled by its end.
//!
//! Rules:
//! * Offsets in a transaction are nobody's business until it has ended; its commit makes them the group's, all at once with
//!   its records, its abort drops them.
//! * Whoever is later in the log wins, and the moment that counts is the one of becoming visible: of a transaction its end,
//!   not its hand-in. Live and replayed state follow the same order (I-3).
//! * What a commit could hit is checked when offsets are handed in, so that a prepared transaction can always commit.
//! * A group with offsets in a live transaction can't be deleted (KAFKA-19163).
//! * Offsets that are old may be forgotten, by whoever knows a group's members and says which topics they read. An offset's time
//!   begins when it is handed in, and anew when it is renewed: by then its group had members, which may have read without
//!   committing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use cutwater_platform::WallTime;

use super::apply::{Inconsistent, inconsistent};
use super::{State, TxnPhase, TxnState};
use crate::codec::{Cursor, Malformed, Put};
use crate::config::LogLimits;
use crate::group::{GROUP_NAME_BYTES_MAX, GroupError, GroupOffset, GroupOffsets, METADATA_BYTES_MAX, OffsetCommit};
use crate::offset::Offset;
use crate::owner::TxnId;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Entry;

/// Offsets of groups, by name.
pub(crate) type Groups = BTreeMap<String, BTreeMap<TopicPartition, GroupOffset>>;

impl State {
    /// Hands offsets of a group in, for the end of a transaction or at once.
    pub(crate) fn plan_offsets(
        &self,
        txn: Option<&TxnId>,
        group: &str,
        offsets: Vec<OffsetCommit>,
        wall: i64,
        limits: &LogLimits,
    ) -> Result<Entry, GroupError> {
        check_group(group)?;
        let producer = txn.map(|id| {
            self.check_attempt(id.owner, id.attempt)?;
            let open = self.live(id).filter(|(_, txn)| txn.phase == TxnPhase::Open);
            open.map(|(producer, _)| producer).ok_or_else(|| GroupError::NotOpen { id: id.clone() })
        });
        self.judge_offsets(producer.transpose()?, group, offsets, wall, limits)
    }

    /// Judges the offsets themselves, for a producer's open transaction or at once.
    pub(crate) fn judge_offsets(
        &self,
        producer: Option<i64>,
        group: &str,
        offsets: Vec<OffsetCommit>,
        wall: i64,
        limits: &LogLimits,
    ) -> Result<Entry, GroupError> {
        check_group(group)?;
        for OffsetCommit { at, offset, metadata } in &offsets {
            let at = *at;
            self.partition(at).ok_or(GroupError::UnknownPartition { at })?;
            if offset.0 > i64::MAX.cast_unsigned() {
                return Err(GroupError::InvalidOffset { at, offset: *offset });
            }
            if metadata.len() > METADATA_BYTES_MAX {
                return Err(GroupError::Metadata { at, bytes: metadata.len() });
            }
        }
        // What replaces an offset takes no room: a group that is there can always go on.
        let target = match producer {
            Some(producer) => self.txns.get(&producer).map(|txn| &txn.offsets),
            None => Some(&self.groups),
        };
        let known = target.and_then(|groups| groups.get(group));
        let is_new = |at: &TopicPartition| known.is_none_or(|known| !known.contains_key(at));
        let new: BTreeSet<TopicPartition> = offsets.iter().map(|commit| commit.at).filter(is_new).collect();
        if !new.is_empty() && self.offsets_kept.saturating_add(new.len()) > limits.group_offsets_max {
            return Err(GroupError::TooMany { limit: limits.group_offsets_max });
        }
        let entry = Entry::GroupOffsets { producer, group: group.to_string(), wall, offsets };
        let bytes = entry.encoded_bytes();
        if bytes > limits.end_bytes_max {
            return Err(GroupError::TooLarge { bytes, limit: limits.end_bytes_max });
        }
        Ok(entry)
    }

    /// Offsets that are kept, those in transactions included: counted anew.
    pub(super) fn count_offsets(&self) -> usize {
        let in_txns = self.txns.values().map(|txn| &txn.offsets);
        in_txns.chain([&self.groups]).map(count).sum()
    }

    /// The groups that have offsets from before `deadline`, by name: at most `most`, those behind `after`.
    pub(crate) fn stale_groups(&self, deadline: i64, after: &str, most: usize) -> Vec<String> {
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let stale = self
            .groups
            .range::<str, _>(behind)
            .filter(|(_, offsets)| offsets.values().any(|kept| kept.since.0 < deadline));
        stale.map(|(group, _)| group.clone()).take(most).collect()
    }

    /// Forgets a group's offsets from before `deadline` but for those in topics that are `read`, and those that a live transaction
    /// may still change (KAFKA-19163). With it: what is forgotten.
    pub(crate) fn plan_offset_expiry(
        &self,
        group: &str,
        deadline: i64,
        read: &BTreeSet<TopicId>,
        limits: &LogLimits,
    ) -> (Vec<Entry>, Vec<TopicPartition>) {
        let unstable: BTreeSet<TopicPartition> =
            self.holding(group).flat_map(|(_, offsets)| offsets.keys().copied()).collect();
        let stays = |at: &TopicPartition| read.contains(&at.topic) || unstable.contains(at);
        let known = self.groups.get(group).into_iter().flatten();
        let gone = known.filter(|(at, kept)| kept.since.0 < deadline && !stays(at)).map(|(at, _)| *at);
        let gone: Vec<TopicPartition> = gone.collect();
        let per_entry = (limits.end_bytes_max / 2 / 8).max(1);
        let entry =
            |some: &[TopicPartition]| Entry::OffsetsDeleted { group: group.to_string(), partitions: some.to_vec() };
        (gone.chunks(per_entry).map(entry).collect(), gone)
    }

    /// Hands a group's offsets in again as they are: their time begins anew.
    pub(crate) fn plan_offsets_renewal(&self, group: &str, wall: i64, limits: &LogLimits) -> Vec<Entry> {
        let entry = |offsets| Entry::GroupOffsets { producer: None, group: group.to_string(), wall, offsets };
        let (mut entries, mut some, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (at, kept) in self.groups.get(group).into_iter().flatten() {
            let one = OffsetCommit { at: *at, offset: kept.offset, metadata: kept.metadata.clone() };
            let more = 24 + one.metadata.len();
            if bytes + more > limits.end_bytes_max / 2 && !some.is_empty() {
                entries.push(entry(std::mem::take(&mut some)));
                bytes = 0;
            }
            bytes += more;
            some.push(one);
        }
        if !some.is_empty() {
            entries.push(entry(some));
        }
        entries
    }

    /// Deletes a group; nothing to do when it isn't there.
    pub(crate) fn plan_group_deletion(&self, group: &str) -> Result<Option<Entry>, GroupError> {
        let transactions: Vec<String> = self.holding(group).map(|(txn, _)| txn.whose.to_string()).collect();
        if !transactions.is_empty() {
            return Err(GroupError::Pending { group: group.to_string(), transactions });
        }
        let known = self.groups.contains_key(group) || self.memberships.contains_key(group);
        Ok(known.then(|| Entry::GroupDeleted { group: group.to_string() }))
    }

    /// Forgets some of a group's offsets; nothing to do when it has none of them.
    pub(crate) fn plan_offsets_deletion(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        limits: &LogLimits,
    ) -> Result<Option<Entry>, GroupError> {
        let known = self.groups.get(group);
        let of: Vec<TopicPartition> =
            partitions.iter().filter(|at| known.is_some_and(|known| known.contains_key(at))).copied().collect();
        let entry = (!of.is_empty()).then(|| Entry::OffsetsDeleted { group: group.to_string(), partitions: of });
        match entry.as_ref().map(Entry::encoded_bytes) {
            Some(bytes) if bytes > limits.end_bytes_max => {
                Err(GroupError::TooLarge { bytes, limit: limits.end_bytes_max })
            }
            _ => Ok(entry),
        }
    }

    /// Keeps what a group's members have agreed on.
    pub(crate) fn plan_membership(
        &self,
        group: &str,
        members: Vec<u8>,
        limits: &LogLimits,
    ) -> Result<Entry, GroupError> {
        check_group(group)?;
        if self.memberships.len() >= limits.group_offsets_max && !self.memberships.contains_key(group) {
            return Err(GroupError::TooMany { limit: limits.group_offsets_max });
        }
        let entry = Entry::Membership { group: group.to_string(), members };
        let bytes = entry.encoded_bytes();
        if bytes > limits.end_bytes_max {
            return Err(GroupError::TooLarge { bytes, limit: limits.end_bytes_max });
        }
        Ok(entry)
    }

    /// The live transactions that hold offsets of a group, with these.
    fn holding(&self, group: &str) -> impl Iterator<Item = (&TxnState, &BTreeMap<TopicPartition, GroupOffset>)> {
        self.txns.values().filter_map(move |txn| Some((txn, txn.offsets.get(group)?)))
    }

    /// What a group has committed.
    pub(crate) fn group_offsets(&self, group: &str) -> GroupOffsets {
        GroupOffsets {
            offsets: self.groups.get(group).cloned().unwrap_or_default(),
            pending: self.holding(group).filter_map(|(txn, _)| txn.whose.owner().cloned()).collect(),
            unstable: self.holding(group).flat_map(|(_, offsets)| offsets.keys().copied()).collect(),
        }
    }

    pub(super) fn apply_offsets_deleted(
        &mut self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<(), Inconsistent> {
        let missing = || inconsistent(format!("group \"{group}\" doesn't have the offsets that are deleted"));
        let offsets = self.groups.get_mut(group).ok_or_else(missing)?;
        for at in partitions {
            offsets.remove(at).ok_or_else(missing)?;
            self.offsets_kept -= 1;
        }
        if offsets.is_empty() {
            self.groups.remove(group);
        }
        Ok(())
    }

    pub(super) fn apply_offsets(
        &mut self,
        producer: Option<i64>,
        group: &str,
        wall: i64,
        offsets: &[OffsetCommit],
    ) -> Result<(), Inconsistent> {
        let groups = match producer {
            Some(producer) => {
                let txn = self.txns.get_mut(&producer).filter(|txn| txn.phase == TxnPhase::Open);
                &mut txn.ok_or_else(|| inconsistent("offsets of a group belong to no open transaction"))?.offsets
            }
            None => &mut self.groups,
        };
        let kept = offsets.iter().map(|OffsetCommit { at, offset, metadata }| {
            (*at, GroupOffset { offset: *offset, metadata: metadata.clone(), since: WallTime(wall) })
        });
        if !offsets.is_empty() {
            let of_group = groups.entry(group.to_string()).or_default();
            let before = of_group.len();
            of_group.extend(kept);
            self.offsets_kept += of_group.len() - before;
        }
        Ok(())
    }

    /// Makes the offsets of a committed transaction the groups'.
    pub(super) fn settle_offsets(&mut self, offsets: Groups) {
        for (group, offsets) in offsets {
            let of_group = self.groups.entry(group).or_default();
            let before = of_group.len();
            of_group.extend(offsets);
            self.offsets_kept += of_group.len() - before;
        }
    }

    /// The groups, and what live transactions hold of them: the end of an image.
    pub(super) fn encode_groups(&self, out: &mut Vec<u8>) {
        encode(&self.groups, out);
        // Those of clients are written with the clients.
        let holding = || self.txns.iter().filter(|(_, txn)| !txn.offsets.is_empty() && txn.whose.owner().is_some());
        out.put_len(holding().count());
        for (producer, txn) in holding() {
            out.put_i64(*producer);
            encode(&txn.offsets, out);
        }
    }

    /// Reads them; images of version 1 end before.
    pub(super) fn decode_groups(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        if cursor.is_empty() {
            return Ok(());
        }
        self.groups = decode(cursor)?;
        for _ in 0..cursor.len(8 + 4, "transactions with offsets")? {
            let producer = cursor.i64("producer")?;
            let offsets = decode(cursor)?;
            self.txns.get_mut(&producer).ok_or(cursor.malformed("offsets without transaction"))?.offsets = offsets;
        }
        Ok(())
    }
}

/// A group needs a name.
fn check_group(group: &str) -> Result<(), GroupError> {
    let named = (1..=GROUP_NAME_BYTES_MAX).contains(&group.len()) && !group.chars().any(char::is_control);
    if named { Ok(()) } else { Err(GroupError::InvalidName { name: group.to_string() }) }
}

/// Offsets of groups.
pub(super) fn count(groups: &Groups) -> usize {
    groups.values().map(BTreeMap::len).sum()
}

pub(super) fn encode(groups: &Groups, out: &mut Vec<u8>) {
    out.put_len(groups.len());
    for (group, offsets) in groups {
        out.put_bytes(group.as_bytes());
        out.put_len(offsets.len());
        for (at, kept) in offsets {
            out.put_u32(at.topic.0);
            out.put_u32(at.partition);
            out.put_u64(kept.offset.0);
            out.put_i64(kept.since.0);
            out.put_bytes(kept.metadata.as_bytes());
        }
    }
}

pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Groups, Malformed> {
    let mut groups = Groups::new();
    for _ in 0..cursor.len(8, "groups")? {
        let group = cursor.string("group")?;
        let mut offsets = BTreeMap::new();
        for _ in 0..cursor.len(28, "offsets of a group")? {
            let at = TopicPartition::new(TopicId(cursor.u32("topic")?), cursor.u32("partition")?);
            let (offset, since) = (Offset(cursor.u64("offset")?), WallTime(cursor.i64("time")?));
            offsets.insert(at, GroupOffset { offset, since, metadata: cursor.string("metadata")? });
        }
        groups.insert(group, offsets);
    }
    Ok(groups)
}
