//! What happens in a step: an attempt begins, records and barriers travel, instances cut, barriers overtake.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use cutwater_engine::barrier::{Arrival, Overtaker};
use cutwater_engine::exchange::{ChannelIndex, EdgeCredit, GroupAssignment, KeyGroup, KeyGroups, Processed};
use cutwater_engine::id::CheckpointId;

use super::{Checkpoint, Frame, Instance, Overtaking, Part, Slip, World};
use crate::config::{Edge, Rec, Role};
use crate::search::Violation;

impl Overtaking {
    pub(super) fn has(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }

    pub(super) fn assignment(workers: u32) -> GroupAssignment {
        GroupAssignment::new(KeyGroups::new(4).expect("few groups"), workers.try_into().expect("a job has workers"))
    }

    pub(super) fn workers(&self, world: &World) -> u32 {
        self.workers[usize::from(world.second_life)]
    }

    /// The channels of an operator: the edge, and the sending worker if it is divided by key.
    pub(super) fn channels(&self, node: usize, workers: u32) -> Vec<(usize, Option<u32>)> {
        let of = |(index, edge): (usize, Edge)| match edge.by_key {
            true => (0..workers).map(|sender| (index, Some(sender))).collect::<Vec<_>>(),
            false => vec![(index, None)],
        };
        self.graph.inputs(node).flat_map(of).collect()
    }

    pub(super) fn place(world: &World, node: usize, worker: u32) -> usize {
        let at = |i: &Instance| i.node == node && i.worker == worker;
        world.instances.iter().position(at).expect("an instance of the plan")
    }

    /// Starts a life, from a checkpoint if there is one.
    pub(super) fn begin(&self, world: &mut World) {
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

    pub(super) fn splits(&self, from: Option<&Checkpoint>, node: usize, worker: u32, workers: u32) -> Vec<(u8, u8)> {
        let read = |split: u8| {
            let parts = from.into_iter().flat_map(|from| from.parts.values()).flat_map(|part| &part.read);
            parts.copied().find(|(s, _)| *s == split).map_or(0, |(_, read)| read)
        };
        let all = (0u8..).zip(self.graph.splits());
        let mine = all.filter(|(split, (source, _))| *source == node && u32::from(*split) % workers == worker);
        mine.map(|(split, _)| (split, read(split))).collect()
    }

    pub(super) fn counts(&self, from: Option<&Checkpoint>, node: usize, worker: u32, workers: u32) -> BTreeMap<u8, u8> {
        let parts = from.into_iter().flat_map(|from| &from.parts).filter(|((n, _), _)| *n == node);
        let all = parts.flat_map(|(_, part)| part.counts.iter().map(|(group, count)| (*group, *count)));
        all.filter(|(group, _)| Overtaking::owner(*group, workers) == worker).collect()
    }

    pub(super) fn owner(group: u8, workers: u32) -> u32 {
        Overtaking::assignment(workers).worker_of(KeyGroup(u16::from(group))).0
    }

    pub(super) fn restored(
        &self,
        from: Option<&Checkpoint>,
        node: usize,
        worker: u32,
        workers: u32,
    ) -> VecDeque<(usize, Rec)> {
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

    pub(super) fn has_room(instance: &Instance) -> bool {
        instance.credit.iter().all(EdgeCredit::open)
    }

    pub(super) fn exhausted(&self, world: &World) -> bool {
        let splits = self.graph.splits();
        let read = |(split, read): &(u8, u8)| usize::from(*read) == splits[usize::from(*split)].1.len();
        world.instances.iter().all(|instance| instance.splits.iter().all(read))
    }

    pub(super) fn send(&self, world: &mut World, place: usize, record: Rec) -> Result<(), Violation> {
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

    pub(super) fn forward(&self, world: &mut World, place: usize, n: CheckpointId) -> Result<(), Violation> {
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

    pub(super) fn arrive(
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

    pub(super) fn give_back(&self, world: &mut World, place: usize, channel: usize, processed: Processed) {
        let (node, worker) = (world.instances[place].node, world.instances[place].worker);
        let (index, sender) = self.channels(node, self.workers(world))[channel];
        let edge = self.graph.edges[index];
        let output = self.graph.outputs(edge.from).position(|(i, _)| i == index).expect("an output");
        let (from, receiver) = sender.map_or((worker, 0), |sender| (sender, worker as usize));
        let from = Overtaking::place(world, edge.from, from);
        world.instances[from].credit[output].give_back(receiver, processed).expect("it got that");
    }

    pub(super) fn process(&self, world: &mut World, place: usize, record: Rec) -> Result<(), Violation> {
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
    pub(super) fn cut(
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
    pub(super) fn hand_in(&self, world: &mut World, place: usize) -> Result<(), Violation> {
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
}

impl Overtaking {
    pub(super) fn overtake(&self, world: &mut World, place: usize) -> Result<(), Violation> {
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

pub(super) fn at(channel: usize) -> ChannelIndex {
    ChannelIndex(u32::try_from(channel).expect("few channels"))
}

pub(super) fn out_of_order(error: cutwater_engine::barrier::AlignError) -> Violation {
    Violation { promise: "barriers of a channel rise by one", found: error.to_string() }
}
