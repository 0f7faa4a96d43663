//! Limits, refusals, the way out for operators, and a disk that fails.

mod log_support;

use cutwater_partition_log::{
    AbortError, AppendError, ClaimError, CommitError, Down, Isolation, Log, Offset, OwnerId, PrepareError, TopicError,
    TxnError, TxnName,
};
use cutwater_testkit::{SimPlatform, SyncFault};
use log_support::{OWNER, batch, open, read};

fn name(checkpoint: u64) -> TxnName {
    TxnName { checkpoint, sink: "s".to_string(), writer: 0 }
}

fn values(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("value-{i}")).collect()
}

#[test]
fn a_transaction_that_could_not_be_committed_in_one_write_is_refused_at_prepare() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 60).expect("created");
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let mut prepared = Vec::new();
    let refused = loop {
        let mut txn = owner.begin(name(prepared.len() as u64)).expect("begun");
        for partition in 0..60 {
            txn.append(topic, partition, &mut batch(&values(1))).expect("appended");
        }
        let id = txn.id().clone();
        match txn.prepare() {
            Ok(one) => prepared.push(one.id),
            Err(e) => break (id, e),
        }
    };
    // 18 bytes for the entry, 14 and 60 times 16 for each transaction, 4096 at most.
    assert_eq!(prepared.len(), 4);
    assert!(matches!(refused.1, PrepareError::TooLarge { bytes: 4888, limit: 4096, .. }), "{}", refused.1);
    assert_eq!(owner.commit(&prepared).expect("commits never fail for their size").committed, prepared);
    owner.abort(&[refused.0]).expect("still open");
    assert_eq!(read(&log, topic, 59, Isolation::ReadCommitted).len(), 4);
}

#[test]
fn an_operator_ends_what_its_owner_does_not_and_the_owner_hears_of_it() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let mut txn = owner.begin(name(1)).expect("begun");
    txn.append(topic, 0, &mut batch(&values(2))).expect("appended");
    let id = txn.prepare().expect("prepared").id;
    log.producer().expect("a producer").append(topic, 0, &mut batch(&values(1))).unwrap().wait().unwrap();
    let status = log.status();
    let oldest = status.oldest_prepared.expect("one");
    assert_eq!((status.prepared, oldest.id, oldest.records), (1, id.clone(), 2));
    assert_eq!(log.offsets(topic, 0).expect("exists").last_stable, Offset(0), "readers are held back");
    log.force_abort(&id).expect("aborted");
    assert_eq!(read(&log, topic, 0, Isolation::ReadCommitted), [(3 - 1, "value-0".to_string())]);
    assert_eq!(owner.commit(std::slice::from_ref(&id)), Err(CommitError::Aborted(vec![id.clone()])));
    log.force_abort(&id).expect("twice is once");
    let txn = owner.begin(name(2)).expect("begun");
    let done = txn.id().clone();
    txn.commit().expect("an empty transaction commits");
    assert_eq!(log.force_abort(&done), Err(AbortError::Committed(vec![done])));
}

#[test]
fn names_numbers_and_sizes_beyond_the_limits_are_refused_by_name() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    assert!(matches!(log.create_topic("a/b", 1), Err(TopicError::InvalidName(_))));
    assert_eq!(log.create_topic("t", 0), Err(TopicError::NoPartitions));
    assert!(matches!(log.create_topic("t", 5_000), Err(TopicError::TooMany { limit: 1_000, .. })));
    let topic = log.create_topic("t", 1).expect("created");
    assert_eq!(log.create_topic_if_absent("t", 1), Ok(topic));
    assert!(matches!(log.create_topic_if_absent("t", 2), Err(TopicError::OtherPartitions { found: 1, .. })));
    let large = log.producer().expect("a producer").append(topic, 0, &mut batch(&values(2_000))).map(drop);
    assert!(matches!(large, Err(AppendError::Batch { .. })), "{large:?}");
    assert!(matches!(log.claim(&OWNER, 0), Err(ClaimError::Fenced(_))), "attempts count from 1");
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let bad = TxnName { checkpoint: 1, sink: "a b".to_string(), writer: 0 };
    assert!(matches!(owner.begin(bad).map(drop), Err(TxnError::InvalidName(_))));
    let txn = owner.begin(name(1)).expect("begun");
    assert!(matches!(owner.begin(name(1)).map(drop), Err(TxnError::Exists { .. })));
    assert!(matches!(owner.forget(&[txn.id().clone()]), Err(TxnError::NotForgettable { .. })));
    let other = log.claim(&OwnerId(9), 1).expect("claimed");
    let foreign = txn.id().clone();
    assert_eq!(
        other.abort(std::slice::from_ref(&foreign)),
        Err(AbortError::Unknown(vec![foreign.clone()])),
        "not its own"
    );
    assert_eq!(owner.commit(std::slice::from_ref(&foreign)), Err(CommitError::NotPrepared(vec![foreign])));
    for n in 2..101 {
        owner.begin(name(n)).expect("begun");
    }
    assert!(matches!(owner.begin(name(101)).map(drop), Err(TxnError::TooMany { limit: 100, .. })));
    let mut txn = txn;
    assert!(matches!(txn.append(topic, 7, &mut batch(&values(1))), Err(AppendError::UnknownPartition { .. })));
}

#[test]
fn memory_under_a_writer_that_never_waits_is_bounded() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let limits = log.limits().clone();
    let mut txn = owner.begin(name(1)).expect("begun");
    let mut largest = 0;
    for _ in 0..500 {
        txn.append(topic, 0, &mut batch(&values(20))).expect("queued");
        let status = log.status();
        largest = largest.max(status.queued_bytes + status.unmaterialised_bytes);
    }
    assert!(largest > limits.queue_bytes / 2, "the queue was used: {largest}");
    assert!(largest < limits.queue_bytes + limits.unmaterialised_bytes + 2 * limits.batch_bytes_max, "{largest}");
    txn.commit().expect("committed");
    assert_eq!(read(&log, topic, 0, Isolation::ReadCommitted).len(), 10_000);
    let status = log.status();
    assert!(status.wal_bytes <= (limits.wal_files_max as u64 + 1) * limits.wal_file_bytes, "{status:?}");
}

#[test]
fn readers_can_begin_anywhere_and_take_as_little_as_they_like() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let producer = log.producer().expect("a producer");
    for _ in 0..60 {
        producer.append(topic, 0, &mut batch(&values(5))).expect("accepted").wait().expect("durable");
    }
    for from in (0..300u64).step_by(7) {
        for max_bytes in [1, 200, 5_000] {
            let mut consumer = log.consumer(topic, 0, Offset(from), Isolation::ReadCommitted).expect("exists");
            let mut offsets = Vec::new();
            while consumer.position() < Offset(300) {
                let fetched = consumer.poll(max_bytes).expect("readable");
                fetched.for_each(|record| offsets.push(record.offset as u64)).expect("decodable");
            }
            assert_eq!(offsets, (from..300).collect::<Vec<_>>(), "from {from} by {max_bytes}");
        }
    }
    let mut beyond = log.consumer(topic, 0, Offset(1_000), Isolation::ReadCommitted).expect("exists");
    assert!(beyond.poll(100).expect("nothing yet").is_empty());
}

#[test]
fn after_a_failed_sync_everything_is_refused_and_waiters_hear_that_nobody_knows() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let producer = log.producer().expect("a producer");
    let mut txn = owner.begin(name(1)).expect("begun");
    txn.append(topic, 0, &mut batch(&values(1))).expect("queued");
    let consumer = log.consumer(topic, 0, Offset::ZERO, Isolation::ReadCommitted).expect("exists");
    sim.disk().fail_sync(1, SyncFault::KeepCache);
    let first = producer.append(topic, 0, &mut batch(&values(1))).expect("accepted");
    let second = producer.append(topic, 0, &mut batch(&values(1))).expect("accepted");
    for ticket in [first, second] {
        assert!(matches!(ticket.wait(), Err(AppendError::OutcomeUnknown(_))));
    }
    let poisoned = |down: &Down| matches!(down, Down::Poisoned { .. });
    assert!(matches!(producer.append(topic, 0, &mut batch(&values(1))), Err(AppendError::Down(d)) if poisoned(&d)));
    assert!(matches!(txn.append(topic, 0, &mut batch(&values(1))), Err(AppendError::Down(d)) if poisoned(&d)));
    assert!(matches!(txn.prepare(), Err(PrepareError::Down(d)) if poisoned(&d)));
    assert!(matches!(owner.begin(name(2)), Err(TxnError::Down(d)) if poisoned(&d)));
    assert!(matches!(owner.commit(&[]), Err(CommitError::Down(d)) if poisoned(&d)));
    assert!(matches!(log.claim(&OWNER, 2), Err(ClaimError::Down(d)) if poisoned(&d)));
    assert!(matches!(log.create_topic("u", 1), Err(TopicError::Down(d)) if poisoned(&d)));
    let mut consumer = consumer;
    assert!(consumer.wait(std::time::Duration::ZERO) && consumer.poll(1).is_err());
    assert!(log.close().is_err());
    assert!(log.status().down.is_some());
}

/// Many threads at once, real time: everything acknowledged exactly once, in order per producer, and no torn commit.
#[test]
fn threads_commit_together_without_tearing_or_losing_anything() {
    let dir = tempfile::tempdir().expect("a directory");
    let platform = cutwater_platform::Platform::real();
    let options = || cutwater_partition_log::LogOptions { limits: log_support::tiny().limits, ..Default::default() };
    let log = Log::open(&platform, dir.path(), options()).expect("opens");
    let topic = log.create_topic("t", 3).expect("created");
    std::thread::scope(|scope| {
        for thread in 0..4u128 {
            let log = log.clone();
            scope.spawn(move || {
                let owner = log.claim(&OwnerId(thread + 1), 1).expect("claimed");
                for n in 0..40 {
                    let mut txn = owner.begin(name(n)).expect("begun");
                    for partition in 0..3 {
                        let values = [format!("{thread}-{n}")];
                        txn.append(topic, partition, &mut batch(&values)).expect("queued");
                    }
                    if n % 2 == 0 { txn.commit().expect("committed") } else { txn.abort().expect("aborted") }
                }
            });
        }
        // What one partition shows, the others show as well: commits are visible everywhere at once.
        let log = log.clone();
        scope.spawn(move || {
            for _ in 0..100 {
                let first = read(&log, topic, 0, Isolation::ReadCommitted);
                let later = read(&log, topic, 2, Isolation::ReadCommitted);
                let later: std::collections::BTreeSet<String> = later.into_iter().map(|(_, value)| value).collect();
                // Another transaction may still hold partition 2 back; but of the same one no part is missing
                // unless something earlier there is open.
                let stable = log.offsets(topic, 2).expect("exists");
                if stable.last_stable == stable.log_end {
                    assert!(first.iter().all(|(_, value)| later.contains(value)));
                }
            }
        });
    });
    let lived: Vec<_> = (0..3).map(|p| read(&log, topic, p, Isolation::ReadCommitted)).collect();
    for partition in &lived {
        assert_eq!(partition.len(), 80);
        for thread in 0..4 {
            let own: Vec<&str> = partition.iter().filter_map(|(_, v)| v.strip_prefix(&format!("{thread}-"))).collect();
            let expected: Vec<String> = (0..40).step_by(2).map(|n: u32| n.to_string()).collect();
            assert_eq!(own, expected);
        }
    }
    drop(log);
    let log = Log::open(&platform, dir.path(), options()).expect("recovers");
    let replayed: Vec<_> = (0..3).map(|p| read(&log, topic, p, Isolation::ReadCommitted)).collect();
    assert_eq!(replayed, lived);
}
