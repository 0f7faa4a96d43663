//! A chain of state files -> one new base that stands for the same entries, on a thread of its own.
//!
//! The promise: when [`SnapshotFiles::merge`] answers Ok, the new base is durable, its name too, and it holds exactly what the chain
//! held (I-4). Nothing names it yet: until a manifest does it is an orphan, which the next attempt sweeps. The old files stay until
//! no manifest names them.
//!
//! The new file is named after the newest file it replaces, so that it is older than every delta that follows it.

use thiserror::Error;

use super::layout::{StateFileName, StateName};
use super::walk::{WalkError, walk};
use super::writer::{SnapshotFiles, SnapshotOrigin, WriteError};
use crate::checkpoint::{StateChain, StateFile, StateFileKind};
use crate::state::{Encoder, EntryReader};

/// A chain couldn't be merged. It goes on as it is; nothing is lost.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// Its files can't be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// The new base can't be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The last file's name isn't one.
    #[error("{name:?} can't be the name of a state file")]
    Name {
        /// The name.
        name: String,
    },
}

impl SnapshotFiles {
    /// Writes a base that stands for the whole chain, durably.
    ///
    /// # Errors
    /// [`MergeError`]. After a failed sync the store is poisoned.
    pub fn merge(
        &self,
        origin: &SnapshotOrigin,
        chain: &StateChain,
        reader: &dyn EntryReader,
    ) -> Result<StateFile, MergeError> {
        let last = chain.files.last().map_or("", |file| file.name.as_str());
        let bad_name = || MergeError::Name { name: last.to_owned() };
        let last_name = StateFileName::parse(last).ok_or_else(bad_name)?;
        let name = StateName::new(&chain.name).map_err(|_| bad_name())?;
        let mut merged = Encoder::default();
        walk(self.store(), &chain.files, reader, |key, value| {
            merged.add(key, value);
            true
        })?;
        let origin = SnapshotOrigin { checkpoint: last_name.checkpoint, ..*origin };
        let frozen = merged.finish(&name, chain.schema, StateFileKind::Base);
        let written = self.write(&origin, vec![frozen])?;
        self.crash().reach("merge.durable");
        Ok(written.into_iter().find_map(|state| state.file).expect("a base has a file"))
    }

    /// Removes a merged base that came too late: the chain it was for has gone another way.
    pub(crate) fn remove_unused(&self, file: &StateFile) {
        let Some(name) = StateFileName::parse(&file.name) else { return };
        if let Err(error) = self.store().remove_state_files(&self.owner(), &[name]) {
            tracing::debug!(%error, file = file.name, "a merged base that nobody needs stays until the next start");
        }
    }
}
