//! `CreateTopics`.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use cutwater_partition_log::TopicId;

use super::Call;
use crate::errors::{Answered, code, message, of_topic, with};
use crate::topic_ids;

/// "As the server likes it" for partitions and replicas.
const DEFAULT: i32 = -1;
/// There is one server, so one replica.
const REPLICAS: i16 = 1;

pub(super) fn create_topics(call: &Call<'_>, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let created = create(call, &topic, request.validate_only);
        let (id, partitions) = *created.as_ref().unwrap_or(&(TopicId(0), 0));
        let result = CreatableTopicResult::default()
            .with_error_code(code(&created))
            .with_error_message(message(&created))
            .with_configs(Some(Vec::new()));
        let result = match created {
            Ok(_) => result
                .with_topic_id(topic_ids::uuid(id, &topic.name))
                .with_num_partitions(partitions.cast_signed())
                .with_replication_factor(REPLICAS),
            Err(_) => result,
        };
        result.with_name(topic.name)
    });
    CreateTopicsResponse::default().with_topics(topics.collect())
}

/// The new topic and its partitions.
fn create(call: &Call<'_>, topic: &CreatableTopic, only_look: bool) -> Answered<(TopicId, u32)> {
    let service = call.service;
    let refuse = |error: ResponseError, why: &str| Err((error, why.to_string()));
    let partitions = if !topic.assignments.is_empty() {
        if topic.num_partitions != DEFAULT || i32::from(topic.replication_factor) != DEFAULT {
            return refuse(ResponseError::InvalidRequest, "give assignments, or numbers of partitions and replicas");
        }
        let mut indexes: Vec<i32> = topic.assignments.iter().map(|assigned| assigned.partition_index).collect();
        indexes.sort_unstable();
        if indexes.iter().zip(0..).any(|(index, expected)| *index != expected) {
            return refuse(ResponseError::InvalidReplicaAssignment, "assign every partition from 0 on, once");
        }
        indexes.len() as u32
    } else if topic.num_partitions == DEFAULT {
        service.options.default_partitions
    } else {
        u32::try_from(topic.num_partitions).unwrap_or(0)
    };
    if partitions == 0 {
        return refuse(ResponseError::InvalidPartitions, "a topic needs at least one partition");
    }
    if ![DEFAULT, 0, REPLICAS.into()].contains(&topic.replication_factor.into()) && topic.assignments.is_empty() {
        return refuse(ResponseError::InvalidReplicationFactor, "there is one server, so the replication factor is 1");
    }
    if only_look {
        let taken = service.log.topic(&topic.name).is_some();
        cutwater_partition_log::topic::check_name(&topic.name)
            .map_err(|e| with(ResponseError::InvalidTopicException)(&e))?;
        return if taken {
            refuse(ResponseError::TopicAlreadyExists, "it exists")
        } else {
            Ok((TopicId(0), partitions))
        };
    }
    let created = service.log.create_topic(&topic.name, partitions);
    created.map(|id| (id, partitions)).map_err(|e| with(of_topic(&e))(&e))
}
