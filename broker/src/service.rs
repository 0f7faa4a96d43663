//! What all connections share, and what one of them is known by.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cutwater_partition_log::Log;
use cutwater_platform::Platform;
use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;

use crate::errors::text;
use crate::options::BrokerOptions;
use crate::topic_ids::TopicIds;

/// This server's number: there is one.
pub(crate) const NODE: BrokerId = BrokerId(1);
/// The epoch of every partition's leader: nobody else ever was.
pub(crate) const LEADER_EPOCH: i32 = 0;
/// Nobody waits longer than this without looking whether the server stops.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// The log and what is kept beside it.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) log: Log,
    pub(crate) platform: Platform,
    pub(crate) options: BrokerOptions,
    pub(crate) topic_ids: TopicIds,
    /// Where clients find this server.
    pub(crate) host: String,
    pub(crate) port: u16,
    stopping: AtomicBool,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Rises with every accepted connection.
    pub(crate) connection: u64,
    /// Where it comes from.
    pub(crate) address: String,
}

/// What a request gets.
pub(crate) enum Reply {
    /// This frame.
    Now(Bytes),
    /// This frame, once something is durable; in its turn.
    Later(Box<dyn FnOnce() -> Reply + Send>),
    /// None: the client doesn't want one.
    Nothing,
    /// None, and the connection is closed.
    Close(String),
}

impl Service {
    pub(crate) fn new(platform: &Platform, log: Log, options: BrokerOptions, host: String, port: u16) -> Service {
        Service {
            log,
            platform: platform.clone(),
            options,
            topic_ids: TopicIds::default(),
            host,
            port,
            stopping: AtomicBool::new(false),
        }
    }

    /// The name of the cluster that clients see.
    pub(crate) fn cluster_id(&self) -> StrBytes {
        text("cutwater")
    }

    pub(crate) fn now(&self) -> Duration {
        self.platform.clock.monotonic()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }
}
