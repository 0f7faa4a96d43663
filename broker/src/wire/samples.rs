//! One request of every API, with something in every array, in every version that is served. For tests and fuzzing.

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
            use fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState};
            let partition = FetchPartition::default();
            let partition =
                if v < 17 { partition } else { partition.with_replica_directory_id(uuid::Uuid::from_u128(9)) };
            let topic = FetchTopic::default().with_partitions(vec![partition]);
            let topic = if v < 13 { topic.with_topic(TopicName(text("t"))) } else { topic };
            let request = FetchRequest::default().with_topics(vec![topic]);
            let request = match v {
                ..15 => request.with_replica_id(BrokerId(-1)),
                _ => request.with_replica_state(ReplicaState::default().with_replica_epoch(3)),
            };
            let request = if v < 12 { request } else { request.with_cluster_id(Some(text("c"))) };
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
        ApiKey::OffsetCommit => encode(v, {
            use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
            let partition = OffsetCommitRequestPartition::default().with_committed_metadata(Some(text("m")));
            let topic = OffsetCommitRequestTopic::default().with_name(TopicName(text("t")));
            OffsetCommitRequest::default().with_topics(vec![topic.with_partitions(vec![partition])])
        }),
        ApiKey::OffsetFetch => encode(v, {
            use offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
            match v {
                ..8 => {
                    let topic = OffsetFetchRequestTopic::default().with_partition_indexes(vec![0, 1]);
                    OffsetFetchRequest::default().with_topics(Some(vec![topic]))
                }
                _ => {
                    let topic = OffsetFetchRequestTopics::default().with_partition_indexes(vec![0, 1]);
                    let group = OffsetFetchRequestGroup::default().with_topics(Some(vec![topic]));
                    OffsetFetchRequest::default().with_groups(vec![group])
                }
            }
        }),
        ApiKey::JoinGroup => encode(v, {
            let protocol = join_group_request::JoinGroupRequestProtocol::default().with_name(text("range"));
            let protocol = protocol.with_metadata(Bytes::from_static(b"meta"));
            JoinGroupRequest::default().with_group_id(GroupId(text("g"))).with_protocols(vec![protocol])
        }),
        ApiKey::Heartbeat => encode(v, HeartbeatRequest::default().with_member_id(text("m"))),
        ApiKey::LeaveGroup => encode(
            v,
            match v {
                ..3 => LeaveGroupRequest::default().with_member_id(text("m")),
                _ => {
                    let member = leave_group_request::MemberIdentity::default().with_member_id(text("m"));
                    LeaveGroupRequest::default().with_members(vec![member])
                }
            },
        ),
        ApiKey::SyncGroup => encode(v, {
            let assignment = sync_group_request::SyncGroupRequestAssignment::default().with_member_id(text("m"));
            SyncGroupRequest::default().with_assignments(vec![assignment])
        }),
        ApiKey::DescribeGroups => encode(v, DescribeGroupsRequest::default().with_groups(vec![GroupId(text("g"))])),
        ApiKey::ListGroups => encode(
            v,
            match v {
                ..4 => ListGroupsRequest::default(),
                _ => ListGroupsRequest::default().with_states_filter(vec![text("Stable")]),
            },
        ),
        ApiKey::DeleteTopics => encode(
            v,
            match v {
                ..6 => DeleteTopicsRequest::default().with_topic_names(vec![TopicName(text("t"))]),
                _ => {
                    DeleteTopicsRequest::default().with_topics(vec![delete_topics_request::DeleteTopicState::default()])
                }
            },
        ),
        ApiKey::DeleteRecords => encode(v, {
            use delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
            let topic = DeleteRecordsTopic::default().with_partitions(vec![DeleteRecordsPartition::default()]);
            DeleteRecordsRequest::default().with_topics(vec![topic])
        }),
        ApiKey::OffsetForLeaderEpoch => encode(v, {
            use offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
            let topic = OffsetForLeaderTopic::default().with_partitions(vec![OffsetForLeaderPartition::default()]);
            OffsetForLeaderEpochRequest::default().with_topics(vec![topic])
        }),
        ApiKey::AddPartitionsToTxn => encode(v, {
            let topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default().with_partitions(vec![1, 2]);
            AddPartitionsToTxnRequest::default().with_v3_and_below_topics(vec![topic])
        }),
        ApiKey::AddOffsetsToTxn => encode(v, AddOffsetsToTxnRequest::default().with_group_id(GroupId(text("g")))),
        ApiKey::EndTxn => encode(v, EndTxnRequest::default().with_committed(true)),
        ApiKey::WriteTxnMarkers => encode(v, {
            use write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
            let topic = WritableTxnMarkerTopic::default().with_partition_indexes(vec![0]);
            WriteTxnMarkersRequest::default().with_markers(vec![WritableTxnMarker::default().with_topics(vec![topic])])
        }),
        ApiKey::TxnOffsetCommit => encode(v, {
            use txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic};
            let topic = TxnOffsetCommitRequestTopic::default();
            let topic = topic.with_partitions(vec![TxnOffsetCommitRequestPartition::default()]);
            TxnOffsetCommitRequest::default().with_topics(vec![topic])
        }),
        ApiKey::SaslHandshake => encode(v, SaslHandshakeRequest::default().with_mechanism(text("SCRAM-SHA-256"))),
        ApiKey::SaslAuthenticate => {
            encode(v, SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"n,,n=a,r=b")))
        }
        ApiKey::CreateAcls => encode(v, {
            let creation = create_acls_request::AclCreation::default().with_resource_name(text("t"));
            CreateAclsRequest::default().with_creations(vec![creation])
        }),
        ApiKey::DeleteAcls => encode(v, {
            let filter = delete_acls_request::DeleteAclsFilter::default().with_principal_filter(Some(text("User:a")));
            DeleteAclsRequest::default().with_filters(vec![filter])
        }),
        ApiKey::DescribeUserScramCredentials => encode(v, {
            let user = describe_user_scram_credentials_request::UserName::default().with_name(text("a"));
            DescribeUserScramCredentialsRequest::default().with_users(Some(vec![user]))
        }),
        ApiKey::AlterUserScramCredentials => encode(v, {
            use alter_user_scram_credentials_request::{ScramCredentialDeletion, ScramCredentialUpsertion};
            let set = ScramCredentialUpsertion::default().with_salt(Bytes::from_static(b"salt"));
            AlterUserScramCredentialsRequest::default()
                .with_deletions(vec![ScramCredentialDeletion::default().with_name(text("a"))])
                .with_upsertions(vec![set.with_salted_password(Bytes::from_static(b"salted"))])
        }),
        ApiKey::DescribeAcls => encode(v, DescribeAclsRequest::default()),
        ApiKey::DescribeConfigs => encode(v, {
            let resource = describe_configs_request::DescribeConfigsResource::default();
            let resource = resource.with_configuration_keys(Some(vec![text("k")]));
            DescribeConfigsRequest::default().with_resources(vec![resource])
        }),
        ApiKey::AlterConfigs => encode(v, {
            use alter_configs_request::{AlterConfigsResource, AlterableConfig};
            let resource = AlterConfigsResource::default().with_configs(vec![AlterableConfig::default()]);
            AlterConfigsRequest::default().with_resources(vec![resource])
        }),
        ApiKey::IncrementalAlterConfigs => encode(v, {
            use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
            let resource = AlterConfigsResource::default().with_configs(vec![AlterableConfig::default()]);
            IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
        }),
        ApiKey::CreatePartitions => encode(v, {
            use create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
            let assignment = CreatePartitionsAssignment::default().with_broker_ids(vec![BrokerId(1)]);
            let topic = CreatePartitionsTopic::default().with_assignments(Some(vec![assignment]));
            CreatePartitionsRequest::default().with_topics(vec![topic])
        }),
        ApiKey::DeleteGroups => encode(v, DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))])),
        ApiKey::ListPartitionReassignments => encode(v, {
            let topic = list_partition_reassignments_request::ListPartitionReassignmentsTopics::default();
            let topic = topic.with_partition_indexes(vec![0]);
            ListPartitionReassignmentsRequest::default().with_topics(Some(vec![topic]))
        }),
        ApiKey::OffsetDelete => encode(v, {
            use offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
            let topic = OffsetDeleteRequestTopic::default();
            let topic = topic.with_partitions(vec![OffsetDeleteRequestPartition::default()]);
            OffsetDeleteRequest::default().with_topics(vec![topic])
        }),
        ApiKey::DescribeCluster => encode(v, DescribeClusterRequest::default()),
        ApiKey::DescribeProducers => encode(v, {
            let topic = describe_producers_request::TopicRequest::default().with_partition_indexes(vec![0]);
            DescribeProducersRequest::default().with_topics(vec![topic])
        }),
        ApiKey::DescribeTransactions => encode(v, {
            DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text("x"))])
        }),
        ApiKey::ListTransactions => encode(v, {
            let request = ListTransactionsRequest::default().with_state_filters(vec![text("Ongoing")]);
            request.with_producer_id_filters(vec![ProducerId(1)])
        }),
        ApiKey::ConsumerGroupHeartbeat => encode(v, {
            let topic = consumer_group_heartbeat_request::TopicPartitions::default().with_partitions(vec![0, 1]);
            let regex = (v >= 1).then(|| text("t.*"));
            ConsumerGroupHeartbeatRequest::default()
                .with_subscribed_topic_regex(regex)
                .with_group_id(GroupId(text("g")))
                .with_subscribed_topic_names(Some(vec![TopicName(text("t"))]))
                .with_topic_partitions(Some(vec![topic]))
        }),
        ApiKey::ConsumerGroupDescribe => {
            encode(v, ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]))
        }
        ApiKey::DescribeLogDirs => encode(v, {
            let topic = describe_log_dirs_request::DescribableLogDirTopic::default().with_partitions(vec![0, 1]);
            DescribeLogDirsRequest::default().with_topics(Some(vec![topic]))
        }),
        ApiKey::DescribeTopicPartitions => encode(v, {
            let topic = describe_topic_partitions_request::TopicRequest::default().with_name(TopicName(text("t")));
            let cursor = describe_topic_partitions_request::Cursor::default().with_topic_name(TopicName(text("t")));
            DescribeTopicPartitionsRequest::default().with_topics(vec![topic]).with_cursor(Some(cursor))
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
