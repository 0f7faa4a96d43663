//! The example `top_ips` beside the pipeline whose twin it is.

#![expect(clippy::disallowed_methods, reason = "a test writes a real file and starts real processes")]

mod example;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use cutwater_platform::SplitMix;
use example::program;

const LINES: usize = 20_000;

/// Lines as a web server writes them, and some that it doesn't: blanks in front, tabs, nothing at all, no line end at the end.
fn access_log() -> Vec<u8> {
    let mut random = SplitMix::new(11);
    let mut log = Vec::new();
    for line in 0..LINES {
        // A few ask often, many seldom, so that there are ties.
        let bits = 1 + random.below(13);
        let host = random.below(1 << bits);
        let address = format!("10.{}.{}.{}", bits, host >> 8, host & 255);
        let rest = "- - [01/Jan/2013:00:00:00 +0000] \"GET / HTTP/1.1\" 200 512";
        match line % 997 {
            0 => log.extend_from_slice(format!("  {address} {rest}\n").as_bytes()),
            1 => log.extend_from_slice(format!("{address}\t{rest}\n").as_bytes()),
            2 => log.extend_from_slice(b"\n"),
            3 => log.extend_from_slice(b"\xff\xfe not text\n"),
            _ => log.extend_from_slice(format!("{address} {rest}\n").as_bytes()),
        }
    }
    log.extend_from_slice(b"192.168.0.1");
    log
}

fn pipeline(log: &Path) -> Vec<u8> {
    let script = "awk '{print $1}' \"$0\" | sort | uniq -c | sort -n";
    let ran =
        Command::new("sh").args(["-c", script]).arg(log).env("LC_ALL", "C").output().expect("sh, awk, sort and uniq");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout
}

fn stdout(ran: &Output) -> &[u8] {
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    &ran.stdout
}

#[test]
fn it_prints_what_awk_sort_and_uniq_print_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("access.log");
    fs::write(&file, access_log()).expect("written");
    let expected = pipeline(&file);
    assert!(expected.len() > 10_000);
    for workers in ["1", "3"] {
        let from_file =
            Command::new(program("top_ips")).arg(&file).args(["--workers", workers]).output().expect("it starts");
        assert!(stdout(&from_file) == expected, "from a file with {workers} workers");
        let input = Stdio::from(File::open(&file).expect("just written"));
        let from_stdin =
            Command::new(program("top_ips")).args(["--workers", workers]).stdin(input).output().expect("it starts");
        assert!(stdout(&from_stdin) == expected, "from standard input with {workers} workers");
    }
}

#[test]
fn an_empty_log_gives_nothing_and_a_missing_one_an_error() {
    let empty = Command::new(program("top_ips")).stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(stdout(&empty), b"");
    let dir = tempfile::tempdir().expect("a directory");
    let mut missing = Command::new(program("top_ips"));
    // What a failed run keeps goes away with the test.
    let missing = missing.arg("no-such.log").env("TMPDIR", dir.path()).output().expect("it starts");
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stdout.is_empty());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such.log"));
}
