//! Begins from a savepoint: in the store it was taken in, or in a new one.
//!
//! *The same job's store.* What the savepoint names is put back where it is missing: files, the record of the commit, the manifest,
//! in this order, so that a manifest never names a file that isn't there, and never seems uncommitted. Going on from it is then what
//! any start from an older checkpoint is, refusals included.
//!
//! *A new directory.* The store is made as if a job of its own had just taken that checkpoint: a new owner, the attempt of the
//! savepoint claimed, its manifest with the new owner's name and without what the old owner had prepared (all of it is committed),
//! recorded as committed. The job's record is written last, so that an unfinished one is no store; a mark says that it may be
//! begun again.

use std::path::Path;

use cutwater_platform::{Files, IoContext, Open, Platform};
use serde::{Deserialize, Serialize};

use super::{Savepoint, SavepointError, copy, files_of, verify};
use crate::id::{CheckpointId, JobId};
use crate::snapshot::envelope::Kind;
use crate::snapshot::layout::{ATTEMPTS, COMMITTED, DIRECTORIES, JOB, MANIFESTS, STATE, attempt_name, base_name};
use crate::snapshot::manifest::Manifest;
use crate::snapshot::record::{
    BASE_KIND, Base, CLAIM_KIND, COMMITTED_KIND, Claimant, CommittedRecord, JOB_KIND, JobRecord, ManifestPoint,
};

/// Says in a store from which savepoint it was made.
const ORIGIN: &str = "origin";
/// Says that a store is being made from a savepoint.
const RESTORING: &str = "restoring";
const ORIGIN_KIND: Kind = Kind { magic: *b"CWORIGIN", name: "origin of a job", version: 1 };
const ORIGIN_MAX_BYTES: u64 = 64 * 1024;

/// The savepoint that a store was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    job: JobId,
    checkpoint: CheckpointId,
    checksum: u64,
}

impl Origin {
    fn of(savepoint: &Savepoint) -> Origin {
        let record = savepoint.record();
        Origin { job: record.job, checkpoint: record.checkpoint, checksum: record.checksum }
    }
}

/// Whether there is no store in `dir`, or one that was begun from a savepoint and not finished.
///
/// # Errors
/// [`SavepointError`].
pub(crate) fn needs_seeding(files: &dyn Files, dir: &Path) -> Result<bool, SavepointError> {
    if !files.exists(dir).at("look for", dir)? {
        return Ok(true);
    }
    if files.exists(&dir.join(JOB)).at("look for", &dir.join(JOB))? {
        return Ok(false);
    }
    let (mark, entries) = (dir.join(RESTORING), files.read_dir(dir).at("list", dir)?);
    Ok(entries.is_empty() || files.exists(&mark).at("look for", &mark)?)
}

/// Whether the store in `dir` was made from this savepoint: then it is restored already, and the job goes on from its newest point.
///
/// # Errors
/// [`SavepointError`].
pub(crate) fn is_seeded_from(files: &dyn Files, dir: &Path, savepoint: &Savepoint) -> Result<bool, SavepointError> {
    let path = dir.join(ORIGIN);
    if !files.exists(&path).at("look for", &path)? {
        return Ok(false);
    }
    let bytes = files.read(&path, ORIGIN_MAX_BYTES).at("read", &path)?;
    let damaged = |e: &dyn std::fmt::Display| SavepointError::Damaged { dir: dir.into(), problem: e.to_string() };
    let (origin, _): (Origin, u64) = ORIGIN_KIND.open(&bytes).map_err(|e| damaged(&e))?;
    Ok(origin == Origin::of(savepoint))
}

/// Makes the store of a new job from a savepoint. `dir` [needs it](needs_seeding).
///
/// # Errors
/// [`SavepointError`]; then there is no store yet, and the same may be tried again.
pub(crate) fn seed(platform: &Platform, dir: &Path, savepoint: &Savepoint) -> Result<(), SavepointError> {
    let (files, crash) = (platform.files.as_ref(), &platform.crash);
    let damaged =
        |e: &dyn std::fmt::Display| SavepointError::Damaged { dir: savepoint.dir.clone(), problem: e.to_string() };
    files.create_dir_all(dir).at("create the directory", dir)?;
    let mark = dir.join(RESTORING);
    let marked = files.open(&mark, Open::Create).and_then(|file| file.sync_data());
    marked.and_then(|()| files.sync_dir(dir)).at("mark as being restored with", &mark)?;
    crash.reach("restore.marked");
    for name in DIRECTORIES {
        let path = dir.join(name);
        files.create_dir_all(&path).at("create the directory", &path)?;
        for left in files.read_dir(&path).at("list", &path)? {
            let path = path.join(&left.name);
            files.remove_file(&path).at("remove", &path)?;
        }
    }
    let origin = dir.join(ORIGIN);
    if files.exists(&origin).at("look for", &origin)? {
        files.remove_file(&origin).at("remove", &origin)?;
    }

    let random = &platform.random;
    let job = JobId(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()));
    let mut manifest: Manifest = savepoint.manifest.clone();
    manifest.job = job;
    manifest.carried.clear();
    manifest.snapshots.iter_mut().for_each(|snapshot| snapshot.committables.clear());
    let encoded = manifest.encode().map_err(|e| damaged(&e))?;
    let (attempt, now) = (manifest.attempt, platform.clock.wall().0);

    for file in files_of(&manifest) {
        let to = dir.join(STATE).join(&file.name);
        let from = savepoint.path_of(file);
        copy(files, &files.open(&from, Open::Read).at("open", &from)?, &to)?;
        verify(files, &savepoint.dir, &to, file)?;
    }
    let state = dir.join(STATE);
    files.sync_dir(&state).at("sync the directory", &state)?;
    crash.reach("restore.files-copied");

    let (pid, nonce) = (std::process::id(), random.next_u64());
    let claim = Claimant { job, attempt, pid, claimed_ms: now, nonce };
    let base = Base { job, attempt, point: None, forked: false };
    let point: ManifestPoint = encoded.point();
    let committed = CommittedRecord { job, manifest: point, by: attempt };
    let name = manifest.name();
    let seal = |sealed: Result<(Vec<u8>, u64), crate::snapshot::envelope::EnvelopeError>| {
        sealed.map(|(bytes, _)| bytes).map_err(|e| damaged(&e))
    };
    for (path, bytes) in [
        (dir.join(ATTEMPTS).join(attempt_name(attempt)), seal(CLAIM_KIND.seal(&claim))?),
        (dir.join(ATTEMPTS).join(base_name(attempt)), seal(BASE_KIND.seal(&base))?),
        (dir.join(COMMITTED).join(name.committed_file()), seal(COMMITTED_KIND.seal(&committed))?),
        (dir.join(MANIFESTS).join(name.manifest_file()), encoded.bytes),
        (origin, seal(ORIGIN_KIND.seal(&Origin::of(savepoint)))?),
    ] {
        files.publish_bytes(&path, &bytes).at("write", &path)?;
    }
    crash.reach("restore.manifest-written");
    let (path, record) = (dir.join(JOB), JobRecord { job, created_ms: now });
    files.publish_bytes(&path, &seal(JOB_KIND.seal(&record))?).at("write", &path)?;
    crash.reach("restore.seeded");
    files.remove_file(&mark).at("remove", &mark)?;
    Ok(())
}

/// Puts back what of a savepoint is missing in the store of its own job, in `dir`.
///
/// # Errors
/// [`SavepointError`]; what was put back does no harm.
pub(crate) fn put_back(platform: &Platform, dir: &Path, savepoint: &Savepoint) -> Result<(), SavepointError> {
    let (files, crash) = (platform.files.as_ref(), &platform.crash);
    let state = dir.join(STATE);
    for file in files_of(&savepoint.manifest) {
        let to = state.join(&file.name);
        if files.exists(&to).at("look for", &to)? {
            continue;
        }
        let (from, unnamed) =
            (savepoint.path_of(file), state.join(format!(".{:016x}.tmp", platform.random.next_u64())));
        copy(files, &files.open(&from, Open::Read).at("open", &from)?, &unnamed)?;
        verify(files, &savepoint.dir, &unnamed, file)?;
        files.publish(&unnamed, &to).at("publish", &to)?;
        crash.reach("restore.file-put-back");
    }
    files.sync_dir(&state).at("sync the directory", &state)?;
    let (record, name) = (savepoint.record(), savepoint.name());
    let point = ManifestPoint { checkpoint: name.checkpoint, attempt: name.attempt, checksum: record.checksum };
    let committed = CommittedRecord { job: record.job, manifest: point, by: name.attempt };
    let damaged =
        |e: &dyn std::fmt::Display| SavepointError::Damaged { dir: savepoint.dir.clone(), problem: e.to_string() };
    let (committed, _) = COMMITTED_KIND.seal(&committed).map_err(|e| damaged(&e))?;
    let manifest = savepoint.manifest.encode().map_err(|e| damaged(&e))?;
    for (path, bytes, point) in [
        (dir.join(COMMITTED).join(name.committed_file()), committed, "restore.commit-put-back"),
        (dir.join(MANIFESTS).join(name.manifest_file()), manifest.bytes, "restore.manifest-put-back"),
    ] {
        if !files.exists(&path).at("look for", &path)? {
            files.publish_bytes(&path, &bytes).at("write", &path)?;
        }
        crash.reach(point);
    }
    Ok(())
}
