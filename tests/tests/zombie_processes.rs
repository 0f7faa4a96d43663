//! Zombies as real processes: a job is stopped with SIGSTOP wherever it is, another process goes on in its place and finishes, and
//! then the first one is let go on. It must end as fenced, and nothing of what it does afterwards may be seen (I-7).
//!
//! The job reads made records and writes files, so that nothing but fencing stands between the two: no lock keeps the second
//! process out, as that of the log would.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests look at the real file system and start real processes"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cutwater::Exit;
use cutwater::connectors::files::files;
use cutwater::connectors::generator::generate;
use cutwater::prelude::*;
use cutwater_platform::SplitMix;
use rustix::process::{Pid, Signal, kill_process};

const RECORDS: u64 = 30_000;
const KEYS: u64 = 7;
/// Names the directory to the child; the test that is the child does nothing without it.
const DIR: &str = "CUTWATER_ZOMBIE_DIR";
/// So many processes are stopped and overtaken, when not as many as usual.
const ROUNDS: &str = "CUTWATER_ZOMBIES";
const PATIENCE: Duration = Duration::from_secs(120);

fn job(dir: &Path) -> Result<Report, RunError> {
    let out = dir.join("out");
    let build = move |job: &Job| {
        let numbers = job.source("numbers", generate(job, RECORDS, |n| n).in_splits(2).per_second(20_000));
        let counts = numbers.key_by(|n| n % KEYS).count("counts");
        counts.map(|(key, count)| format!("{key} {count}")).sink("rows", files(job, &out));
        Ok(())
    };
    let options = Options {
        workers: 2,
        pin: false,
        guarantee: Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(10))),
        ..Options::new("zombie", dir.join("data"))
    };
    cutwater::run_with(build, &options, &Control::new())
}

/// Not a test of its own: the job as a process, for the test below.
#[test]
fn the_job_as_a_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let code = match job(Path::new(&dir)) {
        Ok(report) => {
            report.assert_balanced();
            assert!(report.finished);
            Exit::Done
        }
        Err(error) => {
            eprintln!("{error}");
            Exit::of(&error)
        }
    };
    std::process::exit(code as i32);
}

fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test's program"));
    command.args(["--exact", "the_job_as_a_process", "--nocapture"]).env(DIR, dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts")
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id")).expect("not 0");
    kill_process(pid, signal).expect("our own child");
}

fn wait(child: &mut Child, what: &str) -> ExitStatus {
    let since = Instant::now();
    loop {
        match child.try_wait().expect("our own child") {
            Some(status) => return status,
            None if since.elapsed() > PATIENCE => {
                let _ = child.kill();
                panic!("{what} doesn't end");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The parts that are shown, with their bytes.
fn shown(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut parts = BTreeMap::new();
    for checkpoint in std::fs::read_dir(dir.join("out")).into_iter().flatten().map(|e| e.expect("readable").path()) {
        if checkpoint.file_name().is_some_and(|name| name.to_string_lossy().starts_with("checkpoint-")) {
            for part in std::fs::read_dir(checkpoint).expect("readable").map(|e| e.expect("readable").path()) {
                let text = std::fs::read_to_string(&part).expect("text");
                parts.insert(part, text);
            }
        }
    }
    parts
}

fn assert_exact(parts: &BTreeMap<PathBuf, String>, story: &str) {
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for row in parts.values().flat_map(|text| text.lines()) {
        let (key, count) = row.split_once(' ').expect("two numbers");
        counts.entry(key.parse().expect("a key")).or_default().push(count.parse().expect("a count"));
    }
    assert_eq!(counts.len() as u64, KEYS, "{story}");
    for (key, mut counts) in counts {
        counts.sort_unstable();
        let total = (RECORDS - key).div_ceil(KEYS);
        assert!(counts == (1..=total).collect::<Vec<_>>(), "{story}: key {key} has {} of {total} counts", counts.len());
    }
}

#[test]
fn a_process_that_is_stopped_and_overtaken_is_refused_when_it_comes_back() {
    let mut random = SplitMix::new(23);
    let mut fenced = 0;
    let rounds = std::env::var(ROUNDS).map_or(4, |rounds| rounds.parse::<u32>().expect("a number of rounds"));
    for round in 0..rounds {
        let dir = tempfile::tempdir().expect("a directory");
        let mut old = start(dir.path());
        let since = Instant::now();
        while shown(dir.path()).is_empty() {
            assert!(since.elapsed() < PATIENCE, "no checkpoint is ever shown");
            assert!(old.try_wait().expect("our own child").is_none(), "it ended before it could be stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Anywhere within a few checkpoints.
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        signal(&old, Signal::STOP);
        let story = format!("round {round}, stopped with {} parts shown", shown(dir.path()).len());

        let status = wait(&mut start(dir.path()), "the process that took over");
        assert_eq!(status.code(), Some(Exit::Done as i32), "{story}: the process that took over");
        let finished = shown(dir.path());
        assert_exact(&finished, &story);

        signal(&old, Signal::CONT);
        let status = wait(&mut old, "the process that came back");
        assert_eq!(status.code(), Some(Exit::Conflict as i32), "{story}: the process that came back ended as {status}");
        fenced += 1;
        assert!(shown(dir.path()) == finished, "{story}: it changed what is shown");
    }
    assert_eq!(fenced, rounds);
}
