//! All short histories of one owner with two transactions over two partitions, against a model of a few lines; and that
//! the state lived is the state replayed (I-3) at every node of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clients::Entrance;
use super::decide::{AppendPlan, Asker, BeginPlan, EndPlan, How};
use super::{Effect, State, TxnPhase};
use crate::batch::{BatchBuilder, BatchHeader, Compression, ProducerStamp, assign};
use crate::codec::Cursor;
use crate::config::LogLimits;
use crate::error::{AbortError, AppendError, CommitError};
use crate::offset::Offset;
use crate::owner::{OwnerId, TxnId, TxnName};
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::{Entry, Outcome};

const OWNER: OwnerId = OwnerId(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Claim,
    Begin(usize),
    Append(usize, u32),
    Plain,
    Prepare(usize),
    CommitOpen(usize),
    Commit(&'static [usize]),
    Abort(usize),
    Forget(usize),
    TimeOut,
    Offsets(usize),
}

const ALPHABET: [Op; 15] = [
    Op::Claim,
    Op::Begin(0),
    Op::Begin(1),
    Op::Append(0, 0),
    Op::Append(1, 0),
    Op::Append(0, 1),
    Op::Plain,
    Op::Prepare(0),
    Op::Prepare(1),
    Op::Commit(&[0, 1]),
    Op::CommitOpen(0),
    Op::Abort(1),
    Op::Forget(0),
    Op::TimeOut,
    Op::Offsets(0),
];

/// Where a transaction stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Open,
    Prepared,
    Ended(Outcome),
}

/// One node of the tree: the state, how it came about, and the model beside it.
#[derive(Clone, Default)]
struct Node {
    state: State,
    entries: Vec<Entry>,
    attempt: u64,
    /// Attempt, producer and standing of each transaction that isn't unknown.
    txns: BTreeMap<usize, (u64, i64, i16, Where)>,
    last_stable: [u64; 2],
    high: [u64; 2],
}

fn at(partition: u32) -> TopicPartition {
    TopicPartition::new(TopicId(0), partition)
}

fn id(node: &Node, n: usize) -> TxnId {
    let attempt = node.txns.get(&n).map_or(node.attempt, |txn| txn.0);
    TxnId { owner: OWNER, attempt, checkpoint: n as u64, sink: "s".to_string(), writer: 0 }
}

impl Node {
    fn push(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let mut effects = Vec::new();
            self.state.apply(&entry, &mut effects).expect("a planned entry fits");
            for effect in effects {
                if let Effect::Batch { at, base, next, last_stable, .. } = effect {
                    let p = at.partition as usize;
                    assert_eq!(base, self.high[p], "offsets have no gaps");
                    assert!(last_stable >= self.last_stable[p], "the last stable offset never moves back (I-2)");
                    assert!(last_stable <= next);
                    (self.high[p], self.last_stable[p]) = (next, last_stable);
                }
            }
            self.entries.push(entry);
        }
    }

    fn end(&mut self, outcome: Outcome, plan: &EndPlan) {
        // Of several that end together the later producer id wins, as the entry lists them.
        let mut expected = self.state.group_offsets("g").offsets;
        if outcome == Outcome::Committed {
            let held = plan.producers.iter().filter_map(|producer| self.state.txns[producer].offsets.get("g"));
            held.for_each(|held| expected.extend(held.clone()));
        }
        let how = if outcome == Outcome::Committed { How::Commit } else { How::Abort };
        let entries = self.state.end_entry(how, &plan.producers, 9, &LogLimits::default());
        if !plan.producers.is_empty() {
            self.push(entries);
        }
        assert_eq!(
            self.state.group_offsets("g").offsets,
            expected,
            "a commit makes them the group's, an abort doesn't"
        );
    }

    fn append(&mut self, partition: u32, stamp: ProducerStamp) -> Result<(), AppendError> {
        let mut builder = BatchBuilder::new(Compression::None);
        builder.push(0, None, Some(b"v"), &[]).expect("fits");
        let mut batch = builder.build(stamp).expect("a batch");
        let header = BatchHeader::parse(&batch).expect("a header");
        let plan =
            self.state.plan_append(Entrance::Inside, at(partition), &header, batch.len(), &LogLimits::default())?;
        let AppendPlan::Append { before, base } = plan else { panic!("no batch is sent twice here") };
        assert_eq!(before, []);
        assign(&mut batch, base.cast_signed(), 0);
        self.push([Entry::Append { at: at(partition), wall: 5, batch: Arc::new(batch) }]);
        Ok(())
    }

    /// Carries out `op` on the state and on the model, and compares the answers.
    fn run(&mut self, op: Op) {
        let (limits, asker) = (LogLimits::default(), Asker::Attempt { owner: OWNER, attempt: self.attempt });
        let current = |txn: Option<&(u64, i64, i16, Where)>, node: &Node| {
            txn.filter(|txn| txn.0 == node.attempt).map(|txn| (txn.1, txn.2, txn.3))
        };
        match op {
            Op::Claim => {
                let (claim, open) = self.state.plan_claim(OWNER, self.attempt + 1).expect("the next attempt");
                self.push([claim]);
                assert!(self.state.plan_claim(OWNER, self.attempt + 1).is_err(), "an attempt is used once");
                let chunks = self.state.end_chunks(&open, limits.end_bytes_max);
                for producers in chunks {
                    self.end(Outcome::Aborted, &EndPlan { producers, ..EndPlan::default() });
                }
                self.attempt += 1;
                for txn in self.txns.values_mut().filter(|txn| txn.3 == Where::Open) {
                    txn.3 = Where::Ended(Outcome::Aborted);
                }
            }
            Op::Begin(n) => {
                let name = TxnName { checkpoint: n as u64, sink: "s".to_string(), writer: 0 };
                let planned = self.state.plan_begin(OWNER, self.attempt, name, 1, &limits);
                let taken = current(self.txns.get(&n), self).is_some();
                assert_eq!(planned.is_ok(), !taken && self.attempt > 0, "{op:?}");
                // A name of an earlier attempt is another name; follow the newest one only.
                if let Ok(BeginPlan { block, begin, producer, epoch, .. }) = planned
                    && !self.txns.contains_key(&n)
                {
                    self.push(block.into_iter().chain([begin]));
                    self.state.next_producer = self.state.next_producer.max(producer + 1);
                    self.txns.insert(n, (self.attempt, producer, epoch, Where::Open));
                }
            }
            Op::Append(n, partition) => {
                let Some((attempt, producer_id, epoch, place)) = self.txns.get(&n).copied() else { return };
                let known = self.state.partition(at(partition)).and_then(|p| p.producers.get(&producer_id));
                let known = known.filter(|known| known.epoch == epoch).and_then(|known| known.window.back());
                let base_sequence = known.map_or(0, |batch| batch.last_sequence + 1);
                let stamp = ProducerStamp { producer_id, epoch, base_sequence, transactional: true };
                let appended = self.append(partition, stamp);
                let allowed = place == Where::Open && attempt == self.attempt;
                assert_eq!(appended.is_ok(), allowed, "{op:?}: {appended:?}");
                if place == Where::Prepared && attempt < self.attempt {
                    assert!(matches!(appended, Err(AppendError::Fenced(_))), "{appended:?}");
                }
            }
            Op::Plain => self.append(0, ProducerStamp::NONE).expect("nobody is in the way"),
            Op::Prepare(n) => {
                let planned = self.state.plan_prepare(&id(self, n), 3, &limits);
                let open = current(self.txns.get(&n), self).is_some_and(|txn| txn.2 == Where::Open);
                assert_eq!(planned.is_ok(), open, "{op:?}: {planned:?}");
                if let Ok(entry) = planned {
                    self.push([entry]);
                    self.txns.get_mut(&n).expect("open").3 = Where::Prepared;
                }
            }
            Op::CommitOpen(n) => {
                let planned = self.state.plan_commit_open(&id(self, n));
                let place = current(self.txns.get(&n), self).map(|txn| txn.2);
                let may = matches!(place, Some(Where::Open | Where::Prepared | Where::Ended(Outcome::Committed)));
                assert_eq!(planned.is_ok(), may, "{op:?}: {planned:?}");
                if let Ok(plan) = planned {
                    self.end(Outcome::Committed, &plan);
                    self.txns.get_mut(&n).expect("known").3 = Where::Ended(Outcome::Committed);
                }
            }
            Op::Commit(which) => {
                let ids: Vec<TxnId> = which.iter().map(|n| id(self, *n)).collect();
                let planned = self.state.plan_commit(asker, &ids);
                let places: Vec<_> = which.iter().map(|n| self.txns.get(n).map(|txn| txn.3)).collect();
                let has = |place| places.contains(&place);
                match &planned {
                    Err(CommitError::Fenced(_)) => assert_eq!(self.attempt, 0),
                    Err(CommitError::Aborted(_)) => assert!(has(Some(Where::Ended(Outcome::Aborted)))),
                    Err(CommitError::Unknown(_)) => assert!(has(None)),
                    Err(CommitError::NotPrepared(_)) => assert!(has(Some(Where::Open))),
                    Err(other) => panic!("{other}"),
                    Ok(plan) => {
                        let bad = [None, Some(Where::Open), Some(Where::Ended(Outcome::Aborted))];
                        assert!(!bad.into_iter().any(has), "{places:?}");
                        let prepared = places.iter().filter(|place| **place == Some(Where::Prepared)).count();
                        assert_eq!((plan.now.len(), plan.already.len()), (prepared, places.len() - prepared));
                        self.end(Outcome::Committed, plan);
                        for n in which {
                            self.txns.get_mut(n).expect("known").3 = Where::Ended(Outcome::Committed);
                        }
                    }
                }
            }
            Op::Abort(n) => {
                let planned = self.state.plan_abort(asker, &[id(self, n)]);
                match (&planned, self.txns.get(&n).map(|txn| txn.3)) {
                    (Err(AbortError::Committed(_)), Some(Where::Ended(Outcome::Committed))) => {}
                    (Err(AbortError::Unknown(_)), None) => {}
                    (Ok(plan), Some(_)) => {
                        self.end(Outcome::Aborted, plan);
                        self.txns.get_mut(&n).expect("known").3 = Where::Ended(Outcome::Aborted);
                    }
                    (answer, place) => panic!("{op:?}: {answer:?} for {place:?}"),
                }
            }
            Op::Offsets(n) => {
                let kept = self.entries.len() as u64;
                let offsets = vec![(at(0), Offset(kept)).into()];
                let planned = self.state.plan_offsets(Some(&id(self, n)), "g", offsets, 4, &limits);
                let open = current(self.txns.get(&n), self).is_some_and(|txn| txn.2 == Where::Open);
                assert_eq!(planned.is_ok(), open, "{op:?}: {planned:?}");
                if let Ok(entry) = planned {
                    let before = self.state.group_offsets("g").offsets;
                    self.push([entry]);
                    assert_eq!(self.state.group_offsets("g").offsets, before, "nobody sees them before the end");
                    assert!(self.state.plan_group_deletion("g").is_err(), "nor may the group go");
                }
            }
            Op::TimeOut => {
                assert_eq!(self.state.timed_out(1), (vec![], vec![]), "all were begun at 1");
                let (ids, producers) = self.state.timed_out(2);
                let open: Vec<usize> =
                    self.txns.iter().filter(|(_, txn)| txn.3 == Where::Open).map(|(n, _)| *n).collect();
                let mut checkpoints: Vec<usize> = ids.iter().map(|id| id.checkpoint as usize).collect();
                checkpoints.sort_unstable();
                assert_eq!(checkpoints, open, "open ones, never prepared ones");
                if !producers.is_empty() {
                    let entries = self.state.end_entry(How::Fence, &producers, 9, &limits);
                    self.push(entries);
                }
                for n in open {
                    let (_, producer_id, epoch, place) = self.txns.get_mut(&n).expect("open");
                    *place = Where::Ended(Outcome::Aborted);
                    // Whoever still writes with the old epoch is refused wherever it has written, whatever it writes.
                    for partition in &self.state.topics[0].partitions {
                        let known = partition.producers.get(producer_id).filter(|known| known.epoch >= *epoch);
                        assert!(known.is_none_or(|known| known.epoch == *epoch + 1), "{known:?}");
                    }
                }
            }
            Op::Forget(n) => {
                let planned = self.state.plan_forget(OWNER, self.attempt, &[id(self, n)], &limits);
                let live = matches!(self.txns.get(&n), Some(txn) if matches!(txn.3, Where::Open | Where::Prepared));
                assert_eq!(planned.is_err(), live, "{op:?}");
                if let Ok(entries) = planned {
                    self.push(entries);
                    self.txns.remove(&n);
                }
            }
        }
    }

    fn check(&self) {
        let mut replayed = State::default();
        for entry in &self.entries {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let entry = Entry::decode(&mut Cursor::new(&bytes)).expect("as it was encoded");
            replayed.apply(&entry, &mut Vec::new()).expect("as it was lived");
        }
        let image = self.state.image();
        assert_eq!(replayed.image(), image, "the replayed state is the state that was lived");
        let mut cursor = Cursor::new(&image);
        let read = State::decode(&mut cursor).expect("an image is readable");
        assert!(cursor.is_empty());
        assert_eq!(read.image(), image, "an image holds everything");
        for (n, (_, producer, _, place)) in &self.txns {
            let owner = &self.state.owners[&OWNER];
            let id = id(self, *n);
            let (live, outcome) = (owner.live.get(&id), owner.outcomes.get(&id));
            let phase = live.and_then(|producer| self.state.txns.get(producer)).map(|txn| txn.phase);
            let expected = match place {
                Where::Open => (Some(producer), None, Some(TxnPhase::Open)),
                Where::Prepared => (Some(producer), None, Some(TxnPhase::Prepared)),
                Where::Ended(outcome) => (None, Some(outcome), None),
            };
            assert_eq!((live, outcome, phase), expected);
        }
        for (p, partition) in self.state.topics.iter().flat_map(|topic| topic.partitions.iter().enumerate()) {
            assert_eq!(partition.last_stable(), self.last_stable[p].max(partition.last_stable()));
            for (first, producer) in &partition.open {
                assert_eq!(self.state.txns[producer].partitions.get(&at(p as u32)), Some(first));
            }
        }
    }
}

#[test]
fn every_short_history_answers_as_the_model_does_and_replays_to_the_same_state() {
    fn go(node: &Node, left: usize, seen: &mut u64) {
        for op in ALPHABET {
            let mut next = node.clone();
            next.run(op);
            *seen += 1;
            if next.entries.len() == node.entries.len() {
                // A refusal leaves everything as it was.
                assert_eq!(next.state.image(), node.state.image(), "{op:?}");
                continue;
            }
            next.check();
            if left > 1 {
                go(&next, left - 1, seen);
            }
        }
    }
    let mut root = Node::default();
    let topic = root.state.plan_topic("t", 2, &LogLimits::default()).expect("a topic");
    root.push([topic]);
    root.run(Op::Claim);
    let mut seen = 0;
    go(&root, 6, &mut seen);
    assert!(seen > 50_000, "{seen} steps");
}

#[test]
fn a_fenced_attempt_is_refused_at_every_operation_and_what_it_prepared_stays() {
    for before in [&[][..], &[Op::Append(0, 0)], &[Op::Append(0, 0), Op::Prepare(0)]] {
        let mut node = Node::default();
        let topic = node.state.plan_topic("t", 2, &LogLimits::default()).expect("a topic");
        node.push([topic]);
        for op in [Op::Claim, Op::Begin(0)].iter().chain(before) {
            node.run(*op);
        }
        let old = id(&node, 0);
        let (producer, epoch) = (node.txns[&0].1, node.txns[&0].2);
        node.run(Op::Claim);
        let limits = LogLimits::default();
        let asker = Asker::Attempt { owner: OWNER, attempt: 1 };
        let name = TxnName { checkpoint: 9, sink: "s".to_string(), writer: 0 };
        assert!(node.state.plan_begin(OWNER, 1, name, 0, &limits).is_err());
        assert!(node.state.plan_prepare(&old, 0, &limits).is_err());
        assert!(matches!(node.state.plan_commit(asker, std::slice::from_ref(&old)), Err(CommitError::Fenced(_))));
        assert!(matches!(node.state.plan_commit_open(&old), Err(CommitError::Fenced(_))));
        assert!(matches!(node.state.plan_abort(asker, std::slice::from_ref(&old)), Err(AbortError::Fenced(_))));
        assert!(node.state.plan_forget(OWNER, 1, std::slice::from_ref(&old), &limits).is_err());
        let stamp = ProducerStamp { producer_id: producer, epoch, base_sequence: 1, transactional: true };
        assert!(node.append(0, stamp).is_err());
        let prepared = before.contains(&Op::Prepare(0));
        assert_eq!(node.state.txns.contains_key(&producer), prepared, "prepared ones stay, open ones end");
    }
}

#[test]
fn images_of_the_versions_before_groups_and_before_clients_are_read() {
    let mut node = Node::default();
    let topic = node.state.plan_topic("t", 2, &LogLimits::default()).expect("a topic");
    node.push([topic]);
    for op in [Op::Claim, Op::Begin(0), Op::Append(0, 1), Op::Prepare(0)] {
        node.run(op);
    }
    let image = node.state.image();
    // Version 3 adds clients, memberships, and of its one topic a directory, what is gone, two starts and settings.
    let (second, added) = image.split_at(image.len() - (4 + 4 + 4 + (4 + 1) + 4 + 2 * 8 + 4));
    assert_eq!(added[..8], [0; 8], "no clients, no memberships");
    let (first, groups) = second.split_at(second.len() - 8);
    assert_eq!(groups, [0; 8], "no groups, no transaction that holds offsets");
    for old in [first, second] {
        let mut cursor = Cursor::new(old);
        let read = State::decode(&mut cursor).expect("readable");
        assert_eq!((cursor.is_empty(), read.image()), (true, image.clone()));
    }
}

#[test]
fn a_transaction_that_times_out_at_the_last_epoch_retires_its_producer() {
    let mut node = Node::default();
    let topic = node.state.plan_topic("t", 1, &LogLimits::default()).expect("a topic");
    node.push([topic]);
    node.run(Op::Claim);
    node.run(Op::Begin(0));
    let producer = node.txns[&0].1;
    node.state.txns.get_mut(&producer).expect("open").epoch = i16::MAX - 1;
    node.txns.get_mut(&0).expect("open").2 = i16::MAX - 1;
    node.run(Op::Append(0, 0));
    node.run(Op::TimeOut);
    assert_eq!(node.state.topics[0].partitions[0].producers[&producer].epoch, i16::MAX);
    node.run(Op::Begin(1));
    assert_eq!((node.txns[&1].1, node.txns[&1].2), (producer + 1, 0), "a fresh id");
}

#[test]
fn silent_producers_are_forgotten_bit_by_bit_but_none_with_a_live_transaction() {
    let mut node = Node::default();
    let limits = LogLimits::default();
    for name in ["t", "u"] {
        let topic = node.state.plan_topic(name, 2, &limits).expect("a topic");
        node.push([topic]);
    }
    for producer_id in 500..512 {
        let stamp = ProducerStamp { producer_id, epoch: 0, base_sequence: 0, transactional: false };
        node.append((producer_id % 2) as u32, stamp).expect("nobody is in the way");
    }
    node.run(Op::Claim);
    node.run(Op::Begin(0));
    node.run(Op::Append(0, 0));
    let first = TopicPartition::default();
    // The batches were appended at 5.
    assert_eq!(node.state.plan_expiry(first, 5, &limits), (vec![], first));
    let (entries, next) = node.state.plan_expiry(first, 6, &LogLimits { end_bytes_max: 64, ..limits.clone() });
    assert_eq!((entries.len(), next), (4, first), "two entries for each partition, all partitions looked at");
    node.push(entries);
    let left: Vec<Vec<i64>> =
        node.state.topics[0].partitions.iter().map(|p| p.producers.keys().copied().collect()).collect();
    assert_eq!(left, [vec![node.txns[&0].1], vec![]]);
    assert_eq!(node.state.plan_expiry(at(1), 6, &limits), (vec![], first));
}

#[test]
fn producer_ids_come_back_with_a_higher_epoch_and_retire_before_the_largest() {
    let mut node = Node::default();
    node.run(Op::Claim);
    node.run(Op::Begin(0));
    let (_, producer, epoch, _) = node.txns[&0];
    assert_eq!(epoch, 0);
    node.run(Op::CommitOpen(0));
    node.run(Op::Forget(0));
    node.run(Op::Begin(0));
    assert_eq!((node.txns[&0].1, node.txns[&0].2), (producer, 1));
    // The same id once more, at the last epoch.
    node.state.txns.get_mut(&producer).expect("open").epoch = i16::MAX - 1;
    node.run(Op::CommitOpen(0));
    node.run(Op::Forget(0));
    node.run(Op::Begin(0));
    assert_eq!((node.txns[&0].1, node.txns[&0].2), (producer + 1, 0), "a fresh id");
}
