//! From kill -9, and from a panic, to the first committed output, by phase, with a million keys of state or as many as are told.
//!
//! `cargo bench -p cutwater-benches --bench recovery [-- --kills N --keys N]`
//!
//! The job counts so many uniform keys and writes a sample of its counts to the log. A child process runs it; the parent
//! kills it with SIGKILL once the state is full and two checkpoints are committed, starts it again, and reads the phases from
//! what the new process says; the clock of *kill to first commit* is the parent's. Panics are measured within one process.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a measurement prints its figures")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutwater_benches::{UniformKeys, machine, spread, table};
use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::BuildError;
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, RecoveryTimes};
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_platform::{Clock, SystemClock};
use cutwater_sources_sinks::log::JobLog;

/// The state is full when this many records per key were read: e^-14 of the keys are missing then.
const FULL: u64 = 14;
const PHASES: [&str; 7] = ["total", "claim", "fence", "facts", "settle", "load", "first commit"];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |flag: &str| args.iter().position(|a| a == flag).map(|at| args[at + 1].parse().expect("a number"));
    let keys = number("--keys").unwrap_or(1_000_000);
    if let Some(at) = args.iter().position(|a| a == "--child") {
        return child(Path::new(&args[at + 1]), keys);
    }
    let kills = number("--kills").unwrap_or(7) as usize;
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("recovery, {keys} keys, 2 workers, {kills} kills and {kills} panics; {}", machine(dir.path()));

    let (waits, killed) = kill(&dir.path().join("killed"), kills, keys);
    print("after kill -9, in the new process", &killed);
    let waits = spread(waits);
    println!(
        "kill to first commit, seen from outside: p50 {:.1} ms (min {:.1}, max {:.1})\n",
        waits.median, waits.min, waits.max
    );

    let panicked = panic_and_recover(&dir.path().join("panicked"), kills, keys);
    print("after a panic, in the same process", &panicked);
}

fn print(title: &str, times: &[RecoveryTimes]) {
    let ms = |t: &RecoveryTimes, phase: usize| {
        let of = [t.total(), t.claim, t.fence, t.facts, t.settle, t.load, t.first_commit];
        of[phase].as_secs_f64() * 1e3
    };
    let mut rows = vec![vec![title.to_string(), "p50 ms".to_string(), "min".to_string(), "max".to_string()]];
    for (phase, name) in PHASES.iter().enumerate() {
        let s = spread(times.iter().map(|t| ms(t, phase)));
        rows.push(vec![
            (*name).to_string(),
            format!("{:.1}", s.median),
            format!("{:.1}", s.min),
            format!("{:.1}", s.max),
        ]);
    }
    println!("{}", table(&rows));
}

/// Counts for ever; every 1000th count of a key goes to the log, so that each checkpoint has output to commit.
fn job(job: &Job, keys: u64, fuse: Arc<AtomicBool>) -> Result<(), BuildError> {
    let log = job.log();
    job.source("keys", UniformKeys { keys, splits: 2, per_split: u64::MAX >> 8 })
        .inspect(move |_| {
            if fuse.load(Ordering::Relaxed) && fuse.swap(false, Ordering::SeqCst) {
                panic!("the fuse burnt");
            }
        })
        .key_value(|key| (key, ()))
        .count("count")
        .filter(|(key, _)| key % 1000 == 0)
        .map(|(key, count)| format!("{key} {count}").into_bytes())
        .sink("sample", log.write("sample").value(cutwater_sources_sinks::codec::Bytes));
    Ok(())
}

fn options(dir: &Path) -> Options {
    let mut options = Options::new("recovery", dir);
    options.workers = 2;
    options.guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(200)));
    options
}

/// Runs until killed, saying when an attempt has committed for the first time and then each commit.
fn child(dir: &Path, keys: u64) {
    let control = Control::new();
    let watch = control.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let clock = SystemClock::new();
            let mut last = None;
            loop {
                let seen = watch.seen();
                if seen.committed > seen.resumed_from && last != Some(seen.committed) {
                    last = Some(seen.committed);
                    let t = seen.recovery;
                    let ns =
                        [t.claim, t.fence, t.facts, t.settle, t.load, t.first_commit].map(|d| d.as_nanos().to_string());
                    println!("{} {} {}", seen.committed, seen.read, ns.join(" "));
                }
                clock.sleep(Duration::from_micros(200));
            }
        });
        let fuse = Arc::new(AtomicBool::new(false));
        run(move |j| job(j, keys, fuse.clone()), &options(dir), &control).expect("runs until killed");
    });
}

struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(dir: &Path, keys: u64) -> Running {
        let me = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(me)
            .arg("--child")
            .arg(dir)
            .args(["--keys", &keys.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Running { child, lines }
    }

    /// The next commit: records read so far, and how this process recovered.
    fn commit(&mut self) -> (u64, RecoveryTimes) {
        let line = self.lines.next().expect("the child lives").expect("readable");
        let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().expect("a number")).collect();
        let t = |i: usize| Duration::from_nanos(numbers[i]);
        let times =
            RecoveryTimes { claim: t(2), fence: t(3), facts: t(4), settle: t(5), load: t(6), first_commit: t(7) };
        (numbers[1], times)
    }

    fn kill(mut self) {
        self.child.kill().expect("SIGKILL is sent");
        self.child.wait().expect("it is gone");
    }
}

fn kill(dir: &Path, kills: usize, keys: u64) -> (Vec<f64>, Vec<RecoveryTimes>) {
    let clock = SystemClock::new();
    let mut running = Running::start(dir, keys);
    while running.commit().0 < FULL * keys {}
    let (mut waits, mut times) = (vec![], vec![]);
    for _ in 0..kills {
        running.commit();
        running.commit();
        let killed_at = clock.monotonic();
        running.kill();
        running = Running::start(dir, keys);
        let (_, recovery) = running.commit();
        waits.push((clock.monotonic() - killed_at).as_secs_f64() * 1e3);
        times.push(recovery);
    }
    running.kill();
    (waits, times)
}

fn panic_and_recover(dir: &Path, panics: usize, keys: u64) -> Vec<RecoveryTimes> {
    // With RUST_BACKTRACE the default hook spends tens of milliseconds on a panic.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let (control, fuse) = (Control::new(), Arc::new(AtomicBool::new(false)));
    let (watch, light) = (control.clone(), fuse.clone());
    let mut options = options(dir);
    options.restarts_max = 1_000;
    options.restart_backoff = Duration::ZERO;
    let mut times = vec![];
    std::thread::scope(|scope| {
        let runner = scope.spawn(move || run(move |j| job(j, keys, fuse.clone()), &options, &control));
        let clock = SystemClock::new();
        let wait = |until: &dyn Fn() -> bool| {
            while !until() {
                clock.sleep(Duration::from_micros(200));
            }
        };
        wait(&|| watch.seen().read > FULL * keys);
        for _ in 0..panics {
            let (attempt, committed) = (watch.seen().attempt, watch.seen().committed);
            wait(&|| watch.seen().committed.0 > committed.0 + 1);
            light.store(true, Ordering::SeqCst);
            wait(&|| watch.seen().attempt > attempt && watch.seen().recovery.first_commit > Duration::ZERO);
            times.push(watch.seen().recovery);
        }
        watch.stop();
        runner.join().expect("no panic").expect("it stops with a report");
    });
    times
}
