//! The control plane on worker 0, as timely operators without a cycle:
//!
//! ```text
//!   trigger --barriers--> sources .. sinks --acks--> coordinator --permits--> committer --committed--> janitor
//! ```
//!
//! * The trigger's capability is the right to start checkpoints; when it is dropped no barrier will ever follow.
//! * The coordinator publishes a manifest, and only a published manifest makes a permit.
//! * The committer commits what a permit lists, in the order of checkpoints; one atomic step per commit group.
//! * The janitor records that, retires what is no longer needed, lets commit groups forget, and lets the trigger go on.
//!
//! What they share on worker 0 is the [`Ledger`]. When to start a checkpoint is a hint in it; what a manifest lists is not.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, CrashPoints, Platform};
use timely::dataflow::operators::Capability;

use crate::checkpoint::{
    Ledger, ManifestDraft, OutOfPatience, Patience, Permit, Published, StoredManifest, Trigger as Next, retire,
};
use crate::exchange::KeyGroups;
use crate::id::CheckpointId;
use crate::observe::{Progress, in_words};
use crate::sink::Committed;
use crate::snapshot::{
    CheckpointStore, CommittedRecord, HashIdentity, Manifest, ManifestName, ManifestPoint, Owner, PlanIdentity,
    SavepointError, SavepointRecord, SavepointState, SavepointTicket, StateFileName, StoreError, take,
};
use crate::worker::attempt::Failure;
use crate::worker::groups::{Groups, Marks};
use crate::worker::offload::{Offload, Results};
use crate::worker::place::Alarm;
use crate::worker::ports::Ack;

/// What all parts of the control plane use.
#[derive(Clone)]
pub(crate) struct Plane {
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) crash: CrashPoints,
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) owner: Owner,
    pub(crate) groups: Arc<Groups>,
    pub(crate) offload: Rc<Offload>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) platform: Platform,
    /// Where savepoints are written, beside everything else.
    pub(crate) exports: Rc<Offload>,
    /// Wakes the trigger.
    pub(crate) wake_trigger: Rc<RefCell<Option<Alarm>>>,
    /// The timeline's manifests that are in the store.
    pub(crate) timeline: Rc<RefCell<Vec<Kept>>>,
    pub(crate) retained: usize,
    pub(crate) patience: Rc<RefCell<Patience>>,
    pub(crate) retained_for: Duration,
    /// Whether a manifest holds the effect of exactly the records before its barriers.
    pub(crate) exact: bool,
    pub(crate) plan: PlanIdentity,
    pub(crate) workers: u32,
    pub(crate) key_groups: KeyGroups,
}

/// A manifest in the store and what it lists.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) point: ManifestPoint,
    pub(crate) committed: bool,
    /// When this attempt published or found it, by the monotonic clock.
    pub(crate) since: Duration,
    pub(crate) is_final: bool,
    pub(crate) files: BTreeSet<String>,
    pub(crate) handles: BTreeMap<String, Vec<Vec<u8>>>,
    /// What commit groups are told of its sources with its commit.
    pub(crate) marks: Marks,
    /// Its barriers overtook records.
    pub(crate) in_flight: bool,
    /// Savepoints being written of it: none of its files may go.
    pub(crate) pins: usize,
}

impl Kept {
    pub(crate) fn of(manifest: &Manifest, checksum: u64, committed: bool, since: Duration) -> Kept {
        let files = manifest.snapshots.iter().flat_map(|s| &s.chains).flat_map(|c| &c.files);
        let mut handles: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for committable in manifest.committables() {
            handles.entry(committable.group.clone()).or_default().push(committable.handle.clone());
        }
        let point = ManifestPoint { checkpoint: manifest.checkpoint, attempt: manifest.attempt, checksum };
        let files = files.map(|f| f.name.clone()).collect();
        let in_flight = manifest.snapshots.iter().any(|snapshot| snapshot.channel_state().is_some());
        Kept {
            point,
            committed,
            since,
            is_final: manifest.is_final,
            files,
            handles,
            marks: Marks::new(),
            in_flight,
            pins: 0,
        }
    }
}

impl From<OutOfPatience> for Failure {
    fn from(out: OutOfPatience) -> Failure {
        Failure::Restart(out.to_string())
    }
}

impl Plane {
    /// Declines what has taken too long, and says whom it waits for.
    fn time_out(&self, now: Duration) -> Result<(), Failure> {
        let overdue = {
            let mut ledger = self.ledger.borrow_mut();
            ledger.time_out(now);
            ledger.overdue(now)
        };
        for late in overdue {
            if !self.patience.borrow().is_news(late.checkpoint, late.times) {
                continue;
            }
            let waiting = self.progress.timed_out(late.checkpoint, &late.missing);
            let text = format!("it took too long, and still waits for this: {}", in_words(&waiting));
            tracing::warn!(checkpoint = late.checkpoint.0, times = late.times, "checkpoint declined: {text}");
            self.patience.borrow_mut().late(late.checkpoint, late.times, &text)?;
        }
        Ok(())
    }

    /// A checkpoint came to nothing; too many in a row end the attempt.
    fn declined(&self, checkpoint: CheckpointId, reason: &str) -> Result<(), Failure> {
        tracing::warn!(checkpoint = checkpoint.0, reason, "checkpoint declined");
        let now = self.clock.monotonic();
        self.progress.declined(checkpoint, reason, now);
        self.ledger.borrow_mut().rest(now);
        self.wake_trigger();
        Ok(self.patience.borrow_mut().declined(checkpoint, reason)?)
    }

    fn wake_trigger(&self) {
        if let Some(trigger) = self.wake_trigger.borrow().as_ref() {
            trigger.activate();
        }
    }
}

/// Starts checkpoints.
pub(crate) struct Trigger {
    plane: Plane,
    capability: Option<Capability<u64>>,
    activator: Alarm,
}

impl Trigger {
    pub(crate) fn new(plane: Plane, mut capability: Capability<u64>, activator: Alarm) -> Trigger {
        capability.downgrade(&plane.ledger.borrow().next().0);
        *plane.wake_trigger.borrow_mut() = Some(activator.clone());
        Trigger { plane, capability: Some(capability), activator }
    }

    /// One activation: `send` broadcasts a barrier at a capability.
    pub(crate) fn step(&mut self, mut send: impl FnMut(&Capability<u64>, CheckpointId)) -> Result<(), Failure> {
        let now = self.plane.clock.monotonic();
        // Looked at once: what is started from here on is the last one, or it isn't.
        let stopped = self.plane.progress.stop_requested();
        {
            let mut ledger = self.plane.ledger.borrow_mut();
            if stopped {
                ledger.request_stop();
            }
            if self.plane.progress.savepoints().take_up(ledger.next(), stopped) {
                ledger.hurry(now);
            }
        }
        self.plane.time_out(now)?;
        while let Some(capability) = &mut self.capability {
            let next = self.plane.ledger.borrow().poll(now);
            match next {
                Next::Start => {
                    let n = self.plane.ledger.borrow_mut().start(now);
                    self.plane.progress.triggered(n, now, self.plane.clock.wall().0);
                    self.plane.crash.reach("trigger.fired");
                    send(capability, n);
                    capability.downgrade(&n.next().0);
                }
                Next::WaitUntil(at) => {
                    self.activator.activate_after(at.saturating_sub(now));
                    break;
                }
                Next::Wait => break,
                Next::Close => {
                    self.plane.crash.reach("trigger.closed");
                    self.capability = None;
                }
            }
        }
        if let Some(at) = self.plane.ledger.borrow().next_overdue(now).filter(|_| self.capability.is_some()) {
            self.activator.activate_after(at.saturating_sub(now));
        }
        Ok(())
    }
}

/// Collects reports, publishes manifests.
pub(crate) struct Coordinator {
    plane: Plane,
    /// One per checkpoint that may still become a permit.
    capabilities: BTreeMap<CheckpointId, Capability<u64>>,
    /// The manifest that is being written; one at a time.
    publishing: Option<Kept>,
    published: Results<Result<Published, StoreError>>,
}

impl Coordinator {
    pub(crate) fn new(plane: Plane, waker: crate::source::Waker) -> Coordinator {
        Coordinator { plane, capabilities: BTreeMap::new(), publishing: None, published: Results::new(waker) }
    }

    /// Takes what came on the ack port.
    pub(crate) fn acks(&mut self, acks: impl Iterator<Item = Ack>, capability: impl Fn() -> Capability<u64>) {
        for ack in acks {
            match ack {
                Ack::Ready(instance) => {
                    self.plane.ledger.borrow_mut().ready(instance);
                    self.plane.wake_trigger();
                }
                Ack::Report(report) => {
                    let (n, report, times) = *report;
                    self.plane.progress.reported(n, &report, times);
                    self.capabilities.entry(n).or_insert_with(&capability);
                    let instance = report.instance();
                    let accepted = self.plane.ledger.borrow_mut().report(n, report);
                    tracing::trace!(checkpoint = n.0, %instance, ?accepted, "report");
                    self.plane.crash.reach("coordinator.report-came");
                }
            }
        }
    }

    /// The ack frontier; publishes what has become complete.
    pub(crate) fn step(
        &mut self,
        frontier: Option<u64>,
        mut send: impl FnMut(&Capability<u64>, Permit),
    ) -> Result<(), Failure> {
        let declined = self.plane.ledger.borrow_mut().frontier(frontier.map(CheckpointId));
        for declined in declined.map_err(|incomplete| Failure::Restart(incomplete.to_string()))? {
            let reasons: Vec<String> = declined.reasons.iter().map(ToString::to_string).collect();
            self.capabilities.remove(&declined.checkpoint);
            self.plane.declined(declined.checkpoint, &reasons.join("; "))?;
        }
        while let Some(result) = self.published.poll() {
            let result = result.map_err(|panic| Failure::Restart(format!("publishing a manifest: {panic}")))?;
            let kept = self.publishing.take().expect("a result belongs to a manifest");
            let checkpoint = kept.point.checkpoint;
            let capability = self.capabilities.remove(&checkpoint);
            let capability =
                capability.ok_or_else(|| Failure::Restart(format!("checkpoint {checkpoint}: no report came")))?;
            match result {
                Ok(published) => {
                    self.plane.timeline.borrow_mut().push(kept);
                    let now = self.plane.clock.monotonic();
                    self.plane.progress.published(checkpoint, now);
                    self.plane.patience.borrow_mut().complete(checkpoint);
                    self.plane.ledger.borrow_mut().rest(now);
                    let permit = self.plane.ledger.borrow_mut().published(published);
                    self.plane.crash.reach("coordinator.published");
                    send(&capability, permit);
                }
                // It isn't there and never will be: declined after all, and the next manifest lists its output.
                Err(error @ StoreError::Io(_)) => {
                    self.plane.ledger.borrow_mut().not_published(checkpoint);
                    self.plane.declined(checkpoint, &error.to_string())?;
                }
                Err(error) => return Err(error.into()),
            }
            self.plane.wake_trigger();
        }
        let draft = self.plane.ledger.borrow_mut().next_publication();
        if let Some(draft) = draft {
            self.plane.progress.complete(draft.checkpoint, self.plane.clock.monotonic());
            self.plane.crash.reach("coordinator.all-reported");
            self.publish(draft)?;
        }
        Ok(())
    }

    fn publish(&mut self, draft: ManifestDraft) -> Result<(), Failure> {
        let manifest = Manifest {
            job: self.plane.owner.job,
            attempt: self.plane.owner.attempt,
            checkpoint: draft.checkpoint,
            is_final: draft.is_final,
            exact: self.plane.exact,
            workers: self.plane.workers,
            key_groups: self.plane.key_groups,
            hash: HashIdentity::of_this_program(),
            plan: self.plane.plan.clone(),
            snapshots: draft.snapshots,
            carried: draft.carried,
        };
        let encoded = manifest.encode().map_err(|e| Failure::Fatal(e.to_string()))?;
        let marks = self.plane.groups.marks(&manifest);
        let kept = Kept::of(&manifest, encoded.checksum, false, self.plane.clock.monotonic());
        self.publishing = Some(Kept { marks, ..kept });
        let (store, owner) = (self.plane.store.clone(), self.plane.owner);
        self.published.submit(&self.plane.offload, move || store.publish_manifest(&owner, &encoded));
        Ok(())
    }
}

/// Commits what permits list.
pub(crate) struct Committer {
    plane: Plane,
    under_way: VecDeque<(CheckpointId, Capability<u64>)>,
    done: Results<Result<Committed, Failure>>,
}

impl Committer {
    pub(crate) fn new(plane: Plane, waker: crate::source::Waker) -> Committer {
        Committer { plane, under_way: VecDeque::new(), done: Results::new(waker) }
    }

    pub(crate) fn permit(&mut self, permit: Permit, capability: Capability<u64>) {
        self.under_way.push_back((permit.checkpoint(), capability));
        let (groups, crash) = (self.plane.groups.clone(), self.plane.crash.clone());
        let mut timeline = self.plane.timeline.borrow_mut();
        let kept = timeline.iter_mut().rev().find(|kept| kept.point.checkpoint == permit.checkpoint());
        let marks = kept.map(|kept| std::mem::take(&mut kept.marks)).unwrap_or_default();
        self.done.submit(&self.plane.offload, move || {
            crash.reach("committer.permitted");
            let committed = commit(&groups, |group| permit.handles_of(group).map(<[u8]>::to_vec).collect(), &marks)?;
            crash.reach("committer.committed");
            Ok(committed)
        });
    }

    pub(crate) fn step(&mut self, mut send: impl FnMut(&Capability<u64>, CheckpointId)) -> Result<(), Failure> {
        while let Some(result) = self.done.poll() {
            let committed = result.map_err(|panic| Failure::Restart(format!("committing: {panic}")))??;
            let (n, capability) = self.under_way.pop_front().expect("a result belongs to a permit");
            self.plane.progress.committed(n, committed, self.plane.clock.monotonic());
            send(&capability, n);
        }
        Ok(())
    }
}

/// Commits the handles of every group, each group in one atomic step, and tells it how far its sources have come.
pub(crate) fn commit(
    groups: &Groups,
    handles_of: impl Fn(&str) -> Vec<Vec<u8>>,
    marks: &Marks,
) -> Result<Committed, Failure> {
    let mut total = Committed::default();
    for (name, group) in groups.iter() {
        let (handles, marks) = (handles_of(name), marks.get(name).map(Vec::as_slice).unwrap_or_default());
        if !handles.is_empty() || !marks.is_empty() {
            let committed = group.commit_and_tell(&handles, marks)?;
            total.now += committed.now;
            total.already += committed.already;
        }
    }
    Ok(total)
}

/// Records commits, retires what is no longer needed.
pub(crate) struct Janitor {
    plane: Plane,
    under_way: VecDeque<CheckpointId>,
    recorded: Results<Result<(), Failure>>,
    retired: Results<Result<(), Failure>>,
    savepoints: Results<Result<SavepointRecord, SavepointError>>,
    /// Those under way, in order.
    orders: VecDeque<(ManifestName, SavepointTicket)>,
}

impl Janitor {
    pub(crate) fn new(plane: Plane, waker: &crate::source::Waker) -> Janitor {
        let (recorded, retired) = (Results::new(waker.clone()), Results::new(waker.clone()));
        let savepoints = Results::new(waker.clone());
        Janitor { plane, under_way: VecDeque::new(), recorded, retired, savepoints, orders: VecDeque::new() }
    }

    pub(crate) fn committed(&mut self, n: CheckpointId) {
        let timeline = self.plane.timeline.borrow();
        let point = timeline.iter().rev().find(|k| k.point.checkpoint == n).expect("it was published").point;
        let (store, owner) = (self.plane.store.clone(), self.plane.owner);
        self.under_way.push_back(n);
        self.recorded.submit(&self.plane.offload, move || {
            let record = CommittedRecord { job: owner.job, manifest: point, by: owner.attempt };
            Ok(store.record_committed(&owner, &record)?)
        });
    }

    /// True while something is being recorded or removed.
    pub(crate) fn is_busy(&self) -> bool {
        self.recorded.is_busy() || self.retired.is_busy() || self.savepoints.is_busy()
    }

    pub(crate) fn step(&mut self) -> Result<(), Failure> {
        while let Some(result) = self.recorded.poll() {
            result.map_err(|panic| Failure::Restart(format!("recording a commit: {panic}")))??;
            let n = self.under_way.pop_front().expect("a result belongs to a commit");
            for kept in self.plane.timeline.borrow_mut().iter_mut().filter(|k| k.point.checkpoint == n) {
                kept.committed = true;
            }
            self.plane.crash.reach("janitor.recorded");
            self.plane.ledger.borrow_mut().committed(n);
            self.plane.wake_trigger();
            self.write_savepoints(n);
            self.retire();
        }
        self.settle_savepoints()?;
        while let Some(result) = self.retired.poll() {
            result.map_err(|panic| Failure::Restart(format!("retiring checkpoints: {panic}")))??;
        }
        Ok(())
    }

    /// Begins to write the savepoints that checkpoint `n` was waited for by.
    fn write_savepoints(&mut self, n: CheckpointId) {
        let mut timeline = self.plane.timeline.borrow_mut();
        let Some(kept) = timeline.iter_mut().find(|kept| kept.point.checkpoint == n) else { return };
        for order in self.plane.progress.savepoints().due(n, kept.is_final, kept.in_flight) {
            kept.pins += 1;
            let (platform, store) = (self.plane.platform.clone(), self.plane.store.clone());
            let (name, dir, number) = (kept.point.name(), order.dir().to_path_buf(), order.number());
            self.orders.push_back((name, order));
            self.savepoints.submit(&self.plane.exports, move || take(&platform, store.as_ref(), name, &dir, number));
        }
    }

    /// A savepoint that can't be written is no failure of the job.
    fn settle_savepoints(&mut self) -> Result<(), Failure> {
        let mut settled = false;
        while let Some(result) = self.savepoints.poll() {
            let (name, order) = self.orders.pop_front().expect("a result belongs to an order");
            let state = match result {
                Ok(Ok(record)) => SavepointState::Taken(record),
                Ok(Err(error)) => SavepointState::Failed(error.to_string()),
                Err(panic) => SavepointState::Failed(format!("a panic: {panic}")),
            };
            match &state {
                SavepointState::Failed(why) => tracing::warn!(dir = %order.dir().display(), why, "no savepoint"),
                _ => tracing::info!(dir = %order.dir().display(), checkpoint = name.checkpoint.0, "savepoint taken"),
            }
            self.plane.progress.savepoints().settle(&order, state);
            for kept in self.plane.timeline.borrow_mut().iter_mut().filter(|kept| kept.point.name() == name) {
                kept.pins -= 1;
            }
            settled = true;
        }
        if settled {
            self.retire();
        }
        Ok(())
    }

    /// Manifests first, durably; then files, then outcomes that no manifest lists any more.
    fn retire(&mut self) {
        // Until it is old enough, a checkpoint is kept as if a person had asked for it.
        let (now, keep_for) = (self.plane.clock.monotonic(), self.plane.retained_for);
        let aged = |kept: &Kept| {
            let stored = stored(kept);
            StoredManifest { pinned: stored.pinned || now.saturating_sub(kept.since) < keep_for, ..stored }
        };
        let stored: Vec<StoredManifest> = self.plane.timeline.borrow().iter().map(aged).collect();
        let mut ledger = self.plane.ledger.borrow_mut();
        let released = ledger.take_released();
        let retirement = retire(&stored, self.plane.retained, &ledger.live_files(), &released);
        ledger.release(retirement.still_named().clone());
        drop(ledger);
        if retirement.is_empty() {
            return;
        }
        let mut gone: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        self.plane.timeline.borrow_mut().retain(|kept| {
            let stays = !retirement.manifests().contains(&kept.point.name());
            if !stays {
                for (group, handles) in &kept.handles {
                    gone.entry(group.clone()).or_default().extend(handles.iter().cloned());
                }
            }
            stays
        });
        let (store, owner, groups) = (self.plane.store.clone(), self.plane.owner, self.plane.groups.clone());
        self.retired.submit(&self.plane.offload, move || {
            store.remove_manifests(&owner, retirement.manifests())?;
            let files = retirement.files_after_manifests();
            let files: Vec<StateFileName> = files.iter().filter_map(|f| StateFileName::parse(f)).collect();
            store.remove_state_files(&owner, &files)?;
            for (group, handles) in gone {
                if let Some(group) = groups.get(&group) {
                    group.forget(&handles)?;
                }
            }
            Ok(())
        });
    }
}

pub(crate) fn stored(kept: &Kept) -> StoredManifest {
    StoredManifest {
        name: kept.point.name(),
        committed: kept.committed,
        pinned: kept.pins > 0,
        files: kept.files.clone(),
    }
}
