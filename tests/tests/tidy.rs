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

const LIBRARIES: [&str; 8] =
    ["engine", "operators", "sources-sinks", "partition-log", "secure", "broker", "testkit", "conformance"];

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
fn unsafe_code_is_in_one_file() {
    let mut allowed = vec![];
    for dir in [
        "src",
        "platform",
        "testkit",
        "partition-log",
        "engine",
        "operators",
        "sources-sinks",
        "conformance",
        "secure",
        "broker",
        "model",
        "examples",
        "benches",
    ] {
        let text_of = |(file, text): (String, String)| text.contains("allow(unsafe_code)").then_some(file);
        allowed.extend(sources(dir).into_iter().filter_map(text_of));
        let root = if dir == "src" { "src/lib.rs".to_string() } else { format!("{dir}/src/lib.rs") };
        if let Some((file, text)) = sources(dir).into_iter().find(|(file, _)| *file == root) {
            assert!(dir == "engine" || text.contains("#![forbid(unsafe_code)]"), "{file} doesn't forbid unsafe code");
        }
    }
    assert_eq!(allowed, ["engine/src/state/table/slots.rs"], "one named module, with its reasons");
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

#[test]
fn the_two_commands_of_the_readme_are_run_by_the_ci_as_they_stand_there() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect("text");
    let (readme, ci) = (read("README.md"), read(".ci/run"));
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of commands");
    let commands: Vec<&str> = block.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert_eq!(readme.matches("```sh").count(), 1, "all commands of the README are in one block");
    for command in commands {
        assert!(ci.lines().any(|line| line == command), "{command:?} is no line of .ci/run");
    }
}

/// What stands between quotes after `reach(`, and what the tables in the docs have a row for.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test of the docs reads the docs")]
fn every_decision_stands_in_the_index() {
    let index = std::fs::read_to_string(root().join("docs/decisions/README.md")).expect("an index");
    let files = std::fs::read_dir(root().join("docs/decisions")).expect("readable");
    let mut missing: Vec<String> = files
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md" && !index.contains(&format!("]({name}) ")))
        .collect();
    missing.sort_unstable();
    assert!(missing.is_empty(), "docs/decisions/README.md lacks {missing:?}");
}

#[test]
fn every_crash_point_in_the_code_has_a_row_in_the_docs_and_every_row_a_point() {
    // What belongs to tests has points of its own.
    let code: String = ["engine", "partition-log", "sources-sinks", "broker", "."]
        .iter()
        .flat_map(|c| sources(&format!("{c}/src")))
        .filter(|(file, _)| !file.ends_with("tests.rs"))
        .flat_map(|(_, text)| code(&text).map(|(_, line)| format!("{line}\n")).collect::<Vec<_>>())
        .collect();
    let docs: String =
        ["recovery.md", "recovery-checkpoints.md", "recovery-connectors.md", "recovery-log.md", "savepoints.md"]
            .map(|name| std::fs::read_to_string(root().join("docs").join(name)).expect("a page of the docs"))
            .concat();
    let rows: std::collections::BTreeSet<&str> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(point, _)| point)
        .filter(|point| point.contains('.'))
        .collect();
    // A point may be reached through a name that is chosen elsewhere, so a row's point must only stand in the code as text.
    let without_point: Vec<_> = rows.iter().filter(|point| !code.contains(&format!("\"{point}\""))).collect();
    assert!(without_point.is_empty(), "rows for points that the code doesn't have: {without_point:?}");
    let quoted = |rest: &str| rest.trim_start().strip_prefix('"').and_then(|r| r.split('"').next()).map(String::from);
    let reached: Vec<String> = code.split("reach(").skip(1).filter_map(quoted).filter(|p| p.contains('.')).collect();
    assert!(reached.len() > 30, "the search finds what it looks for: {reached:?}");
    let without_row: Vec<_> = reached.iter().filter(|point| !rows.contains(point.as_str())).collect();
    assert!(without_row.is_empty(), "points without a row: {without_row:?}");
}
