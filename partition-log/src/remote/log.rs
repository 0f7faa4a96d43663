//! A log that another process serves: its topics, and the way to everything else.
//!
//! Connections are opened when they are needed, with pauses that grow, and kept for the next who needs one. What may be asked
//! again is asked again until the patience is over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_platform::{Net, Platform};

use super::answer::{Answer, RemoteTopic, Why};
use super::entry::Prove;
use super::error::RemoteError;
use super::fetcher::{Desk, RemoteReader};
use super::link::{Broken, Link};
use super::owner::{RemoteOwner, RemoteProducer};
use super::request::{Ask, AttemptOf, Request};
use crate::offset::Offset;
use crate::owner::OwnerId;
use crate::spares::Spares;
use crate::topic::TopicPartition;
use crate::view::Callback;

/// Connections that are kept while nobody needs them.
const IDLE_MAX: usize = 8;
/// Memory of batches that have been sent, kept for the next ones.
const SPARE_BYTES: usize = 4 << 20;
/// The first pause between two tries, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Where a log is served, and how long to wait.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Host and port, with a colon between them.
    pub address: String,
    /// How to connect there, if not over the platform's own network: TLS, say.
    pub net: Option<Arc<dyn Net>>,
    /// Proves who connects, where that is asked.
    pub user: Option<Arc<dyn Prove>>,
    /// What the server calls this program in its records.
    pub client: String,
    /// How long one try to connect may take.
    pub connect_patience: Duration,
    /// How long one answer may take.
    pub answer_patience: Duration,
    /// A connection that has been silent for longer is not used again: the server may have closed it (after ten minutes, if nobody
    /// has told it otherwise), and what is sent once would be lost.
    pub idle: Duration,
    /// How long a request that may be repeated is tried, and how long readers wait for a server that is away.
    pub patience: Duration,
}

impl RemoteOptions {
    /// The log at this address, with patience for a server that is being started again: half a minute.
    pub fn new(address: impl Into<String>, client: impl Into<String>) -> RemoteOptions {
        RemoteOptions {
            address: address.into(),
            net: None,
            user: None,
            client: client.into(),
            connect_patience: Duration::from_secs(3),
            answer_patience: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            patience: Duration::from_secs(30),
        }
    }
}

/// A partition log in another process. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct RemoteLog {
    pub(super) shared: Arc<Shared>,
}

/// What all handles of one log share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dial: Dial,
    idle: Mutex<Vec<Link>>,
    /// Memory for batches.
    pub(super) spares: Spares,
    desk: Arc<Desk>,
}

/// How to get a connection.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    pub(super) platform: Platform,
    pub(super) options: RemoteOptions,
}

/// Pauses between tries.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses { next: PAUSE.0 }
    }

    pub(super) fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(PAUSE.1);
        now
    }
}

impl Dial {
    pub(super) fn now(&self) -> Duration {
        self.platform.clock.monotonic()
    }

    pub(super) fn away(&self, since: Duration, reason: &Broken) -> RemoteError {
        let tried = self.now().saturating_sub(since);
        RemoteError::Away { address: self.options.address.clone(), reason: reason.to_string(), tried }
    }

    /// Connects; tries again until `patience` is over.
    fn open(&self, patience: Duration) -> Result<Link, RemoteError> {
        let (since, mut pauses) = (self.now(), Pauses::new());
        loop {
            let broken = match Link::open(&self.platform, &self.options)? {
                Ok(link) => return Ok(link),
                Err(broken) => broken,
            };
            if self.now() >= since + patience {
                return Err(self.away(since, &broken));
            }
            self.platform.clock.sleep(pauses.next());
        }
    }
}

impl RemoteLog {
    /// Connects to a log, within `patience`; everything later has the patience of the options.
    ///
    /// # Errors
    /// [`RemoteError::Away`] if nobody answers, [`RemoteError::Foreign`] if somebody does who isn't a broker of ours,
    /// [`RemoteError::Entry`] if it doesn't let this program in, or isn't to be trusted.
    pub fn connect(platform: &Platform, options: RemoteOptions, patience: Duration) -> Result<RemoteLog, RemoteError> {
        let dial = Dial { platform: platform.clone(), options };
        let link = dial.open(patience)?;
        let desk = Desk::new(dial.clone());
        Ok(RemoteLog {
            shared: Arc::new(Shared { dial, idle: Mutex::new(vec![link]), spares: Spares::new(SPARE_BYTES), desk }),
        })
    }

    /// Where it is served.
    pub fn address(&self) -> &str {
        &self.shared.dial.options.address
    }

    /// The topic of this name, if there is one.
    ///
    /// # Errors
    /// The broker is away, or refuses it.
    pub fn topic(&self, name: &str) -> Result<Option<RemoteTopic>, RemoteError> {
        match self.shared.call(&Request::Topic { name: name.to_string() }, "find a topic")? {
            Answer::Topic(topic) => Ok(topic),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// The topic of this name, made with so many partitions if it isn't there.
    ///
    /// # Errors
    /// It is there with another number; as [`RemoteLog::topic`].
    pub fn create_topic_if_absent(&self, name: &str, partitions: u32) -> Result<RemoteTopic, RemoteError> {
        let request = Request::TopicOrNew { name: name.to_string(), partitions };
        match self.shared.call(&request, "create a topic")? {
            Answer::Topic(Some(topic)) => Ok(topic),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// Claims the log for an attempt of an owner, as [`Log::claim`](crate::Log::claim). Sent once: if the answer is lost, the attempt
    /// can't know whether it has claimed, and the next one claims with the next number.
    ///
    /// # Errors
    /// Fenced; the broker is away; [`RemoteError::Lost`].
    pub fn claim(&self, owner: &OwnerId, attempt: u64) -> Result<RemoteOwner, RemoteError> {
        let of = AttemptOf { owner: *owner, attempt };
        // A connection that has been idle may be long dead, and this is the one request that can't be repeated.
        let mut link = self.shared.dial.open(self.shared.dial.options.patience)?;
        let answer = link.ask(&Request::Attempt { of, ask: Ask::Claim });
        let answer = answer.map_err(|broken| self.shared.lost("claim the log", &broken))?;
        self.shared.keep(link);
        match answer {
            Answer::Done => Ok(RemoteOwner { shared: self.shared.clone(), of }),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// An idempotent producer outside of transactions that nobody owns, and nobody fences.
    ///
    /// # Errors
    /// The broker is away, or refuses it.
    pub fn producer(&self) -> Result<RemoteProducer, RemoteError> {
        // No owner has this name, and attempts are counted from 1: so nobody ever claims it.
        let nobody = AttemptOf { owner: OwnerId(0), attempt: 0 };
        RemoteOwner { shared: self.shared.clone(), of: nobody }.producer()
    }

    /// Reads the committed records of a partition from `from` on. `news` is called when there is something to poll; it runs on the
    /// thread that fetches, so let it do no more than wake somebody.
    pub fn reader(&self, topic: &RemoteTopic, partition: u32, from: Offset, news: Callback) -> RemoteReader {
        let at = TopicPartition::new(topic.id, partition);
        RemoteReader::new(self.shared.clone(), self.shared.desk.clone(), at, topic.uuid, from, news)
    }
}

impl Shared {
    /// A connection: one that is idle, or a new one.
    pub(super) fn link(&self, patience: Duration) -> Result<Link, RemoteError> {
        let idle = {
            let mut idle = self.idle.lock().expect("no panic under this lock");
            idle.retain(|link| !link.is_stale());
            idle.pop()
        };
        idle.map_or_else(|| self.dial.open(patience), Ok)
    }

    /// Keeps a connection for the next.
    pub(super) fn keep(&self, link: Link) {
        let mut idle = self.idle.lock().expect("no panic under this lock");
        if link.unanswered == 0 && idle.len() < IDLE_MAX {
            idle.push(link);
        }
    }

    /// One connection has gone: the others most likely have, too.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().expect("no panic under this lock").clear();
    }

    pub(super) fn lost(&self, during: &'static str, broken: &Broken) -> RemoteError {
        self.forget_idle();
        RemoteError::Lost { address: self.dial.options.address.clone(), during, reason: broken.to_string() }
    }

    pub(super) fn unexpected(&self, answer: &Answer) -> RemoteError {
        match answer {
            Answer::Refused(refusal) => RemoteError::Refused(refusal.clone()),
            other => RemoteError::Foreign {
                address: self.dial.options.address.clone(),
                found: format!("it answers something else than was asked: {other:?}"),
            },
        }
    }

    /// Asks for what may be asked any number of times, until there is an answer or the patience is over.
    pub(super) fn call(&self, request: &Request, what: &'static str) -> Result<Answer, RemoteError> {
        let patience = self.dial.options.patience;
        let (since, mut pauses) = (self.dial.now(), Pauses::new());
        loop {
            let left = (since + patience).saturating_sub(self.dial.now());
            let mut link = self.link(left)?;
            let failure = match link.ask(request) {
                // It is being closed, and another one may be started in its place.
                Ok(Answer::Refused(refusal)) if refusal.why == Why::Down => RemoteError::Refused(refusal),
                Ok(answer) => {
                    self.keep(link);
                    return Ok(answer);
                }
                Err(broken) => self.lost(what, &broken),
            };
            if self.dial.now() >= since + patience {
                return Err(failure);
            }
            self.dial.platform.clock.sleep(pauses.next());
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.desk.stop();
    }
}
