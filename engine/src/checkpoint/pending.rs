//! One checkpoint between its trigger and its end, as the coordinator sees it.
//!
//! The promise (I-5): a checkpoint is [`Settled::Complete`] only if the ack frontier has passed it **and** every
//! instance of the plan has sent exactly one [`SnapshotRef`] for it.
//!
//! Why both. The frontier alone is fail-deadly: dropping a capability means "done" whatever the reason, so after a lost
//! acknowledgement, or behind a worker that caught a panic, the frontier passes all the same. The count alone can't say
//! when a declined checkpoint is over, and what it has prepared must be known before the next manifest is written.
//!
//! * Reports are taken until the frontier passes, also after a `Failed` or a time-out: their committables are carried
//!   over.
//! * When the frontier has passed and something is missing, or came twice, that is no declined checkpoint but a broken
//!   promise: [`Incomplete`] ends the attempt.

use std::collections::BTreeMap;
use std::fmt;

use crate::checkpoint::{SnapshotRef, StateFile};
use crate::id::{CheckpointId, InstanceId};

/// What an instance says about one checkpoint on its ack port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum SnapshotReport {
    /// Its part is durable.
    Durable(SnapshotRef),
    /// It couldn't make its part durable; its state goes on and the next checkpoint may succeed.
    Failed {
        /// Whose part.
        instance: InstanceId,
        /// What happened, for people.
        reason: String,
    },
}

impl SnapshotReport {
    /// Who reports.
    pub fn instance(&self) -> InstanceId {
        match self {
            SnapshotReport::Durable(snapshot) => snapshot.instance,
            SnapshotReport::Failed { instance, .. } => *instance,
        }
    }
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It counts.
    Accepted,
    /// This instance had reported; the first report stands, and the checkpoint can't be complete any more.
    Duplicate,
    /// The plan has no such instance; the checkpoint can't be complete any more.
    Unknown,
    /// The checkpoint isn't pending: it was settled before, or never triggered. Answered by the
    /// [`Ledger`](super::Ledger).
    Discarded,
}

/// Why a checkpoint was declined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeclineReason {
    /// An instance couldn't make its part durable.
    Failed {
        /// Which one.
        instance: InstanceId,
        /// What it said.
        reason: String,
    },
    /// It took too long.
    TimedOut {
        /// The limit, in milliseconds.
        after_ms: u64,
    },
}

impl fmt::Display for DeclineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclineReason::Failed { instance, reason } => write!(f, "{instance}: {reason}"),
            DeclineReason::TimedOut { after_ms } => write!(f, "not complete after {after_ms} ms"),
        }
    }
}

/// How a checkpoint ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Every instance's part is durable: publish the manifest. In the order of the instances.
    Complete(Vec<SnapshotRef>),
    /// Nothing is lost: what was prepared is carried over into the next manifest.
    Declined {
        /// All reasons, in the order in which they were found.
        reasons: Vec<DeclineReason>,
        /// The parts that are durable, in the order of the instances.
        durable: Vec<SnapshotRef>,
    },
}

/// The ack frontier has passed a checkpoint although the reports are not one per instance. Nothing may be published,
/// and the attempt ends: someone gave up a capability without having done what it stood for (I-11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Incomplete {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Instances that said nothing.
    pub missing: Vec<InstanceId>,
    /// Instances that reported more than once.
    pub repeated: Vec<InstanceId>,
    /// Reporters that the plan doesn't have.
    pub unknown: Vec<InstanceId>,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint {} was given up as done, but", self.checkpoint)?;
        for (instances, what) in
            [(&self.missing, "said nothing"), (&self.repeated, "reported twice"), (&self.unknown, "is not in the plan")]
        {
            for instance in instances {
                write!(f, " {instance} {what};")?;
            }
        }
        write!(f, " it is not published and the attempt ends")
    }
}

/// A checkpoint that has been triggered and isn't settled.
#[derive(Clone, Debug, Hash)]
pub struct PendingCheckpoint {
    checkpoint: CheckpointId,
    parts: BTreeMap<InstanceId, Option<SnapshotReport>>,
    reasons: Vec<DeclineReason>,
    repeated: Vec<InstanceId>,
    unknown: Vec<InstanceId>,
}

impl PendingCheckpoint {
    /// `plan` is every operator instance of the plan, sources and sinks included.
    ///
    /// # Panics
    ///
    /// Without instances, or if one is named twice: that isn't a plan.
    pub fn new(checkpoint: CheckpointId, plan: &[InstanceId]) -> PendingCheckpoint {
        let parts: BTreeMap<_, _> = plan.iter().map(|instance| (*instance, None)).collect();
        assert!(!parts.is_empty(), "a plan without instances has no checkpoints");
        assert_eq!(parts.len(), plan.len(), "an instance stands twice in the plan");
        PendingCheckpoint { checkpoint, parts, reasons: vec![], repeated: vec![], unknown: vec![] }
    }

    /// Which checkpoint.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// An instance reports.
    pub fn accept(&mut self, report: SnapshotReport) -> Accepted {
        let instance = report.instance();
        let Some(part) = self.parts.get_mut(&instance) else {
            self.unknown.push(instance);
            return Accepted::Unknown;
        };
        if part.is_some() {
            self.repeated.push(instance);
            return Accepted::Duplicate;
        }
        if let SnapshotReport::Failed { reason, .. } = &report {
            self.reasons.push(DeclineReason::Failed { instance, reason: reason.clone() });
        }
        *part = Some(report);
        Accepted::Accepted
    }

    /// It has taken too long. It stays pending, so that what is still prepared for it is carried over.
    pub fn time_out(&mut self, after_ms: u64) {
        self.reasons.push(DeclineReason::TimedOut { after_ms });
    }

    /// Whether it can't complete any more, because a part failed or it took too long.
    pub fn declined(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// The instances that haven't reported: whom a slow checkpoint waits for.
    pub fn awaited(&self) -> impl Iterator<Item = InstanceId> {
        self.parts.iter().filter(|(_, part)| part.is_none()).map(|(instance, _)| *instance)
    }

    /// The state files named so far; none of them may be deleted.
    pub fn files(&self) -> impl Iterator<Item = &StateFile> {
        self.parts
            .values()
            .filter_map(|part| match part {
                Some(SnapshotReport::Durable(snapshot)) => Some(snapshot),
                _ => None,
            })
            .flat_map(|snapshot| snapshot.chains.iter().flat_map(|chain| &chain.files))
    }

    /// The ack frontier has passed this checkpoint: no report can come any more.
    ///
    /// # Errors
    ///
    /// If the reports are not exactly one per instance.
    pub fn frontier_passed(self) -> Result<Settled, Incomplete> {
        let missing: Vec<InstanceId> = self.awaited().collect();
        if !missing.is_empty() || !self.repeated.is_empty() || !self.unknown.is_empty() {
            let PendingCheckpoint { checkpoint, repeated, unknown, .. } = self;
            return Err(Incomplete { checkpoint, missing, repeated, unknown });
        }
        let durable: Vec<SnapshotRef> = self
            .parts
            .into_values()
            .filter_map(|part| match part {
                Some(SnapshotReport::Durable(snapshot)) => Some(snapshot),
                _ => None,
            })
            .collect();
        Ok(match self.reasons {
            reasons if reasons.is_empty() => Settled::Complete(durable),
            reasons => Settled::Declined { reasons, durable },
        })
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
