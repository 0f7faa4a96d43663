//! One case, life after life: run, strike, lose what the disk loses, run again, until the job has finished.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::{Alignment, Guarantee, Options, Snapshots};
use cutwater_engine::error::BuildError;
use cutwater_engine::graph::Job;
use cutwater_engine::observe::Control;
use cutwater_engine::worker::run;
use cutwater_platform::SplitMix;
use cutwater_platform::spawn::panic_text;
use cutwater_testkit::{CrashAction, LossPolicy, RefusingFiles, SimDisk, SimPlatform, Strike as Struck};

use crate::DATA_DIR;
use crate::case::{Case, End, Strike};

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
    /// A mistake that the code shall make, to see that it is found.
    pub(crate) mistake: Option<&'static str>,
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
    /// What happened, in words.
    pub(crate) story: String,
}

/// Lives a case to its end.
///
/// # Errors
/// The story of what must not be: a life that was not struck failed, hung or panicked.
pub(crate) fn live(setup: &Setup, case: &Case) -> Result<Lived, String> {
    let mut random = SplitMix::new(case.seed);
    let mut machine = SimPlatform::on(setup.disk.fork(), random.next()).with_scheduler();
    let (mut struck, mut reached, mut turns, mut declined, mut trace) = (vec![], vec![], 0, 0, 0u64);
    let mut story = format!("case {case}\n");
    for life in 0..LIVES_MAX {
        let strike = case.strikes.get(life);
        let mut options = options(setup, &machine, &mut random, strike);
        arm(&machine, strike);
        decline(&machine, &mut random, &mut options);
        setup.mistake.into_iter().for_each(|mistake| machine.crashes().plant(mistake));
        let before = machine.crashes().reached();
        let struck_before = machine.crashes().struck().len();
        let is_ours = |struck: &Struck| strike.is_some_and(|s| s.point == struck.point && s.nth == struck.nth);
        let build = setup.build.clone();
        let control = Control::new();
        let result = catch_unwind(AssertUnwindSafe(|| run(move |job| build(job), &options, &control)));
        let scheduler = machine.scheduler().expect("made with one");
        turns += scheduler.turns_taken();
        declined += control.seen().declined;
        let disk = machine.disk();
        // Lengths are left out: a lock file holds the number of this process.
        let mix = |h: u64, word: u64| (h ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(31);
        let steps = disk.trace().iter().fold(0u64, |h, step| {
            let path = step.path.as_os_str().as_encoded_bytes().iter().fold(h, |h, byte| mix(h, u64::from(*byte)));
            mix(mix(path, step.offset), step.op as u64)
        });
        let (choices, points) = (scheduler.trace(), machine.crashes().order());
        trace = trace.rotate_left(7) ^ choices ^ steps.rotate_left(11) ^ points.rotate_left(23);
        story.push_str(&format!("life {life}: choices {choices:016x}, points {points:016x}, disk {steps:016x}\n"));
        reached.push(since(&before, machine.crashes().reached()));
        // What is left of this life holds the log and its scheduler in a circle.
        scheduler.forget_tasks();
        let outcome = match result {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => Err(format!("a panic: {}", panic_text(panic.as_ref()))),
        };
        let (workers, off) = (options.workers, machine.disk().is_off());
        let was_struck = off || machine.crashes().struck().iter().skip(struck_before).any(is_ours);
        let strike = strike.filter(|_| was_struck);
        struck.extend(strike.cloned());
        story.push_str(&match (&strike, &outcome) {
            (Some(s), Ok(_)) => format!(
                "life {life}, {workers} workers: finished, although struck at {}#{} by {}\n",
                s.point, s.nth, s.end
            ),
            (Some(s), Err(e)) => {
                format!("life {life}, {workers} workers: struck at {}#{} by {}: {e}\n", s.point, s.nth, s.end)
            }
            (None, Ok(_)) => format!("life {life}, {workers} workers: finished\n"),
            (None, Err(e)) => format!("life {life}, {workers} workers: {e}\n"),
        });
        match (outcome, strike) {
            (_, Some(strike)) if off => machine = next_life(&machine, strike.end),
            (Ok(report), _) => {
                if !report.finished {
                    return Err(format!("{story}it ended without having finished"));
                }
                let wrong = report.discrepancies();
                if !wrong.is_empty() {
                    return Err(format!("{story}records went missing or came from nowhere: {}", wrong.join("; ")));
                }
                return Ok(Lived { machine, struck, reached, trace, turns, declined, story });
            }
            (Err(_), _) => return Err(format!("{story}that life must not fail")),
        }
    }
    Err(format!("{story}struck {LIVES_MAX} times, and still not finished"))
}

fn next_life(machine: &SimPlatform, end: End) -> SimPlatform {
    match end {
        End::Kill | End::Panic => machine.kill(),
        End::PowerOff(policy) => machine.restart(policy),
    }
}

/// The machine on which output is read: one that has lost everything that wasn't durable, for a job that has finished has
/// promised all of it.
pub(crate) fn machine_to_read(machine: &SimPlatform) -> SimPlatform {
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

fn arm(machine: &SimPlatform, strike: Option<&Strike>) {
    machine.crashes().disarm();
    match strike {
        None => {}
        Some(Strike { point, nth, .. }) if point == Strike::DISK => machine.disk().crash_at_step(*nth),
        Some(Strike { point, nth, end: End::Panic }) => machine.crashes().arm(point, *nth, CrashAction::Panic),
        Some(Strike { point, nth, .. }) => machine.power_off_at(point, *nth),
    }
}

/// In some lives one state file can't be made, so that a checkpoint is declined and the next one must cover its output.
fn decline(machine: &SimPlatform, random: &mut SplitMix, options: &mut Options) {
    let (happens, published) = (random.below(3) == 0, 1 + random.below(3));
    if !happens {
        return;
    }
    let is_state = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("checkpoints/state"));
    let files = RefusingFiles::new(machine.disk().clone(), is_state);
    options.platform.files = Arc::new(files.clone());
    machine.crashes().arm("coordinator.published", published, CrashAction::Call(Box::new(move || files.refuse(1))));
}

/// Little stands before a barrier, and checkpoints come fast, so that a short run meets everything. How little and how fast is
/// the seed's.
fn options(setup: &Setup, machine: &SimPlatform, random: &mut SplitMix, strike: Option<&Strike>) -> Options {
    let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let mut options = Options::new("simulated", PathBuf::from(DATA_DIR));
    let workers: Vec<u64> = setup.workers.iter().map(|w| *w as u64).collect();
    options.workers = pick(&workers) as usize;
    options.pin = false;
    // In-process restarts only where a panic asks for one: everything else that fails is to be seen.
    options.restarts_max = u32::from(strike.is_some_and(|s| s.end == End::Panic));
    options.leave_within = Duration::from_secs(3_600);
    options.platform = machine.platform();
    let uncommitted_max = pick(&[1, 2, 3]);
    let alignment = match pick(&[0, 0, 1, 2]) {
        0 => Alignment::Aligned,
        1 => Alignment::Unaligned,
        _ => Alignment::AlignedFor(Duration::from_micros(pick(&[50, 500]))),
    };
    options.guarantee = Guarantee::ExactlyOnce(Snapshots {
        alignment,
        in_flight_max: pick(&[1, 2, 3]).min(uncommitted_max),
        retained: pick(&[1, 2, 3]) as usize,
        deltas_max: pick(&[1, 2, 4]) as usize,
        uncommitted_max,
        declined_max: 3,
        timeout: Duration::from_secs(20),
        ..Snapshots::every(Duration::from_micros(pick(&[200, 500, 2_000, 10_000])))
    });
    options.limits.batch_records = pick(&[1, 4, 16]) as usize;
    options.limits.channel_records = options.limits.batch_records * pick(&[2, 4]) as usize;
    options.limits.batches_per_step = pick(&[1, 2, 4]) as usize;
    options.bytes_between_workers = pick(&[0, 0, 0, 1]) == 1;
    (setup.options)(&mut options);
    options
}
