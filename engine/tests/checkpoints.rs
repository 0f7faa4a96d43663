//! Checkpoints as one sees them from outside: their history, their time-outs, their pace.

mod memory;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Limits, Options, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::{Job, Untimed};
use cutwater_engine::observe::{CheckpointPhase, CheckpointRecord, CheckpointState, Control, Phase, Stage};
use cutwater_engine::worker::run;

use memory::{Counting, MemoryLog, Numbers};

const KEYS: u64 = 31;

/// Counts numbers modulo [`KEYS`]; the stage before the exchange sleeps for `slow` once, when it meets a number.
fn job(
    log: &Arc<MemoryLog>,
    numbers: u64,
    slow: fn(u64) -> Duration,
) -> impl Fn(&Job) -> Result<(), BuildError> + use<> {
    let log = log.clone();
    move |job| {
        job.source("numbers", Numbers { splits: 2, per_split: numbers / 2 })
            .stage::<u64, Untimed>("pace", move |records, _| {
                let how_long = records.iter().map(|n| slow(*n)).max().unwrap_or_default();
                if !how_long.is_zero() {
                    sleep(how_long);
                }
                records
            })
            .keyed(move |n| (n % KEYS, ()))
            .operator("count", "count", 1, |_| Ok(Box::new(Counting::new())))
            .stream::<(u64, u64), Untimed>(0)
            .sink("out", log.sink());
        Ok(())
    }
}

fn sleep(how_long: Duration) {
    cutwater_platform::Clock::sleep(&cutwater_platform::SystemClock::new(), how_long);
}

fn options(dir: &std::path::Path, workers: usize, snapshots: Snapshots) -> Options {
    let mut options = Options::new("test", dir);
    options.workers = workers;
    options.guarantee = Guarantee::ExactlyOnce(snapshots);
    options.limits.batch_records = 16;
    options.limits.channel_records = 64;
    options.limits.batches_per_step = 1;
    options
}

fn assert_exactly_once(log: &MemoryLog, numbers: u64) {
    let visible = log.committed();
    assert_eq!(visible.len() as u64, numbers);
    let mut next = vec![1; KEYS as usize];
    for (key, count) in visible {
        assert_eq!(count, next[key as usize], "key {key}");
        next[key as usize] += 1;
    }
    assert_eq!(log.undecided(), 0, "nothing is left prepared");
}

const FAST: fn(u64) -> Duration = |_| Duration::ZERO;

#[test]
fn the_last_checkpoints_are_remembered_with_every_phase_and_what_they_wrote() {
    let (dir, log) = (tempfile::tempdir().expect("a directory"), MemoryLog::new());
    let snapshots = Snapshots { history: 5, ..Snapshots::every(Duration::from_millis(2)) };
    let report =
        run(job(&log, 6_000, |_| Duration::from_micros(300)), &options(dir.path(), 2, snapshots), &Control::new())
            .expect("it runs");
    report.assert_balanced();
    assert_exactly_once(&log, 6_000);
    assert!(report.committed > 5 && report.history.len() == 5, "{report}");
    let numbers: Vec<u64> = report.history.iter().map(|record| record.checkpoint.0).collect();
    let last = report.checkpoint.0;
    assert_eq!(numbers, (last - 4..=last).collect::<Vec<_>>());
    for record in &report.history {
        use CheckpointPhase::*;
        let phases: Vec<CheckpointPhase> = record.phases.iter().map(|p| p.phase).collect();
        assert_eq!(phases, [Barrier, Alignment, Seal, Encode, Write, Publish, Commit], "{record}");
        assert_eq!(record.state, CheckpointState::Committed);
        assert_eq!((record.attempt, record.waited_for.len()), (report.attempt, 0));
        let whole = record.took.expect("it is over");
        assert!(record.phases.iter().all(|p| p.took <= whole), "{record}");
        assert!(record.phases[..5].iter().all(|p| p.by.is_some()) && record.phases[5].by.is_none(), "{record}");
        assert!(record.triggered_ms > 1_700_000_000_000, "{record}");
    }
    assert!(report.history.iter().any(|r| r.files > 0 && r.bytes > 0), "{report}");
    assert!(report.to_string().contains("slowest     checkpoint"), "{report}");
}

#[test]
fn a_checkpoint_that_takes_too_long_is_declined_names_whom_it_waited_for_and_loses_nothing() {
    let (dir, log) = (tempfile::tempdir().expect("a directory"), MemoryLog::new());
    // Odd numbers are read by worker 1.
    let slow = |n| if n % 1_000 == 1 { Duration::from_millis(400) } else { Duration::from_micros(50) };
    let snapshots = Snapshots {
        timeout: Duration::from_millis(150),
        declined_max: 100,
        ..Snapshots::every(Duration::from_millis(30))
    };
    let report = run(job(&log, 6_000, slow), &options(dir.path(), 2, snapshots), &Control::new()).expect("it runs");
    report.assert_balanced();
    assert_exactly_once(&log, 6_000);
    assert!(report.failures.is_empty() && report.declined >= 1, "{report}");
    let late: Vec<&CheckpointRecord> = report.history.iter().filter(|r| !r.waited_for.is_empty()).collect();
    for record in &late {
        let why = "not complete after 150 ms";
        assert!(matches!(&record.state, CheckpointState::Declined(text) if text.contains(why)), "{record}");
    }
    // Worker 1 was asleep, whatever it had come to by then; the others wait for its barrier or for room.
    let asleep = |r: &&CheckpointRecord| {
        let stages = r.waited_for.iter().filter(|w| w.instance.worker == 1).map(|w| &w.stage);
        stages.into_iter().any(|stage| matches!(stage, Stage::NoBarrier | Stage::Aligning(_) | Stage::Reporting))
    };
    assert!(late.iter().any(asleep), "{late:#?}");
}

#[test]
fn a_stuck_instance_ends_the_attempt_after_as_many_time_outs_as_are_tolerated_and_is_named() {
    let (dir, log) = (tempfile::tempdir().expect("a directory"), MemoryLog::new());
    let slow = |n| if n == 1_001 { Duration::from_millis(800) } else { Duration::from_micros(50) };
    let snapshots =
        Snapshots { timeout: Duration::from_millis(80), declined_max: 3, ..Snapshots::every(Duration::from_millis(5)) };
    let mut stuck = options(dir.path(), 2, snapshots);
    stuck.restarts_max = 0;
    let error = run(job(&log, 6_000, slow), &stuck, &Control::new()).expect_err("it is stuck for ten time-outs");
    assert!(matches!(error, RunError::GaveUp { attempts: 1, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("3 checkpoints in a row were declined") && text.contains("on worker 1"), "{text}");
    stuck.guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(5)));
    let report = run(job(&log, 6_000, FAST), &stuck, &Control::new()).expect("it goes on");
    report.assert_balanced();
    assert_exactly_once(&log, 6_000);
}

#[test]
fn several_checkpoints_may_be_under_way_and_the_output_stays_exact() {
    let (dir, log) = (tempfile::tempdir().expect("a directory"), MemoryLog::new());
    let snapshots = Snapshots { in_flight_max: 3, uncommitted_max: 4, ..Snapshots::every(Duration::from_millis(1)) };
    let control = Control::new();
    let seen = control.clone();
    let watcher = std::thread::Builder::new().spawn(move || {
        let mut most = 0;
        while seen.seen().phase != Phase::Finished {
            let in_flight = |r: &&_| matches!(r, CheckpointRecord { state: CheckpointState::InFlight, .. });
            most = most.max(seen.checkpoints().iter().filter(in_flight).count());
            sleep(Duration::from_micros(500));
        }
        most
    });
    // Worker 1 is slow, so that barriers wait for it.
    let slow = |n| if n % 2 == 1 { Duration::from_millis(4) } else { Duration::ZERO };
    let report = run(job(&log, 3_000, slow), &options(dir.path(), 2, snapshots), &control).expect("it runs");
    report.assert_balanced();
    assert_exactly_once(&log, 3_000);
    let most = watcher.expect("a thread").join().expect("no panic");
    assert!((2..=3).contains(&most), "{most} were in flight at a time");
}

#[test]
fn after_the_end_of_a_checkpoint_the_next_one_waits_for_the_pause() {
    let (dir, log) = (tempfile::tempdir().expect("a directory"), MemoryLog::new());
    let pause = Duration::from_millis(40);
    let snapshots = Snapshots { pause, ..Snapshots::every(Duration::from_millis(1)) };
    let report =
        run(job(&log, 6_000, |_| Duration::from_micros(800)), &options(dir.path(), 2, snapshots), &Control::new())
            .expect("it runs");
    assert_exactly_once(&log, 6_000);
    // The last one is started because nothing is left to read, whatever the pause.
    let starts: Vec<i64> = report.history.iter().map(|r| r.triggered_ms).collect();
    let gaps: Vec<i64> = starts[..starts.len() - 1].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 2 && gaps.iter().all(|gap| *gap >= 39), "{gaps:?}");
}

#[test]
fn settings_that_contradict_each_other_are_refused_with_what_to_change() {
    let (dir, log) = (tempfile::tempdir().expect("a directory"), MemoryLog::new());
    let default = Snapshots::default();
    for (snapshots, text) in [
        (Snapshots { in_flight_max: 0, ..default }, "at least one checkpoint may be in flight"),
        (Snapshots { in_flight_max: 4, ..default }, "raise uncommitted_max, or lower in_flight_max"),
        (Snapshots { in_flight_max: 2, pause: Duration::from_millis(1), ..default }, "leave out the pause"),
        (Snapshots { timeout: Duration::ZERO, ..default }, "the time-out of checkpoints must be above 0"),
        (Snapshots { declined_max: 0, ..default }, "declined_max must be 1 or more"),
    ] {
        let error = run(job(&log, 10, FAST), &options(dir.path(), 1, snapshots), &Control::new());
        let error = error.expect_err("a contradiction");
        assert!(matches!(&error, RunError::Options(found) if found.contains(text)), "{error}");
    }
    let fitting = options(dir.path(), 1, default);
    let narrow = Limits { channel_records: Limits::default().batch_records, ..Limits::default() };
    for (options, text) in [
        (Options { limits: narrow, ..fitting.clone() }, "raise channel_records, or lower batch_records"),
        (Options { dir: PathBuf::new(), ..fitting }, "no data directory is given"),
    ] {
        let error = run(job(&log, 10, FAST), &options, &Control::new()).expect_err("a contradiction");
        assert!(matches!(&error, RunError::Options(found) if found.contains(text)), "{error}");
    }
}
