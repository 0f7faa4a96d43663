//! From batch to batch through a log file, by headers.

use std::sync::Arc;

use cutwater_platform::IoContext;

use super::offset_index::{IndexEntry, OffsetIndex};
use super::open_files::Handle;
use super::time_index::TimeIndex;
use super::{INDEX_MAX, SegmentError};
use crate::batch::BatchHeader;
use crate::batch::format::HEADER_BYTES;

/// Bytes read at once while walking: two intervals of the index, so that a lookup among small batches is one read.
const WINDOW_BYTES: u64 = 8192;

/// A segment's log file up to where it ends, with a window of bytes for its headers.
pub(super) struct Walk {
    handle: Arc<Handle>,
    base: i64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// A batch and where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) position: u64,
    pub(super) header: BatchHeader,
}

/// What can be derived from a segment's log file.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    pub(super) offsets: OffsetIndex,
    pub(super) times: TimeIndex,
}

/// Why a lookup through the index has no answer.
pub(super) enum Doubt {
    /// The index and the log file contradict each other, or entries are missing.
    Index,
    /// The log file alone is to blame, or the system.
    Log(SegmentError),
}

impl From<SegmentError> for Doubt {
    fn from(error: SegmentError) -> Doubt {
        Doubt::Log(error)
    }
}

impl Walk {
    /// A walk through the segment that begins with offset `base`, of which `end` bytes count.
    pub(super) fn new(handle: Arc<Handle>, base: i64, end: u64) -> Walk {
        Walk { handle, base, end, window: Vec::new(), window_at: 0 }
    }

    /// The batch at `position`, which must begin with offset `expected` if that is known.
    pub(super) fn batch_at(&mut self, position: u64, expected: Option<i64>) -> Result<Found, SegmentError> {
        let bytes = self.header_bytes(position)?;
        let header = BatchHeader::parse(bytes).map_err(|e| self.damaged(position, &e.to_string()))?;
        if position + header.total_bytes() as u64 > self.end {
            return Err(self.damaged(position, "the batch reaches beyond the end of the segment"));
        }
        if header.last_offset_delta < 0 || header.base_offset < self.base {
            return Err(self.damaged(position, "the batch's offsets can't be in this segment"));
        }
        match expected {
            Some(expected) if header.base_offset != expected => {
                let what = format!("a batch with offset {expected} was expected, {} was found", header.base_offset);
                Err(self.damaged(position, &what))
            }
            _ => Ok(Found { position, header }),
        }
    }

    /// The bytes of a batch that was found.
    pub(super) fn whole(&self, found: &Found) -> Result<Vec<u8>, SegmentError> {
        let mut bytes = vec![0; found.header.total_bytes()];
        self.handle.file.read_exact_at(&mut bytes, found.position).at("read", &self.handle.path)?;
        Ok(bytes)
    }

    fn header_bytes(&mut self, position: u64) -> Result<&[u8], SegmentError> {
        let reach = position + HEADER_BYTES as u64;
        if position < self.window_at || reach > self.window_at + self.window.len() as u64 {
            if reach > self.end {
                return Err(self.damaged(position, "the segment ends within the header of a batch"));
            }
            self.window.resize(WINDOW_BYTES.min(self.end - position) as usize, 0);
            self.handle.file.read_exact_at(&mut self.window, position).at("read", &self.handle.path)?;
            self.window_at = position;
        }
        let start = (position - self.window_at) as usize;
        Ok(self.window.get(start..start + HEADER_BYTES).expect("the window reaches there"))
    }

    /// The batch that holds `offset`, looked for from `anchor` on, an entry of the index that ends at or before it.
    ///
    /// Every claim of the index is checked. The batch at the anchor must end with the anchor's offset. And every batch
    /// that is passed on the way ends before `offset`; so if one of them lay further than the interval from the anchor,
    /// it or one before it should have had an entry, which would have been the better anchor: the index is incomplete.
    pub(super) fn find(&mut self, anchor: Option<IndexEntry>, interval: u64, offset: i64) -> Result<Found, Doubt> {
        let start = anchor.map_or(0, |entry| u64::from(entry.position));
        let mut position = start;
        let mut expected = if anchor.is_some() { None } else { Some(self.base) };
        loop {
            let found = match self.batch_at(position, expected) {
                Err(SegmentError::Corrupt { .. }) if anchor.is_some() => return Err(Doubt::Index),
                other => other?,
            };
            let last = found.header.last_offset();
            if let Some(entry) = anchor
                && position == start
                && last - self.base != i64::from(entry.relative_offset)
            {
                return Err(Doubt::Index);
            }
            if last >= offset {
                return Ok(found);
            }
            if position - start > interval {
                return Err(Doubt::Index);
            }
            expected = Some(last + 1);
            position += found.header.total_bytes() as u64;
        }
    }

    /// Completes indexes whose entries may have been read from files: checks the last entry of the offset index against
    /// the log file and walks on from there to the end. Answers the indexes and the offset behind the last batch.
    pub(super) fn complete(&mut self, indexes: Indexes, interval: u64) -> Result<(Indexes, i64), Doubt> {
        let Indexes { offsets: mut index, mut times } = indexes;
        let anchor = index.entries.last().copied();
        let mut position = anchor.map_or(0, |entry| u64::from(entry.position));
        let mut next = self.base;
        while position < self.end {
            let from_entry = anchor.filter(|entry| u64::from(entry.position) == position);
            let expected = if from_entry.is_some() { None } else { Some(next) };
            let found = match self.batch_at(position, expected) {
                Err(SegmentError::Corrupt { .. }) if anchor.is_some() => return Err(Doubt::Index),
                other => other?,
            };
            let relative = found.header.last_offset() - self.base;
            let place = (u32::try_from(relative).ok(), u32::try_from(position).ok());
            let (Some(relative), Some(place)) = place else {
                return Err(self.damaged(position, "the segment is larger than its index can name").into());
            };
            let indexed = match from_entry {
                Some(entry) if entry.relative_offset != relative => return Err(Doubt::Index),
                Some(_) => true,
                None => index.add(interval, relative, place),
            };
            times.add(found.header.max_timestamp_ms, relative, indexed);
            next = found.header.last_offset() + 1;
            position += found.header.total_bytes() as u64;
        }
        Ok((Indexes { offsets: index, times }, next))
    }

    /// The indexes of the whole file, from the log alone.
    pub(super) fn rebuild(&mut self, interval: u64) -> Result<(Indexes, i64), SegmentError> {
        match self.complete(Indexes::default(), interval) {
            Ok(done) => Ok(done),
            Err(Doubt::Log(error)) => Err(error),
            Err(Doubt::Index) => Err(self.damaged(0, "its batches don't follow each other")),
        }
    }

    pub(super) fn damaged(&self, position: u64, what: &str) -> SegmentError {
        damaged(&self.handle, position, what)
    }
}

/// Says what is wrong with a file.
pub(super) fn damaged(handle: &Handle, position: u64, what: &str) -> SegmentError {
    SegmentError::Corrupt { path: handle.path.clone(), position, what: what.to_string() }
}

/// Whole entries of an index file, at most as many as a segment can have.
pub(super) fn read_index(handle: &Handle) -> Result<Vec<u8>, SegmentError> {
    let len = handle.file.len().at("look at", &handle.path)?.min(INDEX_MAX) as usize;
    let mut bytes = vec![0; len];
    handle.file.read_exact_at(&mut bytes, 0).at("read", &handle.path)?;
    Ok(bytes)
}
