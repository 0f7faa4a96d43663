//! The log against the disk below it: appends and commits as ratios to the raw limits measured in the same run.
//!
//! `cargo bench -p cutwater-benches --bench log [-- --mb N --rounds N --seconds N --only ingest|one|commits|prepared|driven]`
//!
//! *Driven* are commits that one thread has on their way together (`Txn::start_commit`), as a server with an event loop has them.
//!
//! With `--only` one part runs alone, for a profiler: no raw limits, no ratios.
//!
//! R is the rate of synced writes of 4 MiB, F the number of synced writes of 4 KiB per second, both to a file that was written
//! before. *Drain* is acknowledged bytes over the time until everything is in synced segments as well (a clean close), so that
//! a write-ahead log can't look fast by leaving work behind.

#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cutwater_benches::{cpu_time, machine, spread, table};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Log, LogOptions, Owner, OwnerId, TopicId, Txn, TxnName};
use cutwater_platform::{AlignedBuf, Clock, Files, Open, OsFiles, Platform, SystemClock};

// As programs have it that use the log.
cutwater::mimalloc!();

struct Args {
    mb: u64,
    rounds: u64,
    seconds: u64,
    producers: usize,
    only: Option<String>,
}

fn main() {
    let mut args = Args { mb: 512, rounds: 3, seconds: 2, producers: 64, only: None };
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = given.next() {
        let value = given.next().unwrap_or_else(|| panic!("{arg} wants a value"));
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{arg} wants a number, not {value}"));
        match arg.as_str() {
            "--mb" => args.mb = number(),
            "--rounds" => args.rounds = number(),
            "--seconds" => args.seconds = number(),
            "--producers" => args.producers = number() as usize,
            "--only" => args.only = Some(value),
            other => panic!("unknown argument {other}"),
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    if let Some(part) = &args.only {
        return println!("{}", only(part, dir.path(), &args));
    }
    println!(
        "log, {} MB a run, {} s of commits, {} rounds; {}",
        args.mb,
        args.seconds,
        args.rounds,
        machine(dir.path())
    );

    let mut rounds = vec![];
    for round in 0..=args.rounds {
        let figures = Round::run(dir.path(), &args, round);
        println!(
            "round {round}: sync p50 {:.0} us before, {:.0} us after",
            figures.sync_before_us, figures.sync_after_us
        );
        if round > 0 {
            rounds.push(figures);
        }
    }
    let median = |f: &dyn Fn(&Round) -> f64| spread(rounds.iter().map(f)).median;
    let row = |name: &str, value: String, ratio: f64, goal: &str| {
        vec![name.to_string(), value, format!("{ratio:.2}"), goal.to_string()]
    };
    let (r, f, p50) = (median(&|x| x.raw_rate), median(&|x| x.raw_syncs), median(&|x| x.raw_64k_us));
    println!("\nraw: R = {r:.0} MB/s (4 MiB), F = {f:.0} /s (4 KiB), one 64 KiB write p50 {p50:.0} us");
    let mut rows = vec![["", "measured", "ratio", "goal"].map(String::from).to_vec()];
    let ingest = median(&|x| x.ingest_64);
    rows.push(row("append 64 KiB, 64 in flight, drain", format!("{ingest:.0} MB/s"), ingest / r, ">= 0.42 R"));
    let (one, one_p99) = (median(&|x| x.append_1_us.0), median(&|x| x.append_1_us.1));
    rows.push(row("append 64 KiB, 1 in flight, p50", format!("{one:.0} us"), one / p50, "<= 1.3 raw p50"));
    rows.push(row("append 64 KiB, 1 in flight, p99", format!("{one_p99:.0} us"), one_p99 / p50, "<= 8 raw p50"));
    let goals = [(1, ">= 0.9 F", ">= 0.33 F"), (8, ">= 4 F", ">= 2.5 F"), (64, ">= 18 F", ">= 10 F")];
    for (i, (producers, goal, _)) in goals.into_iter().enumerate() {
        let rate = median(&|x| x.commits[i]);
        rows.push(row(&format!("commits, {producers} producer(s), one wait"), format!("{rate:.0} /s"), rate / f, goal));
    }
    for (i, (producers, _, goal)) in goals.into_iter().enumerate() {
        let rate = median(&|x| x.commits_two_waits[i]);
        rows.push(row(
            &format!("commits, {producers} producer(s), two waits"),
            format!("{rate:.0} /s"),
            rate / f,
            goal,
        ));
    }
    let driven = median(&|x| x.driven_64);
    rows.push(row("commits, 64 in flight, one thread", format!("{driven:.0} /s"), driven / f, ""));
    let cpu = median(&|x| x.cpu_per_gb);
    rows.push(row("CPU of the ingest run", format!("{cpu:.2} s/GB"), cpu, "<= 1.0 s/GB"));
    println!("{}", table(&rows));
}

/// One part alone.
fn only(part: &str, dir: &Path, args: &Args) -> String {
    match part {
        "ingest" => {
            let (rate, cpu) = ingest(dir, args.mb, 64);
            format!("{rate:.0} MB/s, {cpu:.2} CPU s/GB")
        }
        "one" => {
            let (p50, p99) = one_in_flight(dir, 20_000 * args.seconds as usize);
            format!("p50 {p50:.0} us, p99 {p99:.0} us")
        }
        "commits" | "prepared" => {
            let (rate, cpu_us) = commits(dir, args.producers, args.seconds, part == "prepared");
            format!("{rate:.0} /s by {} producers, {cpu_us:.1} CPU us each", args.producers)
        }
        "driven" => {
            let (rate, cpu_us) = driven(dir, args.producers, args.seconds);
            format!("{rate:.0} /s, {} in flight by one thread, {cpu_us:.1} CPU us each", args.producers)
        }
        "raw" => {
            let raw = Raw::new(&dir.join("raw"));
            let (r, f) = (raw.rate_mb(4 << 20, 64), raw.per_second(4 << 10, 2_000));
            format!("R {r:.0} MB/s, F {f:.0} /s, 64 KiB p50 {:.0} us", raw.latency_us(64 << 10, 500))
        }
        other => panic!("no part is called {other}"),
    }
}

struct Round {
    raw_rate: f64,
    raw_syncs: f64,
    raw_64k_us: f64,
    sync_before_us: f64,
    sync_after_us: f64,
    ingest_64: f64,
    cpu_per_gb: f64,
    /// The median and the 99th percentile.
    append_1_us: (f64, f64),
    commits: [f64; 3],
    commits_two_waits: [f64; 3],
    driven_64: f64,
}

impl Round {
    fn run(dir: &Path, args: &Args, round: u64) -> Round {
        let raw = Raw::new(&dir.join(format!("raw-{round}")));
        let sync_before_us = raw.latency_us(4 << 10, 200);
        let (raw_rate, raw_syncs) = (raw.rate_mb(4 << 20, 64), raw.per_second(4 << 10, 2_000));
        let raw_64k_us = raw.latency_us(64 << 10, 500);
        let log_dir = dir.join(format!("log-{round}"));
        let (ingest_64, cpu_per_gb) = ingest(&log_dir.join("ingest"), args.mb, 64);
        let append_1_us = one_in_flight(&log_dir.join("one"), 1_000);
        let rates = |name: &str, prepared| {
            let dir = |producers| log_dir.join(format!("{name}-{producers}"));
            [1, 8, 64].map(|producers| commits(&dir(producers), producers, args.seconds, prepared).0)
        };
        let (commits, commits_two_waits) = (rates("commits", false), rates("prepared", true));
        let driven_64 = driven(&log_dir.join("driven"), 64, args.seconds).0;
        let sync_after_us = raw.latency_us(4 << 10, 200);
        Round {
            raw_rate,
            raw_syncs,
            raw_64k_us,
            sync_before_us,
            sync_after_us,
            ingest_64,
            cpu_per_gb,
            append_1_us,
            commits,
            commits_two_waits,
            driven_64,
        }
    }
}

/// Synced writes to one file, as the log's writer makes them.
struct Raw {
    file: Arc<dyn cutwater_platform::File>,
    clock: SystemClock,
}

/// About a hundred bytes, as most messages in the field have.
const RECORD: &[u8] = &[b'x'; 100];

const RAW_BYTES: u64 = 64 << 20;

impl Raw {
    fn new(path: &Path) -> Raw {
        let file = OsFiles::new().open(path, Open::CreateNew).expect("a new file");
        let zeros = blocks(4 << 20);
        for offset in (0..RAW_BYTES).step_by(4 << 20) {
            file.write_synced_at(zeros.as_slice(), offset).expect("a synced write");
        }
        Raw { file, clock: SystemClock::new() }
    }

    fn times(&self, bytes: usize, count: u64) -> Vec<Duration> {
        let buffer = blocks(bytes);
        let write = |i: u64| {
            let before = self.clock.monotonic();
            self.file.write_synced_at(buffer.as_slice(), i * bytes as u64 % RAW_BYTES).expect("a synced write");
            self.clock.monotonic() - before
        };
        (0..count).map(write).collect()
    }

    fn latency_us(&self, bytes: usize, count: u64) -> f64 {
        spread(self.times(bytes, count).iter().map(|t| t.as_secs_f64() * 1e6)).median
    }

    fn per_second(&self, bytes: usize, count: u64) -> f64 {
        count as f64 / self.times(bytes, count).iter().sum::<Duration>().as_secs_f64()
    }

    fn rate_mb(&self, bytes: usize, count: u64) -> f64 {
        self.per_second(bytes, count) * bytes as f64 / 1e6
    }
}

fn blocks(bytes: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::with_capacity(bytes);
    let pattern: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    buffer.extend_from_slice(&pattern);
    buffer
}

/// A batch of about 64 KiB: 60 records of 1 KiB that don't compress.
fn fill(batch: &mut BatchBuilder, record: &[u8]) {
    for n in 0..60 {
        batch.push(n, None, Some(record), &[]).expect("it fits");
    }
}

/// A log that has been in use: what it writes to next was written before, as in all its later life. A young log writes zeros
/// ahead of its frames, up to four files of 64 MiB.
fn open(dir: &Path, used_mb: u64) -> Log {
    let open = || Log::open(&Platform::real(), dir, LogOptions::default()).expect("a log");
    let log = open();
    let topic = log.create_topic("before", 1).expect("a new topic");
    let producer = log.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..used_mb * 1_000_000 / (60 * 1024) {
        fill(&mut batch, &[0; 1024]);
        waiting.push_back(producer.append(topic, 0, &mut batch).expect("accepted"));
        if waiting.len() >= 16 {
            waiting.pop_front().expect("not empty").wait().expect("acknowledged");
        }
    }
    drop(waiting);
    log.close().expect("a clean close");
    drop((log, producer));
    open()
}

/// 16 partitions, `in_flight` appends waiting at any time; MB/s until a clean close has synced every segment, and CPU s/GB.
fn ingest(dir: &Path, mb: u64, in_flight: usize) -> (f64, f64) {
    let log = open(dir, 300);
    let topic = log.create_topic("ingest", 16).expect("a new topic");
    let record: Vec<u8> = (0..1024u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let producers: Vec<_> = (0..16).map(|_| log.producer().expect("a producer")).collect();
    let mut batch = BatchBuilder::new(Compression::None);
    let clock = SystemClock::new();
    let (start, cpu) = (clock.monotonic(), cpu_time());
    let (mut sent, mut number) = (0u64, 0usize);
    let mut waiting = std::collections::VecDeque::new();
    while sent < mb * 1_000_000 {
        fill(&mut batch, &record);
        sent += 60 * 1024;
        let partition = number % 16;
        number += 1;
        waiting.push_back(producers[partition].append(topic, partition as u32, &mut batch).expect("accepted"));
        if waiting.len() >= in_flight {
            waiting.pop_front().expect("not empty").wait().expect("acknowledged");
        }
    }
    for ticket in waiting {
        ticket.wait().expect("acknowledged");
    }
    log.close().expect("a clean close");
    let (wall, cpu) = ((clock.monotonic() - start).as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
    (sent as f64 / 1e6 / wall, cpu / (sent as f64 / 1e9))
}

/// Median and 99th percentile in microseconds.
fn one_in_flight(dir: &Path, appends: usize) -> (f64, f64) {
    let log = open(dir, 150);
    let topic = log.create_topic("one", 1).expect("a new topic");
    let record = vec![7u8; 1024];
    let producer = log.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    let clock = SystemClock::new();
    let mut times = vec![];
    for _ in 0..appends {
        fill(&mut batch, &record);
        let before = clock.monotonic();
        producer.append(topic, 0, &mut batch).expect("accepted").wait().expect("acknowledged");
        times.push((clock.monotonic() - before).as_secs_f64() * 1e6);
    }
    log.close().expect("a clean close");
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Transactions of one record each, begun, filled and committed with one wait, or prepared and then committed with a wait each, by so
/// many producers at once; per second, and the processor's time for each in microseconds.
fn commits(dir: &Path, producers: usize, seconds: u64, prepared: bool) -> (f64, f64) {
    let log = open(dir, 150);
    let topic = log.create_topic("commits", producers as u32).expect("a new topic");
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let clock = SystemClock::new();
    let (start, cpu) = (clock.monotonic(), cpu_time());
    std::thread::scope(|scope| {
        for producer in 0..producers {
            let (log, stop, total) = (&log, &stop, &total);
            scope.spawn(move || {
                let mut transactions = Transactions::new(log, topic, producer as u32);
                while !stop.load(Ordering::Relaxed) {
                    let next = transactions.next();
                    if prepared {
                        let id = next.id().clone();
                        next.prepare().expect("prepared");
                        transactions.owner.commit(&[id]).expect("committed");
                    } else {
                        next.commit().expect("committed");
                    }
                    total.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        clock.sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    finish(&log, total.into_inner(), clock.monotonic() - start, cpu)
}

/// The same by one thread, which has so many commits on their way at any time.
fn driven(dir: &Path, in_flight: usize, seconds: u64) -> (f64, f64) {
    let log = open(dir, 150);
    let topic = log.create_topic("driven", in_flight as u32).expect("a new topic");
    let mut transactions: Vec<_> =
        (0..in_flight).map(|partition| Transactions::new(&log, topic, partition as u32)).collect();
    let clock = SystemClock::new();
    let (start, cpu) = (clock.monotonic(), cpu_time());
    let end = start + Duration::from_secs(seconds);
    let mut on_their_way = std::collections::VecDeque::with_capacity(in_flight);
    let mut total = 0u64;
    while clock.monotonic() < end {
        if on_their_way.len() == in_flight {
            let oldest: cutwater_partition_log::CommitTicket = on_their_way.pop_front().expect("not empty");
            oldest.wait().expect("committed");
        }
        let next = transactions[total as usize % in_flight].next();
        on_their_way.push_back(next.start_commit().expect("accepted"));
        total += 1;
    }
    for ticket in on_their_way {
        ticket.wait().expect("committed");
    }
    drop(transactions);
    finish(&log, total, clock.monotonic() - start, cpu)
}

fn finish(log: &Log, total: u64, wall: Duration, cpu_before: Duration) -> (f64, f64) {
    let cpu = cpu_time() - cpu_before;
    log.close().expect("a clean close");
    (total as f64 / wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / total.max(1) as f64)
}

/// One producer: an owner of its own, and transactions of one record to its partition.
struct Transactions {
    owner: Owner,
    topic: TopicId,
    partition: u32,
    batch: BatchBuilder,
    begun: u64,
}

impl Transactions {
    fn new(log: &Log, topic: TopicId, partition: u32) -> Transactions {
        let owner = log.claim(&OwnerId(u128::from(partition) + 1), 1).expect("a new owner");
        Transactions { owner, topic, partition, batch: BatchBuilder::new(Compression::None), begun: 0 }
    }

    /// The next one, with its record.
    fn next(&mut self) -> Txn {
        self.begun += 1;
        let name = TxnName { checkpoint: self.begun, sink: "out".to_string(), writer: 0 };
        let mut txn = self.owner.begin(name).expect("a transaction");
        self.batch.push(0, None, Some(RECORD), &[]).expect("it fits");
        txn.append(self.topic, self.partition, &mut self.batch).expect("accepted");
        txn
    }
}
