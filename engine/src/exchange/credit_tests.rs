use std::collections::{HashSet, VecDeque};

use super::*;
use crate::barrier::{Aligner, Alignment};
use crate::exchange::ChannelIndex;
use crate::id::CheckpointId;

fn units(units: u64) -> Processed {
    Processed { units, barriers: 0 }
}

#[test]
fn what_is_under_way_is_bounded_by_the_limit_and_one_batch() {
    let mut edge = EdgeCredit::new(2, 10, 1);
    edge.send_records(0, 9).unwrap();
    assert!(edge.open());
    edge.send_records(0, 7).unwrap();
    assert!(!edge.open(), "one closed receiver closes the edge");
    assert_eq!(edge.outstanding(0), 16);
    assert_eq!(edge.send_records(0, 1), Err(CreditError::Closed { receiver: 0, outstanding: 16, limit: 10 }));
    edge.send_records(1, 3).unwrap();
    assert_eq!(edge.give_back(0, units(6)), Ok(false), "10 of 10 are still under way");
    assert_eq!(edge.give_back(0, units(1)), Ok(true), "this opened it");
    assert_eq!(edge.give_back(0, units(9)), Ok(false));
    assert_eq!(edge.outstanding(0), 0);
}

#[test]
fn an_edge_opens_only_when_the_last_closed_receiver_does() {
    let mut edge = EdgeCredit::new(3, 1, 1);
    edge.send_records(0, 1).unwrap();
    edge.send_records(2, 5).unwrap();
    assert_eq!(edge.give_back(2, units(5)), Ok(false));
    assert_eq!(edge.give_back(0, units(1)), Ok(true));
    assert!(edge.open());
}

#[test]
fn signals_cost_a_unit_at_every_receiver_and_may_overshoot() {
    let mut edge = EdgeCredit::new(2, 1, 1);
    edge.send_signals(1).unwrap();
    assert!(!edge.open());
    // Flushed before a barrier, open or not.
    edge.send_signals(2).unwrap();
    assert_eq!((edge.outstanding(0), edge.outstanding(1)), (3, 3));
}

#[test]
fn barriers_pass_a_closed_edge_up_to_their_allowance_and_nothing_passes_the_end() {
    let mut edge = EdgeCredit::new(1, 1, 2);
    edge.send_records(0, 1).unwrap();
    for _ in 0..3 {
        edge.send_barrier().unwrap();
    }
    assert_eq!(edge.send_barrier(), Err(CreditError::BarrierAllowance { receiver: 0, outstanding: 3, allowance: 3 }));
    edge.give_back(0, Processed { units: 0, barriers: 1 }).unwrap();
    edge.send_barrier().unwrap();
    edge.send_end().unwrap();
    assert_eq!(edge.send_end(), Err(CreditError::AfterEnd));
    assert_eq!(edge.send_barrier(), Err(CreditError::AfterEnd));
    assert_eq!(edge.send_signals(1), Err(CreditError::AfterEnd));
    assert_eq!(edge.send_records(0, 1), Err(CreditError::AfterEnd));
}

#[test]
fn to_return_more_than_came_is_refused_and_changes_nothing() {
    let mut edge = EdgeCredit::new(1, 5, 1);
    edge.send_records(0, 2).unwrap();
    edge.send_barrier().unwrap();
    let before = edge.clone();
    assert!(matches!(edge.give_back(0, units(3)), Err(CreditError::TooMuchReturned { outstanding: 2, .. })));
    let barriers = Processed { units: 1, barriers: 2 };
    assert!(matches!(edge.give_back(0, barriers), Err(CreditError::TooManyBarriersReturned { outstanding: 1, .. })));
    assert_eq!(edge, before);
}

// ---- no deadlock: every state of a small model ----
//
// Sources, operators and sinks as the wiring steps them: one frame at a time, of any channel that isn't held; records
// only while every output is open; barriers and End always. Every order of steps is tried, and every way in which keys
// can fall.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Record,
    Barrier(CheckpointId),
    End,
}

/// How an operator forwards a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Forward {
    /// To all outputs in one step.
    AllAtOnce,
    /// The mistake: to the first output at once, to the others like records, when there is room, while records go on.
    OneByOne,
}

/// An edge of the graph: from one operator to another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    /// Records go to any worker; otherwise they stay on theirs.
    exchange: bool,
}

struct Model {
    workers: usize,
    operators: usize,
    edges: Vec<Edge>,
    /// Per operator its channels, each (edge, sending worker).
    channels: Vec<Vec<(usize, usize)>>,
    /// Per operator its outputs.
    outputs: Vec<Vec<(usize, Edge)>>,
    limit: u64,
    barriers: u64,
    concurrent: u32,
    forward: Forward,
}

/// One operator instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Instance {
    /// `None` for a source.
    aligner: Option<Aligner>,
    queues: Vec<VecDeque<Frame>>,
    outputs: Vec<EdgeCredit>,
    /// Records a source has left.
    records: u64,
    /// The last barrier that it has taken (a source) or cut at.
    barrier: u64,
    /// Barriers that one output has and others wait for.
    unsent: VecDeque<(usize, CheckpointId)>,
    ended: bool,
}

type State = Vec<Instance>;

impl Model {
    fn place(&self, operator: usize, worker: usize) -> usize {
        operator * self.workers + worker
    }

    fn new(workers: usize, edges: &[Edge], limit: u64, barriers: u64, concurrent: u32, forward: Forward) -> Model {
        let operators = 1 + edges.iter().map(|edge| edge.to).max().expect("edges");
        let numbered = || edges.iter().copied().enumerate();
        let channels_of = |operator| {
            numbered()
                .filter(|(_, edge)| edge.to == operator)
                // Without an exchange the one sender is the worker itself.
                .flat_map(|(index, edge)| {
                    let senders = if edge.exchange { 0..workers } else { usize::MAX - 1..usize::MAX };
                    senders.map(move |sender| (index, sender))
                })
                .collect()
        };
        Model {
            workers,
            operators,
            edges: edges.to_vec(),
            channels: (0..operators).map(channels_of).collect(),
            outputs: (0..operators).map(|from| numbered().filter(|(_, edge)| edge.from == from).collect()).collect(),
            limit,
            barriers,
            concurrent,
            forward,
        }
    }

    fn start(&self, records: &[u64]) -> State {
        assert_eq!(records.len(), self.workers);
        let mut state = vec![];
        for operator in 0..self.operators {
            for records in records {
                let channels = self.channels[operator].len();
                let receivers = |edge: &Edge| if edge.exchange { self.workers } else { 1 };
                state.push(Instance {
                    aligner: (channels > 0).then(|| Aligner::new(channels, CheckpointId(1))),
                    queues: vec![VecDeque::new(); channels],
                    outputs: self.outputs[operator]
                        .iter()
                        .map(|(_, edge)| EdgeCredit::new(receivers(edge), self.limit, self.concurrent))
                        .collect(),
                    records: if channels == 0 { *records } else { 0 },
                    barrier: 0,
                    unsent: VecDeque::new(),
                    ended: false,
                });
            }
        }
        state
    }

    /// Puts a frame into the queue of the receiver of output `output` of an instance.
    fn deliver(&self, state: &mut State, operator: usize, worker: usize, output: usize, receiver: usize, frame: Frame) {
        let (edge_index, edge) = self.outputs[operator][output];
        let (to, sender) = if edge.exchange { (receiver, worker) } else { (worker, usize::MAX - 1) };
        let channel =
            self.channels[edge.to].iter().position(|c| *c == (edge_index, sender)).expect("a channel of the plan");
        state[self.place(edge.to, to)].queues[channel].push_back(frame);
    }

    fn broadcast(&self, state: &mut State, operator: usize, worker: usize, output: usize, frame: Frame) {
        let credit = &mut state[self.place(operator, worker)].outputs[output];
        match frame {
            Frame::Barrier(_) => credit.send_barrier().expect("within the allowance"),
            Frame::End => credit.send_end().expect("once"),
            Frame::Record => unreachable!("records are routed"),
        }
        let receivers = if self.outputs[operator][output].1.exchange { self.workers } else { 1 };
        for receiver in 0..receivers {
            self.deliver(state, operator, worker, output, receiver, frame);
        }
    }

    /// All states after a record has left on every output, for every way in which its key can fall.
    fn emit_record(&self, state: &State, operator: usize, worker: usize) -> Vec<State> {
        let outputs = &self.outputs[operator];
        let ways = if outputs.iter().any(|(_, edge)| edge.exchange) { self.workers } else { 1 };
        (0..ways)
            .map(|key| {
                let mut after = state.clone();
                for (output, (_, edge)) in outputs.iter().enumerate() {
                    let receiver = if edge.exchange { key } else { 0 };
                    let credit = &mut after[self.place(operator, worker)].outputs[output];
                    credit.send_records(receiver, 1).expect("only while open");
                    self.deliver(&mut after, operator, worker, output, receiver, Frame::Record);
                }
                after
            })
            .collect()
    }

    fn forward_barrier(&self, state: &mut State, operator: usize, worker: usize, id: CheckpointId) {
        let here = self.place(operator, worker);
        state[here].barrier = id.0;
        for output in 0..state[here].outputs.len() {
            if output == 0 || self.forward == Forward::AllAtOnce {
                self.broadcast(state, operator, worker, output, Frame::Barrier(id));
            } else {
                state[here].unsent.push_back((output, id));
            }
        }
    }

    fn end(&self, state: &mut State, operator: usize, worker: usize) {
        let here = self.place(operator, worker);
        state[here].ended = true;
        for output in 0..state[here].outputs.len() {
            self.broadcast(state, operator, worker, output, Frame::End);
        }
    }

    /// Gives credit back to the sender of a channel.
    fn give_back(&self, state: &mut State, operator: usize, worker: usize, channel: usize, processed: Processed) {
        let (edge_index, sender) = self.channels[operator][channel];
        let edge = self.edges[edge_index];
        let (sender, receiver) = if edge.exchange { (sender, worker) } else { (worker, 0) };
        let output = self.outputs[edge.from].iter().position(|(index, _)| *index == edge_index).expect("an output");
        state[self.place(edge.from, sender)].outputs[output].give_back(receiver, processed).expect("what came");
    }

    /// All states that one step of one instance can lead to.
    fn after_step_of(&self, state: &State, operator: usize, worker: usize) -> Vec<State> {
        let here = self.place(operator, worker);
        let instance = &state[here];
        if instance.ended {
            return vec![];
        }
        let room = instance.outputs.iter().all(EdgeCredit::open);
        let mut all = vec![];
        if let Some((output, id)) = instance.unsent.front().copied()
            && room
        {
            let mut after = state.clone();
            after[here].unsent.pop_front();
            self.broadcast(&mut after, operator, worker, output, Frame::Barrier(id));
            all.push(after);
        }
        let Some(aligner) = &instance.aligner else {
            self.source_steps(state, operator, worker, room, &mut all);
            return all;
        };
        for (channel, queue) in instance.queues.iter().enumerate() {
            let at = ChannelIndex(channel as u32);
            let Some(frame) = queue.front().copied().filter(|_| !aligner.held(at)) else { continue };
            if frame == Frame::Record && !room {
                continue;
            }
            let mut after = state.clone();
            after[here].queues[channel].pop_front();
            let aligner = after[here].aligner.as_mut().expect("it has channels");
            let outcome = match frame {
                Frame::Record => {
                    self.give_back(&mut after, operator, worker, channel, units(1));
                    all.extend(self.emit_record(&after, operator, worker));
                    continue;
                }
                Frame::Barrier(id) => aligner.barrier(at, id).expect("in order"),
                Frame::End => aligner.end(at).expect("in order"),
            };
            if let Frame::Barrier(_) = frame {
                self.give_back(&mut after, operator, worker, channel, Processed { units: 0, barriers: 1 });
            }
            match outcome {
                Alignment::Wait => {}
                Alignment::Cut(id) => self.forward_barrier(&mut after, operator, worker, id),
                Alignment::Ended => self.end(&mut after, operator, worker),
            }
            all.push(after);
        }
        all
    }

    fn source_steps(&self, state: &State, operator: usize, worker: usize, room: bool, all: &mut Vec<State>) {
        let here = self.place(operator, worker);
        let instance = &state[here];
        if instance.records > 0 && room {
            let mut after = state.clone();
            after[here].records -= 1;
            all.extend(self.emit_record(&after, operator, worker));
        }
        // A checkpoint is complete when every instance has cut; then the trigger may start another.
        let complete = state.iter().map(|i| i.barrier).min().expect("instances");
        let next = instance.barrier + 1;
        if next <= self.barriers && next <= complete + u64::from(self.concurrent) {
            let mut after = state.clone();
            self.forward_barrier(&mut after, operator, worker, CheckpointId(next));
            all.push(after);
        }
        if instance.records == 0 && complete == self.barriers && instance.unsent.is_empty() {
            let mut after = state.clone();
            self.end(&mut after, operator, worker);
            all.push(after);
        }
    }

    /// Visits every state; answers how many there are, and the first from which nothing can happen before everything
    /// has ended. `records`: what the source on each worker has.
    fn search(&self, records: &[u64]) -> (usize, Option<State>) {
        let start = self.start(records);
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let mut stuck = true;
            for operator in 0..self.operators {
                for worker in 0..self.workers {
                    for after in self.after_step_of(&state, operator, worker) {
                        stuck = false;
                        if !seen.contains(&after) {
                            seen.insert(after.clone());
                            open.push(after);
                        }
                    }
                }
            }
            if stuck && !state.iter().all(|instance| instance.ended) {
                return (seen.len(), Some(state));
            }
        }
        (seen.len(), None)
    }
}

fn edge(from: usize, to: usize) -> Edge {
    Edge { from, to, exchange: false }
}

fn exchange(from: usize, to: usize) -> Edge {
    Edge { from, to, exchange: true }
}

/// source -> tee -> (direct | through an operator) -> union -> sink, on one worker.
fn diamond(limit: u64, concurrent: u32, forward: Forward) -> Model {
    let edges = [edge(0, 1), edge(1, 2), edge(1, 3), edge(2, 3), edge(3, 4)];
    Model::new(1, &edges, limit, 2, concurrent, forward)
}

/// source that tees -> union on any worker -> that is the sink, on two workers: eight channels.
fn wide_diamond(limit: u64, barriers: u64, forward: Forward) -> Model {
    Model::new(2, &[exchange(0, 1), exchange(0, 1)], limit, barriers, 1, forward)
}

#[test]
fn held_channels_never_deadlock_a_diamond_on_one_worker() {
    for (limit, concurrent) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let (states, stuck) = diamond(limit, concurrent, Forward::AllAtOnce).search(&[4]);
        assert_eq!(stuck, None, "with limit {limit}, {concurrent} checkpoints at once");
        assert!(states > 1_000, "only {states} states");
    }
}

#[test]
fn held_channels_never_deadlock_a_diamond_across_two_workers() {
    // So few records already find the mistake below. Three for each were tried too: 100,000 and 1.2 million states.
    for (limit, records) in [(1, [2, 2]), (2, [2, 1])] {
        let (states, stuck) = wide_diamond(limit, 1, Forward::AllAtOnce).search(&records);
        assert_eq!(stuck, None, "with limit {limit}");
        assert!(states > 1_000, "only {states} states");
    }
}

#[test]
fn a_barrier_that_goes_to_one_output_after_the_other_deadlocks_and_the_search_finds_it() {
    for limit in [1, 2] {
        let (_, stuck) = diamond(limit, 1, Forward::OneByOne).search(&[4]);
        let stuck = stuck.expect("the mistake is found on one worker");
        assert!(!stuck[1].unsent.is_empty(), "the tee still owes a barrier: {stuck:?}");
        let (_, stuck) = wide_diamond(limit, 1, Forward::OneByOne).search(&[2, 1]);
        assert!(stuck.is_some(), "the mistake is found on two workers");
    }
}
