//! How far a job has come, as a group's offsets: never ahead of what it has committed, its end at the end, and of no influence on where
//! it reads.

mod common;
#[path = "common/logs.rs"]
mod logs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, SourceError};
use cutwater_engine::graph::Job;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::observe::Control;
use cutwater_engine::source::{Source, SplitState, Waker};
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Offset, TopicPartition};
use cutwater_platform::Platform;
use cutwater_sources_sinks::log::{JobLog, LogHandle};
use logs::{begin, committed, committed_in, open_log, text};

const RECORDS: u64 = 6_000;
const PARTITIONS: u32 = 3;
const GROUP: &str = "copy";

fn options(dir: &Path, guarantee: fn(Snapshots) -> Guarantee) -> Options {
    let guarantee = guarantee(Snapshots::every(Duration::from_millis(5)));
    let mut options = Options { workers: 2, pin: false, guarantee, ..Options::new("copy", dir) };
    options.restart_backoff = Duration::from_millis(1);
    // Many small steps, so that many barriers come between them.
    (options.limits.batch_records, options.limits.channel_records) = (50, 200);
    options
}

/// Fills the topic `in`: no transactions, so an offset is a number of records.
fn fill(dir: &Path) {
    let log = open_log(&dir.join("log"));
    let raw = log.log().unwrap();
    let (topic, producer) = (raw.create_topic("in", PARTITIONS).unwrap(), raw.producer().unwrap());
    for batch in 0..RECORDS / 100 {
        let mut builder = BatchBuilder::new(Compression::Lz4);
        for n in batch * 100..(batch + 1) * 100 {
            builder.push(n as i64, None, Some(n.to_string().as_bytes()), &[]).unwrap();
        }
        producer.append(topic, (batch % u64::from(PARTITIONS)) as u32, &mut builder).unwrap().wait().unwrap();
    }
}

/// The group's offset in each partition, where it has one.
fn shown(log: &LogHandle) -> Vec<Option<u64>> {
    let raw = log.log().unwrap();
    let topic = raw.topic("in").unwrap().id;
    let offsets = raw.group_offsets(GROUP).unwrap().offsets;
    (0..PARTITIONS).map(|p| offsets.get(&TopicPartition::new(topic, p)).map(|o| o.offset.0)).collect()
}

fn ends() -> Vec<Option<u64>> {
    vec![Some(RECORDS / u64::from(PARTITIONS)); PARTITIONS as usize]
}

fn copied(log: &LogHandle) -> Vec<u64> {
    let mut all: Vec<u64> = committed(log, "out").iter().map(|n| n.parse().unwrap()).collect();
    all.sort_unstable();
    all
}

/// Copies `in` to `out`; each attempt but the last dies at one of these records, and looks at the group on its way if nobody else moves it.
fn copy(
    deaths: &'static [u64],
    looking: bool,
) -> (impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + Clone + 'static, Arc<AtomicU64>) {
    let (seen, died, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let looked = looks.clone();
    let build = move |job: &Job| {
        let (log, seen, died, looks) = (job.log(), seen.clone(), died.clone(), looks.clone());
        let read = log.read("in").until_latest().group(GROUP);
        let records = job.source("in", read).map(move |record| {
            let n = seen.fetch_add(1, Ordering::SeqCst);
            if looking && n % 100 == 0 && log.log().unwrap().topic("out").is_some() {
                // Checkpoints have their time, and what is shown now is committed by now.
                Platform::real().clock.sleep(Duration::from_millis(1));
                let passed: u64 = shown(&log).into_iter().flatten().sum();
                let output = committed_in(&log, "out", 0).len() as u64;
                assert!(passed <= output, "conservation: {passed} are passed and {output} committed");
                looks.fetch_add(u64::from(passed > 0), Ordering::SeqCst);
            }
            let death = died.load(Ordering::SeqCst);
            let due = deaths.get(death).is_some_and(|at| n >= *at);
            let dies = || died.compare_exchange(death, death + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            assert!(!due || !dies(), "injected");
            text(record)
        });
        records.sink("out", job.log().write("out"));
        Ok(())
    };
    (build, looked)
}

#[test]
fn what_is_shown_is_never_ahead_of_what_is_committed_and_ends_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let (build, looks) = copy(&[1_500, 4_001, 7_000], true);
    let report = run(build.clone(), &options(dir.path(), Guarantee::ExactlyOnce), &Control::new()).unwrap();
    report.assert_balanced();
    assert!(report.failures.iter().all(|failure| failure.contains("injected")), "{:?}", report.failures);
    assert!(looks.load(Ordering::SeqCst) > 0, "it was looked at a group that had passed something");
    let log = open_log(&dir.path().join("log"));
    assert_eq!(shown(&log), ends());
    assert_eq!(copied(&log), (0..RECORDS).collect::<Vec<_>>());
    let offsets = log.log().unwrap().group_offsets(GROUP).unwrap();
    assert!(offsets.pending.is_empty() && offsets.offsets.values().all(|o| o.metadata.starts_with("checkpoint ")));
}

#[test]
fn a_job_whose_output_is_visible_at_once_shows_what_its_checkpoints_hold() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let (build, _) = copy(&[], true);
    run(build, &options(dir.path(), Guarantee::AtLeastOnce), &Control::new()).unwrap().assert_balanced();
    let log = open_log(&dir.path().join("log"));
    assert_eq!(shown(&log), ends());
}

#[test]
fn where_a_job_goes_on_does_not_depend_on_what_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    for _ in 0..2 {
        // One death in each life: the other worker may see more records before it hears of it.
        let (build, _) = copy(&[1_500], false);
        let options = Options { restarts_max: 0, ..options(dir.path(), Guarantee::ExactlyOnce) };
        run(build, &options, &Control::new()).expect_err("it dies");
        // Somebody resets the group: to the beginning here, to the end there, and forgets one.
        let log = open_log(&dir.path().join("log"));
        let raw = log.log().unwrap();
        let topic = raw.topic("in").unwrap().id;
        let reset = [(0, 0), (1, RECORDS / u64::from(PARTITIONS))];
        raw.delete_group(GROUP).unwrap();
        raw.commit_offsets(GROUP, reset.map(|(p, offset)| (TopicPartition::new(topic, p), Offset(offset)))).unwrap();
    }
    let (build, _) = copy(&[], false);
    run(build, &options(dir.path(), Guarantee::ExactlyOnce), &Control::new()).unwrap().assert_balanced();
    let log = open_log(&dir.path().join("log"));
    assert_eq!(copied(&log), (0..RECORDS).collect::<Vec<_>>());
    assert_eq!(shown(&log), ends());
}

#[test]
fn what_has_not_moved_is_not_written_again_and_a_new_attempt_says_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let log = open_log(&dir.path().join("log"));
    let raw = log.log().unwrap().clone();
    let (topic, follow) = (raw.topic("in").unwrap().id, log.read("in").group(GROUP).follow().unwrap());
    let group = begin(&log, 1);
    let split = |partition: u32, records: usize| {
        let name = partition.to_string();
        let mut reader = log.read("in").open(&name, None, Waker::noop()).unwrap();
        if records > 0 {
            reader.read(&mut vec![], records).unwrap();
        }
        SplitState { split: name, position: Some(reader.position()), exhausted: false }
    };
    let mark = |checkpoint, moved| follow.mark(CheckpointId(checkpoint), &[split(0, moved), split(1, 0)]).unwrap();
    let told =
        |at: u32| raw.group_offsets(GROUP).unwrap().offsets.get(&TopicPartition::new(topic, at)).map(|o| o.offset.0);
    group.commit_and_tell(&[], &[mark(1, 0)]).unwrap();
    assert_eq!((told(0), told(1), told(2)), (Some(0), Some(0), None));
    raw.commit_offsets(GROUP, [(TopicPartition::new(topic, 1), Offset(99))]).unwrap();
    group.commit_and_tell(&[], &[mark(2, 7)]).unwrap();
    assert_eq!((told(0), told(1)), (Some(7), Some(99)), "partition 1 has not moved, so nothing was written of it");
    let newer = begin(&log, 2);
    newer.commit_and_tell(&[], &[mark(3, 7)]).unwrap();
    assert_eq!((told(0), told(1)), (Some(7), Some(0)), "a new attempt may stand elsewhere");
    assert!(group.commit_and_tell(&[], &[b"\x09".to_vec()]).is_err(), "a mark of another format");
}

#[test]
fn a_group_needs_a_name_that_groups_can_have() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let log = open_log(&dir.path().join("log"));
    for name in [String::new(), "x".repeat(250)] {
        let refused = log.read("in").group(name).splits();
        let error: SourceError = refused.expect_err("no name of a group");
        assert!(error.fatal && error.reason.contains("249"), "{error}");
    }
    assert!(log.read("in").group("x".repeat(249)).splits().is_ok());
}
