//! The commit group of a target folder: all sinks of a job that write into it show a checkpoint in one rename.

use std::collections::BTreeSet;
use std::sync::Arc;

use cutwater_engine::error::SinkError;
use cutwater_engine::id::{Attempt, JobId};
use cutwater_engine::sink::{CommitGroup, Committed};

use crate::files::folder::Target;
use crate::files::name::{Handle, PartName, Promised};

/// Commits what the file sinks of one folder prepared.
#[derive(Clone, Debug)]
pub struct FileCommitGroup(pub(crate) Arc<Target>);

impl FileCommitGroup {
    fn decode(&self, handles: &[Vec<u8>]) -> Result<Vec<Handle>, SinkError> {
        let decode = |bytes: &Vec<u8>| {
            Handle::decode(bytes)
                .map_err(|e| self.0.fatal(format!("the checkpoint names output that is none of this sink's: {e}")))
        };
        handles.iter().map(decode).collect()
    }
}

impl CommitGroup for FileCommitGroup {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn fence(&self, job: JobId, attempt: Attempt) -> Result<(), SinkError> {
        self.0.claim(job)?;
        self.0.fence(attempt.0)?;
        self.0.crash.reach("files.fenced");
        Ok(())
    }

    /// What was being written when an attempt ended counts too: only a manifest could tell the difference.
    fn prepared(&self) -> Result<usize, SinkError> {
        let (staged, outcomes) = (self.0.staged()?, self.0.outcomes()?);
        let shown: BTreeSet<&PartName> = outcomes.values().flatten().collect();
        let units: BTreeSet<_> = staged.parts.keys().filter(|p| !shown.contains(p)).map(PartName::unit).collect();
        Ok(units.len())
    }

    fn commit(&self, handles: &[Vec<u8>]) -> Result<Committed, SinkError> {
        let parts: Vec<(PartName, Promised)> = self.decode(handles)?.into_iter().flat_map(|h| h.parts).collect();
        // Output of declined checkpoints is shown with the one that covers it.
        let Some(checkpoint) = parts.iter().map(|(part, _)| part.checkpoint).max() else {
            return Ok(Committed::default());
        };
        self.0.crash.reach("files.commit-sent");
        match self.0.show(checkpoint, &parts)? {
            true => Ok(Committed { now: handles.len(), already: 0 }),
            false => Ok(Committed { now: 0, already: handles.len() }),
        }
    }

    fn abort_all_but(&self, keep: &[Vec<u8>]) -> Result<usize, SinkError> {
        let keep = self.decode(keep)?.into_iter().flat_map(|h| h.parts).map(|(part, _)| part).collect();
        self.0.abort_all_but(&keep)
    }

    fn forget(&self, handles: &[Vec<u8>]) -> Result<(), SinkError> {
        let parts = self.decode(handles)?.into_iter().flat_map(|h| h.parts);
        let checkpoints: BTreeSet<u64> = parts.map(|(part, _)| part.checkpoint).collect();
        checkpoints.into_iter().try_for_each(|checkpoint| self.0.forget(checkpoint))
    }
}
