//! Accepts connections, within the limits, until told to stop.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_partition_log::Log;
use cutwater_platform::{Platform, Step, Task, TaskHandle};
use thiserror::Error;

use super::certificates::Certificates;
use super::connection::{Reader, Writer};
use super::listen::{Listen, ListenError};
use super::peer::Peer;
use super::stream::{Stream, halves};
use super::tls::TlsError;
use crate::access::session::Session;
use crate::access::{Access, AccessError};
use crate::group::coordinator::Ticker;
use crate::metrics::counters::count;
use crate::options::{BrokerOptions, Security};
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
    /// The metrics could be read from elsewhere.
    #[error(
        "{address} can be reached from other machines, and metrics are served without authentication: listen on a loopback \
         address, or say that they may be seen"
    )]
    PublicMetrics {
        /// The address asked for.
        address: SocketAddr,
    },
    /// What was asked for would be open to strangers, or to nobody.
    #[error(transparent)]
    Unprotected(#[from] ListenError),
    /// There is nowhere to listen.
    #[error("there is no address to listen on")]
    Nowhere,
    /// Users or rights can't be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Certificate or key are of no use.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address can't be had.
    #[error("can't listen on {address}: {source}{}", advice(source))]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// What to do about an address that can't be had.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => {
            "; another program listens there, perhaps another broker: stop it (`ss -ltnp` shows which), or choose another port (port 0 takes a \
             free one)"
        }
        ErrorKind::AddrNotAvailable => {
            "; no interface of this machine has that address: choose one that has (`ip address` lists them), or 127.0.0.1 for clients on this machine"
        }
        ErrorKind::PermissionDenied => "; ports below 1024 need a privilege: choose a higher one",
        _ => "",
    }
}

/// A log served to Kafka clients. Dropped, it stops.
#[derive(Debug)]
pub struct Broker {
    addresses: Vec<SocketAddr>,
    service: Arc<Service>,
    entrance: Arc<Entrance>,
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
        Broker::serve(platform, log, &[Listen::plain(address)], options)
    }

    /// Whether a broker may listen so: what [`Broker::serve`] asks first, for those who want to know before they open a log.
    ///
    /// ```
    /// use cutwater_broker::{Broker, Listen, Security};
    /// let public: Listen = "192.0.2.1:9092".parse()?;
    /// let refused = Broker::check(&[public], &Security::default()).expect_err("without TLS everybody could listen in");
    /// assert!(refused.to_string().contains("loopback"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// One of the addresses would be open to strangers, nobody could connect to it, or there is none.
    pub fn check(listen: &[Listen], security: &Security) -> Result<(), BrokerError> {
        if listen.is_empty() {
            return Err(BrokerError::Nowhere);
        }
        Ok(listen.iter().try_for_each(|listen| listen.check(security))?)
    }

    /// Serves `log` on several addresses, each with protection of its own.
    ///
    /// # Errors
    /// One of them would be open to strangers or is taken, or what protects it can't be read. Then none is listened on.
    pub fn serve(
        platform: &Platform,
        log: Log,
        listen: &[Listen],
        options: BrokerOptions,
    ) -> Result<Broker, BrokerError> {
        Broker::check(listen, &options.security)?;
        let tls = match &options.security.tls {
            Some(from) => Some(Arc::new(Certificates::load(platform, from)?)),
            None => None,
        };
        let access = Access::open(platform, &options.security)?;
        if listen.iter().any(|listen| listen.sasl) && access.book().users.is_empty() {
            tracing::warn!("there are no users yet: nobody can connect where it is asked who connects");
        }
        let mut doors = Vec::with_capacity(listen.len());
        for listen in listen {
            let failed = |source| BrokerError::Listen { address: listen.address, source };
            let listener = TcpListener::bind(listen.address).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            let (host, port) = listen.told(bound);
            let tls = tls.clone().filter(|_| listen.tls);
            let name = Listen { address: bound, advertised: None, ..listen.clone() }.to_string().into();
            doors.push((bound, Door { listener, tls, asks: listen.sasl, name, host, port }));
        }
        let service = Arc::new(Service::new(platform, log, options, access, tls));
        let rate = Rate { tokens: BURST, refilled: service.now() };
        let entrance = Arc::new(Entrance {
            service: service.clone(),
            next: AtomicU64::new(1),
            rate: Mutex::new(rate),
            handshakes: Arc::default(),
            open: Mutex::default(),
            by_address: Mutex::default(),
        });
        let mut tasks = vec![platform.spawn.spawn("broker-tick", Box::new(Ticker(service.clone())))];
        let mut addresses = Vec::with_capacity(doors.len());
        for (bound, door) in doors {
            addresses.push(bound);
            let accept = Accept { entrance: entrance.clone(), door };
            tasks.push(platform.spawn.spawn("broker-accept", Box::new(accept)));
        }
        Ok(Broker { addresses, service, entrance, tasks })
    }

    /// Where it listens, the first of several.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Everywhere it listens, in the order in which it was asked to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// How many have tried to connect as somebody that they couldn't prove to be.
    pub fn failed_authentications(&self) -> u64 {
        self.service.access.failures.by_scram()
    }

    /// Stops: accepts nothing more, lets requests that are under way be answered, closes all connections. The log stays
    /// open; it belongs to whoever started the broker.
    pub fn stop(&self) {
        self.service.stop();
        // The listeners wait in the system; a connection wakes each.
        for address in &self.addresses {
            let _ = TcpStream::connect_timeout(address, Duration::from_secs(1));
        }
        for task in &self.tasks {
            if let Err(panic) = task.join(&*self.service.platform.spawn) {
                tracing::error!(panic, "a task of the broker panicked");
            }
        }
        self.entrance.close(Shutdown::Read);
        let end = self.service.now() + STOP_PATIENCE;
        while !self.entrance.is_empty() && self.service.now() < end {
            self.service.platform.clock.sleep(REST);
        }
        self.entrance.close(Shutdown::Both);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if !self.service.is_stopping() {
            self.stop();
        }
    }
}

/// What all listeners share: who is in, and who may still come in.
#[derive(Debug)]
struct Entrance {
    service: Arc<Service>,
    /// The number of the next connection.
    next: AtomicU64,
    rate: Mutex<Rate>,
    /// Connections of which it isn't clear yet who they are.
    handshakes: Arc<AtomicUsize>,
    open: Mutex<HashMap<u64, Arc<TcpStream>>>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// How many connections may come at once.
#[derive(Debug)]
struct Rate {
    tokens: f64,
    refilled: Duration,
}

/// One of a limited number of connections that may be unknown at a time.
#[derive(Debug)]
pub(super) struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn take(from: &Arc<AtomicUsize>, most: usize) -> Option<Permit> {
        let taken = from.fetch_update(SeqCst, SeqCst, |taken| (taken < most).then_some(taken + 1));
        taken.is_ok().then(|| Permit(from.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Entrance {
    fn is_empty(&self) -> bool {
        self.open.lock().expect("no panic under this lock").is_empty()
    }

    /// Whether one more may come in now.
    fn has_room(&self) -> bool {
        let limits = &self.service.options.limits;
        let now = self.service.now();
        let mut rate = self.rate.lock().expect("no panic under this lock");
        let elapsed = now.saturating_sub(rate.refilled).as_secs_f64();
        rate.tokens = (rate.tokens + elapsed * f64::from(limits.connections_per_second)).min(BURST);
        rate.refilled = now;
        rate.tokens >= 1.0 && self.open.lock().expect("no panic under this lock").len() < limits.connections
    }

    fn of_address(&self, address: IpAddr) -> usize {
        self.by_address.lock().expect("no panic under this lock").get(&address).copied().unwrap_or(0)
    }

    fn add(&self, number: u64, address: IpAddr, stream: Arc<TcpStream>) {
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

/// One listener.
struct Door {
    listener: TcpListener,
    tls: Option<Arc<Certificates>>,
    /// Whether it is asked who connects.
    asks: bool,
    /// As it is written.
    name: Arc<str>,
    /// What clients that come in here are told.
    host: String,
    port: u16,
}

struct Accept {
    entrance: Arc<Entrance>,
    door: Door,
}

impl Task for Accept {
    fn step(&mut self) -> Step {
        if self.entrance.service.is_stopping() {
            return Step::Done;
        }
        if !self.entrance.has_room() {
            return Step::Wait(REST);
        }
        match self.door.listener.accept() {
            Ok((stream, from)) => {
                self.entrance.rate.lock().expect("no panic under this lock").tokens -= 1.0;
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
        let (entrance, door) = (&self.entrance, &self.door);
        let service = &entrance.service;
        if service.is_stopping() {
            return;
        }
        let limits = &service.options.limits;
        if entrance.of_address(from.ip()) >= limits.connections_per_address {
            count(&service.counters.refused);
            tracing::warn!(%from, "a connection was refused: its address has too many");
            return;
        }
        let permit = match door.tls.is_some() || door.asks {
            false => None,
            true => match Permit::take(&entrance.handshakes, limits.handshakes) {
                None => {
                    count(&service.counters.refused);
                    tracing::warn!(%from, "a connection was refused: too many are just beginning");
                    return;
                }
                taken => taken,
            },
        };
        let (Ok(answering), Ok(closing)) = (stream.try_clone(), stream.try_clone()) else {
            count(&service.counters.refused);
            tracing::warn!(%from, "a connection was refused: no file descriptor is left");
            return;
        };
        let tls = door.tls.as_ref().map(|certificates| certificates.in_force());
        let (stream, answering) = match halves(Stream { tcp: stream, answering }, tls.as_ref()) {
            Ok(halves) => halves,
            Err(error) => {
                count(&service.counters.refused);
                tracing::error!(%from, %error, "a connection was refused: TLS can't be begun");
                return;
            }
        };
        let number = entrance.next.fetch_add(1, SeqCst);
        let closing = Arc::new(closing);
        let peer = Peer::new(closing.clone());
        entrance.add(number, from.ip(), closing);
        let leaving = entrance.clone();
        count(&service.counters.accepted);
        let over = move || {
            leaving.remove(number, from.ip());
            count(&leaving.service.counters.over);
        };
        let (writer, answers) = Writer::new(service.clone(), answering, limits.in_flight, Box::new(over));
        let reader = Reader {
            service: service.clone(),
            caller: Caller {
                connection: number,
                address: from.ip().to_string(),
                listener: door.name.clone(),
                peer,
                host: door.host.clone(),
                port: door.port,
                user: None,
                session: Arc::new(Mutex::new(Session::new(door.asks))),
            },
            stream,
            permit,
            pool: service.requests.clone(),
            answers,
        };
        let spawn = &service.platform.spawn;
        spawn.spawn("broker-answer", Box::new(writer));
        spawn.spawn("broker-read", Box::new(reader));
    }
}
