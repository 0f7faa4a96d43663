//! The page of metrics, read back and compared with what was done; and an endpoint that nobody can hold up.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use cutwater_broker::{BrokerError, MetricsOptions, MetricsServer};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Offset, OwnerId, TopicPartition, TxnName};
use cutwater_platform::Platform;
use kafka_protocol::protocol::Encodable;

/// Samples by name and labels as they are written, types by family.
struct Page {
    samples: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Reads the format strictly: every sample belongs to the family above it, none comes twice, every value is a number.
fn scrape(server: &MetricsServer) -> Page {
    let answer = ask(server.address(), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.ends_with('\n'), "the last line ends, too");
    let mut page = Page { samples: BTreeMap::new(), types: BTreeMap::new() };
    let mut family = String::new();
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("a name and a sentence").0.to_string();
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(name, family, "a type follows its help");
            assert!(page.types.insert(name.to_string(), kind.to_string()).is_none(), "{name} comes twice");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let name = series.split('{').next().expect("a name");
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} stands in {family}"));
        let suffixes: &[&str] = match page.types[&family].as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{line}");
        assert!(page.types[&family] != "counter" || name.ends_with("_total"), "{line}");
        let value = value.parse().expect("a number");
        assert!(page.samples.insert(series.to_string(), value).is_none(), "{series} comes twice");
    }
    page
}

impl Page {
    fn get(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.samples))
    }
}

fn now() -> i64 {
    Platform::real().clock.wall().0
}

/// A batch with a record at each of these times.
fn at_times(times: &[i64]) -> BatchBuilder {
    let mut batch = BatchBuilder::new(Compression::Lz4);
    for time in times {
        batch.push(*time, None, Some(b"value"), &[]).expect("it fits");
    }
    batch
}

#[test]
fn requests_errors_and_bytes_are_those_that_were_sent() {
    let served = serve();
    let metrics = served.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
    let metrics = metrics.expect("a free port");
    let mut client = served.client();
    served.log.create_topic("words", 2).expect("a topic");
    for _ in 0..3 {
        client.ask(9, produce("words", 1, -1, batch(PLAIN, &["one", "two"])));
    }
    client.ask(9, produce("nowhere", 0, -1, batch(PLAIN, &["lost"])));
    client.ask(9, produce("words", 7, -1, batch(PLAIN, &["lost"])));
    client.ask(12, fetch("words", 1, 0, 0, 1));
    // An answer is counted once it has gone, so that its client may be faster.
    let counted = |page: &Page| page.samples.get("cutwater_request_seconds_count{api=\"Fetch\"}") == Some(&1.0);
    let mut page = scrape(&metrics);
    while !counted(&page) {
        page = scrape(&metrics);
    }
    assert_eq!(page.get("cutwater_requests_total{api=\"Produce\"}"), 5.0);
    assert_eq!(page.get("cutwater_requests_total{api=\"Fetch\"}"), 1.0);
    let errors = "cutwater_response_errors_total{api=\"Produce\",error=\"UnknownTopicOrPartition\"}";
    assert_eq!(page.get(errors), 2.0);
    let of_fetch = page.samples.keys().any(|series| series.contains("errors_total{api=\"Fetch\""));
    assert!(!of_fetch, "what goes well is no error");

    let frame = |records| {
        let mut body = BytesMut::new();
        produce("words", 1, -1, records).encode(&mut body, 9).expect("a request");
        let header = 2 + 2 + 4 + 2 + "test".len() + 1;
        (4 + header + body.len()) as f64
    };
    let nowhere = frame(batch(PLAIN, &["lost"])) + 2.0;
    let sent = 3.0 * frame(batch(PLAIN, &["one", "two"])) + nowhere + frame(batch(PLAIN, &["lost"]));
    assert_eq!(page.get("cutwater_received_bytes_total{api=\"Produce\"}"), sent);
    assert!(page.get("cutwater_sent_bytes_total{api=\"Fetch\"}") > 3.0 * 61.0, "three batches were read");

    assert_eq!(page.get("cutwater_request_seconds_count{api=\"Produce\"}"), 5.0);
    assert_eq!(page.get("cutwater_request_seconds_bucket{api=\"Produce\",le=\"+Inf\"}"), 5.0);
    assert!(page.get("cutwater_request_seconds_sum{api=\"Produce\"}") > 0.0);
    assert_eq!(page.types["cutwater_request_seconds"], "histogram");

    assert_eq!(page.get("cutwater_open_connections"), 1.0);
    assert_eq!(page.get("cutwater_pool_bytes{pool=\"requests\",of=\"used\"}"), 0.0);
    assert_eq!(page.get("cutwater_pool_bytes{pool=\"requests\",of=\"size\"}"), f64::from(256 << 20));
    assert_eq!(page.get("cutwater_partition_high_watermark{topic=\"words\",partition=\"1\"}"), 6.0);
    assert_eq!(page.get("cutwater_partition_high_watermark{topic=\"words\",partition=\"0\"}"), 0.0);
    assert!(
        page.get("cutwater_log_synced_write_seconds_count") >= 4.0,
        "a topic and three batches, one after the other"
    );
    assert!(page.get("cutwater_log_written_bytes_total") > 0.0);
    assert_eq!((page.get("cutwater_topics"), page.get("cutwater_partitions")), (1.0, 2.0));
    assert_eq!(page.get("cutwater_log_up"), 1.0);
    assert_eq!(page.get("cutwater_log_without_room"), 0.0);

    drop(client);
    let mut page = scrape(&metrics);
    while page.get("cutwater_open_connections") > 0.0 {
        page = scrape(&metrics);
    }
    assert_eq!(page.get("cutwater_connections_total{outcome=\"accepted\"}"), 1.0);
}

#[test]
fn lag_is_told_in_records_and_in_the_age_of_the_first_record_that_is_not_committed() {
    let served = serve();
    let metrics = served.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
    let metrics = metrics.expect("a free port");
    let log = &served.log;
    let words = log.create_topic("words", 3).expect("a topic");
    let producer = log.producer().expect("a producer");
    let begun = now();
    let append = |partition, ages: &[i64]| {
        let times: Vec<i64> = ages.iter().map(|age| begun - 1000 * age).collect();
        producer.append(words, partition, &mut at_times(&times)).expect("accepted").wait().expect("durable");
    };
    append(0, &[500, 400, 300]);
    append(0, &[200]);
    append(1, &[900]);
    // One that comes from the future is not late.
    append(2, &[-5000]);
    let commit = |partition, offset| {
        log.commit_offsets("readers", [(TopicPartition::new(words, partition), Offset(offset))]).expect("committed");
    };
    commit(0, 1);
    commit(1, 1);
    commit(2, 0);
    let series = |what: &str, partition: u32| {
        format!("cutwater_group_{what}{{group=\"readers\",topic=\"words\",partition=\"{partition}\"}}")
    };
    let lag = |page: &Page, partition| {
        (page.get(&series("lag_records", partition)), page.get(&series("lag_seconds", partition)))
    };
    let since = || (now() - begun) as f64 / 1000.0;
    let is_age = |lag: f64, age: f64| (age..=age + since() + 0.001).contains(&lag);
    let page = scrape(&metrics);
    let (records, seconds) = lag(&page, 0);
    assert_eq!(records, 3.0);
    assert!(is_age(seconds, 400.0), "{seconds}: of the second record in its batch");
    assert_eq!(lag(&page, 1), (0.0, 0.0), "who has read everything isn't late");
    assert_eq!(lag(&page, 2), (1.0, 0.0));
    assert_eq!(page.get("cutwater_group_total_lag_records{group=\"readers\"}"), 4.0);
    assert!(is_age(page.get("cutwater_group_longest_lag_seconds{group=\"readers\"}"), 400.0));
    assert_eq!(page.get("cutwater_groups{protocol=\"classic\",state=\"Empty\"}"), 1.0);
    // Remembered, it is the same.
    assert!(is_age(lag(&scrape(&metrics), 0).1, 400.0));
    commit(0, 3);
    let (records, seconds) = lag(&scrape(&metrics), 0);
    assert!(records == 1.0 && is_age(seconds, 200.0), "{records} {seconds}");
    // Deleted records are no lag.
    commit(0, 0);
    log.delete_records(TopicPartition::new(words, 0), Some(Offset(2))).expect("deleted");
    let (records, seconds) = lag(&scrape(&metrics), 0);
    assert!(records == 2.0 && is_age(seconds, 300.0), "{records} {seconds}");
    assert_eq!(scrape(&metrics).get("cutwater_partition_log_start_offset{topic=\"words\",partition=\"0\"}"), 2.0);
}

#[test]
fn open_and_prepared_transactions_are_counted_with_the_age_of_the_oldest_and_markers_are_no_late_records() {
    let served = serve();
    let metrics = served.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
    let metrics = metrics.expect("a free port");
    let log = &served.log;
    let words = log.create_topic("words", 1).expect("a topic");
    let owner = log.claim(&OwnerId(7), 1).expect("claimed");
    let name = |checkpoint| TxnName { checkpoint, sink: "words".to_string(), writer: 0 };
    let mut done = owner.begin(name(1)).expect("begun");
    done.append(words, 0, &mut at_times(&[1_000])).expect("accepted");
    done.commit().expect("committed");
    let mut prepared = owner.begin(name(2)).expect("begun");
    prepared.append(words, 0, &mut at_times(&[2_000])).expect("accepted");
    let _prepared = prepared.prepare().expect("prepared");
    let mut open = owner.begin(name(3)).expect("begun");
    open.append(words, 0, &mut at_times(&[3_000])).expect("accepted");
    log.commit_offsets("readers", [(TopicPartition::new(words, 0), Offset(1))]).expect("committed");
    let page = scrape(&metrics);
    let of = |what: &str, state: &str| page.get(&format!("cutwater_{what}{{state=\"{state}\",whose=\"job\"}}"));
    assert_eq!((of("transactions", "open"), of("transactions", "prepared")), (1.0, 1.0));
    assert!((0.0..20.0).contains(&of("oldest_transaction_seconds", "prepared")));
    assert_eq!(page.get("cutwater_transactions{state=\"open\",whose=\"client\"}"), 0.0);
    let partition = |what: &str| page.get(&format!("cutwater_partition_{what}{{topic=\"words\",partition=\"0\"}}"));
    assert_eq!((partition("high_watermark"), partition("last_stable_offset")), (4.0, 2.0));
    let seconds = page.get("cutwater_group_lag_seconds{group=\"readers\",topic=\"words\",partition=\"0\"}");
    let of_second = (now() - 2_000) as f64 / 1000.0;
    assert!((of_second - 20.0..=of_second).contains(&seconds), "the marker at offset 1 is passed over: {seconds}");
}

#[test]
fn a_page_has_no_more_series_of_topics_and_groups_than_it_may_and_says_how_many_are_missing() {
    let served = serve();
    let options = MetricsOptions { series_max: 9, ..MetricsOptions::default() };
    let metrics =
        served.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), options).expect("a free port");
    let words = served.log.create_topic("words", 10).expect("a topic");
    served.log.commit_offsets("readers", [(TopicPartition::new(words, 3), Offset(0))]).expect("committed");
    let page = scrape(&metrics);
    let named = page.samples.keys().filter(|series| series.contains("topic=") || series.contains("group=")).count();
    // Five of the group, then one partition with its four.
    assert_eq!(named, 9);
    assert_eq!(page.get("cutwater_metrics_series_left_out"), 9.0 * 4.0 + 2.0);
    assert_eq!(page.get("cutwater_partitions"), 10.0, "sums are complete");
}

#[test]
fn the_endpoint_gives_up_who_says_too_much_or_too_little_and_answers_the_next() {
    let served = serve();
    let metrics = served.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
    let metrics = metrics.expect("a free port");
    let mut slow = TcpStream::connect(metrics.address()).expect("it listens");
    slow.write_all(b"GET /met").expect("it reads");
    let much = format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(20_000));
    let mut stream = TcpStream::connect(metrics.address()).expect("it listens");
    let _ = stream.write_all(much.as_bytes());
    assert!(ask(metrics.address(), "GET /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
    assert!(ask(metrics.address(), "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let head = ask(metrics.address(), "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(rest.is_empty(), "who doesn't finish a request gets nothing");
}

#[test]
fn metrics_are_served_to_other_machines_only_if_that_is_said() {
    let served = serve();
    let public: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    let refused = served.broker.serve_metrics(public, MetricsOptions::default());
    assert!(matches!(refused, Err(BrokerError::PublicMetrics { .. })), "{refused:?}");
    let options = MetricsOptions { allow_public: true, ..MetricsOptions::default() };
    served.broker.serve_metrics(public, options).expect("it was said");
}

#[test]
fn health_is_bad_once_the_log_takes_nothing_more() {
    let served = serve();
    let metrics = served.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
    let metrics = metrics.expect("a free port");
    served.log.close().expect("closed");
    assert!(ask(metrics.address(), "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    assert_eq!(scrape(&metrics).get("cutwater_log_up"), 0.0);
}
