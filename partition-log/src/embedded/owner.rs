//! An owner's attempt: begins transactions, decides about prepared ones, forgets outcomes.

use std::sync::Arc;

use super::Inner;
use super::transaction::Txn;
use crate::core::decide::{Asker, BeginPlan};
use crate::error::{AbortError, CommitError, TxnError};
use crate::group::GroupProgress;
use crate::held::Needs;
use crate::owner::{OwnerId, TxnId, TxnName};
use crate::status::TxnInfo;
use crate::wal::frame::Outcome;

/// The right of one attempt to write as its owner, until a newer attempt claims the log. Clones share it.
#[derive(Clone, Debug)]
pub struct Owner {
    pub(super) inner: Arc<Inner>,
    id: OwnerId,
    attempt: u64,
}

/// What a commit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOutcome {
    /// Committed now, all in one atomic write.
    pub committed: Vec<TxnId>,
    /// Committed before.
    pub already: Vec<TxnId>,
}

/// What an abort found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortOutcome {
    /// Aborted now.
    pub aborted: Vec<TxnId>,
    /// Aborted before.
    pub already: Vec<TxnId>,
}

impl Owner {
    pub(super) fn new(inner: Arc<Inner>, id: OwnerId, attempt: u64) -> Owner {
        Owner { inner, id, attempt }
    }

    /// The owner.
    pub fn id(&self) -> OwnerId {
        self.id
    }

    /// The attempt.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    fn asker(&self) -> Asker {
        Asker::Attempt { owner: self.id, attempt: self.attempt }
    }

    fn committer(&self) -> Asker {
        let shared = &self.inner.shared;
        match shared.platform.crash.is_planted("log.attempt-not-checked") {
            true => Asker::Attempt { owner: self.id, attempt: shared.lock().state.newest_attempt(self.id) },
            false => self.asker(),
        }
    }

    /// Begins a transaction. Doesn't wait: it becomes durable with its first batch, or its prepare.
    ///
    /// # Errors
    /// Fenced; the name is taken or none; too many are live or remembered; the log is down.
    pub fn begin(&self, name: TxnName) -> Result<Txn, TxnError> {
        let shared = &self.inner.shared;
        let wall = shared.wall();
        let mut core = shared.core_for(Needs::Growth)?;
        let planned = core.state.plan_begin(self.id, self.attempt, name, wall, &shared.limits)?;
        let BeginPlan { block, begin, id, producer, epoch } = planned;
        core.push_all(block);
        core.push(begin);
        let next = &mut core.state.next_producer;
        *next = (*next).max(producer + 1);
        let wake = core.wants_writer();
        drop(core);
        if wake {
            shared.wake_writer();
        }
        Ok(Txn::new(self.inner.clone(), id, producer, epoch))
    }

    /// Commits prepared transactions of this owner, of whichever attempt: all in one atomic write, so that no reader sees
    /// a part of them, or none. May be repeated until it answers; those that are committed already are no error.
    ///
    /// Durable and visible on return.
    ///
    /// # Errors
    /// Fenced; some were aborted, or are unknown, or not prepared (nothing is committed then); the log is down.
    pub fn commit(&self, ids: &[TxnId]) -> Result<CommitOutcome, CommitError> {
        let asker = self.committer();
        let plan = self.inner.commit(|state| state.plan_commit(asker, ids))?;
        Ok(CommitOutcome { committed: plan.now, already: plan.already })
    }

    /// As [`Owner::commit`], and says where groups stand by then: in the same write, behind the end of the transactions. So what a
    /// group is seen to have passed is never ahead of what is committed. With no transactions it is said all the same, by the
    /// newest attempt alone.
    ///
    /// It is for whoever watches: what the log doesn't take (a topic that was deleted, too many groups) is told to the
    /// program's traces, and the commit stands.
    ///
    /// # Errors
    /// As [`Owner::commit`].
    pub fn commit_with_progress(
        &self,
        ids: &[TxnId],
        progress: &[GroupProgress],
    ) -> Result<CommitOutcome, CommitError> {
        let (shared, asker) = (&self.inner.shared, self.committer());
        let plan = shared.carry_out(|core| {
            let plan = core.state.plan_commit(asker, ids)?;
            core.commit(&plan, shared);
            for GroupProgress { group, offsets } in progress {
                // Not as a part of a transaction: what ends with it was weighed when it was prepared.
                match core.state.judge_offsets(None, group, offsets.clone(), shared.wall(), &shared.limits) {
                    Ok(entry) => core.push(entry),
                    Err(error) => tracing::warn!(group, %error, "it can't be seen how far the job has come"),
                }
            }
            Ok::<_, CommitError>(plan)
        })?;
        Ok(CommitOutcome { committed: plan.now, already: plan.already })
    }

    /// Aborts open or prepared transactions of this owner, of whichever attempt. May be repeated.
    ///
    /// # Errors
    /// Fenced; some were committed, or are unknown (nothing is aborted then); the log is down.
    pub fn abort(&self, ids: &[TxnId]) -> Result<AbortOutcome, AbortError> {
        let plan = self.inner.abort(self.asker(), ids)?;
        Ok(AbortOutcome { aborted: plan.now, already: plan.already })
    }

    /// This owner's live transactions, of all attempts. Everything that is listed is durable.
    ///
    /// # Errors
    /// Fenced; the log is down.
    pub fn transactions(&self) -> Result<Vec<TxnInfo>, TxnError> {
        self.inner.shared.carry_out(|core| {
            core.state.check_attempt(self.id, self.attempt)?;
            let live = core.state.owners.get(&self.id).map(|owner| owner.live.values()).into_iter().flatten();
            Ok(live.filter_map(|producer| core.state.txns.get(producer)).filter_map(TxnInfo::of).collect())
        })
    }

    /// The outcomes that are still remembered of this owner's transactions, in order of their names.
    ///
    /// # Errors
    /// Fenced; the log is down.
    pub fn outcomes(&self) -> Result<Vec<(TxnId, Outcome)>, TxnError> {
        self.inner.shared.carry_out(|core| {
            core.state.check_attempt(self.id, self.attempt)?;
            let outcomes = core.state.owners.get(&self.id).map(|owner| owner.outcomes.iter());
            Ok(outcomes.into_iter().flatten().map(|(id, outcome)| (TxnId::clone(id), *outcome)).collect())
        })
    }

    /// Forgets the outcomes of ended transactions. Do so only with those that no retained manifest lists: committing them
    /// again answers `Unknown` afterwards. Ids that are unknown are fine.
    ///
    /// # Errors
    /// Fenced; some are live or belong to another owner (nothing is forgotten then); the log is down.
    pub fn forget(&self, ids: &[TxnId]) -> Result<(), TxnError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let entries = core.state.plan_forget(self.id, self.attempt, ids, &shared.limits)?;
            core.push_all(entries);
            Ok(())
        })
    }
}
