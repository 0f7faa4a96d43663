//! The golden job: two pipelines in one program, whose output doesn't depend on how workers interleave.
//!
//! ```text
//!   clicks (3 partitions, a key in one of them)  -> running count per key     -> counts (2 partitions, by key)
//!   events (1 partition, out of order)           -> 10 s windows, sum per key -> windows, late
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use cutwater_engine::config::{Alignment, Guarantee, GuaranteeKind, Options, RestoreFrom, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::time::EventTime;
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{CrashPoints, Platform, SplitMix};
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::log::{JobLog, LogHandle, LogRecord};
use cutwater_testkit::{multiset_diff, sequence_diff};

use crate::Machine;

const CLICKS: u64 = 600;
const CLICK_KEYS: u64 = 23;
const CLICK_PARTITIONS: u64 = 3;
const EVENTS: u64 = 400;
const EVENT_KEYS: u64 = 5;
/// Events come at most this much before the newest one.
const DISORDER_MS: i64 = 4_000;
const WINDOW_MS: i64 = 10_000;

/// The input, the same for everybody.
#[derive(Clone, Debug)]
pub struct Input {
    /// Keys of clicks, in order.
    pub clicks: Vec<u64>,
    /// (event time, key, value), in order of arrival. Every 50th is far too late.
    pub events: Vec<(i64, u64, u64)>,
}

impl Input {
    /// The input of this seed.
    pub fn new(seed: u64) -> Input {
        let mut random = SplitMix::new(seed);
        let clicks = (0..CLICKS).map(|_| random.below(CLICK_KEYS)).collect();
        let event = |i: u64| {
            let on_time = (i as i64) * 300 - random.below(DISORDER_MS as u64) as i64;
            let t = if i % 50 == 49 { on_time - 3 * WINDOW_MS } else { on_time };
            (t, random.below(EVENT_KEYS), random.below(100))
        };
        Input { clicks, events: (0..EVENTS).map(event).collect() }
    }

    /// Loads the input into the log of a machine, and closes it cleanly.
    pub fn load(&self, machine: &Machine) {
        let log = open(&machine.platform());
        let clicks = log.create_topic("clicks", CLICK_PARTITIONS as u32).expect("a new topic");
        let events = log.create_topic("events", 1).expect("a new topic");
        let producer = log.producer().expect("a producer");
        let mut batch = BatchBuilder::new(Compression::None);
        for partition in 0..CLICK_PARTITIONS {
            let here: Vec<u64> = self.clicks.iter().copied().filter(|k| k % CLICK_PARTITIONS == partition).collect();
            for chunk in here.chunks(7) {
                for key in chunk {
                    batch.push(0, None, Some(key.to_string().as_bytes()), &[]).expect("it fits");
                }
                producer.append(clicks, partition as u32, &mut batch).expect("accepted").wait().expect("acknowledged");
            }
        }
        for chunk in self.events.chunks(11) {
            for (t, key, value) in chunk {
                batch.push(0, None, Some(format!("{t} {key} {value}").as_bytes()), &[]).expect("it fits");
            }
            producer.append(events, 0, &mut batch).expect("accepted").wait().expect("acknowledged");
        }
        log.close().expect("a clean close");
    }
}

/// What readers must see, computed without engine and log.
#[derive(Debug)]
pub struct Expected {
    /// For each key, its counts in order.
    counts: BTreeMap<u64, Vec<u64>>,
    /// For each window start and key, how many events, and their sum; without the late ones.
    windows: Sums,
    /// Events that come three windows late. Their window has fired, unless a worker upstream hasn't been heard of yet: where little
    /// holds records up, those of a worker that starts late are ahead of what it has to say.
    late: Vec<(i64, u64, u64)>,
}

type Sums = BTreeMap<(i64, u64), (u64, u64)>;

fn line((t, key, value): &(i64, u64, u64)) -> String {
    format!("{t} {key} {value}")
}

/// Counts an event in its window.
fn count(windows: &mut Sums, (t, key, value): (i64, u64, u64)) {
    let (events, sum) = windows.entry((t.div_euclid(WINDOW_MS) * WINDOW_MS, key)).or_default();
    (*events, *sum) = (*events + 1, *sum + value);
}

/// "window start, key, events, sum".
fn rows(windows: &Sums) -> Vec<String> {
    windows.iter().map(|((start, key), (n, sum))| format!("{start} {key} {n} {sum}")).collect()
}

impl Expected {
    /// For this input.
    pub fn of(input: &Input) -> Expected {
        let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for key in &input.clicks {
            let seen = counts.entry(*key).or_default();
            seen.push(seen.len() as u64 + 1);
        }
        let (mut windows, mut late) = (Sums::new(), vec![]);
        let mut newest = i64::MIN;
        for event in &input.events {
            newest = newest.max(event.0);
            // Three windows late: under every batching, for batches hold less than a window of time.
            if newest.saturating_sub(event.0) > 2 * WINDOW_MS { late.push(*event) } else { count(&mut windows, *event) }
        }
        Expected { counts, windows, late }
    }

    /// Reads a machine's log as a read-committed reader and compares everything: sequences per key, multisets per topic. Each late
    /// event is counted once, among the late ones or in its window.
    ///
    /// # Panics
    /// With the story of the first difference.
    pub fn assert_seen(&self, machine: &Machine, story: &str) {
        let log = open(&machine.platform());
        let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for line in read(&log, "counts") {
            let pair = line.trim_matches(['[', ']']).split_once(',');
            let (key, count) = pair.expect("a pair of numbers in JSON");
            counts.entry(key.parse().expect("a key")).or_default().push(count.parse().expect("a count"));
        }
        for (key, expected) in &self.counts {
            let seen = counts.remove(key).unwrap_or_default();
            if let Some(diff) = sequence_diff(expected, &seen) {
                panic!("{story}\ncounts of key {key}: {diff}");
            }
        }
        assert!(counts.is_empty(), "{story}\ncounts of keys that nobody clicked: {counts:?}");
        let (mut told, mut windows, mut late) = (read(&log, "late"), self.windows.clone(), vec![]);
        for event in &self.late {
            match told.iter().position(|text| *text == line(event)) {
                Some(at) => late.push(told.swap_remove(at)),
                None => count(&mut windows, *event),
            }
        }
        for (topic, expected) in [("windows", rows(&windows)), ("late", late)] {
            if let Some(diff) = multiset_diff(&expected, &read(&log, topic)) {
                panic!("{story}\n{topic}: {diff}");
            }
        }
        let open = log.transactions();
        assert!(open.is_empty(), "{story}\ntransactions were left: {open:?}");
        log.close().expect("a clean close");
    }
}

/// What readers missed and what they saw too much of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deviation {
    /// Results that nobody saw.
    pub lost: u64,
    /// Results that were seen again, or that count a record again.
    pub repeated: u64,
}

impl std::ops::AddAssign for Deviation {
    fn add_assign(&mut self, other: Deviation) {
        self.lost += other.lost;
        self.repeated += other.repeated;
    }
}

impl Expected {
    /// How what is in a machine's log deviates, for guarantees that promise less than exactness; of the running counts, and of
    /// windows and late events together.
    pub fn deviation(&self, machine: &Machine) -> [Deviation; 2] {
        let log = open(&machine.platform());
        let mut counts: BTreeMap<(u64, u64), i64> = BTreeMap::new();
        for (key, expected) in &self.counts {
            for count in expected {
                *counts.entry((*key, *count)).or_default() -= 1;
            }
        }
        for line in read(&log, "counts") {
            let (key, count) = line.trim_matches(['[', ']']).split_once(',').expect("a pair of numbers in JSON");
            *counts.entry((key.parse().expect("a key"), count.parse().expect("a count"))).or_default() += 1;
        }
        let mut late: BTreeMap<String, i64> = BTreeMap::new();
        let mut seen_windows = read(&log, "windows");
        self.late.iter().for_each(|event| *late.entry(line(event)).or_default() -= 1);
        read(&log, "late").into_iter().for_each(|line| *late.entry(line).or_default() += 1);
        // A window that counts an event twice isn't lost: its events are all there.
        let mut lost_windows = 0;
        for expected in &rows(&self.windows) {
            let exact = seen_windows.iter().position(|seen| seen == expected);
            let found = exact.or_else(|| seen_windows.iter().position(|seen| counts_more(seen, expected)));
            match found {
                Some(at) if exact.is_some() => _ = seen_windows.swap_remove(at),
                Some(_) => {}
                None => lost_windows += 1,
            }
        }
        log.close().expect("a clean close");
        let sum = |balances: &mut dyn Iterator<Item = i64>| {
            let mut deviation = Deviation::default();
            for balance in balances {
                deviation += Deviation { lost: balance.min(0).unsigned_abs(), repeated: balance.max(0).unsigned_abs() };
            }
            deviation
        };
        let mut events = sum(&mut late.values().copied());
        events += Deviation { lost: lost_windows, repeated: seen_windows.len() as u64 };
        [sum(&mut counts.values().copied()), events]
    }
}

/// Whether this row is of the same window and key as the other one and counts more events.
fn counts_more(row: &str, than: &str) -> bool {
    let parts = |row: &str| -> Option<(String, u64)> {
        let mut words = row.split(' ');
        let window = format!("{} {}", words.next()?, words.next()?);
        Some((window, words.next()?.parse().ok()?))
    };
    let (Some((window, events)), Some((other, fewer))) = (parts(row), parts(than)) else { return false };
    window == other && events > fewer
}

/// One life of the golden job, on the log in the machine's data directory.
///
/// # Errors
/// What ended it.
pub fn live(machine: &Machine, workers: usize) -> Result<Report, RunError> {
    live_under(machine, workers, &Control::new())
}

/// One life of the golden job that can be watched and stopped.
///
/// # Errors
/// What ended it.
pub fn live_under(machine: &Machine, workers: usize, control: &Control) -> Result<Report, RunError> {
    run_job(machine, workers, GuaranteeKind::ExactlyOnce, control, |job| build(job, &job.log(), Slow::Before))
}

/// One life of the golden job under this guarantee. Its books must balance as far as the guarantee promises.
///
/// # Errors
/// What ended it.
pub fn live_promising(machine: &Machine, workers: usize, promise: GuaranteeKind) -> Result<Report, RunError> {
    run_job(machine, workers, promise, &Control::new(), |job| build(job, &job.log(), Slow::Before))
}

/// One life of the golden job with its slow steps behind the exchanges, so that records wait there for the barriers of checkpoints
/// that are aligned like this.
///
/// # Errors
/// What ended it.
pub fn live_pressed(
    machine: &Machine,
    workers: usize,
    alignment: Alignment,
    control: &Control,
) -> Result<Report, RunError> {
    let mut options = options(machine, workers);
    options.guarantee = Guarantee::ExactlyOnce(snapshots(alignment));
    options.limits.channel_records = 48;
    run_with(&options, control, |job| build(job, &job.log(), Slow::Behind))
}

/// One life of the golden job, on a log that is open already.
///
/// # Errors
/// What ended it.
pub fn live_on(machine: &Machine, workers: usize, log: &LogHandle) -> Result<Report, RunError> {
    let log = log.clone();
    run_job(machine, workers, GuaranteeKind::ExactlyOnce, &Control::new(), move |job| build(job, &log, Slow::Before))
}

/// One life of the golden job that waits so long for room on a full disk; the other lives don't.
///
/// # Errors
/// What ended it.
pub fn live_waiting(machine: &Machine, workers: usize, wait: Duration, control: &Control) -> Result<Report, RunError> {
    let mut options = options(machine, workers);
    options.guarantee = Guarantee::ExactlyOnce(snapshots(Alignment::Aligned));
    options.wait_for_space = wait;
    run_with(&options, control, |job| build(job, &job.log(), Slow::Before))
}

/// The same on a log that is open already, and that others read.
///
/// # Errors
/// What ended it.
pub fn live_waiting_on(
    machine: &Machine,
    workers: usize,
    wait: Duration,
    control: &Control,
    log: &LogHandle,
) -> Result<Report, RunError> {
    let log = log.clone();
    let mut options = options(machine, workers);
    options.guarantee = Guarantee::ExactlyOnce(snapshots(Alignment::Aligned));
    options.wait_for_space = wait;
    run_with(&options, control, move |job| build(job, &log, Slow::Before))
}

/// One life of the golden job in a directory of its own, on a log that is open already; begun from a savepoint if one is named.
///
/// # Errors
/// What ended it.
pub fn live_in(
    machine: &Machine,
    dir: &str,
    workers: usize,
    log: &LogHandle,
    savepoint: Option<&str>,
    control: &Control,
) -> Result<Report, RunError> {
    let log = log.clone();
    let mut options = options(machine, workers);
    options.dir = dir.into();
    options.guarantee = Guarantee::ExactlyOnce(snapshots(Alignment::Aligned));
    options.restore = savepoint.map(|folder| RestoreFrom { savepoint: folder.into(), fork: false });
    run_with(&options, control, move |job| build(job, &log, Slow::Before))
}

fn run_job(
    machine: &Machine,
    workers: usize,
    promise: GuaranteeKind,
    control: &Control,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
) -> Result<Report, RunError> {
    let mut options = options(machine, workers);
    options.guarantee = guarantee(promise);
    run_with(&options, control, build)
}

pub(crate) fn guarantee(promise: GuaranteeKind) -> Guarantee {
    match promise {
        GuaranteeKind::AtMostOnce => Guarantee::AtMostOnce,
        GuaranteeKind::AtLeastOnce => Guarantee::AtLeastOnce(snapshots(Alignment::Aligned)),
        GuaranteeKind::ExactlyOnce => Guarantee::ExactlyOnce(snapshots(Alignment::Aligned)),
    }
}

/// One life of the golden job under this guarantee, in which each record that was read reaches [`RECORD`], and that starts again
/// so many times by itself.
///
/// # Errors
/// What ended it.
pub fn live_tapped(
    machine: &Machine,
    workers: usize,
    promise: GuaranteeKind,
    restarts: u32,
) -> Result<Report, RunError> {
    let mut options = options(machine, workers);
    (options.guarantee, options.restarts_max) = (guarantee(promise), restarts);
    let tap = machine.platform().crash;
    run_with(&options, &Control::new(), move |job| build_tapped(job, &job.log(), Slow::Before, &tap))
}

pub(crate) fn snapshots(alignment: Alignment) -> Snapshots {
    let every = Snapshots::every(Duration::from_millis(2));
    Snapshots { alignment, retained: 2, deltas_max: 2, merge_after: 1, declined_max: 2, ..every }
}

pub(crate) fn options(machine: &Machine, workers: usize) -> Options {
    let mut options = Options::new("golden", machine.dir());
    options.workers = workers;
    options.pin = false;
    options.restarts_max = 0;
    options.wait_for_space = Duration::ZERO;
    options.platform = machine.platform();
    // Little stands before a barrier, so that a run takes a dozen checkpoints and not three.
    options.limits.batch_records = 4;
    options.limits.channel_records = 8;
    options.limits.batches_per_step = 1;
    options
}

pub(crate) fn run_with(
    options: &Options,
    control: &Control,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
) -> Result<Report, RunError> {
    let report = run(build, options, control)?;
    report.assert_balanced();
    Ok(report)
}

/// Where the golden job takes its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slow {
    /// Before the exchanges: what waits, waits in the log.
    Before,
    /// Behind them: what waits is under way.
    Behind,
}

/// Slows a pipeline down, so that a few hundred records last for several checkpoints.
pub(crate) fn pace(this: bool) {
    if !this {
        return;
    }
    let clock = cutwater_platform::SystemClock::new();
    cutwater_platform::Clock::sleep(&clock, Duration::from_micros(100));
}

fn text(record: &LogRecord) -> String {
    String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned()
}

/// The point that a job's own functions reach with each record, where they are asked to.
pub const RECORD: &str = "job.record";
/// The same with each window that fires.
pub const WINDOW: &str = "job.window";

fn build(job: &Job, log: &LogHandle, slow: Slow) -> Result<(), BuildError> {
    build_tapped(job, log, slow, &CrashPoints::default())
}

fn build_tapped(job: &Job, log: &LogHandle, slow: Slow, tap: &CrashPoints) -> Result<(), BuildError> {
    let (before, behind) = (slow == Slow::Before, slow == Slow::Behind);
    let (click, event, row) = (tap.clone(), tap.clone(), tap.clone());
    job.source("clicks", log.read("clicks").until_latest())
        .inspect(move |_| pace(before))
        .inspect(move |_| click.reach(RECORD))
        .map(|record| text(&record).parse::<u64>().expect("a number"))
        .key_value(|key| (key, ()))
        .count("count")
        .overtakable_by(|(key, _): &(u64, u64)| *key)
        .inspect(move |_| pace(behind))
        .sink(
            "counts",
            log.write("counts")
                .partitions(2)
                .value(Json)
                .key_into(|(key, _): &(u64, u64), out| out.extend_from_slice(&key.to_be_bytes())),
        );

    let (windows, late) = job
        .source("events", log.read("events").until_latest())
        .inspect(move |_| pace(before))
        .inspect(move |_| event.reach(RECORD))
        .map(|record| {
            let line = text(&record);
            let numbers: Vec<i64> = line.split(' ').map(|n| n.parse().expect("a number")).collect();
            (numbers[0], numbers[1].unsigned_abs(), numbers[2].unsigned_abs())
        })
        .timestamps(|event| EventTime(event.0), Bounded::millis(DISORDER_MS as u32))
        .key_by(|event| event.1)
        .window(Tumbling::millis(WINDOW_MS as u32))
        .aggregate(
            "sums",
            || (0u64, 0u64),
            move |sum: &mut (u64, u64), event: &(i64, u64, u64)| {
                pace(behind);
                *sum = (sum.0 + 1, sum.1 + event.2);
            },
            move |key: &u64, window: Window, (n, sum)| {
                row.reach(WINDOW);
                format!("{} {key} {n} {sum}", window.start.0)
            },
        )
        .with_late();
    windows.sink("windows", log.write("windows"));
    late.map(|(t, key, value)| format!("{t} {key} {value}")).sink("late", log.write("late"));
    Ok(())
}

pub(crate) fn open(platform: &Platform) -> Log {
    Log::open(platform, Path::new("data/log"), LogOptions::default()).expect("the log opens after any crash")
}

pub(crate) fn read(log: &Log, topic: &str) -> Vec<String> {
    let Some(topic) = log.topic(topic) else { return vec![] };
    let mut lines = vec![];
    for partition in 0..topic.partitions {
        let mut consumer = log.consumer(topic.id, partition, Offset(0), Isolation::ReadCommitted).expect("a consumer");
        loop {
            let fetched = consumer.poll(1 << 20).expect("readable");
            fetched
                .for_each(|record| lines.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned()))
                .expect("whole batches");
            if fetched.is_empty() && consumer.position() >= consumer.readable_end() {
                break;
            }
        }
    }
    lines
}

/// How many different workers a case uses over its lives.
pub fn workers_of(case: u64, life: usize) -> usize {
    [1, 2, 3, 8][((case + life as u64) % 4) as usize]
}
