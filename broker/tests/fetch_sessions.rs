//! Fetch sessions, leader epochs and the layout of topics and files, over the wire.

mod common;

use common::*;
use cutwater_broker::{BrokerLimits, BrokerOptions};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

/// A fetch of these partitions of "words" from these offsets, in this session.
fn in_session(id: i32, epoch: i32, partitions: &[(i32, i64)]) -> FetchRequest {
    let partitions = partitions.iter().map(|(partition, offset)| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default().with_topic(name("words")).with_partitions(partitions.collect());
    let topics = if topic.partitions.is_empty() { vec![] } else { vec![topic] };
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(1 << 20)
        .with_session_id(id)
        .with_session_epoch(epoch)
        .with_topics(topics)
}

/// The partitions that are answered, and how many bytes of records they have.
fn answered(response: &FetchResponse) -> Vec<(i32, usize)> {
    assert_eq!(response.error_code, 0);
    let partitions = response.responses.iter().flat_map(|topic| {
        assert_eq!(topic.topic, name("words"));
        &topic.partitions
    });
    partitions.map(|data| (data.partition_index, data.records.as_ref().map_or(0, |records| records.len()))).collect()
}

#[test]
fn a_session_names_its_partitions_once_and_is_answered_what_is_new() {
    for version in [7, 12] {
        let served = serve();
        served.log.create_topic("words", 3).expect("a topic");
        let mut client = served.client();
        let first = client.ask(version, in_session(0, 0, &[(0, 0), (1, 0), (2, 0)]));
        let id = first.session_id;
        assert!(id > 0);
        assert_eq!(answered(&first).len(), 3);
        assert!(answered(&client.ask(version, in_session(id, 1, &[]))).is_empty());
        let one = batch(PLAIN, &["one"]);
        let base = produced(&client.ask(9, produce("words", 1, -1, one.clone()))).1;
        let news = client.ask(version, in_session(id, 2, &[(1, base)]));
        assert_eq!(answered(&news), [(1, one.len())]);
        assert_eq!(news.session_id, id);
        assert!(answered(&client.ask(version, in_session(id, 3, &[(1, base + 1)]))).is_empty());
        // Forgotten ones have no news any more.
        let gone = ForgottenTopic::default().with_topic(name("words")).with_partitions(vec![0]);
        client.ask(version, in_session(id, 4, &[]).with_forgotten_topics_data(vec![gone]));
        client.ask(9, produce("words", 0, -1, one.clone()));
        assert!(answered(&client.ask(version, in_session(id, 5, &[]))).is_empty());
        // What isn't there is told each time.
        let code = ResponseError::UnknownTopicOrPartition.code();
        for epoch in [6, 7] {
            let asked = if epoch == 6 { &[(9, 0)][..] } else { &[] };
            let unknown = client.ask(version, in_session(id, epoch, asked));
            assert_eq!(
                (unknown.responses[0].partitions[0].partition_index, unknown.responses[0].partitions[0].error_code),
                (9, code)
            );
        }
        for (id, epoch, error) in [
            (id, 7, ResponseError::InvalidFetchSessionEpoch),
            (id, 9, ResponseError::InvalidFetchSessionEpoch),
            (id ^ 1, 8, ResponseError::FetchSessionIdNotFound),
        ] {
            let refused = client.ask(version, in_session(id, epoch, &[]));
            assert_eq!((refused.error_code, refused.session_id, refused.responses.len()), (error.code(), 0, 0));
        }
        let last = client.ask(version, in_session(id, -1, &[(0, 0)]));
        assert_eq!((last.session_id, answered(&last).len()), (0, 1));
        let refused = client.ask(version, in_session(id, 8, &[]));
        assert_eq!(refused.error_code, ResponseError::FetchSessionIdNotFound.code());
    }
}

#[test]
fn a_session_that_names_topics_by_their_ids_goes_on_by_them() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    let metadata = client.ask(12, MetadataRequest::default().with_topics(None));
    let id = metadata.topics[0].topic_id;
    let by_id = |session, epoch, with: bool| {
        let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic_id(id).with_partitions(vec![partition]);
        let topics = if with { vec![topic] } else { vec![] };
        in_session(session, epoch, &[]).with_replica_id(BrokerId(-1)).with_topics(topics)
    };
    let first = client.ask(13, by_id(0, 0, true));
    assert_eq!((first.responses[0].topic_id, first.responses[0].partitions[0].error_code), (id, 0));
    client.ask(9, produce("words", 0, -1, batch(PLAIN, &["one"])));
    let news = client.ask(13, by_id(first.session_id, 1, false));
    assert_eq!((news.responses[0].topic_id, news.responses[0].partitions[0].high_watermark), (id, 1));
    let refused = client.ask(12, in_session(first.session_id, 2, &[]));
    assert_eq!(refused.error_code, ResponseError::FetchSessionTopicIdError.code());
}

#[test]
fn who_finds_no_room_for_a_session_is_answered_all_the_same() {
    let limits = BrokerLimits { fetch_sessions: 1, ..BrokerLimits::default() };
    let served = serve_with(BrokerOptions { limits, ..BrokerOptions::default() });
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    assert!(client.ask(12, in_session(0, 0, &[(0, 0)])).session_id > 0);
    let without = client.ask(12, in_session(0, 0, &[(0, 0)]));
    assert_eq!((without.session_id, answered(&without).len()), (0, 1));
}

#[test]
fn a_reader_behind_the_end_of_its_epoch_hears_where_that_ends() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut client = served.client();
    client.ask(9, produce("words", 0, -1, batch(PLAIN, &["one", "two"])));
    let mut ask = |offset, last_epoch, leader_epoch| {
        let mut request = in_session(0, -1, &[(0, offset)]);
        request.topics[0].partitions[0].last_fetched_epoch = last_epoch;
        request.topics[0].partitions[0].current_leader_epoch = leader_epoch;
        let answer = client.ask(12, request);
        let data = fetched(&answer);
        (
            data.error_code,
            data.diverging_epoch.epoch,
            data.diverging_epoch.end_offset,
            data.records.as_ref().map_or(0, |r| r.len()) > 0,
        )
    };
    let out = ResponseError::OffsetOutOfRange.code();
    assert_eq!(ask(0, 0, 0), (0, -1, -1, true));
    assert_eq!(ask(2, 0, 0), (0, -1, -1, false), "the end is no divergence");
    assert_eq!(ask(3, 0, 0), (0, 0, 2, false));
    assert_eq!(ask(3, -1, 0), (out, -1, -1, false));
    assert_eq!(ask(0, 1, 0), (out, -1, -1, false), "an epoch that never was");
    assert_eq!(ask(0, 0, 1).0, ResponseError::UnknownLeaderEpoch.code());
    let mut end_of = |epoch| {
        let partition = OffsetForLeaderPartition::default().with_leader_epoch(epoch).with_current_leader_epoch(0);
        let topic = OffsetForLeaderTopic::default().with_topic(name("words")).with_partitions(vec![partition]);
        let answer = client.ask(4, OffsetForLeaderEpochRequest::default().with_topics(vec![topic]));
        let end = &answer.topics[0].partitions[0];
        (end.error_code, end.leader_epoch, end.end_offset)
    };
    assert_eq!(end_of(0), (0, 0, 2));
    assert_eq!(end_of(1), (0, -1, -1));
    assert_eq!(end_of(-1), (0, -1, -1));
}

#[test]
fn topics_are_described_page_by_page() {
    let served = serve();
    for (topic, partitions) in [("b", 3), ("a", 2), ("c", 1)] {
        served.log.create_topic(topic, partitions).expect("a topic");
    }
    let mut client = served.client();
    let mut cursor = None;
    let mut pages = Vec::new();
    loop {
        let request = DescribeTopicPartitionsRequest::default().with_response_partition_limit(2).with_cursor(cursor);
        let answer = client.ask(0, request);
        let page: Vec<(String, Vec<i32>)> = answer
            .topics
            .iter()
            .map(|topic| {
                let name = topic.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
                (name, topic.partitions.iter().map(|partition| partition.partition_index).collect())
            })
            .collect();
        pages.push(page);
        let Some(next) = answer.next_cursor else { break };
        cursor = Some(Cursor::default().with_topic_name(next.topic_name).with_partition_index(next.partition_index));
    }
    let page = |topics: &[(&str, &[i32])]| -> Vec<(String, Vec<i32>)> {
        topics.iter().map(|(name, partitions)| (name.to_string(), partitions.to_vec())).collect()
    };
    let expected = [page(&[("a", &[0, 1])]), page(&[("b", &[0, 1])]), page(&[("b", &[2]), ("c", &[0])])];
    assert_eq!(pages, expected);
    let asked = TopicRequest::default().with_name(name("nowhere"));
    let answer = client.ask(0, DescribeTopicPartitionsRequest::default().with_topics(vec![asked]));
    assert_eq!(answer.topics[0].error_code, ResponseError::UnknownTopicOrPartition.code());
}

#[test]
fn the_bytes_of_partitions_are_those_of_their_batches() {
    let served = serve();
    served.log.create_topic("words", 2).expect("a topic");
    let mut client = served.client();
    let one = batch(PLAIN, &["one"]);
    for _ in 0..3 {
        client.ask(9, produce("words", 1, -1, one.clone()));
    }
    for version in 1..=4 {
        let mut sizes = Vec::new();
        // They come to the files a moment after they are durable.
        while sizes != [(0, 0), (1, 3 * one.len() as i64)] {
            let answer = client.ask(version, DescribeLogDirsRequest::default().with_topics(None));
            assert_eq!((answer.results.len(), answer.results[0].error_code), (1, 0));
            assert_eq!(answer.results[0].log_dir, StrBytes::from_string(served.log.dir().display().to_string()));
            let partitions = &answer.results[0].topics[0].partitions;
            sizes = partitions.iter().map(|partition| (partition.partition_index, partition.partition_size)).collect();
        }
    }
    let topic = describe_log_dirs_request::DescribableLogDirTopic::default().with_topic(name("nowhere"));
    let answer = client.ask(4, DescribeLogDirsRequest::default().with_topics(Some(vec![topic])));
    assert!(answer.results[0].topics.is_empty());
}
