//! Runs of batches that go to segments past the system's cache, cut off at steps of the disk, under ways of losing what wasn't
//! synced: what was acknowledged is there, as it was, and can be gone on with.

mod log_support;

use std::path::Path;

use cutwater_partition_log::{Isolation, Log, LogLimits, LogOptions, OpenError, TopicId};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{DIR, batch, read};

/// Each batch is long enough for a run, and segments are rolled and the log takes checkpoints.
fn limits() -> LogLimits {
    LogLimits {
        wal_file_bytes: 2 << 20,
        wal_extend_bytes: 256 << 10,
        wal_files_max: 3,
        group_bytes: 512 << 10,
        batch_bytes_max: 512 << 10,
        end_bytes_max: 64 << 10,
        queue_bytes: 1 << 20,
        unmaterialised_bytes: 1 << 20,
        checkpoint_bytes: 1 << 20,
        segment_bytes: 900 << 10,
        tail_bytes: 300 << 10,
        ..LogLimits::default()
    }
}

fn open(sim: &SimPlatform) -> Result<Log, OpenError> {
    Log::open(&sim.platform(), Path::new(DIR), LogOptions { limits: limits(), ..LogOptions::default() })
}

/// Eight records of some ten kilobytes, of another length in each batch, so that no batch ends with a block.
fn values(nth: usize) -> Vec<String> {
    (0..8).map(|n| format!("{nth}-{n}-{}", "x".repeat(35_000 + 611 * nth + n))).collect()
}

const BATCHES: usize = 8;

/// Appends until the power is off; how many batches were acknowledged, and whether all were.
fn live(sim: &SimPlatform) -> (usize, bool) {
    let mut acknowledged = 0;
    let Ok(log) = open(sim) else { return (0, false) };
    let Ok(topic) = log.create_topic("t", 1) else { return (0, false) };
    let Ok(producer) = log.producer() else { return (0, false) };
    for nth in 0..BATCHES {
        let ticket = producer.append(topic, 0, &mut batch(&values(nth)));
        if ticket.and_then(|ticket| ticket.wait()).is_err() {
            return (acknowledged, false);
        }
        acknowledged += 1;
    }
    (acknowledged, log.close().is_ok())
}

/// The batches that are there; each must be as it was, in its order.
fn found(log: &Log, story: &str) -> usize {
    let seen: Vec<String> = read(log, TopicId(0), 0, Isolation::ReadCommitted).into_iter().map(|(_, v)| v).collect();
    let all: Vec<String> = (0..BATCHES + 1).flat_map(values).collect();
    assert!(seen.len().is_multiple_of(8) && all.starts_with(&seen), "{story}: {} records, torn or changed", seen.len());
    seen.len() / 8
}

fn check(sim: &SimPlatform, acknowledged: usize, story: &str) {
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: doesn't recover: {e}"));
    if log.topic("t").is_none() {
        assert_eq!(acknowledged, 0, "{story}: the topic is lost");
        return;
    }
    let there = found(&log, story);
    assert!(there >= acknowledged, "{story}: {acknowledged} were acknowledged, {there} are there");
    let producer = log.producer().expect("a producer");
    producer.append(TopicId(0), 0, &mut batch(&values(there))).expect("accepted").wait().expect("acknowledged");
    log.close().expect("a clean close");
    drop((log, producer));
    let after = sim.restart(LossPolicy::AllLost);
    assert_eq!(found(&open(&after).expect("recovers"), story), there + 1, "{story}: gone on with");
}

#[test]
fn long_runs_survive_a_crash_at_any_step() {
    let whole = SimPlatform::new(3);
    assert_eq!(live(&whole), (BATCHES, true));
    let times = whole.crashes().reached().get("segment.blocks-written").copied().unwrap_or(0);
    assert!(times as usize >= BATCHES / 2, "each batch goes past the cache, alone or with the next: {times}");
    check(&whole.restart(LossPolicy::AllLost), BATCHES, "after a clean close");
    let steps = whole.disk().steps();
    for step in (1..=steps).step_by(5) {
        let sim = SimPlatform::new(3);
        sim.disk().crash_at_step(step);
        let (acknowledged, finished) = live(&sim);
        assert!(!finished, "step {step} is one");
        for policy in [LossPolicy::AllLost, LossPolicy::Random] {
            check(&sim.restart(policy), acknowledged, &format!("crash at step {step} of {steps}, {policy:?}"));
        }
    }
    for nth in 1..=times {
        let sim = SimPlatform::new(3);
        sim.power_off_at("segment.blocks-written", nth);
        let (acknowledged, _) = live(&sim);
        for policy in [LossPolicy::AllLost, LossPolicy::NoneLost, LossPolicy::Reordered] {
            check(&sim.restart(policy), acknowledged, &format!("between a run's parts, {nth}, {policy:?}"));
        }
    }
}
