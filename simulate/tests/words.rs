//! A small job under simulation, by the users' face: every crash point alone and in pairs, and jobs that are not exactly-once.

#![expect(clippy::print_stdout, reason = "how much was run is worth seeing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutwater_engine::error::BuildError;
use cutwater_engine::graph::Job;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_simulate::{Case, Crash, Input, Simulate, SimulationError};
use cutwater_sources_sinks::log::{JobLog, LogRecord};

fn text(r: LogRecord) -> String {
    String::from_utf8_lossy(r.value.as_deref().unwrap_or_default()).into_owned()
}

fn build(job: &Job) -> Result<(), BuildError> {
    job.source("words", job.log().read("words").until_latest())
        .map(text)
        .key_value(|word| (word, ()))
        .count("count")
        .map(|(word, count)| format!("{word} {count}"))
        .sink("counts", job.log().write("counts"));
    Ok(())
}

fn words(each: usize) -> Input {
    let word = |i: usize| ["to", "be", "or", "not", "that", "is", "the", "question"][i * 7 % 8];
    Input::new().partitions("words", (0..3).map(|p| (0..each).map(|i| word(i + p)).collect::<Vec<_>>()))
}

#[test]
fn every_crash_point_alone_changes_nothing_that_is_seen() {
    let seen = build.simulate().seed(1).crash(Crash::EveryPoint).run(&words(40)).expect("it runs");
    println!("{seen}");
    seen.assert_exactly_once();
    assert!(seen.points_struck().len() > 35, "{:?}", seen.points_struck());
}

#[test]
fn every_pair_of_crash_points_changes_nothing_that_is_seen() {
    let simulation = build.simulate().seed(2).workers([2, 1]).crash(Crash::EveryPair);
    let seen = simulation.run(&words(8)).expect("it runs");
    println!("{seen}");
    seen.assert_exactly_once();
    assert!(seen.pairs.len() > 1_000, "{} pairs", seen.pairs.len());
}

#[test]
fn an_operator_that_takes_something_from_outside_is_refused() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let numbered = |job: &Job| {
        job.source("words", job.log().read("words").until_latest())
            .map(text)
            .map(|word| format!("{word} {}", CALLS.fetch_add(1, Ordering::Relaxed)))
            .sink("numbered", job.log().write("numbered"));
        Ok(())
    };
    let error = numbered.simulate().seed(3).run(&words(10)).expect_err("it can't be judged");
    assert!(matches!(error, SimulationError::NotDeterministic { seed: 3, .. }), "{error}");
    assert!(error.to_string().contains("numbered"), "it says where: {error}");
}

#[test]
fn output_that_depends_on_who_runs_when_is_refused() {
    let in_order_of_arrival = |job: &Job| {
        job.source("words", job.log().read("words").until_latest())
            .map(text)
            .key_value(|word| (0u64, word))
            .reduce("concat", |a: &mut String, b: &String| {
                a.push_str(b);
            })
            .map(|(_, all)| all)
            .sink("joined", job.log().write("joined"));
        Ok(())
    };
    let error = in_order_of_arrival.simulate().seed(4).run(&words(10)).expect_err("it can't be judged");
    assert!(matches!(error, SimulationError::DependsOnOrder { .. }), "{error}");
}

/// What a step does to the world by itself is done again after a crash.
fn with_a_side_effect(job: &Job) -> Result<(), BuildError> {
    let handle = job.log();
    let log = handle.log().cloned().ok_or_else(|| BuildError::refused("log", "it can't be opened"))?;
    let topic = log.create_topic_if_absent("audit", 1).map_err(|e| BuildError::refused("audit", e))?;
    let producer = Arc::new(log.producer().map_err(|e| BuildError::refused("audit", e))?);
    job.source("words", handle.read("words").until_latest())
        .map(text)
        .inspect(move |word| {
            let mut batch = BatchBuilder::new(Compression::None);
            batch.push(0, None, Some(word.as_bytes()), &[]).expect("it fits");
            // The power may be off: then nobody asks whether it was written.
            let _ = producer.append(topic, 0, &mut batch).map(|ticket| ticket.wait());
        })
        .sink("copied", handle.write("copied"));
    Ok(())
}

#[test]
fn output_that_is_not_exactly_once_is_found_and_its_case_can_be_replayed() {
    let simulation = with_a_side_effect.simulate().seed(5).crash(Crash::EveryPoint);
    let seen = simulation.run(&words(10)).expect("it can be judged");
    let finding = seen.findings.first().expect("a word that was written again");
    assert!(finding.story.contains("\"audit\"") && finding.story.contains("too often"), "{finding}");
    let case: Case = finding.case.to_string().parse().expect("its own form");
    assert!(finding.to_string().contains(&format!(".replay(\"{case}\"")), "{finding}");
    let again = simulation.replay(case).run(&words(10)).expect("it can be judged");
    assert_eq!(again.findings.first(), Some(finding), "down to every word of its story");
    let panic = std::panic::catch_unwind(|| _ = again.assert_exactly_once()).expect_err("it isn't");
    assert!(cutwater_platform::spawn::panic_text(panic.as_ref()).contains("audit"));
}
