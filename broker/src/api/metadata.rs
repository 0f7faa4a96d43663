//! `Metadata` and `FindCoordinator`: who is there, and who leads what. There is one server, and it leads everything.

use cutwater_partition_log::topic::check_name;
use cutwater_partition_log::{Topic, TopicError};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::operations::UNASKED;
use super::{Call, operations};
use crate::access::acl::Operation;
use crate::errors::{NONE, of_topic, text};
use crate::service::{LEADER_EPOCH, NODE};
use crate::topic_ids;

/// No server.
const NOBODY: BrokerId = BrokerId(-1);

pub(super) fn metadata(call: &Call<'_>, request: MetadataRequest) -> MetadataResponse {
    let service = call.service;
    let broker = MetadataResponseBroker::default()
        .with_node_id(NODE)
        .with_host(text(call.caller.host.clone()))
        .with_port(call.caller.port.into());
    let asked = request.topics.filter(|topics| call.version() > 0 || !topics.is_empty());
    let topics = match asked {
        None => {
            let all = service.log.topics();
            let shown = all.iter().filter(|topic| call.topic(Operation::Describe, &topic.name).is_ok());
            shown.map(known).collect()
        }
        Some(topics) => {
            let create =
                service.options.auto_create_topics && (call.version() < 4 || request.allow_auto_topic_creation);
            topics.into_iter().map(|asked| one(call, asked.name, asked.topic_id, create)).collect()
        }
    };
    let told = |topic: MetadataResponseTopic| match topic.name.as_ref().filter(|_| topic.error_code == NONE) {
        Some(name) if request.include_topic_authorized_operations => {
            let allowed = operations::of_topic(call, name);
            topic.with_topic_authorized_operations(allowed)
        }
        _ => topic,
    };
    let topics: Vec<MetadataResponseTopic> = topics;
    let allowed = match request.include_cluster_authorized_operations {
        true => operations::of_cluster(call),
        false => UNASKED,
    };
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(service.cluster_id()))
        .with_controller_id(NODE)
        .with_topics(topics.into_iter().map(told).collect())
        .with_cluster_authorized_operations(allowed)
}

fn one(call: &Call<'_>, name: Option<TopicName>, id: Uuid, create: bool) -> MetadataResponseTopic {
    let service = call.service;
    let Some(name) = name.filter(|_| id.is_nil()) else {
        // To who may not see it, a topic's number is one of no topic.
        let found = service.topic_ids.find(&service.log, id);
        let found = found.filter(|topic| call.topic(Operation::Describe, &topic.name).is_ok());
        // What isn't found has no name, where the answer knows how to say that.
        let nameless = (call.version() < 12).then(TopicName::default);
        let unknown = || empty(nameless, ResponseError::UnknownTopicId.code()).with_topic_id(id);
        return found.as_ref().map_or_else(unknown, known);
    };
    // Before it is looked whether there is one: who may not see it isn't told.
    if let Err(error) = call.topic(Operation::Describe, &name) {
        return empty(Some(name), error.code());
    }
    match service.log.topic(&name) {
        Some(topic) => known(&topic),
        None if check_name(&name).is_err() => empty(Some(name), ResponseError::InvalidTopicException.code()),
        None if !create => empty(Some(name), ResponseError::UnknownTopicOrPartition.code()),
        None if call.create(&name).is_err() => empty(Some(name), ResponseError::TopicAuthorizationFailed.code()),
        None => match service.log.create_topic(&name, service.options.default_partitions) {
            // Another client may have been faster.
            Ok(_) | Err(TopicError::Exists { .. }) => match service.log.topic(&name) {
                Some(topic) => known(&topic),
                None => empty(Some(name), ResponseError::LeaderNotAvailable.code()),
            },
            Err(error) => empty(Some(name), of_topic(&error).code()),
        },
    }
}

fn empty(name: Option<TopicName>, code: i16) -> MetadataResponseTopic {
    MetadataResponseTopic::default().with_error_code(code).with_name(name).with_topic_authorized_operations(UNASKED)
}

fn known(topic: &Topic) -> MetadataResponseTopic {
    let partition = |index: u32| {
        MetadataResponsePartition::default()
            .with_partition_index(index.cast_signed())
            .with_leader_id(NODE)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![NODE])
            .with_isr_nodes(vec![NODE])
    };
    empty(Some(topic_ids::name(&topic.name)), NONE)
        .with_topic_id(topic_ids::uuid(topic.id, &topic.name))
        .with_partitions((0..topic.partitions).map(partition).collect())
}

pub(super) fn find_coordinator(call: &Call<'_>, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    let judge = |key: &StrBytes| {
        let allowed = match request.key_type {
            0 => call.group(Operation::Describe, key),
            1 => call.transactional_id(Operation::Describe, key),
            _ => Err(ResponseError::InvalidRequest),
        };
        match allowed {
            Ok(()) => (NONE, None),
            Err(ResponseError::InvalidRequest) => {
                let why = StrBytes::from_static_str("no such kind of coordinator");
                (ResponseError::InvalidRequest.code(), Some(why))
            }
            Err(error) => (error.code(), Some(StrBytes::from_static_str("not allowed"))),
        }
    };
    // Who is refused isn't sent anywhere.
    let place = |code: i16| match code {
        NONE => (NODE, text(call.caller.host.clone()), call.caller.port.into()),
        _ => (NOBODY, text(""), -1),
    };
    let one = |key: StrBytes| {
        let (code, message) = judge(&key);
        let (node, host, port) = place(code);
        Coordinator::default()
            .with_key(key)
            .with_node_id(node)
            .with_host(host)
            .with_port(port)
            .with_error_code(code)
            .with_error_message(message)
    };
    if call.version() >= 4 {
        return FindCoordinatorResponse::default()
            .with_coordinators(request.coordinator_keys.into_iter().map(one).collect());
    }
    let (code, message) = judge(&request.key);
    let (node, host, port) = place(code);
    FindCoordinatorResponse::default()
        .with_error_code(code)
        .with_error_message(message)
        .with_node_id(node)
        .with_host(host)
        .with_port(port)
}
