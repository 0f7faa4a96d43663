//! Reading whole batches by offset.

use cutwater_platform::{IoContext, Open};

use super::names::Kind;
use super::offset_index::{self, IndexEntry};
use super::partition_files::PartitionFiles;
use super::walk::{Doubt, Found, Indexes, Walk, damaged};
use super::{ANY_SIZE, LogEnd, SegmentError};
use crate::batch::verify_stored;

/// The segment that an offset falls into.
pub(super) struct Place {
    pub(super) base: i64,
    /// One above the segment's last offset.
    pub(super) next: i64,
    /// Bytes of its log file that count, if known.
    bytes: Option<u64>,
    pub(super) is_active: bool,
    /// The index's advice, for the active segment.
    anchor: Option<IndexEntry>,
}

impl PartitionFiles {
    /// Whole batches from the one that holds `from_offset` on, out of one segment, at most `max_bytes` of them but at
    /// least one batch, and none with an offset at or above `below_offset` (I-2). Empty when the files end at or before
    /// `from_offset`, or when nothing lies below `below_offset`. Each batch's checksum has been compared; a damaged one ends
    /// the answer, and is an error for the read that begins with it.
    ///
    /// # Errors
    /// The offset lies before the first segment; a damaged file, with the place; the system's.
    pub fn read(&self, from_offset: i64, max_bytes: usize, below_offset: i64) -> Result<Vec<u8>, SegmentError> {
        let mut out = Vec::new();
        self.read_into(from_offset, max_bytes, below_offset, &mut out)?;
        Ok(out)
    }

    /// As [`read`](Self::read), appended to `out`, whose memory can be used again; answers how many bytes were appended.
    ///
    /// # Errors
    /// As [`read`](Self::read); `out` is then as before.
    pub fn read_into(
        &self,
        from_offset: i64,
        max_bytes: usize,
        below_offset: i64,
        out: &mut Vec<u8>,
    ) -> Result<usize, SegmentError> {
        self.readers.note_read();
        let _layout = self.read_layout();
        let before = out.len();
        let appended = self.read_place(from_offset, max_bytes, below_offset, out);
        match appended {
            Ok(appended) => Ok(appended),
            Err(error) => {
                out.truncate(before);
                // Retention may have taken the segment away meanwhile; then that is the answer.
                self.place(from_offset)?;
                Err(error)
            }
        }
    }

    fn read_place(
        &self,
        from_offset: i64,
        max_bytes: usize,
        below_offset: i64,
        out: &mut Vec<u8>,
    ) -> Result<usize, SegmentError> {
        let Some(place) = self.place(from_offset)? else { return Ok(0) };
        let below = below_offset.min(place.next);
        if from_offset >= below {
            return Ok(0);
        }
        let handle = self.handle(place.base, Kind::Log, Open::Write)?;
        let bytes = self.bytes_of(&place)?;
        let first = self.find(&place, bytes, from_offset)?;
        let first_bytes = first.header.total_bytes();
        let want = max_bytes.max(first_bytes).min(usize::try_from(bytes - first.position).unwrap_or(usize::MAX));
        let start = out.len();
        out.resize(start + want, 0);
        handle.file.read_exact_at(&mut out[start..], first.position).at("read", &handle.path)?;
        let mut expected = first.header.base_offset;
        let mut used = 0;
        while let Some(rest) = out.get(start + used..).filter(|rest| !rest.is_empty()) {
            let wrong = match verify_stored(rest, &ANY_SIZE) {
                Ok(header) if header.base_offset == expected => {
                    if header.last_offset() >= below {
                        break;
                    }
                    expected = header.last_offset() + 1;
                    used += header.total_bytes();
                    continue;
                }
                Ok(header) => format!("a batch with offset {expected} was expected, {} was found", header.base_offset),
                Err(error) => error.to_string(),
            };
            // Either `max_bytes` has cut this one, or it is damaged: a read that begins with it will tell.
            if used > 0 {
                break;
            }
            return Err(damaged(&handle, first.position, &wrong));
        }
        out.truncate(start + used);
        Ok(used)
    }

    /// Where `offset` is to be looked for; `None` when the files end at or before it.
    pub(super) fn place(&self, offset: i64) -> Result<Option<Place>, SegmentError> {
        let state = self.state();
        let end = self.known_end(&state)?;
        if offset >= end.next_offset {
            return Ok(None);
        }
        let start = state.segments.first().map_or(end.segment_base, |segment| segment.base);
        let Some(at) = state.floor_segment(offset) else {
            return Err(SegmentError::OutOfRange { from: offset, start, end: end.next_offset });
        };
        let segment = &state.segments[at];
        let is_active = segment.base == end.segment_base;
        let relative = u32::try_from(offset - segment.base).unwrap_or(u32::MAX);
        Ok(Some(Place {
            base: segment.base,
            next: if is_active { end.next_offset } else { next_base(&state.segments, at, &end) },
            bytes: if is_active { Some(end.segment_position) } else { segment.sealed_bytes },
            is_active,
            anchor: if is_active { state.index.floor(relative) } else { None },
        }))
    }

    /// Bytes of a segment's log file that count.
    pub(super) fn bytes_of(&self, place: &Place) -> Result<u64, SegmentError> {
        if let Some(bytes) = place.bytes {
            return Ok(bytes);
        }
        let handle = self.handle(place.base, Kind::Log, Open::Write)?;
        let bytes = handle.file.len().at("look at", &handle.path)?;
        self.remember_bytes(place.base, bytes);
        Ok(bytes)
    }

    fn remember_bytes(&self, base: i64, bytes: u64) {
        let mut state = self.state();
        if let Some(segment) = state.segments.iter_mut().find(|segment| segment.base == base) {
            segment.sealed_bytes = Some(bytes);
        }
    }

    /// The batch that holds `offset`. An index that turns out to be wrong is built anew, once.
    pub(super) fn find(&self, place: &Place, bytes: u64, offset: i64) -> Result<Found, SegmentError> {
        let relative = u32::try_from(offset - place.base).unwrap_or(u32::MAX);
        let handle = self.handle(place.base, Kind::Log, Open::Write)?;
        let mut walk = Walk::new(handle, place.base, bytes);
        let anchor = if place.is_active { place.anchor } else { self.anchor_in_file(place.base, relative)? };
        match walk.find(anchor, self.config.index_interval_bytes, offset) {
            Ok(found) => return Ok(found),
            Err(Doubt::Log(error)) => return Err(error),
            Err(Doubt::Index) => {}
        }
        let anchor = self.rebuild_index(place, bytes, relative)?;
        match walk.find(anchor, self.config.index_interval_bytes, offset) {
            Ok(found) => Ok(found),
            Err(Doubt::Log(error)) => Err(error),
            Err(Doubt::Index) => Err(walk.damaged(0, "even an index built from it doesn't lead to the offset")),
        }
    }

    /// The advice of a sealed segment's index file; none when there is no file.
    fn anchor_in_file(&self, base: i64, relative: u32) -> Result<Option<IndexEntry>, SegmentError> {
        let path = self.path(base, Kind::Index);
        match self.handle(base, Kind::Index, Open::Write) {
            Ok(index) => Ok(offset_index::floor_in_file(index.file.as_ref(), relative).at("read", &path)?),
            Err(SegmentError::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Builds an index from the log file and answers its advice. A sealed segment's goes to a temporary file first and
    /// takes the old one's name when it is whole; the active one's is in memory.
    fn rebuild_index(&self, place: &Place, bytes: u64, relative: u32) -> Result<Option<IndexEntry>, SegmentError> {
        let _rebuilding = self.rebuilding.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let interval = self.config.index_interval_bytes;
        let log = self.handle(place.base, Kind::Log, Open::Write)?;
        tracing::warn!(segment = %log.path.display(), "building the offset index anew: it doesn't fit the log file");
        let (Indexes { offsets: index, .. }, _) = Walk::new(log, place.base, bytes).rebuild(interval)?;
        let anchor = index.floor(relative);
        if place.is_active {
            self.install_active_index(place.base, bytes, index);
            return Ok(anchor);
        }
        self.replace_index(place.base, Kind::Index, &index.to_bytes(0))?;
        Ok(anchor)
    }

    /// Puts an index that was built anew in the place of a sealed segment's: whole under a temporary name, synced, renamed.
    pub(super) fn replace_index(&self, base: i64, kind: Kind, bytes: &[u8]) -> Result<(), SegmentError> {
        let path = self.path(base, kind);
        let temporary = self.open.files.temporary_name(&path);
        let file = self.open.files.open(&temporary, Open::Create).at("open", &temporary)?;
        file.set_len(0).at("empty", &temporary)?;
        file.write_all_at(bytes, 0).at("write", &temporary)?;
        file.sync_data().at("sync", &temporary)?;
        self.open.files.rename(&temporary, &path).at("rename", &temporary)?;
        self.open.forget(self.key(base, kind));
        self.open.crash.reach("segment.index-written");
        self.state().names_dirty = true;
        Ok(())
    }

    /// Replaces the part of the active index that was built from the first `bytes` of the log file, and keeps what
    /// writes have added since.
    fn install_active_index(&self, base: i64, bytes: u64, index: super::offset_index::OffsetIndex) {
        let _writer = self.lock_writer();
        let mut state = self.state();
        if state.active().is_none_or(|active| active.base != base) {
            return;
        }
        let mut index = index;
        let newer = state.index.entries.iter().filter(|entry| u64::from(entry.position) >= bytes).copied();
        index.entries.extend(newer);
        state.index = index;
        // The file is as doubtful as the memory was: write it whole next time.
        state.index_flushed = 0;
    }
}

/// The first offset of the segment behind the `at`-th.
fn next_base(segments: &[super::partition_files::Segment], at: usize, end: &LogEnd) -> i64 {
    segments.get(at + 1).map_or(end.segment_base, |segment| segment.base)
}
