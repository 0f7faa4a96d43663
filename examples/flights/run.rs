//! Runs the job in this process.

use std::path::Path;

use cutwater::Exit;
use cutwater::prelude::*;

use crate::job::{self, Settings};
use crate::metered::OnRead;
use crate::problem::{Kind, Problem};

/// Runs the job until everything is committed.
pub(crate) fn to_the_end(
    dir: &Path,
    settings: &Settings,
    on_read: Option<OnRead>,
    control: &Control,
) -> Result<Report, Problem> {
    let rate = settings.rate;
    let build = move |job: &Job| job::build(job, rate, on_read.clone());
    let report = cutwater::run_with(build, &job::options(dir, settings), control).map_err(|error| {
        let (kind, next) = match (Exit::of(&error), &error) {
            (Exit::Conflict, _) => (Kind::Directory, ""),
            (Exit::Incompatible, _) => (Kind::Incompatible, ""),
            (_, RunError::Fatal(_) | RunError::Lost { .. }) => {
                (Kind::Failed, "nothing was overwritten; mend what is named, or give another directory with --dir")
            }
            _ => (Kind::Failed, "run the same command again; what was committed is kept"),
        };
        Problem::new(kind, format!("{}: {error}", dir.display()), next)
    })?;
    let wrong = report.discrepancies();
    if !wrong.is_empty() {
        let what = format!("the books don't balance: {}", wrong.join("; "));
        return Err(Problem::new(
            Kind::Verification,
            what,
            "this is a mistake in Cutwater: please report it with the directory",
        ));
    }
    Ok(report)
}
