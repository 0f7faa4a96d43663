//! How long a checkpoint takes while a sink is slower than its source, by the alignment of barriers.
//!
//! `cargo bench -p cutwater-benches --bench unaligned [-- --seconds N]`
//!
//! A source that is never short of records, a count per key, a sink that takes a fixed time per record: everything that may be under way
//! is under way. A checkpoint counts from its trigger to its commit, seen from outside every half millisecond. Settings take turns
//! within one run, in rounds, so that what else the machine does falls on all of them.

#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cutwater_benches::{machine, table};
use cutwater_engine::config::{Alignment, Guarantee, GuaranteeKind, Options, Snapshots};
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::Job;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::observe::Control;
use cutwater_engine::sink::{CommitGroup, Honours, Prepare, Sink, SinkWriter, WriterId};
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_platform::{Clock, SystemClock};
use cutwater_sources_sinks::generator::generate;

cutwater::mimalloc!();

const KEYS: u64 = 100_000;
const ROUNDS: u64 = 2;
const EVERY: Duration = Duration::from_millis(50);

/// Counts what comes, and takes its time.
#[derive(Clone)]
struct Slow {
    per_record: Duration,
}

impl Sink for Slow {
    type Item = (u64, u64);

    fn honours(&self) -> Honours {
        // It shows nothing to anybody, so nobody sees anything twice.
        let guarantees = vec![GuaranteeKind::ExactlyOnce];
        Honours { guarantees, reason: "it is a measurement".to_string() }
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
        SystemClock::new().sleep(self.per_record * u32::try_from(batch.len()).expect("a batch"));
        Ok(())
    }

    fn seal(&mut self, _: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        Ok(None)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

fn main() {
    let mut seconds = 8;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next().and_then(|v| v.parse::<u64>().ok())) {
            ("--seconds", Some(n)) => seconds = n,
            ("--bench", _) => {}
            (other, _) => panic!("unknown argument {other}"),
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!(
        "a checkpoint every {EVERY:?}, {KEYS} keys, 2 workers, {ROUNDS} rounds of {seconds} s each; {}",
        machine(dir.path())
    );
    let alignments = [Alignment::Aligned, Alignment::AlignedFor(Duration::from_millis(100)), Alignment::Unaligned];
    let mut rows = vec![["sink", "barriers", "median ms", "max ms", "checkpoints"].map(String::from).to_vec()];
    for per_record in [Duration::from_micros(1), Duration::from_micros(10)] {
        let mut times = alignments.map(|_| vec![]);
        for _ in 0..ROUNDS {
            for (alignment, times) in alignments.iter().zip(&mut times) {
                let dir = tempfile::tempdir_in(dir.path()).expect("a temporary directory");
                times.extend(measured(dir.path(), per_record, *alignment, Duration::from_secs(seconds)));
            }
        }
        for (alignment, mut times) in alignments.iter().zip(times) {
            times.sort_unstable();
            let ms =
                |time: Option<&Duration>| time.map_or("-".to_string(), |t| format!("{:.1}", t.as_secs_f64() * 1e3));
            rows.push(vec![
                format!("{per_record:?} a record"),
                alignment.to_string(),
                ms(times.get(times.len() / 2)),
                ms(times.last()),
                times.len().to_string(),
            ]);
        }
    }
    println!("{}", table(&rows));
}

/// How long each checkpoint took, once the channels had filled up.
fn measured(dir: &Path, per_record: Duration, alignment: Alignment, time: Duration) -> Vec<Duration> {
    let mut options = Options::new("unaligned", dir);
    options.workers = 2;
    options.guarantee = Guarantee::ExactlyOnce(Snapshots { alignment, ..Snapshots::every(EVERY) });
    let (control, clock) = (Control::new(), SystemClock::new());
    let build = move |job: &Job| {
        // More than it can come to.
        let numbers = job.source("numbers", generate(job, 1 << 40, |n| n)).overtakable();
        numbers.key_by(|n| n % KEYS).count("counts").overtakable().sink("slow", Slow { per_record });
        Ok(())
    };
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (start, mut times) = (clock.monotonic(), vec![]);
            let (mut under_way, mut last) = (None, CheckpointId(0));
            while clock.monotonic() - start < time {
                clock.sleep(Duration::from_micros(500));
                let (seen, now) = (control.seen(), clock.monotonic());
                if let Some((n, since)) = under_way.filter(|(n, _)| seen.committed >= *n) {
                    last = n;
                    if since > start + time / 4 {
                        times.push(now - since);
                    }
                    under_way = None;
                }
                if under_way.is_none() && seen.triggered > last && seen.triggered > seen.committed {
                    under_way = Some((seen.triggered, now));
                }
            }
            // One that was too long to be seen whole took this long at least.
            times.extend(under_way.map(|(_, since)| clock.monotonic() - since));
            control.stop();
            times
        });
        run(build, &options, &control).expect("it runs").assert_balanced();
        watcher.join().expect("no panic")
    })
}
