//! The golden job, changed between its lives: the first program is struck somewhere, and another one goes on: with one more step, an
//! operator renamed, a state of other types. What readers see is what one program would have written.

use std::time::Duration;

use cutwater_engine::config::{Compression, Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::state::Migrations;
use cutwater_engine::time::EventTime;
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::log::{JobLog, LogRecord};
use cutwater_testkit::LossPolicy;
use cutwater_tests::golden::{Expected, Input, live, workers_of};
use cutwater_tests::{End, Machine};
use serde::{Deserialize, Serialize};

/// What sums were pairs of numbers before.
#[derive(Clone, Serialize, Deserialize)]
struct Sums {
    sum: u64,
    events: u32,
}

fn text(record: &LogRecord) -> String {
    String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned()
}

/// As the golden job's, with its changes.
fn changed(job: &Job) -> Result<(), BuildError> {
    let log = job.log();
    job.source("clicks", log.read("clicks").until_latest())
        .map(|record| text(&record))
        .flat_map(|text| text.parse::<u64>().ok())
        .key_value(|key| (key, ()))
        .count("running-counts")
        .was("count")
        .sink(
            "counts",
            log.write("counts")
                .partitions(2)
                .value(Json)
                .key_into(|(key, _): &(u64, u64), out| out.extend_from_slice(&key.to_be_bytes())),
        );
    let numbers = |record: LogRecord| {
        let numbers: Vec<i64> = text(&record).split(' ').map(|n| n.parse().expect("a number")).collect();
        (numbers[0], numbers[1].unsigned_abs(), numbers[2].unsigned_abs())
    };
    let (windows, late) = job
        .source("events", log.read("events").until_latest())
        .map(numbers)
        .timestamps(|event| EventTime(event.0), Bounded::millis(4_000))
        .key_by(|event| event.1)
        .window(Tumbling::millis(10_000))
        .aggregate(
            "sums",
            || Sums { sum: 0, events: 0 },
            |sums: &mut Sums, event: &(i64, u64, u64)| {
                *sums = Sums { sum: sums.sum + event.2, events: sums.events + 1 }
            },
            |key: &u64, window: Window, sums| format!("{} {key} {} {}", window.start.0, sums.events, sums.sum),
        )
        .with_late();
    let pairs = Migrations::<(u64, u64)>::since(1)
        .try_then(2, |(events, sum)| Ok::<_, std::num::TryFromIntError>(Sums { sum, events: u32::try_from(events)? }));
    windows.migrate("windows", pairs).sink("windows", log.write("windows"));
    late.map(|(t, key, value)| format!("{t} {key} {value}")).sink("late", log.write("late"));
    Ok(())
}

fn live_changed(machine: &Machine, workers: usize) -> Result<Report, RunError> {
    let mut options = Options::new("golden", machine.dir());
    options.workers = workers;
    options.pin = false;
    options.restarts_max = 0;
    options.platform = machine.platform();
    options.guarantee = Guarantee::ExactlyOnce(Snapshots {
        retained: 2,
        deltas_max: 3,
        merge_after: 1,
        compression: Compression::Lz4,
        ..Snapshots::every(Duration::from_millis(2))
    });
    options.limits.batch_records = 4;
    options.limits.channel_records = 8;
    let report = run(changed, &options, &Control::new())?;
    report.assert_balanced();
    Ok(report)
}

#[test]
fn a_job_that_was_struck_goes_on_exactly_as_another_version_of_itself() {
    let input = Input::new(5);
    let loaded = Machine::new(5);
    input.load(&loaded);
    let expected = Expected::of(&input);
    let ends = [End::Kill, End::PowerOff(LossPolicy::AllLost)];
    let mut upgraded = 0;
    // Where the old program is struck, and where the new one is.
    let strikes = [
        ("manifest.durable", 3, "worker.restored"),
        ("committer.permitted", 4, "snapshot.dir-synced"),
        ("janitor.committed-recorded", 2, "recovery.base-recorded"),
        ("merge.durable", 1, "merge.durable"),
        ("snapshot.file-synced", 9, "manifest.durable"),
    ];
    for (number, (first, visit, second)) in (0..).zip(strikes) {
        let end = ends[number as usize % 2];
        let mut machine = loaded.fork(number + 1);
        machine.strike(first, visit);
        let _ = live(&machine, workers_of(number, 0));
        if !machine.is_off() {
            continue;
        }
        machine = machine.next_life(end);
        machine.strike(second, 1);
        let result = live_changed(&machine, workers_of(number, 1));
        if machine.is_off() {
            upgraded += 1;
            machine = machine.next_life(end);
            let report = live_changed(&machine, workers_of(number, 2)).unwrap_or_else(|e| panic!("case {number}: {e}"));
            assert!(report.finished, "case {number}");
        } else {
            result.unwrap_or_else(|e| panic!("case {number}: {e}"));
        }
        expected.assert_seen(&machine, &format!("case {number}: {first}, then {second}, {end:?}"));
    }
    assert!(upgraded >= 2, "at most {upgraded} cases were struck in both programs: the test tests too little");
}
