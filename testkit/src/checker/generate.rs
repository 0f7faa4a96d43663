//! Valid histories from a seed: a log that keeps every promise, seen by writers, jobs, zombies and readers whose calls overlap.
//!
//! The log takes each call's effect at one moment between its start and its end, so every history is valid by
//! construction. Commit and abort markers take offsets, as in Kafka.

use std::collections::{BTreeMap, BTreeSet};

use cutwater_platform::SplitMix;

use crate::history::{Attempt, Call, Checkpoint, History, Op, Outcome, TxnId, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Committed,
    Aborted,
}

/// A slot of a partition: a value, or a marker.
type Slot = Option<Value>;

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: u64,
    pub(crate) partitions: u32,
}

struct World {
    random: SplitMix,
    now: u64,
    ops: Vec<Op>,
    partitions: Vec<Vec<Slot>>,
    txns: BTreeMap<TxnId, Fate>,
    touched: BTreeMap<TxnId, Vec<u32>>,
    numbers: BTreeMap<u16, u32>,
    open: Vec<TxnId>,
    /// Open ones with an unanswered send.
    doomed: BTreeSet<TxnId>,
    readers: Vec<Vec<u64>>,
    committed_positions: BTreeMap<(u32, u32), u64>,
    job: Job,
}

/// A job with three writers: processes 10, 11, 12.
struct Job {
    attempt: u32,
    checkpoint: u64,
    writers: Vec<TxnId>,
    /// In the newest manifest, its commit not acknowledged yet.
    pending: Option<(Checkpoint, Vec<TxnId>)>,
}

const OWNER: u16 = 7;
const JOB: [u16; 3] = [10, 11, 12];

/// The history of `seed`.
pub(crate) fn valid(seed: u64, plan: Plan) -> History {
    let mut random = SplitMix::new(seed);
    let readers = 1 + random.below(3) as usize;
    let mut world = World {
        random,
        now: 1_000,
        ops: Vec::new(),
        partitions: vec![Vec::new(); plan.partitions as usize],
        txns: BTreeMap::new(),
        touched: BTreeMap::new(),
        numbers: BTreeMap::new(),
        open: Vec::new(),
        doomed: BTreeSet::new(),
        readers: vec![vec![0; plan.partitions as usize]; readers],
        committed_positions: BTreeMap::new(),
        job: Job { attempt: 1, checkpoint: 0, writers: Vec::new(), pending: None },
    };
    world.fence();
    for _ in 0..plan.steps {
        world.step();
    }
    world.settle();
    // The last readers come when all is said and done.
    world.now += 1_000;
    if world.random.below(5) > 0 {
        for partition in 0..plan.partitions {
            world.poll(90, partition, 0, u64::MAX);
        }
    }
    History::from_ops(world.ops)
}

impl World {
    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn partition(&mut self) -> u32 {
        self.random.below(self.partitions.len() as u64) as u32
    }

    /// The effect is now; the call began a little before and ends a little later.
    fn record(&mut self, process: u16, by: Option<Attempt>, call: Call, outcome: Outcome) {
        self.now += 100;
        let (start, end) = (self.now - self.random.below(250), self.now + self.random.below(250));
        self.ops.push(Op { process, by, call, outcome, start, end });
    }

    fn by(&self) -> Option<Attempt> {
        Some(Attempt { owner: OWNER, number: self.job.attempt })
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=3 => self.plain_send(),
            4..=6 => self.foreign_txn(),
            7..=11 => self.job_step(),
            12 if self.chance(3) => self.crash(),
            12 => self.zombie(),
            13 => self.group(),
            _ => {
                let reader = self.random.below(self.readers.len() as u64) as usize;
                let partition = self.partition();
                let from = if self.chance(6) { 0 } else { self.readers[reader][partition as usize] };
                let limit = 1 + self.random.below(12);
                self.poll(20 + reader as u16, partition, from, limit);
            }
        }
    }

    fn append(&mut self, partition: u32, slot: Slot) -> u64 {
        self.partitions[partition as usize].push(slot);
        self.partitions[partition as usize].len() as u64 - 1
    }

    fn next_number(&mut self, process: u16) -> u32 {
        let number = self.numbers.entry(process).or_default();
        *number += 1;
        *number
    }

    fn plain_send(&mut self) {
        let process = 1 + self.random.below(2) as u16;
        let value = Value::new(process, self.next_number(process), 0);
        let partition = self.partition();
        let (done, outcome) = match self.random.below(12) {
            0 => (false, Outcome::Fail),
            1 => (false, Outcome::Unknown),
            2 => (true, Outcome::Unknown),
            _ => (true, Outcome::Ok),
        };
        let place = done.then(|| self.append(partition, Some(value)));
        let offset = place.filter(|_| outcome == Outcome::Ok);
        self.record(process, None, Call::Send { partition, value, offset }, outcome);
    }

    fn begin(&mut self, process: u16, by: Option<Attempt>) -> TxnId {
        let txn = TxnId { process, number: self.next_number(process) };
        self.txns.insert(txn, Fate::Open);
        self.record(process, by, Call::Begin { txn }, Outcome::Ok);
        txn
    }

    fn send_in(&mut self, txn: TxnId, by: Option<Attempt>) {
        let partition = self.partition();
        let touched = self.touched.entry(txn).or_default();
        touched.push(partition);
        let value = Value::new(txn.process, txn.number, touched.len() as u16);
        let offset = Some(self.append(partition, Some(value)));
        self.record(txn.process, by, Call::Send { partition, value, offset }, Outcome::Ok);
    }

    fn decide(&mut self, txn: TxnId, fate: Fate) {
        if self.txns.insert(txn, fate) == Some(Fate::Open) {
            let mut partitions = self.touched.get(&txn).cloned().unwrap_or_default();
            partitions.sort_unstable();
            partitions.dedup();
            for partition in partitions {
                self.append(partition, None);
            }
        }
    }

    /// A transaction that belongs to no job; several are open at once.
    fn foreign_txn(&mut self) {
        if self.open.len() < 2 && self.chance(2) {
            let process = 30 + self.random.below(1_000) as u16;
            let txn = self.begin(process, None);
            self.open.push(txn);
            return;
        }
        let Some(index) = (!self.open.is_empty()).then(|| self.random.below(self.open.len() as u64) as usize) else {
            return;
        };
        let txn = self.open[index];
        match self.random.below(8) {
            _ if self.doomed.contains(&txn) && self.chance(2) => self.abort(index),
            0 => self.send_unanswered(txn),
            1..=4 => self.send_in(txn, None),
            _ if self.doomed.contains(&txn) => {}
            5 | 6 => {
                let (done, outcome) = match self.random.below(6) {
                    0 => (false, Outcome::Unknown),
                    1 => (true, Outcome::Unknown),
                    _ => (true, Outcome::Ok),
                };
                if done {
                    self.decide(txn, Fate::Committed);
                    self.open.swap_remove(index);
                }
                self.record(txn.process, None, Call::Commit { txns: vec![txn], checkpoint: None }, outcome);
            }
            _ => self.abort(index),
        }
    }

    fn abort(&mut self, index: usize) {
        let txn = self.open.swap_remove(index);
        self.decide(txn, Fate::Aborted);
        self.record(txn.process, None, Call::Abort { txn }, Outcome::Ok);
    }

    /// Perhaps it was written, nobody is told where; nothing is left but to abort. Until then it holds others back.
    fn send_unanswered(&mut self, txn: TxnId) {
        let partition = self.partition();
        let touched = self.touched.entry(txn).or_default();
        touched.push(partition);
        let value = Value::new(txn.process, txn.number, touched.len() as u16);
        if self.chance(2) {
            self.append(partition, Some(value));
        }
        self.doomed.insert(txn);
        self.record(txn.process, None, Call::Send { partition, value, offset: None }, Outcome::Unknown);
    }

    fn job_step(&mut self) {
        let by = self.by();
        if self.job.writers.is_empty() {
            self.job.checkpoint += 1;
            self.job.writers = JOB.map(|process| self.begin(process, by)).to_vec();
        }
        if !self.chance(4) {
            let txn = self.job.writers[self.random.below(3) as usize];
            self.send_in(txn, by);
            return;
        }
        let checkpoint = Checkpoint { owner: OWNER, number: self.job.checkpoint };
        let txns = std::mem::take(&mut self.job.writers);
        for txn in &txns {
            let call = Call::Prepare { txn: *txn, checkpoint: Some(checkpoint) };
            self.record(txn.process, by, call, Outcome::Ok);
            if self.chance(10) {
                // The checkpoint is never completed: the recovery aborts what it prepared.
                self.job.writers = txns;
                self.crash();
                return;
            }
        }
        self.job.pending = Some((checkpoint, txns));
        self.commit_pending();
    }

    fn commit_pending(&mut self) {
        let Some((checkpoint, txns)) = self.job.pending.clone() else { return };
        let (done, outcome) = match self.random.below(8) {
            0 => (false, Outcome::Unknown),
            1 => (true, Outcome::Unknown),
            _ => (true, Outcome::Ok),
        };
        if done {
            for txn in &txns {
                self.decide(*txn, Fate::Committed);
            }
        }
        let by = self.by();
        self.record(JOB[0], by, Call::Commit { txns, checkpoint: Some(checkpoint) }, outcome);
        match outcome {
            Outcome::Ok => self.job.pending = None,
            // The committer doesn't know: a new attempt repeats it.
            _ => self.crash(),
        }
    }

    fn crash(&mut self) {
        self.record(0, None, Call::Crash, Outcome::Ok);
        self.job.attempt += 1;
        self.fence();
        while self.job.pending.is_some() {
            let (checkpoint, txns) = self.job.pending.take().expect("checked");
            for txn in &txns {
                self.decide(*txn, Fate::Committed);
            }
            let by = self.by();
            self.record(JOB[0], by, Call::Commit { txns, checkpoint: Some(checkpoint) }, Outcome::Ok);
        }
        for txn in std::mem::take(&mut self.job.writers) {
            self.decide(txn, Fate::Aborted);
            let by = self.by();
            self.record(JOB[0], by, Call::Abort { txn }, Outcome::Ok);
        }
    }

    fn fence(&mut self) {
        let call = Call::Fence { owner: OWNER, below: self.job.attempt };
        self.record(0, None, call, Outcome::Ok);
    }

    /// An older attempt goes on sending, and is refused.
    fn zombie(&mut self) {
        if self.job.attempt == 1 {
            return;
        }
        let by = Some(Attempt { owner: OWNER, number: self.job.attempt - 1 });
        let process = 40_000 + self.job.attempt as u16;
        let value = Value::new(process, self.next_number(process), 0);
        let partition = self.partition();
        self.record(process, by, Call::Send { partition, value, offset: None }, Outcome::Fail);
    }

    fn group(&mut self) {
        let partition = self.partition();
        let group = self.random.below(2) as u32;
        let position = self.committed_positions.entry((group, partition)).or_default();
        if self.random.below(2) == 0 {
            *position += self.random.below(5);
            let offset = *position;
            self.record(25, None, Call::CommitOffset { group, partition, offset }, Outcome::Ok);
        } else {
            let offset = *position;
            self.record(26, None, Call::FetchOffset { group, partition, offset }, Outcome::Ok);
        }
    }

    fn last_stable(&self, partition: u32) -> u64 {
        let slots = &self.partitions[partition as usize];
        let undecided = |slot: &Slot| slot.is_some_and(|v| self.txns.get(&v.txn()) == Some(&Fate::Open));
        slots.iter().position(undecided).unwrap_or(slots.len()) as u64
    }

    fn poll(&mut self, process: u16, partition: u32, from: u64, limit: u64) {
        let end = self.last_stable(partition);
        let next = from.saturating_add(limit).min(end).max(from);
        let visible = |value: &Value| self.txns.get(&value.txn()) != Some(&Fate::Aborted);
        let slots = self.partitions[partition as usize].iter().enumerate();
        let records: Vec<(u64, Value)> = slots
            .map(|(offset, slot)| (offset as u64, *slot))
            .filter(|(offset, _)| (from..next).contains(offset))
            .filter_map(|(offset, slot)| slot.filter(visible).map(|v| (offset, v)))
            .collect();
        let call = Call::Poll { partition, from, next, at_end: next >= end, records };
        self.record(process, None, call, Outcome::Ok);
        if let Some(reader) = self.readers.get_mut(usize::from(process).wrapping_sub(20)) {
            reader[partition as usize] = next;
        }
    }

    /// Decides whatever is still open.
    fn settle(&mut self) {
        self.crash();
        for txn in std::mem::take(&mut self.open) {
            self.decide(txn, Fate::Aborted);
            self.record(txn.process, None, Call::Abort { txn }, Outcome::Ok);
        }
    }
}
