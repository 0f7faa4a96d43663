//! A transactional sink a hundred times slower than its source, exactly-once, with the log at both ends and one key that nine of ten
//! records have: how far the source is ahead, what checkpoints hold of what is in flight, and the resident memory of the process
//! stay bounded by the configured limits (I-9), with barriers that wait and with barriers that overtake, and the output is exact.
//!
//! One test, because it looks at the memory of its process. How slow the sink must be is measured first, on the same job with a sink
//! that doesn't wait; and that the measure sees a source that runs ahead is shown at the end, on a job whose limits let it.

#![expect(clippy::print_stdout, reason = "it shows what was measured")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater::engine::config::{Alignment, Guarantee, Options, Snapshots};
use cutwater::engine::error::SinkError;
use cutwater::engine::id::CheckpointId;
use cutwater::engine::observe::{Control, Report};
use cutwater::engine::sink::{CommitGroup, Honours, Prepare, Sink, SinkWriter, WriterId};
use cutwater::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{Clock, Platform, SystemClock};
use cutwater_sources_sinks::log::LogRecord;
use cutwater_testkit::{CrashCounts, sequence_diff};

const RECORDS: u64 = 30_000;
const SPLITS: u64 = 2;
const PAYLOAD: usize = 1024;
const WORKERS: usize = 2;
const BATCH: usize = 8;
const CHANNEL: usize = 16;
/// How long the sink stays slow: until so many records are through, and so many checkpoints committed.
const SLOW_RECORDS: u64 = 300;
const SLOW_CHECKPOINTS: u64 = 3;
/// The source is as fast as it was over so many records, at its best: what else the machine does slows it down.
const SLICE: u64 = 1_000;
/// What the process may grow by while the sink is slow. The input has 30 MiB.
const GROWTH_MAX: u64 = 6 << 20;

/// Nine of ten records have one key.
fn key_of(n: u64) -> u64 {
    if n.is_multiple_of(10) { n / 10 % 101 + 1 } else { 0 }
}

/// What the limits allow to be under way: two edges, of `WORKERS` x `WORKERS` and `WORKERS` channels, each with its records and a
/// batch on either side.
fn bound(channel: usize) -> u64 {
    ((WORKERS * WORKERS + WORKERS) * (channel + 2 * BATCH) + 4 * WORKERS * BATCH) as u64
}

/// Resident memory of this process in bytes; 0 where nobody tells.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
}

/// The pace of a sink, and what is seen from there.
#[derive(Debug)]
struct Pace {
    control: Control,
    clock: SystemClock,
    /// Nanoseconds per record, while it is slow.
    per_record: AtomicU64,
    checkpoints: u64,
    began: AtomicU64,
    taken: AtomicU64,
    /// Of the sink that doesn't wait: the slice of records that went fastest, in nanoseconds, and when the present one began.
    fastest: Mutex<(u64, u64)>,
    ahead_max: AtomicU64,
    resident_first: AtomicU64,
    resident_max: AtomicU64,
    /// When it stopped being slow, and how much it had taken then.
    slow_for: AtomicU64,
    slow_taken: AtomicU64,
}

impl Pace {
    fn new(per_record: Duration, checkpoints: u64) -> Arc<Pace> {
        let zero = AtomicU64::default;
        Arc::new(Pace {
            control: Control::new(),
            clock: SystemClock::new(),
            per_record: AtomicU64::new(per_record.as_nanos() as u64),
            checkpoints,
            began: zero(),
            taken: zero(),
            fastest: Mutex::new((u64::MAX, 0)),
            ahead_max: zero(),
            resident_first: zero(),
            resident_max: zero(),
            slow_for: zero(),
            slow_taken: zero(),
        })
    }

    /// Nanoseconds since this was made; never 0.
    fn now(&self) -> u64 {
        self.clock.monotonic().as_nanos() as u64 + 1
    }

    /// Before `records` are written.
    fn wait(&self, records: u64) {
        let _ = self.began.compare_exchange(0, self.now(), SeqCst, SeqCst);
        let per_record = self.per_record.load(SeqCst);
        if per_record == 0 {
            let before = self.taken.fetch_add(records, SeqCst);
            if before / SLICE != (before + records) / SLICE {
                let now = self.now();
                let (fastest, began) = &mut *self.fastest.lock().expect("no panic");
                let took = now - std::mem::replace(began, now);
                *fastest = took.min(*fastest);
            }
            return;
        }
        let ahead = self.control.seen().read.saturating_sub(self.taken.load(SeqCst));
        self.ahead_max.fetch_max(ahead, SeqCst);
        let resident = resident();
        let _ = self.resident_first.compare_exchange(0, resident, SeqCst, SeqCst);
        self.resident_max.fetch_max(resident, SeqCst);
        self.clock.sleep(Duration::from_nanos(per_record * records));
        let taken = self.taken.fetch_add(records, SeqCst) + records;
        if taken >= SLOW_RECORDS && self.control.seen().committed.0 >= self.checkpoints {
            // The first one says when.
            if self.per_record.swap(0, SeqCst) > 0 {
                self.slow_taken.store(taken, SeqCst);
                self.slow_for.store(self.now() - self.began.load(SeqCst), SeqCst);
            }
        }
    }
}

/// Any sink, slowly.
struct Slowly<S> {
    inner: S,
    pace: Arc<Pace>,
}

struct SlowWriter<T> {
    inner: Box<dyn SinkWriter<Item = T>>,
    pace: Arc<Pace>,
}

impl<S: Sink> Sink for Slowly<S> {
    type Item = S::Item;

    fn honours(&self) -> Honours {
        self.inner.honours()
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        self.inner.group()
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = S::Item>>, SinkError> {
        Ok(Box::new(SlowWriter { inner: self.inner.open(writer)?, pace: self.pace.clone() }))
    }
}

impl<T> SinkWriter for SlowWriter<T> {
    type Item = T;

    fn write(&mut self, batch: Vec<T>) -> Result<(), SinkError> {
        self.pace.wait(batch.len() as u64);
        self.inner.write(batch)
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        self.inner.seal(checkpoint)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.inner.finish()
    }
}

fn open(dir: &Path) -> Log {
    Log::open(&Platform::real(), &dir.join("log"), LogOptions::default()).expect("a log")
}

/// Writes the input into the log of a data directory.
fn load(dir: &Path) {
    let log = open(dir);
    let topic = log.create_topic("numbers", SPLITS as u32).expect("a new topic");
    let producer = log.producer().expect("a producer");
    let (mut batch, payload) = (BatchBuilder::new(Compression::None), vec![b'.'; PAYLOAD]);
    for split in 0..SPLITS {
        let numbers: Vec<u64> = (0..RECORDS).filter(|n| n % SPLITS == split).collect();
        for chunk in numbers.chunks(512) {
            for n in chunk {
                batch.push(0, Some(&key_of(*n).to_be_bytes()), Some(&payload), &[]).expect("it fits");
            }
            producer.append(topic, split as u32, &mut batch).expect("accepted").wait().expect("acknowledged");
        }
    }
    log.close().expect("a clean close");
}

/// Compares the counts of each key with what there must be, as sequences.
fn assert_exact(dir: &Path, story: &str) {
    let log = open(dir);
    let topic = log.topic("counts").expect("it was written");
    let mut consumer = log.consumer(topic.id, 0, Offset(0), Isolation::ReadCommitted).expect("a consumer");
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    loop {
        let fetched = consumer.poll(1 << 20).expect("readable");
        let read = fetched.for_each(|record| {
            let (key, count, payload): (u64, u64, String) =
                serde_json::from_slice(record.value.unwrap_or_default()).expect("a row");
            assert_eq!(payload.len(), PAYLOAD);
            seen.entry(key).or_default().push(count);
        });
        read.expect("whole batches");
        if fetched.is_empty() && consumer.position() >= consumer.readable_end() {
            break;
        }
    }
    log.close().expect("a clean close");
    let mut totals: BTreeMap<u64, u64> = BTreeMap::new();
    (0..RECORDS).for_each(|n| *totals.entry(key_of(n)).or_default() += 1);
    assert!(totals[&0] * 10 >= RECORDS * 9, "one key is hot");
    for (key, total) in totals {
        let diff = sequence_diff(&(1..=total).collect::<Vec<_>>(), &seen.remove(&key).unwrap_or_default());
        assert!(diff.is_none(), "{story}: key {key}: {}", diff.map(|d| d.to_string()).unwrap_or_default());
    }
    assert!(seen.is_empty(), "{story}: keys from nowhere: {:?}", seen.keys());
}

/// What was seen while the sink was slow.
struct Run {
    report: Report,
    pace: Arc<Pace>,
    crashes: CrashCounts,
}

impl Run {
    fn ahead(&self) -> u64 {
        self.pace.ahead_max.load(SeqCst)
    }

    fn growth(&self) -> u64 {
        self.pace.resident_max.load(SeqCst).saturating_sub(self.pace.resident_first.load(SeqCst))
    }

    fn per_second(&self) -> f64 {
        let (records, nanos) = match self.pace.slow_for.load(SeqCst) {
            0 => (SLICE, self.pace.fastest.lock().expect("no panic").0),
            slow => (self.pace.slow_taken.load(SeqCst), slow),
        };
        records as f64 / Duration::from_nanos(nanos).as_secs_f64()
    }
}

/// Runs the job to its end.
fn run(alignment: Alignment, channel: usize, per_record: Duration, checkpoints: u64) -> Run {
    let dir = tempfile::tempdir().expect("a directory");
    load(dir.path());
    let (pace, crashes) = (Pace::new(per_record, checkpoints), CrashCounts::new());
    let mut options = Options::new("slow", dir.path());
    options.workers = WORKERS;
    options.platform.crash = crashes.points();
    // Nothing is in the way of a source that may run ahead.
    let every = Duration::from_millis(if checkpoints > 0 { 20 } else { 60_000 });
    options.guarantee = Guarantee::ExactlyOnce(Snapshots { alignment, ..Snapshots::every(every) });
    (options.limits.batch_records, options.limits.channel_records) = (BATCH, channel);
    let out = pace.clone();
    let build = move |job: &Job| {
        let log = job.log();
        // The payload crosses the exchange and is under way on both edges.
        let row = |record: LogRecord| {
            let key = record.key.as_deref().and_then(|key| key.try_into().ok()).expect("eight bytes");
            (u64::from_be_bytes(key), String::from_utf8(record.value.expect("a payload")).expect("text"))
        };
        job.source("numbers", log.read("numbers").until_latest())
            .map(row)
            .key_by(|row: &(u64, String)| row.0)
            .count("counts")
            .map(|(key, count): (u64, u64)| (key, count, ".".repeat(PAYLOAD)))
            .overtakable_by(|row: &(u64, u64, String)| row.0)
            .sink("slow", Slowly { inner: log.write("counts").value(Json), pace: out.clone() });
        Ok(())
    };
    let report = cutwater::run_with(build, &options, &pace.control).expect("it runs");
    assert!(report.finished && report.failures.is_empty(), "{report}");
    report.assert_balanced();
    assert_eq!(pace.taken.load(SeqCst), RECORDS, "{report}");
    assert_exact(dir.path(), &format!("{alignment}, {per_record:?} a record"));
    let run = Run { report, pace, crashes };
    println!(
        "{alignment}, channels of {channel}, {per_record:?} a record: {:.0} a second, {} ahead, {} KiB more resident, {} committed, at \
         most {} bytes in a checkpoint",
        run.per_second(),
        run.ahead(),
        run.growth() >> 10,
        run.report.committed,
        run.report.history.iter().map(|record| record.bytes).max().unwrap_or(0),
    );
    run
}

#[test]
fn a_sink_a_hundred_times_slower_than_its_source_leaves_memory_flat_and_output_exact() {
    let fast = run(Alignment::Aligned, CHANNEL, Duration::ZERO, 0);
    // Most records go through one writer, so it alone must be slow enough, and a fifth more.
    let per_record = Duration::from_secs_f64(120.0 / fast.per_second());
    for alignment in [Alignment::Aligned, Alignment::Unaligned] {
        let slow = run(alignment, CHANNEL, per_record, SLOW_CHECKPOINTS);
        let ratio = fast.per_second() / slow.per_second();
        assert!(ratio >= 100.0, "{alignment}: only {ratio:.1} times slower");
        assert!(slow.ahead() <= bound(CHANNEL), "{alignment}: {} ahead, {} allowed", slow.ahead(), bound(CHANNEL));
        assert!(slow.ahead() > CHANNEL as u64, "{alignment}: only {} ahead: nothing waited", slow.ahead());
        assert!(slow.growth() <= GROWTH_MAX, "{alignment}: {} bytes more resident", slow.growth());
        let overtook = slow.crashes.reached().get("operator.overtook").copied().unwrap_or(0);
        assert_eq!(overtook > 0, alignment == Alignment::Unaligned, "{alignment}: {overtook} overtaken");
        // The keyed state is small; the rest of a checkpoint is what was in flight.
        let most = slow.report.history.iter().map(|record| record.bytes).max().unwrap_or(0);
        let allowed = bound(CHANNEL) * (PAYLOAD as u64 + 128) + (64 << 10);
        assert!(most <= allowed, "{alignment}: a checkpoint of {most} bytes, {allowed} allowed");
    }
    // Where limits allow it the source does run ahead, and what is asserted above sees it.
    let channel = RECORDS as usize;
    let ahead = run(Alignment::Aligned, channel, per_record, 0);
    assert!(ahead.ahead() > 10 * bound(CHANNEL), "{} ahead: that would pass for flat", ahead.ahead());
    let told = resident() == 0 || ahead.growth() > GROWTH_MAX;
    assert!(told, "{} bytes more resident: that would pass for flat", ahead.growth());
}
