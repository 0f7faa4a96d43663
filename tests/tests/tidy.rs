//! The source watches itself: what reaches the world goes through `platform`, timely is named in one place, files stay small.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests' package lies in the workspace").to_path_buf()
}

/// Rust files below `dir`, with their text.
#[expect(clippy::disallowed_methods, reason = "a test of the sources reads the sources")]
fn sources(dir: &str) -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()) {
            match entry.is_dir() {
                true if entry.file_name().is_some_and(|n| n == "target") => {}
                true => walk(&entry, found),
                false if entry.extension().is_some_and(|e| e == "rs") => found.push(entry),
                false => {}
            }
        }
    }
    let mut found = vec![];
    walk(&root().join(dir), &mut found);
    assert!(!found.is_empty(), "{dir} has Rust files");
    found.sort();
    let relative = |p: &Path| p.strip_prefix(root()).expect("below the root").display().to_string();
    found.iter().map(|p| (relative(p), std::fs::read_to_string(p).expect("text"))).collect()
}

/// The lines of a file that are code, not comments, up to its unit tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.find("#[cfg(test)]").unwrap_or(text.len());
    (1..).zip(text[..tests].lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn uses(crates: &[&str], needles: &[&str]) -> Vec<String> {
    let mut found = vec![];
    for (file, text) in crates.iter().flat_map(|c| sources(&format!("{c}/src"))) {
        if file.contains("tests.rs") || file.contains("/tests/") {
            continue;
        }
        for (number, line) in code(&text).filter(|(_, line)| needles.iter().any(|n| line.contains(n))) {
            found.push(format!("{file}:{number}: {}", line.trim()));
        }
    }
    found
}

const LIBRARIES: [&str; 5] = ["engine", "operators", "sources-sinks", "partition-log", "testkit"];

#[test]
fn nothing_durable_goes_around_the_platform() {
    let found = uses(&LIBRARIES, &["std::fs", "File::open(", "File::create(", "OpenOptions"]);
    assert!(found.is_empty(), "use cutwater_platform::Files:\n{}", found.join("\n"));
}

#[test]
fn clocks_and_threads_come_from_the_platform() {
    let found =
        uses(&LIBRARIES, &["SystemTime::now", "Instant::now", "thread::spawn", "thread::sleep", "thread::Builder"]);
    assert!(found.is_empty(), "use cutwater_platform::{{Clock, Spawn}}:\n{}", found.join("\n"));
}

#[test]
fn the_checks_above_find_what_they_look_for() {
    let found = uses(&["platform"], &["std::fs", "thread::Builder", "Instant::now"]);
    assert!(found.len() >= 3, "the platform is the place where these are used: {found:?}");
}

#[test]
fn only_the_workers_know_timely() {
    let elsewhere: Vec<String> =
        uses(&LIBRARIES, &["timely::"]).into_iter().filter(|line| !line.starts_with("engine/src/worker/")).collect();
    assert!(elsewhere.is_empty(), "timely is named outside engine/src/worker:\n{}", elsewhere.join("\n"));
}

#[test]
fn decisions_do_no_io_and_read_no_clock() {
    for dir in ["engine/src/barrier", "engine/src/checkpoint", "engine/src/exchange", "partition-log/src/core"] {
        for (file, text) in sources(dir) {
            let bad = ["platform.files", "dyn Files", "dyn Clock", "dyn Spawn", "std::thread", "Mutex<"];
            let found: Vec<_> = code(&text).filter(|(_, line)| bad.iter().any(|n| line.contains(n))).collect();
            assert!(found.is_empty(), "{file} is a decision and must stay pure: {found:?}");
        }
    }
}

#[test]
fn nothing_unfinished_is_left_behind() {
    let marks = ["todo!(", "unimplemented!(", "dbg!(", "FIXME", "XXX"];
    let found: Vec<String> =
        ["engine", "operators", "sources-sinks", "partition-log", "testkit", "platform", "examples", "src"]
            .iter()
            .flat_map(|dir| sources(dir))
            .flat_map(|(file, text)| {
                let lines: Vec<String> = text
                    .lines()
                    .filter(|line| marks.iter().any(|m| line.contains(m)))
                    .map(|line| format!("{file}: {}", line.trim()))
                    .collect();
                lines
            })
            .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
