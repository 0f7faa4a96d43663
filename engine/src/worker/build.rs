//! From the recorded graph to timely operators: the only place where both are in hand.
//!
//! First every operator of this worker is made and restored; a failure there leaves no dataflow behind. Then the dataflow is
//! built, one timely operator per node, with two kinds of outputs: one per data port, and the ack port that feeds the
//! coordinator.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use cutwater_platform::Platform;
use timely::dataflow::channels::pact::{Exchange, ParallelizationContract};
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::generic::{InputHandleCore, OutputBuilder};
use timely::dataflow::{Scope, Stream as TimelyStream};
use timely::progress::operate::FrontierInterest;
use timely::worker::Worker;

use crate::barrier::{Barriers, Overtaker};
use crate::checkpoint::Counters;
use crate::config::{GuaranteeKind, Limits, Snapshots};
use crate::exchange::GroupAssignment;
use crate::graph::OperatorSetup;
use crate::graph::codec::EdgeCodec;
use crate::graph::node::{InputEdge, Make, Node, Route};
use crate::id::{CheckpointId, InstanceId, OperatorId, WorkerIndex};
use crate::in_flight::Restored;
use crate::observe::{InstanceName, Progress};
use crate::operator::Operator;
use crate::operator::driver::Driver;
use crate::snapshot::{Chain, ChainLimits, SnapshotFiles, SnapshotOrigin};
use crate::source::split::splits_of;
use crate::source::{SourceDriver, SplitState, Waker};
use crate::worker::attempt::{AttemptState, Failure};
use crate::worker::control::Plane;
use crate::worker::edge::{InEdge, KeyedPact, LocalPact, OutEdge};
use crate::worker::frame::Frame;
use crate::worker::instance::{FinalCounters, Instance};
use crate::worker::merging::Merging;
use crate::worker::offload::Offload;
use crate::worker::place::{Alarm, Alarms};
use crate::worker::plane::{control_plane, trigger};
use crate::worker::ports::{Ack, AckOutput, EdgeOutput, Ports};
use crate::worker::program::adopt;
use crate::worker::replay::Port;
use crate::worker::restore::Restore;
use crate::worker::snapshotting::Snapshotting;
use crate::worker::source::SourceInstance;

/// Everything one worker needs to build its part of an attempt.
pub(crate) struct Parts {
    pub(crate) platform: Platform,
    pub(crate) limits: Limits,
    pub(crate) snapshots: Option<(Snapshots, SnapshotFiles)>,
    pub(crate) first: CheckpointId,
    pub(crate) guarantee: GuaranteeKind,
    pub(crate) assignment: GroupAssignment,
    pub(crate) worker: WorkerIndex,
    pub(crate) restore: Restore,
    pub(crate) splits: Arc<HashMap<OperatorId, Vec<String>>>,
    pub(crate) attempt: Arc<AttemptState>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) offload: Rc<Offload>,
    pub(crate) alarms: Option<Alarms>,
    /// Where chains are merged; `None` if they aren't.
    pub(crate) merge_offload: Option<Rc<Offload>>,
    /// On worker 0 of a job with checkpoints.
    pub(crate) plane: Option<Plane>,
    pub(crate) ended: FinalCounters,
    pub(crate) commit_groups: HashMap<OperatorId, String>,
    /// For each output port that is read, how many receivers it has.
    pub(crate) readers: HashMap<OperatorId, HashMap<usize, usize>>,
    /// Output ports whose records no barrier may overtake, in a job where barriers overtake records.
    pub(crate) fixed: HashSet<(OperatorId, usize)>,
}

/// Batches that may wait where a barrier must wait for them although it overtakes records elsewhere: enough to keep both
/// sides busy.
const FIXED_BATCHES: usize = 4;

impl Parts {
    /// How long a barrier waits before it overtakes records, if it ever does.
    fn patience(&self) -> Option<std::time::Duration> {
        let exact = self.guarantee == GuaranteeKind::ExactlyOnce;
        self.snapshots.as_ref().filter(|_| exact).and_then(|(config, _)| config.alignment.patience())
    }

    /// How many records may be under way on an edge.
    fn channel_records(&self, from: OperatorId, port: usize) -> usize {
        match self.fixed.contains(&(from, port)) {
            true => self.limits.channel_records.min(FIXED_BATCHES * self.limits.batch_records),
            false => self.limits.channel_records,
        }
    }

    fn barriers(&self, ports: &[Option<Rc<dyn EdgeCodec>>], port_of: &[usize]) -> Barriers {
        let first = self.restore.closing_barrier(self.first).unwrap_or(self.first);
        if self.platform.crash.is_planted("barrier.nothing-held") {
            return Barriers::new(GuaranteeKind::AtLeastOnce, port_of.len(), first);
        }
        if self.patience().is_none() {
            return Barriers::new(self.guarantee, port_of.len(), first);
        }
        let fixed: Vec<bool> = port_of.iter().map(|port| ports[*port].is_none()).collect();
        Barriers::Overtaking(Overtaker::new(&fixed, first, self.first))
    }
}

/// A node whose operator has been made.
pub(crate) struct Made {
    id: OperatorId,
    name: String,
    inputs: Vec<InputEdge>,
    outputs: usize,
    body: MadeBody,
}

enum MadeBody {
    Source { driver: Box<dyn SourceDriver>, splits: Vec<SplitState> },
    Operator { operator: Box<dyn Operator>, chains: Vec<Chain>, restored: Vec<Restored> },
}

/// Makes and restores this worker's operators.
pub(crate) fn make(nodes: Vec<Node>, parts: &Parts, setup: &OperatorSetup) -> Result<Vec<Made>, Failure> {
    let mut made = vec![];
    for Node { id, name, inputs, outputs, make, migrations, .. } in nodes {
        let instance = InstanceId { operator: id, worker: parts.worker };
        let setup = OperatorSetup { name: name.clone(), ..setup.clone() };
        let body = match make {
            Make::Source { make, .. } => MadeBody::Source { driver: make(), splits: splits_here(parts, id)? },
            Make::Operator(make) | Make::Sink { make, .. } => {
                let mut operator = make(&setup)?;
                adopt(operator.as_mut(), &name, &migrations)?;
                let chains = parts.restore.operator(instance, &name, operator.as_mut())?;
                let port = |edge: &InputEdge| Port {
                    by_key: matches!(edge.route, Route::ByKey(_)),
                    codec: edge.codec.clone(),
                };
                let restored = match parts.platform.crash.is_planted("restore.in-flight-lost") {
                    true => vec![],
                    false => parts.restore.in_flight(instance, &inputs.iter().map(port).collect::<Vec<_>>())?,
                };
                MadeBody::Operator { operator, chains, restored }
            }
        };
        made.push(Made { id, name, inputs, outputs, body });
    }
    Ok(made)
}

/// The splits this worker reads, each where it stood; a split that is new begins at its beginning.
fn splits_here(parts: &Parts, source: OperatorId) -> Result<Vec<SplitState>, Failure> {
    let crash = &parts.platform.crash;
    let after_a_pause = parts.progress.was_paused() && crash.is_planted("pause.sealed-forgotten");
    let restored = match crash.is_planted("source.positions-lost") || after_a_pause {
        true => vec![],
        false => parts.restore.splits(source)?,
    };
    let listed = parts.splits.get(&source).map_or(&[][..], Vec::as_slice);
    if let Some(gone) = restored.iter().find(|s| !listed.contains(&s.split)) {
        return Err(Failure::Fatal(format!("split {:?} of the checkpoint is not there any more", gone.split)));
    }
    let mine = splits_of(listed, parts.worker, parts.assignment.workers().get());
    let state = |split: String| {
        let known = restored.iter().find(|s| s.split == split).cloned();
        known.unwrap_or(SplitState { split, position: None, exhausted: false })
    };
    Ok(mine.into_iter().map(state).collect())
}

/// Builds the dataflow from operators that were made.
pub(crate) fn build(worker: &mut Worker, made: Vec<Made>, parts: &Parts) {
    worker.dataflow::<u64, _, _>(|scope| {
        let barriers = parts.snapshots.is_some().then(|| trigger(scope, parts));
        let mut build = Build {
            scope,
            parts,
            barriers,
            open: HashMap::new(),
            acks: vec![],
            unread: HashMap::new(),
            names: HashMap::new(),
        };
        for node in made {
            build.node(node);
        }
        if parts.snapshots.is_some() {
            let acks = build.acks;
            control_plane(scope, parts, acks);
        }
    });
}

type Frames<'s> = TimelyStream<'s, u64, Frame>;
pub(super) type BarrierStream<'s> = TimelyStream<'s, u64, Vec<(u64, u64)>>;
pub(super) type Acks<'s> = TimelyStream<'s, u64, Vec<Ack>>;

/// An output port that nobody reads yet.
struct OpenPort<'s> {
    stream: Frames<'s>,
    edge: Rc<RefCell<OutEdge>>,
    sender_address: Rc<[usize]>,
}

struct Build<'s, 'p> {
    scope: Scope<'s, u64>,
    parts: &'p Parts,
    barriers: Option<BarrierStream<'s>>,
    open: HashMap<(OperatorId, usize), OpenPort<'s>>,
    acks: Vec<Acks<'s>>,
    /// Per operator and worker, whether no source that it reads from, near or far, has a split on a worker that sends to it.
    /// Every worker knows that of all instances.
    unread: HashMap<OperatorId, Vec<bool>>,
    names: HashMap<OperatorId, String>,
}

impl<'s> Build<'s, '_> {
    fn node(&mut self, node: Made) {
        let Made { id, name, inputs, outputs, body } = node;
        self.names.insert(id, name.clone());
        match body {
            MadeBody::Source { driver, splits } => self.source(id, name, driver, splits),
            MadeBody::Operator { operator, chains, restored } => {
                self.operator(id, name, inputs, outputs, operator, chains, restored);
            }
        }
    }

    /// The data outputs of a node and its ack output. A port that nobody reads has no edge: what is sent there vanishes.
    fn outputs(
        &mut self,
        builder: &mut OperatorBuilder<'s, u64>,
        id: OperatorId,
        outputs: usize,
        readers: &HashMap<usize, usize>,
    ) -> (Vec<EdgeOutput>, AckOutput) {
        let address = builder.operator_info().address;
        let mut data = vec![];
        for port in 0..outputs {
            let (output, stream) = builder.new_output::<Frame>();
            let receivers = readers.get(&port).copied();
            let edge = receivers.map(|receivers| {
                let activator = self.scope.activator_for(address.clone());
                let checkpoints = self.parts.snapshots.as_ref().map_or(1, |(s, _)| s.uncommitted_max);
                // The barrier that closes the checkpoint gone back to may be under way besides.
                let closing = u64::from(self.parts.restore.closing_barrier(self.parts.first).is_some());
                let checkpoints = u32::try_from(checkpoints.saturating_add(closing)).unwrap_or(u32::MAX - 1);
                OutEdge::new(receivers, self.parts.channel_records(id, port), checkpoints, activator)
            });
            if let Some(edge) = &edge {
                let sender_address = address.clone();
                self.open.insert((id, port), OpenPort { stream, edge: edge.clone(), sender_address });
            }
            data.push(edge.map(|edge| (OutputBuilder::from(output), edge)));
        }
        let (ack, acks) = builder.new_output::<Vec<Ack>>();
        self.acks.push(acks);
        (data, OutputBuilder::from(ack))
    }

    fn source(&mut self, id: OperatorId, name: String, driver: Box<dyn SourceDriver>, splits: Vec<SplitState>) {
        let parts = self.parts;
        let workers = parts.assignment.workers().get();
        let listed = parts.splits.get(&id).map_or(&[][..], Vec::as_slice);
        let no_split = |worker| splits_of(listed, WorkerIndex(worker), workers).is_empty();
        self.unread.insert(id, (0..workers).map(no_split).collect());
        let instance = InstanceId { operator: id, worker: parts.worker };
        let mut builder = OperatorBuilder::new(name.clone(), self.scope);
        let address = builder.operator_info().address;
        let mut barriers = self
            .barriers
            .clone()
            .map(|stream| builder.new_input(stream, Exchange::new(|barrier: &(u64, u64)| barrier.0)));
        if barriers.is_some() {
            builder.set_notify_for(0, FrontierInterest::Always);
        }
        let readers = self.readers(id);
        let (data, ack) = self.outputs(&mut builder, id, 1, &readers);
        let waker = activating(self.scope, &address);
        let activator = Alarm::new(self.scope.activator_for(address), parts.alarms.clone());
        let (attempt, first) = (parts.attempt.clone(), parts.first);
        let counters = parts.restore.counters(id, Counters { emitted: vec![0], ..Counters::default() });
        let (limits, ended, progress) = (parts.limits, parts.ended.clone(), parts.progress.clone());
        let (from, crash, clock) = (parts.worker.0, parts.platform.crash.clone(), parts.platform.clock.clone());
        parts.progress.standings().join(instance, &name, vec![]);
        let closing = parts.restore.closing_barrier(first);
        builder.build(move |capabilities| {
            let mut source = SourceInstance {
                id: instance,
                name,
                driver,
                ports: Ports::new(from, data, ack, capabilities, first),
                counters,
                limits,
                activator,
                ended,
                progress,
                crash,
                clock,
                exhausted: false,
                over: false,
            };
            let mut to_open = Some((splits, waker));
            move |frontiers| {
                if attempt.is_over() {
                    return;
                }
                let mut step = || -> Result<(), Failure> {
                    if let Some((splits, waker)) = to_open.take() {
                        source.driver.open(splits, waker)?;
                        source.crash.reach("source.opened");
                        if let Some(n) = closing {
                            source.ports.closing_barrier(n);
                        }
                    }
                    let mut due = vec![];
                    if let Some(barriers) = &mut barriers {
                        barriers.for_each(|_, batch| due.extend(batch.drain(..).map(|(_, n)| CheckpointId(n))));
                    }
                    for n in due {
                        source.cut(n)?;
                    }
                    let exhausted = source.read()?;
                    let closed = match &barriers {
                        Some(_) => frontiers[0].is_empty(),
                        None => exhausted || source.progress.stop_requested(),
                    };
                    if closed {
                        source.finish();
                    }
                    Ok(())
                };
                if let Err(failure) = step() {
                    attempt.fail(failure);
                }
            }
        });
    }

    #[expect(clippy::too_many_arguments, reason = "called once, from the place that has all of this in hand")]
    fn operator(
        &mut self,
        id: OperatorId,
        name: String,
        inputs: Vec<InputEdge>,
        outputs: usize,
        operator: Box<dyn Operator>,
        chains: Vec<Chain>,
        restored: Vec<Restored>,
    ) {
        let parts = self.parts;
        let instance = InstanceId { operator: id, worker: parts.worker };
        let mut builder = OperatorBuilder::new(name.clone(), self.scope);
        let address = builder.operator_info().address;
        let (mut handles, mut in_edges, mut port_of) = (vec![], vec![], vec![]);
        let senders = self.senders(&inputs);
        let standing = parts.progress.standings().join(instance, &name, senders);
        let (mut unread, mut unread_channels) = (vec![true; parts.assignment.workers().get() as usize], vec![]);
        let codecs: Vec<_> = inputs.iter().map(|edge| edge.codec.clone()).collect();
        for (port, InputEdge { from, port: from_port, route, .. }) in inputs.into_iter().enumerate() {
            let open = self.open.remove(&(from, from_port)).expect("an operator comes after those it reads from");
            let senders = &self.unread[&from];
            match route {
                Route::Local => {
                    unread.iter_mut().zip(senders).for_each(|(unread, sender)| *unread &= sender);
                    unread_channels.push(senders[parts.worker.0 as usize]);
                }
                Route::ByKey(_) => {
                    let nobody_sends = senders.iter().all(|sender| *sender);
                    unread.iter_mut().for_each(|unread| *unread &= nobody_sends);
                    unread_channels.extend_from_slice(senders);
                }
            }
            let (handle, edge) = connect(&mut builder, open, route, parts);
            builder.set_notify_for(port, FrontierInterest::Never);
            port_of.extend(std::iter::repeat_n(port, edge.channels()));
            handles.push(handle);
            in_edges.push(edge);
        }
        let readers = self.readers(id);
        let (data, ack) = self.outputs(&mut builder, id, outputs, &readers);
        let barriers = parts.barriers(&codecs, &port_of);
        let mut driver = Driver::new(operator, port_of, outputs, barriers, parts.limits.batch_records);
        if let Some(patience) = parts.patience() {
            driver.overtake_after(patience, codecs);
        }
        driver.replay(restored);
        driver.counters = parts.restore.counters(id, driver.counters.clone());
        driver
            .expect_idle(unread_channels.iter().enumerate().filter(|(_, unread)| **unread).map(|(channel, _)| channel));
        self.unread.insert(id, unread);
        let waker = activating(self.scope, &address);
        let snapshots = parts.snapshots.as_ref().map(|(config, files)| {
            let origin =
                SnapshotOrigin { checkpoint: parts.first, instance, groups: parts.assignment.range_of(parts.worker) };
            let limits = ChainLimits { deltas_max: config.deltas_max };
            let group = parts.commit_groups.get(&id).cloned();
            let (crash, clock) = (parts.platform.crash.clone(), parts.platform.clock.clone());
            let states = driver.operator.states();
            let merging = parts
                .merge_offload
                .as_ref()
                .map(|offload| Merging::new(origin, config.merge_after, files.clone(), offload.clone(), waker.clone()));
            Snapshotting::new(
                origin,
                states,
                chains,
                limits,
                files.clone(),
                group,
                waker,
                clock,
                standing.clone(),
                crash,
            )
            .merging(merging)
        });
        let activator = Alarm::new(self.scope.activator_for(address), parts.alarms.clone());
        let (attempt, first, from) = (parts.attempt.clone(), parts.first, parts.worker.0);
        let (limits, clock, ended) = (parts.limits, parts.platform.clock.clone(), parts.ended.clone());
        let (offload, crash) = (parts.offload.clone(), parts.platform.crash.clone());
        builder.build(move |capabilities| {
            let ports = Ports::new(from, data, ack, capabilities, first);
            let mut instance = Instance::new(
                instance, name, driver, ports, in_edges, first, snapshots, offload, limits, clock, activator, ended,
                crash, standing,
            );
            move |_frontiers| {
                if attempt.is_over() {
                    return;
                }
                for (input, handle) in handles.iter_mut().enumerate() {
                    handle.pull(|from, body| instance.enqueue(input, from, body));
                }
                if let Err(failure) = instance.activate() {
                    attempt.fail(failure);
                }
            }
        });
    }

    /// Who sends on each input channel, in the order of channels.
    fn senders(&self, inputs: &[InputEdge]) -> Vec<InstanceName> {
        let me = self.parts.worker.0;
        let of = |edge: &InputEdge| {
            let operator = self.names.get(&edge.from).cloned().unwrap_or_default();
            let workers = match edge.route {
                Route::Local => me..me + 1,
                Route::ByKey(_) => 0..self.parts.assignment.workers().get(),
            };
            workers.map(move |worker| InstanceName { operator: operator.clone(), worker })
        };
        inputs.iter().flat_map(of).collect()
    }

    fn readers(&self, id: OperatorId) -> HashMap<usize, usize> {
        self.parts.readers.get(&id).cloned().unwrap_or_default()
    }
}

type Handle<P> = InputHandleCore<u64, Frame, <P as ParallelizationContract<u64, Frame>>::Puller>;

/// An input of either kind.
enum Input {
    Local(Handle<LocalPact>),
    Keyed(Handle<KeyedPact>),
}

impl Input {
    /// Takes everything that has come.
    fn pull(&mut self, mut take: impl FnMut(u32, crate::element::Body)) {
        let mut each = |frame: &mut Frame| {
            let frame = std::mem::take(frame);
            take(frame.from, frame.body);
        };
        match self {
            Input::Local(handle) => handle.for_each(|_, frame| each(frame)),
            Input::Keyed(handle) => handle.for_each(|_, frame| each(frame)),
        }
    }
}

fn connect<'s>(
    builder: &mut OperatorBuilder<'s, u64>,
    open: OpenPort<'s>,
    route: Route,
    parts: &Parts,
) -> (Input, InEdge) {
    let OpenPort { stream, edge, sender_address } = open;
    match route {
        Route::Local => {
            let handle = builder.new_input(stream, LocalPact { edge: edge.clone() });
            (Input::Local(handle), InEdge::Local(edge))
        }
        Route::ByKey(splitter) => {
            let mut splitter = splitter();
            splitter.prepare(parts.assignment, parts.limits.batch_records);
            let back = Rc::new(RefCell::new(vec![]));
            let pact = KeyedPact { edge, splitter, sender_address, back: back.clone() };
            let handle = builder.new_input(stream, pact);
            let workers = parts.assignment.workers().get() as usize;
            (Input::Keyed(handle), InEdge::Keyed { me: parts.worker.0, back, channels: workers })
        }
    }
}

/// A waker for the operator at `address`, to be called from any thread. Made on the worker's own thread, as timely asks.
pub(super) fn activating(scope: Scope<'_, u64>, address: &Rc<[usize]>) -> Waker {
    let activator = scope.worker().sync_activator_for(address.to_vec());
    // The worker may be gone: then there is nobody to wake.
    Waker::new(move || _ = activator.activate())
}
