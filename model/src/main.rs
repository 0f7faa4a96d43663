//! Runs the searches and says what they came to.
//!
//! ```text
//!   cargo run --release -p cutwater-model                    the small searches and all planted faults, seconds
//!   cargo run --release -p cutwater-model -- --all           the large ones too, minutes; writes docs/measured/model.txt
//!   cargo run --release -p cutwater-model -- --trace NAME    the shortest trace to a planted fault, or of a search that finds something
//! ```
#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use cutwater_model::{Config, Fault, Protocol, Visited, catalogue, search};
use cutwater_platform::{Clock, Platform};

/// More states than this are not visited: 24 bytes each, and what is still open.
const STATES_MAX: usize = 50_000_000;
/// Where results go, below the workspace.
const RESULTS: &str = "docs/measured/model.txt";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let platform = Platform::real();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => table(&platform.clock, false).1,
        ["--all"] => {
            let (text, code) = table(&platform.clock, true);
            match write(&platform, &text) {
                Ok(()) => code,
                Err(error) => {
                    println!("{RESULTS} can't be written: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        ["--trace", name] => trace(name),
        _ => {
            println!("usage: cutwater-model [--all | --trace NAME]");
            ExitCode::FAILURE
        }
    }
}

/// Everything, as text; it is printed as it comes.
fn table(clock: &Arc<dyn Clock>, large: bool) -> (String, ExitCode) {
    let mut text = String::new();
    let mut code = ExitCode::SUCCESS;
    let mut say = |line: String| {
        println!("{line}");
        _ = writeln!(text, "{line}");
    };
    say("searches: nothing may be found, every state is visited".to_owned());
    say(format!("{:<34} {:>10} {:>11} {:>7} {:>6} {:>8}  what", "", "states", "steps", "finals", "depth", "seconds"));
    let mut configs = catalogue::small();
    if large {
        configs.extend(catalogue::large());
    }
    for config in configs {
        let (visited, seconds) = timed(clock, config.clone());
        let Visited { states, steps, finals, depth, .. } = visited;
        let summary = config.summary();
        say(format!("{:<34} {states:>10} {steps:>11} {finals:>7} {depth:>6} {seconds:>8.1}  {summary}", config.name));
        if let Some(broken) = &visited.broken {
            say(format!("    FOUND {}: {}", broken.violation.promise, broken.violation.found));
            code = ExitCode::FAILURE;
        }
        if !visited.exhausted {
            say(format!("    NOT EXHAUSTED: stopped at {STATES_MAX} states"));
            code = ExitCode::FAILURE;
        }
    }
    say(String::new());
    say("planted faults: each must be found; steps of the shortest trace, states visited until then".to_owned());
    for fault in Fault::ALL {
        let (visited, _) = timed(clock, catalogue::finds(*fault));
        match &visited.broken {
            Some(broken) => {
                let (length, states) = (broken.trace.len(), visited.states);
                say(format!("{:<62} {length:>4} {states:>8}  {}", fault.words(), broken.violation.promise));
            }
            None => {
                say(format!("{:<62} NOT FOUND", fault.words()));
                code = ExitCode::FAILURE;
            }
        }
    }
    (text, code)
}

fn timed(clock: &Arc<dyn Clock>, config: Config) -> (Visited, f64) {
    let since = clock.monotonic();
    let visited = search(&Protocol::new(config), STATES_MAX);
    (visited, clock.monotonic().saturating_sub(since).as_secs_f64())
}

/// Prints what leads to a fault, by its name, or to what a search finds.
fn trace(name: &str) -> ExitCode {
    let fault = Fault::ALL.iter().find(|fault| format!("{fault:?}") == name || fault.words() == name);
    let known = || catalogue::small().into_iter().chain(catalogue::large()).find(|config| config.name == name);
    let Some(config) = fault.map(|fault| catalogue::finds(*fault)).or_else(known) else {
        println!("there is neither a fault nor a search of that name");
        return ExitCode::FAILURE;
    };
    println!("{}: {}", config.name, config.summary());
    let visited = search(&Protocol::new(config), STATES_MAX);
    match visited.broken {
        Some(broken) => {
            for (number, step) in (1..).zip(&broken.trace) {
                println!("{number:>4}  {step}");
            }
            println!("broken: {}\nfound:  {}", broken.violation.promise, broken.violation.found);
        }
        None => println!("nothing is found in {} states", visited.states),
    }
    ExitCode::SUCCESS
}

/// Replaces the file of results.
fn write(platform: &Platform, text: &str) -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace");
    let path = root.join(RESULTS);
    let commit = said(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root));
    let date = said(Command::new("date").args(["-u", "+%Y-%m-%d"]));
    let rustc = said(Command::new("rustc").arg("--version"));
    let text = format!("commit {commit}, {date}, {rustc}; one thread\n\n{text}");
    if platform.files.exists(&path)? {
        platform.files.remove_file(&path)?;
    }
    platform.files.publish_bytes(&path, text.as_bytes())
}

/// What a command prints; "unknown" if it can't be run.
fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    output.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
