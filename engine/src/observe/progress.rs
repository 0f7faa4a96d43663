//! Live numbers of a run, and the way to stop it. Counters are atomics that are written once per batch.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::checkpoint::{PartTimes, SnapshotReport};
use crate::id::{Attempt, CheckpointId, InstanceId};
use crate::observe::history::{CheckpointRecord, History, Layout};
use crate::observe::standing::{Standings, Waiting};
use crate::sink::Committed;
use crate::snapshot::{Orders, SavepointTicket, Which};
use crate::source::Waker;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The job is being built and checked.
    Building,
    /// An attempt is being claimed, and older ones are shut out.
    Fencing,
    /// What is in the store is read, committed, aborted.
    Recovering,
    /// State is being loaded and workers are being started.
    Loading,
    /// Records flow.
    Running,
    /// The last checkpoint is committed.
    Finished,
    /// A disk is full; see [`Control::paused`].
    Paused,
}

/// Why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// What could not be written.
    pub path: PathBuf,
    /// The run goes on once there is room for so many bytes.
    pub needs_bytes: u64,
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "paused: no space on the disk of {}, needs {} bytes", self.path.display(), self.needs_bytes)
    }
}

/// How long an attempt took to come back, by phase, each measured from the end of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTimes {
    /// Claiming the attempt and opening its sinks.
    pub claim: Duration,
    /// Fencing older attempts.
    pub fence: Duration,
    /// Reading the facts and resolving them.
    pub facts: Duration,
    /// Committing again what manifests list, aborting the rest.
    pub settle: Duration,
    /// Loading state and building the dataflow on every worker.
    pub load: Duration,
    /// From the dataflow's start to its first committed checkpoint; zero while there is none.
    pub first_commit: Duration,
}

impl RecoveryTimes {
    /// All phases together.
    pub fn total(&self) -> Duration {
        self.claim + self.fence + self.facts + self.settle + self.load + self.first_commit
    }
}

/// A look at a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is doing.
    pub phase: Phase,
    /// The attempt.
    pub attempt: Attempt,
    /// Records read by sources since the job's first start; goes back when an attempt goes back to a checkpoint.
    pub read: u64,
    /// Records that failed attempts of this run had read beyond the checkpoint that was gone back to; they are read again.
    pub reread: u64,
    /// The newest triggered checkpoint.
    pub triggered: CheckpointId,
    /// The newest committed checkpoint.
    pub committed: CheckpointId,
    /// Checkpoints declined in this run.
    pub declined: u64,
    /// Transactions committed in this run.
    pub transactions: u64,
    /// Prepared transactions that the attempt found when it started.
    pub prepared_found: u64,
    /// Of those, the ones that manifests listed and that the attempt committed before it started.
    pub recommitted: u64,
    /// Transactions of earlier attempts, open or prepared, that no manifest listed and that the attempt aborted.
    pub aborted: u64,
    /// The checkpoint from which the attempt started; 0 for a fresh start.
    pub resumed_from: CheckpointId,
    /// How long the attempt took to come back.
    pub recovery: RecoveryTimes,
}

/// The live numbers of a run.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    attempt: AtomicU64,
    read: AtomicU64,
    reread: AtomicU64,
    triggered: AtomicU64,
    committed: AtomicU64,
    declined: AtomicU64,
    transactions: AtomicU64,
    already: AtomicU64,
    commits: AtomicU64,
    prepared_found: AtomicU64,
    recommitted: AtomicU64,
    aborted: AtomicU64,
    resumed_from: AtomicU64,
    started_at: Mutex<Option<Duration>>,
    recovery: Mutex<RecoveryTimes>,
    history: Mutex<History>,
    standings: Standings,
    savepoints: Orders,
    stop: AtomicBool,
    drain: AtomicBool,
    stop_waker: Mutex<Option<Waker>>,
    paused: Mutex<Option<Paused>>,
    was_paused: AtomicBool,
}

const ORDER: Ordering = Ordering::Relaxed;

impl Progress {
    /// A look at the run, now.
    pub fn seen(&self) -> Seen {
        let phase = match self.phase.load(ORDER) {
            0 => Phase::Building,
            1 => Phase::Fencing,
            2 => Phase::Recovering,
            3 => Phase::Loading,
            4 => Phase::Running,
            6 => Phase::Paused,
            _ => Phase::Finished,
        };
        Seen {
            phase,
            attempt: Attempt(self.attempt.load(ORDER)),
            read: self.read.load(ORDER),
            reread: self.reread.load(ORDER),
            triggered: CheckpointId(self.triggered.load(ORDER)),
            committed: CheckpointId(self.committed.load(ORDER)),
            declined: self.declined.load(ORDER),
            transactions: self.transactions.load(ORDER),
            prepared_found: self.prepared_found.load(ORDER),
            recommitted: self.recommitted.load(ORDER),
            aborted: self.aborted.load(ORDER),
            resumed_from: CheckpointId(self.resumed_from.load(ORDER)),
            recovery: *self.recovery.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub(crate) fn phase(&self, phase: Phase) {
        self.phase.store(phase as u8, ORDER);
    }

    /// The run waits for room, or does so no more.
    pub(crate) fn paused(&self, paused: Option<Paused>) {
        if paused.is_some() {
            self.was_paused.store(true, ORDER);
            self.phase(Phase::Paused);
        }
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = paused;
    }

    /// Whether the run has ever been paused.
    pub(crate) fn was_paused(&self) -> bool {
        self.was_paused.load(ORDER)
    }

    /// An attempt begins; what the last one read and hasn't been committed is read again.
    pub(crate) fn attempt(&self, attempt: Attempt) {
        self.attempt.store(attempt.0, ORDER);
        *self.started_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The attempt goes on from here. What the one before it had read beyond that, in this run, is read again.
    pub(crate) fn resumed(&self, from: CheckpointId, read: u64) {
        self.resumed_from.store(from.0, ORDER);
        self.committed.store(from.0, ORDER);
        let had = self.read.swap(read, ORDER);
        self.reread.fetch_add(had.saturating_sub(read), ORDER);
    }

    pub(crate) fn recovery(&self, change: impl FnOnce(&mut RecoveryTimes)) {
        change(&mut self.recovery.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn prepared_found(&self, transactions: usize) {
        self.prepared_found.store(transactions as u64, ORDER);
    }

    /// What the attempt did about transactions of earlier attempts.
    pub(crate) fn settled(&self, recommitted: usize, found_committed: usize, aborted: usize) {
        self.recommitted.store(recommitted as u64, ORDER);
        self.transactions.fetch_add(recommitted as u64, ORDER);
        self.already.fetch_add(found_committed as u64, ORDER);
        self.aborted.store(aborted as u64, ORDER);
    }

    pub(crate) fn started(&self, now: Duration) {
        self.started_at.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(now);
    }

    pub(crate) fn read(&self, records: u64) {
        self.read.fetch_add(records, ORDER);
    }

    /// The workers of an attempt are about to be built: where its instances stand is noted anew, its checkpoints are remembered.
    pub(crate) fn loading(&self, attempt: Attempt, layout: Layout, keep: usize) {
        self.standings.clear();
        self.savepoints.again();
        self.history(|history| history.begin(attempt, layout, keep));
    }

    pub(crate) fn standings(&self) -> &Standings {
        &self.standings
    }

    pub(crate) fn triggered(&self, n: CheckpointId, now: Duration, wall_ms: i64) {
        self.triggered.store(n.0, ORDER);
        self.history(|history| history.triggered(n, now, wall_ms));
    }

    pub(crate) fn reported(&self, n: CheckpointId, report: &SnapshotReport, times: PartTimes) {
        let snapshot = match report {
            SnapshotReport::Durable(snapshot) => Some(snapshot),
            SnapshotReport::Failed { .. } => None,
        };
        self.history(|history| history.reported(n, report.instance(), times, snapshot));
    }

    /// Every instance has reported.
    pub(crate) fn complete(&self, n: CheckpointId, now: Duration) {
        self.history(|history| history.complete(n, now));
    }

    pub(crate) fn published(&self, n: CheckpointId, now: Duration) {
        self.history(|history| history.published(n, now));
    }

    /// The time of a checkpoint is up; answers whom it waits for.
    pub(crate) fn timed_out(&self, n: CheckpointId, missing: &[InstanceId]) -> Vec<Waiting> {
        let waiting = self.standings.waiting(n, missing);
        self.history(|history| history.timed_out(n, waiting.clone()));
        waiting
    }

    pub(crate) fn declined(&self, n: CheckpointId, reasons: &str, now: Duration) {
        self.declined.fetch_add(1, ORDER);
        self.history(|history| history.declined(n, reasons, now));
    }

    /// The last checkpoints, oldest first.
    pub(crate) fn checkpoints(&self) -> Vec<CheckpointRecord> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).records()
    }

    fn history(&self, change: impl FnOnce(&mut History)) {
        change(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn committed(&self, n: CheckpointId, committed: Committed, now: Duration) {
        self.committed.store(n.0, ORDER);
        self.transactions.fetch_add(committed.now as u64, ORDER);
        self.already.fetch_add(committed.already as u64, ORDER);
        self.commits.fetch_add(1, ORDER);
        self.history(|history| history.committed(n, now));
        let started = self.started_at.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(started) = started {
            self.recovery(|times| times.first_commit = now.saturating_sub(started));
        }
    }

    /// Checkpoints committed in this run.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(ORDER)
    }

    pub(crate) fn already_committed(&self) -> u64 {
        self.already.load(ORDER)
    }

    pub(crate) fn stop_requested(&self) -> bool {
        self.stop.load(ORDER)
    }

    /// Whether sources shall end as if they had nothing left.
    pub(crate) fn drain_requested(&self) -> bool {
        self.drain.load(ORDER)
    }

    pub(crate) fn savepoints(&self) -> &Orders {
        &self.savepoints
    }

    fn wake(&self) {
        if let Some(waker) = self.stop_waker.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            waker.wake();
        }
    }

    /// Whom to wake when a stop or a savepoint is requested.
    pub(crate) fn on_stop(&self, waker: Waker) {
        *self.stop_waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }
}

/// The outside's hand on a run: look at it, stop it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Control {
    progress: Arc<Progress>,
}

impl Control {
    /// A hand for one run.
    pub fn new() -> Control {
        Control::default()
    }

    /// Asks for a last checkpoint, after which the run ends. A job without checkpoints just ends.
    pub fn stop(&self) {
        self.progress.stop.store(true, ORDER);
        self.progress.wake();
    }

    /// Ends the job as if its sources had nothing left: they promise the end of event time, windows fire, the last checkpoint is
    /// final. Run again in this directory the job has nothing to do.
    pub fn drain(&self) {
        self.progress.drain.store(true, ORDER);
        self.progress.wake();
    }

    /// Asks for a savepoint in a folder of its own, which must not exist, or be empty; the run goes on. `order` is any number that
    /// no other order has: taken up again after a crash, an order that was carried out finds its savepoint instead of refusing the
    /// folder. Only for a job with checkpoints, and a relative folder is the process's.
    ///
    /// ```
    /// use cutwater_engine::observe::Control;
    /// use cutwater_engine::snapshot::SavepointState;
    ///
    /// let control = Control::new();
    /// let ticket = control.savepoint("/backup/before-upgrade", 1);
    /// assert_eq!(ticket.state(), SavepointState::Waiting, "nothing runs yet");
    /// ```
    pub fn savepoint(&self, dir: impl Into<PathBuf>, order: u64) -> SavepointTicket {
        let ticket = self.progress.savepoints.place(order, dir.into(), Which::Next);
        self.progress.wake();
        ticket
    }

    /// [Stops](Control::stop) the run with a savepoint: nothing is read behind it, all its output is visible, and a job restored from
    /// it goes on exactly where this one ended.
    pub fn stop_with_savepoint(&self, dir: impl Into<PathBuf>, order: u64) -> SavepointTicket {
        let ticket = self.progress.savepoints.place(order, dir.into(), Which::Stopped);
        self.stop();
        ticket
    }

    /// [Drains](Control::drain) the job with a savepoint of its end, for the record: a job restored from it has finished.
    pub fn drain_with_savepoint(&self, dir: impl Into<PathBuf>, order: u64) -> SavepointTicket {
        let ticket = self.progress.savepoints.place(order, dir.into(), Which::Final);
        self.drain();
        ticket
    }

    /// A look at the run, now.
    pub fn seen(&self) -> Seen {
        self.progress.seen()
    }

    /// The last checkpoints of the run, oldest first: how long each phase took and which instance held it up, the one under way
    /// included. As many as [`Snapshots::history`](crate::config::Snapshots::history) says.
    pub fn checkpoints(&self) -> Vec<CheckpointRecord> {
        self.progress.checkpoints()
    }

    /// Why the run is paused, if it is.
    pub fn paused(&self) -> Option<Paused> {
        self.progress.paused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }
}
