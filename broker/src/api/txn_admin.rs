//! Transactions from outside: `DescribeProducers`, `ListTransactions`, `DescribeTransactions`, and `WriteTxnMarkers` as an
//! operator's abort (KIP-664). Jobs' own transactions are not clients' and aren't listed here.

use cutwater_partition_log::{ClientInfo, ClientPhase, Offset, Outcome, ProducerInfo, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use kafka_protocol::messages::describe_transactions_response::{self, TopicData};
use kafka_protocol::messages::list_transactions_response;
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
    ListTransactionsRequest, ListTransactionsResponse, ProducerId, TopicName, TransactionalId, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
};

use super::Call;
use super::transactions::of_client;
use crate::access::acl::Operation;
use crate::errors::{NONE, of_fetch, text};
use crate::pattern::Pattern;
use crate::topic_ids;

/// Kafka's names of the states that there are here.
const STATES: [&str; 4] = ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"];

/// And of those that a transaction is in only where its end takes more than one write.
const ELSEWHERE: [&str; 4] = ["PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence"];

fn state(client: &ClientInfo) -> &'static str {
    match client.phase {
        ClientPhase::Empty => STATES[0],
        ClientPhase::Ongoing => STATES[1],
        ClientPhase::Ended(Outcome::Committed) => STATES[2],
        ClientPhase::Ended(Outcome::Aborted) => STATES[3],
    }
}

pub(super) fn describe_producers(call: &Call<'_>, request: DescribeProducersRequest) -> DescribeProducersResponse {
    let log = &call.service.log;
    let topics = request.topics.into_iter().map(|asked| {
        let allowed = call.topic(Operation::Read, &asked.name);
        let topic = log.topic(&asked.name);
        let partitions = asked.partition_indexes.iter().map(|index| {
            let response = PartitionResponse::default().with_partition_index(*index);
            let at = topic.as_ref().zip(u32::try_from(*index).ok());
            let at = allowed.and_then(|()| at.ok_or(ResponseError::UnknownTopicOrPartition));
            let producers = at.and_then(|(topic, index)| {
                log.producers(TopicPartition::new(topic.id, index)).map_err(|e| of_fetch(&e))
            });
            match producers {
                Err(error) => response.with_error_code(error.code()),
                Ok(producers) => response.with_active_producers(producers.iter().map(producer).collect()),
            }
        });
        TopicResponse::default().with_partitions(partitions.collect()).with_name(asked.name)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn producer(info: &ProducerInfo) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(info.producer.producer))
        .with_producer_epoch(info.producer.epoch.into())
        .with_last_sequence(info.last_sequence.unwrap_or(-1))
        .with_last_timestamp(info.since.0)
        .with_coordinator_epoch(0)
        .with_current_txn_start_offset(info.open_from.map_or(-1, |Offset(first)| first.cast_signed()))
}

pub(super) fn list(call: &Call<'_>, request: ListTransactionsRequest) -> ListTransactionsResponse {
    let now = call.service.platform.clock.wall().0;
    let asked = &request.state_filters;
    let producers = &request.producer_id_filters;
    let pattern = request.transactional_id_pattern.as_ref().filter(|pattern| !pattern.is_empty());
    let Ok(pattern) = pattern.map(|pattern| Pattern::new(pattern)).transpose() else {
        return ListTransactionsResponse::default().with_error_code(ResponseError::InvalidRegularExpression.code());
    };
    let wanted = |client: &&ClientInfo| {
        let duration = client.open_since.map_or(-1, |since| now.saturating_sub(since.0));
        call.transactional_id(Operation::Describe, &client.id).is_ok()
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(&client.id))
            && (asked.is_empty() || asked.iter().any(|asked| asked.as_str() == state(client)))
            && (producers.is_empty() || producers.contains(&ProducerId(client.producer.producer)))
            && (request.duration_filter < 0 || duration > request.duration_filter)
    };
    let known = |asked: &str| STATES.contains(&asked) || ELSEWHERE.contains(&asked);
    let unknown = asked.iter().filter(|asked| !known(asked)).cloned();
    let listed = call.service.log.clients();
    let listed = listed.iter().filter(wanted).map(|client| {
        list_transactions_response::TransactionState::default()
            .with_transactional_id(TransactionalId(text(client.id.clone())))
            .with_producer_id(ProducerId(client.producer.producer))
            .with_transaction_state(text(state(client)))
    });
    ListTransactionsResponse::default()
        .with_unknown_state_filters(unknown.collect())
        .with_transaction_states(listed.collect())
}

pub(super) fn describe(call: &Call<'_>, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse {
    let known = call.service.log.clients();
    let states = request.transactional_ids.into_iter().map(|id| {
        let response = describe_transactions_response::TransactionState::default();
        if let Err(error) = call.transactional_id(Operation::Describe, &id) {
            return response.with_error_code(error.code()).with_transactional_id(id);
        }
        let Some(client) = known.iter().find(|client| client.id == id.as_str()) else {
            let code = ResponseError::TransactionalIdNotFound.code();
            return response.with_error_code(code).with_transactional_id(id);
        };
        let mut topics: Vec<TopicData> = Vec::new();
        for at in &client.partitions {
            let Some(topic) = call.service.log.topic_by_id(at.topic) else { continue };
            if call.topic(Operation::Describe, &topic.name).is_err() {
                continue;
            }
            let name = topic_ids::name(&topic.name);
            match topics.last_mut().filter(|last| last.topic == name) {
                Some(last) => last.partitions.push(at.partition.cast_signed()),
                None => {
                    topics.push(TopicData::default().with_topic(name).with_partitions(vec![at.partition.cast_signed()]))
                }
            }
        }
        response
            .with_transactional_id(id)
            .with_transaction_state(text(state(client)))
            .with_transaction_timeout_ms(i32::try_from(client.timeout.as_millis()).unwrap_or(i32::MAX))
            .with_transaction_start_time_ms(client.open_since.map_or(-1, |since| since.0))
            .with_producer_id(ProducerId(client.producer.producer))
            .with_producer_epoch(client.producer.epoch)
            .with_topics(topics)
    });
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

/// There are no brokers that write each other's markers; what comes is an operator's abort of one producer's transaction.
pub(super) fn write_markers(call: &Call<'_>, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse {
    let log = &call.service.log;
    let allowed = call.cluster(Operation::Alter).or_else(|_| call.cluster(Operation::ClusterAction));
    let markers = request.markers.into_iter().map(|marker| {
        let client = log.clients().into_iter().find(|client| client.producer.producer == marker.producer_id.0);
        let at = |topic: &TopicName, index: i32| {
            let topic = log.topic(topic)?;
            let index = u32::try_from(index).ok().filter(|index| *index < topic.partitions)?;
            Some(TopicPartition::new(topic.id, index))
        };
        let all: Vec<Option<TopicPartition>> = marker
            .topics
            .iter()
            .flat_map(|topic| topic.partition_indexes.iter().map(|index| at(&topic.name, *index)))
            .collect();
        let done = match client {
            _ if allowed.is_err() => allowed,
            // Whoever names what isn't there means another transaction: nothing is ended then.
            _ if all.iter().any(Option::is_none) => Err(ResponseError::UnknownTopicOrPartition),
            _ if marker.transaction_result => Err(ResponseError::InvalidRequest),
            None => Err(ResponseError::InvalidProducerIdMapping),
            Some(client) if client.producer.epoch != marker.producer_epoch => Err(ResponseError::InvalidProducerEpoch),
            // What was named has nothing of a transaction of it: there is nothing to end.
            Some(client) if !all.iter().flatten().any(|at| client.partitions.contains(at)) => {
                Err(ResponseError::InvalidTxnState)
            }
            Some(client) => log.abort_client(&client.id).map_err(|e| of_client(&e, true)),
        };
        let code = done.err().map_or(NONE, |error| error.code());
        let topics = marker.topics.into_iter().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|index| {
                WritableTxnMarkerPartitionResult::default().with_partition_index(*index).with_error_code(code)
            });
            WritableTxnMarkerTopicResult::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        WritableTxnMarkerResult::default().with_producer_id(marker.producer_id).with_topics(topics.collect())
    });
    WriteTxnMarkersResponse::default().with_markers(markers.collect())
}
