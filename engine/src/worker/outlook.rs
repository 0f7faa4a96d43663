//! What would become of a checkpoint's contents in a program: looked at, nothing claimed, nothing changed.

use std::fmt;

use crate::config::Options;
use crate::error::{BuildError, RunError};
use crate::graph::Job;
use crate::id::{Attempt, CheckpointId};
use crate::observe::Control;
use crate::recovery::{Resolution, Upgrade, Want, read_facts, resolve};
use crate::snapshot::{CheckpointStore, FsStore, Owner};
use crate::worker::recover::foreign;
use crate::worker::run::{CHECKPOINTS, Run};

/// What a start would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// No checkpoint: it would begin anew.
    Fresh,
    /// The job has finished with this checkpoint.
    Finished(CheckpointId),
    /// It would go on, if nothing is in the way.
    GoesOn(Upgrade),
}

impl Outlook {
    /// Whether a start would be refused.
    pub fn is_refused(&self) -> bool {
        matches!(self, Outlook::GoesOn(upgrade) if upgrade.problems().next().is_some())
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outlook::Fresh => f.write_str("there is no checkpoint; the job would begin anew"),
            Outlook::Finished(checkpoint) => write!(f, "the job has finished with checkpoint {checkpoint}"),
            Outlook::GoesOn(upgrade) => upgrade.fmt(f),
        }
    }
}

/// Compares a program with the checkpoint it would go on from, without running it. The check is the one that every start makes;
/// a job may be running in the directory meanwhile.
///
/// # Errors
/// The job can't be built, the store can't be read, or a start would be refused for another reason than what the program keeps.
pub fn check_upgrade(
    build: impl Fn(&Job) -> Result<(), BuildError> + Send + Sync + 'static,
    options: &Options,
) -> Result<Outlook, RunError> {
    let control = Control::new();
    let run = Run::prepare(std::sync::Arc::new(build), options, &control)?;
    let dir = options.dir.join(CHECKPOINTS);
    let platform = &options.platform;
    if options.guarantee.snapshots().is_none() || !platform.files.exists(&dir).unwrap_or(false) {
        return Ok(Outlook::Fresh);
    }
    let store = FsStore::existing(platform.clone(), dir).map_err(|e| RunError::Refused(e.to_string()))?;
    let look = || -> Result<_, crate::worker::attempt::Failure> {
        // As the attempt that would be next, which isn't claimed.
        let newest = store.list()?.attempts.last().copied().unwrap_or_default();
        let owner = Owner { job: store.job(), attempt: Attempt(newest.0 + 1) };
        let kind = options.guarantee.kind();
        let mut found = read_facts(&store, &owner, CheckpointId::default(), |m| foreign(m, kind))?;
        found.facts.claimed.insert(owner.attempt);
        let resolution = resolve(&found.facts, Want::Newest);
        match &resolution {
            Resolution::Refuse(refusal) => return Err(refusal.clone().into()),
            Resolution::Fenced { .. } => return Err(crate::worker::attempt::Failure::Fenced),
            Resolution::Fresh { .. } | Resolution::Resume(_) | Resolution::Finished { .. } => {}
        }
        let upgrade = run.here()?.look(&resolution, &found)?;
        Ok(match (upgrade, resolution) {
            (Some(upgrade), _) => Outlook::GoesOn(upgrade),
            (None, Resolution::Finished { manifest }) => Outlook::Finished(manifest.checkpoint),
            (None, Resolution::Resume(resume)) => Outlook::Finished(resume.manifest.checkpoint),
            (None, _) => Outlook::Fresh,
        })
    };
    look().map_err(RunError::from)
}
