//! What a broker is told at its start, and the limits that are on by default.

use std::path::PathBuf;
use std::time::Duration;

use crate::access::CertificateName;

/// How a broker behaves.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// Whether a client that asks for a topic which isn't there gets it, as Kafka does by default.
    pub auto_create_topics: bool,
    /// Partitions of topics whose creator doesn't say how many.
    pub default_partitions: u32,
    /// How long a new group waits for more members before its first assignment (Kafka waits 3 seconds).
    pub group_initial_delay: Duration,
    /// The shortest and the longest session that a member may ask for.
    pub group_session: (Duration, Duration),
    /// What protects listeners.
    pub security: Security,
    /// How long a member of a consumer group by the newer protocol (KIP-848) may be silent.
    pub consumer_session: Duration,
    /// How often it is told to be heard of.
    pub consumer_heartbeat: Duration,
    /// How long offsets of a group are kept after its last member has left, or, where nobody was ever in it, after their commit.
    pub offsets_retention: Duration,
    /// Sizes, counts and times.
    pub limits: BrokerLimits,
}

/// What protects listeners. By default nothing does, and only loopback addresses can be listened on.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Certificate and key of listeners with TLS.
    pub tls: Option<TlsFiles>,
    /// The log's directory, in which users and rights are kept; listeners that ask who connects need it, and rights do.
    pub data: Option<PathBuf>,
    /// Whether it is asked for each request if its user may do that. What no rule allows is then denied.
    pub authorize: bool,
    /// How the certificates of clients name users, on listeners with TLS that want certificates and don't ask who connects. By default
    /// they don't: they let in, and who comes is anonymous.
    pub certificate_names: Option<CertificateName>,
    /// Users that may do everything, with or without `User:` before their names.
    pub super_users: Vec<String>,
}

/// PEM files for TLS. They are read at the start, and again when they have changed.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those of its issuers behind it.
    pub certificate: PathBuf,
    /// The key that belongs to it.
    pub key: PathBuf,
    /// Certificates of the authorities that vouch for clients: with it every client must show a certificate of theirs.
    pub client_ca: Option<PathBuf>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        BrokerOptions {
            auto_create_topics: true,
            default_partitions: 1,
            group_initial_delay: Duration::from_millis(100),
            group_session: (Duration::from_secs(6), Duration::from_secs(1800)),
            security: Security::default(),
            consumer_session: Duration::from_secs(45),
            consumer_heartbeat: Duration::from_secs(5),
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            limits: BrokerLimits::default(),
        }
    }
}

/// Limits of a broker (I-9).
#[derive(Clone, Debug)]
pub struct BrokerLimits {
    /// The largest frame.
    pub frame_bytes: usize,
    /// Bytes of all requests that are being read or carried out; readers wait for room. A request takes them as it comes, from 64 KiB on;
    /// smaller ones when they are whole, and a quarter is left to them.
    pub request_bytes: usize,
    /// Bytes of batches that are on their way to clients; fetches wait for room as long as their clients let them, and answer less then.
    pub answer_bytes: usize,
    /// Requests of one connection that are carried out but not yet answered.
    pub in_flight: usize,
    /// Connections.
    pub connections: usize,
    /// Connections of one address.
    pub connections_per_address: usize,
    /// New connections per second in the long run; more wait in the system's queue.
    pub connections_per_second: u32,
    /// Connections that are agreeing on TLS, or haven't proved yet who they are; more are closed.
    pub handshakes: usize,
    /// How long agreeing on TLS may take.
    pub handshake: Duration,
    /// How long proving who one is may take.
    pub authentication: Duration,
    /// The largest frame of a connection that hasn't proved yet who it is.
    pub unknown_frame_bytes: usize,
    /// How long a new connection may say nothing.
    pub first_byte: Duration,
    /// A frame that has begun, or an answer, moves 16 KiB per second in each such time, or all that is left of it.
    pub frame: Duration,
    /// While others wait for memory, a frame or an answer that holds some moves a MiB in each such time, or all that is left of it.
    pub in_the_way: Duration,
    /// How long a connection may be silent between frames.
    pub idle: Duration,
    /// The most bytes that a fetch answers, whatever its client asks for.
    pub fetch_bytes: usize,
    /// The longest that a client's transaction may stay open.
    pub transaction_timeout: Duration,
    /// Members of one group.
    pub group_members: usize,
    /// Groups with members.
    pub groups: usize,
    /// Fetch sessions; a client that finds no room goes on without one.
    pub fetch_sessions: usize,
    /// Partitions of all fetch sessions together.
    pub fetch_session_partitions: usize,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        BrokerLimits {
            frame_bytes: 100 << 20,
            request_bytes: 256 << 20,
            answer_bytes: 256 << 20,
            in_flight: 64,
            connections: 1000,
            connections_per_address: 256,
            connections_per_second: 50,
            handshakes: 128,
            handshake: Duration::from_secs(10),
            authentication: Duration::from_secs(10),
            unknown_frame_bytes: 64 << 10,
            first_byte: Duration::from_secs(10),
            frame: Duration::from_secs(30),
            in_the_way: Duration::from_secs(5),
            idle: Duration::from_secs(600),
            fetch_bytes: 55 << 20,
            transaction_timeout: Duration::from_secs(24 * 3600),
            group_members: 1000,
            groups: 10_000,
            fetch_sessions: 1000,
            fetch_session_partitions: 100_000,
        }
    }
}
