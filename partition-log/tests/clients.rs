//! Transactions of Kafka clients and topics that grow and go, through restarts, power cuts at every I/O step, and checkpoints
//! of the log.

mod log_support;

use std::time::Duration;

use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::{
    ClientPhase, ClientProducer, FetchError, Isolation, Log, Offset, OffsetSpec, Outcome, TopicId, TopicPartition,
};
use cutwater_platform::WallTime;
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{open, read};

const MINUTE: Duration = Duration::from_secs(60);

fn batch(client: ClientProducer, base_sequence: i32, value: &str) -> Vec<u8> {
    let (producer_id, epoch) = (client.producer, client.epoch);
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(value.as_bytes()), &[]).expect("small");
    builder.build(ProducerStamp { producer_id, epoch, base_sequence, transactional: true }).expect("a batch")
}

fn plain(log: &Log, topic: TopicId, partition: u32, value: &str) {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(value.as_bytes()), &[]).expect("small");
    let producer = log.producer().expect("up");
    producer.append(topic, partition, &mut builder).expect("taken").wait().expect("durable");
}

fn append(log: &Log, at: TopicPartition, client: ClientProducer, sequence: i32, value: &str) -> Result<(), String> {
    let ticket = log.append_from_client(at.topic, at.partition, batch(client, sequence, value), Some("c"), true);
    ticket.map_err(|e| e.to_string())?.wait().map(drop).map_err(|e| e.to_string())
}

fn offset(log: &Log, group: &str, at: TopicPartition) -> Option<u64> {
    log.group_offsets(group).expect("up").offsets.get(&at).map(|kept| kept.offset.0)
}

fn values(log: &Log, topic: TopicId, partition: u32, isolation: Isolation) -> usize {
    read(log, topic, partition, isolation).len()
}

#[test]
fn a_transaction_is_the_clients_through_a_power_cut_and_is_ended_whole() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 2).expect("created");
    let at = |partition| TopicPartition::new(topic, partition);
    let client = log.init_client("c", MINUTE, None).expect("given");
    for partition in 0..2 {
        append(&log, at(partition), client, 0, "a record").expect("taken");
    }
    let offsets = vec![(at(0), Offset(1)).into()];
    log.commit_client_offsets("c", client, "g", offsets, false).expect("taken");
    assert_eq!(log.group_offsets("g").expect("up").unstable.len(), 1);
    let sim = sim.restart(LossPolicy::AllLost);
    let log = open(&sim).expect("recovered");
    assert_eq!(log.clients()[0].phase, ClientPhase::Ongoing);
    assert_eq!(values(&log, topic, 0, Isolation::ReadCommitted), 0);
    assert_eq!(offset(&log, "g", at(0)), None);
    let next = log.end_client("c", client, Outcome::Committed, true).expect("ended");
    assert_eq!(next, ClientProducer { epoch: client.epoch + 1, ..client });
    assert_eq!((0..2).map(|p| values(&log, topic, p, Isolation::ReadCommitted)).sum::<usize>(), 2);
    assert_eq!(offset(&log, "g", at(0)), Some(1));
    assert!(append(&log, at(0), client, 1, "a zombie").is_err());
    append(&log, at(0), next, 0, "goes on").expect("taken");
    // An id that starts anew ends what is open.
    let fresh = log.init_client("c", MINUTE, None).expect("given");
    assert!(fresh.epoch > next.epoch);
    let offsets = log.offsets(topic, 0).expect("exists");
    assert_eq!(offsets.last_stable, offsets.high_watermark);
    assert_eq!(values(&log, topic, 0, Isolation::ReadCommitted), 1);
    let fetched = log.fetch(at(0), Offset::ZERO, 1 << 20, Isolation::ReadCommitted).expect("there");
    assert_eq!(fetched.aborted, [(client.producer, Offset(2))]);
}

#[test]
fn a_transaction_that_takes_longer_than_its_client_asked_for_is_aborted_and_idle_clients_are_forgotten() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let client = log.init_client("c", MINUTE, None).expect("given");
    append(&log, TopicPartition::new(topic, 0), client, 0, "late").expect("taken");
    let begun = log.clients()[0].open_since.expect("open").0;
    assert_eq!(log.expire_clients(WallTime(begun + 60_000)), Ok(0));
    assert_eq!(log.expire_clients(WallTime(begun + 60_001)), Ok(1));
    assert!(append(&log, TopicPartition::new(topic, 0), client, 1, "zombie").is_err());
    assert!(log.end_client("c", client, Outcome::Committed, false).is_err());
    assert_eq!(log.clients()[0].phase, ClientPhase::Ended(Outcome::Aborted));
    let week = 7 * 24 * 3600 * 1000;
    assert_eq!(log.expire_clients(WallTime(begun + week)), Ok(0));
    assert_eq!(log.clients().len(), 1, "not before its time");
    assert_eq!(log.expire_clients(WallTime(begun + 2 * week)), Ok(0));
    assert!(log.clients().is_empty());
    let again = log.init_client("c", MINUTE, None).expect("given");
    assert_ne!(again.producer, client.producer, "a forgotten id never gets its producer id back");
}

#[test]
fn a_deleted_topic_is_gone_for_good_and_its_name_begins_anew() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let first = log.create_topic("t", 1).expect("created");
    plain(&log, first, 0, "old");
    log.commit_offsets("g", [(TopicPartition::new(first, 0), Offset(1))]).expect("committed");
    let mut reader = log.consumer(first, 0, Offset::ZERO, Isolation::ReadCommitted).expect("there");
    log.delete_topic("t").expect("deleted");
    assert!(matches!(reader.poll(1 << 20), Err(FetchError::UnknownPartition { .. })));
    assert!(log.fetch(TopicPartition::new(first, 0), Offset::ZERO, 100, Isolation::ReadCommitted).is_err());
    assert!(log.find_offset(first, 0, OffsetSpec::Time(0), Isolation::ReadCommitted).is_err());
    assert_eq!(offset(&log, "g", TopicPartition::new(first, 0)), None);
    let second = log.create_topic("t", 2).expect("created");
    assert_ne!(first, second);
    plain(&log, second, 0, "new");
    assert_eq!(values(&log, second, 0, Isolation::ReadCommitted), 1);
    let before = log.state_image();
    drop((log, reader));
    let sim = sim.restart(LossPolicy::AllLost);
    let log = open(&sim).expect("recovered");
    assert_eq!(log.state_image(), before);
    assert_eq!(log.topics().len(), 1);
    assert_eq!(values(&log, second, 0, Isolation::ReadCommitted), 1);
    log.close().expect("closed");
    let platform = sim.platform();
    let left = platform.files.read_dir(&std::path::Path::new(log_support::DIR).join("partitions")).expect("listed");
    let left: Vec<String> = left.into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, [format!("t~{second}-0")], "the old one's directory is gone, the new one has its own");
}

#[test]
fn a_topic_grows_and_its_start_only_rises() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let at = TopicPartition::new(topic, 0);
    for n in 0..5 {
        plain(&log, topic, 0, &format!("{n}"));
    }
    assert!(log.grow_topic("t", 1).is_err());
    log.grow_topic("t", 3).expect("grown");
    plain(&log, topic, 2, "there");
    assert_eq!(log.delete_records(at, Some(Offset(3))).expect("deleted"), Offset(3));
    assert_eq!(log.delete_records(at, Some(Offset(1))).expect("nothing to do"), Offset(3));
    assert!(log.delete_records(at, Some(Offset(6))).is_err(), "not above the high watermark");
    let recovered = open(&sim.restart(LossPolicy::AllLost)).expect("recovered");
    for log in [&log, &recovered] {
        assert_eq!(log.offsets(topic, 0).expect("exists").log_start, Offset(3));
        assert!(matches!(
            log.fetch(at, Offset(2), 100, Isolation::ReadCommitted),
            Err(FetchError::OutOfRange { start: Offset(3), .. })
        ));
        let earliest = log.find_offset(topic, 0, OffsetSpec::Earliest, Isolation::ReadCommitted);
        assert_eq!(earliest.expect("there").map(|found| found.offset), Some(Offset(3)));
        let by_time = log.find_offset(topic, 0, OffsetSpec::Time(0), Isolation::ReadCommitted);
        assert_eq!(by_time.expect("there").map(|found| found.offset), Some(Offset(3)));
        assert_eq!(values(log, topic, 2, Isolation::ReadCommitted), 1);
    }
    let log = recovered;
    assert_eq!(log.delete_records(at, None).expect("deleted"), Offset(5));
    assert_eq!(log.find_offset(topic, 0, OffsetSpec::Time(0), Isolation::ReadCommitted).expect("there"), None);
}

/// What was acknowledged, step by step.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    rounds: usize,
    deleted: usize,
    start: u64,
    members: usize,
}

/// Rounds of everything: a transaction over two topics with offsets, a topic that goes and comes, a start that rises.
fn live(sim: &SimPlatform) -> Told {
    let mut told = Told::default();
    let _ = (|| -> Result<(), String> {
        let log = open(sim).map_err(|e| e.to_string())?;
        let err = |e: &dyn std::fmt::Display| e.to_string();
        let kept = log.create_topic_if_absent("kept", 2).map_err(|e| err(&e))?;
        let at = |partition| TopicPartition::new(kept, partition);
        let mut client = log.init_client("c", MINUTE, None).map_err(|e| err(&e))?;
        for round in 0..4 {
            let passing = log.create_topic_if_absent("passing", 1).map_err(|e| err(&e))?;
            for (topic, partition) in [(kept, 0), (kept, 1), (passing, 0)] {
                append(&log, TopicPartition::new(topic, partition), client, 0, &".".repeat(300))?;
            }
            let offsets = vec![(at(0), Offset(round + 1)).into()];
            log.commit_client_offsets("c", client, "g", offsets, true).map_err(|e| err(&e))?;
            client = log.end_client("c", client, Outcome::Committed, true).map_err(|e| err(&e))?;
            told.rounds += 1;
            log.keep_membership("g", vec![round as u8; 9]).map_err(|e| err(&e))?;
            told.members += 1;
            log.delete_topic("passing").map_err(|e| err(&e))?;
            told.deleted += 1;
            told.start = log.delete_records(at(1), None).map_err(|e| err(&e))?.0;
        }
        log.grow_topic("kept", 3).map_err(|e| err(&e))?;
        log.close().map_err(|e| err(&e))
    })();
    told
}

/// What is there must be what was told, and what may have happened behind it.
fn check(sim: &SimPlatform, told: &Told, story: &str) {
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: doesn't recover: {e}"));
    let committed = match log.topic("kept") {
        None => {
            assert_eq!(*told, Told::default(), "{story}");
            return;
        }
        Some(topic) => {
            let at = |partition| TopicPartition::new(topic.id, partition);
            let start = log.offsets(topic.id, 1).expect("exists").log_start.0;
            assert!(start >= told.start, "{story}: records came back");
            let committed = values(&log, topic.id, 0, Isolation::ReadCommitted);
            assert_eq!(offset(&log, "g", at(0)).unwrap_or(0), committed as u64, "{story}: offsets and records are one");
            committed
        }
    };
    assert!(committed == told.rounds || committed == told.rounds + 1, "{story}: {committed} after {told:?}");
    let members = log.memberships().get("g").map_or(0, |kept| usize::from(kept[0]) + 1);
    assert!(members == told.members || members == told.members + 1, "{story}: {members} after {told:?}");
    // It is good for use: the client goes on, and the names are free or taken as they should be.
    let client = log.init_client("c", MINUTE, None).unwrap_or_else(|e| panic!("{story}: {e}"));
    let topic = log.create_topic_if_absent("passing", 1).unwrap_or_else(|e| panic!("{story}: {e}"));
    append(&log, TopicPartition::new(topic, 0), client, 0, "again").unwrap_or_else(|e| panic!("{story}: {e}"));
    log.end_client("c", client, Outcome::Committed, false).unwrap_or_else(|e| panic!("{story}: {e}"));
    let before = log.state_image();
    log.close().unwrap_or_else(|e| panic!("{story}: {e}"));
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: after a close: {e}"));
    assert_eq!(log.state_image(), before, "{story}: the state is what it was");
}

/// The points that only this workload reaches.
const POINTS: [&str; 6] = [
    "log.client-written",
    "log.client-txn-written",
    "log.topic-deleted",
    "log.partitions-added",
    "log.start-moved",
    "log.topic-file-removed",
];

#[test]
fn clients_and_topics_survive_a_power_cut_at_every_step() {
    let whole = SimPlatform::new(1);
    let all = live(&whole);
    assert_eq!((all.rounds, all.deleted, all.members), (4, 4, 4));
    assert!(whole.crashes().missing(&POINTS).is_empty(), "{:?}", whole.crashes().missing(&POINTS));
    let steps = whole.disk().steps();
    assert!(steps > 100, "{steps} steps");
    for step in 1..=steps {
        let sim = SimPlatform::new(1);
        sim.disk().crash_at_step(step);
        let told = live(&sim);
        let policy = LossPolicy::ALL[step as usize % LossPolicy::ALL.len()];
        check(&sim.restart(policy), &told, &format!("step {step} of {steps}, {policy:?}"));
    }
    for point in POINTS {
        for nth in 1..=whole.crashes().reached().get(point).copied().unwrap_or(0).min(3) {
            let sim = SimPlatform::new(1);
            sim.power_off_at(point, nth);
            let told = live(&sim);
            check(&sim.restart(LossPolicy::AllLost), &told, &format!("power cut at {point} #{nth}"));
        }
    }
}
