//! What is searched: a small job, and how often the world may be unkind to it.

use std::collections::BTreeSet;

use cutwater_engine::exchange::{GroupAssignment, KeyGroups};

use crate::fault::Fault;

/// What an operator of the modelled job does. Every operator sends each record on all of its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads splits; of each, the key groups of its records in order.
    Source(Vec<Vec<u16>>),
    /// Counts records per key group, in keyed state; the count goes on with the record.
    Count,
    /// Passes records on: for graphs whose ways meet again.
    Pass,
    /// Writes to the log.
    Sink,
}

/// From one operator to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The operator that sends.
    pub from: usize,
    /// The operator that receives.
    pub to: usize,
    /// Divided by key group among all workers; otherwise records stay on their worker.
    pub by_key: bool,
}

/// The graph of the modelled job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Its operators; each comes after those it reads from.
    pub roles: Vec<Role>,
    /// Its edges.
    pub edges: Vec<Edge>,
}

/// A name for one record that a sink gets: a record, and which operators it has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rec {
    /// The split it was read from.
    pub split: u8,
    /// Its place there.
    pub offset: u8,
    /// The operators between source and sink that it has passed, one bit each.
    pub via: u8,
    /// Its key group.
    pub group: u8,
    /// What the counting operator said; 0 if there is none on its way.
    pub count: u8,
}

impl Graph {
    /// The edges into an operator, with their places in [`Graph::edges`].
    pub fn inputs(&self, node: usize) -> impl Iterator<Item = (usize, Edge)> + '_ {
        self.edges.iter().copied().enumerate().filter(move |(_, edge)| edge.to == node)
    }

    /// The edges out of an operator, with their places in [`Graph::edges`].
    pub fn outputs(&self, node: usize) -> impl Iterator<Item = (usize, Edge)> + '_ {
        self.edges.iter().copied().enumerate().filter(move |(_, edge)| edge.from == node)
    }

    /// The splits of all sources: the source, and the key groups of its records.
    pub fn splits(&self) -> Vec<(usize, &[u16])> {
        let mut splits = vec![];
        for (node, role) in self.roles.iter().enumerate() {
            if let Role::Source(own) = role {
                splits.extend(own.iter().map(|records| (node, records.as_slice())));
            }
        }
        splits
    }

    /// The ways from a source to an operator: per way the operators in between, one bit each.
    pub fn ways(&self, source: usize, to: usize) -> BTreeSet<u8> {
        let mut ways = BTreeSet::new();
        let mut open = vec![(source, 0u8)];
        while let Some((node, via)) = open.pop() {
            if node == to {
                ways.insert(via);
                continue;
            }
            let via = if node == source { via } else { via | 1 << node };
            open.extend(self.outputs(node).map(|(_, edge)| (edge.to, via)));
        }
        ways
    }
}

/// One search.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name in results.
    pub name: &'static str,
    /// The job.
    pub graph: Graph,
    /// The number of workers of each attempt in turn; the last one stays.
    pub workers: Vec<u32>,
    /// Credit per channel, in records.
    pub credit: u64,
    /// Checkpoints per attempt that the trigger starts because of the interval. The last one, at the end of input, is not counted.
    pub checkpoints: u8,
    /// Checkpoints that may be triggered and not settled.
    pub in_flight: u8,
    /// Checkpoints that may be triggered and not committed.
    pub uncommitted: u8,
    /// Committed checkpoints that are kept.
    pub retained: u8,
    /// How often the newest attempt dies.
    pub crashes: u8,
    /// Deaths may also be power cuts, which undo what is visible and not yet durable.
    pub power: bool,
    /// How often an attempt starts while the one before it goes on.
    pub zombies: u8,
    /// How often a finished job is started again.
    pub restarts: u8,
    /// How often a state can't be written.
    pub failed_writes: u8,
    /// How often a checkpoint takes too long.
    pub timeouts: u8,
    /// How often a manifest can't be published, its name certainly not made.
    pub refused_manifests: u8,
    /// How often an instance gives up the capability of a report without having sent it.
    pub lost_acks: u8,
    /// How often an instance reports twice.
    pub repeated_acks: u8,
    /// Publishing doesn't wait for commits and what follows them, as it does with one thread for both.
    pub parallel_io: bool,
    /// Barriers wait for credit as records do, instead of passing by. No mistake: it delays checkpoints.
    pub barriers_wait: bool,
    /// Steps that commute with all others are taken at once, before any other.
    pub reduced: bool,
    /// What is planted.
    pub fault: Option<Fault>,
}

impl Config {
    /// A job of these operators and edges, in a kind world.
    pub fn new(name: &'static str, roles: Vec<Role>, edges: &[(usize, usize, bool)]) -> Config {
        let edges = edges.iter().map(|&(from, to, by_key)| Edge { from, to, by_key }).collect();
        Config {
            name,
            graph: Graph { roles, edges },
            workers: vec![1],
            credit: 1,
            checkpoints: 1,
            in_flight: 1,
            uncommitted: 2,
            retained: 1,
            crashes: 0,
            power: false,
            zombies: 0,
            restarts: 0,
            failed_writes: 0,
            timeouts: 0,
            refused_manifests: 0,
            lost_acks: 0,
            repeated_acks: 0,
            parallel_io: false,
            barriers_wait: false,
            reduced: true,
            fault: None,
        }
    }

    /// The same with a fault planted.
    #[must_use]
    pub fn with(&self, fault: Fault) -> Config {
        Config { fault: Some(fault), ..self.clone() }
    }

    /// True if this fault is planted.
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The number of workers of the attempt `life`, counted from 0.
    pub fn workers_of(&self, life: usize) -> u32 {
        *self.workers.get(life).or(self.workers.last()).expect("a job has workers")
    }

    /// Which worker owns which key group.
    pub fn assignment(&self, workers: u32) -> GroupAssignment {
        let groups = KeyGroups::new(4).expect("few groups");
        GroupAssignment::new(groups, workers.try_into().expect("a job has workers"))
    }

    /// Every step of the checkpoint store is one of its own: somebody else may come in between.
    pub fn is_fine(&self) -> bool {
        self.zombies > 0
    }

    /// The most attempts that the world's unkindness explains.
    pub fn lives_max(&self) -> usize {
        1 + usize::from(self.crashes + self.zombies + self.restarts + self.lost_acks + self.repeated_acks)
    }

    /// In one line, for results.
    pub fn summary(&self) -> String {
        let records: usize = self.graph.splits().iter().map(|(_, records)| records.len()).sum();
        let mut text = format!(
            "{} operators, {} splits, {records} records, workers {:?}, {} + 1 checkpoints",
            self.graph.roles.len(),
            self.graph.splits().len(),
            self.workers,
            self.checkpoints
        );
        let counted = [
            (self.crashes, if self.power { "crashes or power cuts" } else { "crashes" }),
            (self.zombies, "zombies"),
            (self.restarts, "restarts when finished"),
            (self.failed_writes, "failed writes"),
            (self.timeouts, "time-outs"),
            (self.refused_manifests, "refused manifests"),
            (self.lost_acks, "lost reports"),
            (self.repeated_acks, "repeated reports"),
        ];
        for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(", {count} {what}"));
        }
        text
    }
}
