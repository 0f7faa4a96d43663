//! Offsets of consumer groups, at once and inside transactions.

mod log_support;

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{
    GroupError, Isolation, Log, LogLimits, Offset, OffsetCommit, OwnerId, TopicId, TopicPartition, TxnName,
};
use cutwater_testkit::SimPlatform;
use log_support::{open, read};

fn batch(value: &str) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(value.as_bytes()), &[]).expect("small");
    builder
}

fn name(checkpoint: u64) -> TxnName {
    TxnName { checkpoint, sink: "sink".to_string(), writer: 0 }
}

fn offset(log: &Log, group: &str, at: TopicPartition) -> Option<u64> {
    log.group_offsets(group).expect("up").offsets.get(&at).map(|kept| kept.offset.0)
}

#[test]
fn offsets_in_a_transaction_become_the_groups_with_its_records_and_not_before() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 2).expect("created");
    let (first, second) = (TopicPartition::new(topic, 0), TopicPartition::new(topic, 1));
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    assert_eq!(offset(&log, "g", first), None, "unknown is not 0");
    log.commit_offsets("g", [(first, Offset(3))]).expect("committed");
    let mut txn = owner.begin(name(1)).expect("begun");
    txn.append(topic, 0, &mut batch("made of it")).expect("taken");
    txn.commit_offsets("g", [(first, Offset(4)), (second, Offset(9))]).expect("taken");
    txn.commit_offsets("g", [(first, Offset(5))]).expect("the later one replaces it");
    assert_eq!((offset(&log, "g", first), offset(&log, "g", second)), (Some(3), None));
    let pending = log.group_offsets("g").expect("up").pending;
    assert_eq!(pending, [txn.id().clone()]);
    assert!(matches!(log.delete_group("g"), Err(GroupError::Pending { .. })));
    let prepared = txn.prepare().expect("prepared");
    // A power cut in between, and the recycling of everything that held them.
    let producer = log.producer().expect("up");
    for n in 0..60 {
        let ticket = producer.append(topic, 1, &mut batch(&format!("{n} {}", ".".repeat(400))));
        ticket.expect("taken").wait().expect("durable");
    }
    let sim = sim.restart(cutwater_testkit::LossPolicy::AllLost);
    let log = open(&sim).expect("recovered");
    assert_eq!((offset(&log, "g", first), offset(&log, "g", second)), (Some(3), None));
    let owner = log.claim(&OwnerId(1), 2).expect("claimed");
    owner.commit(&[prepared.id]).expect("committed");
    assert_eq!((offset(&log, "g", first), offset(&log, "g", second)), (Some(5), Some(9)));
    assert_eq!(read(&log, topic, 0, Isolation::ReadCommitted).len(), 1);
    assert_eq!(log.groups().expect("up"), ["g"]);
    log.close().expect("closed");
    let log = open(&sim).expect("opened");
    assert_eq!((offset(&log, "g", first), offset(&log, "g", second)), (Some(5), Some(9)));
    log.delete_group("g").expect("nobody holds it");
    log.delete_group("g").expect("and again");
    assert_eq!(log.groups().expect("up"), Vec::<String>::new());
}

#[test]
fn an_abort_drops_the_offsets_and_the_order_of_the_ends_decides() {
    let sim = SimPlatform::new(2);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let at = TopicPartition::new(topic, 0);
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let with = |checkpoint, offset| {
        let mut txn = owner.begin(name(checkpoint)).expect("begun");
        txn.commit_offsets("g", [(at, Offset(offset))]).expect("taken");
        txn
    };
    let (early, late, aborted) = (with(1, 10), with(2, 20), with(3, 30));
    aborted.abort().expect("aborted");
    assert_eq!(offset(&log, "g", at), None);
    log.commit_offsets("g", [(at, Offset(15))]).expect("committed");
    late.commit().expect("committed");
    assert_eq!(offset(&log, "g", at), Some(20));
    early.commit().expect("a transaction without records");
    assert_eq!(offset(&log, "g", at), Some(10), "what became visible last counts");
    let image = log.state_image();
    drop((log, owner));
    assert_eq!(open(&sim).expect("recovered").state_image(), image, "live and replayed state agree");
}

#[test]
fn what_a_group_can_not_be_or_commit_is_refused_by_name() {
    let sim = SimPlatform::new(3);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let at = TopicPartition::new(topic, 0);
    let commit = |group: &str, commit: OffsetCommit| log.commit_offsets(group, [commit]);
    for bad in ["", "a\nb", &"x".repeat(250)] {
        assert!(matches!(commit(bad, (at, Offset(1)).into()), Err(GroupError::InvalidName { .. })), "{bad:?}");
    }
    let nowhere = TopicPartition::new(TopicId(7), 0);
    assert!(matches!(commit("g", (nowhere, Offset(1)).into()), Err(GroupError::UnknownPartition { .. })));
    assert!(matches!(commit("g", (at, Offset(u64::MAX)).into()), Err(GroupError::InvalidOffset { .. })));
    let metadata = |bytes| OffsetCommit { at, offset: Offset(1), metadata: "m".repeat(bytes) };
    assert!(matches!(commit("g", metadata(4097)), Err(GroupError::Metadata { bytes: 4097, .. })));
    assert!(
        matches!(commit("g", metadata(4096)), Err(GroupError::TooLarge { limit: 4096, .. })),
        "of the tests' entries"
    );
    commit("g ä", metadata(1000)).expect("committed");
    let kept = log.group_offsets("g ä").expect("up").offsets.remove(&at).expect("kept");
    assert_eq!((kept.offset, kept.metadata.len()), (Offset(1), 1000));
    let limit = LogLimits::tiny().group_offsets_max;
    for n in 1..limit {
        commit(&format!("g{n}"), (at, Offset(1)).into()).expect("room");
    }
    assert_eq!(commit("one more", (at, Offset(1)).into()), Err(GroupError::TooMany { limit }));
    commit("g1", (at, Offset(2)).into()).expect("what replaces another takes no room");
    log.delete_group("g2").expect("deleted");
    commit("one more", (at, Offset(1)).into()).expect("there is room again");
    assert_eq!(commit("g2", (at, Offset(1)).into()), Err(GroupError::TooMany { limit }));
    log.delete_offsets("one more", &[at]).expect("deleted");
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let mut txn = owner.begin(name(1)).expect("begun");
    log.claim(&OwnerId(1), 2).expect("claimed");
    assert!(matches!(txn.commit_offsets("g1", [(at, Offset(1))]), Err(GroupError::Fenced(_))));
}

/// A log with offsets of three ages: some old, some renewed, one in a transaction.
fn aged(sim: &SimPlatform) -> (Log, TopicPartition, TopicPartition, i64) {
    let log = open(sim).expect("opened");
    let topic = log.create_topic("t", 2).expect("created");
    let other = log.create_topic("other", 1).expect("created");
    let (at, elsewhere) = (TopicPartition::new(topic, 0), TopicPartition::new(other, 0));
    let pending = TopicPartition::new(topic, 1);
    for group in ["old", "renewed", "reading"] {
        log.commit_offsets(group, [(at, Offset(1)), (elsewhere, Offset(2)), (pending, Offset(3))]).expect("committed");
    }
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let mut txn = owner.begin(name(1)).expect("begun");
    txn.commit_offsets("old", [(pending, Offset(4))]).expect("taken");
    txn.prepare().expect("prepared");
    sim.clock().advance(std::time::Duration::from_secs(60));
    let deadline = sim.platform().clock.wall().0;
    sim.clock().advance(std::time::Duration::from_secs(60));
    log.renew_offsets("renewed").expect("renewed");
    log.commit_offsets("fresh", [(at, Offset(9))]).expect("committed");
    (log, at, elsewhere, deadline)
}

#[test]
fn old_offsets_are_forgotten_but_for_those_that_are_read_renewed_or_in_a_transaction() {
    let sim = SimPlatform::new(11);
    let (log, at, elsewhere, deadline) = aged(&sim);
    let before = cutwater_platform::WallTime(deadline);
    let pending = TopicPartition::new(at.topic, 1);
    assert_eq!(log.stale_groups(before, "", 10), ["old", "reading"]);
    assert_eq!(log.stale_groups(before, "old", 10), ["reading"]);
    assert_eq!(log.stale_groups(before, "", 1), ["old"]);
    let forget =
        |group: &str, read: &[TopicId]| log.expire_offsets(group, before, &read.iter().copied().collect()).expect("up");
    assert_eq!(forget("reading", &[at.topic]), [elsewhere]);
    assert_eq!(forget("old", &[]), [at, elsewhere], "not what a transaction may still change");
    assert_eq!(forget("renewed", &[]), []);
    assert_eq!(forget("fresh", &[]), []);
    assert_eq!(forget("nobody's", &[]), []);
    assert_eq!((offset(&log, "old", pending), offset(&log, "reading", at)), (Some(3), Some(1)));
    assert_eq!((offset(&log, "renewed", at), offset(&log, "renewed", elsewhere)), (Some(1), Some(2)));
    assert!(!log.forget_bare_group("old").expect("up"), "it has offsets");
    log.keep_membership("bare", vec![1]).expect("kept");
    assert!(log.forget_bare_group("bare").expect("up") && !log.memberships().contains_key("bare"));
    let image = log.state_image();
    drop(log);
    assert_eq!(open(&sim).expect("recovered").state_image(), image, "live and replayed state agree");
}

#[test]
fn a_crash_at_any_step_leaves_offsets_forgotten_whole_or_not_at_all() {
    let sim = SimPlatform::new(12);
    let (log, ..) = aged(&sim);
    let from = sim.disk().steps();
    let forget = |log: &Log, deadline: i64| {
        log.expire_offsets("reading", cutwater_platform::WallTime(deadline), &[].into()).map(|gone| gone.len())
    };
    let kept = |log: &Log| log.group_offsets("reading").expect("up").offsets.len();
    drop(log);
    let mut both = [0, 0];
    for step in 1.. {
        let sim = SimPlatform::new(12);
        let (log, _, _, deadline) = aged(&sim);
        assert!(sim.disk().steps() <= from, "the same story each time");
        let begun = sim.disk().steps();
        sim.disk().crash_at_step(begun + step);
        let forgotten = forget(&log, deadline);
        let is_over = sim.disk().steps() < begun + step;
        drop(log);
        for policy in cutwater_testkit::LossPolicy::ALL {
            let after = open(&sim.restart(policy)).expect("recovered");
            let left = kept(&after);
            assert!(left == 0 || (left == 3 && forgotten.is_err()), "step {step}, {policy:?}: {left} left");
            both[usize::from(left == 0)] += 1;
            assert_eq!(forget(&after, deadline).expect("up"), left, "what is left goes the next time");
        }
        if is_over {
            assert_eq!(forgotten, Ok(3));
            break;
        }
    }
    assert!(both.iter().all(|times| *times > 0), "{both:?}: the test tests");
}
