//! All short histories of one transactional id, with the requests of both protocols and of incarnations from before, against
//! a model of a few lines; and that the state lived is the state replayed (I-3) at every node of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::clients::Entrance;
use super::decide::{AppendPlan, How};
use super::{Effect, State};
use crate::batch::{BatchBuilder, BatchHeader, Compression, ProducerStamp, assign};
use crate::client::ClientProducer;
use crate::codec::Cursor;
use crate::config::LogLimits;
use crate::offset::Offset;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::{Entry, Outcome};

const ID: &str = "transfers";
const TIMEOUT: i64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Init,
    /// With the producer id and epoch that the newest incarnation has.
    InitAgain,
    /// With those of the one before.
    InitOld,
    Add(u32),
    Append(u32),
    /// Brings its partition in by itself.
    AppendNewer(u32),
    AppendOld,
    Offsets,
    End(Outcome),
    EndNewer(Outcome),
    EndOld(Outcome),
    TimeOut,
    DeleteTopic,
}

use Outcome::{Aborted, Committed};

const ALPHABET: [Op; 15] = [
    Op::Init,
    Op::InitAgain,
    Op::InitOld,
    Op::Add(0),
    Op::Append(0),
    Op::AppendNewer(1),
    Op::AppendOld,
    Op::Offsets,
    Op::End(Committed),
    Op::End(Aborted),
    Op::EndNewer(Committed),
    Op::EndNewer(Aborted),
    Op::EndOld(Committed),
    Op::EndOld(Aborted),
    Op::TimeOut,
];

/// What the model holds of an open transaction.
#[derive(Clone, Default)]
struct Open {
    declared: BTreeSet<u32>,
    records: Vec<(u32, u64)>,
    offset: Option<u64>,
}

#[derive(Clone, Default)]
struct Node {
    state: State,
    entries: Vec<Entry>,
    now: ClientProducer0,
    before: ClientProducer0,
    /// What may repeat the last request that raised the epoch.
    again: ClientProducer0,
    outcome: Option<Outcome>,
    open: Option<Open>,
    next: BTreeMap<(u32, ClientProducer1), i32>,
    committed: BTreeSet<(u32, u64)>,
    aborted: BTreeSet<(u32, u64)>,
    offset: Option<u64>,
    steps: u64,
    deleted: bool,
}

type ClientProducer0 = Option<ClientProducer>;
type ClientProducer1 = (i64, i16);

fn at(partition: u32) -> TopicPartition {
    TopicPartition::new(TopicId(0), partition)
}

impl Node {
    fn new() -> Node {
        let mut node = Node::default();
        let topic = node.state.plan_topic("t", 2, &LogLimits::default()).expect("a topic");
        node.push([topic]);
        node
    }

    fn push(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.state.apply(&entry, &mut Vec::<Effect>::new()).expect("a planned entry fits");
            self.entries.push(entry);
        }
    }

    fn given(&mut self, given: ClientProducer) {
        if self.now != Some(given) {
            self.before = self.now;
            self.now = Some(given);
        }
    }

    fn ended(&mut self, outcome: Outcome) {
        let open = self.open.take().expect("the model knows that one is open");
        match outcome {
            Committed => {
                self.committed.extend(open.records);
                self.offset = open.offset.or(self.offset);
            }
            Aborted => self.aborted.extend(open.records),
        }
        self.outcome = Some(outcome);
    }

    fn append(&mut self, who: ClientProducer, partition: u32, implicit: bool) -> Option<u64> {
        let key = (partition, (who.producer, who.epoch));
        let base_sequence = self.next.get(&key).copied().unwrap_or(0);
        let stamp = ProducerStamp { producer_id: who.producer, epoch: who.epoch, base_sequence, transactional: true };
        let mut builder = BatchBuilder::new(Compression::None);
        builder.push(1, None, Some(b"x"), &[]).expect("it fits");
        let mut batch = builder.build(stamp).expect("a batch");
        let header = BatchHeader::parse(&batch).expect("a header");
        let entrance = Entrance::Client { id: Some(ID), implicit, wall: 5 };
        let plan = self.state.plan_append(entrance, at(partition), &header, batch.len(), &LogLimits::default());
        match plan {
            Ok(AppendPlan::Append { before, base }) => {
                self.push(before);
                assign(&mut batch, base.cast_signed(), 0);
                self.push([Entry::Append { at: at(partition), wall: 5, batch: Arc::new(batch) }]);
                self.next.insert(key, base_sequence + 1);
                Some(base)
            }
            Ok(AppendPlan::Duplicate { .. }) => panic!("every batch is a new one"),
            Err(_) => None,
        }
    }

    fn end(&mut self, who: ClientProducer, outcome: Outcome, raise: bool) -> Option<ClientProducer> {
        let limits = LogLimits::default();
        let planned = self.state.plan_client_end(ID, who, outcome, raise, 5, &limits);
        let (entries, given) = planned.ok()?;
        self.push(entries);
        Some(given)
    }

    fn init(&mut self, expected: Option<ClientProducer>) -> Option<ClientProducer> {
        let expected = expected.map(|expected| (expected.producer, expected.epoch));
        let planned = self.state.plan_init(ID, TIMEOUT, expected, 5, &LogLimits::default());
        let (entries, given) = planned.ok()?;
        self.push(entries);
        Some(given)
    }

    fn begin_again(&mut self, given: Option<ClientProducer>, again: Option<ClientProducer>, story: &str) {
        let given = given.unwrap_or_else(|| panic!("{story}: it is refused"));
        if self.open.is_some() {
            self.ended(Aborted);
        }
        assert!(self.now.is_none_or(|now| given.producer > now.producer || given.epoch > now.epoch), "{story}: fresh");
        self.given(given);
        (self.again, self.outcome) = (again, None);
    }

    /// Runs one request and compares the answer; false if it makes no sense here.
    fn run(&mut self, op: Op) -> bool {
        self.steps += 1;
        let story = format!("{op:?} after {:?}", self.entries);
        let old = self.before;
        let Some(now) = self.now else {
            // Nothing but initialising works for an unknown id.
            if op == Op::Init {
                let given = self.init(None);
                self.begin_again(given, None, &story);
                return true;
            }
            return false;
        };
        let open = self.open.is_some();
        match op {
            Op::Init => {
                let given = self.init(None);
                self.begin_again(given, None, &story);
            }
            Op::InitAgain => {
                let given = self.init(Some(now));
                self.begin_again(given, Some(now), &story);
            }
            Op::InitOld => {
                let Some(old) = old else { return false };
                let repeated = !open && self.again == Some(old);
                assert_eq!(self.init(Some(old)), repeated.then_some(now), "{story}");
            }
            Op::Add(partition) => {
                let planned =
                    self.state.plan_partitions(ID, now.producer, now.epoch, &[at(partition)], 5, &LogLimits::default());
                match planned {
                    Ok(entry) => self.push(entry),
                    Err(error) => {
                        assert!(self.deleted, "{story}: {error}");
                        return true;
                    }
                }
                assert!(!self.deleted, "{story}: the topic is gone");
                self.open.get_or_insert_default().declared.insert(partition);
            }
            Op::Append(partition) | Op::AppendNewer(partition) => {
                let newer = matches!(op, Op::AppendNewer(_));
                let announced = |open: &Open| {
                    open.declared.contains(&partition) || open.records.iter().any(|(known, _)| *known == partition)
                };
                let may = !self.deleted && (newer || self.open.as_ref().is_some_and(announced));
                let base = self.append(now, partition, newer);
                assert_eq!(base.is_some(), may, "{story}");
                if let Some(base) = base {
                    self.open.get_or_insert_default().records.push((partition, base));
                }
            }
            Op::AppendOld => {
                let Some(old) = old else { return false };
                assert_eq!(self.append(old, 0, true), None, "{story}: a zombie writes");
            }
            Op::Offsets => {
                let planned = self.state.plan_client_offsets(ID, now.producer, now.epoch, false, 5);
                assert_eq!(planned.is_ok(), open, "{story}");
                if !open || self.deleted {
                    return true;
                }
                let offsets = vec![(at(0), Offset(self.steps)).into()];
                let entry = self.state.judge_offsets(Some(now.producer), "g", offsets, 5, &LogLimits::default());
                self.push([entry.expect("they are taken")]);
                self.open.get_or_insert_default().offset = Some(self.steps);
            }
            Op::End(outcome) => {
                let may = open || self.outcome == Some(outcome);
                assert_eq!(self.end(now, outcome, false), may.then_some(now), "{story}");
                if open {
                    self.ended(outcome);
                    self.again = None;
                }
            }
            Op::EndNewer(outcome) => {
                let may = open || outcome == Aborted;
                let given = self.end(now, outcome, true);
                assert_eq!(given.is_some(), may, "{story}");
                if let Some(given) = given {
                    if open {
                        self.ended(outcome);
                    }
                    self.outcome = Some(outcome);
                    self.again = Some(now);
                    assert_eq!(given, ClientProducer { epoch: now.epoch + 1, ..now }, "{story}");
                    self.given(given);
                }
            }
            Op::EndOld(outcome) => {
                let Some(old) = old else { return false };
                let repeats = !open && self.again == Some(old) && self.outcome == Some(outcome);
                assert_eq!(self.end(old, outcome, true), repeats.then_some(now), "{story}");
            }
            Op::TimeOut => {
                assert_eq!(self.state.late_clients(5 + TIMEOUT), Vec::<i64>::new(), "{story}: not a moment too early");
                let late = self.state.late_clients(6 + TIMEOUT);
                assert_eq!(late.is_empty(), !open, "{story}");
                let entries = self.state.end_entry(How::Fence, &late, 5, &LogLimits::default());
                if open {
                    self.push(entries);
                    self.ended(Aborted);
                    self.again = Some(now);
                    self.given(ClientProducer { epoch: now.epoch + 1, ..now });
                }
            }
            Op::DeleteTopic => {
                if self.deleted {
                    return false;
                }
                let entry = self.state.plan_topic_deletion("t").expect("it is there");
                self.push([entry]);
                self.deleted = true;
                self.offset = None;
                if let Some(open) = &mut self.open {
                    *open = Open::default();
                }
            }
        }
        true
    }

    fn check(&self) {
        let mut replayed = State::default();
        for entry in &self.entries {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let entry = Entry::decode(&mut Cursor::new(&bytes)).expect("readable");
            replayed.apply(&entry, &mut Vec::new()).expect("as it was lived");
        }
        let image = self.state.image();
        assert_eq!(replayed.image(), image, "the replayed state is the state that was lived");
        let read = State::decode(&mut Cursor::new(&image)).expect("readable");
        assert_eq!(read.image(), image, "an image is read back");
        assert_eq!(read.client_ids, self.state.client_ids);
        let offset = self.state.group_offsets("g").offsets.get(&at(0)).map(|kept| kept.offset.0);
        assert_eq!(offset, self.offset, "the group's offset is that of the last commit");
        assert_eq!(self.state.txns.len(), usize::from(self.open.is_some()));
        if !self.deleted {
            let records: Vec<_> = self.open.iter().flat_map(|open| &open.records).collect();
            for partition in 0..2 {
                let first = records.iter().filter(|(known, _)| *known == partition).map(|(_, base)| *base).min();
                let known = &self.state.topics[0].partitions[partition as usize];
                assert_eq!(known.last_stable(), first.unwrap_or(known.log_end));
            }
        }
    }
}

#[test]
fn every_short_history_of_a_client_answers_as_the_model_does_and_replays_to_the_same_state() {
    fn go(node: &Node, left: usize, seen: &mut u64) {
        *seen += 1;
        node.check();
        if left == 0 {
            return;
        }
        for op in ALPHABET {
            let mut next = node.clone();
            if next.run(op) {
                go(&next, left - 1, seen);
            }
        }
    }
    let mut seen = 0;
    go(&Node::new(), 5, &mut seen);
    assert!(seen > 20_000, "{seen} histories");
}

#[test]
fn long_histories_of_a_client_answer_as_the_model_does_and_a_deleted_topic_takes_its_part_of_a_transaction() {
    let mut random = cutwater_platform::SplitMix::new(7);
    for _ in 0..300 {
        let mut node = Node::new();
        node.run(Op::Init);
        for _ in 0..40 {
            let pick = random.next() % 100;
            node.run(if pick == 0 { Op::DeleteTopic } else { ALPHABET[(pick % 15) as usize] });
        }
        node.check();
    }
}

#[test]
fn a_client_whose_epochs_are_used_up_gets_another_producer_id_and_may_repeat_the_request() {
    for raise in [true, false] {
        let mut node = Node::new();
        node.run(Op::Init);
        let first = node.now.expect("given");
        node.state.clients.get_mut(ID).expect("known").epoch = i16::MAX - 1;
        let last = ClientProducer { epoch: i16::MAX - 1, ..first };
        node.now = Some(last);
        assert!(node.append(last, 0, true).is_some());
        let fresh = if raise { node.end(last, Committed, true) } else { node.init(Some(last)) };
        let fresh = fresh.expect("it goes on");
        assert_eq!((fresh.producer > first.producer, fresh.epoch), (true, 0));
        assert_eq!(node.state.topics[0].partitions[0].producers[&first.producer].epoch, i16::MAX);
        let again = if raise { node.end(last, Committed, true) } else { node.init(Some(last)) };
        assert_eq!(again, Some(fresh), "the answer was lost");
        assert_eq!(node.append(last, 0, true), None);
        assert!(node.append(fresh, 0, true).is_some());
    }
}

/// Each epoch near the end, and each order of ends and fences from there on: always a higher pair of id and epoch, which can write.
#[test]
fn no_end_and_no_fence_around_the_last_epochs_goes_beyond_them_or_shuts_its_own_client_out() {
    for start in i16::MAX - 4..i16::MAX {
        for choices in 0..1_u32 << 6 {
            let mut node = Node::new();
            node.run(Op::Init);
            let first = node.now.expect("given");
            node.state.clients.get_mut(ID).expect("known").epoch = start;
            let mut now = ClientProducer { epoch: start, ..first };
            for step in 0..6 {
                node.now = Some(now);
                assert!(node.append(now, 0, true).is_some(), "{now:?} from {start}, {choices:b}, step {step}");
                // With its transaction open, as it is after a restart of the client.
                let next = if choices >> step & 1 == 0 { node.end(now, Committed, true) } else { node.init(Some(now)) };
                let next = next.expect("it goes on");
                assert!(next.epoch >= 0 && (next.producer, next.epoch) > (now.producer, now.epoch), "{now:?} {next:?}");
                now = next;
            }
            assert!(now.producer > first.producer, "the epochs were used up");
        }
    }
}

#[test]
fn a_client_and_a_job_cannot_write_into_each_others_transactions_nor_under_another_id() {
    let mut node = Node::new();
    node.run(Op::Init);
    let now = node.now.expect("given");
    node.run(Op::Add(0));
    let stamp = ProducerStamp { producer_id: now.producer, epoch: now.epoch, base_sequence: 0, transactional: true };
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(b"x"), &[]).expect("it fits");
    let batch = builder.build(stamp).expect("a batch");
    let header = BatchHeader::parse(&batch).expect("a header");
    for entrance in [
        Entrance::Inside,
        Entrance::Client { id: Some("another"), implicit: true, wall: 0 },
        Entrance::Client { id: None, implicit: true, wall: 0 },
    ] {
        let plan = node.state.plan_append(entrance, at(0), &header, batch.len(), &LogLimits::default());
        assert!(plan.is_err(), "{entrance:?}");
    }
}
