//! A small job's life on a simulated machine whose power goes off at any step: what two sinks of one log show afterwards is
//! every record exactly once, and never a part of a checkpoint.
//!
//! The checkpoint store is the test's own memory, taken to be durable: manifests survive, everything else is the log's.

mod common;
#[path = "common/logs.rs"]
mod logs;

use std::path::Path;

use cutwater_engine::error::SinkError;
use cutwater_engine::id::Attempt;
use cutwater_engine::sink::Sink;
use cutwater_engine::source::{Source, Waker};
use cutwater_partition_log::{Log, LogLimits, LogOptions};
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::{CrashSchedule, LossPolicy, SimPlatform, sequence_diff};
use logs::{JOB, Writer, group, prepare, text, writer_id};

const CHECKPOINTS: u64 = 6;
const SINKS: [&str; 2] = ["left", "right"];

/// What a manifest says: how far the input was read, and what was prepared.
struct Manifest {
    checkpoint: u64,
    read: u64,
    handles: Vec<Vec<u8>>,
}

/// What is durable beside the log.
#[derive(Default)]
struct Store {
    attempts: u64,
    highest: u64,
    manifests: Vec<Manifest>,
}

/// Input records of a checkpoint's interval; none in the third.
fn interval(checkpoint: u64) -> u64 {
    [3, 1, 0, 7, 2, 5][(checkpoint as usize - 1) % 6]
}

/// One attempt, until the job is done or the power is gone.
fn live(sim: &SimPlatform, store: &mut Store) -> Result<(), SinkError> {
    let platform = sim.platform();
    let options = LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() };
    let log = Log::open(&platform, Path::new("/data/log"), options);
    let log = log.map_err(|e| SinkError::Failed { what: "open".into(), reason: e.to_string() })?;
    let log = LogHandle::of(&platform, log);
    store.attempts += 1;
    let attempt = store.attempts;
    let group = group(&log);
    group.fence(JOB, Attempt(attempt))?;
    for manifest in &store.manifests {
        group.commit(&manifest.handles)?;
    }
    let keep: Vec<_> = store.manifests.iter().flat_map(|m| m.handles.clone()).collect();
    group.abort_all_but(&keep)?;
    let first = store.highest + 1;
    let mut writers: Vec<Writer<String>> = vec![];
    for (worker, sink) in SINKS.iter().enumerate() {
        writers.push(log.write(*sink).open(&writer_id(sink, attempt, worker as u32, Some(first)))?);
    }
    check_never_torn(&log, store);

    let mut done = store.manifests.last().map_or((0, 0), |m| (m.checkpoint, m.read));
    let mut round = store.manifests.len() as u64;
    while round < CHECKPOINTS {
        round += 1;
        let checkpoint = store.highest + 1;
        store.highest = checkpoint;
        let read = done.1 + interval(round);
        let mut handles = vec![];
        for writer in &mut writers {
            for n in done.1..read {
                writer.write(vec![format!("record {n}")])?;
            }
            handles.extend(prepare(writer, checkpoint)?);
        }
        store.manifests.push(Manifest { checkpoint, read, handles: handles.clone() });
        group.commit(&handles)?;
        check_never_torn(&log, store);
        // The janitor: older manifests are retired first, then their outcomes may be forgotten.
        if let [.., retired, _, _] = store.manifests.as_mut_slice() {
            let outcomes = std::mem::take(&mut retired.handles);
            group.forget(&outcomes)?;
        }
        done = (checkpoint, read);
    }
    Ok(())
}

fn shown(log: &LogHandle, topic: &str) -> Option<Vec<String>> {
    let mut reader = log.read(topic).open("0", None, Waker::noop()).ok()?;
    Some(common::drain(reader.as_mut(), 100).ok()?.0.into_iter().map(text).collect())
}

/// Both topics show the same whole checkpoints: all up to the last manifest, or all but that one.
fn check_never_torn(log: &LogHandle, store: &Store) {
    let (Some(left), Some(right)) = (shown(log, SINKS[0]), shown(log, SINKS[1])) else { return };
    assert!(left == right, "torn: {left:?} and {right:?}");
    let cuts: Vec<u64> = store.manifests.iter().map(|m| m.read).collect();
    assert!(
        left.is_empty() || cuts.contains(&(left.len() as u64)),
        "{} records are no checkpoint of {cuts:?}",
        left.len()
    );
}

/// Lives until the job is done; each power cut is followed by the next life.
fn run(mut sim: SimPlatform, policy: LossPolicy) -> (SimPlatform, u64) {
    let mut store = Store::default();
    let mut lives = 1;
    while let Err(error) = live(&sim, &mut store) {
        assert!(sim.disk().is_off(), "only a power cut may end a life: {error}");
        sim = sim.restart(policy);
        lives += 1;
        assert!(lives < 10);
    }
    // One more life sees the end: everything once, nothing undecided.
    let next = sim.restart(policy);
    live(&next, &mut store).expect("nothing strikes any more");
    let platform = next.platform();
    let options = LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() };
    let log = LogHandle::of(&platform, Log::open(&platform, Path::new("/data/log"), options).expect("it was closed"));
    let expected: Vec<String> = (0..(1..=CHECKPOINTS).map(interval).sum()).map(|n| format!("record {n}")).collect();
    for topic in SINKS {
        let found = shown(&log, topic).expect("the topic is there");
        if let Some(difference) = sequence_diff(&expected, &found) {
            panic!("topic {topic}: {difference}");
        }
    }
    assert_eq!(log.log().expect("open").transactions().len(), 0, "nothing is left open or prepared");
    (sim, lives)
}

#[test]
fn every_record_is_shown_once_wherever_the_power_goes_off() {
    let (dry, _) = run(SimPlatform::new(1), LossPolicy::Random);
    let steps = CrashSchedule::steps(dry.disk().steps(), 400, 1);
    assert!(steps.len() > 50, "the campaign has something to do");
    let mut struck = 0;
    for (n, step) in steps.iter().enumerate() {
        let policy = LossPolicy::ALL[n % LossPolicy::ALL.len()];
        let sim = SimPlatform::new(*step);
        sim.disk().crash_at_step(*step);
        let (_, lives) = run(sim, policy);
        struck += u64::from(lives > 1);
    }
    assert!(struck * 2 > steps.len() as u64, "only {struck} of {} runs were struck", steps.len());
}

#[test]
fn every_record_is_shown_once_whichever_point_of_the_protocol_is_the_last() {
    let (dry, _) = run(SimPlatform::new(2), LossPolicy::AllLost);
    let ours = ["group.fenced", "group.aborted-others", "sink.sealed", "group.commit-sent", "group.committed"];
    assert_eq!(dry.crashes().missing(&ours), Vec::<&str>::new());
    for point in ours {
        for nth in 1..=dry.crashes().reached()[point].min(4) {
            for policy in [LossPolicy::AllLost, LossPolicy::NoneLost, LossPolicy::Random] {
                let sim = SimPlatform::new(nth);
                sim.power_off_at(point, nth);
                run(sim, policy);
            }
        }
    }
}
