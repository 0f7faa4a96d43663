//! The example `flights` as a program: straight, killed, resumed, and with every wrong input that a user may give it.

#![expect(clippy::disallowed_methods, reason = "tests look at the real file system and start real processes")]

mod example;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use example::{Ran, files, program, root};

const EQUAL: &str =
    "The three topics equal, row for row, what plain Rust computes from the file; so do the published totals.";

const HEADER: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,\
                      tailnum,origin,dest,air_time,distance,hour,minute,time_hour";

fn flights() -> Command {
    let mut command = Command::new(program("flights"));
    command.env_remove("CUTWATER_CRASH_AT");
    command
}

fn run(args: &[&str]) -> Ran {
    flights().args(args).output().expect("the program starts").into()
}

fn run_in(dir: &Path, args: &[&str]) -> Ran {
    let dir = ["--dir", dir.to_str().expect("a name in Unicode")];
    run(&[&dir, args].concat())
}

/// Runs until the process kills itself at a crash point.
fn crash_in(dir: &Path, point: &str, args: &[&str]) {
    use std::os::unix::process::ExitStatusExt;
    let status =
        flights().arg("--dir").arg(dir).args(args).env("CUTWATER_CRASH_AT", point).output().expect("it starts").status;
    assert_eq!(status.signal(), Some(9), "{point} was not reached");
}

#[track_caller]
fn assert_equal(ran: &Ran) {
    assert!(ran.code == Some(0) && ran.out.contains(EQUAL), "exit {:?}\n{}\n{}", ran.code, ran.out, ran.err);
}

/// The run was refused with this code, and said each of `texts`.
#[track_caller]
fn assert_refused(ran: &Ran, code: i32, texts: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}\n{}", ran.out, ran.err);
    for text in texts {
        assert!(ran.err.contains(text), "{text:?} is missing in:\n{}", ran.err);
    }
}

#[test]
fn january_comes_out_equal_and_the_report_is_printed() {
    let ran = run(&[]);
    assert_equal(&ran);
    for text in [
        "27224 rows, 20 broken and 200 late among them; loaded in one transaction",
        "exactly-once (aligned snapshots every 1s)",
        "books         balanced",
        "delays                   93 rows",
        "flights.late            200 rows",
        "flights.dead-letter      20 rows",
    ] {
        assert!(ran.out.contains(text), "{text:?} is missing in:\n{}", ran.out);
    }
}

#[test]
fn quiet_says_nothing_when_all_is_well_and_what_is_wrong_when_not() {
    let ran = run(&["--quiet", "--kills", "2"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""));
    assert_refused(&run(&["--quiet", "--data", "/no/such/file"]), 3, &["/no/such/file"]);
}

#[test]
fn a_reader_that_has_seen_enough_changes_nothing() {
    for args in [&[][..], &["--kills", "2"]] {
        let mut command = flights();
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        lines.next().expect("a first line").expect("text");
        drop(lines);
        let ran = Ran::from(child.wait_with_output().expect("our child"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn twenty_kills_change_nothing() {
    let ran = run(&["--kills", "20"]);
    assert_equal(&ran);
    assert!(ran.out.contains("20 kills landed"), "{}", ran.out);
    assert_eq!(ran.out.lines().filter(|line| line.starts_with("kill ")).count(), 20, "{}", ran.out);
}

#[test]
fn stopped_processes_are_killed_by_their_successors_and_the_result_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let result = dir.path().join("kills.txt");
    let ran = run(&["--kills", "6", "--zombies", "--result", result.to_str().expect("Unicode")]);
    assert_equal(&ran);
    assert!(
        ran.out.contains("3 processes were stopped, and each was killed by the one that took its place"),
        "{}",
        ran.out
    );
    let text = std::fs::read_to_string(&result).expect("it was written");
    for line in [
        "kills landed                            6",
        "stopped, killed by successor            3",
        "--seed 2013",
        "commit ",
    ] {
        assert!(text.contains(line), "{line:?} is missing in:\n{text}");
    }
}

#[test]
fn a_finished_directory_says_so_and_is_checked_again() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_equal(&run_in(dir.path(), &[]));
    let again = run_in(dir.path(), &[]);
    assert_equal(&again);
    assert!(again.out.contains("had finished before; nothing was done"), "{}", again.out);
    assert!(again.out.contains("loaded by an earlier run"), "{}", again.out);
    assert_refused(&run_in(dir.path(), &["--kills", "3"]), 7, &["did not land", "a new directory"]);
}

#[test]
fn a_loader_that_was_killed_leaves_nothing_behind() {
    // The frames before the rows create the topics and claim the log.
    for nth in [1, 3, 4, 5] {
        let dir = tempfile::tempdir().expect("a directory");
        crash_in(dir.path(), &format!("log.frame-written#{nth}"), &[]);
        let ran = run_in(dir.path(), &[]);
        assert_equal(&ran);
        assert!(ran.out.contains("loaded in one transaction"), "{}", ran.out);
    }
}

#[test]
fn a_killed_run_is_resumed_by_the_next_one() {
    for point in ["sink.prepared", "coordinator.published", "group.committed"] {
        let dir = tempfile::tempdir().expect("a directory");
        crash_in(dir.path(), point, &["--rate", "60000", "--checkpoint-every", "50"]);
        assert_equal(&run_in(dir.path(), &[]));
    }
}

#[test]
fn kills_that_cannot_land_are_a_failure_and_the_temporary_directory_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let one_flight = dir.path().join("one.csv");
    let row = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z";
    std::fs::write(&one_flight, format!("{HEADER}\n{row}\n")).expect("written");
    let data = one_flight.to_str().expect("Unicode");
    // One transaction is all that one flight needs, and this seed waits for the third.
    let ran = run(&["--data", data, "--stragglers", "0", "--mangled", "0", "--kills", "1", "--seed", "2013"]);
    assert_refused(&ran, 7, &["kill 1 of 1", "did not land", "--rate"]);
    let kept = ran.err.lines().find_map(|line| line.strip_prefix("the data is kept in ")).expect("a directory");
    assert!(Path::new(kept).join("log").exists());
    std::fs::remove_dir_all(kept).expect("the kept directory is there");
}

#[test]
fn a_wrong_data_file_is_named_before_anything_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, file) = (dir.path().join("data"), dir.path().join("file"));
    let tried = |bytes: Option<&[u8]>, texts: &[&str]| {
        if let Some(bytes) = bytes {
            std::fs::write(&file, bytes).expect("written");
        }
        let ran = run_in(&data, &["--data", file.to_str().expect("Unicode")]);
        assert_refused(&ran, 3, &[texts, &[file.to_str().expect("Unicode"), "next: give a CSV file"]].concat());
        assert!(!data.exists());
    };
    tried(None, &["could not be read", "No such file"]);
    tried(Some(b"\x7fELF rubbish"), &["is no file of flights"]);
    tried(Some(b"\x1f\x8b\x08 rubbish"), &["could not be read"]);
    tried(Some(format!("{HEADER}\n2013,1,1,517\n").as_bytes()), &["line 2: has 4 fields instead of 19"]);
}

#[test]
fn another_seed_or_file_on_a_loaded_directory_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_equal(&run_in(dir.path(), &[]));
    let topics = || files(&dir.path().join("log/partitions"));
    let before = topics();
    for (flag, value, text) in
        [("--seed", "7", "--seed 2013"), ("--mangled", "3", "--mangled 20"), ("--stragglers", "9", "--stragglers 200")]
    {
        assert_refused(
            &run_in(dir.path(), &[flag, value]),
            4,
            &["was loaded with", text, "nothing was changed", "next: "],
        );
    }
    assert_eq!(before, topics());
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("thesis.tex"), "years of work").expect("written");
    let before = files(dir.path());
    assert_refused(
        &run_in(dir.path(), &[]),
        4,
        &["thesis.tex", "nothing was changed", "next: give an empty directory"],
    );
    assert_eq!(before, files(dir.path()));
    // A log directory that is something else's.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("log")).expect("created");
    std::fs::write(dir.path().join("log/syslog"), "kernel: all is well").expect("written");
    let before = files(dir.path());
    assert_refused(&run_in(dir.path(), &[]), 4, &["syslog", "is no log"]);
    assert_eq!(before, files(dir.path()));
    // A file where a directory should be.
    let file = dir.path().join("file");
    std::fs::write(&file, "text").expect("written");
    assert_refused(&run_in(&file, &[]), 4, &[file.to_str().expect("Unicode")]);
}

#[test]
fn a_directory_in_use_is_refused_and_its_holder_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut holder: Child = flights()
        .arg("--dir")
        .arg(dir.path())
        .args(["--rate", "100"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    // The job claims its attempt once it has the log.
    let since = Instant::now();
    while !dir.path().join("checkpoints/attempts/00000001").exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "the job does not start");
        std::thread::yield_now();
    }
    let ran = run_in(dir.path(), &["--seed", "1"]);
    holder.kill().expect("killed");
    holder.wait().expect("waited");
    assert_refused(&ran, 4, &[&format!("process {}", holder.id()), "next: wait until that process has ended"]);
}

#[test]
fn a_corrupt_snapshot_is_named_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    crash_in(dir.path(), "group.commit-sent#4", &["--rate", "60000", "--checkpoint-every", "50"]);
    let checkpoints = dir.path().join("checkpoints");
    for (path, bytes) in files(&checkpoints).iter().filter(|(path, _)| path.to_string_lossy().contains("/state/")) {
        let mut bytes = bytes.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).expect("written");
    }
    let snapshots = || {
        files(&checkpoints)
            .into_iter()
            .filter(|(path, _)| path.to_string_lossy().contains("/state/"))
            .collect::<Vec<_>>()
    };
    let before = snapshots();
    assert!(!before.is_empty());
    let ran = run_in(dir.path(), &[]);
    let texts = [
        dir.path().to_str().expect("Unicode"),
        "windows",
        "is damaged",
        "checksum",
        "bring it back from a copy",
        "next: ",
    ];
    assert_refused(&ran, 1, &texts);
    assert_eq!(before, snapshots());
}

#[test]
fn a_wrong_flag_is_explained() {
    assert_refused(&run(&["--kill", "3"]), 2, &["unexpected argument '--kill'", "--kills"]);
    assert_refused(&run(&["--rate", "0"]), 2, &["--rate"]);
    let help = run(&["--help"]);
    assert!(help.code == Some(0) && help.out.contains("Exit codes:") && help.out.contains("--kills"), "{}", help.out);
}

#[test]
fn a_child_dies_with_its_parent() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut parent: Child = flights()
        .arg("--dir")
        .arg(dir.path())
        .args(["--kills", "2", "--rate", "500"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(parent.stdout.take().expect("piped")).lines();
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.starts_with("kill ")))
        .expect("a kill is told")
        .expect("text");
    let id = parent.id();
    let children = || children_in(dir.path(), id);
    assert!(!children().is_empty());
    parent.kill().expect("killed");
    let since = Instant::now();
    while !children().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(10), "the child lives on");
        std::thread::yield_now();
    }
    parent.wait().expect("waited");
}

/// Processes other than `parent` that have `dir` on their command line.
fn children_in(dir: &Path, parent: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .expect("a proc file system")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != parent && String::from_utf8_lossy(&command).contains(dir.to_str().expect("Unicode"))
    };
    pids.filter(is_ours).collect()
}

#[test]
fn the_independent_reader_names_no_crate_of_cutwater() {
    for (path, bytes) in files(&root().join("examples/flights/independent")) {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("cutwater") && !text.contains("crate::"), "{}", path.display());
    }
}
