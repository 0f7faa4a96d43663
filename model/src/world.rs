//! What a state is: the store, the log, the attempts, and how unkind the world may still be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use cutwater_engine::checkpoint::{Ledger, SnapshotRef};
use cutwater_engine::id::{Attempt, CheckpointId};
use cutwater_engine::snapshot::ManifestName;

use crate::config::Config;
use crate::instance::Instance;
use crate::log::{Log, TxnId};
use crate::shared::Shared;
use crate::store::{Body, Store};

/// A state.
#[derive(Clone, Debug, Hash)]
pub struct World {
    /// The checkpoint store.
    pub store: Shared<Store>,
    /// The log.
    pub log: Shared<Log>,
    /// All attempts so far, oldest first. Each has claimed its number: the first is 1.
    pub lives: Vec<Life>,
    /// What may still happen.
    pub left: Left,
}

/// How often the world may still be unkind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// Deaths.
    pub crashes: u8,
    /// Attempts that go on beside a newer one.
    pub zombies: u8,
    /// Starts of a finished job.
    pub restarts: u8,
    /// States that can't be written.
    pub failed_writes: u8,
    /// Checkpoints that take too long.
    pub timeouts: u8,
    /// Manifests that can't be published.
    pub refused_manifests: u8,
    /// Capabilities given up without a report.
    pub lost_acks: u8,
    /// Reports that come twice.
    pub repeated_acks: u8,
}

impl Left {
    /// At the beginning.
    pub fn of(config: &Config) -> Left {
        Left {
            crashes: config.crashes,
            zombies: config.zombies,
            restarts: config.restarts,
            failed_writes: config.failed_writes,
            timeouts: config.timeouts,
            refused_manifests: config.refused_manifests,
            lost_acks: config.lost_acks,
            repeated_acks: config.repeated_acks,
        }
    }
}

/// One attempt.
#[derive(Clone, Debug, Hash)]
pub struct Life {
    /// Its workers.
    pub workers: u32,
    /// It has come past the fencing of older attempts.
    pub has_fenced: bool,
    /// What it is doing.
    pub phase: Phase,
}

/// What an attempt is doing.
#[derive(Clone, Debug, Hash)]
pub enum Phase {
    /// Before any worker runs.
    Starting(Shared<Start>),
    /// The dataflow runs.
    Running(Running),
    /// It has ended.
    Over(End),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The job is finished.
    Done,
    /// It found that a newer one has taken over.
    Fenced,
    /// It gave up; the next one may do better.
    Failed,
    /// It died.
    Killed,
}

/// Where a start stands. The claim is made when the attempt appears: before it nothing has happened.
#[derive(Clone, Debug, Hash)]
pub enum Start {
    /// Next it shuts older attempts out of the log.
    Fence,
    /// Next it lists the store.
    List,
    /// Next it reads the manifests that it has listed, and decides.
    Read(Rc<Store>),
    /// It has decided. Next, in this order, what `at` says.
    Settle(Settling),
}

/// What a start does once it has decided.
#[derive(Clone, Debug, Hash)]
pub struct Settling {
    /// The base; `None` for a start from nothing.
    pub from: Option<ManifestName>,
    /// The base is final: nothing is left to run.
    pub is_final: bool,
    /// The number of the first checkpoint.
    pub next: CheckpointId,
    /// Manifests to be committed again, in order.
    pub recommit: VecDeque<ManifestName>,
    /// Manifests of the timeline up to the base, with what they contain, as they were read.
    pub timeline: Vec<(ManifestName, Rc<Body>)>,
    /// Manifests to be swept.
    pub orphaned: Vec<ManifestName>,
    /// State files that were found.
    pub listed: Vec<String>,
    /// Where it stands.
    pub at: SettleAt,
}

/// Where the settling stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettleAt {
    /// Looking whether this attempt is still the newest, before recording the base.
    CheckBase,
    /// Recording the base.
    Base,
    /// Committing the first of `recommit` again.
    Commit,
    /// Looking for a newer attempt, before recording that commit.
    CheckRecord,
    /// Recording that commit.
    Record,
    /// Aborting what no manifest lists.
    Abort,
    /// Looking for a newer attempt, before sweeping.
    CheckSweep,
    /// Removing orphaned manifests.
    SweepManifests,
    /// Removing files of older attempts that the timeline doesn't name.
    SweepFiles,
    /// Loading state and starting the workers.
    Load,
}

/// An attempt whose dataflow runs.
#[derive(Clone, Debug, Hash)]
pub struct Running {
    /// All instances, workers of one operator side by side.
    pub instances: Vec<Shared<Instance>>,
    /// What worker 0 does for all.
    pub control: Shared<Control>,
}

/// Trigger, coordinator, committer and janitor.
#[derive(Clone, Debug, Hash)]
pub struct Control {
    /// The product's own bookkeeping.
    pub ledger: Ledger,
    /// The trigger may still send barriers.
    pub trigger_open: bool,
    /// Checkpoints that the interval may still start.
    pub checkpoints_left: u8,
    /// The ack frontier that the coordinator has seen.
    pub seen: Option<Option<CheckpointId>>,
    /// Work for the I/O thread, in order. The second one is used only if publishing has a thread of its own.
    pub io: [VecDeque<Job>; 2],
    /// How far the first job of each has come.
    pub stage: [u8; 2],
    /// The timeline's manifests in the store.
    pub timeline: Vec<Kept>,
}

/// A manifest that the janitor knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// Its name.
    pub name: ManifestName,
    /// It is recorded as committed.
    pub committed: bool,
    /// The files it names.
    pub files: BTreeSet<String>,
    /// The transactions it lists.
    pub txns: Vec<TxnId>,
}

impl Kept {
    /// What there is to know of a manifest.
    pub fn of(name: ManifestName, body: &Body, committed: bool) -> Kept {
        Kept { name, committed, files: body.files(), txns: body.transactions() }
    }
}

/// Work for the I/O thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Publishes a manifest.
    Publish(ManifestName, Rc<Body>),
    /// Commits what a permit lists.
    Commit(CheckpointId, Vec<TxnId>),
    /// Records a commit.
    Record(ManifestName),
    /// Retires manifests and files, lets the log forget.
    Retire(Retiring),
}

/// What goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Retiring {
    /// Manifests.
    pub manifests: Vec<ManifestName>,
    /// State files.
    pub files: BTreeSet<String>,
    /// Outcomes.
    pub outcomes: Vec<TxnId>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The newest attempt dies and the next one claims its number.
    Kill,
    /// The power goes; what was visible and not durable stays where its bit is set. The next attempt claims its number.
    PowerCut(u32),
    /// An attempt starts although the newest one goes on.
    Usurp,
    /// A finished job is started again.
    Restart,
    /// The attempt at this place does something.
    Life(usize, Action),
    /// It does something that may be taken before everything else that could happen.
    AtOnce(usize, Action),
}

/// What an attempt does. Numbers are places of instances, of channels, of splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The next step of a start.
    Start,
    /// A source reads a record of a split.
    Read(usize, usize),
    /// A source finds that it has nothing left.
    Exhaust(usize),
    /// A source takes the barrier of the trigger.
    TakeBarrier(usize),
    /// A source ends its channels.
    EndSource(usize),
    /// An instance handles the first frame of a channel.
    Handle(usize, usize),
    /// An instance sends a barrier that one of its outputs still waits for.
    SendLateBarrier(usize),
    /// The I/O thread does the next step of an instance's oldest snapshot.
    Write(usize),
    /// It can't write the state.
    WriteFails(usize),
    /// It writes, and the report gets lost.
    LoseReport(usize),
    /// It writes, and the report is sent twice.
    RepeatReport(usize),
    /// The trigger starts a checkpoint; the flag says that the interval is the reason.
    Trigger(bool),
    /// The trigger closes.
    Close,
    /// The oldest checkpoint in flight has taken too long.
    TimeOut,
    /// The coordinator sees the ack frontier.
    SeeFrontier,
    /// The I/O thread of the control plane does its next step.
    Io(usize),
    /// The manifest can't be published.
    RefuseManifest(usize),
}

impl Action {
    /// True if it touches the store, the log, or the number of attempts; or begins the end, after which an attempt can't die any more.
    pub fn is_seen(self) -> bool {
        use Action::{Close, Io, LoseReport, RepeatReport, Start, Write, WriteFails};
        matches!(self, Start | Write(_) | WriteFails(_) | LoseReport(_) | RepeatReport(_) | Io(_) | Close)
    }

    /// True if it comes when nothing else does; what is unkind may never come.
    pub fn can_be_counted_on(self) -> bool {
        use Action::{LoseReport, RefuseManifest, RepeatReport, TimeOut, WriteFails};
        !matches!(self, WriteFails(_) | LoseReport(_) | RepeatReport(_) | TimeOut | RefuseManifest(_))
    }
}

impl World {
    /// A job's first attempt has claimed its number, nothing else has happened.
    pub fn new(config: &Config) -> World {
        let mut world = World {
            store: Shared::new(Store::default()),
            log: Shared::new(Log::default()),
            lives: vec![],
            left: Left::of(config),
        };
        world.claim(config);
        world
    }

    /// The next attempt claims its number.
    pub fn claim(&mut self, config: &Config) {
        let workers = config.workers_of(self.lives.len());
        let store = self.store.edit();
        store.claimed += 1;
        self.lives.push(Life { workers, has_fenced: false, phase: Phase::Starting(Shared::new(Start::Fence)) });
        assert_eq!(usize::from(self.store.claimed), self.lives.len());
    }

    /// The number of an attempt.
    pub fn number(life: usize) -> u8 {
        u8::try_from(life + 1).expect("few attempts")
    }

    /// The number of an attempt, as the product writes it.
    pub fn attempt(life: usize) -> Attempt {
        Attempt(life as u64 + 1)
    }

    /// True if no newer attempt has claimed its number.
    pub fn is_newest(&self, life: usize) -> bool {
        life + 1 == self.lives.len()
    }

    /// Ends an attempt.
    pub fn end(&mut self, life: usize, end: End) {
        self.lives[life].phase = Phase::Over(end);
    }

    /// The dataflow of an attempt.
    ///
    /// # Panics
    /// If it isn't running.
    pub fn running(&mut self, life: usize) -> &mut Running {
        match &mut self.lives[life].phase {
            Phase::Running(running) => running,
            other => panic!("attempt {} isn't running: {other:?}", life + 1),
        }
    }

    /// The transactions that any manifest in the store lists.
    pub fn listed(&self) -> BTreeSet<TxnId> {
        self.store.manifests.values().flat_map(|body| body.transactions()).collect()
    }
}

/// The counts that a chain of state files comes to; `None` if one of them isn't there.
pub fn load_chain(store: &Store, part: &SnapshotRef) -> Option<BTreeMap<u16, u8>> {
    let mut counts = BTreeMap::new();
    for file in part.chains.iter().flat_map(|chain| &chain.files) {
        counts.extend(store.files.get(&file.name)?.counts.clone());
    }
    Some(counts)
}
