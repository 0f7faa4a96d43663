//! A broker over a log in a temporary directory, and the simplest client there can be: one connection, one request at a time.

#![allow(dead_code, reason = "every test takes what it needs")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cutwater_broker::{Broker, BrokerOptions};
use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::Platform;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// A broker and what it stands on.
pub struct Served {
    pub broker: Broker,
    pub log: Log,
    pub dir: tempfile::TempDir,
}

/// A broker on a free port.
pub fn serve() -> Served {
    serve_with(BrokerOptions::default())
}

pub fn serve_with(options: BrokerOptions) -> Served {
    serve_log(LogOptions::default(), options)
}

pub fn serve_log(log: LogOptions, options: BrokerOptions) -> Served {
    let dir = tempfile::tempdir().expect("a directory");
    let platform = Platform::real();
    let log = Log::open(&platform, &dir.path().join("log"), log).expect("a fresh log");
    let address = "127.0.0.1:0".parse().expect("an address");
    let broker = Broker::start(&platform, log.clone(), address, options).expect("a free port");
    Served { broker, log, dir }
}

impl Served {
    pub fn client(&self) -> Client {
        Client::connect(self.broker.address())
    }
}

/// Over a socket, or what stands between it and the socket.
pub struct Client<S = TcpStream> {
    pub stream: S,
    correlation: i32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        Client::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client { stream, correlation: 0 }
    }

    /// Sends a request, doesn't wait.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) {
        let frame = self.framed(version, request);
        self.stream.write_all(&frame).expect("the broker reads");
    }

    /// The bytes of the next request.
    pub fn framed<R: Request>(&mut self, version: i16, request: &R) -> Vec<u8> {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut body = BytesMut::new();
        header.encode(&mut body, R::header_version(version)).expect("a header");
        request.encode(&mut body, version).expect("a request");
        let mut frame = (body.len() as i32).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        frame
    }

    /// The next frame, if the connection isn't closed.
    pub fn frame(&mut self) -> Option<Bytes> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).ok()?;
        let mut frame = vec![0; i32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut frame).ok()?;
        Some(frame.into())
    }

    /// The answer to the request sent `behind` before the last one.
    pub fn receive<R: Request>(&mut self, version: i16, behind: i32) -> R::Response {
        let mut frame = self.frame().expect("an answer");
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version)).expect("a header");
        assert_eq!(header.correlation_id, self.correlation - behind, "answers come in order");
        let response = R::Response::decode(&mut frame, version).expect("a response");
        assert!(frame.is_empty(), "{} bytes are left over", frame.len());
        response
    }

    /// Asks and waits.
    pub fn ask<R: Request>(&mut self, version: i16, request: R) -> R::Response {
        self.send(version, &request);
        self.receive::<R>(version, 0)
    }
}

pub fn name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_string()))
}

/// A batch of these values.
pub fn batch(stamp: ProducerStamp, values: &[&str]) -> Bytes {
    let mut batch = BatchBuilder::new(Compression::None);
    for value in values {
        batch.push(1_000, None, Some(value.as_bytes()), &[]).expect("it fits");
    }
    batch.build(stamp).expect("a batch").into()
}

/// No idempotence.
pub const PLAIN: ProducerStamp = ProducerStamp { producer_id: -1, epoch: -1, base_sequence: -1, transactional: false };

/// A request that appends a batch to one partition.
pub fn produce(topic: &str, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    use produce_request::{PartitionProduceData, TopicProduceData};
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(10_000).with_topic_data(vec![topic])
}

/// Error code and base offset of the only partition.
pub fn produced(response: &ProduceResponse) -> (i16, i64) {
    let partition = &response.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

/// A request that reads one partition.
pub fn fetch(topic: &str, partition: i32, from: i64, wait_ms: i32, min_bytes: i32) -> FetchRequest {
    use fetch_request::{FetchPartition, FetchTopic};
    let data =
        FetchPartition::default().with_partition(partition).with_fetch_offset(from).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![data]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(min_bytes)
        .with_max_bytes(50 << 20)
        .with_topics(vec![topic])
}

/// The only partition of a fetch.
pub fn fetched(response: &FetchResponse) -> &fetch_response::PartitionData {
    &response.responses[0].partitions[0]
}
