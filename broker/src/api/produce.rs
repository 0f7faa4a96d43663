//! `Produce`: batches into the log.
//!
//! Two halves: the first accepts all batches, in the order of the connection; the second waits until they are durable, while
//! the connection goes on reading. So several requests of one connection share one write to the disk.

use std::sync::Arc;

use bytes::Bytes;
use cutwater_partition_log::batch::{Limits, records};
use cutwater_partition_log::{AppendError, AppendTicket, Offset, Topic};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use uuid::Uuid;

use super::{Call, answer};
use crate::access::acl::Operation;
use crate::errors::{NONE, of_append, text};
use crate::service::{Later, Reply, Service};
use crate::wire::codec::Head;

/// A batch on its way, or why it isn't.
type Underway = Result<AppendTicket, Refusal>;

/// Why a batch isn't taken.
#[derive(Clone)]
struct Refusal {
    error: ResponseError,
    why: String,
    /// Where the partition begins, if it was looked at; Kafka tells it to those whose batch didn't fit in, not to those whose batch was
    /// none or too large.
    log_start: Option<Offset>,
}

impl From<(ResponseError, String)> for Refusal {
    fn from((error, why): (ResponseError, String)) -> Refusal {
        Refusal { error, why, log_start: None }
    }
}

pub(super) fn produce(call: &Call<'_>, request: ProduceRequest) -> Reply {
    let acks = request.acks;
    let refused = match acks {
        -1..=1 => None,
        _ => Some((ResponseError::InvalidRequiredAcks, "acks must be 0, 1 or -1".to_string())),
    };
    let id = request.transactional_id.as_ref().map(|id| id.as_str());
    let denied = id.map_or(Ok(()), |id| call.transactional_id(Operation::Write, id)).err();
    let refused = refused.or(denied.map(|error| (error, "this transactional id isn't yours".to_string())));
    let refused = refused.map(Refusal::from);
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for asked in request.topic_data {
        let topic = call.service.topic_ids.named(&call.service.log, &asked.name, asked.topic_id);
        let name = topic.as_ref().map_or(asked.name.as_str(), |topic| topic.name.as_str());
        let denied = call.topic(Operation::Write, name).err();
        let denied = denied.map(|error| Refusal::from((error, "this topic isn't yours to write to".to_string())));
        let refused = refused.as_ref().or(denied.as_ref());
        let mut partitions = Vec::with_capacity(asked.partition_data.len());
        for data in asked.partition_data {
            let underway = match refused {
                Some(refused) => Err(refused.clone()),
                None => append(call, topic.as_ref(), data.index, data.records, id),
            };
            partitions.push((data.index, underway));
        }
        topics.push(UnderwayTopic { name: asked.name, id: asked.topic_id, partitions });
    }
    Reply::Later(Box::new(Produced { service: call.service.clone(), head: call.head.clone(), acks, topics }))
}

/// Batches on their way, and whom to tell.
struct Produced {
    service: Arc<Service>,
    head: Head,
    acks: i16,
    topics: Vec<UnderwayTopic>,
}

impl Later for Produced {
    fn is_ready(&self) -> bool {
        let mut partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.all(|(_, underway)| underway.as_ref().map_or(true, AppendTicket::is_ready))
    }

    fn answer(self: Box<Self>) -> Reply {
        let (response, failed) = wait(self.topics);
        match (self.acks, failed) {
            (0, None) => Reply::Nothing,
            // Without answers, this is the only way to say that something is wrong.
            (0, Some(failed)) => Reply::Close(format!("a batch without acknowledgement was refused: {failed}")),
            _ => answer(&self.service, &self.head, &response),
        }
    }
}

struct UnderwayTopic {
    name: TopicName,
    id: Uuid,
    partitions: Vec<(i32, Underway)>,
}

fn append(
    call: &Call<'_>,
    topic: Option<&Topic>,
    partition: i32,
    records: Option<Bytes>,
    id: Option<&str>,
) -> Underway {
    let unknown = || (ResponseError::UnknownTopicOrPartition, "there is no such partition".to_string());
    let topic = topic.ok_or_else(unknown)?;
    let partition = u32::try_from(partition).map_err(|_| unknown())?;
    let records = records.unwrap_or_default();
    judge(&records, call.version(), id)?;
    if call.service.options.security.authorize
        && let Some(producer) = producer_of(&records)
        && !call.service.producers.may(producer, call.caller.who().user)
    {
        let why = format!("producer id {producer} was given to another user");
        return Err((ResponseError::InvalidProducerIdMapping, why).into());
    }
    let asks = call.service.log.cleanup(topic.id);
    if let Some(most) = asks.batch_bytes_max.filter(|most| records.len() as u64 > *most) {
        let why = format!("a batch of {} bytes, and max.message.bytes of this topic is {most}", records.len());
        return Err((ResponseError::MessageTooLarge, why).into());
    }
    // The batch outlives its frame by far, whose memory the next frame needs.
    let mut batch = call.service.log.room_for_batch(records.len());
    batch.extend_from_slice(&records);
    drop(records);
    if asks.compact && lacks_keys(&batch) {
        let why = "a record of a compacted topic needs a key: nothing could ever replace it";
        return Err((ResponseError::InvalidRecord, why.to_string()).into());
    }
    // From version 12 on a batch brings its partition into the transaction by itself (KIP-890).
    let implicit = call.version() >= 12;
    let log = &call.service.log;
    log.append_from_client(topic.id, partition, batch, id, implicit).map_err(|e| {
        let is_looked_at = matches!(
            of_append(&e),
            ResponseError::OutOfOrderSequenceNumber
                | ResponseError::InvalidProducerEpoch
                | ResponseError::InvalidProducerIdMapping
                | ResponseError::InvalidTxnState
                | ResponseError::InvalidRecord
        );
        let log_start = || log.offsets(topic.id, partition).ok().map(|offsets| offsets.log_start);
        Refusal { log_start: is_looked_at.then(log_start).flatten(), ..refused(&e).into() }
    })
}

const NO_OFFSET: i64 = -1;
/// Where a batch has its attributes.
const ATTRIBUTES: std::ops::Range<usize> = 21..23;
/// And its producer id, or -1.
const PRODUCER: std::ops::Range<usize> = 43..51;
const CODEC: u16 = 7;
const ZSTD: u16 = 4;
const TRANSACTIONAL: u16 = 16;

/// The producer id that a batch names.
fn producer_of(batch: &[u8]) -> Option<i64> {
    let producer = i64::from_be_bytes(batch.get(PRODUCER)?.try_into().ok()?);
    (producer >= 0).then_some(producer)
}

/// What a batch of a request may not be, though it is well made. What isn't a batch the log refuses itself.
fn judge(batch: &[u8], version: i16, id: Option<&str>) -> Result<(), (ResponseError, String)> {
    let Some(attributes) = batch.get(ATTRIBUTES) else { return Ok(()) };
    let attributes = u16::from_be_bytes([attributes[0], attributes[1]]);
    if attributes & TRANSACTIONAL != 0 && id.is_none() {
        let why = "a transactional batch needs its transactional id in the request";
        return Err((ResponseError::TransactionalIdAuthorizationFailed, why.to_string()));
    }
    if attributes & CODEC == ZSTD && version < 7 {
        let why = "zstd is understood from version 7 of Produce on: older clients couldn't read it";
        return Err((ResponseError::UnsupportedCompressionType, why.to_string()));
    }
    if batch.get(..8).is_some_and(|base| base.iter().any(|byte| *byte != 0)) {
        return Err((ResponseError::InvalidRecord, "the offsets of a new batch begin at 0".to_string()));
    }
    Ok(())
}

/// Whether a record has no key. What can't be read the log refuses itself.
fn lacks_keys(batch: &[u8]) -> bool {
    let opened = records(batch, &Limits::DEFAULT);
    opened.is_ok_and(|all| all.iter().any(|record| record.is_ok_and(|record| record.key.is_none())))
}

fn refused(error: &AppendError) -> (ResponseError, String) {
    (of_append(error), error.to_string())
}

/// Waits until everything that was accepted is durable; the first refusal, if there is one.
fn wait(topics: Vec<UnderwayTopic>) -> (ProduceResponse, Option<String>) {
    let mut failed = None;
    let responses = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|(index, underway)| {
            let done = underway.and_then(|ticket| {
                let start = ticket.log_start();
                Ok((ticket.wait().map_err(|e| Refusal::from(refused(&e)))?, start))
            });
            let response = PartitionProduceResponse::default().with_index(index).with_log_append_time_ms(-1);
            match done {
                Ok((base, start)) => response
                    .with_error_code(NONE)
                    .with_base_offset(base.0.cast_signed())
                    .with_log_start_offset(start.0.cast_signed()),
                Err(Refusal { error, why, log_start }) => {
                    failed.get_or_insert_with(|| why.clone());
                    let response = response.with_error_code(error.code()).with_base_offset(NO_OFFSET);
                    response
                        .with_log_start_offset(log_start.map_or(NO_OFFSET, |start| start.0.cast_signed()))
                        .with_error_message(Some(text(why)))
                }
            }
        });
        TopicProduceResponse::default()
            .with_partition_responses(partitions.collect())
            .with_name(topic.name)
            .with_topic_id(topic.id)
    });
    (ProduceResponse::default().with_responses(responses.collect()), failed)
}
