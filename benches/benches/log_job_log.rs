//! From topic to topic: what a job costs beside the same work written by hand on the log's API.
//!
//! `cargo bench -p cutwater-benches --bench log_job_log [-- --records N --rounds N --only job|hand]`
//!
//! Records of a hundred bytes lie in four partitions. Both contenders read them, turn their text into capitals, and write them to
//! four partitions of another topic, two threads each, in transactions that are committed each second together with how far was
//! read. What the hand-written loop does not have: state, other worker counts, recovery by itself, back-pressure, a report. Each output is counted
//! afterwards, read-committed.

#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::path::Path;
use std::time::Duration;

use cutwater_benches::{Figure, machine, measure, spread, table};
use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::observe::Control;
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset, OwnerId, TopicId, TopicPartition, TxnName};
use cutwater_platform::{Clock, Platform, SystemClock};
use cutwater_sources_sinks::codec::Bytes;
use cutwater_sources_sinks::log::LogHandle;

cutwater::mimalloc!();

const PARTITIONS: u32 = 4;
const THREADS: u32 = 2;
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a batch, about what the job's writer makes.
const BATCH: usize = 64 << 10;

fn main() {
    let (mut records, mut rounds, mut only) = (8_000_000u64, 5, None);
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{arg} wants a value"));
        match arg.as_str() {
            "--records" => records = value.parse().expect("a number"),
            "--rounds" => rounds = value.parse().expect("a number"),
            "--only" => only = Some(value),
            other => panic!("unknown argument {other}"),
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!(
        "log to log, {records} records of 100 B, {PARTITIONS} partitions, {THREADS} threads, {rounds} rounds; {}",
        machine(dir.path())
    );
    load(dir.path(), records);
    let contenders: [(&str, &dyn Fn(u32) -> Figure); 2] =
        [("hand", &|round| by_hand(dir.path(), round)), ("job", &|round| by_job(dir.path(), round))];
    let mut figures = vec![vec![]; contenders.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            if only.as_ref().is_some_and(|only| only != contender.0) {
                continue;
            }
            let figure = (contender.1)(round);
            let (log, topic) = output(dir.path(), contender.0, round);
            assert_eq!(count(&log, topic), records, "{} lost or repeated records", contender.0);
            log.close().expect("a clean close");
            if round > 0 {
                figures.push(figure);
            }
        }
    }
    let ns = |f: &Figure| f.cpu.as_nanos() as f64 / records as f64;
    let rate = |f: &Figure| records as f64 / f.wall.as_secs_f64() / 1e6;
    let mut rows =
        vec![["", "CPU ns/record", "min", "max", "Mrec/s wall", "by CPU", "by wall"].map(String::from).to_vec()];
    for (contender, own) in contenders.iter().zip(&figures).filter(|(_, own)| !own.is_empty()) {
        let cpu = spread(own.iter().map(ns));
        let mut row = vec![contender.0.to_string()];
        row.extend([cpu.median, cpu.min, cpu.max].map(|v| format!("{v:.0}")));
        row.push(format!("{:.2}", spread(own.iter().map(rate)).median));
        if !figures[0].is_empty() {
            let pairs = || own.iter().zip(&figures[0]);
            row.push(format!("{:.2}x", spread(pairs().map(|(a, b)| ns(b) / ns(a))).median));
            row.push(format!("{:.2}x", spread(pairs().map(|(a, b)| rate(a) / rate(b))).median));
        }
        rows.push(row);
    }
    println!("{}", table(&rows));
}

fn open(dir: &Path) -> Log {
    Log::open(&Platform::real(), &dir.join("log"), LogOptions::default()).expect("the log opens")
}

/// The topic that a contender writes in a round, empty when it begins.
fn output(dir: &Path, contender: &str, round: u32) -> (Log, TopicId) {
    let log = open(dir);
    let topic = log.create_topic_if_absent(&format!("{contender}-{round}"), PARTITIONS).expect("a topic");
    (log, topic)
}

/// Fills the topic that is read.
fn load(dir: &Path, records: u64) {
    let log = open(dir);
    let topic = log.create_topic("in", PARTITIONS).expect("a new topic");
    let producer = log.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    let mut left = vec![records / u64::from(PARTITIONS); PARTITIONS as usize];
    left[0] += records % u64::from(PARTITIONS);
    let text = [b"the quick brown fox jumps over the lazy dog ".as_slice(); 3].concat();
    while left.iter().any(|n| *n > 0) {
        let mut tickets = vec![];
        for (partition, left) in (0..).zip(&mut left) {
            while *left > 0 && batch.encoded_len_estimate() < BATCH {
                batch.push(0, None, Some(&text[..100]), &[]).expect("it fits");
                *left -= 1;
            }
            if !batch.is_empty() {
                tickets.push(producer.append(topic, partition, &mut batch).expect("accepted"));
            }
        }
        for ticket in tickets {
            ticket.wait().expect("acknowledged");
        }
    }
    log.close().expect("a clean close");
}

fn count(log: &Log, topic: TopicId) -> u64 {
    let mut records = 0;
    for partition in 0..PARTITIONS {
        let mut consumer = log.consumer(topic, partition, Offset::ZERO, Isolation::ReadCommitted).expect("it is there");
        loop {
            let fetched = consumer.poll(1 << 20).expect("readable");
            if fetched.is_empty() {
                break;
            }
            fetched.for_each(|_| records += 1).expect("whole batches");
        }
    }
    records
}

fn by_job(dir: &Path, round: u32) -> Figure {
    let (log, _) = output(dir, "job", round);
    let handle = LogHandle::of(&Platform::real(), log);
    let mut options = Options::new("capitals", dir.join(format!("state-{round}")));
    options.workers = THREADS as usize;
    options.guarantee = Guarantee::ExactlyOnce(Snapshots::every(INTERVAL));
    measure(|| {
        let report = run(
            move |job| {
                job.source("in", handle.read("in").until_latest())
                    .map(|record| {
                        let mut value = record.value.unwrap_or_default();
                        value.make_ascii_uppercase();
                        (record.partition, value)
                    })
                    .sink(
                        "out",
                        handle.write(format!("job-{round}")).value(Second).partition_by(|(partition, _), _| *partition),
                    );
                Ok(())
            },
            &options,
            &Control::new(),
        );
        report.expect("it runs").assert_balanced();
    })
}

/// The bytes of a pair of partition and bytes.
#[derive(Clone)]
struct Second;

impl cutwater_sources_sinks::codec::Encode<(u32, Vec<u8>)> for Second {
    fn encode(
        &self,
        item: &(u32, Vec<u8>),
        out: &mut Vec<u8>,
    ) -> Result<(), cutwater_sources_sinks::codec::EncodeError> {
        Bytes.encode(&item.1, out)
    }
}

fn by_hand(dir: &Path, round: u32) -> Figure {
    let (log, to) = output(dir, "hand", round);
    let from = log.topic("in").expect("it was loaded").id;
    let attempt = u64::from(round) + 1;
    measure(|| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let log = &log;
                scope.spawn(move || shout(log, from, to, thread, attempt));
            }
        });
        log.close().expect("a clean close");
    })
}

/// What one thread does: its partitions from beginning to end, a transaction each second.
fn shout(log: &Log, from: TopicId, to: TopicId, thread: u32, attempt: u64) {
    let clock = SystemClock::new();
    let owner = log.claim(&OwnerId(u128::from(thread) + 1), attempt).expect("a new attempt");
    let mut consumers: Vec<_> = (0..PARTITIONS)
        .filter(|partition| partition % THREADS == thread)
        .map(|partition| {
            let end = log.offsets(from, partition).expect("it is there").high_watermark;
            let consumer = log.consumer(from, partition, Offset::ZERO, Isolation::ReadCommitted);
            (consumer.expect("it is there"), BatchBuilder::new(Compression::None), end)
        })
        .collect();
    let (mut checkpoint, mut value) = (0, vec![]);
    loop {
        checkpoint += 1;
        let name = TxnName { checkpoint, sink: "out".to_string(), writer: thread };
        let mut txn = owner.begin(name).expect("a transaction");
        let (begun, mut finished) = (clock.monotonic(), false);
        while !finished && clock.monotonic() - begun < INTERVAL {
            finished = true;
            for (consumer, batch, end) in &mut consumers {
                let partition = consumer.partition().partition;
                let fetched = consumer.poll(256 << 10).expect("readable");
                let each = |record: cutwater_partition_log::batch::RecordRef<'_>| {
                    value.clear();
                    value.extend_from_slice(record.value.unwrap_or_default());
                    value.make_ascii_uppercase();
                    batch.push(record.timestamp_ms, None, Some(&value), &[]).expect("it fits");
                    if batch.encoded_len_estimate() >= BATCH {
                        txn.append(to, partition, &mut *batch).expect("accepted");
                    }
                };
                fetched.for_each(each).expect("whole batches");
                finished &= consumer.position() >= *end;
            }
        }
        for (consumer, batch, _) in &mut consumers {
            if !batch.is_empty() {
                txn.append(to, consumer.partition().partition, batch).expect("accepted");
            }
        }
        let read = consumers.iter().map(|(consumer, ..)| (consumer.partition(), consumer.position()));
        txn.commit_offsets(&format!("shouters-{attempt}"), read.collect::<Vec<(TopicPartition, Offset)>>())
            .expect("kept");
        txn.commit().expect("committed");
        if finished {
            return;
        }
    }
}
