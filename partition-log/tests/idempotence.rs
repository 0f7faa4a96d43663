//! Clients that number their batches themselves and repeat them: each batch is in the log once, over restarts of every
//! kind, and a repeated one hears what it would have heard the first time.

mod log_support;

use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::{AppendError, Isolation, Log, Offset, SequenceError, TopicId};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{open, read};

fn numbered(producer_id: i64, epoch: i16, base_sequence: i32, count: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    for n in 0..count as i32 {
        let value = format!("{producer_id}/{epoch}/{}", base_sequence + n);
        builder.push(0, None, Some(value.as_bytes()), &[]).expect("fits");
    }
    builder.build(ProducerStamp { producer_id, epoch, base_sequence, transactional: false }).expect("a batch")
}

fn send(log: &Log, topic: TopicId, batch: Vec<u8>) -> Result<Offset, AppendError> {
    log.append_batch(topic, 0, batch)?.wait()
}

#[test]
fn the_last_five_batches_are_known_again_after_a_kill_a_power_cut_and_a_close() {
    let mut sim = SimPlatform::new(1);
    let mut log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let id = log.allocate_producer().expect("an id");
    let first: Vec<Offset> = (0..8).map(|n| send(&log, topic, numbered(id, 0, n * 2, 2)).expect("appended")).collect();
    let content = read(&log, topic, 0, Isolation::ReadUncommitted);
    assert_eq!(content.len(), 16);
    for round in 0..4 {
        for n in 3..8 {
            let again = send(&log, topic, numbered(id, 0, n * 2, 2)).expect("known");
            assert_eq!(again, first[n as usize], "round {round}: the first answer again");
        }
        for n in 0..3 {
            let old = send(&log, topic, numbered(id, 0, n * 2, 2));
            let expected = SequenceError::OutOfOrder { found: n * 2, expected: 16 };
            assert!(matches!(old, Err(AppendError::Sequence { source, .. }) if source == expected), "{old:?}");
        }
        assert_eq!(read(&log, topic, 0, Isolation::ReadUncommitted), content, "nothing was appended twice");
        match round {
            0 => {
                drop(log);
                sim = sim.kill();
            }
            1 => {
                drop(log);
                sim = sim.restart(LossPolicy::AllLost);
            }
            _ => {
                log.close().expect("clean");
                drop(log);
            }
        }
        log = open(&sim).expect("opens");
        assert!(log.allocate_producer().expect("an id") > id, "ids are never given out twice");
    }
}

#[test]
fn a_gap_an_old_epoch_and_a_foreign_transaction_are_refused_and_nothing_is_appended() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let id = log.allocate_producer().expect("an id");
    send(&log, topic, numbered(id, 0, 0, 1)).expect("appended");
    assert!(send(&log, topic, numbered(id, 0, 5, 1)).is_err(), "a gap");
    assert!(send(&log, topic, numbered(id, 1, 3, 1)).is_err(), "a new epoch begins at 0");
    send(&log, topic, numbered(id, 1, 0, 1)).expect("a new epoch");
    let old = send(&log, topic, numbered(id, 0, 1, 1));
    let expected = SequenceError::OldEpoch { found: 0, known: 1 };
    assert!(matches!(old, Err(AppendError::Sequence { source, .. }) if source == expected), "{old:?}");
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(0, None, Some(b"x"), &[]).expect("fits");
    let stamp = ProducerStamp { producer_id: id, epoch: 1, base_sequence: 1, transactional: true };
    let stray = send(&log, topic, builder.build(stamp).expect("a batch"));
    assert!(matches!(stray, Err(AppendError::NoTransaction { .. })), "{stray:?}");
    assert!(log.append_batch(topic, 1, numbered(id, 1, 1, 1)).is_err(), "no such partition");
    let mut damaged = numbered(id, 1, 1, 1);
    *damaged.last_mut().expect("bytes") ^= 1;
    assert!(matches!(send(&log, topic, damaged), Err(AppendError::Batch { .. })));
    assert_eq!(log.offsets(topic, 0).expect("exists").log_end, Offset(2));
}

#[test]
fn a_repeated_batch_is_not_answered_before_the_first_one_is_durable() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let id = log.allocate_producer().expect("an id");
    // Nothing runs on the inline executor until somebody waits.
    let first = log.append_batch(topic, 0, numbered(id, 0, 0, 1)).expect("accepted");
    let again = log.append_batch(topic, 0, numbered(id, 0, 0, 1)).expect("accepted");
    let again = again.try_wait().expect_err("not yet: the disk hasn't answered");
    assert_eq!(log.offsets(topic, 0).expect("exists").high_watermark, Offset(0));
    assert_eq!(again.wait().expect("durable"), Offset(0));
    assert_eq!(first.wait().expect("durable"), Offset(0));
    assert_eq!(read(&log, topic, 0, Isolation::ReadUncommitted).len(), 1);
}

#[test]
fn the_table_of_producers_is_bounded_and_the_longest_silent_go_first() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let ids: Vec<i64> = (0..150).map(|_| log.allocate_producer().expect("an id")).collect();
    for id in &ids {
        sim.clock().advance(std::time::Duration::from_millis(1));
        send(&log, topic, numbered(*id, 0, 0, 1)).expect("appended");
    }
    let before = log.offsets(topic, 0).expect("exists").log_end;
    send(&log, topic, numbered(ids[149], 0, 0, 1)).expect("known");
    assert_eq!(log.offsets(topic, 0).expect("exists").log_end, before, "the newest is known");
    send(&log, topic, numbered(ids[0], 0, 0, 1)).expect("forgotten, so anything is accepted");
    assert_eq!(log.offsets(topic, 0).expect("exists").log_end, Offset(before.0 + 1));
    let lived = log.state_image();
    drop(log);
    assert_eq!(open(&sim.kill()).expect("recovers").state_image(), lived);
}
