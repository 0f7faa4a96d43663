//! Time goes on although some have nothing to read: workers without a split of a source, sources that pause; also after such a job
//! has been restored with another number of workers.
//!
//! The sources have no end while these tests look, so a window that fires does so because the watermark has passed it.

use std::collections::BTreeMap;
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::BuildError;
use cutwater_engine::graph::{Job, Stream, Timed};
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::time::EventTime;
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{Clock, SystemClock};
use cutwater_sources_sinks::generator::{Generator, generate};
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::multiset_diff;
use cutwater_tests::Machine;

const WINDOW_MS: u32 = 1_000;
/// Records are this far apart in event time.
const STEP_MS: u64 = 100;
const KEYS: u64 = 5;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A numbered record of a named source.
type Row = (String, u64);

fn rows(job: &Job, name: &'static str, count: u64, splits: u32) -> Generator<Row> {
    generate(job, count, move |n| (name.to_string(), n)).in_splits(splits)
}

fn timed(job: &Job, name: &str, rows: Generator<Row>, bounded: Bounded) -> Stream<Row, Timed> {
    job.source(name, rows).timestamps(|(_, n)| EventTime((n * STEP_MS) as i64), bounded)
}

/// Which records each window of a key has, as text.
fn windows(all: Stream<Row, Timed>, log: &LogHandle) {
    let (windows, late) = all
        .key_by(|(_, n)| n % KEYS)
        .window(Tumbling::millis(WINDOW_MS))
        .aggregate(
            "by-window",
            Vec::new,
            |rows: &mut Vec<Row>, row: &Row| rows.push(row.clone()),
            |key: &u64, window: Window, rows| shown(*key, window.start.0, rows),
        )
        .with_late();
    windows.sink("windows", log.write("windows"));
    late.map(|row| format!("{row:?}")).sink("late", log.write("late"));
}

fn shown(key: u64, start: i64, mut rows: Vec<Row>) -> String {
    rows.sort();
    format!("{start} {key} {rows:?}")
}

/// What `windows` must come to for these sources.
fn expected(sources: &[(&str, u64)]) -> Vec<String> {
    let mut windows: BTreeMap<(i64, u64), Vec<Row>> = BTreeMap::new();
    for (name, count) in sources {
        for n in 0..*count {
            let start = (n * STEP_MS) as i64 / i64::from(WINDOW_MS) * i64::from(WINDOW_MS);
            windows.entry((start, n % KEYS)).or_default().push((name.to_string(), n));
        }
    }
    windows.into_iter().map(|((start, key), rows)| shown(key, start, rows)).collect()
}

/// When a life is stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Until {
    /// So many more windows are visible.
    Windows(usize),
    /// So much time has passed.
    Passed(Duration),
    /// Not at all: it runs to its end.
    TheEnd,
}

/// A log on a simulated disk over the lives of a job.
struct World {
    machine: Machine,
    log: Log,
    /// The log stays open as long as this is there.
    handle: LogHandle,
}

impl World {
    fn new() -> World {
        let machine = Machine::new(1);
        let log = Log::open(&machine.platform(), &machine.dir().join("log"), LogOptions::default()).expect("it opens");
        let handle = LogHandle::of(&machine.platform(), log.clone());
        World { machine, log, handle }
    }

    /// One life.
    fn live(&self, workers: usize, until: Until, build: impl Fn(&Job, &LogHandle) + Send + Sync + 'static) -> Report {
        let mut options = Options::new("idle", self.machine.dir());
        (options.workers, options.pin, options.platform) = (workers, false, self.machine.platform());
        options.guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(5)));
        options.limits.batch_records = 16;
        options.limits.channel_records = 64;
        let handle = self.handle.clone();
        let control = Control::new();
        let job = move |job: &Job| -> Result<(), BuildError> {
            build(job, &handle);
            Ok(())
        };
        let before = self.read("windows").len();
        let report = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(job, &options, &control));
            let clock = SystemClock::new();
            let since = clock.monotonic();
            let passed = || clock.monotonic().saturating_sub(since);
            let goes_on = || match until {
                Until::Windows(more) => self.read("windows").len() < before + more && passed() < PATIENCE,
                Until::Passed(time) => passed() < time,
                Until::TheEnd => true,
            };
            while goes_on() && !running.is_finished() {
                clock.sleep(Duration::from_millis(2));
            }
            control.stop();
            running.join().expect("no panic")
        });
        let report = report.unwrap_or_else(|e| panic!("{workers} workers: {e}"));
        report.assert_balanced();
        assert_eq!(report.finished, until == Until::TheEnd, "{report}");
        let now = self.read("windows").len();
        if let Until::Windows(more) = until {
            assert!(now >= before + more, "{workers} workers: time stands still after {now} windows");
        }
        report
    }

    fn read(&self, topic: &str) -> Vec<String> {
        let Some(topic) = self.log.topic(topic) else { return vec![] };
        let mut lines = vec![];
        for partition in 0..topic.partitions {
            let at = |offset| self.log.consumer(topic.id, partition, offset, Isolation::ReadCommitted);
            let mut consumer = at(Offset(0)).expect("a consumer");
            loop {
                let fetched = consumer.poll(1 << 20).expect("readable");
                let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                fetched.for_each(|record| lines.push(text(record.value))).expect("whole batches");
                if fetched.is_empty() && consumer.position() >= consumer.readable_end() {
                    break;
                }
            }
        }
        lines
    }
}

/// Far beyond what is read before a life is stopped.
const NO_END: u64 = 1_000_000_000;

#[test]
fn a_worker_without_a_split_of_some_or_of_all_sources_of_a_union_holds_nobody_back() {
    // Workers 1 and 2 have no split of the left source; worker 3 has none at all.
    for workers in [2, 4] {
        let world = World::new();
        world.live(workers, Until::Windows(200), |job, log| {
            let left = timed(job, "left", rows(job, "left", NO_END, 1).per_second(4_000), Bounded::millis(500));
            let right = timed(job, "right", rows(job, "right", NO_END, 3).per_second(4_000), Bounded::seconds(20));
            windows(left.union([right]), log);
        });
        assert_eq!(world.read("late"), Vec::<String>::new());
    }
}

#[test]
fn after_a_restore_with_another_number_of_workers_those_that_were_idle_count_and_others_are() {
    const COUNT: u64 = 6_000;
    let world = World::new();
    let build = |job: &Job, log: &LogHandle| {
        let left = timed(job, "left", rows(job, "left", COUNT, 2).per_second(3_000), Bounded::seconds(20));
        let right = timed(job, "right", rows(job, "right", COUNT, 3).per_second(3_000), Bounded::seconds(20));
        windows(left.union([right]), log);
    };
    // With 5 workers two have nothing, with 1 none.
    for workers in [5, 1, 4, 2] {
        world.live(workers, Until::Windows(100), build);
    }
    let report = world.live(3, Until::TheEnd, build);
    assert!(report.attempt.0 == 5, "{report}");
    if let Some(diff) = multiset_diff(&expected(&[("left", COUNT), ("right", COUNT)]), &world.read("windows")) {
        panic!("{diff}");
    }
    assert_eq!(world.read("late"), Vec::<String>::new());
}

#[test]
fn a_source_that_pauses_is_idle_after_its_time_and_stays_so_over_a_restore_with_other_workers() {
    let world = World::new();
    for workers in [2, 1, 3] {
        world.live(workers, Until::Windows(100), |job, log| {
            let left = timed(job, "left", rows(job, "left", NO_END, 2).per_second(4_000), Bounded::seconds(20));
            // One record a second: between two of them it would hold back everything.
            let pausing = rows(job, "right", NO_END, 1).per_second(1);
            let right = timed(job, "right", pausing, Bounded::seconds(20).idle_after(Duration::from_millis(30)));
            windows(left.union([right]), log);
        });
    }
}

/// Shows that the tests above can fail: a source that pauses and doesn't say so holds back everything.
#[test]
fn a_source_that_pauses_and_is_never_idle_stops_time() {
    let world = World::new();
    world.live(2, Until::Passed(Duration::from_millis(500)), |job, log| {
        let left = timed(job, "left", rows(job, "left", NO_END, 2).per_second(4_000), Bounded::seconds(20));
        let right = timed(job, "right", rows(job, "right", NO_END, 1).per_second(1), Bounded::seconds(20));
        windows(left.union([right]), log);
    });
    assert_eq!(world.read("windows"), Vec::<String>::new());
}
