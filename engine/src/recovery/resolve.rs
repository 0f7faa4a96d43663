//! From the facts found in a checkpoint store to the one thing that an attempt does first. Pure.
//!
//! ```text
//!   claim attempts/k -> fence all older ones -> read the facts -> RESOLVE -> record attempts/k.base -> commit, abort -> start
//! ```
//!
//! The timeline. Several attempts may have published manifests, and a dead one's last publication may appear late.
//! Which of them count is decided by the recorded bases alone: *the newest attempt with a base is the tip; its own
//! manifests count, the manifest it started from, those of that manifest's attempt up to there, and so on back to a
//! start from nothing.* What lies beside that is orphaned: nothing ever goes on from it. An attempt that recorded no
//! base did nothing that matters.
//!
//! It is the chain that counts, not the lowest base: an attempt that was overtaken between reading and recording may
//! record an old base late, and must not cut off what its successor stands on
//! (`docs/decisions/0010-timeline-by-chain.md`).
//!
//! What always holds, whatever the facts are (tested over all small ones, and over all interleavings of a small
//! protocol):
//!
//! * An orphaned manifest is never resumed from, and an attempt never starts below a committed manifest of the timeline
//!   unless a person asked for the fork.
//! * Everything that the timeline lists up to the base and that isn't recorded as committed is committed again, in
//!   order.
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
        /// Manifests outside the timeline once the base is recorded, in order. They may be swept then.
        orphaned: Vec<ManifestName>,
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
    /// The manifests, in this order, whose committables must be committed before anything runs: every one of the
    /// timeline up to the base that isn't recorded as committed.
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
    /// A base that can't have been a manifest of the attempt it names.
    #[error(
        "attempt {attempt} says that it started from {from}, which can't have been; the checkpoint store was tampered with"
    )]
    BrokenChain {
        /// The attempt.
        attempt: Attempt,
        /// What it says.
        from: ManifestName,
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
        "manifest {manifest} is committed, but the timeline passes over it without a fork ({by:?}); its output would be written twice"
    )]
    CommittedOrphan {
        /// The manifest.
        manifest: ManifestName,
        /// The next attempt of the timeline; `None` if there is none.
        by: Option<Attempt>,
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
    // 1. Is it still our turn? A claim of a higher number ends this attempt before it looks at anything else; so does a
    //    base under our own number, which only somebody else can have recorded.
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
    let chain = chain(facts)?;
    consistent(facts, &chain)?;
    let timeline: Vec<ManifestName> = facts.manifests.keys().copied().filter(|m| on_timeline(&chain, *m)).collect();
    let newest = timeline.last().copied();
    nothing_lost(facts, &chain, newest)?;

    // 3. From where?
    let next = next_checkpoint(facts);
    let base = match want {
        Want::Newest => match newest {
            Some(newest) => newest,
            None => {
                return Ok(Resolution::Fresh { next, orphaned: facts.manifests.keys().copied().collect() });
            }
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

/// What one attempt contributes to the timeline: its manifests above its base, up to where the next one took over.
#[derive(Clone, Copy, Debug)]
struct Link {
    attempt: Attempt,
    base: BaseFact,
    /// The last that counts; `None` at the tip, whose manifests all do.
    through: Option<CheckpointId>,
}

/// The attempts of the timeline, from the tip backwards.
fn chain(facts: &Facts) -> Result<Vec<Link>, Refusal> {
    let mut chain = vec![];
    let mut next = facts.bases.iter().next_back().map(|(attempt, base)| (*attempt, *base, None));
    while let Some((attempt, base, through)) = next {
        chain.push(Link { attempt, base, through });
        next = match base.from {
            None => None,
            Some(from) => {
                // Attempts fall from link to link, so this ends.
                let older = facts.bases.get(&from.attempt).filter(|older| {
                    from.attempt < attempt && older.from.is_none_or(|origin| origin.checkpoint < from.checkpoint)
                });
                let older = older.ok_or(Refusal::BrokenChain { attempt, from })?;
                Some((from.attempt, *older, Some(from.checkpoint)))
            }
        };
    }
    Ok(chain)
}

/// The links' numbers don't overlap, so no two manifests of the timeline have one number.
fn on_timeline(chain: &[Link], manifest: ManifestName) -> bool {
    chain.iter().any(|link| {
        link.attempt == manifest.attempt
            && link.base.from.is_none_or(|from| from.checkpoint < manifest.checkpoint)
            && link.through.is_none_or(|through| manifest.checkpoint <= through)
    })
}

fn consistent(facts: &Facts, chain: &[Link]) -> Result<(), Refusal> {
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
    for manifest in facts.committed.iter().filter(|m| !on_timeline(chain, **m)) {
        // A fenced attempt can't commit, and it was fenced before the facts were read: so without a fork nobody of the
        // timeline ever passes over a committed manifest. If one did, somebody's clock, disk or hand has broken a
        // promise.
        let successor = chain.iter().rev().find(|link| link.attempt > manifest.attempt);
        if successor.is_none_or(|link| !link.base.forked) {
            return Err(Refusal::CommittedOrphan { manifest: *manifest, by: successor.map(|link| link.attempt) });
        }
    }
    Ok(())
}

/// Retention never takes the newest of the timeline. So if the newest base or the newest record of a commit lies above
/// everything that is left, something was deleted that must not have been, and a fresh start would write all output
/// again.
fn nothing_lost(facts: &Facts, chain: &[Link], newest: Option<ManifestName>) -> Result<(), Refusal> {
    let base = chain.first().and_then(|tip| tip.base.from).map(|from| from.checkpoint);
    let committed = facts.committed.iter().filter(|m| on_timeline(chain, **m)).map(|m| m.checkpoint).next_back();
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
    let beyond = committed.len() + undecided.len();
    if beyond > 0 && !fork {
        return Err(Refusal::Forks { asked, committed, undecided });
    }
    Ok(base)
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
