//! Three real processes that share topics: the broker, a job that sells and one that counts (the example `shared_topics`). Each of
//! them is killed at any moment, and stopped, overtaken and let go on again; an independent reader, which knows Kafka's protocol and
//! nothing of ours, then finds every sale once and every count once, in order.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "real processes take real time, and a job that ends says why"
)]

// The example has a `main` of its own.
#[path = "../../examples/shared_topics.rs"]
#[allow(dead_code, reason = "the example's own main is not called here")]
mod shared_topics;

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{committed, group_offsets, records};
use cutwater::Exit;
use cutwater::prelude::*;
use cutwater_platform::SplitMix;
use rustix::process::{Pid, Signal, kill_process};
use shared_topics::SHOPS;

/// Name a job's directory, its kind, its broker, its sales and its pace to the process that runs it.
const DIR: &str = "CUTWATER_SHARED_DIR";
const KIND: &str = "CUTWATER_SHARED_KIND";
const ADDRESS: &str = "CUTWATER_SHARED_ADDRESS";
const SALES: &str = "CUTWATER_SHARED_SALES";
const RATE: &str = "CUTWATER_SHARED_RATE";
/// Names a crash point to a process; see `cutwater_platform::KillSelf`.
const CRASH_AT: &str = "CUTWATER_CRASH_AT";
const PATIENCE: Duration = Duration::from_secs(120);

/// Not a test of its own: a job as a process, for the tests below.
#[test]
fn the_job_as_a_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let text = |name: &str| std::env::var(name).expect("its parent says so");
    let number = |name: &str| text(name).parse::<u64>().expect("a number");
    let (kind, sales, rate) = (text(KIND), number(SALES), number(RATE));
    let mut options = Options {
        workers: 2,
        pin: false,
        guarantee: Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(20))),
        restarts_max: 1000,
        ..Options::new(kind.clone(), PathBuf::from(dir))
    };
    LogPlace::Broker(BrokerPlace::plain(text(ADDRESS))).choose(&mut options);
    let ran = match kind.as_str() {
        "sell" => cutwater::run(move |job| shared_topics::sell(job, sales, rate), &options),
        _ => cutwater::run(shared_topics::count, &options),
    };
    let code = match ran {
        Ok(report) => {
            report.assert_balanced();
            Exit::Done
        }
        Err(error) => {
            eprintln!("{kind}: {error}");
            Exit::of(&error)
        }
    };
    std::process::exit(code as i32);
}

/// A process that is started again whenever it has been killed, and killed for good when it goes out of scope.
struct Kept {
    child: Child,
    start: Box<dyn Fn() -> Child>,
    starts: u32,
}

impl Kept {
    fn new(start: impl Fn() -> Child + 'static) -> Kept {
        Kept { child: start(), start: Box::new(start), starts: 1 }
    }

    fn kill(&mut self) {
        // Or it has died by itself.
        let _ = self.child.kill();
        self.child.wait().expect("our own child");
        self.child = (self.start)();
        self.starts += 1;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free now. The broker takes it again after each kill.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

fn broker(dir: &Path, address: &str) -> Kept {
    broker_that_dies(dir, address, "")
}

/// One that kills itself when it reaches a crash point, if there is one; started again, it doesn't.
fn broker_that_dies(dir: &Path, address: &str, at: &str) -> Kept {
    let (dir, address, at) = (dir.join("broker"), address.to_string(), at.to_string());
    let started = Cell::new(false);
    Kept::new(move || {
        let at = if started.replace(true) { "" } else { &at };
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater"));
        command
            .args(["broker", "--take-over", "--listen", &address, "--data"])
            .arg(&dir)
            .env("RUST_LOG", "error")
            .env(CRASH_AT, at);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the broker starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        assert_eq!(line.trim(), address, "the broker listens where it was told to");
        child
    })
}

fn start(kind: &str, dir: &Path, address: &str, sales: u64, rate: u64) -> Child {
    start_that_dies(kind, dir, address, sales, rate, "")
}

/// A job that kills itself when it reaches a crash point, if there is one.
fn start_that_dies(kind: &str, dir: &Path, address: &str, sales: u64, rate: u64, at: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test's program"));
    command.args(["--exact", "the_job_as_a_process", "--nocapture"]).env(DIR, dir.join(kind)).env(KIND, kind);
    command.env(ADDRESS, address).env(SALES, sales.to_string()).env(RATE, rate.to_string()).env(CRASH_AT, at);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts")
}

fn job(kind: &'static str, dir: &Path, address: &str, sales: u64, rate: u64) -> Kept {
    let (dir, address) = (dir.to_path_buf(), address.to_string());
    Kept::new(move || start(kind, &dir, &address, sales, rate))
}

/// Lines of a topic, all partitions, each in its order.
fn lines(address: &str, topic: &str) -> Vec<String> {
    (0..2).flat_map(|partition| committed(address, topic, partition)).collect()
}

/// Every shop's numbers in the order in which they stand in its partition.
fn by_shop(lines: &[String]) -> BTreeMap<u64, Vec<u64>> {
    let mut shops: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in lines {
        let (shop, number) = line.split_once(' ').expect("two numbers");
        shops.entry(shop.parse().expect("a shop")).or_default().push(number.parse().expect("a number"));
    }
    shops
}

/// Sales that the group of the job that counts has passed, and then the counts that are committed: each sale gives one.
fn passed_and_counted(address: &str) -> (usize, usize) {
    let offsets = group_offsets(address, "count", "sales", 2);
    let passed = |(partition, offset): (i32, &i64)| {
        records(address, "sales", partition).0.iter().filter(|(at, _)| at < offset).count()
    };
    let passed = (0..).zip(&offsets).map(passed).sum();
    (passed, lines(address, "counts").len())
}

/// Exactly the sales, and exactly their counts.
fn assert_exact(address: &str, sales: u64, story: &str) {
    assert_exact_in(address, &[("sales", 0), ("counts", 1)], sales, story);
}

/// In each of these topics, which begin with such a number in each shop.
fn assert_exact_in(address: &str, topics: &[(&str, u64)], sales: u64, story: &str) {
    for &(topic, first) in topics {
        let found = by_shop(&lines(address, topic));
        assert_eq!(found.values().map(Vec::len).sum::<usize>() as u64, sales, "{story}: lines of {topic}");
        for shop in 0..SHOPS {
            let expected: Vec<u64> = (first..first + sales / SHOPS).collect();
            assert!(found[&shop] == expected, "{story}: {topic} of shop {shop} are {:?}", found[&shop]);
        }
    }
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let since = Instant::now();
    while !reached() {
        assert!(since.elapsed() < PATIENCE, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn two_jobs_and_their_broker_are_killed_at_any_moment_and_nothing_is_lost_or_doubled() {
    const SALES: u64 = 16_000;
    let dir = tempfile::tempdir().expect("a directory");
    let address = free_port();
    let mut random = SplitMix::new(7);
    // The one that reads is started first, before there is a topic.
    let mut kept = [
        broker(dir.path(), &address),
        job("count", dir.path(), &address, SALES, 4_000),
        job("sell", dir.path(), &address, SALES, 4_000),
    ];
    let (mut kills, mut shown) = ([0; 3], 0);
    for round in 0..12 {
        std::thread::sleep(Duration::from_millis(150 + random.below(350)));
        // Each of them several times, in an order that nobody has chosen.
        let which = if round < 6 { round % 3 } else { random.below(3) as usize };
        kept[which].kill();
        kills[which] += 1;
        let (passed, counted) = passed_and_counted(&address);
        assert!(passed <= counted, "kills {kills:?}: {passed} sales are shown as passed, {counted} counts committed");
        shown += usize::from(passed > 0);
    }
    assert!(shown > 0, "the group's offsets are seen while the jobs run");
    let story = format!("kills of broker, count, sell: {kills:?}");
    until(&format!("{story}: the last count"), || lines(&address, "counts").len() as u64 >= SALES);
    until(&format!("{story}: the end of sell"), || kept[2].child.try_wait().expect("our own child").is_some());
    assert_exact(&address, SALES, &story);
    // What would come twice would come now.
    std::thread::sleep(Duration::from_millis(200));
    assert_exact(&address, SALES, &story);
    let ends: Vec<i64> = (0..2).map(|partition| records(&address, "sales", partition).1).collect();
    until("the group's offsets at the end", || group_offsets(&address, "count", "sales", 2) == ends);
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

#[test]
fn a_job_that_is_stopped_and_overtaken_is_fenced_through_the_broker() {
    const SALES: u64 = 8_000;
    let dir = tempfile::tempdir().expect("a directory");
    let address = free_port();
    let _broker = broker(dir.path(), &address);
    let _count = job("count", dir.path(), &address, SALES, 0);
    let mut old = start("sell", dir.path(), &address, SALES, 1_000);
    until("the first sale", || lines(&address, "sales").len() > 100);
    signal(&old, Signal::STOP);
    let stopped_at = lines(&address, "sales").len() as u64;
    assert!(stopped_at < SALES, "it was stopped too late: {stopped_at} sales");
    let mut new = start("sell", dir.path(), &address, SALES, 20_000);
    let status = wait(&mut new, "the process that took over");
    assert_eq!(status.code(), Some(Exit::Done as i32), "the process that took over");
    until("the last count", || lines(&address, "counts").len() as u64 >= SALES);
    signal(&old, Signal::CONT);
    let status = wait(&mut old, "the process that came back");
    assert_eq!(status.code(), Some(Exit::Conflict as i32), "the process that came back ended as {status}");
    assert_exact(&address, SALES, "after the zombie");
}

const FEW: u64 = 800;

#[test]
fn a_job_that_dies_at_any_point_of_the_protocol_goes_on_through_the_broker() {
    for at in [
        "group.fenced",
        "recovery.fenced",
        "group.aborted-others",
        "sink.sealed#3",
        "sink.prepared#3",
        "group.commit-sent#3",
        "group.committed#3",
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let address = free_port();
        let _broker = broker(dir.path(), &address);
        let status = wait(&mut start_that_dies("sell", dir.path(), &address, FEW, 4_000, at), at);
        assert_eq!(status.code(), None, "{at} is reached, and the process killed");
        let status = wait(&mut start("sell", dir.path(), &address, FEW, 4_000), "the one that goes on");
        assert_eq!(status.code(), Some(Exit::Done as i32), "behind {at}");
        assert_exact_in(&address, &[("sales", 0)], FEW, at);
    }
}

#[test]
fn a_broker_that_dies_before_and_behind_what_makes_a_request_durable_costs_a_job_nothing_but_time() {
    for at in [
        "log.claim-written",
        "log.prepare-written#3",
        "log.end-written#3",
        "log.frame-buffered#12",
        "log.frame-written#12",
        "log.acknowledged#12",
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let address = free_port();
        let mut broker = broker_that_dies(dir.path(), &address, at);
        let mut sell = start("sell", dir.path(), &address, FEW, 4_000);
        until(&format!("{at}: the job"), || {
            if broker.child.try_wait().expect("our own child").is_some() {
                broker.kill();
            }
            sell.try_wait().expect("our own child").is_some()
        });
        assert_eq!(wait(&mut sell, "the job").code(), Some(Exit::Done as i32), "behind {at}");
        assert_eq!(broker.starts, 2, "{at} is reached, and the broker killed");
        assert_exact_in(&address, &[("sales", 0)], FEW, at);
    }
}

#[test]
fn a_job_whose_broker_is_not_there_says_where_it_looked_and_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let address = free_port();
    let mut options = Options::new("count", dir.path());
    LogPlace::Broker(BrokerPlace::plain(address.clone())).choose(&mut options);
    let error = cutwater::run(shared_topics::count, &options).expect_err("nobody is there").to_string();
    assert!(error.contains(&address) && error.contains("cutwater broker --data"), "{error}");
}
