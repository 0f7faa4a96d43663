//! Where a sink lives while it is looked at: a machine that loses power, and the lives of a job on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutwater_engine::config::{Guarantee, GuaranteeKind, Options, Snapshots};
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::id::{Attempt, CheckpointId, JobId, WorkerIndex};
use cutwater_engine::sink::{CommitGroup, Sink, SinkWriter, Visibility, WriterId};
use cutwater_testkit::{LossPolicy, SimPlatform};

use crate::rule::{Rule, Violation};
use crate::sink::SinkKit;

/// The job that writes.
pub(crate) const JOB: JobId = JobId(0x00C0_4F04_3A4C_E000);

pub(crate) type Writer<T> = Box<dyn SinkWriter<Item = T>>;

/// A machine, real or simulated, with a directory that nobody has used.
pub(crate) struct World<'a, F, R, V> {
    kit: &'a SinkKit<F, R, V>,
    sim: Option<SimPlatform>,
    options: Options,
}

impl<'a, F, R, V> World<'a, F, R, V> {
    pub(crate) fn new(kit: &'a SinkKit<F, R, V>, guarantee: GuaranteeKind) -> World<'a, F, R, V> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conformance-{}-{number}", std::process::id());
        let (sim, platform, dir) = match &kit.platform {
            Some(platform) => (None, platform.clone(), std::env::temp_dir().join(&name)),
            None => {
                let sim = SimPlatform::new(number);
                let platform = sim.platform();
                (Some(sim), platform, PathBuf::from("/").join(&name))
            }
        };
        let mut options = Options::new(name, dir);
        options.platform = platform;
        options.guarantee = match guarantee {
            GuaranteeKind::AtMostOnce => Guarantee::AtMostOnce,
            GuaranteeKind::AtLeastOnce => Guarantee::AtLeastOnce(Snapshots::default()),
            GuaranteeKind::ExactlyOnce => Guarantee::ExactlyOnce(Snapshots::default()),
        };
        World { kit, sim, options }
    }

    /// The job is started.
    pub(crate) fn life(&self) -> Life<'a, F, R, V> {
        Life { kit: self.kit, job: Job::new(Environment::new(&self.options)) }
    }

    pub(crate) fn sim(&self) -> Option<&SimPlatform> {
        self.sim.as_ref()
    }

    /// The power goes off, if the machine is simulated. Whatever lived is to be dropped before or after.
    pub(crate) fn crash(&mut self, policy: LossPolicy) {
        if let Some(sim) = &self.sim {
            let next = sim.restart(policy);
            self.options.platform = next.platform();
            self.sim = Some(next);
        }
    }
}

/// A process in which the job runs.
pub(crate) struct Life<'a, F, R, V> {
    kit: &'a SinkKit<F, R, V>,
    pub(crate) job: Job,
}

impl<F, R, V> Life<'_, F, R, V> {
    pub(crate) fn sink<S>(&self) -> S
    where
        F: Fn(&Job) -> S,
    {
        (self.kit.make)(&self.job)
    }

    pub(crate) fn shown(&self) -> Vec<u64>
    where
        V: Fn(&Job) -> Vec<u64>,
    {
        (self.kit.shown)(&self.job)
    }

    /// The commit group of a sink of its own.
    pub(crate) fn group<S: Sink>(&self) -> Result<Arc<dyn CommitGroup>, Violation>
    where
        F: Fn(&Job) -> S,
    {
        let story = || "it honours exactly-once and has no commit group".to_string();
        self.sink().group().ok_or_else(|| Violation { rule: Rule::GroupMatchesPromise, story: story() })
    }

    pub(crate) fn writer<S: Sink>(
        &self,
        attempt: u64,
        worker: u32,
        first: Option<u64>,
    ) -> Result<Writer<S::Item>, SinkError>
    where
        F: Fn(&Job) -> S,
    {
        self.sink().open(&WriterId {
            job: JOB,
            attempt: Attempt(attempt),
            sink: "out".to_string(),
            worker: WorkerIndex(worker),
            visibility: first.map_or(Visibility::AtOnce, |n| Visibility::ByCheckpoint { first: CheckpointId(n) }),
        })
    }

    /// Lets a writer take these records.
    pub(crate) fn write<S: Sink>(
        &self,
        writer: &mut Writer<S::Item>,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<(), SinkError>
    where
        F: Fn(&Job) -> S,
        R: Fn(u64) -> S::Item,
    {
        writer.write(numbers.into_iter().map(|n| (self.kit.record)(n)).collect())
    }
}

/// Seals and prepares.
pub(crate) fn prepare<T>(writer: &mut Writer<T>, checkpoint: u64) -> Result<Option<Vec<u8>>, SinkError> {
    writer.seal(CheckpointId(checkpoint))?.map(|prepare| prepare()).transpose().map(Option::flatten)
}

pub(crate) fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}
