//! Beginning from a savepoint: what is done before an attempt decides where it goes on.
//!
//! In a directory without a store, the store is made from the savepoint. In the store of the savepoint's own job, the decision is
//! made first, as if the savepoint's checkpoint were there, so that a refusal changes nothing; then what is missing is put back.

use std::path::Path;

use cutwater_platform::Platform;

use crate::config::RestoreFrom;
use crate::recovery::{Found, ManifestContent, Refusal, Resolution, Want, resolve};
use crate::snapshot::{
    CheckpointStore, Savepoint, SavepointError, StoreError, is_seeded_from, needs_seeding, put_back, seed,
};
use crate::worker::attempt::Failure;

impl From<SavepointError> for Failure {
    fn from(error: SavepointError) -> Failure {
        match error {
            SavepointError::Io(error) => Failure::from(StoreError::Io(error)),
            SavepointError::Store(error) => Failure::from(error),
            other => Failure::Refused(other.to_string()),
        }
    }
}

/// Reads the savepoint; makes a store in `dir` from it if there is none.
pub(crate) fn begin_from(platform: &Platform, dir: &Path, from: &RestoreFrom) -> Result<Savepoint, Failure> {
    let savepoint = Savepoint::open(&platform.files, &from.savepoint)?;
    if needs_seeding(platform.files.as_ref(), dir)? {
        seed(platform, dir, &savepoint)?;
        tracing::info!(savepoint = %from.savepoint.display(), "a new job begins from a savepoint");
    }
    Ok(savepoint)
}

/// Where an attempt goes on that was asked to begin from `savepoint`. True: the store was changed, read the facts again.
pub(crate) fn goal(
    platform: &Platform,
    dir: &Path,
    store: &dyn CheckpointStore,
    found: &Found,
    savepoint: &Savepoint,
    fork: bool,
) -> Result<(Want, bool), Failure> {
    let (record, name) = (savepoint.record(), savepoint.name());
    if store.job() != record.job {
        if is_seeded_from(platform.files.as_ref(), dir, savepoint)? {
            return Ok((Want::Newest, false));
        }
        return Err(Failure::Refused(format!(
            "{} is the store of job {}, and the savepoint {} is of job {}; restore it into a directory of its own",
            dir.display(),
            store.job(),
            savepoint.dir().display(),
            record.job
        )));
    }
    let want = Want::Exactly { checkpoint: name.checkpoint, fork };
    let mut facts = found.facts.clone();
    facts.manifests.entry(name).or_insert(ManifestContent::Good { is_final: savepoint.is_final() });
    facts.committed.insert(name);
    match resolve(&facts, want) {
        Resolution::Resume(resume) if resume.manifest == name => {}
        Resolution::Finished { manifest } if manifest == name => {}
        Resolution::Fenced { .. } => return Err(Failure::Fenced),
        Resolution::Refuse(refusal @ (Refusal::Forks { .. } | Refusal::Damaged { .. } | Refusal::Lost { .. })) => {
            return Err(Failure::Refused(refusal.to_string()));
        }
        Resolution::Refuse(refusal @ Refusal::Foreign { .. }) => {
            return Err(Failure::Incompatible(refusal.to_string()));
        }
        _ => {
            return Err(Failure::Refused(format!(
                "the savepoint {} is of checkpoint {} of attempt {}, which is not on the timeline of {}: the job went back behind \
                 it and on without it. Restore it into a directory of its own",
                savepoint.dir().display(),
                name.checkpoint,
                name.attempt,
                dir.display()
            )));
        }
    }
    put_back(platform, dir, savepoint)?;
    Ok((want, true))
}
