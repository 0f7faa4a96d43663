//! The files of a partition, byte for byte: what a small history leaves on the disk must be the files that Kafka's own
//! tool has read (`interop/dump_log/run`), which are committed under `fixtures/segments`.
//!
//! `CUTWATER_SEGMENTS_TO=<directory>` also writes them, a topic with every codec, and a compacted one, there.

mod log_support;

use std::path::{Path, PathBuf};

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Log, LogLimits, LogOptions, OwnerId, TopicId, TxnName};
use cutwater_platform::{Files, Open, OsFiles, WallTime};
use cutwater_testkit::SimPlatform;

const TIME: i64 = 1_700_000_000_000;

fn batch(compression: Compression, numbers: std::ops::Range<i64>) -> BatchBuilder {
    let mut builder = BatchBuilder::new(compression);
    for n in numbers {
        let key = format!("key-{}", n % 5);
        let value = format!("record {n} {}", ".".repeat((n * 7 % 60) as usize));
        let headers: &[(&[u8], Option<&[u8]>)] =
            if n % 4 == 0 { &[(b"via", Some(b"ORD")), (b"via", None)] } else { &[] };
        // Times rise, but for a step back now and then.
        builder
            .push(TIME + n * 10 - (n % 6) * 25, Some(key.as_bytes()), Some(value.as_bytes()), headers)
            .expect("small");
    }
    builder
}

/// A history with an idempotent producer, transactions of every fate and several segments.
fn live(log: &Log, topic: TopicId, codecs: &[Compression]) {
    let producer = log.producer().expect("up");
    let owner = log.claim(&OwnerId(u128::from(topic.0) + 1), 1).expect("claimed");
    let mut n = 0;
    let mut next = |count| {
        n += count;
        n - count..n
    };
    for round in 0..12u32 {
        let codec = codecs[round as usize % codecs.len()];
        let plain = producer.append(topic, 0, &mut batch(codec, next(5)));
        plain.expect("taken").wait().expect("durable");
        let name = |writer| TxnName { checkpoint: round.into(), sink: "sink".to_string(), writer };
        let mut txn = owner.begin(name(0)).expect("begun");
        txn.append(topic, 0, &mut batch(codec, next(3))).expect("taken");
        let mut other = owner.begin(name(1)).expect("begun");
        other.append(topic, 0, &mut batch(codec, next(2))).expect("taken");
        txn.append(topic, 0, &mut batch(codec, next(1))).expect("taken");
        if round % 3 == 1 {
            txn.abort().expect("aborted")
        } else {
            txn.commit().expect("committed")
        }
        let prepared = other.prepare().expect("prepared");
        match round % 4 {
            0 => _ = owner.abort(&[prepared.id]).expect("aborted"),
            // The last one stays as it is.
            3 if round > 8 => {}
            _ => _ = owner.commit(&[prepared.id]).expect("committed"),
        }
    }
}

/// The files of both topics' partitions.
fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let sim = SimPlatform::new(11);
    let options = LogOptions {
        limits: LogLimits { segment_bytes: 3_000, index_interval_bytes: 500, ..LogLimits::tiny() },
        ..LogOptions::default()
    };
    let log = Log::open(&sim.platform(), Path::new(log_support::DIR), options).expect("opened");
    let golden = log.create_topic("golden", 1).expect("created");
    let codecs = log.create_topic("codecs", 1).expect("created");
    live(&log, golden, &[Compression::None]);
    live(&log, codecs, &Compression::ALL);
    log.close().expect("closed");
    let (disk, root) = (sim.platform().files, Path::new(log_support::DIR).join("partitions"));
    let mut all = Vec::new();
    for dir in ["codecs-0", "golden-0"] {
        for entry in disk.read_dir(&root.join(dir)).expect("listed") {
            let path = Path::new(dir).join(&entry.name);
            all.push((path.clone(), disk.read(&root.join(path), u64::MAX).expect("read")));
        }
    }
    all
}

/// The files of a compacted partition with the same history.
fn compacted() -> Vec<(PathBuf, Vec<u8>)> {
    let sim = SimPlatform::new(12);
    let open = || {
        let limits = LogLimits { segment_bytes: 3_000, index_interval_bytes: 500, ..LogLimits::tiny() };
        let options = LogOptions { limits, ..LogOptions::default() };
        Log::open(&sim.platform(), Path::new(log_support::DIR), options).expect("opened")
    };
    let log = open();
    let topic = log.create_topic("compacted", 1).expect("created");
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0"), ("delete.retention.ms", "0")];
    let settings = settings.map(|(name, value)| (name.to_string(), value.to_string()));
    log.change_topic_settings("compacted", |known| known.extend(settings)).expect("set");
    live(&log, topic, &Compression::ALL);
    log.close().expect("closed");
    let log = open();
    for days in 10..12 {
        let tidied = log.tidy(WallTime(TIME + days * 86_400_000)).expect("up");
        assert!(tidied.failed.is_empty(), "{tidied:?}");
    }
    log.close().expect("closed");
    let (disk, root) = (sim.platform().files, Path::new(log_support::DIR).join("partitions"));
    let entries = disk.read_dir(&root.join("compacted-0")).expect("listed");
    let paths = entries.into_iter().map(|entry| Path::new("compacted-0").join(entry.name));
    paths.map(|path| (path.clone(), disk.read(&root.join(path), u64::MAX).expect("read"))).collect()
}

#[test]
fn a_partitions_files_are_byte_for_byte_those_that_kafkas_tool_has_read() {
    let files = files();
    if let Ok(target) = std::env::var("CUTWATER_SEGMENTS_TO") {
        for (path, bytes) in files.iter().chain(&compacted()) {
            let path = Path::new(&target).join(path);
            OsFiles.create_dir_all(path.parent().expect("below the target")).expect("created");
            OsFiles.open(&path, Open::Create).expect("created").write_all_at(bytes, 0).expect("written");
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/segments");
    // All but the checksums, which aren't Kafka's.
    let kafkas = |path: &Path| path.extension().is_some_and(|extension| extension != "txnsum");
    let ours: Vec<_> = files.iter().filter(|(path, _)| path.starts_with("golden-0") && kafkas(path)).collect();
    let mut names: Vec<String> =
        OsFiles.read_dir(&golden.join("golden-0")).expect("listed").into_iter().map(|e| e.name).collect();
    names.sort();
    let found: Vec<&str> = ours.iter().filter_map(|(path, _)| path.file_name()?.to_str()).collect();
    assert_eq!(found, names);
    for kind in ["log", "index", "timeindex", "txnindex", "snapshot"] {
        let of_kind =
            ours.iter().filter(|(path, bytes)| path.extension().is_some_and(|e| e == kind) && !bytes.is_empty());
        assert!(of_kind.count() > 1, "several .{kind} files have something to say");
    }
    for (path, bytes) in ours {
        let expected = OsFiles.read(&golden.join(path), u64::MAX).expect("read");
        assert!(*bytes == expected, "{} differs", path.display());
    }
}
