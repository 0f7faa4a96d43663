//! One connection's bytes, with or without TLS, for two threads: one reads, one writes.
//!
//! A TLS connection is one machine for both directions, so both halves share it behind a lock, and neither holds the lock while
//! it waits for the network:
//! * the reading half waits on the socket alone, and takes the lock to have the machine open what came;
//! * the writing half takes the lock to have the machine seal at most [`SEAL_BYTES`], and writes those to the socket without it.
//!
//! After the handshake only the writing half writes to the socket. So what is sealed goes out in the order in which it was sealed.
//! What the reading half's machine has to say (an alert, an answer to a change of keys) goes out with the next answer: TLS asks
//! for no more (RFC 8446, 4.6.3). All memory is bounded: the machine keeps one record that isn't whole yet, and is given nothing
//! while it has something to hand out.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cutwater_platform::Clock;
use rustls::{ServerConfig, ServerConnection};

/// At most so many bytes are sealed under one lock.
const SEAL_BYTES: usize = 64 << 10;
/// A reader that waits looks at the clock as often as this.
const OFTEN: Duration = Duration::from_secs(20);
/// At most so many pieces are handed to the system at once.
const SLICES_MAX: usize = 256;
/// Bytes that are read ahead.
const AHEAD_BYTES: usize = 4 << 10;
/// What is taken from a socket at once: a TLS record and a little.
const RAW_BYTES: usize = 18 << 10;

/// Before anything was said.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) tcp: TcpStream,
    /// A clone of the same, for the half that writes.
    pub(super) answering: TcpStream,
}

/// What the reading thread has.
pub(super) struct ReadHalf {
    tcp: TcpStream,
    /// How long the socket waits at most, if that was ever said.
    patience: Duration,
    /// What came with the end of something that was asked for. Unused under TLS.
    ahead: Ahead,
    sealed: Option<Sealed>,
}

/// A small buffer behind what was asked for: the next frame's size and its beginning come with the end of the one before, in one
/// system call.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

/// What came over the socket and wasn't opened yet.
struct Sealed {
    session: Arc<Mutex<ServerConnection>>,
    raw: Box<[u8]>,
    begin: usize,
    end: usize,
}

/// What the answering thread has.
pub(super) struct WriteHalf {
    tcp: TcpStream,
    session: Option<Arc<Mutex<ServerConnection>>>,
    out: Vec<u8>,
}

/// A connection that will speak TLS: both halves of it, and its machine, which has said nothing yet.
pub(super) fn halves(stream: Stream, tls: Option<&Arc<ServerConfig>>) -> Result<(ReadHalf, WriteHalf), rustls::Error> {
    let session = match tls {
        None => None,
        Some(config) => {
            let mut session = ServerConnection::new(config.clone())?;
            session.set_buffer_limit(Some(SEAL_BYTES));
            Some(Arc::new(Mutex::new(session)))
        }
    };
    let sealed =
        session.clone().map(|session| Sealed { session, raw: vec![0; RAW_BYTES].into_boxed_slice(), begin: 0, end: 0 });
    Ok((
        ReadHalf { tcp: stream.tcp, patience: Duration::ZERO, ahead: Ahead::default(), sealed },
        WriteHalf { tcp: stream.answering, session, out: Vec::new() },
    ))
}

/// Reads what has come over a socket, by `end` at the latest. The socket is told how long to wait only if what it was told last
/// (`patience`) is too long, or so short that it would wake often: frame after frame that is a system call less.
fn receive(
    mut tcp: &TcpStream,
    patience: &mut Duration,
    buffers: &mut [IoSliceMut<'_>],
    clock: &dyn Clock,
    end: Duration,
) -> io::Result<usize> {
    loop {
        let left = end.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !(left.min(OFTEN)..=left).contains(patience) {
            *patience = left.clamp(Duration::from_millis(1), OFTEN);
            tcp.set_read_timeout(Some(*patience))?;
        }
        match tcp.read_vectored(buffers) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            done => return done,
        }
    }
}

fn of_tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl ReadHalf {
    /// Agrees on keys, if there is TLS, by `end` at the latest. The writing half must not be used before.
    ///
    /// # Errors
    /// The peer has gone or is slow; `InvalidData` if it doesn't speak TLS, or not such as we accept.
    pub(super) fn handshake(&mut self, clock: &dyn Clock, end: Duration) -> io::Result<()> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        let mut session = sealed.session.lock().expect("no panic under the session's lock");
        while session.is_handshaking() {
            while session.wants_write() {
                session.write_tls(&mut self.tcp)?;
            }
            if !session.is_handshaking() {
                break;
            }
            if sealed.begin == sealed.end {
                let raw = &mut [IoSliceMut::new(&mut sealed.raw)];
                let bytes = receive(&self.tcp, &mut self.patience, raw, clock, end)?;
                if bytes == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                (sealed.begin, sealed.end) = (0, bytes);
            }
            let mut raw = &sealed.raw[sealed.begin..sealed.end];
            sealed.begin += session.read_tls(&mut raw)?;
            if let Err(error) = session.process_new_packets() {
                // Its alert, if the peer still listens.
                let _ = session.write_tls(&mut self.tcp);
                return Err(of_tls(error));
            }
        }
        while session.wants_write() {
            session.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }

    /// The certificate that the client has shown, as its bytes.
    pub(super) fn certificate(&self) -> Option<Vec<u8>> {
        let session = self.sealed.as_ref()?.session.lock().expect("no panic under the session's lock");
        session.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// Some bytes, by `end` at the latest; none when the peer has said that it has no more.
    pub(super) fn read(&mut self, buffer: &mut [u8], clock: &dyn Clock, end: Duration) -> io::Result<usize> {
        let Some(sealed) = &mut self.sealed else {
            let ahead = &mut self.ahead;
            if ahead.begin == ahead.end {
                ahead.bytes.resize(AHEAD_BYTES, 0);
                let asked = buffer.len();
                let both = &mut [IoSliceMut::new(buffer), IoSliceMut::new(&mut ahead.bytes)];
                let come = receive(&self.tcp, &mut self.patience, both, clock, end)?;
                (ahead.begin, ahead.end) = (0, come.saturating_sub(asked));
                return Ok(come.min(asked));
            }
            let taken = buffer.len().min(ahead.end - ahead.begin);
            buffer[..taken].copy_from_slice(&ahead.bytes[ahead.begin..ahead.begin + taken]);
            ahead.begin += taken;
            return Ok(taken);
        };
        loop {
            {
                let mut session = sealed.session.lock().expect("no panic under the session's lock");
                match session.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
                if sealed.begin < sealed.end {
                    let mut raw = &sealed.raw[sealed.begin..sealed.end];
                    sealed.begin += session.read_tls(&mut raw)?;
                    session.process_new_packets().map_err(of_tls)?;
                    continue;
                }
            }
            let raw = &mut [IoSliceMut::new(&mut sealed.raw)];
            let bytes = receive(&self.tcp, &mut self.patience, raw, clock, end)?;
            (sealed.begin, sealed.end) = (0, bytes);
            if sealed.end == 0 {
                // Cut off without a farewell: what came before it was whole frames or nothing.
                return Ok(0);
            }
        }
    }

    /// Fills the whole buffer, by `end` at the latest.
    ///
    /// # Errors
    /// The peer has gone, is slow, or (`InvalidData`) sends what isn't TLS.
    pub(super) fn fill(&mut self, mut buffer: &mut [u8], clock: &dyn Clock, end: Duration) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer, clock, end) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => buffer = &mut buffer[bytes..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl WriteHalf {
    /// Writes all pieces, one behind the other. Each time some bytes went out, or none in a while, it is asked whether it goes on.
    ///
    /// # Errors
    /// As [`write_all`](WriteHalf::write_all).
    pub(super) fn write_pieces(&mut self, pieces: &[Bytes], goes_on: &mut dyn FnMut(usize) -> bool) -> io::Result<()> {
        if self.session.is_some() {
            return pieces.iter().try_for_each(|piece| self.write_all(piece, goes_on));
        }
        for some in pieces.chunks(SLICES_MAX) {
            let mut slices: Vec<IoSlice<'_>> = some.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut left = slices.as_mut_slice();
            while !left.is_empty() {
                let bytes = written(self.tcp.write_vectored(left))?;
                IoSlice::advance_slices(&mut left, bytes);
                if !left.is_empty() && !goes_on(bytes) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(())
    }

    /// Writes everything. Each time some bytes went out, or none in a while, it is asked whether it goes on.
    ///
    /// # Errors
    /// The peer has gone, or reads so slowly that it doesn't go on.
    pub(super) fn write_all(&mut self, mut bytes: &[u8], goes_on: &mut dyn FnMut(usize) -> bool) -> io::Result<()> {
        let Some(session) = &self.session else { return put(&mut self.tcp, bytes, goes_on) };
        while !bytes.is_empty() {
            {
                let mut session = session.lock().expect("no panic under the session's lock");
                let taken = session.writer().write(&bytes[..bytes.len().min(SEAL_BYTES)])?;
                bytes = &bytes[taken..];
                seal(&mut session, &mut self.out)?;
            }
            put(&mut self.tcp, &self.out, goes_on)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Says farewell if there is TLS, and closes the connection in both directions.
    pub(super) fn close(&mut self, politely: bool) {
        if let Some(session) = self.session.as_ref().filter(|_| politely) {
            let sealed = {
                let mut session = session.lock().expect("no panic under the session's lock");
                session.send_close_notify();
                seal(&mut session, &mut self.out)
            };
            let _ = sealed.and_then(|()| self.tcp.write_all(&self.out));
        }
        // The reader finds out, however long it would have waited.
        let _ = self.tcp.shutdown(Shutdown::Both);
    }
}

/// How many bytes a write has taken: none if it would have had to wait for too long.
fn written(done: io::Result<usize>) -> io::Result<usize> {
    match done {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(bytes) => Ok(bytes),
        Err(error) => match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(0),
            _ => Err(error),
        },
    }
}

fn put(tcp: &mut TcpStream, mut bytes: &[u8], goes_on: &mut dyn FnMut(usize) -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        let gone = written(tcp.write(bytes))?;
        bytes = &bytes[gone..];
        if !bytes.is_empty() && !goes_on(gone) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Takes out of the machine what it has ready for the socket.
fn seal(session: &mut ServerConnection, out: &mut Vec<u8>) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use cutwater_platform::SystemClock;

    use super::*;

    #[test]
    fn whatever_is_asked_for_comes_in_order_however_much_lies_ahead() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (tcp, _) = listener.accept().expect("accepted");
        let answering = tcp.try_clone().expect("a clone");
        let (mut half, _) = halves(Stream { tcp, answering }, None).expect("no TLS");
        let clock = SystemClock::new();
        let sent: Vec<u8> = (0..60_000u32).map(|at| (at % 251) as u8).collect();
        peer.write_all(&sent).expect("sent");
        drop(peer);
        let mut come = Vec::new();
        // Sizes of frames, frames smaller and larger than what is read ahead, and exactly as large.
        for bytes in [4, 10, 4, 9_000, 4, AHEAD_BYTES, 1, AHEAD_BYTES + 1, 4, 3, 4, 20_000, 4, 4, AHEAD_BYTES - 4] {
            let mut piece = vec![0; bytes];
            half.fill(&mut piece, &clock, clock.monotonic() + Duration::from_secs(20)).expect("it has come");
            come.extend_from_slice(&piece);
        }
        let mut rest = vec![0; sent.len() - come.len()];
        half.fill(&mut rest, &clock, clock.monotonic() + Duration::from_secs(20)).expect("the rest has come");
        come.extend_from_slice(&rest);
        assert!(come == sent);
        let more = half.fill(&mut [0], &clock, clock.monotonic() + Duration::from_secs(20));
        assert_eq!(more.expect_err("nothing is left").kind(), io::ErrorKind::UnexpectedEof);
    }
}
