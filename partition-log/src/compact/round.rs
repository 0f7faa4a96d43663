//! One round over one partition: first its new keys, then its segments, group by group, each put in its place before the next.
//!
//! From the front to the back, so that a crash between two groups leaves what is older compacted and what is newer not: a
//! tombstone or a marker never goes before what it speaks of.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use super::judge::{Aborted, Fate, Judge, Known, Rules, Seen};
use super::keys::KeyMap;
use super::scope::{Scope, groups};
use crate::batch::rewrite::{emptied, rewrite};
use crate::batch::{BatchError, BatchHeader, control_kind, records};
use crate::policy::TopicPolicy;
use crate::retention::SegmentFacts;
use crate::segment::{ANY_SIZE, AbortedTxn, EachError, PartitionFiles, Replacement, SegmentError};

/// What a round needs beside the files.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) seed: u64,
    pub(crate) map_bytes: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) known: Known,
    pub(crate) now: i64,
}

/// What rounds have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) segments_before: u64,
    pub(crate) segments_after: u64,
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
    pub(crate) records_removed: u64,
}

/// A round under way.
#[derive(Debug)]
pub(crate) struct Round {
    judge: Judge,
    groups: VecDeque<Vec<SegmentFacts>>,
    aborts: Vec<AbortedTxn>,
    /// Where the next round begins.
    pub(crate) end: i64,
    pub(crate) done: Compacted,
}

impl Round {
    /// Takes the keys of what is new, as many as fit.
    ///
    /// # Errors
    /// Damage; the system's; not even one batch's keys fit.
    pub(crate) fn begin(
        files: &PartitionFiles,
        scope: &Scope,
        policy: &TopicPolicy,
        terms: Terms,
    ) -> Result<Option<Round>, SegmentError> {
        let (Some(first), Some(last)) = (scope.segments.first(), scope.segments.last()) else { return Ok(None) };
        let aborts = files.aborted(first.base, i64::MAX)?;
        let mut aborted = Aborted::default();
        aborts.iter().for_each(|txn| aborted.add(txn.producer_id, txn.first_offset, txn.last_offset));
        let mut keys = KeyMap::new(terms.seed, terms.map_bytes);
        let mut end = last.next;
        files.each_batch(scope.dirty_from, last.next, |header, batch| {
            let undone = header.is_transactional() && aborted.holds(header.producer_id, header.base_offset);
            if header.is_control() || undone {
                return Ok(ControlFlow::Continue(()));
            }
            for record in &records(batch, &ANY_SIZE)? {
                let record = record?;
                if !record.key.is_none_or(|key| keys.note(key, record.offset)) {
                    end = header.base_offset;
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if end <= scope.dirty_from {
            return Err(SegmentError::KeysDontFit { offset: end, limit: terms.map_bytes });
        }
        let rules = Rules {
            keys,
            end,
            aborted,
            known: terms.known,
            now: terms.now,
            delete_retention_ms: policy.delete_retention_ms,
        };
        let within: Vec<SegmentFacts> = scope.segments.iter().filter(|s| s.base < end).copied().collect();
        let groups = groups(&within, terms.segment_bytes).into();
        Ok(Some(Round { judge: Judge::new(rules), groups, aborts, end, done: Compacted::default() }))
    }

    /// Compacts the next group. False when there is none left.
    ///
    /// # Errors
    /// Damage; the system's. What was put in its place stays there.
    pub(crate) fn step(&mut self, files: &PartitionFiles) -> Result<bool, SegmentError> {
        let Some(group) = self.groups.pop_front() else { return Ok(false) };
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(true) };
        let mut replacement = Replacement::begin(files, first.base)?;
        let (mut less, mut removed, mut markers) = (group.len() > 1, 0u64, BTreeSet::new());
        let judge = &mut self.judge;
        let each = |header: &BatchHeader, batch: &[u8]| -> Result<_, EachError> {
            let (fate, count) = fate_of(judge, header, batch)?;
            let bytes = match fate {
                Fate::Go => None,
                Fate::Stay => Some(None),
                Fate::Empty => Some(Some(emptied(header))),
                Fate::Less { ref keep, horizon_ms } => match rewrite(batch, &ANY_SIZE, keep, horizon_ms) {
                    Ok(bytes) => Some(Some(bytes)),
                    // Times that lie too far apart: it stays as it is.
                    Err(BatchError::Full { .. }) => Some(None),
                    Err(error) => return Err(error.into()),
                },
            };
            less |= matches!(bytes, Some(Some(_))) && fate != Fate::Empty;
            removed += count;
            if header.is_control() && bytes.is_some() {
                markers.insert(header.base_offset);
            }
            if let Some(bytes) = bytes {
                replacement.push(bytes.as_deref().unwrap_or(batch))?;
            }
            Ok(ControlFlow::Continue(()))
        };
        files.each_batch(first.base, last.next, each)?;
        replacement.fill_to(last.next)?;
        let before: u64 = group.iter().map(|segment| segment.bytes).sum();
        let after = replacement.bytes();
        if !less && after == before {
            replacement.abandon()?;
            return Ok(true);
        }
        let of_group = |txn: &&AbortedTxn| (first.base..last.next).contains(&txn.last_offset);
        let aborts = self.aborts.iter().filter(of_group);
        let kept = aborts.clone().filter(|txn| markers.contains(&txn.last_offset)).copied().collect::<Vec<_>>();
        replacement.put_in_place(aborts.count() > 0, &kept)?;
        self.done.segments_before += group.len() as u64;
        self.done.segments_after += 1;
        self.done.bytes_before += before;
        self.done.bytes_after += after;
        self.done.records_removed += removed;
        Ok(true)
    }
}

/// The fate of a batch, and how many records it loses.
fn fate_of(judge: &mut Judge, header: &BatchHeader, batch: &[u8]) -> Result<(Fate, u64), BatchError> {
    if header.is_control() {
        // What isn't a transaction's marker is none of ours.
        let fate = if control_kind(batch)?.is_some() { judge.marker(header) } else { Fate::Stay };
        return Ok((fate, 0));
    }
    if header.base_offset >= judge.rules.end {
        return Ok((judge.data(header, std::iter::empty()), 0));
    }
    let opened = records(batch, &ANY_SIZE)?;
    let all = opened.iter().collect::<Result<Vec<_>, _>>()?;
    let seen = all.iter().map(|r| Seen { offset: r.offset, key: r.key, is_tombstone: r.value.is_none() });
    let fate = judge.data(header, seen);
    let left = match &fate {
        Fate::Stay => all.len(),
        Fate::Less { keep, .. } => keep.iter().filter(|keep| **keep).count(),
        Fate::Empty | Fate::Go => 0,
    };
    Ok((fate, (all.len() - left) as u64))
}
