//! How far a group is behind: in records, and in time.
//!
//! In records: the high watermark minus the committed offset (or the partition's start, if that is larger), as Kafka's tools
//! count; markers of transactions and aborted records are in it. In time: how old the first record is that the group hasn't
//! committed, by the record's own timestamp and the broker's clock; 0 if there is none, or if it comes from the future. A
//! group that has read everything has no lag however long ago that was.
//!
//! The timestamp of an offset never changes, so that it is read once (one batch out of the log) and remembered for as long
//! as the group stands there.

use std::collections::BTreeMap;
use std::time::Duration;

use cutwater_partition_log::{FetchError, Log, Offset, TopicPartition};

/// How far a group is behind in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) records: u64,
    pub(super) time: Duration,
}

/// Timestamps of the first records that groups haven't committed.
#[derive(Debug, Default)]
pub(super) struct Lags {
    known: BTreeMap<(TopicPartition, u64), i64>,
    /// Those that this round has used.
    used: BTreeMap<(TopicPartition, u64), i64>,
}

impl Lags {
    /// How far somebody is behind who goes on at `committed`, at `now` by the wall clock in milliseconds.
    pub(super) fn of(&mut self, log: &Log, at: TopicPartition, committed: Offset, now: i64) -> Result<Lag, FetchError> {
        let offsets = log.offsets(at.topic, at.partition)?;
        let next = committed.max(offsets.log_start);
        let records = offsets.high_watermark.0.saturating_sub(next.0);
        if records == 0 {
            return Ok(Lag { records, time: Duration::ZERO });
        }
        let key = (at, next.0);
        let known = self.used.get(&key).or_else(|| self.known.get(&key)).copied();
        let timestamp = match known {
            Some(known) => Some(known),
            None => log.record_from(at, next)?.and_then(|found| found.timestamp_ms),
        };
        self.used.extend(timestamp.map(|timestamp| (key, timestamp)));
        let age = timestamp.map_or(0, |timestamp| now.saturating_sub(timestamp));
        Ok(Lag { records, time: Duration::from_millis(u64::try_from(age).unwrap_or(0)) })
    }

    /// A round is over: what it hasn't used is forgotten.
    pub(super) fn end_round(&mut self) {
        self.known = std::mem::take(&mut self.used);
    }
}
