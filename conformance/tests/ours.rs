//! The connectors that come with Cutwater, and the example of one's own, pass.

// The example has a `main` of its own.
#[path = "../../examples/custom_sink.rs"]
#[allow(dead_code, reason = "the example's own main is not called here")]
mod custom_sink;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use cutwater_conformance::{Conforms, Rule, sink, source};
use cutwater_engine::graph::Job;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{Files, Open, OsFiles, Platform};
use cutwater_sources_sinks::codec::{Csv, Json};
use cutwater_sources_sinks::collection::{collect, collection};
use cutwater_sources_sinks::files::files;
use cutwater_sources_sinks::generator::{generate, generate_seeded};
use cutwater_sources_sinks::log::JobLog;
use cutwater_sources_sinks::print::print;
use cutwater_sources_sinks::{csv, stdin, text};
use flate2::write::GzEncoder;

fn write(path: &Path, bytes: &[u8]) {
    OsFiles.open(path, Open::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
}

fn packed(members: &[&[u8]]) -> Vec<u8> {
    let pack = |bytes: &&[u8]| {
        let mut encoder = GzEncoder::new(vec![], flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    members.iter().flat_map(pack).collect()
}

fn tried(conforms: &Conforms, rules: &[Rule]) {
    assert!(rules.iter().all(|rule| conforms.tried.contains(rule)), "{conforms:?}");
}

const OF_SOURCES: [Rule; 8] = [
    Rule::SplitsStable,
    Rule::ReadsAlike,
    Rule::Ends,
    Rule::PositionResumes,
    Rule::PositionIsPure,
    Rule::ExhaustedStays,
    Rule::SplitsMove,
    Rule::BadPositionRefused,
];

const OF_SINKS: [Rule; 17] = [
    Rule::GroupMatchesPromise,
    Rule::NothingBeforeCommit,
    Rule::CommitShows,
    Rule::CommitIdempotent,
    Rule::OrderKept,
    Rule::SealDivides,
    Rule::EmptyIsFine,
    Rule::CarriedOver,
    Rule::Atomic,
    Rule::PreparedSurvives,
    Rule::UnlistedAborted,
    Rule::LowerFenceRefused,
    Rule::OldAttemptRefused,
    Rule::OldOutputSurvives,
    Rule::UnknownHandleFatal,
    Rule::ForgetKeepsOutput,
    Rule::ExactThroughCrashes,
];

#[test]
fn generators() {
    let conforms = source(|job| generate(job, 200, |n| n * n).in_splits(3)).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &OF_SOURCES);
    source(|job| generate_seeded(job, 90, 7, |n, random| (n, random.below(1000))))
        .run()
        .unwrap_or_else(|e| panic!("{e}"));
    let endless = |job: &Job| cutwater_sources_sinks::generator::generate_forever(job, |n| n).in_splits(2);
    source(endless).records_max(60).run().unwrap_or_else(|e| panic!("{e}"));
    source(|job| generate(job, 60, |n| n).per_second(2_000)).run().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn text_csv_and_gzip_files() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..120).map(|n| format!("line {n}{}\n", "x".repeat(n % 7))).collect();
    let rows: String = (0..90).map(|n| format!("{n},\"a {n}\nb\"\n")).collect();
    let rows = format!("n,word\n{rows}");
    let (plain, gz, csv_plain, csv_gz) = ("a.txt", "a.txt.gz", "b.csv", "b.csv.gz");
    let path = |name: &str| dir.path().join(name);
    write(&path(plain), lines.as_bytes());
    write(&path(gz), &packed(&[&lines.as_bytes()[..333], b"", &lines.as_bytes()[333..]]));
    write(&path(csv_plain), rows.as_bytes());
    write(&path(csv_gz), &packed(&[&rows.as_bytes()[..500], &rows.as_bytes()[500..]]));
    let conforms = source(|job| text::lines_of(job, [path(plain), path(gz)])).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &OF_SOURCES);
    let rows = |job: &Job| csv::rows_of(job, [path(csv_plain), path(csv_gz)]).typed::<(u64, String)>();
    let conforms = source(rows).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &OF_SOURCES);
}

#[test]
fn standard_input_as_any_stream_that_is_read_once() {
    let lines: String = (0..120).map(|n| format!("line {n}\n")).collect();
    let conforms = source(move |job| stdin::lines_from(job, std::io::Cursor::new(lines.clone().into_bytes())));
    let conforms = conforms.run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &[Rule::SplitsStable, Rule::Ends, Rule::ExhaustedStays, Rule::NeverMeansNever]);
}

#[test]
fn topics() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(&Platform::real(), &dir.path().join("log"), LogOptions::default()).unwrap();
    let (topic, producer) = (log.create_topic("in", 3).unwrap(), log.producer().unwrap());
    for n in 0..90u64 {
        let mut batch = BatchBuilder::new(Compression::Lz4);
        for value in [n, n + 1000] {
            batch.push(n as i64, None, Some(value.to_string().as_bytes()), &[]).unwrap();
        }
        producer.append(topic, (n % 3) as u32, &mut batch).unwrap().wait().unwrap();
    }
    log.close().unwrap();
    // The kit has several jobs at once, as no job's directory has; they share one open log here.
    let platform = Platform::real();
    let log = Log::open(&platform, &dir.path().join("log"), LogOptions::default()).unwrap();
    let log = cutwater_sources_sinks::log::LogHandle::of(&platform, log);
    let read = |_: &Job| log.read("in").until_latest();
    let conforms = source(read).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &OF_SOURCES);
}

#[test]
fn collections_can_not_be_read_again_and_say_so() {
    let conforms = source(|_| collection(0..100)).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &[Rule::NeverMeansNever, Rule::ExhaustedStays]);
    assert!(conforms.skipped.iter().any(|(rule, _)| *rule == Rule::PositionResumes), "{conforms:?}");
}

/// Reads the topic `out` as a read-committed reader.
fn topic(job: &Job) -> Vec<u64> {
    let handle = job.log();
    let Some(log) = handle.log() else { return vec![] };
    let Some(topic) = log.topic("out") else { return vec![] };
    let mut numbers = vec![];
    for partition in 0..topic.partitions {
        let Ok(mut consumer) = log.consumer(topic.id, partition, Offset(0), Isolation::ReadCommitted) else { continue };
        while let Ok(fetched) = consumer.poll(1 << 20) {
            let number = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).parse().unwrap();
            fetched.for_each(|record| numbers.push(number(record.value))).unwrap();
            if fetched.is_empty() && consumer.position() >= consumer.readable_end() {
                break;
            }
        }
    }
    numbers
}

#[test]
fn the_log() {
    let conforms =
        sink(|job| job.log().write::<u64>("out").value(Json), |n| n, topic).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &OF_SINKS);
    tried(&conforms, &[Rule::BarrierMeansDurable, Rule::FinishShows]);
    assert!(conforms.crashes > 60, "{conforms:?}");
}

/// Numbers in all parts below a folder, by the order of names; what begins with a dot isn't for readers.
fn rows_below(files: &dyn Files, dir: &Path) -> Vec<u64> {
    let mut numbers = vec![];
    for entry in files.read_dir(dir).unwrap_or_default().into_iter().filter(|e| !e.name.starts_with('.')) {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            numbers.extend(rows_below(files, &path));
            continue;
        }
        let Ok(mut bytes) = files.read(&path, 1 << 20) else { continue };
        if entry.name.ends_with(".gz") {
            let packed = std::mem::take(&mut bytes);
            flate2::read::MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        }
        let text = String::from_utf8(bytes).unwrap();
        numbers.extend(text.lines().map(|line| line.split([',', ' ']).next().unwrap().parse::<u64>().unwrap()));
    }
    numbers
}

fn shown_below(name: &'static str) -> impl Fn(&Job) -> Vec<u64> {
    move |job| {
        let environment = job.environment();
        rows_below(environment.platform.files.as_ref(), &environment.dir.join(name))
    }
}

#[test]
fn files_plain_and_packed_in_small_parts() {
    let to = |job: &Job| job.environment().dir.join("out");
    let plain = sink(|job| files::<u64>(job, to(job)), |n| n, shown_below("out"));
    let conforms = plain.run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &OF_SINKS);
    tried(&conforms, &[Rule::BarrierMeansDurable, Rule::FinishShows]);
    assert!(conforms.crashes > 60, "{conforms:?}");
    let packed = |job: &Job| files::<(u64, u64)>(job, to(job)).value(Csv).extension("csv").gzip().part_bytes(12);
    let packed = sink(packed, |n| (n, n * n), shown_below("out")).unordered().power_cuts_max(30);
    packed.run().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_sink_of_the_example() {
    let shown = |job: &Job| {
        let environment = job.environment();
        let (files, out) = (environment.platform.files.as_ref(), environment.dir.join("out"));
        let folders = files.read_dir(&out).unwrap_or_default().into_iter().filter(|e| e.name.starts_with("done-"));
        folders.flat_map(|folder| rows_below(files, &out.join(folder.name))).collect()
    };
    let made = sink(|job| custom_sink::Folder::new(job, "out"), |n| format!("{n} {}", n * n), shown);
    // Its file names order checkpoints and workers as text.
    let conforms = made.unordered().run().unwrap_or_else(|e| panic!("{e}"));
    assert!(conforms.crashes > 60, "{conforms:?}");
}

#[test]
fn what_shows_at_once() {
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (into, look) = (seen.clone(), seen.clone());
    let clear = move |_: &Job| {
        into.lock().unwrap().clear();
        collect(into.clone())
    };
    sink(clear, |n| n, move |_| look.lock().unwrap().clone()).run().unwrap_or_else(|e| panic!("{e}"));
    let text: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (into, look) = (text.clone(), text.clone());
    let printed = move |_: &Job| {
        let bytes = look.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    };
    let clear = move |_: &Job| {
        into.lock().unwrap().clear();
        print::<u64>().to(into.clone())
    };
    let conforms = sink(clear, |n| n, printed).run().unwrap_or_else(|e| panic!("{e}"));
    tried(&conforms, &[Rule::BarrierMeansDurable, Rule::FinishShows]);
}
