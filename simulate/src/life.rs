//! One case, life after life: run, strike, lose what the disk loses, run again, until the job has finished.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cutwater_engine::config::Options;
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::id::Attempt;
use cutwater_engine::observe::Control;
use cutwater_engine::worker::run;
use cutwater_platform::SplitMix;
use cutwater_platform::spawn::panic_text;
use cutwater_testkit::{LossPolicy, SimDisk, SimPlatform, Strike as Struck};

use crate::beside::{Ended, Side, live_beside};
use crate::case::{Case, End, Strike};
use crate::full::{arm_full, make_room};
use crate::settings::{arm, decline, options};

/// What describes a job.
pub(crate) type BuildFn = Arc<dyn Fn(&Job) -> Result<(), BuildError> + Send + Sync>;

/// What the program changes about the options of each life.
pub(crate) type OptionsFn = Arc<dyn Fn(&mut Options) + Send + Sync>;

/// A case may be struck this often at most before its last life must finish.
const LIVES_MAX: usize = 16;

/// What all cases of a simulation have in common.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) build: BuildFn,
    pub(crate) disk: SimDisk,
    /// Each life has one of these numbers of workers, by seed.
    pub(crate) workers: Vec<usize>,
    pub(crate) options: OptionsFn,
    /// Mistakes that the code shall make, to see that they are found.
    pub(crate) mistakes: Vec<&'static str>,
}

/// What came of a case whose job has finished.
pub(crate) struct Lived {
    /// The machine after its last life; its output is still to be judged.
    pub(crate) machine: SimPlatform,
    /// Which strikes happened.
    pub(crate) struck: Vec<Strike>,
    /// How often each point was reached in each life.
    pub(crate) reached: Vec<BTreeMap<&'static str, u64>>,
    /// A hash of everything that happened: choices, points, steps of the disk.
    pub(crate) trace: u64,
    /// Turns of workers and steps of tasks.
    pub(crate) turns: u64,
    /// Checkpoints that were declined.
    pub(crate) declined: u64,
    /// Lives that were overtaken and told so.
    pub(crate) fenced: u64,
    /// How often a job waited for room on its disk.
    pub(crate) pauses: u64,
    /// What happened, in words.
    pub(crate) story: String,
}

/// Lives a case to its end.
///
/// # Errors
/// The story of what must not be: a life that was not struck failed, hung or panicked; or one that was overtaken wasn't told so.
pub(crate) fn live(setup: &Setup, case: &Case) -> Result<Lived, String> {
    let mut random = SplitMix::new(case.seed);
    let mut machine = SimPlatform::on(setup.disk.fork(), random.next()).with_scheduler();
    let mut account = Account::new(case);
    let by_life = case.by_life();
    let ends: Vec<Strike> = by_life.iter().filter_map(|struck| struck.end.clone()).collect();
    let mut life = 0;
    while life < LIVES_MAX {
        let strikes = ends.get(life..).unwrap_or_default();
        let stops = strikes.iter().take_while(|strike| strike.end == End::Stop).count();
        make_room(machine.disk());
        let (sides, choices) = if stops > 0 {
            let chain = &strikes[..strikes.len().min(stops + 1)];
            // Their disk doesn't fill up: each would wait for a moment of the other's.
            let beside = live_beside(setup, machine, chain, &mut random);
            let beside = beside.map_err(|e| format!("{}life {life}: {e}", account.story))?;
            (beside.lives, beside.trace)
        } else {
            let full = by_life.get(life).map(|struck| struck.full.as_slice()).unwrap_or_default();
            (vec![live_alone(setup, machine, strikes.first(), full, &mut random)], 0)
        };
        let newest = sides.last().expect("one life at least").machine.clone();
        let off = newest.disk().is_off();
        account.disk(newest.disk(), choices);
        let mut struck_off = None;
        for (n, side) in sides.iter().enumerate() {
            let strike = account.side(life + n, side, strikes.get(n), off && n + 1 == sides.len());
            struck_off = strike.filter(|_| off);
        }
        life += sides.len();
        if let Some(strike) = struck_off {
            machine = next_life(&newest, strike.end);
            continue;
        }
        return match wrong_at_the_end(&sides) {
            None => Ok(account.lived(newest)),
            Some(wrong) => Err(format!("{}{wrong}", account.story)),
        };
    }
    Err(format!("{}struck {LIVES_MAX} times, and still not finished", account.story))
}

/// A life that has its machine for itself.
fn live_alone(
    setup: &Setup,
    machine: SimPlatform,
    strike: Option<&Strike>,
    full: &[Strike],
    random: &mut SplitMix,
) -> Side {
    let mut options = options(setup, &machine, random, strike);
    arm(&machine, strike);
    decline(&machine, random, &mut options);
    full.iter().for_each(|strike| arm_full(&machine, strike, random, &mut options));
    setup.mistakes.iter().for_each(|mistake| machine.crashes().plant(mistake));
    let before = machine.crashes().reached();
    let struck_before = machine.crashes().struck().len();
    let build = setup.build.clone();
    let control = Control::new();
    let result = catch_unwind(AssertUnwindSafe(|| run(move |job| build(job), &options, &control)));
    let ended = match result {
        Ok(result) => Ended::Run(Box::new(result)),
        Err(panic) => Ended::Panic(panic_text(panic.as_ref())),
    };
    // What is left of this life holds the log and its scheduler in a circle.
    machine.scheduler().inspect(|scheduler| scheduler.forget_tasks());
    Side { workers: options.workers, machine, before, struck_before, stopped: false, control, ended }
}

/// What is wrong with lives that nothing ended from outside; `None` if nothing is. One of them has finished the job, and each that was
/// overtaken is told so, unless it had finished before.
fn wrong_at_the_end(sides: &[Side]) -> Option<String> {
    let mut finished = None;
    for side in sides {
        match &side.ended {
            Ended::Run(result) => match result.as_ref() {
                Ok(report) if !report.finished => return Some("it ended without having finished".to_string()),
                Ok(report) => {
                    let wrong = report.discrepancies();
                    if !wrong.is_empty() {
                        return Some(format!("records went missing or came from nowhere: {}", wrong.join("; ")));
                    }
                    finished = finished.max(Some(report.attempt));
                }
                Err(RunError::Fenced) if sides.len() > 1 => {}
                // Stopped before it had claimed anything, it wasn't overtaken: what it was about to claim with was swept away.
                Err(RunError::GaveUp { .. }) if side.stopped && side.control.seen().attempt == Attempt::default() => {}
                Err(_) if side.stopped => {
                    return Some("a life that was overtaken must be told that it is fenced".to_string());
                }
                Err(_) => return Some("that life must not fail".to_string()),
            },
            Ended::Panic(_) => return Some("that life must not fail".to_string()),
        }
    }
    let newest = sides.iter().map(|side| side.control.seen().attempt).max();
    match finished {
        None => Some("all of them were fenced, and nobody has finished".to_string()),
        Some(attempt) if newest.is_some_and(|newest| newest > attempt) => {
            Some(format!("an older attempt, {attempt}, has finished, and the newest one was fenced"))
        }
        Some(_) => None,
    }
}

/// What is known about the lives of a case so far.
struct Account {
    struck: Vec<Strike>,
    reached: Vec<BTreeMap<&'static str, u64>>,
    turns: u64,
    declined: u64,
    fenced: u64,
    pauses: u64,
    trace: u64,
    story: String,
}

impl Account {
    fn new(case: &Case) -> Account {
        let story = format!("case {case}\n");
        Account { struck: vec![], reached: vec![], turns: 0, declined: 0, fenced: 0, pauses: 0, trace: 0, story }
    }

    /// The steps of a machine's disk, and who went on when.
    fn disk(&mut self, disk: &SimDisk, baton: u64) {
        // Lengths are left out: a lock file holds the number of this process.
        let mix = |h: u64, word: u64| (h ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(31);
        let steps = disk.trace().iter().fold(0u64, |h, step| {
            let path = step.path.as_os_str().as_encoded_bytes().iter().fold(h, |h, byte| mix(h, u64::from(*byte)));
            mix(mix(path, step.offset), step.op as u64)
        });
        self.trace = self.trace.rotate_left(7) ^ steps.rotate_left(11) ^ baton;
        self.story.push_str(&format!("disk {steps:016x}\n"));
    }

    /// A life that is over; `off` if the machine went off with it. Answers what it was struck by.
    fn side<'a>(&mut self, life: usize, side: &Side, strike: Option<&'a Strike>, off: bool) -> Option<&'a Strike> {
        let Side { machine, workers, before, struck_before, stopped, control, ended } = side;
        let scheduler = machine.scheduler().expect("made with one");
        let (choices, points) = (scheduler.trace(), machine.crashes().order());
        self.trace = self.trace.rotate_left(7) ^ choices ^ points.rotate_left(23);
        self.turns += scheduler.turns_taken();
        self.declined += control.seen().declined;
        self.reached.push(since(before, machine.crashes().reached()));
        let is_ours = |struck: &Struck| strike.is_some_and(|s| s.point == struck.point && s.nth == struck.nth);
        let was_struck = off || *stopped || machine.crashes().struck().iter().skip(*struck_before).any(is_ours);
        let strike = strike.filter(|_| was_struck);
        self.struck.extend(strike.cloned());
        let ended = match ended {
            Ended::Run(result) => match result.as_ref() {
                Ok(report) => {
                    self.pauses += u64::from(report.pauses);
                    match report.pauses {
                        0 => "finished".to_string(),
                        n => format!("finished, after {n} pauses of {:?} in all", report.paused),
                    }
                }
                Err(error) => {
                    self.fenced += u64::from(matches!(error, RunError::Fenced));
                    error.to_string()
                }
            },
            Ended::Panic(text) => format!("a panic: {text}"),
        };
        let how = strike.map_or(String::new(), |s| format!(" struck at {}#{} by {}:", s.point, s.nth, s.end));
        self.story.push_str(&format!(
            "life {life}, {workers} workers, choices {choices:016x}, points {points:016x}:{how} {ended}\n"
        ));
        strike
    }

    fn lived(self, machine: SimPlatform) -> Lived {
        let Account { struck, reached, turns, declined, fenced, pauses, trace, story } = self;
        Lived { machine, struck, reached, trace, turns, declined, fenced, pauses, story }
    }
}

fn next_life(machine: &SimPlatform, end: End) -> SimPlatform {
    match end {
        End::Kill | End::Panic | End::Stop | End::Full => machine.kill(),
        End::PowerOff(policy) => machine.restart(policy),
    }
}

/// The machine on which output is read: one that has lost everything that wasn't durable, for a job that has finished has
/// promised all of it.
pub(crate) fn machine_to_read(machine: &SimPlatform) -> SimPlatform {
    make_room(machine.disk());
    machine.restart(LossPolicy::AllLost)
}

fn since(before: &BTreeMap<&'static str, u64>, mut now: BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    for (point, count) in before {
        if let Some(reached) = now.get_mut(point) {
            *reached -= count;
        }
    }
    now.retain(|_, count| *count > 0);
    now
}
