//! Consumer groups by the newer protocol (KIP-848): `ConsumerGroupHeartbeat`, `ConsumerGroupDescribe`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cutwater_partition_log::{TopicId, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::{self as described, DescribedGroup};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
};
use uuid::Uuid;

use super::Call;
use super::members::plain;
use crate::access::acl::Operation;
use crate::errors::{Answered, NONE, code, message, text};
use crate::group::consumer::assign::Assignor;
use crate::group::consumer::machine::{
    Beat, Catalog, ConsumerGroup, JOIN, Known, LEAVE, LEAVE_FOR_A_WHILE, Member, Told,
};
use crate::pattern::Pattern;
use crate::topic_ids;

const NO_OPERATIONS: i32 = i32::MIN;
/// A member by this protocol; classic ones never are in such a group.
const CONSUMER_MEMBER: i8 = 1;

pub(super) fn heartbeat(call: &Call<'_>, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
    let told = judge(call, &request).and_then(|beat| {
        call.service
            .groups
            .beat(&request.group_id, beat, &Seen(call))
            .map_err(|error| (error, sentence(error).to_string()))
    });
    let response =
        ConsumerGroupHeartbeatResponse::default().with_error_code(code(&told)).with_error_message(message(&told));
    let Ok(Told { member, epoch, assignment }) = told else { return response };
    let interval = i32::try_from(call.service.options.consumer_heartbeat.as_millis()).unwrap_or(i32::MAX);
    response
        .with_member_id(Some(text(member)))
        .with_member_epoch(epoch)
        .with_heartbeat_interval_ms(interval)
        .with_assignment(assignment.map(|partitions| {
            let topics = by_topic(call, &partitions)
                .into_iter()
                .map(|(id, _, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions));
            Assignment::default().with_topic_partitions(topics.collect())
        }))
}

/// The topics as the caller may see them.
struct Seen<'a>(&'a Call<'a>);

impl Catalog for Seen<'_> {
    fn topic(&self, name: &str) -> Option<Known> {
        self.0.service.log.topic(name).map(|topic| (topic.id, topic.partitions))
    }

    fn version(&self) -> u64 {
        // Both only ever rise.
        self.0.service.log.topics_version() + self.0.service.access.version()
    }

    fn matching(&self, regex: &str) -> BTreeSet<String> {
        let Ok(pattern) = Pattern::new(regex) else { return BTreeSet::new() };
        let names = self.0.service.log.topics().into_iter().map(|topic| topic.name);
        names.filter(|name| pattern.matches(name) && self.0.topic(Operation::Describe, name).is_ok()).collect()
    }
}

/// What a client does now.
fn sentence(error: ResponseError) -> &'static str {
    match error {
        ResponseError::FencedMemberEpoch => {
            "the member's epoch isn't the current one: give up all partitions and join anew"
        }
        ResponseError::UnknownMemberId => "there is no such member: give up all partitions and join anew",
        ResponseError::UnreleasedInstanceId => "another member has this instance id and hasn't left",
        ResponseError::FencedInstanceId => "another member has taken over this instance id",
        ResponseError::GroupIdNotFound => {
            "there is no such consumer group; a classic group has members, or nobody has joined"
        }
        ResponseError::GroupMaxSizeReached => "the group is full",
        ResponseError::CoordinatorNotAvailable => "the group can't be kept now, try again",
        _ => "the heartbeat is refused",
    }
}

/// Holds the request to what KIP-848 asks of it.
fn judge(call: &Call<'_>, request: &ConsumerGroupHeartbeatRequest) -> Answered<Beat> {
    let invalid = |why: &str| Err((ResponseError::InvalidRequest, why.to_string()));
    if request.group_id.is_empty() {
        return invalid("the group's id is empty");
    }
    // Version 1: members name themselves (KIP-1082), and may subscribe by a regular expression.
    if call.version() >= 1 && request.member_id.is_empty() {
        return invalid("the member's id is empty");
    }
    if plain(&request.instance_id).is_some_and(str::is_empty) {
        return invalid("the instance id is empty");
    }
    let denied = |error: ResponseError| (error, "who asks has no right to it".to_string());
    call.group(Operation::Read, &request.group_id).map_err(denied)?;
    for topic in request.subscribed_topic_names.iter().flatten() {
        call.topic(Operation::Describe, topic).map_err(denied)?;
    }
    let regex = plain(&request.subscribed_topic_regex);
    if let Some(regex) = regex {
        Pattern::new(regex).map_err(|why| (ResponseError::InvalidRegularExpression, why))?;
    }
    match request.member_epoch {
        JOIN => {
            if request.rebalance_timeout_ms < 0 {
                return invalid("who joins says its rebalance time-out");
            }
            if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("who joins owns nothing, and says so");
            }
            if request.subscribed_topic_names.is_none() && regex.is_none() {
                return invalid("who joins says its topics, by name or by an expression");
            }
        }
        LEAVE_FOR_A_WHILE if request.instance_id.is_none() => return invalid("only a static member comes back"),
        1.. | LEAVE | LEAVE_FOR_A_WHILE if request.member_id.is_empty() => return invalid("the member's id is empty"),
        ..LEAVE_FOR_A_WHILE => return invalid("there is no such epoch"),
        _ => {}
    }
    let assignor = match plain(&request.server_assignor) {
        None => None,
        Some(name) => Some(Assignor::named(name).ok_or_else(|| {
            (ResponseError::UnsupportedAssignor, format!("there is no assignor {name}: uniform and range are"))
        })?),
    };
    let owned =
        request.topic_partitions.as_ref().map(|topics| {
            let known =
                topics.iter().filter_map(|topic| {
                    let found = call.service.topic_ids.find(&call.service.log, topic.topic_id)?;
                    Some(topic.partitions.iter().filter_map(move |partition| {
                        Some(TopicPartition::new(found.id, u32::try_from(*partition).ok()?))
                    }))
                });
            known.flatten().collect()
        });
    let topics = request.subscribed_topic_names.as_ref();
    Ok(Beat {
        member: request.member_id.to_string(),
        epoch: request.member_epoch,
        instance: plain(&request.instance_id).map(String::from),
        rack: plain(&request.rack_id).map(String::from),
        client: call.client.to_string(),
        host: format!("/{}", call.caller.address),
        rebalance: u64::try_from(request.rebalance_timeout_ms).ok().map(Duration::from_millis),
        topics: topics.map(|names| names.iter().map(|name| name.to_string()).collect()),
        regex: regex.map(String::from),
        assignor,
        owned,
    })
}

/// Partitions by topic; topics that have gone meanwhile are left out.
fn by_topic(call: &Call<'_>, partitions: &BTreeSet<TopicPartition>) -> Vec<(Uuid, String, Vec<i32>)> {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(at.topic).or_default().push(at.partition.cast_signed());
    }
    let named = topics.into_iter().filter_map(|(id, partitions)| {
        let topic = call.service.log.topic_by_id(id)?;
        Some((topic_ids::uuid(id, &topic.name), topic.name, partitions))
    });
    named.collect()
}

pub(super) fn describe(call: &Call<'_>, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse {
    let groups = request.group_ids.into_iter().map(|id| {
        let response = DescribedGroup::default().with_authorized_operations(NO_OPERATIONS);
        if let Err(error) = call.group(Operation::Describe, &id) {
            return response.with_error_code(error.code()).with_group_id(id);
        }
        let found = call.service.groups.look(&id, |hosted| hosted.consumer.clone());
        let response = match found {
            // Names of topics are told to those who may know them.
            Some(Some(group)) => {
                match subscribed(&group).find_map(|name| call.topic(Operation::Describe, name).err()) {
                    Some(error) => response.with_error_code(error.code()),
                    None => known(call, response, &group),
                }
            }
            Some(None) => missing(response, format!("group {} is no consumer group", id.as_str())),
            None => missing(response, format!("group {} is unknown", id.as_str())),
        };
        response.with_group_id(id)
    });
    ConsumerGroupDescribeResponse::default().with_groups(groups.collect())
}

/// The names of all topics that the group's members want.
fn subscribed(group: &ConsumerGroup) -> impl Iterator<Item = &String> {
    group.members.values().flat_map(Member::wants)
}

fn missing(response: DescribedGroup, why: String) -> DescribedGroup {
    response.with_error_code(ResponseError::GroupIdNotFound.code()).with_error_message(Some(text(why)))
}

fn known(call: &Call<'_>, response: DescribedGroup, group: &ConsumerGroup) -> DescribedGroup {
    let assignment = |partitions: &BTreeSet<TopicPartition>| {
        let topics = by_topic(call, partitions).into_iter().map(|(id, name, partitions)| {
            described::TopicPartitions::default()
                .with_topic_id(id)
                .with_topic_name(topic_ids::name(&name))
                .with_partitions(partitions)
        });
        described::Assignment::default().with_topic_partitions(topics.collect())
    };
    let nothing = BTreeSet::new();
    let members = group.members.iter().map(|(id, member)| {
        let shown = described::Member::default()
            .with_member_id(text(id.clone()))
            .with_instance_id(member.instance.clone().map(text))
            .with_rack_id(member.rack.clone().map(text))
            .with_member_epoch(member.epoch)
            .with_client_id(text(member.client.clone()))
            .with_client_host(text(member.host.clone()))
            .with_subscribed_topic_names(member.topics.iter().map(|name| topic_ids::name(name)).collect())
            // Kafka says with an empty one that there is none.
            .with_subscribed_topic_regex(Some(text(member.regex.clone().unwrap_or_default())))
            .with_assignment(assignment(&member.assigned))
            .with_target_assignment(assignment(group.target.get(id).unwrap_or(&nothing)));
        if call.version() >= 1 { shown.with_member_type(CONSUMER_MEMBER) } else { shown }
    });
    response
        .with_error_code(NONE)
        .with_group_state(text(group.state()))
        .with_group_epoch(group.epoch)
        .with_assignment_epoch(group.epoch)
        .with_assignor_name(text(group.assignor.name()))
        .with_members(members.collect())
}
