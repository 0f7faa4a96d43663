//! What is said to the person who runs it. A closed pipe (`| head`) is no failure: what the exit code says about the topics must not
//! depend on who reads along.

use std::fmt::Display;
use std::io::{self, Write};

use crate::problem::{Kind, Problem};

/// Says things on standard output, unless quiet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    pub(crate) quiet: bool,
}

impl Talk {
    /// Says a line.
    pub(crate) fn say(self, line: impl Display) -> Result<(), Problem> {
        if self.quiet {
            return Ok(());
        }
        match writeln!(io::stdout(), "{line}") {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Problem::new(Kind::Failed, format!("standard output: {e}"), "with --quiet nothing is said there"))
            }
            _ => Ok(()),
        }
    }
}

/// Says a line on standard error, also when quiet. There is nowhere to say that this is closed.
pub(crate) fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
