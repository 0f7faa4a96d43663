//! One worker thread of one attempt: build, step until the dataflow is over or the attempt has failed, leave nothing behind.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cutwater_platform::spawn::panic_text;
use timely::worker::Worker;

use crate::checkpoint::{Ledger, Pace, Patience};
use crate::config::{Alignment, Guarantee, GuaranteeKind, Snapshots};
use crate::error::BuildError;
use crate::exchange::GroupAssignment;
use crate::graph::node::{Make, Node, Route};
use crate::graph::validate::validate;
use crate::graph::{Environment, Job, OperatorSetup, Plan};
use crate::id::{CheckpointId, InstanceId, JobId, OperatorId, WorkerIndex};
use crate::observe::{LastCount, Phase, Progress};
use crate::sink::Visibility;
use crate::snapshot::{OperatorEntry, PlanIdentity, SnapshotFiles, fetch_newest};
use crate::worker::attempt::{AttemptState, Failure};
use crate::worker::build::{Parts, build, make};
use crate::worker::control::Plane;
use crate::worker::groups::Groups;
use crate::worker::instance::FinalCounters;
use crate::worker::offload::Offload;
use crate::worker::place::Place;
use crate::worker::recover::Recovered;
use crate::worker::restore::Restore;
use crate::worker::run::CHECKPOINTS;

/// The first checkpoint of an attempt comes this soon after its start, or after an interval if that is shorter.
const FIRST_CHECKPOINT_AFTER: Duration = Duration::from_millis(5);

pub(crate) type BuildFn = Arc<dyn Fn(&Job) -> Result<(), BuildError> + Send + Sync>;

/// What all workers of an attempt are told.
pub(crate) struct Orders {
    pub(crate) build: BuildFn,
    pub(crate) environment: Environment,
    pub(crate) plan: Plan,
    pub(crate) groups: Arc<Groups>,
    pub(crate) splits: Arc<HashMap<OperatorId, Vec<String>>>,
    pub(crate) attempt: Arc<AttemptState>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) assignment: GroupAssignment,
    pub(crate) job: JobId,
    pub(crate) attempt_number: crate::id::Attempt,
    /// `None` without checkpoints.
    pub(crate) recovered: Option<Recovered>,
    pub(crate) pin: bool,
    pub(crate) built: AtomicU32,
    /// When the attempt began to load.
    pub(crate) loading_since: Duration,
}

/// What a worker brings back.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What its instances had counted at their ends; if the attempt failed, when they were taken down.
    pub(crate) counters: Vec<LastCount>,
    /// From worker 0: whether the newest committed manifest is final.
    pub(crate) is_final: Option<bool>,
}

/// Runs one worker to its end.
pub(crate) fn work(worker: &mut Worker, orders: &Orders) -> Outcome {
    orders.attempt.join_in();
    if orders.pin {
        pin(worker.index());
    }
    let spawn = orders.environment.platform.spawn.clone();
    let place = Place::take(worker, spawn.as_ref(), &orders.environment.platform.clock);
    let io = Rc::new(Offload::new(spawn.as_ref(), &format!("cw-io-{}", worker.index())));
    let control_io = (worker.index() == 0).then(|| Rc::new(Offload::new(spawn.as_ref(), "cw-commit")));
    let merges = orders.environment.guarantee.snapshots().is_some_and(|config| config.merge_after > 0);
    let merge_io = merges.then(|| Rc::new(Offload::new(spawn.as_ref(), &format!("cw-merge-{}", worker.index()))));
    let exports = (worker.index() == 0).then(|| Rc::new(Offload::new(spawn.as_ref(), "cw-savepoint")));
    let control = control_io.as_ref().zip(exports.as_ref());
    let ended = FinalCounters::default();
    let ran = catch_unwind(AssertUnwindSafe(|| live(worker, orders, &place, &io, control, merge_io.as_ref(), &ended)));
    let mut outcome = match ran {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(failure)) => {
            orders.attempt.fail(failure);
            Outcome::default()
        }
        Err(panic) => {
            // A worker that has caught a panic is never stepped again: a capability lost on the way would count as done.
            orders.attempt.fail(Failure::Restart(format!("a panic: {}", panic_text(panic.as_ref()))));
            Outcome::default()
        }
    };
    if orders.attempt.is_over() {
        if orders.recovered.is_some() && orders.attempt.is_first_to_leave() {
            // The disk reads what the next attempt will load while this one is taken down.
            let environment = &orders.environment;
            fetch_newest(environment.platform.files.as_ref(), &environment.dir.join(CHECKPOINTS));
        }
        io.abandon();
        control_io.iter().chain(&exports).for_each(|io| io.abandon());
    }
    for dataflow in worker.installed_dataflows() {
        worker.drop_dataflow(dataflow);
    }
    // Nobody waits for merges that haven't begun.
    merge_io.iter().for_each(|io| {
        io.abandon();
        io.finish(spawn.as_ref());
    });
    io.finish(spawn.as_ref());
    control_io.iter().chain(&exports).for_each(|io| io.finish(spawn.as_ref()));
    outcome.counters = ended.take();
    outcome
}

fn live(
    worker: &mut Worker,
    orders: &Orders,
    place: &Place,
    io: &Rc<Offload>,
    control: Option<(&Rc<Offload>, &Rc<Offload>)>,
    merge_io: Option<&Rc<Offload>>,
    ended: &FinalCounters,
) -> Result<Outcome, Failure> {
    let index = WorkerIndex(u32::try_from(worker.index()).expect("fewer than 2^32 workers"));
    let environment = &orders.environment;
    let job = Job::new(environment.clone());
    (orders.build)(&job)?;
    let mut inner = job.inner.borrow_mut();
    validate(&mut inner, environment.guarantee.kind())?;
    if let Some(difference) = Plan::of(&inner).difference(&orders.plan) {
        return Err(BuildError::Unstable { worker: worker.index(), difference }.into());
    }
    let nodes = std::mem::take(&mut inner.nodes);
    drop(inner);

    let first = orders.recovered.as_ref().map_or(CheckpointId(1), |r| r.next);
    let clock = environment.platform.clock.clone();
    let snapshots = environment.guarantee.snapshots().zip(orders.recovered.as_ref()).map(|(config, recovered)| {
        let crash = environment.platform.crash.clone();
        let files = SnapshotFiles::new(recovered.store.clone(), recovered.owner, crash)
            .cached(config.interval >= config.past_cache_below);
        (*config, files.packed(config.compression, environment.platform.spawn.clone()))
    });
    let plane = control.filter(|_| snapshots.is_some()).map(|(io, exports)| plane(orders, io, exports, first));
    let timeline = plane.as_ref().map(|p| p.timeline.clone());
    let parts = Parts {
        platform: environment.platform.clone(),
        limits: environment.limits,
        snapshots,
        first,
        guarantee: environment.guarantee.kind(),
        assignment: orders.assignment,
        worker: index,
        restore: Restore {
            manifest: orders.recovered.as_ref().and_then(|r| r.manifest.clone()),
            upgrade: orders.recovered.as_ref().and_then(|r| r.upgrade.clone()),
            store: orders.recovered.as_ref().map(|r| r.store.clone()),
            worker: index,
            assignment: orders.assignment,
        },
        splits: orders.splits.clone(),
        attempt: orders.attempt.clone(),
        progress: orders.progress.clone(),
        offload: io.clone(),
        alarms: place.alarms(),
        merge_offload: merge_io.cloned(),
        plane,
        ended: ended.clone(),
        commit_groups: nodes
            .iter()
            .filter_map(|n| match &n.make {
                Make::Sink { group: Some(group), .. } => Some((n.id, group.name().to_string())),
                _ => None,
            })
            .collect(),
        readers: readers(&orders.plan, orders.assignment.workers().get()),
        fixed: fixed(&nodes, environment.guarantee),
    };
    let setup = OperatorSetup {
        job: orders.job,
        attempt: orders.attempt_number,
        name: String::new(),
        worker: index,
        assignment: orders.assignment,
        visibility: match environment.guarantee.kind() {
            GuaranteeKind::ExactlyOnce => Visibility::ByCheckpoint { first },
            GuaranteeKind::AtLeastOnce | GuaranteeKind::AtMostOnce => Visibility::AtOnce,
        },
        environment: environment.clone(),
    };
    let made = make(nodes, &parts, &setup)?;
    environment.platform.crash.reach("worker.restored");
    build(worker, made, &parts);
    drop(parts);
    if orders.built.fetch_add(1, Ordering::SeqCst) + 1 == orders.assignment.workers().get() {
        let now = clock.monotonic();
        orders.progress.recovery(|t| t.load = now.saturating_sub(orders.loading_since));
        orders.progress.started(now);
        orders.progress.phase(Phase::Running);
    }

    while worker.has_dataflows() && !orders.attempt.is_over() {
        place.step(worker)?;
    }
    if orders.attempt.is_over() {
        return Ok(Outcome::default());
    }
    let is_final = timeline.map(|t| t.borrow().iter().rev().find(|k| k.committed).is_some_and(|k| k.is_final));
    Ok(Outcome { is_final, ..Outcome::default() })
}

fn plane(orders: &Orders, io: &Rc<Offload>, exports: &Rc<Offload>, first: CheckpointId) -> Plane {
    let recovered = orders.recovered.as_ref().expect("a job with checkpoints has recovered");
    let config = orders.environment.guarantee.snapshots().expect("a job with checkpoints has their settings");
    let clock = orders.environment.platform.clock.clone();
    let workers = orders.assignment.workers().get();
    let instances = |id: OperatorId| (0..workers).map(move |w| InstanceId { operator: id, worker: WorkerIndex(w) });
    let plan: Vec<InstanceId> = orders.plan.nodes.iter().flat_map(|n| instances(n.id)).collect();
    let sources = orders.plan.nodes.iter().filter(|n| n.inputs.is_empty()).flat_map(|n| instances(n.id));
    let uncommitted_max = usize::try_from(config.uncommitted_max).unwrap_or(usize::MAX).max(1);
    let pace = Pace {
        interval: config.interval,
        in_flight_max: usize::try_from(config.in_flight_max).unwrap_or(usize::MAX).clamp(1, uncommitted_max),
        uncommitted_max,
        timeout: config.timeout,
        pause: config.pause,
    };
    let now = clock.monotonic();
    let first_due = now + config.interval.min(FIRST_CHECKPOINT_AFTER);
    let ledger = Ledger::new(pace, plan, sources, first, now).with_first_due(first_due);
    let operators = orders.plan.nodes.iter().map(|n| OperatorEntry { id: n.id, name: n.name.clone() }).collect();
    Plane {
        ledger: Rc::new(RefCell::new(ledger)),
        clock,
        crash: orders.environment.platform.crash.clone(),
        store: recovered.store.clone(),
        owner: recovered.owner,
        groups: orders.groups.clone(),
        offload: io.clone(),
        progress: orders.progress.clone(),
        platform: orders.environment.platform.clone(),
        exports: exports.clone(),
        wake_trigger: Rc::new(RefCell::new(None)),
        timeline: Rc::new(RefCell::new(recovered.timeline.clone())),
        retained: config.retained.max(1),
        patience: Rc::new(RefCell::new(Patience::new(config.declined_max))),
        retained_for: config.retained_for,
        exact: orders.environment.guarantee.kind() == GuaranteeKind::ExactlyOnce,
        plan: PlanIdentity { fingerprint: orders.plan.fingerprint(), operators },
        workers,
        key_groups: orders.assignment.groups(),
    }
}

/// For each output port that is read, how many receivers it has.
fn readers(plan: &Plan, workers: u32) -> HashMap<OperatorId, HashMap<usize, usize>> {
    let mut readers: HashMap<OperatorId, HashMap<usize, usize>> = HashMap::new();
    for edge in plan.nodes.iter().flat_map(|n| &n.inputs) {
        readers.entry(edge.from).or_default().insert(edge.port, if edge.by_key { workers as usize } else { 1 });
    }
    readers
}

/// Output ports whose records no barrier may overtake, if barriers overtake records in this job.
fn fixed(nodes: &[Node], guarantee: Guarantee) -> HashSet<(OperatorId, usize)> {
    let Guarantee::ExactlyOnce(Snapshots { alignment: Alignment::Unaligned | Alignment::AlignedFor(_), .. }) =
        guarantee
    else {
        return HashSet::new();
    };
    let edges = nodes.iter().flat_map(|node| &node.inputs);
    let fixed = edges.filter(|edge| edge.codec.is_none() && matches!(edge.route, Route::Local));
    fixed.map(|edge| (edge.from, edge.port)).collect()
}

/// Pins this thread to a core of its own: unpinned, Linux was seen to leave two workers on one core for half a second.
fn pin(index: usize) {
    if let Some(core) = core_affinity::get_core_ids().and_then(|cores| cores.get(index).copied()) {
        core_affinity::set_for_current(core);
    }
}
