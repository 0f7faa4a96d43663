//! Regular expressions that the server evaluates: subscriptions of consumer groups (KIP-848), lists of transactions (KIP-1152).

mod common;

use std::collections::BTreeSet;

use common::*;
use cutwater_broker::{Broker, BrokerOptions, Listen, Security, Users};
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::Platform;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

#[path = "common/scram.rs"]
mod scram;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn beats(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None)
}

/// Joins by an expression alone.
fn joins(member: &str, regex: &str) -> ConsumerGroupHeartbeatRequest {
    beats(member, 0)
        .with_rebalance_timeout_ms(10_000)
        .with_subscribed_topic_regex(Some(text(regex)))
        .with_topic_partitions(Some(vec![]))
}

/// Epoch, and the assigned partitions by their topics' names, if there is news of them.
fn told(log: &Log, answer: &ConsumerGroupHeartbeatResponse, ids: &MetadataResponse) -> (i32, Option<BTreeSet<String>>) {
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    let named = |topic: &consumer_group_heartbeat_response::TopicPartitions| {
        let known = ids.topics.iter().find(|known| known.topic_id == topic.topic_id).expect("a topic of the list");
        let name = known.name.as_ref().expect("a name").to_string();
        assert!(log.topic(&name).is_some());
        topic.partitions.iter().map(move |partition| format!("{name}/{partition}")).collect::<Vec<_>>()
    };
    let partitions = answer.assignment.as_ref().map(|all| all.topic_partitions.iter().flat_map(named).collect());
    (answer.member_epoch, partitions)
}

fn set(names: &[&str]) -> Option<BTreeSet<String>> {
    Some(names.iter().map(|name| name.to_string()).collect())
}

fn described(client: &mut Client) -> (i32, Vec<(String, usize)>) {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]);
    let group = client.ask(1, request).groups.remove(0);
    assert_eq!(group.error_code, 0);
    let one = |member: &consumer_group_describe_response::Member| {
        let regex = member.subscribed_topic_regex.as_ref().expect("shown").to_string();
        (regex, member.subscribed_topic_names.len())
    };
    (group.group_epoch, group.members.iter().map(one).collect())
}

fn topics(client: &mut Client) -> MetadataResponse {
    client.ask(12, MetadataRequest::default().with_topics(None))
}

#[test]
fn topics_that_match_join_the_subscription_and_leave_it_and_the_expression_outlives_a_restart() {
    let mut served = serve();
    for (topic, partitions) in [("orders-1", 2), ("orders-2", 1), ("my-orders-1", 1)] {
        served.log.create_topic(topic, partitions).expect("a topic");
    }
    let mut client = served.client();
    let ids = topics(&mut client);
    let first = client.ask(1, joins("a", "orders-.*"));
    assert_eq!(told(&served.log, &first, &ids), (1, set(&["orders-1/0", "orders-1/1", "orders-2/0"])), "whole names");
    assert_eq!(told(&served.log, &client.ask(1, beats("a", 1)), &ids), (1, None));
    assert_eq!(described(&mut client), (1, vec![("orders-.*".to_string(), 0)]));

    served.log.create_topic("orders-3", 1).expect("a topic");
    served.log.create_topic("other", 1).expect("a topic");
    let ids = topics(&mut client);
    let all = set(&["orders-1/0", "orders-1/1", "orders-2/0", "orders-3/0"]);
    assert_eq!(told(&served.log, &client.ask(1, beats("a", 1)), &ids), (2, all));

    served.broker.stop();
    served.log.close().expect("closed");
    let platform = Platform::real();
    served.log = Log::open(&platform, &served.dir.path().join("log"), LogOptions::default()).expect("opened");
    let address = "127.0.0.1:0".parse().expect("an address");
    served.broker = Broker::start(&platform, served.log.clone(), address, BrokerOptions::default()).expect("started");
    let mut client = served.client();
    assert_eq!(told(&served.log, &client.ask(1, beats("a", 2)), &ids), (2, None), "nothing has changed");
    assert_eq!(described(&mut client), (2, vec![("orders-.*".to_string(), 0)]));

    // A topic goes: what was read of it can't be given up any more, so the rest is the new assignment.
    served.log.delete_topic("orders-1").expect("deleted");
    let left = |topic: &str| {
        let id = ids.topics.iter().find(|known| known.name == Some(name(topic))).expect("listed").topic_id;
        TopicPartitions::default().with_topic_id(id).with_partitions(vec![0])
    };
    let owns = vec![left("orders-2"), left("orders-3")];
    let gone = client.ask(1, beats("a", 2).with_topic_partitions(Some(owns)));
    assert_eq!(told(&served.log, &gone, &ids), (3, set(&["orders-2/0", "orders-3/0"])));

    // Another expression, beside names; then none.
    let other = beats("a", 3)
        .with_subscribed_topic_regex(Some(text("orders-[3-9]")))
        .with_subscribed_topic_names(Some(vec![name("other")]));
    let other = client.ask(1, other);
    assert_eq!(told(&served.log, &other, &ids), (3, set(&["orders-3/0"])), "one is to be given up first");
    let owns = vec![left("orders-3")];
    let other = client.ask(1, beats("a", 3).with_topic_partitions(Some(owns)));
    assert_eq!(told(&served.log, &other, &ids), (4, set(&["orders-3/0", "other/0"])));
    let none = client.ask(1, beats("a", 4).with_subscribed_topic_regex(Some(text(""))));
    assert_eq!(told(&served.log, &none, &ids), (4, set(&["other/0"])));
    assert_eq!(described(&mut client), (5, vec![(String::new(), 1)]));
}

#[test]
fn what_is_no_expression_is_refused_and_who_says_neither_names_nor_one_is_too() {
    let served = serve();
    let mut client = served.client();
    let code = |client: &mut Client, request: ConsumerGroupHeartbeatRequest| client.ask(1, request).error_code;
    for regex in ["(", "*", "a{2,1}", "(?=a)"] {
        let answer = client.ask(1, joins("a", regex));
        assert_eq!(answer.error_code, ResponseError::InvalidRegularExpression.code(), "{regex}");
        assert!(answer.error_message.is_some_and(|why| !why.is_empty()));
    }
    let neither = joins("a", "").with_subscribed_topic_regex(None);
    assert_eq!(code(&mut client, neither), ResponseError::InvalidRequest.code());
    assert_eq!(code(&mut client, joins("a", "nothing-.*")), 0, "it may match nothing yet");
    served.log.create_topic("nothing-yet", 1).expect("a topic");
    let ids = topics(&mut client);
    assert_eq!(told(&served.log, &client.ask(1, beats("a", 1)), &ids), (2, set(&["nothing-yet/0"])));
}

#[test]
fn a_member_gets_only_the_topics_that_it_may_see_as_rights_come_and_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let (platform, data) = (Platform::real(), dir.path().join("log"));
    let users = Users::open(&platform, &data).expect("users");
    for user in ["admin", "alice"] {
        users.set_password(user, format!("{user}'s password").as_bytes()).expect("kept");
    }
    let log = Log::open(&platform, &data, LogOptions::default()).expect("a fresh log");
    let security = Security {
        data: Some(data),
        authorize: true,
        super_users: vec!["User:admin".to_string()],
        ..Security::default()
    };
    let listen: Listen = "sasl://127.0.0.1:0".parse().expect("a listener");
    let options = BrokerOptions { security, ..BrokerOptions::default() };
    let broker = Broker::serve(&platform, log.clone(), &[listen], options).expect("a free port");
    let login = |user: &str| {
        let mut client = Client::connect(broker.address());
        assert_eq!(client.login(user, &format!("{user}'s password")), 0);
        client
    };
    let mut admin = login("admin");
    let mut rule = |kind: i8, name: &str, operation: i8, permission: i8| {
        let rule = create_acls_request::AclCreation::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_resource_pattern_type(3)
            .with_principal(text("User:alice"))
            .with_host(text("*"))
            .with_operation(operation)
            .with_permission_type(permission);
        let made = admin.ask(3, CreateAclsRequest::default().with_creations(vec![rule]));
        assert_eq!(made.results[0].error_code, 0);
    };
    for topic in ["t1", "t2", "t3"] {
        log.create_topic(topic, 1).expect("a topic");
    }
    let [topic, group, read, describe, allow, deny] = [2, 3, 3, 8, 3, 2];
    rule(group, "g", read, allow);
    rule(topic, "t1", describe, allow);
    let mut alice = login("alice");
    let ids = topics(&mut login("admin"));
    assert_eq!(told(&log, &alice.ask(1, joins("a", ".*")), &ids), (1, set(&["t1/0"])));
    rule(topic, "t2", read, allow);
    assert_eq!(told(&log, &alice.ask(1, beats("a", 1)), &ids), (2, set(&["t1/0", "t2/0"])), "to read is to describe");
    rule(topic, "t1", describe, deny);
    assert_eq!(told(&log, &alice.ask(1, beats("a", 2)), &ids), (2, set(&["t2/0"])), "t1 is to be given up");
    broker.stop();
}

#[test]
fn transactions_are_listed_by_a_pattern_of_their_ids() {
    let served = serve();
    let mut client = served.client();
    for id in ["pay-1", "pay-2", "repay-1", "zählen"] {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(id))))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        assert_eq!(client.ask(4, request).error_code, 0);
    }
    let mut list = |pattern: Option<&str>| {
        let request = ListTransactionsRequest::default()
            .with_duration_filter(-1)
            .with_transactional_id_pattern(pattern.map(text));
        let answer = client.ask(2, request);
        let ids: Vec<String> =
            answer.transaction_states.iter().map(|listed| listed.transactional_id.to_string()).collect();
        (answer.error_code, ids)
    };
    let of = |ids: &[&str]| (0, ids.iter().map(|id| id.to_string()).collect::<Vec<_>>());
    assert_eq!(list(None), of(&["pay-1", "pay-2", "repay-1", "zählen"]));
    assert_eq!(list(Some("")), of(&["pay-1", "pay-2", "repay-1", "zählen"]), "an empty one is none");
    assert_eq!(list(Some("pay-.")), of(&["pay-1", "pay-2"]), "whole ids");
    assert_eq!(list(Some(".*-1")), of(&["pay-1", "repay-1"]));
    assert_eq!(list(Some("z.hlen")), of(&["zählen"]), "a character is one, not its bytes");
    assert_eq!(list(Some("nobody")), of(&[]));
    assert_eq!(list(Some("(")), (ResponseError::InvalidRegularExpression.code(), vec![]));
}
