//! The job as a child: tells its parent how it came back and how far it is, and dies with it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cutwater::prelude::*;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::job::Settings;
use crate::kills::status::{Recovered, Status};
use crate::problem::{Kind, Problem};
use crate::run;

/// Runs the job in `dir` as a child of process `parent`.
pub(crate) fn run(parent: u32, dir: &Path, settings: &Settings) -> Result<(), Problem> {
    let failed = |e: rustix::io::Errno| Problem::new(Kind::Failed, format!("no tie to the parent process: {e}"), "");
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // It may have died before the tie was made.
    if getppid().map(Pid::as_raw_nonzero).map(i32::from) != i32::try_from(parent).ok() {
        return Err(Problem::new(Kind::Failed, "the parent process has gone", ""));
    }
    let control = Control::new();
    let told = Arc::new(AtomicBool::new(false));
    let on_read = {
        let (control, told) = (control.clone(), told.clone());
        Arc::new(move |records| {
            if !told.swap(true, Ordering::Relaxed) {
                say(&Status::Recovered(recovered(&control)));
            }
            say(&Status::Read { records });
        })
    };
    let report = run::to_the_end(dir, settings, Some(on_read), &control)?;
    if !told.load(Ordering::Relaxed) {
        say(&Status::Recovered(recovered(&control)));
    }
    say(&Status::Finished { report: report.to_string() });
    Ok(())
}

/// A parent that doesn't listen any more is dead, and so are we in a moment.
fn say(status: &Status) {
    if let Err(error) = status.say() {
        tracing::warn!(%error, "the parent does not listen");
    }
}

fn recovered(control: &Control) -> Recovered {
    let seen = control.seen();
    let times = seen.recovery;
    let phases = [
        ("claim", times.claim),
        ("fence", times.fence),
        ("facts", times.facts),
        ("settle", times.settle),
        ("load", times.load),
    ];
    Recovered {
        attempt: seen.attempt.0,
        checkpoint: Some(seen.resumed_from.0).filter(|n| *n > 0),
        prepared: seen.prepared_found,
        committed: seen.recommitted,
        aborted: seen.aborted,
        phases: phases.map(|(phase, took)| (phase.to_string(), took.as_micros() as u64)).to_vec(),
    }
}
