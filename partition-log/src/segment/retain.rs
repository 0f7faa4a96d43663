//! What retention asks of a partition's files: what there is, and to take whole segments away from the front.

use std::ops::ControlFlow;

use cutwater_platform::{IoContext, Open};

use super::SegmentError;
use super::names::Kind;
use super::partition_files::PartitionFiles;
use super::walk::Walk;
use crate::batch::{BatchError, BatchHeader};
use crate::retention::SegmentFacts;

/// Why somebody who was shown a batch had enough.
#[derive(Debug)]
pub(crate) enum EachError {
    /// Something in the batch.
    Batch(BatchError),
    /// Something else.
    Other(SegmentError),
}

impl From<BatchError> for EachError {
    fn from(error: BatchError) -> EachError {
        EachError::Batch(error)
    }
}

impl From<SegmentError> for EachError {
    fn from(error: SegmentError) -> EachError {
        EachError::Other(error)
    }
}

/// A segment that was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Bytes of its log file.
    pub(crate) bytes: u64,
}

impl PartitionFiles {
    /// All segments, as retention sees them, the active one last. Asks a sealed segment's files once.
    pub(crate) fn facts(&self) -> Result<Vec<SegmentFacts>, SegmentError> {
        let _layout = self.read_layout();
        let mut all = Vec::new();
        for base in self.segment_bases() {
            let known = self.state().segments.iter().find(|segment| segment.base == base).and_then(|s| s.facts);
            let facts = match known {
                Some(facts) => facts,
                None => {
                    let Some(facts) = self.look_at(base)? else { continue };
                    if !facts.is_active
                        && let Some(segment) = self.state().segments.iter_mut().find(|segment| segment.base == base)
                    {
                        segment.facts = Some(facts);
                    }
                    facts
                }
            };
            all.push(facts);
        }
        Ok(all)
    }

    fn look_at(&self, base: i64) -> Result<Option<SegmentFacts>, SegmentError> {
        let Some(place) = self.place(base)? else {
            // The active one, and empty.
            return Ok(Some(SegmentFacts {
                base,
                next: base,
                bytes: 0,
                first_ms: None,
                largest_ms: None,
                is_active: true,
            }));
        };
        let bytes = self.bytes_of(&place)?;
        let handle = self.handle(base, Kind::Log, Open::Write)?;
        let of_file = || handle.file.modified_ns().at("look at", &handle.path);
        let largest = match self.largest(&place)? {
            Some(entry) => Some(entry.timestamp_ms),
            None => of_file()?.map(|ns| ns / 1_000_000),
        };
        let first = Walk::new(handle.clone(), base, bytes).batch_at(0, Some(base))?.header.max_timestamp_ms;
        let first_ms = Some(first).filter(|time| *time >= 0);
        Ok(Some(SegmentFacts {
            base,
            next: place.next,
            bytes,
            first_ms,
            largest_ms: largest,
            is_active: place.is_active,
        }))
    }

    /// Shows the batches from the one that holds `from` on to the last that ends below `below`, in order, all of them checked.
    pub(crate) fn each_batch(
        &self,
        from: i64,
        below: i64,
        mut each: impl FnMut(&BatchHeader, &[u8]) -> Result<ControlFlow<()>, EachError>,
    ) -> Result<(), SegmentError> {
        const WINDOW_BYTES: usize = 1 << 20;
        let (mut offset, mut window) = (from, Vec::new());
        while offset < below {
            window.clear();
            if self.read_into(offset, WINDOW_BYTES, below, &mut window)? == 0 {
                return Ok(());
            }
            let mut rest = window.as_slice();
            while !rest.is_empty() {
                let damaged = |error: BatchError, offset: i64| SegmentError::Corrupt {
                    path: self.dir.clone(),
                    position: offset.cast_unsigned(),
                    what: format!("the batch with this offset: {error}"),
                };
                let header = BatchHeader::parse(rest).map_err(|error| damaged(error, offset))?;
                let (batch, later) = rest.split_at(header.total_bytes());
                match each(&header, batch) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return Ok(()),
                    Err(EachError::Batch(error)) => return Err(damaged(error, header.base_offset)),
                    Err(EachError::Other(error)) => return Err(error),
                }
                offset = header.last_offset() + 1;
                rest = later;
            }
        }
        Ok(())
    }

    /// Removes whole segments that hold nothing at or above `log_start`, never the active one; answers how many.
    ///
    /// Readers that are in one of them get [`SegmentError::OutOfRange`].
    ///
    /// # Errors
    /// The end isn't known; the system's. What was removed before the error stays removed.
    pub fn delete_below(&self, log_start: i64) -> Result<usize, SegmentError> {
        let mut removed = 0;
        while self.delete_first_below(log_start)?.is_some() {
            removed += 1;
        }
        Ok(removed)
    }

    /// True if [`delete_first_below`](Self::delete_first_below) would find one.
    pub(crate) fn has_below(&self, log_start: i64) -> bool {
        let state = self.state();
        let Some(end) = state.end else { return false };
        let next = state.segments.get(1).map_or(end.segment_base, |segment| segment.base);
        state.segments.first().is_some_and(|first| first.base != end.segment_base && next <= log_start)
    }

    /// Removes the first segment if it holds nothing at or above `log_start` and isn't the active one.
    ///
    /// Nobody reads in it any more when its files go, and nobody waits while they do.
    pub(crate) fn delete_first_below(&self, log_start: i64) -> Result<Option<Removed>, SegmentError> {
        let (victim, bytes) = {
            let _layout = self.change_layout();
            let _writer = self.lock_writer();
            self.writable_end()?;
            if !self.has_below(log_start) {
                return Ok(None);
            }
            let mut state = self.state();
            let victim = state.segments.remove(0);
            (victim.base, victim.sealed_bytes)
        };
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                let handle = self.handle(victim, Kind::Log, Open::Write)?;
                handle.file.len().at("look at", &handle.path)?
            }
        };
        self.remove_segment(victim)?;
        self.state().names_dirty = true;
        self.open.crash.reach("segment.removed");
        Ok(Some(Removed { bytes }))
    }
}
