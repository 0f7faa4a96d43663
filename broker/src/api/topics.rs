//! `CreateTopics`, `DeleteTopics`, `CreatePartitions`.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};
use uuid::Uuid;

use cutwater_partition_log::{Rehearsal, TopicId};

use super::{Call, configs};
use crate::access::acl::Operation;
use crate::errors::{Answered, code, message, of_topic, text, with};
use crate::service::NODE;
use crate::topic_ids;

/// "As the server likes it" for partitions and replicas.
const DEFAULT: i32 = -1;
/// There is one server, so one replica.
const REPLICAS: i16 = 1;

/// Those that are named more than once: which of them is meant can't be known.
fn twice<'a>(names: impl Iterator<Item = &'a TopicName>) -> BTreeSet<TopicName> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).cloned().collect()
}

fn once(twice: &BTreeSet<TopicName>, name: &TopicName) -> Answered<()> {
    match twice.contains(name) {
        true => Err((ResponseError::InvalidRequest, "this topic is named twice".to_string())),
        false => Ok(()),
    }
}

/// A replica is where there is a server, once.
fn placed(servers: &[BrokerId]) -> Answered<()> {
    match servers {
        [only] if *only == NODE => Ok(()),
        _ => Err((ResponseError::InvalidReplicaAssignment, format!("there is one server, {}", NODE.0))),
    }
}

pub(super) fn create_topics(call: &Call<'_>, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let several = twice(request.topics.iter().map(|topic| &topic.name));
    let mut told = BTreeSet::new();
    let asked =
        request.topics.into_iter().filter(|topic| !several.contains(&topic.name) || told.insert(topic.name.clone()));
    let mut rehearsal = request.validate_only.then(|| call.service.log.rehearse());
    let topics = asked.map(|topic| {
        let allowed = call.create(&topic.name).map_err(|e| with(e)(&"this topic isn't yours to create"));
        let allowed = allowed.and_then(|()| once(&several, &topic.name));
        let created = allowed.and_then(|()| create(call, &topic, rehearsal.as_mut()));
        let (id, partitions) = *created.as_ref().unwrap_or(&(TopicId(0), 0));
        let result = CreatableTopicResult::default()
            .with_error_code(code(&created))
            .with_error_message(message(&created))
            .with_configs(Some(Vec::new()));
        let result = match created {
            Ok(_) => result
                .with_configs(Some(configs_of(call, &topic.name)))
                .with_topic_id(topic_ids::uuid(id, &topic.name))
                .with_num_partitions(partitions.cast_signed())
                .with_replication_factor(REPLICAS),
            Err(_) => result,
        };
        result.with_name(topic.name)
    });
    CreateTopicsResponse::default().with_topics(topics.collect())
}

/// What the new topic's settings are (KIP-525).
fn configs_of(call: &Call<'_>, topic: &TopicName) -> Vec<CreatableTopicConfigs> {
    let one = |(name, value, source): (&str, String, i8)| {
        CreatableTopicConfigs::default().with_name(text(name)).with_value(Some(text(value))).with_config_source(source)
    };
    configs::effective(call, topic).into_iter().map(one).collect()
}

/// The new topic and its partitions; in a rehearsal it isn't made, and has no number.
fn create(call: &Call<'_>, topic: &CreatableTopic, rehearsal: Option<&mut Rehearsal<'_>>) -> Answered<(TopicId, u32)> {
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
        topic.assignments.iter().try_for_each(|assigned| placed(&assigned.broker_ids))?;
        indexes.len() as u32
    } else if topic.num_partitions == DEFAULT {
        service.options.default_partitions
    } else {
        u32::try_from(topic.num_partitions).unwrap_or(0)
    };
    if partitions == 0 {
        return refuse(ResponseError::InvalidPartitions, "a topic needs at least one partition");
    }
    if ![DEFAULT, REPLICAS.into()].contains(&topic.replication_factor.into()) && topic.assignments.is_empty() {
        return refuse(ResponseError::InvalidReplicationFactor, "there is one server, so the replication factor is 1");
    }
    let settings = topic.configs.iter().filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?)));
    let settings: BTreeMap<String, String> = settings.map(|(name, value)| (name, value.to_string())).collect();
    settings.iter().try_for_each(|(name, value)| configs::check(name, value))?;
    let created = match rehearsal {
        Some(rehearsal) => rehearsal.create_topic(&topic.name, partitions, &settings).map(|()| TopicId(0)),
        None => service.log.create_topic_with(&topic.name, partitions, &settings),
    };
    Ok((created.map_err(|e| with(of_topic(&e))(&e))?, partitions))
}

pub(super) fn delete_topics(call: &Call<'_>, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter().map(|name| (Some(name), Uuid::nil()));
    let asked = by_name.chain(request.topics.into_iter().map(|topic| (topic.name, topic.topic_id)));
    let responses = asked.map(|(name, id)| {
        let deleted = delete(call, name.as_ref(), id);
        let response = DeletableTopicResult::default().with_error_code(code(&deleted));
        let response = if call.version() >= 5 { response.with_error_message(message(&deleted)) } else { response };
        let (name, id) = match deleted {
            Ok((name, id)) => (Some(name), id),
            Err(_) => (name, id),
        };
        // Version 6 alone names topics by id, and has no name for those that it doesn't find.
        let name = if call.version() >= 6 { name } else { Some(name.unwrap_or_default()) };
        let response = response.with_name(name);
        if call.version() >= 6 { response.with_topic_id(id) } else { response }
    });
    DeleteTopicsResponse::default().with_responses(responses.collect())
}

fn delete(call: &Call<'_>, name: Option<&TopicName>, id: Uuid) -> Answered<(TopicName, Uuid)> {
    let service = call.service;
    if name.is_some_and(|name| !name.is_empty()) != id.is_nil() {
        let error =
            if call.version() >= 6 { ResponseError::InvalidRequest } else { ResponseError::UnknownTopicOrPartition };
        return Err(with(error)(&"give a topic's name, or its id"));
    }
    let unknown = if id.is_nil() { ResponseError::UnknownTopicOrPartition } else { ResponseError::UnknownTopicId };
    let found = service.topic_ids.named(&service.log, name.unwrap_or(&TopicName::default()), id);
    // Whether there is one isn't told to who may not see it.
    let named = found.as_ref().map(|topic| topic.name.as_str()).or(name.map(|name| name.as_str()));
    if let Err(error) = named.map_or(Ok(()), |named| call.topic(Operation::Delete, named)) {
        let seen = named.is_some_and(|named| call.topic(Operation::Describe, named).is_ok());
        let error = if !id.is_nil() && !seen { unknown } else { error };
        return Err(with(error)(&"this topic isn't yours to delete"));
    }
    let found = found.ok_or_else(|| with(unknown)(&"there is no such topic"))?;
    service.log.delete_topic(&found.name).map_err(|e| with(of_topic(&e))(&e))?;
    Ok((topic_ids::name(&found.name), topic_ids::uuid(found.id, &found.name)))
}

pub(super) fn create_partitions(call: &Call<'_>, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let several = twice(request.topics.iter().map(|topic| &topic.name));
    let mut told = BTreeSet::new();
    let asked =
        request.topics.into_iter().filter(|topic| !several.contains(&topic.name) || told.insert(topic.name.clone()));
    let mut rehearsal = request.validate_only.then(|| call.service.log.rehearse());
    let results = asked.map(|topic| {
        let grown = once(&several, &topic.name).and_then(|()| grow(call, &topic, rehearsal.as_mut()));
        CreatePartitionsTopicResult::default()
            .with_error_code(code(&grown))
            .with_error_message(message(&grown))
            .with_name(topic.name)
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}

fn grow(call: &Call<'_>, topic: &CreatePartitionsTopic, rehearsal: Option<&mut Rehearsal<'_>>) -> Answered<()> {
    let (name, count) = (&topic.name, topic.count);
    let log = &call.service.log;
    call.topic(Operation::Alter, name).map_err(|e| with(e)(&"this topic isn't yours to change"))?;
    let known =
        log.topic(name).ok_or_else(|| with(ResponseError::UnknownTopicOrPartition)(&"there is no such topic"))?;
    let count = u32::try_from(count).unwrap_or(0);
    if count <= known.partitions {
        let why = format!("it has {} partitions already, and their number can only grow", known.partitions);
        return Err((ResponseError::InvalidPartitions, why));
    }
    if let Some(assignments) = &topic.assignments {
        if assignments.len() != (count - known.partitions) as usize {
            let why = "place every new partition, and no other";
            return Err((ResponseError::InvalidReplicaAssignment, why.to_string()));
        }
        assignments.iter().try_for_each(|assigned| placed(&assigned.broker_ids))?;
    }
    let grown = match rehearsal {
        Some(rehearsal) => rehearsal.grow_topic(name, count),
        None => log.grow_topic(name, count),
    };
    grown.map_err(|e| with(of_topic(&e))(&e))
}
