//! Transactions that nobody ends, and producers that fall silent.

mod log_support;

use std::time::Duration;

use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::{
    AppendError, CommitError, Isolation, Log, OwnerId, PrepareError, SequenceError, TopicId, TxnName, TxnPhase,
};
use cutwater_platform::{Clock, WallTime};
use cutwater_testkit::SimPlatform;
use log_support::{open, read};

const HOUR: Duration = Duration::from_secs(3600);

fn batch(value: &str) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(value.as_bytes()), &[]).expect("small");
    builder
}

fn name(checkpoint: u64) -> TxnName {
    TxnName { checkpoint, sink: "sink".to_string(), writer: 0 }
}

fn committed(log: &Log, topic: TopicId) -> Vec<String> {
    read(log, topic, 0, Isolation::ReadCommitted).into_iter().map(|(_, value)| value).collect()
}

/// The limit of the tests is one hour.
#[test]
fn an_open_transaction_times_out_by_itself_and_a_prepared_one_never_does() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let mut prepared = owner.begin(name(1)).expect("begun");
    prepared.append(topic, 0, &mut batch("prepared")).expect("taken");
    let prepared = prepared.prepare().expect("prepared");
    let mut open = owner.begin(name(2)).expect("begun");
    open.append(topic, 0, &mut batch("open")).expect("taken");
    let late = owner.begin(name(3)).expect("begun");
    let producer = log.producer().expect("up");
    sim.clock().advance(HOUR * 2);
    // The log looks on its own; any traffic gives its tasks a chance to run here.
    for n in 0..50 {
        let ticket = producer.append(topic, 0, &mut batch(&format!("plain {n} {}", ".".repeat(300))));
        ticket.expect("taken").wait().expect("durable");
    }
    let live = log.transactions();
    assert_eq!(
        live.iter().map(|txn| (txn.id.clone(), txn.state)).collect::<Vec<_>>(),
        [(prepared.id.clone(), TxnPhase::Prepared)]
    );
    assert!(matches!(open.append(topic, 0, &mut batch("late")), Err(AppendError::NoTransaction { .. })));
    assert!(matches!(open.commit(), Err(CommitError::Aborted(_))), "its writer hears what has become of it");
    assert!(matches!(late.prepare(), Err(PrepareError::NotOpen { .. })));
    assert_eq!(committed(&log, topic), Vec::<String>::new(), "the prepared one still holds everybody back");
    owner.commit(&[prepared.id]).expect("committed");
    let seen = committed(&log, topic);
    assert_eq!((seen.len(), seen[0].as_str()), (51, "prepared"));
}

#[test]
fn a_zombie_of_a_transaction_that_timed_out_can_not_even_write_outside_of_it() {
    let sim = SimPlatform::new(2);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let mut txn = owner.begin(name(1)).expect("begun");
    txn.append(topic, 0, &mut batch("open")).expect("taken");
    owner.transactions().expect("durable");
    let stamp = |transactional| ProducerStamp { producer_id: 0, epoch: 0, base_sequence: 1, transactional };
    assert_eq!(log.expire(WallTime(sim.clock().wall().0 + 3_600_000)), Ok(vec![]), "not yet");
    let ended = log.expire(WallTime(sim.clock().wall().0 + 3_600_001)).expect("up");
    assert_eq!(ended, [txn.id().clone()]);
    let send = |transactional| {
        let built = batch("zombie").build(stamp(transactional)).expect("built");
        log.append_batch(topic, 0, built).map(drop)
    };
    assert!(matches!(send(true), Err(AppendError::NoTransaction { .. })));
    let refused = send(false).expect_err("its epoch is used up");
    assert!(matches!(refused, AppendError::Sequence { source: SequenceError::OldEpoch { found: 0, known: 1 }, .. }));
    // The next transaction goes on with an epoch above.
    let mut next = owner.begin(name(2)).expect("begun");
    next.append(topic, 0, &mut batch("next")).expect("taken");
    next.commit().expect("committed");
    assert_eq!(committed(&log, topic), ["next"]);
}

#[test]
fn the_time_out_counts_from_the_beginning_over_a_restart() {
    let sim = SimPlatform::new(3);
    let log = open(&sim).expect("opened");
    log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let txn = owner.begin(name(1)).expect("begun");
    owner.transactions().expect("durable");
    let (begun, id) = (sim.clock().wall().0, txn.id().clone());
    sim.clock().advance(HOUR / 2);
    drop((log, owner, txn));
    let log = open(&sim).expect("recovered");
    assert_eq!(log.expire(WallTime(begun + 3_600_000)), Ok(vec![]));
    assert_eq!(log.expire(WallTime(begun + 3_601_000)), Ok(vec![id]));
}

#[test]
fn a_producer_that_was_silent_for_a_day_is_a_stranger_again() {
    let sim = SimPlatform::new(4);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let send = |log: &Log, sequence| {
        let stamp = ProducerStamp { producer_id: 77, epoch: 0, base_sequence: sequence, transactional: false };
        let built = batch(&format!("{sequence}")).build(stamp).expect("built");
        log.append_batch(topic, 0, built).map(|ticket| ticket.wait().expect("durable").0)
    };
    assert_eq!(send(&log, 0), Ok(0));
    assert_eq!(send(&log, 0), Ok(0), "a repeated batch is recognised");
    assert!(send(&log, 5).is_err(), "a gap is refused");
    let day = 24 * 3_600_000;
    log.expire(WallTime(sim.clock().wall().0 + day)).expect("up");
    assert_eq!(send(&log, 0), Ok(0), "it is known for the whole day");
    log.expire(WallTime(sim.clock().wall().0 + day + 1)).expect("up");
    assert_eq!(send(&log, 5), Ok(1), "of a stranger any sequence is taken");
    log.close().expect("closed");
    assert_eq!(send(&open(&sim).expect("opened"), 5), Ok(1), "and remembered");
}
