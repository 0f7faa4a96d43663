//! What a run came to, as a number.

use std::process::ExitCode;

use cutwater_engine::error::{BuildError, RunError};

/// The exit codes of a job's program.
///
/// One more comes from the engine, which ends the process when a worker is stuck and can't be interrupted:
/// [`STUCK_EXIT_CODE`](cutwater_engine::config::STUCK_EXIT_CODE), 70.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// 0: the job is finished, or did what was asked for, or whoever read its only output has seen enough (`| head`).
    Done = 0,
    /// 1: it failed. What was committed is kept; run it again in the same directory to go on.
    Failed = 1,
    /// 2: the command line can't be understood, or asks for what the job can't do. Nothing was started.
    Usage = 2,
    /// 4: the data directory is in use by another process, or belongs to another job. Nothing was changed.
    Conflict = 4,
    /// 8: this program can't go on from what is in the data directory: another graph, other types. Use the program that wrote it.
    Incompatible = 8,
    /// 130: it was interrupted, after a last checkpoint. Run it again in the same directory to go on. A second interrupt
    /// ends the process at once with the same code, without that checkpoint.
    Interrupted = 130,
}

impl Exit {
    /// What an error comes to.
    pub fn of(error: &RunError) -> Exit {
        match error {
            RunError::Options(_) | RunError::Build(BuildError::Guarantee { .. }) => Exit::Usage,
            RunError::Build(BuildError::Held { .. }) | RunError::Refused(_) | RunError::Fenced => Exit::Conflict,
            RunError::Incompatible(_) => Exit::Incompatible,
            RunError::Unwanted { .. } => Exit::Done,
            _ => Exit::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::config::GuaranteeKind;
    use cutwater_engine::observe::Loss;

    use super::*;

    #[test]
    fn each_kind_of_error_has_the_code_that_says_what_to_do() {
        let guarantee = BuildError::Guarantee {
            operator: "out".into(),
            wanted: GuaranteeKind::ExactlyOnce,
            honoured: "at-most-once".into(),
            reason: "it prints".into(),
        };
        let text = String::new;
        for (error, code) in [
            (RunError::Options(text()), 2),
            (RunError::Build(guarantee), 2),
            (RunError::Build(BuildError::NoSource), 1),
            (RunError::Build(BuildError::held("the log", "by 7")), 4),
            (RunError::Refused(text()), 4),
            (RunError::Fenced, 4),
            (RunError::Incompatible(text()), 8),
            (RunError::Unwanted { what: text() }, 0),
            (RunError::GaveUp { attempts: 3, last: text() }, 1),
            (RunError::Fatal(text()), 1),
            (RunError::Lost { last: text(), loss: Loss::default() }, 1),
        ] {
            assert_eq!(Exit::of(&error) as u8, code, "{error:?}");
        }
    }
}
