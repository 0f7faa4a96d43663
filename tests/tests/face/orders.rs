//! Orders to a running job: savepoints, a stop, a drain; and what becomes of them when the job or their giver dies.

use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStderr};
use std::time::{Duration, Instant};

use super::{PATIENCE, Ran, command, first_line, ran, temporary, text, wait_for_checkpoint};

/// How many files the orders of a job have left.
fn orders_left(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("control")).expect("readable").count()
}

/// Whether an order is there whole.
fn ordered(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir.join("control")).into_iter().flatten();
    entries.filter_map(Result::ok).any(|entry| entry.path().extension().is_some_and(|kind| kind == "order"))
}

/// A job in `dir` that has taken a checkpoint; it kills itself at `crash_at` if that is one.
fn started(dir: &Path, crash_at: &str, args: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut job = command("count-forever", args);
    let mut child = job.env("CUTWATER_CRASH_AT", crash_at).spawn().expect("a process starts");
    let err = first_line(&mut child);
    wait_for_checkpoint(dir, &mut child);
    (child, err)
}

/// The signal or code with which a process ends, within our patience.
fn ended(child: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status.code();
        }
        assert!(since.elapsed() < PATIENCE, "the process doesn't end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_running_job_takes_a_savepoint_stops_with_another_goes_on_from_it_and_drains() {
    let dir = temporary();
    let args = ["--dir", text(dir.path()), "--interval", "20ms"];
    let start = |more: &[&str]| started(dir.path(), "", &[&args[..], more].concat());
    let order = |more: &[&str]| ran("count-forever", &[&args[..], more].concat());

    let (mut job, _err) = start(&[]);
    let live = order(&["--savepoint", "live"]);
    assert!(live.code == Some(0) && live.out[0].contains("savepoints/live: savepoint of checkpoint"), "{live:?}");
    assert!(job.try_wait().expect("our child").is_none(), "it goes on");
    let taken = order(&["--savepoint", "live"]);
    assert!(taken.code == Some(1) && taken.err.contains("choose another folder"), "{taken:?}");
    let end = order(&["--savepoint", "end", "--stop"]);
    assert!(end.code == Some(0) && end.out[0].contains("savepoints/end"), "{end:?}");
    assert_eq!(job.wait().expect("our child").code(), Some(0));
    assert_eq!(orders_left(dir.path()), 0, "all is answered");

    let back = order(&["--restore", "live"]);
    assert!(back.code == Some(4) && back.err.contains("forks the timeline"), "{back:?}");
    let (mut job, _err) = start(&["--restore", "end", "--workers", "3"]);
    let drained = order(&["--drain"]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert_eq!(job.wait().expect("our child").code(), Some(0));
    let again = order(&[]);
    assert!(again.code == Some(0) && again.err.contains("had finished before"), "{again:?}");
}

#[test]
fn an_order_that_a_job_dies_with_is_carried_out_when_the_job_is_run_again() {
    let dir = temporary();
    let args = ["--dir", text(dir.path()), "--interval", "20ms"];
    let (mut job, _err) = started(dir.path(), "control.taken", &args);
    let giver = command("count-forever", &[&args[..], &["--savepoint", "end", "--stop"]].concat()).spawn();
    let giver = giver.expect("a process starts");
    assert_eq!(ended(&mut job), None, "killed by itself");
    assert_eq!(orders_left(dir.path()), 2, "the order and the mark that it was taken");

    let (mut job, _err) = started(dir.path(), "", &args);
    let told = Ran::from(giver.wait_with_output().expect("our child"));
    assert!(told.code == Some(0) && told.out[0].contains("savepoints/end: savepoint of checkpoint"), "{told:?}");
    assert_eq!(ended(&mut job), Some(0), "stopped as ordered");
    assert_eq!(orders_left(dir.path()), 0, "all is answered");
}

#[test]
fn an_order_that_was_answered_is_not_carried_out_again_whoever_died() {
    for giver_dies in [false, true] {
        let dir = temporary();
        let args = ["--dir", text(dir.path()), "--interval", "20ms"];
        let (mut job, _err) = started(dir.path(), "control.answered", &args);
        let giver = command("count-forever", &[&args[..], &["--savepoint", "one"]].concat()).spawn();
        let mut giver = giver.expect("a process starts");
        if giver_dies {
            // It has given its order and hears nothing of the answer.
            while !ordered(dir.path()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            giver.kill().expect("our child");
        }
        let told = Ran::from(giver.wait_with_output().expect("our child"));
        assert_eq!(told.code, (!giver_dies).then_some(0), "the answer was there: {told:?}");
        assert_eq!(ended(&mut job), None, "killed by itself");
        if !giver_dies {
            assert_eq!(orders_left(dir.path()), 0, "its reader has put all of it away");
        }

        let (mut job, _err) = started(dir.path(), "", &args);
        let end = ran("count-forever", &[&args[..], &["--stop"]].concat());
        assert_eq!(end.code, Some(0), "{end:?}");
        assert_eq!(ended(&mut job), Some(0));
        let left = usize::from(giver_dies);
        assert_eq!(orders_left(dir.path()), left, "nothing but an answer that nobody reads");
        assert!(dir.path().join("savepoints/one/savepoint").exists());
    }
}
