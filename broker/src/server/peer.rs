//! Whether whoever asked is still there, asked without reading: for requests that wait longer than anybody may care to (fetches, members of
//! groups that wait for the others).

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::service::PATIENCE;

/// The other side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<TcpStream>);

impl Peer {
    pub(crate) fn new(stream: Arc<TcpStream>) -> Peer {
        Peer(stream)
    }

    /// Whether it has closed the connection, or its half of it: then nothing more will come, and as in Kafka nobody waits for an
    /// answer. What it has sent before stays to be read.
    pub(crate) fn has_left(&self) -> bool {
        let mut asked = [PollFd::new(&*self.0, PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        // An error is no answer: it is looked again.
        poll(&mut asked, Some(&Timespec::default())).is_ok_and(|_| asked[0].revents().intersects(gone))
    }
}

/// A [`Peer`] that somebody works for who waits: asked as often as one likes, it looks only now and then.
#[derive(Debug)]
pub(crate) struct Attended<'a> {
    peer: &'a Peer,
    looked: Duration,
}

impl<'a> Attended<'a> {
    /// From `now` on.
    pub(crate) fn new(peer: &'a Peer, now: Duration) -> Attended<'a> {
        Attended { peer, looked: now }
    }

    /// Whether it has left, if it is time to look; that is each [`PATIENCE`].
    pub(crate) fn has_left(&mut self, now: Duration) -> bool {
        if now < self.looked + PATIENCE {
            return false;
        }
        self.looked = now;
        self.peer.has_left()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener};

    #[test]
    fn a_peer_has_left_when_it_has_closed_or_will_say_no_more_and_not_before() {
        for how in [None, Some(Shutdown::Write), Some(Shutdown::Both)] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let mut theirs = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
            let peer = Peer::new(Arc::new(listener.accept().expect("it comes").0));
            assert!(!peer.has_left());
            theirs.write_all(b"not read yet").expect("sent");
            assert!(!peer.has_left(), "what waits to be read is no farewell");
            match how {
                Some(how) => theirs.shutdown(how).expect("shut down"),
                None => drop(theirs),
            }
            let seen = (0..200).any(|_| {
                std::thread::yield_now();
                peer.has_left()
            });
            assert!(seen, "{how:?}");
        }
    }

    #[test]
    fn a_peer_that_has_left_is_noticed_when_it_is_time_to_look() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let theirs = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let peer = Peer::new(Arc::new(listener.accept().expect("it comes").0));
        let begun = Duration::from_secs(7);
        let mut attended = Attended::new(&peer, begun);
        drop(theirs);
        while !peer.has_left() {
            std::thread::yield_now();
        }
        assert!(!attended.has_left(begun + PATIENCE / 2), "not yet");
        assert!(attended.has_left(begun + PATIENCE));
        assert!(!attended.has_left(begun + PATIENCE), "it has just looked");
    }
}
