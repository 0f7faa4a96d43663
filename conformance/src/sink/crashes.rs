//! A small job's life, with the power going off at every step of it: checkpoints, commits, a janitor, and recovery after each cut.
//!
//! The checkpoint store is the kit's own memory, taken to be durable: what a manifest lists is known whatever happens.

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::Job;
use cutwater_engine::id::Attempt;
use cutwater_engine::sink::Sink;
use cutwater_testkit::{CrashSchedule, LossPolicy};

use crate::rule::{Findings, Rule, Violation};
use crate::sink::SinkKit;
use crate::sink::world::{JOB, Life, World, prepare, sorted};

/// Records of each checkpoint's interval.
const INTERVALS: [u64; 4] = [5, 0, 3, 8];
const WORKERS: u64 = 2;
/// No plan of cuts needs more lives.
const LIVES_MAX: u32 = 12;

#[derive(Clone)]
struct Manifest {
    checkpoint: u64,
    from: u64,
    to: u64,
    handles: Vec<Vec<u8>>,
    retired: bool,
}

/// What is durable beside the sink.
#[derive(Default)]
struct Store {
    attempts: u64,
    highest: u64,
    manifests: Vec<Manifest>,
}

impl<F, R, V> SinkKit<F, R, V> {
    pub(crate) fn through_crashes<S>(&self, findings: &mut Findings)
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let mut steps = 0;
        findings.part("a small job without a crash", |f| {
            steps = self.lives(None, LossPolicy::AllLost, f)?;
            Ok(())
        });
        if steps == 0 || self.steps_max == 0 {
            let why = "it writes nothing through the job's platform, so no power cut can strike it";
            findings.skip(
                Rule::ExactThroughCrashes,
                if self.steps_max == 0 { "no power cuts were asked for" } else { why },
            );
            return;
        }
        for (n, step) in CrashSchedule::steps(steps, self.steps_max, 1).into_iter().enumerate() {
            for policy in [LossPolicy::ALL[n % LossPolicy::ALL.len()], LossPolicy::Random] {
                findings.part(&format!("power off at step {step} of {steps}, {policy:?}"), |f| {
                    self.lives(Some(step), policy, f).map(drop)
                });
            }
        }
    }

    /// Lives until the job is done, and looks once more after a last crash. Answers how many steps the last life took.
    fn lives<S>(&self, step: Option<u64>, policy: LossPolicy, findings: &mut Findings) -> Result<u64, Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let mut world = World::new(self, GuaranteeKind::ExactlyOnce);
        if let Some(sim) = world.sim() {
            sim.disk().crash_at_step(step);
        }
        let mut store = Store::default();
        let mut lives = 1;
        loop {
            let life = world.life();
            let ended = self.live(&life, &mut store, findings);
            let is_off = world.sim().is_some_and(|sim| sim.disk().is_off());
            let error = match ended {
                Ok(()) if !is_off => break,
                Ok(()) => "the last step".to_string(),
                Err(error) => error.to_string(),
            };
            if !is_off {
                return Err(Violation {
                    rule: Rule::Works,
                    story: format!("in life {lives}, with the power on: {error}"),
                });
            }
            findings.conforms.crashes += 1;
            lives += 1;
            if lives > LIVES_MAX {
                let story = format!("after {LIVES_MAX} lives the job isn't done: {error}");
                return Err(Violation { rule: Rule::ExactThroughCrashes, story });
            }
            world.crash(policy);
            drop(life);
        }
        let steps = world.sim().map_or(0, |sim| sim.disk().steps());
        world.crash(policy);
        let life = world.life();
        let done = self.live(&life, &mut store, findings);
        done.map_err(|e| Violation { rule: Rule::Works, story: format!("a job that was done, started again: {e}") })?;
        let expected: Vec<u64> = (0..INTERVALS.iter().sum()).collect();
        let found = sorted(life.shown());
        findings.expect(Rule::ExactThroughCrashes, found == expected, || {
            format!("in the end {} records were to be shown, found {found:?}", expected.len())
        });
        Ok(steps)
    }

    /// One attempt, until the job is done or something fails.
    fn live<S>(&self, life: &Life<'_, F, R, V>, store: &mut Store, findings: &mut Findings) -> Result<(), SinkError>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let missing = || SinkError::Fatal { what: "the kit".to_string(), reason: "no commit group".to_string() };
        let group = life.sink().group().ok_or_else(missing)?;
        store.attempts += 1;
        group.fence(JOB, Attempt(store.attempts))?;
        whole(&life.shown(), store, findings);
        for manifest in store.manifests.iter().filter(|m| !m.retired) {
            group.commit(&manifest.handles)?;
        }
        let keep: Vec<_> = store.manifests.iter().filter(|m| !m.retired).flat_map(|m| m.handles.clone()).collect();
        group.abort_all_but(&keep)?;
        let mut writers = vec![];
        for worker in 0..WORKERS {
            writers.push(life.writer(store.attempts, worker as u32, Some(store.highest + 1))?);
        }
        while store.manifests.len() < INTERVALS.len() {
            store.highest += 1;
            let from = store.manifests.last().map_or(0, |m| m.to);
            let to = from + INTERVALS[store.manifests.len()];
            let mut handles = vec![];
            for (worker, writer) in writers.iter_mut().enumerate() {
                life.write(writer, (from..to).filter(|n| n % WORKERS == worker as u64))?;
                handles.extend(prepare(writer, store.highest)?);
            }
            let manifest = Manifest { checkpoint: store.highest, from, to, handles, retired: false };
            store.manifests.push(manifest.clone());
            group.commit(&manifest.handles)?;
            whole(&life.shown(), store, findings);
            // The janitor: a manifest is retired, then what it lists may be forgotten.
            if let [.., old, _, _] = store.manifests.as_mut_slice() {
                old.retired = true;
                group.forget(&old.handles)?;
            }
        }
        Ok(())
    }
}

/// Every checkpoint is shown whole or not at all, and nothing that no manifest lists. A reader that can't see anything because the
/// power is off sees no part of one either.
fn whole(shown: &[u64], store: &Store, findings: &mut Findings) {
    for m in &store.manifests {
        let there = (m.from..m.to).filter(|n| shown.contains(n)).count() as u64;
        findings.expect(Rule::Atomic, there == 0 || there == m.to - m.from, || {
            format!("checkpoint {} has {} records, {there} of them are shown", m.checkpoint, m.to - m.from)
        });
    }
    let listed = store.manifests.last().map_or(0, |m| m.to);
    let early: Vec<_> = shown.iter().filter(|n| **n >= listed).collect();
    findings
        .expect(Rule::NothingBeforeCommit, early.is_empty(), || format!("{early:?} are shown and in no checkpoint"));
    let mut once = shown.to_vec();
    once.sort_unstable();
    let twice: Vec<u64> = once.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
    findings.expect(Rule::ExactThroughCrashes, twice.is_empty(), || format!("{twice:?} are shown more than once"));
}
