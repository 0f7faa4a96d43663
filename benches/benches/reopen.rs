//! How long a log takes to open again after kill -9 with gigabytes in it, and what idle partitions cost.
//!
//! `cargo bench -p cutwater-benches --bench reopen [-- --gb N --partitions N --rounds N]`
//!
//! A child process fills the log; it is killed with SIGKILL in the middle of further appends, so that the write-ahead log has to be replayed. The
//! clock runs from opening to the first acknowledged append. Then, in a process of its own, a log of many partitions, each with one record:
//! the resident memory of that process before they are made, after, and when they have been opened again.

#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cutwater_benches::{machine, spread, table};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{Clock, Platform, SystemClock};

cutwater::mimalloc!();

const PARTITIONS: u32 = 16;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number =
        |flag: &str| args.iter().position(|a| a == flag).map(|at| args[at + 1].parse::<u64>().expect("a number"));
    let (gb, partitions) = (number("--gb").unwrap_or(10), number("--partitions").unwrap_or(10_000));
    let rounds = number("--rounds").unwrap_or(5);
    let directory = |flag: &str| args.iter().position(|a| a == flag).map(|at| Path::new(&args[at + 1]).to_path_buf());
    if let Some(dir) = directory("--fill") {
        return fill(&dir, gb);
    }
    if let Some(dir) = directory("--idle") {
        return idle(&dir, u32::try_from(partitions).expect("fewer partitions"));
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("reopening, {gb} GB in {PARTITIONS} partitions, {rounds} kills; {}", machine(dir.path()));
    let log_dir = dir.path().join("log");
    let mut times = vec![];
    for round in 0..rounds {
        kill_while_appending(&log_dir, if round == 0 { gb } else { 0 });
        times.push(reopen(&log_dir));
    }
    let ms = |f: &dyn Fn(&(Duration, Duration)) -> Duration| spread(times.iter().map(|t| f(t).as_secs_f64() * 1e3));
    let mut rows = vec![["", "p50 ms", "min", "max"].map(String::from).to_vec()];
    for (name, s) in [("open", ms(&|t| t.0)), ("open and one append acknowledged", ms(&|t| t.1))] {
        rows.push(vec![name.to_string(), format!("{:.0}", s.median), format!("{:.0}", s.min), format!("{:.0}", s.max)]);
    }
    println!("{}", table(&rows));
    std::fs::remove_dir_all(&log_dir).expect("its own directory");
    let idle = child(&["--idle", &dir.path().join("idle").to_string_lossy(), "--partitions", &partitions.to_string()]);
    let output = idle.wait_with_output().expect("it ends");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "the child with the idle partitions failed");
}

fn child(args: &[&str]) -> Child {
    let me = std::env::current_exe().expect("this program has a path");
    Command::new(me).args(args).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// Lets a child append, `gb` at least, and kills it while it goes on.
fn kill_while_appending(dir: &Path, gb: u64) {
    let mut child = child(&["--fill", &dir.to_string_lossy(), "--gb", &gb.to_string()]);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let filled = lines.next().expect("the child lives").expect("readable");
    assert_eq!(filled, "filled");
    // It goes on appending: the write-ahead log is half way to its next checkpoint.
    SystemClock::new().sleep(Duration::from_millis(700));
    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it is gone");
}

fn reopen(dir: &Path) -> (Duration, Duration) {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let log = Log::open(&Platform::real(), dir, LogOptions::default()).expect("the log opens");
    let opened = clock.monotonic() - start;
    let topic = log.topic("bulk").expect("it was filled").id;
    let producer = log.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(0, None, Some(b"first"), &[]).expect("it fits");
    producer.append(topic, 0, &mut batch).expect("accepted").wait().expect("acknowledged");
    let answered = clock.monotonic() - start;
    log.close().expect("a clean close");
    (opened, answered)
}

/// Appends `gb` gigabytes, says so, and appends on until it is killed.
fn fill(dir: &Path, gb: u64) {
    let log = Log::open(&Platform::real(), dir, LogOptions::default()).expect("the log opens");
    let topic = log.create_topic_if_absent("bulk", PARTITIONS).expect("a topic");
    let record: Vec<u8> = (0..1024u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let producer = log.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    let mut waiting = std::collections::VecDeque::new();
    let mut sent = 0;
    let mut told = false;
    for number in 0.. {
        if sent >= gb * 1_000_000_000 && !told {
            println!("filled");
            told = true;
        }
        while batch.encoded_len_estimate() < 256 << 10 {
            batch.push(0, None, Some(&record), &[]).expect("it fits");
            sent += 1024;
        }
        waiting.push_back(producer.append(topic, number % PARTITIONS, &mut batch).expect("accepted"));
        if waiting.len() >= 32 {
            waiting.pop_front().expect("not empty").wait().expect("acknowledged");
        }
    }
}

fn idle(dir: &Path, partitions: u32) {
    let open = || Log::open(&Platform::real(), dir, LogOptions::default()).expect("the log opens");
    let (log, clock) = (open(), SystemClock::new());
    let before = resident_mb();
    let topic = log.create_topic("idle", partitions).expect("a new topic");
    let producer = log.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    let mut tickets = vec![];
    for partition in 0..partitions {
        batch.push(0, None, Some(b"one"), &[]).expect("it fits");
        tickets.push(producer.append(topic, partition, &mut batch).expect("accepted"));
    }
    for ticket in tickets {
        ticket.wait().expect("acknowledged");
    }
    let made = resident_mb();
    log.close().expect("a clean close");
    drop((log, producer));
    let start = clock.monotonic();
    let log = open();
    let opened = clock.monotonic() - start;
    let reopened = resident_mb();
    // They are there, and read.
    for partition in (0..partitions).step_by(1_000) {
        let mut consumer = log.consumer(topic, partition, Offset::ZERO, Isolation::ReadCommitted).expect("it is there");
        let mut records = 0;
        consumer.poll(1 << 20).expect("readable").for_each(|_| records += 1).expect("whole batches");
        assert_eq!(records, 1);
    }
    println!(
        "{partitions} idle partitions: {:.0} MB more resident once each has a record, {:.0} MB after reopening (which took {:.0} ms)",
        made - before,
        reopened - before,
        opened.as_secs_f64() * 1e3
    );
}

/// Resident memory of this process.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("kB") / 1e3
}
