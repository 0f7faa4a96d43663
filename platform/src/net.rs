//! Connections to other processes: what a client asks of a network.
//!
//! Blocking, with a limit on how long each call may take. A connection that was late or has failed is used no more: how much of what
//! was sent has arrived is unknown then. Servers bring their own sockets; this is for whoever connects.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use thiserror::Error;

use crate::{Clock, SystemClock};

/// A network failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetError {
    /// Nobody could be reached there.
    #[error("{address} can't be reached: {reason}")]
    Unreachable {
        /// The address asked for.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The connection is gone.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// What the system says.
        reason: String,
    },
    /// The other side took too long.
    #[error("there was no answer within {waited:?}")]
    Late {
        /// How long it was waited.
        waited: Duration,
    },
    /// Whoever answers hasn't proved that it is who was asked for.
    #[error("{address} isn't trusted: {reason}")]
    Untrusted {
        /// The address asked for.
        address: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The other side doesn't trust this one.
    #[error("the other side refuses the connection: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
    /// What is needed to connect as it was asked for can't be had here.
    #[error("{reason}")]
    Unprepared {
        /// What, and why.
        reason: String,
    },
}

impl NetError {
    /// Whether the same may go well later, with nobody changing anything on this side.
    pub fn may_pass(&self) -> bool {
        matches!(self, NetError::Unreachable { .. } | NetError::Lost { .. } | NetError::Late { .. })
    }
}

/// Connects to addresses.
pub trait Net: Send + Sync + fmt::Debug {
    /// Connects to `address`, a host and a port with a colon between them.
    ///
    /// # Errors
    /// [`NetError::Unreachable`].
    fn connect(&self, address: &str, patience: Duration) -> Result<Box<dyn Connection>, NetError>;
}

/// A stream of bytes in both directions. Dropped, it is closed.
pub trait Connection: Send + fmt::Debug {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// It was lost or is late: some of the bytes may have arrived.
    fn send(&mut self, bytes: &[u8], patience: Duration) -> Result<(), NetError>;

    /// Receives as many bytes as `buffer` has.
    ///
    /// # Errors
    /// It was lost or is late.
    fn receive(&mut self, buffer: &mut [u8], patience: Duration) -> Result<(), NetError>;

    /// Receives what is there: at least one byte, at most as many as `buffer` has. For whoever can't know how many will come.
    ///
    /// # Errors
    /// It was lost or is late.
    fn receive_some(&mut self, buffer: &mut [u8], patience: Duration) -> Result<usize, NetError>;
}

/// This machine's network, over TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsNet;

/// A world without a network: nobody can be reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNet;

#[derive(Debug)]
struct Tcp {
    stream: TcpStream,
    clock: SystemClock,
}

fn lost(error: &dyn fmt::Display) -> NetError {
    NetError::Lost { reason: error.to_string() }
}

impl Net for OsNet {
    fn connect(&self, address: &str, patience: Duration) -> Result<Box<dyn Connection>, NetError> {
        let unreachable = |reason: &dyn fmt::Display| NetError::Unreachable {
            address: address.to_string(),
            reason: reason.to_string(),
        };
        let mut last = unreachable(&"the name has no address");
        for candidate in address.to_socket_addrs().map_err(|e| unreachable(&e))? {
            match TcpStream::connect_timeout(&candidate, patience.max(Duration::from_millis(1))) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|e| unreachable(&e))?;
                    return Ok(Box::new(Tcp { stream, clock: SystemClock::new() }));
                }
                Err(error) => last = unreachable(&error),
            }
        }
        Err(last)
    }
}

impl Connection for Tcp {
    fn send(&mut self, mut bytes: &[u8], patience: Duration) -> Result<(), NetError> {
        let end = self.clock.monotonic() + patience;
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left(end, patience)?)).map_err(|e| lost(&e))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(lost(&"it takes no more")),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => keep_waiting(&error)?,
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], patience: Duration) -> Result<(), NetError> {
        let end = self.clock.monotonic() + patience;
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.some(&mut buffer[filled..], end, patience)?;
        }
        Ok(())
    }

    fn receive_some(&mut self, buffer: &mut [u8], patience: Duration) -> Result<usize, NetError> {
        let end = self.clock.monotonic() + patience;
        self.some(buffer, end, patience)
    }
}

impl Tcp {
    fn some(&mut self, buffer: &mut [u8], end: Duration, patience: Duration) -> Result<usize, NetError> {
        loop {
            self.stream.set_read_timeout(Some(self.left(end, patience)?)).map_err(|e| lost(&e))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(lost(&"the other side closed it")),
                Ok(came) => return Ok(came),
                Err(error) => keep_waiting(&error)?,
            }
        }
    }

    fn left(&self, end: Duration, patience: Duration) -> Result<Duration, NetError> {
        let left = end.saturating_sub(self.clock.monotonic());
        if left.is_zero() { Err(NetError::Late { waited: patience }) } else { Ok(left) }
    }
}

/// A call that was interrupted, or whose time is up, is judged by the deadline.
fn keep_waiting(error: &std::io::Error) -> Result<(), NetError> {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) { Ok(()) } else { Err(lost(error)) }
}

impl Net for NoNet {
    fn connect(&self, address: &str, _: Duration) -> Result<Box<dyn Connection>, NetError> {
        let reason = "this world has no network".to_string();
        Err(NetError::Unreachable { address: address.to_string(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_go_both_ways_and_a_silent_or_closed_side_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut ours = OsNet.connect(&address, SECOND).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.send(b"hello", SECOND).unwrap();
        let mut five = [0; 5];
        theirs.read_exact(&mut five).unwrap();
        theirs.write_all(&five).unwrap();
        let mut back = [0; 5];
        ours.receive(&mut back, SECOND).unwrap();
        assert_eq!(&back, b"hello");
        theirs.write_all(b"some").unwrap();
        let mut many = [0; 100];
        let came = ours.receive_some(&mut many, SECOND).unwrap();
        assert!(b"some".starts_with(&many[..came]) && came > 0);
        ours.receive(&mut many[came..4], SECOND).unwrap();
        assert_eq!(&many[..4], b"some");
        let short = Duration::from_millis(20);
        assert_eq!(ours.receive(&mut back, short), Err(NetError::Late { waited: short }));
        drop(theirs);
        assert!(matches!(ours.receive(&mut back, SECOND), Err(NetError::Lost { .. })));
    }

    #[test]
    fn who_is_not_there_is_named() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        for net in [&OsNet as &dyn Net, &NoNet] {
            let error = net.connect(&free, SECOND).expect_err("nobody listens");
            assert!(error.to_string().contains(&free), "{error}");
        }
        assert!(OsNet.connect("no port", SECOND).is_err());
    }
}
