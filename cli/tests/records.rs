//! `cutwater topics` and `cutwater read`: what they print, and what they say when asked for what isn't there.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Log, LogOptions, OwnerId, TxnName};
use cutwater_platform::Platform;

/// A log with two topics: `words` has two partitions with plain, committed and aborted records, `empty` has none.
fn log(dir: &Path) {
    let log = Log::open(&Platform::real(), dir, LogOptions::default()).expect("a log");
    log.create_topic("empty", 1).expect("a topic");
    let words = log.create_topic("words", 2).expect("a topic");
    let batch = |values: &[&str]| {
        let mut batch = BatchBuilder::new(Compression::None);
        for (i, value) in values.iter().enumerate() {
            let key = format!("k{i}");
            batch.push(7, Some(key.as_bytes()), Some(value.as_bytes()), &[]).expect("it fits");
        }
        batch
    };
    let producer = log.producer().expect("a producer");
    producer.append(words, 0, &mut batch(&["to", "be"])).expect("accepted").wait().expect("acknowledged");
    let owner = log.claim(&OwnerId(1), 1).expect("an owner");
    for (checkpoint, value, commits) in [(1, "not", false), (2, "or", true)] {
        let mut txn = owner.begin(TxnName { checkpoint, sink: "out".into(), writer: 0 }).expect("a transaction");
        txn.append(words, 1, &mut batch(&[value])).expect("accepted");
        if commits {
            txn.commit().expect("committed")
        } else {
            txn.abort().expect("aborted")
        };
    }
    log.close().expect("a clean close");
}

fn cutwater(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater"));
    command.args(args).arg("--dir").arg(dir).env_remove("RUST_LOG").output().expect("the command runs")
}

fn said(output: &Output) -> (Option<i32>, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn topics_and_committed_records_are_shown_of_a_log_and_of_a_jobs_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("log");
    log(&data);
    for place in [dir.path(), &data] {
        let topics = cutwater(&["topics"], place);
        assert_eq!(said(&topics), (Some(0), "empty\t1 partitions\t0 offsets\nwords\t2 partitions\t6 offsets\n", ""));
        assert_eq!(said(&cutwater(&["read", "words"], place)), (Some(0), "to\nbe\nor\n", ""));
        assert_eq!(said(&cutwater(&["read", "empty"], place)), (Some(0), "", ""));
    }
}

#[test]
fn what_is_read_can_be_chosen() {
    let dir = tempfile::tempdir().expect("a directory");
    log(dir.path());
    let read = |args: &[&str]| cutwater(&[&["read", "words"], args].concat(), dir.path());
    let all = read(&["--uncommitted", "--show", "partition,offset,time,key,value"]);
    let rows = "0\t0\t7\tk0\tto\n0\t1\t7\tk1\tbe\n1\t0\t7\tk0\tnot\n1\t2\t7\tk0\tor\n";
    assert_eq!(said(&all), (Some(0), rows, ""));
    assert_eq!(said(&read(&["--partition", "1"])), (Some(0), "or\n", ""));
    assert_eq!(said(&read(&["--from", "1", "--show", "offset"])), (Some(0), "1\n2\n", ""));
    assert_eq!(said(&read(&["--first", "2"])), (Some(0), "to\nbe\n", ""));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test looks at the real file system")]
fn what_isnt_there_is_told_and_nothing_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("log");
    let none = cutwater(&["topics"], dir.path());
    assert_eq!(none.status.code(), Some(1));
    assert!(said(&none).2.contains("there is no log in"), "{none:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0, "it made something");

    log(&data);
    for (args, expected) in [
        (&["read", "word"][..], "there is no topic \"word\"; there are empty, words"),
        (&["read", "words", "--partition", "2"], "no partition 2: they are numbered from 0, and there are 2"),
    ] {
        let output = cutwater(args, dir.path());
        let (code, out, error) = said(&output);
        assert_eq!((code, out), (Some(1), ""));
        assert!(error.contains(expected), "{error}");
    }
    let held = Log::open(&Platform::real(), &data, LogOptions::default()).expect("a log");
    let output = cutwater(&["read", "words"], dir.path());
    assert!(output.status.code() == Some(1) && said(&output).2.contains("is held by"), "{output:?}");
    held.close().expect("a clean close");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let log = Log::open(&Platform::real(), dir.path(), LogOptions::default()).expect("a log");
        let topic = log.create_topic("words", 1).expect("a topic");
        let producer = log.producer().expect("a producer");
        for _ in 0..20 {
            let mut batch = BatchBuilder::new(Compression::None);
            (0..500).for_each(|n| batch.push(n, None, Some(&[b'x'; 100]), &[]).expect("it fits"));
            producer.append(topic, 0, &mut batch).expect("accepted").wait().expect("acknowledged");
        }
        log.close().expect("a clean close");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater"));
    command.args(["read", "words", "--dir"]).arg(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(said(&output), (Some(0), "", ""));
}
