//! The server itself: `DescribeCluster`, `ListPartitionReassignments`.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
};

use super::Call;
use crate::access::acl::Operation;
use crate::errors::{NONE, text};
use crate::service::NODE;

const NO_OPERATIONS: i32 = i32::MIN;
/// Brokers, not controllers.
const BROKERS: i8 = 1;

pub(super) fn describe(call: &Call<'_>, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let service = call.service;
    if call.version() >= 1 && request.endpoint_type != BROKERS {
        let code = ResponseError::UnsupportedEndpointType.code();
        return DescribeClusterResponse::default().with_error_code(code);
    }
    let broker = DescribeClusterBroker::default()
        .with_broker_id(NODE)
        .with_host(text(call.caller.host.clone()))
        .with_port(call.caller.port.into());
    DescribeClusterResponse::default()
        .with_cluster_id(service.cluster_id())
        .with_controller_id(NODE)
        .with_brokers(vec![broker])
        .with_cluster_authorized_operations(NO_OPERATIONS)
}

/// One server has nobody to move a partition to.
pub(super) fn reassignments(
    call: &Call<'_>,
    _: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let allowed = call.cluster(Operation::Describe);
    ListPartitionReassignmentsResponse::default().with_error_code(allowed.err().map_or(NONE, |error| error.code()))
}
