//! Bugs that other brokers had, as tests of this one. Each says the incident, its cause, and what is right; `docs/known-bugs.md`
//! lists them all, with those that other tests stand for, or that can't happen here.

mod common;

use std::time::Duration;

use common::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_platform::{Clock, SystemClock};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
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

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn txn(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

fn init(client: &mut Client, id: &str, expected: Option<Producer>) -> Result<Producer, i16> {
    let believed = expected.unwrap_or(Producer { id: -1, epoch: -1 });
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(txn(id)))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(believed.id))
        .with_producer_epoch(believed.epoch);
    let answer = client.ask(4, request);
    match answer.error_code {
        0 => Ok(Producer { id: answer.producer_id.0, epoch: answer.producer_epoch }),
        code => Err(code),
    }
}

fn add(client: &mut Client, id: &str, producer: Producer, topics: &[&str]) -> Vec<i16> {
    let topics = topics.iter().map(|t| AddPartitionsToTxnTopic::default().with_name(name(t)).with_partitions(vec![0]));
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(txn(id))
        .with_v3_and_below_producer_id(ProducerId(producer.id))
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(topics.collect());
    let answer = client.ask(3, request);
    let results = answer.results_by_topic_v3_and_below.iter().flat_map(|topic| &topic.results_by_partition);
    results.map(|result| result.partition_error_code).collect()
}

fn in_txn(id: &str, producer: Producer, topic: &str, sequence: i32, values: &[&str]) -> ProduceRequest {
    let stamp =
        ProducerStamp { producer_id: producer.id, epoch: producer.epoch, base_sequence: sequence, transactional: true };
    produce(topic, 0, -1, batch(stamp, values)).with_transactional_id(Some(txn(id)))
}

fn end(client: &mut Client, id: &str, producer: Producer, committed: bool) -> i16 {
    let request = EndTxnRequest::default()
        .with_transactional_id(txn(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(committed);
    client.ask(3, request).error_code
}

/// High watermark, last stable offset, bytes of records, aborted transactions.
fn look(client: &mut Client, topic: &str, from: i64, isolation: i8) -> (i64, i64, usize, usize) {
    let answer = client.ask(11, fetch(topic, 0, from, 0, 0).with_isolation_level(isolation));
    let partition = fetched(&answer);
    let bytes = partition.records.as_ref().map_or(0, bytes::Bytes::len);
    let aborted = partition.aborted_transactions.as_ref().map_or(0, Vec::len);
    (partition.high_watermark, partition.last_stable_offset, bytes, aborted)
}

/// KAFKA-5376: a fetch that waited while a transaction was aborted showed its records, because the list of aborted transactions
/// had been made when the fetch came. Right: the list is made when the answer is.
#[test]
fn a_fetch_that_waited_through_an_abort_knows_of_it() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let (mut writer, mut reader) = (served.client(), served.client());
    let me = init(&mut writer, "x", None).expect("given");
    add(&mut writer, "x", me, &["t"]);
    assert_eq!(produced(&writer.ask(11, in_txn("x", me, "t", 0, &["to be aborted"]))), (0, 0));
    reader.send(11, &fetch("t", 0, 0, 10_000, 1).with_isolation_level(1));
    SystemClock::new().sleep(Duration::from_millis(50));
    assert_eq!(end(&mut writer, "x", me, false), 0);
    let answer = reader.receive::<FetchRequest>(11, 0);
    let partition = fetched(&answer);
    let aborted = partition.aborted_transactions.as_ref().expect("a list");
    assert_eq!(aborted.iter().map(|a| (a.producer_id.0, a.first_offset)).collect::<Vec<_>>(), [(me.id, 0)]);
    assert_eq!(partition.last_stable_offset, 2);
}

/// KAFKA-17507: offsets were gone right after their commit was answered, since the answer came before the group's cache had them.
/// Right: whoever asks after the answer finds them, under load as well.
#[test]
fn a_groups_offset_is_there_as_soon_as_its_transaction_is_committed() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (mut writer, mut other) = (served.client(), served.client());
            scope.spawn(move || {
                let (id, group) = (format!("x{n}"), GroupId(text(&format!("g{n}"))));
                let me = init(&mut writer, &id, None).expect("given");
                for offset in 1..40 {
                    let into = AddOffsetsToTxnRequest::default()
                        .with_transactional_id(txn(&id))
                        .with_producer_id(ProducerId(me.id))
                        .with_producer_epoch(me.epoch)
                        .with_group_id(group.clone());
                    assert_eq!(writer.ask(3, into).error_code, 0);
                    let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
                    let topic = TxnOffsetCommitRequestTopic::default().with_name(name("t"));
                    let offsets = TxnOffsetCommitRequest::default()
                        .with_transactional_id(txn(&id))
                        .with_group_id(group.clone())
                        .with_producer_id(ProducerId(me.id))
                        .with_producer_epoch(me.epoch)
                        .with_generation_id(-1)
                        .with_topics(vec![topic.with_partitions(vec![partition])]);
                    assert_eq!(writer.ask(3, offsets).topics[0].partitions[0].error_code, 0);
                    assert_eq!(end(&mut writer, &id, me, true), 0);
                    let topic = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
                    let ask = OffsetFetchRequest::default().with_group_id(group.clone()).with_topics(Some(vec![topic]));
                    assert_eq!(other.ask(7, ask).topics[0].partitions[0].committed_offset, offset);
                }
            });
        }
    });
}

/// KAFKA-19163: a group was deleted while a transaction held offsets of it, which its commit then made nobody's. Right: it stays
/// until the transaction has ended.
#[test]
fn a_group_with_offsets_in_an_open_transaction_is_not_deleted() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let mut client = served.client();
    let me = init(&mut client, "x", None).expect("given");
    let group = GroupId(text("g"));
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(1);
    let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let plain = OffsetCommitRequest::default()
        .with_group_id(group.clone())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    assert_eq!(client.ask(8, plain).topics[0].partitions[0].error_code, 0);
    let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(7);
    let topic = TxnOffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let offsets = TxnOffsetCommitRequest::default()
        .with_transactional_id(txn("x"))
        .with_group_id(group.clone())
        .with_producer_id(ProducerId(me.id))
        .with_producer_epoch(me.epoch)
        .with_generation_id(-1)
        .with_topics(vec![topic]);
    assert_eq!(client.ask(5, offsets).topics[0].partitions[0].error_code, 0);
    let delete = || DeleteGroupsRequest::default().with_groups_names(vec![group.clone()]);
    assert_ne!(client.ask(2, delete()).results[0].error_code, 0, "it is needed still");
    assert_eq!(end(&mut client, "x", me, true), 0);
    let kept = served.log.group_offsets("g").expect("up").offsets;
    assert_eq!(kept.values().map(|kept| kept.offset.0).collect::<Vec<_>>(), [7]);
    assert_eq!(client.ask(2, delete()).results[0].error_code, 0);
}

/// KAFKA-15653: compressed transactional batches were refused at random, because their buffers were used again while another
/// thread still checked them. Right: whoever sends at the same time, every batch is taken and comes back as it was.
#[test]
fn compressed_transactional_batches_of_many_at_once_are_all_taken() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let codecs = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    std::thread::scope(|scope| {
        for (n, codec) in codecs.into_iter().enumerate() {
            let mut client = served.client();
            scope.spawn(move || {
                let id = format!("x{n}");
                let me = init(&mut client, &id, None).expect("given");
                for sequence in 0..30 {
                    add(&mut client, &id, me, &["t"]);
                    let mut builder = BatchBuilder::new(codec);
                    let value = format!("{n} {sequence} ").repeat(200);
                    builder.push(1, None, Some(value.as_bytes()), &[]).expect("it fits");
                    let (producer_id, epoch) = (me.id, me.epoch);
                    let stamp = ProducerStamp { producer_id, epoch, base_sequence: sequence, transactional: true };
                    let records = builder.build(stamp).expect("a batch").into();
                    let request = produce("t", 0, -1, records).with_transactional_id(Some(txn(&id)));
                    assert_eq!(produced(&client.ask(9, request)).0, 0, "{codec:?}");
                    assert_eq!(end(&mut client, &id, me, true), 0);
                }
            });
        }
    });
    // Each transaction is a record and a marker.
    assert_eq!(look(&mut served.client(), "t", 0, 1).0, 4 * 30 * 2);
}

/// KAFKA-18659, librdkafka #4956: clients stopped compressing without a word, because Produce was no longer listed from version
/// 0 on. Right: it is listed from there, in every version of the list.
#[test]
fn produce_is_listed_from_version_0_on_so_that_clients_compress() {
    let served = serve();
    let mut client = served.client();
    for version in 0..=4 {
        let answer = client.ask(version, ApiVersionsRequest::default());
        let listed = answer.api_keys.iter().find(|listed| listed.api_key == ApiKey::Produce as i16).expect("listed");
        assert_eq!(listed.min_version, 0, "in version {version}");
    }
}

/// Redpanda #3036 (aborted reads, G1c cycles): the last stable offset was taken for the last offset that may be read. Right: a
/// read-committed fetch at it answers nothing, and one before it nothing from it on.
#[test]
fn nothing_at_the_last_stable_offset_is_shown_to_committed_readers() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let mut client = served.client();
    let plain = client.ask(9, produce("t", 0, -1, batch(PLAIN, &["before"])));
    assert_eq!(produced(&plain), (0, 0));
    let (_, _, before, _) = look(&mut client, "t", 0, 1);
    let me = init(&mut client, "x", None).expect("given");
    add(&mut client, "x", me, &["t"]);
    assert_eq!(produced(&client.ask(11, in_txn("x", me, "t", 0, &["open"]))), (0, 1));
    assert_eq!(look(&mut client, "t", 1, 1), (2, 1, 0, 0), "exactly at it");
    assert_eq!(look(&mut client, "t", 0, 1).2, before, "from before it");
}

/// Redpanda #13364: the end offset of a rolled back transaction differed from Kafka's by a record of the broker's own. Right: N
/// records and one marker, whether committed or aborted. Redpanda #6630: read-uncommitted consumers didn't see aborted records.
/// Right: they do.
#[test]
fn a_transaction_takes_its_records_and_one_marker_and_uncommitted_readers_see_aborted_ones() {
    let served = serve();
    for (topic, committed) in [("committed", true), ("aborted", false)] {
        served.log.create_topic(topic, 1).expect("a topic");
        let mut client = served.client();
        let me = init(&mut client, topic, None).expect("given");
        add(&mut client, topic, me, &[topic]);
        assert_eq!(produced(&client.ask(11, in_txn(topic, me, topic, 0, &["1", "2", "3", "4", "5"]))), (0, 0));
        assert_eq!(end(&mut client, topic, me, committed), 0);
        let (high, stable, bytes, _) = look(&mut client, topic, 0, 0);
        assert_eq!((high, stable), (6, 6), "{topic}");
        assert!(bytes > 61 + 5, "{topic}: the records are there");
    }
}

/// nisshi #62: clients failed to parse fetches, whose preferred replica was 0 and not -1. Right: no version names one.
#[test]
fn no_fetch_in_any_version_names_a_preferred_replica() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let mut client = served.client();
    for version in 4..=12 {
        let answer = client.ask(version, fetch("t", 0, 0, 0, 0));
        assert_eq!(fetched(&answer).preferred_read_replica, BrokerId(-1), "version {version}");
    }
}

/// nisshi #713: fetches stalled on open transactions in other partitions, since visibility was the whole broker's. Right: each
/// partition has its own last stable offset.
#[test]
fn an_open_transaction_holds_up_its_own_partitions_alone() {
    let served = serve();
    for topic in ["held", "free"] {
        served.log.create_topic(topic, 1).expect("a topic");
    }
    let (mut open, mut other) = (served.client(), served.client());
    let (a, b) = (init(&mut open, "a", None).expect("given"), init(&mut other, "b", None).expect("given"));
    add(&mut open, "a", a, &["held"]);
    open.ask(11, in_txn("a", a, "held", 0, &["open"]));
    add(&mut other, "b", b, &["free"]);
    other.ask(11, in_txn("b", b, "free", 0, &["done"]));
    assert_eq!(end(&mut other, "b", b, true), 0);
    assert_eq!(look(&mut other, "free", 0, 1).1, 2);
    assert_eq!(look(&mut other, "held", 0, 1).1, 0);
    let clock = SystemClock::new();
    other.ask(11, fetch("free", 0, 0, 5_000, 1).with_isolation_level(1));
    assert!(clock.monotonic() < Duration::from_secs(2), "answered at once");
}

/// ydb #51053: Streams died on the end of a transaction whose partitions had been announced and never written. Right: it ends; a
/// partition without records has no marker.
#[test]
fn a_transaction_ends_with_partitions_that_were_announced_and_never_written() {
    let served = serve();
    for topic in ["written", "announced"] {
        served.log.create_topic(topic, 1).expect("a topic");
    }
    let mut client = served.client();
    let me = init(&mut client, "x", None).expect("given");
    for (n, committed) in [(0, true), (1, false)] {
        assert_eq!(add(&mut client, "x", me, &["announced"]), [0]);
        assert_eq!(end(&mut client, "x", me, committed), 0, "nothing but announced");
        assert_eq!(add(&mut client, "x", me, &["announced", "written"]), [0, 0]);
        client.ask(11, in_txn("x", me, "written", n, &["a record"]));
        assert_eq!(end(&mut client, "x", me, committed), 0, "mixed");
    }
    assert_eq!(look(&mut client, "announced", 0, 0).0, 0);
    assert_eq!(look(&mut client, "written", 0, 0).0, 4);
}

/// librdkafka #3928, #3971: a client fenced itself, when the answer to its raising of the epoch was lost and it asked again.
/// Right: the same request again gets the same answer.
#[test]
fn a_client_that_asks_for_its_next_epoch_twice_is_not_fenced_by_itself() {
    let served = serve();
    let (mut first, mut second) = (served.client(), served.client());
    let me = init(&mut first, "x", None).expect("given");
    let raised = init(&mut first, "x", Some(me)).expect("given");
    let again = init(&mut second, "x", Some(me)).expect("its answer was lost");
    assert_eq!((raised.id, raised.epoch), (me.id, me.epoch + 1));
    assert_eq!(again, raised);
}

/// KAFKA-9666: each refused attempt to fence a producer used up one of its epochs, until there was none left. Right: what is
/// refused changes nothing.
#[test]
fn refused_initialisations_use_up_no_epochs() {
    let served = serve();
    let mut client = served.client();
    let old = init(&mut client, "x", None).expect("given");
    let me = init(&mut client, "x", None).expect("given");
    let newest = init(&mut client, "x", None).expect("given");
    for _ in 0..50 {
        let refused = init(&mut client, "x", Some(old)).expect_err("fenced");
        assert_eq!(refused, ResponseError::ProducerFenced.code());
    }
    let next = init(&mut client, "x", Some(newest)).expect("given");
    assert_eq!((next.id, next.epoch), (me.id, newest.epoch + 1));
}

/// sarama #2859, #2915: CONCURRENT_TRANSACTIONS between transactions that follow each other, while markers were still written.
/// Right: when the end is answered the next one can begin.
#[test]
fn transactions_back_to_back_never_hear_that_the_last_one_is_still_ending() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let mut client = served.client();
    let me = init(&mut client, "x", None).expect("given");
    for n in 0..300 {
        assert_eq!(add(&mut client, "x", me, &["t"]), [0], "transaction {n}");
        assert_eq!(produced(&client.ask(11, in_txn("x", me, "t", n, &["v"]))).0, 0, "transaction {n}");
        assert_eq!(end(&mut client, "x", me, n % 3 != 0), 0, "transaction {n}");
    }
}

/// Redpanda #3039, #3038, #3077: batches stood there twice after their answers were lost, since nothing remembered them; librdkafka
/// #3575: it heard of a gap where there was none, and split a transaction. Right: all five that may be under way are known again,
/// in whatever connection they come, and none is refused.
#[test]
fn five_batches_whose_answers_are_all_lost_are_known_again() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let producer = served.client().ask(
        4,
        InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    );
    let stamp = |sequence| ProducerStamp {
        producer_id: producer.producer_id.0,
        epoch: 0,
        base_sequence: sequence,
        transactional: false,
    };
    for round in 0..10 {
        let all: Vec<ProduceRequest> =
            (0..5).map(|n| produce("t", 0, -1, batch(stamp(round * 5 + n), &["a value"]))).collect();
        let mut lost = served.client();
        // Some arrive before the connection is gone, some don't.
        for request in all.iter().take(1 + round as usize % 5) {
            lost.send(9, request);
        }
        SystemClock::new().sleep(Duration::from_millis(u64::from(round.unsigned_abs()) % 4));
        drop(lost);
        let mut again = served.client();
        for (n, request) in all.iter().enumerate() {
            let offset = i64::from(round) * 5 + n as i64;
            assert_eq!(produced(&again.ask(9, request.clone())), (0, offset));
        }
    }
    assert_eq!(look(&mut served.client(), "t", 0, 0).0, 50);
}

/// Found by chaos: the end of a transaction on a full disk was answered with a storage error, and librdkafka gave the transaction
/// up for good. Right: a coordinator that can't write sends its clients to look for their coordinator, as Kafka's does.
#[test]
fn a_log_that_is_down_sends_its_transactional_clients_to_look_for_their_coordinator() {
    let served = serve();
    served.log.create_topic("t", 1).expect("a topic");
    let mut client = served.client();
    let me = init(&mut client, "x", None).expect("given");
    add(&mut client, "x", me, &["t"]);
    served.log.clone().close().expect("closed");
    let there_is_none = ResponseError::NotCoordinator.code();
    assert_eq!(end(&mut client, "x", me, true), there_is_none);
    assert_eq!(init(&mut client, "x", None), Err(there_is_none));
    assert_eq!(add(&mut client, "x", me, &["t"]), [there_is_none]);
}
