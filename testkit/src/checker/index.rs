//! A history sorted for judging: what became of each value, transaction, checkpoint and partition.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::{Attempt, Call, Checkpoint, History, Op, Outcome, TxnId, Value};

/// "Never" as a stamp.
pub(crate) const NEVER: u64 = u64::MAX;

/// A value that was sent, retries merged.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) partition: u32,
    pub(crate) offset: Option<u64>,
    pub(crate) outcome: Outcome,
    pub(crate) start: u64,
    /// When it was acknowledged.
    pub(crate) end: u64,
}

/// Where a value was read by rights, and when first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) offset: u64,
    pub(crate) first_end: u64,
}

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) struct Txn {
    pub(crate) begun: u64,
    pub(crate) parts: Vec<Value>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// The first start of a commit that may have been done.
    pub(crate) commit_start: u64,
    /// The first end of a commit that was done.
    pub(crate) commit_end: u64,
    /// The first end of an abort that was done.
    pub(crate) abort_end: u64,
    /// When a part of it was first read by rights.
    pub(crate) seen: u64,
}

impl Txn {
    pub(crate) fn aborted(&self) -> bool {
        self.abort_end != NEVER && self.commit_end == NEVER
    }

    /// From when on it can't hold anybody up.
    fn settled(&self) -> u64 {
        self.commit_end.min(self.abort_end).min(self.seen)
    }
}

/// A poll, taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll<'a> {
    pub(crate) partition: u32,
    pub(crate) from: u64,
    pub(crate) next: u64,
    pub(crate) at_end: bool,
    pub(crate) records: &'a [(u64, Value)],
    pub(crate) op: &'a Op,
}

/// A partition.
#[derive(Debug, Default)]
pub(crate) struct Partition<'a> {
    pub(crate) polls: Vec<Poll<'a>>,
    /// Polls that reached the end, by start.
    pub(crate) end_polls: Vec<Poll<'a>>,
    /// What polls covered, merged and sorted.
    covered: Vec<(u64, u64)>,
    /// Values with known offsets, by offset.
    pub(crate) known: Vec<(u64, Value)>,
    /// Values in transactions that were perhaps written, nobody knows where.
    somewhere: Vec<Value>,
    /// Offsets and values read by rights, with the first time; by offset.
    pub(crate) seen: Vec<(u64, Value, u64)>,
}

impl Partition<'_> {
    /// True when a reader passed `offset`.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        let index = self.covered.partition_point(|(from, _)| *from <= offset);
        index > 0 && offset < self.covered[index - 1].1
    }

    /// Everything below this offset was passed by readers.
    pub(crate) fn covered_from_zero(&self) -> u64 {
        self.covered.first().filter(|(from, _)| *from == 0).map_or(0, |(_, to)| *to)
    }
}

/// A history, sorted.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    pub(crate) history: &'a History,
    pub(crate) sent: HashMap<Value, Sent>,
    /// The values sent, in order.
    pub(crate) values: Vec<Value>,
    pub(crate) seen: HashMap<Value, Seen>,
    pub(crate) txns: BTreeMap<TxnId, Txn>,
    pub(crate) checkpoints: BTreeMap<Checkpoint, Vec<TxnId>>,
    /// When a part of a checkpoint was first read.
    pub(crate) checkpoint_seen: BTreeMap<Checkpoint, u64>,
    /// Of the later checkpoints of the same job, the one that was read first, and when.
    behind: BTreeMap<Checkpoint, (Checkpoint, u64)>,
    fences: BTreeMap<u16, Vec<&'a Op>>,
    pub(crate) partitions: BTreeMap<u32, Partition<'a>>,
    /// Every (value, partition, offset) that was ever claimed, sorted.
    pub(crate) claims: Vec<(Value, u32, u64)>,
    /// Values that share an offset, have several, or were read wrongly: what is missing of them is explained already.
    pub(crate) explained: HashSet<Value>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(history: &'a History) -> Index<'a> {
        let mut index = Index {
            history,
            sent: HashMap::new(),
            values: Vec::new(),
            seen: HashMap::new(),
            txns: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            checkpoint_seen: BTreeMap::new(),
            behind: BTreeMap::new(),
            fences: BTreeMap::new(),
            partitions: BTreeMap::new(),
            claims: Vec::new(),
            explained: HashSet::new(),
        };
        index.take_writes();
        index.take_reads();
        index.take_claims();
        index.take_partitions();
        index
    }

    fn take_writes(&mut self) {
        for op in &self.history.ops {
            if let (Call::Begin { txn }, Outcome::Ok | Outcome::Unknown) = (&op.call, op.outcome) {
                let begun = op.start;
                self.txns.entry(*txn).or_insert_with(|| Txn {
                    begun,
                    parts: Vec::new(),
                    checkpoint: None,
                    commit_start: NEVER,
                    commit_end: NEVER,
                    abort_end: NEVER,
                    seen: NEVER,
                });
            }
        }
        let (mut prepared, mut committed) = (Vec::new(), Vec::new());
        for op in &self.history.ops {
            let done = op.outcome == Outcome::Ok;
            match &op.call {
                Call::Fence { owner, .. } if done => self.fences.entry(*owner).or_default().push(op),
                Call::Send { partition, value, offset } => self.take_send(op, *partition, *value, *offset),
                _ if op.outcome == Outcome::Fail => {}
                Call::Prepare { txn, checkpoint } => prepared.push((*txn, *checkpoint)),
                Call::Abort { txn } if done => {
                    if let Some(txn) = self.txns.get_mut(txn) {
                        txn.abort_end = txn.abort_end.min(op.end);
                    }
                }
                Call::Commit { txns, checkpoint } => {
                    for id in txns {
                        committed.push((*id, *checkpoint));
                        if let Some(txn) = self.txns.get_mut(id) {
                            txn.commit_start = txn.commit_start.min(op.start);
                            if done {
                                txn.commit_end = txn.commit_end.min(op.end);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        for (id, checkpoint) in prepared.into_iter().chain(committed) {
            if let (Some(txn), Some(checkpoint)) = (self.txns.get_mut(&id), checkpoint) {
                txn.checkpoint = Some(checkpoint);
            }
        }
        self.values.sort_unstable();
        for value in &self.values {
            if let Some(txn) = self.txns.get_mut(&value.txn()).filter(|_| self.sent[value].outcome == Outcome::Ok) {
                txn.parts.push(*value);
            }
        }
        for (id, txn) in &self.txns {
            if let Some(checkpoint) = txn.checkpoint {
                self.checkpoints.entry(checkpoint).or_default().push(*id);
            }
        }
    }

    fn take_send(&mut self, op: &Op, partition: u32, value: Value, offset: Option<u64>) {
        let end = if op.outcome == Outcome::Ok { op.end } else { NEVER };
        let sent = self.sent.entry(value).or_insert_with(|| {
            self.values.push(value);
            Sent { partition, offset: None, outcome: op.outcome, start: op.start, end }
        });
        if let Some(offset) = offset.filter(|_| op.outcome == Outcome::Ok) {
            self.claims.push((value, partition, offset));
        }
        sent.offset = sent.offset.or(offset.filter(|_| op.outcome == Outcome::Ok));
        sent.start = sent.start.min(op.start);
        sent.end = sent.end.min(end);
        sent.outcome = match (sent.outcome, op.outcome) {
            (Outcome::Ok, _) | (_, Outcome::Ok) => Outcome::Ok,
            (Outcome::Unknown, _) | (_, Outcome::Unknown) => Outcome::Unknown,
            _ => Outcome::Fail,
        };
    }

    /// Whether a poll that ended at `end` may have seen `value`: sent, not refused, not aborted, its commit asked for.
    pub(crate) fn by_rights(&self, value: Value, end: u64) -> bool {
        let Some(sent) = self.sent.get(&value).filter(|s| s.outcome != Outcome::Fail && s.start <= end) else {
            return false;
        };
        match self.txns.get(&value.txn()) {
            Some(txn) => !txn.aborted() && txn.commit_start <= end && sent.outcome != Outcome::Fail,
            None => true,
        }
    }

    fn take_reads(&mut self) {
        for op in &self.history.ops {
            let Call::Poll { partition, from, next, at_end, records } = &op.call else { continue };
            if op.outcome != Outcome::Ok {
                continue;
            }
            let poll = Poll { partition: *partition, from: *from, next: *next, at_end: *at_end, records, op };
            self.partitions.entry(*partition).or_default().polls.push(poll);
            for (offset, value) in records {
                if !self.by_rights(*value, op.end) {
                    self.explained.insert(*value);
                    continue;
                }
                let new = Seen { offset: *offset, first_end: op.end };
                let seen = self.seen.entry(*value).or_insert(new);
                if op.end < seen.first_end {
                    *seen = new;
                }
                if let Some(txn) = self.txns.get_mut(&value.txn()) {
                    txn.seen = txn.seen.min(op.end);
                }
                self.partitions.entry(*partition).or_default().seen.push((*offset, *value, op.end));
            }
        }
        for (checkpoint, txns) in &self.checkpoints {
            let seen = txns.iter().map(|id| self.txns[id].seen).min().unwrap_or(NEVER);
            self.checkpoint_seen.insert(*checkpoint, seen);
        }
        let mut first: Option<(Checkpoint, u64)> = None;
        for (checkpoint, seen) in self.checkpoint_seen.iter().rev() {
            let behind = first.filter(|(later, _)| later.owner == checkpoint.owner);
            if let Some(behind) = behind {
                self.behind.insert(*checkpoint, behind);
            }
            first = match behind {
                Some((_, earlier)) if earlier <= *seen => behind,
                _ => Some((*checkpoint, *seen)),
            };
        }
    }

    fn take_claims(&mut self) {
        for partition in self.partitions.values() {
            for poll in &partition.polls {
                self.claims.extend(poll.records.iter().map(|(offset, value)| (*value, poll.partition, *offset)));
            }
        }
        self.claims.sort_unstable();
        self.claims.dedup();
        let mut by_offset: Vec<(u32, u64, Value)> = self.claims.iter().map(|(v, p, o)| (*p, *o, *v)).collect();
        by_offset.sort_unstable();
        for pair in by_offset.windows(2) {
            if (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1) {
                self.explained.extend([pair[0].2, pair[1].2]);
            }
        }
        for pair in self.claims.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.explained.insert(pair[0].0);
            }
        }
    }

    fn take_partitions(&mut self) {
        for value in &self.values {
            let sent = &self.sent[value];
            let place = self.place(*value);
            let partition = self.partitions.entry(sent.partition).or_default();
            match place {
                Some(offset) => partition.known.push((offset, *value)),
                None if sent.outcome != Outcome::Fail && self.txns.contains_key(&value.txn()) => {
                    partition.somewhere.push(*value);
                }
                None => {}
            }
        }
        for partition in self.partitions.values_mut() {
            partition.known.sort_unstable();
            // By offset and value, the first reading first; then one of each.
            partition.seen.sort_unstable();
            partition.seen.dedup_by_key(|(offset, value, _)| (*offset, *value));
            partition.end_polls = partition.polls.iter().filter(|p| p.at_end).copied().collect();
            partition.end_polls.sort_by_key(|p| p.op.start);
            let mut ranges: Vec<(u64, u64)> =
                partition.polls.iter().map(|p| (p.from, p.next)).filter(|(from, to)| from < to).collect();
            ranges.sort_unstable();
            for (from, to) in ranges {
                match partition.covered.last_mut() {
                    Some(last) if from <= last.1 => last.1 = last.1.max(to),
                    _ => partition.covered.push((from, to)),
                }
            }
        }
    }

    /// Where a value stands: as read, else as acknowledged.
    pub(crate) fn place(&self, value: Value) -> Option<u64> {
        self.seen.get(&value).map(|s| s.offset).or_else(|| self.sent[&value].offset)
    }

    /// A poll that started after `after`, reached the end of the value's partition, and didn't find the value, though
    /// nobody had read it yet; and that no undecided transaction of others held back.
    pub(crate) fn absent_after(&self, value: Value, after: u64) -> Option<&Poll<'a>> {
        let partition = self.partitions.get(&self.sent[&value].partition)?;
        let until = self.seen.get(&value).map_or(NEVER, |s| s.first_end);
        let first = partition.end_polls.partition_point(|p| p.op.start <= after);
        let end = partition.end_polls.partition_point(|p| p.op.start < until);
        let polls = partition.end_polls.get(first..end)?;
        // The first ones and the last: those between tell little more, and there may be many.
        let few = polls.iter().take(16).chain(polls.last());
        few.into_iter().find(|poll| self.misses(partition, poll, value) && !self.held_back(partition, poll, value))
    }

    /// Whether a poll to the end ended before the place of `value`.
    fn misses(&self, partition: &Partition<'_>, poll: &Poll<'_>, value: Value) -> bool {
        match self.place(value) {
            Some(offset) => poll.next <= offset,
            // Nobody knows where it stands: then all before the end must have been passed by somebody.
            None => poll.next <= partition.covered_from_zero(),
        }
    }

    /// Whether a transaction of others, undecided at the time, kept the end of `poll` before `value`.
    fn held_back(&self, partition: &Partition<'_>, poll: &Poll<'_>, value: Value) -> bool {
        let own = value.txn();
        let own_checkpoint = self.txns.get(&own).and_then(|t| t.checkpoint);
        let holds = |other: &Value| {
            let Some(txn) = self.txns.get(&other.txn()).filter(|_| other.txn() != own) else { return false };
            let same_group = txn.checkpoint.is_some() && txn.checkpoint == own_checkpoint && !txn.aborted();
            !same_group && txn.begun < poll.op.end && txn.settled() > poll.op.start
        };
        let place = self.place(value).unwrap_or(NEVER);
        let first = partition.known.partition_point(|(offset, _)| *offset < poll.next);
        let between = partition.known[first..].iter().take_while(|(offset, _)| *offset < place);
        between.map(|(_, other)| other).chain(&partition.somewhere).any(holds)
    }

    /// The checkpoint behind `checkpoint` that was read first, and when.
    pub(crate) fn first_seen_behind(&self, checkpoint: Checkpoint) -> Option<(Checkpoint, u64)> {
        self.behind.get(&checkpoint).copied().filter(|(_, seen)| *seen != NEVER)
    }

    /// The fence, if any, that shut `by` out before `start`.
    pub(crate) fn fenced(&self, by: Attempt, start: u64) -> Option<&'a Op> {
        let shuts_out = |op: &&&Op| matches!(op.call, Call::Fence { below, .. } if by.number < below);
        self.fences.get(&by.owner)?.iter().take_while(|op| op.end < start).find(shuts_out).copied()
    }
}
