//! Savepoints: taken live, with a stop, with a drain; restored in the same directory and in others; struck at every step.

mod memory;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutwater_engine::config::{Compression, Guarantee, Options, RestoreFrom, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::{Job, Untimed};
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::snapshot::{Savepoint, SavepointError, SavepointRecord, SavepointTicket};
use cutwater_engine::worker::run;
use cutwater_platform::{Files, Platform};
use cutwater_testkit::{CrashAction, CrashCounts, SimDisk};

use memory::{Counting, MemoryLog, Numbers};

const KEYS: u64 = 31;
const NUMBERS: u64 = 12_000;

fn job(log: &Arc<MemoryLog>, numbers: u64) -> impl Fn(&Job) -> Result<(), BuildError> + use<> {
    let log = log.clone();
    move |job| {
        job.source("numbers", Numbers { splits: 4, per_split: numbers / 4 })
            .stage::<u64, Untimed>("pace", move |records, _| {
                sleep(Duration::from_micros(200));
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

fn options(disk: &SimDisk, dir: &str, workers: usize) -> Options {
    let mut options = Options::new("test", dir);
    options.workers = workers;
    options.restarts_max = 0;
    options.platform.files = Arc::new(disk.clone());
    options.guarantee =
        Guarantee::ExactlyOnce(Snapshots { deltas_max: 3, ..Snapshots::every(Duration::from_millis(3)) });
    options.limits.batch_records = 32;
    options.limits.channel_records = 64;
    options
}

fn from(options: Options, savepoint: &str, fork: bool) -> Options {
    Options { restore: Some(RestoreFrom { savepoint: savepoint.into(), fork }), ..options }
}

fn open(disk: &SimDisk, dir: &str) -> Result<Savepoint, SavepointError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    Savepoint::open(&files, Path::new(dir))
}

/// Every key's counts must be 1, 2, 3 .. in this order.
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

/// Runs the job and orders something of it once it has committed some checkpoints.
fn run_and_order(
    log: &Arc<MemoryLog>,
    options: &Options,
    order: impl FnOnce(&Control) -> SavepointTicket + Send + 'static,
) -> (Result<Report, RunError>, Result<SavepointRecord, String>) {
    let control = Control::new();
    let (hand, over) = (control.clone(), Arc::new(AtomicBool::new(false)));
    let ended = over.clone();
    let giver = std::thread::Builder::new().spawn(move || {
        let before = hand.seen().committed.0;
        while hand.seen().committed.0 < before + 4 && !ended.load(Ordering::SeqCst) {
            sleep(Duration::from_micros(200));
        }
        order(&hand).wait()
    });
    let result = run(job(log, NUMBERS), options, &control);
    over.store(true, Ordering::SeqCst);
    (result, giver.expect("a thread").join().expect("no panic"))
}

/// A job on two workers, stopped with a savepoint in "sp".
fn stopped() -> (SimDisk, Arc<MemoryLog>, SavepointRecord) {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    let (report, taken) = run_and_order(&log, &options(&disk, "data", 2), |c| c.stop_with_savepoint("sp", 7));
    let (report, taken) = (report.expect("it stops"), taken.expect("it is taken"));
    report.assert_balanced();
    assert!(!report.finished, "in the middle of its work");
    assert_eq!((taken.checkpoint, taken.job, taken.workers), (report.checkpoint, report.job, 2));
    assert_eq!(log.undecided(), 0, "all of it is committed");
    open(&disk, "sp").expect("a savepoint").verify().expect("every byte is right");
    (disk, log, taken)
}

#[test]
fn a_job_stopped_with_a_savepoint_goes_on_from_it_in_its_directory_and_in_others_with_any_number_of_workers() {
    let (disk, log, taken) = stopped();
    for workers in [1, 2, 3, 4] {
        let (disk, log) = (disk.fork(), log.fork());
        let report = run(job(&log, NUMBERS), &from(options(&disk, "data", workers), "sp", false), &Control::new());
        let report = report.expect("it goes on");
        report.assert_balanced();
        assert_eq!(report.job, taken.job, "the same owner");
        assert_exactly_once(&log, NUMBERS);
    }
    for workers in [1, 2, 3] {
        let (disk, log) = (disk.fork(), log.fork());
        let new = from(options(&disk, "other/place", workers), "sp", false);
        let report = run(job(&log, NUMBERS), &new, &Control::new()).expect("it goes on");
        report.assert_balanced();
        assert_ne!(report.job, taken.job, "a new owner");
        assert!(report.attempt > taken.attempt && report.checkpoint > taken.checkpoint, "numbers don't return");
        assert_exactly_once(&log, NUMBERS);
        let again = run(job(&log, NUMBERS), &new, &Control::new()).expect("the same command line");
        assert!(again.already_finished, "it was restored already");
    }
}

#[test]
fn a_savepoint_taken_live_holds_nobody_up_and_going_back_to_it_is_a_fork() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    let (report, taken) = run_and_order(&log, &options(&disk, "data", 2), |c| c.savepoint("sp", 1));
    let (report, taken) = (report.expect("it goes on"), taken.expect("it is taken"));
    assert!(report.finished && report.checkpoint > taken.checkpoint);
    assert_exactly_once(&log, NUMBERS);
    // By now its checkpoint has been retired; the savepoint hasn't.
    open(&disk, "sp").expect("a savepoint").verify().expect("every byte is right");

    let back = from(options(&disk, "data", 3), "sp", false);
    let refused = run(job(&log, NUMBERS), &back, &Control::new()).expect_err("its output is committed");
    let text = refused.to_string();
    assert!(matches!(refused, RunError::Refused(_)) && text.contains("forks the timeline"), "{text}");
    assert!(
        text.contains(&format!("going back to checkpoint {}", taken.checkpoint)) && text.contains("--fork"),
        "{text}"
    );
    let before = log.committed();
    assert!(run(job(&log, NUMBERS), &options(&disk, "data", 2), &Control::new()).expect("unchanged").already_finished);

    let report =
        run(job(&log, NUMBERS), &from(options(&disk, "data", 3), "sp", true), &Control::new()).expect("a fork");
    report.assert_balanced();
    assert!(report.finished && report.job == taken.job);
    // What was written after the savepoint is there twice, the rest once; the second time as the first.
    let all = log.committed();
    let (mut again, mut last) =
        (all[before.len()..].to_vec(), before[before.len() - (all.len() - before.len())..].to_vec());
    again.sort_unstable();
    last.sort_unstable();
    assert!(!again.is_empty() && again == last, "{} rows again", again.len());
    assert_eq!(log.undecided(), 0);
}

#[test]
fn a_drained_job_has_finished_and_so_has_one_that_is_restored_from_its_savepoint() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    let (report, taken) = run_and_order(&log, &options(&disk, "data", 2), |c| c.drain_with_savepoint("sp", 1));
    let (report, taken) = (report.expect("it ends"), taken.expect("it is taken"));
    report.assert_balanced();
    assert!(report.finished && taken.is_final && taken.checkpoint == report.checkpoint);
    let rows = log.committed().len() as u64;
    assert!(rows < NUMBERS, "it had more to read");
    assert_exactly_once(&log, rows);
    for dir in ["data", "other"] {
        let report = run(job(&log.fork(), NUMBERS), &from(options(&disk, dir, 1), "sp", false), &Control::new());
        assert!(report.expect("it reports").already_finished, "{dir}");
    }
    assert_exactly_once(&log, rows);
}

#[test]
fn what_is_no_savepoint_or_not_this_jobs_is_refused_and_a_folder_that_is_not_free_is_left_alone() {
    let (disk, log, _) = stopped();
    // Its commit group knows no jobs: another job's attempts would shut out this one's.
    let refused = |options: &Options| match run(job(&log.fork(), NUMBERS), options, &Control::new()) {
        Err(RunError::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    let text = refused(&from(options(&disk, "data", 1), "data", false));
    assert!(text.contains("data is not a savepoint") && text.contains("written last"), "{text}");
    let other = MemoryLog::new();
    run(job(&other, 400), &options(&disk, "others", 1), &Control::new()).expect("another job");
    let text = refused(&from(options(&disk, "others", 1), "sp", false));
    assert!(
        text.contains("others/checkpoints is the store of job") && text.contains("a directory of its own"),
        "{text}"
    );
    let mut at_most_once = from(options(&disk, "third", 1), "sp", false);
    at_most_once.guarantee = Guarantee::AtMostOnce;
    let error = run(job(&log, NUMBERS), &at_most_once, &Control::new()).expect_err("no checkpoints");
    assert!(error.to_string().contains("can't begin from a savepoint"), "{error}");

    for (dir, text) in [("sp", "holds a savepoint of checkpoint"), ("data", "isn't empty")] {
        let (disk, log) = (disk.fork(), log.fork());
        let (report, taken) = run_and_order(&log, &options(&disk, "data", 2), move |c| c.savepoint(dir, 8));
        assert!(report.expect("no failure of the job").finished);
        assert!(taken.as_ref().is_err_and(|why| why.contains(text)), "{taken:?}");
        assert_exactly_once(&log, NUMBERS);
    }
}

/// Flips a bit in, or takes a byte away from, a file; answers what undoes it.
fn damaged(disk: &SimDisk, path: &Path, at: u64, flips: bool) -> impl FnOnce() {
    match flips {
        true => disk.flip_bit(path, at, at as u8 % 8),
        false => disk.fail_reads_at(path, at),
    }
    let (disk, path) = (disk.clone(), path.to_path_buf());
    move || if flips { disk.flip_bit(&path, at, at as u8 % 8) } else { disk.heal() }
}

#[test]
fn damage_to_any_file_of_a_savepoint_is_told_before_a_job_begins_and_once_it_is_whole_again_it_serves() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (disk, log) = (SimDisk::new(), MemoryLog::new());
        let (report, taken) =
            run_and_order(&log, &packed(options(&disk, "data", 2), compression), |c| c.stop_with_savepoint("sp", 7));
        assert!(report.is_ok() && taken.is_ok(), "{compression:?}");
        let state = disk.read_dir(Path::new("sp/state")).expect("listed");
        let mut paths = vec![Path::new("sp/savepoint").to_path_buf(), Path::new("sp/manifest").to_path_buf()];
        paths.extend(state.iter().map(|file| Path::new("sp/state").join(&file.name)));
        assert!(paths.len() >= 4, "two workers have state: {paths:?}");
        // Format 3 is the packed one.
        let formats: Vec<u8> = paths[2..].iter().map(|path| disk.read(path, 1 << 20).expect("readable")[8]).collect();
        assert_eq!(formats.contains(&3), compression != Compression::None, "{compression:?}: {formats:?}");
        let mut other = 0;
        for path in paths {
            let len = disk.read(&path, 1 << 20).expect("readable").len() as u64;
            for (at, flips) in [(0, true), (len / 2, true), (len - 1, true), (len / 2, false)] {
                let undo = damaged(&disk, &path, at, flips);
                let story = format!("{compression:?}, byte {at} of {}, flipped {flips}", path.display());
                let looked = open(&disk, "sp").and_then(|savepoint| savepoint.verify());
                assert!(looked.is_err_and(|e| e.to_string().contains("sp")), "{story}");
                other += 1;
                let new = from(options(&disk, &format!("other-{other}"), 1), "sp", false);
                let refused = run(job(&log.fork(), NUMBERS), &new, &Control::new()).expect_err(&story).to_string();
                let name = path.file_name().expect("a file").to_string_lossy();
                assert!(refused.contains("sp/") || refused.contains(&*name), "{story}: {refused}");
                undo();
                // The same command line, and only where it is cheap.
                if at == 0 {
                    let log = log.fork();
                    run(job(&log, NUMBERS), &new, &Control::new()).unwrap_or_else(|e| panic!("{story}, mended: {e}"));
                    assert_exactly_once(&log, NUMBERS);
                }
            }
        }
    }
}

fn packed(mut options: Options, compression: Compression) -> Options {
    if let Guarantee::ExactlyOnce(snapshots) = &mut options.guarantee {
        snapshots.compression = compression;
    }
    options
}

#[test]
fn damage_to_the_record_of_where_a_job_came_from_is_told_by_name_or_changes_nothing() {
    let (disk, log, _) = stopped();
    let new = |disk: &SimDisk| from(options(disk, "other", 2), "sp", false);
    let (struck, crashes) = struck(new(&disk), &disk, "manifest.durable");
    run(job(&log, NUMBERS), &struck, &Control::new()).expect_err("the power is off");
    assert!(crashes.reached().contains_key("manifest.durable"));
    let (disk, path) = (disk.kill(), Path::new("other/checkpoints/origin"));
    let len = disk.read(path, 1 << 20).expect("it is there").len() as u64;
    for (at, flips) in [(0, true), (len / 2, true), (len - 1, true), (len / 2, false)] {
        let undo = damaged(&disk, path, at, flips);
        let refused =
            run(job(&log.fork(), NUMBERS), &new(&disk.fork()), &Control::new()).expect_err("damaged").to_string();
        assert!(refused.contains("origin"), "byte {at}, flipped {flips}: {refused}");
        // Without `restore` nobody asks where it came from.
        let (disk_2, log_2) = (disk.fork(), log.fork());
        run(job(&log_2, NUMBERS), &options(&disk_2, "other", 2), &Control::new()).expect("nobody asks");
        assert_exactly_once(&log_2, NUMBERS);
        undo();
    }
    run(job(&log, NUMBERS), &new(&disk), &Control::new()).expect("whole again");
    assert_exactly_once(&log, NUMBERS);
}

/// The options with a power switch that goes off when `point` is reached.
fn struck(mut options: Options, disk: &SimDisk, point: &str) -> (Options, CrashCounts) {
    let crashes = CrashCounts::new();
    crashes.arm(point, 1, CrashAction::PowerOff(disk.clone()));
    options.platform = Platform { crash: crashes.points(), ..options.platform };
    (options, crashes)
}

#[test]
fn struck_at_each_step_of_taking_one_it_is_there_whole_or_not_at_all_and_the_same_order_takes_it() {
    for point in ["savepoint.begun", "savepoint.file-copied", "savepoint.manifest-written", "savepoint.published"] {
        let (disk, log) = (SimDisk::new(), MemoryLog::new());
        let (options_struck, _) = struck(options(&disk, "data", 2), &disk, point);
        let (result, _) = run_and_order(&log, &options_struck, |c| c.stop_with_savepoint("sp", 7));
        // That there is no savepoint is no failure of a job that has nothing more to write.
        assert!(disk.is_off(), "{point}: {result:?}");
        let disk = disk.kill();
        match open(&disk, "sp") {
            Ok(savepoint) => {
                assert_eq!(point, "savepoint.published");
                savepoint.verify().expect("every byte is right");
            }
            Err(error) => assert!(matches!(error, SavepointError::NotOne { .. }), "{point}: {error}"),
        }
        let (report, taken) = run_and_order(&log, &options(&disk, "data", 3), |c| c.stop_with_savepoint("sp", 7));
        report.expect("it stops");
        taken.unwrap_or_else(|why| panic!("{point}: {why}"));
        open(&disk, "sp").expect("a savepoint").verify().expect("every byte is right");
    }
}

#[test]
fn struck_at_each_step_of_beginning_from_one_the_same_command_line_goes_on_exactly() {
    let (disk, log, _) = stopped();
    for point in ["restore.marked", "restore.files-copied", "restore.manifest-written", "restore.seeded"] {
        let (disk, log) = (disk.fork(), log.fork());
        let (new, crashes) = struck(from(options(&disk, "other", 3), "sp", false), &disk, point);
        run(job(&log, NUMBERS), &new, &Control::new()).expect_err("the power is off");
        assert!(crashes.reached().contains_key(point));
        let disk = disk.kill();
        let report = run(job(&log, NUMBERS), &from(options(&disk, "other", 1), "sp", false), &Control::new());
        report.unwrap_or_else(|e| panic!("{point}: {e}")).assert_balanced();
        assert_exactly_once(&log, NUMBERS);
    }

    // In the same directory, with its checkpoint retired, so that all of it must be put back.
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    let (report, taken) = run_and_order(&log, &options(&disk, "data", 2), |c| c.savepoint("sp", 1));
    assert!(report.expect("it goes on").finished && taken.is_ok());
    for point in ["restore.file-put-back", "restore.commit-put-back", "restore.manifest-put-back"] {
        let (disk, log) = (disk.fork(), log.fork());
        let (back, crashes) = struck(from(options(&disk, "data", 3), "sp", true), &disk, point);
        run(job(&log, NUMBERS), &back, &Control::new()).expect_err("the power is off");
        assert!(crashes.reached().contains_key(point));
        let disk = disk.kill();
        let unchanged = run(job(&log.fork(), NUMBERS), &options(&disk.fork(), "data", 2), &Control::new());
        assert!(unchanged.expect("what was put back does no harm").already_finished, "{point}");
        let forked = run(job(&log, NUMBERS), &from(options(&disk, "data", 2), "sp", true), &Control::new());
        let forked = forked.unwrap_or_else(|e| panic!("{point}: {e}"));
        forked.assert_balanced();
        assert!(forked.finished && log.committed().len() as u64 > NUMBERS);
    }
}
