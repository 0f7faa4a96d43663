//! Appending outside of transactions, and how batches come in.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use super::Inner;
use crate::accept::{Accepted, Waiter};
use crate::batch::{BatchBuilder, BatchError, BatchHeader, ProducerStamp, restamp};
use crate::error::AppendError;
use crate::offset::Offset;
use crate::producer::{last_sequence, next_sequence};
use crate::spares::Spares;
use crate::topic::{TopicId, TopicPartition};

/// A batch to append: a builder with records in it, or a batch that was built before by anybody. Either way the log puts
/// its own producer id, epoch and sequence in.
#[derive(Debug)]
pub enum BatchSource<'a> {
    /// Built now; the builder is empty afterwards.
    Builder(&'a mut BatchBuilder),
    /// Built before.
    Built(Vec<u8>),
}

impl<'a> From<&'a mut BatchBuilder> for BatchSource<'a> {
    fn from(builder: &'a mut BatchBuilder) -> Self {
        BatchSource::Builder(builder)
    }
}

impl From<Vec<u8>> for BatchSource<'_> {
    fn from(batch: Vec<u8>) -> Self {
        BatchSource::Built(batch)
    }
}

impl BatchSource<'_> {
    /// The batch's bytes with this stamp.
    fn stamped(self, stamp: ProducerStamp, spares: &Spares) -> Result<Vec<u8>, BatchError> {
        match self {
            BatchSource::Builder(builder) => builder.build_with(stamp, |bytes| spares.take(bytes)),
            BatchSource::Built(mut batch) => {
                restamp(&mut batch, stamp)?;
                Ok(batch)
            }
        }
    }
}

/// Counts the sequences of one producer id, per partition.
#[derive(Debug)]
pub(crate) struct Sequences {
    producer: i64,
    epoch: i16,
    transactional: bool,
    next: HashMap<TopicPartition, i32>,
}

/// A batch with its stamp, and the sequence that follows it.
pub(crate) struct Stamped {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u64,
    next: i32,
}

impl Sequences {
    pub(crate) fn new(producer: i64, epoch: i16, transactional: bool) -> Sequences {
        Sequences { producer, epoch, transactional, next: HashMap::new() }
    }

    /// The producer id and epoch that it stamps batches with.
    pub(crate) fn producer(&self) -> (i64, i16) {
        (self.producer, self.epoch)
    }

    /// Stamps a batch with the next sequence of `at`; a builder gets memory for its next batch from `spares`.
    pub(crate) fn stamp(
        &self,
        at: TopicPartition,
        batch: BatchSource<'_>,
        spares: &Spares,
    ) -> Result<Stamped, AppendError> {
        let error = |source| AppendError::Batch { at, source };
        let base_sequence = self.next.get(&at).copied().unwrap_or(0);
        let (producer_id, epoch, transactional) = (self.producer, self.epoch, self.transactional);
        let stamp = ProducerStamp { producer_id, epoch, base_sequence, transactional };
        let bytes = batch.stamped(stamp, spares).map_err(error)?;
        let header = BatchHeader::parse(&bytes).map_err(error)?;
        let next = next_sequence(last_sequence(base_sequence, header.last_offset_delta));
        Ok(Stamped { bytes, records: header.record_count.max(0).cast_unsigned().into(), next })
    }

    /// Takes note that the log has accepted a stamped batch.
    pub(crate) fn accepted(&mut self, at: TopicPartition, next: i32) {
        self.next.insert(at, next);
    }
}

impl Stamped {
    pub(crate) fn into_parts(self) -> (Vec<u8>, i32) {
        (self.bytes, self.next)
    }
}

/// An idempotent producer outside of transactions. Appends may be in flight together; those to one partition keep their
/// order.
#[derive(Debug)]
pub struct Producer {
    inner: Arc<Inner>,
    id: i64,
    sequences: Mutex<Sequences>,
}

impl Producer {
    pub(super) fn new(inner: Arc<Inner>, id: i64) -> Producer {
        Producer { inner, id, sequences: Mutex::new(Sequences::new(id, 0, false)) }
    }

    /// Its producer id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Appends a batch; the ticket answers once it is durable. Waits only when too much is in flight.
    ///
    /// # Errors
    /// The batch isn't acceptable, the partition doesn't exist, or the log is down. A builder that was given is empty
    /// then, unless its records can't form a batch at all.
    pub fn append<'a>(
        &self,
        topic: TopicId,
        partition: u32,
        batch: impl Into<BatchSource<'a>>,
    ) -> Result<AppendTicket, AppendError> {
        let at = TopicPartition::new(topic, partition);
        // Held over the acceptance: the order of sequences must be the order of acceptance.
        let mut sequences = self.sequences.lock().expect("no panic while appending");
        let (bytes, next) = sequences.stamp(at, batch.into(), &self.inner.shared.spares)?.into_parts();
        let accepted = self.inner.shared.append(at, bytes, true)?;
        sequences.accepted(at, next);
        drop(sequences);
        Ok(AppendTicket::new(self.inner.clone(), accepted))
    }
}

/// The answer to an append that is on its way. Dropping it doesn't take the append back.
pub struct AppendTicket {
    inner: Arc<Inner>,
    base: u64,
    log_start: u64,
    waiter: Waiter,
}

impl AppendTicket {
    pub(super) fn new(inner: Arc<Inner>, accepted: Accepted) -> AppendTicket {
        let Accepted { base, log_start, waiter } = accepted;
        AppendTicket { inner, base, log_start, waiter: waiter.unwrap_or_default() }
    }

    /// Waits until the batch is durable and visible; answers the offset of its first record.
    ///
    /// # Errors
    /// The disk failed meanwhile: the outcome is unknown.
    pub fn wait(self) -> Result<Offset, AppendError> {
        self.inner.wait(&self.waiter)?;
        Ok(Offset(self.base))
    }

    /// The first offset that can be read in the batch's partition, as it was when the batch was accepted.
    pub fn log_start(&self) -> Offset {
        Offset(self.log_start)
    }

    /// Whether [`AppendTicket::wait`] wouldn't wait.
    pub fn is_ready(&self) -> bool {
        self.waiter.is_complete()
    }

    /// The answer, if it has come; otherwise the ticket again.
    ///
    /// # Errors
    /// As [`AppendTicket::wait`].
    pub fn try_wait(self) -> Result<Result<Offset, AppendError>, AppendTicket> {
        match self.waiter.try_take() {
            Some(Ok(())) => Ok(Ok(Offset(self.base))),
            Some(Err(unknown)) => Ok(Err(unknown.into())),
            None => Err(self),
        }
    }
}

impl fmt::Debug for AppendTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppendTicket")
    }
}
