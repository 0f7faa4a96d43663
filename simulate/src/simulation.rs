//! What a program says about its job and the crashes it wants to see, and the judge of what came out.
//!
//! The judge knows nothing of the job. First the job runs a few times without a crash, under different seeds and numbers of
//! workers: what all these runs have in common (the sequence of each partition, or that of each key, or at least the rows) is
//! what every struck run must show, too. So only a job whose output is determined by its input can be judged; one whose output
//! isn't is told so ([`SimulationError::DependsOnOrder`], [`SimulationError::NotDeterministic`]).

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use cutwater_engine::config::Options;
use cutwater_engine::error::BuildError;
use cutwater_engine::graph::Job;
use cutwater_platform::spawn::panic_text;
use cutwater_platform::{Files, Platform};
use cutwater_testkit::{SimPlatform, sequence_diff};

use crate::case::{Case, End, Strike};
use crate::input::Input;
use crate::life::{BuildFn, Lived, OptionsFn, Setup, live, machine_to_read};
use crate::output::{Order, Output, agreement, difference};
use crate::schedule::{Crash, Reached, alone, drawn, in_recovery_from, stopped};
use crate::{DATA_DIR, SimulationError};

/// Seeds that run without a crash before anything is struck.
const STRAIGHT: u64 = 4;
/// After so many findings no further case is tried.
const FINDINGS_MAX: usize = 10;

/// Reads what a job wrote to somewhere else than the log.
type ReadFn = Arc<dyn Fn(&dyn Files) -> Vec<String> + Send + Sync>;

/// Lets a build function be simulated.
pub trait Simulate: Fn(&Job) -> Result<(), BuildError> + Send + Sync + Sized + 'static {
    /// A simulation of the job that this function describes.
    fn simulate(self) -> Simulation {
        Simulation::of(self)
    }
}

impl<F: Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static> Simulate for F {}

/// A job, and how it is to be simulated.
#[derive(Clone)]
pub struct Simulation {
    build: BuildFn,
    seed: u64,
    crash: Crash,
    workers: Vec<usize>,
    options: OptionsFn,
    readers: Vec<(String, ReadFn)>,
    replay: Option<Case>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulation(seed {}, {:?}, workers {:?})", self.seed, self.crash, self.workers)
    }
}

impl Simulation {
    /// A simulation of this job: seed 0, every crash point, one to three workers.
    pub fn of(build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static) -> Simulation {
        Simulation {
            build: Arc::new(build),
            seed: 0,
            crash: Crash::EveryPoint,
            workers: vec![1, 2, 3],
            options: Arc::new(|_| {}),
            readers: vec![],
            replay: None,
        }
    }

    /// The seed; where several schedules are tried, the first one.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Simulation {
        self.seed = seed;
        self
    }

    /// What strikes.
    #[must_use]
    pub fn crash(mut self, crash: Crash) -> Simulation {
        self.crash = crash;
        self
    }

    /// The numbers of workers from which each life's seed chooses; so the job is rescaled between lives.
    ///
    /// # Panics
    /// If there is none, or one is 0.
    #[must_use]
    pub fn workers(mut self, workers: impl IntoIterator<Item = usize>) -> Simulation {
        self.workers = workers.into_iter().collect();
        assert!(!self.workers.is_empty() && !self.workers.contains(&0), "a job needs a worker");
        self
    }

    /// Changes the options of each life after the seed has chosen them.
    #[must_use]
    pub fn options(mut self, change: impl Fn(&mut Options) + Send + Sync + 'static) -> Simulation {
        self.options = Arc::new(change);
        self
    }

    /// Judges something else than the topics of the log, too: what `read` finds on the simulated disk after the job has finished.
    #[must_use]
    pub fn reads(
        mut self,
        name: impl Into<String>,
        read: impl Fn(&dyn Files) -> Vec<String> + Send + Sync + 'static,
    ) -> Simulation {
        self.readers.push((name.into(), Arc::new(read)));
        self
    }

    /// Only this case, as a finding names it.
    #[must_use]
    pub fn replay(mut self, case: Case) -> Simulation {
        self.replay = Some(case);
        self
    }

    /// Runs the job over this input, again and again, and judges each run.
    ///
    /// # Errors
    /// [`SimulationError`]: the job can't be judged. Crashes that it doesn't survive are no errors but
    /// [findings](Simulated::findings).
    pub fn run(&self, input: &Input) -> Result<Simulated, SimulationError> {
        let setup = Setup {
            build: self.build.clone(),
            disk: input.disk(Path::new(DATA_DIR))?,
            workers: self.workers.clone(),
            options: self.options.clone(),
            mistakes: vec![],
        };
        let input: Vec<String> = input.topic_names().map(str::to_string).collect();
        let mut judge = self.straight(&setup, &input)?;
        match (&self.replay, self.crash) {
            (Some(case), _) => _ = judge.case(case),
            (None, Crash::Never { schedules }) => {
                self.seeds(schedules).all(|seed| judge.case(&Case::of(seed)).is_ok() | judge.goes_on());
            }
            (None, Crash::EveryPoint) => judge.every_point(self.seed, false),
            (None, Crash::EveryPair) => judge.every_point(self.seed, true),
            (None, Crash::EveryStop) => judge.every_stop(self.seed),
            (None, Crash::Drawn { schedules }) => {
                let (known, steps) = judge.known_points(self.seed);
                self.seeds(schedules).all(|seed| judge.case(&drawn(seed, &known, steps)).is_ok() | judge.goes_on());
            }
        }
        Ok(judge.simulated)
    }

    fn seeds(&self, schedules: u64) -> impl Iterator<Item = u64> + use<> {
        self.seed..self.seed.saturating_add(schedules)
    }

    /// Runs without a crash: what they have in common is what is right.
    fn straight<'a>(&'a self, setup: &'a Setup, input: &'a [String]) -> Result<Judge<'a>, SimulationError> {
        let one = |seed: u64| -> Result<(Lived, Output), SimulationError> {
            let lived = live(setup, &Case::of(seed)).map_err(|story| SimulationError::NotEvenStraight { story })?;
            let output =
                self.read(&lived.machine, input).map_err(|story| SimulationError::NotEvenStraight { story })?;
            Ok((lived, output))
        };
        let ((first, output), (again, output_again)) = (one(self.seed)?, one(self.seed)?);
        if output != output_again || first.trace != again.trace {
            let differs = |(topic, rows): (&String, &Vec<_>)| {
                let found = output_again.topics.get(topic).map_or(&[][..], Vec::as_slice);
                difference(rows, found, Order::Partition).map(|d| format!("{topic}: {d}"))
            };
            let difference = output.topics.iter().find_map(differs).unwrap_or_else(|| first_difference(&first, &again));
            return Err(SimulationError::NotDeterministic { seed: self.seed, difference });
        }
        let mut outputs = vec![(self.seed, output)];
        // Seeds far from those of the cases.
        for seed in (1..STRAIGHT).map(|n| self.seed ^ (n << 56)) {
            outputs.push((seed, one(seed)?.1));
        }
        let orders = orders(&outputs)?;
        let output = outputs.swap_remove(0).1;
        let simulated = Simulated { output, ..Simulated::default() };
        Ok(Judge { of: self, setup, input, orders, simulated })
    }

    fn read(&self, machine: &SimPlatform, input: &[String]) -> Result<Output, String> {
        let machine = machine_to_read(machine);
        let read = |platform: &Platform| {
            let mut output = Output::of_log(platform, Path::new(DATA_DIR), input)?;
            for (name, read) in &self.readers {
                output.read.insert(name.clone(), read(platform.files.as_ref()));
            }
            Ok(output)
        };
        let output = catch_unwind(AssertUnwindSafe(|| read(&machine.platform())));
        if let Some(scheduler) = machine.scheduler() {
            scheduler.forget_tasks();
        }
        output.unwrap_or_else(|panic| Err(format!("a panic while reading: {}", panic_text(panic.as_ref()))))
    }
}

/// Where two runs of a seed part: at a step of the disk, or at something that left no trace there.
fn first_difference(one: &Lived, other: &Lived) -> String {
    let (one_disk, other_disk) = (one.machine.disk().trace_text(), other.machine.disk().trace_text());
    let mut steps = one_disk.lines().zip(other_disk.lines());
    match steps.find(|(one, other)| one != other) {
        Some((one, other)) => format!("step of the disk {one:?} was {other:?} at the second time"),
        None => format!("the steps of the disk are the same; once\n{}and then\n{}", one.story, other.story),
    }
}

/// In what order each topic is the same in all of these; rows of readers must be the same sequence.
fn orders(outputs: &[(u64, Output)]) -> Result<BTreeMap<String, Order>, SimulationError> {
    let mut orders = BTreeMap::new();
    let Some(((seed, first), rest)) = outputs.split_first() else { return Ok(orders) };
    let no_rows: Vec<Vec<crate::Row>> = vec![];
    for (other_seed, other) in rest {
        let depends = |topic: &String, difference: String| SimulationError::DependsOnOrder {
            topic: topic.clone(),
            seeds: [*seed, *other_seed],
            difference,
        };
        for topic in first.topics.keys().chain(other.topics.keys()) {
            let rows = |output: &'_ Output| output.topics.get(topic).unwrap_or(&no_rows).clone();
            let (expected, found) = (rows(first), rows(other));
            match agreement(&[&expected, &found]) {
                Some(order) => {
                    let weakest = orders.entry(topic.clone()).or_insert(order);
                    *weakest = order.max(*weakest);
                }
                None => {
                    return Err(depends(topic, difference(&expected, &found, Order::Rows).unwrap_or_default()));
                }
            }
        }
        for (name, rows) in &first.read {
            if let Some(diff) = sequence_diff(rows, other.read.get(name).map_or(&[][..], Vec::as_slice)) {
                return Err(depends(name, diff));
            }
        }
    }
    Ok(orders)
}

struct Judge<'a> {
    of: &'a Simulation,
    setup: &'a Setup,
    input: &'a [String],
    orders: BTreeMap<String, Order>,
    simulated: Simulated,
}

impl Judge<'_> {
    fn goes_on(&self) -> bool {
        self.simulated.findings.len() < FINDINGS_MAX
    }

    /// Lives and judges a case; what is wrong becomes a finding.
    fn case(&mut self, case: &Case) -> Result<Lived, ()> {
        self.simulated.cases += 1;
        let judged = live(self.setup, case).and_then(|lived| {
            let found = self.of.read(&lived.machine, self.input).map_err(|e| format!("{}{e}", lived.story))?;
            match self.wrong(&found) {
                Some(wrong) => Err(format!("{}{wrong}", lived.story)),
                None => Ok(lived),
            }
        });
        match judged {
            Ok(lived) => {
                self.simulated.lives += lived.reached.len() as u64;
                self.simulated.turns += lived.turns;
                self.simulated.fenced += lived.fenced;
                self.simulated.pauses += lived.pauses;
                for strike in &lived.struck {
                    *self.simulated.struck.entry((strike.point.clone(), strike.end)).or_default() += 1;
                }
                for (point, count) in lived.reached.iter().flatten() {
                    *self.simulated.reached.entry(point).or_default() += count;
                }
                Ok(lived)
            }
            Err(story) => {
                self.simulated.findings.push(Finding { case: case.clone(), story });
                Err(())
            }
        }
    }

    fn wrong(&self, found: &Output) -> Option<String> {
        let expected = &self.simulated.output;
        for (topic, rows) in &expected.topics {
            let order = self.orders.get(topic).copied().unwrap_or(Order::Rows);
            let seen = found.topics.get(topic).map_or(&[][..], Vec::as_slice);
            if let Some(diff) = difference(rows, seen, order) {
                return Some(format!("topic {topic:?}: {diff}"));
            }
        }
        if let Some(topic) = found.topics.keys().find(|topic| !expected.topics.contains_key(*topic)) {
            return Some(format!("topic {topic:?} is there only after a crash"));
        }
        for (name, rows) in &expected.read {
            let seen = found.read.get(name).map_or(&[][..], Vec::as_slice);
            if let Some(diff) = sequence_diff(rows, seen) {
                return Some(format!("{name:?}: {diff}"));
            }
        }
        None
    }

    fn every_point(&mut self, seed: u64, pairs: bool) {
        let Ok(dry) = self.case(&Case::of(seed)) else { return };
        let first: Reached = dry.reached.first().cloned().unwrap_or_default();
        let mut recovered: Reached = BTreeMap::new();
        for case in alone(seed, &first) {
            if !self.goes_on() {
                return;
            }
            let Ok(lived) = self.case(&case) else { continue };
            let Some(recovery) = lived.reached.get(1).filter(|_| !lived.struck.is_empty()) else { continue };
            // One first strike per point is enough for pairs; without them, a recovery is struck at what is new in it.
            let is_new = |point: &&'static str| !recovered.contains_key(point);
            let second: Reached = match pairs {
                true if case.strikes[0].end == End::Kill => recovery.clone(),
                true => Reached::new(),
                false => recovery.iter().filter(|(p, _)| is_new(p)).map(|(p, c)| (*p, *c)).collect(),
            };
            recovered.extend(recovery.iter().map(|(p, c)| (*p, *c)));
            for pair in in_recovery_from(&case, &second) {
                if !self.goes_on() {
                    return;
                }
                if let Ok(lived) = self.case(&pair)
                    && let [one, two] = lived.struck.as_slice()
                {
                    *self.simulated.pairs.entry((one.point.clone(), two.point.clone())).or_default() += 1;
                }
            }
        }
    }

    fn every_stop(&mut self, seed: u64) {
        let Ok(dry) = self.case(&Case::of(seed)) else { return };
        for case in stopped(seed, &dry.reached.first().cloned().unwrap_or_default()) {
            if !self.goes_on() {
                return;
            }
            _ = self.case(&case);
        }
    }

    /// The points of a first life and of a recovery, how often each is reached at most, and the steps of the disk of a life.
    fn known_points(&mut self, seed: u64) -> (Reached, u64) {
        let mut known = Reached::new();
        let mut steps = 0;
        let mut cases = vec![Case::of(seed)];
        cases.push(Case::of(seed).and("manifest.durable", 2, End::Kill));
        cases.push(Case::of(seed).and("coordinator.published", 1, End::Kill));
        for case in &cases {
            if let Ok(lived) = live(self.setup, case) {
                steps = steps.max(lived.machine.disk().steps());
                for (point, count) in lived.reached.iter().flatten() {
                    let most = known.entry(*point).or_default();
                    *most = (*most).max(*count);
                }
            }
        }
        (known, steps)
    }
}

/// A case in which readers saw something else than without a crash, or a life failed that nobody struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The case; [`Simulation::replay`] runs it again.
    pub case: Case,
    /// What happened, life by life, and what is wrong with it.
    pub story: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nreplay it with .replay(\"{}\".parse()?)", self.story.trim_end(), self.case)
    }
}

/// What a simulation came to.
#[derive(Clone, Debug, Default)]
pub struct Simulated {
    /// What readers must see: the output of the runs without a crash.
    pub output: Output,
    /// Cases that were run and judged.
    pub cases: u64,
    /// Lives in all of them.
    pub lives: u64,
    /// Turns of workers and steps of tasks in all of them.
    pub turns: u64,
    /// Lives that were overtaken and told so.
    pub fenced: u64,
    /// How often the job waited for room on its disk.
    pub pauses: u64,
    /// How often each crash point was reached.
    pub reached: BTreeMap<&'static str, u64>,
    /// How often a life ended at each point, by each end.
    pub struck: BTreeMap<(String, End), u64>,
    /// How often a life ended at the first point and the next one at the second.
    pub pairs: BTreeMap<(String, String), u64>,
    /// What must not be.
    pub findings: Vec<Finding>,
}

impl Simulated {
    /// Panics with the first finding and how to replay it, unless every case showed readers exactly the output of a run without
    /// a crash.
    pub fn assert_exactly_once(&self) -> &Simulated {
        assert!(self.cases > 0, "no case was run");
        if let Some(finding) = self.findings.first() {
            panic!("{} of {} cases went wrong; the first:\n{finding}", self.findings.len(), self.cases);
        }
        self
    }

    /// The points at which a life ended.
    pub fn points_struck(&self) -> Vec<&str> {
        let mut points: Vec<&str> = self.struck.keys().map(|(point, _)| point.as_str()).collect();
        points.dedup();
        points
    }
}

impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = self.points_struck().into_iter().filter(|p| *p != Strike::DISK).count();
        write!(
            f,
            "{} cases, {} lives, {} crash points struck, {} pairs of them, {} findings",
            self.cases,
            self.lives,
            points,
            self.pairs.len(),
            self.findings.len()
        )
    }
}
