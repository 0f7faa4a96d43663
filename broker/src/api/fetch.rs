//! `Fetch`: batches out of the log, waiting for them if need be, but never longer than the client asks for.
//!
//! There are no fetch sessions: answering session 0 is legal, and clients then name all their partitions each time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cutwater_partition_log::{FetchError, Isolation, Offset, RawFetch, Topic, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse, ProducerId};

use super::Call;
use crate::errors::{NONE, of_fetch};
use crate::pool::Share;
use crate::service::{LEADER_EPOCH, PATIENCE};

/// "None" of offsets and replicas.
const NO_OFFSET: i64 = -1;

pub(super) fn isolation(level: i8) -> Isolation {
    if level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
}

/// Judges the epoch that a client believes a partition's leader to have; -1 is no belief.
pub(super) fn check_epoch(believed: i32) -> Result<(), ResponseError> {
    match believed {
        ..0 => Ok(()),
        _ if believed < LEADER_EPOCH => Err(ResponseError::FencedLeaderEpoch),
        _ if believed > LEADER_EPOCH => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

pub(super) fn fetch(call: &Call<'_>, request: FetchRequest) -> FetchResponse {
    // Clients aren't replicas, and nobody may pretend to be one (CVE-2018-1288).
    if request.replica_id.0 >= 0 || request.replica_state.replica_id.0 >= 0 {
        return FetchResponse::default().with_error_code(ResponseError::InvalidRequest.code());
    }
    let service = call.service;
    let named = |topic: &FetchTopic| service.topic_ids.named(&service.log, &topic.topic, topic.topic_id);
    let topics: Vec<Option<Topic>> = request.topics.iter().map(named).collect();
    let deadline = service.now() + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let enough = usize::try_from(request.min_bytes).unwrap_or(0);
    let (mut look, mut room) = look_with_room(call, &request, &topics);
    if !look.satisfies(enough) && service.now() < deadline {
        let ids = topics.iter().zip(&request.topics).flat_map(|(topic, asked)| {
            let at = |partition: &FetchPartition| place(topic.as_ref()?, partition.partition);
            asked.partitions.iter().filter_map(at)
        });
        let watch = service.log.watch(ids);
        loop {
            watch.reset();
            drop((look, room));
            (look, room) = look_with_room(call, &request, &topics);
            let left = deadline.saturating_sub(service.now());
            if look.satisfies(enough) || left.is_zero() || service.is_stopping() {
                break;
            }
            watch.wait(left.min(PATIENCE));
        }
    }
    call.room.set(Some(room));
    FetchResponse::default().with_responses(look.responses)
}

/// The most bytes that an answer to this request has, one batch that is larger excepted.
fn most_bytes(call: &Call<'_>, request: &FetchRequest) -> usize {
    usize::try_from(request.max_bytes).unwrap_or(0).min(call.service.options.limits.fetch_bytes)
}

/// Looks at all partitions, within the memory that all connections have for batches.
fn look_with_room(call: &Call<'_>, request: &FetchRequest, topics: &[Option<Topic>]) -> (Look, Share) {
    let mut room = call.service.answers.take(most_bytes(call, request));
    let look = look(call, request, topics);
    room.shrink(look.bytes);
    (look, room)
}

fn place(topic: &Topic, partition: i32) -> Option<TopicPartition> {
    let partition = u32::try_from(partition).ok().filter(|partition| *partition < topic.partitions)?;
    Some(TopicPartition::new(topic.id, partition))
}

/// What one look at all partitions brought.
struct Look {
    responses: Vec<FetchableTopicResponse>,
    bytes: usize,
    /// Some partition has news that the client must hear at once.
    urgent: bool,
}

impl Look {
    fn satisfies(&self, enough: usize) -> bool {
        self.urgent || self.bytes >= enough
    }
}

fn look(call: &Call<'_>, request: &FetchRequest, topics: &[Option<Topic>]) -> Look {
    let mut room = most_bytes(call, request);
    let mut look = Look { responses: Vec::with_capacity(topics.len()), bytes: 0, urgent: false };
    for (topic, asked) in topics.iter().zip(&request.topics) {
        let mut partitions = Vec::with_capacity(asked.partitions.len());
        for partition in &asked.partitions {
            let unknown = if asked.topic_id.is_nil() {
                ResponseError::UnknownTopicOrPartition
            } else {
                ResponseError::UnknownTopicId
            };
            // A batch larger than the limits is answered all the same if nothing else is, so that its reader gets on.
            let first = look.bytes == 0;
            let fetched = match topic {
                None => Err(unknown),
                Some(topic) => read(call, topic, partition, isolation(request.isolation_level), room, first),
            };
            look.urgent |= fetched.is_err();
            let data = data(partition.partition, fetched, request.isolation_level == 1);
            let bytes = data.records.as_ref().map_or(0, Bytes::len);
            room = room.saturating_sub(bytes);
            look.bytes += bytes;
            partitions.push(data);
        }
        let response = FetchableTopicResponse::default()
            .with_topic(asked.topic.clone())
            .with_topic_id(asked.topic_id)
            .with_partitions(partitions);
        look.responses.push(response);
    }
    look
}

fn read(
    call: &Call<'_>,
    topic: &Topic,
    asked: &FetchPartition,
    isolation: Isolation,
    room: usize,
    first: bool,
) -> Result<RawFetch, ResponseError> {
    check_epoch(asked.current_leader_epoch)?;
    let at = place(topic, asked.partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let from = u64::try_from(asked.fetch_offset).map_err(|_| ResponseError::OffsetOutOfRange)?;
    let max_bytes = room.min(usize::try_from(asked.partition_max_bytes).unwrap_or(0));
    let fetched = call.service.log.fetch(at, Offset(from), max_bytes, isolation);
    let mut fetched = fetched.map_err(|e: FetchError| of_fetch(&e))?;
    if !first && fetched.bytes() > max_bytes {
        fetched.buffers.clear();
        fetched.aborted.clear();
    }
    Ok(fetched)
}

fn data(index: i32, fetched: Result<RawFetch, ResponseError>, committed: bool) -> PartitionData {
    let data = PartitionData::default().with_partition_index(index).with_preferred_read_replica(BrokerId(-1));
    match fetched {
        Err(error) => data
            .with_error_code(error.code())
            .with_high_watermark(NO_OFFSET)
            .with_last_stable_offset(NO_OFFSET)
            .with_log_start_offset(NO_OFFSET)
            .with_aborted_transactions(committed.then(Vec::new))
            .with_records(Some(Bytes::new())),
        Ok(fetched) => {
            let aborted = fetched.aborted.iter().map(|(producer, first)| {
                AbortedTransaction::default()
                    .with_producer_id(ProducerId(*producer))
                    .with_first_offset(first.0.cast_signed())
            });
            let aborted = committed.then(|| aborted.collect());
            data.with_error_code(NONE)
                .with_high_watermark(fetched.offsets.high_watermark.0.cast_signed())
                .with_last_stable_offset(fetched.offsets.last_stable.0.cast_signed())
                .with_log_start_offset(fetched.offsets.log_start.0.cast_signed())
                .with_aborted_transactions(aborted)
                .with_records(Some(records(fetched)))
        }
    }
}

/// One piece of memory without copying, if the batches are in one.
fn records(fetched: RawFetch) -> Bytes {
    match fetched.buffers.as_slice() {
        [] => Bytes::new(),
        [one] => Bytes::from_owner(Shared(one.clone())),
        several => {
            let mut all = BytesMut::with_capacity(fetched.bytes());
            several.iter().for_each(|buffer| all.extend_from_slice(buffer));
            all.freeze()
        }
    }
}

struct Shared(std::sync::Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
