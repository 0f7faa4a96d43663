//! Golden pipelines x guarantees x crash points: what each guarantee promises holds, and what it doesn't promise is *seen* not to
//! hold. A guarantee that shows no loss or no repeat where theory says that there must be some is not the guarantee it is called,
//! and the comparison would teach nothing: such a cell fails.
//!
//! | guarantee | lost | repeated | after a crash | at a point of checkpoints |
//! |---|---|---|---|---|
//! | at-most-once | yes | never | refuses to begin again in the same directory | isn't there, and is exact |
//! | at-least-once | never | yes | goes on from the last complete checkpoint | the same |
//! | exactly-once | never | never | goes on from the last complete checkpoint | the same |
//! | exactly-once, unaligned | never | never | the same, with what was in flight there | the same |
//!
//! The pipelines are the running counts and the windows of the golden job, which share its runs, and the streams that part and
//! meet. Each cell is struck by panics, from which the run itself starts again, and by ends of the process. What is never allowed is
//! asked of every strike, what must show itself of the cell. What the product counts (`Report::reread`, `RunError::Lost`) is held
//! against what readers see.

#![expect(clippy::print_stdout, reason = "it shows what each guarantee gave")]

use std::fmt;

use cutwater_engine::config::{Alignment, GuaranteeKind};
use cutwater_engine::error::RunError;
use cutwater_engine::id::Attempt;
use cutwater_engine::observe::{Control, Loss, Report};
use cutwater_testkit::{CrashAction, LossPolicy};
use cutwater_tests::golden::{
    self, Deviation, Expected, Input, RECORD, WINDOW, live_pressed, live_promising, workers_of,
};
use cutwater_tests::{End, Machine, meeting};

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

/// What is done to a run at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    /// The thread panics, and the run starts again by itself.
    Panic,
    /// The process ends, or the machine.
    Off(End),
}

use Strike::{Off, Panic};
const KILL: Strike = Off(End::Kill);
const DARK: Strike = Off(End::PowerOff(LossPolicy::AllLost));

/// A point of a run.
struct Point {
    name: &'static str,
    /// Only jobs with checkpoints come there. Output stands behind it that the last complete one doesn't cover.
    of_checkpoints: bool,
    /// Whether it is on a worker's thread, where a panic ends the attempt and no more.
    of_worker: bool,
}

const fn point(name: &'static str, of_checkpoints: bool, of_worker: bool) -> Point {
    Point { name, of_checkpoints, of_worker }
}

/// The same for all guarantees.
const POINTS: [Point; 9] = [
    point(RECORD, false, true),
    point("log.frame-written", false, false),
    point("operator.barrier-on-some-inputs", true, true),
    point("operator.cut", true, true),
    point("snapshot.file-written", true, false),
    point("snapshot.dir-synced", true, false),
    point("coordinator.report-came", true, true),
    point("coordinator.all-reported", true, true),
    point("manifest.tmp-written", true, false),
];

/// After which of the results that take longest to come (see [`Runs::result`]) a point is struck at its next visit: by then
/// something was shown that the last complete checkpoint may not cover.
const AFTER: [u64; 6] = [20, 35, 8, 28, 44, 14];

/// What theory says that a cell must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theory {
    Exact,
    Repeats,
    Loss,
}

fn theory(promise: GuaranteeKind, point: &Point) -> Theory {
    match promise {
        GuaranteeKind::ExactlyOnce => Theory::Exact,
        GuaranteeKind::AtLeastOnce => Theory::Repeats,
        // What ends checkpoints ends nothing where there are none.
        GuaranteeKind::AtMostOnce if point.of_checkpoints => Theory::Exact,
        GuaranteeKind::AtMostOnce => Theory::Loss,
    }
}

/// The jobs of the matrix.
enum Runs {
    Golden(Loaded),
    Meeting,
}

impl Runs {
    /// Its pipelines, as many as [`Runs::seen`] answers.
    fn pipelines(&self) -> &'static [&'static str] {
        match self {
            Runs::Golden(_) => &["counts", "windows"],
            Runs::Meeting => &["meeting"],
        }
    }

    fn machine(&self, case: u64) -> Machine {
        match self {
            Runs::Golden(loaded) => loaded.machine.fork(case),
            Runs::Meeting => Machine::new(case),
        }
    }

    /// What is reached with each result of the slowest pipeline, and how often for one of [`AFTER`].
    fn result(&self) -> (&'static str, u64) {
        match self {
            Runs::Golden(_) => (WINDOW, 1),
            Runs::Meeting => (RECORD, 20),
        }
    }

    fn live(&self, machine: &Machine, workers: usize, promise: GuaranteeKind) -> Result<Report, RunError> {
        match self {
            Runs::Golden(_) => golden::live_tapped(machine, workers, promise, 2),
            Runs::Meeting => meeting::live_tapped(machine, workers, promise, 2),
        }
    }

    fn seen(&self, machine: &Machine) -> Vec<Deviation> {
        match self {
            Runs::Golden(loaded) => loaded.expected.deviation(machine).to_vec(),
            Runs::Meeting => vec![meeting::deviation(machine)],
        }
    }

    /// Compares sequences, which says more than that nothing deviates.
    fn assert_exact(&self, machine: &Machine, story: &str) {
        match self {
            Runs::Golden(loaded) => loaded.expected.assert_seen(machine, story),
            Runs::Meeting => meeting::assert_seen(machine, story),
        }
    }

    /// The most rows that one record read again leads to where each leads to as many: both ways of the meeting, one count. (One
    /// record can fire many windows.)
    fn rows_of_a_record(&self) -> u64 {
        match self {
            Runs::Golden(_) => 1,
            Runs::Meeting => 2,
        }
    }
}

/// What came of one strike.
struct Struck {
    landed: bool,
    seen: Vec<Deviation>,
    /// Read again, as far as the run knew.
    reread: u64,
    loss: Option<Loss>,
}

/// A cell of the matrix.
struct Cell<'a> {
    runs: &'a Runs,
    promise: GuaranteeKind,
    point: &'a Point,
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} x {}", self.runs.pipelines().join(" and "), self.promise, self.point.name)
    }
}

impl Cell<'_> {
    /// One strike; asks what is asked of each.
    fn strike(&self, case: u64, strike: Strike, after: u64) -> Struck {
        let story = format!("{self}: {strike:?} after {after}");
        let mut machine = self.runs.machine(case + 1);
        let (result, each) = self.runs.result();
        let action = match strike {
            Panic => CrashAction::Panic,
            Off(_) => CrashAction::PowerOff(machine.disk().clone()),
        };
        machine.call_next(self.point.name, result, after * each, action);
        // Two at least, so that a barrier is there on some inputs.
        let result = self.runs.live(&machine, 2 + case as usize % 2, self.promise);
        let mut struck = Struck { landed: machine.is_off(), seen: vec![], reread: 0, loss: None };
        let goes_on = self.promise != GuaranteeKind::AtMostOnce;
        let ended = match (strike, result) {
            (Off(end), failed) if machine.is_off() => {
                let error = failed.expect_err("nothing finishes without power");
                machine = machine.next_life(end);
                let again = self.runs.live(&machine, workers_of(case, 1), self.promise);
                if goes_on { again } else { again.map_err(|_| error) }
            }
            (_, result) => result,
        };
        match ended {
            Ok(report) => {
                assert!(report.finished, "{story}: {report}");
                struck.landed |= !report.failures.is_empty();
                struck.reread = report.reread;
                self.judge_report(&report, strike, &story);
            }
            Err(RunError::Lost { loss, .. }) if !goes_on => {
                struck.landed = true;
                struck.loss = Some(loss);
                let again = self.runs.live(&machine, 2, self.promise).expect_err("it can't go on");
                assert!(matches!(again, RunError::Refused(_)), "{story}: {again}");
            }
            Err(error) => panic!("{story}: {error}"),
        }
        struck.seen = self.runs.seen(&machine);
        self.judge(&struck, strike, &story);
        if goes_on && theory(self.promise, self.point) == Theory::Exact || !struck.landed {
            self.runs.assert_exact(&machine, &story);
        }
        struck
    }

    /// What the run says of itself.
    fn judge_report(&self, report: &Report, strike: Strike, story: &str) {
        let off = matches!(strike, Off(_)) && report.attempt > Attempt(1);
        assert_eq!(report.behind, off.then_some(Attempt(1)), "{story}: {report}");
        let repeated = match self.promise {
            GuaranteeKind::AtLeastOnce if off => None,
            GuaranteeKind::AtLeastOnce => Some(report.reread),
            GuaranteeKind::ExactlyOnce | GuaranteeKind::AtMostOnce => Some(0),
        };
        assert_eq!(report.repeated_at_most(), repeated, "{story}: {report}");
        assert!(!report.failures.is_empty() || report.reread == 0, "{story}: nothing failed here: {report}");
    }

    /// What is never allowed, and what the product counted beside what readers see.
    fn judge(&self, struck: &Struck, strike: Strike, story: &str) {
        for (name, seen) in self.runs.pipelines().iter().zip(&struck.seen) {
            let Deviation { lost, repeated } = *seen;
            let allowed = match self.promise {
                GuaranteeKind::ExactlyOnce => (lost, repeated) == (0, 0),
                GuaranteeKind::AtLeastOnce => lost == 0,
                GuaranteeKind::AtMostOnce => repeated == 0,
            };
            assert!(allowed, "{story}: {name}: {seen:?}");
        }
        let rows = struck.seen[0];
        if strike == Panic {
            assert!(
                rows.repeated <= struck.reread * self.runs.rows_of_a_record(),
                "{story}: {rows:?}, {}",
                struck.reread
            );
        }
        if let Some(loss) = struck.loss {
            assert!(loss.at_most() > 0 && loss.at_least() <= loss.at_most(), "{story}: {loss}");
            assert!(struck.seen.iter().any(|seen| seen.lost > 0), "{story}: {loss}");
            if matches!(self.runs, Runs::Meeting) {
                // Everything that was read went both ways, and each went to the sink or was lost before.
                let accounted = loss.delivered + loss.at_most();
                let visible = meeting::ROWS - rows.lost;
                assert!(
                    (loss.delivered..=loss.delivered + loss.unconfirmed).contains(&visible),
                    "{story}: {loss}, {rows:?}"
                );
                assert!(loss.absorbed == 0 && accounted >= loss.read && accounted <= 2 * loss.read, "{story}: {loss}");
            }
        }
    }

    /// Strikes until what theory says has been seen of every pipeline, and fails if it hasn't after all strikes.
    fn show(&self, case: u64) {
        let wanted = theory(self.promise, self.point);
        let (mut landed, mut reread, mut told) = (0, 0, false);
        let mut sums = vec![Deviation::default(); self.runs.pipelines().len()];
        let strikes = if self.point.of_worker { &[Panic, KILL, DARK][..] } else { &[DARK, KILL] };
        let is_reached = self.promise != GuaranteeKind::AtMostOnce || !self.point.of_checkpoints;
        // Exactness is asked of every strike, and needs none in particular.
        let tries = match wanted {
            Theory::Exact if is_reached => strikes.len(),
            Theory::Exact => 1,
            Theory::Repeats | Theory::Loss => AFTER.len(),
        };
        for ((strike, after), step) in strikes.iter().copied().cycle().zip(AFTER).take(tries).zip(0..) {
            let struck = self.strike(case + step, strike, after);
            landed += u64::from(struck.landed);
            reread += struck.reread;
            told |= struck.loss.is_some();
            sums.iter_mut().zip(struck.seen).for_each(|(sum, seen)| *sum += seen);
            let shown = match wanted {
                Theory::Exact => false,
                Theory::Repeats => sums.iter().all(|sum| sum.repeated > 0),
                // Once as the run tells it, and once more from outside.
                Theory::Loss => landed > 1 && sums.iter().all(|sum| sum.lost > 0) && told,
            };
            if shown {
                break;
            }
        }
        println!("{self}: {wanted:?}: {landed} strikes; {sums:?}, {reread} read again");
        assert_eq!(landed > 0, is_reached, "{self}: {landed} strikes landed");
        for (name, sum) in self.runs.pipelines().iter().zip(sums) {
            let shows = match wanted {
                Theory::Exact => sum == Deviation::default(),
                Theory::Repeats => sum.repeated > 0,
                Theory::Loss => sum.lost > 0,
            };
            assert!(shows, "{self}: {name} must show {wanted:?} and shows {sum:?}");
        }
    }
}

fn show_all(promise: GuaranteeKind, seed: u64) {
    for runs in [Runs::Golden(loaded(seed)), Runs::Meeting] {
        for (point, case) in POINTS.iter().zip((0..).step_by(10)) {
            Cell { runs: &runs, promise, point }.show(case);
        }
    }
}

#[test]
fn exactly_once_neither_loses_nor_repeats() {
    show_all(GuaranteeKind::ExactlyOnce, 41);
}

#[test]
fn at_least_once_loses_nothing_and_repeats_what_was_shown_since_the_last_checkpoint() {
    show_all(GuaranteeKind::AtLeastOnce, 42);
}

#[test]
fn at_most_once_repeats_nothing_loses_the_rest_and_does_not_pretend_that_it_can_go_on() {
    show_all(GuaranteeKind::AtMostOnce, 43);
}

#[test]
fn without_a_crash_at_least_once_is_exact_and_says_so() {
    let loaded = loaded(45);
    let report = live_promising(&loaded.machine, 3, GuaranteeKind::AtLeastOnce).expect("it runs");
    assert!(report.finished && report.committed > 0 && report.repeated() == 0, "{report}");
    assert_eq!(report.repeated_at_most(), Some(0));
    loaded.expected.assert_seen(&loaded.machine, "without a crash at-least-once is exact");
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
fn state_that_may_count_twice_is_never_taken_for_exact() {
    let loaded = loaded(44);
    let machine = loaded.machine.fork(1);
    machine.strike("coordinator.published", 3);
    live_promising(&machine, 2, GuaranteeKind::AtLeastOnce).expect_err("the power goes off");
    let machine = machine.next_life(End::Kill);
    let refused = live_promising(&machine, 2, GuaranteeKind::ExactlyOnce).expect_err("its state may count twice");
    let told = refused.to_string();
    assert!(matches!(refused, RunError::Incompatible(_)) && told.contains("at-least-once"), "{told}");
    let report = live_promising(&machine, 2, GuaranteeKind::AtLeastOnce).expect("it goes on as it was");
    assert!(report.finished, "{report}");

    // The other way round there is nothing to lose but the promise.
    let machine = loaded.machine.fork(2);
    machine.strike("coordinator.published", 3);
    live_promising(&machine, 2, GuaranteeKind::ExactlyOnce).expect_err("the power goes off");
    let machine = machine.next_life(End::Kill);
    let report = live_promising(&machine, 3, GuaranteeKind::AtLeastOnce).expect("a weaker promise can always be kept");
    assert!(report.finished, "{report}");
    let [counts, windows] = loaded.expected.deviation(&machine);
    assert_eq!((counts.lost, windows.lost), (0, 0));
}
