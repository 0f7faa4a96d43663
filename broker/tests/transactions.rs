//! Transactions over the wire, by the older and by the newer protocol.

mod common;

use common::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::{OwnerId, TopicPartition, TxnName};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Producer {
    id: i64,
    epoch: i16,
}

fn txn() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("transfers"))
}

fn init(client: &mut Client, version: i16, expected: Option<Producer>) -> Result<Producer, i16> {
    let mut request =
        InitProducerIdRequest::default().with_transactional_id(Some(txn())).with_transaction_timeout_ms(60_000);
    if let Some(expected) = expected {
        request = request.with_producer_id(ProducerId(expected.id)).with_producer_epoch(expected.epoch);
    } else if version >= 3 {
        request = request.with_producer_id(ProducerId(-1)).with_producer_epoch(-1);
    }
    let answer = client.ask(version, request);
    match answer.error_code {
        0 => Ok(Producer { id: answer.producer_id.0, epoch: answer.producer_epoch }),
        code => Err(code),
    }
}

fn add(client: &mut Client, version: i16, producer: Producer, topics: &[&str]) -> Vec<i16> {
    let topics =
        topics.iter().map(|topic| AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![0]));
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(txn())
        .with_v3_and_below_producer_id(ProducerId(producer.id))
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(topics.collect());
    let answer = client.ask(version, request);
    let results = answer.results_by_topic_v3_and_below.iter().flat_map(|topic| &topic.results_by_partition);
    results.map(|result| result.partition_error_code).collect()
}

fn send(client: &mut Client, version: i16, producer: Producer, sequence: i32, value: &str) -> i16 {
    let stamp =
        ProducerStamp { producer_id: producer.id, epoch: producer.epoch, base_sequence: sequence, transactional: true };
    let request = produce("words", 0, -1, batch(stamp, &[value])).with_transactional_id(Some(txn()));
    produced(&client.ask(version, request)).0
}

fn end(producer: Producer, committed: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(txn())
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(committed)
}

/// High watermark, last stable offset, and aborted transactions that a read-committed fetch from 0 answers.
fn look(client: &mut Client) -> (i64, i64, usize) {
    let answer = client.ask(11, fetch("words", 0, 0, 0, 0).with_isolation_level(1));
    let partition = fetched(&answer);
    let aborted = partition.aborted_transactions.as_ref().map_or(0, |aborted| aborted.len());
    (partition.high_watermark, partition.last_stable_offset, aborted)
}

#[test]
fn the_older_protocol_commits_aborts_and_repeats() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let me = init(&mut client, 4, None).expect("given");
    assert_eq!(send(&mut client, 10, me, 0, "too early"), ResponseError::InvalidTxnState.code());
    let not_attempted = ResponseError::OperationNotAttempted.code();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    assert_eq!(add(&mut client, 3, me, &["words", "nowhere"]), [not_attempted, unknown]);
    assert_eq!(add(&mut client, 3, me, &["words"]), [0]);
    assert_eq!(send(&mut client, 10, me, 0, "one"), 0);
    assert_eq!(look(&mut client), (1, 0, 0));
    for _ in 0..2 {
        assert_eq!(client.ask(3, end(me, true)).error_code, 0, "repeating an end is fine");
    }
    assert_eq!(client.ask(3, end(me, false)).error_code, ResponseError::InvalidTxnState.code());
    assert_eq!(look(&mut client), (2, 2, 0));
    assert_eq!(add(&mut client, 0, me, &["words"]), [0]);
    assert_eq!(send(&mut client, 10, me, 1, "two"), 0, "sequences run on");
    assert_eq!(client.ask(1, end(me, false)).error_code, 0);
    assert_eq!(look(&mut client), (4, 4, 1));
    // A client that has had an error asks for the next epoch itself.
    let next = init(&mut client, 4, Some(me)).expect("given");
    assert_eq!(next, Producer { epoch: me.epoch + 1, ..me });
    assert_eq!(init(&mut client, 4, Some(me)), Ok(next), "the answer was lost");
}

#[test]
fn the_newer_protocol_needs_no_partitions_and_every_end_has_an_epoch_of_its_own() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let features =
        client.ask(4, ApiVersionsRequest::default().with_client_software_name(StrBytes::from_static_str("t")));
    assert_eq!(features.finalized_features[0].max_version_level, 2, "transaction.version");
    let mut me = init(&mut client, 5, None).expect("given");
    for round in 0..3 {
        assert_eq!(send(&mut client, 12, me, 0, "a record"), 0);
        let (before, answers) = (me, [(); 2].map(|()| client.ask(5, end(me, round != 1))));
        assert_eq!(answers[0], answers[1], "repeating an end gets the same answer");
        me = Producer { id: answers[0].producer_id.0, epoch: answers[0].producer_epoch };
        assert_eq!((answers[0].error_code, me), (0, Producer { epoch: before.epoch + 1, ..before }));
        let late = send(&mut client, 12, before, 1, "late");
        assert_eq!(late, ResponseError::InvalidProducerEpoch.code());
    }
    assert_eq!(look(&mut client), (6, 6, 1));
    let nothing = client.ask(5, end(me, false));
    assert_eq!((nothing.error_code, nothing.producer_epoch), (0, me.epoch + 1), "an abort of nothing is fine");
}

#[test]
fn a_new_incarnation_ends_what_the_old_one_left_open_and_fences_it() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let (mut old, mut new) = (served.client(), served.client());
    let zombie = init(&mut old, 4, None).expect("given");
    add(&mut old, 3, zombie, &["words"]);
    assert_eq!(send(&mut old, 10, zombie, 0, "left open"), 0);
    let me = init(&mut new, 4, None).expect("at once, without being asked to come back");
    assert!(me.epoch > zombie.epoch);
    assert_eq!(look(&mut new), (2, 2, 1));
    add(&mut new, 3, me, &["words"]);
    // The zombie comes over a newer connection: that must not shut out its successor.
    let mut zombies = served.client();
    let fenced = ResponseError::ProducerFenced.code();
    assert_eq!(zombies.ask(3, end(zombie, true)).error_code, fenced);
    assert_eq!(zombies.ask(1, end(zombie, true)).error_code, ResponseError::InvalidProducerEpoch.code());
    assert_eq!(add(&mut zombies, 3, zombie, &["words"]), [fenced]);
    assert_eq!(send(&mut zombies, 10, zombie, 1, "late"), ResponseError::InvalidProducerEpoch.code());
    assert_eq!(init(&mut zombies, 4, Some(zombie)), Err(fenced));
    assert_eq!(send(&mut new, 10, me, 0, "mine"), 0);
    assert_eq!(new.ask(3, end(me, true)).error_code, 0);
    assert_eq!(look(&mut new), (4, 4, 1));
}

#[test]
fn a_delayed_end_over_an_older_connection_does_not_end_the_next_transaction() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let (mut old, mut new) = (served.client(), served.client());
    let me = init(&mut old, 4, None).expect("given");
    add(&mut old, 3, me, &["words"]);
    assert_eq!(send(&mut old, 10, me, 0, "one"), 0);
    // The client gives its connection up and repeats the end over a new one.
    assert_eq!(new.ask(3, end(me, true)).error_code, 0);
    add(&mut new, 3, me, &["words"]);
    assert_eq!(send(&mut new, 10, me, 1, "two"), 0);
    // The first attempt arrives only now.
    old.send(3, &end(me, true));
    assert!(old.frame().is_none(), "dropped, with its connection");
    assert_eq!(look(&mut new), (3, 2, 0), "the second transaction is open still");
    assert_eq!(new.ask(3, end(me, false)).error_code, 0);
    assert_eq!(look(&mut new), (4, 4, 1));
}

#[test]
fn a_zombie_on_an_older_connection_hears_that_its_epoch_is_over() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let (mut old, mut new) = (served.client(), served.client());
    let zombie = init(&mut old, 4, None).expect("given");
    add(&mut old, 3, zombie, &["words"]);
    let me = init(&mut new, 4, None).expect("given");
    assert!(me.epoch > zombie.epoch);
    add(&mut new, 3, me, &["words"]);
    // Kafka answers so as well; version 1 knows no better code.
    assert_eq!(old.ask(3, end(zombie, true)).error_code, ResponseError::ProducerFenced.code());
    assert_eq!(old.ask(1, end(zombie, true)).error_code, ResponseError::InvalidProducerEpoch.code());
    assert_eq!(add(&mut old, 3, zombie, &["words"]), [ResponseError::ProducerFenced.code()]);
    assert_eq!(new.ask(3, end(me, true)).error_code, 0, "its successor has heard nothing of it");
}

/// The offsets of transaction n, delayed and asked for again over a new connection, must not become those of transaction n+1: in
/// the older protocol both have the same epoch.
#[test]
fn delayed_offsets_over_an_older_connection_do_not_reach_the_next_transaction() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let offsets = |me: Producer, offset: i64| {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name("words")).with_partitions(vec![partition]);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(txn())
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_producer_id(ProducerId(me.id))
            .with_producer_epoch(me.epoch)
            .with_topics(vec![topic])
    };
    let into = |me: Producer| {
        let group = GroupId(StrBytes::from_static_str("g"));
        let request = AddOffsetsToTxnRequest::default().with_transactional_id(txn()).with_group_id(group);
        request.with_producer_id(ProducerId(me.id)).with_producer_epoch(me.epoch)
    };
    let code = |answer: TxnOffsetCommitResponse| answer.topics[0].partitions[0].error_code;
    let (mut old, mut new) = (served.client(), served.client());
    // Some clients have a connection of their own for the group's coordinator, older than the one for transactions.
    let me = init(&mut new, 4, None).expect("given");
    assert_eq!(new.ask(3, into(me)).error_code, 0);
    assert_eq!(code(old.ask(3, offsets(me, 5))), 0);
    assert_eq!(new.ask(3, end(me, true)).error_code, 0);
    assert_eq!(new.ask(3, into(me)).error_code, 0);
    let mut newest = served.client();
    assert_eq!(code(newest.ask(3, offsets(me, 6))), 0);
    old.send(3, &offsets(me, 5));
    assert!(old.frame().is_none(), "dropped, with its connection");
    assert_eq!(new.ask(3, end(me, true)).error_code, 0);
    let kept = served.log.group_offsets("g").expect("up").offsets;
    assert_eq!(kept.values().map(|offset| offset.offset.0).collect::<Vec<_>>(), [6]);
}

#[test]
fn offsets_are_the_groups_with_the_commit_and_unstable_before() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let group = GroupId(StrBytes::from_static_str("g"));
    let offsets = |me: Producer, offset: i64| {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name("words")).with_partitions(vec![partition]);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(txn())
            .with_group_id(group.clone())
            .with_producer_id(ProducerId(me.id))
            .with_producer_epoch(me.epoch)
            .with_topics(vec![topic])
    };
    let known = |client: &mut Client, stable: bool| {
        let topic = OffsetFetchRequestTopic::default().with_name(name("words")).with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default().with_group_id(group.clone()).with_topics(Some(vec![topic]));
        let answer = client.ask(7, request.with_require_stable(stable));
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.committed_offset)
    };
    let code = |answer: TxnOffsetCommitResponse| answer.topics[0].partitions[0].error_code;
    let me = init(&mut client, 4, None).expect("given");
    assert_eq!(code(client.ask(3, offsets(me, 5))), ResponseError::InvalidTxnState.code());
    let begin = AddOffsetsToTxnRequest::default()
        .with_transactional_id(txn())
        .with_producer_id(ProducerId(me.id))
        .with_producer_epoch(me.epoch)
        .with_group_id(group.clone());
    assert_eq!(client.ask(3, begin).error_code, 0);
    for version in 0..=3 {
        assert_eq!(code(client.ask(version, offsets(me, 5 + i64::from(version)))), 0);
    }
    assert_eq!(known(&mut client, false), (0, -1));
    assert_eq!(known(&mut client, true), (ResponseError::UnstableOffsetCommit.code(), -1));
    assert_eq!(client.ask(3, end(me, true)).error_code, 0);
    assert_eq!(known(&mut client, true), (0, 8), "the last one wins");
    assert_eq!(code(client.ask(5, offsets(me, 9))), 0, "the newer protocol begins by itself");
    assert_eq!(client.ask(5, end(me, false)).error_code, 0);
    assert_eq!(known(&mut client, true), (0, 8), "aborted");
    let zombie = offsets(me, 10);
    assert_eq!(code(client.ask(5, zombie)), ResponseError::InvalidProducerEpoch.code());
}

#[test]
fn an_operator_sees_transactions_and_producers_and_can_abort() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let me = init(&mut client, 5, None).expect("given");
    assert_eq!(send(&mut client, 12, me, 0, "hanging"), 0);
    let listed = client.ask(1, ListTransactionsRequest::default().with_duration_filter(-1));
    assert_eq!(listed.transaction_states[0].transaction_state.as_str(), "Ongoing");
    let described = client.ask(0, DescribeTransactionsRequest::default().with_transactional_ids(vec![txn()]));
    let state = &described.transaction_states[0];
    assert_eq!((state.error_code, state.topics[0].topic.as_str(), state.transaction_timeout_ms), (0, "words", 60_000));
    let topic =
        describe_producers_request::TopicRequest::default().with_name(name("words")).with_partition_indexes(vec![0]);
    let producers = client.ask(0, DescribeProducersRequest::default().with_topics(vec![topic]));
    let producer = &producers.topics[0].partitions[0].active_producers[0];
    assert_eq!((producer.producer_id.0, producer.last_sequence, producer.current_txn_start_offset), (me.id, 0, 0));
    use write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
    let topic = WritableTxnMarkerTopic::default().with_name(name("words")).with_partition_indexes(vec![0]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(me.id))
        .with_producer_epoch(me.epoch)
        .with_topics(vec![topic]);
    let answer = client.ask(1, WriteTxnMarkersRequest::default().with_markers(vec![marker]));
    assert_eq!(answer.markers[0].topics[0].partitions[0].error_code, 0);
    assert_eq!(look(&mut client), (2, 2, 1));
    assert_eq!(send(&mut client, 12, me, 1, "late"), ResponseError::InvalidProducerEpoch.code());
}

#[test]
fn a_batch_in_an_epoch_that_nobody_was_given_is_refused_for_its_epoch() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let me = init(&mut client, 4, None).expect("given");
    let mut to_come = me;
    to_come.epoch += 1;
    for version in [10, 12] {
        let refused = send(&mut client, version, to_come, 0, "from the future");
        assert_eq!(refused, ResponseError::InvalidProducerEpoch.code(), "version {version}");
    }
    add(&mut client, 3, me, &["words"]);
    assert_eq!(send(&mut client, 10, to_come, 0, "nor in a transaction"), ResponseError::InvalidProducerEpoch.code());
    assert_eq!(send(&mut client, 10, me, 0, "mine"), 0);
}

#[test]
fn a_time_out_that_no_transaction_may_have_is_refused() {
    let served = serve();
    let mut client = served.client();
    for timeout in [0, -1, i32::MAX] {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(txn()))
            .with_transaction_timeout_ms(timeout)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let answer = client.ask(4, request);
        assert_eq!(answer.error_code, ResponseError::InvalidTransactionTimeout.code(), "{timeout}");
    }
}

#[test]
fn nobody_writes_under_a_producer_id_that_was_never_given_out_or_fences_another_by_its_epoch() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let plain = |producer_id: i64, epoch: i16, base_sequence: i32| {
        let stamp = ProducerStamp { producer_id, epoch, base_sequence, transactional: false };
        produce("words", 0, -1, batch(stamp, &["a value"]))
    };
    let refused = ResponseError::InvalidProducerIdMapping.code();
    assert_eq!(produced(&client.ask(9, plain(1 << 40, 0, 0))).0, refused, "never given out");
    let me = init(&mut client, 4, None).expect("given");
    add(&mut client, 3, me, &["words"]);
    assert_eq!(send(&mut client, 10, me, 0, "mine"), 0);
    assert_eq!(client.ask(3, end(me, true)).error_code, 0);
    assert_eq!(produced(&client.ask(9, plain(me.id, me.epoch + 1, 0))).0, refused, "it would be fenced");
    // Its own producer goes on.
    add(&mut client, 3, me, &["words"]);
    assert_eq!(send(&mut client, 10, me, 1, "mine"), 0);
    assert_eq!(client.ask(3, end(me, true)).error_code, 0);
    // One of a job, whose ids are used again.
    let owner = served.log.claim(&OwnerId(7), 1).expect("claimed");
    let topic = served.log.topic("words").expect("there").id;
    let jobs = |checkpoint| {
        let mut txn = owner.begin(TxnName { checkpoint, sink: "s".to_string(), writer: 0 }).expect("begun");
        let mut values = BatchBuilder::new(Compression::None);
        values.push(0, None, Some(b"a job's"), &[]).expect("fits");
        txn.append(topic, 0, &mut values).expect("the job isn't fenced");
        txn.commit().expect("committed");
    };
    jobs(1);
    let at = TopicPartition::new(topic, 0);
    let known = served.log.producers(at).expect("there");
    let of_job = known.iter().map(|known| known.producer).find(|known| known.producer != me.id).expect("the job's");
    assert_eq!(produced(&client.ask(9, plain(of_job.producer, of_job.epoch + 1, 0))).0, refused);
    assert_eq!(produced(&client.ask(9, plain(of_job.producer, i16::MAX, 0))).0, refused);
    jobs(2);
}
