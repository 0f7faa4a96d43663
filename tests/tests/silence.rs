//! The example `silence` as a program.

#![expect(clippy::disallowed_methods, reason = "a test writes a real file and starts real processes")]

mod example;

use std::process::Command;

use example::{Ran, program};

#[test]
fn silence_and_jumps_are_said_once_each_and_the_end_of_the_input_is_no_silence() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("readings.txt");
    let early = "0 kiln 800\n5 drill 60.5\n9 drill 61\n20 kiln 815\nseven kiln 1\n";
    // The watermark goes on behind a batch.
    let later: String = (0..20_000).map(|i| format!("{} kiln 815\n", 30 + i / 200)).collect();
    std::fs::write(&file, [early, &later].concat()).expect("a file");
    for workers in ["1", "3"] {
        let mut command = Command::new(program("silence"));
        command.arg(&file).args(["--workers", workers]).env("TMPDIR", dir.path());
        let ran: Ran = command.output().expect("the program starts").into();
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let mut lines: Vec<&str> = ran.out.lines().collect();
        lines.sort_unstable();
        let expected = [
            "drill is silent since 9",
            "kiln jumps from 800 to 815",
            "not a reading: \"seven kiln 1\", invalid digit found in string",
        ];
        assert_eq!(lines, expected, "{workers} workers");
        assert!(ran.err.contains("balanced"), "{}", ran.err);
    }
}
