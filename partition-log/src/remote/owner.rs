//! An attempt of an owner whose log is in another process: as [`crate::Owner`], request by request.

use std::sync::{Arc, Mutex};

use super::answer::{Answer, Refusal, Why};
use super::error::RemoteError;
use super::link::Link;
use super::log::Shared;
use super::request::{Ask, AttemptOf, PAGE, Request};
use crate::core::TxnPhase;
use crate::embedded::owner::{AbortOutcome, CommitOutcome};
use crate::embedded::producer::{BatchSource, Sequences};
use crate::embedded::transaction::Prepared;
use crate::error::{AppendError, Sent};
use crate::group::GroupProgress;
use crate::owner::{OwnerId, TxnId, TxnName};
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Outcome;

/// Batches that may be on their way before an answer must have come.
const UNANSWERED_MAX: usize = 32;

/// The right of one attempt to write as its owner, until a newer attempt claims the log. Clones share it.
#[derive(Clone, Debug)]
pub struct RemoteOwner {
    pub(super) shared: Arc<Shared>,
    pub(super) of: AttemptOf,
}

impl RemoteOwner {
    /// The owner.
    pub fn id(&self) -> OwnerId {
        self.of.owner
    }

    /// The attempt.
    pub fn attempt(&self) -> u64 {
        self.of.attempt
    }

    fn ask(&self, ask: Ask, what: &'static str) -> Result<Answer, RemoteError> {
        match self.shared.call(&Request::Attempt { of: self.of, ask }, what)? {
            Answer::Refused(refusal) => Err(RemoteError::Refused(refusal)),
            answer => Ok(answer),
        }
    }

    /// Begins a transaction, as [`Owner::begin`](crate::Owner::begin).
    ///
    /// # Errors
    /// Fenced; the name is taken or none; too many are live or remembered; the broker is away.
    pub fn begin(&self, name: TxnName) -> Result<RemoteTxn, RemoteError> {
        let TxnName { checkpoint, sink, writer } = name;
        let AttemptOf { owner, attempt } = self.of;
        let id = TxnId { owner, attempt, checkpoint, sink: sink.clone(), writer };
        let (producer, epoch) = match self.ask(Ask::Begin { checkpoint, sink, writer }, "begin a transaction")? {
            Answer::Producer { id, epoch } => (id, epoch),
            other => return Err(self.shared.unexpected(&other)),
        };
        let stream = Stream::new(self, Sequences::new(producer, epoch, true));
        Ok(RemoteTxn { id, stream, sent: Sent::default(), refused: None })
    }

    /// An idempotent producer outside of transactions, fenced with its attempt.
    ///
    /// # Errors
    /// Fenced; the broker is away.
    pub fn producer(&self) -> Result<RemoteProducer, RemoteError> {
        match self.ask(Ask::Producer, "get a producer")? {
            Answer::Producer { id, epoch } => {
                let stream = Stream::new(self, Sequences::new(id, epoch, false));
                Ok(RemoteProducer { stream: Arc::new(Mutex::new(stream)) })
            }
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// Commits prepared transactions of this owner, all in one atomic write, as [`Owner::commit`](crate::Owner::commit).
    ///
    /// # Errors
    /// Fenced; some were aborted, or are unknown, or not prepared (nothing is committed then); the broker is away: ask again.
    pub fn commit(&self, ids: &[TxnId]) -> Result<CommitOutcome, RemoteError> {
        match self.ask(Ask::Commit { ids: ids.to_vec() }, "commit transactions")? {
            Answer::Ended { now, already } => Ok(CommitOutcome { committed: now, already }),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// As [`RemoteOwner::commit`], and says where groups stand by then, as
    /// [`Owner::commit_with_progress`](crate::Owner::commit_with_progress). A group with members is left to them.
    ///
    /// # Errors
    /// As [`RemoteOwner::commit`].
    pub fn commit_with_progress(
        &self,
        ids: &[TxnId],
        progress: &[GroupProgress],
    ) -> Result<CommitOutcome, RemoteError> {
        let ask = Ask::CommitWith { ids: ids.to_vec(), progress: progress.to_vec() };
        match self.ask(ask, "commit transactions")? {
            Answer::Ended { now, already } => Ok(CommitOutcome { committed: now, already }),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// Aborts transactions of this owner, as [`Owner::abort`](crate::Owner::abort).
    ///
    /// # Errors
    /// Fenced; some were committed, or are unknown (nothing is aborted then); the broker is away: ask again.
    pub fn abort(&self, ids: &[TxnId]) -> Result<AbortOutcome, RemoteError> {
        match self.ask(Ask::Abort { ids: ids.to_vec() }, "abort transactions")? {
            Answer::Ended { now, already } => Ok(AbortOutcome { aborted: now, already }),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// This owner's live transactions, of all attempts.
    ///
    /// # Errors
    /// Fenced; the broker is away.
    pub fn transactions(&self) -> Result<Vec<(TxnId, TxnPhase)>, RemoteError> {
        match self.ask(Ask::Live, "list transactions")? {
            Answer::Live(live) => Ok(live),
            other => Err(self.shared.unexpected(&other)),
        }
    }

    /// The outcomes that are still remembered, in order of their names.
    ///
    /// # Errors
    /// Fenced; the broker is away.
    pub fn outcomes(&self) -> Result<Vec<(TxnId, Outcome)>, RemoteError> {
        let mut all: Vec<(TxnId, Outcome)> = Vec::new();
        loop {
            let after = all.last().map(|(id, _)| id.clone());
            match self.ask(Ask::Outcomes { after }, "list outcomes")? {
                Answer::Outcomes { outcomes, more } => {
                    let more = more && !outcomes.is_empty();
                    all.extend(outcomes);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(self.shared.unexpected(&other)),
            }
        }
    }

    /// Forgets the outcomes of ended transactions, as [`Owner::forget`](crate::Owner::forget).
    ///
    /// # Errors
    /// Fenced; some are live or belong to another owner; the broker is away.
    pub fn forget(&self, ids: &[TxnId]) -> Result<(), RemoteError> {
        for page in ids.chunks(PAGE) {
            match self.ask(Ask::Forget { ids: page.to_vec() }, "forget outcomes")? {
                Answer::Done => {}
                other => return Err(self.shared.unexpected(&other)),
            }
        }
        Ok(())
    }
}

/// Batches on their way, in order, over one connection. After an error it takes no more.
#[derive(Debug)]
struct Stream {
    shared: Arc<Shared>,
    of: AttemptOf,
    sequences: Sequences,
    link: Option<Link>,
    failed: Option<RemoteError>,
}

impl Stream {
    fn new(owner: &RemoteOwner, sequences: Sequences) -> Stream {
        Stream { shared: owner.shared.clone(), of: owner.of, sequences, link: None, failed: None }
    }

    /// Sends a batch; waits for answers only when too many are out. The bytes and records that it has.
    fn send(&mut self, at: TopicPartition, batch: BatchSource<'_>, durable: bool) -> Result<Sent, RemoteError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let stamped = self.sequences.stamp(at, batch, &self.shared.spares).map_err(|e| refused(&e))?;
        let sent = Sent { bytes: stamped.bytes.len() as u64, records: stamped.records };
        let (bytes, next) = stamped.into_parts();
        if self.link.as_ref().is_some_and(Link::is_stale) {
            // What was answered can still be read; with nothing on its way, another connection does as well.
            self.settle(0)?;
            self.link = None;
        }
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.shared.link(self.shared.dial.options.patience)?,
        };
        let gone = link.send_append(self.of, (at.topic, at.partition), durable, &bytes);
        self.shared.spares.give(vec![Arc::new(bytes)]);
        if let Err(broken) = gone {
            return Err(self.fail(self.shared.lost("append", &broken)));
        }
        self.sequences.accepted(at, next);
        self.link = Some(link);
        self.settle(UNANSWERED_MAX)?;
        Ok(sent)
    }

    /// Takes answers until at most so many are missing.
    fn settle(&mut self, missing: usize) -> Result<(), RemoteError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        while let Some(link) = self.link.as_mut().filter(|link| link.unanswered > missing) {
            match link.answer() {
                Ok(Answer::Appended(_)) => {}
                Ok(other) => return Err(self.fail(self.shared.unexpected(&other))),
                Err(broken) => return Err(self.fail(self.shared.lost("append", &broken))),
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: RemoteError) -> RemoteError {
        self.link = None;
        self.failed = Some(error.clone());
        error
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.shared.keep(link);
        }
    }
}

fn refused(error: &AppendError) -> RemoteError {
    RemoteError::Refused(Refusal::new(Why::Invalid, error))
}

/// An open transaction of a log in another process. Dropped, it stays open there until its owner aborts it or claims again, or until
/// it times out.
#[derive(Debug)]
pub struct RemoteTxn {
    id: TxnId,
    stream: Stream,
    sent: Sent,
    /// An append was refused: what is left isn't what was to be written.
    refused: Option<RemoteError>,
}

impl RemoteTxn {
    /// Its name.
    pub fn id(&self) -> &TxnId {
        &self.id
    }

    /// Its records so far.
    pub fn records(&self) -> u64 {
        self.sent.records
    }

    /// Appends a batch. Returns as soon as it is sent, and waits only when too many are on their way; what is refused or lost is heard
    /// of at the latest in [`RemoteTxn::prepare`].
    ///
    /// # Errors
    /// This batch, or one before it, was refused or lost.
    pub fn append<'a>(
        &mut self,
        topic: TopicId,
        partition: u32,
        batch: impl Into<BatchSource<'a>>,
    ) -> Result<(), RemoteError> {
        let sent = self.stream.send(TopicPartition::new(topic, partition), batch.into(), false);
        let sent = sent.inspect_err(|error| self.refused = Some(error.clone()))?;
        self.sent.bytes += sent.bytes;
        self.sent.records += sent.records;
        Ok(())
    }

    /// Makes the transaction durable and hands its fate to its owner, as [`Txn::prepare`](crate::Txn::prepare). The log looks whether
    /// it holds all that was sent.
    ///
    /// # Errors
    /// Fenced; too large; something was lost on the way; the broker is away.
    pub fn prepare(mut self) -> Result<Prepared, RemoteError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        match self.stream.settle(0) {
            // Perhaps everything arrived and only the answers were lost: the log knows.
            Ok(()) | Err(RemoteError::Lost { .. }) => {}
            Err(refused) => return Err(refused),
        }
        if let Some(link) = self.stream.link.take() {
            self.stream.shared.keep(link);
        }
        let (id, sent) = (self.id.clone(), self.sent);
        let request = Request::Attempt { of: self.stream.of, ask: Ask::Prepare { id, sent } };
        match self.stream.shared.call(&request, "prepare a transaction")? {
            Answer::Done => Ok(Prepared { id: self.id.clone(), bytes: self.sent.bytes, records: self.sent.records }),
            other => Err(self.stream.shared.unexpected(&other)),
        }
    }
}

/// An idempotent producer outside of transactions. Clones share it.
#[derive(Clone, Debug)]
pub struct RemoteProducer {
    stream: Arc<Mutex<Stream>>,
}

impl RemoteProducer {
    /// Appends a batch. Returns as soon as it is sent, and waits only when too many are on their way.
    ///
    /// # Errors
    /// This batch, or one before it, was refused or lost.
    pub fn append<'a>(
        &self,
        topic: TopicId,
        partition: u32,
        batch: impl Into<BatchSource<'a>>,
    ) -> Result<(), RemoteError> {
        let mut stream = self.stream.lock().expect("no panic while sending");
        stream.send(TopicPartition::new(topic, partition), batch.into(), true).map(drop)
    }

    /// Waits until everything that was appended is durable.
    ///
    /// # Errors
    /// Something was refused or lost.
    pub fn wait(&self) -> Result<(), RemoteError> {
        self.stream.lock().expect("no panic while sending").settle(0)
    }
}
