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
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let mut txn = owner.begin(name(1)).expect("begun");
    log.claim(&OwnerId(1), 2).expect("claimed");
    assert!(matches!(txn.commit_offsets("g1", [(at, Offset(1))]), Err(GroupError::Fenced(_))));
}
