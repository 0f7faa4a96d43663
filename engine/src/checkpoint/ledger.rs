//! What trigger and coordinator share on worker 0, as pure logic: which checkpoint starts when, what each manifest
//! lists, and in which order things are published and committed.
//!
//! ```text
//!   poll -> start -> [report ..] -> frontier -> next_publication -> published -> (commit) -> committed
//!                                        \-> declined: what was prepared is carried into the next manifest
//! ```
//!
//! * Numbers rise by one and never return.
//! * Manifest m lists everything prepared since the last manifest: its own committables and those of every checkpoint
//!   declined in between, older ones first. The permit for m covers exactly those (I-6).
//! * Manifests are published one at a time, in order; commits are acknowledged in order.
//! * A manifest with records in flight is never the last: they are still to be processed.
//! * A manifest is *final* if every instance in it says that it is exhausted. With the *last* manifest (final, or the
//!   one a stop asked for) committed and nothing under way, the trigger closes.
//! * What is a hint here (when to start) never decides what is correct; what is correct (what a manifest lists) never
//!   depends on time.
//!
//! Time is a `Duration` since any fixed moment; the caller reads the clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::checkpoint::pending::{Accepted, DeclineReason, Incomplete, PendingCheckpoint, Settled, SnapshotReport};
use crate::checkpoint::permit::{Permit, Published};
use crate::checkpoint::{Committable, SnapshotRef, StateFile};
use crate::id::{CheckpointId, InstanceId};

/// When checkpoints may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// From the start of one to the start of the next.
    pub interval: Duration,
    /// At most this many may be triggered and not settled; at least 1.
    pub in_flight_max: usize,
    /// At most this many may be triggered and neither committed nor declined; at least `in_flight_max`.
    pub uncommitted_max: usize,
    /// One that isn't settled after this time is declined.
    pub timeout: Duration,
    /// From the end of one (published or declined) to the start of the next, at least.
    pub pause: Duration,
}

/// What the trigger does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Start one: [`Ledger::start`].
    Start,
    /// Ask again at this time, or when something has happened.
    WaitUntil(Duration),
    /// Ask again when something has happened: a limit is reached, or the last checkpoint is under way.
    Wait,
    /// No barrier will follow: drop the trigger's capability.
    Close,
}

/// What the next manifest contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManifestDraft {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// One per instance of the plan, in order.
    pub snapshots: Vec<SnapshotRef>,
    /// Prepared for checkpoints that were declined since the last manifest, oldest first.
    pub carried: Vec<Committable>,
    /// Every source is exhausted: once this is committed the job is finished.
    pub is_final: bool,
}

impl ManifestDraft {
    /// Everything that the permit will cover: carried ones first, then those of the snapshots.
    pub fn committables(&self) -> Vec<Committable> {
        let own = self.snapshots.iter().flat_map(|snapshot| &snapshot.committables);
        self.carried.iter().chain(own).cloned().collect()
    }
}

/// A checkpoint in flight whose time is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// How many time-outs have passed since it started, at least 1.
    pub times: u32,
    /// The instances that haven't reported.
    pub missing: Vec<InstanceId>,
}

/// A checkpoint that came to nothing; its output is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Why.
    pub reasons: Vec<DeclineReason>,
}

#[derive(Clone, Debug, Hash)]
struct InFlight {
    started: Duration,
    pending: PendingCheckpoint,
}

/// A manifest that is being written.
#[derive(Clone, Debug, Hash)]
struct Publishing {
    checkpoint: CheckpointId,
    committables: Vec<Committable>,
    snapshots: Vec<SnapshotRef>,
}

/// The checkpoints of one attempt, from trigger to commit.
#[derive(Clone, Debug, Hash)]
pub struct Ledger {
    pace: Pace,
    plan: Vec<InstanceId>,
    sources: BTreeSet<InstanceId>,
    ready: BTreeSet<InstanceId>,
    stop: bool,
    next: CheckpointId,
    /// When the next one may start by the interval.
    due: Duration,
    /// The newest checkpoint started when no source had anything left, or after a stop: the last one if it completes.
    closing: Option<CheckpointId>,
    /// The last one was started at once. If it comes to nothing the next waits for its turn, or a lasting fault would
    /// be a busy loop.
    hurried: bool,
    in_flight: VecDeque<InFlight>,
    settled: VecDeque<(CheckpointId, Settled)>,
    publishing: Option<Publishing>,
    carried: Vec<Committable>,
    uncommitted: VecDeque<CheckpointId>,
    /// The last manifest has been drafted: no other will be needed unless it comes to nothing.
    last_drafted: bool,
    /// The newest durable part of each instance, whatever became of its checkpoint: the instance builds on these files.
    newest: BTreeMap<InstanceId, SnapshotRef>,
    /// Files that only declined checkpoints may have named.
    released: BTreeSet<String>,
    /// A promise was broken: nothing more is published.
    broken: bool,
}

impl Ledger {
    /// `plan`: every instance; `sources`: those that will say when they are exhausted; `first`: the number of the first
    /// checkpoint; `now`: the first one is due an interval later.
    ///
    /// # Panics
    ///
    /// If the pace lets nothing start, or a source isn't in the plan.
    pub fn new(
        pace: Pace,
        plan: Vec<InstanceId>,
        sources: impl IntoIterator<Item = InstanceId>,
        first: CheckpointId,
        now: Duration,
    ) -> Ledger {
        assert!(pace.in_flight_max > 0, "with no checkpoint in flight there is never one");
        assert!(
            pace.uncommitted_max >= pace.in_flight_max,
            "{} checkpoints may be in flight, but only {} uncommitted",
            pace.in_flight_max,
            pace.uncommitted_max
        );
        let sources: BTreeSet<InstanceId> = sources.into_iter().collect();
        assert!(sources.iter().all(|source| plan.contains(source)), "a source isn't in the plan");
        Ledger {
            pace,
            plan,
            sources,
            ready: BTreeSet::new(),
            stop: false,
            next: first,
            due: now + pace.interval,
            closing: None,
            hurried: false,
            in_flight: VecDeque::new(),
            settled: VecDeque::new(),
            publishing: None,
            carried: vec![],
            uncommitted: VecDeque::new(),
            last_drafted: false,
            newest: BTreeMap::new(),
            released: BTreeSet::new(),
            broken: false,
        }
    }

    /// Makes the first checkpoint due at `at` instead of an interval after the start: after a recovery, output that was replayed
    /// shall not wait for a whole interval.
    #[must_use]
    pub fn with_first_due(mut self, at: Duration) -> Ledger {
        self.due = at;
        self
    }

    /// A source instance has nothing left to read. May be said again; anyone else's word changes nothing.
    pub fn ready(&mut self, source: InstanceId) {
        if self.sources.contains(&source) {
            self.ready.insert(source);
        }
    }

    /// The job shall stop after one more checkpoint.
    pub fn request_stop(&mut self) {
        self.stop = true;
    }

    /// A person asks for a checkpoint: the next one is due at once, whatever interval and pause say.
    pub fn hurry(&mut self, now: Duration) {
        self.due = self.due.min(now);
    }

    /// Whether a checkpoint may start now.
    pub fn poll(&self, now: Duration) -> Trigger {
        if self.last_drafted {
            let rest = self.in_flight.len() + self.settled.len() + self.uncommitted.len();
            let idle = rest == 0 && self.publishing.is_none();
            return if idle { Trigger::Close } else { Trigger::Wait };
        }
        if self.closing.is_some() || self.in_flight.len() >= self.pace.in_flight_max {
            return Trigger::Wait;
        }
        if self.open_count() >= self.pace.uncommitted_max {
            return Trigger::Wait;
        }
        if now >= self.due || (self.wants_last() && !self.hurried) {
            Trigger::Start
        } else {
            Trigger::WaitUntil(self.due)
        }
    }

    /// Starts a checkpoint: its barrier is to be sent by every source.
    ///
    /// # Panics
    ///
    /// If [`Ledger::poll`] doesn't answer `Start`.
    pub fn start(&mut self, now: Duration) -> CheckpointId {
        assert_eq!(self.poll(now), Trigger::Start, "checkpoint {} was started against the rules", self.next);
        let checkpoint = self.next;
        self.next = checkpoint.next();
        self.due = now + self.pace.interval;
        if self.wants_last() {
            self.closing = Some(checkpoint);
            self.hurried = true;
        }
        self.in_flight.push_back(InFlight { started: now, pending: PendingCheckpoint::new(checkpoint, &self.plan) });
        checkpoint
    }

    /// An instance reports about a checkpoint.
    pub fn report(&mut self, checkpoint: CheckpointId, report: SnapshotReport) -> Accepted {
        let Some(flight) = self.in_flight.iter_mut().find(|flight| flight.pending.checkpoint() == checkpoint) else {
            return Accepted::Discarded;
        };
        let snapshot = match &report {
            SnapshotReport::Durable(snapshot) => Some(snapshot.clone()),
            SnapshotReport::Failed { .. } => None,
        };
        let accepted = flight.pending.accept(report);
        if let (Accepted::Accepted, Some(snapshot)) = (accepted, snapshot) {
            // Instances report in the order of their barriers.
            self.newest.insert(snapshot.instance, snapshot);
        }
        accepted
    }

    /// Declines what has taken too long; answers which. They stay in flight until the ack frontier has passed them.
    pub fn time_out(&mut self, now: Duration) -> Vec<CheckpointId> {
        let timeout = self.pace.timeout;
        let mut late = vec![];
        for flight in &mut self.in_flight {
            if !flight.pending.declined() && now >= flight.started + timeout {
                flight.pending.time_out(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
                late.push(flight.pending.checkpoint());
            }
        }
        late
    }

    /// The checkpoints in flight whose time is up, oldest first, whether or not they were declined for it.
    pub fn overdue(&self, now: Duration) -> Vec<Overdue> {
        let late = |flight: &InFlight| {
            let times = self.times_out(flight, now);
            let (checkpoint, missing) = (flight.pending.checkpoint(), flight.pending.awaited().collect());
            (times > 0).then_some(Overdue { checkpoint, times, missing })
        };
        self.in_flight.iter().filter_map(late).collect()
    }

    /// When [`Ledger::time_out`] may next have something to decline.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.in_flight.iter().filter(|f| !f.pending.declined()).map(|f| f.started + self.pace.timeout).min()
    }

    /// When [`Ledger::time_out`] or [`Ledger::overdue`] may next have something new to say.
    pub fn next_overdue(&self, now: Duration) -> Option<Duration> {
        let next = |flight: &InFlight| {
            let times = self.times_out(flight, now).saturating_add(1);
            flight.started.saturating_add(self.pace.timeout.saturating_mul(times))
        };
        self.in_flight.iter().map(next).min()
    }

    /// How many time-outs have passed over a checkpoint.
    fn times_out(&self, flight: &InFlight, now: Duration) -> u32 {
        let timeout = self.pace.timeout.as_nanos().max(1);
        u32::try_from(now.saturating_sub(flight.started).as_nanos() / timeout).unwrap_or(u32::MAX - 1)
    }

    /// One checkpoint has ended, published or declined: the next one waits at least for the pause. The last one of a job doesn't.
    pub fn rest(&mut self, now: Duration) {
        self.due = self.due.max(now + self.pace.pause);
    }

    /// The ack frontier stands at `frontier`: everything below has passed; `None` is the empty frontier. Answers what
    /// was declined; what is complete comes from [`Ledger::next_publication`].
    ///
    /// # Errors
    ///
    /// If a checkpoint has passed without exactly one report per instance: the attempt must end, nothing more may be
    /// published.
    pub fn frontier(&mut self, frontier: Option<CheckpointId>) -> Result<Vec<Declined>, Incomplete> {
        let mut declined = vec![];
        let passed = |flight: &mut InFlight| frontier.is_none_or(|at| flight.pending.checkpoint() < at);
        while let Some(InFlight { pending, .. }) = self.in_flight.pop_front_if(passed) {
            let checkpoint = pending.checkpoint();
            let settled = pending.frontier_passed().inspect_err(|_| self.broken = true)?;
            if let Settled::Declined { reasons, durable } = &settled {
                declined.push(Declined { checkpoint, reasons: reasons.clone() });
                release(&mut self.released, durable);
                self.came_to_nothing(checkpoint);
            }
            self.settled.push_back((checkpoint, settled));
        }
        Ok(declined)
    }

    /// The next manifest to publish, if there is one and none is being published.
    pub fn next_publication(&mut self) -> Option<ManifestDraft> {
        while self.publishing.is_none() && !self.broken {
            let (checkpoint, settled) = self.settled.pop_front()?;
            match settled {
                Settled::Declined { durable, .. } => self.carried.extend(committables_of(durable)),
                Settled::Complete(snapshots) => {
                    let is_final = snapshots.iter().all(|snapshot| snapshot.exhausted);
                    let carried = std::mem::take(&mut self.carried);
                    let draft = ManifestDraft { checkpoint, snapshots, carried, is_final };
                    let in_flight = draft.snapshots.iter().any(|snapshot| snapshot.channel_state().is_some());
                    if is_final || self.closing == Some(checkpoint) && !in_flight {
                        self.last_drafted = true;
                    } else {
                        // What the barrier overtook is processed after it, and needs a checkpoint after it.
                        self.came_to_nothing(checkpoint);
                    }
                    self.publishing = Some(Publishing {
                        checkpoint,
                        committables: draft.committables(),
                        snapshots: draft.snapshots.clone(),
                    });
                    return Some(draft);
                }
            }
        }
        None
    }

    /// The manifest being published is durable. The permit covers exactly what the manifest lists.
    ///
    /// # Panics
    ///
    /// If another one, or none, was being published.
    pub fn published(&mut self, proof: Published) -> Permit {
        let publishing = self.take_publishing(proof.checkpoint());
        self.uncommitted.push_back(publishing.checkpoint);
        Permit::new(proof, publishing.committables)
    }

    /// The manifest being published certainly doesn't exist and never will (it was refused before its name was made):
    /// the checkpoint is declined after all. Never for an unknown outcome: that ends the attempt.
    ///
    /// # Panics
    ///
    /// If another one, or none, was being published.
    pub fn not_published(&mut self, checkpoint: CheckpointId) {
        let publishing = self.take_publishing(checkpoint);
        // Nothing can have been carried meanwhile: that is added when the next draft is made.
        assert!(self.carried.is_empty(), "something was carried past manifest {checkpoint}");
        self.carried = publishing.committables;
        self.last_drafted = false;
        release(&mut self.released, &publishing.snapshots);
        self.came_to_nothing(checkpoint);
    }

    /// Everything that the manifest of `checkpoint` lists is committed, and that is recorded.
    ///
    /// # Panics
    ///
    /// If it isn't the oldest uncommitted one: commits run in order.
    pub fn committed(&mut self, checkpoint: CheckpointId) {
        let oldest = self.uncommitted.pop_front();
        assert_eq!(oldest, Some(checkpoint), "commits run in the order of checkpoints");
    }

    /// Prepared for declined checkpoints and not yet in a manifest.
    pub fn carried(&self) -> &[Committable] {
        &self.carried
    }

    /// The number that the next checkpoint will have.
    pub fn next(&self) -> CheckpointId {
        self.next
    }

    /// Checkpoints triggered and neither committed nor declined.
    pub fn open_count(&self) -> usize {
        let complete = self.settled.iter().filter(|(_, settled)| matches!(settled, Settled::Complete(_))).count();
        self.in_flight.len() + complete + usize::from(self.publishing.is_some()) + self.uncommitted.len()
    }

    /// Published and not yet committed, oldest first.
    pub fn uncommitted(&self) -> impl Iterator<Item = CheckpointId> {
        self.uncommitted.iter().copied()
    }

    /// The instances that the oldest checkpoint in flight waits for.
    pub fn awaited(&self) -> Vec<InstanceId> {
        self.in_flight.front().map(|flight| flight.pending.awaited().collect()).unwrap_or_default()
    }

    /// Names of the state files that this attempt may still put into a manifest: those of everything not yet published,
    /// and of the newest part of each instance, declined or not. None of them may be deleted.
    pub fn live_files(&self) -> BTreeSet<String> {
        let settled = self.settled.iter().flat_map(|(_, settled)| match settled {
            Settled::Complete(snapshots) => snapshots,
            Settled::Declined { durable, .. } => durable,
        });
        let publishing = self.publishing.iter().flat_map(|publishing| &publishing.snapshots);
        let newest = self.newest.values();
        let whole = settled.chain(publishing).chain(newest).flat_map(files_of);
        let pending = self.in_flight.iter().flat_map(|flight| flight.pending.files());
        whole.chain(pending).map(|file| file.name.clone()).collect()
    }

    /// Files that declined checkpoints named: candidates for deletion, once nothing else names them. Taken out; those
    /// that are still named go back in with [`Ledger::release`].
    pub fn take_released(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.released)
    }

    /// Puts back candidates that something still names.
    pub fn release(&mut self, files: BTreeSet<String>) {
        self.released.extend(files);
    }

    fn wants_last(&self) -> bool {
        // Without sources nothing will ever be said; then only a stop ends the job.
        self.stop || (!self.sources.is_empty() && self.ready.len() == self.sources.len())
    }

    fn came_to_nothing(&mut self, checkpoint: CheckpointId) {
        if self.closing == Some(checkpoint) {
            self.closing = None;
        }
    }

    fn take_publishing(&mut self, checkpoint: CheckpointId) -> Publishing {
        match self.publishing.take() {
            Some(publishing) if publishing.checkpoint == checkpoint => publishing,
            other => panic!(
                "manifest {checkpoint} is said to be published, but the one under way is {:?}",
                other.map(|publishing| publishing.checkpoint)
            ),
        }
    }
}

fn committables_of(snapshots: Vec<SnapshotRef>) -> impl Iterator<Item = Committable> {
    snapshots.into_iter().flat_map(|snapshot| snapshot.committables)
}

fn files_of(snapshot: &SnapshotRef) -> impl Iterator<Item = &StateFile> {
    snapshot.chains.iter().flat_map(|chain| &chain.files)
}

fn release(released: &mut BTreeSet<String>, snapshots: &[SnapshotRef]) {
    released.extend(snapshots.iter().flat_map(files_of).map(|file| file.name.clone()));
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
