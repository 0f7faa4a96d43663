//! The partition log served over Kafka's wire protocol, for Kafka clients of any make and for many processes at once.
//!
//! ```text
//!  client --- TCP --- connection ---- codec ---- handlers (api/) ---- Log
//!                     one thread      guard,     one file per
//!                     reads, one      kafka-     family of APIs;
//!                     answers         protocol   groups decide purely
//! ```
//!
//! Reading order: [`options`] (limits), `wire` (the table of APIs, the guard, the codec), `service` and `api` (what
//! requests mean), `group` (members of consumer groups), `fences`, `server` (sockets and threads).
//!
//! What it promises:
//! * Requests of one connection are carried out in their order, and answered in it.
//! * What is acknowledged is synced: the log's own promise, for `acks=1` and `acks=all` alike.
//! * No request makes the server allocate more than a bounded multiple of its bytes, and all requests in memory stay within
//!   one pool (I-9). What isn't a request ends its connection and nothing else.
//! * A fetch answers within the time that it asks for.
//! * Batches are the same bytes from socket to disk to socket.
//! * What other machines can reach is served only where there is TLS and clients prove who they are ([`Listen`]).
//!
//! ```
//! use cutwater_broker::{Broker, BrokerOptions};
//! use cutwater_partition_log::{Log, LogOptions};
//! use cutwater_platform::Platform;
//! # let dir = tempfile::tempdir()?;
//! let platform = Platform::real();
//! let log = Log::open(&platform, dir.path(), LogOptions::default())?;
//! let broker = Broker::start(&platform, log.clone(), "127.0.0.1:0".parse()?, BrokerOptions::default())?;
//! println!("any Kafka client can connect to {}", broker.address());
//! broker.stop();
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod options;

mod access;
mod api;
mod errors;
mod fences;
mod fetch_sessions;
mod frames;
mod group;
mod metrics;
mod pattern;
mod pool;
mod producers;
mod server;
mod service;
mod topic_ids;
mod wire;

pub use access::{AccessError, BookError, CertificateName, Users};
pub use metrics::{MetricsOptions, MetricsServer};
pub use options::{BrokerLimits, BrokerOptions, Security, TlsFiles};
pub use server::{Broker, BrokerError, Listen, ListenError, ListenParseError, TlsError};

/// The APIs that are served, as a table in Markdown: `docs/broker.md` holds it, and a test compares.
pub fn api_table() -> String {
    let mut table = String::from("| key | API | versions |\n|---|---|---|\n");
    for api in wire::apis::APIS {
        let (from, to) = api.versions;
        let listed = if api.listed_from < from { format!(" (listed from {})", api.listed_from) } else { String::new() };
        table.push_str(&format!("| {} | {:?} | {from}-{to}{listed} |\n", api.key as i16, api.key));
    }
    table
}

/// Has the guard, and what lies behind it, read a frame without its size. For fuzzing.
#[doc(hidden)]
pub fn look_at_frame(frame: &[u8]) -> bool {
    wire::codec::read(bytes::Bytes::copy_from_slice(frame)).is_ok_and(|head| api::decodes(&head))
}

/// A frame without its size that no client would send, made up by these choices: samples and shapes of all APIs and versions,
/// damaged. For fuzzing, and for tests that send many.
#[doc(hidden)]
pub fn made_up_frame(choices: &[u8]) -> bytes::Bytes {
    wire::made_up::frame(&mut wire::made_up::Choices::new(choices))
}

/// The most memory that a frame of so many bytes may take while it is looked at. For fuzzing.
#[doc(hidden)]
pub fn most_memory_for_frame(bytes: usize) -> usize {
    wire::cost::BYTES_ALWAYS + bytes * wire::cost::BYTES_PER_BYTE
}

/// Has what is kept of a group's members, by either protocol, read; whether it is such. For fuzzing.
#[doc(hidden)]
pub fn look_at_membership(bytes: &[u8]) -> bool {
    use group::consumer::stored as newer;
    let zero = std::time::Duration::ZERO;
    let consumer = newer::read(bytes, zero, zero);
    if let Some(group) = &consumer {
        let again = newer::read(&newer::write(group), zero, zero);
        assert_eq!(again.as_ref(), Some(group), "what was read is read again when it is written");
    }
    consumer.is_some() || group::stored::read(bytes, zero).is_some()
}

/// The most memory that this may take. For fuzzing.
#[doc(hidden)]
pub fn most_memory_for_membership(bytes: usize) -> usize {
    group::stored::most_memory(bytes).max(group::consumer::stored::most_memory(bytes))
}
