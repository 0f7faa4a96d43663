//! Whole jobs on real threads over a directory: straight, with panics, with other numbers of workers, stopped and resumed.

mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, Phase, Seen};
use cutwater_engine::worker::run;

use cutwater_testkit::SimDisk;
use memory::{Counting, MemoryLog, Numbers, refusing_state_files};

/// Counts numbers modulo `keys`, a running count per record, into a memory log. Panics when `panic_at` records have been
/// counted down.
fn job(
    log: &Arc<MemoryLog>,
    numbers: u64,
    keys: u64,
    fuse: &Arc<AtomicU64>,
) -> impl Fn(&Job) -> Result<(), BuildError> + use<> {
    let (log, fuse) = (log.clone(), fuse.clone());
    move |job| {
        let fuse = fuse.clone();
        job.source("numbers", Numbers { splits: 4, per_split: numbers / 4 })
            .stage::<u64, cutwater_engine::graph::Untimed>("fuse", move |records, _| {
                for _ in &records {
                    if fuse.fetch_sub(1, Ordering::SeqCst) == 1 {
                        panic!("the fuse burnt");
                    }
                }
                records
            })
            .keyed(move |n| (n % keys, ()))
            .operator("count", "count", 1, |_| Ok(Box::new(Counting::new())))
            .stream::<(u64, u64), cutwater_engine::graph::Untimed>(0)
            .sink("out", log.sink());
        Ok(())
    }
}

fn options(dir: &std::path::Path, workers: usize) -> Options {
    let mut options = Options::new("test", dir);
    options.workers = workers;
    options.guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(3)));
    options.limits.batch_records = 64;
    options.limits.channel_records = 256;
    options
}

/// Every key's counts must be 1, 2, 3 .. in this order: a loss or a repeat anywhere shows.
fn assert_exactly_once(log: &MemoryLog, numbers: u64, keys: u64) {
    let visible = log.committed();
    assert_eq!(visible.len() as u64, numbers);
    let mut next = vec![1; keys as usize];
    for (key, count) in visible {
        assert_eq!(count, next[key as usize], "key {key}");
        next[key as usize] += 1;
    }
    assert_eq!(log.undecided(), 0, "nothing is left prepared");
}

#[test]
fn a_straight_run_counts_every_record_once_with_any_number_of_workers() {
    for workers in [1, 2, 3] {
        let dir = tempfile::tempdir().expect("a directory");
        let log = MemoryLog::new();
        let fuse = Arc::new(AtomicU64::new(u64::MAX));
        let report =
            run(job(&log, 20_000, 37, &fuse), &options(dir.path(), workers), &Control::new()).expect("it runs");
        report.assert_balanced();
        assert!(report.finished && report.failures.is_empty());
        assert_exactly_once(&log, 20_000, 37);
    }
}

#[test]
fn frames_may_travel_as_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = MemoryLog::new();
    let fuse = Arc::new(AtomicU64::new(9_000));
    let mut options = options(dir.path(), 2);
    options.bytes_between_workers = true;
    let report = run(job(&log, 20_000, 37, &fuse), &options, &Control::new()).expect("it recovers");
    report.assert_balanced();
    assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
    assert_exactly_once(&log, 20_000, 37);
}

#[test]
fn after_a_panic_the_job_goes_back_to_the_last_checkpoint_and_nothing_is_lost_or_repeated() {
    for seed in 1..=6u64 {
        let dir = tempfile::tempdir().expect("a directory");
        let log = MemoryLog::new();
        let fuse = Arc::new(AtomicU64::new(seed * 7_000));
        let workers = (seed % 3 + 1) as usize;
        let report =
            run(job(&log, 60_000, 101, &fuse), &options(dir.path(), workers), &Control::new()).expect("it recovers");
        report.assert_balanced();
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
        assert_exactly_once(&log, 60_000, 101);
    }
}

#[test]
fn a_stopped_job_goes_on_with_another_number_of_workers() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = MemoryLog::new();
    let fuse = Arc::new(AtomicU64::new(u64::MAX));
    let mut finished = false;
    for workers in [1, 2, 3, 8, 2, 1, 1, 1] {
        let control = Control::new();
        let watch = control.clone();
        let stopper = std::thread::Builder::new().spawn(move || {
            let before = watch.seen().committed;
            while watch.seen().committed.0 < before.0 + 3 {
                std::thread::yield_now();
                if watch.seen().phase == Phase::Finished {
                    return;
                }
            }
            watch.stop();
        });
        let report = run(job(&log, 400_000, 53, &fuse), &options(dir.path(), workers), &control).expect("it runs");
        stopper.expect("a thread").join().expect("no panic");
        report.assert_balanced();
        finished = report.finished;
        if finished {
            break;
        }
    }
    if !finished {
        let report = run(job(&log, 400_000, 53, &fuse), &options(dir.path(), 2), &Control::new()).expect("it runs");
        report.assert_balanced();
        assert!(report.finished);
    }
    assert_exactly_once(&log, 400_000, 53);

    let again = run(job(&log, 400_000, 53, &fuse), &options(dir.path(), 2), &Control::new()).expect("it reports");
    assert!(again.already_finished && again.finished);
    again.assert_balanced();
    assert_exactly_once(&log, 400_000, 53);
}

/// The job on a simulated disk, so that the disk can be filled up.
fn on(disk: &SimDisk, declined_max: u32) -> Options {
    let mut options = options(std::path::Path::new("data"), 2);
    options.platform.files = Arc::new(disk.clone());
    options.guarantee =
        Guarantee::ExactlyOnce(Snapshots { declined_max, ..Snapshots::every(Duration::from_millis(2)) });
    options.restarts_max = 0;
    options
}

/// Does `when` as soon as `seen` says so; gives up when the job has ended.
fn watch(control: &Control, until: impl Fn(&Seen) -> bool + Send + 'static, when: impl FnOnce() + Send + 'static) {
    let control = control.clone();
    std::thread::Builder::new()
        .spawn(move || {
            while !until(&control.seen()) {
                std::thread::yield_now();
                if control.seen().phase == Phase::Finished {
                    return;
                }
            }
            when();
        })
        .expect("a thread");
}

#[test]
fn declined_checkpoints_lose_nothing_once_one_succeeds_again() {
    let (log, control, disk) = (MemoryLog::new(), Control::new(), SimDisk::new());
    let files = refusing_state_files(disk.clone());
    let (begin, end) = (files.clone(), files.clone());
    watch(&control, |seen| seen.committed.0 >= 2, move || begin.refuse(u64::MAX));
    watch(&control, |seen| seen.declined >= 3, move || end.refuse(0));
    let mut options = on(&disk, u32::MAX);
    options.platform.files = Arc::new(files);
    let fuse = Arc::new(AtomicU64::new(u64::MAX));
    let report = run(job(&log, 1_000_000, 53, &fuse), &options, &control).expect("it goes on");
    report.assert_balanced();
    assert!(report.declined >= 3, "state files were refused for a while: {report}");
    assert!(report.failures.is_empty(), "a declined checkpoint ends nothing: {:?}", report.failures);
    assert_exactly_once(&log, 1_000_000, 53);
}

#[test]
fn an_attempt_that_cannot_take_checkpoints_any_more_says_so_and_can_be_run_again() {
    let (log, control, disk) = (MemoryLog::new(), Control::new(), SimDisk::new());
    let files = refusing_state_files(disk.clone());
    let begin = files.clone();
    watch(&control, |seen| seen.committed.0 >= 2, move || begin.refuse(u64::MAX));
    let mut options = on(&disk, 4);
    options.platform.files = Arc::new(files);
    options.wait_for_space = Duration::ZERO;
    let fuse = Arc::new(AtomicU64::new(u64::MAX));
    let failed = run(job(&log, 1_000_000, 53, &fuse), &options, &control).expect_err("nothing can be written");
    assert!(failed.to_string().contains("4 checkpoints in a row were declined"), "{failed}");
    let report = run(job(&log, 1_000_000, 53, &fuse), &on(&disk, 4), &Control::new()).expect("now it can");
    report.assert_balanced();
    assert_exactly_once(&log, 1_000_000, 53);
}

#[test]
fn a_full_disk_ends_the_run_with_the_reason_and_the_next_one_goes_on() {
    let (log, control, disk) = (MemoryLog::new(), Control::new(), SimDisk::new());
    let full = disk.clone();
    watch(&control, |seen| seen.committed.0 >= 2, move || full.set_capacity_bytes(0));
    let fuse = Arc::new(AtomicU64::new(u64::MAX));
    let mut options = on(&disk, 4);
    options.wait_for_space = Duration::ZERO;
    let failed = run(job(&log, 1_000_000, 53, &fuse), &options, &control).expect_err("the disk stays full");
    assert!(failed.to_string().contains("No space left"), "{failed}");
    disk.set_capacity_bytes(None);
    let report = run(job(&log, 1_000_000, 53, &fuse), &on(&disk, 4), &Control::new()).expect("there is room again");
    report.assert_balanced();
    assert_exactly_once(&log, 1_000_000, 53);
}

#[test]
fn the_same_checkpoint_restored_five_times_gives_the_same_output() {
    let (log, control, disk) = (MemoryLog::new(), Control::new(), SimDisk::new());
    let stop = control.clone();
    watch(&control, |seen| seen.committed.0 >= 4, move || stop.stop());
    let fuse = Arc::new(AtomicU64::new(u64::MAX));
    let report = run(job(&log, 400_000, 53, &fuse), &on(&disk, 4), &control).expect("it stops");
    assert!(!report.finished, "it was stopped in the middle");
    for workers in [1, 2, 3, 8, 2] {
        let (disk, log) = (disk.fork(), log.fork());
        let mut options = on(&disk, 4);
        options.workers = workers;
        let report = run(job(&log, 400_000, 53, &fuse), &options, &Control::new()).expect("it goes on");
        report.assert_balanced();
        assert_exactly_once(&log, 400_000, 53);
    }
}

#[test]
fn a_job_without_checkpoints_is_not_begun_twice_in_one_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let build = |job: &Job| {
        job.source("numbers", Numbers { splits: 2, per_split: 500 }).discard();
        Ok(())
    };
    let mut options = options(dir.path(), 2);
    options.guarantee = Guarantee::AtMostOnce;
    let report = run(build, &options, &Control::new()).expect("it runs");
    assert!(report.finished);
    let again = run(build, &options, &Control::new()).expect_err("its output would be written twice");
    assert!(matches!(again, RunError::Refused(_)) && again.to_string().contains("another directory"), "{again}");

    let dir = tempfile::tempdir().expect("a directory");
    options.dir = dir.path().to_path_buf();
    options.guarantee = Guarantee::exactly_once();
    run(build, &options, &Control::new()).expect("it runs");
    options.guarantee = Guarantee::AtMostOnce;
    let other = run(build, &options, &Control::new()).expect_err("it holds checkpoints");
    assert!(matches!(other, RunError::Refused(_)) && other.to_string().contains("holds checkpoints"), "{other}");
}

#[test]
fn another_job_in_the_same_directory_is_refused_and_nothing_is_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = MemoryLog::new();
    let fuse = Arc::new(AtomicU64::new(u64::MAX));
    run(job(&log, 4_000, 7, &fuse), &options(dir.path(), 1), &Control::new()).expect("it runs");
    let other = |job: &Job| {
        job.source("others", Numbers { splits: 1, per_split: 1 }).discard();
        Ok(())
    };
    let refused = run(other, &options(dir.path(), 1), &Control::new()).expect_err("another graph");
    assert!(matches!(refused, RunError::Incompatible(_)), "{refused}");
    assert!(refused.to_string().contains("another job graph"), "{refused}");
    let again = run(job(&log, 4_000, 7, &fuse), &options(dir.path(), 1), &Control::new()).expect("still there");
    assert!(again.already_finished);
}

#[test]
fn checkpoints_are_kept_by_number_and_by_age() {
    use cutwater_engine::snapshot::{FsStore, inspect};
    use cutwater_engine::worker::CHECKPOINTS;

    let there = |retained, retained_for| {
        let (log, disk) = (MemoryLog::new(), SimDisk::new());
        let fuse = Arc::new(AtomicU64::new(u64::MAX));
        let mut options = on(&disk, 2);
        let every = Snapshots::every(Duration::from_millis(3));
        options.guarantee = Guarantee::ExactlyOnce(Snapshots { retained, retained_for, ..every });
        let report = run(job(&log, 200_000, 53, &fuse), &options, &Control::new()).expect("it finishes");
        let store = FsStore::existing(options.platform.clone(), options.dir.join(CHECKPOINTS)).expect("a store");
        let seen = inspect(&store, true).expect("it can be looked at");
        assert!(seen.is_whole(), "{seen}");
        (seen.checkpoints.len() as u64, report.committed)
    };
    let (kept, taken) = there(2, Duration::ZERO);
    assert!(kept <= 3 && taken > 3, "{kept} of {taken} are left");
    let (kept, taken) = there(1, Duration::from_secs(3_600));
    assert_eq!(kept, taken, "none is an hour old");
}
