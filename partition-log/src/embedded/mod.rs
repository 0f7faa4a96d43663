//! The log as a program in the same process uses it.
//!
//! Reading order: [`Log`] (here), [`producer`] (idempotent appends), [`owner`] (claims, prepared transactions and their
//! ends), [`transaction`], [`consumer`], [`raw`] (what a server sends on), [`lookup`] (offsets by time), [`measure`], [`group`] (offsets of
//! consumer groups), [`clients`] (transactions of Kafka clients), [`afar`] (owners in other processes), [`admin`],
//! [`rehearsal`] (what would become of a change).
//!
//! All handles of one opened log share it; the last one to go stops it. Dropped without [`Log::close`] it is left as a
//! crash would leave it: everything acknowledged is there at the next open.

pub mod admin;
pub mod afar;
pub mod clients;
pub mod consumer;
pub mod group;
pub mod lookup;
pub mod measure;
pub mod owner;
pub mod producer;
pub mod raw;
pub mod rehearsal;
pub mod transaction;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cutwater_platform::{Lock, Platform, WallTime};

use crate::accept::{Shared, Waiter};
use crate::batch::accept;
use crate::config::{LogLimits, LogOptions};
use crate::core::decide::{Asker, How};
use crate::error::{
    AbortError, AppendError, ClaimError, CloseError, Down, FetchError, OpenError, OutcomeUnknown, ProduceError,
    TopicError, TxnError,
};
use crate::held::Needs;
use crate::offset::{Offset, PartitionOffsets};
use crate::owner::{OwnerId, TxnId};
use crate::recover;
use crate::status::{OwnerInfo, Status, TxnInfo, oldest_prepared};
use crate::topic::{Topic, TopicId, TopicPartition};

use consumer::{Consumer, Isolation};
use owner::Owner;
use producer::{AppendTicket, Producer};

/// A transactional, partitioned log in a directory of its own.
///
/// Cheap to clone; clones share it.
///
/// ```
/// use cutwater_partition_log::batch::{BatchBuilder, Compression};
/// use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
/// use cutwater_platform::Platform;
/// # let dir = tempfile::tempdir()?;
/// let log = Log::open(&Platform::real(), dir.path(), LogOptions::default())?;
/// let flights = log.create_topic("flights", 1)?;
///
/// let producer = log.producer()?;
/// let mut batch = BatchBuilder::new(Compression::None);
/// batch.push(0, Some(b"LH"), Some(b"400 on time"), &[])?;
/// producer.append(flights, 0, &mut batch)?.wait()?; // durable now
///
/// let mut consumer = log.consumer(flights, 0, Offset::ZERO, Isolation::ReadCommitted)?;
/// let fetched = consumer.poll(1 << 20)?;
/// let mut values = Vec::new();
/// fetched.for_each(|record| values.push(record.value.map(<[u8]>::to_vec)))?;
/// assert_eq!(values, [Some(b"400 on time".to_vec())]);
/// log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
}

/// What keeps the log running; the last handle to drop it stops the tasks and lets go of the lock.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    lock: Mutex<Option<Box<dyn Lock>>>,
}

impl Inner {
    /// Waits until everything accepted so far is durable and visible.
    pub(crate) fn wait(&self, waiter: &Waiter) -> Result<(), OutcomeUnknown> {
        self.shared.wait(waiter)
    }

    fn stop(&self) {
        self.shared.lock().stop = true;
        for task in [&self.shared.janitor, &self.shared.writer, &self.shared.materialiser]
            .into_iter()
            .filter_map(|task| task.get())
        {
            // From a callback this runs on the task's own thread, which ends by itself then.
            if task.is_current() {
                task.wake();
            } else if let Err(panic) = task.join(&*self.shared.platform.spawn) {
                tracing::error!(panic, "a task of the log panicked");
            }
        }
        self.shared.notify_all();
        *self.lock.lock().expect("no panic while letting go") = None;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let unknown = OutcomeUnknown { reason: "the log was dropped".to_string() };
        self.shared.lock().take_down(Down::Closed, Some(unknown));
        self.stop();
    }
}

impl Log {
    /// Opens the log in `dir`, creating it if the directory is empty or missing, and recovers it if it wasn't closed.
    ///
    /// # Errors
    /// Somebody else has it open (the error says who), the directory holds something else, a newer program wrote it, it is
    /// damaged, or the disk fails. Nothing that was there is overwritten then.
    pub fn open(platform: &Platform, dir: &Path, options: LogOptions) -> Result<Log, OpenError> {
        let (shared, lock) = recover::open(platform, dir, &options)?;
        Ok(Log { inner: Arc::new(Inner { shared, lock: Mutex::new(Some(lock)) }) })
    }

    /// Closes the log cleanly: waits for everything accepted, puts it into the segments, syncs them, publishes a base
    /// image, and lets go of the lock. Later requests of any handle answer [`Down::Closed`].
    ///
    /// # Errors
    /// The disk failed, or the log was closed before. What was acknowledged is safe in any case.
    pub fn close(&self) -> Result<(), CloseError> {
        let shared = &self.inner.shared;
        let done = Waiter::default();
        {
            let mut core = shared.lock();
            match core.check() {
                Ok(()) => {}
                Err(Down::Closed) => return Err(CloseError::Closed),
                Err(Down::Poisoned { reason }) => return Err(CloseError::Poisoned { reason }),
                Err(Down::NoRoom(_)) => unreachable!("a full disk doesn't take the log down"),
            }
            core.take_down(Down::Closed, None);
            core.push_image(Some(done.clone()));
        }
        // What a full disk holds up is tried once more, and then no longer.
        shared.wake_materialiser();
        shared.wake_writer();
        let answer = self.inner.wait(&done);
        self.inner.stop();
        answer.map_err(|unknown| CloseError::Poisoned { reason: unknown.reason })
    }

    /// Creates a topic. Durable on return.
    ///
    /// # Errors
    /// The name isn't one or is taken, there are too many, or the log is down.
    pub fn create_topic(&self, name: &str, partitions: u32) -> Result<TopicId, TopicError> {
        self.create_topic_with(name, partitions, &BTreeMap::new())
    }

    /// The topic of this name; created if it isn't there.
    ///
    /// # Errors
    /// It is there with another number of partitions; as [`Log::create_topic`].
    pub fn create_topic_if_absent(&self, name: &str, partitions: u32) -> Result<TopicId, TopicError> {
        match self.create_topic(name, partitions) {
            Err(TopicError::Exists { .. }) => {}
            other => return other,
        }
        // Another handle may be creating it at this moment: wait for that.
        self.inner.shared.carry_out(|core| {
            let found = core.state.topic_list().into_iter().find(|topic| topic.name == name);
            let found = found.ok_or_else(|| TopicError::Unknown { name: name.to_string() })?;
            if found.partitions != partitions {
                let name = name.to_string();
                return Err(TopicError::OtherPartitions { name, found: found.partitions, expected: partitions });
            }
            Ok(found.id)
        })
    }

    /// All topics, in the order of their creation.
    pub fn topics(&self) -> Vec<Topic> {
        self.inner.shared.lock().state.topic_list()
    }

    /// A number that rises whenever a topic comes or goes, over restarts too: who remembers it needn't look at all topics again.
    pub fn topics_version(&self) -> u64 {
        let core = self.inner.shared.lock();
        // Those that ever came, and those that went.
        let (ever, now) = (core.state.topics.len() as u64, core.state.names.len() as u64);
        ever + (ever - now)
    }

    /// The topic of this name, if there is one.
    pub fn topic(&self, name: &str) -> Option<Topic> {
        let core = self.inner.shared.lock();
        let id = *core.state.names.get(name)?;
        let partitions = core.state.topic(id)?.partitions.len() as u32;
        Some(Topic { id, name: name.to_string(), partitions })
    }

    /// Where a partition stands.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn offsets(&self, topic: TopicId, partition: u32) -> Result<PartitionOffsets, FetchError> {
        let at = TopicPartition::new(topic, partition);
        let shared = &self.inner.shared;
        let visible = shared.view.read().expect("no panic under the view lock").visible(at);
        let visible = visible.ok_or(FetchError::UnknownPartition { at })?;
        // Read behind the others, so that it is not below them.
        let log_end = shared.lock().state.partition(at).map_or(visible.high_watermark, |p| p.log_end);
        Ok(PartitionOffsets {
            log_start: Offset(visible.log_start),
            last_stable: Offset(visible.last_stable),
            high_watermark: Offset(visible.high_watermark),
            log_end: Offset(log_end.max(visible.high_watermark)),
        }
        .checked())
    }

    /// An idempotent producer outside of transactions, with an id of its own.
    ///
    /// # Errors
    /// The log is down.
    pub fn producer(&self) -> Result<Producer, ProduceError> {
        Ok(Producer::new(self.inner.clone(), self.allocate_producer()?))
    }

    /// A producer id that was never given out before, whatever crashes.
    ///
    /// # Errors
    /// The log is down.
    pub fn allocate_producer(&self) -> Result<i64, ProduceError> {
        let shared = &self.inner.shared;
        // An id may leave this process only once its block is durable, whoever has reserved it: the wait is behind that.
        let (producer, waits) = {
            let mut core = shared.core_for(Needs::Growth)?;
            let (block, producer) = core.state.plan_producer();
            core.push_all(block);
            core.state.next_producer = producer + 1;
            let durable = core.state.block_end <= core.durable_block_end;
            (producer, (!durable).then(|| (core.state.block_end, core.wait_for_all())))
        };
        if let Some((end, waiter)) = waits {
            self.inner.wait(&waiter)?;
            let mut core = shared.lock();
            core.durable_block_end = core.durable_block_end.max(end);
        }
        Ok(producer)
    }

    /// Appends a batch as its producer made it, with the producer's own id, epoch and sequence: the entrance for clients
    /// that keep these themselves, and repeat a batch when they missed the answer. A repeated batch gets its first answer.
    /// A largest timestamp that isn't the records' is put right.
    ///
    /// # Errors
    /// The batch isn't well formed, doesn't continue what its producer sent before, or belongs to no open transaction.
    pub fn append_batch(
        &self,
        topic: TopicId,
        partition: u32,
        mut batch: Vec<u8>,
    ) -> Result<AppendTicket, AppendError> {
        let at = TopicPartition::new(topic, partition);
        let limits =
            crate::batch::Limits { batch_bytes: self.inner.shared.limits.batch_bytes_max, ..Default::default() };
        accept(&mut batch, &limits).map_err(|source| AppendError::Batch { at, source })?;
        let accepted = self.inner.shared.append(at, batch, true)?;
        Ok(AppendTicket::new(self.inner.clone(), accepted))
    }

    /// Claims the log for attempt `attempt` of an owner: one record, after which everything that older attempts ask for
    /// answers `Fenced`. What they prepared stays prepared; what they left open is aborted, since it can never be prepared.
    /// Durable on return.
    ///
    /// # Errors
    /// This attempt or a newer one has claimed it already; attempts are used once.
    pub fn claim(&self, owner: &OwnerId, attempt: u64) -> Result<Owner, ClaimError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let (claim, open) = core.state.plan_claim(*owner, attempt)?;
            core.push(claim);
            core.abort(How::Abort, &open, shared.wall(), &shared.limits);
            Ok::<_, ClaimError>(())
        })?;
        Ok(Owner::new(self.inner.clone(), *owner, attempt))
    }

    /// The live transactions of all owners; [`Log::clients`] has those of Kafka clients.
    pub fn transactions(&self) -> Vec<TxnInfo> {
        self.inner.shared.lock().state.txns.values().filter_map(TxnInfo::of).collect()
    }

    /// All owners that ever claimed the log, as of now: what is on its way to the disk is included.
    pub fn owners(&self) -> Vec<OwnerInfo> {
        let core = self.inner.shared.lock();
        let listed = core.state.owners.iter().map(|(id, owner)| OwnerInfo {
            id: *id,
            attempt: owner.attempt,
            live: owner.live.keys().map(|id| TxnId::clone(id)).collect(),
            outcomes: owner.outcomes.iter().map(|(id, outcome)| (TxnId::clone(id), *outcome)).collect(),
        });
        listed.collect()
    }

    /// The operator's way out: aborts a transaction, whoever owns it, prepared or not. Its owner's later commit answers
    /// `Aborted`: what was promised by the checkpoint that prepared it is lost. Durable on return.
    ///
    /// # Errors
    /// It has been committed, or is unknown.
    pub fn force_abort(&self, id: &TxnId) -> Result<(), AbortError> {
        self.inner.abort(Asker::Operator, std::slice::from_ref(id)).map(drop)
    }

    /// Does now what the log does by itself now and then, as if it were `now`: aborts the transactions that have been open
    /// for longer than [`LogLimits::transaction_timeout`], and forgets producers that have been silent for longer than
    /// [`LogLimits::producer_expiry`]. Prepared transactions stay. Answers what was aborted; durable on return.
    ///
    /// # Errors
    /// The log is down.
    pub fn expire(&self, now: WallTime) -> Result<Vec<TxnId>, TxnError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| Ok(shared.expire(core, now.0)))
    }

    /// Reads a partition from `from` on, which may lie in its future.
    ///
    /// # Errors
    /// There is no such partition, or the log is down.
    pub fn consumer(
        &self,
        topic: TopicId,
        partition: u32,
        from: Offset,
        isolation: Isolation,
    ) -> Result<Consumer, FetchError> {
        Consumer::new(self.inner.clone(), TopicPartition::new(topic, partition), from, isolation)
    }

    /// The log at a glance.
    pub fn status(&self) -> Status {
        let shared = &self.inner.shared;
        let (generation, position, wal_bytes, wal_files) = {
            let wal = shared.wal();
            let ring = &wal.ring;
            (ring.generation().number, ring.position(), ring.bytes(), ring.used())
        };
        let core = shared.lock();
        let prepared = core.state.txns.values().filter(|txn| txn.phase == crate::TxnPhase::Prepared).count();
        Status {
            generation,
            position,
            wal_bytes,
            wal_files,
            queued_bytes: core.queued_bytes(),
            unmaterialised_bytes: shared.backlog.bytes(),
            dirty_bytes: shared.segments.dirty_bytes(),
            topics: core.state.topics.len(),
            partitions: core.state.partition_count,
            open: core.state.txns.len() - prepared,
            prepared,
            oldest_prepared: oldest_prepared(&core.state),
            no_room: core.room.lack().cloned(),
            down: core.check().err(),
        }
    }

    /// The limits it was opened with.
    pub fn limits(&self) -> &LogLimits {
        &self.inner.shared.limits
    }

    /// The state as bytes: equal for a log that was lived and the same log replayed (I-3). Waits for nothing; ask when
    /// nothing is under way.
    #[doc(hidden)]
    pub fn state_image(&self) -> Vec<u8> {
        self.inner.shared.lock().state.image()
    }
}
