//! From the moment a record should be sent to the moment a reader of the output has it, at a fixed rate.
//!
//! `cargo bench -p cutwater-benches --bench latency [-- --seconds N --rate N]`
//!
//! Open loop: each record carries the time at which it was *due*, whether or not the source came to it in time, so a pause counts for
//! every record that it held up (no coordinated omission). The job counts per key and writes each count to the log; the reader reads
//! it as a read-committed consumer on a thread of its own. Under exactly-once a record can't be seen before its checkpoint is
//! committed: half an interval on average is the price, not a fault.

#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cutwater_benches::{cpu_time, machine, table};
use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, SourceError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::Control;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_engine::time::EventTime;
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::RecordRef;
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{Clock, Platform, SystemClock};
use cutwater_sources_sinks::codec::Bytes;
use cutwater_sources_sinks::log::LogHandle;

cutwater::mimalloc!();

const KEYS: u64 = 100_000;
/// Records that are due in the first seconds are not counted: first touch of memory.
const WARM_UP: Duration = Duration::from_secs(2);

fn main() {
    let (mut seconds, mut rate) = (10, 100_000);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next().and_then(|v| v.parse::<u64>().ok())) {
            ("--seconds", Some(n)) => seconds = n,
            ("--rate", Some(n)) => rate = n,
            ("--bench", _) => {}
            (other, _) => panic!("unknown argument {other}"),
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("latency at {rate} records/s, {KEYS} keys, 2 workers, {seconds} s each; {}", machine(dir.path()));
    let every = |ms| Snapshots::every(Duration::from_millis(ms));
    let mut rows =
        vec![["", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "records", "CPU us/record"].map(String::from).to_vec()];
    for (name, guarantee) in [
        ("at-most-once", Guarantee::AtMostOnce),
        ("at-least-once, 1 s", Guarantee::AtLeastOnce(every(1000))),
        ("exactly-once, 10 ms", Guarantee::ExactlyOnce(every(10))),
        ("exactly-once, 100 ms", Guarantee::ExactlyOnce(every(100))),
        ("exactly-once, 1 s", Guarantee::ExactlyOnce(every(1000))),
    ] {
        let dir = tempfile::tempdir_in(dir.path()).expect("a temporary directory");
        let (mut latencies, cpu) = measured(dir.path(), guarantee, rate, Duration::from_secs(seconds) + WARM_UP);
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        let mut row = vec![name.to_string()];
        row.extend([0.5, 0.99, 0.999, 1.0].map(|share| format!("{:.1}", at(share) as f64 / 1e6)));
        row.push(latencies.len().to_string());
        row.push(format!("{:.2}", cpu.as_secs_f64() * 1e6 / latencies.len() as f64));
        rows.push(row);
    }
    println!("{}", table(&rows));
}

/// Nanoseconds from due to read, of every record after the warm-up; and the processor's time, warm-up included.
fn measured(dir: &Path, guarantee: Guarantee, rate: u64, duration: Duration) -> (Vec<u64>, Duration) {
    let platform = Platform::real();
    let log = Log::open(&platform, &dir.join("log"), LogOptions::default()).expect("the log opens");
    let topic = log.create_topic("counts", 1).expect("a new topic");
    let clock = Arc::new(SystemClock::new());
    let ticks = Ticks {
        start: clock.monotonic() + Duration::from_millis(100),
        period: Duration::from_secs(1) / u32::try_from(rate).expect("a rate below 2^32"),
        count: rate * duration.as_secs(),
        clock: clock.clone(),
    };
    let counted_from = ticks.start + WARM_UP;
    let mut options = Options::new("latency", dir.join("job"));
    options.workers = 2;
    options.guarantee = guarantee;
    let handle = LogHandle::of(&platform, log.clone());
    let cpu = cpu_time();
    let latencies = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut consumer =
                log.consumer(topic, 0, Offset(0), Isolation::ReadCommitted).expect("the partition is there");
            let mut latencies = vec![];
            loop {
                // The job closes the log when it has finished; what is unread then is left out, and looked at below.
                let Ok(fetched) = consumer.poll(1 << 20) else { return latencies };
                let now = clock.monotonic();
                let each = |record: RecordRef<'_>| {
                    // Microseconds stand in the place of milliseconds.
                    let due = Duration::from_micros(record.timestamp_ms.unsigned_abs());
                    if due >= counted_from {
                        latencies.push((now - due).as_nanos() as u64);
                    }
                };
                fetched.for_each(each).expect("whole batches");
                if fetched.is_empty() {
                    consumer.wait(Duration::from_millis(20));
                }
            }
        });
        let report = run(move |job| build(job, &handle, ticks.clone()), &options, &Control::new()).expect("it runs");
        report.assert_balanced();
        reader.join().expect("no panic")
    });
    let expected = rate * (duration - WARM_UP).as_secs();
    let unread = expected - latencies.len() as u64;
    assert!(unread < expected / 20, "{unread} of {expected} records were not read before the log was closed");
    (latencies, cpu_time() - cpu)
}

fn build(job: &Job, log: &LogHandle, ticks: Ticks) -> Result<(), BuildError> {
    job.source("ticks", ticks)
        // The time at which a record was due goes along as its event time, in microseconds.
        .timestamps(|(_, due)| EventTime((due / 1_000) as i64), Bounded::millis(0))
        .key_by(|(number, _)| number % KEYS)
        .count("count")
        .map(|(key, count)| [key.to_le_bytes(), count.to_le_bytes()].concat())
        .sink("counts", log.write("counts").value(Bytes));
    Ok(())
}

/// Records that are due at a fixed rate: their number and, in nanoseconds of the clock, when.
#[derive(Clone)]
struct Ticks {
    start: Duration,
    period: Duration,
    count: u64,
    clock: Arc<SystemClock>,
}

impl Source for Ticks {
    type Item = (u64, u64);

    fn replay(&self) -> Replay {
        Replay::FromPosition
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        Ok(vec!["all".to_string()])
    }

    fn open(
        &self,
        split: &str,
        at: Option<&[u8]>,
        _: Waker,
    ) -> Result<Box<dyn Reader<Item = (u64, u64)>>, SourceError> {
        let made = match at {
            None => 0,
            Some(bytes) => u64::from_le_bytes(bytes.try_into().map_err(|e| SourceError::fatal(split.to_string(), e))?),
        };
        Ok(Box::new(TickReader { ticks: self.clone(), made }))
    }
}

struct TickReader {
    ticks: Ticks,
    made: u64,
}

impl Reader for TickReader {
    type Item = (u64, u64);

    fn read(&mut self, out: &mut Vec<(u64, u64)>, max: usize) -> Result<Read, SourceError> {
        let Ticks { start, period, count, clock } = &self.ticks;
        let passed = clock.monotonic().saturating_sub(*start);
        let due = u64::try_from(passed.as_nanos() / period.as_nanos()).unwrap_or(u64::MAX).min(*count);
        let until = due.min(self.made + max as u64);
        let time = |n: u64| (n, (start.as_nanos() + u128::from(n) * period.as_nanos()) as u64);
        out.extend((self.made..until).map(time));
        self.made = until;
        Ok(match () {
            () if self.made == *count => Read::Exhausted,
            () if self.made < due => Read::More,
            () => Read::WaitMs(1),
        })
    }

    fn position(&self) -> Vec<u8> {
        self.made.to_le_bytes().to_vec()
    }
}
