//! A proxy between clients and broker that cuts connections, holds bytes back, and closes halves.
//!
//! Bytes are never invented, left out or reordered within a connection: TCP doesn't do that either. What a network does do is
//! here: a connection is reset while requests are under way; bytes arrive late; and *late after a cut*: the client's side is
//! reset at once, what it had sent arrives at the broker afterwards, when the client has long asked again over a new
//! connection. Requests that come twice, and in the wrong order, come about that way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::Failed;
use crate::server::rest;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    /// Every piece of bytes waits so long.
    delay_ms: AtomicU64,
    stopped: AtomicBool,
    pairs: Mutex<Vec<Pair>>,
    cuts: AtomicU64,
}

/// Both sides of a connection.
#[derive(Debug)]
struct Pair {
    client: TcpStream,
    broker: TcpStream,
}

impl Proxy {
    pub(crate) fn start(target: SocketAddr) -> Result<Proxy, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| Failed::of("listen", e))?;
        let address = listener.local_addr().map_err(|e| Failed::of("listen", e))?;
        let shared = Arc::new(Shared {
            target,
            delay_ms: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            pairs: Mutex::default(),
            cuts: AtomicU64::new(0),
        });
        let accepts = shared.clone();
        crate::go("proxy", move || {
            for client in listener.incoming() {
                if accepts.stopped.load(Ordering::SeqCst) {
                    break;
                }
                if let Ok(client) = client {
                    accepts.admit(client);
                }
            }
        });
        Ok(Proxy { shared, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were cut so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Holds back every piece of bytes so long, from now on.
    pub(crate) fn delay(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.shared.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// Ends all connections on both sides.
    pub(crate) fn cut(&self) {
        for pair in self.shared.take() {
            let _ = pair.client.shutdown(Shutdown::Both);
            let _ = pair.broker.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections on the client's side alone: what it has sent still arrives, as late as bytes are held back.
    pub(crate) fn cut_clients(&self) {
        for pair in self.shared.take() {
            let _ = pair.client.shutdown(Shutdown::Write);
        }
    }

    /// Closes one direction: the broker hears nothing more, its answers still come.
    pub(crate) fn half_close(&self) {
        for pair in self.shared.take() {
            let _ = pair.broker.shutdown(Shutdown::Write);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.cut();
    }
}

impl Shared {
    fn take(&self) -> Vec<Pair> {
        let pairs = std::mem::take(&mut *self.pairs.lock().unwrap_or_else(PoisonError::into_inner));
        self.cuts.fetch_add(pairs.len() as u64, Ordering::SeqCst);
        pairs
    }

    fn admit(self: &Arc<Self>, client: TcpStream) {
        // The broker may be down: so is the connection, then.
        let Ok(broker) = TcpStream::connect_timeout(&self.target, Duration::from_secs(5)) else { return };
        let _ = (client.set_nodelay(true), broker.set_nodelay(true));
        let copies = || Some((client.try_clone().ok()?, broker.try_clone().ok()?));
        let (Some((a, b)), Some((c, d))) = (copies(), copies()) else { return };
        {
            let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that have ended by themselves.
            pairs.retain(|pair| pair.client.peer_addr().is_ok());
            pairs.push(Pair { client: a, broker: b });
        }
        let (there, back) = (self.clone(), self.clone());
        crate::go("proxy there", move || there.carry(c, d));
        crate::go("proxy back", move || back.carry(broker, client));
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = vec![0; 16 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut piece) {
            let delay = self.delay_ms.load(Ordering::SeqCst);
            if delay > 0 {
                rest(Duration::from_millis(delay));
            }
            if to.write_all(&piece[..bytes]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    }
}
