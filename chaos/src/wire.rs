//! A Kafka client as small as it can be: one connection, requests in order, no retries, no buffering. What goes wrong is told.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cutwater_partition_log::batch::{BatchBuilder, Compression, Limits, ProducerStamp, records};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::Failed;
use crate::server::rest;

/// Longer than any stop of the broker, so that only a dead connection is given up.
const PATIENCE: Duration = Duration::from_secs(8);

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    sent: i32,
    received: i32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, sent: 0, received: 0 })
    }

    /// Sends a request and doesn't wait.
    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<()> {
        self.sent += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.sent)
            .with_client_id(Some(StrBytes::from_static_str("chaos")));
        let mut body = BytesMut::new();
        header.encode(&mut body, R::header_version(version)).map_err(io::Error::other)?;
        request.encode(&mut body, version).map_err(io::Error::other)?;
        let mut frame = i32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        self.stream.write_all(&frame)
    }

    fn frame(&mut self) -> io::Result<Bytes> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).map_err(io::Error::other)?];
        self.stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    /// The answer to the oldest request that has none yet.
    pub(crate) fn receive<R: Request>(&mut self, version: i16) -> io::Result<R::Response> {
        let mut frame = self.frame()?;
        self.received += 1;
        let version_of_header = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut frame, version_of_header).map_err(io::Error::other)?;
        if header.correlation_id != self.received {
            return Err(io::Error::other("an answer out of turn"));
        }
        let response = R::Response::decode(&mut frame, version).map_err(io::Error::other)?;
        if frame.is_empty() { Ok(response) } else { Err(io::Error::other("bytes behind an answer")) }
    }

    pub(crate) fn ask<R: Request>(&mut self, version: i16, request: &R) -> io::Result<R::Response> {
        self.send(version, request)?;
        self.receive::<R>(version)
    }

    /// Says that nothing more is sent, takes what comes, and gives the connection up.
    pub(crate) fn drain(&mut self, patience: Duration) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(patience));
        let mut sink = [0; 4096];
        while self.stream.read(&mut sink).is_ok_and(|bytes| bytes > 0) {}
    }
}

/// Whether an error means that the connection is gone, and not that the answer was nonsense.
pub(crate) fn is_connection(error: &io::Error) -> bool {
    error.kind() != ErrorKind::Other
}

/// Errors that ask for nothing but another try.
pub(crate) fn is_passing(code: i16) -> bool {
    [
        ResponseError::KafkaStorageError,
        ResponseError::NotLeaderOrFollower,
        ResponseError::NotCoordinator,
        ResponseError::CoordinatorLoadInProgress,
        ResponseError::CoordinatorNotAvailable,
        ResponseError::RequestTimedOut,
        ResponseError::NetworkException,
    ]
    .iter()
    .any(|error| error.code() == code)
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_string()))
}

/// Makes a topic, which isn't there yet.
pub(crate) fn create_topic(
    address: SocketAddr,
    name: &str,
    partitions: u32,
    settings: &[(&str, String)],
) -> Result<(), Failed> {
    let text = |text: &str| StrBytes::from_string(text.to_string());
    let configs = settings
        .iter()
        .map(|(name, value)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value))));
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions as i32)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    let answer = Client::connect(address).and_then(|mut client| client.ask(5, &request));
    let answer = answer.map_err(|e| Failed::of("create a topic", e))?;
    match answer.topics.first().map(|topic| topic.error_code) {
        Some(0) => Ok(()),
        code => Err(Failed::new(format!("topic {name} can't be created: {code:?}"))),
    }
}

/// A producer id for somebody without transactions; none when it is given up.
pub(crate) fn producer_id(address: SocketAddr, is_given_up: impl Fn() -> bool) -> Option<i64> {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    while !is_given_up() {
        match Client::connect(address).and_then(|mut client| client.ask(4, &request)) {
            Ok(given) if given.error_code == 0 => return Some(given.producer_id.0),
            _ => rest(Duration::from_millis(30)),
        }
    }
    None
}

/// A batch of values, each as its number in decimal digits.
pub(crate) fn batch(stamp: ProducerStamp, codec: Compression, values: impl Iterator<Item = u64>) -> Bytes {
    let mut batch = BatchBuilder::new(codec);
    for value in values {
        batch.push(1_000, None, Some(value.to_string().as_bytes()), &[]).expect("small values fit");
    }
    batch.build(stamp).expect("a batch of few records").into()
}

/// One request with a batch for each of these partitions.
pub(crate) fn produce(topic: &str, transactional: Option<&str>, batches: Vec<(i32, Bytes)>) -> ProduceRequest {
    let data = batches
        .into_iter()
        .map(|(partition, records)| PartitionProduceData::default().with_index(partition).with_records(Some(records)));
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(data.collect());
    let id = transactional.map(|id| TransactionalId(StrBytes::from_string(id.to_string())));
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![topic])
        .with_transactional_id(id)
}

/// What each partition of a produce request was answered: number, error, base offset.
pub(crate) fn produced(response: &ProduceResponse) -> Vec<(i32, i16, i64)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.map(|p| (p.index, p.error_code, p.base_offset)).collect()
}

/// Asks for one partition from an offset on.
pub(crate) fn fetch(topic: &str, partition: i32, from: u64, committed: bool, max_bytes: i32) -> FetchRequest {
    let data = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(from.cast_signed())
        .with_partition_max_bytes(max_bytes);
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(vec![data]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(50)
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_isolation_level(i8::from(committed))
        .with_topics(vec![topic])
}

/// What a fetch of one partition brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Records with their offsets, those of aborted transactions left out if asked for.
    pub(crate) records: Vec<(u64, u64)>,
    /// Where to go on.
    pub(crate) next: u64,
    pub(crate) high_watermark: u64,
    pub(crate) last_stable: u64,
}

/// The same of a topic whose records have keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keyed {
    /// Offset, key, and value or tombstone.
    pub(crate) records: Vec<(u64, u64, Option<u64>)>,
    pub(crate) next: u64,
    pub(crate) high_watermark: u64,
    /// Bytes of the batches that were brought.
    pub(crate) bytes: u64,
}

/// Reads an answer as a consumer does: what lies below `from` is skipped, control batches are, and aborted transactions by
/// the list that came with them (if `filter`).
///
/// # Errors
/// Its error code, or what is wrong with its bytes.
pub(crate) fn seen(answer: &FetchResponse, from: u64, filter: bool) -> Result<Seen, String> {
    let mut records = vec![];
    let walked = walk(answer, from, filter, |offset, _, value| {
        records.push((offset, value.ok_or_else(|| format!("a record without a value at {offset}"))?));
        Ok(())
    })?;
    let Walked { next, high_watermark, last_stable, .. } = walked;
    Ok(Seen { records, next, high_watermark, last_stable })
}

/// The same with keys.
///
/// # Errors
/// As [`seen`].
pub(crate) fn keyed(answer: &FetchResponse, from: u64, filter: bool) -> Result<Keyed, String> {
    let mut records = vec![];
    let walked = walk(answer, from, filter, |offset, key, value| {
        records.push((offset, key.ok_or_else(|| format!("a record without a key at {offset}"))?, value));
        Ok(())
    })?;
    let Walked { next, high_watermark, bytes, .. } = walked;
    Ok(Keyed { records, next, high_watermark, bytes })
}

struct Walked {
    next: u64,
    high_watermark: u64,
    last_stable: u64,
    bytes: u64,
}

/// Takes the records of an answer one by one: offset, key, value.
fn walk(
    answer: &FetchResponse,
    from: u64,
    filter: bool,
    mut take: impl FnMut(u64, Option<u64>, Option<u64>) -> Result<(), String>,
) -> Result<Walked, String> {
    let data = answer.responses.first().and_then(|topic| topic.partitions.first()).ok_or("no partition in it")?;
    if data.error_code != 0 {
        return Err(format!("error {}", data.error_code));
    }
    let number = |n: i64| u64::try_from(n).map_err(|_| format!("an offset of {n}"));
    let mut walked = Walked {
        next: from,
        high_watermark: number(data.high_watermark)?,
        last_stable: number(data.last_stable_offset)?,
        bytes: 0,
    };
    let mut aborted = aborted(data);
    let mut open: Vec<i64> = vec![];
    let mut left = data.records.clone().unwrap_or_default();
    while !left.is_empty() {
        let batch = match records(&left, &Limits::default()) {
            Ok(batch) => batch,
            // The last one may be cut.
            Err(_) if left.len() < 61 => break,
            Err(error) => return Err(error.to_string()),
        };
        let header = *batch.header();
        let last = number(header.last_offset())?;
        while let Some((first, producer)) = aborted.last().copied().filter(|(first, _)| *first <= header.last_offset())
        {
            let _ = first;
            open.push(producer);
            aborted.pop();
        }
        if header.is_control() {
            // The marker ends what was aborted.
            open.retain(|producer| *producer != header.producer_id);
        } else if !(filter && header.is_transactional() && open.contains(&header.producer_id)) {
            for record in &batch {
                let record = record.map_err(|e| e.to_string())?;
                let offset = number(record.offset)?;
                let decimal = |what: &str, bytes: Option<&[u8]>| {
                    let number = |bytes| std::str::from_utf8(bytes).ok()?.parse().ok();
                    let read =
                        bytes.map(|bytes| number(bytes).ok_or(format!("a {what} that is no number at {offset}")));
                    read.transpose()
                };
                let (key, value) = (decimal("key", record.key)?, decimal("value", record.value)?);
                if offset >= from {
                    take(offset, key, value)?;
                }
            }
        }
        walked.next = walked.next.max(last + 1);
        let bytes = header.total_bytes();
        walked.bytes += bytes as u64;
        drop(batch);
        left = left.slice(bytes..);
    }
    Ok(walked)
}

/// First offsets and producers of aborted transactions, the first one last.
fn aborted(data: &PartitionData) -> Vec<(i64, i64)> {
    let listed = data.aborted_transactions.iter().flatten();
    let mut aborted: Vec<_> = listed.map(|a| (a.first_offset, a.producer_id.0)).collect();
    aborted.sort_unstable_by(|a, b| b.cmp(a));
    aborted
}
