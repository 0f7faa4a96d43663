//! Fetch sessions as a pure state machine over {request, time}: a client names its partitions once, then what has changed, and is
//! answered what has news (KIP-227).
//!
//! ```text
//!   epoch -1            no session: all partitions are named and answered; a session of this id ends
//!   epoch 0             the same, and a new session begins if there is room
//!   epoch n of id x     goes on with session x, if its next epoch is n: partitions are added, changed, forgotten
//! ```
//!
//! Promises:
//! * A session goes on only by its next epoch: an answer that is lost, or a request that comes twice, ends in an error, after which
//!   clients begin anew. No partition is ever left out by a misunderstanding.
//! * A partition is left out of an answer only if it has no records, no error, and stands where the client last heard it to.
//! * Sessions, and partitions of all sessions together, are bounded (I-9). Room is made by ending those that have been silent
//!   for the longest time, after [`Limits::idle`]; without room clients go on without sessions.
//!
//! Source: KIP-227 and Kafka's `FetchSession`. Time is any monotonic one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use uuid::Uuid;

/// The epoch that ends a session, or does without.
pub(crate) const FINAL: i32 = -1;
/// The epoch that asks for a new session.
pub(crate) const INITIAL: i32 = 0;

/// A topic as the client names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TopicKey {
    /// Up to version 12.
    Name(Arc<str>),
    /// From version 13 on.
    Id(Uuid),
}

/// A partition as the client names it.
pub(crate) type Key = (TopicKey, i32);

/// What is asked of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) last_epoch: i32,
    pub(crate) max_bytes: i32,
}

/// A fetch, as far as sessions go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    /// Topics are named by their ids.
    pub(crate) by_id: bool,
    pub(crate) partitions: Vec<(Key, Asked)>,
    pub(crate) forgotten: Vec<Key>,
}

/// What a partition's answer comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) high_watermark: i64,
    pub(crate) log_start: i64,
    pub(crate) has_records: bool,
    /// An error, or that the client's log goes another way: it must hear of it.
    pub(crate) urgent: bool,
}

/// What is to be read, in this order, and how it will be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    kind: Kind,
    pub(crate) partitions: Vec<(Key, Asked)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Without,
    /// A new session, if there is room.
    New {
        by_id: bool,
    },
    /// A session, and the epoch that it has after this request.
    Going {
        id: i32,
        epoch: i32,
    },
}

/// How an answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The session that the client may go on with; 0 is none.
    pub(crate) id: i32,
    /// For each partition that was read, whether it is answered.
    pub(crate) answered: Vec<bool>,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) sessions: usize,
    /// Of all sessions together.
    pub(crate) partitions: usize,
    /// A session that was silent for so long gives way to a new one.
    pub(crate) idle: Duration,
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    limits: Limits,
    by_id: HashMap<i32, Session>,
    /// By when they were last used.
    oldest: BTreeMap<(Duration, i32), ()>,
    partitions: usize,
}

#[derive(Debug)]
struct Session {
    /// The epoch that its next request must have.
    epoch: i32,
    by_id: bool,
    used: Duration,
    /// In the order in which they are read next: those that had records last time come last.
    partitions: Vec<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    key: Key,
    asked: Asked,
    /// Where the client last heard the partition to stand; -1: it must hear it.
    high_watermark: i64,
    log_start: i64,
}

/// Epochs go from 1 to the largest and then begin at 1 again.
fn next(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl Sessions {
    pub(crate) fn new(limits: Limits) -> Sessions {
        Sessions { limits, by_id: HashMap::new(), oldest: BTreeMap::new(), partitions: 0 }
    }

    /// How many there are, and the partitions of all of them.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.by_id.len(), self.partitions)
    }

    /// A fetch begins.
    pub(crate) fn begin(&mut self, now: Duration, request: Request) -> Result<Begun, ResponseError> {
        let Request { id, epoch, by_id, partitions, forgotten } = request;
        if epoch == FINAL || epoch == INITIAL {
            self.end_session(id);
            let kind = if epoch == FINAL { Kind::Without } else { Kind::New { by_id } };
            return Ok(Begun { kind, partitions });
        }
        let session = self.by_id.get_mut(&id).ok_or(ResponseError::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        let before = session.partitions.len();
        session.change(partitions, &forgotten);
        self.partitions = self.partitions - before + session.partitions.len();
        if session.partitions.is_empty() {
            self.end_session(id);
            return Ok(Begun { kind: Kind::Without, partitions: Vec::new() });
        }
        session.epoch = next(epoch);
        let asked = session.partitions.iter().map(|known| (known.key.clone(), known.asked)).collect();
        let epoch = session.epoch;
        self.touch(now, id);
        // It has grown beyond what all may have together: its client begins anew, and then goes on without a session.
        if self.partitions > self.limits.partitions {
            self.end_session(id);
            return Err(ResponseError::FetchSessionIdNotFound);
        }
        Ok(Begun { kind: Kind::Going { id, epoch }, partitions: asked })
    }

    /// A fetch ends with these answers, one for each partition that was to be read. `fresh` gives numbers that are hard to
    /// guess.
    pub(crate) fn end(
        &mut self,
        now: Duration,
        begun: &Begun,
        news: &[News],
        fresh: impl FnMut() -> i32,
    ) -> Result<Ended, ResponseError> {
        let all = || vec![true; news.len()];
        match begun.kind {
            Kind::Without => Ok(Ended { id: 0, answered: all() }),
            Kind::New { by_id } => {
                let id = self.begin_session(now, by_id, &begun.partitions, news, fresh);
                Ok(Ended { id, answered: all() })
            }
            Kind::Going { id, epoch } => {
                let session = self.by_id.get_mut(&id).ok_or(ResponseError::FetchSessionIdNotFound)?;
                // Another connection has gone on with it meanwhile.
                if session.epoch != epoch {
                    return Err(ResponseError::InvalidFetchSessionEpoch);
                }
                Ok(Ended { id, answered: session.answer(news) })
            }
        }
    }

    fn begin_session(
        &mut self,
        now: Duration,
        by_id: bool,
        partitions: &[(Key, Asked)],
        news: &[News],
        mut fresh: impl FnMut() -> i32,
    ) -> i32 {
        // Nothing to remember; or more than there can ever be room for, whoever gives way.
        if partitions.is_empty() || partitions.len() > self.limits.partitions || self.limits.sessions == 0 {
            return 0;
        }
        while self.by_id.len() >= self.limits.sessions || self.partitions + partitions.len() > self.limits.partitions {
            let Some(((used, oldest), ())) = self.oldest.first_key_value().map(|(key, ())| (*key, ())) else {
                return 0;
            };
            if now.saturating_sub(used) < self.limits.idle {
                return 0;
            }
            self.end_session(oldest);
        }
        let id = loop {
            let id = fresh();
            if id > 0 && !self.by_id.contains_key(&id) {
                break id;
            }
        };
        let known = partitions.iter().cloned().zip(news).map(|((key, asked), news)| {
            let mut known = Known { key, asked, high_watermark: -1, log_start: -1 };
            known.answer(news);
            known
        });
        // A partition that is named twice is kept as it was named last.
        let mut session = Session { epoch: next(INITIAL), by_id, used: now, partitions: Vec::new() };
        let mut places: HashMap<Key, usize> = HashMap::new();
        for known in known {
            match places.get(&known.key).and_then(|place| session.partitions.get_mut(*place)) {
                Some(earlier) => *earlier = known,
                None => {
                    places.insert(known.key.clone(), session.partitions.len());
                    session.partitions.push(known);
                }
            }
        }
        self.partitions += session.partitions.len();
        self.oldest.insert((now, id), ());
        self.by_id.insert(id, session);
        id
    }

    fn end_session(&mut self, id: i32) {
        if let Some(session) = self.by_id.remove(&id) {
            self.partitions -= session.partitions.len();
            self.oldest.remove(&(session.used, id));
        }
    }

    fn touch(&mut self, now: Duration, id: i32) {
        if let Some(session) = self.by_id.get_mut(&id) {
            self.oldest.remove(&(session.used, id));
            session.used = now;
            self.oldest.insert((now, id), ());
        }
    }
}

impl Session {
    /// Adds and changes some, forgets others.
    fn change(&mut self, asked: Vec<(Key, Asked)>, forgotten: &[Key]) {
        if !asked.is_empty() {
            let mut places: HashMap<Key, usize> =
                self.partitions.iter().enumerate().map(|(place, known)| (known.key.clone(), place)).collect();
            for (key, asked) in asked {
                match places.get(&key).and_then(|place| self.partitions.get_mut(*place)) {
                    Some(known) => known.asked = asked,
                    None => {
                        places.insert(key.clone(), self.partitions.len());
                        self.partitions.push(Known { key, asked, high_watermark: -1, log_start: -1 });
                    }
                }
            }
        }
        if !forgotten.is_empty() {
            let forgotten: std::collections::HashSet<&Key> = forgotten.iter().collect();
            self.partitions.retain(|known| !forgotten.contains(&known.key));
        }
    }

    /// Which partitions are answered; those with records are read last next time, so that none starves.
    fn answer(&mut self, news: &[News]) -> Vec<bool> {
        let answered = self.partitions.iter_mut().zip(news).map(|(known, news)| known.answer(news)).collect();
        let (mut quiet, mut busy) = (Vec::with_capacity(self.partitions.len()), Vec::new());
        for (known, news) in std::mem::take(&mut self.partitions).into_iter().zip(news) {
            if news.has_records { busy.push(known) } else { quiet.push(known) }
        }
        quiet.append(&mut busy);
        self.partitions = quiet;
        answered
    }
}

impl Known {
    /// Whether the client must hear this; it knows it then.
    fn answer(&mut self, news: &News) -> bool {
        let moved = self.high_watermark != news.high_watermark || self.log_start != news.log_start;
        // After an error it hears again where the partition stands.
        (self.high_watermark, self.log_start) =
            if news.urgent { (-1, -1) } else { (news.high_watermark, news.log_start) };
        moved || news.has_records || news.urgent
    }
}
