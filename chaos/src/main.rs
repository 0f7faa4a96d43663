//! The broker under everything that happens to brokers, and a verdict.
//!
//! * `run`: clients of several makes write and read, in transactions and without, while the broker is killed, held still, kept
//!   from writing, and connections are cut, delayed and cut late; everything asked and answered is one history, and testkit's
//!   checker judges it. In rounds with seeds of their own, so that it can be stopped and gone on with; a million operations
//!   are about forty rounds.
//! * `malformed`: frames that no client would send, over many connections, while a good client goes on; the broker stays up,
//!   its memory flat, the good client undisturbed.
//! * `serve`: the broker that both start, kill and start again.
//!
//! Reading order: `round` (one round), `writers`, `readers`, `admin` (aborts of others' transactions), `kept` (topics from which
//! records are taken), `reborn` (a topic that is deleted and made again), `faults`, `proxy`, `record` (the history, and how foreign
//! clients tell theirs), `plant` (faults that are planted to see them found), `malformed`, `result`.
//!
//! Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage.

#![forbid(unsafe_code)]

mod admin;
mod faults;
mod foreign;
mod kept;
mod malformed;
mod plant;
mod proxy;
mod readers;
mod reborn;
mod record;
mod result;
mod round;
mod server;
mod wire;
mod writers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use cutwater_broker::Listen;

use crate::foreign::Foreign;
use crate::plant::Fault;
use crate::round::Plan;

/// The broker under kills, stops, cuts, full disks and malformed frames.
#[derive(Debug, Parser)]
#[command(name = "cutwater-chaos", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a log until standard input ends.
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        data: PathBuf,
        #[arg(long)]
        listen: Listen,
    },
    /// Rounds of clients at work while faults strike, each judged by its history.
    Run(Run),
    /// Malformed frames at a live broker.
    Malformed(malformed::Malformed),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// End once so many calls have been made and judged, in all rounds together.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// The seed of the first round; the next ones count up.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls of a round.
    #[arg(long, default_value_t = 25_000)]
    round: u64,
    /// End after so many rounds in any case.
    #[arg(long)]
    rounds: Option<u64>,
    /// A round ends after so many seconds at the latest.
    #[arg(long, default_value_t = 60)]
    round_seconds: u64,
    /// Keep what came of each round in this file, and go on behind what it holds.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write what came of all rounds into this file.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// A foreign client's command line; may be given again. What it is told and what it has to do is at the head of `chaos/src/foreign.rs`.
    #[arg(long, value_name = "COMMAND")]
    foreign: Vec<String>,
    /// Plant a fault, which the verdict must find; may be given again.
    #[arg(long, value_name = "FAULT")]
    plant: Vec<Fault>,
    /// No fault strikes.
    #[arg(long)]
    calm: bool,
}

/// A command failed.
#[derive(Debug)]
pub(crate) struct Failed(String);

impl Failed {
    pub(crate) fn new(what: String) -> Failed {
        Failed(what)
    }

    pub(crate) fn of(what: &str, error: std::io::Error) -> Failed {
        Failed(format!("couldn't {what}: {error}"))
    }
}

#[expect(clippy::print_stdout, reason = "what a command answers")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// A thread of this program, which nobody waits for.
pub(crate) fn go(name: &str, act: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_string()).spawn(act).expect("the machine has room for a thread");
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve { data, listen } => server::serve(&data, &listen).map(|()| true),
        Command::Run(run) => rounds(&run),
        Command::Malformed(malformed) => malformed::run(&malformed),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failed(what)) => {
            say(&format!("failed: {what}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing is wrong.
fn rounds(run: &Run) -> Result<bool, Failed> {
    let mut total = result::Total::read(run.state.as_deref(), run.seed)?;
    while total.counts.operations < run.operations && run.rounds.is_none_or(|most| total.rounds < most) {
        let plan = Plan {
            seed: run.seed + total.rounds,
            operations: run.round.min(run.operations - total.counts.operations),
            time: Duration::from_secs(run.round_seconds),
            faults: !run.calm,
            plant: run.plant.clone(),
            foreign: run.foreign.iter().cloned().map(Foreign).collect(),
        };
        let dir = tempfile::Builder::new().prefix("cutwater-chaos").tempdir();
        let dir = dir.map_err(|e| Failed::of("make a directory", e))?;
        let outcomes = round::play(&plan, dir.path())?;
        say(&result::line(plan.seed, &outcomes));
        for what in &outcomes.wrong {
            say(&format!("  WRONG: {what}"));
        }
        if !outcomes.wrong.is_empty() {
            say(&format!("the log is kept: {}", dir.keep().display()));
            return Ok(false);
        }
        if outcomes.counts.operations == 0 {
            return Err(Failed::new("a round did nothing".to_string()));
        }
        total.add(&outcomes);
        total.write(run.state.as_deref(), run.seed)?;
    }
    let page = total.page(run);
    say(&page);
    match &run.result {
        Some(path) => result::put(path, &page).map(|()| true),
        None => Ok(true),
    }
}
