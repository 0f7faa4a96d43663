//! What decoding a request can cost: the memory per byte that its frame may turn into, worked out from the sizes of structs.
//!
//! The guard lets an array through only if the bytes of its elements are there, so a request's memory is a multiple of its
//! bytes. How large a multiple follows from the dearest bytes there are: one struct with one tagged field nobody knows, which
//! takes four bytes of a frame (a field, the count of tags, tag, length) and becomes the struct and a node of a map.

use std::mem::size_of;

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

/// The largest of these types.
macro_rules! largest {
    ($($kind:ty),* $(,)?) => {{
        let sizes = [$(size_of::<$kind>()),*];
        let (mut largest, mut at) = (0, 0);
        while at < sizes.len() {
            largest = if sizes[at] > largest { sizes[at] } else { largest };
            at += 1;
        }
        largest
    }};
}

/// The largest struct that is an element of an array in a request.
const ELEMENT_BYTES: usize = largest!(
    produce_request::TopicProduceData,
    produce_request::PartitionProduceData,
    fetch_request::FetchTopic,
    fetch_request::FetchPartition,
    fetch_request::ForgottenTopic,
    list_offsets_request::ListOffsetsTopic,
    list_offsets_request::ListOffsetsPartition,
    metadata_request::MetadataRequestTopic,
    offset_commit_request::OffsetCommitRequestTopic,
    offset_commit_request::OffsetCommitRequestPartition,
    offset_fetch_request::OffsetFetchRequestTopic,
    offset_fetch_request::OffsetFetchRequestGroup,
    offset_fetch_request::OffsetFetchRequestTopics,
    join_group_request::JoinGroupRequestProtocol,
    leave_group_request::MemberIdentity,
    sync_group_request::SyncGroupRequestAssignment,
    create_topics_request::CreatableTopic,
    create_topics_request::CreatableReplicaAssignment,
    create_topics_request::CreatableTopicConfig,
    delete_topics_request::DeleteTopicState,
    delete_records_request::DeleteRecordsTopic,
    offset_for_leader_epoch_request::OffsetForLeaderTopic,
    add_partitions_to_txn_request::AddPartitionsToTxnTopic,
    write_txn_markers_request::WritableTxnMarker,
    write_txn_markers_request::WritableTxnMarkerTopic,
    txn_offset_commit_request::TxnOffsetCommitRequestTopic,
    txn_offset_commit_request::TxnOffsetCommitRequestPartition,
    describe_configs_request::DescribeConfigsResource,
    alter_configs_request::AlterConfigsResource,
    alter_configs_request::AlterableConfig,
    incremental_alter_configs_request::AlterConfigsResource,
    incremental_alter_configs_request::AlterableConfig,
    create_partitions_request::CreatePartitionsTopic,
    list_partition_reassignments_request::ListPartitionReassignmentsTopics,
    offset_delete_request::OffsetDeleteRequestTopic,
    describe_producers_request::TopicRequest,
    create_acls_request::AclCreation,
    delete_acls_request::DeleteAclsFilter,
    describe_user_scram_credentials_request::UserName,
    alter_user_scram_credentials_request::ScramCredentialDeletion,
    alter_user_scram_credentials_request::ScramCredentialUpsertion,
    describe_log_dirs_request::DescribableLogDirTopic,
    describe_topic_partitions_request::TopicRequest,
    consumer_group_heartbeat_request::TopicPartitions,
    StrBytes,
);

/// A node of the map of unknown tagged fields: eleven keys and values, a parent, two small numbers.
const TAGS_NODE_BYTES: usize = 11 * (size_of::<i32>() + size_of::<Bytes>()) + size_of::<usize>() + 8;

/// The most bytes of memory that one byte of a request can become, the frame itself and a copy of it included.
pub const BYTES_PER_BYTE: usize = 2 + {
    // Without tagged fields a struct has a field and a count of tags; a plain string has a length alone.
    let plain = ELEMENT_BYTES.div_ceil(2);
    let tagged = (ELEMENT_BYTES + TAGS_NODE_BYTES).div_ceil(4);
    let string = size_of::<StrBytes>();
    let dearest = if plain > tagged { plain } else { tagged };
    if dearest > string { dearest } else { string }
};

/// What a request may cost whatever its size: the request itself, and the words of an error.
pub const BYTES_ALWAYS: usize = 64 << 10;
