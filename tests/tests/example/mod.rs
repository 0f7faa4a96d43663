//! Examples as programs: built once per test binary, run as a user would.

#![expect(clippy::disallowed_methods, reason = "tests look at the real file system and start real processes")]
#![allow(dead_code, reason = "each test binary uses some of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// The example's program, built in this test's own profile.
pub(crate) fn program(example: &'static str) -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(root()).args([
            "build",
            "--quiet",
            "--workspace",
            "--message-format",
            "json",
            "--example",
            example,
        ]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let built = build.stderr(Stdio::inherit()).output().expect("cargo starts");
        assert!(built.status.success(), "the example {example} does not build");
        let lines = String::from_utf8(built.stdout).expect("cargo speaks JSON");
        let found = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["target"]["name"] == example)
            .find_map(|message| message["executable"].as_str().map(PathBuf::from));
        found.expect("cargo names the program it built")
    })
}

/// What a run left behind, as text.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// Every file below `dir` with its bytes, to see that nothing was changed.
pub(crate) fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.clone(), std::fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}
