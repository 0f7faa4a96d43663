//! Topics as clients make them: what a question alone answers, and what is there afterwards.

mod common;

use common::*;
use cutwater_broker::BrokerOptions;
use cutwater_partition_log::{LogLimits, LogOptions};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::*;

/// Topics with so many partitions, and what is answered about them.
type Case<'a> = (&'a [(&'a str, i32)], &'a [i16]);

/// A broker over a log of few partitions.
fn small(topics_max: usize, partitions_max: usize) -> Served {
    let limits = LogLimits { topics_max, partitions_max, ..LogLimits::default() };
    serve_log(LogOptions { limits, ..LogOptions::default() }, BrokerOptions::default())
}

/// Codes of the answer to a request that makes topics of so many partitions, or only asks.
fn create(client: &mut Client, topics: &[(&str, i32)], only_look: bool) -> Vec<i16> {
    let topic = |(name_, partitions): &(&str, i32)| {
        CreatableTopic::default().with_name(name(name_)).with_num_partitions(*partitions).with_replication_factor(1)
    };
    let request = CreateTopicsRequest::default()
        .with_topics(topics.iter().map(topic).collect())
        .with_validate_only(only_look)
        .with_timeout_ms(1000);
    client.ask(7, request).topics.iter().map(|topic| topic.error_code).collect()
}

/// The same for topics that shall have so many partitions then.
fn grow(client: &mut Client, topics: &[(&str, i32)], only_look: bool) -> Vec<i16> {
    let topic = |(name_, count): &(&str, i32)| {
        CreatePartitionsTopic::default().with_name(name(name_)).with_count(*count).with_assignments(None)
    };
    let request = CreatePartitionsRequest::default()
        .with_topics(topics.iter().map(topic).collect())
        .with_validate_only(only_look)
        .with_timeout_ms(1000);
    client.ask(3, request).results.iter().map(|topic| topic.error_code).collect()
}

#[test]
fn a_question_is_answered_as_the_request_would_be_limits_included() {
    let too_many = ResponseError::PolicyViolation.code();
    let exists = ResponseError::TopicAlreadyExists.code();
    let requests: [&[(&str, i32)]; 4] = [
        &[("a", 12)],
        // Alone each would fit.
        &[("a", 6), ("b", 6), ("c", 4)],
        &[("d", 1), ("bad/name", 1), ("a", 1)],
        &[("e", 1)],
    ];
    let answers: [&[i16]; 4] = [
        &[too_many],
        &[0, too_many, 0],
        &[0, ResponseError::InvalidTopicException.code(), exists],
        // There are three topics.
        &[too_many],
    ];
    let served = small(3, 11);
    let mut client = served.client();
    for (request, answer) in requests.into_iter().zip(answers) {
        let before = served.log.topics();
        let asked = create(&mut client, request, true);
        assert_eq!(served.log.topics(), before, "a question makes nothing");
        let done = create(&mut client, request, false);
        assert_eq!((&asked[..], &done[..]), (answer, answer), "{request:?}");
    }
}

#[test]
fn growing_is_judged_by_the_same_limits_when_it_is_only_asked_about() {
    let served = small(10, 10);
    let mut client = served.client();
    assert_eq!(create(&mut client, &[("a", 2), ("b", 2)], false), [0, 0]);
    let too_many = ResponseError::PolicyViolation.code();
    let invalid = ResponseError::InvalidPartitions.code();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let requests: [Case<'_>; 4] = [
        (&[("a", 9)], &[too_many]),
        (&[("a", 2), ("nowhere", 3)], &[invalid, unknown]),
        (&[("a", 6), ("b", 5)], &[0, too_many]),
        (&[("b", 4)], &[0]),
    ];
    for (request, answer) in requests {
        let before = served.log.topics();
        let asked = grow(&mut client, request, true);
        assert_eq!(served.log.topics(), before, "a question makes nothing");
        let done = grow(&mut client, request, false);
        assert_eq!((&asked[..], &done[..]), (answer, answer), "{request:?}");
    }
    let partitions: Vec<u32> = served.log.topics().iter().map(|topic| topic.partitions).collect();
    assert_eq!(partitions, [6, 4]);
}
