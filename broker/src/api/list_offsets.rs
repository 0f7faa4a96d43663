//! `ListOffsets`: offsets by name and by time.

use std::collections::BTreeSet;

use cutwater_partition_log::{FetchError, Isolation, OffsetSpec, Topic};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::Call;
use super::fetch::{check_epoch, isolation};
use crate::access::acl::Operation;
use crate::errors::of_fetch;
use crate::service::LEADER_EPOCH;

/// The last offset on tiered storage, of which there is none.
const LATEST_TIERED: i64 = -5;
const EARLIEST_LOCAL: i64 = -4;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

pub(super) fn list_offsets(call: &Call<'_>, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let isolation = isolation(request.isolation_level);
    let topics = request.topics.into_iter().map(|asked| {
        let allowed = call.topic(Operation::Describe, &asked.name);
        let topic = call.service.log.topic(&asked.name);
        let mut seen = BTreeSet::new();
        let mut twice: BTreeSet<i32> = BTreeSet::new();
        for partition in &asked.partitions {
            if !seen.insert(partition.partition_index) {
                twice.insert(partition.partition_index);
            }
        }
        // Once in the answer, however often it was asked for.
        let once = asked.partitions.iter().filter(|partition| seen.remove(&partition.partition_index));
        let partitions = once.map(|partition| {
            let response = ListOffsetsPartitionResponse::default().with_partition_index(partition.partition_index);
            let single = match twice.contains(&partition.partition_index) {
                true => Err(ResponseError::InvalidRequest),
                false => Ok(()),
            };
            match allowed.and(single).and_then(|()| find(call, topic.as_ref(), partition, isolation)) {
                Ok((offset, timestamp)) => {
                    // "Nothing found" has no epoch either, and before version 4 the answer has no place for one.
                    let epoch = if offset >= 0 && call.version() >= 4 { LEADER_EPOCH } else { -1 };
                    response.with_offset(offset).with_timestamp(timestamp).with_leader_epoch(epoch)
                }
                Err(error) => response.with_error_code(error.code()).with_offset(-1).with_timestamp(-1),
            }
        });
        ListOffsetsTopicResponse::default().with_partitions(partitions.collect()).with_name(asked.name)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

/// Offset and timestamp; -1 where there is none.
fn find(
    call: &Call<'_>,
    topic: Option<&Topic>,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<(i64, i64), ResponseError> {
    let topic = topic.ok_or(ResponseError::UnknownTopicOrPartition)?;
    check_epoch(asked.current_leader_epoch)?;
    let spec = match asked.timestamp {
        LATEST => OffsetSpec::Latest,
        EARLIEST => OffsetSpec::Earliest,
        EARLIEST_LOCAL if call.version() >= 8 => OffsetSpec::Earliest,
        MAX_TIMESTAMP if call.version() >= 7 => OffsetSpec::MaxTimestamp,
        LATEST_TIERED if call.version() >= 9 => return Ok((-1, -1)),
        time if time >= 0 => OffsetSpec::Time(time),
        _ => return Err(ResponseError::UnsupportedVersion),
    };
    let partition = u32::try_from(asked.partition_index).map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    let found = call.service.log.find_offset(topic.id, partition, spec, isolation);
    let found = found.map_err(|e: FetchError| of_fetch(&e))?;
    Ok(found.map_or((-1, -1), |found| (found.offset.0.cast_signed(), found.timestamp_ms.unwrap_or(-1))))
}
