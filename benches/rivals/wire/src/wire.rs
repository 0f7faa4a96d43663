//! One connection: requests go out without waiting, answers come back in their order.
//!
//! Versions are the newest that both sides know, below the caps here. The caps keep names instead of topic ids, so that every
//! contender is asked the same.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// The newest version of an API that is asked for.
fn cap(key: ApiKey) -> i16 {
    match key {
        ApiKey::Fetch | ApiKey::Produce => 12,
        ApiKey::CreateTopics | ApiKey::EndTxn => 5,
        ApiKey::FindCoordinator => 3,
        ApiKey::AddPartitionsToTxn => 3,
        ApiKey::ListOffsets => 6,
        _ => 4,
    }
}

/// A connection to a contender.
pub struct Connection {
    stream: TcpStream,
    correlation: i32,
    answered: i32,
    versions: HashMap<i16, i16>,
    out: Vec<u8>,
}

impl Connection {
    /// Connects, and asks which versions the other side knows.
    pub fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        let mut connection =
            Connection { stream, correlation: 0, answered: 0, versions: HashMap::new(), out: Vec::new() };
        let answer = connection.ask(&ApiVersionsRequest::default())?;
        ensure!(answer.error_code == 0, "ApiVersions is answered with error {}", answer.error_code);
        connection.versions = answer.api_keys.iter().map(|api| (api.api_key, api.max_version)).collect();
        Ok(connection)
    }

    /// The version in which an API is asked for.
    pub fn version<R: Request>(&self) -> i16 {
        let key = ApiKey::try_from(R::KEY).expect("a key of Kafka's");
        if key == ApiKey::ApiVersions {
            return 0;
        }
        self.versions.get(&R::KEY).copied().unwrap_or(0).min(cap(key))
    }

    /// Sends a request and doesn't wait.
    pub fn send<R: Request>(&mut self, request: &R) -> Result<()> {
        let version = self.version::<R>();
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("rivals")));
        self.out.clear();
        self.out.extend_from_slice(&[0; 4]);
        header.encode(&mut self.out, R::header_version(version))?;
        request.encode(&mut self.out, version)?;
        let size = i32::try_from(self.out.len() - 4)?;
        self.out[..4].copy_from_slice(&size.to_be_bytes());
        self.stream.write_all(&self.out).context("the request can't be sent")
    }

    /// The answer to the oldest request that hasn't one.
    pub fn receive<R: Request>(&mut self) -> Result<R::Response> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).context("no answer")?;
        let size = usize::try_from(i32::from_be_bytes(size))?;
        let mut frame = BytesMut::zeroed(size);
        self.stream.read_exact(&mut frame).context("an answer is cut short")?;
        let mut frame: Bytes = frame.freeze();
        let version = self.version::<R>();
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version))?;
        self.answered += 1;
        if header.correlation_id != self.answered {
            bail!("answer {} comes instead of {}", header.correlation_id, self.answered);
        }
        R::Response::decode(&mut frame, version)
    }

    /// Asks and waits.
    pub fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response> {
        self.send(request)?;
        self.receive::<R>()
    }

    /// Requests without an answer yet.
    pub fn in_flight(&self) -> i32 {
        self.correlation - self.answered
    }
}

/// Text of the protocol.
pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}
