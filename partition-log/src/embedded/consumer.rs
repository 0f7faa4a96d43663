//! Reading one partition.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use crate::batch::{BatchError, BatchHeader, Limits, RecordRef, Records, records, records_reusing};
use crate::core::AbortedTxn;
use crate::error::FetchError;
use crate::offset::Offset;
use crate::segment::SegmentError;
use crate::topic::TopicPartition;
use crate::view::{Callback, Listener, Visible};
use crate::wal::frame::Batch;

/// Which records a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Those outside of transactions and those of committed ones, up to the last stable offset, in the order of the log.
    ReadCommitted,
    /// All up to the high watermark, aborted ones included.
    ReadUncommitted,
}

/// A reader of one partition, with a position. Never blocks unless asked to [`wait`](Consumer::wait).
#[derive(Debug)]
pub struct Consumer {
    inner: Arc<Inner>,
    at: TopicPartition,
    position: Offset,
    isolation: Isolation,
    listener: Arc<Listener>,
}

/// What one poll brought: whole batches, of which only what the reader may see is shown.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Records below were not asked for: the first batch may begin before the position.
    from: u64,
    batches: Vec<Piece>,
    limits: Limits,
}

/// One batch inside a buffer.
#[derive(Debug)]
struct Piece {
    buffer: Batch,
    start: usize,
    end: usize,
    records: u64,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }
}

impl Fetched {
    /// One that shows nothing yet, for a reader that stands at `from`.
    pub(crate) fn beginning_at(from: u64, batch_bytes_max: usize) -> Fetched {
        let limits = Limits { batch_bytes: batch_bytes_max, ..Limits::default() };
        Fetched { from, batches: Vec::new(), limits }
    }

    /// Shows one more batch, which lies in `buffer`.
    pub(crate) fn show(&mut self, buffer: &Batch, start: usize, end: usize, header: &BatchHeader) {
        let records = header.record_count.max(0).cast_unsigned().into();
        self.batches.push(Piece { buffer: buffer.clone(), start, end, records });
    }

    /// True when it shows no batch.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Bytes of its batches.
    pub fn bytes(&self) -> usize {
        self.batches.iter().map(|piece| piece.end - piece.start).sum()
    }

    /// At most this many records: those of the first batch below the position are counted, though never shown.
    pub fn records_at_most(&self) -> u64 {
        self.batches.iter().map(|piece| piece.records).sum()
    }

    /// The batches as they lie in the log. The first one may begin below the position that was asked for.
    pub fn batches(&self) -> impl Iterator<Item = &[u8]> {
        self.batches.iter().map(Piece::bytes)
    }

    /// The batches opened for reading, decompressed if need be; walk each with [`Records::iter`]. The first one may begin
    /// below the position; [`Fetched::for_each`] leaves such records out.
    pub fn opened(&self) -> impl Iterator<Item = Result<Records<'_>, BatchError>> {
        self.batches.iter().map(|piece| records(piece.bytes(), &self.limits))
    }

    /// Calls `f` with every record from the position on, in order of their offsets.
    ///
    /// # Errors
    /// A batch can't be decoded: the log verified it when it was appended, so its memory or file is damaged.
    pub fn for_each(&self, mut f: impl FnMut(RecordRef<'_>)) -> Result<(), BatchError> {
        let mut scratch = Vec::new();
        for piece in &self.batches {
            for record in &records_reusing(piece.bytes(), &self.limits, &mut scratch)? {
                let record = record?;
                if record.offset.cast_unsigned() >= self.from {
                    f(record);
                }
            }
        }
        Ok(())
    }
}

/// The offset behind the last of the batches in `buffer`; `None` when they aren't whole.
pub(super) fn end_of(mut buffer: &[u8]) -> Option<u64> {
    let mut end = None;
    while !buffer.is_empty() {
        let header = BatchHeader::parse(buffer).ok()?;
        end = Some(header.last_offset().cast_unsigned() + 1);
        buffer = buffer.get(header.total_bytes()..)?;
    }
    end
}

/// What a reader at `from` hears when the segments can't be read.
pub(super) fn fetch_error(at: TopicPartition, from: u64, error: SegmentError) -> FetchError {
    match error {
        SegmentError::OutOfRange { start, end, .. } => FetchError::OutOfRange {
            at,
            offset: Offset(from),
            start: Offset(start.cast_unsigned()),
            end: Offset(end.cast_unsigned()),
        },
        SegmentError::Io(e) | SegmentError::Sync(e) => FetchError::Io { at, reason: e.to_string() },
        other => FetchError::Damaged { at, offset: Offset(from), what: other.to_string() },
    }
}

impl Consumer {
    pub(super) fn new(
        inner: Arc<Inner>,
        at: TopicPartition,
        position: Offset,
        isolation: Isolation,
    ) -> Result<Consumer, FetchError> {
        let listener = Arc::new(Listener::default());
        let mut view = inner.shared.view.write().expect("no panic under the view lock");
        view.visible(at).ok_or(FetchError::UnknownPartition { at })?;
        view.listen(at, &listener);
        drop(view);
        Ok(Consumer { inner, at, position, isolation, listener })
    }

    /// The offset that the next poll begins at. Moves past markers and past what isn't shown.
    pub fn position(&self) -> Offset {
        self.position
    }

    /// Goes on at `position`.
    pub fn seek(&mut self, position: Offset) {
        self.position = position;
    }

    /// The partition.
    pub fn partition(&self) -> TopicPartition {
        self.at
    }

    /// The first offset that this reader may not see yet: the last stable offset or the high watermark.
    pub fn readable_end(&self) -> Offset {
        let view = self.inner.shared.view.read().expect("no panic under the view lock");
        Offset(view.visible(self.at).map_or(0, |visible| self.bound(visible)))
    }

    fn bound(&self, visible: Visible) -> u64 {
        match self.isolation {
            Isolation::ReadCommitted => visible.last_stable,
            Isolation::ReadUncommitted => visible.high_watermark,
        }
    }

    /// Takes what is there, without waiting: about `max_bytes`, at least one batch if there is any. An empty answer
    /// doesn't mean that the position hasn't moved: markers and aborted batches are passed.
    ///
    /// # Errors
    /// The segments are damaged or can't be read, or the log is down.
    pub fn poll(&mut self, max_bytes: usize) -> Result<Fetched, FetchError> {
        let shared = &self.inner.shared;
        shared.lock().check()?;
        let from = self.position.0;
        let (visible, read) = {
            let view = shared.view.read().expect("no panic under the view lock");
            let visible = view.visible(self.at).ok_or(FetchError::UnknownPartition { at: self.at })?;
            let bound = self.bound(visible);
            if from < visible.log_start {
                let (start, end) = (Offset(visible.log_start), Offset(visible.high_watermark));
                return Err(FetchError::OutOfRange { at: self.at, offset: self.position, start, end });
            }
            if from >= bound {
                return Ok(Fetched::default());
            }
            (visible, view.read(self.at, from, max_bytes, bound))
        };
        let bound = self.bound(visible);
        let mut aborted = read.aborted;
        let buffers = match read.batches {
            Some(batches) => batches,
            None => {
                let (buffer, older) = self.read_segments(from, max_bytes, bound)?;
                aborted.extend(older);
                vec![Arc::new(buffer)]
            }
        };
        let mut fetched = Fetched { from, ..Fetched::default() };
        fetched.limits.batch_bytes = shared.limits.batch_bytes_max;
        let mut next = from;
        for buffer in buffers {
            let mut start = 0;
            while start < buffer.len() {
                let header = BatchHeader::parse(&buffer[start..]).map_err(|e| self.damaged(next, e))?;
                let end = start + header.total_bytes();
                if end > buffer.len() {
                    return Err(self.damaged(next, "a batch is cut short"));
                }
                next = header.last_offset().cast_unsigned() + 1;
                if !header.is_control() && !self.is_aborted(&header, &aborted) {
                    fetched.show(&buffer, start, end, &header);
                }
                start = end;
            }
        }
        if next == from {
            return Err(self.damaged(from, format!("nothing is there, but the log reaches up to {bound}")));
        }
        self.position = Offset(next);
        Ok(fetched)
    }

    fn is_aborted(&self, header: &BatchHeader, aborted: &[AbortedTxn]) -> bool {
        let base = header.base_offset.cast_unsigned();
        self.isolation == Isolation::ReadCommitted
            && header.is_transactional()
            && aborted.iter().any(|a| a.producer == header.producer_id && (a.first..=a.last).contains(&base))
    }

    fn read_segments(&self, from: u64, max_bytes: usize, bound: u64) -> Result<(Vec<u8>, Vec<AbortedTxn>), FetchError> {
        let segments = &self.inner.shared.segments;
        let read = || {
            let Some(files) = segments.find(self.at)? else { return Ok(None) };
            let buffer = files.read(from.cast_signed(), max_bytes, bound.cast_signed())?;
            let aborted = match self.isolation {
                Isolation::ReadCommitted => segments.aborted(self.at, from, end_of(&buffer).unwrap_or(bound))?,
                Isolation::ReadUncommitted => Vec::new(),
            };
            Ok(Some((buffer, aborted)))
        };
        let read = read().map_err(|error| fetch_error(self.at, from, error))?;
        // Its topic was deleted meanwhile.
        read.ok_or(FetchError::UnknownPartition { at: self.at })
    }

    fn damaged(&self, offset: u64, what: impl std::fmt::Display) -> FetchError {
        FetchError::Damaged { at: self.at, offset: Offset(offset), what: what.to_string() }
    }

    /// True when a poll would bring something or move the position, or fail because the log is down.
    fn is_ready(&self) -> bool {
        self.inner.shared.lock().check().is_err() || self.readable_end() > self.position
    }

    /// Waits until there is something to poll, at most for `timeout`; true when there is. Also returns when the log stops,
    /// for the next poll to say so.
    pub fn wait(&self, timeout: Duration) -> bool {
        let platform = &self.inner.shared.platform;
        let deadline = platform.clock.monotonic() + timeout;
        loop {
            // Reset first: a notice that comes behind this is not lost.
            self.listener.reset();
            if self.is_ready() {
                return true;
            }
            if platform.spawn.is_inline() {
                if !platform.spawn.help() {
                    return false;
                }
                continue;
            }
            let left = deadline.saturating_sub(platform.clock.monotonic());
            if left.is_zero() {
                return false;
            }
            self.listener.wait(left);
        }
    }

    /// Calls back whenever the partition may have something new for this reader: at once if it has, then after every move
    /// of the high watermark or the last stable offset, and when the log stops. Replaces an earlier callback; ends when
    /// the consumer is dropped.
    ///
    /// The callback runs on the log's own thread: let it do no more than wake somebody, and let it hold no handle of this
    /// log, or the log never ends.
    pub fn on_new_data(&self, callback: Callback) {
        self.listener.set_callback(callback.clone());
        if self.is_ready() {
            callback();
        }
    }
}
