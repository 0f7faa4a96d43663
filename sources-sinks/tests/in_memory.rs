//! Sources and sinks without anything durable: made records, vectors, standard input and output.

mod common;

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{check_positions, drain, job, open};
use cutwater_engine::config::{GuaranteeKind, Options};
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::id::{Attempt, CheckpointId, JobId, WorkerIndex};
use cutwater_engine::sink::{Sink, Visibility, WriterId};
use cutwater_engine::source::{Read, Replay, Source, Waker};
use cutwater_sources_sinks::collection::{collect, collection};
use cutwater_sources_sinks::generator::{GenerationCost, generate, generate_forever, generate_seeded};
use cutwater_sources_sinks::print::{print, print_with};
use cutwater_sources_sinks::stdin;
use cutwater_testkit::SimPlatform;

fn writer() -> WriterId {
    let (job, attempt) = (JobId(1), Attempt(1));
    WriterId { job, attempt, sink: "out".to_string(), worker: WorkerIndex(0), visibility: Visibility::AtOnce }
}

#[test]
fn made_records_are_divided_among_splits_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let source = generate(&job(dir.path()), 20, |n| n * n).in_splits(3);
    let mut all = vec![];
    for split in source.splits().unwrap() {
        all.extend(check_positions(&source, &split));
    }
    all.sort_unstable();
    assert_eq!(all, (0..20).map(|n| n * n).collect::<Vec<_>>());
}

#[test]
fn a_generator_of_another_shape_refuses_the_position() {
    let dir = tempfile::tempdir().unwrap();
    let position = open(&generate(&job(dir.path()), 20, |n| n), "0", None).position();
    for changed in [generate(&job(dir.path()), 21, |n| n), generate(&job(dir.path()), 20, |n| n).in_splits(2)] {
        let error = changed.open("0", Some(&position), Waker::noop()).err().expect("refused");
        assert!(error.to_string().contains("was taken with 20 records in 1 splits"), "{error}");
    }
}

#[test]
fn a_paced_generator_makes_what_is_due_and_says_when_to_ask_again() {
    let sim = SimPlatform::new(1);
    let mut options = Options::new("test", "/data");
    options.platform = sim.platform();
    let source = generate_forever(&Job::new(Environment::new(&options)), |n| n).per_second(100);
    let mut reader = open(&source, "0", None);
    assert_eq!(drain(reader.as_mut(), 10).unwrap(), (vec![], Read::WaitMs(10)));
    options.platform.clock.sleep(Duration::from_millis(10));
    assert_eq!(drain(reader.as_mut(), 10).unwrap(), (vec![0], Read::WaitMs(10)));
    options.platform.clock.sleep(Duration::from_millis(25));
    assert_eq!(drain(reader.as_mut(), 10).unwrap(), (vec![1, 2], Read::WaitMs(5)));
}

#[test]
fn a_collection_is_read_once_and_says_so() {
    let source = collection(vec![3, 1, 2]);
    assert!(matches!(source.replay(), Replay::Never(_)));
    assert_eq!(drain(open(&source, "collection", None).as_mut(), 2).unwrap(), (vec![3, 1, 2], Read::Exhausted));
    let again = source.open("collection", None, Waker::noop()).err().expect("refused");
    assert!(again.fatal && again.to_string().contains("read before"), "{again}");
    assert_eq!(drain(open(&collection([0u8; 0]), "collection", None).as_mut(), 2).unwrap(), (vec![], Read::Exhausted));
}

#[test]
fn a_collecting_sink_shows_what_it_was_given_and_claims_no_more_than_it_can() {
    let out = Arc::new(Mutex::new(vec![]));
    let sink = collect(out.clone());
    assert_eq!(sink.honours().guarantees, [GuaranteeKind::AtMostOnce]);
    let mut writer = sink.open(&writer()).unwrap();
    writer.write(vec![1, 2]).unwrap();
    writer.write(vec![3]).unwrap();
    assert!(writer.seal(CheckpointId(1)).unwrap().is_none());
    writer.finish().unwrap();
    assert_eq!(*out.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn printing_gives_one_line_per_record() {
    let out: Arc<Mutex<Vec<u8>>> = Arc::default();
    let mut plain = print::<u32>().to(out.clone()).open(&writer()).unwrap();
    plain.write(vec![1, 2]).unwrap();
    let mut shown = print_with(|n: &u32| format!("<{n}>")).to(out.clone()).open(&writer()).unwrap();
    shown.write(vec![3]).unwrap();
    shown.finish().unwrap();
    assert_eq!(String::from_utf8(out.lock().unwrap().clone()).unwrap(), "1\n2\n<3>\n");
}

/// A pipe whose other end a test holds.
struct Pipe(Receiver<Vec<u8>>, Vec<u8>);

impl io::Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            match self.0.recv() {
                Ok(bytes) => self.1 = bytes,
                Err(_) => return Ok(0),
            }
        }
        let n = self.1.as_slice().read(buf)?;
        self.1.drain(..n);
        Ok(n)
    }
}

#[test]
fn standard_input_never_blocks_the_worker_and_wakes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (send, receive) = channel();
    let source = stdin::lines_from(&job(dir.path()), Pipe(receive, vec![]));
    assert!(matches!(source.replay(), Replay::Never(_)));
    let (wake, woken) = channel();
    let wake = Mutex::new(wake);
    let mut reader =
        source.open("stdin", None, Waker::new(move || wake.lock().unwrap().send(()).unwrap_or_default())).unwrap();
    let mut out = vec![];
    assert_eq!(reader.read(&mut out, 10).unwrap(), Read::Wait, "nothing has come, and nothing waits");
    send.send(b"one\r\ntwo\nthr".to_vec()).unwrap();
    woken.recv().unwrap();
    while out.len() < 2 {
        reader.read(&mut out, 10).unwrap();
    }
    send.send(b"ee".to_vec()).unwrap();
    drop(send);
    while reader.read(&mut out, 10).unwrap() != Read::Exhausted {
        let _ = woken.recv_timeout(Duration::from_secs(5));
    }
    let lines: Vec<_> = out.iter().map(|line| (line.number, line.text().unwrap())).collect();
    assert_eq!(lines, [(1, "one"), (2, "two"), (3, "three")]);
    assert!(source.open("stdin", None, Waker::noop()).is_err(), "it can be read once");
}

#[test]
fn seeded_records_depend_on_seed_and_number_alone() {
    let dir = tempfile::tempdir().unwrap();
    let made = |seed: u64, splits: u32| {
        let draw = |n, random: &mut cutwater_platform::SplitMix| (n, random.below(1 << 40));
        let source = generate_seeded(&job(dir.path()), 500, seed, draw).in_splits(splits);
        let mut all = vec![];
        for split in source.splits().unwrap() {
            all.extend(check_positions(&source, &split));
        }
        all.sort_unstable();
        all
    };
    let one = made(7, 1);
    assert_eq!(one, made(7, 3), "the number of splits plays no part");
    let other = made(8, 1);
    assert!(one.iter().zip(&other).all(|(a, b)| a.1 != b.1), "neighbouring seeds have nothing in common");
    let values: std::collections::BTreeSet<u64> = one.iter().map(|(_, value)| *value).collect();
    assert_eq!(values.len(), 500);
}

#[test]
fn what_making_records_costs_is_reported_without_the_waiting() {
    let sim = SimPlatform::new(1);
    let mut options = Options::new("test", "/data");
    options.platform = sim.platform();
    let (cost, clock) = (GenerationCost::new(), options.platform.clock.clone());
    let slow = move |n: u64| {
        clock.sleep(Duration::from_millis(2));
        n
    };
    let source = generate(&Job::new(Environment::new(&options)), 10, slow).per_second(100).metered(&cost);
    let mut reader = open(&source, "0", None);
    let mut read = vec![];
    while read.len() < 10 {
        if let Read::WaitMs(ms) = reader.read(&mut read, 3).unwrap() {
            options.platform.clock.sleep(Duration::from_millis(ms));
        }
    }
    assert_eq!((cost.records(), cost.time()), (10, Duration::from_millis(20)));
    assert!(options.platform.clock.monotonic() >= Duration::from_millis(100), "most of it was waiting");
    assert_eq!(cost.to_string(), "10 records made in 20ms");
}
