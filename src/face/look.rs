//! Looking into the data directory of a job without running it: its checkpoints, and what a changed program would do with
//! them.

use cutwater_engine::config::Options;
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::snapshot::{FsStore, StoreError, inspect};
use cutwater_engine::worker::{self, CHECKPOINTS};

use super::console::Console;
use super::exit::Exit;

fn store(options: &Options) -> Result<FsStore, RunError> {
    let refused = |error: StoreError| RunError::Refused(error.to_string());
    FsStore::existing(options.platform.clone(), options.dir.join(CHECKPOINTS)).map_err(refused)
}

/// Prints what is in the checkpoint store, verified.
pub(super) fn checkpoints(console: &Console, options: &Options) -> Exit {
    let inspection =
        store(options).and_then(|store| inspect(&store, true).map_err(|error| RunError::Refused(error.to_string())));
    match inspection {
        Ok(inspection) => match console.answer(&inspection) {
            Exit::Done if !inspection.is_whole() => Exit::Failed,
            exit => exit,
        },
        Err(error) => console.failed(&error),
    }
}

/// Prints what would become of the checkpoint's state.
pub(super) fn outlook(
    console: &Console,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Exit {
    match worker::check_upgrade(build, options) {
        Ok(outlook) => match console.answer(&outlook) {
            Exit::Done if outlook.is_refused() => Exit::Incompatible,
            exit => exit,
        },
        Err(error) => console.failed(&error),
    }
}
