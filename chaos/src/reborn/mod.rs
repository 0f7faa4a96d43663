//! A topic that is deleted and made again, by the same name, while it is written and read.
//!
//! Producers name it by name, as all do here; readers by id, as newer clients do, and ask for the id again when it is unknown.
//! Deletion and creation are repeated until they are surely done, whatever strikes meanwhile. What must hold of the lives of the
//! topic is in [`judge`].
//!
//! Producers, and who deletes and commits positions, connect to the broker directly: a request that the network holds back names the
//! topic by its name, and may reach the next one of that name. That is so in Kafka as well, but for what names topics by id.

pub(crate) mod judge;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutwater_partition_log::batch::{Compression, ProducerStamp};
use cutwater_platform::SplitMix;
use cutwater_testkit::history::Value;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{
    BrokerId, DeleteTopicsRequest, FetchRequest, GroupId, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest,
    offset_fetch_request,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use self::judge::Story;
use crate::Failed;
use crate::plant::{Fault, Plant};
use crate::record::Recorder;
use crate::round::Stage;
use crate::server::rest;
use crate::wire::{self, Client, Seen, batch, is_passing, produce, produced, seen, topic_name};

const TOPIC: &str = "reborn";

/// Each has a writer and a reader.
pub(crate) const PARTITIONS: u32 = 2;

/// The first of the writers' numbers.
const PROCESS: u16 = 60;

/// Who reads to the end of what stands still doesn't need more polls.
const POLLS: u32 = 1_000;

fn is(code: i16, errors: &[ResponseError]) -> bool {
    errors.iter().any(|error| error.code() == code)
}

/// The topic isn't there.
fn is_missing(code: i16) -> bool {
    is(code, &[ResponseError::UnknownTopicOrPartition, ResponseError::UnknownTopicId])
}

/// What happens to the topic in a round.
#[derive(Debug, Default)]
pub(crate) struct Reborn(Mutex<Story>);

impl Reborn {
    /// Makes the topic for the first time.
    pub(crate) fn create(address: SocketAddr) -> Result<Reborn, Failed> {
        let reborn = Reborn::default();
        let asked = reborn.story().now();
        wire::create_topic(address, TOPIC, PARTITIONS, &[])?;
        let id = Client::connect(address).and_then(|mut client| current(&mut client));
        let id = id.map_err(|e| Failed::of("ask for a topic's id", e))?;
        let id = id.ok_or_else(|| Failed::new("a topic that was made isn't there".to_string()))?;
        reborn.story().is_born(id, asked);
        Ok(reborn)
    }

    pub(crate) fn story(&self) -> MutexGuard<'_, Story> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the topic of that name, if there is one.
fn current(client: &mut Client) -> std::io::Result<Option<Uuid>> {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(TOPIC)));
    let answer = client.ask(12, &MetadataRequest::default().with_topics(Some(vec![topic])))?;
    Ok(answer.topics.first().filter(|topic| topic.error_code == 0).map(|topic| topic.topic_id))
}

/// One who has to do with the topic.
pub(crate) struct Party<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) partition: u32,
    pub(crate) reborn: &'a Reborn,
    pub(crate) recorder: &'a Recorder,
    pub(crate) stage: &'a Stage,
    pub(crate) plant: Option<&'a Plant>,
    pub(crate) random: SplitMix,
    pub(crate) client: Option<Client>,
}

impl Party<'_> {
    fn client(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.address).ok()?);
        }
        self.client.as_mut()
    }

    fn again(&mut self) {
        self.client = None;
        rest(Duration::from_millis(30));
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.next() % (to - from))
    }

    /// Deletes and makes it until the stage is over.
    pub(crate) fn bury(mut self) {
        let mut position = 0;
        while !self.stage.is_over() {
            let moment = self.ms(200, 1_200);
            rest(moment);
            position += 1;
            self.commit_position(position);
            if !self.delete() {
                return;
            }
            // Producers and readers find nothing for a while, or hardly notice.
            let moment = self.ms(1, 80);
            rest(moment);
            if !self.create() {
                return;
            }
            self.look_at_position();
        }
    }

    /// Whether it was surely deleted before everything was given up.
    fn delete(&mut self) -> bool {
        let Some(id) = self.reborn.story().dies() else { return false };
        let by_id = self.random.next().is_multiple_of(2);
        let named = DeleteTopicState::default();
        let named = if by_id { named.with_topic_id(id) } else { named.with_name(Some(topic_name(TOPIC))) };
        let request = DeleteTopicsRequest::default().with_topics(vec![named]).with_timeout_ms(10_000);
        let mut perhaps = false;
        while !self.stage.is_given_up() {
            let answer = self.client().and_then(|client| client.ask(6, &request).ok());
            match answer.and_then(|answer| answer.responses.first().map(|topic| topic.error_code)) {
                Some(0) => {
                    self.reborn.story().is_dead();
                    return true;
                }
                Some(code) if is_missing(code) && perhaps => {
                    self.reborn.story().is_dead();
                    return true;
                }
                Some(code) if !is_passing(code) => {
                    self.recorder.trouble(format!("the deletion of topic {TOPIC} is answered with {code}"));
                    return false;
                }
                _ => perhaps = true,
            }
            self.again();
        }
        false
    }

    /// Whether it was surely made before everything was given up.
    fn create(&mut self) -> bool {
        let asked = self.reborn.story().now();
        while !self.stage.is_given_up() {
            // That it is there already is what an answer that got lost has said.
            let _ = wire::create_topic(self.address, TOPIC, PARTITIONS, &[]);
            if let Some(Ok(Some(id))) = self.client().map(current) {
                self.reborn.story().is_born(id, asked);
                return true;
            }
            self.again();
        }
        false
    }

    fn group(&self) -> GroupId {
        GroupId(StrBytes::from_static_str("reborn-watch"))
    }

    /// A group's position in the topic, which must go with it.
    fn commit_position(&mut self, position: u64) {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(position.cast_signed());
        let topic = OffsetCommitRequestTopic::default().with_name(topic_name(TOPIC)).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(self.group())
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        if self.client().and_then(|client| client.ask(7, &request).ok()).is_none() {
            self.client = None;
        }
    }

    fn look_at_position(&mut self) {
        let topic = offset_fetch_request::OffsetFetchRequestTopic::default();
        let topic = topic.with_name(topic_name(TOPIC)).with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default().with_group_id(self.group()).with_topics(Some(vec![topic]));
        let Some(answer) = self.client().and_then(|client| client.ask(7, &request).ok()) else {
            self.client = None;
            return;
        };
        let found = answer.topics.first().and_then(|topic| topic.partitions.first());
        if let Some(found) = found.filter(|found| found.error_code == 0 && found.committed_offset != -1) {
            let at = found.committed_offset;
            self.recorder.trouble(format!("a new topic {TOPIC} has the position {at} of a group from before"));
        }
    }

    /// Writes one batch after the other, each until it is acknowledged, into whatever topic has the name.
    pub(crate) fn write(mut self) {
        let Some(producer_id) = wire::producer_id(self.address, || self.stage.is_given_up()) else {
            return;
        };
        let process = PROCESS + self.partition as u16;
        let (mut number, mut sequence) = (0, 0);
        while !self.stage.is_over() {
            rest(Duration::from_millis(self.random.next() % 6));
            number += 1;
            let count = 1 + (self.random.next() % 6) as u16;
            let values: Vec<u64> = (0..count).map(|index| Value::new(process, number, index).0).collect();
            let stamp = ProducerStamp { producer_id, epoch: 0, base_sequence: sequence, transactional: false };
            sequence += i32::from(count);
            let bytes = batch(stamp, Compression::None, values.iter().copied());
            let request = produce(TOPIC, None, vec![(self.partition as i32, bytes)]);
            let first = self.reborn.story().sends(self.partition, &values);
            loop {
                let answer = self.client().and_then(|client| client.ask(9, &request).ok());
                match answer.and_then(|answer| produced(&answer).first().copied()) {
                    Some((_, 0, base)) => {
                        self.reborn.story().acknowledged(first, u64::try_from(base).ok());
                        break;
                    }
                    // Nobody has that name for a moment.
                    Some((_, code, _)) if is_missing(code) => rest(Duration::from_millis(5)),
                    answer => {
                        if let Some((_, code, _)) = answer
                            && !is_passing(code)
                        {
                            self.recorder.trouble(format!("process {process}: error {code} from topic {TOPIC}"));
                        }
                        self.again();
                    }
                }
                if self.stage.is_given_up() {
                    self.recorder.trouble(format!("process {process} has a batch that was never answered"));
                    return;
                }
            }
        }
    }

    /// Follows each life from its beginning until it is gone.
    pub(crate) fn follow(mut self) {
        let mut remembered = None;
        while !self.stage.is_over() {
            let dead = self.reborn.story().newest_dead();
            let id = match self.client().map(current) {
                Some(Ok(Some(id))) => id,
                Some(Ok(None)) => {
                    rest(Duration::from_millis(5));
                    continue;
                }
                _ => {
                    self.again();
                    continue;
                }
            };
            if dead == Some(id) {
                self.recorder.trouble(format!("topic {TOPIC} {id} was deleted, and is there again"));
                return;
            }
            let (mut from, mut newest) = (0, None);
            while !self.stage.is_over() {
                let is_there = self.reborn.story().is_there(id);
                match self.fetch(id, from) {
                    Ok(mut seen) => {
                        if let (Some(plant), Some(old)) = (self.plant, remembered) {
                            change(plant, old, &mut seen);
                        }
                        newest = seen.records.last().map(|(_, value)| *value).or(newest);
                        self.reborn.story().reads(id, self.partition, &seen.records);
                        from = seen.next;
                    }
                    Err(Gone) => {
                        if is_there && !self.stage.is_given_up() && self.reborn.story().is_there(id) {
                            self.recorder.trouble(format!("topic {TOPIC} {id} is unknown, and nobody deleted it"));
                        }
                        // Its name is told a moment before it can be read.
                        rest(Duration::from_millis(5));
                        break;
                    }
                }
            }
            remembered = newest.or(remembered);
        }
    }

    /// The last look at what lives last: all of it. Whether it came to its end.
    pub(crate) fn whole(mut self) -> bool {
        let Some(id) = self.reborn.story().lives_last() else { return false };
        let mut from = 0;
        for _ in 0..POLLS {
            let Ok(seen) = self.fetch(id, from) else { return false };
            self.reborn.story().reads(id, self.partition, &seen.records);
            if seen.next == from && from >= seen.high_watermark {
                self.reborn.story().whole(self.partition, from);
                return true;
            }
            from = seen.next;
        }
        false
    }

    /// Asks until there is an answer.
    fn fetch(&mut self, id: Uuid, from: u64) -> Result<Seen, Gone> {
        let partition = FetchPartition::default()
            .with_partition(self.partition as i32)
            .with_fetch_offset(from.cast_signed())
            .with_partition_max_bytes(32 << 10);
        let topic = FetchTopic::default().with_topic_id(id).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(50)
            .with_min_bytes(1)
            .with_max_bytes(32 << 10)
            .with_isolation_level(1)
            .with_topics(vec![topic]);
        while !self.stage.is_given_up() {
            if let Some(answer) = self.client().and_then(|client| client.ask::<FetchRequest>(13, &request).ok()) {
                let code = answer.responses.first().and_then(|topic| topic.partitions.first()).map(|p| p.error_code);
                if is_missing(answer.error_code) || code.is_some_and(is_missing) {
                    return Err(Gone);
                }
                match seen(&answer, from, true) {
                    Ok(seen) => return Ok(seen),
                    Err(what) => {
                        let passing = code.is_some_and(|code| code != 0 && is_passing(code)) || answer.error_code != 0;
                        if !passing {
                            self.recorder.trouble(format!("topic {TOPIC} {id}, partition {}: {what}", self.partition));
                        }
                    }
                }
            }
            self.again();
        }
        Err(Gone)
    }
}

/// The topic isn't there any more, or nothing is waited for.
struct Gone;

/// What a wrong broker would have answered; `old` is a value of an earlier life.
fn change(plant: &Plant, old: u64, seen: &mut Seen) {
    if plant.is(Fault::ShowsTheDeletedTopic)
        && let Some(first) = seen.records.first_mut().filter(|(offset, _)| *offset == 0)
    {
        first.1 = old;
    }
    if plant.is(Fault::GoesOnWithOffsets) {
        seen.records.iter_mut().for_each(|(offset, _)| *offset += 3);
    }
}
