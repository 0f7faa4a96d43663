//! What can go wrong for the person who runs the example: what, why, and what to do next.

use std::fmt;
use std::process::ExitCode;

/// What an exit code says; `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The run failed, or a file is damaged; what was committed is kept, and the same command goes on from there.
    Failed = 1,
    /// The data file is missing or isn't a file of flights.
    Data = 3,
    /// The directory can't be used: it is something else's, in use, or holds other flights.
    Directory = 4,
    /// The topics aren't what they must be, or the kills didn't happen as asked.
    Verification = 7,
    /// The directory was written by another program.
    Incompatible = 8,
}

/// A problem, in words for people.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    pub(crate) next: String,
}

impl Problem {
    pub(crate) fn new(kind: Kind, what: impl fmt::Display, next: impl fmt::Display) -> Problem {
        Problem { kind, what: what.to_string(), next: next.to_string() }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if !self.next.is_empty() {
            write!(f, "\n  next: {}", self.next)?;
        }
        Ok(())
    }
}
