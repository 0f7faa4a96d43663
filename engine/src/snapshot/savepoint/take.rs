//! Writes a savepoint: copies what a committed checkpoint names into a folder, and says last that it is whole.
//!
//! Whatever a crash leaves is no savepoint until the record is there; the same order, taken up again, writes the rest anew.

use std::path::Path;

use cutwater_platform::{IoContext, Platform};

use super::{KIND, MANIFEST, RECORD, Savepoint, SavepointError, SavepointRecord, copy, files_of, verify};
use crate::snapshot::layout::{ManifestName, STATE};
use crate::snapshot::store::CheckpointStore;

/// Writes the checkpoint `name`, which is committed and whose files nobody removes meanwhile, into `dir`, for the order of this
/// number. An order that was carried out before (and whose answer got lost) finds its savepoint.
///
/// # Errors
/// [`SavepointError`]; what was written is no savepoint.
pub(crate) fn take(
    platform: &Platform,
    store: &dyn CheckpointStore,
    name: ManifestName,
    dir: &Path,
    order: u64,
) -> Result<SavepointRecord, SavepointError> {
    let (files, crash) = (platform.files.as_ref(), &platform.crash);
    if files.exists(&dir.join(RECORD)).at("look for", &dir.join(RECORD))? {
        let there = Savepoint::open(&platform.files, dir)?;
        if there.record.order == order && there.record.job == store.job() {
            return Ok(there.record);
        }
        let what = format!("holds a savepoint of checkpoint {} already", there.record.checkpoint);
        return Err(SavepointError::Taken { dir: dir.to_path_buf(), what });
    }
    clear(platform, dir)?;
    let state = dir.join(STATE);
    files.create_dir_all(&state).at("create the directory", &state)?;
    crash.reach("savepoint.begun");

    let (manifest, _) = store.manifest(name)?;
    let (mut count, mut bytes) = (0, 0);
    for file in files_of(&manifest) {
        let to = state.join(&file.name);
        copy(files, &store.open_state_file(&file.name)?, &to)?;
        verify(files, dir, &to, file)?;
        (count, bytes) = (count + 1, bytes + file.bytes);
        crash.reach("savepoint.file-copied");
    }
    files.sync_dir(&state).at("sync the directory", &state)?;
    let damaged = |e: &dyn std::fmt::Display| SavepointError::Damaged { dir: dir.into(), problem: e.to_string() };
    let encoded = manifest.encode().map_err(|e| damaged(&e))?;
    let path = dir.join(MANIFEST);
    files.publish_bytes(&path, &encoded.bytes).at("write", &path)?;
    crash.reach("savepoint.manifest-written");

    let record = SavepointRecord {
        job: manifest.job,
        checkpoint: manifest.checkpoint,
        attempt: manifest.attempt,
        checksum: encoded.checksum,
        taken_ms: platform.clock.wall().0,
        is_final: manifest.is_final,
        workers: manifest.workers,
        files: count,
        bytes,
        order,
    };
    let (sealed, _) = KIND.seal(&record).map_err(|e| damaged(&e))?;
    let path = dir.join(RECORD);
    files.publish_bytes(&path, &sealed).at("write", &path)?;
    crash.reach("savepoint.published");
    Ok(record)
}

/// Removes what an order that was cut short has left in the folder; refuses to touch anything else.
fn clear(platform: &Platform, dir: &Path) -> Result<(), SavepointError> {
    let files = platform.files.as_ref();
    if !files.exists(dir).at("look for", dir)? {
        return Ok(());
    }
    let entries = files.read_dir(dir).at("list", dir)?;
    let ours = |name: &str, is_dir: bool| match is_dir {
        true => name == STATE,
        false => name == MANIFEST || name.ends_with(".tmp"),
    };
    if let Some(other) = entries.iter().find(|entry| !ours(&entry.name, entry.is_dir)) {
        let what = format!("isn't empty: it holds {:?}", other.name);
        return Err(SavepointError::Taken { dir: dir.to_path_buf(), what });
    }
    for entry in entries {
        let path = dir.join(&entry.name);
        if !entry.is_dir {
            files.remove_file(&path).at("remove", &path)?;
            continue;
        }
        for file in files.read_dir(&path).at("list", &path)? {
            let path = path.join(&file.name);
            files.remove_file(&path).at("remove", &path)?;
        }
    }
    Ok(())
}
