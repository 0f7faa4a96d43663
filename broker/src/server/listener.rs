//! Accepts connections, within the limits, until told to stop.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_partition_log::Log;
use cutwater_platform::{Platform, Step, Task, TaskHandle};
use thiserror::Error;

use super::connection::{Reader, Writer};
use crate::group::coordinator::Ticker;
use crate::metrics::counters::count;
use crate::options::BrokerOptions;
use crate::service::{Caller, Service};

/// How many connections may come at once before their rate counts.
const BURST: f64 = 256.0;
/// How long the listener rests when it can't accept.
const REST: Duration = Duration::from_millis(20);
/// How long a stopping broker waits for requests that are under way.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A broker wasn't started.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// The address can be reached from elsewhere.
    #[error(
        "{address} can be reached from other machines, and there is neither TLS nor authentication: listen on a loopback \
         address such as 127.0.0.1:9092"
    )]
    NotLoopback {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The metrics could be read from elsewhere.
    #[error(
        "{address} can be reached from other machines, and metrics are served without authentication: listen on a loopback \
         address, or say that they may be seen"
    )]
    PublicMetrics {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address can't be had.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A log served to Kafka clients. Dropped, it stops.
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    service: Arc<Service>,
    connections: Arc<Connections>,
    tasks: Vec<TaskHandle>,
}

impl Broker {
    /// Serves `log` on a loopback address; port 0 takes any free one.
    ///
    /// # Errors
    /// The address isn't a loopback address, or is taken.
    pub fn start(
        platform: &Platform,
        log: Log,
        address: SocketAddr,
        options: BrokerOptions,
    ) -> Result<Broker, BrokerError> {
        if !address.ip().is_loopback() {
            return Err(BrokerError::NotLoopback { address });
        }
        let listen = |source| BrokerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        let host = bound.ip().to_string();
        let service = Arc::new(Service::new(platform, log, options, host, bound.port()));
        let connections = Arc::new(Connections::default());
        let accept = Accept {
            service: service.clone(),
            listener,
            connections: connections.clone(),
            next: 1,
            tokens: BURST,
            refilled: service.now(),
        };
        let ticker = Ticker(service.clone());
        let tasks = vec![
            platform.spawn.spawn("broker-accept", Box::new(accept)),
            platform.spawn.spawn("broker-tick", Box::new(ticker)),
        ];
        Ok(Broker { address: bound, service, connections, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Stops: accepts nothing more, lets requests that are under way be answered, closes all connections. The log stays
    /// open; it belongs to whoever started the broker.
    pub fn stop(&self) {
        self.service.stop();
        // The listener waits in the system; a connection wakes it.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        for task in &self.tasks {
            if let Err(panic) = task.join(&*self.service.platform.spawn) {
                tracing::error!(panic, "a task of the broker panicked");
            }
        }
        self.connections.close(Shutdown::Read);
        let end = self.service.now() + STOP_PATIENCE;
        while !self.connections.is_empty() && self.service.now() < end {
            self.service.platform.clock.sleep(REST);
        }
        self.connections.close(Shutdown::Both);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if !self.service.is_stopping() {
            self.stop();
        }
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct Connections {
    open: Mutex<HashMap<u64, TcpStream>>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Connections {
    fn is_empty(&self) -> bool {
        self.open.lock().expect("no panic under this lock").is_empty()
    }

    fn count(&self) -> usize {
        self.open.lock().expect("no panic under this lock").len()
    }

    fn of_address(&self, address: IpAddr) -> usize {
        self.by_address.lock().expect("no panic under this lock").get(&address).copied().unwrap_or(0)
    }

    fn add(&self, number: u64, address: IpAddr, stream: TcpStream) {
        self.open.lock().expect("no panic under this lock").insert(number, stream);
        *self.by_address.lock().expect("no panic under this lock").entry(address).or_default() += 1;
    }

    fn remove(&self, number: u64, address: IpAddr) {
        self.open.lock().expect("no panic under this lock").remove(&number);
        let mut by_address = self.by_address.lock().expect("no panic under this lock");
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }

    fn close(&self, how: Shutdown) {
        for stream in self.open.lock().expect("no panic under this lock").values() {
            let _ = stream.shutdown(how);
        }
    }
}

struct Accept {
    service: Arc<Service>,
    listener: TcpListener,
    connections: Arc<Connections>,
    next: u64,
    /// Connections that may come at once.
    tokens: f64,
    refilled: Duration,
}

impl Task for Accept {
    fn step(&mut self) -> Step {
        if self.service.is_stopping() {
            return Step::Done;
        }
        let now = self.service.now();
        let rate = f64::from(self.service.options.limits.connections_per_second);
        self.tokens = (self.tokens + (now - self.refilled).as_secs_f64() * rate).min(BURST);
        self.refilled = now;
        if self.tokens < 1.0 || self.connections.count() >= self.service.options.limits.connections {
            return Step::Wait(REST);
        }
        match self.listener.accept() {
            Ok((stream, from)) => {
                self.tokens -= 1.0;
                self.admit(stream, from);
                Step::Again
            }
            // Out of descriptors, or a client that has gone again: the listener itself never ends by an error.
            Err(error) => {
                tracing::warn!(%error, "a connection couldn't be accepted");
                Step::Wait(REST)
            }
        }
    }
}

impl Accept {
    fn admit(&mut self, stream: TcpStream, from: SocketAddr) {
        if self.service.is_stopping() {
            return;
        }
        let limits = &self.service.options.limits;
        if self.connections.of_address(from.ip()) >= limits.connections_per_address {
            count(&self.service.counters.refused);
            tracing::warn!(%from, "a connection was refused: its address has too many");
            return;
        }
        let (Ok(answering), Ok(closing)) = (stream.try_clone(), stream.try_clone()) else {
            count(&self.service.counters.refused);
            tracing::warn!(%from, "a connection was refused: no file descriptor is left");
            return;
        };
        let number = self.next;
        self.next += 1;
        self.connections.add(number, from.ip(), closing);
        let connections = self.connections.clone();
        count(&self.service.counters.accepted);
        let service = self.service.clone();
        let over = move || {
            connections.remove(number, from.ip());
            count(&service.counters.over);
        };
        let (writer, answers) = Writer::new(self.service.clone(), answering, limits.in_flight, Box::new(over));
        let reader = Reader {
            service: self.service.clone(),
            caller: Caller { connection: number, address: from.ip().to_string() },
            stream,
            pool: self.service.requests.clone(),
            answers,
        };
        let spawn = &self.service.platform.spawn;
        spawn.spawn("broker-answer", Box::new(writer));
        spawn.spawn("broker-read", Box::new(reader));
    }
}
