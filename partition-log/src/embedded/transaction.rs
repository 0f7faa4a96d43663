//! One open transaction and its writer.

use std::fmt;
use std::sync::Arc;

use super::Inner;
use super::producer::{BatchSource, Sequences};
use crate::accept::{Core, Shared, Waiter};
use crate::core::decide::{EndPlan, How};
use crate::error::{AbortError, AppendError, CommitError, PrepareError};
use crate::owner::TxnId;
use crate::topic::{TopicId, TopicPartition};

/// An open transaction. Dropped, it stays open in the log, until its owner aborts it or is claimed again, or until it times
/// out ([`LogLimits::transaction_timeout`](crate::LogLimits::transaction_timeout)).
#[derive(Debug)]
pub struct Txn {
    pub(super) inner: Arc<Inner>,
    pub(super) id: Arc<TxnId>,
    pub(super) sequences: Sequences,
    bytes: u64,
    records: u64,
}

/// A transaction whose records are durable and whose fate is its owner's to decide, at any later time, by this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Its name, for [`Owner::commit`](super::owner::Owner::commit) and
    /// [`Owner::abort`](super::owner::Owner::abort).
    pub id: TxnId,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
}

impl Txn {
    pub(super) fn new(inner: Arc<Inner>, id: Arc<TxnId>, producer: i64, epoch: i16) -> Txn {
        Txn { inner, id, sequences: Sequences::new(producer, epoch, true), bytes: 0, records: 0 }
    }

    /// Its name.
    pub fn id(&self) -> &TxnId {
        &self.id
    }

    /// Bytes of its batches so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Appends a batch. Returns as soon as it is queued, and waits only when too much is in flight; a disk that fails
    /// meanwhile is heard of at the latest in [`Txn::prepare`] or [`Txn::commit`].
    ///
    /// # Errors
    /// The batch isn't acceptable, the partition doesn't exist, the transaction is fenced or has been ended by somebody,
    /// or the log is down.
    pub fn append<'a>(
        &mut self,
        topic: TopicId,
        partition: u32,
        batch: impl Into<BatchSource<'a>>,
    ) -> Result<(), AppendError> {
        let at = TopicPartition::new(topic, partition);
        let stamped = self.sequences.stamp(at, batch.into(), &self.inner.shared.spares)?;
        let (bytes, records) = (stamped.bytes.len() as u64, stamped.records);
        let (batch, next) = stamped.into_parts();
        self.inner.shared.append(at, batch, false)?;
        self.sequences.accepted(at, next);
        self.bytes += bytes;
        self.records += records;
        Ok(())
    }

    /// Makes the transaction durable and hands its fate to its owner. It never times out. From here on committing it
    /// can't be refused: every limit that it could hit is checked here.
    ///
    /// # Errors
    /// Fenced; too large to be ended together with what is prepared already (it stays open, abort it); the log is down.
    pub fn prepare(self) -> Result<Prepared, PrepareError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let entry = core.state.plan_prepare(&self.id, shared.wall(), &shared.limits)?;
            core.push(entry);
            Ok::<_, PrepareError>(())
        })?;
        Ok(Prepared { id: Arc::unwrap_or_clone(self.id), bytes: self.bytes, records: self.records })
    }

    /// Commits without preparing: what was appended and the end become durable with one wait.
    ///
    /// # Errors
    /// Fenced; somebody has aborted it; the log is down.
    pub fn commit(self) -> Result<(), CommitError> {
        self.inner.commit(|state| state.plan_commit_open(&self.id)).map(drop)
    }

    /// As [`Txn::commit`], but answers at once with a ticket: one thread may have any number of commits on their way, which
    /// share the log's writes, and spare a change of threads each. Waits only when too much is in flight.
    ///
    /// # Errors
    /// Fenced; somebody has aborted it; the log is down.
    pub fn start_commit(self) -> Result<CommitTicket, CommitError> {
        let shared = &self.inner.shared;
        let waiter = shared.hand_in(|core| {
            let plan = core.state.plan_commit_open(&self.id)?;
            core.commit(&plan, shared);
            Ok::<_, CommitError>(())
        })?;
        Ok(CommitTicket { inner: self.inner.clone(), waiter })
    }

    /// Aborts it: read-committed readers will skip its records.
    ///
    /// # Errors
    /// Fenced; the log is down.
    pub fn abort(self) -> Result<(), AbortError> {
        let asker = crate::core::decide::Asker::Attempt { owner: self.id.owner, attempt: self.id.attempt };
        self.inner.abort(asker, std::slice::from_ref(&self.id)).map(drop)
    }
}

/// The answer to a commit that is on its way. Dropping it doesn't take the commit back.
pub struct CommitTicket {
    inner: Arc<Inner>,
    waiter: Waiter,
}

impl CommitTicket {
    /// Waits until the commit is durable and visible.
    ///
    /// # Errors
    /// The disk failed meanwhile: the outcome is unknown.
    pub fn wait(self) -> Result<(), CommitError> {
        Ok(self.inner.wait(&self.waiter)?)
    }

    /// The answer, if it has come; otherwise the ticket again.
    ///
    /// # Errors
    /// As [`CommitTicket::wait`].
    pub fn try_wait(self) -> Result<Result<(), CommitError>, CommitTicket> {
        self.waiter.try_take().map_or(Err(self), |answer| Ok(answer.map_err(CommitError::from)))
    }
}

impl fmt::Debug for CommitTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitTicket")
    }
}

impl Core {
    /// Commits what is planned, in one entry.
    pub(super) fn commit(&mut self, plan: &EndPlan, shared: &Shared) {
        if !plan.producers.is_empty() {
            let entries = self.state.end_entry(How::Commit, &plan.producers, shared.wall(), &shared.limits);
            self.push_all(entries);
        }
    }
}

impl Inner {
    /// Ends what `plan` names in one entry; waits until that, or an earlier end of the same, is durable and visible.
    pub(super) fn commit(
        &self,
        plan: impl FnOnce(&crate::core::State) -> Result<EndPlan, CommitError>,
    ) -> Result<EndPlan, CommitError> {
        let shared = &self.shared;
        shared.carry_out(|core| {
            let plan = plan(&core.state)?;
            core.commit(&plan, shared);
            Ok(plan)
        })
    }

    /// Aborts all of `ids`; waits until that, or an earlier end of the same, is durable and visible.
    pub(super) fn abort(&self, asker: crate::core::decide::Asker, ids: &[TxnId]) -> Result<EndPlan, AbortError> {
        let shared = &self.shared;
        shared.carry_out(|core| {
            let plan = core.state.plan_abort(asker, ids)?;
            core.abort(How::Abort, &plan.producers, shared.wall(), &shared.limits);
            Ok(plan)
        })
    }
}
