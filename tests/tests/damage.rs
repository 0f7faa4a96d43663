//! Damage to every kind of file that a job leaves behind: a flipped bit, a byte that can't be read. Either it is told, with the file's
//! name, and nothing has been harmed once the file is whole again; or it changes nothing. Never is anything wrong shown.
//!
//! The kinds are listed from what is on the disk: a file of a kind that nobody has written down fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogLimits, LogOptions, Offset};
use cutwater_platform::{Clock, Files, SplitMix, SystemClock};
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::files::files;
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::{CrashAction, DiskOp, LossPolicy, OpFault, SimDisk, SyncFault};
use cutwater_tests::{End, Machine};

const RECORDS: u64 = 2_400;
const KEYS: u64 = 13;
const LOG: &str = "data/log";
const OUT: &str = "out";

/// What flipped bits in files of a kind come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// Some are told at least; those that aren't change nothing.
    ToLight,
    /// They change nothing, or are told: the file is rebuilt, only its name counts, or most of it is needed no more. (A transaction
    /// index: what lies behind the last base image is cut and written again; the rest is told, as `segment_damage.rs` shows.)
    ToLittle,
}

/// Every kind of file, and what comes of damage. The table in docs/testing.md says the same in words.
const KINDS: [(&str, Comes); 22] = [
    ("lock", Comes::ToLittle),
    ("reserve", Comes::ToLittle),
    ("write-ahead log", Comes::ToLittle),
    ("base image", Comes::ToLight),
    ("segment", Comes::ToLight),
    ("offset index", Comes::ToLittle),
    ("time index", Comes::ToLittle),
    ("transaction index", Comes::ToLittle),
    ("checksums of a transaction index", Comes::ToLittle),
    ("producer snapshot", Comes::ToLittle),
    ("job id", Comes::ToLight),
    ("attempt", Comes::ToLittle),
    ("base of an attempt", Comes::ToLight),
    ("state base", Comes::ToLight),
    ("state delta", Comes::ToLight),
    ("manifest", Comes::ToLight),
    ("committed record", Comes::ToLight),
    ("temporary", Comes::ToLittle),
    ("owner of a folder", Comes::ToLight),
    ("outcome", Comes::ToLight),
    ("staged part", Comes::ToLittle),
    ("shown part", Comes::ToLittle),
];

fn kind_of(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let below = |dir: &str| path.parent().is_some_and(|p| p.ends_with(dir));
    let hidden = path.parent().and_then(Path::file_name).is_some_and(|p| p.to_string_lossy().starts_with('.'));
    Some(match () {
        () if extension == "tmp" => "temporary",
        () if path.starts_with(OUT) && name == ".owner" => "owner of a folder",
        () if path.starts_with(OUT) && below(".outcomes") => "outcome",
        () if path.starts_with(OUT) && hidden && extension == "txt" => "staged part",
        () if path.starts_with(OUT) && extension == "txt" => "shown part",
        () if below("log") && name == "lock" => "lock",
        () if below("log") && name == "reserve" => "reserve",
        () if below("log/wal") => "write-ahead log",
        () if below("log/base") => "base image",
        () if extension == "log" => "segment",
        () if extension == "index" => "offset index",
        () if extension == "timeindex" => "time index",
        () if extension == "txnindex" => "transaction index",
        () if extension == "txnsum" => "checksums of a transaction index",
        () if extension == "snapshot" => "producer snapshot",
        () if below("checkpoints") && name == "job" => "job id",
        () if below("attempts") && extension == "base" => "base of an attempt",
        () if below("attempts") => "attempt",
        () if below("state") && extension == "base" => "state base",
        () if below("state") && extension == "delta" => "state delta",
        () if below("manifests") => "manifest",
        () if below("committed") => "committed record",
        () => return None,
    })
}

fn open(machine: &Machine) -> Result<Log, String> {
    let options = LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() };
    Log::open(&machine.platform(), Path::new(LOG), options).map_err(|e| e.to_string())
}

fn loaded() -> Machine {
    let machine = Machine::new(3);
    let log = open(&machine).expect("an empty disk");
    let topic = log.create_topic("in", 2).expect("a new topic");
    let producer = log.producer().expect("a producer");
    let mut random = SplitMix::new(3);
    for batch in 0..RECORDS / 10 {
        let mut builder = BatchBuilder::new(Compression::None);
        for _ in 0..10 {
            let key = random.below(KEYS).to_string();
            builder.push(0, None, Some(key.as_bytes()), &[]).expect("it fits");
        }
        producer.append(topic, (batch % 2) as u32, &mut builder).expect("accepted").wait().expect("acknowledged");
    }
    log.close().expect("a clean close");
    machine
}

fn build(job: &Job, log: &LogHandle) -> Result<(), BuildError> {
    let clock = SystemClock::new();
    let numbers = job.source("in", log.read("in").until_latest()).map(move |record| {
        clock.sleep(Duration::from_micros(40));
        String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).parse::<u64>().unwrap_or(u64::MAX)
    });
    let counts = numbers.key_value(|key| (key, ())).count("count");
    let (to_log, to_files) = counts.fork();
    to_log.sink("counts", log.write("counts").value(Json));
    to_files.map(|(key, count)| format!("{key} {count}")).sink("files", files(job, OUT));
    Ok(())
}

/// One life of the job.
fn live(machine: &Machine) -> Result<Report, String> {
    let log = open(machine)?;
    let handle = LogHandle::of(&machine.platform(), log);
    let snapshots = Snapshots { retained: 3, deltas_max: 3, ..Snapshots::every(Duration::from_millis(2)) };
    let mut options = Options::new("damaged", machine.dir());
    (options.workers, options.pin, options.restarts_max) = (2, false, 1);
    (options.platform, options.guarantee) = (machine.platform(), Guarantee::ExactlyOnce(snapshots));
    options.limits.batch_records = 4;
    options.limits.channel_records = 8;
    options.limits.batches_per_step = 1;
    let ended = run(move |job| build(job, &handle), &options, &Control::new());
    ended.inspect(Report::assert_balanced).map_err(|e: RunError| e.to_string())
}

/// Counts of each key as both sinks show them; an error says what could not be read.
type Seen = BTreeMap<u64, Vec<u64>>;

fn seen_in_log(machine: &Machine) -> Result<Seen, String> {
    let log = open(machine)?;
    let mut seen = Seen::new();
    let Some(topic) = log.topic("counts") else { return Ok(seen) };
    let mut consumer = log.consumer(topic.id, 0, Offset(0), Isolation::ReadCommitted).map_err(|e| e.to_string())?;
    loop {
        let fetched = consumer.poll(1 << 20).map_err(|e| e.to_string())?;
        let mut rows = vec![];
        let read = fetched.for_each(|r| rows.push(String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned()));
        read.map_err(|e| e.to_string())?;
        for row in rows {
            let (key, count) = row.trim_matches(['[', ']']).split_once(',').ok_or_else(|| row.clone())?;
            let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{row}: {e}"));
            seen.entry(number(key)?).or_default().push(number(count)?);
        }
        if fetched.is_empty() && consumer.position() >= consumer.readable_end() {
            log.close().map_err(|e| e.to_string())?;
            return Ok(seen);
        }
    }
}

fn seen_in_files(disk: &SimDisk) -> Seen {
    let mut seen = Seen::new();
    for folder in disk.read_dir(Path::new(OUT)).unwrap_or_default().into_iter().filter(|e| !e.name.starts_with('.')) {
        let dir = Path::new(OUT).join(folder.name);
        for part in disk.read_dir(&dir).expect("readable") {
            let bytes = disk.read(&dir.join(part.name), 1 << 20).unwrap_or_default();
            for row in String::from_utf8_lossy(&bytes).lines() {
                let (key, count) = row.split_once(' ').unwrap_or(("0", "0"));
                seen.entry(key.parse().unwrap_or(0)).or_default().push(count.parse().unwrap_or(0));
            }
        }
    }
    // Parts of one checkpoint have no order among them.
    seen.values_mut().for_each(|counts| counts.sort_unstable());
    seen
}

fn expected() -> Seen {
    let mut random = SplitMix::new(3);
    let mut seen = Seen::new();
    for _ in 0..RECORDS {
        let counts = seen.entry(random.below(KEYS)).or_default();
        counts.push(counts.len() as u64 + 1);
    }
    seen
}

fn all_files(disk: &SimDisk, dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in disk.read_dir(dir).expect("readable") {
        let path = dir.join(&entry.name);
        if entry.is_dir { all_files(disk, &path, found) } else { found.push(path) }
    }
}

/// A disk on which a job was killed several times, with something prepared and not committed; and its files by kind.
fn left_behind() -> (Machine, BTreeMap<&'static str, Vec<PathBuf>>) {
    let mut machine = loaded();
    for (point, nth) in [("sink.prepared", 6), ("group.commit-sent", 4), ("files.decided", 3)] {
        machine.strike(point, nth);
        let ended = live(&machine);
        machine = machine.next_life(if machine.is_off() { End::PowerOff(LossPolicy::NoneLost) } else { End::Kill });
        assert!(ended.is_err(), "{point}: the job finished");
    }
    let mut found = vec![];
    for dir in ["data", OUT] {
        all_files(machine.disk(), Path::new(dir), &mut found);
    }
    let mut kinds: BTreeMap<&'static str, Vec<PathBuf>> = BTreeMap::new();
    let mut unknown = vec![];
    for path in found {
        match kind_of(&path) {
            Some(kind) => kinds.entry(kind).or_default().push(path),
            None => unknown.push(path),
        }
    }
    assert!(unknown.is_empty(), "files of a kind that is not in the table: {unknown:?}");
    (machine, kinds)
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: u64, bit: u8 },
    Unreadable { at: u64 },
}

/// Where a file is after a life, if it is there: the fence of the file sink renames the folders of prepared parts, whose own names stay.
fn now_at(disk: &SimDisk, path: &Path) -> Option<PathBuf> {
    if kind_of(path) != Some("staged part") || disk.exists(path).expect("readable") {
        return disk.exists(path).expect("readable").then(|| path.to_path_buf());
    }
    let mut found = vec![];
    all_files(disk, Path::new(OUT), &mut found);
    found.into_iter().find(|there| there.file_name() == path.file_name())
}

/// What came of it: true if it was told.
fn damaged(from: &Machine, path: &Path, damage: Damage, expected: &Seen) -> bool {
    let machine = from.fork(9);
    match damage {
        Damage::Flip { at, bit } => machine.disk().flip_bit(path, at, bit),
        Damage::Unreadable { at } => machine.disk().fail_reads_at(path, at),
    }
    let story = format!("{damage:?} in {}", path.display());
    let told = match live(&machine) {
        Ok(report) => {
            assert!(report.finished, "{story}: {report}");
            let in_files = seen_in_files(machine.disk());
            // A shown part is nobody's to check any more: it belongs to whoever reads it.
            if kind_of(path) != Some("shown part") {
                assert!(in_files == *expected, "{story}: wrong files are shown");
            }
            match seen_in_log(&machine) {
                Ok(seen) => {
                    assert!(seen == *expected, "{story}: wrong counts are shown");
                    return false;
                }
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    let stem = path.file_stem().expect("a file").to_string_lossy().into_owned();
    let parent = path.parent().and_then(Path::file_name).expect("a folder").to_string_lossy().into_owned();
    let words = [name, stem, parent];
    assert!(words.iter().any(|word| told.contains(word)), "{story}: the error doesn't say where: {told}");

    // Whoever mends the file goes on, and everything is exact.
    match damage {
        Damage::Flip { at, bit } => {
            if let Some(path) = now_at(machine.disk(), path) {
                machine.disk().flip_bit(path, at, bit);
            }
        }
        Damage::Unreadable { .. } => machine.disk().heal(),
    }
    let mended = machine.next_life(End::Kill);
    let report = live(&mended).unwrap_or_else(|e| panic!("{story}, mended: {e}"));
    assert!(report.finished, "{story}, mended: {report}");
    assert_eq!(seen_in_log(&mended).as_ref(), Ok(expected), "{story}, mended");
    assert!(seen_in_files(mended.disk()) == *expected, "{story}, mended: wrong files are shown");
    true
}

/// At most `max` of a kind's files, the first and the last among them.
fn some(paths: &[PathBuf], max: usize) -> Vec<&PathBuf> {
    let step = paths.len().div_ceil(max).max(1);
    paths.iter().rev().step_by(step).collect()
}

#[test]
fn damage_to_any_kind_of_file_is_told_or_changes_nothing() {
    let (machine, kinds) = left_behind();
    let expected = expected();
    let mut random = SplitMix::new(5);
    let mut told: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (kind, paths) in &kinds {
        for path in some(paths, 2) {
            let len = machine.disk().open(path, cutwater_platform::Open::Read).and_then(|f| f.len()).expect("readable");
            if len == 0 {
                continue;
            }
            let mut damages: Vec<Damage> =
                [0, len / 2, random.below(len)].map(|at| Damage::Flip { at, bit: random.below(8) as u8 }).to_vec();
            damages.push(Damage::Unreadable { at: len / 3 });
            for damage in damages {
                let entry = told.entry(kind).or_default();
                let is_told = damaged(&machine, path, damage, &expected);
                if matches!(damage, Damage::Flip { .. }) {
                    entry.0 += 1;
                    entry.1 += u32::from(is_told);
                }
            }
        }
    }
    for kind in KINDS.iter().filter(|(_, comes)| *comes == Comes::ToLight).map(|(kind, _)| kind) {
        assert!(told.get(kind).is_none_or(|(_, n)| *n > 0), "no flipped bit in a {kind} came to light: {told:?}");
    }
    let never: BTreeSet<&str> = KINDS.iter().map(|k| k.0).filter(|kind| !told.contains_key(kind)).collect();
    // Names that a crash leaves only now and then, and files without a byte.
    let now_and_then = BTreeSet::from([
        "temporary",
        "reserve",
        "lock",
        "transaction index",
        "checksums of a transaction index",
        "staged part",
        "state delta",
    ]);
    assert!(never.is_subset(&now_and_then), "kinds that the disk didn't have: {never:?}");
}

#[test]
fn a_failed_sync_anywhere_ends_a_run_or_an_attempt_and_nothing_wrong_is_shown() {
    let (machine, _) = left_behind();
    let expected = expected();
    let machine = Arc::new(machine);
    for (number, nth) in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89].into_iter().enumerate() {
        let fault = if number % 2 == 0 { SyncFault::KeepCache } else { SyncFault::RevertCache };
        let failing = machine.fork(nth);
        failing.disk().fail_sync(nth, fault);
        let first = live(&failing);
        let next = failing.next_life(End::PowerOff(LossPolicy::Random));
        let report = live(&next).unwrap_or_else(|e| panic!("sync {nth} failed ({first:?}), then: {e}"));
        assert!(report.finished, "sync {nth}");
        assert_eq!(seen_in_log(&next).as_ref(), Ok(&expected), "sync {nth} failed: {first:?}");
        assert!(seen_in_files(next.disk()) == expected, "sync {nth} failed: {first:?}");
    }
}

/// An operation of any kind: reads, lists, new names and lengths, plain writes. A sample; log, checkpoint store and file sink have tests
/// of their own in which each operation fails.
#[test]
fn a_failed_operation_anywhere_is_told_or_tried_again_and_nothing_wrong_is_shown() {
    let (machine, _) = left_behind();
    let expected = expected();
    let dry = machine.fork(1);
    live(&dry).expect("a sound disk");
    // Threads take turns as they like, so the last of them may not be reached.
    let operations = dry.disk().operations();
    let (mut failed, mut told) = (0, 0);
    for round in 0..24 {
        let fault = [OpFault::Once, OpFault::OnceDone, OpFault::ReadOnly, OpFault::Forever][round as usize % 4];
        let nth = 1 + operations * round / 26;
        let failing = machine.fork(nth);
        failing.disk().fail_operation(nth, fault);
        let first = live(&failing);
        failed += u64::from(failing.disk().has_failed());
        told += u64::from(first.is_err());
        let story = format!("operation {nth} of some {operations} failed, {fault:?} ({first:?})");
        let is_sync = |op| matches!(op, DiskOp::SyncData | DiskOp::WriteSynced | DiskOp::SyncDir);
        let is_unsure = failing.disk().trace().iter().any(|step| step.fault == Some("EIO") && is_sync(step.op));
        // What a failed sync left is seen and not on the disk, and no later process can tell.
        let end = if is_unsure || round % 2 == 0 { End::PowerOff(LossPolicy::Random) } else { End::Kill };
        let next = failing.next_life(end);
        let report = live(&next).unwrap_or_else(|e| panic!("{story}, {end:?}, then: {e}"));
        assert!(report.finished, "{story}");
        let next = next.next_life(End::PowerOff(LossPolicy::AllLost));
        assert_eq!(seen_in_log(&next).as_ref(), Ok(&expected), "{story}, {end:?}");
        assert!(seen_in_files(next.disk()) == expected, "{story}, {end:?}: wrong files are shown");
    }
    assert!(failed > 20 && told > 12, "{failed} of 24 failed, {told} were told");
}

/// A manifest whose name a failed sync left behind is seen by whoever looks, and a power cut takes it away: an attempt that went on from
/// it would commit its output, and the next one would write that again.
#[test]
fn a_manifest_that_is_seen_and_may_not_be_on_the_disk_ends_the_run() {
    let machine = loaded();
    let disk = machine.disk().clone();
    let fails = CrashAction::Call(Box::new(move || disk.fail_sync(1, SyncFault::KeepCache)));
    machine.call_at("manifest.published", 4, fails);
    let error = live(&machine).expect_err("nobody goes on from it");
    assert!(error.contains("restart the machine"), "{error}");
    let next = machine.next_life(End::PowerOff(LossPolicy::AllLost));
    assert!(live(&next).expect("a sound disk").finished);
    assert_eq!(seen_in_log(&next), Ok(expected()));
    assert!(seen_in_files(next.disk()) == expected());
}
