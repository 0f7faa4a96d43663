//! The commit group of a log: all sinks of a job on one log commit a checkpoint in one atomic write.
//!
//! The promise: [`CommitGroup::fence`] shuts out older attempts by one durable record of the log (I-7); a handle names one
//! prepared transaction, which never times out; [`CommitGroup::commit`] ends all of them in one entry of the log, however often
//! it is repeated, so that a reader never sees a part of a checkpoint (I-1, I-6).
//!
//! What Kafka's sinks of other engines can lose, and why this can't (each is tested):
//!
//! * Transactions that time out before their commit: prepared ones don't.
//! * Open transactions of a crashed job that hold up readers: fencing aborts them, in the claim itself.
//! * Leftovers of a removed worker, or under an old name prefix: found by listing the owner's transactions, never by guessing.
//! * An empty transaction that can't be committed: a writer without records has no transaction.
//! * "Already committed" taken for "lost", or the other way round: the log keeps outcomes until the janitor forgets them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutwater_engine::error::SinkError;
use cutwater_engine::id::{Attempt, JobId};
use cutwater_engine::sink::{CommitGroup, Committed, Room};
use cutwater_partition_log::{GroupProgress, Offset, OffsetCommit, OwnerId, TopicPartition, TxnId, TxnPhase};
use cutwater_platform::CrashPoints;

use super::at::{At, OwnerAt};
use super::follow;

/// The group's name in committables: one per job, since a job has one log of its own.
pub(crate) const NAME: &str = "log";
/// Format of a handle: this byte, then the transaction's name as text.
const HANDLE_VERSION: u8 = 1;

/// Commits what the log's sinks prepared.
#[derive(Debug)]
pub struct LogCommitGroup {
    log: At,
    crash: CrashPoints,
    /// The attempt that has fenced last. Only the log itself decides whether it may still write.
    owner: Mutex<Option<OwnerAt>>,
    /// What groups were told by this attempt; what hasn't moved isn't told again.
    told: Mutex<BTreeMap<(String, TopicPartition), Offset>>,
}

impl LogCommitGroup {
    pub(crate) fn new(log: At, crash: CrashPoints) -> LogCommitGroup {
        LogCommitGroup { log, crash, owner: Mutex::new(None), told: Mutex::default() }
    }

    /// The right to write, once the attempt has fenced.
    pub(crate) fn owner(&self) -> Result<OwnerAt, SinkError> {
        self.claimed().ok_or_else(|| failed("the log was not claimed by this attempt yet; fence comes first"))
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<(String, TopicPartition), Offset>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has moved since it was told last.
    fn news(&self, marks: &[GroupProgress]) -> Vec<GroupProgress> {
        let told = self.told();
        let moved = |GroupProgress { group, offsets }: &GroupProgress| {
            let is_new = |o: &&OffsetCommit| told.get(&(group.clone(), o.at)) != Some(&o.offset);
            GroupProgress { group: group.clone(), offsets: offsets.iter().filter(is_new).cloned().collect() }
        };
        marks.iter().map(moved).filter(|group| !group.offsets.is_empty()).collect()
    }

    /// The same, if it has.
    pub(crate) fn claimed(&self) -> Option<OwnerAt> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CommitGroup for LogCommitGroup {
    fn name(&self) -> &str {
        NAME
    }

    fn fence(&self, job: JobId, attempt: Attempt) -> Result<(), SinkError> {
        let owner = self.log.claim(OwnerId(job.0), attempt.0)?;
        self.crash.reach("group.fenced");
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(owner);
        // It may go on from an older place.
        self.told().clear();
        Ok(())
    }

    fn prepared(&self) -> Result<usize, SinkError> {
        let live = self.owner()?.transactions()?;
        Ok(live.iter().filter(|(_, phase)| *phase == TxnPhase::Prepared).count())
    }

    fn commit(&self, handles: &[Vec<u8>]) -> Result<Committed, SinkError> {
        if handles.is_empty() {
            return Ok(Committed::default());
        }
        let ids = decode_all(handles)?;
        let owner = self.owner()?;
        self.crash.reach("group.commit-sent");
        let outcome = owner.commit(&ids)?;
        self.crash.reach("group.committed");
        Ok(Committed { now: outcome.committed.len(), already: outcome.already.len() })
    }

    fn commit_and_tell(&self, handles: &[Vec<u8>], marks: &[Vec<u8>]) -> Result<Committed, SinkError> {
        let marks: Vec<GroupProgress> =
            marks.iter().map(|mark| follow::decode(mark).map_err(fatal)).collect::<Result<_, _>>()?;
        let news = self.news(&marks);
        if news.is_empty() {
            return self.commit(handles);
        }
        let ids = decode_all(handles)?;
        let owner = self.owner()?;
        self.crash.reach("group.commit-sent");
        let outcome = owner.commit_with_progress(&ids, &news)?;
        self.crash.reach("group.committed");
        let mut told = self.told();
        for GroupProgress { group, offsets } in news {
            told.extend(offsets.into_iter().map(|offset| ((group.clone(), offset.at), offset.offset)));
        }
        Ok(Committed { now: outcome.committed.len(), already: outcome.already.len() })
    }

    /// Forgets the outcomes of everything that is not in `keep`, too: no manifest lists it, so nobody will ever ask, and a job
    /// that crashes often must not fill the log with outcomes.
    fn abort_all_but(&self, keep: &[Vec<u8>]) -> Result<usize, SinkError> {
        let keep: BTreeSet<TxnId> = decode_all(keep)?.into_iter().collect();
        let owner = self.owner()?;
        let live = owner.transactions()?;
        let others: Vec<TxnId> = live.into_iter().map(|(id, _)| id).filter(|id| !keep.contains(id)).collect();
        let aborted = match others.is_empty() {
            true => 0,
            false => owner.abort(&others)?,
        };
        self.crash.reach("group.aborted-others");
        let unlisted: Vec<TxnId> = owner.ended()?.into_iter().filter(|id| !keep.contains(id)).collect();
        if !unlisted.is_empty() {
            owner.forget(&unlisted)?;
        }
        Ok(aborted)
    }

    fn forget(&self, handles: &[Vec<u8>]) -> Result<(), SinkError> {
        if handles.is_empty() {
            return Ok(());
        }
        self.owner()?.forget(&decode_all(handles)?)
    }

    /// A log without room stays open and reads on; one that has stopped, or is behind a broker, is opened anew.
    fn room(&self) -> Room {
        let At::Here(log) = &self.log else { return Room::Unknown };
        let status = log.status();
        match (status.down, status.no_room) {
            (Some(_), _) => Room::Unknown,
            (None, Some(lack)) => Room::Lacking { path: lack.path, bytes: lack.bytes },
            (None, None) => Room::Enough,
        }
    }
}

/// The handle of a prepared transaction.
pub(crate) fn encode_handle(id: &TxnId) -> Vec<u8> {
    let mut handle = vec![HANDLE_VERSION];
    handle.extend_from_slice(id.to_string().as_bytes());
    handle
}

fn decode_all(handles: &[Vec<u8>]) -> Result<Vec<TxnId>, SinkError> {
    handles.iter().map(|handle| decode_handle(handle)).collect()
}

fn decode_handle(handle: &[u8]) -> Result<TxnId, SinkError> {
    match handle.split_first() {
        Some((&HANDLE_VERSION, text)) => match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(id) => Ok(id),
            None => Err(fatal(format!(
                "the checkpoint names {} as a transaction, which is none",
                crate::codec::excerpt(text)
            ))),
        },
        Some((version, _)) => Err(fatal(format!(
            "the checkpoint holds a transaction in format {version}, this program reads {HANDLE_VERSION}; use the one that wrote it"
        ))),
        None => Err(fatal("the checkpoint holds an empty handle where a transaction was expected")),
    }
}

pub(crate) fn fenced() -> SinkError {
    SinkError::fenced(NAME)
}

pub(crate) fn failed(reason: impl ToString) -> SinkError {
    SinkError::failed(NAME, reason)
}

/// A log that is down stays down in this process, so an attempt that is started again would meet the same.
pub(crate) fn fatal(reason: impl ToString) -> SinkError {
    SinkError::fatal(NAME, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive_bytes_and_bad_ones_are_named() {
        let id = TxnId { owner: OwnerId(0xAB), attempt: 3, checkpoint: 7, sink: "late.v1".to_string(), writer: 2 };
        let handle = encode_handle(&id);
        assert_eq!(decode_handle(&handle).expect("just encoded"), id);
        for bad in [&b""[..], b"\x01", b"\x01x/1/2/s/3", b"\x02abc", b"\x01\xFF"] {
            assert!(matches!(decode_handle(bad), Err(SinkError::Fatal { .. })), "{bad:?}");
        }
    }
}
