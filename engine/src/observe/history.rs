//! The last checkpoints of a run: how long each phase took, and which instance held it up.
//!
//! ```text
//!   trigger -> Barrier -> Alignment -> Seal -> Encode -> Write -> Publish -> Commit
//!              each instance for itself, one after the other      the coordinator
//! ```
//!
//! * A phase of the instances is as long as it took the one that took longest, and that one is named. The phases of one instance
//!   follow each other; the longest of different instances may overlap, so they don't add up to the whole.
//! * [`CheckpointPhase::Barrier`] names another: the one in front of which the barrier stood longest, counted from when it was
//!   sent. An instance further down has waited as long and longer, but had no part in it.
//! * Times are the process's monotonic clock's. Nothing is decided from them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::checkpoint::{PartTimes, SnapshotRef, StateFileKind};
use crate::graph::Plan;
use crate::id::{Attempt, CheckpointId, InstanceId, OperatorId, WorkerIndex};
use crate::observe::standing::{InstanceName, Waiting};
use crate::snapshot::StateFileName;

/// A phase of a checkpoint, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum CheckpointPhase {
    /// From the trigger to the barrier's arrival at the instance.
    Barrier,
    /// From the first barrier to the last one, which is the cut.
    Alignment,
    /// Freezing state and sealing output, at the cut, while nothing else happens on the worker.
    Seal,
    /// Encoding the frozen state, between batches.
    Encode,
    /// Waiting for the I/O thread, writing and syncing state, preparing output.
    Write,
    /// From the last report to a durable manifest.
    Publish,
    /// From there to visible output.
    Commit,
}

impl fmt::Display for CheckpointPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointPhase::Barrier => "barrier",
            CheckpointPhase::Alignment => "alignment",
            CheckpointPhase::Seal => "seal",
            CheckpointPhase::Encode => "encode",
            CheckpointPhase::Write => "write",
            CheckpointPhase::Publish => "publish",
            CheckpointPhase::Commit => "commit",
        })
    }
}

/// How long a phase took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseTime {
    /// The phase.
    pub phase: CheckpointPhase,
    /// The longest that any instance took.
    pub took: Duration,
    /// The instance that held it up; `None` for what the coordinator does.
    pub by: Option<InstanceName>,
}

/// How a checkpoint stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum CheckpointState {
    /// Triggered; not every instance has reported.
    InFlight,
    /// Every instance has reported; the manifest is being written.
    Publishing,
    /// Complete: its manifest is durable.
    Complete,
    /// Its output is visible.
    Committed,
    /// It came to nothing, for these reasons. Its output is covered by the next one.
    Declined(String),
}

/// What is known of one checkpoint of this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointRecord {
    /// Its number.
    pub checkpoint: CheckpointId,
    /// The attempt that triggered it.
    pub attempt: Attempt,
    /// When, by the wall clock, in milliseconds since 1970.
    pub triggered_ms: i64,
    /// How it stands.
    pub state: CheckpointState,
    /// The phases that are over, in order.
    pub phases: Vec<PhaseTime>,
    /// From the trigger to its end, whichever that was; `None` while there is none.
    pub took: Option<Duration>,
    /// State files written for it.
    pub files: u64,
    /// Of those, the ones that hold everything; the others hold changes.
    pub bases: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whom it was waiting for when its time was up; empty if it never was.
    pub waited_for: Vec<Waiting>,
}

impl CheckpointRecord {
    /// How long a phase took, if it is over.
    pub fn phase(&self, phase: CheckpointPhase) -> Option<&PhaseTime> {
        self.phases.iter().find(|p| p.phase == phase)
    }

    /// The phase that took longest, of those that are over.
    pub fn longest(&self) -> Option<&PhaseTime> {
        self.phases.iter().max_by_key(|p| p.took)
    }
}

/// One line: "checkpoint 7 of attempt 1: committed after 12.3 ms; barrier 4.0 (count on worker 1), ...; 3 files, 1 of them bases, 4096 bytes".
impl fmt::Display for CheckpointRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        write!(f, "checkpoint {} of attempt {}: ", self.checkpoint, self.attempt)?;
        match &self.state {
            CheckpointState::InFlight => f.write_str("in flight")?,
            CheckpointState::Publishing => f.write_str("being published")?,
            CheckpointState::Complete => f.write_str("complete")?,
            CheckpointState::Committed => f.write_str("committed")?,
            CheckpointState::Declined(reasons) => write!(f, "declined ({reasons})")?,
        }
        if let Some(took) = self.took {
            write!(f, " after {:.1} ms", ms(took))?;
        }
        for (i, phase) in self.phases.iter().enumerate() {
            write!(f, "{} {} {:.1}", if i == 0 { ";" } else { "," }, phase.phase, ms(phase.took))?;
            if let Some(by) = &phase.by {
                write!(f, " ({by})")?;
            }
        }
        if self.files > 0 {
            write!(f, "; {} files, {} of them bases, {} bytes", self.files, self.bases, self.bytes)?;
        }
        Ok(())
    }
}

/// Which instances there are, and who sends to whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    names: BTreeMap<OperatorId, String>,
    /// For each operator those that it reads from, and whether by key (then every worker sends to every worker).
    inputs: BTreeMap<OperatorId, Vec<(OperatorId, bool)>>,
    workers: u32,
}

impl Layout {
    pub(crate) fn of(plan: &Plan, workers: u32) -> Layout {
        let names = plan.nodes.iter().map(|n| (n.id, n.name.clone())).collect();
        let inputs = |n: &crate::graph::PlanNode| n.inputs.iter().map(|e| (e.from, e.by_key)).collect();
        Layout { names, inputs: plan.nodes.iter().map(|n| (n.id, inputs(n))).collect(), workers }
    }

    fn name(&self, id: InstanceId) -> InstanceName {
        let operator = self.names.get(&id.operator).cloned().unwrap_or_else(|| id.operator.to_string());
        InstanceName { operator, worker: id.worker.0 }
    }

    /// Those who send to an instance.
    fn senders(&self, id: InstanceId) -> impl Iterator<Item = InstanceId> {
        let inputs = self.inputs.get(&id.operator).into_iter().flatten();
        inputs.flat_map(move |(operator, by_key)| {
            let workers = if *by_key { 0..self.workers } else { id.worker.0..id.worker.0 + 1 };
            workers.map(move |w| InstanceId { operator: *operator, worker: WorkerIndex(w) })
        })
    }
}

/// A checkpoint and what its instances have said.
#[derive(Clone, Debug)]
struct Kept {
    record: CheckpointRecord,
    triggered: Duration,
    /// Until all have reported.
    parts: BTreeMap<InstanceId, PartTimes>,
    /// The end of the phase before the one that the coordinator is at.
    last: Duration,
}

/// The last checkpoints of a run, over its attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    kept: VecDeque<Kept>,
    keep: usize,
    layout: Layout,
    attempt: Attempt,
}

impl History {
    /// An attempt begins; what earlier ones left in flight stays so, as they left it.
    pub(crate) fn begin(&mut self, attempt: Attempt, layout: Layout, keep: usize) {
        (self.attempt, self.layout, self.keep) = (attempt, layout, keep);
    }

    pub(crate) fn triggered(&mut self, n: CheckpointId, now: Duration, wall_ms: i64) {
        let record = CheckpointRecord {
            checkpoint: n,
            attempt: self.attempt,
            triggered_ms: wall_ms,
            state: CheckpointState::InFlight,
            phases: vec![],
            took: None,
            files: 0,
            bases: 0,
            bytes: 0,
            waited_for: vec![],
        };
        self.kept.push_back(Kept { record, triggered: now, parts: BTreeMap::new(), last: now });
        while self.kept.len() > self.keep {
            self.kept.pop_front();
        }
    }

    /// An instance has reported: when it did what, and what it wrote, if it could.
    pub(crate) fn reported(
        &mut self,
        n: CheckpointId,
        instance: InstanceId,
        times: PartTimes,
        snapshot: Option<&SnapshotRef>,
    ) {
        let Some(kept) = self.find(n) else { return };
        kept.parts.insert(instance, times);
        let files = snapshot.into_iter().flat_map(|s| &s.chains).flat_map(|chain| &chain.files);
        for file in files.filter(|f| StateFileName::parse(&f.name).is_some_and(|name| name.checkpoint == n)) {
            kept.record.files += 1;
            kept.record.bases += u64::from(file.kind == StateFileKind::Base);
            kept.record.bytes += file.bytes;
        }
    }

    /// Every instance has reported.
    pub(crate) fn complete(&mut self, n: CheckpointId, now: Duration) {
        let layout = std::mem::take(&mut self.layout);
        if let Some(kept) = self.find(n) {
            kept.record.state = CheckpointState::Publishing;
            kept.record.phases = phases(&layout, kept.triggered, &std::mem::take(&mut kept.parts));
            kept.last = now;
        }
        self.layout = layout;
    }

    pub(crate) fn published(&mut self, n: CheckpointId, now: Duration) {
        self.step(n, CheckpointPhase::Publish, CheckpointState::Complete, now);
    }

    pub(crate) fn committed(&mut self, n: CheckpointId, now: Duration) {
        self.step(n, CheckpointPhase::Commit, CheckpointState::Committed, now);
        if let Some(kept) = self.find(n) {
            kept.record.took = Some(now.saturating_sub(kept.triggered));
        }
    }

    pub(crate) fn timed_out(&mut self, n: CheckpointId, waiting: Vec<Waiting>) {
        if let Some(kept) = self.find(n) {
            kept.record.waited_for = waiting;
        }
    }

    pub(crate) fn declined(&mut self, n: CheckpointId, reasons: &str, now: Duration) {
        let layout = std::mem::take(&mut self.layout);
        if let Some(kept) = self.find(n) {
            if kept.record.phases.is_empty() {
                kept.record.phases = phases(&layout, kept.triggered, &std::mem::take(&mut kept.parts));
            }
            kept.record.state = CheckpointState::Declined(reasons.to_string());
            kept.record.took = Some(now.saturating_sub(kept.triggered));
        }
        self.layout = layout;
    }

    /// All that are kept, oldest first.
    pub(crate) fn records(&self) -> Vec<CheckpointRecord> {
        self.kept.iter().map(|kept| kept.record.clone()).collect()
    }

    fn step(&mut self, n: CheckpointId, phase: CheckpointPhase, state: CheckpointState, now: Duration) {
        if let Some(kept) = self.find(n) {
            let took = now.saturating_sub(std::mem::replace(&mut kept.last, now));
            kept.record.phases.push(PhaseTime { phase, took, by: None });
            kept.record.state = state;
        }
    }

    /// The newest of this number: an attempt's checkpoint may have the number of one that came to nothing with its attempt.
    fn find(&mut self, n: CheckpointId) -> Option<&mut Kept> {
        self.kept.iter_mut().rev().find(|kept| kept.record.checkpoint == n)
    }
}

/// The phases of the instances: how long the slowest took, and who held it up.
fn phases(layout: &Layout, triggered: Duration, parts: &BTreeMap<InstanceId, PartTimes>) -> Vec<PhaseTime> {
    if parts.is_empty() {
        return vec![];
    }
    let wait = |part: &PartTimes| part.reached.saturating_sub(triggered);
    // From the moment at which the first of its senders sent the barrier.
    let stood_before = |id: InstanceId, part: &PartTimes| {
        let sent = layout.senders(id).filter_map(|sender| parts.get(&sender)).map(|sender| sender.cut).min();
        part.reached.saturating_sub(sent.unwrap_or(triggered))
    };
    let before = parts.iter().max_by_key(|(id, part)| stood_before(**id, part)).map(|(id, _)| *id);
    let mut all = vec![PhaseTime {
        phase: CheckpointPhase::Barrier,
        took: parts.values().map(wait).max().unwrap_or_default(),
        by: before.map(|id| layout.name(id)),
    }];
    type Took = fn(&PartTimes) -> Duration;
    let of_one: [(CheckpointPhase, Took); 4] = [
        (CheckpointPhase::Alignment, |t| t.cut.saturating_sub(t.reached)),
        (CheckpointPhase::Seal, |t| t.sealed.saturating_sub(t.cut)),
        (CheckpointPhase::Encode, |t| t.encoded.saturating_sub(t.sealed)),
        (CheckpointPhase::Write, |t| t.written.saturating_sub(t.encoded)),
    ];
    for (phase, took) in of_one {
        let slowest = parts.iter().map(|(id, part)| (took(part), *id)).max_by_key(|(took, _)| *took);
        if let Some((took, id)) = slowest {
            all.push(PhaseTime { phase, took, by: Some(layout.name(id)) });
        }
    }
    all
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
