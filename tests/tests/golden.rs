//! The golden job, straight, rescaled, and struck at every named crash point of engine, connectors and log.
//!
//! CI strikes each point at two visits under two ends; `CUTWATER_CRASH_FULL=1 cargo test --release -p cutwater-tests --test
//! golden -- --nocapture` strikes at every visit up to 12 under every end, and says so on every case; `CUTWATER_CRASH_FROM=n`
//! resumes at case n.

#![expect(clippy::print_stdout, reason = "a long campaign says where it is")]

use std::collections::{BTreeMap, BTreeSet};

use cutwater_testkit::LossPolicy;
use cutwater_tests::golden::{Expected, Input, live, workers_of};
use cutwater_tests::{End, Machine};

/// A strike: where, at which visit, and what the disk loses.
#[derive(Clone, Debug)]
struct Strike {
    point: &'static str,
    visit: u64,
    end: End,
}

/// Points that must be struck at least once by the matrix, in the order of `docs/recovery.md`. Points of the log that need a
/// larger log than this one are struck in the log's own tests.
const MUST_STRIKE: &[&str] = &[
    "attempt.claimed",
    "group.fenced",
    "recovery.fenced",
    "recovery.resolved",
    "recovery.base-recorded",
    "attempt.base-recorded",
    "recovery.recommitted",
    "recovery.aborted-others",
    "recovery.swept",
    "worker.restored",
    "source.opened",
    "trigger.fired",
    "source.cut",
    "operator.barrier-on-some-inputs",
    "operator.cut",
    "snapshot.file-written",
    "snapshot.file-synced",
    "snapshot.dir-synced",
    "merge.durable",
    "sink.sealed",
    "sink.prepared",
    "coordinator.report-came",
    "coordinator.all-reported",
    "manifest.tmp-written",
    "manifest.published",
    "manifest.durable",
    "coordinator.published",
    "committer.permitted",
    "group.commit-sent",
    "group.committed",
    "committer.committed",
    "janitor.committed-recorded",
    "janitor.recorded",
    "retire.manifest-removed",
    "retire.file-removed",
    "trigger.closed",
    "log.frame-buffered",
    "log.frame-written",
    "log.acknowledged",
    "log.materialised",
    "log.generation-started",
    "log.replayed",
    "log.claim-written",
    "log.prepare-written",
    "log.end-written",
    "segment.written",
];

struct Loaded {
    machine: Machine,
    expected: Expected,
}

fn loaded(seed: u64) -> Loaded {
    let input = Input::new(seed);
    let machine = Machine::new(seed);
    input.load(&machine);
    Loaded { machine, expected: Expected::of(&input) }
}

/// Lives a case to its end and judges it. Returns which strikes really happened, and whether each was a kill.
fn case(loaded: &Loaded, number: u64, strikes: &[Strike]) -> Vec<(&'static str, bool)> {
    let mut machine = loaded.machine.fork(number + 1);
    let mut struck = vec![];
    let mut story = format!("case {number}: {strikes:?}\n");
    for (life, strike) in strikes.iter().enumerate() {
        machine.strike(strike.point, strike.visit);
        let result = live(&machine, workers_of(number, life));
        if !machine.is_off() {
            // The point wasn't reached that often this time: threads interleave as they like.
            let report = result.unwrap_or_else(|e| panic!("{story}life {life} was not struck and failed: {e}"));
            assert!(report.finished, "{story}life {life} ended without having finished");
            break;
        }
        struck.push((strike.point, strike.end == End::Kill));
        story.push_str(&format!("life {life} ended at {} by {:?}: {:?}\n", strike.point, strike.end, result.err()));
        machine = machine.next_life(strike.end);
    }
    let report = live(&machine, workers_of(number, strikes.len()));
    let report = report.unwrap_or_else(|e| panic!("{story}the last life failed: {e}"));
    assert!(report.finished, "{story}the last life ended without having finished");
    loaded.expected.assert_seen(&machine, &story);
    struck
}

#[test]
fn a_straight_run_gives_the_expected_output_with_1_2_3_and_8_workers() {
    let loaded = loaded(1);
    for number in 0..4 {
        case(&loaded, number, &[]);
    }
}

#[test]
fn a_finished_job_run_again_does_nothing() {
    let loaded = loaded(2);
    let machine = loaded.machine.fork(9);
    assert!(!live(&machine, 2).expect("it runs").already_finished);
    let again = live(&machine, 3).expect("it reports");
    assert!(again.already_finished && again.finished);
    again.assert_balanced();
    loaded.expected.assert_seen(&machine, "run twice");
}

#[test]
fn struck_at_every_crash_point_nothing_is_lost_repeated_or_torn() {
    let full = std::env::var("CUTWATER_CRASH_FULL").is_ok();
    let from: u64 = std::env::var("CUTWATER_CRASH_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let loaded = loaded(3);

    // One dry run tells which points a first life reaches, one after a crash which points a recovery reaches.
    let dry = loaded.machine.fork(0);
    live(&dry, 2).expect("it runs");
    let first: BTreeMap<&'static str, u64> = dry.reached();
    let crashed = loaded.machine.fork(0);
    crashed.strike("coordinator.published", 2);
    live(&crashed, 2).expect_err("the power goes off");
    let crashed = crashed.next_life(End::Kill);
    live(&crashed, 2).expect("it recovers");
    let recovery: BTreeMap<&'static str, u64> = crashed.reached();

    let ends: Vec<End> = match full {
        true => std::iter::once(End::Kill).chain(LossPolicy::ALL.map(End::PowerOff)).collect(),
        false => vec![End::Kill, End::PowerOff(LossPolicy::Random)],
    };
    let visits = |count: u64| -> BTreeSet<u64> {
        if full { (1..=count.min(12)).collect() } else { [1, count.div_ceil(2)].into_iter().collect() }
    };
    let mut cases: Vec<Vec<Strike>> = vec![];
    for (point, count) in &first {
        for visit in visits(*count) {
            for end in &ends {
                cases.push(vec![Strike { point, visit, end: *end }]);
            }
        }
    }
    // A second strike, in the recovery from the first.
    for (point, count) in recovery.iter().filter(|(p, _)| full || !first.contains_key(*p) || p.starts_with("recovery"))
    {
        for visit in visits(*count) {
            for end in &ends {
                let before = Strike { point: "coordinator.published", visit: 2, end: End::Kill };
                cases.push(vec![before, Strike { point, visit, end: *end }]);
            }
        }
    }

    let mut struck: BTreeSet<(&'static str, bool)> = BTreeSet::new();
    let total = cases.len();
    for (number, strikes) in cases.into_iter().enumerate().skip(from as usize) {
        if full {
            println!("case {number} of {total}: {strikes:?}");
        }
        struck.extend(case(&loaded, number as u64, &strikes));
    }
    // How many checkpoints a life takes is up to the machine, and some points come late in it: ask again for what was missed.
    let mut number = total as u64;
    let wanted = MUST_STRIKE.iter().flat_map(|point| [(*point, true), (*point, false)]);
    for (point, kill) in wanted.clone() {
        let end = if kill { End::Kill } else { End::PowerOff(LossPolicy::Random) };
        for attempt in 0..40 {
            if struck.contains(&(point, kill)) || from > 0 {
                break;
            }
            let strike = Strike { point, visit: 1, end };
            let before = Strike { point: "coordinator.published", visit: 2, end: End::Kill };
            let strikes = if attempt % 2 == 0 { vec![strike] } else { vec![before, strike] };
            struck.extend(case(&loaded, number, &strikes));
            number += 1;
        }
    }
    let missing: Vec<_> = wanted.filter(|w| !struck.contains(w)).collect();
    assert!(
        from > 0 || missing.is_empty(),
        "no case ended at (point, by kill): {missing:?}; these were struck: {struck:?}"
    );
    println!("{total} cases, {} points and kinds of end struck", struck.len());
}
