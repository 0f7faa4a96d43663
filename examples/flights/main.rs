//! Delays of all flights that left New York in 2013, counted exactly once: through broken rows, late rows, and as many real
//! `kill -9` as you like.
//!
//! `cargo run --release --example flights -- --help`
//!
//! Reading order: `job` (the job itself), `flight` (its types), `table`, `delivery` and `load` (what is read), `expected` and
//! `independent` (what must come out, and a reader of the log that shares no code with it), `verify`, `kills`.

#![expect(
    clippy::disallowed_methods,
    reason = "a program beside the engine: it reads files and starts processes itself"
)]

mod args;
mod delivery;
mod expected;
mod filesystem;
mod flight;
mod independent;
mod job;
mod kills;
mod load;
mod metered;
mod problem;
mod run;
mod table;
mod talk;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use cutwater::prelude::*;

use args::Args;
use delivery::Delivered;
use expected::Expected;
use job::Settings;
use problem::{Kind, Problem};
use table::Table;
use talk::{Talk, complain};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let args = Args::parse();
    take_traces();
    let result = match (args.child_of, &args.dir) {
        (Some(parent), Some(dir)) => kills::child::run(parent, dir, &settings(&args, 0)),
        _ => parent(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            problem.code()
        }
    }
}

/// Warnings go to standard error, and whatever RUST_LOG asks for.
fn take_traces() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn settings(args: &Args, records: usize) -> Settings {
    let (workers, take_over) = (usize::from(args.workers), args.take_over);
    Settings { workers, interval: args.checkpoint_interval(), rate: args.pace(records), take_over }
}

/// Reads the file, then runs everything in the directory, which is removed at the end if it was a temporary one and all went well.
fn parent(args: &Args) -> Result<(), Problem> {
    let table = Table::read(&args.data())?;
    let stream = delivery::deliver(&table, args.draw())?;
    let (dir, temporary) = match &args.dir {
        Some(dir) => (dir.clone(), None),
        None => {
            let made = tempfile::Builder::new().prefix("cutwater-flights-").tempdir();
            let made =
                made.map_err(|e| Problem::new(Kind::Failed, format!("no temporary directory: {e}"), "give --dir"))?;
            (made.path().to_path_buf(), Some(made))
        }
    };
    let result = in_directory(args, &dir, &table, &stream);
    if let (Err(_), Some(temporary)) = (&result, temporary) {
        complain(format_args!("the data is kept in {}", temporary.keep().display()));
    }
    result
}

fn in_directory(args: &Args, dir: &Path, table: &Table, stream: &[Delivered]) -> Result<(), Problem> {
    refuse_foreign(dir)?;
    // Now, not after two hundred kills.
    let folder = args.result.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let what = format!("{}: there is no such folder for the result", folder.display());
        return Err(Problem::new(Kind::Failed, what, "give another file with --result"));
    }
    let platform = Platform::real();
    let log_dir = dir.join("log");
    let loaded = load::load(&platform, &log_dir, table, stream, args.draw())?;
    let talk = args.talk();
    talk.say(format_args!("data directory        {} on {}", dir.display(), filesystem::describe(dir)))?;
    talk.say(format_args!(
        "topic flights         {} rows, {} broken and {} late among them; {}",
        stream.len(),
        args.mangled,
        args.stragglers,
        if loaded { "loaded in one transaction" } else { "loaded by an earlier run" }
    ))?;
    let (report, came_of_it) = if args.kills > 0 {
        let (report, came_of_it) = kills::parent::run(args, dir, stream.len())?;
        (report, Some(came_of_it))
    } else {
        (run::to_the_end(dir, &settings(args, stream.len()), None, &Control::new())?.to_string(), None)
    };
    talk.say(format_args!("\n{report}\n"))?;
    let expected = Expected::of(table, stream);
    verified(&log_dir.join("partitions"), table, &expected, talk)?;
    match (&args.result, came_of_it) {
        (Some(path), Some(came_of_it)) => kills::result::write(path, args, stream.len(), &came_of_it),
        _ => Ok(()),
    }
}

/// Compares topics and totals; prints both.
fn verified(partitions: &Path, table: &Table, expected: &Expected, talk: Talk) -> Result<(), Problem> {
    let wrong = |what: String| {
        Problem::new(Kind::Verification, what, "this is a mistake in Cutwater: please report it with the directory")
    };
    let (differences, summary) = verify::differences(partitions, expected).map_err(wrong)?;
    talk.say(summary)?;
    if !differences.is_empty() {
        return Err(wrong(differences.join("\n")));
    }
    for (origin, count) in &expected.totals {
        talk.say(format_args!(
            "{origin}  {:>7} flights  {:>7} departures  {:>6} cancelled  {:>10} min of delay, mean {:.2} min, longest {} min",
            count.flights,
            count.departures,
            count.cancellations,
            count.delay_sum,
            count.delay_sum as f64 / count.departures.max(1) as f64,
            count.delay_max.unwrap_or_default()
        ))?;
    }
    let published = expected.check_published(table).map_err(wrong)?;
    talk.say(format_args!(
        "\nThe three topics equal, row for row, what plain Rust computes from the file{}.",
        if published { "; so do the published totals" } else { "" }
    ))?;
    Ok(())
}

/// A directory that holds something else is left alone, before the log puts anything beside it.
fn refuse_foreign(dir: &Path) -> Result<(), Problem> {
    // The last one is what a job that was killed while it waited for room on the disk may leave.
    const OURS: [&str; 3] = ["log", "checkpoints", "space-probe"];
    let unreadable = |e: std::io::Error| {
        Problem::new(
            Kind::Directory,
            format!("{}: {e}", dir.display()),
            "give a directory with --dir, or a name for a new one",
        )
    };
    if !dir.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let name = PathBuf::from(entry.map_err(unreadable)?.file_name());
        if !OURS.iter().any(|ours| name == Path::new(ours)) {
            let what = format!(
                "{} is no data directory of this program: it holds {:?}; nothing was changed",
                dir.display(),
                name
            );
            return Err(Problem::new(
                Kind::Directory,
                what,
                "give an empty directory with --dir, or a name for a new one",
            ));
        }
    }
    Ok(())
}
