//! `DeleteRecords` and `OffsetForLeaderEpoch`.

use cutwater_partition_log::{FetchError, Offset, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, TopicName,
};

use super::Call;
use super::fetch::check_epoch;
use crate::access::acl::Operation;
use crate::errors::of_fetch;
use crate::service::LEADER_EPOCH;

/// "All there is".
const HIGH_WATERMARK: i64 = -1;
const NO_OFFSET: i64 = -1;

fn place(
    call: &Call<'_>,
    operation: Operation,
    topic: &TopicName,
    partition: i32,
) -> Result<TopicPartition, ResponseError> {
    call.topic(operation, topic)?;
    let topic = call.service.log.topic(topic).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let partition = u32::try_from(partition).ok().filter(|partition| *partition < topic.partitions);
    Ok(TopicPartition::new(topic.id, partition.ok_or(ResponseError::UnknownTopicOrPartition)?))
}

pub(super) fn delete(call: &Call<'_>, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|asked| {
        let partitions = asked.partitions.iter().map(|partition| {
            let before = match partition.offset {
                HIGH_WATERMARK => Ok(None),
                offset => u64::try_from(offset).map(|offset| Some(Offset(offset))),
            };
            let done = place(call, Operation::Delete, &asked.name, partition.partition_index).and_then(|at| {
                let before = before.map_err(|_| ResponseError::OffsetOutOfRange)?;
                // A compacted topic is a table: its oldest rows are no older than the others.
                if !call.service.log.cleanup(at.topic).delete {
                    return Err(ResponseError::PolicyViolation);
                }
                call.service.log.delete_records(at, before).map_err(|e: FetchError| of_fetch(&e))
            });
            let result = DeleteRecordsPartitionResult::default().with_partition_index(partition.partition_index);
            match done {
                Ok(start) => result.with_low_watermark(start.0.cast_signed()),
                Err(error) => result.with_error_code(error.code()).with_low_watermark(NO_OFFSET),
            }
        });
        DeleteRecordsTopicResult::default().with_partitions(partitions.collect()).with_name(asked.name)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

pub(super) fn offset_for_epoch(call: &Call<'_>, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|asked| {
        let partitions = asked.partitions.iter().map(|partition| {
            let found = place(call, Operation::Describe, &asked.topic, partition.partition).and_then(|at| {
                check_epoch(partition.current_leader_epoch)?;
                // There is one epoch, so it ends where the partition does; later ones are unknown.
                let known = partition.leader_epoch == LEADER_EPOCH;
                let offsets = call.service.log.offsets(at.topic, at.partition).map_err(|e| of_fetch(&e))?;
                Ok(known.then_some(offsets.high_watermark))
            });
            let end = EpochEndOffset::default().with_partition(partition.partition);
            match found {
                Ok(Some(offset)) => end.with_leader_epoch(LEADER_EPOCH).with_end_offset(offset.0.cast_signed()),
                Ok(None) => end.with_leader_epoch(-1).with_end_offset(NO_OFFSET),
                Err(error) => end.with_error_code(error.code()).with_leader_epoch(-1).with_end_offset(NO_OFFSET),
            }
        });
        OffsetForLeaderTopicResult::default().with_partitions(partitions.collect()).with_topic(asked.topic)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}
