//! A workload that does everything the log can do, cut off at every single I/O step, under every way of losing what
//! wasn't synced; then recovered, checked, used again and closed. Sampled recoveries are cut off too.
//!
//! The default takes a sample of steps. All of them, with all recoveries cut off at more places:
//! `CUTWATER_CRASH_FULL=1 cargo test --release -p cutwater-partition-log --test crash_every_step`.

mod log_support;

use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::life::{Life, check, live};
use log_support::{open, surviving_prefix};

/// Every named point of the log. `docs/recovery-log.md` says what is found at each, and what is done.
const POINTS: [&str; 20] = [
    "log.frame-buffered",
    "log.frame-written",
    "log.acknowledged",
    "log.materialised",
    "log.segment-synced",
    "log.base-image-written",
    "log.base-image-published",
    "log.file-recycled",
    "log.generation-started",
    "log.claim-written",
    "log.prepare-written",
    "log.end-written",
    "log.topic-created",
    "log.settings-written",
    "log.producer-block",
    "log.producers-forgotten",
    "log.offsets-written",
    "log.group-deleted",
    "log.replayed",
    "log.tail-cut",
];

fn full() -> bool {
    std::env::var("CUTWATER_CRASH_FULL").is_ok_and(|value| value == "1")
}

#[test]
fn a_crash_at_any_step_loses_nothing_acknowledged_and_tears_no_transaction() {
    let whole = SimPlatform::new(7);
    let life = live(&whole);
    assert!(life.finished, "the workload runs to its end on a sound disk");
    let steps = whole.disk().steps();
    let missing = whole.crashes().missing(&POINTS);
    assert_eq!(missing, ["log.tail-cut"], "the workload reaches everything but what only a crash does");
    let stride = if full() { 1 } else { 2 };
    let (mut crashes, mut torn) = (0, 0);
    for step in (1..=steps).filter(|step| full() || step % stride == 1 || *step < 40) {
        let sim = SimPlatform::new(7);
        sim.disk().crash_at_step(step);
        let life = live(&sim);
        assert!(!life.finished, "step {step} is one");
        for (index, policy) in LossPolicy::ALL.into_iter().enumerate() {
            let story = format!("crash at step {step} of {steps}, {policy:?}");
            let after = sim.restart(policy);
            check(&after, &life, &story);
            crashes += 1;
            torn += u64::from(after.crashes().missing(&["log.tail-cut"]).is_empty());
            // Killed, and the machine goes on; what is served then must survive a power cut.
            if index == 0 {
                let killed = sim.kill();
                check_served(&killed, &life, &story);
                check(&sim.kill(), &life, &format!("{story}: killed alone"));
                crashes += 2;
            }
            // The recovery is cut off as well, here and there.
            if full() || (step as usize + index).is_multiple_of(7) {
                crashes += crash_recovery(&sim, &life, policy, &story);
            }
        }
    }
    assert!(torn > 0, "some crash left a torn tail");
    assert!(crashes > steps * 5, "{crashes} crashes over {steps} steps");
}

/// What the log shows after a kill, it shows after the power cut that follows: nothing is served out of a cache.
fn check_served(killed: &SimPlatform, life: &Life, story: &str) {
    let log = open(killed).unwrap_or_else(|e| panic!("{story}: killed: doesn't recover: {e}"));
    let n = surviving_prefix(&log, &life.facts, life.acknowledged, story);
    drop(log);
    for policy in [LossPolicy::AllLost, LossPolicy::NamesLost, LossPolicy::Reordered] {
        let log = open(&killed.restart(policy)).unwrap_or_else(|e| panic!("{story}: killed, then {policy:?}: {e}"));
        let served = format!("{story}: served after the kill, then {policy:?}");
        surviving_prefix(&log, &life.facts[..n], n, &served);
    }
}

/// Crashes the recovery from a crash at some of its steps.
fn crash_recovery(sim: &SimPlatform, life: &Life, policy: LossPolicy, story: &str) -> u64 {
    let probe = sim.restart(policy);
    drop(open(&probe));
    let steps = probe.disk().steps();
    let stride = if full() { 3 } else { 11 };
    let mut crashes = 0;
    for step in (1..=steps).step_by(stride) {
        let second = sim.restart(policy);
        second.disk().crash_at_step(step);
        drop(open(&second));
        let third = second.restart(if step % 2 == 0 { policy } else { LossPolicy::Random });
        check(&third, life, &format!("{story}, then at step {step} of {steps} of the recovery"));
        crashes += 1;
    }
    crashes
}

#[test]
fn a_kill_at_any_named_point_loses_nothing_acknowledged() {
    let whole = SimPlatform::new(7);
    live(&whole);
    let reached = whole.crashes().reached();
    for point in POINTS {
        let times = reached.get(point).copied().unwrap_or(0);
        for nth in [1, times / 2, times].into_iter().filter(|nth| *nth > 0) {
            let sim = SimPlatform::new(7);
            sim.power_off_at(point, nth);
            let life = live(&sim);
            check(&sim.restart(LossPolicy::AllLost), &life, &format!("power cut at {point} #{nth}"));
            let sim = SimPlatform::new(7);
            sim.power_off_at(point, nth);
            let life = live(&sim);
            check(&sim.restart(LossPolicy::NoneLost), &life, &format!("kill at {point} #{nth}"));
        }
    }
}

#[test]
fn a_failed_sync_stops_the_log_and_the_next_open_has_everything_acknowledged() {
    use cutwater_testkit::SyncFault;
    let mut stopped = 0;
    for fault in [SyncFault::KeepCache, SyncFault::RevertCache] {
        for nth in (1..150).step_by(4) {
            let sim = SimPlatform::new(7);
            sim.disk().fail_sync(nth, fault);
            let life = live(&sim);
            stopped += u64::from(!life.finished);
            check(&sim.restart(LossPolicy::AllLost), &life, &format!("sync {nth} failed, {fault:?}, power cut"));
        }
    }
    assert!(stopped > 20, "only {stopped} syncs were hit");
}
