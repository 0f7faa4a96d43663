//! Consumer groups over the wire: two rounds of joining, offsets, administration, restarts.

mod common;

use std::time::Duration;

use common::*;
use cutwater_broker::{Broker, BrokerOptions};
use cutwater_partition_log::{Log, LogOptions, Offset, TopicPartition};
use cutwater_platform::{Clock, SystemClock};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(b"meta".to_vec().into());
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// Joins with the newest version: once for an id, once with it.
fn member(client: &mut Client) -> JoinGroupResponse {
    let first = client.ask(9, join(""));
    assert_eq!(first.error_code, ResponseError::MemberIdRequired.code());
    client.ask(9, join(&first.member_id))
}

fn sync(joined: &JoinGroupResponse, to: &[(&StrBytes, &str)]) -> SyncGroupRequest {
    let assignments = to.iter().map(|(id, what)| {
        let assignment = SyncGroupRequestAssignment::default().with_member_id((*id).clone());
        assignment.with_assignment(what.as_bytes().to_vec().into())
    });
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(assignments.collect())
}

fn commit(member: &str, generation: i32, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset).with_committed_metadata(None);
    let topic = OffsetCommitRequestTopic::default().with_name(name("words")).with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(generation)
        .with_topics(vec![topic])
}

fn committed(client: &mut Client) -> i64 {
    let topic = OffsetFetchRequestTopic::default().with_name(name("words")).with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![topic]));
    let answer = client.ask(7, request);
    assert_eq!(answer.error_code, 0);
    answer.topics[0].partitions[0].committed_offset
}

fn heartbeat(client: &mut Client, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    client.ask(4, request).error_code
}

#[test]
fn two_members_share_the_work_and_one_takes_it_over_when_the_other_leaves() {
    let served = serve();
    let (mut first, mut second) = (served.client(), served.client());
    let alone = member(&mut first);
    assert_eq!((alone.error_code, alone.generation_id, &alone.leader), (0, 1, &alone.member_id));
    let synced = first.ask(5, sync(&alone, &[(&alone.member_id, "all")]));
    assert_eq!(&synced.assignment[..], b"all");
    assert_eq!(heartbeat(&mut first, &alone), 0);

    let id = second.ask(9, join("")).member_id;
    second.send(9, &join(&id));
    while heartbeat(&mut first, &alone) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(heartbeat(&mut first, &alone), ResponseError::RebalanceInProgress.code());
    let both = first.ask(9, join(&alone.member_id));
    let other = second.receive::<JoinGroupRequest>(9, 0);
    assert_eq!((both.generation_id, both.members.len(), other.generation_id, other.members.len()), (2, 2, 2, 0));
    second.send(5, &sync(&other, &[]));
    first.ask(5, sync(&both, &[(&both.member_id, "left"), (&other.member_id, "right")]));
    assert_eq!(&second.receive::<SyncGroupRequest>(5, 0).assignment[..], b"right");

    let described = first.ask(5, DescribeGroupsRequest::default().with_groups(vec![group()]));
    let described = &described.groups[0];
    assert_eq!((described.group_state.as_str(), described.protocol_data.as_str()), ("Stable", "range"));
    let assignments: std::collections::BTreeSet<_> =
        described.members.iter().map(|member| member.member_assignment.to_vec()).collect();
    assert_eq!(assignments, [b"left".to_vec(), b"right".to_vec()].into());

    let gone = MemberIdentity::default().with_member_id(other.member_id.clone());
    let left = second.ask(5, LeaveGroupRequest::default().with_group_id(group()).with_members(vec![gone]));
    assert_eq!(left.members[0].error_code, 0);
    let again = first.ask(9, join(&both.member_id));
    assert_eq!((again.generation_id, again.members.len()), (3, 1));
    assert_eq!(heartbeat(&mut second, &other), ResponseError::UnknownMemberId.code());
}

#[test]
fn offsets_are_unknown_until_they_are_committed_and_only_members_commit_them() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    assert_eq!(committed(&mut client), -1, "unknown is not 0");
    let code = |answer: &OffsetCommitResponse| answer.topics[0].partitions[0].error_code;
    for version in 2..=9 {
        let answer = client.ask(version, commit("", -1, i64::from(version)));
        assert_eq!((code(&answer), committed(&mut client)), (0, i64::from(version)));
    }
    // A group that has offsets and no members; one that isn't there at all.
    assert_eq!(code(&client.ask(8, commit("m", 1, 1))), ResponseError::UnknownMemberId.code());
    let nobody = commit("m", 1, 1).with_group_id(GroupId(text("nobody")));
    assert_eq!(code(&client.ask(8, nobody)), ResponseError::IllegalGeneration.code());
    let joined = member(&mut client);
    client.ask(5, sync(&joined, &[]));
    assert_eq!(code(&client.ask(9, commit("", -1, 1))), ResponseError::UnknownMemberId.code());
    assert_eq!(code(&client.ask(9, commit(&joined.member_id, 0, 1))), ResponseError::IllegalGeneration.code());
    assert_eq!(code(&client.ask(9, commit(&joined.member_id, joined.generation_id, 42))), 0);
    assert_eq!(committed(&mut client), 42);
    let mut unknown = commit(&joined.member_id, joined.generation_id, 42);
    unknown.topics[0].name = name("nowhere");
    assert_eq!(code(&client.ask(9, unknown)), ResponseError::UnknownTopicOrPartition.code());
    let all = client.ask(7, OffsetFetchRequest::default().with_group_id(group()).with_topics(None));
    assert_eq!(all.topics[0].partitions[0].committed_offset, 42);
}

#[test]
fn groups_are_listed_and_deleted_only_when_nobody_is_in_them() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let delete = || DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    assert_eq!(client.ask(2, delete()).results[0].error_code, ResponseError::GroupIdNotFound.code());
    let joined = member(&mut client);
    client.ask(5, sync(&joined, &[]));
    client.ask(9, commit(&joined.member_id, joined.generation_id, 42));
    let listed = client.ask(5, ListGroupsRequest::default());
    assert_eq!((listed.groups.len(), listed.groups[0].group_state.as_str()), (1, "Stable"));
    let filtered = client.ask(5, ListGroupsRequest::default().with_states_filter(vec![text("Empty")]));
    assert!(filtered.groups.is_empty());
    assert_eq!(client.ask(2, delete()).results[0].error_code, ResponseError::NonEmptyGroup.code());
    let partition = OffsetDeleteRequestPartition::default();
    let topic = OffsetDeleteRequestTopic::default().with_name(name("words")).with_partitions(vec![partition]);
    let forget = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic]);
    assert_eq!(client.ask(0, forget.clone()).error_code, ResponseError::NonEmptyGroup.code());
    client.ask(0, LeaveGroupRequest::default().with_group_id(group()).with_member_id(joined.member_id.clone()));
    assert_eq!(client.ask(0, forget).error_code, 0);
    assert_eq!(committed(&mut client), -1);
    assert_eq!(client.ask(2, delete()).results[0].error_code, 0);
    assert!(client.ask(5, ListGroupsRequest::default()).groups.is_empty());
    let described = client.ask(6, DescribeGroupsRequest::default().with_groups(vec![group()]));
    assert_eq!(described.groups[0].error_code, ResponseError::GroupIdNotFound.code());
}

#[test]
fn members_go_on_with_their_heartbeats_after_the_broker_was_started_again() {
    let mut served = serve();
    let mut client = served.client();
    let joined = member(&mut client);
    client.ask(5, sync(&joined, &[(&joined.member_id, "mine")]));
    served.broker.stop();
    served.log.close().expect("closed");
    let platform = cutwater_platform::Platform::real();
    served.log = Log::open(&platform, &served.dir.path().join("log"), LogOptions::default()).expect("opened");
    let address = "127.0.0.1:0".parse().expect("an address");
    served.broker = Broker::start(&platform, served.log.clone(), address, BrokerOptions::default()).expect("a port");
    let mut client = served.client();
    assert_eq!(heartbeat(&mut client, &joined), 0);
    let synced = client.ask(5, sync(&joined, &[]));
    assert_eq!(&synced.assignment[..], b"mine");
}

#[test]
fn offsets_of_groups_without_members_are_forgotten_in_time_and_not_those_that_a_member_reads() {
    let options = BrokerOptions { offsets_retention: Duration::from_millis(1500), ..BrokerOptions::default() };
    let served = serve_with(options);
    served.log.create_topic("words", 1).expect("a topic");
    served.log.create_topic("other", 1).expect("a topic");
    let at = |topic: &str| TopicPartition::new(served.log.topic(topic).expect("there").id, 0);
    let has = |group: &str| served.log.group_offsets(group).expect("up").offsets.len();
    let mut client = served.client();
    // A member that reads "words", by the words that Kafka's consumers have for it, and commits in both.
    let mut request = join("");
    request.protocols[0].metadata = b"\0\0\0\0\0\x01\0\x05words\xff\xff\xff\xff".to_vec().into();
    let id = client.ask(9, request.clone()).member_id;
    let joined = client.ask(9, request.with_member_id(id));
    client.ask(5, sync(&joined, &[(&joined.member_id, "all")]));
    assert_eq!(client.ask(8, commit(&joined.member_id, 1, 5)).topics[0].partitions[0].error_code, 0);
    served.log.commit_offsets("g", [(at("other"), Offset(1))]).expect("committed");
    // And a group that never had any.
    served.log.commit_offsets("simple", [(at("words"), Offset(1))]).expect("committed");
    let clock = SystemClock::new();
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        while !done() {
            assert!(clock.monotonic() < Duration::from_secs(20), "{what}");
            clock.sleep(Duration::from_millis(50));
        }
    };
    wait("the simple group's are forgotten", &|| has("simple") == 0);
    wait("what no member reads is forgotten", &|| has("g") == 1);
    assert_eq!(heartbeat(&mut client, &joined), 0);
    assert_eq!(committed(&mut client), 5, "older than it is kept, but somebody reads it");
    // When the last member leaves the time begins anew.
    let left = clock.monotonic();
    let member = MemberIdentity::default().with_member_id(joined.member_id.clone());
    client.ask(5, LeaveGroupRequest::default().with_group_id(group()).with_members(vec![member]));
    assert_eq!(committed(&mut client), 5);
    wait("the rest is forgotten", &|| has("g") == 0);
    assert!(clock.monotonic() - left >= Duration::from_millis(1400), "not before its time");
    wait("and the group with it", &|| !served.log.memberships().contains_key("g"));
}
