//! The README's first program, run as the README says, and its text.

#![expect(clippy::disallowed_methods, reason = "a test writes a real file and starts real processes")]

mod example;

use std::path::Path;
use std::process::Command;

use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::Platform;
use example::{Ran, program, root};

/// Two airports, two days; one flight is none, and one comes two days late.
const FLIGHTS: &str = "\
origin,scheduled_ms,delay_min
JFK,1357034400000,2
LGA,1357041600000,-4
JFK,1357048800000,33
JFK,not a time,1
JFK,1357207200000,5
";

fn delays(dir: &Path) -> Ran {
    Command::new(program("delays")).args(["--dir", "data"]).current_dir(dir).output().expect("it starts").into()
}

/// The values in a topic, from the outside.
fn values(dir: &Path, topic: &str) -> Vec<String> {
    let log = Log::open(&Platform::real(), &dir.join("data/log"), LogOptions::default()).expect("a log");
    let found = log.topic(topic).unwrap_or_else(|| panic!("no topic {topic}"));
    let mut values = vec![];
    for partition in 0..found.partitions {
        let mut reader = log.consumer(found.id, partition, Offset(0), Isolation::ReadCommitted).expect("a reader");
        while reader.position() < reader.readable_end() {
            let fetched = reader.poll(1 << 20).expect("readable");
            let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap_or_default().to_vec()).expect("text");
            fetched.for_each(|record| values.push(text(record.value))).expect("sound");
        }
    }
    log.close().expect("a clean close");
    values
}

#[test]
fn the_first_program_runs_as_the_readme_says_and_again_without_a_second_result() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("flights.csv"), FLIGHTS).expect("a file");
    for start in ["first", "second"] {
        let ran = delays(dir.path());
        assert_eq!(ran.code, Some(0), "{start}: {}", ran.err);
        let mut days = values(dir.path(), "delays");
        days.sort_unstable();
        let expected = [
            r#"{"origin":"JFK","start_ms":1356998400000,"flights":2,"delay_min":35}"#,
            r#"{"origin":"JFK","start_ms":1357171200000,"flights":1,"delay_min":5}"#,
            r#"{"origin":"LGA","start_ms":1356998400000,"flights":1,"delay_min":-4}"#,
        ];
        assert_eq!(days, expected, "{start}");
        assert_eq!(values(dir.path(), "flights.dead-letter"), ["JFK,not a time,1"], "{start}");
    }
}

#[test]
fn the_first_program_without_its_file_says_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = delays(dir.path());
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("flights.csv") && ran.err.contains("there is no such file"), "{}", ran.err);
}

/// What stands in the README is the example, below its head.
#[test]
fn the_readme_shows_the_example() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("readable");
    let (readme, example) = (read("README.md"), read("examples/delays.rs"));
    let code: String = example.split_inclusive('\n').skip_while(|line| line.starts_with("//!")).collect();
    assert!(readme.contains(code.trim()), "README.md must show examples/delays.rs word for word");
    assert!(readme.contains(FLIGHTS), "README.md must show the rows that the example is tested with");
}
