//! A reader of committed records that knows Kafka's protocol and nothing of ours: `kafka-protocol` reads and writes every byte.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreateAclsRequest, FetchRequest, FetchResponse, GroupId, OffsetFetchRequest, RequestHeader,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::RecordBatchDecoder;

const VERSION: i16 = 11;
/// Unknown topic or partition.
const UNKNOWN: i16 = 3;

/// The values of everything that is committed in a partition, in their order; nothing if there is no such topic yet. A broker that
/// is away is waited for.
pub fn committed(address: &str, topic: &str, partition: i32) -> Vec<String> {
    records(address, topic, partition).0.into_iter().map(|(_, value)| value).collect()
}

/// The same with their offsets, and the offset behind all of them.
pub fn records(address: &str, topic: &str, partition: i32) -> (Vec<(i64, String)>, i64) {
    patiently(address, || read(address, topic, partition))
}

/// The offsets that a group has committed in the first partitions of a topic; -1 where it has none.
#[allow(dead_code, reason = "every test takes what it needs")]
pub fn group_offsets(address: &str, group: &str, topic: &str, partitions: i32) -> Vec<i64> {
    let text = |text: &str| StrBytes::from_string(text.to_string());
    let of = OffsetFetchRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partition_indexes((0..partitions).collect());
    let request = OffsetFetchRequest::default().with_group_id(GroupId(text(group))).with_topics(Some(vec![of]));
    patiently(address, || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let response = ask(&mut stream, 5, &request)?;
        assert_eq!(response.error_code, 0, "{response:?}");
        Some(response.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.committed_offset).collect())
    })
}

fn patiently<T>(address: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        match look() {
            Some(found) => return found,
            None if since.elapsed() > Duration::from_secs(30) => panic!("{address} doesn't answer"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn read(address: &str, topic: &str, partition: i32) -> Option<(Vec<(i64, String)>, i64)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let (mut from, mut values, mut until) = (0, vec![], None);
    loop {
        let response = fetch(&mut stream, topic, partition, from)?;
        let data = &response.responses[0].partitions[0];
        if data.error_code == UNKNOWN {
            return Some((values, from));
        }
        assert_eq!(data.error_code, 0, "{topic} {partition} at {from}");
        // As of the first answer: whoever writes all the time would be followed for ever.
        let until = *until.get_or_insert(data.last_stable_offset);
        let mut records = data.records.clone().unwrap_or_default();
        let end = from;
        // Kafka's own way: aborted producers by their first offset, until their marker.
        let mut aborted: Vec<(i64, i64)> =
            data.aborted_transactions.iter().flatten().map(|a| (a.first_offset, a.producer_id.0)).collect();
        aborted.sort_unstable();
        let mut ending: BTreeSet<i64> = BTreeSet::new();
        for set in RecordBatchDecoder::decode_all(&mut records).expect("batches") {
            let last = set.records.last().expect("a batch has records").offset;
            ending.extend(aborted.iter().filter(|(first, _)| *first <= last).map(|(_, producer)| *producer));
            aborted.retain(|(first, _)| *first > last);
            for record in set.records {
                if record.control {
                    // Key: version, then 0 for an abort.
                    if record.key.as_ref().is_some_and(|key| key[..4] == [0, 0, 0, 0]) {
                        ending.remove(&record.producer_id);
                    }
                } else if record.offset >= from && !(record.transactional && ending.contains(&record.producer_id)) {
                    let value = record.value.unwrap_or_default();
                    values.push((record.offset, String::from_utf8(value.to_vec()).expect("text")));
                }
            }
            from = last + 1;
        }
        if from == end || from >= until {
            return Some((values, from));
        }
    }
}

fn fetch(stream: &mut TcpStream, topic: &str, partition: i32, from: i64) -> Option<FetchResponse> {
    let at =
        FetchPartition::default().with_partition(partition).with_fetch_offset(from).with_partition_max_bytes(4 << 20);
    let topic =
        FetchTopic::default().with_topic(TopicName(StrBytes::from_string(topic.to_string()))).with_partitions(vec![at]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(8 << 20)
        .with_isolation_level(1)
        .with_topics(vec![topic]);
    ask(stream, VERSION, &request)
}

fn ask<R: Request>(stream: &mut TcpStream, version: i16, request: &R) -> Option<R::Response> {
    let header = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version)).expect("a header");
    request.encode(&mut body, version).expect("a request");
    stream.write_all(&(body.len() as i32).to_be_bytes()).ok()?;
    stream.write_all(&body).ok()?;
    let mut size = [0; 4];
    stream.read_exact(&mut size).ok()?;
    let mut frame = vec![0; i32::from_be_bytes(size) as usize];
    stream.read_exact(&mut frame).ok()?;
    let mut frame = Bytes::from(frame);
    ResponseHeader::decode(&mut frame, R::Response::header_version(version)).expect("a header");
    Some(R::Response::decode(&mut frame, version).expect("a response"))
}

/// Kinds of things, and operations, as rules have them.
pub mod allow {
    #![allow(dead_code, reason = "every test takes what it needs")]
    pub const TOPIC: i8 = 2;
    /// Transactional ids that begin so.
    pub const JOBS: i8 = 5;
    pub const READ: i8 = 3;
    pub const WRITE: i8 = 4;
    pub const CREATE: i8 = 5;
}

/// Has whoever may do everything at this address allow a user something.
#[allow(dead_code, reason = "every test takes what it needs")]
pub fn allow(address: &str, user: &str, kind: i8, name: &str, operations: &[i8]) {
    let text = |text: &str| StrBytes::from_string(text.to_string());
    let rule = |operation: &i8| {
        AclCreation::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_resource_pattern_type(if kind == allow::JOBS { 4 } else { 3 })
            .with_principal(text(&format!("User:{user}")))
            .with_host(text("*"))
            .with_operation(*operation)
            .with_permission_type(3)
    };
    let request = CreateAclsRequest::default().with_creations(operations.iter().map(rule).collect());
    let mut stream = TcpStream::connect(address).expect("the broker listens");
    let made = ask(&mut stream, 3, &request).expect("an answer");
    assert!(made.results.iter().all(|result| result.error_code == 0), "{made:?}");
}
