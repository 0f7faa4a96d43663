//! A small job under simulation: the same seed gives the same run, and no crash is seen by a reader.

use cutwater_engine::error::BuildError;
use cutwater_engine::graph::Job;
use cutwater_operators::prelude::*;
use cutwater_simulate::{Crash, Input, Simulate};
use cutwater_sources_sinks::log::{JobLog, LogRecord};

fn build(job: &Job) -> Result<(), BuildError> {
    let text = |r: LogRecord| String::from_utf8_lossy(r.value.as_deref().unwrap_or_default()).into_owned();
    job.source("words", job.log().read("words").until_latest())
        .map(text)
        .key_value(|word| (word, ()))
        .count("count")
        .map(|(word, count)| format!("{word} {count}"))
        .sink("counts", job.log().write("counts"));
    Ok(())
}

fn words() -> Input {
    let word = |i: usize| ["to", "be", "or", "not", "that", "is", "the", "question"][i * 7 % 8];
    Input::new().partitions("words", (0..3).map(|p| (0..40).map(|i| word(i + p)).collect::<Vec<_>>()))
}

#[test]
fn no_schedule_without_a_crash_changes_what_is_seen() {
    let seen = build.simulate().seed(1).crash(Crash::Never { schedules: 30 }).run(&words()).expect("it runs");
    seen.assert_exactly_once();
    println!("{seen}");
}

#[test]
fn every_crash_point_struck() {
    let since = std::time::Instant::now();
    let seen = build.simulate().seed(1).crash(Crash::EveryPoint).run(&words()).expect("it runs");
    println!("{seen} {:?}", since.elapsed());
    seen.assert_exactly_once();
}
