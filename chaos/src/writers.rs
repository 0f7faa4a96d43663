//! Those who write: idempotent producers with five batches under way, and transactions of both protocols.
//!
//! They never give a batch up: after whatever error they connect anew and send the same batches with the same sequences, as
//! real clients do. So every send has a sure end, and what the broker makes of repeated ones is seen.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use cutwater_partition_log::batch::{Compression, ProducerStamp};
use cutwater_platform::SplitMix;
use cutwater_testkit::history::{Call, Outcome, Stamp, Value};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use crate::admin::{Begun, OURS};
use crate::plant::{Fault, Plant};
use crate::record::Recorder;
use crate::round::{PARTITIONS, Stage, TOPIC};
use crate::server::rest;
use crate::wire::{Client, batch, is_passing, produce, produced, producer_id, topic_name};

/// As many as a client may have under way.
const UNDER_WAY: usize = 5;

/// How long to wait before the next try.
const PAUSE: Duration = Duration::from_millis(30);

/// A batch and the values in it.
struct Batch {
    values: Vec<(Value, Stamp)>,
    bytes: Bytes,
}

/// An idempotent producer that writes into one partition.
pub(crate) struct Plain<'a> {
    pub(crate) process: u16,
    pub(crate) partition: u32,
    pub(crate) address: SocketAddr,
    pub(crate) recorder: &'a Recorder,
    pub(crate) stage: &'a Stage,
    pub(crate) random: SplitMix,
}

impl Plain<'_> {
    /// Writes until the stage is over, and until all is acknowledged.
    pub(crate) fn run(mut self) {
        let Some(producer) = producer_id(self.address, || self.stage.is_given_up()) else { return };
        let mut client: Option<Client> = None;
        let mut waiting: VecDeque<Batch> = VecDeque::new();
        let (mut number, mut sequence, mut sent) = (0u32, 0i32, 0);
        let codecs = [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy, Compression::Gzip];
        while !self.stage.is_given_up() && (!self.stage.is_over() || !waiting.is_empty()) {
            if !self.stage.is_over() && waiting.len() < UNDER_WAY {
                number += 1;
                let count = 1 + (self.random.next() % 12) as u16;
                let values = (0..count).map(|index| Value::new(self.process, number, index));
                let stamp =
                    ProducerStamp { producer_id: producer, epoch: 0, base_sequence: sequence, transactional: false };
                let codec = codecs[(self.random.next() % 5) as usize];
                let bytes = batch(stamp, codec, values.clone().map(|value| value.0));
                let values = values.map(|value| (value, self.recorder.start())).collect();
                waiting.push_back(Batch { values, bytes });
                sequence += i32::from(count);
            }
            let done = match &mut client {
                None => match Client::connect(self.address) {
                    Ok(fresh) => {
                        client = Some(fresh);
                        sent = 0;
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Some(client) => self.step(client, &waiting, &mut sent),
            };
            match done {
                Ok(None) => {}
                Ok(Some(base)) => {
                    let Some(batch) = waiting.pop_front() else { continue };
                    sent -= 1;
                    for (n, (value, stamp)) in (0u64..).zip(batch.values) {
                        let offset = base.map(|base| base + n);
                        let send = Call::Send { partition: self.partition, value, offset };
                        self.recorder.finish(stamp, self.process, send, Outcome::Ok);
                    }
                }
                Err(_) => {
                    client = None;
                    rest(PAUSE);
                }
            }
        }
        if !waiting.is_empty() {
            self.recorder.trouble(format!(
                "process {} has {} batches that were never answered",
                self.process,
                waiting.len()
            ));
        }
        for (value, stamp) in waiting.into_iter().flat_map(|batch| batch.values) {
            let send = Call::Send { partition: self.partition, value, offset: None };
            self.recorder.finish(stamp, self.process, send, Outcome::Unknown);
        }
    }

    /// Sends what hasn't been, or hears one answer: the offset of the oldest batch, if it is known.
    fn step(
        &self,
        client: &mut Client,
        waiting: &VecDeque<Batch>,
        sent: &mut usize,
    ) -> io::Result<Option<Option<u64>>> {
        if let Some(batch) = waiting.get(*sent) {
            let batches = vec![(self.partition as i32, batch.bytes.clone())];
            client.send(9, &produce(TOPIC, None, batches))?;
            *sent += 1;
            if *sent < UNDER_WAY && !self.stage.is_over() {
                return Ok(None);
            }
        }
        let answer = client.receive::<ProduceRequest>(9)?;
        let (_, code, base) = produced(&answer).first().copied().ok_or(io::ErrorKind::InvalidData)?;
        match code {
            0 => Ok(Some(u64::try_from(base).ok())),
            // It was written, so long ago that nobody knows where.
            code if code == ResponseError::DuplicateSequenceNumber.code() => Ok(Some(None)),
            code => {
                if !is_passing(code) {
                    let process = self.process;
                    self.recorder
                        .trouble(format!("process {process}: error {code} for the oldest batch that has no answer"));
                }
                Err(io::ErrorKind::Interrupted.into())
            }
        }
    }
}

/// Why a transaction doesn't go on.
enum Ends {
    /// The connection is gone, or the broker can't now.
    Again,
    /// A newer incarnation speaks for the id, or a late request of an older one did.
    Fenced,
}

type Tried<T> = Result<T, Ends>;

/// A producer with a transactional id; it takes the group's position with it, as a consume-transform-produce loop does.
pub(crate) struct Transactional<'a> {
    pub(crate) process: u16,
    pub(crate) address: SocketAddr,
    pub(crate) recorder: &'a Recorder,
    pub(crate) stage: &'a Stage,
    pub(crate) random: SplitMix,
    /// The newer protocol, in which every end has an epoch of its own.
    pub(crate) newer: bool,
    pub(crate) begun: &'a Begun,
    pub(crate) plant: Option<&'a Plant>,
    pub(crate) client: Option<Client>,
    pub(crate) producer: (i64, i16),
    pub(crate) sequences: BTreeMap<u32, i32>,
}

impl Transactional<'_> {
    fn id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_string(format!("{OURS}{}", self.process)))
    }

    fn group(&self) -> GroupId {
        GroupId(StrBytes::from_string(format!("group-{}", self.process)))
    }

    /// Transactions until the stage is over.
    pub(crate) fn run(mut self) {
        if self.init().is_none() {
            return;
        }
        let (mut number, mut position) = (0u32, 0u64);
        while !self.stage.is_over() {
            number += 1;
            let txn = Value::new(self.process, number, 0).txn();
            self.recorder.note(self.process, Call::Begin { txn }, Outcome::Ok);
            self.begun.begins(self.producer, txn);
            let with_offsets = self.random.next().is_multiple_of(3);
            let fate = self.random.next() % 12;
            let filled = self.fill(number, with_offsets.then_some(position + 1));
            if filled.is_err() || fate == 0 {
                // A crash: the next incarnation ends what is open.
                let started = self.recorder.start();
                let done = self.init().is_some();
                self.recorder.finish(started, self.process, Call::Abort { txn }, of(done));
                continue;
            }
            let commit = fate > 2;
            let started = self.recorder.start();
            let ended = self.end(commit);
            let planted = commit && self.plant.is_some_and(|plant| plant.is(Fault::CommitsWhatWasAborted));
            let outcome = if ended.is_ok() || planted { Outcome::Ok } else { Outcome::Unknown };
            let call = match commit {
                true => Call::Commit { txns: vec![txn], checkpoint: None },
                false => Call::Abort { txn },
            };
            self.recorder.finish(started, self.process, call, outcome);
            if with_offsets && commit {
                position += 1;
                let offset = Call::CommitOffset { group: self.process.into(), partition: 0, offset: position };
                self.recorder.finish(started, self.process, offset, outcome);
                self.look(position, outcome == Outcome::Ok);
            }
            if ended.is_err() && self.init().is_none() {
                return;
            }
        }
    }

    /// One call, over a connection that is there or made.
    fn ask<R: kafka_protocol::protocol::Request>(&mut self, version: i16, request: &R) -> Tried<R::Response> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(self.address).map_err(|_| Ends::Again)?),
        };
        client.ask(version, request).map_err(|_| {
            self.client = None;
            Ends::Again
        })
    }

    /// Tries until it is done, fenced or given up.
    fn surely<T>(&mut self, mut act: impl FnMut(&mut Self) -> Tried<T>) -> Tried<T> {
        loop {
            match act(self) {
                Err(Ends::Again) if !self.stage.is_given_up() => rest(PAUSE),
                done => return done,
            }
        }
    }

    /// What a code asks for; what no client should ever hear is told.
    fn judge(&mut self, code: i16, what: &str) -> Tried<()> {
        let is = |errors: &[ResponseError]| errors.iter().any(|error| error.code() == code);
        if code == 0 {
            return Ok(());
        }
        if is(&[ResponseError::ProducerFenced, ResponseError::InvalidProducerEpoch]) {
            return Err(Ends::Fenced);
        }
        if !is_passing(code) {
            self.recorder.trouble(format!("process {}: error {code} for {what}", self.process));
            return Err(Ends::Fenced);
        }
        // Its connection is as good as gone.
        self.client = None;
        Err(Ends::Again)
    }

    /// A new incarnation: whatever is open is ended.
    fn init(&mut self) -> Option<()> {
        self.client = None;
        self.sequences.clear();
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.id()))
            .with_transaction_timeout_ms(600_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        while !self.stage.is_given_up() {
            if let Ok(given) = self.ask(4, &request)
                && given.error_code == 0
            {
                self.producer = (given.producer_id.0, given.producer_epoch);
                return Some(());
            }
            self.client = None;
            rest(PAUSE);
        }
        None
    }

    /// Records into one to three partitions, and the group's position.
    fn fill(&mut self, number: u32, position: Option<u64>) -> Tried<()> {
        let first = self.random.next() as u32 % PARTITIONS;
        let partitions: Vec<u32> = (0..1 + self.random.next() as u32 % 3).map(|n| (first + n) % PARTITIONS).collect();
        let (id, (producer_id, epoch)) = (self.id(), self.producer);
        if !self.newer {
            let topic = AddPartitionsToTxnTopic::default()
                .with_name(topic_name(TOPIC))
                .with_partitions(partitions.iter().map(|partition| *partition as i32).collect());
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(id.clone())
                .with_v3_and_below_producer_id(ProducerId(producer_id))
                .with_v3_and_below_producer_epoch(epoch)
                .with_v3_and_below_topics(vec![topic]);
            self.surely(|me| {
                let answer = me.ask(3, &request)?;
                let results = answer.results_by_topic_v3_and_below.iter().flat_map(|t| &t.results_by_partition);
                let code = results.map(|result| result.partition_error_code).find(|code| *code != 0);
                me.judge(code.unwrap_or(0), "AddPartitionsToTxn")
            })?;
        }
        let mut index = 0;
        for _ in 0..1 + self.random.next() % 2 {
            let mut batches = vec![];
            let mut values = vec![];
            for partition in &partitions {
                let count = 1 + (self.random.next() % 4) as u16;
                let sequence = self.sequences.entry(*partition).or_default();
                let stamp = ProducerStamp { producer_id, epoch, base_sequence: *sequence, transactional: true };
                *sequence += i32::from(count);
                let these: Vec<Value> = (0..count).map(|n| Value::new(self.process, number, index + n)).collect();
                index += count;
                let bytes = batch(stamp, Compression::None, these.iter().map(|value| value.0));
                batches.push((*partition as i32, bytes));
                values.extend(these.into_iter().map(|value| (*partition, value, self.recorder.start())));
            }
            let request = produce(TOPIC, Some(&id), batches);
            let version = if self.newer { 12 } else { 11 };
            let mut offsets: BTreeMap<u32, u64> = BTreeMap::new();
            let done = self.surely(|me| {
                let answer = me.ask(version, &request)?;
                for (partition, code, base) in produced(&answer) {
                    if code != ResponseError::DuplicateSequenceNumber.code() {
                        me.judge(code, "Produce")?;
                    }
                    if let (Ok(partition), Ok(base)) = (u32::try_from(partition), u64::try_from(base)) {
                        offsets.insert(partition, base);
                    }
                }
                Ok(())
            });
            for (partition, value, stamp) in values {
                let offset = offsets.get_mut(&partition).map(|next| std::mem::replace(next, *next + 1));
                let outcome = if done.is_ok() { Outcome::Ok } else { Outcome::Unknown };
                self.recorder.finish(stamp, self.process, Call::Send { partition, value, offset }, outcome);
            }
            done?;
        }
        match position {
            Some(position) => self.add_position(position),
            None => Ok(()),
        }
    }

    fn add_position(&mut self, position: u64) -> Tried<()> {
        let (id, group, (producer_id, epoch)) = (self.id(), self.group(), self.producer);
        if !self.newer {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(id.clone())
                .with_producer_id(ProducerId(producer_id))
                .with_producer_epoch(epoch)
                .with_group_id(group.clone());
            self.surely(|me| {
                let answer = me.ask(3, &request)?;
                me.judge(answer.error_code, "AddOffsetsToTxn")
            })?;
        }
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(position.cast_signed());
        let topic =
            TxnOffsetCommitRequestTopic::default().with_name(topic_name(TOPIC)).with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id)
            .with_group_id(group)
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic]);
        let version = if self.newer { 5 } else { 3 };
        self.surely(|me| {
            let answer = me.ask(version, &request)?;
            let code = answer.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code).find(|c| *c != 0);
            me.judge(code.unwrap_or(0), "TxnOffsetCommit")
        })
    }

    fn end(&mut self, commit: bool) -> Tried<()> {
        let version = if self.newer { 5 } else { 3 };
        let (producer_id, epoch) = self.producer;
        let request = EndTxnRequest::default()
            .with_transactional_id(self.id())
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(epoch)
            .with_committed(commit);
        let answer = self.surely(|me| {
            let answer = me.ask(version, &request)?;
            me.judge(answer.error_code, "EndTxn").map(|()| answer)
        })?;
        if self.newer {
            self.producer = (answer.producer_id.0, answer.producer_epoch);
            self.sequences.clear();
        }
        Ok(())
    }

    /// The group's position, at once after a commit: it must be there already (KAFKA-17507).
    fn look(&mut self, position: u64, surely: bool) {
        let topic = offset_fetch_request::OffsetFetchRequestTopic::default();
        let topic = topic.with_name(topic_name(TOPIC)).with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default().with_group_id(self.group()).with_topics(Some(vec![topic]));
        let started = self.recorder.start();
        let Ok(answer) = self.ask(7, &request) else { return };
        let found = answer.topics.first().and_then(|topic| topic.partitions.first());
        let Some(found) = found.filter(|found| found.error_code == 0) else { return };
        if surely && u64::try_from(found.committed_offset) != Ok(position) {
            let (process, found) = (self.process, found.committed_offset);
            self.recorder.trouble(format!("process {process} has committed position {position} and is told {found}"));
        }
        if let Ok(offset) = u64::try_from(found.committed_offset) {
            let call = Call::FetchOffset { group: self.process.into(), partition: 0, offset };
            self.recorder.finish(started, self.process, call, Outcome::Ok);
        }
    }
}

fn of(done: bool) -> Outcome {
    if done { Outcome::Ok } else { Outcome::Unknown }
}
