//! Offsets of groups: `OffsetCommit`, `OffsetFetch`, `OffsetDelete`.

use std::collections::{BTreeMap, BTreeSet};

use cutwater_partition_log::group::METADATA_BYTES_MAX;
use cutwater_partition_log::{GroupError, GroupOffsets, Offset, OffsetCommit, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, TopicName,
};

use super::Call;
use super::members::plain;
use crate::access::acl::Operation;
use crate::errors::{NO_LOG, NONE, text};
use crate::group::coordinator::Hosted;
use crate::group::member::Who;
use crate::topic_ids;

/// "No offset": unknown is never 0.
const NO_OFFSET: i64 = -1;
const NO_EPOCH: i32 = -1;

pub(super) fn of_group(error: &GroupError) -> ResponseError {
    match error {
        GroupError::Fenced(_) | GroupError::NotOpen { .. } => ResponseError::InvalidTxnState,
        GroupError::UnknownPartition { .. } => ResponseError::UnknownTopicOrPartition,
        GroupError::InvalidName { .. } => ResponseError::InvalidGroupId,
        GroupError::InvalidOffset { .. } => ResponseError::InvalidCommitOffsetSize,
        GroupError::Metadata { .. } => ResponseError::OffsetMetadataTooLarge,
        GroupError::TooLarge { .. } => ResponseError::InvalidCommitOffsetSize,
        GroupError::TooMany { .. } => ResponseError::PolicyViolation,
        GroupError::Pending { .. } => ResponseError::NonEmptyGroup,
        GroupError::Down(_) | GroupError::OutcomeUnknown(_) => NO_LOG,
    }
}

/// One offset as a request has it.
pub(super) struct Asked<'a> {
    pub(super) topic: &'a TopicName,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) metadata: Option<&'a str>,
}

/// Divides what is asked for into what can be committed and what can't be, by position.
pub(super) fn judge(call: &Call<'_>, asked: &[Asked<'_>]) -> (Vec<OffsetCommit>, BTreeMap<usize, ResponseError>) {
    let (mut commits, mut refused) = (Vec::with_capacity(asked.len()), BTreeMap::new());
    for (index, one) in asked.iter().enumerate() {
        let topic = call.service.log.topic(one.topic);
        let partition = u32::try_from(one.partition).ok();
        let at = topic.zip(partition).filter(|(topic, partition)| *partition < topic.partitions);
        let offset = u64::try_from(one.offset);
        let metadata = one.metadata.unwrap_or_default();
        let judged = match (at, offset) {
            _ if call.topic(Operation::Read, one.topic).is_err() => Err(ResponseError::TopicAuthorizationFailed),
            (None, _) => Err(ResponseError::UnknownTopicOrPartition),
            (_, Err(_)) => Err(ResponseError::InvalidCommitOffsetSize),
            _ if metadata.len() > METADATA_BYTES_MAX => Err(ResponseError::OffsetMetadataTooLarge),
            (Some((topic, partition)), Ok(offset)) => Ok(OffsetCommit {
                at: TopicPartition::new(topic.id, partition),
                offset: Offset(offset),
                metadata: metadata.to_string(),
            }),
        };
        match judged {
            Ok(commit) => commits.push(commit),
            Err(error) => {
                refused.insert(index, error);
            }
        }
    }
    (commits, refused)
}

pub(super) fn commit(call: &Call<'_>, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let asked: Vec<Asked<'_>> = request
        .topics
        .iter()
        .flat_map(|topic| {
            topic.partitions.iter().map(|partition| Asked {
                topic: &topic.name,
                partition: partition.partition_index,
                offset: partition.committed_offset,
                metadata: plain(&partition.committed_metadata),
            })
        })
        .collect();
    let (commits, refused) = judge(call, &asked);
    let who = Who {
        member: &request.member_id,
        instance: plain(&request.group_instance_id),
        generation: request.generation_id_or_member_epoch,
    };
    let log = &call.service.log;
    let commit = || log.commit_offsets(&request.group_id, commits);
    let allowed = call.group(Operation::Read, &request.group_id);
    let done = allowed.and_then(|()| call.service.groups.commit(&request.group_id, who, false, commit));
    let all = match done {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(of_group(&error)),
        // Members with epochs commit from version 9 on.
        Err(ResponseError::StaleMemberEpoch) if call.version() < 9 => Some(ResponseError::UnsupportedVersion),
        Err(error) => Some(error),
    };
    // What is wrong with one partition is said before what is wrong with all.
    let denied = allowed.err();
    let mut index = 0;
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let error = denied.or(refused.get(&index).copied()).or(all);
            index += 1;
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error.map_or(NONE, |error| error.code()))
        });
        OffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

/// One partition's answer: offset, metadata, error.
type Found = (i32, i64, String, i16);

/// What a group has in the topics asked for, or in all.
fn find(
    call: &Call<'_>,
    group: &str,
    asked: Option<Vec<(TopicName, Vec<i32>)>>,
    stable: bool,
) -> Result<Vec<(TopicName, Vec<Found>)>, ResponseError> {
    let log = &call.service.log;
    call.group(Operation::Describe, group)?;
    let known: GroupOffsets = log.group_offsets(group).map_err(|e| of_group(&e))?;
    let found = |at: Option<TopicPartition>, partition: i32| {
        let unstable = stable && at.is_some_and(|at| known.unstable.contains(&at));
        match at.and_then(|at| known.offsets.get(&at)) {
            _ if unstable => (partition, NO_OFFSET, String::new(), ResponseError::UnstableOffsetCommit.code()),
            Some(kept) => (partition, kept.offset.0.cast_signed(), kept.metadata.clone(), NONE),
            None => (partition, NO_OFFSET, String::new(), NONE),
        }
    };
    let Some(asked) = asked else {
        let mut topics: BTreeMap<_, Vec<Found>> = BTreeMap::new();
        let unstable = known.unstable.iter().filter(|_| stable);
        let all: BTreeSet<TopicPartition> = known.offsets.keys().chain(unstable).copied().collect();
        for at in all {
            let topic = log.topic_by_id(at.topic);
            if let Some(topic) = topic.filter(|topic| call.topic(Operation::Describe, &topic.name).is_ok()) {
                topics.entry(topic.name).or_default().push(found(Some(at), at.partition.cast_signed()));
            }
        }
        return Ok(topics.into_iter().map(|(name, found)| (topic_ids::name(&name), found)).collect());
    };
    let topics = asked.into_iter().map(|(name, partitions)| {
        let topic = log.topic(&name);
        let at = |partition: i32| Some(TopicPartition::new(topic.as_ref()?.id, u32::try_from(partition).ok()?));
        let denied = call.topic(Operation::Describe, &name).err();
        let partitions = partitions.into_iter().map(|partition| match denied {
            Some(error) => (partition, NO_OFFSET, String::new(), error.code()),
            None => found(at(partition), partition),
        });
        let partitions = partitions.collect();
        (name, partitions)
    });
    Ok(topics.collect())
}

pub(super) fn fetch(call: &Call<'_>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let stable = request.require_stable;
    if call.version() >= 8 {
        let groups = request.groups.into_iter().map(|group| {
            let asked = group.topics.map(|topics| topics.into_iter().map(|t| (t.name, t.partition_indexes)).collect());
            let response = OffsetFetchResponseGroup::default();
            let member = plain(&group.member_id);
            let judged = call.group(Operation::Describe, &group.group_id);
            let judged = judged.and_then(|()| call.service.groups.reads(&group.group_id, member, group.member_epoch));
            let found = judged.and_then(|()| find(call, &group.group_id, asked, stable));
            let response = match found {
                Err(error) => response.with_error_code(error.code()),
                Ok(topics) => response.with_topics(
                    topics
                        .into_iter()
                        .map(|(name, found)| {
                            let partitions = found.into_iter().map(|(partition, offset, metadata, error)| {
                                OffsetFetchResponsePartitions::default()
                                    .with_partition_index(partition)
                                    .with_committed_offset(offset)
                                    .with_committed_leader_epoch(NO_EPOCH)
                                    .with_metadata(Some(text(metadata)))
                                    .with_error_code(error)
                            });
                            OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.collect())
                        })
                        .collect(),
                ),
            };
            response.with_group_id(group.group_id)
        });
        return OffsetFetchResponse::default().with_groups(groups.collect());
    }
    let asked = request.topics.map(|topics| topics.into_iter().map(|t| (t.name, t.partition_indexes)).collect());
    // Version 1 has no "all" and no place for an error but the partitions'.
    match find(call, &request.group_id, asked, stable) {
        Err(error) if call.version() >= 2 => OffsetFetchResponse::default().with_error_code(error.code()),
        Err(_) => OffsetFetchResponse::default(),
        Ok(topics) => OffsetFetchResponse::default().with_topics(
            topics
                .into_iter()
                .map(|(name, found)| {
                    let partitions = found.into_iter().map(|(partition, offset, metadata, error)| {
                        OffsetFetchResponsePartition::default()
                            .with_partition_index(partition)
                            .with_committed_offset(offset)
                            .with_committed_leader_epoch(NO_EPOCH)
                            .with_metadata(Some(text(metadata)))
                            .with_error_code(error)
                    });
                    OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions.collect())
                })
                .collect(),
        ),
    }
}

pub(super) fn delete(call: &Call<'_>, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let log = &call.service.log;
    if let Err(error) = call.group(Operation::Delete, &request.group_id) {
        return OffsetDeleteResponse::default().with_error_code(error.code());
    }
    let refuse = |error: ResponseError| OffsetDeleteResponse::default().with_error_code(error.code());
    // What its members read stays; of members that don't say what they read nothing goes.
    let read = match call.service.groups.look(&request.group_id, Hosted::topics) {
        Some(Some(read)) => read,
        Some(None) => return refuse(ResponseError::NonEmptyGroup),
        None => match log.group_offsets(&request.group_id) {
            Ok(kept) if kept.offsets.is_empty() => return refuse(ResponseError::GroupIdNotFound),
            Ok(_) => BTreeSet::new(),
            Err(error) => return refuse(of_group(&error)),
        },
    };
    let mut gone = Vec::new();
    let topics: Vec<OffsetDeleteResponseTopic> = request
        .topics
        .iter()
        .map(|asked| {
            let topic = log.topic(&asked.name);
            let denied = call.topic(Operation::Read, &asked.name).err();
            let partitions = asked.partitions.iter().map(|partition| {
                let index = partition.partition_index;
                let at = topic.as_ref().zip(u32::try_from(index).ok());
                let at = at.filter(|(topic, partition)| *partition < topic.partitions);
                let error = match at {
                    _ if denied.is_some() => denied.map_or(NONE, |error| error.code()),
                    Some(_) if read.contains(asked.name.as_str()) => ResponseError::GroupSubscribedToTopic.code(),
                    Some((topic, partition)) => {
                        gone.push(TopicPartition::new(topic.id, partition));
                        NONE
                    }
                    None => ResponseError::UnknownTopicOrPartition.code(),
                };
                OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(error)
            });
            OffsetDeleteResponseTopic::default().with_partitions(partitions.collect()).with_name(asked.name.clone())
        })
        .collect();
    match log.delete_offsets(&request.group_id, &gone) {
        Ok(()) => OffsetDeleteResponse::default().with_topics(topics),
        Err(error) => OffsetDeleteResponse::default().with_error_code(of_group(&error).code()),
    }
}
