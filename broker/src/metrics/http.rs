//! The endpoint: `GET /metrics` and `GET /healthz` over HTTP/1.1, one connection after the other.
//!
//! It reads the head of one request, of at most a few kilobytes and for at most two seconds, answers and closes. Whoever
//! is slower or says more is gone; meanwhile others wait in the system's queue. So it can't take more than one page of
//! memory, and nothing of it reaches the threads that serve Kafka's clients (decision 0058).

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutwater_platform::{Step, Task, TaskHandle};

use super::lag::Lags;
use super::report;
use crate::server::{Broker, BrokerError};
use crate::service::Service;

/// The largest head of a request.
const HEAD_BYTES: usize = 8 << 10;
/// How long a request may take to come.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// How long the client may take to read the page.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// A page is written in pieces of this size, between which it is looked at the clock.
const PIECE_BYTES: usize = 64 << 10;
/// How long it rests when it can't accept.
const REST: Duration = Duration::from_millis(100);

/// How metrics are served.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Whether the address may be reached from other machines. There is no authentication: names of topics and groups are seen
    /// by whoever connects.
    pub allow_public: bool,
    /// Series whose labels are names of topics or groups, per page; further ones are left out and counted.
    pub series_max: usize,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        MetricsOptions { allow_public: false, series_max: 20_000 }
    }
}

impl MetricsOptions {
    /// Whether metrics may be served at this address: what [`Broker::serve_metrics`] asks first.
    ///
    /// # Errors
    /// Other machines can reach it, and that isn't allowed.
    pub fn check(&self, address: SocketAddr) -> Result<(), BrokerError> {
        match self.allow_public || address.ip().is_loopback() {
            true => Ok(()),
            false => Err(BrokerError::PublicMetrics { address }),
        }
    }
}

/// A broker's metrics, served for Prometheus. Dropped, it stops.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    service: Arc<Service>,
    stop: Arc<AtomicBool>,
    task: TaskHandle,
}

impl Broker {
    /// Serves this broker's metrics on an address of their own; port 0 takes any free one.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use cutwater_broker::{Broker, BrokerOptions, MetricsOptions};
    /// use cutwater_partition_log::{Log, LogOptions};
    /// use cutwater_platform::Platform;
    /// # let dir = tempfile::tempdir()?;
    /// let platform = Platform::real();
    /// let log = Log::open(&platform, dir.path(), LogOptions::default())?;
    /// let broker = Broker::start(&platform, log, "127.0.0.1:0".parse()?, BrokerOptions::default())?;
    /// let metrics = broker.serve_metrics("127.0.0.1:0".parse()?, MetricsOptions::default())?;
    ///
    /// let mut connection = std::net::TcpStream::connect(metrics.address())?;
    /// connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    /// let mut page = String::new();
    /// connection.read_to_string(&mut page)?;
    /// assert!(page.contains("\ncutwater_log_up 1\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The address is public and that isn't allowed, or it is taken.
    pub fn serve_metrics(&self, address: SocketAddr, options: MetricsOptions) -> Result<MetricsServer, BrokerError> {
        options.check(address)?;
        let listen = |source| BrokerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let service = self.service().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let endpoint = Endpoint {
            service: service.clone(),
            listener,
            lags: Lags::default(),
            room: options.series_max,
            stop: stop.clone(),
        };
        let task = service.platform.spawn.spawn("broker-metrics", Box::new(endpoint));
        Ok(MetricsServer { address, service, stop, task })
    }
}

impl MetricsServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // It waits in the system; a connection wakes it.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Err(panic) = self.task.join(&*self.service.platform.spawn) {
            tracing::error!(panic, "the endpoint of the metrics panicked");
        }
    }
}

struct Endpoint {
    service: Arc<Service>,
    listener: TcpListener,
    lags: Lags,
    room: usize,
    stop: Arc<AtomicBool>,
}

impl Task for Endpoint {
    fn step(&mut self) -> Step {
        let accepted = self.listener.accept();
        if self.stop.load(Ordering::SeqCst) {
            return Step::Done;
        }
        match accepted {
            Ok((mut stream, _)) => {
                self.serve(&mut stream);
                let _ = stream.shutdown(Shutdown::Both);
                Step::Again
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics couldn't be accepted");
                Step::Wait(REST)
            }
        }
    }
}

impl Endpoint {
    fn serve(&mut self, stream: &mut TcpStream) {
        let Some(head) = self.head(stream) else { return };
        let (status, kind, body) = match judge(&head) {
            Asked::Metrics => {
                let page = report::page(&self.service, &mut self.lags, self.room);
                ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page)
            }
            Asked::Health => match self.service.log.status().down {
                None => ("200 OK", "text/plain; charset=utf-8", "ok\n".to_string()),
                Some(down) => ("503 Service Unavailable", "text/plain; charset=utf-8", format!("{down}\n")),
            },
            Asked::Other(status) => (status, "text/plain; charset=utf-8", format!("{status}\n")),
        };
        let head_only = head.starts_with(b"HEAD ");
        let mut answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        if !head_only {
            answer.push_str(&body);
        }
        let _ = stream.set_write_timeout(Some(READ_PATIENCE));
        let end = self.service.now() + WRITE_PATIENCE;
        for piece in answer.as_bytes().chunks(PIECE_BYTES) {
            if self.service.now() > end || stream.write_all(piece).is_err() {
                return;
            }
        }
    }

    /// The head of a request, up to its empty line; none if it doesn't come, or doesn't end.
    fn head(&self, stream: &mut TcpStream) -> Option<Vec<u8>> {
        let end = self.service.now() + READ_PATIENCE;
        let mut head = Vec::new();
        let mut piece = [0; 1024];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let left = end.checked_sub(self.service.now()).filter(|left| !left.is_zero())?;
            stream.set_read_timeout(Some(left)).ok()?;
            let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
            head.extend_from_slice(&piece[..read]);
            if head.len() > HEAD_BYTES {
                return None;
            }
        }
        Some(head)
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Health,
    /// Nothing that is here: the status that says so.
    Other(&'static str),
}

/// Reads the first line of a request. Everything after its path's `?` is ignored.
fn judge(head: &[u8]) -> Asked {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next()) else {
        return Asked::Other("400 Bad Request");
    };
    if !version.starts_with(b"HTTP/1.") {
        return Asked::Other("505 HTTP Version Not Supported");
    }
    if method != b"GET" && method != b"HEAD" {
        return Asked::Other("405 Method Not Allowed");
    }
    match target.split(|byte| *byte == b'?').next() {
        Some(b"/metrics") => Asked::Metrics,
        Some(b"/healthz") => Asked::Health,
        _ => Asked::Other("404 Not Found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_pages_can_be_had() {
        let asked = |head: &str| judge(head.as_bytes());
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Asked::Metrics);
        assert_eq!(asked("HEAD /metrics?name=a HTTP/1.0\r\n\r\n"), Asked::Metrics);
        assert_eq!(asked("GET /healthz HTTP/1.1\r\n\r\n"), Asked::Health);
        assert_eq!(asked("GET /metrics/ HTTP/1.1\r\n\r\n"), Asked::Other("404 Not Found"));
        assert_eq!(asked("POST /metrics HTTP/1.1\r\n\r\n"), Asked::Other("405 Method Not Allowed"));
        assert_eq!(asked("PRI * HTTP/2.0\r\n\r\n"), Asked::Other("505 HTTP Version Not Supported"));
        assert_eq!(asked("GET /metrics\r\n\r\n"), Asked::Other("400 Bad Request"));
        assert_eq!(asked("\r\n\r\n"), Asked::Other("400 Bad Request"));
    }
}
