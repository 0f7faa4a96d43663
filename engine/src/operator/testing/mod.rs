//! A rig for testing operators: a part of a job on one worker, stepped by hand, without threads or disk, on a
//! clock that stands still unless it is moved.
//!
//! The rig runs the very [`Driver`] that a job runs, frame by frame: what an operator emits, when, and what it answers at a
//! barrier is seen exactly as downstream would see it. After every frame it checks that each consumed record was counted
//! once (I-8).
//!
//! ```
//! use cutwater_engine::graph::Untimed;
//! use cutwater_engine::operator::testing::{Rig, Seen};
//!
//! let mut rig = Rig::new();
//! let (numbers, stream) = rig.input::<u32, Untimed>("numbers");
//! let out = rig.collect(stream.stage::<u32, Untimed>("double", |batch, _| batch.into_iter().map(|n| 2 * n).collect()));
//! rig.push(&numbers, vec![1, 2]);
//! assert_eq!(out.take(), [Seen::Record(2), Seen::Record(4)]);
//! ```
//!
//! With [`Rig::on_worker`] the rig is one worker of several: an exchange keeps the records whose key groups that worker owns
//! and drops the rest. [`Rig::checkpoint`] sends a barrier and takes the snapshot where it cuts; [`Rig::restore`] starts
//! another rig from it, with another number of workers if need be.
//!
//! Not here: two workers at once, sources, the durable side of sinks.

mod clock;
mod ends;
mod memory;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, WallTime};

use crate::barrier::Barriers;
use crate::checkpoint::Counters;
use crate::config::{GuaranteeKind, Options};
use crate::element::{Batch, Body};
use crate::error::{BuildError, OperatorError};
use crate::exchange::{GroupAssignment, KeyGroups};
use crate::graph::node::{Make, Route, Splitter};
use crate::graph::{Environment, Job, OperatorSetup, Stream, TimeMode};
use crate::id::{Attempt, CheckpointId, JobId, OperatorId, WorkerIndex};
use crate::operator::driver::{Driver, Effect, Outcome};
use crate::operator::testing::clock::RigClock;
use crate::operator::testing::memory::NodeSnapshot;
use crate::operator::{Saved, SavedInstance};
use crate::sink::Visibility;
use crate::source::Replay;
use crate::state::Ownership;
use crate::time::Watermark;

pub use self::ends::{Collected, Input, Seen};

/// Steps without any effect after which an operator is said to hang.
const IDLE_STEPS_MAX: usize = 100_000;

/// What all operators of a rig saved at a checkpoint.
#[derive(Debug)]
pub struct RigSnapshot {
    checkpoint: CheckpointId,
    worker: WorkerIndex,
    assignment: GroupAssignment,
    nodes: HashMap<String, Rc<NodeSnapshot>>,
}

/// A part of a job, stepped by hand. See the head of the module.
///
/// Build first ([`Rig::input`], [`Rig::collect`]); the first push, signal or [`Rig::start`] ends the building.
pub struct Rig {
    job: Job,
    environment: Environment,
    worker: WorkerIndex,
    assignment: GroupAssignment,
    room: usize,
    clock: Arc<RigClock>,
    next_checkpoint: CheckpointId,
    collectors: HashMap<OperatorId, Box<dyn FnMut(Body)>>,
    restored: HashMap<String, Vec<SavedPart>>,
    running: Option<Running>,
}

/// One instance's part of a snapshot, on its way into a new rig.
struct SavedPart {
    worker: WorkerIndex,
    assignment: GroupAssignment,
    node: Rc<NodeSnapshot>,
}

struct Running {
    nodes: Vec<RunningNode>,
    /// Reader of each output port.
    readers: HashMap<(OperatorId, usize), Reader>,
    cuts: HashMap<String, Rc<NodeSnapshot>>,
}

struct RunningNode {
    name: String,
    kind: String,
    outputs: usize,
    driver: Option<Driver>,
}

struct Reader {
    node: OperatorId,
    channel: usize,
    splitter: Option<Box<dyn Splitter>>,
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rig({:?}, worker {})", self.job, self.worker)
    }
}

impl Default for Rig {
    fn default() -> Self {
        Rig::new()
    }
}

impl Rig {
    /// An empty rig: the only worker of its job.
    pub fn new() -> Rig {
        Rig::on_worker(0, 1)
    }

    /// An empty rig that is one of `workers` workers.
    ///
    /// # Panics
    /// Without workers, or if there is no such one.
    pub fn on_worker(worker: u32, workers: u32) -> Rig {
        let workers = NonZeroU32::new(workers).expect("at least one worker");
        assert!(worker < workers.get(), "worker {worker} of {workers}");
        let mut environment = Environment::new(&Options::new("rig", "rig"));
        let clock = Arc::new(RigClock::default());
        environment.platform.clock = clock.clone();
        Rig {
            job: Job::new(environment.clone()),
            environment,
            worker: WorkerIndex(worker),
            assignment: GroupAssignment::new(KeyGroups::default(), workers),
            room: usize::MAX,
            clock,
            next_checkpoint: CheckpointId(1),
            collectors: HashMap::new(),
            restored: HashMap::new(),
            running: None,
        }
    }

    /// Sets how many records an operator may emit per call, so that longer outputs must be resumed. Unlimited at first.
    pub fn set_room(&mut self, records: usize) {
        assert!(records > 0, "without room nothing ever moves");
        self.room = records;
    }

    /// The limits that operators of this rig see, to be changed before the start.
    pub fn limits(&mut self) -> &mut crate::config::Limits {
        &mut self.environment.limits
    }

    /// The job, for parts that ask for one.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// A stream that is fed by hand.
    pub fn input<T: 'static, M: TimeMode>(&self, name: &str) -> (Input<M::Of<T>>, Stream<T, M>)
    where
        M::Of<T>: Send,
    {
        let make = Box::new(|| unreachable!("an input of a rig is fed by hand"));
        let make = Make::Source { splits: Box::new(|| Ok(vec![])), replay: Replay::FromPosition, make, follow: None };
        let outputs = self.job.add(name.to_string(), "input", vec![], 1, make);
        (Input { node: outputs.node, records: std::marker::PhantomData }, outputs.stream::<T, M>(0))
    }

    /// Gathers what comes out of a stream.
    pub fn collect<T: 'static, M: TimeMode>(&mut self, stream: Stream<T, M>) -> Collected<M::Of<T>>
    where
        M::Of<T>: Send,
    {
        let unmade = |_: &OperatorSetup| Err(BuildError::refused("collect", "a collector of a rig is never made"));
        let node = stream.operator_auto("collect", 0, unmade).node;
        let seen = Rc::new(RefCell::new(vec![]));
        let out = seen.clone();
        let collector = move |body: Body| {
            let mut seen = out.borrow_mut();
            match body {
                Body::Empty => {}
                Body::Records(batch) => seen.extend(batch.take::<M::Of<T>>().into_iter().map(Seen::Record)),
                Body::Watermark(t) => seen.push(Seen::Watermark(t)),
                Body::Idle => seen.push(Seen::Idle),
                Body::Active => seen.push(Seen::Active),
                Body::Barrier(n) => seen.push(Seen::Barrier(n)),
                Body::End => seen.push(Seen::End),
            }
        };
        self.collectors.insert(node, Box::new(collector));
        Collected { seen }
    }

    /// Starts from what rigs of one checkpoint saved: this worker's own part if the number of workers is the same, else all.
    ///
    /// # Panics
    /// If the rig has started, or there is no snapshot.
    pub fn restore(&mut self, snapshots: &[RigSnapshot]) {
        assert!(self.running.is_none(), "state is restored before the first frame");
        let checkpoint = snapshots.iter().map(|s| s.checkpoint).max().expect("at least one snapshot");
        self.next_checkpoint = checkpoint.next();
        for snapshot in snapshots {
            let (worker, assignment) = (snapshot.worker, snapshot.assignment);
            for (name, node) in &snapshot.nodes {
                let part = SavedPart { worker, assignment, node: node.clone() };
                self.restored.entry(name.clone()).or_default().push(part);
            }
        }
    }

    /// Makes the operators, restores them and lets them say what they have to say first. Called by the first push if not
    /// before.
    ///
    /// # Panics
    /// If an operator can't be made or restored.
    pub fn start(&mut self) {
        if self.running.is_none() {
            self.try_start().unwrap_or_else(|e| panic!("the rig can't start: {e}"));
        }
    }

    /// As [`Rig::start`], for operators that refuse.
    ///
    /// # Errors
    /// What an operator answered when it was made or restored.
    pub fn try_start(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        assert!(self.running.is_none(), "a rig starts once");
        let nodes = std::mem::take(&mut self.job.inner.borrow_mut().nodes);
        let mut running = Running { nodes: vec![], readers: HashMap::new(), cuts: HashMap::new() };
        for node in nodes {
            let mut port_of = vec![];
            for (channel, edge) in node.inputs.into_iter().enumerate() {
                let splitter = match edge.route {
                    Route::Local => None,
                    Route::ByKey(make) => {
                        let mut splitter = make();
                        splitter.prepare(self.assignment, self.environment.limits.batch_records);
                        Some(splitter)
                    }
                };
                running.readers.insert((edge.from, edge.port), Reader { node: node.id, channel, splitter });
                port_of.push(channel);
            }
            let driver = match node.make {
                Make::Source { .. } => None,
                Make::Operator(_) if self.collectors.contains_key(&node.id) => None,
                Make::Operator(make) | Make::Sink { make, .. } => {
                    let setup = self.setup(&node.name);
                    let mut operator = make(&setup)?;
                    let parts = self.restored.remove(&node.name).unwrap_or_default();
                    let counters = restore(operator.as_mut(), &setup, &parts)?;
                    let batch_records = self.environment.limits.batch_records;
                    let barriers = Barriers::new(GuaranteeKind::ExactlyOnce, port_of.len(), self.next_checkpoint);
                    let mut driver = Driver::new(operator, port_of, node.outputs, barriers, batch_records);
                    driver.counters = counters.unwrap_or(driver.counters);
                    Some(driver)
                }
            };
            running.nodes.push(RunningNode { name: node.name, kind: node.kind, outputs: node.outputs, driver });
        }
        self.running = Some(running);
        for id in self.ids() {
            let (now, mut effects) = (self.clock.monotonic(), vec![]);
            if let Some(driver) = self.driver(id) {
                driver.start(now, &mut effects)?;
            }
            self.carry_out(id, effects)?;
        }
        Ok(self.settle()?)
    }

    /// Sends records into the rig and lets everything that follows from them happen.
    ///
    /// # Panics
    /// If an operator fails; see [`Rig::try_push`].
    pub fn push<R: Send + 'static>(&mut self, input: &Input<R>, records: Vec<R>) {
        self.try_push(input, records).unwrap_or_else(|e| panic!("an operator failed: {e}"));
    }

    /// As [`Rig::push`], for operators that fail.
    ///
    /// # Errors
    /// What the operator answered.
    pub fn try_push<R: Send + 'static>(&mut self, input: &Input<R>, records: Vec<R>) -> Result<(), OperatorError> {
        self.start();
        self.send(input.node, 0, Body::Records(Batch::local(records)));
        self.settle()
    }

    /// Sends a watermark into the rig.
    ///
    /// # Panics
    /// If an operator fails.
    pub fn watermark<R>(&mut self, input: &Input<R>, t: Watermark) {
        self.signal(input.node, Body::Watermark(t));
    }

    /// Says that an input has no data for now.
    ///
    /// # Panics
    /// If an operator fails.
    pub fn idle<R>(&mut self, input: &Input<R>) {
        self.signal(input.node, Body::Idle);
    }

    /// Says that an input has data again.
    ///
    /// # Panics
    /// If an operator fails.
    pub fn active<R>(&mut self, input: &Input<R>) {
        self.signal(input.node, Body::Active);
    }

    /// Says that nothing more will come, on every input: watermark MAX, then the end.
    ///
    /// # Panics
    /// If an operator fails.
    pub fn finish(&mut self) {
        self.start();
        for input in self.inputs() {
            self.signal(input, Body::Watermark(Watermark::MAX));
        }
        for input in self.inputs() {
            self.signal(input, Body::End);
        }
    }

    /// Puts the wall clock of the rig, which stands at 1970-01-01T00:00 at first. Nobody is woken by that.
    pub fn set_wall(&mut self, to: WallTime) {
        self.clock.set_wall(to);
    }

    /// Lets processing time pass, on the wall clock too; operators that asked for it are woken.
    ///
    /// # Panics
    /// If an operator fails.
    pub fn pass(&mut self, how_long: Duration) {
        self.start();
        self.clock.pass(how_long);
        self.settle().unwrap_or_else(|e| panic!("an operator failed: {e}"));
    }

    /// Sends a barrier through the rig and takes the snapshot of each operator where it cuts.
    ///
    /// # Panics
    /// If an operator fails, or its state can't be encoded.
    pub fn checkpoint(&mut self) -> RigSnapshot {
        self.start();
        let checkpoint = self.next_checkpoint;
        self.next_checkpoint = checkpoint.next();
        for input in self.inputs() {
            self.send(input, 0, Body::Barrier(checkpoint));
        }
        self.settle().unwrap_or_else(|e| panic!("an operator failed: {e}"));
        let nodes = std::mem::take(&mut self.running_mut().cuts);
        RigSnapshot { checkpoint, worker: self.worker, assignment: self.assignment, nodes }
    }

    /// What the operator of this name has counted; stateless operators are found by their kind, such as `"map, filter"`.
    ///
    /// # Panics
    /// If there is none.
    pub fn counters(&self, name: &str) -> Counters {
        let nodes = self.running.iter().flat_map(|r| &r.nodes);
        let found = nodes.filter(|n| n.name == name || n.kind == name).find_map(|n| n.driver.as_ref());
        found.unwrap_or_else(|| panic!("the rig has no operator {name:?}, or hasn't started")).counters.clone()
    }

    fn setup(&self, name: &str) -> OperatorSetup {
        OperatorSetup {
            job: JobId(1),
            attempt: Attempt(1),
            name: name.to_string(),
            worker: self.worker,
            assignment: self.assignment,
            visibility: Visibility::ByCheckpoint { first: self.next_checkpoint },
            environment: self.environment.clone(),
        }
    }

    fn running_mut(&mut self) -> &mut Running {
        self.running.as_mut().expect("the rig has started")
    }

    fn ids(&self) -> Vec<OperatorId> {
        let count = self.running.as_ref().map_or(0, |r| r.nodes.len());
        (0..count).map(|i| OperatorId(i as u32)).collect()
    }

    fn inputs(&self) -> Vec<OperatorId> {
        self.ids()
            .into_iter()
            .filter(|id| self.running.as_ref().is_some_and(|r| r.nodes[id.0 as usize].kind == "input"))
            .collect()
    }

    fn driver(&mut self, id: OperatorId) -> Option<&mut Driver> {
        self.running_mut().nodes[id.0 as usize].driver.as_mut()
    }

    fn signal(&mut self, input: OperatorId, body: Body) {
        self.start();
        self.send(input, 0, body);
        self.settle().unwrap_or_else(|e| panic!("an operator failed: {e}"));
    }

    /// Gives a frame to whoever reads this output.
    fn send(&mut self, from: OperatorId, port: usize, body: Body) {
        let worker = self.worker;
        let running = self.running.as_mut().expect("the rig has started");
        // A discarded output has no reader.
        let Some(reader) = running.readers.get_mut(&(from, port)) else { return };
        let mut frames = vec![];
        match (body, &mut reader.splitter) {
            (Body::Records(batch), Some(splitter)) => {
                let mut keep = |owner: usize, batch| {
                    if owner == worker.0 as usize {
                        frames.push(Body::Records(batch));
                    }
                };
                splitter.split(batch, &mut keep);
                splitter.flush(&mut keep);
            }
            (body, _) => frames.push(body),
        }
        let (to, channel) = (reader.node, reader.channel);
        for frame in frames {
            match (self.collectors.get_mut(&to), &mut running.nodes[to.0 as usize].driver) {
                (Some(collector), _) => collector(frame),
                (None, Some(driver)) => driver.enqueue(channel, frame),
                (None, None) => unreachable!("an input reads nothing"),
            }
        }
    }

    fn carry_out(&mut self, id: OperatorId, effects: Vec<Effect>) -> Result<(), OperatorError> {
        let outputs = self.running_mut().nodes[id.0 as usize].outputs;
        for effect in effects {
            let body = match effect {
                Effect::Records(port, batch) => {
                    self.send(id, port, Body::Records(batch));
                    continue;
                }
                Effect::Control(body) => body,
                Effect::Cut(n) => {
                    let node = &mut self.running_mut().nodes[id.0 as usize];
                    let driver = node.driver.as_mut().expect("only drivers cut");
                    let snapshot = NodeSnapshot::take(driver, n)?;
                    let name = node.name.clone();
                    self.running_mut().cuts.insert(name, Rc::new(snapshot));
                    Body::Barrier(n)
                }
                Effect::Overtook(_) | Effect::Captured(..) => unreachable!("the barriers of a rig are aligned"),
                Effect::Ended => Body::End,
            };
            for port in 0..outputs {
                self.send(id, port, body.control_copy().expect("not records"));
            }
        }
        Ok(())
    }

    /// Steps every operator until none has anything to do. Operators come after those they read, so one round is enough.
    fn settle(&mut self) -> Result<(), OperatorError> {
        let (room, now) = (self.room, self.clock.monotonic());
        for id in self.ids() {
            let mut idle_steps = 0;
            while let Some(driver) = self.driver(id) {
                let mut effects = vec![];
                let outcome = driver.step(1, room, now, &mut effects)?;
                idle_steps = if effects.is_empty() { idle_steps + 1 } else { 0 };
                assert!(idle_steps < IDLE_STEPS_MAX, "operator {id} neither goes on nor comes to an end");
                let waiting = outcome == Outcome::Waiting && effects.is_empty();
                self.carry_out(id, effects)?;
                if waiting {
                    break;
                }
            }
        }
        self.check_counts();
        Ok(())
    }

    /// Every consumed record is counted once (I-8).
    fn check_counts(&self) {
        for node in self.running.iter().flat_map(|r| &r.nodes) {
            let Some(Driver { counters: c, .. }) = &node.driver else { continue };
            let (consumed, counted) =
                (c.consumed.iter().sum::<u64>(), c.passed + c.filtered + c.absorbed + c.late + c.rejected);
            assert_eq!(
                consumed, counted,
                "{:?} counted {c:?}: each record it consumes must be counted once",
                node.name
            );
        }
    }
}

/// Gives an operator back what was saved; answers the counters of its own part.
fn restore(
    operator: &mut dyn crate::operator::Operator,
    setup: &OperatorSetup,
    parts: &[SavedPart],
) -> Result<Option<Counters>, Box<dyn std::error::Error>> {
    if parts.is_empty() {
        return Ok(None);
    }
    let same_workers = parts.iter().all(|p| p.assignment == setup.assignment);
    let groups = setup.assignment.range_of(setup.worker);
    let owned = Ownership { groups: setup.assignment.groups(), range: groups };
    for part in parts.iter().filter(|p| !same_workers || p.worker == setup.worker) {
        part.node.load(operator, &owned)?;
    }
    let instances = parts.iter().map(|part| SavedInstance {
        worker: part.worker,
        groups: part.assignment.range_of(part.worker),
        blobs: part.node.blobs.clone(),
    });
    operator.restore(&Saved { instances: instances.collect(), worker: setup.worker, groups, same_workers })?;
    let own = parts.iter().find(|p| same_workers && p.worker == setup.worker);
    Ok(own.map(|p| p.node.counters.clone()))
}
