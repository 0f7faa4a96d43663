//! The example `word_count` as a program.

mod example;

use std::collections::BTreeMap;
use std::process::Command;

use example::{Ran, program};

fn word_count(args: &[&str]) -> Ran {
    // What a failed run keeps goes away with the test.
    let dir = tempfile::tempdir().expect("a directory");
    Command::new(program("word_count"))
        .args(args)
        .env("TMPDIR", dir.path())
        .output()
        .expect("the program starts")
        .into()
}

#[test]
fn every_word_comes_once_with_its_count() {
    let text = include_str!("word_count.rs");
    let ran = word_count(&[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/word_count.rs"), "--workers", "2"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    text.split_whitespace().for_each(|word| *expected.entry(word).or_default() += 1);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = expected.iter().map(|(word, count)| format!("{count} {word}")).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert!(ran.err.contains("balanced"), "{}", ran.err);
}

#[test]
fn a_missing_file_and_a_guarantee_that_a_terminal_cant_honour_are_refused() {
    let missing = word_count(&["no-such-file.txt"]);
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    assert!(
        missing.err.contains("no-such-file.txt") && missing.err.contains("there is no such file"),
        "{}",
        missing.err
    );
    let promised = word_count(&["no-such-file.txt", "--guarantee", "exactly-once"]);
    assert_eq!(promised.code, Some(2), "{}", promised.err);
    assert!(promised.err.contains("what was printed can't be taken back"), "{}", promised.err);
}
