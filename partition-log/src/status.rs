//! What a log says about itself.

use std::collections::BTreeMap;

use cutwater_platform::WallTime;

use crate::core::{State, TxnPhase, TxnState};
use crate::owner::{OwnerId, TxnId};
use crate::topic::TopicPartition;
use crate::wal::frame::Outcome;

/// A live transaction as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnInfo {
    /// Its name.
    pub id: TxnId,
    /// Open or prepared.
    pub state: TxnPhase,
    /// When it was begun, or, once prepared, when that happened.
    pub since: WallTime,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
    /// Its partitions, with the offset of its first record there. Read-committed readers wait at the smallest of these.
    pub partitions: BTreeMap<TopicPartition, crate::Offset>,
}

impl TxnInfo {
    /// An owner's transaction; none for a client's.
    pub(crate) fn of(txn: &TxnState) -> Option<TxnInfo> {
        Some(TxnInfo {
            id: txn.whose.owner()?.clone(),
            state: txn.phase,
            since: WallTime(txn.since),
            bytes: txn.bytes,
            records: txn.records,
            partitions: txn.partitions.iter().map(|(at, first)| (*at, crate::Offset(*first))).collect(),
        })
    }
}

/// An owner as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerInfo {
    /// The owner.
    pub id: OwnerId,
    /// The attempt that may write.
    pub attempt: u64,
    /// Its live transactions.
    pub live: Vec<TxnId>,
    /// How its ended transactions ended, as far as that isn't forgotten.
    pub outcomes: Vec<(TxnId, Outcome)>,
}

/// A log at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The life of the log: every open starts the next one.
    pub generation: u64,
    /// Bytes ever written to the write-ahead log. Everything below this position is durable.
    pub position: u64,
    /// Bytes of the write-ahead files on the disk.
    pub wal_bytes: u64,
    /// Write-ahead files that a recovery would need.
    pub wal_files: usize,
    /// Bytes accepted and waiting for the disk.
    pub queued_bytes: usize,
    /// Bytes durable but not yet in segments.
    pub unmaterialised_bytes: usize,
    /// Bytes in segments that are not synced there yet; the write-ahead log covers them.
    pub dirty_bytes: u64,
    /// Topics.
    pub topics: usize,
    /// Partitions of all topics.
    pub partitions: usize,
    /// Open transactions.
    pub open: usize,
    /// Prepared transactions.
    pub prepared: usize,
    /// The transaction that has been prepared for the longest time. It holds back read-committed readers and disk.
    pub oldest_prepared: Option<TxnInfo>,
    /// The write for which the disk has no room: until it has, nothing is accepted that makes the log larger.
    pub no_room: Option<crate::NoRoom>,
    /// Why the log takes no requests, if so.
    pub down: Option<crate::Down>,
}

pub(crate) fn oldest_prepared(state: &State) -> Option<TxnInfo> {
    let prepared = state.txns.values().filter(|txn| txn.phase == TxnPhase::Prepared);
    prepared.min_by_key(|txn| txn.since).and_then(TxnInfo::of)
}

/// The transaction that has been prepared for the longest time, if for `alarm` milliseconds or more.
pub(crate) fn late_prepared(state: &State, now: i64, alarm: i64) -> Option<TxnInfo> {
    oldest_prepared(state).filter(|oldest| now.saturating_sub(oldest.since.0) >= alarm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clients::Whose;

    #[test]
    fn only_prepared_transactions_are_ever_late_and_the_oldest_is_named() {
        let mut state = State::default();
        for (producer, phase, since) in
            [(1, TxnPhase::Open, 0), (2, TxnPhase::Prepared, 50), (3, TxnPhase::Prepared, 40)]
        {
            let id = TxnId { owner: OwnerId(1), attempt: 1, checkpoint: 1, sink: "s".to_string(), writer: producer };
            let txn = TxnState { phase, bytes: 7, records: 1, ..TxnState::begun(Whose::Owner(id.into()), 0, since) };
            state.txns.insert(i64::from(producer), txn);
        }
        assert_eq!(late_prepared(&state, 139, 100), None);
        let late = late_prepared(&state, 140, 100).expect("one is late");
        assert_eq!((late.id.writer, late.bytes), (3, 7));
        state.txns.retain(|_, txn| txn.phase == TxnPhase::Open);
        assert_eq!(late_prepared(&state, 1_000_000, 100), None);
    }
}
