//! What a client sees, request by request.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::*;
use cutwater_broker::{Broker, BrokerError, BrokerOptions};
use cutwater_partition_log::Offset;
use cutwater_partition_log::batch::ProducerStamp;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;

#[expect(clippy::disallowed_methods, reason = "a test of real waiting")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn batches_come_back_byte_for_byte_in_every_version() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    for (version, base) in (3..=12).zip(0..) {
        let answer = client.ask(version, produce("words", 0, -1, batch(PLAIN, &["one word"])));
        assert_eq!(produced(&answer), (0, base), "version {version}");
    }
    let topic = served.log.topic("words").expect("a topic");
    let stored = served.log.fetch(
        cutwater_partition_log::TopicPartition::new(topic.id, 0),
        Offset::ZERO,
        1 << 20,
        cutwater_partition_log::Isolation::ReadUncommitted,
    );
    let stored: Vec<u8> = stored.expect("it is there").buffers.iter().flat_map(|buffer| buffer.to_vec()).collect();
    for version in 4..=12 {
        let answer = client.ask(version, fetch("words", 0, 0, 0, 1));
        let partition = fetched(&answer);
        assert_eq!((partition.error_code, partition.high_watermark), (0, 10), "version {version}");
        assert_eq!(partition.records.as_deref(), Some(&stored[..]), "version {version}");
    }
    // From version 13 on topics have UUIDs.
    let metadata = client.ask(12, MetadataRequest::default().with_topics(None));
    let id = metadata.topics[0].topic_id;
    for version in 13..=17 {
        let mut request = fetch("words", 0, 0, 0, 1);
        request.topics[0].topic = TopicName::default();
        request.topics[0].topic_id = id;
        if version >= 15 {
            request.replica_id = BrokerId(-1);
        }
        let answer = client.ask(version, request);
        assert_eq!(fetched(&answer).records.as_deref(), Some(&stored[..]), "version {version}");
    }
}

#[test]
fn a_repeated_batch_is_answered_with_its_first_offset_and_a_gap_is_refused() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let init =
        client.ask(4, InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(1));
    assert_eq!((init.error_code, init.producer_epoch), (0, 0));
    let stamp = |base_sequence| ProducerStamp {
        producer_id: init.producer_id.0,
        epoch: 0,
        base_sequence,
        transactional: false,
    };
    let send = |client: &mut Client, sequence, values: &[&str]| {
        produced(&client.ask(9, produce("words", 0, -1, batch(stamp(sequence), values))))
    };
    assert_eq!(send(&mut client, 0, &["a", "b"]), (0, 0));
    assert_eq!(send(&mut client, 2, &["c"]), (0, 2));
    assert_eq!(send(&mut client, 0, &["a", "b"]), (0, 0));
    assert_eq!(send(&mut client, 5, &["d"]), (ResponseError::OutOfOrderSequenceNumber.code(), -1));
    let other = served.client().ask(4, InitProducerIdRequest::default().with_transactional_id(None));
    assert_ne!(other.producer_id, init.producer_id);
}

#[test]
fn many_produce_requests_of_one_connection_are_answered_in_their_order() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    for _ in 0..50 {
        client.send(9, &produce("words", 0, 1, batch(PLAIN, &["x"])));
    }
    for behind in (0..50).rev() {
        let answer = client.receive::<ProduceRequest>(9, behind);
        assert_eq!(produced(&answer), (0, 49 - i64::from(behind)));
    }
}

#[test]
fn a_fetch_waits_for_data_and_answers_in_time_without() {
    let served = serve();
    let topic = served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let begun = now();
    let answer = client.ask(11, fetch("words", 0, 0, 300, 1));
    let took = begun.elapsed();
    assert_eq!(fetched(&answer).records.as_ref().map(|records| records.len()), Some(0));
    assert!((Duration::from_millis(300)..Duration::from_millis(1500)).contains(&took), "{took:?}");

    client.send(11, &fetch("words", 0, 0, 15_000, 1));
    let begun = now();
    served.log.append_batch(topic, 0, batch(PLAIN, &["news"]).to_vec()).expect("accepted").wait().expect("durable");
    let answer = client.receive::<FetchRequest>(11, 0);
    assert_eq!(fetched(&answer).high_watermark, 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "the news woke it");

    let answer = client.ask(11, fetch("words", 0, 7, 15_000, 1));
    assert_eq!(fetched(&answer).error_code, ResponseError::OffsetOutOfRange.code(), "at once, whatever it would wait");
    let answer = client.ask(11, fetch("nowhere", 0, 0, 15_000, 1));
    assert_eq!(fetched(&answer).error_code, ResponseError::UnknownTopicOrPartition.code());
}

#[test]
fn topics_are_created_asked_for_and_found_by_name_and_id() {
    let served = serve_with(BrokerOptions { default_partitions: 3, ..BrokerOptions::default() });
    let mut client = served.client();
    let topic = |name_: &str, partitions: i32, replicas: i16| {
        CreatableTopic::default()
            .with_name(name(name_))
            .with_num_partitions(partitions)
            .with_replication_factor(replicas)
    };
    let asked = vec![topic("a", 2, 1), topic("b", -1, -1), topic("c", 0, 1), topic("d", 1, 3), topic("/", 1, 1)];
    let answer = client.ask(7, CreateTopicsRequest::default().with_topics(asked));
    let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
    let expected = [
        0,
        0,
        ResponseError::InvalidPartitions.code(),
        ResponseError::InvalidReplicationFactor.code(),
        ResponseError::InvalidTopicException.code(),
    ];
    assert_eq!(codes, expected);
    assert_eq!(answer.topics[1].num_partitions, 3);
    let again = client.ask(7, CreateTopicsRequest::default().with_topics(vec![topic("a", 2, 1)]));
    assert_eq!(again.topics[0].error_code, ResponseError::TopicAlreadyExists.code());

    for version in 0..=13 {
        let all = if version == 0 { Some(Vec::new()) } else { None };
        let answer = client.ask(version, MetadataRequest::default().with_topics(all));
        let names: Vec<_> = answer.topics.iter().map(|topic| topic.name.clone().expect("a name").to_string()).collect();
        assert_eq!(names, ["a", "b"], "version {version}");
        assert_eq!(answer.brokers[0].port, i32::from(served.broker.address().port()));
        assert_eq!(answer.topics[0].partitions.len(), 2);
    }
    let ask = |client: &mut Client, name_: &str, create: bool| {
        let topic = MetadataRequestTopic::default().with_name(Some(name(name_)));
        let request = MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(create);
        client.ask(9, request).topics[0].error_code
    };
    assert_eq!(ask(&mut client, "new", false), ResponseError::UnknownTopicOrPartition.code());
    assert_eq!(ask(&mut client, "new", true), 0);
    assert_eq!(served.log.topic("new").map(|topic| topic.partitions), Some(3));
    let none = client.ask(9, MetadataRequest::default().with_topics(Some(Vec::new())));
    assert!(none.topics.is_empty(), "an empty list asks for no topic, null for all");
}

#[test]
fn offsets_are_found_by_name_and_by_time() {
    let served = serve();
    let topic = served.log.create_topic("words", 1).expect("a topic");
    served.log.append_batch(topic, 0, batch(PLAIN, &["a", "b"]).to_vec()).expect("accepted").wait().expect("durable");
    let mut client = served.client();
    for (timestamp, expected) in [(-1, 2), (-2, 0), (-3, 0), (-4, 0), (-5, -1), (1_000, 0), (1_001, -1)] {
        let partition = ListOffsetsPartition::default().with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name("words")).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let answer = client.ask(9, request);
        let found = &answer.topics[0].partitions[0];
        assert_eq!((found.error_code, found.offset), (0, expected), "{timestamp}");
    }
    // A name that is younger than the request's version.
    let partition = ListOffsetsPartition::default().with_timestamp(-5);
    let topic = ListOffsetsTopic::default().with_name(name("words")).with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = client.ask(8, request);
    assert_eq!(answer.topics[0].partitions[0].error_code, ResponseError::UnsupportedVersion.code());
}

#[test]
fn nonsense_closes_its_own_connection_and_a_good_client_goes_on() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut good = served.client();
    let frames: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xFF; 64],
        &[0, 0, 0, 0],
        // 2 GiB are announced.
        &[0x7F, 0xFF, 0xFF, 0xFF, 0, 3, 0, 1],
        // Metadata with 2^31 - 1 topics.
        &[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF],
        // An API that nobody knows.
        &[0, 0, 0, 10, 0x03, 0xE7, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF],
    ];
    for (index, frame) in frames.into_iter().enumerate() {
        let mut bad = served.client();
        bad.stream.write_all(frame).expect("sent");
        assert!(bad.frame().is_none(), "frame {index} is answered by a close");
        let answer = good.ask(9, produce("words", 0, -1, batch(PLAIN, &["fine"])));
        assert_eq!(produced(&answer), (0, index as i64));
    }
}

#[test]
fn a_control_batch_or_a_damaged_one_of_a_client_is_refused() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let mut control = batch(PLAIN, &["x"]).to_vec();
    control[22] |= 0x20;
    assert_eq!(produced(&client.ask(9, produce("words", 0, -1, control.into()))).1, -1);
    let mut damaged = batch(PLAIN, &["x"]).to_vec();
    *damaged.last_mut().expect("bytes") ^= 1;
    let answer = client.ask(9, produce("words", 0, -1, damaged.into()));
    assert_eq!(produced(&answer), (ResponseError::CorruptMessage.code(), -1));
    let answer = client.ask(9, produce("words", 0, 2, batch(PLAIN, &["x"])));
    assert_eq!(produced(&answer), (ResponseError::InvalidRequiredAcks.code(), -1));
}

#[test]
fn a_client_from_the_future_hears_which_versions_there_are() {
    let served = serve();
    let mut client = served.client();
    client.stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 5, 0xFF, 0xFF]).expect("sent");
    let mut frame = client.frame().expect("an answer");
    use kafka_protocol::protocol::Decodable;
    let header = ResponseHeader::decode(&mut frame, 0).expect("a header");
    let answer = ApiVersionsResponse::decode(&mut frame, 0).expect("version 0");
    assert_eq!((header.correlation_id, answer.error_code), (5, ResponseError::UnsupportedVersion.code()));
    let produce = answer.api_keys.iter().find(|api| api.api_key == 0).expect("it is listed");
    assert_eq!((produce.min_version, produce.max_version), (0, 12));
}

#[test]
fn a_public_address_is_refused_and_a_stopped_broker_lets_its_waiters_go() {
    let served = serve();
    let platform = cutwater_platform::Platform::real();
    let public = "0.0.0.0:0".parse().expect("an address");
    let refused = Broker::start(&platform, served.log.clone(), public, BrokerOptions::default());
    assert!(matches!(refused, Err(BrokerError::Unprotected(_))));
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    client.ask(3, ApiVersionsRequest::default());
    client.send(11, &fetch("words", 0, 0, 60_000, 1));
    // The request is to be under way.
    platform.clock.sleep(Duration::from_millis(300));
    let begun = now();
    served.broker.stop();
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited for no minute");
    client.receive::<FetchRequest>(11, 0);
    assert!(client.frame().is_none());
}
