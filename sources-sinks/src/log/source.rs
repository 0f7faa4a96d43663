//! Topics of the partition log as a source.
//!
//! * Guarantee: exactly-once; a partition can be read again from any offset that is still there.
//! * Position: topic id, next offset, and the offset at which reading ends if that was asked for.
//! * Staged at a barrier: nothing, it only reads; positions live in the job's checkpoints, not in the log.
//! * Commit: nothing, but that a group's offsets say how far it has come if it has a [group](LogSource::group).
//!
//! One split per partition. Only what is committed is read, in the order of offsets. A position whose topic was made anew, or
//! whose records are gone, is refused and never guessed at.

use std::collections::VecDeque;
use std::sync::Arc;

use cutwater_engine::error::SourceError;
use cutwater_engine::source::{Follow, Read, Reader, Replay, Source, Waker};
use cutwater_partition_log::group::GROUP_NAME_BYTES_MAX;
use cutwater_partition_log::{PartitionOffsets, TopicId};

use crate::log::LogHandle;
use crate::log::at::{At, Found, Records, from_fetch};
use crate::log::follow::LogFollow;
use crate::log::record::{Header, LogRecord};
use crate::position::{Cursor, PositionError};

/// Bytes asked of the log at once.
const POLL_BYTES: usize = 256 * 1024;
/// Memory for more records than this isn't kept from one fetch to the next: a topic may have many partitions.
const KEPT_RECORDS_MAX: usize = 4096;
/// Format of a position.
const VERSION: u8 = 1;

/// A source of the records of a topic. See [`LogHandle::read`].
#[derive(Clone, Debug)]
pub struct LogSource {
    handle: LogHandle,
    topic: String,
    start: Start,
    until_latest: bool,
    partitions: Option<u32>,
    group: Option<String>,
}

/// Where to start when there is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Earliest,
    Latest,
}

impl LogSource {
    pub(crate) fn new(handle: LogHandle, topic: String) -> LogSource {
        LogSource { handle, topic, start: Start::Earliest, until_latest: false, partitions: None, group: None }
    }

    /// Starts with the oldest record that is there: the default.
    #[must_use]
    pub fn from_earliest(self) -> LogSource {
        LogSource { start: Start::Earliest, ..self }
    }

    /// Starts behind what is committed when the job is started for the first time.
    #[must_use]
    pub fn from_latest(self) -> LogSource {
        LogSource { start: Start::Latest, ..self }
    }

    /// Ends with the last record that is committed when the job is started for the first time, instead of waiting for more.
    /// What that means is resolved once per partition and part of the position.
    #[must_use]
    pub fn until_latest(self) -> LogSource {
        LogSource { until_latest: true, ..self }
    }

    /// The topic has this many partitions: it is created with them if it isn't there, and refused if it has another number. So
    /// that a job can be started before the one that writes what it reads. Without this, a missing topic is refused.
    #[must_use]
    pub fn partitions(self, partitions: u32) -> LogSource {
        LogSource { partitions: Some(partitions), ..self }
    }

    /// Shows from outside how far it has come: whenever a checkpoint is committed, its offsets become those of this consumer group, in
    /// the same write as the output that the job commits to the same log. Tools for Kafka and the broker's metrics then show the job's lag,
    /// in the log of a broker as in an embedded one.
    ///
    /// That is all it does. Where the job goes on is in its checkpoints, whatever the group's offsets are; the group has no members, and
    /// its name should be nobody else's: a broker leaves the offsets of a group with members to them. An at-most-once job has no
    /// checkpoints, and shows nothing. One write of an offset per partition and checkpoint, none where nothing has moved.
    #[must_use]
    pub fn group(self, name: impl Into<String>) -> LogSource {
        LogSource { group: Some(name.into()), ..self }
    }

    fn find(&self) -> Result<(&At, Found), SourceError> {
        let what = || format!("topic {:?}", self.topic);
        let log = self.handle.shared().map(|shared| &shared.at);
        let log = log.ok_or_else(|| SourceError::fatal(&self.topic, "the log could not be opened"))?;
        let topic = log.topic(&self.topic, self.partitions).map_err(|e| e.of_source(&what()))?;
        let missing = || {
            let reason = "there is no such topic in the log; create it (partitions(n) of the source does), or run the job that \
                          writes it first";
            SourceError::fatal(what(), reason)
        };
        Ok((log, topic.ok_or_else(missing)?))
    }
}

impl Source for LogSource {
    type Item = LogRecord;

    fn replay(&self) -> Replay {
        Replay::FromPosition
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        if self.group.as_ref().is_some_and(|group| group.is_empty() || group.len() > GROUP_NAME_BYTES_MAX) {
            let reason = format!("the name of its group must have 1 to {GROUP_NAME_BYTES_MAX} bytes");
            return Err(SourceError::fatal(format!("topic {:?}", self.topic), reason));
        }
        let (_, topic) = self.find()?;
        Ok((0..topic.partitions).map(|partition| partition.to_string()).collect())
    }

    fn open(
        &self,
        split: &str,
        position: Option<&[u8]>,
        waker: Waker,
    ) -> Result<Box<dyn Reader<Item = LogRecord>>, SourceError> {
        let (log, topic) = self.find()?;
        let what = format!("topic {:?} partition {split}", self.topic);
        let partition: u32 = split.parse().map_err(|_| SourceError::fatal(&what, "its number is none"))?;
        let offsets = log.offsets(&topic, partition).map_err(|e| from_fetch(&what, e))?;
        let place = match position {
            None => self.first_place(topic.id, offsets),
            Some(bytes) => {
                let place = Place::decode(bytes).map_err(|e| SourceError::fatal(&what, e))?;
                place.check(topic.id, offsets).map_err(|reason| SourceError::fatal(&what, reason))?;
                place
            }
        };
        let log = log.records(&topic, partition, place.next, waker.as_fn()).map_err(|e| from_fetch(&what, e))?;
        Ok(Box::new(LogReader { what, partition, log, place, pending: VecDeque::new() }))
    }

    fn follow(&self) -> Option<Arc<dyn Follow>> {
        let (group, told) = (self.group.clone()?, self.handle.shared()?.group.clone());
        Some(Arc::new(LogFollow { group, told }))
    }
}

impl LogSource {
    fn first_place(&self, topic: TopicId, offsets: PartitionOffsets) -> Place {
        let next = match self.start {
            Start::Earliest => offsets.log_start.0,
            Start::Latest => offsets.last_stable.0,
        };
        Place { topic, next, end: self.until_latest.then_some(offsets.last_stable.0) }
    }
}

/// What a position says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) topic: TopicId,
    pub(super) next: u64,
    /// The offset before which reading ends.
    end: Option<u64>,
}

impl Place {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.topic.0.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        out.push(u8::from(self.end.is_some()));
        out.extend_from_slice(&self.end.unwrap_or(0).to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Place, PositionError> {
        let mut cursor = Cursor::new(bytes, VERSION)?;
        let (topic, next) = (TopicId(cursor.u32()?), cursor.u64()?);
        let (has_end, end) = (cursor.u8()?, cursor.u64()?);
        cursor.end()?;
        match has_end {
            0 => Ok(Place { topic, next, end: None }),
            1 => Ok(Place { topic, next, end: Some(end) }),
            _ => Err(PositionError::Damaged),
        }
    }

    /// Refuses a position from another topic, and one whose records are gone. Pure.
    fn check(&self, topic: TopicId, now: PartitionOffsets) -> Result<(), String> {
        if self.topic != topic {
            return Err(format!(
                "the checkpoint read topic {}, this is topic {topic}: it was made anew; start the job afresh",
                self.topic
            ));
        }
        let (start, stable) = (now.log_start.0, now.last_stable.0);
        if self.next < start {
            return Err(format!(
                "the checkpoint stands at offset {}, but the oldest record left is {start}: records that were never read have \
                 been removed; start the job afresh to go on without them",
                self.next
            ));
        }
        let furthest = self.next.max(self.end.unwrap_or(0));
        if furthest > stable {
            return Err(format!(
                "the checkpoint knows offset {furthest}, but the log ends at {stable}: it is another log or an older copy; \
                 restore the log that belongs to this checkpoint"
            ));
        }
        Ok(())
    }
}

/// Reads one partition.
struct LogReader {
    what: String,
    partition: u32,
    log: Records,
    /// Where `pending` begins.
    place: Place,
    /// Fetched and not handed out: the log gives whole batches, which may be larger than what was asked for. Its memory is used
    /// again for each fetch.
    pending: VecDeque<LogRecord>,
}

impl LogReader {
    fn is_at_end(&self) -> bool {
        self.pending.is_empty() && self.place.end.is_some_and(|end| self.place.next >= end)
    }

    /// Asks the log once; false if it has nothing.
    fn fetch(&mut self) -> Result<bool, SourceError> {
        let before = self.log.position();
        let fetched = self.log.poll(POLL_BYTES, &self.what)?;
        let end = self.place.end.unwrap_or(u64::MAX);
        if self.pending.capacity() > KEPT_RECORDS_MAX {
            self.pending = VecDeque::new();
        }
        let (records, partition) = (&mut self.pending, self.partition);
        let decoded = fetched.for_each(|record| {
            let offset = record.offset.cast_unsigned();
            if offset >= end {
                return;
            }
            let header = |(name, value): (&[u8], Option<&[u8]>)| Header {
                name: name.to_vec(),
                value: value.map(<[u8]>::to_vec),
            };
            records.push_back(LogRecord {
                partition,
                offset,
                timestamp_ms: record.timestamp_ms,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers().map(header).collect(),
            });
        });
        if let Err(error) = decoded {
            self.pending.clear();
            return Err(SourceError::fatal(&self.what, error));
        }
        let after = self.log.position();
        // Markers and aborted records take offsets too.
        self.place.next = self.pending.front().map_or(after, |record| record.offset);
        Ok(after != before)
    }
}

impl Reader for LogReader {
    type Item = LogRecord;

    fn read(&mut self, out: &mut Vec<LogRecord>, max: usize) -> Result<Read, SourceError> {
        if self.is_at_end() {
            return Ok(Read::Exhausted);
        }
        if self.pending.is_empty() && !self.fetch()? {
            return Ok(Read::Wait);
        }
        out.extend(self.pending.drain(..max.min(self.pending.len())));
        self.place.next = self.pending.front().map_or(self.log.position(), |record| record.offset);
        Ok(if self.is_at_end() { Read::Exhausted } else { Read::More })
    }

    fn position(&self) -> Vec<u8> {
        self.place.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutwater_partition_log::Offset;

    fn offsets(log_start: u64, last_stable: u64) -> PartitionOffsets {
        let (start, stable) = (Offset(log_start), Offset(last_stable));
        PartitionOffsets { log_start: start, last_stable: stable, high_watermark: stable, log_end: stable }
    }

    #[test]
    fn a_position_survives_bytes() {
        for place in [
            Place { topic: TopicId(7), next: 9, end: None },
            Place { topic: TopicId(u32::MAX), next: 0, end: Some(0) },
            Place { topic: TopicId(0), next: u64::MAX, end: Some(u64::MAX) },
        ] {
            let bytes = place.encode();
            assert_eq!(Place::decode(&bytes), Ok(place));
            for cut in 0..bytes.len() {
                assert!(Place::decode(&bytes[..cut]).is_err());
            }
        }
        assert_eq!(Place::decode(&[9]), Err(PositionError::Version { found: 9, known: VERSION }));
    }

    #[test]
    fn a_position_is_refused_in_another_topic_and_where_records_are_gone() {
        let at = |next, end| Place { topic: TopicId(1), next, end };
        assert_eq!(at(5, None).check(TopicId(1), offsets(5, 5)), Ok(()));
        assert_eq!(at(5, Some(9)).check(TopicId(1), offsets(0, 9)), Ok(()));
        let reason = |place: Place, topic, now| place.check(topic, now).expect_err("refused");
        assert!(reason(at(5, None), TopicId(2), offsets(0, 9)).contains("made anew"));
        assert!(reason(at(4, None), TopicId(1), offsets(5, 9)).contains("the oldest record left is 5"));
        assert!(reason(at(10, None), TopicId(1), offsets(0, 9)).contains("the log ends at 9"));
        assert!(reason(at(5, Some(10)), TopicId(1), offsets(0, 9)).contains("another log"));
    }
}
