//! "What may I do here?": the sets of operations that descriptions carry for whoever asks (KIP-430), by Kafka's numbers.

use super::Call;
use crate::access::acl::Operation;

/// Nobody asked.
pub(super) const UNASKED: i32 = i32::MIN;

/// What can be done to a topic at all.
const TOPIC: [Operation; 8] = [
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];
/// To a group.
const GROUP: [Operation; 5] =
    [Operation::Read, Operation::Delete, Operation::Describe, Operation::DescribeConfigs, Operation::AlterConfigs];
/// To the server.
const CLUSTER: [Operation; 7] = [
    Operation::Create,
    Operation::Alter,
    Operation::Describe,
    Operation::ClusterAction,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::IdempotentWrite,
];

fn bits(all: &[Operation], allowed: impl Fn(Operation) -> bool) -> i32 {
    all.iter().filter(|operation| allowed(**operation)).fold(0, |bits, operation| bits | 1 << (*operation as i8))
}

/// What the caller may do to a topic.
pub(super) fn of_topic(call: &Call<'_>, name: &str) -> i32 {
    bits(&TOPIC, |operation| call.topic(operation, name).is_ok())
}

/// What the caller may do to a group.
pub(super) fn of_group(call: &Call<'_>, name: &str) -> i32 {
    bits(&GROUP, |operation| call.group(operation, name).is_ok())
}

/// What the caller may do to the server.
pub(super) fn of_cluster(call: &Call<'_>) -> i32 {
    bits(&CLUSTER, |operation| call.cluster(operation).is_ok())
}
