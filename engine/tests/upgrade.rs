//! A job stopped at a checkpoint goes on as a changed program: with other steps, other names, other types. What could be meant in
//! two ways is refused before anything is changed.

mod memory;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::element::Batch;
use cutwater_engine::error::{BuildError, OperatorError, RunError};
use cutwater_engine::graph::{Job, Stream, Untimed};
use cutwater_engine::observe::{Control, Phase, Report};
use cutwater_engine::operator::{Context, Flow, Operator};
use cutwater_engine::recovery::Change;
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{KeyedState, Migrations, State, StateValue};
use cutwater_engine::worker::{Outlook, check_upgrade, run};
use cutwater_testkit::SimDisk;
use memory::{MemoryLog, Numbers};
use serde::{Deserialize, Serialize};

const NUMBERS: u64 = 200_000;
const KEYS: u64 = 53;

/// Whatever a count is kept in.
trait Counter: StateValue + Default {
    fn count(&mut self) -> u64;
}

impl Counter for u64 {
    fn count(&mut self) -> u64 {
        *self += 1;
        *self
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct CountV2 {
    so_far: u64,
}

impl Counter for CountV2 {
    fn count(&mut self) -> u64 {
        self.so_far.count()
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct CountV3 {
    label: String,
    so_far: u64,
}

impl Counter for CountV3 {
    fn count(&mut self) -> u64 {
        assert!(self.so_far == 0 || self.label == "migrated" || self.label == "new", "{:?}", self.label);
        if self.so_far == 0 {
            self.label = "new".to_string();
        }
        self.so_far.count()
    }
}

struct Counting<V> {
    counts: Rc<RefCell<State<u64, V>>>,
}

impl<V: Counter> Operator for Counting<V> {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let rows = batch.take_wire::<(u64, ())>();
        cx.counters().passed += rows.len() as u64;
        let mut counts = self.counts.borrow_mut();
        let out: Vec<(u64, u64)> = rows.into_iter().map(|(key, ())| (key, counts.update(&key, V::count))).collect();
        cx.emit(0, out);
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.counts.clone()]
    }
}

fn counted<V: Counter>(job: &Job, source: &str, name: &str, more_steps: usize) -> Stream<(u64, u64)> {
    let mut numbers = job.source(source, Numbers { splits: 4, per_split: NUMBERS / 4 });
    for _ in 0..more_steps {
        let same = numbers.stage::<u64, Untimed>("same", |records, _| records);
        numbers = same.operator_auto("through", 1, |_| Ok(Box::new(Through))).stream(0);
    }
    let make = |_: &_| {
        let counts = Rc::new(RefCell::new(State::<u64, V>::new(StateName::new("counts").expect("a name"), 1)));
        Ok(Box::new(Counting { counts }) as Box<dyn Operator>)
    };
    numbers.keyed(|n| (n % KEYS, ())).operator(name, "count", 1, make).stream(0)
}

struct Through;

impl Operator for Through {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take::<u64>();
        cx.counters().passed += records.len() as u64;
        cx.emit(0, records);
        Ok(Flow::Done)
    }
}

fn on(disk: &SimDisk, workers: usize) -> Options {
    let mut options = Options::new("upgraded", "data");
    options.workers = workers;
    options.pin = false;
    options.guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(3)));
    options.limits.batch_records = 64;
    options.limits.channel_records = 256;
    options.platform.files = Arc::new(disk.clone());
    options
}

/// Runs until a few checkpoints are committed, and stops.
fn stopped(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    disk: &SimDisk,
    workers: usize,
) -> Report {
    let control = Control::new();
    let (watched, from) = (control.clone(), control.seen().committed.0);
    let watcher = std::thread::Builder::new().spawn(move || {
        let mut first = None;
        loop {
            let seen = watched.seen();
            if seen.phase == Phase::Running {
                let begun = *first.get_or_insert(seen.committed.0.max(from));
                if seen.committed.0 >= begun + 2 {
                    return watched.stop();
                }
            }
            if seen.phase == Phase::Finished {
                return;
            }
            std::thread::yield_now();
        }
    });
    let report = run(build, &on(disk, workers), &control).expect("it stops");
    watcher.expect("a thread").join().expect("no panic");
    report.assert_balanced();
    report
}

fn finished(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
    log: &MemoryLog,
) {
    let report = run(build, options, &Control::new()).expect("it finishes");
    report.assert_balanced();
    assert!(report.finished);
    let mut next = vec![1; KEYS as usize];
    let rows = log.committed();
    assert_eq!(rows.len() as u64, NUMBERS);
    for (key, count) in rows {
        assert_eq!(count, next[key as usize], "key {key}");
        next[key as usize] += 1;
    }
}

fn first(log: &Arc<MemoryLog>) -> impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + use<> {
    let log = log.clone();
    move |job| {
        counted::<u64>(job, "numbers", "count", 0).sink("out", log.sink());
        Ok(())
    }
}

fn second(log: &Arc<MemoryLog>) -> impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + use<> {
    let log = log.clone();
    move |job| {
        counted::<CountV2>(job, "numbers", "count", 1)
            .migrate("counts", Migrations::<u64>::since(1).then(2, |so_far| CountV2 { so_far }))
            .sink("out", log.sink());
        Ok(())
    }
}

fn third(log: &Arc<MemoryLog>) -> impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + use<> {
    let log = log.clone();
    move |job| {
        let migrations = Migrations::<u64>::since(1)
            .then(2, |so_far| CountV2 { so_far })
            .then(3, |CountV2 { so_far }| CountV3 { label: "migrated".to_string(), so_far });
        counted::<CountV3>(job, "numbers", "clicks", 2)
            .was("count")
            .migrate("counts", migrations)
            .sink("results", log.sink());
        Ok(())
    }
}

#[test]
fn a_job_goes_on_exactly_through_two_upgrades_with_other_steps_names_types_and_numbers_of_workers() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    let before = stopped(first(&log), &disk, 2);
    assert!(!before.finished);
    // From the first version straight to the third, and by way of the second.
    let (direct, direct_log) = (disk.fork(), log.fork());
    finished(third(&direct_log), &on(&direct, 3), &direct_log);

    match check_upgrade(second(&log), &on(&disk, 2)).expect("it can be looked at") {
        Outlook::GoesOn(upgrade) => {
            let changes: Vec<&Change> = upgrade.rows.iter().map(|row| &row.change).collect();
            assert_eq!(changes, [&Change::Kept, &Change::Migrated { from: 1, to: 2 }], "{upgrade}");
        }
        other => panic!("it goes on: {other}"),
    }
    stopped(second(&log), &disk, 2);
    // The same version again: its own files, its own chain.
    stopped(second(&log), &disk, 2);
    finished(third(&log), &on(&disk, 1), &log);
}

#[test]
fn what_is_ambiguous_is_refused_and_the_old_program_still_goes_on() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    stopped(first(&log), &disk, 2);
    type Build = dyn Fn(&Job) -> Result<(), BuildError> + Send + Sync;
    let refused_with = |build: Box<Build>, words: &[&str]| {
        let build: Arc<Build> = build.into();
        let (looked, ran) = (build.clone(), build);
        let outlook = check_upgrade(move |job| looked(job), &on(&disk, 2)).expect("it can be looked at");
        assert!(outlook.is_refused(), "{outlook}");
        let refused = run(move |job| ran(job), &on(&disk, 2), &Control::new()).expect_err("it is refused");
        assert!(matches!(refused, RunError::Incompatible(_)), "{refused}");
        for word in words {
            assert!(refused.to_string().contains(word), "{word:?} in {refused}");
        }
    };
    let out = log.clone();
    refused_with(
        Box::new(move |job| {
            counted::<u64>(job, "numbers", "clicks", 0).sink("out", out.sink());
            Ok(())
        }),
        &["count", "WOULD BE LOST", ".was(\"count\")", "--allow-dropped count"],
    );
    let out = log.clone();
    refused_with(
        Box::new(move |job| {
            counted::<CountV2>(job, "numbers", "count", 0).sink("out", out.sink());
            Ok(())
        }),
        &["OTHER TYPES", ".migrate(..)"],
    );
    let out = log.clone();
    refused_with(
        Box::new(move |job| {
            counted::<u64>(job, "digits", "count", 0).sink("out", out.sink());
            Ok(())
        }),
        &["numbers", "4 splits", ".was(\"numbers\")"],
    );
    finished(first(&log), &on(&disk, 2), &log);
}

#[test]
fn what_a_person_allows_is_dropped_and_begins_empty() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    stopped(first(&log), &disk, 2);
    let before = log.committed().len();
    let mut options = on(&disk, 2);
    options.allow_dropped = ["count".to_string()].into();
    let out = log.clone();
    let build = move |job: &Job| {
        counted::<u64>(job, "numbers", "clicks", 0).sink("out", out.sink());
        Ok(())
    };
    let report = run(build, &options, &Control::new()).expect("it finishes");
    report.assert_balanced();
    let rows = log.committed();
    assert_eq!(rows.len() as u64, NUMBERS, "the source went on where it stood");
    let mut next = vec![1; KEYS as usize];
    for (key, count) in &rows[before..] {
        assert_eq!(*count, next[*key as usize], "counted from nothing");
        next[*key as usize] += 1;
    }
}

#[test]
fn an_entry_that_can_not_be_migrated_ends_the_start_and_says_which_one_it_is() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    stopped(first(&log), &disk, 2);
    let out = log.clone();
    let build = move |job: &Job| {
        let picky =
            Migrations::<u64>::since(1).try_then(2, |so_far| Err::<CountV2, _>(format!("{so_far} is too many")));
        counted::<CountV2>(job, "numbers", "count", 0).migrate("counts", picky).sink("out", out.sink());
        Ok(())
    };
    let refused = run(build, &on(&disk, 2), &Control::new()).expect_err("it can't be migrated");
    assert!(matches!(refused, RunError::Incompatible(_)), "{refused}");
    for words in ["operator \"count\"", "state \"counts\"", "the key of which is", "version 1", "is too many"] {
        assert!(refused.to_string().contains(words), "{words:?} in {refused}");
    }
    finished(first(&log), &on(&disk, 2), &log);
}

#[test]
fn migrations_for_a_state_that_is_not_there_or_of_other_types_are_refused_when_the_job_is_built() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    for (state, words) in [("count", "no state of this name"), ("counts", "end in another type")] {
        let out = log.clone();
        let build = move |job: &Job| {
            counted::<u64>(job, "numbers", "count", 0)
                .migrate(state, Migrations::<u64>::since(1).then(2, |n| n.to_string()))
                .sink("out", out.sink());
            Ok(())
        };
        let refused = run(build, &on(&disk, 1), &Control::new()).expect_err("it is refused");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let out = log.clone();
    let build = move |job: &Job| {
        let steps = counted::<u64>(job, "numbers", "count", 0).stage::<(u64, u64), Untimed>("same", |rows, _| rows);
        steps.was("before").sink("out", out.sink());
        Ok(())
    };
    let refused = run(build, &on(&disk, 1), &Control::new()).expect_err("which operator is meant isn't known");
    assert!(refused.to_string().contains("right behind the operator"), "{refused}");
}

#[test]
fn a_job_without_checkpoints_has_nothing_to_upgrade() {
    let (disk, log) = (SimDisk::new(), MemoryLog::new());
    assert_eq!(check_upgrade(first(&log), &on(&disk, 1)).expect("it can be looked at"), Outlook::Fresh);
}
