//! The example of a sink of one's own, held to the contract of sinks.

mod common;

// The example imports the facade, which stands above this crate; these names stand for it here.
extern crate self as cutwater;
pub(crate) use cutwater_engine as engine;
pub(crate) use cutwater_platform as platform;
pub(crate) use cutwater_sources_sinks as connectors;
pub(crate) mod prelude {
    pub(crate) use cutwater_engine::graph::Job;
    pub(crate) use cutwater_operators::prelude::*;
}
pub(crate) use facade::main;
mod facade {
    use std::process::ExitCode;

    use cutwater_engine::error::BuildError;
    use cutwater_engine::graph::Job;

    pub(crate) fn main(build: impl Fn(&Job) -> Result<(), BuildError>) -> ExitCode {
        let _ = build;
        ExitCode::SUCCESS
    }
}

#[path = "../../examples/custom_sink.rs"]
#[allow(dead_code, unused_imports, reason = "the example's own main is not called here")]
mod custom_sink;

use std::path::Path;

use custom_sink::Folder;
use cutwater_engine::config::{GuaranteeKind, Options};
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::id::{Attempt, CheckpointId, JobId, WorkerIndex};
use cutwater_engine::sink::{Committed, Sink, SinkWriter, Visibility, WriterId};
use cutwater_platform::{Files, Platform};
use cutwater_testkit::{CrashSchedule, LossPolicy, SimPlatform};

const DIR: &str = "/data";

fn folder(platform: Platform) -> Folder {
    let mut options = Options::new("test", DIR);
    options.platform = platform;
    Folder::new(&Job::new(Environment::new(&options)), "out")
}

type Writer = Box<dyn SinkWriter<Item = String>>;

fn open(folder: &Folder, attempt: u64, worker: u32, first: u64) -> Result<Writer, SinkError> {
    folder.open(&WriterId {
        job: JobId(1),
        attempt: Attempt(attempt),
        sink: "squares".to_string(),
        worker: WorkerIndex(worker),
        visibility: Visibility::ByCheckpoint { first: CheckpointId(first) },
    })
}

fn prepare(writer: &mut Writer, checkpoint: u64) -> Result<Option<Vec<u8>>, SinkError> {
    writer.seal(CheckpointId(checkpoint))?.map(|prepare| prepare()).transpose().map(Option::flatten)
}

/// The lines of each committed checkpoint, in order.
fn visible(files: &dyn Files) -> Vec<(u64, Vec<String>)> {
    let out = Path::new(DIR).join("out");
    let mut found = vec![];
    for folder in files.read_dir(&out).unwrap_or_default() {
        let Some(checkpoint) = folder.name.strip_prefix("done-") else { continue };
        let done = out.join(&folder.name);
        let mut lines = vec![];
        for file in files.read_dir(&done).expect("readable") {
            let bytes = files.read(&done.join(file.name), 1 << 20).expect("readable");
            lines.extend(String::from_utf8(bytes).expect("text").lines().map(str::to_string));
        }
        found.push((checkpoint.parse().expect("a checkpoint"), lines));
    }
    found.sort();
    found
}

#[test]
fn files_appear_with_their_checkpoint_and_an_older_attempt_finds_no_place() {
    let sim = SimPlatform::new(1);
    let old = folder(sim.platform());
    assert_eq!(old.honours().guarantees, [GuaranteeKind::ExactlyOnce]);
    let group = old.group().unwrap();
    group.fence(JobId(1), Attempt(1)).unwrap();
    let (mut a, mut b) = (open(&old, 1, 0, 1).unwrap(), open(&old, 1, 1, 1).unwrap());
    a.write(vec!["a1".into(), "a2".into()]).unwrap();
    a.write(vec!["a3".into()]).unwrap();
    b.write(vec![]).unwrap();
    assert_eq!(prepare(&mut b, 1).unwrap(), None);
    b.write(vec!["b".into()]).unwrap();
    let first = prepare(&mut a, 1).unwrap().unwrap();
    assert_eq!(visible(sim.disk()), [], "prepared is not visible");
    assert_eq!(group.commit(std::slice::from_ref(&first)).unwrap(), Committed { now: 1, already: 0 });
    assert_eq!(group.commit(std::slice::from_ref(&first)).unwrap(), Committed { now: 0, already: 1 });
    assert_eq!(visible(sim.disk()), [(1, vec!["a1".into(), "a2".into(), "a3".into()])]);
    let promised = prepare(&mut b, 2).unwrap().unwrap();
    a.write(vec!["never".into()]).unwrap();

    let new = folder(sim.platform()).group().unwrap();
    new.fence(JobId(1), Attempt(2)).unwrap();
    let is_fenced =
        |result: Result<(), SinkError>| assert!(matches!(result, Err(SinkError::Fenced { .. })), "{result:?}");
    is_fenced(prepare(&mut a, 2).map(drop));
    is_fenced(b.write(vec!["late".into()]));
    is_fenced(group.commit(std::slice::from_ref(&promised)).map(drop));
    is_fenced(group.fence(JobId(1), Attempt(0)));
    assert_eq!(new.commit(std::slice::from_ref(&promised)).unwrap(), Committed { now: 1, already: 0 });
    assert_eq!(new.abort_all_but(&[first, promised]).unwrap(), 1);
    assert_eq!(new.prepared().unwrap(), 0);
    assert_eq!(visible(sim.disk())[1], (2, vec!["b".into()]));
    assert!(matches!(new.commit(&[b"1/9-squares-0".to_vec()]), Err(SinkError::Fatal { .. })), "nobody prepared it");
    assert!(matches!(new.commit(&[b"nonsense".to_vec()]), Err(SinkError::Fatal { .. })));
}

/// What is durable beside the folder: attempts, the highest checkpoint, and for each manifest its checkpoint, how far the
/// input was read, and what was prepared.
#[derive(Default)]
struct Store {
    attempts: u64,
    highest: u64,
    manifests: Vec<(u64, u64, Vec<Vec<u8>>)>,
}

const CHECKPOINTS: usize = 4;

fn live(sim: &SimPlatform, store: &mut Store) -> Result<(), SinkError> {
    let folder = folder(sim.platform());
    let group = folder.group().expect("transactional");
    store.attempts += 1;
    group.fence(JobId(1), Attempt(store.attempts))?;
    for (_, _, handles) in &store.manifests {
        group.commit(handles)?;
    }
    let keep: Vec<_> = store.manifests.iter().flat_map(|(_, _, handles)| handles.clone()).collect();
    group.abort_all_but(&keep)?;
    let mut writers =
        [0, 1].map(|worker| open(&folder, store.attempts, worker, store.highest + 1).expect("opens lazily"));
    while store.manifests.len() < CHECKPOINTS {
        store.highest += 1;
        let from = store.manifests.last().map_or(0, |(_, read, _)| *read);
        let read = from + [4, 0, 3, 6][store.manifests.len()];
        let mut handles = vec![];
        for (worker, writer) in writers.iter_mut().enumerate() {
            let mine = (from..read).filter(|n| n % 2 == worker as u64).map(|n| n.to_string());
            writer.write(mine.collect())?;
            handles.extend(prepare(writer, store.highest)?);
        }
        store.manifests.push((store.highest, read, handles.clone()));
        group.commit(&handles)?;
    }
    Ok(())
}

#[test]
fn every_line_appears_once_and_no_checkpoint_in_part_wherever_the_power_goes_off() {
    let run = |mut sim: SimPlatform, policy| {
        let mut store = Store::default();
        let mut lives = 1;
        loop {
            let outcome = live(&sim, &mut store);
            // The last thing of a commit, to remove the originals, may fail: then a life ends well although the power is off.
            if !sim.disk().is_off() {
                outcome.expect("only a power cut may end a life");
                break;
            }
            sim = sim.restart(policy);
            lives += 1;
        }
        // Looking is not part of it, and takes steps of its own.
        let steps = sim.disk().steps();
        let mut from = 0;
        let mut expected = vec![];
        for (checkpoint, read, handles) in &store.manifests {
            let of = |worker| (from..*read).filter(move |n| n % 2 == worker).map(|n: u64| n.to_string());
            if !handles.is_empty() {
                expected.push((*checkpoint, of(0).chain(of(1)).collect::<Vec<_>>()));
            }
            from = *read;
        }
        assert_eq!(visible(sim.disk()), expected);
        (steps, lives)
    };
    let (steps, _) = run(SimPlatform::new(1), LossPolicy::AllLost);
    let steps = CrashSchedule::steps(steps, 200, 1);
    let mut struck = 0;
    for step in &steps {
        for policy in [LossPolicy::AllLost, LossPolicy::Random, LossPolicy::Prefix, LossPolicy::NamesLost] {
            let sim = SimPlatform::new(*step);
            sim.disk().crash_at_step(*step);
            struck += usize::from(run(sim, policy).1 > 1);
        }
    }
    assert_eq!(struck, 4 * steps.len());
}
