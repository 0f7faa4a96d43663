//! The log as a program uses it, on the real file system and with real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{
    AppendError, ClaimError, CommitError, Consumer, Down, Holder, Isolation, Log, LogLimits, LogOptions, Offset,
    OpenError, OwnerId, TopicId, TxnName, TxnPhase,
};
use cutwater_platform::Platform;

fn options() -> LogOptions {
    LogOptions { limits: LogLimits { wal_extend_bytes: 64 << 10, ..LogLimits::default() }, ..LogOptions::default() }
}

fn open(dir: &std::path::Path) -> Log {
    Log::open(&Platform::real(), dir, options()).expect("opens")
}

fn batch(values: &[&str]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Compression::None);
    for value in values {
        builder.push(0, None, Some(value.as_bytes()), &[]).expect("fits");
    }
    builder
}

fn name(checkpoint: u64, writer: u32) -> TxnName {
    TxnName { checkpoint, sink: "out".to_string(), writer }
}

/// Everything the consumer can see now, as (offset, value).
fn drain(consumer: &mut Consumer) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    loop {
        let before = consumer.position();
        let fetched = consumer.poll(1 << 20).expect("readable");
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

fn read(log: &Log, topic: TopicId, partition: u32, isolation: Isolation) -> Vec<(u64, String)> {
    drain(&mut log.consumer(topic, partition, Offset::ZERO, isolation).expect("exists"))
}

fn values(seen: Vec<(u64, String)>) -> Vec<String> {
    seen.into_iter().map(|(_, value)| value).collect()
}

#[test]
fn what_was_acknowledged_is_read_back_live_and_after_both_kinds_of_ending() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let log = open(dir.path());
        let topic = log.create_topic("flights", 2).expect("created");
        let producer = log.producer().expect("a producer");
        let tickets: Vec<_> = (0..100)
            .map(|n| producer.append(topic, n % 2, &mut batch(&[&format!("a{n}"), "b"])).expect("accepted"))
            .collect();
        let offsets: Vec<u64> = tickets.into_iter().map(|ticket| ticket.wait().expect("durable").0).collect();
        assert_eq!(offsets, (0..100).map(|n| n / 2 * 2).collect::<Vec<_>>());
        let live = read(&log, topic, 1, Isolation::ReadUncommitted);
        assert_eq!(live.len(), 100);
        assert_eq!(live[0], (0, "a1".to_string()));
        if clean {
            log.close().expect("clean");
        }
        drop((producer, log));
        let log = open(dir.path());
        assert_eq!(log.topics()[0].name, "flights");
        assert_eq!(read(&log, topic, 1, Isolation::ReadUncommitted), live, "clean: {clean}");
        assert_eq!(read(&log, topic, 1, Isolation::ReadCommitted), live, "clean: {clean}");
        let offsets = log.offsets(topic, 1).expect("exists");
        assert_eq!((offsets.high_watermark, offsets.last_stable), (Offset(100), Offset(100)));
    }
}

#[test]
fn a_transaction_is_invisible_until_committed_and_then_visible_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    let topic = log.create_topic("out", 2).expect("created");
    let owner = log.claim(&OwnerId(7), 1).expect("claimed");
    let mut txn = owner.begin(name(1, 0)).expect("begun");
    txn.append(topic, 0, &mut batch(&["x", "y"])).expect("queued");
    txn.append(topic, 1, &mut batch(&["z"])).expect("queued");
    let prepared = txn.prepare().expect("prepared");
    assert_eq!(prepared.records, 3);
    assert_eq!(values(read(&log, topic, 0, Isolation::ReadCommitted)), Vec::<String>::new());
    assert_eq!(values(read(&log, topic, 0, Isolation::ReadUncommitted)), ["x", "y"]);
    let listed = owner.transactions().expect("listed");
    assert_eq!((listed.len(), listed[0].state, listed[0].records), (1, TxnPhase::Prepared, 3));
    let outcome = owner.commit(std::slice::from_ref(&prepared.id)).expect("committed");
    assert_eq!((outcome.committed.len(), outcome.already.len()), (1, 0));
    assert_eq!(values(read(&log, topic, 0, Isolation::ReadCommitted)), ["x", "y"]);
    assert_eq!(values(read(&log, topic, 1, Isolation::ReadCommitted)), ["z"]);
    let again = owner.commit(std::slice::from_ref(&prepared.id)).expect("idempotent");
    assert_eq!((again.committed.len(), again.already.len()), (0, 1));
    owner.forget(std::slice::from_ref(&prepared.id)).expect("forgotten");
    assert_eq!(owner.commit(std::slice::from_ref(&prepared.id)), Err(CommitError::Unknown(vec![prepared.id])));
}

#[test]
fn prepared_transactions_survive_a_kill_and_are_committed_by_the_next_attempt() {
    let dir = tempfile::tempdir().expect("a directory");
    let (topic, prepared) = {
        let log = open(dir.path());
        let topic = log.create_topic("out", 1).expect("created");
        let owner = log.claim(&OwnerId(7), 1).expect("claimed");
        let mut txn = owner.begin(name(1, 0)).expect("begun");
        txn.append(topic, 0, &mut batch(&["kept"])).expect("queued");
        let prepared = txn.prepare().expect("prepared");
        let mut open = owner.begin(name(2, 0)).expect("begun");
        open.append(topic, 0, &mut batch(&["lost"])).expect("queued");
        log.producer().expect("a producer").append(topic, 0, &mut batch(&["plain"])).unwrap().wait().unwrap();
        (topic, prepared)
    };
    let log = open(dir.path());
    let owner = log.claim(&OwnerId(7), 2).expect("claimed");
    let listed = owner.transactions().expect("listed");
    assert_eq!(listed.iter().map(|t| (&t.id, t.state)).collect::<Vec<_>>(), [(&prepared.id, TxnPhase::Prepared)]);
    owner.commit(&[prepared.id]).expect("committed");
    assert_eq!(values(read(&log, topic, 0, Isolation::ReadCommitted)), ["kept", "plain"]);
    assert_eq!(values(read(&log, topic, 0, Isolation::ReadUncommitted)), ["kept", "lost", "plain"]);
}

#[test]
fn a_fenced_attempt_is_refused_everywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    let topic = log.create_topic("out", 1).expect("created");
    let old = log.claim(&OwnerId(7), 1).expect("claimed");
    let mut txn = old.begin(name(1, 0)).expect("begun");
    log.claim(&OwnerId(7), 2).expect("claimed");
    assert!(matches!(log.claim(&OwnerId(7), 2), Err(ClaimError::Fenced(f)) if f.current == 2));
    assert!(txn.append(topic, 0, &mut batch(&["late"])).is_err());
    assert!(matches!(txn.commit(), Err(CommitError::Fenced(_))));
    assert!(old.begin(name(2, 0)).is_err());
    assert!(matches!(old.commit(&[]), Err(CommitError::Fenced(_))));
}

#[test]
fn a_second_process_is_told_who_holds_the_log_and_a_foreign_directory_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let held = LogOptions { holder: Holder { job: "delays".to_string(), attempt: 3 }, ..options() };
    let log = Log::open(&Platform::real(), dir.path(), held).expect("opens");
    let error = Log::open(&Platform::real(), dir.path(), options()).expect_err("held");
    let text = error.to_string();
    assert!(text.contains("delays") && text.contains(&std::process::id().to_string()), "{text}");
    let own = LogOptions { take_over: true, ..options() };
    let error = Log::open(&Platform::real(), dir.path(), own).expect_err("would kill itself");
    assert!(matches!(error, OpenError::TakeOver { .. }), "{error}");
    drop(log);
    open(dir.path());

    let foreign = tempfile::tempdir().expect("a directory");
    let platform = Platform::real();
    platform.files.publish_bytes(&foreign.path().join("thesis.txt"), b"mine").expect("written");
    let error = Log::open(&platform, foreign.path(), options()).expect_err("foreign");
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(platform.files.read_dir(foreign.path()).expect("listed").len(), 1, "nothing was added");
}

#[test]
fn waiting_consumers_are_woken_by_commits_and_by_the_end_of_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    let topic = log.create_topic("out", 1).expect("created");
    let mut consumer = log.consumer(topic, 0, Offset::ZERO, Isolation::ReadCommitted).expect("exists");
    assert!(!consumer.wait(Duration::from_millis(20)), "nothing is there");
    let called = Arc::new(AtomicU64::new(0));
    let counter = called.clone();
    let other = log.consumer(topic, 0, Offset::ZERO, Isolation::ReadCommitted).expect("exists");
    other.on_new_data(Arc::new(move || _ = counter.fetch_add(1, Ordering::SeqCst)));
    let writer = log.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let owner = writer.claim(&OwnerId(1), 1).expect("claimed");
            for n in 0..200 {
                let mut txn = owner.begin(name(n, 0)).expect("begun");
                txn.append(topic, 0, &mut batch(&[&n.to_string()])).expect("queued");
                txn.commit().expect("committed");
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 200 {
            assert!(consumer.wait(Duration::from_secs(20)), "a wake-up was lost after {}", seen.len());
            seen.extend(values(drain(&mut consumer)));
        }
        assert_eq!(seen, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
    });
    assert!(called.load(Ordering::SeqCst) >= 200);
    log.close().expect("clean");
    assert!(consumer.wait(Duration::from_secs(20)), "woken to see the end");
    assert!(consumer.poll(1).is_err());
    let error =
        log.append_batch(topic, 0, batch(&["x"]).build(cutwater_partition_log::batch::ProducerStamp::NONE).unwrap());
    assert_eq!(error.expect_err("closed"), AppendError::Down(Down::Closed));
}

#[test]
fn what_nobody_waits_for_becomes_durable_all_the_same() {
    let clock = Platform::real().clock;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = open(dir.path());
    let topic = log.create_topic("t", 1).expect("a new topic");
    let owner = log.claim(&OwnerId(1), 1).expect("a new owner");
    let mut txn = owner.begin(name(1, 0)).expect("begun");
    for round in 0..3u64 {
        txn.append(topic, 0, &mut batch(&["a"])).expect("accepted");
        // The high watermark is what is durable. Nobody asks the log for anything meanwhile.
        let deadline = clock.monotonic() + Duration::from_secs(20);
        while log.offsets(topic, 0).expect("exists").high_watermark <= Offset(round) {
            assert!(clock.monotonic() < deadline, "batch {round} is never written");
            clock.sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(values(read(&log, topic, 0, Isolation::ReadUncommitted)), ["a", "a", "a"]);
    txn.commit().expect("committed");
}

#[test]
fn one_thread_has_many_commits_on_their_way_and_each_is_whole_and_durable() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = open(dir.path());
    let topic = log.create_topic("t", 3).expect("a new topic");
    let owner = log.claim(&OwnerId(1), 1).expect("a new owner");
    let mut tickets = Vec::new();
    for n in 0..300u64 {
        let mut txn = owner.begin(name(n, 0)).expect("begun");
        for partition in [n as u32 % 3, (n as u32 + 1) % 3] {
            txn.append(topic, partition, &mut batch(&[&n.to_string()])).expect("accepted");
        }
        tickets.push(txn.start_commit().expect("accepted"));
    }
    // The newest first, some by looking alone, and one by nobody: a ticket that is dropped takes nothing back.
    drop(tickets.remove(7));
    for (n, mut ticket) in tickets.into_iter().enumerate().rev() {
        if n % 3 != 0 {
            ticket.wait().expect("committed");
            continue;
        }
        loop {
            match ticket.try_wait() {
                Ok(answer) => break answer.expect("committed"),
                Err(again) => ticket = again,
            }
            std::thread::yield_now();
        }
    }
    let expected = |partition: u64| {
        (0..300u64)
            .filter(|n| n % 3 == partition || (n + 1) % 3 == partition)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
    };
    drop((owner, log));
    let log = open(dir.path());
    for partition in 0..3 {
        assert_eq!(values(read(&log, topic, partition as u32, Isolation::ReadCommitted)), expected(partition));
    }
}

#[test]
fn a_commit_that_is_handed_in_is_judged_at_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = open(dir.path());
    let owner = log.claim(&OwnerId(1), 1).expect("a new owner");
    let (ended, fenced) = (owner.begin(name(1, 0)).expect("begun"), owner.begin(name(2, 0)).expect("begun"));
    owner.abort(&[ended.id().clone()]).expect("aborted");
    assert!(matches!(ended.start_commit(), Err(CommitError::Aborted(_))));
    log.claim(&OwnerId(1), 2).expect("claimed");
    assert!(matches!(fenced.start_commit(), Err(CommitError::Fenced(_))));
    log.close().expect("closed");
}

#[test]
fn tickets_that_are_only_looked_at_are_answered_too() {
    let clock = Platform::real().clock;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = open(dir.path());
    let topic = log.create_topic("t", 1).expect("a new topic");
    let producer = log.producer().expect("a producer");
    for round in 0..200 {
        let mut ticket = producer.append(topic, 0, &mut batch(&["a"])).expect("accepted");
        let deadline = clock.monotonic() + Duration::from_secs(20);
        let offset = loop {
            match ticket.try_wait() {
                Ok(answer) => break answer.expect("durable"),
                Err(waiting) => ticket = waiting,
            }
            assert!(clock.monotonic() < deadline, "batch {round} is never answered");
            std::thread::yield_now();
        };
        assert_eq!(offset, Offset(round));
    }
}

#[test]
fn committers_who_write_in_turn_and_appenders_beside_them_are_all_answered() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = open(dir.path());
    let topic = log.create_topic("t", 4).expect("a new topic");
    std::thread::scope(|scope| {
        for writer in 0..4u32 {
            let log = &log;
            scope.spawn(move || {
                let owner = log.claim(&OwnerId(u128::from(writer) + 1), 1).expect("a new owner");
                let producer = log.producer().expect("a producer");
                for checkpoint in 1..=200 {
                    let mut txn = owner.begin(name(checkpoint, writer)).expect("begun");
                    txn.append(topic, writer, &mut batch(&["t"])).expect("accepted");
                    let ticket = producer.append(topic, writer, &mut batch(&["p"])).expect("accepted");
                    txn.commit().expect("committed");
                    // It was accepted before the commit, so it is durable with it.
                    assert!(ticket.try_wait().is_ok(), "an answer overtook the one before it");
                }
            });
        }
    });
    for partition in 0..4 {
        assert_eq!(read(&log, topic, partition, Isolation::ReadCommitted).len(), 400);
    }
    log.close().expect("closes");
}

#[test]
fn memory_that_goes_from_old_batches_to_new_ones_carries_no_record_over() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // So small a tail that batches leave it, and their memory comes back, all the time.
    let limits = LogLimits { tail_bytes: 256 << 10, unmaterialised_bytes: 128 << 10, ..options().limits };
    let log = Log::open(&Platform::real(), dir.path(), LogOptions { limits, ..LogOptions::default() }).expect("opens");
    let topic = log.create_topic("t", 1).expect("a new topic");
    let producer = log.producer().expect("a producer");
    let mut builder = BatchBuilder::new(Compression::None);
    let text = |n: usize| format!("{n:>width$}", width = 500 + n * 37 % 400);
    let mut expected = Vec::new();
    for n in 0..400 {
        for part in 0..12 + n % 5 {
            expected.push(text(n * 20 + part));
            builder.push(0, None, expected.last().map(|text| text.as_bytes()), &[]).expect("fits");
        }
        producer.append(topic, 0, &mut builder).expect("accepted").wait().expect("durable");
    }
    assert!(expected == values(read(&log, topic, 0, Isolation::ReadUncommitted)), "every record as it was pushed");
    log.close().expect("closed");
}
