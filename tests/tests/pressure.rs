//! Back-pressure: a sink a hundred times slower than its source, and a key that nearly all records have. What is under way stays
//! bounded by the configured limits (I-9), whatever the input does, and the result is exact.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater::connectors::generator::generate;
use cutwater::engine::config::{Guarantee, GuaranteeKind, Options, Snapshots};
use cutwater::engine::error::SinkError;
use cutwater::engine::id::CheckpointId;
use cutwater::engine::observe::Control;
use cutwater::engine::sink::{CommitGroup, Honours, Prepare, Sink, SinkWriter, WriterId};
use cutwater::prelude::*;
use cutwater_platform::{Clock, SystemClock};

/// Takes rows into memory, slowly, and notes how far the source was ahead of it.
#[derive(Clone)]
struct Slow {
    per_batch: Duration,
    rows: Arc<Mutex<Vec<(u64, u64)>>>,
    taken: Arc<AtomicU64>,
    ahead_max: Arc<AtomicU64>,
    control: Control,
}

impl Slow {
    fn new(per_batch: Duration, control: &Control) -> Slow {
        let (rows, taken, ahead_max) = <(Arc<Mutex<_>>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        Slow { per_batch, rows, taken, ahead_max, control: control.clone() }
    }
}

impl Sink for Slow {
    type Item = (u64, u64);

    fn honours(&self) -> Honours {
        let guarantees = vec![GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce];
        Honours { guarantees, reason: "what it took can't be taken back".to_string() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        None
    }

    fn open(&self, _: &WriterId) -> Result<Box<dyn SinkWriter<Item = (u64, u64)>>, SinkError> {
        Ok(Box::new(self.clone()))
    }
}

impl SinkWriter for Slow {
    type Item = (u64, u64);

    fn write(&mut self, batch: Vec<(u64, u64)>) -> Result<(), SinkError> {
        let ahead = self.control.seen().read.saturating_sub(self.taken.load(Ordering::SeqCst));
        self.ahead_max.fetch_max(ahead, Ordering::SeqCst);
        SystemClock::new().sleep(self.per_batch);
        self.taken.fetch_add(batch.len() as u64, Ordering::SeqCst);
        self.rows.lock().expect("no panic").extend(batch);
        Ok(())
    }

    fn seal(&mut self, _: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        Ok(None)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

const BATCH: usize = 16;
const CHANNEL: usize = 64;

fn options(dir: &std::path::Path, workers: usize) -> Options {
    let mut options = Options::new("pressure", dir);
    options.workers = workers;
    options.guarantee = Guarantee::AtLeastOnce(Snapshots::every(Duration::from_millis(20)));
    options.limits.batch_records = BATCH;
    options.limits.channel_records = CHANNEL;
    options
}

/// Runs a job that counts keys into a sink that sleeps over each batch; checks every count and answers how far the source was
/// ahead at most.
fn ahead_of(slow: Duration, workers: usize, records: u64, key: fn(u64) -> u64) -> u64 {
    let dir = tempfile::tempdir().expect("a directory");
    let control = Control::new();
    let sink = Slow::new(slow, &control);
    let out = sink.clone();
    let build = move |job: &Job| {
        let numbers = job.source("numbers", generate(job, records, |n| n));
        numbers.key_by(move |n| key(*n)).count("counts").sink("slow", out.clone());
        Ok(())
    };
    let report = cutwater::run_with(build, &options(dir.path(), workers), &control).expect("it runs");
    assert!(report.finished && report.committed > 1, "checkpoints went through: {report}");
    report.assert_balanced();
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, count) in sink.rows.lock().expect("no panic").iter() {
        seen.entry(*key).or_default().push(*count);
    }
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    (0..records).for_each(|n| *expected.entry(key(n)).or_default() += 1);
    for (key, total) in expected {
        let counts = seen.remove(&key).unwrap_or_default();
        assert_eq!(counts, (1..=total).collect::<Vec<_>>(), "counts of key {key}");
    }
    assert!(seen.is_empty(), "keys from nowhere: {seen:?}");
    sink.ahead_max.load(Ordering::SeqCst)
}

/// What the limits allow to be under way: two edges of `workers` x `workers` and `workers` channels, each with its records and a
/// batch on either side.
fn bound(workers: usize) -> u64 {
    ((workers * workers + workers) * (CHANNEL + 2 * BATCH) + 4 * workers * BATCH) as u64
}

#[test]
fn a_sink_much_slower_than_its_source_holds_it_back() {
    for workers in [1, 2] {
        let ahead = ahead_of(Duration::from_millis(4), workers, 6_000, |n| n % 97);
        assert!(ahead <= bound(workers), "{workers} workers: {ahead} records ahead, {} allowed", bound(workers));
        assert!(ahead > BATCH as u64, "the source was ahead at all: {ahead}");
    }
}

#[test]
fn a_key_that_nearly_all_records_have_is_counted_in_order_and_bounded() {
    for workers in [2, 4] {
        let hot = |n: u64| if n % 10 == 0 { n % 101 } else { 7 };
        let ahead = ahead_of(Duration::from_millis(1), workers, 8_000, hot);
        assert!(ahead <= bound(workers), "{workers} workers: {ahead} records ahead, {} allowed", bound(workers));
    }
}
