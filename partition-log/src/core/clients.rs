//! Transactions of Kafka clients: a *client* is known by its transactional id and keeps one producer id for many
//! transactions, one after the other.
//!
//! Two protocols side by side. In the older one (V1) a client says which partitions it will write to, and its epoch stays
//! the same over its transactions. In the newer one (V2, KIP-890) a batch or an offset itself brings its partition in, and
//! each end raises the epoch, so that nothing late can reach the next transaction. Which one it is follows from the versions
//! of the requests; the state is one.
//!
//! States are Kafka's, with those between `Ongoing` and `Complete` left out: an end is one entry, so nobody ever sees a
//! transaction that is being ended. `Ongoing` is a live transaction in [`State::txns`], under the client's producer id.
//!
//! Rules (Kafka's `TransactionMetadata` and `TransactionCoordinator`, KIP-98, KIP-360, KIP-890):
//! * Who doesn't have the client's producer id or its epoch is refused; initialising raises the epoch.
//! * Initialising while a transaction is open ends it first, with an epoch that nobody gets, and succeeds at once.
//! * Repeating a request whose answer was lost gets the same answer, as long as nothing else has happened.
//! * A client's transaction is never prepared, and times out by the time its client asked for.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::apply::{Inconsistent, LAST_EPOCH, inconsistent};
use super::decide::How;
use super::{END_ENTRY_BYTES, State, TxnPhase, TxnState, ended_bytes};
use crate::client::{ClientError, ClientProducer};
use crate::codec::{Cursor, Malformed, Put};
use crate::config::LogLimits;
use crate::owner::{OwnerId, TxnId};
use crate::topic::TopicPartition;
use crate::wal::frame::{Entry, Outcome};

/// No producer, no epoch.
pub(crate) const NONE: i16 = -1;
/// The longest transactional id, in bytes.
const ID_BYTES_MAX: usize = 4096;

/// Whose a live transaction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// An owner's, by its full name, which all that is known of it shares.
    Owner(Arc<TxnId>),
    /// A client's, by its transactional id.
    Client(String),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whose::Owner(id) => id.fmt(f),
            Whose::Client(id) => write!(f, "client {id}"),
        }
    }
}

impl Whose {
    /// The owner's transaction, if it is one.
    pub(crate) fn owner(&self) -> Option<&TxnId> {
        match self {
            Whose::Owner(id) => Some(id),
            Whose::Client(_) => None,
        }
    }
}

/// What is known of a transactional id beside its open transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientState {
    pub(crate) producer: i64,
    pub(crate) epoch: i16,
    /// The epoch before, if the client itself has asked for the newer one: whoever repeats that request has it still.
    pub(crate) last_epoch: i16,
    /// The producer id before, if its epochs were used up.
    pub(crate) previous: i64,
    pub(crate) timeout_ms: i64,
    /// How its last transaction ended; none before the first one.
    pub(crate) outcome: Option<Outcome>,
    /// The wall clock at its last request.
    pub(crate) since: i64,
}

/// How a batch comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance<'a> {
    /// From this process: an owner's, or anybody's outside of transactions.
    Inside,
    /// From an attempt of an owner in another process: its own transactions', or outside of transactions, and only while no newer
    /// attempt has claimed the log.
    Attempt {
        /// The owner.
        owner: OwnerId,
        /// The attempt.
        attempt: u64,
    },
    /// From a client.
    Client {
        /// The transactional id that it names.
        id: Option<&'a str>,
        /// Whether its transactional batch brings its partition into the transaction by itself.
        implicit: bool,
        /// The wall clock.
        wall: i64,
    },
}

impl State {
    /// The client of a producer id, if it is one's newest.
    pub(crate) fn client_of(&self, producer: i64) -> Option<(&String, &ClientState)> {
        let id = self.client_ids.get(&producer)?;
        Some((id, self.clients.get(id)?))
    }

    /// Gives a client a producer id and an epoch that nobody had, and ends what it has open. `expected` are those that it
    /// believes to have.
    pub(crate) fn plan_init(
        &self,
        id: &str,
        timeout_ms: i64,
        expected: Option<(i64, i16)>,
        wall: i64,
        limits: &LogLimits,
    ) -> Result<(Vec<Entry>, ClientProducer), ClientError> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(ClientError::InvalidId { id: id.to_string() });
        }
        let Some(known) = self.clients.get(id) else {
            if self.clients.len() >= limits.client_ids_max {
                return Err(ClientError::TooMany { limit: limits.client_ids_max });
            }
            let (block, producer) = self.plan_producer();
            let state = ClientState {
                producer,
                epoch: 0,
                last_epoch: NONE,
                previous: NONE.into(),
                timeout_ms,
                outcome: None,
                since: wall,
            };
            let entries = block.into_iter().chain([Entry::Client { id: id.to_string(), state }]).collect();
            return Ok((entries, ClientProducer { producer, epoch: 0 }));
        };
        let fenced =
            || ClientError::Fenced { id: id.to_string(), epoch: expected.map_or(NONE, |e| e.1), current: known.epoch };
        let mut last_epoch = NONE;
        if let Some((producer, epoch)) = expected {
            let rotated = producer == known.previous && epoch >= LAST_EPOCH;
            if producer != known.producer && !rotated {
                return Err(fenced());
            }
            let open = self.txns.contains_key(&known.producer);
            // It asks again, because the answer was lost: the same one.
            let again = !open && (epoch == known.last_epoch || rotated) && epoch != known.epoch;
            if again {
                return Ok((Vec::new(), ClientProducer { producer: known.producer, epoch: known.epoch }));
            }
            if epoch != known.epoch {
                return Err(fenced());
            }
            last_epoch = known.epoch;
        }
        let mut entries = Vec::new();
        let mut epoch = known.epoch;
        if self.txns.contains_key(&known.producer) {
            entries.extend(self.end_entry(How::Fence, &[known.producer], wall, limits));
            epoch = epoch.saturating_add(1);
        }
        let state = ClientState { timeout_ms, outcome: None, since: wall, ..known.clone() };
        let (rotation, state) = self.next_epoch(state, epoch, last_epoch);
        let given = ClientProducer { producer: state.producer, epoch: state.epoch };
        entries.extend(rotation);
        entries.push(Entry::Client { id: id.to_string(), state });
        Ok((entries, given))
    }

    /// The state with the epoch after `epoch`, or with a new producer id where epochs are used up.
    fn next_epoch(&self, state: ClientState, epoch: i16, last_epoch: i16) -> (Option<Entry>, ClientState) {
        if epoch < LAST_EPOCH {
            return (None, ClientState { epoch: epoch + 1, last_epoch, ..state });
        }
        let (block, producer) = self.plan_producer();
        let previous = state.producer;
        (block, ClientState { producer, epoch: 0, last_epoch: NONE, previous, ..state })
    }

    /// Whether a request comes from the client's newest incarnation.
    pub(crate) fn check_client(&self, id: &str, producer: i64, epoch: i16) -> Result<&ClientState, ClientError> {
        let known = self.clients.get(id).ok_or_else(|| ClientError::Unknown { id: id.to_string() })?;
        if known.producer != producer {
            return Err(ClientError::OtherProducer { id: id.to_string(), producer });
        }
        if known.epoch != epoch {
            return Err(ClientError::Fenced { id: id.to_string(), epoch, current: known.epoch });
        }
        Ok(known)
    }

    /// Brings partitions into a client's transaction, and begins it if need be. No entry: they are in it already.
    pub(crate) fn plan_partitions(
        &self,
        id: &str,
        producer: i64,
        epoch: i16,
        partitions: &[TopicPartition],
        wall: i64,
        limits: &LogLimits,
    ) -> Result<Option<Entry>, ClientError> {
        self.check_client(id, producer, epoch)?;
        let missing = partitions.iter().find(|at| self.partition(**at).is_none());
        if let Some(at) = missing {
            return Err(ClientError::UnknownPartition { at: *at });
        }
        let live = self.txns.get(&producer);
        let in_it =
            |at: &&TopicPartition| live.is_some_and(|txn| txn.declared.contains(at) || txn.partitions.contains_key(at));
        let new: BTreeSet<TopicPartition> = partitions.iter().filter(|at| !in_it(at)).copied().collect();
        if live.is_some() && new.is_empty() {
            return Ok(None);
        }
        let all = new.len() + live.map_or(0, |txn| txn.declared.len() + txn.partitions.len());
        if all > limits.transaction_partitions_max || END_ENTRY_BYTES + ended_bytes(all) > limits.end_bytes_max {
            return Err(ClientError::TooManyPartitions { id: id.to_string(), partitions: all });
        }
        Ok(Some(Entry::ClientTxn { producer, wall, partitions: new.into_iter().collect() }))
    }

    /// The producer id of a client's open transaction, for offsets of a group; behind the entry that begins it, if offsets
    /// may do that.
    pub(crate) fn plan_client_offsets(
        &self,
        id: &str,
        producer: i64,
        epoch: i16,
        implicit: bool,
        wall: i64,
    ) -> Result<Option<Entry>, ClientError> {
        self.check_client(id, producer, epoch)?;
        match self.txns.contains_key(&producer) {
            true => Ok(None),
            false if implicit => Ok(Some(Entry::ClientTxn { producer, wall, partitions: Vec::new() })),
            false => Err(ClientError::NotOpen { id: id.to_string() }),
        }
    }

    /// Ends a client's transaction. With `raise` each end has its own epoch (V2), and the answer has the next one.
    pub(crate) fn plan_client_end(
        &self,
        id: &str,
        client: ClientProducer,
        outcome: Outcome,
        raise: bool,
        wall: i64,
        limits: &LogLimits,
    ) -> Result<(Vec<Entry>, ClientProducer), ClientError> {
        let ClientProducer { producer, epoch } = client;
        let known = self.clients.get(id).ok_or_else(|| ClientError::Unknown { id: id.to_string() })?;
        let current = ClientProducer { producer: known.producer, epoch: known.epoch };
        if raise && self.is_repeated_end(known, producer, epoch) {
            // It had the epoch before the end that it repeats: by itself, or by the log when it had taken too long.
            return match known.outcome == Some(outcome) {
                true => Ok((Vec::new(), current)),
                false => Err(ClientError::Fenced { id: id.to_string(), epoch, current: known.epoch }),
            };
        }
        self.check_client(id, producer, epoch)?;
        if self.txns.contains_key(&producer) {
            let how = match (outcome, raise) {
                (Outcome::Committed, false) => How::Commit,
                (Outcome::Committed, true) => How::CommitAndRaise,
                (Outcome::Aborted, false) => How::Abort,
                (Outcome::Aborted, true) => How::Fence,
            };
            let mut entries = self.end_entry(how, &[producer], wall, limits);
            if !raise {
                return Ok((entries, current));
            }
            if epoch < LAST_EPOCH {
                return Ok((entries, ClientProducer { producer, epoch: epoch + 1 }));
            }
            // The end takes the last epoch there is; the next transaction needs another producer id.
            let ended = ClientState { outcome: Some(outcome), since: wall, ..known.clone() };
            let (block, state) = self.next_epoch(ended, epoch, NONE);
            let given = ClientProducer { producer: state.producer, epoch: state.epoch };
            entries.extend(block);
            entries.push(Entry::Client { id: id.to_string(), state });
            return Ok((entries, given));
        }
        // An abort of what may not even have begun: the client can't know (KIP-890).
        if raise && outcome == Outcome::Aborted {
            let ended = ClientState { outcome: Some(outcome), since: wall, ..known.clone() };
            let (block, state) = self.next_epoch(ended, epoch, epoch);
            let given = ClientProducer { producer: state.producer, epoch: state.epoch };
            let entries = block.into_iter().chain([Entry::Client { id: id.to_string(), state }]).collect();
            return Ok((entries, given));
        }
        match known.outcome == Some(outcome) && !raise {
            true => Ok((Vec::new(), current)),
            false => Err(ClientError::NotOpen { id: id.to_string() }),
        }
    }

    fn is_repeated_end(&self, known: &ClientState, producer: i64, epoch: i16) -> bool {
        let open = self.txns.contains_key(&known.producer);
        let before = producer == known.producer && epoch == known.last_epoch;
        let rotated = producer == known.previous && epoch >= LAST_EPOCH && known.epoch == 0;
        !open && known.outcome.is_some() && (before || rotated)
    }

    /// The clients' transactions that have been open for longer than their clients asked for.
    pub(crate) fn late_clients(&self, now: i64) -> Vec<i64> {
        let late = |txn: &TxnState| match &txn.whose {
            Whose::Client(id) => {
                self.clients.get(id).is_some_and(|client| now.saturating_sub(txn.since) > client.timeout_ms)
            }
            Whose::Owner(_) => false,
        };
        self.txns.iter().filter(|(_, txn)| late(txn)).map(|(producer, _)| *producer).collect()
    }

    /// Clients without an open transaction that have said nothing since before `deadline`.
    pub(crate) fn plan_forget_clients(&self, deadline: i64) -> Vec<Entry> {
        let idle = |client: &ClientState| client.since < deadline && !self.txns.contains_key(&client.producer);
        let idle = self.clients.iter().filter(|(_, client)| idle(client));
        idle.map(|(id, _)| Entry::ClientForgotten { id: id.clone() }).collect()
    }

    pub(super) fn apply_client(&mut self, id: &str, state: &ClientState) -> Result<(), Inconsistent> {
        let known = self.clients.get(id);
        let open = known.is_some_and(|known| self.txns.contains_key(&known.producer));
        let taken = self.client_ids.get(&state.producer).is_some_and(|other| other != id);
        if open || taken || state.producer >= self.block_end || self.txns.contains_key(&state.producer) {
            return Err(inconsistent(format!("client {id} gets a producer id or an epoch that it can't have")));
        }
        if let Some(known) = known {
            self.client_ids.remove(&known.producer);
        }
        self.client_ids.insert(state.producer, id.to_string());
        self.clients.insert(id.to_string(), state.clone());
        self.next_producer = self.next_producer.max(state.producer + 1);
        Ok(())
    }

    pub(super) fn apply_client_txn(
        &mut self,
        producer: i64,
        wall: i64,
        partitions: &[TopicPartition],
    ) -> Result<(), Inconsistent> {
        if let Some(at) = partitions.iter().find(|at| self.partition(**at).is_none()) {
            return Err(inconsistent(format!("{at} comes into a client's transaction and doesn't exist")));
        }
        let unknown = || inconsistent(format!("producer {producer} is no client's"));
        let (id, client) = self.client_of(producer).ok_or_else(unknown)?;
        let txn = TxnState::begun(Whose::Client(id.clone()), client.epoch, wall);
        let txn = self.txns.entry(producer).or_insert(txn);
        if txn.phase != TxnPhase::Open || txn.whose.owner().is_some() {
            return Err(unknown());
        }
        txn.declared.extend(partitions);
        Ok(())
    }

    pub(super) fn apply_client_forgotten(&mut self, id: &str) -> Result<(), Inconsistent> {
        let client = self.clients.remove(id);
        let client = client.ok_or_else(|| inconsistent(format!("client {id} isn't there to be forgotten")))?;
        self.client_ids.remove(&client.producer);
        if self.txns.contains_key(&client.producer) {
            return Err(inconsistent(format!("client {id} is forgotten with a transaction open")));
        }
        Ok(())
    }

    /// A client's transaction has ended with `epoch` in its markers.
    pub(super) fn settle_client(&mut self, id: &str, epoch: i16, outcome: Outcome, wall: i64) {
        if let Some(client) = self.clients.get_mut(id) {
            // Whoever has the epoch before may repeat that end. An end that raises nothing shuts older epochs out for good.
            client.last_epoch = if client.epoch == epoch { NONE } else { client.epoch };
            client.epoch = epoch;
            client.outcome = Some(outcome);
            client.since = wall;
        }
    }

    /// Clients, and their open transactions.
    pub(super) fn encode_clients(&self, out: &mut Vec<u8>) {
        out.put_len(self.clients.len());
        for (id, client) in &self.clients {
            out.put_bytes(id.as_bytes());
            client.encode(out);
            let live = self.txns.get(&client.producer);
            out.put_u8(u8::from(live.is_some()));
            if let Some(txn) = live {
                txn.encode_body(out);
                out.put_len(txn.declared.len());
                for at in &txn.declared {
                    out.put_u32(at.topic.0);
                    out.put_u32(at.partition);
                }
                super::groups::encode(&txn.offsets, out);
            }
        }
    }

    pub(super) fn decode_clients(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        for _ in 0..cursor.len(ClientState::BYTES + 5, "clients")? {
            let id = cursor.string("transactional id")?;
            let client = ClientState::decode(cursor)?;
            let producer = client.producer;
            if cursor.u8("open transaction")? == 1 {
                let mut txn = TxnState::decode_body(Whose::Client(id.clone()), cursor)?;
                for _ in 0..cursor.len(8, "declared partitions")? {
                    let topic = crate::topic::TopicId(cursor.u32("topic")?);
                    txn.declared.insert(TopicPartition::new(topic, cursor.u32("partition")?));
                }
                txn.offsets = super::groups::decode(cursor)?;
                self.insert_live(producer, txn).ok_or(cursor.malformed("a client's partitions"))?;
            }
            self.client_ids.insert(producer, id.clone());
            self.clients.insert(id, client);
        }
        Ok(())
    }
}

impl ClientState {
    /// Bytes of an encoded one.
    pub(crate) const BYTES: usize = 8 + 2 + 2 + 8 + 8 + 1 + 8;

    pub(crate) fn encode(&self, out: &mut impl Put) {
        out.put_i64(self.producer);
        out.put_i16(self.epoch);
        out.put_i16(self.last_epoch);
        out.put_i64(self.previous);
        out.put_i64(self.timeout_ms);
        out.put_u8(match self.outcome {
            None => 0,
            Some(Outcome::Committed) => 1,
            Some(Outcome::Aborted) => 2,
        });
        out.put_i64(self.since);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<ClientState, Malformed> {
        let (producer, epoch) = (cursor.i64("producer")?, cursor.i16("epoch")?);
        let (last_epoch, previous) = (cursor.i16("epoch")?, cursor.i64("producer")?);
        let timeout_ms = cursor.i64("time-out")?;
        let outcome = match cursor.u8("outcome")? {
            0 => None,
            1 => Some(Outcome::Committed),
            2 => Some(Outcome::Aborted),
            _ => return Err(cursor.malformed("outcome")),
        };
        Ok(ClientState { producer, epoch, last_epoch, previous, timeout_ms, outcome, since: cursor.i64("time")? })
    }
}
