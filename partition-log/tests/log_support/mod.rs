//! A plain model of the log, and a driver that does the same to both.
//!
//! Everything that changes the log is a *fact*, in the order in which it was asked for. Because the log is one sequence,
//! what is left after any crash must be what the model shows after some prefix of the facts, and that prefix must hold
//! every fact that was acknowledged.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod life;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cutwater_partition_log::batch::{BatchBuilder, BatchHeader, Compression, Limits, verify_stored};
use cutwater_partition_log::{
    GroupError, Isolation, Log, LogLimits, LogOptions, Offset, OffsetSpec, OpenError, Outcome, Owner, OwnerId,
    PartitionOffsets, Producer, Topic, TopicId, TopicPartition, Txn, TxnId, TxnName, TxnPhase,
};
use cutwater_platform::{Files, WallTime};
use cutwater_testkit::SimPlatform;

pub const DIR: &str = "log";
/// All groups that the driver uses.
const GROUPS: [&str; 2] = ["readers", "writers"];
pub const OWNER: OwnerId = OwnerId(0xC0FFEE);

pub fn tiny() -> LogOptions {
    LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() }
}

pub fn open(sim: &SimPlatform) -> Result<Log, OpenError> {
    Log::open(&sim.platform(), Path::new(DIR), tiny())
}

/// One thing that happened to the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Topic { name: String, partitions: u32, settings: Settings },
    Append { at: (usize, u32), values: Vec<String>, txn: Option<TxnId> },
    Begin(TxnId),
    Prepare(TxnId),
    End { txns: Vec<TxnId>, committed: bool },
    Claim(u64),
    Forget(Vec<TxnId>),
    Offsets { txn: Option<TxnId>, group: String, at: (usize, u32), offset: u64 },
    GroupDeleted(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Value(String, Option<TxnId>),
    Marker,
}

/// The log in the plainest form.
#[derive(Clone, Debug, Default)]
pub struct Model {
    topics: Vec<(String, u32, Settings)>,
    partitions: BTreeMap<(usize, u32), Vec<Item>>,
    live: BTreeMap<TxnId, bool>,
    pub outcomes: BTreeMap<TxnId, bool>,
    /// Every end ever, for visibility: outcomes may be forgotten, records not.
    ends: BTreeMap<TxnId, bool>,
    pub attempt: u64,
    groups: Groups,
    /// Offsets in live transactions.
    held: BTreeMap<TxnId, Groups>,
}

pub type Settings = BTreeMap<String, String>;
pub type Groups = BTreeMap<String, BTreeMap<(usize, u32), u64>>;

/// What readers and lists show.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub topics: Vec<(String, u32, Settings)>,
    pub partitions: Vec<ObservedPartition>,
    /// Live transactions; true for prepared ones.
    pub live: BTreeMap<TxnId, bool>,
    /// Kept outcomes; true for committed ones.
    pub outcomes: BTreeMap<TxnId, bool>,
    pub attempt: u64,
    /// Offsets by group and partition, and who holds some that aren't decided.
    pub groups: Groups,
    pub pending: BTreeMap<String, BTreeSet<TxnId>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedPartition {
    pub at: (usize, u32),
    pub high_watermark: u64,
    pub last_stable: u64,
    pub uncommitted: Vec<(u64, String)>,
    pub committed: Vec<(u64, String)>,
}

impl Model {
    pub fn of(facts: &[Fact]) -> Model {
        let mut model = Model::default();
        facts.iter().for_each(|fact| model.apply(fact));
        model
    }

    pub fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::Topic { name, partitions, settings } => {
                for partition in 0..*partitions {
                    self.partitions.insert((self.topics.len(), partition), Vec::new());
                }
                self.topics.push((name.clone(), *partitions, settings.clone()));
            }
            Fact::Append { at, values, txn } => {
                let items = self.partitions.get_mut(at).expect("a partition");
                items.extend(values.iter().map(|value| Item::Value(value.clone(), txn.clone())));
            }
            Fact::Begin(id) => _ = self.live.insert(id.clone(), false),
            Fact::Prepare(id) => _ = self.live.insert(id.clone(), true),
            Fact::End { txns, committed } => {
                for id in txns {
                    self.live.remove(id).expect("a live transaction");
                    self.outcomes.insert(id.clone(), *committed);
                    self.ends.insert(id.clone(), *committed);
                    for (group, offsets) in self.held.remove(id).into_iter().flatten().filter(|_| *committed) {
                        self.groups.entry(group).or_default().extend(offsets);
                    }
                    for items in self.partitions.values_mut() {
                        if items.iter().any(|item| matches!(item, Item::Value(_, Some(of)) if of == id)) {
                            items.push(Item::Marker);
                        }
                    }
                }
            }
            Fact::Offsets { txn, group, at, offset } => {
                let groups = match txn {
                    Some(id) => self.held.entry(id.clone()).or_default(),
                    None => &mut self.groups,
                };
                groups.entry(group.clone()).or_default().insert(*at, *offset);
            }
            Fact::GroupDeleted(group) => _ = self.groups.remove(group),
            Fact::Claim(attempt) => self.attempt = *attempt,
            Fact::Forget(ids) => ids.iter().for_each(|id| _ = self.outcomes.remove(id)),
        }
    }

    pub fn observed(&self) -> Observed {
        let mut pending: BTreeMap<String, BTreeSet<TxnId>> = BTreeMap::new();
        for (id, groups) in &self.held {
            for group in groups.keys() {
                pending.entry(group.clone()).or_default().insert(id.clone());
            }
        }
        let partitions = self.partitions.iter().map(|(at, items)| {
            let undecided = |item: &Item| matches!(item, Item::Value(_, Some(id)) if self.live.contains_key(id));
            let stable = items.iter().position(undecided).unwrap_or(items.len());
            let shown = |upto: usize, aborted_too: bool| {
                let visible = items[..upto].iter().enumerate().filter_map(|(offset, item)| match item {
                    Item::Value(value, txn) => {
                        let aborted = txn.as_ref().is_some_and(|id| self.ends.get(id) == Some(&false));
                        (aborted_too || !aborted).then(|| (offset as u64, value.clone()))
                    }
                    Item::Marker => None,
                });
                visible.collect()
            };
            ObservedPartition {
                at: *at,
                high_watermark: items.len() as u64,
                last_stable: stable as u64,
                uncommitted: shown(items.len(), true),
                committed: shown(stable, false),
            }
        });
        Observed {
            topics: self.topics.clone(),
            partitions: partitions.collect(),
            live: self.live.clone(),
            outcomes: self.outcomes.clone(),
            groups: self.groups.clone(),
            pending,
            attempt: self.attempt,
        }
    }
}

/// What a log shows.
pub fn observe(log: &Log) -> Observed {
    let mut partitions = Vec::new();
    for Topic { id, partitions: count, .. } in log.topics() {
        for partition in 0..count {
            let offsets = log.offsets(id, partition).expect("exists");
            assert_eq!(offsets.log_end, offsets.high_watermark, "nothing is under way");
            check_times(log, id, partition, &offsets);
            partitions.push(ObservedPartition {
                at: (id.0 as usize, partition),
                high_watermark: offsets.high_watermark.0,
                last_stable: offsets.last_stable.0,
                uncommitted: read(log, id, partition, Isolation::ReadUncommitted),
                committed: read(log, id, partition, Isolation::ReadCommitted),
            });
        }
    }
    let (mut groups, mut pending) = (Groups::new(), BTreeMap::new());
    for group in GROUPS {
        let known = log.group_offsets(group).expect("up");
        let offsets = known.offsets.into_iter();
        let offsets: BTreeMap<_, _> =
            offsets.map(|(at, kept)| ((at.topic.0 as usize, at.partition), kept.offset.0)).collect();
        if !offsets.is_empty() {
            groups.insert(group.to_string(), offsets);
        }
        if !known.pending.is_empty() {
            pending.insert(group.to_string(), known.pending.into_iter().collect());
        }
    }
    let listed: BTreeSet<String> = log.groups().expect("up").into_iter().collect();
    assert_eq!(listed, groups.keys().cloned().collect());
    let owners = log.owners();
    let outcomes = owners.iter().flat_map(|owner| &owner.outcomes).map(|(id, outcome)| (id, outcome));
    Observed {
        topics: log
            .topics()
            .into_iter()
            .map(|Topic { name, partitions, .. }| (name.clone(), partitions, log.topic_settings(&name)))
            .collect(),
        partitions,
        live: log.transactions().into_iter().map(|txn| (txn.id, txn.state == TxnPhase::Prepared)).collect(),
        outcomes: outcomes.map(|(id, outcome)| (id.clone(), *outcome == Outcome::Committed)).collect(),
        attempt: owners.first().map_or(0, |owner| owner.attempt),
        groups,
        pending,
    }
}

/// The look-up by time finds the youngest record where a reader of everything finds it.
fn check_times(log: &Log, topic: TopicId, partition: u32, offsets: &PartitionOffsets) {
    let mut consumer = log.consumer(topic, partition, Offset::ZERO, Isolation::ReadUncommitted).expect("exists");
    let mut youngest: Option<(i64, i64)> = None;
    while consumer.position() < offsets.high_watermark {
        for batch in consumer.poll(usize::MAX).expect("sound").batches() {
            let header = BatchHeader::parse(batch).expect("sound");
            if youngest.is_none_or(|(time, _)| header.max_timestamp_ms > time) {
                youngest = Some((header.max_timestamp_ms, header.base_offset));
            }
        }
    }
    let first = log.find_offset(topic, partition, OffsetSpec::Time(0), Isolation::ReadUncommitted).expect("sound");
    assert_eq!(first.map(|found| found.offset.0), youngest.map(|_| 0), "every time is 0 or more");
    let found = log.find_offset(topic, partition, OffsetSpec::MaxTimestamp, Isolation::ReadUncommitted).expect("sound");
    let found = found.map(|found| (found.timestamp_ms.expect("by time"), found.offset.0 as i64));
    // A marker may be younger; a reader of records doesn't see those.
    assert!(found >= youngest && found.is_some() == youngest.is_some(), "{found:?} is older than {youngest:?}");
}

pub fn read(log: &Log, topic: TopicId, partition: u32, isolation: Isolation) -> Vec<(u64, String)> {
    let mut consumer = log.consumer(topic, partition, Offset::ZERO, isolation).expect("exists");
    let mut seen = Vec::new();
    loop {
        let before = consumer.position();
        let fetched = consumer.poll(300).unwrap_or_else(|e| panic!("reading at {before}: {e}"));
        let push = |record: cutwater_partition_log::batch::RecordRef<'_>| {
            let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
            seen.push((record.offset as u64, value));
        };
        fetched.for_each(push).expect("decodable");
        if consumer.position() == before {
            return seen;
        }
    }
}

pub fn batch(values: &[String]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Compression::None);
    for value in values {
        builder.push(1_000, None, Some(value.as_bytes()), &[]).expect("fits");
    }
    builder
}

/// What can be asked of the driver. Slots and topics are taken modulo what is there; what makes no sense is skipped.
#[derive(Clone, Debug)]
pub enum Op {
    Topic(u32),
    Plain {
        topic: usize,
        partition: u32,
        count: usize,
    },
    Claim,
    Begin,
    TxnAppend {
        slot: usize,
        topic: usize,
        partition: u32,
        count: usize,
    },
    Prepare(usize),
    CommitOpen(usize),
    AbortOpen(usize),
    /// Commits every n-th of the prepared transactions in one write.
    Commit(usize),
    /// Aborts one that is live.
    Abort(usize),
    Forget,
    /// Commits an offset of a group: in an open transaction, or at once if there is none in that slot.
    Offsets {
        slot: usize,
        group: usize,
        topic: usize,
        partition: u32,
    },
    DeleteGroup(usize),
    /// Years go by: whatever is open times out, and every silent producer is forgotten.
    TimeOut,
}

/// The log went down under an operation.
#[derive(Debug)]
pub struct Stopped(pub String);

impl<E: std::fmt::Display> From<E> for Stopped {
    fn from(error: E) -> Stopped {
        Stopped(error.to_string())
    }
}

/// Does the same to a log and to the list of facts.
pub struct Driver {
    pub log: Log,
    pub facts: Vec<Fact>,
    /// So many facts are acknowledged.
    pub acknowledged: usize,
    /// The largest positions that were seen, by partition.
    pub floor: BTreeMap<(usize, u32), (u64, u64)>,
    producer: Option<Producer>,
    owner: Option<Owner>,
    txns: Vec<Txn>,
    values: u64,
    checkpoint: u64,
}

impl Driver {
    pub fn new(log: Log, facts: Vec<Fact>) -> Driver {
        let acknowledged = facts.len();
        // Names and values of an earlier life never return.
        let values = 1_000_000 + facts.len() as u64 * 1_000;
        Driver {
            log,
            acknowledged,
            producer: None,
            owner: None,
            txns: Vec::new(),
            values,
            checkpoint: values,
            floor: BTreeMap::new(),
            facts,
        }
    }

    pub fn model(&self) -> Model {
        Model::of(&self.facts)
    }

    fn fact(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    fn acknowledge(&mut self) {
        self.acknowledged = self.facts.len();
        for topic in self.log.topics() {
            for partition in 0..topic.partitions {
                let Ok(offsets) = self.log.offsets(topic.id, partition) else { continue };
                let seen = self.floor.entry((topic.id.0 as usize, partition)).or_default();
                assert!(offsets.last_stable.0 >= seen.1, "the last stable offset moved back");
                *seen = (offsets.high_watermark.0, offsets.last_stable.0);
            }
        }
    }

    fn new_values(&mut self, count: usize) -> Vec<String> {
        (0..count)
            .map(|_| {
                self.values += 1;
                // Long enough for frames of more than one disk sector: only those can be torn.
                format!("value-{}-{}", self.values, ".".repeat(60))
            })
            .collect()
    }

    fn place(&self, topic: usize, partition: u32) -> Option<(usize, u32)> {
        let topics = self.log.topics();
        let topic = topics.get(topic % topics.len().max(1))?;
        Some((topic.id.0 as usize, partition % topic.partitions))
    }

    fn live(&self, prepared: bool) -> Vec<TxnId> {
        let live = self.model().observed().live;
        live.into_iter().filter(|(_, is_prepared)| *is_prepared == prepared).map(|(id, _)| id).collect()
    }

    pub fn attempt(&self) -> u64 {
        self.model().attempt
    }

    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub fn run(&mut self, op: &Op) -> Result<(), Stopped> {
        match op {
            Op::Topic(partitions) => {
                let name = format!("topic-{}", self.log.topics().len());
                let settings = match partitions {
                    1 => Settings::new(),
                    // Long enough for a second disk sector.
                    _ => [("note".to_string(), "n".repeat(600)), ("retention.ms".to_string(), "-1".to_string())].into(),
                };
                self.fact(Fact::Topic { name: name.clone(), partitions: *partitions, settings: settings.clone() });
                self.log.create_topic_with(&name, *partitions, &settings)?;
                self.acknowledge();
            }
            Op::Plain { topic, partition, count } => {
                let Some(at) = self.place(*topic, *partition) else { return Ok(()) };
                if self.producer.is_none() {
                    self.producer = Some(self.log.producer()?);
                }
                let values = self.new_values(*count);
                self.fact(Fact::Append { at, values: values.clone(), txn: None });
                let producer = self.producer.as_ref().expect("just made");
                producer.append(TopicId(at.0 as u32), at.1, &mut batch(&values))?.wait()?;
                self.acknowledge();
            }
            Op::Claim => {
                let attempt = self.attempt() + 1;
                let open = self.live(false);
                self.fact(Fact::Claim(attempt));
                if !open.is_empty() {
                    self.fact(Fact::End { txns: open, committed: false });
                }
                self.txns.clear();
                self.owner = Some(self.log.claim(&OWNER, attempt)?);
                self.acknowledge();
            }
            Op::Begin => {
                let Some(owner) = &self.owner else { return Ok(()) };
                self.checkpoint += 1;
                let name = TxnName { checkpoint: self.checkpoint, sink: "sink".to_string(), writer: 0 };
                let txn = owner.begin(name)?;
                self.fact(Fact::Begin(txn.id().clone()));
                self.txns.push(txn);
            }
            Op::TxnAppend { slot, topic, partition, count } => {
                let Some(at) = self.place(*topic, *partition) else { return Ok(()) };
                if self.txns.is_empty() {
                    return Ok(());
                }
                let slot = slot % self.txns.len();
                let values = self.new_values(*count);
                let id = self.txns[slot].id().clone();
                self.fact(Fact::Append { at, values: values.clone(), txn: Some(id) });
                self.txns[slot].append(TopicId(at.0 as u32), at.1, &mut batch(&values))?;
            }
            Op::Prepare(slot) => {
                let Some(txn) = self.take_txn(*slot) else { return Ok(()) };
                self.fact(Fact::Prepare(txn.id().clone()));
                txn.prepare()?;
                self.acknowledge();
            }
            Op::CommitOpen(slot) => {
                let Some(txn) = self.take_txn(*slot) else { return Ok(()) };
                self.fact(Fact::End { txns: vec![txn.id().clone()], committed: true });
                // Both ways take turns.
                if self.facts.len().is_multiple_of(2) {
                    txn.commit()?
                } else {
                    txn.start_commit()?.wait()?
                }
                self.acknowledge();
            }
            Op::AbortOpen(slot) => {
                let Some(txn) = self.take_txn(*slot) else { return Ok(()) };
                self.fact(Fact::End { txns: vec![txn.id().clone()], committed: false });
                txn.abort()?;
                self.acknowledge();
            }
            Op::Commit(nth) => {
                let Some(owner) = self.owner.clone() else { return Ok(()) };
                let txns: Vec<TxnId> = self.live(true).into_iter().step_by((*nth).max(1)).collect();
                if txns.is_empty() {
                    return Ok(());
                }
                self.fact(Fact::End { txns: txns.clone(), committed: true });
                let outcome = owner.commit(&txns)?;
                assert_eq!(outcome.committed, txns);
                self.acknowledge();
                assert_eq!(owner.commit(&txns)?.already, txns, "a repeated commit answers the same");
            }
            Op::Abort(nth) => {
                let Some(owner) = self.owner.clone() else { return Ok(()) };
                let live = self.live(true);
                if live.is_empty() {
                    return Ok(());
                }
                let id = live[nth % live.len()].clone();
                self.fact(Fact::End { txns: vec![id.clone()], committed: false });
                owner.abort(std::slice::from_ref(&id))?;
                self.acknowledge();
            }
            Op::Forget => {
                let Some(owner) = self.owner.clone() else { return Ok(()) };
                let ids: Vec<TxnId> = self.model().outcomes.keys().step_by(2).cloned().collect();
                self.fact(Fact::Forget(ids.clone()));
                owner.forget(&ids)?;
                self.acknowledge();
            }
            Op::Offsets { slot, group, topic, partition } => {
                let Some(at) = self.place(*topic, *partition) else { return Ok(()) };
                self.values += 1;
                let (offset, group) = (self.values, GROUPS[group % GROUPS.len()].to_string());
                let commit = (TopicPartition::new(TopicId(at.0 as u32), at.1), Offset(offset));
                let txn = self.txns.get(*slot).map(|txn| txn.id().clone());
                self.fact(Fact::Offsets { txn, group: group.clone(), at, offset });
                match self.txns.get_mut(*slot) {
                    Some(txn) => txn.commit_offsets(&group, [commit])?,
                    None => {
                        self.log.commit_offsets(&group, [commit])?;
                        self.acknowledge();
                    }
                }
            }
            Op::DeleteGroup(group) => {
                let group = GROUPS[group % GROUPS.len()];
                let pending = self.model().observed().pending.contains_key(group);
                if !pending {
                    self.fact(Fact::GroupDeleted(group.to_string()));
                }
                match self.log.delete_group(group) {
                    Err(GroupError::Pending { .. }) => assert!(pending),
                    other => {
                        other?;
                        assert!(!pending);
                        self.acknowledge();
                    }
                }
            }
            Op::TimeOut => {
                let open = self.live(false);
                if !open.is_empty() {
                    self.fact(Fact::End { txns: open.clone(), committed: false });
                }
                let mut ended = self.log.expire(WallTime(i64::MAX))?;
                ended.sort();
                assert_eq!(ended, open, "all that is open, and nothing that is prepared");
                self.acknowledge();
                for mut txn in std::mem::take(&mut self.txns) {
                    let late = txn.append(TopicId(0), 0, &mut batch(&["late".to_string()]));
                    assert!(late.is_err(), "its writer is refused");
                }
            }
        }
        Ok(())
    }

    fn take_txn(&mut self, slot: usize) -> Option<Txn> {
        (!self.txns.is_empty()).then(|| self.txns.remove(slot % self.txns.len()))
    }

    /// Compares the log with the model; everything must be durable.
    pub fn check(&mut self) -> Result<(), Stopped> {
        // What was queued and not waited for becomes durable with any later wait.
        if let Some(owner) = self.owner.clone() {
            owner.transactions()?;
            let outcomes: BTreeMap<TxnId, bool> =
                owner.outcomes()?.into_iter().map(|(id, outcome)| (id, outcome == Outcome::Committed)).collect();
            assert_eq!(outcomes, self.model().outcomes);
            self.acknowledge();
        }
        assert_eq!(observe(&self.log), self.model().observed());
        Ok(())
    }
}

/// What is left after a crash: the prefix of the facts that the log shows. Panics, with a story, when it shows none that
/// holds all acknowledged ones.
pub fn surviving_prefix(log: &Log, facts: &[Fact], acknowledged: usize, story: &str) -> usize {
    let observed = observe(log);
    let fits = |n: &usize| Model::of(&facts[..*n]).observed() == observed;
    // The longest that fits: facts at the end may leave nothing to see.
    (acknowledged..=facts.len()).rev().find(fits).unwrap_or_else(|| {
        let expected = Model::of(&facts[..acknowledged]).observed();
        let earlier = (0..acknowledged).rev().find(fits);
        panic!(
            "{story}: of {} facts {acknowledged} were acknowledged, the log shows {}\nnext facts: {:?}\nexpected at least\n{}found\n{}",
            facts.len(),
            earlier.map_or("no prefix at all".to_string(), |n| format!("only {n}: acknowledged ones are lost")),
            &facts[acknowledged..],
            tell(&expected),
            tell(&observed),
        )
    })
}

fn tell(observed: &Observed) -> String {
    let Observed { topics, live, outcomes, attempt, .. } = observed;
    let mut text = format!("  topics {topics:?}, attempt {attempt}, live {live:?}, outcomes {outcomes:?}\n");
    for p in &observed.partitions {
        let (hw, lso) = (p.high_watermark, p.last_stable);
        text += &format!(
            "  {:?}: high {hw} stable {lso}\n    all {:?}\n    committed {:?}\n",
            p.at, p.uncommitted, p.committed
        );
    }
    text
}

/// Reads a closed log's segments as a stranger would, who knows Kafka's files and nothing else: for each partition
/// directory the number of offsets, of data batches and of markers.
pub fn strangers_view(files: &dyn Files) -> BTreeMap<String, (u64, BTreeSet<String>, usize)> {
    let mut seen = BTreeMap::new();
    let root = Path::new(DIR).join("partitions");
    for dir in files.read_dir(&root).expect("listed") {
        let (mut next, mut values, mut markers) = (0, BTreeSet::new(), 0);
        for entry in files.read_dir(&root.join(&dir.name)).expect("listed") {
            let Some(base) = entry.name.strip_suffix(".log") else { continue };
            assert_eq!(base.parse::<u64>().expect("a number"), next, "segments follow each other");
            let bytes = files.read(&root.join(&dir.name).join(&entry.name), u64::MAX).expect("readable");
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let header: BatchHeader = verify_stored(rest, &Limits::DEFAULT).expect("an intact batch");
                assert_eq!(header.base_offset as u64, next);
                next = header.last_offset() as u64 + 1;
                if header.is_control() {
                    markers += 1;
                } else {
                    for record in &cutwater_partition_log::batch::records(rest, &Limits::DEFAULT).expect("records") {
                        let value = record.expect("a record").value.expect("a value").to_vec();
                        values.insert(String::from_utf8(value).expect("text"));
                    }
                }
                rest = &rest[header.total_bytes()..];
            }
        }
        seen.insert(dir.name, (next, values, markers));
    }
    seen
}

/// What a stranger must see of the model.
pub fn strangers_model(model: &Model) -> BTreeMap<String, (u64, BTreeSet<String>, usize)> {
    let mut seen = BTreeMap::new();
    for ((topic, partition), items) in &model.partitions {
        if items.is_empty() {
            continue;
        }
        let values = items.iter().filter_map(|item| match item {
            Item::Value(value, _) => Some(value.clone()),
            Item::Marker => None,
        });
        let markers = items.iter().filter(|item| matches!(item, Item::Marker)).count();
        let name = format!("{}-{partition}", model.topics[*topic].0);
        seen.insert(name, (items.len() as u64, values.collect(), markers));
    }
    seen
}
