//! Barriers that overtake records, as a model of its own: a dataflow, its checkpoints in memory, one death at any moment, and a
//! restore with another number of workers.
//!
//! The decisions are the product's: [`Overtaker`] says when an instance may cut and what is recorded, [`EdgeCredit`] when records may
//! be sent, [`GroupAssignment`](cutwater_engine::exchange::GroupAssignment) who owns a key. Overtaking may happen whenever it can or
//! never, which covers every patience. Store and log are a list here: `protocol` has searched those.
//!
//! Here are the states, and which steps there are; `moves` has what a step does, `judge` what is demanded, `searches` what is searched.
//!
//! What is asked when a checkpoint is complete: state, committed output and *what follows from the records in flight* are together
//! the effect of exactly the records read (I-4), and output is in order per split, key and way (I-1). At the end: all of it is there.

mod judge;
mod moves;
mod searches;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use cutwater_engine::barrier::{Alignment, Overtaker};
use cutwater_engine::exchange::{EdgeCredit, Processed};
use cutwater_engine::id::CheckpointId;

use crate::config::{Graph, Rec, Role};
use crate::search::{Kind, Model, Violation};
use judge::visible;
use moves::{at, out_of_order};
pub use searches::searches;

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

fn broken<T>(promise: &'static str, found: String) -> Result<T, Violation> {
    Err(Violation { promise, found })
}
