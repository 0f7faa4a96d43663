//! The example `visits` as a program.

#![expect(clippy::disallowed_methods, reason = "a test writes a real file and starts real processes")]

mod example;

use std::process::Command;

use example::{Ran, program};

fn visits(clicks: &str, workers: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("clicks.txt");
    std::fs::write(&file, clicks).expect("a file");
    let mut command = Command::new(program("visits"));
    command.arg(&file).args(["--workers", workers]).env("TMPDIR", dir.path());
    command.output().expect("the program starts").into()
}

/// Two visits of ada, the second put together by a click that comes last; one of bob; one of carl; a line that is none.
const CLICKS: &str = "\
0 ada /
1700 ada /shop
10 bob /
5000 ada /
4990 ada /help
6600 ada /shop
6610 carl /
eleven ada /
";

#[test]
fn every_visit_is_said_once_and_so_is_what_came_late_or_is_no_click() {
    for workers in ["1", "3"] {
        // The watermark goes on behind a batch, so many clicks lie between the late one and what it is late for.
        let clicks = [CLICKS, &"6700 dora /\n".repeat(20_000), "20 carl /\n"].concat();
        let ran = visits(&clicks, workers);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let mut lines: Vec<&str> = ran.out.lines().collect();
        lines.sort_unstable();
        let expected = [
            "ada from 0 to 1700: 2 pages",
            "ada from 4990 to 6600: 3 pages",
            "bob from 10 to 10: 1 pages",
            "carl from 6610 to 6610: 1 pages",
            "dora from 6700 to 6700: 20000 pages",
            "late: a click of carl",
            "not a click: \"eleven ada /\", invalid digit found in string",
        ];
        assert_eq!(lines, expected, "{workers} workers");
        assert!(ran.err.contains("balanced"), "{}", ran.err);
    }
}
