//! What handlers ask before they do something: by whom, what, to what; and the error code that a refusal has there.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use super::ANONYMOUS;
use super::acl::{CLUSTER, Kind, Operation, Who};
use crate::api::Call;
use crate::service::Caller;

/// The APIs that ask by themselves, or need not: what isn't listed here is answered only to those who may do everything to the
/// cluster. So an API that was forgotten is closed, not open.
const ASK: &[ApiKey] = {
    use ApiKey::*;
    &[
        Produce,
        Fetch,
        ListOffsets,
        Metadata,
        OffsetCommit,
        OffsetFetch,
        FindCoordinator,
        JoinGroup,
        Heartbeat,
        LeaveGroup,
        SyncGroup,
        DescribeGroups,
        ListGroups,
        SaslHandshake,
        ApiVersions,
        CreateTopics,
        DeleteTopics,
        DeleteRecords,
        InitProducerId,
        OffsetForLeaderEpoch,
        AddPartitionsToTxn,
        AddOffsetsToTxn,
        EndTxn,
        WriteTxnMarkers,
        TxnOffsetCommit,
        DescribeAcls,
        CreateAcls,
        DeleteAcls,
        DescribeConfigs,
        AlterConfigs,
        SaslAuthenticate,
        CreatePartitions,
        DeleteGroups,
        IncrementalAlterConfigs,
        ListPartitionReassignments,
        OffsetDelete,
        DescribeUserScramCredentials,
        AlterUserScramCredentials,
        ConsumerGroupHeartbeat,
        ConsumerGroupDescribe,
        DescribeCluster,
        DescribeLogDirs,
        DescribeTopicPartitions,
        DescribeProducers,
        DescribeTransactions,
        ListTransactions,
    ]
};

impl Caller {
    /// Who it is to rules.
    pub(crate) fn who(&self) -> Who<'_> {
        Who { user: self.user.as_deref().unwrap_or(ANONYMOUS), address: &self.address }
    }
}

impl Call<'_> {
    fn who(&self) -> Who<'_> {
        self.caller.who()
    }

    fn ask(&self, operation: Operation, kind: Kind, name: &str) -> bool {
        let allowed = self.service.access.allowed(&self.who(), operation, kind, name);
        if !allowed {
            let Who { user, address } = self.who();
            tracing::debug!(user, address, ?operation, ?kind, name, api = ?self.head.api.key, "denied");
        }
        allowed
    }

    /// Whether the caller may do that to a topic.
    pub(crate) fn topic(&self, operation: Operation, name: &str) -> Result<(), ResponseError> {
        let allowed = self.ask(operation, Kind::Topic, name);
        allowed.then_some(()).ok_or(ResponseError::TopicAuthorizationFailed)
    }

    /// Whether the caller may do that to a group.
    pub(crate) fn group(&self, operation: Operation, name: &str) -> Result<(), ResponseError> {
        let allowed = self.ask(operation, Kind::Group, name);
        allowed.then_some(()).ok_or(ResponseError::GroupAuthorizationFailed)
    }

    /// Whether the caller may do that to a transactional id.
    pub(crate) fn transactional_id(&self, operation: Operation, id: &str) -> Result<(), ResponseError> {
        let allowed = self.ask(operation, Kind::TransactionalId, id);
        allowed.then_some(()).ok_or(ResponseError::TransactionalIdAuthorizationFailed)
    }

    /// Whether the caller may do that to the server.
    pub(crate) fn cluster(&self, operation: Operation) -> Result<(), ResponseError> {
        let allowed = self.ask(operation, Kind::Cluster, CLUSTER);
        allowed.then_some(()).ok_or(ResponseError::ClusterAuthorizationFailed)
    }

    /// Whether the caller may have a producer id without a transactional one: who may write somewhere may (KIP-679).
    pub(crate) fn idempotent(&self) -> Result<(), ResponseError> {
        match self.service.access.allowed_somewhere(&self.who(), Operation::Write, Kind::Topic) {
            true => Ok(()),
            false => self.cluster(Operation::IdempotentWrite),
        }
    }

    /// Whether a topic of this name may be created.
    pub(crate) fn create(&self, name: &str) -> Result<(), ResponseError> {
        match self.service.access.allowed(&self.who(), Operation::Create, Kind::Cluster, CLUSTER) {
            true => Ok(()),
            false => self.topic(Operation::Create, name),
        }
    }

    /// Whether this API may be answered at all; its handler asks further.
    pub(crate) fn api(&self) -> Result<(), ResponseError> {
        if ASK.contains(&self.head.api.key) { Ok(()) } else { self.cluster(Operation::All) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::apis::APIS;

    #[test]
    fn every_api_that_is_served_asks() {
        let forgotten: Vec<ApiKey> = APIS.iter().map(|api| api.key).filter(|key| !ASK.contains(key)).collect();
        assert!(
            forgotten.is_empty(),
            "{forgotten:?}: have their handlers ask (`call.topic(..)`, `call.group(..)`), then list them in ASK"
        );
    }
}
