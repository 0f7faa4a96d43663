//! One connection to a broker: whole frames, one after the other, answered in the order in which they were sent.
//!
//! After any error the connection is used no more. A frame's memory grows with what has come, never with what was promised (I-9).

use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, Connection, NetError, Platform};

use super::answer::Answer;
use super::entry::EntryError;
use super::kafka::{self, FETCH, FETCH_VERSION, NoAnswer, Wish};
use super::log::RemoteOptions;
use super::request::{API_KEY, API_VERSION, AttemptOf, NotOwners, Request, encode_append};
use crate::topic::TopicId;

/// No answer is larger: a fetch asks for less, and one batch fits beside it.
pub(super) const FRAME_BYTES_MAX: usize = 160 << 20;
/// A frame's memory grows by at most this much at first.
const PIECE_BYTES: usize = 64 << 10;

/// How TLS begins to say that it doesn't understand. As the size of a frame it would be far too large.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// An open connection whose other side has said that it serves owners.
#[derive(Debug)]
pub(super) struct Link {
    connection: Box<dyn Connection>,
    client: String,
    patience: Duration,
    clock: Arc<dyn Clock>,
    /// When something was last heard.
    heard: Duration,
    idle: Duration,
    /// The correlation of the next request.
    next: i32,
    /// Requests sent and not answered.
    pub(super) unanswered: usize,
    frame: Vec<u8>,
}

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The network's fault.
    Net(NetError),
    /// The other side's: it says what nobody expects.
    Nonsense(String),
    /// The other side speaks TLS, which this one doesn't.
    SpeaksTls,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Net(error) => error.fmt(f),
            Broken::Nonsense(what) => f.write_str(what),
            Broken::SpeaksTls => EntryError::SpeaksTls.fmt(f),
        }
    }
}

impl From<NetError> for Broken {
    fn from(error: NetError) -> Broken {
        Broken::Net(error)
    }
}

impl From<NoAnswer> for Broken {
    fn from(error: NoAnswer) -> Broken {
        Broken::Nonsense(format!("its answer isn't one: {}", error.0))
    }
}

impl From<NotOwners> for Broken {
    fn from(error: NotOwners) -> Broken {
        Broken::Nonsense(error.to_string())
    }
}

impl Link {
    /// Over a connection on which nothing was said yet.
    pub(super) fn over(connection: Box<dyn Connection>, platform: &Platform, options: &RemoteOptions) -> Link {
        let clock = platform.clock.clone();
        Link {
            connection,
            client: options.client.clone(),
            patience: options.answer_patience,
            heard: clock.monotonic(),
            clock,
            idle: options.idle,
            next: 1,
            unanswered: 0,
            frame: Vec::new(),
        }
    }

    /// Whether nothing has been heard for so long that the other side may have closed it.
    pub(super) fn is_stale(&self) -> bool {
        self.clock.monotonic().saturating_sub(self.heard) > self.idle
    }

    /// Sends an owner's request.
    pub(super) fn send_request(&mut self, request: &Request) -> Result<(), Broken> {
        self.send(API_KEY, API_VERSION, false, |out| request.encode(out))
    }

    /// Sends a batch.
    pub(super) fn send_append(
        &mut self,
        of: AttemptOf,
        at: (TopicId, u32),
        durable: bool,
        batch: &[u8],
    ) -> Result<(), Broken> {
        self.send(API_KEY, API_VERSION, false, |out| encode_append(out, of, at, durable, batch))
    }

    /// Asks for records and waits for them.
    pub(super) fn fetch(
        &mut self,
        wishes: &[Wish],
        wait: Duration,
        partition_bytes: i32,
        most_bytes: i32,
    ) -> Result<(i16, Vec<kafka::Came>), Broken> {
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        self.send(FETCH, FETCH_VERSION, true, |out| kafka::put_fetch(out, wishes, wait, partition_bytes, most_bytes))?;
        Ok(kafka::fetch(&self.receive()?)?)
    }

    /// The answer to the oldest of an owner's requests that has none yet.
    pub(super) fn answer(&mut self) -> Result<Answer, Broken> {
        Ok(Answer::decode(&self.receive()?)?)
    }

    /// Asks and waits.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Answer, Broken> {
        self.send_request(request)?;
        self.answer()
    }

    /// Sends a request with this key.
    pub(super) fn send(
        &mut self,
        key: i16,
        version: i16,
        flexible: bool,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Broken> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; 4]);
        kafka::put_header(&mut self.frame, key, version, self.next, &self.client, flexible);
        body(&mut self.frame);
        let size = i32::try_from(self.frame.len() - 4);
        let size = size.map_err(|_| Broken::Nonsense("a request is larger than a frame can be".to_string()))?;
        self.frame[..4].copy_from_slice(&size.to_be_bytes());
        self.connection.send(&self.frame, self.patience)?;
        self.frame.shrink_to(PIECE_BYTES);
        self.next = self.next.wrapping_add(1);
        self.unanswered += 1;
        Ok(())
    }

    /// The next frame behind its correlation, which must be that of the oldest request without an answer.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>, Broken> {
        let mut head = [0; 8];
        // An alert of TLS has seven bytes, and behind it the connection is closed.
        self.connection.receive(&mut head[..TLS_ALERT.len()], self.patience)?;
        if head.starts_with(&TLS_ALERT) {
            return Err(Broken::SpeaksTls);
        }
        self.connection.receive(&mut head[TLS_ALERT.len()..], self.patience)?;
        let int = |at: usize| i32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let size = usize::try_from(int(0)).ok().filter(|size| (4..=FRAME_BYTES_MAX).contains(size));
        let size = size.ok_or_else(|| Broken::Nonsense(format!("it sends a frame of {} bytes", int(0))))?;
        let expected = self.next.wrapping_sub(i32::try_from(self.unanswered).unwrap_or(i32::MAX));
        if int(4) != expected {
            return Err(Broken::Nonsense(format!("it answers request {} where {expected} is due", int(4))));
        }
        let mut body = Vec::new();
        let left = size - 4;
        while body.len() < left {
            let piece = (left - body.len()).min(body.len().max(PIECE_BYTES));
            let begun = body.len();
            body.resize(begun + piece, 0);
            self.connection.receive(&mut body[begun..], self.patience)?;
        }
        self.unanswered -= 1;
        self.heard = self.clock.monotonic();
        Ok(body)
    }
}
