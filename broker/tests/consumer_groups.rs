//! Consumer groups by the newer protocol over the wire: assignments, offsets by epoch, description, restarts, the way from one
//! protocol to the other.

mod common;

use std::collections::BTreeSet;

use common::*;
use cutwater_broker::{Broker, BrokerOptions};
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::Platform;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn joins(member: &str) -> ConsumerGroupHeartbeatRequest {
    beats(member, 0)
        .with_rebalance_timeout_ms(10_000)
        .with_subscribed_topic_names(Some(vec![name("words")]))
        .with_topic_partitions(Some(vec![]))
}

fn beats(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None)
}

fn owning(member: &str, epoch: i32, topic: Uuid, partitions: &[i32]) -> ConsumerGroupHeartbeatRequest {
    let owned = TopicPartitions::default().with_topic_id(topic).with_partitions(partitions.to_vec());
    beats(member, epoch).with_topic_partitions(Some(vec![owned]))
}

/// The partitions of the only topic in an answer.
fn assigned(answer: &ConsumerGroupHeartbeatResponse) -> Vec<i32> {
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    let assignment = answer.assignment.as_ref().expect("an assignment");
    assignment.topic_partitions.first().map(|topic| topic.partitions.clone()).unwrap_or_default()
}

fn commit(client: &mut Client, version: i16, member: &str, epoch: i32, offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset).with_committed_metadata(None);
    let topic = OffsetCommitRequestTopic::default().with_name(name("words")).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![topic]);
    client.ask(version, request).topics[0].partitions[0].error_code
}

fn committed(client: &mut Client, member: Option<&str>, epoch: i32) -> Result<i64, i16> {
    let topic = OffsetFetchRequestTopics::default().with_name(name("words")).with_partition_indexes(vec![0]);
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_member_id(member.map(text))
        .with_member_epoch(epoch)
        .with_topics(Some(vec![topic]));
    let answer = client.ask(9, OffsetFetchRequest::default().with_groups(vec![asked]));
    let group = &answer.groups[0];
    if group.error_code == 0 { Ok(group.topics[0].partitions[0].committed_offset) } else { Err(group.error_code) }
}

fn topic_id(client: &mut Client) -> Uuid {
    client.ask(12, MetadataRequest::default().with_topics(None)).topics[0].topic_id
}

fn classic_join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(b"meta".to_vec().into());
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

#[test]
fn two_members_share_partitions_and_are_described_with_what_they_have() {
    let served = serve();
    served.log.create_topic("words", 4).expect("a topic");
    let mut client = served.client();
    let topic = topic_id(&mut client);
    let first = client.ask(0, joins("a"));
    assert_eq!((assigned(&first), first.member_epoch, first.heartbeat_interval_ms), (vec![0, 1, 2, 3], 1, 5_000));
    assert_eq!(client.ask(0, joins("b")).member_epoch, 2);
    let kept = assigned(&client.ask(0, beats("a", 1)));
    assert_eq!(kept.len(), 2);
    let described = |client: &mut Client| {
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
        client.ask(1, request).groups.remove(0)
    };
    let before = described(&mut client);
    assert_eq!(
        (before.group_state.as_str(), before.group_epoch, before.assignor_name.as_str()),
        ("Reconciling", 2, "uniform")
    );
    assert_eq!(client.ask(0, owning("a", 1, topic, &kept)).member_epoch, 2);
    let rest = assigned(&client.ask(0, beats("b", 2)));
    let all: BTreeSet<i32> = kept.iter().chain(&rest).copied().collect();
    assert_eq!(all, (0..4).collect());
    let after = described(&mut client);
    assert_eq!((after.error_code, after.group_state.as_str(), after.members.len()), (0, "Stable", 2));
    for member in &after.members {
        assert_eq!((member.member_epoch, member.client_host.as_str(), member.member_type), (2, "/127.0.0.1", 1));
        assert_eq!(member.assignment, member.target_assignment);
        assert_eq!(member.assignment.topic_partitions[0].topic_name, name("words"));
        assert_eq!(member.subscribed_topic_names, [name("words")]);
    }
    let listed = client.ask(5, ListGroupsRequest::default().with_types_filter(vec![text("consumer")]));
    let listed: Vec<_> = listed.groups.iter().map(|g| (g.group_state.as_str(), g.group_type.as_str())).collect();
    assert_eq!(listed, [("Stable", "consumer")]);
    assert!(client.ask(5, ListGroupsRequest::default().with_types_filter(vec![text("classic")])).groups.is_empty());
    let classic = client.ask(6, DescribeGroupsRequest::default().with_groups(vec![group()])).groups.remove(0);
    assert_eq!(classic.error_code, ResponseError::GroupIdNotFound.code());
    let delete = client.ask(2, DeleteGroupsRequest::default().with_groups_names(vec![group()]));
    assert_eq!(delete.results[0].error_code, ResponseError::NonEmptyGroup.code());
    // The topic grows: everybody has a fair part of it.
    served.log.grow_topic("words", 6).expect("grown");
    assert_eq!(client.ask(0, beats("a", 2)).member_epoch, 3);
    assert_eq!(assigned(&client.ask(0, beats("b", 2))).len(), 3);
}

#[test]
fn offsets_are_committed_and_fetched_by_members_of_the_current_epoch_alone() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    client.ask(0, joins("a"));
    let code = |error: ResponseError| error.code();
    assert_eq!(commit(&mut client, 9, "a", 1, 10), 0);
    assert_eq!(commit(&mut client, 9, "a", 0, 11), code(ResponseError::StaleMemberEpoch));
    assert_eq!(commit(&mut client, 9, "a", 2, 11), code(ResponseError::StaleMemberEpoch));
    assert_eq!(commit(&mut client, 8, "a", 2, 11), code(ResponseError::UnsupportedVersion));
    assert_eq!(commit(&mut client, 9, "b", 1, 11), code(ResponseError::UnknownMemberId));
    assert_eq!(commit(&mut client, 9, "", -1, 11), code(ResponseError::UnknownMemberId), "the group has members");
    assert_eq!(committed(&mut client, Some("a"), 1), Ok(10));
    assert_eq!(committed(&mut client, None, -1), Ok(10));
    assert_eq!(committed(&mut client, Some("a"), 2), Err(code(ResponseError::StaleMemberEpoch)));
    assert_eq!(committed(&mut client, Some("b"), 1), Err(code(ResponseError::UnknownMemberId)));
    let left = client.ask(0, beats("a", -1));
    assert_eq!((left.error_code, left.member_epoch), (0, -1));
    assert_eq!(commit(&mut client, 9, "", -1, 12), 0, "an operator resets an empty group");
    assert_eq!(committed(&mut client, None, -1), Ok(12));
}

#[test]
fn epochs_go_on_and_members_too_after_the_broker_was_started_again() {
    let mut served = serve();
    served.log.create_topic("words", 2).expect("a topic");
    let mut client = served.client();
    let topic = topic_id(&mut client);
    client.ask(0, joins("a").with_instance_id(Some(text("i"))));
    client.ask(0, joins("b"));
    let kept = assigned(&client.ask(0, beats("a", 1).with_instance_id(Some(text("i")))));
    for again in 0..2 {
        served.broker.stop();
        served.log.close().expect("closed");
        let platform = Platform::real();
        served.log = Log::open(&platform, &served.dir.path().join("log"), LogOptions::default()).expect("opened");
        let address = "127.0.0.1:0".parse().expect("an address");
        served.broker =
            Broker::start(&platform, served.log.clone(), address, BrokerOptions::default()).expect("started");
        client = served.client();
        if again == 0 {
            // What had begun goes on: a partition is to be given up, and is given away once it was.
            assert!(
                assigned(
                    &client.ask(
                        0,
                        beats("b", 2)
                            .with_topic_partitions(Some(vec![]))
                            .with_subscribed_topic_names(Some(vec![name("words")]))
                    )
                )
                .is_empty()
            );
            let owned = owning("a", 1, topic, &kept).with_instance_id(Some(text("i")));
            assert_eq!(client.ask(0, owned).member_epoch, 2);
            assert_eq!(assigned(&client.ask(0, beats("b", 2))).len(), 1);
        }
    }
    assert_eq!(client.ask(0, beats("b", 2)).error_code, 0);
    let fenced = client.ask(0, beats("b", 3));
    assert_eq!(fenced.error_code, ResponseError::FencedMemberEpoch.code());
    // A static member is away for a while and comes back under another id, in the same epoch.
    client.ask(0, beats("a", -2).with_instance_id(Some(text("i"))));
    let back = client.ask(0, joins("c").with_instance_id(Some(text("i"))));
    assert_eq!((assigned(&back), back.member_epoch), (kept, 2));
    // All leave; the epochs of who comes next are higher.
    client.ask(0, beats("b", -1));
    client.ask(0, beats("c", -1).with_instance_id(Some(text("i"))));
    assert_eq!(client.ask(0, joins("d")).member_epoch, 5);
}

#[test]
fn a_group_changes_its_protocol_only_when_nobody_is_in_it_and_its_epochs_go_on() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    client.ask(0, joins("a"));
    let refused = client.ask(9, classic_join(""));
    assert_eq!(refused.error_code, ResponseError::InconsistentGroupProtocol.code());
    client.ask(0, beats("a", -1));
    let id = client.ask(9, classic_join("")).member_id;
    let joined = client.ask(9, classic_join(&id));
    assert_eq!((joined.error_code, joined.generation_id), (0, 3), "two epochs were there before");
    let refused = client.ask(0, joins("a"));
    assert_eq!(refused.error_code, ResponseError::GroupIdNotFound.code());
    assert_eq!(client.ask(0, beats("a", 1)).error_code, ResponseError::GroupIdNotFound.code());
    client.ask(0, LeaveGroupRequest::default().with_group_id(group()).with_member_id(id));
    let again = client.ask(0, joins("a"));
    assert_eq!((again.error_code, again.member_epoch), (0, 5), "a leave and a join");
}

#[test]
fn what_no_client_may_say_is_refused_with_the_reason() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let invalid = ResponseError::InvalidRequest;
    let cases = [
        (joins("a").with_group_id(GroupId::default()), invalid),
        (joins("a").with_rebalance_timeout_ms(-1), invalid),
        (joins("a").with_subscribed_topic_names(None), invalid),
        (joins("a").with_topic_partitions(None), invalid),
        (joins("a").with_topic_partitions(Some(vec![TopicPartitions::default()])), invalid),
        (joins("a").with_instance_id(Some(text(""))), invalid),
        (beats("", 1), invalid),
        (beats("a", -2), invalid),
        (beats("a", -3), invalid),
        (joins("a").with_server_assignor(Some(text("sticky"))), ResponseError::UnsupportedAssignor),
        (beats("a", 1), ResponseError::GroupIdNotFound),
        (beats("a", -1), ResponseError::GroupIdNotFound),
    ];
    for (request, error) in cases {
        let answer = client.ask(0, request.clone());
        assert_eq!(answer.error_code, error.code(), "{request:?}");
        assert!(answer.error_message.is_some_and(|why| !why.is_empty()), "{request:?}");
    }
    // Without an id it is given one.
    assert_eq!(client.ask(0, joins("")).member_id.map(|id| id.len()), Some(32));
    let range = joins("b").with_server_assignor(Some(text("range")));
    assert_eq!(client.ask(0, range).error_code, 0);
}

#[test]
fn clients_learn_from_the_versions_that_there_are_such_groups() {
    let served = serve();
    let mut client = served.client();
    let versions = client.ask(
        4,
        ApiVersionsRequest::default().with_client_software_name(text("c")).with_client_software_version(text("1")),
    );
    let feature = versions.finalized_features.iter().find(|feature| feature.name.as_str() == "group.version");
    assert_eq!(feature.map(|feature| feature.max_version_level), Some(1));
}
