//! Barriers that overtake records: the golden job under back-pressure, struck while records are in flight and while they are being
//! given back, and gone on with by other numbers of workers; and a job whose streams part and meet again. Output is compared as
//! sequences, and the books balance in every life.
//!
//! That records really were in flight, and really were given back, is asked too: a test in which nothing is overtaken shows
//! nothing.

#![expect(clippy::print_stdout, reason = "it shows what was in flight")]

use std::collections::BTreeMap;
use std::time::Duration;

use cutwater_engine::config::Alignment;
use cutwater_engine::error::RunError;
use cutwater_engine::observe::Control;
use cutwater_testkit::{CrashAction, LossPolicy};
use cutwater_tests::golden::{Expected, Input, live_pressed};
use cutwater_tests::meeting::{self, Within};
use cutwater_tests::{End, Machine};

const POINTS: [(&str, u64); 8] = [
    ("operator.overtook", 3),
    ("operator.overtook", 9),
    ("operator.captured", 5),
    ("snapshot.dir-synced", 6),
    ("coordinator.all-reported", 3),
    ("coordinator.published", 3),
    ("committer.committed", 3),
    ("janitor.recorded", 3),
];

/// What happened over all lives of a machine.
#[derive(Default)]
struct Seen {
    reached: BTreeMap<&'static str, u64>,
    struck: u64,
}

impl Seen {
    fn add(&mut self, machine: &Machine) {
        for (point, times) in machine.reached() {
            *self.reached.entry(point).or_default() += times;
        }
    }

    fn times(&self, point: &str) -> u64 {
        self.reached.get(point).copied().unwrap_or(0)
    }
}

fn loaded(seed: u64) -> (Machine, Expected) {
    let input = Input::new(seed);
    let machine = Machine::new(seed);
    input.load(&machine);
    (machine, Expected::of(&input))
}

/// Strikes at each of `strikes` in turn, one life each with so many workers, then lets the job finish.
fn live_through(
    loaded: &(Machine, Expected),
    seed: u64,
    strikes: &[(&'static str, u64, End)],
    workers: &[usize],
    alignment: Alignment,
    seen: &mut Seen,
) {
    let (machine, expected) = loaded;
    let mut machine = machine.fork(seed);
    let mut story = format!("{alignment}, {strikes:?}, workers {workers:?}\n");
    let mut lives = workers.iter().copied().cycle();
    let mut live =
        |machine: &Machine| live_pressed(machine, lives.next().expect("it cycles"), alignment, &Control::new());
    for (point, visit, end) in strikes {
        machine.strike(point, *visit);
        let result = live(&machine);
        seen.add(&machine);
        if !machine.is_off() {
            let report = result.unwrap_or_else(|e| panic!("{story}not struck, and failed: {e}"));
            assert!(report.finished, "{story}not struck, and not finished");
            break;
        }
        seen.struck += 1;
        story.push_str(&format!("struck at {point}: {:?}\n", result.err()));
        machine = machine.next_life(*end);
    }
    let report = live(&machine).unwrap_or_else(|e| panic!("{story}the last life failed: {e}"));
    seen.add(&machine);
    assert!(report.finished, "{story}{report}");
    expected.assert_seen(&machine, &story);
}

#[test]
fn struck_with_records_in_flight_the_output_is_exact_with_as_many_workers() {
    let loaded = loaded(61);
    let mut seen = Seen::default();
    for (i, (point, visit)) in (1..).zip(POINTS) {
        let end = if i % 2 == 0 { End::Kill } else { End::PowerOff(LossPolicy::AllLost) };
        live_through(&loaded, i, &[(point, visit, end)], &[2], Alignment::Unaligned, &mut seen);
    }
    println!("{:?}", seen.reached);
    assert!(seen.struck > 5, "{} strikes landed", seen.struck);
    assert!(seen.times("operator.overtook") > 50 && seen.times("operator.replaying") > 10, "{:?}", seen.reached);
}

#[test]
fn gone_on_with_by_another_number_of_workers_records_in_flight_find_the_owners_of_their_keys() {
    let loaded = loaded(62);
    let mut seen = Seen::default();
    let ways: [&[usize]; 5] = [&[2, 3], &[3, 1], &[1, 4], &[4, 2], &[3, 8]];
    for (i, workers) in (1..).zip(ways) {
        for (point, visit) in [("coordinator.published", 3), ("janitor.recorded", 4)] {
            live_through(&loaded, i, &[(point, visit, End::Kill)], workers, Alignment::Unaligned, &mut seen);
        }
    }
    println!("{:?}", seen.reached);
    assert!(seen.times("operator.replaying") > 10, "{:?}", seen.reached);
}

#[test]
fn struck_again_while_records_are_given_back_nothing_is_lost_or_repeated() {
    let loaded = loaded(63);
    let mut seen = Seen::default();
    for (i, workers) in (1..).zip([&[2, 2, 2][..], &[2, 3, 1], &[3, 2, 2]]) {
        for visit in [1, 4] {
            let off = End::PowerOff(LossPolicy::AllLost);
            let strikes = [
                ("coordinator.published", 3, End::Kill),
                ("operator.replaying", visit, off),
                ("coordinator.published", 2, End::Kill),
            ];
            live_through(&loaded, i, &strikes, workers, Alignment::Unaligned, &mut seen);
        }
    }
    assert!(seen.struck > 8, "{} strikes landed: {:?}", seen.struck, seen.reached);
}

#[test]
fn patience_decides_between_waiting_and_overtaking() {
    let loaded = loaded(64);
    let (mut short, mut long) = (Seen::default(), Seen::default());
    let strike = [("coordinator.published", 3, End::Kill)];
    live_through(&loaded, 1, &strike, &[2, 3], Alignment::AlignedFor(Duration::from_micros(200)), &mut short);
    live_through(&loaded, 2, &strike, &[2, 3], Alignment::AlignedFor(Duration::from_secs(60)), &mut long);
    assert!(short.times("operator.overtook") > 0, "{:?}", short.reached);
    assert_eq!(long.times("operator.overtook"), 0, "nobody waits for a minute here");
}

/// What was taken unaligned is gone on with aligned, and the other way round.
#[test]
fn the_alignment_may_change_from_one_life_to_the_next() {
    let (machine, expected) = loaded(65);
    for (i, (first, then, workers)) in (1..).zip([
        (Alignment::Unaligned, Alignment::Aligned, 2),
        (Alignment::Unaligned, Alignment::Aligned, 3),
        (Alignment::Aligned, Alignment::Unaligned, 3),
    ]) {
        let machine = machine.fork(i);
        machine.strike("coordinator.published", 3);
        let result = live_pressed(&machine, 2, first, &Control::new());
        assert!(machine.is_off(), "{first}: not struck: {result:?}");
        let machine = machine.next_life(End::Kill);
        let report = live_pressed(&machine, workers, then, &Control::new()).expect("it goes on");
        assert!(report.finished, "{report}");
        expected.assert_seen(&machine, &format!("{first}, then {then} with {workers}"));
    }
}

/// The last checkpoint before a stop holds nothing in flight: it would be processed and never committed.
#[test]
fn a_stop_waits_until_what_is_in_flight_is_committed_and_the_next_run_goes_on() {
    let (machine, expected) = loaded(66);
    let machine = machine.fork(1);
    let control = Control::new();
    let stopper = control.clone();
    machine.call_at("coordinator.published", 2, CrashAction::Call(Box::new(move || stopper.stop())));
    let report = live_pressed(&machine, 2, Alignment::Unaligned, &control).expect("it stops");
    assert!(!report.finished, "{report}");
    let report = live_pressed(&machine, 3, Alignment::Unaligned, &Control::new()).expect("it goes on");
    assert!(report.finished, "{report}");
    expected.assert_seen(&machine, "stopped and gone on with");
}

#[test]
fn streams_that_part_and_meet_again_are_overtaken_on_both_ways_and_stay_in_order() {
    let mut replayed = 0;
    for (i, (point, visit, workers)) in (1..).zip([
        ("coordinator.published", 2, [2, 2]),
        ("coordinator.published", 3, [2, 3]),
        ("operator.overtook", 9, [3, 1]),
        ("janitor.recorded", 2, [1, 2]),
    ]) {
        let machine = Machine::new(i);
        let story = format!("struck at {point}, workers {workers:?}");
        machine.strike(point, visit);
        let result = meeting::live(&machine, workers[0], Alignment::Unaligned, Within::Keyed);
        assert!(machine.is_off(), "{story}: not struck: {result:?}");
        let machine = machine.next_life(End::Kill);
        let report = meeting::live(&machine, workers[1], Alignment::Unaligned, Within::Keyed);
        assert!(report.unwrap_or_else(|e| panic!("{story}: {e}")).finished, "{story}");
        replayed += machine.reached().get("operator.replaying").copied().unwrap_or(0);
        meeting::assert_seen(&machine, &story);
    }
    assert!(replayed > 0, "nothing was in flight");
}

#[test]
fn records_in_flight_without_keys_go_back_to_as_many_workers_and_refuse_others() {
    let machine = Machine::new(1);
    machine.strike("coordinator.published", 4);
    meeting::live(&machine, 2, Alignment::Unaligned, Within::Unkeyed).expect_err("the power goes off");
    let machine = machine.next_life(End::Kill);
    let refused =
        meeting::live(&machine.fork(2), 3, Alignment::Unaligned, Within::Unkeyed).expect_err("nobody knows where to");
    assert!(matches!(refused, RunError::Refused(_)) || refused.to_string().contains("without a key"), "{refused:?}");
    assert!(refused.to_string().contains("on 2 workers"), "{refused}");
    let report = meeting::live(&machine, 2, Alignment::Unaligned, Within::Unkeyed).expect("as many as before");
    assert!(report.finished, "{report}");
    meeting::assert_seen(&machine, "with as many workers");
}
