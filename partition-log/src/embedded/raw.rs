//! Reading a partition as a server needs it: whole batches as they lie in the log, markers and aborted ones among them, and
//! beside them what a read-committed client must skip.
//!
//! Promises:
//! * Nothing at or above the high watermark is answered, and under read-committed nothing at or above the last stable offset
//!   (I-2).
//! * The list of aborted transactions is complete for the batches it comes with: it is taken under the same look at the
//!   partition, when the answer is made and not when the question came (KAFKA-5376).
//! * What is in the tail never touches the disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::consumer::{Isolation, end_of, fetch_error};
use super::{Inner, Log};
use crate::batch::BatchHeader;
use crate::error::FetchError;
use crate::offset::{Offset, PartitionOffsets};
use crate::topic::TopicPartition;
use crate::view::Listener;
use crate::wal::frame::Batch;

/// What one look at a partition brought.
#[derive(Clone, Debug)]
pub struct RawFetch {
    /// Where the partition stood.
    pub offsets: PartitionOffsets,
    /// Whole batches one behind the other, one or more in each buffer. The first may begin below the offset asked for.
    pub buffers: Vec<Arc<Vec<u8>>>,
    /// Producer and first offset of every aborted transaction that reaches into the batches; empty for read-uncommitted.
    pub aborted: Vec<(i64, Offset)>,
}

impl RawFetch {
    /// Bytes of its batches.
    pub fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }
}

/// Whether one of the batches has a record: compaction leaves some without.
fn has_records(mut buffer: &[u8]) -> bool {
    while let Ok(header) = BatchHeader::parse(buffer) {
        if header.record_count > 0 {
            return true;
        }
        buffer = buffer.get(header.total_bytes()..).unwrap_or_default();
    }
    false
}

/// Waits for news of some partitions.
#[derive(Debug)]
pub struct Watch {
    inner: Arc<Inner>,
    listener: Arc<Listener>,
}

impl Watch {
    /// Forgets earlier news. Look at the partitions behind this, then wait: what comes in between isn't missed.
    pub fn reset(&self) {
        self.listener.reset();
    }

    /// Waits until one of the partitions has moved (its high watermark or its last stable offset) since the last reset, or the
    /// log has stopped, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        if self.inner.shared.platform.spawn.is_inline() {
            self.inner.shared.platform.spawn.help();
            return;
        }
        self.listener.wait(timeout);
    }
}

impl Log {
    /// Reads whole batches from the one that holds `from` on: about `max_bytes`, at least one if there is any. Doesn't wait.
    ///
    /// # Errors
    /// There is no such partition, the offset lies outside of it, its segments can't be read, or the log is down.
    pub fn fetch(
        &self,
        at: TopicPartition,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
    ) -> Result<RawFetch, FetchError> {
        let shared = &self.inner.shared;
        shared.lock().check()?;
        let offsets = self.offsets(at.topic, at.partition)?;
        if from < offsets.log_start || from > offsets.log_end {
            let (start, end) = (offsets.log_start, offsets.high_watermark);
            return Err(FetchError::OutOfRange { at, offset: from, start, end });
        }
        let bound = match isolation {
            Isolation::ReadCommitted => offsets.last_stable,
            Isolation::ReadUncommitted => offsets.high_watermark,
        };
        let mut fetch = RawFetch { offsets, buffers: Vec::new(), aborted: Vec::new() };
        if from >= bound {
            return Ok(fetch);
        }
        let read = shared.view.read().expect("no panic under the view lock").read(at, from.0, max_bytes, bound.0);
        let mut aborted = read.aborted;
        fetch.buffers = match read.batches {
            Some(batches) => batches,
            None => {
                let error = |error| fetch_error(at, from.0, error);
                // Its topic may have been deleted meanwhile.
                let files = shared.segments.find(at).map_err(error)?.ok_or(FetchError::UnknownPartition { at })?;
                let mut read = files.read(from.0.cast_signed(), max_bytes, bound.0.cast_signed()).map_err(error)?;
                // Clients take an answer without any record for one that was cut off (librdkafka asks for more and more bytes).
                while let Some(next) = end_of(&read).filter(|next| *next < bound.0 && !has_records(&read)) {
                    let more = files.read_into(next.cast_signed(), max_bytes, bound.0.cast_signed(), &mut read);
                    if more.map_err(error)? == 0 {
                        break;
                    }
                }
                let buffer: Batch = Arc::new(read);
                if isolation == Isolation::ReadCommitted {
                    let end = end_of(&buffer).unwrap_or(bound.0);
                    aborted.extend(shared.segments.aborted(at, from.0, end).map_err(error)?);
                    aborted.retain(|aborted| aborted.first < end);
                }
                vec![buffer]
            }
        };
        if isolation == Isolation::ReadCommitted {
            let of = aborted.iter().filter(|aborted| aborted.last >= from.0);
            let listed: BTreeSet<(u64, i64)> = of.map(|aborted| (aborted.first, aborted.producer)).collect();
            fetch.aborted = listed.into_iter().map(|(first, producer)| (producer, Offset(first))).collect();
        }
        Ok(fetch)
    }

    /// Watches partitions; those that don't exist are never heard of.
    pub fn watch(&self, partitions: impl IntoIterator<Item = TopicPartition>) -> Watch {
        let listener = Arc::new(Listener::default());
        let mut view = self.inner.shared.view.write().expect("no panic under the view lock");
        for at in partitions {
            view.listen(at, &listener);
        }
        drop(view);
        Watch { inner: self.inner.clone(), listener }
    }
}
