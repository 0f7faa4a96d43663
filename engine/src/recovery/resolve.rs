//! From the facts found in a checkpoint store to the one thing that an attempt does first. Pure.
//!
//! ```text
//!   claim attempts/k -> fence all older ones -> read the facts -> RESOLVE -> record attempts/k.base -> commit, abort -> start
//! ```
//!
//! The timeline. Several attempts may have published manifests, and a dead one's last publication may appear late. Which of
//! them count is decided by the recorded bases alone: *a manifest counts only if no later attempt's base lies below it*. One that
//! doesn't is orphaned: nothing ever goes on from it. An attempt that recorded no base did nothing that matters.
//!
//! What always holds, whatever the facts are (tested over all small ones, and over all interleavings of a small protocol):
//!
//! * An orphaned manifest is never resumed from, and an attempt never starts below a committed manifest of the timeline unless
//!   a person asked for the fork.
//! * Everything that the timeline lists up to the base and that isn't recorded as committed is committed again, in order.
//! * The next checkpoint number is above every number ever seen, in whatever name.
//! * What can't be is refused with the names, never guessed around; nothing is changed by refusing.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{Attempt, CheckpointId};
use crate::snapshot::ManifestName;

/// Everything that an attempt has found, after it claimed its number and fenced the older ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The number that this attempt has claimed.
    pub own: Attempt,
    /// All claimed attempts, this one included.
    pub claimed: BTreeSet<Attempt>,
    /// The recorded bases.
    pub bases: BTreeMap<Attempt, BaseFact>,
    /// The manifests, with what is in them.
    pub manifests: BTreeMap<ManifestName, ManifestContent>,
    /// Manifests that are recorded as committed. A record may outlive its manifest.
    pub committed: BTreeSet<ManifestName>,
    /// The highest checkpoint number in any other name: state files, staged output.
    pub highest_named: CheckpointId,
}

/// Where an earlier attempt started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseFact {
    /// The manifest; `None` for a start from nothing.
    pub from: Option<ManifestName>,
    /// A person asked for an older point than the newest.
    pub forked: bool,
}

/// What is known of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestContent {
    /// Verified, and this program can restore from it.
    Good {
        /// Every source is exhausted in it.
        is_final: bool,
    },
    /// Verified, but this program can't restore from it: another plan, hash, or number of key groups.
    Foreign {
        /// What differs, what was expected, what was found.
        reason: String,
    },
    /// It exists and can't be read or verified.
    Damaged {
        /// What was found.
        reason: String,
    },
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To go on from the newest point.
    Newest,
    /// To go back to a certain checkpoint.
    Exactly {
        /// Which.
        checkpoint: CheckpointId,
        /// Even if output beyond it is committed or may be.
        fork: bool,
    },
}

/// What the attempt does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Starts from nothing.
    Fresh {
        /// The number of its first checkpoint.
        next: CheckpointId,
    },
    /// Goes on from a manifest.
    Resume(Resume),
    /// There is nothing left to do: the final manifest is committed.
    Finished {
        /// It.
        manifest: ManifestName,
    },
    /// Ends without a trace: a newer attempt has taken over.
    Fenced {
        /// The newest.
        by: Attempt,
    },
    /// Ends without having changed anything, and says why.
    Refuse(Refusal),
}

/// How to go on from a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The base to record and to restore from.
    pub manifest: ManifestName,
    /// It is final: once committed, there is nothing left to do.
    pub is_final: bool,
    /// The manifests, in this order, whose committables must be committed before anything runs: every one of the timeline up to
    /// the base that isn't recorded as committed.
    pub recommit: Vec<ManifestName>,
    /// This forks the timeline: the base must be recorded as forked.
    pub forks: bool,
    /// Manifests outside the timeline once the base is recorded, in order. They may be swept then.
    pub orphaned: Vec<ManifestName>,
    /// The number of the first checkpoint.
    pub next: CheckpointId,
}

/// Why an attempt must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The caller hasn't claimed its number.
    #[error("attempt {own} is not claimed; claim it before reading the facts")]
    NotClaimed {
        /// The number.
        own: Attempt,
    },
    /// A manifest or base of an attempt that was never claimed.
    #[error(
        "attempt {attempt} left traces but was never claimed; files are missing from the checkpoint store, or it was mixed with another"
    )]
    Unclaimed {
        /// The attempt.
        attempt: Attempt,
    },
    /// A manifest by an attempt that never recorded its base, or at or below it.
    #[error("manifest {manifest} can't be of attempt {attempt}, whose base is {base:?}; the checkpoint store was tampered with", attempt = manifest.attempt)]
    Impossible {
        /// The manifest.
        manifest: ManifestName,
        /// What is recorded of its attempt.
        base: Option<BaseFact>,
    },
    /// Two manifests of the timeline have one number.
    #[error("manifests {first} and {second} both count as checkpoint {}; the checkpoint store was tampered with", first.checkpoint)]
    Ambiguous {
        /// One.
        first: ManifestName,
        /// The other.
        second: ManifestName,
    },
    /// An attempt started from, or committed, something newer than anything that is left.
    #[error(
        "checkpoint {expected} is known to have existed, but the newest manifest left is {newest:?}; restore the checkpoint store from a copy"
    )]
    Lost {
        /// What must be there.
        expected: CheckpointId,
        /// What is there.
        newest: Option<ManifestName>,
    },
    /// A manifest that was committed lies outside the timeline although nobody forked it.
    #[error(
        "manifest {manifest} is committed but attempt {by} started below it without a fork; its output would be written twice"
    )]
    CommittedOrphan {
        /// The manifest.
        manifest: ManifestName,
        /// The attempt that started below it.
        by: Attempt,
    },
    /// A manifest that is needed can't be read.
    #[error(
        "manifest {manifest} is needed and can't be read: {reason}; restore it from a copy, or go back behind it with --fork"
    )]
    Damaged {
        /// The manifest.
        manifest: ManifestName,
        /// What was found.
        reason: String,
    },
    /// This program can't restore from the manifest.
    #[error("this program can't go on from manifest {manifest}: {reason}")]
    Foreign {
        /// The manifest.
        manifest: ManifestName,
        /// What differs.
        reason: String,
    },
    /// What was asked for isn't there.
    #[error("there is no checkpoint {asked} to go back to; there are {there:?}")]
    NoSuchCheckpoint {
        /// What was asked for.
        asked: CheckpointId,
        /// What could be asked for.
        there: Vec<CheckpointId>,
    },
    /// What was asked for lies below output that is committed or may be.
    #[error(
        "going back to checkpoint {asked} forks the timeline: output of {committed:?} is committed, that of {undecided:?} may be, and it would be written again; say --fork if that is meant"
    )]
    Forks {
        /// What was asked for.
        asked: CheckpointId,
        /// Manifests beyond it that are recorded as committed.
        committed: Vec<ManifestName>,
        /// Manifests beyond it that may be.
        undecided: Vec<ManifestName>,
    },
}

/// Decides.
pub fn resolve(facts: &Facts, want: Want) -> Resolution {
    match decide(facts, want) {
        Ok(resolution) => resolution,
        Err(refusal) => Resolution::Refuse(refusal),
    }
}

/// One more than the highest number in any manifest (orphaned or not), base, record of a commit, or other name.
pub fn next_checkpoint(facts: &Facts) -> CheckpointId {
    let manifests = facts.manifests.keys().chain(&facts.committed).map(|name| name.checkpoint);
    let bases = facts.bases.values().filter_map(|base| base.from).map(|name| name.checkpoint);
    manifests.chain(bases).fold(facts.highest_named, CheckpointId::max).next()
}

fn decide(facts: &Facts, want: Want) -> Result<Resolution, Refusal> {
    // 1. Is it still our turn? A claim of a higher number ends this attempt before it looks at anything else; so does a base
    //    under our own number, which only somebody else can have recorded.
    if let Some(by) = facts.claimed.iter().copied().chain(facts.bases.keys().copied()).filter(|a| *a > facts.own).max()
    {
        return Ok(Resolution::Fenced { by });
    }
    if facts.bases.contains_key(&facts.own) {
        return Ok(Resolution::Fenced { by: facts.own });
    }
    if !facts.claimed.contains(&facts.own) {
        return Err(Refusal::NotClaimed { own: facts.own });
    }

    // 2. Can the facts be?
    consistent(facts)?;
    let timeline = timeline(facts)?;
    let newest = timeline.last().copied();
    nothing_lost(facts, newest)?;

    // 3. From where?
    let next = next_checkpoint(facts);
    let base = match want {
        Want::Newest => match newest {
            Some(newest) => newest,
            None => return Ok(Resolution::Fresh { next }),
        },
        Want::Exactly { checkpoint, fork } => asked_for(facts, &timeline, checkpoint, fork)?,
    };
    let is_final = match &facts.manifests[&base] {
        ManifestContent::Good { is_final } => *is_final,
        ManifestContent::Foreign { reason } => {
            return Err(Refusal::Foreign { manifest: base, reason: reason.clone() });
        }
        ManifestContent::Damaged { reason } => {
            return Err(Refusal::Damaged { manifest: base, reason: reason.clone() });
        }
    };
    let forks = Some(base) != newest;
    if is_final && !forks && facts.committed.contains(&base) {
        return Ok(Resolution::Finished { manifest: base });
    }

    // 4. What is left to commit up to there?
    let recommit: Vec<ManifestName> =
        timeline.iter().copied().filter(|m| *m <= base && !facts.committed.contains(m)).collect();
    for manifest in &recommit {
        if let ManifestContent::Damaged { reason } = &facts.manifests[manifest] {
            return Err(Refusal::Damaged { manifest: *manifest, reason: reason.clone() });
        }
    }
    let stays: BTreeSet<ManifestName> = timeline.into_iter().filter(|m| *m <= base).collect();
    let orphaned = facts.manifests.keys().copied().filter(|m| !stays.contains(m)).collect();
    Ok(Resolution::Resume(Resume { manifest: base, is_final, recommit, forks, orphaned, next }))
}

/// Whether `manifest` lies on the timeline: `None` if it does, otherwise the attempt whose base lies below it.
fn orphaned_by(facts: &Facts, manifest: ManifestName) -> Option<(Attempt, BaseFact)> {
    facts
        .bases
        .iter()
        .filter(|(attempt, _)| **attempt > manifest.attempt)
        .find(|(_, base)| base.from.is_none_or(|from| from.checkpoint < manifest.checkpoint))
        .map(|(attempt, base)| (*attempt, *base))
}

fn consistent(facts: &Facts) -> Result<(), Refusal> {
    let traces = facts.manifests.keys().map(|m| m.attempt).chain(facts.bases.keys().copied());
    for attempt in traces {
        if !facts.claimed.contains(&attempt) {
            return Err(Refusal::Unclaimed { attempt });
        }
    }
    for manifest in facts.manifests.keys() {
        // The base is recorded before anything runs, and numbers never return.
        let base = facts.bases.get(&manifest.attempt).copied();
        let above = |base: BaseFact| base.from.is_none_or(|from| from.checkpoint < manifest.checkpoint);
        if !base.is_some_and(above) {
            return Err(Refusal::Impossible { manifest: *manifest, base });
        }
    }
    for manifest in &facts.committed {
        // A fenced attempt can't commit, and it was fenced before the facts were read: so without a fork a committed manifest
        // is never overtaken by a lower base. If it is, somebody's clock, disk or hand has broken a promise.
        if let Some((by, base)) = orphaned_by(facts, *manifest) {
            if !base.forked {
                return Err(Refusal::CommittedOrphan { manifest: *manifest, by });
            }
        }
    }
    Ok(())
}

/// The manifests that count, rising.
fn timeline(facts: &Facts) -> Result<Vec<ManifestName>, Refusal> {
    let counting: Vec<ManifestName> =
        facts.manifests.keys().copied().filter(|m| orphaned_by(facts, *m).is_none()).collect();
    for pair in counting.windows(2) {
        if pair[0].checkpoint == pair[1].checkpoint {
            return Err(Refusal::Ambiguous { first: pair[0], second: pair[1] });
        }
    }
    Ok(counting)
}

/// Retention never takes the newest of the timeline. So if the newest base or the newest record of a commit lies above
/// everything that is left, something was deleted that must not have been, and a fresh start would write all output again.
fn nothing_lost(facts: &Facts, newest: Option<ManifestName>) -> Result<(), Refusal> {
    let base = facts.bases.values().next_back().and_then(|base| base.from).map(|from| from.checkpoint);
    let committed =
        facts.committed.iter().filter(|m| orphaned_by(facts, **m).is_none()).map(|m| m.checkpoint).next_back();
    match base.max(committed) {
        Some(expected) if newest.is_none_or(|newest| newest.checkpoint < expected) => {
            Err(Refusal::Lost { expected, newest })
        }
        _ => Ok(()),
    }
}

fn asked_for(
    facts: &Facts,
    timeline: &[ManifestName],
    asked: CheckpointId,
    fork: bool,
) -> Result<ManifestName, Refusal> {
    let Some(base) = timeline.iter().copied().find(|m| m.checkpoint == asked) else {
        return Err(Refusal::NoSuchCheckpoint { asked, there: timeline.iter().map(|m| m.checkpoint).collect() });
    };
    let (committed, undecided): (Vec<ManifestName>, Vec<ManifestName>) =
        timeline.iter().copied().filter(|m| *m > base).partition(|m| facts.committed.contains(m));
    if !fork && !(committed.is_empty() && undecided.is_empty()) {
        return Err(Refusal::Forks { asked, committed, undecided });
    }
    Ok(base)
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
