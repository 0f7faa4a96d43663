//! What requests mean: one file per family of APIs. Each handler turns a decoded request into a response, by way of the log.

mod acls;
mod cluster;
pub(crate) mod codes;
mod configs;
mod consumer_groups;
mod fetch;
mod group_admin;
mod group_offsets;
mod layout;
mod list_offsets;
mod members;
mod metadata;
mod operations;
mod owner_rights;
pub(crate) mod owners;
mod produce;
mod records;
mod sasl;
mod scram_users;
mod topics;
mod transactions;
mod txn_admin;
mod versions;

use std::cell::Cell;
use std::sync::Arc;

use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

use self::codes::Codes;
use crate::service::{Caller, Reply, Service};
use crate::wire::codec::{self, Head};

/// One request's surroundings.
pub(crate) struct Call<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) head: &'a Head,
    /// Who asks.
    pub(crate) caller: &'a Caller,
    /// What the client calls itself.
    pub(crate) client: &'a StrBytes,
    /// Why the connection is to be closed without an answer.
    dropped: Cell<Option<&'static str>>,
}

impl Call<'_> {
    pub(crate) fn version(&self) -> i16 {
        self.head.version
    }

    /// Closes the connection instead of answering.
    pub(crate) fn drop_connection(&self, why: &'static str) {
        self.dropped.set(Some(why));
    }
}

/// The handler of every API, by its request's type.
macro_rules! handlers {
    ($($key:ident: $request:ident by $handler:path,)*) => {
        /// Carries a request out.
        pub(crate) fn call(service: &Arc<Service>, caller: &Caller, head: &Head) -> Reply {
            let call = Call { service, head, caller, client: &head.client, dropped: Cell::new(None) };
            if !caller.session().admits(head.api.key) {
                return Reply::Close(format!("{:?} was asked for by somebody who hasn't proved who it is", head.api.key));
            }
            if call.api().is_err() {
                return Reply::Close(format!("{:?} is for those alone who may do everything", head.api.key));
            }
            tracing::trace!(connection = caller.connection, api = ?head.api.key, version = head.version, "a request");
            match head.api.key {
                ApiKey::Produce => match codec::request(head) {
                    Ok(request) => produce::produce(&call, request),
                    Err(refused) => Reply::Close(refused.to_string()),
                },
                ApiKey::Fetch => match codec::request(head) {
                    Ok(request) => fetch::fetch(&call, request),
                    Err(refused) => Reply::Close(refused.to_string()),
                },
                $(ApiKey::$key => run(&call, $handler),)*
                other => Reply::Close(format!("{other:?} is in the table and has no handler")),
            }
        }

        /// Whether a request that has passed the guard can be decoded.
        pub(crate) fn decodes(head: &Head) -> bool {
            match head.api.key {
                ApiKey::Produce => codec::request::<ProduceRequest>(head).is_ok(),
                ApiKey::Fetch => codec::request::<FetchRequest>(head).is_ok(),
                $(ApiKey::$key => codec::request::<$request>(head).is_ok(),)*
                _ => false,
            }
        }
    };
}

handlers! {
    ApiVersions: ApiVersionsRequest by versions::api_versions,
    Metadata: MetadataRequest by metadata::metadata,
    FindCoordinator: FindCoordinatorRequest by metadata::find_coordinator,
    ListOffsets: ListOffsetsRequest by list_offsets::list_offsets,
    CreateTopics: CreateTopicsRequest by topics::create_topics,
    DeleteTopics: DeleteTopicsRequest by topics::delete_topics,
    CreatePartitions: CreatePartitionsRequest by topics::create_partitions,
    DescribeConfigs: DescribeConfigsRequest by configs::describe,
    AlterConfigs: AlterConfigsRequest by configs::alter,
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest by configs::alter_some,
    DeleteRecords: DeleteRecordsRequest by records::delete,
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest by records::offset_for_epoch,
    JoinGroup: JoinGroupRequest by members::join,
    SyncGroup: SyncGroupRequest by members::sync,
    Heartbeat: HeartbeatRequest by members::heartbeat,
    LeaveGroup: LeaveGroupRequest by members::leave,
    OffsetCommit: OffsetCommitRequest by group_offsets::commit,
    OffsetFetch: OffsetFetchRequest by group_offsets::fetch,
    OffsetDelete: OffsetDeleteRequest by group_offsets::delete,
    DescribeGroups: DescribeGroupsRequest by group_admin::describe,
    ListGroups: ListGroupsRequest by group_admin::list,
    DeleteGroups: DeleteGroupsRequest by group_admin::delete,
    InitProducerId: InitProducerIdRequest by transactions::init_producer_id,
    AddPartitionsToTxn: AddPartitionsToTxnRequest by transactions::add_partitions,
    AddOffsetsToTxn: AddOffsetsToTxnRequest by transactions::add_offsets,
    TxnOffsetCommit: TxnOffsetCommitRequest by transactions::commit_offsets,
    EndTxn: EndTxnRequest by transactions::end,
    WriteTxnMarkers: WriteTxnMarkersRequest by txn_admin::write_markers,
    DescribeProducers: DescribeProducersRequest by txn_admin::describe_producers,
    ListTransactions: ListTransactionsRequest by txn_admin::list,
    DescribeTransactions: DescribeTransactionsRequest by txn_admin::describe,
    ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest by consumer_groups::heartbeat,
    ConsumerGroupDescribe: ConsumerGroupDescribeRequest by consumer_groups::describe,
    DescribeLogDirs: DescribeLogDirsRequest by layout::log_dirs,
    DescribeTopicPartitions: DescribeTopicPartitionsRequest by layout::topic_partitions,
    DescribeCluster: DescribeClusterRequest by cluster::describe,
    ListPartitionReassignments: ListPartitionReassignmentsRequest by cluster::reassignments,
    DescribeAcls: DescribeAclsRequest by acls::describe,
    CreateAcls: CreateAclsRequest by acls::create,
    DeleteAcls: DeleteAclsRequest by acls::delete,
    SaslHandshake: SaslHandshakeRequest by sasl::handshake,
    SaslAuthenticate: SaslAuthenticateRequest by sasl::authenticate,
    DescribeUserScramCredentials: DescribeUserScramCredentialsRequest by scram_users::describe,
    AlterUserScramCredentials: AlterUserScramCredentialsRequest by scram_users::alter,
}

fn run<Request: Decodable, Response: Encodable + HeaderVersion + Codes>(
    call: &Call<'_>,
    handler: impl FnOnce(&Call<'_>, Request) -> Response,
) -> Reply {
    match codec::request(call.head) {
        Ok(request) => {
            let response = handler(call, request);
            match call.dropped.get() {
                Some(why) => Reply::Close(why.to_string()),
                None => answer(call.service, call.head, &response),
            }
        }
        Err(refused) => Reply::Close(refused.to_string()),
    }
}

/// A response in the version of its request.
pub(crate) fn answer<Response: Encodable + HeaderVersion + Codes>(
    service: &Service,
    head: &Head,
    response: &Response,
) -> Reply {
    response.each(&mut |code| service.counters.failed(head.api.key, code));
    match codec::response(head.api.key, head.version, head.correlation, response) {
        Ok(frame) => Reply::Now(frame),
        Err(refused) => Reply::Close(refused.to_string()),
    }
}

pub(crate) use sasl::bare;
pub(crate) use versions::newest_versions;
