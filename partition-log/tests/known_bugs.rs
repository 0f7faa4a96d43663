//! Bugs that other logs had, as tests of this one. Each says the incident, its cause, and what is right; `docs/known-bugs.md`
//! lists them all, with those that other tests stand for, or that can't happen here.

mod log_support;

use std::time::Duration;

use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::{ClientProducer, Isolation, Log, Offset, Outcome, TopicId, TopicPartition};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{open, read};

const MINUTE: Duration = Duration::from_secs(60);

fn stamped(client: ClientProducer, base_sequence: i32, transactional: bool, value: &str) -> Vec<u8> {
    let stamp = ProducerStamp { producer_id: client.producer, epoch: client.epoch, base_sequence, transactional };
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(value.as_bytes()), &[]).expect("small");
    builder.build(stamp).expect("a batch")
}

fn in_txn(log: &Log, topic: TopicId, client: ClientProducer, sequence: i32, value: &str) -> Result<u64, String> {
    let ticket = log.append_from_client(topic, 0, stamped(client, sequence, true, value), Some("c"), true);
    ticket.map_err(|e| e.to_string())?.wait().map(|offset| offset.0).map_err(|e| e.to_string())
}

/// KAFKA-9144: after a restart markers were refused, because a producer with nothing but markers had no time of its own and was
/// forgotten at once, and its coordinator's epoch went back. Right: it is known, and its next transactions commit.
#[test]
fn a_producer_whose_batches_are_gone_and_whose_markers_are_left_goes_on_after_a_restart() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let client = log.init_client("c", MINUTE, None).expect("given");
    in_txn(&log, topic, client, 0, "a record").expect("taken");
    log.end_client("c", client, Outcome::Committed, false).expect("ended");
    // All that is left below the end is the marker.
    log.delete_records(TopicPartition::new(topic, 0), Some(Offset(1))).expect("deleted");
    for policy in [LossPolicy::AllLost, LossPolicy::NoneLost] {
        let sim = sim.restart(policy);
        let log = open(&sim).expect("recovered");
        assert_eq!(in_txn(&log, topic, client, 1, "the next").expect("it is known"), 2);
        log.end_client("c", client, Outcome::Aborted, false).expect("ended");
        let offsets = log.offsets(topic, 0).expect("there");
        assert_eq!((offsets.high_watermark.0, offsets.last_stable.0), (4, 4));
    }
}

/// KAFKA-14034, Redpanda #5355: an unknown server error for a batch that had been written made clients raise their epoch and send
/// it again: duplicates. Right: nobody hears a sure no; the same batch with the same sequence is known after the restart, or is
/// taken if it wasn't written.
#[test]
fn a_batch_of_unknown_outcome_that_is_sent_again_after_a_restart_stands_there_once() {
    for at in 0..40 {
        let sim = SimPlatform::new(at);
        let log = open(&sim).expect("opened");
        let topic = log.create_topic("t", 1).expect("created");
        let producer = log.allocate_producer().expect("given");
        let client = ClientProducer { producer, epoch: 0 };
        let send = |log: &Log, n: i32| {
            let bytes = stamped(client, n, false, &format!("value {n}"));
            let ticket = log.append_from_client(topic, 0, bytes, None, false).map_err(|e| e.to_string())?;
            ticket.wait().map(|offset| offset.0).map_err(|e| e.to_string())
        };
        assert_eq!(send(&log, 0), Ok(0));
        // The disk fails somewhere in the next writes.
        let disk = sim.disk();
        disk.crash_at_step(disk.steps() + at);
        let answered = (1..6).take_while(|n| send(&log, *n).is_ok()).count();
        drop(log);
        let sim = sim.restart(if at % 2 == 0 { LossPolicy::AllLost } else { LossPolicy::NoneLost });
        let log = open(&sim).expect("recovered");
        for n in 1..6 {
            assert_eq!(send(&log, n), Ok(n as u64), "{answered} were answered before the crash at {at}");
        }
        let values: Vec<_> = read(&log, topic, 0, Isolation::ReadUncommitted);
        assert_eq!(values, (0..6).map(|n| (n, format!("value {n}"))).collect::<Vec<_>>());
    }
}

/// Redpanda #10671, #7544, #7458: the last stable offset was ahead of the state, went back, or was negative while a log started.
/// Right: whoever looks, before and after whatever restart, sees it rise or stand.
#[test]
fn the_last_stable_offset_never_goes_back_over_restarts() {
    let mut sim = SimPlatform::new(3);
    let mut topic = None;
    let mut highest = 0;
    let mut sequence = 0;
    for life in 0..12 {
        let log = open(&sim).expect("opened");
        let topic = *topic.get_or_insert_with(|| log.create_topic("t", 1).expect("created"));
        let mut look = || {
            let offsets = log.offsets(topic, 0).expect("there");
            assert!(offsets.last_stable.0 >= highest, "{} after {highest} in life {life}", offsets.last_stable.0);
            assert!(offsets.last_stable <= offsets.high_watermark);
            highest = offsets.last_stable.0;
        };
        look();
        let client = log.init_client("c", MINUTE, None).expect("given");
        look();
        sequence += 1;
        for n in 0..3 {
            in_txn(&log, topic, client, n, &format!("{sequence}")).expect("taken");
            look();
        }
        if life % 3 != 0 {
            log.end_client("c", client, if life % 2 == 0 { Outcome::Committed } else { Outcome::Aborted }, false)
                .expect("ended");
            look();
        }
        drop(log);
        sim = sim.restart(if life % 2 == 0 { LossPolicy::AllLost } else { LossPolicy::NoneLost });
    }
    assert!(highest > 20, "{highest}");
}

/// AutoMQ #754: records of an aborted transaction were shown when a fetch began in the middle of it, late in a segment, since its
/// range was computed from an offset relative to the segment. Right: from every offset, over segments, with the same result.
#[test]
fn an_abort_late_in_a_segment_is_known_to_fetches_from_its_middle() {
    let sim = SimPlatform::new(4);
    let log = open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let client = log.init_client("c", MINUTE, None).expect("given");
    let mut aborted = vec![];
    for n in 0..40 {
        let value = format!("{n} {}", ".".repeat(200));
        let first = in_txn(&log, topic, client, 2 * n, &value).expect("taken");
        in_txn(&log, topic, client, 2 * n + 1, &value).expect("taken");
        let committed = n % 4 != 3;
        if !committed {
            aborted.push(first);
        }
        log.end_client("c", client, if committed { Outcome::Committed } else { Outcome::Aborted }, false)
            .expect("ended");
    }
    let end = log.offsets(topic, 0).expect("there").high_watermark.0;
    for from in 0..end {
        let mut consumer = log.consumer(topic, 0, Offset(from), Isolation::ReadCommitted).expect("there");
        let mut seen = vec![];
        while consumer.position().0 < end {
            let fetched = consumer.poll(700).expect("sound");
            fetched.for_each(|record| seen.push(record.offset.cast_unsigned())).expect("sound");
        }
        let is_aborted = |offset: &u64| aborted.iter().any(|first| (*first..first + 2).contains(offset));
        assert!(!seen.iter().any(is_aborted), "from {from}: {seen:?}, {aborted:?} are aborted");
        let expected = (from..end).filter(|offset| offset % 3 != 2 && !is_aborted(offset)).count();
        assert_eq!(seen.len(), expected, "from {from}");
    }
}
