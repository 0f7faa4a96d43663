//! Offsets by name and by time, as Kafka's `ListOffsets` answers them.
//!
//! Source: Kafka's `ListOffsets` (KIP-79, KIP-734). Nothing at or above the last stable offset (read-committed) or the high
//! watermark is found (I-2). Markers and records of aborted transactions count: what is found is an offset to begin
//! reading at, and every record before it is older.

use super::Log;
use super::consumer::{Isolation, fetch_error};
use crate::batch::{BatchError, BatchHeader, Limits, records};
use crate::error::FetchError;
use crate::offset::{Offset, PartitionOffsets};
use crate::segment::{PartitionFiles, SegmentError};
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Batch;

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first one that can be read (-2 on Kafka's wire).
    Earliest,
    /// The one behind the last that may be read: the last stable offset or the high watermark (-1 on Kafka's wire).
    Latest,
    /// The first record with the largest timestamp of all that may be read (-3 on Kafka's wire; Kafka finds nothing when
    /// the largest of all may not be read yet).
    MaxTimestamp,
    /// The first record with a timestamp of at least so many milliseconds since 1970. Less than 0 counts as 0: records of
    /// before 1970 are not found by time.
    Time(i64),
}

/// An offset that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset.
    pub offset: Offset,
    /// The timestamp of the record there, in milliseconds since 1970, if the question was about times.
    pub timestamp_ms: Option<i64>,
}

impl FoundOffset {
    /// What was found below the first offset that can be read means that offset: everything before it is gone.
    fn within(self, offsets: PartitionOffsets) -> FoundOffset {
        FoundOffset { offset: self.offset.max(offsets.log_start), ..self }
    }
}

impl Log {
    /// Looks an offset up; `None` when no record fits. One answer may be followed by a larger one at once: the log goes on.
    ///
    /// ```
    /// use cutwater_partition_log::batch::{BatchBuilder, Compression};
    /// use cutwater_partition_log::{Isolation, Log, LogOptions, Offset, OffsetSpec};
    /// # let dir = tempfile::tempdir()?;
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
    /// let flights = log.create_topic("flights", 1)?;
    /// let mut batch = BatchBuilder::new(Compression::None);
    /// for time in [1_000, 3_000, 2_000] {
    ///     batch.push(time, None, Some(b"a flight"), &[])?;
    /// }
    /// log.producer()?.append(flights, 0, &mut batch)?.wait()?;
    /// let find = |spec| log.find_offset(flights, 0, spec, Isolation::ReadCommitted);
    /// assert_eq!(find(OffsetSpec::Time(1_500))?.map(|found| found.offset), Some(Offset(1)));
    /// assert_eq!(find(OffsetSpec::MaxTimestamp)?.and_then(|found| found.timestamp_ms), Some(3_000));
    /// assert_eq!(find(OffsetSpec::Time(3_001))?, None);
    /// assert_eq!(find(OffsetSpec::Latest)?.map(|found| found.offset), Some(Offset(3)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such partition, its segments are damaged or can't be read, or the log is down.
    pub fn find_offset(
        &self,
        topic: TopicId,
        partition: u32,
        spec: OffsetSpec,
        isolation: Isolation,
    ) -> Result<Option<FoundOffset>, FetchError> {
        self.inner.shared.lock().check()?;
        let offsets = self.offsets(topic, partition)?;
        let bound = match isolation {
            Isolation::ReadCommitted => offsets.last_stable,
            Isolation::ReadUncommitted => offsets.high_watermark,
        };
        let named = |offset| Ok(Some(FoundOffset { offset, timestamp_ms: None }));
        let search = Search { log: self, at: TopicPartition::new(topic, partition), bound: bound.0 };
        match spec {
            OffsetSpec::Earliest => named(offsets.log_start),
            OffsetSpec::Latest => named(bound),
            _ if offsets.log_start >= bound => Ok(None),
            OffsetSpec::Time(time) => Ok(search.first_at_or_after(time.max(0))?.map(|found| found.within(offsets))),
            OffsetSpec::MaxTimestamp => match search.largest()? {
                Some(largest) => Ok(search.first_at_or_after(largest)?.map(|found| found.within(offsets))),
                None => Ok(None),
            },
        }
    }
}

/// A question about one partition, as far as it may be read.
struct Search<'a> {
    log: &'a Log,
    at: TopicPartition,
    bound: u64,
}

impl Search<'_> {
    /// The segments first: what they hold is older than what is in memory alone.
    fn first_at_or_after(&self, time: i64) -> Result<Option<FoundOffset>, FetchError> {
        let (in_segments, newer) = self.segments_then_newer(|files, below| files.first_at_or_after(time, below))?;
        let found = match in_segments {
            Some(found) => Some(found),
            None => self.first_in(&newer, time)?,
        };
        Ok(found.map(|(offset, time)| FoundOffset { offset: Offset(offset.cast_unsigned()), timestamp_ms: Some(time) }))
    }

    fn largest(&self) -> Result<Option<i64>, FetchError> {
        let (in_segments, newer) = self.segments_then_newer(|files, below| files.largest_timestamp(below))?;
        let mut largest = in_segments;
        for batch in &newer {
            let header = BatchHeader::parse(batch).map_err(|e| self.damaged(&e))?;
            largest = largest.max(Some(header.max_timestamp_ms).filter(|time| *time >= 0));
        }
        Ok(largest)
    }

    /// Asks the segments, and takes what may be read but isn't in them yet out of the tail.
    fn segments_then_newer<T>(
        &self,
        ask: impl Fn(&PartitionFiles, i64) -> Result<Option<T>, SegmentError>,
    ) -> Result<(Option<T>, Vec<Batch>), FetchError> {
        let shared = &self.log.inner.shared;
        let error = |e| fetch_error(self.at, self.bound, e);
        loop {
            let (mut end, mut answer) = (0, None);
            if let Some(files) = shared.segments.find(self.at).map_err(error)? {
                end = files.end().map_err(error)?.next_offset.cast_unsigned();
                answer = ask(&files, self.bound.min(end).cast_signed()).map_err(error)?;
            }
            if end >= self.bound {
                return Ok((answer, Vec::new()));
            }
            let view = shared.view.read().expect("no panic under the view lock");
            if view.visible(self.at).is_none() {
                // Its topic was deleted meanwhile.
                return Err(FetchError::UnknownPartition { at: self.at });
            }
            // Gone out of the tail meanwhile: then it is in the segments now.
            if let Some(batches) = view.read(self.at, end, usize::MAX, self.bound).batches {
                return Ok((answer, batches));
            }
        }
    }

    fn first_in(&self, batches: &[Batch], time: i64) -> Result<Option<(i64, i64)>, FetchError> {
        let limits = Limits { batch_bytes: self.log.limits().batch_bytes_max, ..Limits::DEFAULT };
        for batch in batches {
            let header = BatchHeader::parse(batch).map_err(|e| self.damaged(&e))?;
            if header.max_timestamp_ms < time {
                continue;
            }
            for record in &records(batch, &limits).map_err(|e| self.damaged(&e))? {
                let record = record.map_err(|e| self.damaged(&e))?;
                if record.timestamp_ms >= time {
                    return Ok(Some((record.offset, record.timestamp_ms)));
                }
            }
        }
        Ok(None)
    }

    fn damaged(&self, error: &BatchError) -> FetchError {
        FetchError::Damaged { at: self.at, offset: Offset(self.bound), what: error.to_string() }
    }
}
