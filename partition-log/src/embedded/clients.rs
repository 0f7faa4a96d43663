//! The log as a server of Kafka clients uses it: transactional ids, their transactions, and what is known of producers.
//!
//! Everything that is answered is durable. Rules and states are in `core/clients.rs`.

use std::time::Duration;

use cutwater_platform::WallTime;

use super::Log;
use super::producer::AppendTicket;
use crate::batch::{Limits, accept};
use crate::client::{ClientError, ClientInfo, ClientPhase, ClientProducer, ProducerInfo};
use crate::core::TxnPhase;
use crate::core::clients::Entrance;
use crate::core::decide::How;
use crate::error::{AppendError, FetchError};
use crate::group::OffsetCommit;
use crate::offset::Offset;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Outcome;

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Log {
    /// Gives a client a producer id and an epoch that nobody had before, whatever its earlier incarnations still send. What
    /// one of them has open is aborted, in the same call. `expected` is what a client believes to have that asks for the next
    /// epoch itself; repeating that gets the same answer.
    ///
    /// ```
    /// # use cutwater_partition_log::{Log, LogOptions, Outcome};
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
    /// let first = log.init_client("transfers", Duration::from_secs(60), None)?;
    /// let second = log.init_client("transfers", Duration::from_secs(60), None)?;
    /// assert_eq!(second.epoch, first.epoch + 1);
    /// let zombie = log.end_client("transfers", first, Outcome::Committed, false);
    /// assert!(zombie.is_err(), "the first one is fenced");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No client can have this id, the expectation isn't met, there are too many clients, or the log is down.
    pub fn init_client(
        &self,
        id: &str,
        timeout: Duration,
        expected: Option<ClientProducer>,
    ) -> Result<ClientProducer, ClientError> {
        let shared = &self.inner.shared;
        let expected = expected.map(|expected| (expected.producer, expected.epoch));
        shared.carry_out(|core| {
            let planned = core.state.plan_init(id, millis(timeout), expected, shared.wall(), &shared.limits);
            let (entries, given) = planned?;
            core.push_all(entries);
            Ok(given)
        })
    }

    /// Whether a client is the one that may write under its id now. Nothing is changed.
    ///
    /// # Errors
    /// The client is unknown or fenced.
    pub fn check_client(&self, id: &str, client: ClientProducer) -> Result<(), ClientError> {
        let core = self.inner.shared.lock();
        core.state.check_client(id, client.producer, client.epoch).map(drop)
    }

    /// Brings partitions into a client's transaction; the first ones, or none at all, begin it.
    ///
    /// # Errors
    /// The client is unknown or fenced, a partition doesn't exist (none is brought in then), there are too many, or the log
    /// is down.
    pub fn add_partitions(
        &self,
        id: &str,
        client: ClientProducer,
        partitions: &[TopicPartition],
    ) -> Result<(), ClientError> {
        let shared = &self.inner.shared;
        let ClientProducer { producer, epoch } = client;
        shared.grow(|core| {
            let planned = core.state.plan_partitions(id, producer, epoch, partitions, shared.wall(), &shared.limits);
            core.push_all(planned?);
            Ok(())
        })
    }

    /// Hands offsets of a group to a client's transaction: its commit makes them the group's. With `implicit` they begin one
    /// if none is open.
    ///
    /// # Errors
    /// The client is unknown or fenced, has no open transaction, the offsets can't be taken, or the log is down.
    pub fn commit_client_offsets(
        &self,
        id: &str,
        client: ClientProducer,
        group: &str,
        offsets: Vec<OffsetCommit>,
        implicit: bool,
    ) -> Result<(), ClientError> {
        let shared = &self.inner.shared;
        let ClientProducer { producer, epoch } = client;
        shared.carry_out(|core| {
            let begin = core.state.plan_client_offsets(id, producer, epoch, implicit, shared.wall())?;
            let entry = core.state.judge_offsets(Some(producer), group, offsets, shared.wall(), &shared.limits)?;
            core.push_all(begin);
            core.push(entry);
            Ok(())
        })
    }

    /// Ends a client's transaction, in all its partitions and groups at once; visible on return. With `raise` every end has
    /// an epoch of its own (KIP-890), and the answer holds what the next transaction uses.
    ///
    /// # Errors
    /// The client is unknown or fenced, nothing is open or it has ended the other way, or the log is down.
    pub fn end_client(
        &self,
        id: &str,
        client: ClientProducer,
        outcome: Outcome,
        raise: bool,
    ) -> Result<ClientProducer, ClientError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let (wall, limits) = (shared.wall(), &shared.limits);
            let (entries, given) = core.state.plan_client_end(id, client, outcome, raise, wall, limits)?;
            core.push_all(entries);
            Ok(given)
        })
    }

    /// The operator's way out: aborts a client's open transaction and fences the client.
    ///
    /// # Errors
    /// The client is unknown or has no open transaction, or the log is down.
    pub fn abort_client(&self, id: &str) -> Result<(), ClientError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let unknown = || ClientError::Unknown { id: id.to_string() };
            let producer = core.state.clients.get(id).ok_or_else(unknown)?.producer;
            if !core.state.txns.contains_key(&producer) {
                return Err(ClientError::NotOpen { id: id.to_string() });
            }
            core.abort(How::Fence, &[producer], shared.wall(), &shared.limits);
            Ok(())
        })
    }

    /// An empty buffer with room for a batch of `bytes` bytes: memory of batches that have left the tail, if there is any. For
    /// [`Log::append_from_client`].
    pub fn room_for_batch(&self, bytes: usize) -> Vec<u8> {
        self.inner.shared.spares.take(bytes.min(self.inner.shared.limits.batch_bytes_max))
    }

    /// Appends a batch that a client has made, transactional or not. With `implicit` a transactional one brings its
    /// partition into the transaction by itself and begins it if need be (KIP-890).
    ///
    /// # Errors
    /// As [`Log::append_batch`]; the transactional id isn't that of the batch's producer; the client is fenced.
    pub fn append_from_client(
        &self,
        topic: TopicId,
        partition: u32,
        mut batch: Vec<u8>,
        id: Option<&str>,
        implicit: bool,
    ) -> Result<AppendTicket, AppendError> {
        let shared = &self.inner.shared;
        let at = TopicPartition::new(topic, partition);
        let limits = Limits { batch_bytes: shared.limits.batch_bytes_max, ..Default::default() };
        accept(&mut batch, &limits).map_err(|source| AppendError::Batch { at, source })?;
        let entrance = Entrance::Client { id, implicit, wall: shared.wall() };
        let accepted = shared.append_through(entrance, at, batch, true)?;
        Ok(AppendTicket::new(self.inner.clone(), accepted))
    }

    /// All clients that are known, by transactional id.
    pub fn clients(&self) -> Vec<ClientInfo> {
        let core = self.inner.shared.lock();
        let listed = core.state.clients.iter().map(|(id, client)| {
            let live = core.state.txns.get(&client.producer);
            let partitions = live.map(|txn| txn.partitions.keys().chain(&txn.declared).copied().collect());
            ClientInfo {
                id: id.clone(),
                producer: ClientProducer { producer: client.producer, epoch: client.epoch },
                phase: match (live, client.outcome) {
                    (Some(_), _) => ClientPhase::Ongoing,
                    (None, Some(outcome)) => ClientPhase::Ended(outcome),
                    (None, None) => ClientPhase::Empty,
                },
                timeout: Duration::from_millis(client.timeout_ms.max(0).cast_unsigned()),
                open_since: live.map(|txn| WallTime(txn.since)),
                partitions: partitions.unwrap_or_default(),
                groups: live.map(|txn| txn.offsets.keys().cloned().collect()).unwrap_or_default(),
            }
        });
        listed.collect()
    }

    /// The transactions, of clients and of owners, that were begun before `before` and are open still: in words, and since when. Prepared
    /// ones aren't among them ([`Log::transactions`]).
    pub fn open_since_before(&self, before: WallTime) -> Vec<(String, WallTime)> {
        let core = self.inner.shared.lock();
        let open = core.state.txns.values().filter(|txn| txn.phase == TxnPhase::Open && txn.since < before.0);
        open.map(|txn| (txn.whose.to_string(), WallTime(txn.since))).collect()
    }

    /// What a partition remembers of its producers, by their ids.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn producers(&self, at: TopicPartition) -> Result<Vec<ProducerInfo>, FetchError> {
        let core = self.inner.shared.lock();
        let partition = core.state.partition(at).ok_or(FetchError::UnknownPartition { at })?;
        let listed = partition.producers.iter().map(|(producer, state)| ProducerInfo {
            producer: ClientProducer { producer: *producer, epoch: state.epoch },
            last_sequence: state.window.back().map(|batch| batch.last_sequence),
            since: WallTime(state.wall),
            open_from: partition.open.iter().find(|(_, open)| open == producer).map(|(first, _)| Offset(*first)),
        });
        Ok(listed.collect())
    }

    /// Aborts clients' transactions that have been open for longer than their clients asked for, and fences those clients;
    /// forgets clients that have said nothing for [`LogLimits::client_expiry`](crate::LogLimits::client_expiry). Answers how
    /// many transactions were aborted. To be called every second or so by whoever serves clients; waits for nothing.
    ///
    /// # Errors
    /// The log is down.
    pub fn expire_clients(&self, now: WallTime) -> Result<usize, ClientError> {
        let shared = &self.inner.shared;
        let mut core = shared.core()?;
        let late = core.state.late_clients(now.0);
        core.abort(How::Fence, &late, shared.wall(), &shared.limits);
        let forget = core.state.plan_forget_clients(now.0.saturating_sub(millis(shared.limits.client_expiry)));
        core.push_all(forget);
        let wake = core.wants_writer();
        drop(core);
        if wake {
            shared.wake_writer();
        }
        Ok(late.len())
    }
}
