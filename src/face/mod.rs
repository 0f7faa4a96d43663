//! The face of a job: what a person meets who runs it.
//!
//! * Standard output belongs to the job's data. Everything said about the run goes to standard error.
//! * The run says at its beginning which guarantee is in force (I-10), and at its end whether its books balance (I-8).
//! * Ctrl-C (or SIGTERM) asks for a last checkpoint and ends the run; a second one ends the process at once. Neither loses
//!   anything.
//! * The exit code says what to do next; see [`Exit`].
//!
//! ```text
//!   flags      command line and environment -> options; broker_flags: those that say where the log is
//!   directory  the data directory: given, or temporary
//!   signals    Ctrl-C                             console    standard error, shared by progress bar and log lines
//!   orders     files through which a running job is told to take a savepoint, to stop, to drain
//!   watch      beside the run: progress, stop     exit       what the run came to, as a number
//!   look       checkpoints, state and upgrades, without a run
//! ```

mod broker_flags;
mod console;
mod directory;
mod exit;
mod flags;
mod look;
mod orders;
mod signals;
mod watch;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use cutwater_engine::config::Options;
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::worker;

pub use self::broker_flags::BrokerFlags;
use self::console::Console;
use self::directory::DataDir;
pub use self::exit::Exit;
pub use self::flags::{Flags, Packing, Promise};
use self::signals::Signals;
use self::watch::Watch;

/// The `main` of a job: reads the command line, runs the job, says what it came to.
///
/// The job is named after the program. `build` describes it: it is called once to check the job and once per worker and
/// attempt, and must describe the same graph each time. Flags and environment are those of [`Flags`], exit codes those of
/// [`Exit`]. A program with flags of its own uses [`Flags::run`] or [`run`].
pub fn main(build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static) -> ExitCode {
    let program = std::env::args_os().next();
    let name =
        program.as_deref().and_then(|p| Path::new(p).file_stem()).map(|stem| stem.to_string_lossy().into_owned());
    main_named(name.as_deref().unwrap_or("job"), build)
}

/// As [`main`], with a name of its own.
pub fn main_named(name: &str, build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static) -> ExitCode {
    main_from(name, std::env::args_os(), build).into()
}

/// Runs a job without any of the face: nothing is read from the command line, nothing is printed, signals do what they do.
///
/// # Errors
/// [`RunError`]. What was committed is kept, and running the job again in the same directory goes on from there.
pub fn run(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Result<Report, RunError> {
    run_with(build, options, &Control::new())
}

/// As [`run`], watched and stopped through `control`.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
    control: &Control,
) -> Result<Report, RunError> {
    worker::run(build, options, control)
}

/// A command line that has the flags of a job and nothing else.
#[derive(Debug, Parser)]
#[command(version, about = "A Cutwater job.", after_help = flags::AFTER_HELP)]
struct Bare {
    #[command(flatten)]
    flags: Flags,
}

/// As [`main_named`], with a command line of its own, the program's name first; answers what the run came to.
pub fn main_from(
    name: &str,
    args: impl IntoIterator<Item = OsString>,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
) -> Exit {
    let version = concat!("(cutwater ", env!("CARGO_PKG_VERSION"), ")");
    let command = Bare::command().name(name.to_string()).version(version);
    let parsed = command.try_get_matches_from(args).and_then(|matches| Bare::from_arg_matches(&matches));
    match parsed {
        Ok(bare) => bare.flags.face(name, build),
        Err(error) => {
            // Help and version go to standard output, mistakes to standard error; a closed pipe is nobody's mistake.
            let _ = error.print();
            if error.use_stderr() { Exit::Usage } else { Exit::Done }
        }
    }
}

impl Flags {
    /// Runs a job with these flags and with the face of [`main`].
    pub fn run(&self, name: &str, build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static) -> ExitCode {
        self.face(name, build).into()
    }

    fn face(&self, name: &str, build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static) -> Exit {
        let console = Console::new(self.quiet);
        console.take_traces();
        let (options, mut dir) =
            match self.options(name).and_then(|options| DataDir::choose(options, self.dir.as_deref())) {
                Ok(chosen) => chosen,
                Err(error) => return console.failed(&error),
            };
        let exit = match self {
            _ if self.savepoint.is_some() || self.stop || self.drain => orders::give(&console, &options, self),
            _ if self.checkpoints => look::checkpoints(&console, &options),
            _ if self.state.is_some() || !self.compare.is_empty() => look::states(&console, build, &options, self),
            _ if self.check_upgrade => look::outlook(&console, build, &options),
            _ if self.explain => explain(&console, build, &options),
            _ => live(&console, build, &options),
        };
        dir.leave(exit, &console);
        exit
    }
}

/// Prints what would run.
fn explain(
    console: &Console,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Exit {
    match worker::explain(build, options) {
        Ok(explanation) => console.answer(&explanation),
        Err(error) => console.failed(&error),
    }
}

/// Runs the job and tells what it came to.
fn live(
    console: &Console,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Exit {
    let signals = match Signals::take() {
        Ok(signals) => signals,
        Err(error) => return console.failed(&RunError::Options(format!("Ctrl-C can't be listened to: {error}"))),
    };
    let workers = options.workers;
    let threads = if workers == 1 { "thread" } else { "threads" };
    console.say(&format!(
        "{}: {}, {workers} worker {threads}, data in {}",
        options.name,
        options.guarantee,
        options.dir.display()
    ));
    console.make_room_for_data();
    let control = Control::new();
    let watch = Watch::start(console, &signals, &control, options);
    let result = worker::run(build, options, &control);
    watch.end();
    match result {
        Ok(report) => {
            console.say(&report.to_string());
            let wrong = report.discrepancies();
            if !wrong.is_empty() {
                let text = format!("the books don't balance, which is a mistake in Cutwater: {}", wrong.join("; "));
                return console.failed(&RunError::Fatal(text));
            }
            if report.finished || !signals.came() { Exit::Done } else { Exit::Interrupted }
        }
        // `| head` has seen enough.
        Err(RunError::Unwanted { .. }) => Exit::Done,
        Err(error) => console.failed(&error),
    }
}
