//! A worker that is stuck in user code when another one has failed: real processes, since it is the process that must end.
//!
//! This binary starts itself as the job: see `the_job`.

#![expect(clippy::disallowed_methods, reason = "tests start real processes and block real threads")]

mod memory;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cutwater_engine::config::{Guarantee, Options, STUCK_EXIT_CODE};
use cutwater_engine::error::BuildError;
use cutwater_engine::graph::{Job, Untimed};
use cutwater_engine::observe::Control;
use cutwater_engine::worker::run;

use memory::Numbers;

/// The data directory of the child.
const DIR: &str = "STUCK_TEST_DIR";
/// For how many milliseconds one worker of the child blocks.
const BLOCKS_MS: &str = "STUCK_TEST_BLOCKS_MS";
/// Which promise the child's job makes.
const AT_MOST_ONCE: &str = "STUCK_TEST_AT_MOST_ONCE";

/// How long the workers of the child may take to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Not a test but the job that the tests below start. It does nothing without its variables.
#[test]
fn the_job() {
    let (Ok(dir), Ok(blocks)) = (std::env::var(DIR), std::env::var(BLOCKS_MS)) else { return };
    let blocks = Duration::from_millis(blocks.parse().expect("a number"));
    let mut options = Options::new("stuck", dir);
    (options.workers, options.pin, options.leave_within) = (2, false, LEAVE_WITHIN);
    if std::env::var(AT_MOST_ONCE).is_ok() {
        options.guarantee = Guarantee::AtMostOnce;
    }
    let report = run(blocks_and_panics(blocks), &options, &Control::new()).expect("a second attempt finishes");
    assert_eq!(report.failures.len(), 1, "{report}");
}

/// In the first attempt the worker that reads 0 blocks, and once it does, the one that reads 1 panics.
fn blocks_and_panics(blocks: Duration) -> impl Fn(&Job) -> Result<(), BuildError> {
    let (blocked, panics) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    move |job| {
        let (blocked, panics) = (blocked.clone(), panics.clone());
        job.source("numbers", Numbers { splits: 2, per_split: 10 })
            .stage::<u64, Untimed>("user code", move |records, _| {
                for record in &records {
                    if *record == 0 && !blocked.swap(true, Ordering::SeqCst) {
                        std::thread::sleep(blocks);
                    }
                    while *record == 1 && !blocked.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    assert!(*record != 1 || panics.swap(0, Ordering::SeqCst) == 0, "one is right out");
                }
                records
            })
            .discard();
        Ok(())
    }
}

fn ran(dir: &Path, blocks: Duration, at_most_once: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "the_job", "--nocapture"]).env(DIR, dir).env(BLOCKS_MS, blocks.as_millis().to_string());
    if at_most_once {
        command.env(AT_MOST_ONCE, "1");
    }
    command.stdin(Stdio::null()).output().expect("a process starts")
}

#[test]
fn a_worker_that_never_leaves_ends_the_process_which_says_why_and_what_to_do() {
    for (at_most_once, next) in [
        (false, "Run the job again in the same directory: it goes on from its last checkpoint"),
        (true, "An at-most-once job can't go on: run it again in another directory"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let since = Instant::now();
        let output = ran(dir.path(), FOR_EVER, at_most_once);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(STUCK_EXIT_CODE), "{told}");
        assert!(since.elapsed() >= LEAVE_WITHIN, "it was given its time");
        for part in ["one is right out", "within 1s", "exit code 70", next, "Options::leave_within"] {
            assert!(told.contains(part), "{part:?} in {told}");
        }
    }
}

#[test]
fn a_worker_that_leaves_in_time_is_waited_for_and_the_job_starts_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = ran(dir.path(), LEAVE_WITHIN / 10, false);
    assert!(output.status.success(), "{output:?}");
}
