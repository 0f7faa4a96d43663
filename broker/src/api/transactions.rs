//! Transactions of clients: `InitProducerId`, `AddPartitionsToTxn`, `AddOffsetsToTxn`, `TxnOffsetCommit`, `EndTxn`.
//!
//! The rules are the log's (`core/clients.rs` there). Here: which protocol a version belongs to, error codes by version, and
//! [connection fencing](crate::fences).

use std::time::Duration;

use cutwater_partition_log::{ClientError, ClientProducer, Outcome, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, ProducerId, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};

use super::Call;
use super::group_offsets::{Asked, judge, of_group};
use super::members::plain;
use crate::access::ANONYMOUS;
use crate::access::acl::Operation;
use crate::errors::{NO_LOG, NONE};
use crate::fences::Speaks;
use crate::group::member::Who;

const NO_PRODUCER: i64 = -1;
const NO_EPOCH: i16 = -1;

/// The code of a refusal; older versions know no better one for a fenced producer than that its epoch is invalid.
pub(super) fn of_client(error: &ClientError, knows_fenced: bool) -> ResponseError {
    match error {
        ClientError::InvalidId { .. } => ResponseError::InvalidRequest,
        ClientError::Unknown { .. } | ClientError::OtherProducer { .. } => ResponseError::InvalidProducerIdMapping,
        ClientError::Fenced { .. } if knows_fenced => ResponseError::ProducerFenced,
        ClientError::Fenced { .. } => ResponseError::InvalidProducerEpoch,
        ClientError::NotOpen { .. } => ResponseError::InvalidTxnState,
        ClientError::UnknownPartition { .. } => ResponseError::UnknownTopicOrPartition,
        ClientError::TooManyPartitions { .. } | ClientError::TooMany { .. } => ResponseError::PolicyViolation,
        ClientError::Group(error) => of_group(error),
        ClientError::Down(_) | ClientError::OutcomeUnknown(_) => NO_LOG,
    }
}

/// An empty transactional id is nobody's.
fn named(id: &str) -> Result<(), ResponseError> {
    if id.is_empty() { Err(ResponseError::InvalidRequest) } else { Ok(()) }
}

fn code(done: Result<(), ResponseError>) -> i16 {
    done.err().map_or(NONE, |error| error.code())
}

pub(super) fn init_producer_id(call: &Call<'_>, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let response = InitProducerIdResponse::default();
    match init(call, &request) {
        Ok(given) => response.with_producer_id(ProducerId(given.producer)).with_producer_epoch(given.epoch),
        Err(error) => response
            .with_error_code(error.code())
            .with_producer_id(ProducerId(NO_PRODUCER))
            .with_producer_epoch(NO_EPOCH),
    }
}

fn init(call: &Call<'_>, request: &InitProducerIdRequest) -> Result<ClientProducer, ResponseError> {
    let log = &call.service.log;
    let Some(id) = &request.transactional_id else {
        call.idempotent()?;
        let producer = log.allocate_producer().map_err(|_| ResponseError::KafkaStorageError)?;
        if call.service.options.security.authorize {
            call.service.producers.give(producer, call.caller.user.as_deref().unwrap_or(ANONYMOUS));
        }
        return Ok(ClientProducer { producer, epoch: 0 });
    };
    call.transactional_id(Operation::Write, id)?;
    let timeout = u64::try_from(request.transaction_timeout_ms).ok().filter(|timeout| *timeout > 0);
    let timeout = timeout.map(Duration::from_millis).filter(|t| *t <= call.service.options.limits.transaction_timeout);
    let timeout = timeout.ok_or(ResponseError::InvalidTransactionTimeout)?;
    let believed = ClientProducer { producer: request.producer_id.0, epoch: request.producer_epoch };
    let expected = match (call.version() >= 3, believed.producer, believed.epoch) {
        (false, ..) | (true, NO_PRODUCER, NO_EPOCH) => None,
        (true, 0.., 0..) => Some(believed),
        _ => return Err(ResponseError::InvalidRequest),
    };
    let given = log.init_client(id, timeout, expected).map_err(|e| of_client(&e, call.version() >= 4))?;
    call.service.fences.heard(Speaks::Transactions, id, call.caller.connection);
    Ok(given)
}

/// Does something for a client of the older protocol, unless it comes over a connection that has been replaced; then nothing
/// happens, and the connection is closed. A zombie, whose epoch is an old one, hears that instead, as from Kafka: it would
/// repeat over and over what gets no answer.
fn fenced(
    call: &Call<'_>,
    id: &str,
    client: ClientProducer,
    act: impl FnOnce() -> Result<(), ClientError>,
) -> Result<(), ResponseError> {
    let knows_fenced = call.version() >= 2;
    let act = || act().map_err(|error| of_client(&error, knows_fenced));
    fenced_as(call, Speaks::Transactions, id, client, knows_fenced, act)
}

fn fenced_as(
    call: &Call<'_>,
    speaks: Speaks,
    id: &str,
    client: ClientProducer,
    knows_fenced: bool,
    act: impl FnOnce() -> Result<(), ResponseError>,
) -> Result<(), ResponseError> {
    let (fences, connection) = (&call.service.fences, call.caller.connection);
    if fences.is_late(speaks, id, connection) {
        call.service.log.check_client(id, client).map_err(|error| of_client(&error, knows_fenced))?;
        call.drop_connection("a newer connection speaks for this transactional id");
        return Err(ResponseError::NetworkException);
    }
    act()?;
    fences.heard(speaks, id, connection);
    Ok(())
}

pub(super) fn add_partitions(call: &Call<'_>, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse {
    let log = &call.service.log;
    let id = &request.v3_and_below_transactional_id;
    let client =
        ClientProducer { producer: request.v3_and_below_producer_id.0, epoch: request.v3_and_below_producer_epoch };
    let found = |topic: &AddPartitionsToTxnTopic, partition: i32| {
        let known = log.topic(&topic.name)?;
        let partition = u32::try_from(partition).ok().filter(|partition| *partition < known.partitions)?;
        Some(TopicPartition::new(known.id, partition))
    };
    let topics = &request.v3_and_below_topics;
    let judged = |topic: &AddPartitionsToTxnTopic, partition: i32| {
        call.topic(Operation::Write, &topic.name)?;
        found(topic, partition).ok_or(ResponseError::UnknownTopicOrPartition)
    };
    let asked: Vec<Result<TopicPartition, ResponseError>> = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| judged(topic, *partition)))
        .collect();
    let all: Vec<TopicPartition> = asked.iter().flatten().copied().collect();
    let denied = call.transactional_id(Operation::Write, id).and_then(|()| named(id)).err();
    let done = match all.len() == asked.len() {
        _ if denied.is_some() => Ok(()),
        true => fenced(call, id, client, || log.add_partitions(id, client, &all)),
        // One that isn't there keeps all others out.
        false => Err(ResponseError::OperationNotAttempted),
    };
    let mut each = asked.iter();
    let results = topics.iter().map(|topic| {
        let results = topic.partitions.iter().map(|partition| {
            let refused = denied.or_else(|| each.next().and_then(|judged| judged.err()));
            let code = refused.map_or_else(|| code(done), |error| error.code());
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*partition)
                .with_partition_error_code(code)
        });
        AddPartitionsToTxnTopicResult::default()
            .with_results_by_partition(results.collect())
            .with_name(topic.name.clone())
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}

pub(super) fn add_offsets(call: &Call<'_>, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
    let id = &request.transactional_id;
    let client = ClientProducer { producer: request.producer_id.0, epoch: request.producer_epoch };
    let allowed = call.transactional_id(Operation::Write, id);
    let allowed = allowed.and_then(|()| call.group(Operation::Read, &request.group_id)).and_then(|()| named(id));
    let begin = || call.service.log.add_partitions(id, client, &[]);
    let done = allowed.and_then(|()| fenced(call, id, client, begin));
    AddOffsetsToTxnResponse::default().with_error_code(code(done))
}

pub(super) fn commit_offsets(call: &Call<'_>, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse {
    let asked: Vec<Asked<'_>> = request
        .topics
        .iter()
        .flat_map(|topic| {
            topic.partitions.iter().map(|partition| Asked {
                topic: &topic.name,
                partition: partition.partition_index,
                offset: partition.committed_offset,
                metadata: plain(&partition.committed_metadata),
            })
        })
        .collect();
    let (commits, refused) = judge(call, &asked);
    let who = Who {
        member: &request.member_id,
        instance: plain(&request.group_instance_id),
        // Versions below 3 say nothing of the member.
        generation: if call.version() >= 3 { request.generation_id } else { -1 },
    };
    let client = ClientProducer { producer: request.producer_id.0, epoch: request.producer_epoch };
    let (id, group) = (&request.transactional_id, &request.group_id);
    let implicit = call.version() >= 5;
    let take = || {
        let taken = || call.service.log.commit_client_offsets(id, client, group, commits, implicit);
        let taken = call.service.groups.commit(group, who, true, taken).map_err(|error| match error {
            // What producers know of epochs of members.
            ResponseError::StaleMemberEpoch => ResponseError::IllegalGeneration,
            error => error,
        })?;
        taken.map_err(|error| of_client(&error, false))
    };
    let allowed = call.transactional_id(Operation::Write, id);
    let allowed = allowed.and_then(|()| call.group(Operation::Read, group));
    let done = allowed.and_then(|()| match implicit {
        true => take(),
        false => fenced_as(call, Speaks::Offsets, id, client, false, take),
    });
    // What is wrong with one partition is said before what is wrong with all.
    let (denied, all) = (allowed.err(), done.err());
    let mut index = 0;
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let error = denied.or(refused.get(&index).copied()).or(all);
            index += 1;
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error.map_or(NONE, |error| error.code()))
        });
        TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

pub(super) fn end(call: &Call<'_>, request: EndTxnRequest) -> EndTxnResponse {
    let id = &request.transactional_id;
    let client = ClientProducer { producer: request.producer_id.0, epoch: request.producer_epoch };
    let outcome = if request.committed { Outcome::Committed } else { Outcome::Aborted };
    let newer = call.version() >= 5;
    if let Err(error) = call.transactional_id(Operation::Write, id).and_then(|()| named(id)) {
        return EndTxnResponse::default().with_error_code(error.code());
    }
    let mut given = None;
    let mut act = || {
        given = Some(call.service.log.end_client(id, client, outcome, newer)?);
        Ok(())
    };
    let done = if newer { act().map_err(|e| of_client(&e, true)) } else { fenced(call, id, client, act) };
    let response = EndTxnResponse::default().with_error_code(code(done));
    match given.filter(|_| newer) {
        Some(next) => response.with_producer_id(ProducerId(next.producer)).with_producer_epoch(next.epoch),
        None => response,
    }
}
