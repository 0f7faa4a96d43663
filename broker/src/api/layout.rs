//! What there is and where it lies: `DescribeTopicPartitions` (page by page) and `DescribeLogDirs` (bytes on the disk).

use std::collections::{BTreeMap, BTreeSet};

use cutwater_partition_log::{Topic, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};

use super::operations::UNASKED;
use super::{Call, operations};
use crate::access::acl::Operation;
use crate::errors::{NONE, of_fetch, text};
use crate::service::{LEADER_EPOCH, NODE};
use crate::topic_ids;

/// The most partitions of a page, whatever is asked for (Kafka's `max.request.partition.size.limit`).
const PAGE: usize = 2000;
/// "Not known" of the bytes of a disk.
const UNKNOWN_BYTES: i64 = -1;

/// Topics in the order of their names, from the cursor on: the only order in which pages can be gone through.
pub(super) fn topic_partitions(
    call: &Call<'_>,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let log = &call.service.log;
    let names: BTreeSet<String> = match request.topics.is_empty() {
        true => {
            let names = log.topics().into_iter().map(|topic| topic.name);
            names.filter(|name| call.topic(Operation::Describe, name).is_ok()).collect()
        }
        false => request.topics.iter().map(|topic| topic.name.to_string()).collect(),
    };
    let (first, mut from) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.to_string(), u32::try_from(cursor.partition_index).unwrap_or(0)),
        None => (String::new(), 0),
    };
    // A page goes on where another one ended: at a topic that is asked for.
    let named = request.topics.is_empty() || names.contains(&first);
    if request.cursor.as_ref().is_some_and(|cursor| cursor.partition_index < 0 || !named) {
        let refused = |name: &str| unknown(name).with_error_code(ResponseError::InvalidRequest.code());
        let refused = request.topics.iter().map(|topic| refused(&topic.name)).collect();
        return DescribeTopicPartitionsResponse::default().with_topics(refused);
    }
    let mut room = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PAGE);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.into_iter().filter(|name| *name >= first) {
        let begin = if name == first { std::mem::take(&mut from) } else { 0 };
        if room == 0 {
            return response.with_next_cursor(Some(cursor(&name, begin)));
        }
        if let Err(error) = call.topic(Operation::Describe, &name) {
            response.topics.push(unknown(&name).with_error_code(error.code()));
            continue;
        }
        let Some(topic) = log.topic(&name) else {
            response.topics.push(unknown(&name).with_topic_authorized_operations(operations::of_topic(call, &name)));
            continue;
        };
        let end = topic.partitions.min(begin.saturating_add(u32::try_from(room).unwrap_or(u32::MAX)));
        room -= end.saturating_sub(begin) as usize;
        response
            .topics
            .push(known(&topic, begin..end).with_topic_authorized_operations(operations::of_topic(call, &name)));
        if end < topic.partitions {
            return response.with_next_cursor(Some(cursor(&name, end)));
        }
    }
    response
}

fn cursor(topic: &str, partition: u32) -> Cursor {
    Cursor::default().with_topic_name(topic_ids::name(topic)).with_partition_index(partition.cast_signed())
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let valid = cutwater_partition_log::topic::check_name(name).is_ok();
    let error = if valid { ResponseError::UnknownTopicOrPartition } else { ResponseError::InvalidTopicException };
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(error.code())
        .with_name(Some(topic_ids::name(name)))
        .with_topic_authorized_operations(UNASKED)
}

fn known(topic: &Topic, partitions: std::ops::Range<u32>) -> DescribeTopicPartitionsResponseTopic {
    let partitions = partitions.map(|index| {
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index.cast_signed())
            .with_leader_id(NODE)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![NODE])
            .with_isr_nodes(vec![NODE])
            .with_eligible_leader_replicas(Some(vec![]))
            .with_last_known_elr(Some(vec![]))
    });
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(NONE)
        .with_name(Some(topic_ids::name(&topic.name)))
        .with_topic_id(topic_ids::uuid(topic.id, &topic.name))
        .with_partitions(partitions.collect())
}

/// There is one directory. What is durable in the write-ahead log alone isn't in a partition's size yet.
pub(super) fn log_dirs(call: &Call<'_>, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    if let Err(error) = call.cluster(Operation::Describe) {
        let response = DescribeLogDirsResponse::default();
        return if call.version() >= 3 { response.with_error_code(error.code()) } else { response };
    }
    let log = &call.service.log;
    let asked: BTreeMap<String, Vec<u32>> = match request.topics {
        None => log.topics().into_iter().map(|topic| (topic.name, (0..topic.partitions).collect())).collect(),
        Some(topics) => {
            let partitions =
                |asked: Vec<i32>| asked.into_iter().filter_map(|index| u32::try_from(index).ok()).collect();
            topics.into_iter().map(|topic| (topic.topic.to_string(), partitions(topic.partitions))).collect()
        }
    };
    let mut topics = Vec::with_capacity(asked.len());
    let mut failed = None;
    for (name, partitions) in asked {
        // What isn't there isn't listed, as in Kafka.
        let Some(topic) = log.topic(&name) else { continue };
        let mut described = Vec::with_capacity(partitions.len());
        for index in partitions.into_iter().filter(|index| *index < topic.partitions) {
            match log.partition_bytes(TopicPartition::new(topic.id, index)) {
                Ok(bytes) => described.push(
                    DescribeLogDirsPartition::default()
                        .with_partition_index(index.cast_signed())
                        .with_partition_size(i64::try_from(bytes).unwrap_or(i64::MAX)),
                ),
                Err(error) => failed = Some(of_fetch(&error)),
            }
        }
        topics.push(DescribeLogDirsTopic::default().with_name(topic_ids::name(&name)).with_partitions(described));
    }
    let code = failed.map_or(NONE, |error| error.code());
    let result =
        DescribeLogDirsResult::default().with_error_code(code).with_log_dir(text(log.dir().display().to_string()));
    let result = if code == NONE { result.with_topics(topics) } else { result };
    let result = match call.version() {
        4.. => result.with_total_bytes(UNKNOWN_BYTES).with_usable_bytes(UNKNOWN_BYTES),
        _ => result,
    };
    DescribeLogDirsResponse::default().with_results(vec![result])
}
