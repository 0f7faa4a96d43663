//! The server itself: `DescribeCluster`, `ListPartitionReassignments`.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
};

use super::operations::UNASKED;
use super::{Call, operations};
use crate::access::acl::Operation;
use crate::errors::{NONE, text};
use crate::service::NODE;

/// Kinds of endpoints.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn describe(call: &Call<'_>, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let service = call.service;
    if call.version() >= 1 && request.endpoint_type != BROKERS {
        let error = match request.endpoint_type {
            CONTROLLERS => ResponseError::MismatchedEndpointType,
            _ => ResponseError::UnsupportedEndpointType,
        };
        return DescribeClusterResponse::default().with_error_code(error.code());
    }
    let broker = DescribeClusterBroker::default()
        .with_broker_id(NODE)
        .with_host(text(call.caller.host.clone()))
        .with_port(call.caller.port.into());
    let asked = request.include_cluster_authorized_operations;
    let allowed = if asked { operations::of_cluster(call) } else { UNASKED };
    DescribeClusterResponse::default()
        .with_cluster_id(service.cluster_id())
        .with_controller_id(NODE)
        .with_brokers(vec![broker])
        .with_cluster_authorized_operations(allowed)
}

/// One server has nobody to move a partition to.
pub(super) fn reassignments(
    call: &Call<'_>,
    _: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let allowed = call.cluster(Operation::Describe);
    ListPartitionReassignmentsResponse::default().with_error_code(allowed.err().map_or(NONE, |error| error.code()))
}
