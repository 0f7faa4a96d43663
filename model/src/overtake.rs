//! Barriers that overtake records, as a model of its own: a dataflow, its checkpoints in memory, one death at any moment, and a
//! restore with another number of workers.
//!
//! The decisions are the product's: [`Overtaker`] says when an instance may cut and what is recorded, [`EdgeCredit`] when records may
//! be sent, [`GroupAssignment`] who owns a key. Overtaking may happen whenever it can or
//! never, which covers every patience. Store and log are a list here: `protocol` has searched those.
//!
//! What is asked when a checkpoint is complete: state, committed output and *what follows from the records in flight* are together
//! the effect of exactly the records read (I-4), and output is in order per split, key and way (I-1). At the end: all of it is there.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use cutwater_engine::barrier::{Alignment, Arrival, Overtaker};
use cutwater_engine::exchange::{ChannelIndex, EdgeCredit, GroupAssignment, KeyGroup, KeyGroups, Processed};
use cutwater_engine::id::CheckpointId;

use crate::config::{Edge, Graph, Rec, Role};
use crate::search::{Kind, Model, Violation};

const CUT: &str = "I-4: state, output and what is in flight are the effect of exactly the records read";
const ORDER: &str = "I-1: output is in order per split, key and way";
const ENDS: &str = "a finished job has committed everything";

/// A mistake in the wiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// What arrives between the cut and its barrier isn't recorded.
    LateArrivalsLost,
    /// What stands behind the barrier is recorded too.
    RecordedPastTheBarrier,
    /// New frames are handled while restored ones wait.
    NewBeforeRestored,
    /// With another number of workers, new records flow without closing the checkpoint first.
    NotClosed,
    /// With another number of workers, records within a worker stay together instead of following their keys.
    KeptTogether,
    /// A checkpoint with records in flight is taken for the last one.
    LastInFlight,
}

impl Slip {
    /// All of them.
    pub const ALL: [Slip; 6] = [
        Slip::LateArrivalsLost,
        Slip::RecordedPastTheBarrier,
        Slip::NewBeforeRestored,
        Slip::NotClosed,
        Slip::KeptTogether,
        Slip::LastInFlight,
    ];
}

/// One search.
#[derive(Clone, Debug)]
pub struct Overtaking {
    /// Its name in results.
    pub name: &'static str,
    /// The job.
    pub graph: Graph,
    /// Edges that barriers must not overtake on.
    pub fixed: Vec<usize>,
    /// Workers before the death and after it.
    pub workers: [u32; 2],
    /// Credit per channel, in records.
    pub credit: u64,
    /// Checkpoints that may start while there is something to read.
    pub checkpoints: u8,
    /// What is planted.
    pub slip: Option<Slip>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Record(Rec),
    Barrier(CheckpointId),
}

/// An instance's part of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Part {
    /// Of a source: how far each of its splits was read.
    read: Vec<(u8, u8)>,
    counts: BTreeMap<u8, u8>,
    /// Channel and record.
    in_flight: Vec<(usize, Rec)>,
}

/// The parts of a checkpoint, by operator and worker.
type Parts = BTreeMap<(usize, u32), Part>;
/// Sink, split, key group, and the operators passed.
type Way = (usize, u8, u8, u8);

#[derive(Clone, Debug, Hash)]
struct Instance {
    node: usize,
    worker: u32,
    machine: Option<Overtaker>,
    queues: Vec<VecDeque<Frame>>,
    credit: Vec<EdgeCredit>,
    restored: VecDeque<(usize, Rec)>,
    /// Barriers that a source is to take.
    due: VecDeque<CheckpointId>,
    splits: Vec<(u8, u8)>,
    counts: BTreeMap<u8, u8>,
    /// The part whose barrier is still to come somewhere.
    recording: Option<Part>,
    /// The next cut.
    next: CheckpointId,
}

#[derive(Debug, Hash)]
struct Checkpoint {
    number: CheckpointId,
    workers: u32,
    parts: Parts,
}

/// A state of the model.
#[derive(Clone, Debug, Hash)]
pub struct World {
    second_life: bool,
    instances: Vec<Instance>,
    next: CheckpointId,
    first: CheckpointId,
    pending: Option<(CheckpointId, Parts)>,
    complete: Option<Rc<Checkpoint>>,
    /// Per sink, split, key group and way the records written, in the order of the log, and for which checkpoint. Nothing is
    /// promised about the order between them, so it is no part of a state.
    log: BTreeMap<Way, Vec<(u8, CheckpointId)>>,
    checkpoints_left: u8,
    done: bool,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A source reads a record.
    Read(usize, usize),
    /// A checkpoint starts.
    Trigger,
    /// A source takes a barrier.
    TakeBarrier(usize),
    /// The first frame of a channel is handled.
    Handle(usize, usize),
    /// The first restored record is handled.
    Replay(usize),
    /// A barrier overtakes.
    Overtake(usize),
    /// The process dies, and another one goes on.
    Die,
}

impl Overtaking {
    fn has(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }

    fn assignment(workers: u32) -> GroupAssignment {
        GroupAssignment::new(KeyGroups::new(4).expect("few groups"), workers.try_into().expect("a job has workers"))
    }

    fn workers(&self, world: &World) -> u32 {
        self.workers[usize::from(world.second_life)]
    }

    /// The channels of an operator: the edge, and the sending worker if it is divided by key.
    fn channels(&self, node: usize, workers: u32) -> Vec<(usize, Option<u32>)> {
        let of = |(index, edge): (usize, Edge)| match edge.by_key {
            true => (0..workers).map(|sender| (index, Some(sender))).collect::<Vec<_>>(),
            false => vec![(index, None)],
        };
        self.graph.inputs(node).flat_map(of).collect()
    }

    fn place(world: &World, node: usize, worker: u32) -> usize {
        let at = |i: &Instance| i.node == node && i.worker == worker;
        world.instances.iter().position(at).expect("an instance of the plan")
    }

    /// Starts a life, from a checkpoint if there is one.
    fn begin(&self, world: &mut World) {
        let workers = self.workers(world);
        let from = world.complete.clone();
        let rescaled = from
            .as_ref()
            .is_some_and(|from| from.workers != workers && from.parts.values().any(|part| !part.in_flight.is_empty()));
        let closing = rescaled && !self.has(Slip::NotClosed);
        world.first = world.next;
        let start = if closing { CheckpointId(world.first.0 - 1) } else { world.first };
        world.instances.clear();
        for node in 0..self.graph.roles.len() {
            for worker in 0..workers {
                let channels = self.channels(node, workers);
                let fixed: Vec<bool> = channels.iter().map(|(edge, _)| self.fixed.contains(edge)).collect();
                let receivers = |edge: Edge| if edge.by_key { workers as usize } else { 1 };
                world.instances.push(Instance {
                    node,
                    worker,
                    machine: (!fixed.is_empty()).then(|| Overtaker::new(&fixed, start, world.first)),
                    queues: vec![VecDeque::new(); fixed.len()],
                    credit: self
                        .graph
                        .outputs(node)
                        .map(|(_, e)| EdgeCredit::new(receivers(e), self.credit, 2))
                        .collect(),
                    restored: self.restored(from.as_deref(), node, worker, workers),
                    due: if closing { [start].into() } else { VecDeque::new() },
                    splits: self.splits(from.as_deref(), node, worker, workers),
                    counts: self.counts(from.as_deref(), node, worker, workers),
                    recording: None,
                    next: start,
                });
            }
        }
    }

    fn splits(&self, from: Option<&Checkpoint>, node: usize, worker: u32, workers: u32) -> Vec<(u8, u8)> {
        let read = |split: u8| {
            let parts = from.into_iter().flat_map(|from| from.parts.values()).flat_map(|part| &part.read);
            parts.copied().find(|(s, _)| *s == split).map_or(0, |(_, read)| read)
        };
        let all = (0u8..).zip(self.graph.splits());
        let mine = all.filter(|(split, (source, _))| *source == node && u32::from(*split) % workers == worker);
        mine.map(|(split, _)| (split, read(split))).collect()
    }

    fn counts(&self, from: Option<&Checkpoint>, node: usize, worker: u32, workers: u32) -> BTreeMap<u8, u8> {
        let parts = from.into_iter().flat_map(|from| &from.parts).filter(|((n, _), _)| *n == node);
        let all = parts.flat_map(|(_, part)| part.counts.iter().map(|(group, count)| (*group, *count)));
        all.filter(|(group, _)| Overtaking::owner(*group, workers) == worker).collect()
    }

    fn owner(group: u8, workers: u32) -> u32 {
        Overtaking::assignment(workers).worker_of(KeyGroup(u16::from(group))).0
    }

    fn restored(&self, from: Option<&Checkpoint>, node: usize, worker: u32, workers: u32) -> VecDeque<(usize, Rec)> {
        let Some(from) = from else { return VecDeque::new() };
        let (then, now) = (self.channels(node, from.workers), self.channels(node, workers));
        let mut restored = VecDeque::new();
        for ((_, old), part) in from.parts.iter().filter(|((n, _), _)| *n == node) {
            for (channel, record) in &part.in_flight {
                let (edge, _) = then[*channel];
                let together = self.has(Slip::KeptTogether) && !self.graph.edges[edge].by_key;
                let mine = match from.workers == workers {
                    true => *old == worker,
                    false if together => *old % workers == worker,
                    false => Overtaking::owner(record.group, workers) == worker,
                };
                if mine {
                    let channel = now.iter().position(|(e, _)| *e == edge).expect("the same graph");
                    restored.push_back((channel, *record));
                }
            }
        }
        restored
    }

    fn has_room(instance: &Instance) -> bool {
        instance.credit.iter().all(EdgeCredit::open)
    }

    fn exhausted(&self, world: &World) -> bool {
        let splits = self.graph.splits();
        let read = |(split, read): &(u8, u8)| usize::from(*read) == splits[usize::from(*split)].1.len();
        world.instances.iter().all(|instance| instance.splits.iter().all(read))
    }

    fn send(&self, world: &mut World, place: usize, record: Rec) -> Result<(), Violation> {
        let (node, worker) = (world.instances[place].node, world.instances[place].worker);
        let workers = self.workers(world);
        let outputs: Vec<(usize, Edge)> = self.graph.outputs(node).collect();
        for (output, (index, edge)) in outputs.into_iter().enumerate() {
            let to = if edge.by_key { Overtaking::owner(record.group, workers) } else { worker };
            let receiver = if edge.by_key { to as usize } else { 0 };
            world.instances[place].credit[output].send_records(receiver, 1).expect("there was room");
            self.arrive(world, (index, edge), worker, to, Frame::Record(record))?;
        }
        Ok(())
    }

    fn forward(&self, world: &mut World, place: usize, n: CheckpointId) -> Result<(), Violation> {
        let (node, worker) = (world.instances[place].node, world.instances[place].worker);
        let workers = self.workers(world);
        let outputs: Vec<(usize, Edge)> = self.graph.outputs(node).collect();
        for (output, (index, edge)) in outputs.into_iter().enumerate() {
            let sent = world.instances[place].credit[output].send_barrier();
            sent.map_err(|e| Violation { promise: "barriers keep to their allowance", found: e.to_string() })?;
            let to = if edge.by_key { 0..workers } else { worker..worker + 1 };
            for to in to {
                self.arrive(world, (index, edge), worker, to, Frame::Barrier(n))?;
            }
        }
        Ok(())
    }

    fn arrive(
        &self,
        world: &mut World,
        (index, edge): (usize, Edge),
        from: u32,
        to: u32,
        frame: Frame,
    ) -> Result<(), Violation> {
        let name = (index, edge.by_key.then_some(from));
        let channel = self.channels(edge.to, self.workers(world)).iter().position(|c| *c == name).expect("a channel");
        let place = Overtaking::place(world, edge.to, to);
        let instance = &mut world.instances[place];
        let machine = instance.machine.as_mut().expect("it has channels");
        match frame {
            Frame::Record(record) => {
                if machine.records(at(channel)) && !self.has(Slip::LateArrivalsLost) {
                    let part = instance.recording.as_mut().expect("it has cut");
                    part.in_flight.push((channel, record));
                }
                instance.queues[channel].push_back(frame);
            }
            Frame::Barrier(n) => match machine.arrived(at(channel), n).map_err(out_of_order)? {
                Arrival::Queue => instance.queues[channel].push_back(frame),
                Arrival::Passed => {
                    self.give_back(world, place, channel, Processed { units: 0, barriers: 1 });
                    self.hand_in(world, place)?;
                }
            },
        }
        Ok(())
    }

    fn give_back(&self, world: &mut World, place: usize, channel: usize, processed: Processed) {
        let (node, worker) = (world.instances[place].node, world.instances[place].worker);
        let (index, sender) = self.channels(node, self.workers(world))[channel];
        let edge = self.graph.edges[index];
        let output = self.graph.outputs(edge.from).position(|(i, _)| i == index).expect("an output");
        let (from, receiver) = sender.map_or((worker, 0), |sender| (sender, worker as usize));
        let from = Overtaking::place(world, edge.from, from);
        world.instances[from].credit[output].give_back(receiver, processed).expect("it got that");
    }

    fn process(&self, world: &mut World, place: usize, record: Rec) -> Result<(), Violation> {
        let instance = &mut world.instances[place];
        let passed = Rec { via: record.via | 1 << instance.node, ..record };
        match self.graph.roles[instance.node] {
            Role::Source(_) => unreachable!("a source has no inputs"),
            Role::Pass => self.send(world, place, passed),
            Role::Count => {
                *instance.counts.entry(record.group).or_default() += 1;
                self.send(world, place, passed)
            }
            Role::Sink => {
                let Rec { split, offset, via, group, .. } = record;
                let written = world.log.entry((instance.node, split, group, via)).or_default();
                written.push((offset, instance.next));
                Ok(())
            }
        }
    }

    /// An instance has cut. `in_flight`: what its barrier overtook, so far.
    fn cut(
        &self,
        world: &mut World,
        place: usize,
        n: CheckpointId,
        in_flight: Vec<(usize, Rec)>,
    ) -> Result<(), Violation> {
        self.forward(world, place, n)?;
        let instance = &mut world.instances[place];
        instance.next = n.next();
        if n < world.first {
            return Ok(());
        }
        let part = Part { read: instance.splits.clone(), counts: instance.counts.clone(), in_flight };
        assert!(instance.recording.is_none(), "one checkpoint is recorded at a time");
        instance.recording = Some(part);
        self.hand_in(world, place)
    }

    /// Hands a part in when its last barrier has arrived; completes the checkpoint with the last part.
    fn hand_in(&self, world: &mut World, place: usize) -> Result<(), Violation> {
        let instance = &mut world.instances[place];
        if instance.machine.as_ref().is_some_and(|machine| machine.recording().is_some()) {
            return Ok(());
        }
        let Some(part) = instance.recording.take() else { return Ok(()) };
        let id = (instance.node, instance.worker);
        let all = world.instances.len();
        let (n, parts) = world.pending.as_mut().expect("a part belongs to a checkpoint");
        parts.insert(id, part);
        if parts.len() < all {
            return Ok(());
        }
        let (number, parts) = (*n, std::mem::take(parts));
        world.pending = None;
        let in_flight = parts.values().any(|part| !part.in_flight.is_empty());
        world.complete = Some(Rc::new(Checkpoint { number, workers: self.workers(world), parts }));
        let splits = self.graph.splits();
        let all_read = self.positions(world).iter().zip(&splits).all(|(at, (_, s))| usize::from(*at) == s.len());
        world.done = all_read && (!in_flight || self.has(Slip::LastInFlight));
        self.check(world)
    }

    fn positions(&self, world: &World) -> Vec<u8> {
        let mut at = vec![0; self.graph.splits().len()];
        let parts = world.complete.iter().flat_map(|complete| complete.parts.values());
        parts.flat_map(|part| &part.read).for_each(|(split, read)| at[usize::from(*split)] = *read);
        at
    }

    /// The newest checkpoint against the definition.
    fn check(&self, world: &World) -> Result<(), Violation> {
        let complete = world.complete.as_ref().expect("just completed");
        let at = self.positions(world);
        // What follows from the records in flight, operator by operator.
        let mut arriving: Vec<Vec<Rec>> = vec![vec![]; self.graph.roles.len()];
        for ((node, _), part) in &complete.parts {
            arriving[*node].extend(part.in_flight.iter().map(|(_, record)| *record));
        }
        for node in 0..arriving.len() {
            let role = &self.graph.roles[node];
            let mut counts: BTreeMap<u8, u8> = BTreeMap::new();
            let parts = complete.parts.iter().filter(|((n, _), _)| *n == node);
            parts.for_each(|(_, part)| part.counts.iter().for_each(|(g, c)| *counts.entry(*g).or_default() += c));
            for record in std::mem::take(&mut arriving[node]) {
                match role {
                    Role::Sink => arriving[node].push(record),
                    Role::Count => *counts.entry(record.group).or_default() += 1,
                    Role::Pass | Role::Source(_) => {}
                }
                for (_, edge) in self.graph.outputs(node) {
                    arriving[edge.to].push(Rec { via: record.via | 1 << node, ..record });
                }
            }
            if *role == Role::Count {
                let mut expected: BTreeMap<u8, u8> = BTreeMap::new();
                for ((source, records), read) in self.graph.splits().into_iter().zip(&at) {
                    let ways = u8::try_from(self.graph.ways(source, node).len()).expect("few ways");
                    for group in &records[..usize::from(*read)] {
                        *expected.entry(u8::try_from(*group).expect("few groups")).or_default() += ways;
                    }
                }
                if counts != expected {
                    return broken(
                        CUT,
                        format!("at {at:?} operator {node} comes to {counts:?} instead of {expected:?}"),
                    );
                }
            }
            if *role == Role::Sink {
                let mut found = visible(world, node, complete.number)?;
                found.extend(arriving[node].iter().map(|r| (r.split, r.offset, r.via)));
                found.sort_unstable();
                if found != self.expected(node, &at) {
                    return broken(CUT, format!("at {at:?} sink {node} comes to {found:?}"));
                }
            }
        }
        Ok(())
    }

    fn expected(&self, sink: usize, at: &[u8]) -> Vec<(u8, u8, u8)> {
        let mut expected = vec![];
        for (index, ((source, _), read)) in (0u8..).zip(self.graph.splits().into_iter().zip(at)) {
            for via in self.graph.ways(source, sink) {
                expected.extend((0..*read).map(|offset| (index, offset, via)));
            }
        }
        expected.sort_unstable();
        expected
    }
}

impl Model for Overtaking {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let mut world = World {
            second_life: false,
            instances: vec![],
            next: CheckpointId(2),
            first: CheckpointId(2),
            pending: None,
            complete: None,
            log: BTreeMap::new(),
            checkpoints_left: self.checkpoints,
            done: false,
        };
        self.begin(&mut world);
        world
    }

    fn steps(&self, world: &World) -> Vec<Step> {
        if world.done {
            return vec![];
        }
        let mut steps = vec![];
        let exhausted = self.exhausted(world);
        let lengths: Vec<usize> = self.graph.splits().iter().map(|(_, records)| records.len()).collect();
        let mut quiet = true;
        for (place, instance) in world.instances.iter().enumerate() {
            let room = Overtaking::has_room(instance);
            if !instance.due.is_empty() && instance.machine.is_none() {
                steps.push(Step::TakeBarrier(place));
            } else if room {
                let unread =
                    |(_, (split, read)): &(usize, &(u8, u8))| usize::from(*read) < lengths[usize::from(*split)];
                steps.extend(instance.splits.iter().enumerate().filter(unread).map(|(i, _)| Step::Read(place, i)));
            }
            let Some(machine) = &instance.machine else { continue };
            if machine.overtakable().is_some() {
                steps.push(Step::Overtake(place));
            }
            quiet &= instance.restored.is_empty() && instance.queues.iter().all(VecDeque::is_empty);
            if !instance.restored.is_empty() {
                if room {
                    steps.push(Step::Replay(place));
                }
                if !self.has(Slip::NewBeforeRestored) {
                    continue;
                }
            }
            for (channel, queue) in instance.queues.iter().enumerate() {
                let may = match queue.front() {
                    None => false,
                    Some(Frame::Record(_)) => room,
                    Some(Frame::Barrier(_)) => true,
                };
                if may && !machine.held(at(channel)) {
                    steps.push(Step::Handle(place, channel));
                }
            }
        }
        // The last one comes when all is read; again when nothing is under way any more, if it had records in flight.
        if world.pending.is_none() && (world.checkpoints_left > 0 || exhausted && quiet) {
            steps.push(Step::Trigger);
        }
        if !world.second_life {
            steps.push(Step::Die);
        }
        steps
    }

    fn after(&self, world: &World, step: &Step) -> Result<World, Violation> {
        let mut after = world.clone();
        let world = &mut after;
        match *step {
            Step::Read(place, split) => {
                let (index, offset) = world.instances[place].splits[split];
                world.instances[place].splits[split].1 += 1;
                let group = self.graph.splits()[usize::from(index)].1[usize::from(offset)];
                let group = u8::try_from(group).expect("few groups");
                self.send(world, place, Rec { split: index, offset, via: 0, group, count: 0 })?;
            }
            Step::Trigger => {
                world.checkpoints_left = world.checkpoints_left.saturating_sub(1);
                let n = world.next;
                world.next = n.next();
                world.pending = Some((n, BTreeMap::new()));
                let sources = world.instances.iter_mut().filter(|instance| instance.machine.is_none());
                sources.for_each(|source| source.due.push_back(n));
            }
            Step::TakeBarrier(place) => {
                let n = world.instances[place].due.pop_front().expect("a step takes what is there");
                self.cut(world, place, n, vec![])?;
            }
            Step::Replay(place) => {
                let (_, record) = world.instances[place].restored.pop_front().expect("a step takes what is there");
                self.process(world, place, record)?;
            }
            Step::Handle(place, channel) => {
                match world.instances[place].queues[channel].pop_front().expect("a step takes what is there") {
                    Frame::Record(record) => {
                        self.process(world, place, record)?;
                        self.give_back(world, place, channel, Processed { units: 1, barriers: 0 });
                    }
                    Frame::Barrier(n) => {
                        self.give_back(world, place, channel, Processed { units: 0, barriers: 1 });
                        let machine = world.instances[place].machine.as_mut().expect("it has channels");
                        if let Alignment::Cut(n) = machine.reached(at(channel), n).map_err(out_of_order)? {
                            self.cut(world, place, n, vec![])?;
                        }
                    }
                }
            }
            Step::Overtake(place) => self.overtake(world, place)?,
            Step::Die => {
                let number = world.complete.as_ref().map(|complete| complete.number);
                world.log.values_mut().for_each(|log| log.retain(|(_, n)| number.is_some_and(|number| *n <= number)));
                world.second_life = true;
                world.pending = None;
                self.begin(world);
            }
        }
        Ok(after)
    }

    fn tell(&self, world: &World, step: &Step) -> String {
        let who = |place: usize| format!("operator {}/{}", world.instances[place].node, world.instances[place].worker);
        match *step {
            Step::Read(place, split) => format!("{} reads {:?}", who(place), world.instances[place].splits[split]),
            Step::Trigger => format!("checkpoint {} starts", world.next),
            Step::TakeBarrier(place) => format!("{} sends {:?}", who(place), world.instances[place].due.front()),
            Step::Handle(place, channel) => {
                format!(
                    "{} handles {:?} of channel {channel}",
                    who(place),
                    world.instances[place].queues[channel].front()
                )
            }
            Step::Replay(place) => format!("{} is given {:?}", who(place), world.instances[place].restored.front()),
            Step::Overtake(place) => format!("{} is overtaken", who(place)),
            Step::Die => format!("the process dies; {} workers go on", self.workers[1]),
        }
    }

    fn judge(&self, world: &World, steps: &[Step]) -> Result<Kind, Violation> {
        if !world.done {
            return match steps.iter().any(|step| !matches!(step, Step::Die)) {
                true => Ok(Kind::Open),
                false => broken("nothing deadlocks", format!("nobody can do anything: {world:?}")),
            };
        }
        let number = world.complete.as_ref().expect("done by a checkpoint").number;
        let all: Vec<u8> = self.graph.splits().iter().map(|(_, r)| u8::try_from(r.len()).expect("few")).collect();
        for (sink, _) in self.graph.roles.iter().enumerate().filter(|(_, role)| **role == Role::Sink) {
            let mut found = visible(world, sink, number)?;
            found.sort_unstable();
            if found != self.expected(sink, &all) {
                return broken(ENDS, format!("sink {sink} shows {found:?}"));
            }
        }
        Ok(Kind::Final)
    }
}

impl Overtaking {
    fn overtake(&self, world: &mut World, place: usize) -> Result<(), Violation> {
        let instance = &mut world.instances[place];
        let machine = instance.machine.as_mut().expect("it has channels");
        let held: Vec<bool> = (0..instance.queues.len()).map(|channel| machine.held(at(channel))).collect();
        let n = machine.overtake().expect("a step does what it can");
        let mut in_flight: Vec<(usize, Rec)> = instance.restored.iter().copied().collect();
        let mut passed = vec![];
        for (channel, queue) in instance.queues.iter_mut().enumerate().filter(|(channel, _)| !held[*channel]) {
            let barrier = queue.iter().position(|frame| *frame == Frame::Barrier(n));
            let end = match self.has(Slip::RecordedPastTheBarrier) {
                true => queue.len(),
                false => barrier.unwrap_or(queue.len()),
            };
            in_flight.extend(queue.iter().take(end).filter_map(|frame| match frame {
                Frame::Record(record) => Some((channel, *record)),
                Frame::Barrier(_) => None,
            }));
            if let Some(barrier) = barrier {
                queue.remove(barrier);
                passed.push(channel);
            }
        }
        for channel in passed {
            self.give_back(world, place, channel, Processed { units: 0, barriers: 1 });
        }
        self.cut(world, place, n, in_flight)
    }
}

fn at(channel: usize) -> ChannelIndex {
    ChannelIndex(u32::try_from(channel).expect("few channels"))
}

/// What a sink shows of checkpoints up to this one, as (split, offset, via); in order per split, key group and way.
fn visible(world: &World, sink: usize, number: CheckpointId) -> Result<Vec<(u8, u8, u8)>, Violation> {
    let mut found = vec![];
    for ((_, split, group, via), written) in world.log.iter().filter(|((node, ..), _)| *node == sink) {
        let offsets: Vec<u8> = written.iter().filter(|(_, n)| *n <= number).map(|(offset, _)| *offset).collect();
        if !offsets.is_sorted_by(|one, next| one < next) {
            return broken(ORDER, format!("sink {sink} shows records {offsets:?} of split {split}, key group {group}"));
        }
        found.extend(offsets.into_iter().map(|offset| (*split, offset, *via)));
    }
    Ok(found)
}

fn out_of_order(error: cutwater_engine::barrier::AlignError) -> Violation {
    Violation { promise: "barriers of a channel rise by one", found: error.to_string() }
}

fn broken<T>(promise: &'static str, found: String) -> Result<T, Violation> {
    Err(Violation { promise, found })
}

/// The searches, and for each slip the one that finds it.
pub fn searches() -> Vec<Overtaking> {
    let search = |name, roles: Vec<Role>, edges: &[(usize, usize, bool)]| {
        let edges = edges.iter().map(|&(from, to, by_key)| Edge { from, to, by_key }).collect();
        let graph = Graph { roles, edges };
        Overtaking { name, graph, fixed: vec![], workers: [1, 1], credit: 1, checkpoints: 1, slip: None }
    };
    let counting = |name, records: &[u16]| {
        let roles = vec![Role::Source(vec![records.to_vec()]), Role::Count, Role::Sink];
        search(name, roles, &[(0, 1, true), (1, 2, false)])
    };
    let diamond = vec![Role::Source(vec![vec![0, 0]]), Role::Pass, Role::Pass, Role::Count, Role::Sink];
    let ways = [(0, 1, false), (0, 2, false), (1, 3, true), (2, 3, true), (3, 4, false)];
    let within = vec![Role::Source(vec![vec![3, 3]]), Role::Pass, Role::Count, Role::Sink];
    let within_ways = [(0, 1, false), (1, 2, true), (2, 3, false)];
    vec![
        counting("overtaking: one worker", &[0, 0]),
        Overtaking { workers: [1, 2], ..counting("overtaking: from one worker to two", &[3, 3]) },
        Overtaking { workers: [2, 1], ..counting("overtaking: from two workers to one", &[0, 3]) },
        Overtaking {
            workers: [1, 2],
            fixed: vec![2],
            ..search("overtaking: within a worker, then by key", within, &within_ways)
        },
        Overtaking { fixed: vec![1], ..counting("overtaking: an edge without bytes", &[0, 0]) },
        Overtaking { checkpoints: 2, ..counting("overtaking: two checkpoints", &[0, 0]) },
        search("overtaking: a diamond", diamond, &ways),
    ]
}
