//! Where a partition's files end: told by the write-ahead log, or found by looking.
//!
//! After a crash the files may hold anything beyond what was synced: missing bytes, zeros, batches of a future that was
//! never acknowledged. Recovery cuts to the end that the last log checkpoint names, which lies within what was synced,
//! and replays the write-ahead log from there: the same writes, rolls and aborts again. Repeating that, whatever a crash
//! in the middle left, comes to the same files.

use std::collections::BTreeSet;
use std::sync::Arc;

use cutwater_platform::{IoContext, Open};

use super::names::Kind;
use super::offset_index::{ENTRY_BYTES, OffsetIndex};
use super::open_files::Handle;
use super::partition_files::{Aborts, PartitionFiles, names_in, segments_in};
use super::time_index::{self, TimeIndex};
use super::walk::{Doubt, Indexes, Walk, read_index};
use super::{ANY_SIZE, LogEnd, SegmentError, names, transaction_index};
use crate::batch::format::HEADER_BYTES;
use crate::batch::{BatchError, BatchHeader, verify_stored};

/// What a scan of a segment has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReport {
    /// Where the good batches end: the place to cut.
    pub end: LogEnd,
    /// How many good batches there are.
    pub batches: u64,
    /// Bytes of the file, good or not.
    pub file_bytes: u64,
    /// Why the scan stopped before the end of the file; `None` when everything is good.
    pub stop: Option<ScanStop>,
}

/// Why a scan stopped before the end of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanStop {
    /// The file ends within a batch: a torn write.
    Torn {
        /// Bytes that the batch needs.
        needs: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// The bytes are no batch, or a damaged one. A tail of zeros looks like this.
    Damaged(BatchError),
    /// A good batch whose offset doesn't follow: of another life of this file.
    Order {
        /// The offset that would follow.
        expected: i64,
        /// The offset that the batch has.
        found: i64,
    },
}

impl PartitionFiles {
    /// Makes `end` the end, and removes what lies beyond: later segments, bytes of the log file, aborts; besides, orphans
    /// and temporary files. None of it is durable before the next sync, and needs not be: a crash repeats it.
    ///
    /// # Errors
    /// The files hold less than `end` says, or no batch ends there; the system's.
    pub fn truncate_to(&self, end: LogEnd) -> Result<(), SegmentError> {
        let _writer = self.lock_writer();
        self.refuse_if_poisoned()?;
        if self.finish_replacements()? {
            let segments = segments_in(&self.open, &self.dir)?;
            let mut state = self.state();
            state.segments = segments;
            state.names_dirty = true;
        }
        self.remove_beyond(end)?;
        self.cut_log(end)?;
        self.look_up_to(end)?;
        self.cut_indexes()
    }

    /// Makes `end` the end without touching a file, for looking into a log that somebody else owns.
    ///
    /// # Errors
    /// The files hold less than `end` says, or no batch ends there; the system's.
    pub fn view_to(&self, end: LogEnd) -> Result<(), SegmentError> {
        let _writer = self.lock_writer();
        self.look_up_to(end)
    }

    /// Reads the last segment batch by batch, with checksums, and says where the good part ends. `None` without any
    /// segment. Nothing is changed; hand its end to [`truncate_to`](Self::truncate_to) to cut.
    ///
    /// # Errors
    /// The system's. Damage is no error but the answer.
    pub fn scan(&self) -> Result<Option<ScanReport>, SegmentError> {
        let last = self.state().segments.last().map(|segment| segment.base);
        last.map(|base| self.scan_segment(base)).transpose()
    }

    /// As [`scan`](Self::scan), of the segment that begins with offset `base`.
    ///
    /// # Errors
    /// There is no such segment; the system's.
    pub fn scan_segment(&self, base: i64) -> Result<ScanReport, SegmentError> {
        let handle = self.handle(base, Kind::Log, Open::Write)?;
        let file_bytes = handle.file.len().at("look at", &handle.path)?;
        let (mut end, mut batches, mut stop) = (LogEnd::empty_at(base), 0, None);
        let bytes = vec![0; file_bytes.min(SCAN_BYTES) as usize];
        let mut window = Window { handle, file_bytes, bytes, at: 0, filled: 0 };
        while end.segment_position < file_bytes && stop.is_none() {
            match window.next_good(end.segment_position, end.next_offset)? {
                Ok(header) => {
                    end.next_offset = header.last_offset() + 1;
                    end.segment_position += header.total_bytes() as u64;
                    batches += 1;
                }
                Err(why) => stop = Some(why),
            }
        }
        Ok(ScanReport { end, batches, file_bytes, stop })
    }

    /// Removes later segments, files without a log file, and temporary files.
    fn remove_beyond(&self, end: LogEnd) -> Result<(), SegmentError> {
        let names = names_in(&self.open, &self.dir)?;
        let logs: BTreeSet<i64> = names.iter().filter(|(_, kind)| *kind == Kind::Log).map(|(base, _)| *base).collect();
        let stale = |base: i64| base > end.segment_base || !logs.contains(&base);
        let bases: BTreeSet<i64> = names.iter().map(|(base, _)| *base).filter(|&base| stale(base)).collect();
        // Newest first, so that a crash in between leaves no hole.
        for &base in bases.iter().rev() {
            self.remove_segment(base)?;
        }
        let mut removed = !bases.is_empty();
        if !names.is_empty() {
            for entry in self.open.files.read_dir(&self.dir).at("list", &self.dir)? {
                if entry.name.ends_with(names::TEMPORARY_SUFFIX) {
                    let path = self.dir.join(&entry.name);
                    self.open.files.remove_file(&path).at("remove", &path)?;
                    removed = true;
                }
            }
        }
        let mut state = self.state();
        state.segments.retain(|segment| segment.base <= end.segment_base);
        // A process that was killed may have created names, and the directory, that no sync has covered: an empty segment
        // after a roll, for one. What is written to it from now on must not be lost with its name.
        let inherited = !state.segments.is_empty();
        state.names_dirty |= removed || inherited;
        state.dir_is_new |= inherited;
        Ok(())
    }

    fn cut_log(&self, end: LogEnd) -> Result<(), SegmentError> {
        if self.state().segments.last().is_none_or(|segment| segment.base != end.segment_base) {
            return Ok(());
        }
        let handle = self.handle(end.segment_base, Kind::Log, Open::Write)?;
        if handle.file.len().at("look at", &handle.path)? > end.segment_position {
            handle.for_writing().set_len(end.segment_position).at("cut", &handle.path)?;
            if let Some(active) = self.state().segments.last_mut() {
                active.dirty_bytes += 1;
            }
        }
        Ok(())
    }

    /// Checks that a batch ends at `end`, reads or builds the active segment's index, and makes it the end.
    fn look_up_to(&self, end: LogEnd) -> Result<(), SegmentError> {
        let known = self.state().segments.last().is_some_and(|segment| segment.base == end.segment_base);
        let (mut indexes, mut flushed, mut aborts) = (Indexes::default(), (0, 0), Aborts::None);
        if known {
            let handle = self.handle(end.segment_base, Kind::Log, Open::Write)?;
            let found = handle.file.len().at("look at", &handle.path)?;
            if found < end.segment_position {
                let (path, expected) = (handle.path.clone(), end.segment_position);
                return Err(SegmentError::Lost { path, expected, found });
            }
            let mut walk = Walk::new(handle, end.segment_base, end.segment_position);
            let next;
            (indexes, flushed, next) = self.index_to(&mut walk, end)?;
            if next != end.next_offset {
                let what = format!("offset {} was expected to be next here, {next} is", end.next_offset);
                return Err(walk.damaged(end.segment_position, &what));
            }
            aborts = self.aborts_up_to(end)?;
        } else if end.segment_position > 0 || end.next_offset != end.segment_base {
            let path = self.path(end.segment_base, Kind::Log);
            return Err(SegmentError::Lost { path, expected: end.segment_position, found: 0 });
        }
        let mut state = self.state();
        if known && let Some(active) = state.segments.last_mut() {
            active.aborts = aborts;
        }
        (state.index, state.index_flushed) = (indexes.offsets, flushed.0);
        (state.times, state.times_flushed) = (indexes.times, flushed.1);
        state.written_back = end.segment_position;
        state.end = Some(end);
        Ok(())
    }

    /// The active segment's indexes up to `end`, how many of their entries the files have, and the offset behind the last
    /// batch.
    ///
    /// The files were synced up to `end`, so that only the batches behind the last entry must be walked. The last entry of
    /// each is compared with the log file; if one doesn't fit, or times are missing, both come from the log file alone.
    fn index_to(&self, walk: &mut Walk, end: LogEnd) -> Result<(Indexes, (usize, usize), i64), SegmentError> {
        let interval = self.config.index_interval_bytes;
        let offsets = OffsetIndex::believable(&self.index_bytes(end.segment_base, Kind::Index)?, end.segment_position);
        let known = offsets.entries.last().map_or(0, |entry| entry.relative_offset);
        let mut times = TimeIndex::default();
        if !offsets.entries.is_empty() {
            times = TimeIndex::believable(&self.index_bytes(end.segment_base, Kind::Times)?, known);
        }
        let flushed = (offsets.entries.len(), times.entries.len());
        let fits = match times.largest {
            Some(entry) => {
                let relative = entry.relative_offset;
                let offset = end.segment_base + i64::from(relative);
                match walk.find(offsets.floor(relative), interval, offset) {
                    Ok(found) => {
                        found.header.last_offset() == offset && found.header.max_timestamp_ms == entry.timestamp_ms
                    }
                    Err(Doubt::Log(error)) => return Err(error),
                    Err(Doubt::Index) => false,
                }
            }
            None => offsets.entries.is_empty(),
        };
        if fits {
            match walk.complete(Indexes { offsets, times }, interval) {
                Ok((indexes, next)) => return Ok((indexes, flushed, next)),
                Err(Doubt::Log(error)) => return Err(error),
                Err(Doubt::Index) => {}
            }
        }
        let (indexes, next) = walk.rebuild(interval)?;
        Ok((indexes, (0, 0), next))
    }

    /// An index file; nothing when it isn't there.
    fn index_bytes(&self, base: i64, kind: Kind) -> Result<Vec<u8>, SegmentError> {
        match self.handle(base, kind, Open::Write) {
            Ok(handle) => read_index(&handle),
            Err(SegmentError::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Cuts the active segment's index files to what is believed of them.
    fn cut_indexes(&self) -> Result<(), SegmentError> {
        let (base, flushed, times, aborts) = {
            let state = self.state();
            let Some(active) = state.active() else { return Ok(()) };
            (active.base, state.index_flushed, state.times_flushed, active.aborts)
        };
        let cut_index = self.cut(base, Kind::Index, (flushed * ENTRY_BYTES) as u64)?;
        let cut_times = self.cut(base, Kind::Times, (times * time_index::ENTRY_BYTES) as u64)?;
        let mut cut_aborts = false;
        let mut cut_sums = false;
        if let Aborts::Entries(entries) = aborts {
            cut_aborts = self.cut(base, Kind::Aborts, entries * transaction_index::ENTRY_BYTES as u64)?;
            cut_sums = self.cut_sums(base, entries)?;
        }
        if let Some(active) = self.state().segments.last_mut() {
            active.index_dirty |= cut_index;
            active.times_dirty |= cut_times;
            active.aborts_dirty |= cut_aborts;
            active.sums_dirty |= cut_sums;
        }
        Ok(())
    }

    /// Cuts a file if it is longer; true if so. A missing one isn't.
    pub(super) fn cut(&self, base: i64, kind: Kind, len: u64) -> Result<bool, SegmentError> {
        let handle = match self.handle(base, kind, Open::Write) {
            Err(SegmentError::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let longer = handle.file.len().at("look at", &handle.path)? > len;
        if longer {
            handle.for_writing().set_len(len).at("cut", &handle.path)?;
        }
        Ok(longer)
    }
}

/// Bytes that a scan reads at once, into one buffer.
const SCAN_BYTES: u64 = 1 << 20;

/// A reused buffer that slides over a log file.
struct Window {
    handle: Arc<Handle>,
    file_bytes: u64,
    bytes: Vec<u8>,
    at: u64,
    filled: usize,
}

impl Window {
    /// The good batch at `position`, which must begin with offset `expected`; or why there is none.
    fn next_good(&mut self, position: u64, expected: i64) -> Result<Result<BatchHeader, ScanStop>, SegmentError> {
        let left = self.file_bytes - position;
        if left < HEADER_BYTES as u64 {
            return Ok(Err(ScanStop::Torn { needs: HEADER_BYTES as u64, left }));
        }
        let header = match BatchHeader::parse(self.show(position, HEADER_BYTES)?) {
            Ok(header) => header,
            Err(error) => return Ok(Err(ScanStop::Damaged(error))),
        };
        let needs = header.total_bytes() as u64;
        if needs > left {
            return Ok(Err(ScanStop::Torn { needs, left }));
        }
        if let Err(error) = verify_stored(self.show(position, header.total_bytes())?, &ANY_SIZE) {
            return Ok(Err(ScanStop::Damaged(error)));
        }
        if header.base_offset != expected {
            return Ok(Err(ScanStop::Order { expected, found: header.base_offset }));
        }
        Ok(Ok(header))
    }

    /// At least `want` bytes from `position` on; the file holds them.
    fn show(&mut self, position: u64, want: usize) -> Result<&[u8], SegmentError> {
        let inside = position >= self.at && position + want as u64 <= self.at + self.filled as u64;
        if !inside {
            if want > self.bytes.len() {
                self.bytes.resize(want, 0);
            }
            let fill = (self.file_bytes - position).min(self.bytes.len() as u64) as usize;
            self.filled = 0;
            self.handle.file.read_exact_at(&mut self.bytes[..fill], position).at("read", &self.handle.path)?;
            (self.at, self.filled) = (position, fill);
        }
        Ok(&self.bytes[(position - self.at) as usize..self.filled])
    }
}
