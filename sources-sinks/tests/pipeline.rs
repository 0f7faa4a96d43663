//! Connectors inside running jobs: several workers, checkpoints, and a panic that ends an attempt in the middle.

mod common;
#[path = "common/logs.rs"]
mod logs;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_sources_sinks::codec::Text;
use cutwater_sources_sinks::collection::{collect, collection};
use cutwater_sources_sinks::generator::generate;
use cutwater_sources_sinks::log::{JobLog, partition_of_key};
use cutwater_sources_sinks::text;
use logs::{committed_in, open_log};

const RECORDS: u64 = 20_000;
const PARTITIONS: u32 = 3;

fn options(dir: &Path) -> Options {
    Options {
        workers: 2,
        pin: false,
        guarantee: Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(5))),
        ..Options::new("test", dir)
    }
}

fn run_job(options: &Options, build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static) -> Report {
    let report = run(build, options, &Control::new()).unwrap();
    report.assert_balanced();
    assert!(report.finished);
    report
}

/// Fills the topic `in`; answers the values of each partition.
fn fill(dir: &Path) -> Vec<Vec<String>> {
    let log = open_log(&dir.join("log"));
    let raw = log.log().unwrap();
    let (topic, producer) = (raw.create_topic("in", PARTITIONS).unwrap(), raw.producer().unwrap());
    let mut values = vec![vec![]; PARTITIONS as usize];
    for batch in 0..RECORDS / 100 {
        let partition = (batch % u64::from(PARTITIONS)) as u32;
        let mut builder = BatchBuilder::new(Compression::Lz4);
        for n in batch * 100..(batch + 1) * 100 {
            values[partition as usize].push(n.to_string());
            builder.push(n as i64, None, Some(n.to_string().as_bytes()), &[]).unwrap();
        }
        producer.append(topic, partition, &mut builder).unwrap().wait().unwrap();
    }
    values
}

#[test]
fn a_topic_is_copied_exactly_once_through_panics_and_a_finished_job_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let input = fill(dir.path());
    let (seen, builds, struck) = (Arc::new(AtomicU64::new(0)), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let build = move |job: &Job| {
        let (log, seen, struck) = (job.log(), seen.clone(), struck.clone());
        // The job is built once to look at it, and then by both workers in each attempt.
        let attempt = builds.fetch_add(1, Ordering::SeqCst).saturating_sub(1) / 2;
        let records = job.source("in", log.read("in").until_latest()).map(move |record| {
            // Three attempts end like this, at different places, each reached however little is read again. An attempt is
            // struck once: the other worker may go on for thousands of records before it notices.
            let n = seen.fetch_add(1, Ordering::SeqCst);
            let due = [7_000, 13_001, 19_000].get(attempt).is_some_and(|place| n >= *place);
            let strike = || struck.compare_exchange(attempt, attempt + 1, Ordering::SeqCst, Ordering::SeqCst);
            assert!(!due || strike().is_err(), "injected");
            record
        });
        let copies = records.map(|record| (record.value.clone().unwrap_or_default(), record));
        let key = |(key, _): &(Vec<u8>, cutwater_sources_sinks::log::LogRecord)| key.clone();
        let (even, odd) = copies.map(move |copy| (key(&copy), copy.1)).fork();
        even.filter(|(_, record)| record.timestamp_ms % 2 == 0)
            .map(|(_, record)| record)
            .sink("even", log.write("even"));
        odd.filter(|(_, record)| record.timestamp_ms % 2 == 1)
            .map(|(value, _)| String::from_utf8(value).unwrap_or_default())
            .sink("odd", log.write("odd").partitions(5).key(|value: &String| value.as_bytes()).value(Text));
        Ok(())
    };
    let build = Arc::new(build);
    let again = build.clone();
    let report = run_job(&options(dir.path()), move |job| build(job));
    assert_eq!(report.failures.len(), 3, "{:?}", report.failures);

    let log = open_log(&dir.path().join("log"));
    let all: Vec<String> = input.concat();
    let parity = |value: &String| value.parse::<u64>().unwrap() % 2;
    let mut even: Vec<_> = committed_in(&log, "even", 0).into_iter().map(logs::text).collect();
    // Each input partition was read by one worker, in order.
    for partition in &input {
        let expected: Vec<_> = partition.iter().filter(|v| parity(v) == 0).cloned().collect();
        let found: Vec<_> = even.iter().filter(|v| partition.contains(v)).cloned().collect();
        assert!(found == expected, "{} of {} records in order", found.len(), expected.len());
    }
    even.sort();
    let mut expected: Vec<_> = all.iter().filter(|v| parity(v) == 0).cloned().collect();
    expected.sort();
    assert!(even == expected, "{} of {} records", even.len(), expected.len());
    for partition in 0..5 {
        let mut found: Vec<_> = committed_in(&log, "odd", partition).into_iter().map(logs::text).collect();
        let belongs = |v: &&String| parity(v) == 1 && partition_of_key(v.as_bytes(), 5) == partition;
        let mut expected: Vec<_> = all.iter().filter(belongs).cloned().collect();
        found.sort();
        expected.sort();
        assert!(found == expected, "partition {partition}: {} of {} records", found.len(), expected.len());
    }
    assert_eq!(log.log().unwrap().transactions().len(), 0, "nothing is left undecided");
    drop(log);
    assert!(run_job(&options(dir.path()), move |job| again(job)).already_finished);
}

#[test]
fn files_and_made_records_reach_topics_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.txt");
    let lines: Vec<String> = (0..5_000).map(|n| format!("line {n}")).collect();
    common::write_file(&path, lines.join("\n").as_bytes());
    let failed = Arc::new(AtomicU64::new(0));
    run_job(&options(dir.path()), move |job| {
        let (log, failed) = (job.log(), failed.clone());
        job.source("lines", text::lines(job, &path))
            .map(move |line| {
                assert!(line.number != 3_000 || failed.fetch_add(1, Ordering::SeqCst) > 0, "injected");
                line.to_string()
            })
            .sink("lines-out", log.write("lines"));
        job.source("made", generate(job, 3_000, |n| n.to_string()).in_splits(4)).sink("made-out", log.write("made"));
        Ok(())
    });
    let log = open_log(&dir.path().join("log"));
    assert!(logs::committed(&log, "lines") == lines);
    let mut made: Vec<u64> = logs::committed(&log, "made").iter().map(|n| n.parse().unwrap()).collect();
    made.sort_unstable();
    assert!(made == (0..3_000).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_replayed_is_refused_by_name_unless_at_most_once_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let out = Arc::new(Mutex::new(vec![]));
    let build = |out: Arc<Mutex<Vec<u32>>>| {
        move |job: &Job| {
            job.source("numbers", collection(0..1000)).sink("out", collect(out.clone()));
            Ok(())
        }
    };
    let error = run(build(out.clone()), &options(dir.path()), &Control::new()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RunError::Build(BuildError::Guarantee { .. })) && text.contains("numbers"), "{text}");
    let options = Options { guarantee: Guarantee::AtMostOnce, ..options(dir.path()) };
    run_job(&options, build(out.clone()));
    assert_eq!(*out.lock().unwrap(), (0..1000).collect::<Vec<_>>());
}

#[test]
fn without_checkpoints_a_topic_has_everything_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { guarantee: Guarantee::AtMostOnce, ..options(dir.path()) };
    run_job(&options, |job| {
        job.source("made", generate(job, 10_000, |n| n.to_string())).sink("out", job.log().write("out"));
        Ok(())
    });
    let log = open_log(&dir.path().join("log"));
    assert_eq!(logs::committed(&log, "out"), (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_job_whose_log_cannot_be_opened_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let _held = open_log(&dir.path().join("log"));
    let error = run(
        |job: &Job| {
            job.source("made", generate(job, 10, |n| n.to_string())).sink("out", job.log().write("out"));
            Ok(())
        },
        &options(dir.path()),
        &Control::new(),
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains("is held by") && text.contains("--take-over"), "{text}");
}
