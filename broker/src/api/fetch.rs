//! `Fetch`: batches out of the log, waiting for them if need be, but never longer than the client asks for.
//!
//! Which partitions are looked at, and which of them are answered, is the business of fetch sessions
//! ([`crate::fetch_sessions`]); without one all that are named are answered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cutwater_partition_log::{FetchError, Isolation, Offset, RawFetch, Topic, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse, ProducerId, TopicName};
use uuid::Uuid;

use super::codes::Codes;
use super::{Call, answer};
use crate::access::acl::Operation;
use crate::errors::{NONE, of_fetch};
use crate::fetch_sessions::machine::{Asked, Begun, News, Request, TopicKey};
use crate::pool::Share;
use crate::server::peer::Attended;
use crate::service::{LEADER_EPOCH, PATIENCE, Reply};
use crate::topic_ids;
use crate::wire::fetched;

/// With so much room, or all that it asked for if that is less, a fetch doesn't wait for more.
const LEAST_ROOM: usize = 1 << 20;

/// "None" of offsets and replicas.
const NO_OFFSET: i64 = -1;

pub(super) fn isolation(level: i8) -> Isolation {
    if level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
}

/// A client that doesn't say what it believes.
const NO_BELIEF: i32 = -1;

/// Judges the epoch that a client believes a partition's leader to have; -1 is no belief.
pub(super) fn check_epoch(believed: i32) -> Result<(), ResponseError> {
    match believed {
        NO_BELIEF => Ok(()),
        _ if believed < LEADER_EPOCH => Err(ResponseError::FencedLeaderEpoch),
        _ if believed > LEADER_EPOCH => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

pub(super) fn fetch(call: &Call<'_>, request: FetchRequest) -> Reply {
    let refuse =
        |error: ResponseError| answer(call.service, call.head, &FetchResponse::default().with_error_code(error.code()));
    // Clients aren't replicas, and nobody may pretend to be one (CVE-2018-1288).
    if request.replica_id.0 >= 0 || request.replica_state.replica_id.0 >= 0 {
        return refuse(ResponseError::InvalidRequest);
    }
    let service = call.service;
    let terms = Terms {
        isolation: isolation(request.isolation_level),
        bytes: usize::try_from(request.max_bytes).unwrap_or(0).min(service.options.limits.fetch_bytes),
    };
    let deadline = service.now() + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let enough = usize::try_from(request.min_bytes).unwrap_or(0);
    let begun = match service.fetch_sessions.begin(service.now(), named(call, request)) {
        Ok(begun) => begun,
        Err(error) => return refuse(error),
    };
    let wanted = resolve(call, &begun);
    let (mut look, mut room) = look_with_room(call, &terms, &wanted, deadline);
    if !look.satisfies(enough) && service.now() < deadline {
        let ids = wanted.iter().filter_map(|wanted| place(wanted.topic.as_deref().ok()?, wanted.partition));
        let watch = service.log.watch(ids);
        // A client may ask to wait for weeks, and be gone.
        let mut client = Attended::new(&call.caller.peer, service.now());
        loop {
            watch.reset();
            drop((look, room));
            (look, room) = look_with_room(call, &terms, &wanted, deadline);
            let left = deadline.saturating_sub(service.now());
            if look.satisfies(enough) || left.is_zero() || service.is_stopping() || client.has_left(service.now()) {
                break;
            }
            watch.wait(left.min(PATIENCE));
        }
    }
    let news: Vec<News> = look.partitions.iter().map(Answered::news).collect();
    match service.fetch_sessions.end(service.now(), &begun, &news) {
        Ok(ended) => {
            let answered = wanted.iter().zip(look.partitions).zip(ended.answered).filter(|(_, answered)| *answered);
            let (responses, records) = by_topic(answered.map(|(one, _)| one));
            let response = FetchResponse::default().with_session_id(ended.id).with_responses(responses);
            large(call, &response, &records, room)
        }
        Err(error) => refuse(error),
    }
}

/// An answer whose batches stay where they are in memory.
fn large(call: &Call<'_>, response: &FetchResponse, records: &[Vec<Bytes>], room: Share) -> Reply {
    response.each(&mut |code| call.service.counters.failed(call.head.api.key, code));
    match fetched::pieces(call.version(), call.head.correlation, response, records) {
        Ok(pieces) => Reply::Large(pieces, room),
        Err(refused) => Reply::Close(refused.to_string()),
    }
}

/// What a fetch asks for, whoever reads it, and how.
struct Terms {
    isolation: Isolation,
    /// The most bytes that an answer has, one batch that is larger excepted.
    bytes: usize,
}

/// The request as sessions see it. Names are copied, so that a session doesn't hold on to the frame that began it.
fn named(call: &Call<'_>, request: FetchRequest) -> Request {
    let by_id = call.version() >= 13;
    let key = |name: &TopicName, id: Uuid| if by_id { TopicKey::Id(id) } else { TopicKey::Name(name.as_str().into()) };
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let key = key(&topic.topic, topic.topic_id);
        partitions.extend(topic.partitions.iter().map(|asked| {
            let of = Asked {
                leader_epoch: asked.current_leader_epoch,
                offset: asked.fetch_offset,
                last_epoch: asked.last_fetched_epoch,
                max_bytes: asked.partition_max_bytes,
            };
            ((key.clone(), asked.partition), of)
        }));
    }
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let key = key(&topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |partition| (key.clone(), *partition))
    });
    Request { id: request.session_id, epoch: request.session_epoch, by_id, forgotten: forgotten.collect(), partitions }
}

/// A topic that is there and may be read, or why it isn't.
type Found = Result<Arc<Topic>, ResponseError>;

/// A partition that is read.
struct Wanted<'a> {
    key: &'a TopicKey,
    topic: Found,
    partition: i32,
    asked: Asked,
}

/// A topic, if the caller may read it. Rights are asked for with each fetch, whatever its session remembers; whether there is a
/// topic of a name isn't told to who may not read it.
fn find(call: &Call<'_>, key: &TopicKey) -> Found {
    let service = call.service;
    match key {
        TopicKey::Name(name) => {
            call.topic(Operation::Read, name)?;
            service.log.topic(name).map(Arc::new).ok_or(ResponseError::UnknownTopicOrPartition)
        }
        TopicKey::Id(id) => {
            let topic = service.topic_ids.find(&service.log, *id).ok_or(ResponseError::UnknownTopicId)?;
            call.topic(Operation::Read, &topic.name)?;
            Ok(Arc::new(topic))
        }
    }
}

/// Finds the topics; one after the other is looked up once.
fn resolve<'a>(call: &Call<'_>, begun: &'a Begun) -> Vec<Wanted<'a>> {
    let mut last: Option<(&TopicKey, Found)> = None;
    let mut wanted = Vec::with_capacity(begun.partitions.len());
    for ((key, partition), asked) in &begun.partitions {
        let topic = match &last {
            Some((known, topic)) if *known == key => topic.clone(),
            _ => find(call, key),
        };
        last = Some((key, topic.clone()));
        wanted.push(Wanted { key, topic, partition: *partition, asked: *asked });
    }
    wanted
}

/// Answers of one topic that stand one behind the other share its name.
fn by_topic<'a>(
    answers: impl Iterator<Item = (&'a Wanted<'a>, Answered)>,
) -> (Vec<FetchableTopicResponse>, Vec<Vec<Bytes>>) {
    let mut topics: Vec<(&TopicKey, FetchableTopicResponse)> = Vec::new();
    let mut records = Vec::new();
    for (wanted, Answered { data, batches }) in answers {
        records.push(batches);
        match topics.last_mut().filter(|(key, _)| *key == wanted.key) {
            Some((_, topic)) => topic.partitions.push(data),
            None => {
                let topic = FetchableTopicResponse::default().with_partitions(vec![data]);
                let topic = match wanted.key {
                    TopicKey::Name(name) => topic.with_topic(topic_ids::name(name)),
                    TopicKey::Id(id) => topic.with_topic_id(*id),
                };
                topics.push((wanted.key, topic));
            }
        }
    }
    (topics.into_iter().map(|(_, topic)| topic).collect(), records)
}

/// What a partition is answered, and its batches, which the answer doesn't hold itself.
struct Answered {
    data: PartitionData,
    batches: Vec<Bytes>,
}

impl Answered {
    fn bytes(&self) -> usize {
        self.batches.iter().map(Bytes::len).sum()
    }

    fn news(&self) -> News {
        News {
            high_watermark: self.data.high_watermark,
            log_start: self.data.log_start_offset,
            has_records: self.bytes() > 0,
            urgent: self.data.error_code != NONE || self.data.diverging_epoch.epoch >= 0,
        }
    }
}

/// Looks at all partitions, within the memory that all connections have for batches. What isn't there by the deadline isn't waited for:
/// the answer is smaller then, or empty.
fn look_with_room(call: &Call<'_>, terms: &Terms, wanted: &[Wanted<'_>], deadline: Duration) -> (Look, Share) {
    let (service, pool) = (call.service, &call.service.answers);
    let patience = || deadline.saturating_sub(service.now()).min(PATIENCE);
    let mut room = pool.take_some(terms.bytes.min(LEAST_ROOM), terms.bytes, patience());
    let mut look = look(call, terms, wanted, Limit { bytes: room.bytes(), or_one: true });
    if look.bytes > room.bytes() {
        // One batch that is larger than what was asked for. It is let go of before its room is waited for.
        let bytes = look.bytes;
        drop((look, room));
        room = pool.take_some(bytes, bytes, patience());
        let limit = Limit { bytes: terms.bytes.min(room.bytes()), or_one: room.bytes() >= bytes };
        look = self::look(call, terms, wanted, limit);
        if look.bytes > room.bytes() {
            look = self::look(call, terms, wanted, Limit { bytes: 0, or_one: false });
        }
    }
    room.shrink(look.bytes);
    (look, room)
}

fn place(topic: &Topic, partition: i32) -> Option<TopicPartition> {
    let partition = u32::try_from(partition).ok().filter(|partition| *partition < topic.partitions)?;
    Some(TopicPartition::new(topic.id, partition))
}

/// What one look at all partitions brought.
struct Look {
    partitions: Vec<Answered>,
    bytes: usize,
    /// Some partition has news that the client must hear at once.
    urgent: bool,
}

impl Look {
    fn satisfies(&self, enough: usize) -> bool {
        self.urgent || self.bytes >= enough
    }
}

/// How much a look may bring.
#[derive(Clone, Copy)]
struct Limit {
    bytes: usize,
    /// Or one batch, however large, so that its reader gets on.
    or_one: bool,
}

fn look(call: &Call<'_>, terms: &Terms, wanted: &[Wanted<'_>], limit: Limit) -> Look {
    let mut room = limit.bytes;
    let mut look = Look { partitions: Vec::with_capacity(wanted.len()), bytes: 0, urgent: false };
    for one in wanted {
        let first = limit.or_one && look.bytes == 0;
        let fetched = match &one.topic {
            Err(refused) => Err(*refused),
            Ok(topic) => read(call, topic, one, terms, room, first),
        };
        let answered = answered(one.partition, fetched, terms.isolation == Isolation::ReadCommitted);
        look.urgent |= answered.news().urgent;
        let bytes = answered.bytes();
        room = room.saturating_sub(bytes);
        look.bytes += bytes;
        look.partitions.push(answered);
    }
    look
}

/// What a partition has for a reader.
enum Read {
    Batches(RawFetch),
    /// The reader has come to an offset, within the epoch of what it read last, that isn't there: that epoch ends earlier.
    Diverged {
        end: Offset,
        fetched: RawFetch,
    },
}

fn read(
    call: &Call<'_>,
    topic: &Topic,
    one: &Wanted<'_>,
    terms: &Terms,
    room: usize,
    first: bool,
) -> Result<Read, ResponseError> {
    let asked = &one.asked;
    check_epoch(asked.leader_epoch)?;
    let at = place(topic, one.partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let from = u64::try_from(asked.offset).map_err(|_| ResponseError::OffsetOutOfRange)?;
    if asked.last_epoch > LEADER_EPOCH {
        return Err(ResponseError::OffsetOutOfRange);
    }
    let max_bytes = room.min(usize::try_from(asked.max_bytes).unwrap_or(0));
    let log = &call.service.log;
    let fetch = |from| log.fetch(at, from, max_bytes, terms.isolation).map_err(|e: FetchError| of_fetch(&e));
    if asked.last_epoch >= 0 {
        let offsets = log.offsets(at.topic, at.partition).map_err(|e| of_fetch(&e))?;
        if from > offsets.log_end.0 {
            let end = offsets.high_watermark;
            let mut fetched = fetch(end)?;
            fetched.buffers.clear();
            return Ok(Read::Diverged { end, fetched });
        }
    }
    let mut fetched = fetch(Offset(from))?;
    if !first && fetched.bytes() > max_bytes {
        fetched.buffers.clear();
        fetched.aborted.clear();
    }
    Ok(Read::Batches(fetched))
}

fn answered(index: i32, read: Result<Read, ResponseError>, committed: bool) -> Answered {
    let data = PartitionData::default().with_partition_index(index).with_preferred_read_replica(BrokerId(-1));
    let data = data.with_records(Some(Bytes::new()));
    let (data, fetched) = match read {
        Err(error) => {
            let data = data
                .with_error_code(error.code())
                .with_high_watermark(NO_OFFSET)
                .with_last_stable_offset(NO_OFFSET)
                .with_log_start_offset(NO_OFFSET)
                .with_aborted_transactions(committed.then(Vec::new));
            return Answered { data, batches: Vec::new() };
        }
        Ok(Read::Batches(fetched)) => (data, fetched),
        Ok(Read::Diverged { end, fetched }) => {
            let diverging = EpochEndOffset::default().with_epoch(LEADER_EPOCH).with_end_offset(end.0.cast_signed());
            (data.with_diverging_epoch(diverging), fetched)
        }
    };
    let aborted = fetched.aborted.iter().map(|(producer, first)| {
        AbortedTransaction::default().with_producer_id(ProducerId(*producer)).with_first_offset(first.0.cast_signed())
    });
    let aborted = committed.then(|| aborted.collect());
    let data = data
        .with_error_code(NONE)
        .with_high_watermark(fetched.offsets.high_watermark.0.cast_signed())
        .with_last_stable_offset(fetched.offsets.last_stable.0.cast_signed())
        .with_log_start_offset(fetched.offsets.log_start.0.cast_signed())
        .with_aborted_transactions(aborted);
    let batches = fetched.buffers.into_iter().filter(|buffer| !buffer.is_empty());
    Answered { data, batches: batches.map(|buffer| Bytes::from_owner(Shared(buffer))).collect() }
}

/// A batch, or several, as the log holds them.
struct Shared(std::sync::Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
