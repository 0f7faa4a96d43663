//! The log of a job: opened once for a run, closed when the run ends, refused when it can't be had.

mod common;

use common::job;
use cutwater_engine::config::Options;
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::source::Source as _;
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::log::{JobLog, LogRecord};

#[test]
fn all_builds_of_a_run_share_one_log_which_is_closed_with_the_run() {
    let dir = tempfile::tempdir().unwrap();
    for _run in 0..2 {
        let environment = Environment::new(&Options::new("test", dir.path()));
        // Once to check the job, then once per worker and attempt.
        let handles: Vec<_> = (0..3).map(|_| Job::new(environment.clone()).log()).collect();
        assert!(handles.iter().all(|handle| handle.log().is_some()));
        if let Some(log) = handles[0].log() {
            log.create_topic_if_absent("t", 1).unwrap();
        }
        assert_eq!(handles[2].read("t").splits().unwrap(), ["0"]);
        drop(handles);
        assert!(job(dir.path()).log().log().is_none(), "the run is still on: a second one is refused");
        drop(environment);
    }
}

#[test]
fn a_log_that_cannot_be_opened_gives_handles_that_say_so() {
    let dir = tempfile::tempdir().unwrap();
    common::write_file(&dir.path().join("log"), b"no directory");
    let job = job(dir.path());
    let log = job.log();
    assert!(log.log().is_none());
    let error = log.read("t").splits().unwrap_err();
    assert!(error.to_string().contains("the log could not be opened"), "{error}");
}

#[derive(serde::Serialize)]
struct Delay {
    origin: String,
    minutes: i32,
}

/// What a build function looks like; it has to compile as it stands.
#[test]
fn a_job_reads_and_writes_topics() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let log = job.log();
    let flights = job.source("flights", log.read("flights").until_latest());
    let delays = flights.stage::<Delay, cutwater_engine::graph::Untimed>("parse", |records: Vec<LogRecord>, _| {
        records.iter().map(|r| Delay { origin: format!("{}", r.offset), minutes: 1 }).collect()
    });
    delays.sink("delays", log.write("delays").key(|d: &Delay| d.origin.as_bytes()).value(Json));
    let raw = job.source("raw", log.read("raw"));
    raw.sink("copy", log.write("copy").partitions(4));
    let lines = job.source("lines", cutwater_sources_sinks::text::lines(&job, "lines.txt"));
    lines.sink("lines-out", log.write("lines"));
    let _ = |d: &Delay| d.minutes;
}
