//! Looking for records by their time.
//!
//! Markers and aborted records count, as in Kafka: the answer is an offset to begin reading at, and everything before it
//! is older. A sealed segment's time index is a hint: each entry that is used must be borne out by the batch it names,
//! or the index is built anew from the log file, once.

use cutwater_platform::{IoContext, Open};

use super::names::Kind;
use super::partition_files::PartitionFiles;
use super::read::Place;
use super::time_index::{TimeEntry, TimeIndex, floor_in_file};
use super::walk::{Found, Walk};
use super::{ANY_SIZE, SegmentError};
use crate::batch::{records, verify_stored};

impl PartitionFiles {
    /// The first record, by offset, with a timestamp of at least `timestamp_ms` (0 or more), as offset and timestamp, of
    /// those in batches that end below `below_offset`.
    ///
    /// # Errors
    /// A damaged file; the system's.
    pub fn first_at_or_after(&self, timestamp_ms: i64, below_offset: i64) -> Result<Option<(i64, i64)>, SegmentError> {
        let _layout = self.read_layout();
        for base in self.segment_bases().into_iter().take_while(|base| *base < below_offset) {
            let Some(place) = self.place(base)? else { break };
            if self.largest(&place)?.is_none_or(|largest| largest.timestamp_ms < timestamp_ms) {
                continue;
            }
            let below = self.entry_below(&place, timestamp_ms)?;
            let start = below.map_or(base, |entry| base + i64::from(entry.relative_offset) + 1);
            let bytes = self.bytes_of(&place)?;
            let found = self.walk_from(&place, bytes, start, below_offset, |found, walk| {
                if found.header.max_timestamp_ms < timestamp_ms {
                    return Ok(None);
                }
                self.first_in(found, walk, timestamp_ms)
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Bytes of all log files, as far as they count.
    ///
    /// # Errors
    /// The system's.
    pub fn log_bytes(&self) -> Result<u64, SegmentError> {
        let _layout = self.read_layout();
        let mut bytes = 0;
        for base in self.segment_bases() {
            bytes += match self.place(base) {
                Ok(Some(place)) => self.bytes_of(&place)?,
                // An empty segment, or one that was removed meanwhile.
                Ok(None) | Err(SegmentError::OutOfRange { .. }) => 0,
                Err(error) => return Err(error),
            };
        }
        Ok(bytes)
    }

    /// The largest timestamp of the batches that end below `below_offset`; none when there is none of 0 or more.
    ///
    /// # Errors
    /// A damaged file; the system's.
    pub fn largest_timestamp(&self, below_offset: i64) -> Result<Option<i64>, SegmentError> {
        let _layout = self.read_layout();
        let mut largest: Option<i64> = None;
        for base in self.segment_bases().into_iter().take_while(|base| *base < below_offset) {
            let Some(place) = self.place(base)? else { break };
            let of_segment = if place.next <= below_offset {
                self.largest(&place)?.map(|entry| entry.timestamp_ms)
            } else {
                self.largest_of_part(&place, below_offset)?
            };
            largest = largest.max(of_segment);
        }
        Ok(largest)
    }

    /// The largest timestamp of a segment's front: what the indexes know of it, and a walk over the rest.
    fn largest_of_part(&self, place: &Place, below_offset: i64) -> Result<Option<i64>, SegmentError> {
        let bytes = self.bytes_of(place)?;
        let relative = u32::try_from(below_offset - 1 - place.base).unwrap_or(u32::MAX);
        let known = self.entry_up_to(place, relative)?;
        let start = known.map_or(place.base, |entry| place.base + i64::from(entry.relative_offset) + 1);
        let mut largest = known.map(|entry| entry.timestamp_ms);
        self.walk_from::<()>(place, bytes, start, below_offset, |found, _| {
            largest = largest.max(Some(found.header.max_timestamp_ms).filter(|time| *time >= 0));
            Ok(None)
        })?;
        Ok(largest)
    }

    /// Shows `look` the batches from the one that holds `start` on, to the first answer or the first batch that reaches
    /// `below_offset`.
    fn walk_from<T>(
        &self,
        place: &Place,
        bytes: u64,
        start: i64,
        below_offset: i64,
        mut look: impl FnMut(&Found, &Walk) -> Result<Option<T>, SegmentError>,
    ) -> Result<Option<T>, SegmentError> {
        if start >= place.next.min(below_offset) {
            return Ok(None);
        }
        // Through the offset index, which is checked on the way.
        let Some(at) = self.place(start)? else { return Ok(None) };
        let mut found = self.find(&at, bytes, start)?;
        let mut walk = Walk::new(self.handle(place.base, Kind::Log, Open::Write)?, place.base, bytes);
        while found.header.last_offset() < below_offset {
            if let Some(answer) = look(&found, &walk)? {
                return Ok(Some(answer));
            }
            let next = found.position + found.header.total_bytes() as u64;
            if next >= bytes {
                break;
            }
            found = walk.batch_at(next, Some(found.header.last_offset() + 1))?;
        }
        Ok(None)
    }

    /// The first record of a batch that is young enough. None if its header promised too much.
    fn first_in(&self, found: &Found, walk: &Walk, timestamp_ms: i64) -> Result<Option<(i64, i64)>, SegmentError> {
        let batch = walk.whole(found)?;
        let damaged = |error: crate::batch::BatchError| walk.damaged(found.position, &error.to_string());
        verify_stored(&batch, &ANY_SIZE).map_err(damaged)?;
        for record in &records(&batch, &ANY_SIZE).map_err(damaged)? {
            let record = record.map_err(damaged)?;
            if record.timestamp_ms >= timestamp_ms {
                return Ok(Some((record.offset, record.timestamp_ms)));
            }
        }
        Ok(None)
    }

    /// The largest timestamp of a whole segment.
    pub(super) fn largest(&self, place: &Place) -> Result<Option<TimeEntry>, SegmentError> {
        self.time_entry(place, |times| times.largest, |_| true)
    }

    /// The last entry below a time.
    fn entry_below(&self, place: &Place, timestamp_ms: i64) -> Result<Option<TimeEntry>, SegmentError> {
        self.time_entry(place, |times| times.below(timestamp_ms), |entry| entry.timestamp_ms < timestamp_ms)
    }

    /// The last entry up to an offset.
    fn entry_up_to(&self, place: &Place, relative: u32) -> Result<Option<TimeEntry>, SegmentError> {
        self.time_entry(place, |times| times.up_to(relative), |entry| entry.relative_offset <= relative)
    }

    /// An entry of the active segment's index in memory, or of a sealed segment's file, borne out by the log file.
    fn time_entry(
        &self,
        place: &Place,
        in_memory: impl Fn(&TimeIndex) -> Option<TimeEntry>,
        in_file: impl Fn(&TimeEntry) -> bool,
    ) -> Result<Option<TimeEntry>, SegmentError> {
        if place.is_active {
            return Ok(in_memory(&self.state().times));
        }
        let path = self.path(place.base, Kind::Times);
        match self.handle(place.base, Kind::Times, Open::Write) {
            Ok(handle) => {
                let len = handle.file.len().at("look at", &path)?;
                let entry = floor_in_file(handle.file.as_ref(), &in_file).at("read", &path)?;
                let fits = match entry {
                    Some((entry, rises)) => rises && self.bears_out(place, entry)?,
                    // Only a segment without times has none at all.
                    None => len > 0,
                };
                if fits {
                    return Ok(entry.map(|(entry, _)| entry));
                }
            }
            Err(SegmentError::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(in_memory(&self.rebuild_times(place)?))
    }

    /// Whether the log file has the batch that an entry names.
    fn bears_out(&self, place: &Place, entry: TimeEntry) -> Result<bool, SegmentError> {
        let offset = place.base + i64::from(entry.relative_offset);
        if offset >= place.next {
            return Ok(false);
        }
        let Some(at) = self.place(offset)? else { return Ok(false) };
        let header = self.find(&at, self.bytes_of(&at)?, offset)?.header;
        Ok(header.last_offset() == offset && header.max_timestamp_ms == entry.timestamp_ms)
    }

    /// Builds a sealed segment's time index from its log file.
    fn rebuild_times(&self, place: &Place) -> Result<TimeIndex, SegmentError> {
        let _rebuilding = self.rebuilding.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let log = self.handle(place.base, Kind::Log, Open::Write)?;
        tracing::warn!(segment = %log.path.display(), "building the time index anew: it is missing or doesn't fit");
        let bytes = self.bytes_of(place)?;
        let (indexes, _) = Walk::new(log, place.base, bytes).rebuild(self.config.index_interval_bytes)?;
        let mut times = indexes.times;
        times.seal();
        self.replace_index(place.base, Kind::Times, &times.to_bytes(0))?;
        Ok(times)
    }
}
