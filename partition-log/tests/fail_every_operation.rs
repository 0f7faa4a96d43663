//! The workload of `crash_every_step`, with one operation of the disk failing: each of them in turn, reads, new names and lengths
//! as well as writes and syncs; once, once although it was done, for ever, and for ever but for reads. Whoever asks is told, or
//! nothing came of it; what was acknowledged or shown before is there when the log is opened on a sound disk.
//!
//! The default takes a sample. All of them: `CUTWATER_CRASH_FULL=1 cargo test --release -p cutwater-partition-log --test
//! fail_every_operation`.

mod log_support;

use std::collections::BTreeMap;

use cutwater_testkit::{DiskOp, LossPolicy, OpFault, SimPlatform};
use log_support::life::{Life, check, live, served};
use log_support::{open, surviving_prefix};

const FAULTS: [OpFault; 4] = [OpFault::Once, OpFault::OnceDone, OpFault::ReadOnly, OpFault::Forever];

fn full() -> bool {
    std::env::var("CUTWATER_CRASH_FULL").is_ok_and(|value| value == "1")
}

/// After a failed sync the system counts as written what the disk doesn't have, and no later process can tell: only a restart of the
/// machine, which is what the error asks for, shows what is there.
fn a_sync_failed(sim: &SimPlatform) -> bool {
    let is_sync = |op| matches!(op, DiskOp::SyncData | DiskOp::WriteSynced | DiskOp::SyncDir);
    sim.disk().trace().iter().any(|step| step.fault == Some("EIO") && is_sync(step.op))
}

/// What readers were shown by the life that met the error is shown by the log that comes after it.
fn check_shown(sim: &SimPlatform, life: &Life, story: &str) {
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: doesn't recover: {e}\n{}", sim.disk().trace_text()));
    let now = served(&log);
    for (at, shown) in &life.served {
        let found = now.get(at).map(Vec::as_slice).unwrap_or_default();
        assert!(found.starts_with(shown), "{story}: {at:?}: shown {shown:?}, now {found:?}");
    }
}

#[test]
fn a_failure_of_any_operation_is_told_and_loses_nothing_acknowledged() {
    let whole = SimPlatform::new(7);
    let life = live(&whole);
    assert!(life.finished, "the workload runs to its end on a sound disk");
    let operations = whole.disk().operations();
    let (mut told, mut silent) = (BTreeMap::<OpFault, u64>::new(), BTreeMap::<OpFault, u64>::new());
    for nth in 1..=operations {
        for (index, fault) in FAULTS.into_iter().enumerate() {
            if !full() && !(nth as usize + index).is_multiple_of(3) {
                continue;
            }
            let sim = SimPlatform::new(7);
            sim.disk().fail_operation(nth, fault);
            let life = live(&sim);
            assert!(sim.disk().has_failed(), "operation {nth} is one");
            *if life.finished { &mut silent } else { &mut told }.entry(fault).or_default() += 1;
            let error = life.error.as_deref().unwrap_or("nothing was told");
            let story = format!("operation {nth} of {operations} fails, {fault:?} ({error})");
            let policy = LossPolicy::ALL[nth as usize % LossPolicy::ALL.len()];
            check_shown(&sim.restart(LossPolicy::AllLost), &life, &story);
            check(&sim.restart(policy), &life, &format!("{story}, then power cut, {policy:?}"));
            if !a_sync_failed(&sim) {
                check(&sim.kill(), &life, &format!("{story}, then killed"));
            }
        }
    }
    for fault in FAULTS {
        assert!(
            told.get(&fault).is_some_and(|n| *n > 50),
            "of {operations}, {fault:?}: told {told:?}, nothing came of it {silent:?}"
        );
    }
}

#[test]
fn a_failure_of_any_operation_of_a_recovery_is_told_and_the_next_recovery_finds_everything() {
    let whole = SimPlatform::new(7);
    live(&whole);
    let steps = whole.disk().steps();
    let (mut told, mut silent) = (0, 0);
    for (round, step) in (steps / 7..steps).step_by((steps / 6) as usize).enumerate() {
        let crashed = SimPlatform::new(7);
        crashed.disk().crash_at_step(step);
        let life = live(&crashed);
        let policy = [LossPolicy::NoneLost, LossPolicy::LastTorn512, LossPolicy::AllLost][round % 3];
        let probe = crashed.restart(policy);
        let log = open(&probe).expect("recovers on a sound disk");
        let operations = probe.disk().operations();
        drop(log);
        for nth in (1..=operations).step_by(if full() { 1 } else { 3 }) {
            for fault in if full() { &FAULTS[..] } else { &FAULTS[nth as usize % 4..][..1] } {
                let sim = crashed.restart(policy);
                sim.disk().fail_operation(nth, *fault);
                let story = format!("crash at {step}, {policy:?}, operation {nth} of the recovery fails, {fault:?}");
                match open(&sim) {
                    Err(_) => told += 1,
                    // It was of no importance: then this log is a sound one, as long as it can be read.
                    Ok(log) if matches!(fault, OpFault::Once | OpFault::OnceDone) => {
                        silent += 1;
                        _ = surviving_prefix(&log, &life.facts, life.acknowledged, &story);
                    }
                    Ok(_) => silent += 1,
                }
                check(&sim.restart(LossPolicy::Random), &life, &story);
                if !a_sync_failed(&sim) {
                    check(&sim.kill(), &life, &format!("{story}, then killed"));
                }
            }
        }
    }
    assert!(told > 100, "{told} told, {silent} not");
}
