//! A run: attempt after attempt until the job is finished, stopped, or beyond help.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cutwater_platform::IoContext;
use cutwater_platform::spawn::panic_text;

use crate::checkpoint::Counters;
use crate::config::{Guarantee, Options};
use crate::error::{BuildError, RunError};
use crate::exchange::GroupAssignment;
use crate::graph::node::Make;
use crate::graph::validate::validate;
use crate::graph::{Environment, Job, Plan};
use crate::id::{Attempt, CheckpointId, InstanceId, JobId, OperatorId};
use crate::observe::{Connector, Control, ExplainedState, Explanation, LastCount, Layout, Loss, Phase, Report, books};
use crate::recovery::Program;
use crate::sink::Room;
use crate::snapshot::{Manifest, StateReaders, StoreError};
use crate::worker::attempt::{AttemptState, Failure};
use crate::worker::groups::Groups;
use crate::worker::program::program_of;
use crate::worker::recover::{ProgramHere, Recovered, recover};
use crate::worker::restarts::Restarts;
use crate::worker::restore::key_groups_of;
use crate::worker::space::{NoRoom, Space};
use crate::worker::thread::{BuildFn, Orders, Outcome, work};
use crate::worker::watchdog::Watchdog;

/// Where in the data directory checkpoints are kept.
pub const CHECKPOINTS: &str = "checkpoints";
/// Says that a job without checkpoints has begun in a data directory.
const AT_MOST_ONCE_MARK: &str = "at-most-once";
/// The longest pause between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Runs a job until it is finished or stopped.
///
/// `build` describes the job. It is called once on this thread and once per worker and attempt, and must describe the same
/// graph each time.
///
/// # Errors
/// [`RunError`]: what was committed is kept, and running the job again in the same directory goes on from there.
pub fn run(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
    control: &Control,
) -> Result<Report, RunError> {
    let progress = control.progress();
    progress.savepoints().begin();
    let result = run_through_pauses(Arc::new(build), options, control);
    progress.savepoints().end("the run ended before it could be taken");
    result
}

/// Runs a job on through full disks, for which it waits.
fn run_through_pauses(build: BuildFn, options: &Options, control: &Control) -> Result<Report, RunError> {
    let since = options.platform.clock.monotonic();
    let (mut space, watched) = Space::watch(options, control.progress());
    let waits = options.guarantee.snapshots().is_some() && !options.wait_for_space.is_zero();
    let mut past = Past::default();
    loop {
        // A pause closes here what couldn't stay open, so that it can be opened anew: a log whose sync failed, for one.
        let ended = Run::prepare(build.clone(), &watched, control).and_then(|run| {
            let run = Run { since, past: Mutex::new(std::mem::take(&mut past)), ..run };
            let ended = run.attempts(waits.then_some(&mut space));
            past = run.past.into_inner().unwrap_or_else(PoisonError::into_inner);
            ended
        });
        let error = match ended {
            Ok(mut report) => {
                (report.pauses, report.paused) = (space.pauses, space.paused);
                return Ok(report);
            }
            Err(error) => error,
        };
        match space.take().filter(|_| waits && may_be_a_full_disk(&error)) {
            Some(room) => space.wait(&room, &error.to_string(), options, &|| true)?,
            None => return Err(error),
        }
    }
}

/// Whether a full disk can have been the cause. The attempts end with [`RunError::Fatal`] for it.
fn may_be_a_full_disk(error: &RunError) -> bool {
    matches!(error, RunError::Io(_) | RunError::Fatal(_) | RunError::Build(BuildError::Refused { .. }))
}

/// What a job is and which guarantee it would have, without running it. A log that the job uses is opened, and no record of it
/// is changed.
///
/// # Errors
/// The job can't be built, or can't have the guarantee that is asked for.
pub fn explain(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Result<Explanation, RunError> {
    let control = Control::new();
    let run = Run::prepare(Arc::new(build), options, &control)?;
    let connectors = run.built.inner.borrow().nodes.iter().filter_map(Connector::of).collect();
    let (program, _) = program_of(&run.built, &run.plan, &run.environment)?;
    let states = program.operators.iter().flat_map(|operator| {
        operator.states.iter().map(|state| ExplainedState {
            operator: operator.name.clone(),
            state: state.name.clone(),
            version: state.schema.version,
            older: state.older.iter().map(|older| older.version).collect(),
        })
    });
    let (name, guarantee, workers) = (options.name.clone(), options.guarantee, options.workers);
    Ok(Explanation { name, guarantee, workers, connectors, states: states.collect(), plan: run.plan })
}

/// What takes apart the entries of a job's states in state files, for looking into its checkpoints without running it.
///
/// # Errors
/// As [`explain`].
pub fn readers_of(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Result<StateReaders, RunError> {
    let control = Control::new();
    let run = Run::prepare(Arc::new(build), options, &control)?;
    Ok(program_of(&run.built, &run.plan, &run.environment)?.1)
}

/// What stays the same over the attempts of a run.
pub(crate) struct Run<'a> {
    build: BuildFn,
    options: &'a Options,
    control: &'a Control,
    environment: Environment,
    plan: Plan,
    groups: Arc<Groups>,
    /// The graph that was built on this thread: its sources list their splits, the rest of it is never run.
    built: Job,
    program: OnceCell<Program>,
    since: Duration,
    past: Mutex<Past>,
}

/// What a run remembers of attempts that failed.
#[derive(Default)]
struct Past {
    /// An attempt has begun where it was asked to.
    begun: bool,
    restarts: Restarts,
    failures: Vec<String>,
    recoveries: Vec<crate::observe::RecoveryTimes>,
    aborted: u64,
    /// What the attempt lost that failed without checkpoints.
    loss: Option<Loss>,
    /// The attempt of an earlier process behind which this run began.
    behind: Option<Attempt>,
}

impl<'a> Run<'a> {
    pub(crate) fn prepare(build: BuildFn, options: &'a Options, control: &'a Control) -> Result<Run<'a>, RunError> {
        check(options)?;
        let since = options.platform.clock.monotonic();
        control.progress().phase(Phase::Building);
        let files = &options.platform.files;
        files.create_dir_all(&options.dir).at("create the data directory", &options.dir)?;
        let environment = Environment::new(options);
        let job = Job::new(environment.clone());
        build(&job)?;
        let mut inner = job.inner.borrow_mut();
        validate(&mut inner, options.guarantee.kind())?;
        let (plan, groups) = (Plan::of(&inner), Arc::new(Groups::of(&inner)));
        drop(inner);
        let past = Mutex::default();
        Ok(Run {
            build,
            options,
            control,
            environment,
            plan,
            groups,
            built: job,
            program: OnceCell::new(),
            since,
            past,
        })
    }

    /// With `space`, an attempt that ended for lack of it isn't counted: the next one waits for room. What can't stay open meanwhile ends
    /// this run of attempts.
    fn attempts(&self, mut space: Option<&mut Space>) -> Result<Report, RunError> {
        if self.options.guarantee.snapshots().is_none() {
            self.refuse_what_cannot_resume()?;
        }
        loop {
            let failure = match self.attempt() {
                Ok(report) => return Ok(report),
                Err(failure) => failure,
            };
            if let Some(space) = space.as_deref_mut()
                && let Failure::Restart(last) | Failure::Fatal(last) = &failure
            {
                if let Some(room) = self.lack_of_room(space) {
                    let is_ready = || self.groups.values().all(|group| group.room() == Room::Enough);
                    space.wait(&room, last, self.options, &is_ready)?;
                    continue;
                }
                if matches!(&failure, Failure::Restart(_)) && space.is_full() {
                    return Err(RunError::Fatal(failure.to_string()));
                }
            }
            if let (Failure::Restart(last) | Failure::Fatal(last), Some(loss)) = (&failure, self.loss()) {
                return Err(RunError::Lost { last: last.clone(), loss });
            }
            let text = match failure {
                Failure::Unwanted { sink } if self.has_one_output_and_no_promise() => {
                    return Err(RunError::Unwanted { what: sink });
                }
                Failure::Unwanted { .. } => return Err(RunError::Fatal(failure.to_string())),
                Failure::Restart(text) => text,
                beyond_help => return Err(beyond_help.into()),
            };
            tracing::warn!(failure = text, "the attempt failed");
            let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            let (max, within) = (self.options.restarts_max, self.options.restarts_within);
            let judged = past.restarts.failed(self.options.platform.clock.monotonic(), max, within);
            if self.options.guarantee.snapshots().is_none() {
                let text = format!("{text}. An at-most-once job isn't restarted: nobody can say what was lost");
                return Err(RunError::Fatal(text));
            }
            let failed = match judged {
                Ok(failed) if !self.control.progress().stop_requested() => failed,
                Ok(failed) | Err(failed) => return Err(RunError::GaveUp { attempts: failed, last: text }),
            };
            past.failures.push(text);
            past.recoveries.push(self.control.seen().recovery);
            drop(past);
            let backoff = self.options.restart_backoff.saturating_mul(1 << (failed - 1).min(16));
            self.options.platform.clock.sleep(backoff.min(BACKOFF_MAX));
        }
    }

    fn loss(&self) -> Option<Loss> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).loss
    }

    /// The write for lack of whose room the attempt ended, if that was it and everything that is written to can stay open.
    fn lack_of_room(&self, space: &Space) -> Option<NoRoom> {
        let rooms: Vec<Room> = self.groups.values().map(|group| group.room()).collect();
        if rooms.is_empty() || rooms.contains(&Room::Unknown) {
            return None;
        }
        let commits = self.control.progress().commits();
        space.take().or_else(|| rooms.into_iter().find_map(|room| NoRoom::of(room, commits)))
    }

    /// Whether it harms nobody to end when its output isn't read any more: no other sink waits for the rest, and no checkpoint
    /// says that there will be a rest.
    fn has_one_output_and_no_promise(&self) -> bool {
        self.sinks().len() == 1 && self.options.guarantee.snapshots().is_none()
    }

    fn sinks(&self) -> HashSet<OperatorId> {
        let inner = self.built.inner.borrow();
        inner.nodes.iter().filter(|node| matches!(node.make, Make::Sink { .. })).map(|node| node.id).collect()
    }

    /// One attempt, from claim to report.
    fn attempt(&self) -> Result<Report, Failure> {
        let platform = &self.options.platform;
        let progress = self.control.progress();
        progress.recovery(|t| *t = crate::observe::RecoveryTimes::default());
        let recovered = match self.options.guarantee {
            Guarantee::AtMostOnce => None,
            Guarantee::AtLeastOnce(_) | Guarantee::ExactlyOnce(_) => {
                let dir = self.options.dir.join(CHECKPOINTS);
                let wanted = self.options.guarantee.kind();
                let restore = self
                    .options
                    .restore
                    .as_ref()
                    .filter(|_| !self.past.lock().unwrap_or_else(PoisonError::into_inner).begun);
                let recovered = recover(platform, &dir, &self.here()?, wanted, &self.groups, restore, &progress)?;
                // Another attempt of this run goes on from what this one has made of it.
                let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
                if !past.begun && !recovered.finished {
                    past.behind = recovered.owner.attempt.0.checked_sub(1).filter(|n| *n > 0).map(Attempt);
                }
                past.begun = true;
                Some(recovered)
            }
        };
        if let Some(recovered) = &recovered {
            self.past.lock().unwrap_or_else(PoisonError::into_inner).aborted += recovered.aborted as u64;
            let from = recovered.manifest.as_ref().map_or(CheckpointId::default(), |m| m.checkpoint);
            let same_graph = recovered.upgrade.as_ref().is_none_or(|upgrade| upgrade.same_graph);
            let counted = recovered.manifest.as_ref().filter(|_| same_graph);
            progress.resumed(from, counted.map_or(0, |m| read_so_far(m, &self.plan)));
            if recovered.finished {
                return Ok(self.report_of_finished(recovered));
            }
        }
        progress.phase(Phase::Loading);
        let loading_since = platform.clock.monotonic();
        let workers = NonZeroU32::new(u32::try_from(self.options.workers).unwrap_or(u32::MAX)).expect("checked");
        let manifest = recovered.as_ref().and_then(|r| r.manifest.as_deref());
        let assignment = GroupAssignment::new(key_groups_of(manifest), workers);
        let (job, attempt_number) = match &recovered {
            Some(recovered) => (recovered.owner.job, recovered.owner.attempt),
            None => (
                JobId(u128::from(platform.random.next_u64()) << 64 | u128::from(platform.random.next_u64())),
                Attempt(1),
            ),
        };
        let attempt = Arc::new(AttemptState::default());
        let keep = self.options.guarantee.snapshots().map_or(0, |s| s.history);
        progress.loading(attempt_number, Layout::of(&self.plan, workers.get()), keep);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let orders = Arc::new(Orders {
            build: self.build.clone(),
            environment: self.environment.clone(),
            plan: self.plan.clone(),
            groups: self.groups.clone(),
            splits: Arc::new(self.list_splits()?),
            attempt: attempt.clone(),
            progress: progress.clone(),
            assignment,
            job,
            attempt_number,
            recovered,
            pin: self.options.pin && cores >= self.options.workers && self.options.workers > 1,
            built: AtomicU32::new(0),
            loading_since,
        });
        let outcomes = self.workers(&orders)?;
        if let Some(failure) = attempt.failure() {
            if orders.recovered.is_none() {
                let last: Vec<LastCount> = outcomes.into_iter().flat_map(|o| o.counters).collect();
                let loss = Loss::of(&self.plan, &self.sinks(), &last);
                self.past.lock().unwrap_or_else(PoisonError::into_inner).loss = Some(loss);
            }
            return Err(or_fenced(failure, orders.recovered.as_ref()));
        }
        progress.phase(Phase::Finished);
        Ok(self.report(&orders, outcomes))
    }

    /// The program, for the upgrade check.
    pub(crate) fn here(&self) -> Result<ProgramHere<'_>, Failure> {
        let splits = Box::new(|| self.list_splits());
        Ok(ProgramHere { program: self.program()?, allowed: &self.options.allow_dropped, splits })
    }

    /// What the built job keeps.
    fn program(&self) -> Result<&Program, Failure> {
        if self.program.get().is_none() {
            let (program, _) = program_of(&self.built, &self.plan, &self.environment)?;
            self.program.set(program).expect("nobody else sets it");
        }
        Ok(self.program.get().expect("just set"))
    }

    /// Starts the workers and waits until all have left.
    fn workers(&self, orders: &Arc<Orders>) -> Result<Vec<Outcome>, Failure> {
        let platform = &self.options.platform;
        let left = Arc::new(AtomicBool::new(false));
        let watchdog = Watchdog {
            attempt: orders.attempt.clone(),
            left: left.clone(),
            clock: platform.clock.clone(),
            leave_within: self.options.leave_within,
            goes_on: self.options.guarantee.snapshots().is_some(),
            failing_since: None,
        };
        let watchdog = platform.spawn.spawn("cw-watchdog", Box::new(watchdog));
        let config = match self.options.workers {
            1 => timely::CommunicationConfig::Thread,
            n if self.options.bytes_between_workers => timely::CommunicationConfig::ProcessBinary(n),
            n => timely::CommunicationConfig::Process(n),
        };
        let start = || {
            let (builders, others) = config.try_build()?;
            let orders = orders.clone();
            timely::execute::execute_from(builders, others, timely::WorkerConfig::default(), move |worker| {
                work(worker, &orders)
            })
        };
        let joined = start().map(|guards| catch_unwind(AssertUnwindSafe(|| guards.join())));
        left.store(true, Ordering::SeqCst);
        // The watchdog can't panic; under an inline executor it is stepped here until it sees that all have left.
        let _ = watchdog.join(platform.spawn.as_ref());
        let results = joined
            .map_err(|e| Failure::Restart(format!("starting the workers: {e}")))?
            .map_err(|panic| Failure::Restart(panic_text(panic.as_ref())))?;
        results.into_iter().map(|r| r.map_err(|e| Failure::Restart(format!("a worker: {e}")))).collect()
    }

    fn list_splits(&self) -> Result<HashMap<OperatorId, Vec<String>>, Failure> {
        let inner = self.built.inner.borrow();
        let mut all = HashMap::new();
        for node in &inner.nodes {
            if let Make::Source { splits, .. } = &node.make {
                all.insert(node.id, splits()?);
            }
        }
        Ok(all)
    }

    fn report(&self, orders: &Orders, outcomes: Vec<Outcome>) -> Report {
        let is_final = outcomes.iter().find_map(|o| o.is_final);
        let last = outcomes.into_iter().flat_map(|o| o.counters);
        let counters: Vec<(InstanceId, Counters)> = last.map(|l| (l.instance, l.counters)).collect();
        let finished = is_final.unwrap_or(!self.control.progress().stop_requested());
        self.assemble(orders.job, orders.attempt_number, finished, false, &counters)
    }

    fn report_of_finished(&self, recovered: &Recovered) -> Report {
        let progress = self.control.progress();
        progress.phase(Phase::Finished);
        let snapshots = recovered.manifest.iter().flat_map(|m| &m.snapshots);
        let counters: Vec<(InstanceId, Counters)> = snapshots.map(|s| (s.instance, s.counters.clone())).collect();
        self.assemble(recovered.owner.job, recovered.owner.attempt, true, true, &counters)
    }

    fn assemble(
        &self,
        job: JobId,
        attempt: Attempt,
        finished: bool,
        already_finished: bool,
        counters: &[(InstanceId, Counters)],
    ) -> Report {
        let progress = self.control.progress();
        let seen = progress.seen();
        let partial = std::mem::take(&mut *self.past.lock().unwrap_or_else(PoisonError::into_inner));
        let (operators, edges) = books(&self.plan, counters);
        let mut recoveries = partial.recoveries;
        recoveries.push(seen.recovery);
        Report {
            name: self.options.name.clone(),
            job,
            attempt,
            guarantee: self.options.guarantee,
            workers: u32::try_from(self.options.workers).unwrap_or(u32::MAX),
            finished,
            already_finished,
            operators,
            edges,
            checkpoint: seen.committed,
            committed: progress.commits(),
            declined: seen.declined,
            transactions: seen.transactions,
            already_committed: progress.already_committed(),
            aborted: partial.aborted,
            reread: seen.reread,
            behind: partial.behind,
            history: progress.checkpoints(),
            recoveries,
            failures: partial.failures,
            pauses: 0,
            paused: Duration::ZERO,
            elapsed: self.options.platform.clock.monotonic().saturating_sub(self.since),
        }
    }

    /// Without checkpoints nothing can be resumed, and running again would write output twice.
    fn refuse_what_cannot_resume(&self) -> Result<(), RunError> {
        let (files, dir) = (&self.options.platform.files, &self.options.dir);
        let checkpoints = dir.join(CHECKPOINTS);
        if files.exists(&checkpoints).at("look for", &checkpoints)? {
            return Err(RunError::Refused(format!(
                "{} holds checkpoints of an exactly-once job; an at-most-once run would write its output again. Choose another \
                 directory",
                dir.display()
            )));
        }
        let mark = dir.join(AT_MOST_ONCE_MARK);
        match files.publish_bytes(&mark, b"a job without checkpoints has begun here\n") {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(RunError::Refused(format!(
                "an at-most-once job has begun in {} before and can't be resumed. Choose another directory",
                dir.display()
            ))),
            Err(e) => Err(e).at("mark the data directory with", &mark)?,
        }
    }
}

fn check(options: &Options) -> Result<(), RunError> {
    let refuse = |text: &str| Err(RunError::Options(text.to_string()));
    options.limits.check().map_err(RunError::Options)?;
    match options.guarantee {
        _ if options.dir.as_os_str().is_empty() => refuse(
            "no data directory is given: log and checkpoints would lie about in the current one; say Options::dir, or \".\" if \
             that is what you want",
        ),
        _ if options.workers == 0 => refuse("a job needs a worker at least; say workers = 1 or more"),
        _ if options.workers > 1024 => refuse("at most 1024 workers are supported"),
        Guarantee::AtMostOnce if options.restore.is_some() => {
            refuse("an at-most-once job has no checkpoints and can't begin from a savepoint")
        }
        Guarantee::AtMostOnce => Ok(()),
        Guarantee::AtLeastOnce(s) | Guarantee::ExactlyOnce(s) => s.check().map_err(RunError::Options),
    }
}

/// What an overtaken attempt trips over first may be anything (a file that its successor swept away); what it must be told is
/// that it was overtaken, or it would start again and overtake its successor.
fn or_fenced(failure: Failure, recovered: Option<&Recovered>) -> Failure {
    match (failure, recovered) {
        (failure @ (Failure::Restart(_) | Failure::Fatal(_)), Some(recovered)) => {
            match recovered.store.check_owner(&recovered.owner) {
                Err(StoreError::Fenced { .. }) => Failure::Fenced,
                // Whatever failed first: after this no attempt of this process may believe the store.
                _ => recovered.store.lost_sync().map_or(failure, |what| Failure::lost_sync(&what)),
            }
        }
        (failure, _) => failure,
    }
}

/// Records that the sources had read at a checkpoint.
fn read_so_far(manifest: &Manifest, plan: &Plan) -> u64 {
    let is_source = |id: OperatorId| plan.node(id).is_some_and(|n| n.inputs.is_empty());
    let sources = manifest.snapshots.iter().filter(|s| is_source(s.instance.operator));
    sources.flat_map(|s| &s.counters.emitted).sum()
}
