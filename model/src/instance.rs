//! One operator instance: its channels, what it holds back, what it has counted or buffered, and its snapshots under way.
//!
//! The decisions are the product's own: [`Aligner`] says what is held and when to cut, [`EdgeCredit`] when records may be sent,
//! [`Chain`] whether a state's next file is a base or a delta. Here is only what the wiring does around them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cutwater_engine::barrier::Aligner;
use cutwater_engine::checkpoint::{Blob, SnapshotRef, StateFileKind};
use cutwater_engine::exchange::EdgeCredit;
use cutwater_engine::id::{CheckpointId, InstanceId, OperatorId, WorkerIndex};
use cutwater_engine::snapshot::{Chain, ChainLimits, StateName};

use crate::config::{Config, Rec, Role};

/// What stands in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A record; a batch has one.
    Record(Rec),
    /// The cut.
    Barrier(CheckpointId),
    /// Nothing follows.
    End,
}

/// A split and how far it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitAt {
    /// Which split.
    pub split: u8,
    /// Records read.
    pub position: u8,
}

/// A snapshot between its cut and its report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Of which checkpoint.
    pub checkpoint: CheckpointId,
    /// What is frozen of the keyed state, if there is any.
    pub frozen: Option<(StateFileKind, BTreeMap<u16, u8>)>,
    /// What the writer sealed.
    pub sealed: Vec<Rec>,
    /// Its file has its name, but isn't durable yet.
    pub is_written: bool,
}

/// One copy of an operator on one worker.
#[derive(Clone, Debug, Hash)]
pub struct Instance {
    /// Which.
    pub id: InstanceId,
    /// `None` for a source.
    pub aligner: Option<Aligner>,
    /// Per channel what has come and isn't handled.
    pub queues: Vec<VecDeque<Frame>>,
    /// Per output edge.
    pub credit: Vec<EdgeCredit>,
    /// Barriers that the first output has got and these haven't: only if [`Fault::BarrierOneByOne`](crate::fault::Fault) is planted.
    pub unsent: VecDeque<(usize, CheckpointId)>,
    /// A source's splits.
    pub splits: Vec<SplitAt>,
    /// Barriers that the trigger has sent to a source.
    pub barriers: VecDeque<CheckpointId>,
    /// A source has said that it has nothing left.
    pub exhausted: bool,
    /// Keyed state: counts by key group.
    pub counts: BTreeMap<u16, u8>,
    /// What has changed since the last freeze.
    pub dirty: BTreeSet<u16>,
    /// The files of the keyed state.
    pub chain: Option<Chain>,
    /// What a sink's writer has taken since its last seal.
    pub buffer: Vec<Rec>,
    /// Snapshots under way, in the order of their cuts.
    pub writing: VecDeque<Cut>,
    /// Capability on the ack port: at the checkpoint whose barrier comes next. `None` after the end.
    pub ack: Option<CheckpointId>,
    /// Capabilities of reports that are due.
    pub held: BTreeSet<CheckpointId>,
    /// `End` has been sent.
    pub ended: bool,
}

/// The name of the one state that a counting operator has.
const STATE: &str = "counts";
/// Few, so that small runs see several bases.
const LIMITS: ChainLimits = ChainLimits { deltas_max: 2 };

/// The number of an instance in a plan.
pub fn instance_id(node: usize, worker: u32) -> InstanceId {
    InstanceId { operator: OperatorId(u32::try_from(node).expect("few operators")), worker: WorkerIndex(worker) }
}

impl Instance {
    /// A fresh instance with this many channels; `receivers` per output edge.
    pub fn new(
        config: &Config,
        node: usize,
        worker: u32,
        channels: usize,
        receivers: &[usize],
        first: CheckpointId,
    ) -> Instance {
        let credit = |receivers: &usize| EdgeCredit::new(*receivers, config.credit, u32::from(config.in_flight));
        let chain = || Chain::new(StateName::new(STATE).expect("a good name"), 0);
        Instance {
            id: instance_id(node, worker),
            aligner: (channels > 0).then(|| Aligner::new(channels, first)),
            queues: vec![VecDeque::new(); channels],
            credit: receivers.iter().map(credit).collect(),
            unsent: VecDeque::new(),
            splits: vec![],
            barriers: VecDeque::new(),
            exhausted: false,
            counts: BTreeMap::new(),
            dirty: BTreeSet::new(),
            chain: (config.graph.roles[node] == Role::Count).then(chain),
            buffer: vec![],
            writing: VecDeque::new(),
            ack: Some(first),
            held: BTreeSet::new(),
            ended: false,
        }
    }

    /// Its operator's place in the graph.
    pub fn node(&self) -> usize {
        self.id.operator.0 as usize
    }

    /// Records may leave.
    pub fn has_room(&self) -> bool {
        self.credit.iter().all(EdgeCredit::open)
    }

    /// The lowest capability on its ack port.
    pub fn ack_at(&self) -> Option<CheckpointId> {
        self.held.first().copied().or(self.ack)
    }

    /// It does to a record what its operator does.
    pub fn process(&mut self, role: &Role, record: Rec) -> Option<Rec> {
        let passed = Rec { via: record.via | 1 << self.node(), ..record };
        match role {
            Role::Source(_) => unreachable!("a source has no inputs"),
            Role::Pass => Some(passed),
            Role::Count => {
                let group = u16::from(record.group);
                let count = self.counts.entry(group).or_default();
                *count += 1;
                let passed = Rec { count: *count, ..passed };
                self.dirty.insert(group);
                Some(passed)
            }
            Role::Sink => {
                self.buffer.push(record);
                None
            }
        }
    }

    /// Takes the snapshot: Barrier(`checkpoint`) has just left.
    pub fn cut(&mut self, checkpoint: CheckpointId) {
        let frozen = self.chain.as_ref().map(|chain| {
            let kind = chain.next_kind(&LIMITS);
            let dirty = std::mem::take(&mut self.dirty);
            let changed = |(group, _): &(&u16, &u8)| kind == StateFileKind::Base || dirty.contains(group);
            (kind, self.counts.iter().filter(changed).map(|(group, count)| (*group, *count)).collect())
        });
        let sealed = std::mem::take(&mut self.buffer);
        self.writing.push_back(Cut { checkpoint, frozen, sealed, is_written: false });
    }

    /// The barrier of `checkpoint` has left: capabilities move on.
    pub fn barrier_left(&mut self, checkpoint: CheckpointId) {
        assert_eq!(self.ack, Some(checkpoint), "a barrier leaves at its own time");
        self.held.insert(checkpoint);
        self.ack = Some(checkpoint.next());
    }

    /// Its part of a checkpoint. `committables` of a sink come on top.
    pub fn part(&self) -> SnapshotRef {
        let blob = |at: &SplitAt| Blob { name: format!("split-{}", at.split), bytes: vec![at.split, at.position] };
        SnapshotRef {
            instance: self.id,
            chains: self.chain.iter().map(Chain::to_ref).collect(),
            blobs: self.splits.iter().map(blob).collect(),
            committables: vec![],
            counters: Default::default(),
            exhausted: self.exhausted || self.aligner.is_some(),
        }
    }

    /// A chain that goes on from a manifest.
    pub fn resume_chain(&mut self, part: &SnapshotRef) {
        let name = StateName::new(STATE).expect("a good name");
        if let (Some(own), Some(chain)) = (&mut self.chain, part.chains.first()) {
            *own = Chain::resumed(name, chain.clone());
        }
    }
}

/// How far each split has been read, by the parts of a checkpoint.
pub fn positions(parts: &[SnapshotRef], splits: usize) -> Vec<u8> {
    let mut positions = vec![0; splits];
    for blob in parts.iter().flat_map(|part| &part.blobs) {
        if let [split, position] = blob.bytes[..] {
            positions[usize::from(split)] = position;
        }
    }
    positions
}
