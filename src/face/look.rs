//! Looking into the data directory of a job without running it: its checkpoints, the state in them, what a changed program would do
//! with it.

use cutwater_engine::config::Options;
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::Job;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::snapshot::{
    FsStore, Show, StoreError, ViewError, compare_checkpoints, inspect, manifest_of, view_state,
};
use cutwater_engine::worker::{self, CHECKPOINTS};

use super::console::Console;
use super::exit::Exit;
use super::flags::Flags;

/// Entries and differences that are told if nobody says how many.
const TOLD: usize = 10;

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

/// Prints a state of a checkpoint, or how two checkpoints differ.
pub(super) fn states(
    console: &Console,
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
    flags: &Flags,
) -> Exit {
    let looked = || -> Result<Exit, RunError> {
        let readers = worker::readers_of(build, options)?;
        let store = store(options)?;
        let first = flags.first.unwrap_or(TOLD);
        let refused = |error: ViewError| RunError::Refused(error.to_string());
        if let [from, to] = flags.compare[..] {
            let manifest = |n| manifest_of(&store, Some(CheckpointId(n))).map_err(refused);
            let comparison = compare_checkpoints(&store, &manifest(from)?, &manifest(to)?, &readers, first);
            return Ok(console.answer(&comparison.map_err(refused)?));
        }
        let name = flags.state.as_deref().unwrap_or_default();
        let manifest = manifest_of(&store, flags.at.map(CheckpointId)).map_err(refused)?;
        let show = Show { key: flags.key.clone(), first };
        Ok(console.answer(&view_state(&store, &manifest, name, &readers, &show).map_err(refused)?))
    };
    looked().unwrap_or_else(|error| console.failed(&error))
}
