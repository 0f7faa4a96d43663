//! Writes one worker's share of a sink: encodes records into batches, batches into the interval's transaction.
//!
//! ```text
//!   write    record -> buffer of its partition -> batch -> transaction, begun at the first batch      on the worker
//!   seal(n)  what is buffered goes in too; the transaction is closed                                   on the worker, short
//!   prepare  durable, all limits checked                                                               beside the worker
//!
//!   at once (at-least-once, at-most-once): write appends as it comes; seal waits beside the worker until all is durable
//! ```
//!
//! Promises:
//! * Per partition, records stand in the log in the order in which this writer took them, over checkpoints too: a buffer is
//!   always emptied before the next transaction begins.
//! * An interval without a record has no transaction.
//! * Errors of appends that are under way are never lost: a transaction can't be prepared over them, and without transactions
//!   every ticket is waited for, at the latest at the next barrier or at the end.
//! * What is buffered is bounded (I-9), whatever the number of partitions.

use std::collections::VecDeque;
use std::sync::Arc;

use cutwater_engine::error::SinkError;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::sink::{Prepare, SinkWriter, Visibility, WriterId};
use cutwater_engine::time::EventTime;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{AppendTicket, TopicId, TxnName};
use cutwater_platform::{Clock, CrashPoints};

use crate::log::SharedLog;
use crate::log::at::{Found, OwnerAt, ProducerAt, TxnAt, from_append, from_remote};
use crate::log::group::fenced;
use crate::log::partition::partition_of_key;
use crate::log::record::{FillRecord, KeyOf, RecordBuf};
use crate::log::sink::{Choose, LogSink};

/// A batch is closed at this size, or at half of what the log takes at most if that is less.
const BATCH_BYTES: usize = 128 * 1024;
/// More than the lengths, times and offsets of one record take.
const RECORD_OVERHEAD_BYTES: usize = 128;
/// All batches are closed when they have this much together, so that sealing stays short.
const BUFFERED_BYTES_MAX: usize = 1024 * 1024;
/// Appends without a transaction that may be unanswered.
const UNANSWERED_MAX: usize = 256;

/// The writer of one worker. Made by [`LogSink::open`](cutwater_engine::sink::Sink::open).
pub(crate) struct LogWriter<T, V, K> {
    sink: String,
    value: V,
    key: K,
    choose: Option<Choose<T>>,
    clock: Arc<dyn Clock>,
    record: RecordBuf,
    /// One open batch per partition.
    open: Vec<BatchBuilder>,
    /// At this size they are closed, and with a record more than the other they would be refused.
    close_at: usize,
    batch_max: usize,
    buffered: usize,
    /// Records taken.
    taken: u64,
    /// Where records without a key go for now.
    sticky: u32,
    out: Out,
}

/// The answers to appends in this process that haven't come.
pub(crate) type Tickets = VecDeque<Unanswered>;

/// An append, and how many records it has.
#[derive(Debug)]
pub(crate) struct Unanswered {
    ticket: AppendTicket,
    records: u64,
}

/// Where batches go.
struct Out {
    sink: String,
    topic: TopicId,
    crash: CrashPoints,
    mode: Mode,
    /// Records that are visible at once and were answered.
    answered: u64,
}

enum Mode {
    /// Visible with its checkpoint: a transaction for each interval.
    Transactions { owner: OwnerAt, writer: u32, checkpoint: CheckpointId, txn: Option<TxnAt> },
    /// Visible as it comes.
    Direct(ProducerAt),
}

impl<T, V: Clone, K: Clone> LogWriter<T, V, K> {
    pub(crate) fn open(
        sink: &LogSink<T, V, K>,
        shared: &SharedLog,
        topic: &Found,
        compression: Compression,
        id: &WriterId,
    ) -> Result<LogWriter<T, V, K>, SinkError> {
        let mode = match id.visibility {
            Visibility::ByCheckpoint { first: checkpoint } => {
                let owner = shared.group.owner()?;
                if !owner.is(id.job.0, id.attempt.0) {
                    // Another attempt has fenced in between.
                    return Err(fenced());
                }
                Mode::Transactions { owner, writer: id.worker.0, checkpoint, txn: None }
            }
            Visibility::AtOnce => {
                // Not everything that is visible at once has checkpoints, and so an attempt that claims.
                let claimed = shared.group.claimed().filter(|owner| owner.is(id.job.0, id.attempt.0));
                Mode::Direct(shared.at.producer(claimed.as_ref(), &id.sink)?)
            }
        };
        let batch_max = shared.at.batch_bytes_max();
        Ok(LogWriter {
            sink: id.sink.clone(),
            value: sink.value.clone(),
            key: sink.key.clone(),
            choose: sink.choose.clone(),
            clock: shared.platform.clock.clone(),
            record: RecordBuf::default(),
            open: (0..topic.partitions).map(|_| BatchBuilder::new(compression)).collect(),
            close_at: BATCH_BYTES.min(batch_max / 2),
            batch_max,
            buffered: 0,
            taken: 0,
            // Workers begin at different partitions.
            sticky: id.worker.0 % topic.partitions.max(1),
            out: Out {
                sink: id.sink.clone(),
                topic: topic.id,
                crash: shared.platform.crash.clone(),
                mode,
                answered: 0,
            },
        })
    }
}

impl<T, V: FillRecord<T>, K: KeyOf<T>> LogWriter<T, V, K> {
    /// Puts one record into the batch of its partition.
    fn put(&mut self, item: &T, event_ms: Option<i64>, wall_ms: i64) -> Result<(), SinkError> {
        let record = &mut self.record;
        record.clear();
        self.value.fill(item, record).map_err(|e| SinkError::fatal(&self.sink, e))?;
        self.key.put_key(item, record);
        let partitions = self.open.len() as u32;
        let partition = match (&self.choose, record.key_bytes()) {
            (Some(choose), _) => choose(item, partitions),
            (None, Some(key)) => partition_of_key(key, partitions),
            (None, None) => self.sticky,
        };
        let Some(batch) = self.open.get_mut(partition as usize) else {
            let reason = format!("partition_by chose partition {partition}, the topic has {partitions}");
            return Err(SinkError::fatal(&self.sink, reason));
        };
        let time = event_ms.or(record.timestamp_ms).unwrap_or(wall_ms);
        let mut before = batch.encoded_len_estimate();
        if before + record.bytes() + RECORD_OVERHEAD_BYTES > self.batch_max && !batch.is_empty() {
            // The log would refuse them together.
            self.out.append(partition, batch)?;
            self.buffered = self.buffered.saturating_sub(before);
            before = batch.encoded_len_estimate();
        }
        if push(batch, time, record).is_err() {
            // It doesn't fit beside the others; alone it must.
            self.out.append(partition, batch)?;
            push(batch, time, record).map_err(|e| SinkError::fatal(&self.sink, e))?;
        }
        let now = batch.encoded_len_estimate();
        self.buffered += now.saturating_sub(before);
        if now >= self.close_at {
            self.out.append(partition, batch)?;
            self.buffered = self.buffered.saturating_sub(now);
        }
        if self.buffered >= BUFFERED_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }
}

impl<T, V, K> LogWriter<T, V, K> {
    /// Hands all batches to the log.
    fn flush(&mut self) -> Result<(), SinkError> {
        for (partition, batch) in self.open.iter_mut().enumerate() {
            self.out.append(partition as u32, batch)?;
        }
        self.buffered = 0;
        Ok(())
    }

    /// After a batch of the engine's: what must be visible at once is handed over, records without a key move on.
    fn batch_written(&mut self, records: usize) -> Result<(), SinkError> {
        self.sticky = (self.sticky + 1) % self.open.len().max(1) as u32;
        if matches!(self.out.mode, Mode::Direct(_)) {
            self.flush()?;
        }
        self.taken += records as u64;
        Ok(())
    }
}

impl<T, V: FillRecord<T>, K: KeyOf<T>> SinkWriter for LogWriter<T, V, K> {
    type Item = T;

    fn write(&mut self, batch: Vec<T>) -> Result<(), SinkError> {
        let wall_ms = self.clock.wall().0;
        for item in &batch {
            self.put(item, None, wall_ms)?;
        }
        self.batch_written(batch.len())
    }

    fn write_timed(&mut self, batch: Vec<(EventTime, T)>) -> Result<(), SinkError> {
        let wall_ms = self.clock.wall().0;
        for (time, item) in &batch {
            self.put(item, Some(time.0), wall_ms)?;
        }
        self.batch_written(batch.len())
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        self.flush()?;
        self.out.seal(checkpoint)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        self.out.finish()?;
        self.out.answered = self.taken;
        Ok(())
    }

    /// A broker's answers aren't counted before the end.
    fn unconfirmed(&self) -> u64 {
        self.taken.saturating_sub(self.out.answered)
    }
}

fn push(
    batch: &mut BatchBuilder,
    time: i64,
    record: &RecordBuf,
) -> Result<(), cutwater_partition_log::batch::BatchError> {
    let (key, value) = (record.key_bytes(), record.value_bytes());
    if record.headers.is_empty() {
        return batch.push(time, key, value, &[]);
    }
    let headers: Vec<_> = record.headers.iter().map(|h| (h.name.as_slice(), h.value.as_deref())).collect();
    batch.push(time, key, value, &headers)
}

impl Out {
    /// Hands a batch to the log, if there is anything in it.
    fn append(&mut self, partition: u32, batch: &mut BatchBuilder) -> Result<(), SinkError> {
        if batch.is_empty() {
            return Ok(());
        }
        match &mut self.mode {
            Mode::Transactions { owner, writer, checkpoint, txn } => {
                let txn = match txn {
                    Some(txn) => txn,
                    None => {
                        let name = TxnName { checkpoint: checkpoint.0, sink: self.sink.clone(), writer: *writer };
                        txn.insert(owner.begin(name, &self.sink)?)
                    }
                };
                txn.append(self.topic, partition, batch, &self.sink)
            }
            Mode::Direct(ProducerAt::Here(producer, tickets)) => {
                let records = u64::from(batch.record_count().unsigned_abs());
                let ticket = producer.append(self.topic, partition, batch).map_err(|e| from_append(&self.sink, e))?;
                tickets.push_back(Unanswered { ticket, records });
                settle(tickets, &mut self.answered, &self.sink)
            }
            Mode::Direct(ProducerAt::Broker(producer)) => {
                producer.append(self.topic, partition, batch).map_err(|e| from_remote(&self.sink, &e))
            }
        }
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        let (next, txn) = match &mut self.mode {
            Mode::Transactions { checkpoint, txn, .. } => (checkpoint, txn),
            Mode::Direct(producer) => return Ok(durable(&self.sink, producer)),
        };
        *next = checkpoint.next();
        let Some(txn) = txn.take() else { return Ok(None) };
        self.crash.reach("sink.sealed");
        let sink = self.sink.clone();
        Ok(Some(Box::new(move || txn.prepare(&sink).map(Some))))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        match &mut self.mode {
            // What follows the last barrier would never be committed (I-6).
            Mode::Transactions { txn: Some(txn), .. } => {
                Err(SinkError::failed(&self.sink, format!("{} records came behind the last barrier", txn.records())))
            }
            Mode::Transactions { .. } => Ok(()),
            Mode::Direct(ProducerAt::Here(_, tickets)) => all_answered(&self.sink, std::mem::take(tickets)),
            Mode::Direct(ProducerAt::Broker(producer)) => producer.wait().map_err(|e| from_remote(&self.sink, &e)),
        }
    }
}

/// Waits, beside the worker, until everything written at once is durable: nothing before a barrier may be missing.
fn durable(sink: &str, producer: &mut ProducerAt) -> Option<Prepare> {
    let sink = sink.to_string();
    match producer {
        ProducerAt::Here(_, tickets) => {
            let tickets = std::mem::take(tickets);
            (!tickets.is_empty()).then(|| Box::new(move || all_answered(&sink, tickets).map(|()| None)) as Prepare)
        }
        ProducerAt::Broker(producer) => {
            let producer = producer.clone();
            let wait = move || producer.wait().map(|()| None).map_err(|e| from_remote(&sink, &e));
            Some(Box::new(wait))
        }
    }
}

fn all_answered(sink: &str, unanswered: Tickets) -> Result<(), SinkError> {
    unanswered.into_iter().try_for_each(|append| append.ticket.wait().map(drop)).map_err(|e| from_append(sink, e))
}

/// Takes the answers that have come; waits for the oldest if too many haven't.
fn settle(unanswered: &mut Tickets, answered: &mut u64, sink: &str) -> Result<(), SinkError> {
    while let Some(Unanswered { ticket, records }) = unanswered.pop_front() {
        let answer = match ticket.try_wait() {
            Ok(answer) => answer,
            Err(waiting) if unanswered.len() >= UNANSWERED_MAX => waiting.wait(),
            Err(ticket) => {
                unanswered.push_front(Unanswered { ticket, records });
                return Ok(());
            }
        };
        answer.map_err(|e| from_append(sink, e))?;
        *answered += records;
    }
    Ok(())
}
