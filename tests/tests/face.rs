//! The face of a job as a person or a script meets it: real processes, their exit codes, what they write where.
//!
//! This binary starts itself as the job: see `the_job`.

#![expect(clippy::disallowed_methods, reason = "tests look at the real file system and clock and start real processes")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cutwater::connectors::generator::{generate, generate_forever};
use cutwater::connectors::print::print;
use cutwater::prelude::*;

#[path = "face/orders.rs"]
mod orders;

/// Says which job the child is.
const JOB: &str = "FACE_TEST_JOB";
/// The child's command line, one argument per line.
const ARGS: &str = "FACE_TEST_ARGS";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Not a test but the job that the tests below start. It does nothing without its variable.
#[test]
fn the_job() {
    let (Ok(job), Ok(args)) = (std::env::var(JOB), std::env::var(ARGS)) else { return };
    let args = std::iter::once("face").chain(args.lines()).map(OsString::from).collect::<Vec<_>>();
    let build = match job.as_str() {
        "print" => print_ten,
        "print-slowly" => print_slowly,
        "print-much" => print_a_million,
        "print-and-write" => print_and_write,
        "panic" => panic_at_five,
        "count" => count_hundred,
        "sum" => count_otherwise,
        "forever" => write_forever,
        "count-forever" => count_forever,
        "count-forever-renamed" => count_forever_renamed,
        "stuck" => stuck,
        other => panic!("no job {other:?}"),
    };
    std::process::exit(cutwater::main_from("face", args, build) as i32);
}

fn print_ten(job: &Job) -> Result<(), BuildError> {
    job.source("numbers", generate(job, 10, |n| n)).map(|n| format!("number {n}")).sink("out", print());
    Ok(())
}

fn print_slowly(job: &Job) -> Result<(), BuildError> {
    let numbers = job.source("numbers", generate(job, 60, |n| n).per_second(100));
    numbers.map(|n| format!("number {n}")).sink("out", print());
    Ok(())
}

fn print_a_million(job: &Job) -> Result<(), BuildError> {
    job.source("numbers", generate(job, 1_000_000, |n| n)).sink("out", print());
    Ok(())
}

fn print_and_write(job: &Job) -> Result<(), BuildError> {
    let numbers = job.source("numbers", generate(job, 1_000_000, |n| n));
    let (printed, written) = numbers.fork();
    printed.sink("out", print());
    written.sink("numbers-written", job.log().write("numbers").value(Json));
    Ok(())
}

fn panic_at_five(job: &Job) -> Result<(), BuildError> {
    let numbers = job.source("numbers", generate(job, 10, |n| n));
    numbers.inspect(|n| assert!(*n != 5, "five is right out")).sink("out", print());
    Ok(())
}

fn count_hundred(job: &Job) -> Result<(), BuildError> {
    let counts = job.source("numbers", generate(job, 100, |n| n)).key_by(|n| n % 7).count_at_end("rests");
    counts.sink("out", job.log().write("rests").value(Json));
    Ok(())
}

fn count_otherwise(job: &Job) -> Result<(), BuildError> {
    let counts = job.source("numbers", generate(job, 100, |n| n)).key_by(|n| n % 7).count("rests");
    counts.sink("out", job.log().write("rests").value(Json));
    Ok(())
}

fn write_forever(job: &Job) -> Result<(), BuildError> {
    let numbers = job.source("numbers", generate_forever(job, |n| n).per_second(1_000));
    numbers.sink("out", job.log().write("numbers").value(Json));
    Ok(())
}

fn count_forever(job: &Job) -> Result<(), BuildError> {
    let counts = job.source("numbers", generate_forever(job, |n| n).per_second(1_000)).key_by(|n| n % 7).count("rests");
    counts.sink("out", job.log().write("rests").value(Json));
    Ok(())
}

fn count_forever_renamed(job: &Job) -> Result<(), BuildError> {
    let numbers = job.source("numbers", generate_forever(job, |n| n).per_second(1_000)).map(|n| n % 7);
    numbers.key_by(|n| *n).count("remainders").sink("out", job.log().write("rests").value(Json));
    Ok(())
}

fn stuck(job: &Job) -> Result<(), BuildError> {
    let numbers = job.source("numbers", generate(job, 10, |n| n));
    numbers.inspect(|_| std::thread::sleep(PATIENCE)).sink("out", print());
    Ok(())
}

/// Starts a job with a command line.
fn command(job: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "the_job", "--nocapture"]).env(JOB, job).env(ARGS, args.join("\n"));
    for variable in [
        "DIR",
        "WORKERS",
        "GUARANTEE",
        "INTERVAL",
        "RETAIN",
        "QUIET",
        "TAKE_OVER",
        "PAUSE",
        "IN_FLIGHT",
        "TIMEOUT",
        "DECLINED",
    ] {
        command.env_remove(format!("CUTWATER_{variable}"));
    }
    command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    /// Standard output without what the test harness says.
    out: Vec<String>,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let ours = |line: &&str| !line.is_empty() && !line.starts_with("running ") && !line.starts_with("test ");
        let out = out.lines().filter(ours).map(str::to_owned).collect();
        Ran { code: output.status.code(), out, err: String::from_utf8_lossy(&output.stderr).into_owned() }
    }
}

fn ran(job: &str, args: &[&str]) -> Ran {
    command(job, args).output().expect("a process starts").into()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directories work")
}

fn text(dir: &Path) -> &str {
    dir.to_str().expect("a path in UTF-8")
}

/// Waits until a job has published a checkpoint in `dir`.
fn wait_for_checkpoint(dir: &Path, child: &mut Child) {
    let (since, manifests) = (Instant::now(), dir.join("checkpoints/manifests"));
    while std::fs::read_dir(&manifests).map_or(0, Iterator::count) == 0 {
        assert!(since.elapsed() < PATIENCE, "no checkpoint in {}", manifests.display());
        assert!(child.try_wait().expect("our child").is_none(), "the job ended before its first checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a job says that it begins: it listens to signals then. Answers the rest of its standard error.
fn first_line(child: &mut Child) -> BufReader<ChildStderr> {
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    err.read_line(&mut line).expect("the job says how it begins");
    assert!(line.contains("data in"), "{line}");
    err
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(status.success());
}

#[test]
fn data_goes_to_standard_output_and_everything_else_to_standard_error() {
    let done = ran("print", &["--guarantee", "at-most-once", "--workers", "1"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.out, (0..10).map(|n| format!("number {n}")).collect::<Vec<_>>());
    assert!(done.err.contains("face: at-most-once (no checkpoints), 1 worker thread"), "{}", done.err);
    assert!(done.err.contains("balanced"), "{}", done.err);

    let quiet = ran("print", &["--guarantee", "at-most-once", "--workers", "1", "--quiet"]);
    assert_eq!((quiet.code, quiet.out.len(), quiet.err.as_str()), (Some(0), 10, ""));
}

/// Runs a job, reads its first line of data and closes the pipe, as `| head -1` does.
fn head(job: &str, args: &[&str]) -> Ran {
    let mut child = command(job, args).spawn().expect("a process starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| line.parse::<u64>().is_ok()));
    drop(lines);
    let ran = Ran::from(child.wait_with_output().expect("our child"));
    Ran { out: first.into_iter().flatten().collect(), ..ran }
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_job_quietly() {
    for workers in ["1", "2"] {
        let ran = head("print-much", &["--guarantee", "at-most-once", "--workers", workers, "--quiet"]);
        assert_eq!((ran.code, ran.out.len(), ran.err.as_str()), (Some(0), 1, ""));
    }
    // Other output would be cut off without a word.
    let ran = head("print-and-write", &["--guarantee", "at-most-once", "--workers", "1", "--quiet"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("error: out: whoever read it has gone away") && !ran.err.contains("panic"), "{}", ran.err);
    let kept = ran.err.lines().find_map(|line| line.split_once("the data is kept in ")).expect("it is named").1;
    std::fs::remove_dir_all(kept.split(';').next().expect("a path")).expect("cleaned up");
}

/// Both ends of a new terminal.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
    let name = ptsname(&ours, vec![]).expect("it has a name").into_string().expect("in ASCII");
    let theirs = File::options().read(true).write(true).open(name).expect("it is there");
    (File::from(ours), theirs)
}

/// The lines that stay on a terminal, as far as this program moves about on it: to the left, and up by clearing a line.
fn screen(bytes: &str) -> Vec<String> {
    let (mut lines, mut line, mut column) = (vec![], Vec::<char>::new(), 0);
    let mut rest = bytes.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' => lines.push(std::mem::take(&mut line).into_iter().collect()),
            '\r' => column = 0,
            '\u{1b}' => {
                let code: String = std::iter::from_fn(|| rest.next_if(|c| !c.is_ascii_alphabetic())).collect();
                match (code.as_str(), rest.next()) {
                    ("[2", Some('K')) => line.clear(),
                    ("[" | "[0", Some('K')) => line.truncate(column),
                    _ => {}
                }
            }
            c => {
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
    }
    lines.push(line.into_iter().collect());
    lines
}

#[test]
fn data_and_progress_on_one_terminal_do_not_mix() {
    let (mut ours, theirs) = terminal();
    let mut command = command("print-slowly", &["--guarantee", "at-most-once", "--workers", "1"]);
    command.env("TERM", "xterm").stdout(theirs.try_clone().expect("cloned")).stderr(theirs);
    let mut child = command.spawn().expect("a process starts");
    drop(command);
    let mut bytes = vec![];
    // Linux answers EIO when the last one has closed the other end.
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = ours.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..n]);
    }
    assert_eq!(child.wait().expect("our child").code(), Some(0));
    let bytes = String::from_utf8_lossy(&bytes);
    let first_progress = bytes.find("records read").expect("progress was drawn");
    assert!(first_progress < bytes.rfind("number ").expect("data"), "while data was printed: {bytes:?}");
    let lines = screen(&bytes);
    let data: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.contains("number ")).collect();
    assert_eq!(data, (0..60).map(|n| format!("number {n}")).collect::<Vec<_>>(), "{bytes:?}");
    assert!(!lines.iter().any(|line| line.contains("records read")), "progress is taken away: {lines:?}");
}

#[test]
fn wrong_usage_is_2_and_asking_for_help_is_not_wrong() {
    for args in [
        &["--nonsense"][..],
        &["--interval", "5"],
        &["--guarantee", "at-most-once", "--retain", "2"],
        &["--workers", "0"],
    ] {
        let wrong = ran("count", args);
        assert_eq!(wrong.code, Some(2), "{args:?}: {wrong:?}");
        assert!(wrong.out.is_empty() && !wrong.err.is_empty(), "{args:?}: {wrong:?}");
    }
    let help = ran("count", &["--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    assert!(help.out.iter().any(|line| line.contains("CUTWATER_DIR")), "{help:?}");
    let version = ran("count", &["--version"]);
    assert_eq!((version.code, version.out.len()), (Some(0), 1), "{version:?}");
}

#[test]
fn a_guarantee_that_a_sink_cannot_honour_is_refused_before_anything_runs() {
    let refused = ran("print", &[]);
    assert_eq!((refused.code, refused.out.len()), (Some(2), 0), "{refused:?}");
    assert!(refused.err.contains("can't honour exactly-once"), "{}", refused.err);
}

#[test]
fn a_job_explains_itself_and_does_nothing() {
    let dir = temporary();
    let explained = ran("count", &["--explain", "--dir", text(dir.path()), "--interval", "250ms"]);
    assert_eq!(explained.code, Some(0), "{explained:?}");
    let all = explained.out.join("\n");
    for part in [
        "exactly-once (aligned snapshots every 250ms)",
        "count_at_end",
        "by key",
        "reads again from the positions",
        "rests/counts: version 1",
        "commits in group",
    ] {
        assert!(all.contains(part), "{part:?} in {all}");
    }
    assert!(!dir.path().join("checkpoints").exists(), "nothing was run");
}

#[test]
fn a_failure_is_1_and_the_temporary_directory_is_kept_and_named() {
    let failed = ran("panic", &["--guarantee", "at-most-once", "--workers", "1"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("five is right out"), "{}", failed.err);
    let kept = failed.err.lines().find_map(|line| line.split_once("the data is kept in ")).expect("it is named").1;
    let kept = Path::new(kept.split(';').next().expect("a path"));
    assert!(kept.exists());
    std::fs::remove_dir_all(kept).expect("cleaned up");
}

#[test]
fn a_finished_job_does_nothing_again_and_another_program_is_incompatible() {
    let dir = temporary();
    let args = ["--dir", text(dir.path()), "--interval", "20ms"];
    let first = ran("count", &args);
    assert_eq!(first.code, Some(0), "{first:?}");
    let again = ran("count", &args);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("had finished before"), "{}", again.err);
    let other = ran("sum", &args);
    assert_eq!(other.code, Some(8), "{other:?}");
    assert!(other.err.contains("another job graph"), "{}", other.err);
}

#[test]
fn a_changed_program_is_told_what_would_become_of_the_state_and_refused_while_that_is_not_clear() {
    let dir = temporary();
    let args = ["--dir", text(dir.path()), "--interval", "20ms"];
    let mut child = command("count-forever", &args).spawn().expect("a process starts");
    let mut err = first_line(&mut child);
    wait_for_checkpoint(dir.path(), &mut child);
    interrupt(&child);
    err.read_to_string(&mut String::new()).expect("the job says how it ends");
    assert_eq!(child.wait().expect("our child").code(), Some(130));

    let with = |more: &[&str]| ran("count-forever", &[&args[..], more].concat());
    let shown = with(&["--state", "rests", "--key", "3"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let lines = shown.out.join("\n");
    assert!(lines.contains("rests/counts") && lines.contains("7 keys") && lines.contains("\n  3: "), "{lines}");
    let listed = with(&["--checkpoints"]).out;
    let numbers: Vec<&str> =
        listed.iter().filter_map(|line| line.trim().strip_prefix("checkpoint ")?.split(' ').next()).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let compared = with(&["--compare", first, last]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
    let lines = compared.out.join("\n");
    assert!(lines.contains(&format!("from checkpoint {first} to {last}")) && lines.contains("rests/counts"), "{lines}");
    for (wrong, words) in [(["--state", "remainders"], "rests/counts"), (["--state", "out"], "has no state")] {
        let refused = with(&wrong);
        assert!(refused.code != Some(0) && refused.err.contains(words), "{refused:?}");
    }

    let same = ran("count-forever", &[&args[..], &["--check-upgrade"]].concat());
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.out.join("\n").contains("the same graph"), "{same:?}");
    let other = ran("count-forever-renamed", &[&args[..], &["--check-upgrade"]].concat());
    assert_eq!(other.code, Some(8), "{other:?}");
    let table = other.out.join("\n");
    assert!(table.contains("remainders") && table.contains("WOULD BE LOST"), "{table}");
    let run = ran("count-forever-renamed", &args);
    assert_eq!(run.code, Some(8), "{run:?}");
    assert!(run.err.contains("--allow-dropped rests") && run.err.contains(".was(\"rests\")"), "{}", run.err);
    let allowed = ran("count-forever-renamed", &[&args[..], &["--check-upgrade", "--allow-dropped", "rests"]].concat());
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
}

#[test]
fn an_interrupted_job_takes_a_last_checkpoint_and_goes_on_when_it_is_run_again() {
    let dir = temporary();
    let args = ["--dir", text(dir.path()), "--interval", "20ms"];
    for _ in 0..2 {
        let mut child = command("forever", &args).spawn().expect("a process starts");
        let mut err = first_line(&mut child);
        wait_for_checkpoint(dir.path(), &mut child);
        interrupt(&child);
        let mut told = String::new();
        err.read_to_string(&mut told).expect("the job says how it ends");
        assert_eq!(child.wait().expect("our child").code(), Some(130), "{told}");
        assert!(told.contains("stopped before its end") && told.contains("balanced"), "{told}");
    }
}

#[test]
fn a_directory_in_use_is_4_and_can_be_taken_over() {
    let dir = temporary();
    let args = ["--dir", text(dir.path()), "--interval", "20ms"];
    let mut holder = command("forever", &args).spawn().expect("a process starts");
    wait_for_checkpoint(dir.path(), &mut holder);
    let second = ran("forever", &args);
    assert_eq!(second.code, Some(4), "{second:?}");
    assert!(second.err.contains(&holder.id().to_string()) && second.err.contains("--take-over"), "{}", second.err);

    let mut heir = command("forever", &[&args[..], &["--take-over"]].concat()).spawn().expect("a process starts");
    let _err = first_line(&mut heir);
    let dead = Ran::from(holder.wait_with_output().expect("our child"));
    assert_eq!(dead.code, None, "killed: {dead:?}");
    interrupt(&heir);
    assert_eq!(heir.wait().expect("our child").code(), Some(130));
}

#[test]
fn a_second_interrupt_ends_a_job_that_is_stuck() {
    let mut child =
        command("stuck", &["--guarantee", "at-most-once", "--workers", "1"]).spawn().expect("a process starts");
    let since = Instant::now();
    let mut err = first_line(&mut child);
    interrupt(&child);
    let mut line = String::new();
    err.read_line(&mut line).expect("the job says that it is stopping");
    assert!(line.contains("once more"), "{line}");
    interrupt(&child);
    assert_eq!(child.wait().expect("our child").code(), Some(130));
    assert!(since.elapsed() < PATIENCE, "it did not wait for the stuck function");
}

#[test]
fn checkpoints_are_listed_and_damage_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().to_string_lossy().into_owned();
    let nothing = ran("count", &["--dir", &at, "--checkpoints"]);
    assert_eq!(nothing.code, Some(4), "{nothing:?}");
    assert!(nothing.err.contains("no job has taken a checkpoint here"), "{}", nothing.err);
    let nowhere = ran("count", &["--checkpoints"]);
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");

    let done = ran("count", &["--dir", &at, "--workers", "2", "--interval", "5ms"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let listed = ran("count", &["--dir", &at, "--checkpoints"]);
    assert_eq!((listed.code, listed.err.as_str()), (Some(0), ""), "{listed:?}");
    let text = listed.out.join("\n");
    assert!(text.contains("committed, final: 2 workers") && text.contains("rests counts:"), "{text}");

    let state = dir.path().join("checkpoints/state");
    let files = std::fs::read_dir(&state).expect("state files").map(|e| e.expect("an entry").path());
    let file = files.max_by_key(|path| path.metadata().map_or(0, |m| m.len())).expect("a state file");
    let mut bytes = std::fs::read(&file).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).expect("writable");
    let damaged = ran("count", &["--dir", &at, "--checkpoints"]);
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    let name = file.file_name().expect("a name").to_string_lossy();
    assert!(damaged.out.iter().any(|line| line.contains("DAMAGED") && line.contains(&*name)), "{damaged:?}");
}
