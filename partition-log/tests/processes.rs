//! Real processes and real kills: this test binary starts itself as a child that holds a log.

#![cfg(target_os = "linux")]

mod log_support;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cutwater_partition_log::{Holder, Isolation, Log, LogOptions, OpenError};
use cutwater_platform::Platform;
use log_support::{batch, read, tiny};

/// The child's part: opens the log and appends until it is killed. Does nothing when run as a test.
#[test]
#[expect(clippy::print_stdout, reason = "the parent listens")]
fn child() {
    let Ok(dir) = std::env::var("CUTWATER_TEST_LOG") else { return };
    let options = LogOptions { holder: Holder { job: "child".to_string(), attempt: 1 }, ..tiny() };
    let log = Log::open(&Platform::real(), Path::new(&dir), options).expect("opens");
    let topic = log.create_topic_if_absent("t", 1).expect("created");
    let producer = log.producer().expect("a producer");
    let mut next = log.offsets(topic, 0).expect("exists").log_end.0;
    loop {
        let ticket = producer.append(topic, 0, &mut batch(&[format!("value-{next}")])).expect("accepted");
        let offset = ticket.wait().expect("durable").0;
        println!("acknowledged {offset}");
        next = offset + 1;
    }
}

fn start(dir: &Path, crash_at: &str) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "child", "--nocapture"])
        .env("CUTWATER_TEST_LOG", dir)
        .env("CUTWATER_CRASH_AT", crash_at)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

/// Reads acknowledgements until `enough` have come or the child is gone; how many there were.
fn acknowledged(child: &mut Child, enough: u64) -> u64 {
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut count = 0;
    while count < enough
        && let Some(Ok(line)) = lines.next()
    {
        count += u64::from(line.starts_with("acknowledged "));
    }
    count
}

#[test]
fn a_process_killed_at_a_named_point_leaves_everything_that_it_acknowledged() {
    let points = ["log.frame-buffered#9", "log.frame-written#30", "log.acknowledged#20", "log.base-image-published#4"];
    let dir = tempfile::tempdir().expect("a directory");
    let mut expected = 0;
    for point in points {
        let mut child = start(dir.path(), point);
        expected += acknowledged(&mut child, u64::MAX);
        assert_eq!(child.wait().expect("ended").signal(), Some(9), "killed at {point}");
        let log = Log::open(&Platform::real(), dir.path(), tiny()).expect("recovers");
        let values = read(&log, log.topics()[0].id, 0, Isolation::ReadUncommitted);
        let here = values.len() as u64;
        assert!(here == expected || here == expected + 1, "{point}: {expected} acknowledged, {here} there");
        assert_eq!(values, (0..here).map(|n| (n, format!("value-{n}"))).collect::<Vec<_>>());
        expected = here;
        drop(log);
    }
}

#[test]
fn taking_over_kills_exactly_the_holder_and_then_opens() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = start(dir.path(), "");
    assert_eq!(acknowledged(&mut child, 5), 5);
    let error = Log::open(&Platform::real(), dir.path(), tiny()).expect_err("held");
    let text = error.to_string();
    assert!(matches!(error, OpenError::Held { .. }) && text.contains(&child.id().to_string()), "{text}");
    let options = LogOptions { take_over: true, ..tiny() };
    let log = Log::open(&Platform::real(), dir.path(), options).expect("taken over");
    assert_eq!(child.wait().expect("ended").signal(), Some(9));
    assert!(read(&log, log.topics()[0].id, 0, Isolation::ReadUncommitted).len() >= 5);
}
