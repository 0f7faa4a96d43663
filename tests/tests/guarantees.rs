//! The golden job under each guarantee, struck at the same points: what each promises holds, and what it doesn't promise is
//! *seen* not to hold. A guarantee that shows no loss or no repeat where theory says that there must be some is not the guarantee
//! it is called, and the comparison would teach nothing.
//!
//! | guarantee | lost | repeated | after a crash |
//! |---|---|---|---|
//! | at-most-once | yes | never | refuses to begin again in the same directory |
//! | at-least-once | never | yes | goes on from the last complete checkpoint |
//! | exactly-once | never | never | goes on from the last complete checkpoint |
//! | exactly-once, unaligned | never | never | the same, with what was in flight there |

#![expect(clippy::print_stdout, reason = "it shows what each guarantee gave")]

use cutwater_engine::config::{Alignment, GuaranteeKind};
use cutwater_engine::error::RunError;
use cutwater_engine::observe::Control;
use cutwater_testkit::LossPolicy;
use cutwater_tests::golden::{Deviation, Expected, Input, live_pressed, live_promising, workers_of};
use cutwater_tests::{End, Machine};

const ENDS: [End; 2] = [End::Kill, End::PowerOff(LossPolicy::AllLost)];

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

/// Points of a checkpoint behind which output stands that the last complete one doesn't cover.
const UNCOVERED: [&str; 7] = [
    "operator.barrier-on-some-inputs",
    "operator.cut",
    "snapshot.file-written",
    "snapshot.dir-synced",
    "coordinator.report-came",
    "coordinator.all-reported",
    "manifest.tmp-written",
];

/// Strikes a life at each of `points` under each end, and lets the job go on. Returns what was seen in the end, summed for
/// counts and for windows, and how many strikes landed.
fn struck(loaded: &Loaded, promise: GuaranteeKind, points: &[&'static str], visits: &[u64]) -> ([Deviation; 2], u64) {
    let (mut sums, mut landed) = ([Deviation::default(); 2], 0);
    for (case, (point, visit)) in (0..).zip(points.iter().flat_map(|p| visits.iter().map(move |v| (*p, *v)))) {
        for end in ENDS {
            let mut machine = loaded.machine.fork(case + 1);
            machine.strike(point, visit);
            let story = format!("{promise}, {point} for the {visit}th time, {end:?}");
            let result = live_promising(&machine, workers_of(case, 0).max(2), promise);
            if machine.is_off() {
                landed += 1;
                machine = machine.next_life(end);
                let report = live_promising(&machine, workers_of(case, 1), promise);
                let report = report.unwrap_or_else(|e| panic!("{story}: {e}"));
                assert!(report.finished, "{story}: {report}");
            } else {
                assert!(result.is_ok_and(|report| report.finished), "{story}: not struck, and failed");
            }
            if promise == GuaranteeKind::ExactlyOnce {
                loaded.expected.assert_seen(&machine, &story);
            }
            let seen = loaded.expected.deviation(&machine);
            for (sum, seen) in sums.iter_mut().zip(seen) {
                *sum += seen;
            }
        }
    }
    println!("{promise}: {landed} strikes; running counts {:?}, windows {:?}", sums[0], sums[1]);
    (sums, landed)
}

#[test]
fn exactly_once_neither_loses_nor_repeats() {
    let (seen, landed) = struck(&loaded(41), GuaranteeKind::ExactlyOnce, &UNCOVERED, &[3, 5]);
    assert_eq!(seen, [Deviation::default(); 2]);
    assert!(landed >= UNCOVERED.len() as u64, "only {landed} strikes landed");
}

/// With the slow steps behind the exchanges, so that there is something to overtake.
#[test]
fn exactly_once_with_barriers_that_overtake_neither_loses_nor_repeats() {
    let loaded = loaded(44);
    let (mut landed, mut overtaken) = (0, 0);
    for (case, (point, visit)) in (0..).zip(UNCOVERED.iter().flat_map(|p| [(*p, 3), (*p, 5)])) {
        let live = |machine: &Machine, life| {
            live_pressed(machine, workers_of(case, life).max(2), Alignment::Unaligned, &Control::new())
        };
        let mut machine = loaded.machine.fork(case + 1);
        machine.strike(point, visit);
        let result = live(&machine, 0);
        overtaken += machine.reached().get("operator.overtook").copied().unwrap_or(0);
        if machine.is_off() {
            landed += 1;
            machine = machine.next_life(ENDS[case as usize % 2]);
            let report = live(&machine, 1).unwrap_or_else(|e| panic!("{point} for the {visit}th time: {e}"));
            assert!(report.finished, "{point} for the {visit}th time: {report}");
        } else {
            assert!(
                result.is_ok_and(|report| report.finished),
                "{point} for the {visit}th time: not struck, and failed"
            );
        }
        assert_eq!(loaded.expected.deviation(&machine), [Deviation::default(); 2]);
    }
    assert!(landed >= UNCOVERED.len() as u64 && overtaken > 20, "{landed} strikes landed, {overtaken} overtaken");
}

#[test]
fn at_least_once_loses_nothing_and_repeats_what_was_shown_since_the_last_checkpoint() {
    let loaded = loaded(42);
    for point in UNCOVERED {
        let ([counts, windows], landed) = struck(&loaded, GuaranteeKind::AtLeastOnce, &[point], &[3, 5, 8]);
        assert_eq!((counts.lost, windows.lost), (0, 0), "{point}: nothing is lost");
        assert!(landed > 0, "{point} was never reached");
        assert!(counts.repeated > 0, "{point}: counts shown since the last checkpoint must be shown again");
    }
    let undisturbed = loaded.machine.fork(99);
    let report = live_promising(&undisturbed, 3, GuaranteeKind::AtLeastOnce).expect("it runs");
    assert!(report.finished && report.committed > 0 && report.repeated() == 0, "{report}");
    loaded.expected.assert_seen(&undisturbed, "without a crash at-least-once is exact");
}

#[test]
fn at_most_once_repeats_nothing_loses_the_rest_and_does_not_pretend_that_it_can_go_on() {
    let loaded = loaded(43);
    for (point, visit) in [("log.frame-written", 20), ("log.frame-written", 60), ("log.frame-buffered", 40)] {
        for end in ENDS {
            let machine = loaded.machine.fork(visit);
            machine.strike(point, visit);
            let story = format!("{point} for the {visit}th time, {end:?}");
            live_promising(&machine, 2, GuaranteeKind::AtMostOnce).expect_err("the power goes off");
            assert!(machine.is_off(), "{story}: never reached");
            let machine = machine.next_life(end);
            let again = live_promising(&machine, 2, GuaranteeKind::AtMostOnce).expect_err("it can't go on");
            assert!(matches!(again, RunError::Refused(_)), "{story}: {again}");
            let [counts, windows] = loaded.expected.deviation(&machine);
            println!("at-most-once, {story}: running counts {counts:?}, windows {windows:?}");
            assert_eq!((counts.repeated, windows.repeated), (0, 0), "{story}: nothing comes twice");
            assert!(counts.lost > 0, "{story}: what was not written is lost");
        }
    }
}

#[test]
fn state_that_may_count_twice_is_never_taken_for_exact() {
    let loaded = loaded(44);
    let machine = loaded.machine.fork(1);
    machine.strike("coordinator.published", 4);
    live_promising(&machine, 2, GuaranteeKind::AtLeastOnce).expect_err("the power goes off");
    let machine = machine.next_life(End::Kill);
    let refused = live_promising(&machine, 2, GuaranteeKind::ExactlyOnce).expect_err("its state may count twice");
    let told = refused.to_string();
    assert!(matches!(refused, RunError::Incompatible(_)) && told.contains("at-least-once"), "{told}");
    let report = live_promising(&machine, 2, GuaranteeKind::AtLeastOnce).expect("it goes on as it was");
    assert!(report.finished, "{report}");

    // The other way round there is nothing to lose but the promise.
    let machine = loaded.machine.fork(2);
    machine.strike("coordinator.published", 4);
    live_promising(&machine, 2, GuaranteeKind::ExactlyOnce).expect_err("the power goes off");
    let machine = machine.next_life(End::Kill);
    let report = live_promising(&machine, 3, GuaranteeKind::AtLeastOnce).expect("a weaker promise can always be kept");
    assert!(report.finished, "{report}");
    let [counts, windows] = loaded.expected.deviation(&machine);
    assert_eq!((counts.lost, windows.lost), (0, 0));
}
