//! The file sink, held to the contract of sinks: what is shown, when, and what power cuts and older attempts can do to it.

mod common;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cutwater_engine::config::{Guarantee, GuaranteeKind, Options, Snapshots};
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::id::{Attempt, CheckpointId, JobId, WorkerIndex};
use cutwater_engine::observe::Control;
use cutwater_engine::sink::{Committed, Sink, SinkWriter, Visibility, WriterId};
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_platform::{Files, OsFiles, Platform};
use cutwater_sources_sinks::codec::{Csv, Text};
use cutwater_sources_sinks::files::{FileSink, files};
use cutwater_sources_sinks::generator::generate;
use cutwater_testkit::{CrashSchedule, DiskOp, LossPolicy, OpFault, SimPlatform, Strike};

const OUT: &str = "/data/out";

/// The points of the sink; each has its row in docs/recovery-connectors.md.
const POINTS: [&str; 7] = [
    "files.sealed",
    "files.fenced",
    "files.commit-sent",
    "files.assembled",
    "files.decided",
    "files.shown",
    "files.aborted-others",
];

fn sink(platform: Platform) -> FileSink<String> {
    let mut options = Options::new("test", "/data");
    options.platform = platform;
    files::<String>(&Job::new(Environment::new(&options)), OUT)
}

type Writer = Box<dyn SinkWriter<Item = String>>;

fn writer_id(attempt: u64, worker: u32, visibility: Visibility) -> WriterId {
    let (attempt, worker) = (Attempt(attempt), WorkerIndex(worker));
    WriterId { job: JobId(1), attempt, sink: "squares".to_string(), worker, visibility }
}

fn open(
    sink: &FileSink<String, impl Clone + cutwater_sources_sinks::codec::Encode<String> + 'static>,
    attempt: u64,
    worker: u32,
    first: u64,
) -> Result<Writer, SinkError> {
    sink.open(&writer_id(attempt, worker, Visibility::ByCheckpoint { first: CheckpointId(first) }))
}

fn prepare(writer: &mut Writer, checkpoint: u64) -> Result<Option<Vec<u8>>, SinkError> {
    writer.seal(CheckpointId(checkpoint))?.map(|prepare| prepare()).transpose().map(Option::flatten)
}

/// The rows of each shown checkpoint, by the order of names; those of parts in the folder itself stand under 0.
fn shown(files: &dyn Files, dir: &Path) -> Vec<(u64, Vec<String>)> {
    let mut found = vec![];
    for entry in files.read_dir(dir).unwrap_or_default().into_iter().filter(|e| !e.name.starts_with('.')) {
        let path = dir.join(&entry.name);
        let (checkpoint, parts) = match entry.is_dir {
            true => {
                let parts = files.read_dir(&path).unwrap().into_iter().map(|part| path.join(part.name)).collect();
                (entry.name.strip_prefix("checkpoint-").unwrap().parse().unwrap(), parts)
            }
            false => (0, vec![path]),
        };
        let rows = parts.iter().flat_map(|part| rows(files, part)).collect();
        found.push((checkpoint, rows));
    }
    found
}

fn rows(files: &dyn Files, part: &Path) -> Vec<String> {
    let mut bytes = files.read(part, 1 << 24).unwrap();
    if part.extension().is_some_and(|e| e == "gz") {
        let packed = std::mem::take(&mut bytes);
        flate2::read::MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    }
    assert!(bytes.ends_with(b"\n"), "{} ends in the middle of a row", part.display());
    String::from_utf8(bytes).unwrap().lines().map(str::to_string).collect()
}

fn is_fenced<T: std::fmt::Debug>(result: Result<T, SinkError>) {
    assert!(matches!(result, Err(SinkError::Fenced { .. })), "{result:?}");
}

#[test]
fn rows_appear_with_their_checkpoint_and_an_older_attempt_finds_no_place() {
    let sim = SimPlatform::new(1);
    let shown = || shown(sim.disk(), Path::new(OUT));
    let old = sink(sim.platform()).part_bytes(6);
    let group = old.group().unwrap();
    group.fence(JobId(1), Attempt(1)).unwrap();
    let (mut a, mut b) = (open(&old, 1, 0, 1).unwrap(), open(&old, 1, 1, 1).unwrap());
    a.write(vec!["a1".into(), "a2".into()]).unwrap();
    a.write(vec!["a3".into()]).unwrap();
    a.write(vec!["a4".into()]).unwrap();
    b.write(vec![]).unwrap();
    assert_eq!(prepare(&mut b, 1).unwrap(), None, "nothing was written");
    b.write(vec!["b".into()]).unwrap();
    let first = prepare(&mut a, 1).unwrap().unwrap();
    assert_eq!(shown(), [], "prepared is not shown");
    assert_eq!(group.prepared().unwrap(), 2, "one prepared, one being written");
    assert_eq!(group.commit(std::slice::from_ref(&first)).unwrap(), Committed { now: 1, already: 0 });
    assert_eq!(group.commit(std::slice::from_ref(&first)).unwrap(), Committed { now: 0, already: 1 });
    assert_eq!(shown(), [(1, ["a1", "a2", "a3", "a4"].map(String::from).to_vec())]);
    assert_eq!(sim.disk().read_dir(&Path::new(OUT).join("checkpoint-000000000001")).unwrap().len(), 2, "two parts");

    let promised = prepare(&mut b, 2).unwrap().unwrap();
    a.write(vec!["never".into()]).unwrap();
    let new = sink(sim.platform()).group().unwrap();
    new.fence(JobId(1), Attempt(2)).unwrap();
    is_fenced(prepare(&mut a, 2));
    is_fenced(b.write(vec!["late".into()]));
    is_fenced(group.commit(std::slice::from_ref(&promised)));
    is_fenced(group.fence(JobId(1), Attempt(0)));
    is_fenced(open(&old, 2, 0, 3).map(drop));
    assert_eq!(new.prepared().unwrap(), 2, "what was staged and not shown");
    assert_eq!(new.commit(std::slice::from_ref(&promised)).unwrap(), Committed { now: 1, already: 0 });
    assert_eq!(new.abort_all_but(&[first.clone(), promised.clone()]).unwrap(), 1, "what was never prepared");
    assert_eq!(new.prepared().unwrap(), 0);
    assert_eq!(shown()[1], (2, vec!["b".to_string()]));

    // Whoever reads it may take it away: its outcome is known until it is forgotten, and what nobody prepared never commits.
    let folder = Path::new(OUT).join("checkpoint-000000000001");
    for part in sim.disk().read_dir(&folder).unwrap() {
        sim.disk().remove_file(&folder.join(part.name)).unwrap();
    }
    sim.disk().remove_dir(&folder).unwrap();
    assert_eq!(new.commit(std::slice::from_ref(&first)).unwrap(), Committed { now: 0, already: 1 });
    new.forget(std::slice::from_ref(&first)).unwrap();
    let lost = new.commit(&[first]).unwrap_err();
    assert!(matches!(&lost, SinkError::Fatal { .. }) && lost.to_string().contains("lost"), "{lost}");
    assert!(matches!(new.commit(&[b"nonsense".to_vec()]), Err(SinkError::Fatal { .. })));
    let stranger = new.fence(JobId(2), Attempt(9)).unwrap_err();
    assert!(stranger.to_string().contains("choose another folder"), "{stranger}");
}

#[test]
fn output_of_a_declined_checkpoint_is_shown_with_the_one_that_covers_it() {
    let sim = SimPlatform::new(1);
    let sink = sink(sim.platform());
    let group = sink.group().unwrap();
    group.fence(JobId(1), Attempt(1)).unwrap();
    let mut writer = open(&sink, 1, 0, 4).unwrap();
    let mut handles = vec![];
    for checkpoint in [4, 5] {
        writer.write(vec![format!("of {checkpoint}")]).unwrap();
        handles.push(prepare(&mut writer, checkpoint).unwrap().unwrap());
    }
    assert_eq!(group.commit(&handles).unwrap(), Committed { now: 2, already: 0 });
    assert_eq!(group.commit(&handles).unwrap(), Committed { now: 0, already: 2 });
    assert_eq!(shown(sim.disk(), Path::new(OUT)), [(5, vec!["of 4".to_string(), "of 5".to_string()])]);
}

#[test]
fn a_part_that_changed_after_it_was_prepared_is_missed_at_commit() {
    let sim = SimPlatform::new(1);
    let sink = sink(sim.platform());
    let group = sink.group().unwrap();
    group.fence(JobId(1), Attempt(1)).unwrap();
    let mut writer = open(&sink, 1, 0, 1).unwrap();
    writer.write(vec!["row".into()]).unwrap();
    let handle = prepare(&mut writer, 1).unwrap().unwrap();
    let part = Path::new(OUT).join(".a1-c1/squares-a1-c1-w0-p0.txt");
    sim.disk().open(&part, cutwater_platform::Open::Write).unwrap().set_len(2).unwrap();
    let error = group.commit(&[handle]).unwrap_err();
    assert!(error.to_string().contains("it had 4 bytes when it was prepared and has 2"), "{error}");
    assert_eq!(shown(sim.disk(), Path::new(OUT)), []);
}

#[test]
fn a_bit_that_flips_in_a_prepared_part_is_told_at_commit_and_the_part_is_shown_once_it_is_whole_again() {
    let sim = SimPlatform::new(1);
    let sink = sink(sim.platform()).part_bytes(300_000).gzip();
    let group = sink.group().unwrap();
    group.fence(JobId(1), Attempt(1)).unwrap();
    let mut writer = open(&sink, 1, 0, 1).unwrap();
    let mut handles = vec![];
    for checkpoint in 1..=2 {
        writer.write((0..60_000).map(|n| (n * 7_919 % 1_000_003).to_string()).collect()).unwrap();
        handles.push(prepare(&mut writer, checkpoint).unwrap().unwrap());
    }
    // In the folder of one checkpoint, and where parts of declined ones are copied.
    for handles in [&handles[..1], &handles] {
        let part = Path::new(OUT).join(".a1-c1/squares-a1-c1-w0-p0.txt.gz");
        let len = sim.disk().open(&part, cutwater_platform::Open::Read).unwrap().len().unwrap();
        for at in [0, len / 2, len - 1] {
            sim.disk().flip_bit(&part, at, 3);
            let error = group.commit(handles).unwrap_err();
            assert!(matches!(error, SinkError::Fatal { .. }), "{error}");
            for word in ["its checksum was", "squares-a1-c1-w0-p0.txt.gz", "Bring the file back"] {
                assert!(error.to_string().contains(word), "{error}");
            }
            assert_eq!(shown(sim.disk(), Path::new(OUT)), []);
            sim.disk().flip_bit(&part, at, 3);
        }
    }
    assert_eq!(group.commit(&handles).unwrap(), Committed { now: 2, already: 0 });
    assert_eq!(shown(sim.disk(), Path::new(OUT)).iter().map(|(_, rows)| rows.len()).sum::<usize>(), 120_000);
}

/// What is durable beside the folder: attempts, the highest checkpoint, and for each manifest its checkpoint, how far the
/// input was read, and its handles.
#[derive(Clone, Default)]
struct Store {
    attempts: u64,
    highest: u64,
    manifests: Vec<(u64, u64, Vec<Vec<u8>>)>,
}

const CHECKPOINTS: usize = 4;

/// One attempt with two workers, which take even and odd numbers; until the job is done or the power is gone.
fn live(sim: &SimPlatform, store: &mut Store) -> Result<(), SinkError> {
    let sink = sink(sim.platform()).part_bytes(4);
    let group = sink.group().expect("transactional");
    store.attempts += 1;
    group.fence(JobId(1), Attempt(store.attempts))?;
    for (_, _, handles) in &store.manifests {
        group.commit(handles)?;
    }
    let keep: Vec<_> = store.manifests.iter().flat_map(|(_, _, handles)| handles.clone()).collect();
    group.abort_all_but(&keep)?;
    let mut writers =
        [0, 1].map(|worker| open(&sink, store.attempts, worker, store.highest + 1).expect("opens lazily"));
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
        // The janitor: a manifest is retired, then its outcome forgotten.
        if let [.., (_, _, retired), _, _] = store.manifests.as_mut_slice() {
            group.forget(&std::mem::take(retired))?;
        }
    }
    Ok(())
}

/// An operation of the disk fails, of each kind and in each way, in a first life or in one that finds prepared output of another: the
/// attempt ends, or nothing came of it. Whoever goes on after it, on the machine as it is or after a restart, shows every row once.
#[test]
fn every_row_is_shown_once_whichever_operation_fails() {
    let mut cut_off = (SimPlatform::new(1), Store::default());
    cut_off.0.power_off_at("files.commit-sent", 3);
    live(&cut_off.0, &mut cut_off.1).expect_err("cut off with something prepared");
    for (sim, store) in [(SimPlatform::new(1), Store::default()), cut_off] {
        let dry = sim.kill();
        live(&dry, &mut store.clone()).expect("a sound disk");
        let (operations, mut told) = (dry.disk().operations(), 0);
        for nth in 1..=operations {
            for fault in [OpFault::Once, OpFault::OnceDone, OpFault::ReadOnly, OpFault::Forever] {
                told += u64::from(one_fails(&sim.kill(), store.clone(), nth, fault));
            }
        }
        assert!(told > 3 * operations, "{told} of {operations} in four ways");
    }
}

/// True if it was told.
fn one_fails(sim: &SimPlatform, mut store: Store, nth: u64, fault: OpFault) -> bool {
    sim.disk().fail_operation(nth, fault);
    let ended = live(sim, &mut store);
    let story = format!("operation {nth} failed, {fault:?}: {ended:?}\n{}", sim.disk().trace_text());
    let is_sync = |op| matches!(op, DiskOp::SyncData | DiskOp::WriteSynced | DiskOp::SyncDir);
    let is_unsure = sim.disk().trace().iter().any(|step| step.fault == Some("EIO") && is_sync(step.op));
    let told = ended.is_err();
    let mut worlds = vec![sim.restart(LossPolicy::ALL[nth as usize % LossPolicy::ALL.len()])];
    // What a failed sync left is seen and not on the disk; no process can tell, so the error asks for a restart.
    match is_unsure {
        true => assert!(ended.is_err_and(|e| e.to_string().contains("restart the machine")), "{story}"),
        false => worlds.push(sim.kill()),
    }
    for world in worlds {
        let mut store = store.clone();
        live(&world, &mut store).unwrap_or_else(|e| panic!("{story}\nthen {e}"));
        check_shown(&world.restart(LossPolicy::AllLost), &store, &story);
    }
    told
}

fn check_shown(sim: &SimPlatform, store: &Store, story: &str) {
    let mut expected: Vec<String> = (0..store.manifests.last().unwrap().1).map(|n| n.to_string()).collect();
    let per_checkpoint = shown(sim.disk(), Path::new(OUT));
    assert!(
        per_checkpoint.iter().all(|(n, _)| store.manifests.iter().any(|m| m.0 == *n)),
        "{story}: {per_checkpoint:?}"
    );
    let mut found: Vec<String> = per_checkpoint.into_iter().flat_map(|(_, rows)| rows).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{story}");
}

/// Lives until the job is done, and checks what is shown. Answers how many lives it took.
fn run_lives(mut sim: SimPlatform, policy: LossPolicy) -> (SimPlatform, u64) {
    let mut store = Store::default();
    let mut lives = 1;
    while let Err(error) = live(&sim, &mut store) {
        assert!(
            sim.disk().is_off(),
            "{policy:?}: only a power cut may end a life: {error}\n{}",
            sim.disk().trace_text()
        );
        sim = sim.restart(policy);
        lives += 1;
        assert!(lives < 10);
    }
    let sim = sim.restart(policy);
    live(&sim, &mut store).expect("nothing strikes any more");
    check_shown(&sim, &store, &format!("{policy:?}"));
    assert_eq!(sink(sim.platform()).group().unwrap().prepared().unwrap(), 0);
    (sim, lives)
}

#[test]
fn every_row_is_shown_once_wherever_the_power_goes_off() {
    let (dry, _) = run_lives(SimPlatform::new(1), LossPolicy::AllLost);
    let listed = POINTS;
    assert_eq!((dry.crashes().missing(&listed), dry.crashes().unlisted(&listed)), (vec![], vec![]));
    let steps = CrashSchedule::steps(dry.disk().steps().max(200), 250, 1);
    let mut struck = 0;
    for (n, step) in steps.iter().enumerate() {
        for policy in [LossPolicy::ALL[n % LossPolicy::ALL.len()], LossPolicy::Random, LossPolicy::NamesLost] {
            let sim = SimPlatform::new(*step);
            sim.disk().crash_at_step(*step);
            struck += usize::from(run_lives(sim, policy).1 > 1);
        }
    }
    assert!(struck > steps.len(), "{struck} of {} struck", 3 * steps.len());
    let mut struck = 0;
    for Strike { point, nth } in CrashSchedule::from_counts(&dry.crashes().reached(), 6, 1) {
        for policy in [LossPolicy::AllLost, LossPolicy::Random] {
            let sim = SimPlatform::new(nth);
            sim.power_off_at(point.as_str(), nth);
            let (sim, lives) = run_lives(sim, policy);
            struck += usize::from(lives > 1 && !sim.crashes().struck().is_empty());
        }
    }
    assert!(struck >= 4 * POINTS.len(), "{struck} strikes ended a life");
}

#[test]
fn at_least_once_a_barrier_waits_until_what_came_before_it_is_shown_and_durable() {
    let sim = SimPlatform::new(1);
    let mut options = Options::new("test", "/data");
    (options.platform, options.guarantee) = (sim.platform(), Guarantee::AtLeastOnce(Snapshots::default()));
    let sink = files::<String>(&Job::new(Environment::new(&options)), OUT).gzip();
    let group = sink.group().unwrap();
    group.fence(JobId(1), Attempt(1)).unwrap();
    let mut writer = sink.open(&writer_id(1, 0, Visibility::AtOnce)).unwrap();
    writer.write(vec!["one".into()]).unwrap();
    assert_eq!(prepare(&mut writer, 1).unwrap(), None, "there is nothing to commit");
    writer.write(vec!["two".into()]).unwrap();
    let next = sim.restart(LossPolicy::AllLost);
    assert_eq!(shown(next.disk(), Path::new(OUT)), [(0, vec!["one".to_string()])]);
}

fn options(dir: &Path, guarantee: Guarantee) -> Options {
    Options { workers: 2, pin: false, guarantee, ..Options::new("test", dir) }
}

#[test]
fn a_job_writes_packed_rows_exactly_once_through_panics() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (seen, struck) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let to = out.clone();
    let build = move |job: &Job| {
        let (seen, struck) = (seen.clone(), struck.clone());
        let numbers = job.source("numbers", generate(job, 20_000, |n| n).in_splits(4));
        let (even, odd) = numbers
            .inspect(move |_| {
                let n = seen.fetch_add(1, Ordering::SeqCst);
                let due = [5_000, 13_001].get(struck.load(Ordering::SeqCst)).is_some_and(|place| n >= *place);
                assert!(!due || struck.fetch_add(1, Ordering::SeqCst) > 1, "injected");
            })
            .fork();
        let squares = files(job, &to).value(Csv).extension("csv").header("n,square").gzip();
        even.filter(|n| n % 2 == 0).map(|n| (n, n * n)).sink("squares", squares);
        odd.filter(|n| n % 2 == 1).sink("odd", files(job, &to).value(Text));
        Ok(())
    };
    let guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(5)));
    let report = run(build, &options(dir.path(), guarantee), &Control::new()).unwrap();
    report.assert_balanced();
    assert!(!report.failures.is_empty(), "{report}");
    let (mut squares, mut odd) = (vec![], vec![]);
    for (_, rows) in shown(&OsFiles, &out) {
        for row in rows.into_iter().filter(|row| row != "n,square") {
            match row.split_once(',') {
                Some((n, square)) => squares.push((n.parse::<u64>().unwrap(), square.parse::<u64>().unwrap())),
                None => odd.push(row.parse::<u64>().unwrap()),
            }
        }
    }
    squares.sort_unstable();
    odd.sort_unstable();
    assert!(squares == (0..20_000).step_by(2).map(|n| (n, n * n)).collect::<Vec<_>>(), "{} squares", squares.len());
    assert!(odd == (1..20_000).step_by(2).collect::<Vec<_>>(), "{} odd numbers", odd.len());
    let left = OsFiles.read_dir(&out).unwrap().into_iter().filter(|e| e.name.starts_with(".f")).count();
    assert_eq!(left, 0, "nothing of fenced attempts is left");
}

#[test]
fn jobs_below_exactly_once_show_all_rows_in_whole_parts() {
    for guarantee in [Guarantee::AtMostOnce, Guarantee::AtLeastOnce(Snapshots::every(Duration::from_millis(5)))] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let to = out.clone();
        let build = move |job: &Job| {
            job.source("numbers", generate(job, 5_000, |n| n)).sink("rows", files(job, &to).part_bytes(10_000));
            Ok(())
        };
        run(build, &options(dir.path(), guarantee), &Control::new()).unwrap().assert_balanced();
        let mut found: Vec<u64> =
            shown(&OsFiles, &out).into_iter().flat_map(|(_, rows)| rows).map(|row| row.parse().unwrap()).collect();
        found.sort_unstable();
        assert!(found == (0..5_000).collect::<Vec<_>>(), "{guarantee}: {} rows", found.len());
        assert!(shown(&OsFiles, &out).len() > 1, "{guarantee}: more than one part");
    }
}

#[test]
fn a_folder_of_another_job_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    for (data, expected) in [("a", true), ("b", false)] {
        let to = out.clone();
        let build = move |job: &Job| {
            job.source("numbers", generate(job, 10, |n| n)).sink("rows", files(job, &to));
            Ok(())
        };
        let result = run(build, &options(&dir.path().join(data), Guarantee::exactly_once()), &Control::new());
        match result {
            Ok(report) => assert!(expected && report.finished),
            Err(e) => assert!(!expected && e.to_string().contains("choose another folder"), "{e}"),
        }
    }
    assert_eq!(shown(&OsFiles, &out).into_iter().flat_map(|(_, rows)| rows).count(), 10);
}

#[test]
fn it_honours_every_guarantee() {
    let honoured = sink(SimPlatform::new(1).platform()).honours().guarantees;
    assert_eq!(honoured, [GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce, GuaranteeKind::ExactlyOnce]);
}
