//! The error codes in a response, wherever they stand in it: what the counters of errors count.

use kafka_protocol::messages::add_partitions_to_txn_response::AddPartitionsToTxnTopicResult;
use kafka_protocol::messages::*;

/// A response whose error codes can be looked through.
pub(crate) trait Codes {
    /// Calls `see` with each error code, 0 (none) among them.
    fn each(&self, see: &mut dyn FnMut(i16));
}

/// One code behind a path of lists.
macro_rules! code {
    ($at:expr, $see:ident,) => { $see($at.error_code) };
    ($at:expr, $see:ident, $list:ident $($rest:ident)*) => {
        for inside in &$at.$list { code!(inside, $see, $($rest)*); }
    };
}

/// For each response the lists that lead to its codes; `[]` is a code of its own.
macro_rules! codes {
    ($($response:ident: $([$($path:ident)*])*;)*) => {
        $(impl Codes for $response {
            fn each(&self, see: &mut dyn FnMut(i16)) {
                $(code!(self, see, $($path)*);)*
            }
        })*
    };
}

codes! {
    AddOffsetsToTxnResponse: [];
    AlterConfigsResponse: [responses];
    AlterUserScramCredentialsResponse: [results];
    ApiVersionsResponse: [];
    ConsumerGroupDescribeResponse: [groups];
    ConsumerGroupHeartbeatResponse: [];
    CreateAclsResponse: [results];
    CreatePartitionsResponse: [results];
    CreateTopicsResponse: [topics];
    DeleteAclsResponse: [filter_results];
    DeleteGroupsResponse: [results];
    DeleteRecordsResponse: [topics partitions];
    DeleteTopicsResponse: [responses];
    DescribeAclsResponse: [];
    DescribeClusterResponse: [];
    DescribeConfigsResponse: [results];
    DescribeGroupsResponse: [groups];
    DescribeLogDirsResponse: [] [results];
    DescribeProducersResponse: [topics partitions];
    DescribeTopicPartitionsResponse: [topics] [topics partitions];
    DescribeTransactionsResponse: [transaction_states];
    DescribeUserScramCredentialsResponse: [] [results];
    EndTxnResponse: [];
    FetchResponse: [] [responses partitions];
    FindCoordinatorResponse: [] [coordinators];
    HeartbeatResponse: [];
    IncrementalAlterConfigsResponse: [responses];
    InitProducerIdResponse: [];
    JoinGroupResponse: [];
    LeaveGroupResponse: [] [members];
    ListGroupsResponse: [];
    ListOffsetsResponse: [topics partitions];
    ListPartitionReassignmentsResponse: [];
    ListTransactionsResponse: [];
    MetadataResponse: [topics] [topics partitions];
    OffsetCommitResponse: [topics partitions];
    OffsetDeleteResponse: [] [topics partitions];
    OffsetFetchResponse: [] [topics partitions] [groups] [groups topics partitions];
    OffsetForLeaderEpochResponse: [topics partitions];
    ProduceResponse: [responses partition_responses];
    SaslAuthenticateResponse: [];
    SaslHandshakeResponse: [];
    SyncGroupResponse: [];
    TxnOffsetCommitResponse: [topics partitions];
    WriteTxnMarkersResponse: [markers topics partitions];
}

impl Codes for AddPartitionsToTxnResponse {
    fn each(&self, see: &mut dyn FnMut(i16)) {
        see(self.error_code);
        let by_id = self.results_by_transaction.iter().flat_map(|result| &result.topic_results);
        let topics = self.results_by_topic_v3_and_below.iter().chain(by_id);
        let partitions = topics.flat_map(|topic: &AddPartitionsToTxnTopicResult| &topic.results_by_partition);
        partitions.for_each(|partition| see(partition.partition_error_code));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_at_every_depth() {
        use kafka_protocol::messages::offset_fetch_response::*;
        let partition = OffsetFetchResponsePartitions::default().with_error_code(3);
        let topic = OffsetFetchResponseTopics::default().with_partitions(vec![partition.clone(), partition]);
        let group = OffsetFetchResponseGroup::default().with_error_code(2).with_topics(vec![topic]);
        let mut seen = Vec::new();
        OffsetFetchResponse::default().with_error_code(1).with_groups(vec![group]).each(&mut |code| seen.push(code));
        assert_eq!(seen, [1, 2, 3, 3]);
    }
}
