//! One request of every API, with something in every array, in every version that is served. For tests.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::apis::Api;

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// The body of a request of this API and version, as `kafka-protocol` writes it.
pub(crate) fn body(api: &Api, version: i16) -> Bytes {
    let v = version;
    match api.key {
        ApiKey::Produce => encode(v, {
            use produce_request::{PartitionProduceData, TopicProduceData};
            let partition =
                PartitionProduceData::default().with_index(1).with_records(Some(Bytes::from_static(b"abc")));
            let topic =
                TopicProduceData::default().with_name(TopicName(text("t"))).with_partition_data(vec![partition]);
            ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic])
        }),
        ApiKey::Fetch => encode(v, {
            use fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
            let topic = FetchTopic::default().with_partitions(vec![FetchPartition::default()]);
            let topic = if v < 13 { topic.with_topic(TopicName(text("t"))) } else { topic };
            let request = FetchRequest::default().with_topics(vec![topic]);
            let request = if v < 15 { request.with_replica_id(BrokerId(-1)) } else { request };
            match v {
                ..7 => request,
                _ => request.with_forgotten_topics_data(vec![ForgottenTopic::default().with_partitions(vec![1, 2])]),
            }
        }),
        ApiKey::ListOffsets => encode(v, {
            use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
            let topic = ListOffsetsTopic::default().with_partitions(vec![ListOffsetsPartition::default()]);
            ListOffsetsRequest::default().with_topics(vec![topic])
        }),
        ApiKey::Metadata => encode(v, {
            let topic = metadata_request::MetadataRequestTopic::default().with_name(Some(TopicName(text("t"))));
            MetadataRequest::default().with_topics(Some(vec![topic]))
        }),
        ApiKey::FindCoordinator => encode(
            v,
            match v {
                ..4 => FindCoordinatorRequest::default().with_key(text("g")),
                _ => FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g"), text("h")]),
            },
        ),
        ApiKey::ApiVersions => encode(
            v,
            match v {
                ..3 => ApiVersionsRequest::default(),
                _ => ApiVersionsRequest::default().with_client_software_name(text("c")),
            },
        ),
        ApiKey::CreateTopics => encode(v, {
            use create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig};
            let assignment = CreatableReplicaAssignment::default().with_broker_ids(vec![BrokerId(1)]);
            let config = CreatableTopicConfig::default().with_name(text("k")).with_value(Some(text("v")));
            let topic = CreatableTopic::default().with_name(TopicName(text("t")));
            let topic = topic.with_assignments(vec![assignment]).with_configs(vec![config]);
            CreateTopicsRequest::default().with_topics(vec![topic])
        }),
        ApiKey::InitProducerId => encode(v, {
            let request = InitProducerIdRequest::default().with_transactional_id(Some(TransactionalId(text("x"))));
            if v < 3 { request } else { request.with_producer_id(ProducerId(7)).with_producer_epoch(1) }
        }),
        other => panic!("{other:?} has no sample"),
    }
}

fn encode<T: Encodable>(version: i16, request: T) -> Bytes {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes, version).expect("a sample has a place in its version");
    bytes.freeze()
}

/// A whole frame without its size.
pub(crate) fn frame(api: &Api, version: i16) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(api.key as i16)
        .with_request_api_version(version)
        .with_correlation_id(77)
        .with_client_id(Some(text("a test")));
    let mut bytes = BytesMut::new();
    header.encode(&mut bytes, if api.is_flexible(version) { 2 } else { 1 }).expect("a header");
    bytes.extend_from_slice(&body(api, version));
    bytes.freeze()
}
