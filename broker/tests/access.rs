//! Users and rights over the wire: who hasn't proved who it is gets nothing, and who has gets what its rules allow.

mod common;
#[path = "common/scram.rs"]
mod scram;

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use common::*;
use cutwater_broker::{Broker, BrokerLimits, BrokerOptions, Listen, Security, Users};
use cutwater_partition_log::batch::ProducerStamp;
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::{Clock, Platform, SystemClock};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};

const TOPIC: i16 = 29;
const GROUP: i16 = 30;
const CLUSTER: i16 = 31;
const ILLEGAL_STATE: i16 = 34;
const UNSUPPORTED: i16 = 33;
const TRANSACTIONAL_ID: i16 = 53;
const DISABLED: i16 = 54;
const FAILED: i16 = 58;

/// A broker with the users admin (who may do everything), alice and bob.
struct Guarded {
    broker: Broker,
    log: Log,
    users: Users,
    dir: tempfile::TempDir,
}

fn guarded_with(authorize: bool, limits: BrokerLimits) -> Guarded {
    let dir = tempfile::tempdir().expect("a directory");
    let (platform, data) = (Platform::real(), dir.path().join("log"));
    let users = Users::open(&platform, &data).expect("users before the log was ever opened");
    for user in ["admin", "alice", "bob"] {
        users.set_password(user, format!("{user}'s password").as_bytes()).expect("kept");
    }
    let log = Log::open(&platform, &data, LogOptions::default()).expect("a fresh log");
    let security = Security {
        tls: None,
        data: Some(data),
        authorize,
        super_users: vec!["User:admin".to_string()],
        ..Security::default()
    };
    let listen: Vec<Listen> = ["sasl://127.0.0.1:0", "127.0.0.1:0"].map(|l| l.parse().expect("a listener")).into();
    let options = BrokerOptions { security, limits, ..BrokerOptions::default() };
    let broker = Broker::serve(&platform, log.clone(), &listen, options).expect("free ports");
    Guarded { broker, log, users, dir }
}

fn guarded() -> Guarded {
    guarded_with(true, BrokerLimits::default())
}

impl Guarded {
    fn stranger(&self) -> Client {
        Client::connect(self.broker.address())
    }

    fn client(&self, user: &str) -> Client {
        let mut client = self.stranger();
        assert_eq!(client.login(user, &format!("{user}'s password")), 0);
        client
    }

    /// Has the administrator make a rule.
    fn allow(&self, user: &str, kind: i8, name: &str, operation: i8) {
        self.rule(user, kind, name, operation, 3);
    }

    fn rule(&self, user: &str, kind: i8, name: &str, operation: i8, permission: i8) {
        let rule = create_acls_request::AclCreation::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_resource_pattern_type(3)
            .with_principal(text(&format!("User:{user}")))
            .with_host(text("*"))
            .with_operation(operation)
            .with_permission_type(permission);
        let made = self.client("admin").ask(3, CreateAclsRequest::default().with_creations(vec![rule]));
        assert_eq!((made.results.len(), made.results[0].error_code), (1, 0));
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

#[test]
fn the_right_password_opens_the_door_and_everything_else_closes_it() {
    let guarded = guarded_with(false, BrokerLimits::default());
    let mut alice = guarded.client("alice");
    assert_eq!(
        produced(&alice.ask(9, produce("words", 0, -1, batch(PLAIN, &["a"])))).0,
        3,
        "in, and there is no topic yet"
    );
    alice.ask(9, MetadataRequest::default().with_topics(Some(Vec::new())));
    assert_eq!(alice.choose(1, "SCRAM-SHA-256"), ILLEGAL_STATE, "once is enough");
    alice.ask(9, MetadataRequest::default());
    let mut failed = 0;
    for (user, password) in
        [("alice", "bob's password"), ("mallory", "mallory's password"), ("ali", ""), ("User:alice", "x")]
    {
        let mut client = guarded.stranger();
        assert_eq!(client.login(user, password), FAILED, "{user}");
        assert!(client.frame().is_none(), "the connection is closed");
        failed += 1;
        assert_eq!(guarded.broker.failed_authentications(), failed);
    }
    for wrong in
        [b"n,,n=alice".to_vec(), b"p=tls,,n=alice,r=x".to_vec(), b"\0alice\0alice's password".to_vec(), Vec::new()]
    {
        let mut client = guarded.stranger();
        assert_eq!(client.choose(1, "SCRAM-SHA-512"), 0);
        assert_eq!(client.say(wrong).0, FAILED);
        assert!(client.frame().is_none());
    }
    let mut client = guarded.stranger();
    assert_eq!(client.choose(1, "PLAIN"), UNSUPPORTED);
    assert_eq!(client.login("bob", "bob's password"), 0, "it may choose again");
    let mut open = Client::connect(guarded.broker.addresses()[1]);
    assert_eq!(open.choose(1, "SCRAM-SHA-256"), ILLEGAL_STATE, "nobody asks here");
    open.ask(9, MetadataRequest::default());
}

#[test]
fn the_older_way_without_headers_works_and_fails_the_same() {
    let guarded = guarded_with(false, BrokerLimits::default());
    for (password, right) in [("alice's password", true), ("guessed", false)] {
        let mut client = guarded.stranger();
        assert_eq!(client.choose(0, "SCRAM-SHA-256"), 0);
        let mut bare = |message: &[u8]| {
            let size = (message.len() as i32).to_be_bytes();
            client.stream.write_all(&[&size[..], message].concat()).expect("sent");
            client.frame()
        };
        let first = scram::first("alice");
        let server = bare(&first).expect("a challenge");
        let (last, proof) = scram::last(&first, &server, password);
        let answer = bare(&last);
        assert_eq!(answer.as_deref(), right.then_some(&proof[..]));
        if right {
            client.ask(9, MetadataRequest::default());
        }
    }
}

/// Whether a client that hasn't proved who it is gets an answer.
fn answered<R: Request + Default>(guarded: &Guarded, version: i16) -> bool {
    let mut client = guarded.stranger();
    client.send(version, &R::default());
    client.frame().is_some()
}

#[test]
fn a_stranger_is_told_which_apis_there_are_and_nothing_else() {
    let guarded = guarded();
    assert!(answered::<ApiVersionsRequest>(&guarded, 4) && answered::<SaslHandshakeRequest>(&guarded, 1));
    let refused = [
        answered::<MetadataRequest>(&guarded, 9),
        answered::<ProduceRequest>(&guarded, 9),
        answered::<FetchRequest>(&guarded, 11),
        answered::<FindCoordinatorRequest>(&guarded, 3),
        answered::<CreateTopicsRequest>(&guarded, 7),
        answered::<InitProducerIdRequest>(&guarded, 4),
        answered::<DescribeClusterRequest>(&guarded, 0),
        answered::<DescribeAclsRequest>(&guarded, 3),
        answered::<AlterUserScramCredentialsRequest>(&guarded, 0),
        answered::<ListGroupsRequest>(&guarded, 4),
    ];
    assert_eq!(refused, [false; 10]);
    // In the middle of proving it, too.
    let mut client = guarded.stranger();
    assert_eq!(client.choose(1, "SCRAM-SHA-256"), 0);
    assert_eq!(client.say(scram::first("alice")).0, 0);
    client.send(9, &MetadataRequest::default());
    assert!(client.frame().is_none());
}

#[test]
fn before_a_client_is_known_its_frames_are_small_and_its_time_is_short() {
    let limits = BrokerLimits { authentication: Duration::from_millis(700), handshakes: 2, ..BrokerLimits::default() };
    let guarded = guarded_with(false, limits);
    let mut large = guarded.stranger();
    large.stream.write_all(&(65i32 << 10).to_be_bytes()).expect("sent");
    assert!(large.frame().is_none(), "a frame of more than 64 KiB");
    let mut known = guarded.client("alice");
    // Two that come and don't go on take all the room there is for strangers, for as long as they have.
    let mut silent: Vec<Client> = (0..2).map(|_| guarded.stranger()).collect();
    SystemClock::new().sleep(Duration::from_millis(150));
    assert!(guarded.stranger().frame().is_none(), "no room for a third");
    known.ask(9, MetadataRequest::default());
    assert!(silent.iter_mut().all(|client| client.frame().is_none()), "their time is up");
    let mut slow = guarded.stranger();
    for _ in 0..20 {
        SystemClock::new().sleep(Duration::from_millis(100));
        slow.send(3, &ApiVersionsRequest::default());
        if slow.frame().is_none() {
            known.ask(9, MetadataRequest::default());
            return;
        }
    }
    panic!("who keeps asking for versions isn't let off");
}

#[test]
fn what_the_command_line_changes_is_in_force_within_seconds() {
    let guarded = guarded_with(false, BrokerLimits::default());
    let [mut alice, mut bob, mut admin] = ["alice", "bob", "admin"].map(|user| guarded.client(user));
    guarded.users.set_password("alice", b"another").expect("kept");
    assert!(guarded.users.remove("bob").expect("kept") && !guarded.users.remove("bob").expect("read"));
    let clock = SystemClock::new();
    let end = clock.monotonic() + Duration::from_secs(20);
    while guarded.stranger().login("alice", "another") != 0 {
        assert!(clock.monotonic() < end, "never");
    }
    assert_eq!(guarded.stranger().login("alice", "alice's password"), FAILED);
    assert_eq!(guarded.stranger().login("bob", "bob's password"), FAILED);
    // Who couldn't come in as what it is any more is let go with its next request, and nobody else.
    for gone in [&mut alice, &mut bob] {
        gone.send(9, &MetadataRequest::default());
        assert!(gone.frame().is_none());
    }
    admin.ask(9, MetadataRequest::default());
    assert_eq!(guarded.users.names(), ["admin", "alice"]);
}

#[test]
fn users_are_made_over_the_wire_by_who_may() {
    use alter_user_scram_credentials_request::{ScramCredentialDeletion, ScramCredentialUpsertion};
    let guarded = guarded();
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<sha2::Sha256>(b"carol's password", b"some salt", 4096, &mut salted);
    let set = |name: &str, iterations: i32| {
        ScramCredentialUpsertion::default()
            .with_name(text(name))
            .with_mechanism(1)
            .with_iterations(iterations)
            .with_salt((&b"some salt"[..]).into())
            .with_salted_password(salted.to_vec().into())
    };
    let request = |sets: Vec<ScramCredentialUpsertion>, gone: &[&str]| {
        let gone = gone.iter().map(|name| ScramCredentialDeletion::default().with_name(text(name)).with_mechanism(1));
        AlterUserScramCredentialsRequest::default().with_upsertions(sets).with_deletions(gone.collect())
    };
    let codes = |answer: AlterUserScramCredentialsResponse| -> Vec<(String, i16)> {
        answer.results.iter().map(|result| (result.user.to_string(), result.error_code)).collect()
    };
    let coded =
        |pairs: &[(&str, i16)]| -> Vec<(String, i16)> { pairs.iter().map(|(n, c)| (n.to_string(), *c)).collect() };
    let refused = guarded.client("alice").ask(0, request(vec![set("carol", 4096)], &[]));
    assert_eq!(codes(refused), coded(&[("carol", CLUSTER)]));
    let mut admin = guarded.client("admin");
    let mixed =
        request(vec![set("carol", 4096), set("weak", 4095), set("twice", 4096), set("twice", 4097)], &["nobody"]);
    let made = admin.ask(0, mixed);
    assert_eq!(codes(made), coded(&[("carol", 0), ("nobody", 91), ("twice", 92), ("weak", 93)]));
    assert_eq!(guarded.stranger().login("carol", "carol's password"), 0);
    let described = admin.ask(0, DescribeUserScramCredentialsRequest::default().with_users(None));
    let described: Vec<_> = described
        .results
        .iter()
        .map(|r| {
            (r.user.to_string(), r.credential_infos.iter().map(|i| (i.mechanism, i.iterations)).collect::<Vec<_>>())
        })
        .collect();
    let both = vec![(1, 16_384), (2, 16_384)];
    let expected = [("admin", both.clone()), ("alice", both.clone()), ("bob", both), ("carol", vec![(1, 4096)])];
    assert_eq!(described, expected.map(|(name, infos)| (name.to_string(), infos)));
    assert_eq!(codes(admin.ask(0, request(Vec::new(), &["carol"]))), coded(&[("carol", 0)]));
    assert_eq!(guarded.stranger().login("carol", "carol's password"), FAILED);
}

#[test]
fn without_authorisation_rules_are_refused_as_switched_off() {
    let guarded = guarded_with(false, BrokerLimits::default());
    let answer = guarded.client("alice").ask(3, DescribeAclsRequest::default().with_resource_type_filter(1));
    assert_eq!(answer.error_code, DISABLED);
}

/// Whoever has no rights gets the code that belongs to what was asked for, whether or not the thing is there.
#[test]
fn who_has_no_right_hears_so_in_the_code_that_each_api_has_for_it() {
    let guarded = guarded();
    guarded.log.create_topic("words", 1).expect("a topic");
    let mut client = guarded.client("alice");
    for topic in ["words", "nothing"] {
        assert_eq!(produced(&client.ask(9, produce(topic, 0, -1, batch(PLAIN, &["a"])))).0, TOPIC);
        assert_eq!(fetched(&client.ask(11, fetch(topic, 0, 0, 0, 0))).error_code, TOPIC);
        let asked = metadata_request::MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(true);
        let answer = client.ask(9, request);
        assert_eq!((answer.topics[0].error_code, answer.topics[0].partitions.len()), (TOPIC, 0));
        let partition = list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
        let asked =
            list_offsets_request::ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let answer = client.ask(5, ListOffsetsRequest::default().with_topics(vec![asked]));
        assert_eq!(answer.topics[0].partitions[0].error_code, TOPIC);
        let asked = delete_topics_request::DeleteTopicState::default().with_name(Some(name(topic)));
        assert_eq!(
            client.ask(6, DeleteTopicsRequest::default().with_topics(vec![asked])).responses[0].error_code,
            TOPIC
        );
        let asked = create_partitions_request::CreatePartitionsTopic::default().with_name(name(topic)).with_count(5);
        assert_eq!(
            client.ask(3, CreatePartitionsRequest::default().with_topics(vec![asked])).results[0].error_code,
            TOPIC
        );
        let asked = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text(topic));
        assert_eq!(
            client.ask(4, DescribeConfigsRequest::default().with_resources(vec![asked])).results[0].error_code,
            TOPIC
        );
        let asked = incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text(topic));
        let answer = client.ask(1, IncrementalAlterConfigsRequest::default().with_resources(vec![asked]));
        assert_eq!(answer.responses[0].error_code, TOPIC);
        let partition = delete_records_request::DeleteRecordsPartition::default();
        let asked = delete_records_request::DeleteRecordsTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![partition]);
        let answer = client.ask(2, DeleteRecordsRequest::default().with_topics(vec![asked]));
        assert_eq!(answer.topics[0].partitions[0].error_code, TOPIC);
        let asked =
            describe_producers_request::TopicRequest::default().with_name(name(topic)).with_partition_indexes(vec![0]);
        let answer = client.ask(0, DescribeProducersRequest::default().with_topics(vec![asked]));
        assert_eq!(answer.topics[0].partitions[0].error_code, TOPIC);
        let partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default();
        let asked = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
            .with_topic(name(topic))
            .with_partitions(vec![partition]);
        let answer = client.ask(4, OffsetForLeaderEpochRequest::default().with_topics(vec![asked]));
        assert_eq!(answer.topics[0].partitions[0].error_code, TOPIC);
    }
    let all = client.ask(9, MetadataRequest::default().with_topics(None));
    assert_eq!((all.topics.len(), all.brokers.len()), (0, 1), "nothing is named that may not be seen");
    let creatable = create_topics_request::CreatableTopic::default()
        .with_name(name("mine"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    assert_eq!(client.ask(7, CreateTopicsRequest::default().with_topics(vec![creatable])).topics[0].error_code, TOPIC);

    let group = || GroupId(text("g"));
    assert_eq!(client.ask(3, FindCoordinatorRequest::default().with_key(text("g"))).error_code, GROUP);
    assert_eq!(
        client.ask(3, FindCoordinatorRequest::default().with_key(text("t")).with_key_type(1)).error_code,
        TRANSACTIONAL_ID
    );
    let protocol = join_group_request::JoinGroupRequestProtocol::default().with_name(text("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(6000)
        .with_protocol_type(text("consumer"));
    assert_eq!(client.ask(5, join.with_protocols(vec![protocol])).error_code, GROUP);
    assert_eq!(client.ask(3, SyncGroupRequest::default().with_group_id(group())).error_code, GROUP);
    assert_eq!(client.ask(3, HeartbeatRequest::default().with_group_id(group())).error_code, GROUP);
    assert_eq!(client.ask(3, LeaveGroupRequest::default().with_group_id(group())).error_code, GROUP);
    let partition = offset_commit_request::OffsetCommitRequestPartition::default();
    let asked = offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(name("words"))
        .with_partitions(vec![partition]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![asked]);
    assert_eq!(client.ask(7, commit.clone()).topics[0].partitions[0].error_code, GROUP);
    assert_eq!(client.ask(6, OffsetFetchRequest::default().with_group_id(group()).with_topics(None)).error_code, GROUP);
    assert_eq!(client.ask(5, DescribeGroupsRequest::default().with_groups(vec![group()])).groups[0].error_code, GROUP);
    assert_eq!(
        client.ask(2, DeleteGroupsRequest::default().with_groups_names(vec![group()])).results[0].error_code,
        GROUP
    );
    assert_eq!(client.ask(0, OffsetDeleteRequest::default().with_group_id(group())).error_code, GROUP);
    assert!(client.ask(4, ListGroupsRequest::default()).groups.is_empty());

    let id = || TransactionalId(text("t"));
    assert_eq!(
        client
            .ask(
                4,
                InitProducerIdRequest::default().with_transactional_id(Some(id())).with_transaction_timeout_ms(1000)
            )
            .error_code,
        TRANSACTIONAL_ID
    );
    assert_eq!(client.ask(4, InitProducerIdRequest::default().with_transactional_id(None)).error_code, CLUSTER);
    let asked = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(name("words"))
        .with_partitions(vec![0]);
    let add = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id())
        .with_v3_and_below_topics(vec![asked]);
    let answer = client.ask(3, add.clone());
    assert_eq!(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, TRANSACTIONAL_ID);
    assert_eq!(
        client.ask(3, AddOffsetsToTxnRequest::default().with_transactional_id(id()).with_group_id(group())).error_code,
        TRANSACTIONAL_ID
    );
    let partition = txn_offset_commit_request::TxnOffsetCommitRequestPartition::default();
    let asked = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
        .with_name(name("words"))
        .with_partitions(vec![partition]);
    let offsets =
        TxnOffsetCommitRequest::default().with_transactional_id(id()).with_group_id(group()).with_topics(vec![asked]);
    assert_eq!(client.ask(3, offsets).topics[0].partitions[0].error_code, TRANSACTIONAL_ID);
    assert_eq!(client.ask(3, EndTxnRequest::default().with_transactional_id(id())).error_code, TRANSACTIONAL_ID);
    let answer = client.ask(0, DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]));
    assert_eq!(answer.transaction_states[0].error_code, TRANSACTIONAL_ID);
    assert!(client.ask(0, ListTransactionsRequest::default()).transaction_states.is_empty());

    let asked = write_txn_markers_request::WritableTxnMarkerTopic::default()
        .with_name(name("words"))
        .with_partition_indexes(vec![0]);
    let marker = write_txn_markers_request::WritableTxnMarker::default().with_topics(vec![asked]);
    let answer = client.ask(1, WriteTxnMarkersRequest::default().with_markers(vec![marker]));
    assert_eq!(answer.markers[0].topics[0].partitions[0].error_code, CLUSTER);
    assert_eq!(client.ask(3, DescribeAclsRequest::default().with_resource_type_filter(1)).error_code, CLUSTER);
    let rule = create_acls_request::AclCreation::default();
    assert_eq!(client.ask(3, CreateAclsRequest::default().with_creations(vec![rule])).results[0].error_code, CLUSTER);
    let filter = delete_acls_request::DeleteAclsFilter::default();
    assert_eq!(
        client.ask(3, DeleteAclsRequest::default().with_filters(vec![filter])).filter_results[0].error_code,
        CLUSTER
    );
    assert_eq!(client.ask(0, DescribeUserScramCredentialsRequest::default().with_users(None)).error_code, CLUSTER);
    assert_eq!(client.ask(0, ListPartitionReassignmentsRequest::default()).error_code, CLUSTER);
    let asked = describe_configs_request::DescribeConfigsResource::default().with_resource_type(4);
    assert_eq!(
        client.ask(4, DescribeConfigsRequest::default().with_resources(vec![asked])).results[0].error_code,
        CLUSTER
    );

    // A right to a group isn't one to the topics in it, nor to a transactional id one to topics.
    guarded.allow("alice", 3, "g", 3);
    guarded.allow("alice", 5, "t", 4);
    assert_eq!(client.ask(7, commit).topics[0].partitions[0].error_code, TOPIC);
    let answer = client.ask(3, add);
    assert_eq!(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, TOPIC);
    let topic = guarded.log.topic("words").expect("it is there");
    assert_eq!(guarded.log.offsets(topic.id, 0).expect("offsets").log_end.0, 0, "nothing was written");
}

#[test]
fn rights_open_exactly_what_they_name_and_a_denial_closes_it() {
    let guarded = guarded();
    for topic in ["words", "others"] {
        guarded.log.create_topic(topic, 1).expect("a topic");
    }
    guarded.allow("alice", 2, "words", 4);
    let mut client = guarded.client("alice");
    assert_eq!(produced(&client.ask(9, produce("words", 0, -1, batch(PLAIN, &["a"])))), (0, 0));
    assert_eq!(produced(&client.ask(9, produce("others", 0, -1, batch(PLAIN, &["a"])))).0, TOPIC);
    assert_eq!(fetched(&client.ask(11, fetch("words", 0, 0, 0, 0))).error_code, TOPIC, "to write isn't to read");
    let names = |answer: MetadataResponse| -> Vec<String> {
        answer.topics.iter().map(|topic| topic.name.as_ref().expect("a name").to_string()).collect()
    };
    let everything = || MetadataRequest::default().with_topics(None);
    assert_eq!(names(client.ask(9, everything())), ["words"], "to write is to see");
    assert_eq!(client.ask(4, InitProducerIdRequest::default().with_transactional_id(None)).error_code, 0);
    guarded.allow("*", 2, "*", 3);
    assert!(fetched(&client.ask(11, fetch("others", 0, 0, 0, 0))).error_code == 0);
    guarded.rule("alice", 2, "others", 2, 2);
    assert_eq!(fetched(&client.ask(11, fetch("others", 0, 0, 0, 0))).error_code, TOPIC, "the denial wins");
    assert_eq!(fetched(&guarded.client("bob").ask(11, fetch("others", 0, 0, 0, 0))).error_code, 0, "bob isn't denied");
    let mut nobody = Client::connect(guarded.broker.addresses()[1]);
    assert_eq!(fetched(&nobody.ask(11, fetch("words", 0, 0, 0, 0))).error_code, 0, "* is everybody");
    assert_eq!(produced(&nobody.ask(9, produce("words", 0, -1, batch(PLAIN, &["a"])))).0, TOPIC);
    // A connection that was refused without acknowledgement hears it by being closed.
    nobody.send(9, &produce("words", 0, 0, batch(PLAIN, &["a"])));
    assert!(nobody.frame().is_none());
}

#[test]
fn rights_and_users_outlive_the_broker() {
    let guarded = guarded();
    guarded.log.create_topic("words", 1).expect("a topic");
    guarded.allow("alice", 2, "words", 3);
    let (platform, options) = (Platform::real(), BrokerOptions::default());
    guarded.broker.stop();
    let security = Security { data: Some(guarded.dir.path().join("log")), authorize: true, ..Security::default() };
    let listen: Listen = "sasl://127.0.0.1:0".parse().expect("a listener");
    let options = BrokerOptions { security, ..options };
    let next = Broker::serve(&platform, guarded.log.clone(), &[listen], options).expect("a port");
    let mut client = Client::<TcpStream>::connect(next.address());
    assert_eq!(client.login("alice", "alice's password"), 0);
    assert_eq!(fetched(&client.ask(11, fetch("words", 0, 0, 0, 0))).error_code, 0);
    assert_eq!(produced(&client.ask(9, produce("words", 0, -1, batch(PLAIN, &["a"])))).0, TOPIC);
    assert_eq!(
        client.ask(3, DescribeAclsRequest::default().with_resource_type_filter(1)).error_code,
        CLUSTER,
        "no super user now"
    );
}

#[test]
fn a_producer_id_is_its_users_whoever_else_may_write_to_the_topic() {
    let guarded = guarded();
    guarded.log.create_topic("words", 1).expect("a topic");
    for user in ["alice", "bob"] {
        guarded.allow(user, 2, "words", 4);
    }
    let (mut alice, mut bob) = (guarded.client("alice"), guarded.client("bob"));
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    let given = alice.ask(4, request.with_producer_id(ProducerId(-1)).with_producer_epoch(-1));
    assert_eq!(given.error_code, 0);
    let plain = |epoch: i16, base_sequence: i32| {
        let producer_id = given.producer_id.0;
        let stamp = ProducerStamp { producer_id, epoch, base_sequence, transactional: false };
        produce("words", 0, -1, batch(stamp, &["a value"]))
    };
    assert_eq!(produced(&alice.ask(9, plain(0, 0))), (0, 0));
    assert_eq!(produced(&bob.ask(9, plain(1, 0))).0, 49, "INVALID_PRODUCER_ID_MAPPING: it would fence hers");
    guarded.allow("bob", 5, "his", 4);
    let named = plain(1, 0).with_transactional_id(Some(TransactionalId(text("his"))));
    assert_eq!(produced(&bob.ask(9, named)).0, 49, "whatever transactional id he names");
    assert_eq!(produced(&bob.ask(9, produce("words", 0, -1, batch(PLAIN, &["his own"])))), (0, 1));
    assert_eq!(produced(&alice.ask(9, plain(0, 1))), (0, 2));
    let mut again = guarded.client("alice");
    assert_eq!(produced(&again.ask(9, plain(1, 0))), (0, 3), "she may raise it herself, over any connection");
}
