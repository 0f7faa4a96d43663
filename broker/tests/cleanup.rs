//! Settings that the log acts on, set by clients: retention, compaction, what they show, and what they refuse.

mod common;

use common::*;
use cutwater_broker::BrokerOptions;
use cutwater_partition_log::batch::ProducerStamp;
use cutwater_platform::{Clock, SystemClock, WallTime};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig as Whole};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource as Some_, AlterableConfig};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

fn word(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn create(client: &mut Client, topic: &str, settings: &[(&str, &str)]) -> (i16, Vec<(String, i8)>) {
    let configs = settings
        .iter()
        .map(|(name, value)| CreatableTopicConfig::default().with_name(word(name)).with_value(Some(word(value))))
        .collect();
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(configs);
    let answer = client.ask(7, CreateTopicsRequest::default().with_topics(vec![topic]));
    let created = &answer.topics[0];
    let shown = created.configs.iter().flatten().map(|config| (config.name.to_string(), config.config_source));
    (created.error_code, shown.collect())
}

/// Value, source and number of synonyms of a setting.
fn described(client: &mut Client, topic: &str, setting: &str) -> (String, i8, usize) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(word(topic))
        .with_configuration_keys(Some(vec![word(setting)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
    let answer = client.ask(4, request);
    let config = &answer.results[0].configs[0];
    let value = config.value.as_ref().expect("a value").to_string();
    (value, config.config_source, config.synonyms.len())
}

fn starts(served: &Served, topic: &str) -> u64 {
    let topic = served.log.topic(topic).expect("there");
    served.log.offsets(topic.id, 0).expect("there").log_start.0
}

#[test]
fn settings_of_creation_and_of_both_ways_to_alter_them_take_effect_and_are_shown_with_their_source() {
    let served = serve_with(BrokerOptions::default());
    let mut client = served.client();
    let (code, shown) = create(&mut client, "t", &[("segment.bytes", "300"), ("retention.ms", "1000")]);
    assert_eq!(code, 0);
    assert!(shown.contains(&("retention.ms".to_string(), 1)) && shown.contains(&("cleanup.policy".to_string(), 5)));
    assert_eq!(described(&mut client, "t", "retention.ms"), ("1000".to_string(), 1, 2));
    assert_eq!(described(&mut client, "t", "retention.bytes"), ("-1".to_string(), 5, 1));
    let segment = served.log.limits().segment_bytes.to_string();
    assert_eq!(create(&mut client, "plain", &[]).0, 0);
    assert_eq!(described(&mut client, "plain", "segment.bytes"), (segment, 5, 1));

    for n in 0..20 {
        let records = batch(PLAIN, &[format!("value {n:0>100}").as_str()]);
        assert_eq!(produced(&client.ask(9, produce("t", 0, -1, records))).0, 0);
    }
    // Batches of tests are of 1970.
    let far = WallTime(i64::from(u32::MAX) * 1000);
    // What was written last is on its way into the segments.
    let (clock, mut passes) = (SystemClock::new(), 0);
    while starts(&served, "t") < 15 && passes < 200 {
        served.log.tidy(far).expect("up");
        passes += 1;
        clock.sleep(std::time::Duration::from_millis(20));
    }
    assert!(starts(&served, "t") >= 15, "retention takes what is old");

    let whole = |value: &str| {
        let config = Whole::default().with_name(word("retention.bytes")).with_value(Some(word(value)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(word("t"))
            .with_configs(vec![config]);
        AlterConfigsRequest::default().with_resources(vec![resource])
    };
    assert_eq!(client.ask(1, whole("5000")).responses[0].error_code, 0);
    assert_eq!(described(&mut client, "t", "retention.bytes"), ("5000".to_string(), 1, 2));
    assert_eq!(described(&mut client, "t", "retention.ms"), ("-1".to_string(), 5, 1), "all settings anew");
    assert_eq!(client.ask(1, whole("lots")).responses[0].error_code, ResponseError::InvalidConfig.code());

    let some = |operation: i8, value: Option<&str>| {
        let config = AlterableConfig::default()
            .with_name(word("cleanup.policy"))
            .with_config_operation(operation)
            .with_value(value.map(word));
        let resource = Some_::default().with_resource_type(2).with_resource_name(word("t")).with_configs(vec![config]);
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
    };
    assert_eq!(client.ask(1, some(2, Some("compact"))).responses[0].error_code, 0);
    assert_eq!(described(&mut client, "t", "cleanup.policy").0, "delete,compact");
    let topic = served.log.topic("t").expect("there").id;
    assert!(served.log.cleanup(topic).compact && served.log.cleanup(topic).delete);
    assert_eq!(client.ask(1, some(1, None)).responses[0].error_code, 0);
    assert!(!served.log.cleanup(topic).compact);
}

#[test]
fn a_compacted_topic_takes_no_record_without_a_key_and_no_deletion_of_its_oldest() {
    let served = serve_with(BrokerOptions::default());
    let mut client = served.client();
    assert_eq!(create(&mut client, "table", &[("cleanup.policy", "compact")]).0, 0);
    let refused = produced(&client.ask(9, produce("table", 0, -1, batch(PLAIN, &["no key"]))));
    assert_eq!(refused.0, ResponseError::InvalidRecord.code());
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(0);
    let asked = DeleteRecordsTopic::default().with_name(name("table")).with_partitions(vec![partition]);
    let answer = client.ask(2, DeleteRecordsRequest::default().with_topics(vec![asked]));
    assert_eq!(answer.topics[0].partitions[0].error_code, ResponseError::PolicyViolation.code());
    assert_eq!(create(&mut client, "odd", &[("cleanup.policy", "shred")]).0, ResponseError::InvalidConfig.code());
    assert!(served.log.topic("odd").is_none());
}

#[test]
fn a_producer_hears_where_its_partition_begins_after_records_were_deleted() {
    let served = serve();
    served.log.create_topic("words", 2).expect("a topic");
    let mut client = served.client();
    let start = |answer: &ProduceResponse| {
        let partition = &answer.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset, partition.log_start_offset)
    };
    let producer_id = served.log.allocate_producer().expect("up");
    let stamp = |base_sequence| ProducerStamp { producer_id, epoch: 0, base_sequence, transactional: false };
    let send = |client: &mut Client, sequence, version| {
        start(&client.ask(version, produce("words", 1, -1, batch(stamp(sequence), &["a", "b"]))))
    };
    assert_eq!(send(&mut client, 0, 9), (0, 0, 0));
    assert_eq!(send(&mut client, 2, 9), (0, 2, 0));
    let partition = DeleteRecordsPartition::default().with_partition_index(1).with_offset(3);
    let asked = DeleteRecordsTopic::default().with_name(name("words")).with_partitions(vec![partition]);
    let answer = client.ask(2, DeleteRecordsRequest::default().with_topics(vec![asked]));
    assert_eq!(answer.topics[0].partitions[0].low_watermark, 3);
    assert_eq!(send(&mut client, 4, 9), (0, 4, 3));
    assert_eq!(send(&mut client, 4, 5), (0, 4, 3), "a repeated batch as well");
    assert_eq!(send(&mut client, 6, 4), (0, 6, -1), "versions before 5 have no such field");
    let gap = send(&mut client, 20, 9);
    assert_eq!(gap, (ResponseError::OutOfOrderSequenceNumber.code(), -1, 3), "and who is refused for its sequence");
    let mut damaged = batch(PLAIN, &["a"]).to_vec();
    *damaged.last_mut().expect("bytes") ^= 1;
    let damaged = start(&client.ask(9, produce("words", 1, -1, damaged.into())));
    assert_eq!(damaged, (ResponseError::CorruptMessage.code(), -1, -1), "what is no batch came to no partition");
}

#[test]
fn a_batch_larger_than_its_topic_allows_is_refused_whole_and_one_that_just_fits_is_taken() {
    let served = serve_with(BrokerOptions::default());
    let mut client = served.client();
    let fits = batch(PLAIN, &["as large as it may be"]);
    assert_eq!(create(&mut client, "small", &[("max.message.bytes", fits.len().to_string().as_str())]).0, 0);
    assert_eq!(create(&mut client, "plain", &[]).0, 0);
    let larger = batch(PLAIN, &["as large as it may be, and more"]);
    let too_large = ResponseError::MessageTooLarge.code();
    assert_eq!(produced(&client.ask(9, produce("small", 0, -1, larger.clone()))).0, too_large);
    assert_eq!(produced(&client.ask(9, produce("small", 0, -1, fits))), (0, 0), "nothing was written before");
    assert_eq!(produced(&client.ask(9, produce("plain", 0, -1, larger))).0, 0);
}

#[test]
fn settings_are_shown_with_the_kinds_that_kafka_has_for_them() {
    let served = serve();
    let mut client = served.client();
    assert_eq!(create(&mut client, "t", &[]).0, 0);
    let mut kinds = |kind: i8, name: &str, setting: &str| {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(word(name))
            .with_configuration_keys(Some(vec![word(setting)]));
        client.ask(4, DescribeConfigsRequest::default().with_resources(vec![resource])).results[0].configs[0]
            .config_type
    };
    const TOPIC: i8 = 2;
    const SERVER: i8 = 4;
    for (kind, name, setting, expected) in [
        (TOPIC, "t", "segment.bytes", 3),
        (TOPIC, "t", "max.message.bytes", 3),
        (TOPIC, "t", "retention.ms", 5),
        (TOPIC, "t", "min.cleanable.dirty.ratio", 6),
        (TOPIC, "t", "cleanup.policy", 7),
        (SERVER, "1", "num.partitions", 3),
        (SERVER, "1", "log.retention.check.interval.ms", 5),
    ] {
        assert_eq!(kinds(kind, name, setting), expected, "{setting}");
    }
    let (code, _) = create(&mut client, "wide", &[("segment.bytes", "2147483648")]);
    assert_eq!(code, ResponseError::InvalidConfig.code(), "32 bits are what it has");
}

#[test]
fn a_topic_says_nothing_that_does_not_hold() {
    let served = serve_with(BrokerOptions::default());
    let mut client = served.client();
    for (setting, value) in
        [("min.insync.replicas", "2"), ("max.message.bytes", "99999999"), ("index.interval.bytes", "1")]
    {
        let made = create(&mut client, "odd", &[(setting, value)]);
        assert_eq!(made.0, ResponseError::InvalidConfig.code(), "{setting}={value}");
    }
    assert_eq!(create(&mut client, "even", &[("min.insync.replicas", "1"), ("flush.ms", "500")]).0, 0);
}
