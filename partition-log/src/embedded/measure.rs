//! What a log measures, for whoever watches it: its synced writes, the bytes of its partitions, the time of a record.

use super::Log;
use super::consumer::{Isolation, fetch_error};
use crate::batch::{BatchHeader, Limits, records};
use crate::embedded::lookup::FoundOffset;
use crate::error::FetchError;
use crate::meter::Measured;
use crate::offset::Offset;
use crate::topic::TopicPartition;

/// So many reads are made to pass over markers before it is said that there is no record.
const READS_MAX: usize = 64;

impl Log {
    /// How long the synced writes of the write-ahead log took since it was opened. Each is one frame and one sync and made a
    /// group of requests durable.
    pub fn write_times(&self) -> Measured {
        self.inner.shared.writes.read()
    }

    /// The directory that it lies in.
    pub fn dir(&self) -> &std::path::Path {
        &self.inner.shared.dir
    }

    /// Bytes of a partition's log files. What is durable in the write-ahead log alone comes to them a little later
    /// ([`Status::unmaterialised_bytes`](crate::Status::unmaterialised_bytes)).
    ///
    /// # Errors
    /// There is no such partition; its files can't be read.
    pub fn partition_bytes(&self, at: TopicPartition) -> Result<u64, FetchError> {
        let visible = self.inner.shared.view.read().expect("no panic under the view lock").visible(at);
        let visible = visible.ok_or(FetchError::UnknownPartition { at })?;
        let error = |error| fetch_error(at, visible.high_watermark, error);
        match self.inner.shared.segments.find(at).map_err(error)? {
            Some(files) => files.log_bytes().map_err(error),
            None => Ok(0),
        }
    }

    /// The first record from an offset on and its timestamp: markers of transactions are passed over, and nothing at or above
    /// the high watermark is found. It reads one batch, if that isn't a marker.
    ///
    /// ```
    /// use cutwater_partition_log::batch::{BatchBuilder, Compression};
    /// use cutwater_partition_log::{Log, LogOptions, Offset, TopicPartition};
    /// # let dir = tempfile::tempdir()?;
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
    /// let flights = log.create_topic("flights", 1)?;
    /// let mut batch = BatchBuilder::new(Compression::Lz4);
    /// for time in [1_000, 3_000, 2_000] {
    ///     batch.push(time, None, Some(b"a flight"), &[])?;
    /// }
    /// log.producer()?.append(flights, 0, &mut batch)?.wait()?;
    /// let at = TopicPartition::new(flights, 0);
    /// let time = |offset| log.record_from(at, Offset(offset)).map(|found| found.and_then(|found| found.timestamp_ms));
    /// assert_eq!((time(0)?, time(2)?, time(3)?), (Some(1_000), Some(2_000), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such partition, the offset lies outside of it, its segments can't be read, or the log is down.
    pub fn record_from(&self, at: TopicPartition, from: Offset) -> Result<Option<FoundOffset>, FetchError> {
        let limits = Limits { batch_bytes: self.limits().batch_bytes_max, ..Limits::DEFAULT };
        let mut next = from;
        for _ in 0..READS_MAX {
            let read = self.fetch(at, next, 1, Isolation::ReadUncommitted)?;
            let Some(buffer) = read.buffers.first() else { return Ok(None) };
            let damaged = |e: crate::batch::BatchError| FetchError::Damaged { at, offset: next, what: e.to_string() };
            let header = BatchHeader::parse(buffer).map_err(damaged)?;
            let base = header.base_offset.cast_unsigned();
            let behind = Offset(base + u64::from(header.last_offset_delta.cast_unsigned()) + 1);
            if !header.is_control() {
                let batch = buffer.get(..header.total_bytes()).unwrap_or(buffer);
                for record in &records(batch, &limits).map_err(damaged)? {
                    let record = record.map_err(damaged)?;
                    let offset = Offset(record.offset.cast_unsigned());
                    if offset >= next {
                        return Ok(Some(FoundOffset { offset, timestamp_ms: Some(record.timestamp_ms) }));
                    }
                }
            }
            next = behind.max(Offset(next.0 + 1));
        }
        Ok(None)
    }
}
