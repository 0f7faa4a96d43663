//! Standard error, shared by progress, messages and traces, so that none writes into another's line.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use cutwater_engine::error::RunError;
use cutwater_sources_sinks::print::around_writes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;

use super::exit::Exit;

/// Says things on standard error. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Console {
    quiet: bool,
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    terminal: bool,
}

impl Console {
    pub(super) fn new(quiet: bool) -> Console {
        let terminal = io::stderr().is_terminal() && !quiet;
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template that fits");
        Console { quiet, bar: bar.with_style(style), terminal }
    }

    /// True if progress is drawn over itself; else it comes as a line now and then.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// If the job's data goes to a terminal as well, it is likely the same one: the line makes room for each write.
    pub(super) fn make_room_for_data(&self) {
        if self.terminal && io::stdout().is_terminal() {
            let bar = self.bar.clone();
            // A program that runs a second job has the first one's bar here, which is hidden by then.
            around_writes(move |write| bar.suspend(write));
        }
    }

    /// Shows, or updates, the line that is drawn over itself.
    pub(super) fn draw(&self, text: String) {
        if self.terminal && self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Takes that line away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Says something, unless quiet.
    pub(super) fn say(&self, text: &str) {
        if !self.quiet {
            self.complain(text);
        }
    }

    /// Says something also when quiet.
    pub(super) fn complain(&self, text: &str) {
        // There is nowhere to say that standard error is closed.
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{text}");
        });
    }

    /// Says an error, and which exit code it comes to.
    pub(super) fn failed(&self, error: &RunError) -> Exit {
        self.complain(&format!("error: {error}"));
        Exit::of(error)
    }

    /// Prints what was asked for on standard output.
    pub(super) fn answer(&self, text: &dyn Display) -> Exit {
        match writeln!(io::stdout(), "{text}") {
            Ok(()) => Exit::Done,
            // Whoever read it has seen enough.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Err(e) => self.failed(&RunError::Fatal(format!("standard output: {e}"))),
        }
    }

    /// Sends traces here, as RUST_LOG asks for; warnings and errors without it. A program that has its own subscriber keeps it.
    pub(super) fn take_traces(&self) {
        let console = self.clone();
        let filter = EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| EnvFilter::new(if self.quiet { "error" } else { "warn" }));
        let subscriber =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || console.clone()).finish();
        let _ = tracing::subscriber::set_global_default(subscriber);
    }
}

/// Whole lines, as traces write them.
impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bar.suspend(|| io::stderr().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
