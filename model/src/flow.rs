//! The data plane of one attempt: which channel leads where, and what a frame does when it is handled.
//!
//! A channel is (edge, sending worker), as in the product, and its queue is at the receiver: what is sent has arrived. Delays are
//! not lost by that, because the receiver may take as long as it likes.

use cutwater_engine::barrier::Alignment;
use cutwater_engine::exchange::{ChannelIndex, KeyGroup, Processed};
use cutwater_engine::id::CheckpointId;

use crate::config::{Config, Edge, Rec, Role};
use crate::fault::Fault;
use crate::instance::{Frame, Instance};
use crate::search::Violation;
use crate::shared::Shared;

/// The channels of a graph on a number of workers.
#[derive(Clone, Debug)]
pub struct Layout {
    /// How many workers.
    pub workers: u32,
    /// Per operator its channels: the edge, and the sending worker if it is divided by key.
    pub channels: Vec<Vec<(usize, Option<u32>)>>,
    /// Per operator its output edges.
    pub outputs: Vec<Vec<(usize, Edge)>>,
}

impl Layout {
    /// Lays a graph out.
    pub fn new(config: &Config, workers: u32) -> Layout {
        let graph = &config.graph;
        let channels = |node| {
            let of_edge = |(index, edge): (usize, Edge)| match edge.by_key {
                true => (0..workers).map(|sender| (index, Some(sender))).collect::<Vec<_>>(),
                false => vec![(index, None)],
            };
            graph.inputs(node).flat_map(of_edge).collect()
        };
        Layout {
            workers,
            channels: (0..graph.roles.len()).map(channels).collect(),
            outputs: (0..graph.roles.len()).map(|node| graph.outputs(node).collect()).collect(),
        }
    }

    /// Per output edge of an operator the number of its receivers.
    pub fn receivers(&self, node: usize) -> Vec<usize> {
        self.outputs[node].iter().map(|(_, edge)| if edge.by_key { self.workers as usize } else { 1 }).collect()
    }

    /// Where an instance stands in a list of all.
    pub fn place(&self, node: usize, worker: u32) -> usize {
        node * self.workers as usize + worker as usize
    }
}

/// What handling a frame led to, for the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Nothing.
    Went,
    /// The instance has cut.
    Cut,
    /// The instance has ended.
    Ended,
}

/// The instances of one attempt, to be changed.
pub struct Flow<'a> {
    /// What is searched.
    pub config: &'a Config,
    /// Where channels lead.
    pub layout: &'a Layout,
    /// All instances, workers of one operator side by side.
    pub instances: &'a mut Vec<Shared<Instance>>,
}

impl Flow<'_> {
    /// True if the first frame of a channel may be handled now.
    pub fn may_handle(config: &Config, instance: &Instance, channel: usize) -> bool {
        let (Some(frame), Some(aligner)) = (instance.queues[channel].front(), &instance.aligner) else { return false };
        let held = aligner.held(channel_index(channel));
        match frame {
            Frame::Record(_) => instance.has_room() && (!held || config.has(Fault::HeldProcessed)),
            Frame::Barrier(_) => !held && (instance.has_room() || !config.barriers_wait),
            Frame::End => !held,
        }
    }

    /// Handles the first frame of a channel.
    pub fn handle(&mut self, place: usize, channel: usize) -> Result<Handled, Violation> {
        let frame = self.instances[place].edit().queues[channel].pop_front().expect("a step takes what is there");
        match frame {
            Frame::Record(record) => {
                let role = &self.config.graph.roles[self.instances[place].node()];
                let passed = self.instances[place].edit().process(role, record);
                if let Some(record) = passed {
                    self.send_record(place, record);
                }
                if !self.config.has(Fault::CreditKept) {
                    self.give_back(place, channel, Processed { units: 1, barriers: 0 });
                }
                Ok(Handled::Went)
            }
            Frame::Barrier(n) => {
                self.give_back(place, channel, Processed { units: 0, barriers: 1 });
                let aligner = self.instances[place].edit().aligner.as_mut().expect("it has channels");
                let outcome = aligner.barrier(channel_index(channel), n).map_err(order)?;
                if let Alignment::Cut(n) = outcome {
                    self.forward(place, n)?;
                    self.instances[place].edit().cut(n);
                    return Ok(Handled::Cut);
                }
                Ok(Handled::Went)
            }
            Frame::End => {
                let aligner = self.instances[place].edit().aligner.as_mut().expect("it has channels");
                match aligner.end(channel_index(channel)).map_err(order)? {
                    Alignment::Wait => Ok(Handled::Went),
                    Alignment::Cut(n) => Err(Violation {
                        promise: "an End never has to complete an alignment",
                        found: format!("{} cut at checkpoint {n} because a channel ended", self.instances[place].id),
                    }),
                    Alignment::Ended => {
                        self.end(place);
                        Ok(Handled::Ended)
                    }
                }
            }
        }
    }

    /// Reads the next record of a split.
    pub fn read(&mut self, place: usize, split: usize) {
        let at = &mut self.instances[place].edit().splits[split];
        let (index, offset) = (at.split, at.position);
        at.position += 1;
        let group = self.config.graph.splits()[usize::from(index)].1[usize::from(offset)];
        let group = u8::try_from(group).expect("few key groups");
        self.send_record(place, Rec { split: index, offset, via: 0, group, count: 0 });
    }

    /// A source takes the barrier that the trigger has sent; its positions are its snapshot.
    pub fn take_barrier(&mut self, place: usize) -> Result<CheckpointId, Violation> {
        let n = self.instances[place].edit().barriers.pop_front().expect("a step takes what is there");
        self.forward(place, n)?;
        Ok(n)
    }

    /// Sends a barrier that an output still waits for: the fault's way.
    pub fn send_late_barrier(&mut self, place: usize) -> Result<(), Violation> {
        let (output, n) = self.instances[place].edit().unsent.pop_front().expect("a step takes what is there");
        self.broadcast(place, output, Frame::Barrier(n))
    }

    /// Sends `End` on all outputs.
    pub fn end(&mut self, place: usize) {
        let instance = self.instances[place].edit();
        instance.ended = true;
        instance.ack = None;
        for output in 0..instance.credit.len() {
            self.broadcast(place, output, Frame::End).expect("nothing has ended this edge before");
        }
    }

    fn forward(&mut self, place: usize, n: CheckpointId) -> Result<(), Violation> {
        let one_by_one = self.config.has(Fault::BarrierOneByOne);
        for output in 0..self.instances[place].credit.len() {
            match one_by_one && output > 0 {
                true => self.instances[place].edit().unsent.push_back((output, n)),
                false => self.broadcast(place, output, Frame::Barrier(n))?,
            }
        }
        self.instances[place].edit().barrier_left(n);
        Ok(())
    }

    fn send_record(&mut self, place: usize, record: Rec) {
        let (node, worker) = (self.instances[place].node(), self.instances[place].id.worker.0);
        for output in 0..self.layout.outputs[node].len() {
            let edge = self.layout.outputs[node][output].1;
            let to = match edge.by_key {
                true => {
                    let group = KeyGroup(u16::from(record.group));
                    self.config.assignment(self.layout.workers).worker_of(group).0
                }
                false => worker,
            };
            let receiver = if edge.by_key { to as usize } else { 0 };
            let credit = &mut self.instances[place].edit().credit[output];
            credit.send_records(receiver, 1).expect("records leave only while there is room");
            self.deliver(place, output, to, Frame::Record(record));
        }
    }

    fn broadcast(&mut self, place: usize, output: usize, frame: Frame) -> Result<(), Violation> {
        let (node, worker) = (self.instances[place].node(), self.instances[place].id.worker.0);
        let edge = self.layout.outputs[node][output].1;
        let credit = &mut self.instances[place].edit().credit[output];
        let counted = match frame {
            Frame::Barrier(_) => credit.send_barrier(),
            Frame::End => credit.send_end(),
            Frame::Record(_) => unreachable!("records are routed"),
        };
        counted.map_err(|error| Violation { promise: "barriers keep to their allowance", found: error.to_string() })?;
        match edge.by_key {
            true => (0..self.layout.workers).for_each(|to| self.deliver(place, output, to, frame)),
            false => self.deliver(place, output, worker, frame),
        }
        Ok(())
    }

    fn deliver(&mut self, place: usize, output: usize, to: u32, frame: Frame) {
        let (node, worker) = (self.instances[place].node(), self.instances[place].id.worker.0);
        let (index, edge) = self.layout.outputs[node][output];
        let name = (index, edge.by_key.then_some(worker));
        let channel = self.layout.channels[edge.to].iter().position(|c| *c == name).expect("a channel of the plan");
        let receiver = self.layout.place(edge.to, to);
        self.instances[receiver].edit().queues[channel].push_back(frame);
    }

    fn give_back(&mut self, place: usize, channel: usize, processed: Processed) {
        let (node, worker) = (self.instances[place].node(), self.instances[place].id.worker.0);
        let (index, sender) = self.layout.channels[node][channel];
        let edge = self.config.graph.edges[index];
        let output = self.layout.outputs[edge.from].iter().position(|(i, _)| *i == index).expect("an output");
        let (from, receiver) = match sender {
            Some(sender) => (sender, worker as usize),
            None => (worker, 0),
        };
        let sender = self.layout.place(edge.from, from);
        let credit = &mut self.instances[sender].edit().credit[output];
        credit.give_back(receiver, processed).expect("a receiver returns what it got");
    }
}

/// The number of a channel.
fn channel_index(channel: usize) -> ChannelIndex {
    ChannelIndex(u32::try_from(channel).expect("few channels"))
}

fn order(error: cutwater_engine::barrier::AlignError) -> Violation {
    Violation { promise: "barriers of a channel rise by one and nothing follows its End", found: error.to_string() }
}

/// The splits of a source that a worker reads, as the product deals them out.
pub fn splits_of(config: &Config, node: usize, worker: u32, workers: u32) -> Vec<u8> {
    if !matches!(config.graph.roles[node], Role::Source(_)) {
        return vec![];
    }
    // Fewer than ten splits, so that names sort as numbers.
    let splits = config.graph.splits();
    let names: Vec<String> = (0..splits.len()).filter(|i| splits[*i].0 == node).map(|i| i.to_string()).collect();
    let mine = cutwater_engine::source::split::splits_of(&names, cutwater_engine::id::WorkerIndex(worker), workers);
    mine.iter().map(|name| name.parse().expect("a number")).collect()
}
