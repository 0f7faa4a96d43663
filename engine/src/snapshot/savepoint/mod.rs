//! Savepoints: a complete, committed checkpoint in a folder of its own.
//!
//! ```text
//!   <savepoint>/savepoint      what this is; written last: its presence says that the rest is there
//!   <savepoint>/manifest       the checkpoint's manifest
//!   <savepoint>/state/..       every state file that the manifest names, base and deltas
//! ```
//!
//! * A savepoint names nothing outside its folder, which may be moved and copied. No janitor ever touches it.
//! * It is written only when everything its manifest lists is committed: whoever restores it has nothing to commit.
//! * Each file was read back and found whole before the record was written (I-5).
//!
//! `order` is how one is asked for, `take` how it is written, `restore` how a job begins from it. `docs/savepoints.md` has the
//! whole story.

mod order;
mod restore;
mod take;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::{Files, IoContext, IoError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::envelope::{EnvelopeError, Kind};
use super::layout::{ManifestName, STATE};
use super::manifest::{Manifest, ManifestError};
use super::reader::{ReadError, StateFileReader};
use super::store::StoreError;
use crate::checkpoint::StateFile;
use crate::id::{Attempt, CheckpointId, JobId};

pub(crate) use order::{Orders, Which};
pub use order::{SavepointState, SavepointTicket};
pub(crate) use restore::{is_seeded_from, needs_seeding, put_back, seed};
pub(crate) use take::take;

/// The record's file.
const RECORD: &str = "savepoint";
/// The manifest's file.
const MANIFEST: &str = "manifest";
const KIND: Kind = Kind { magic: *b"CWSAVEP\0", name: "savepoint", version: 1 };
/// No record is longer.
const RECORD_MAX_BYTES: u64 = 64 * 1024;
/// No manifest is longer.
const MANIFEST_MAX_BYTES: u64 = 1 << 30;

/// What a savepoint says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavepointRecord {
    /// The job that took it.
    pub job: JobId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that published its manifest.
    pub attempt: Attempt,
    /// The manifest's checksum.
    pub checksum: u64,
    /// When it was written, by the wall clock, in milliseconds since 1970.
    pub taken_ms: i64,
    /// Every source had ended or was drained: nothing follows it.
    pub is_final: bool,
    /// Workers that took it.
    pub workers: u32,
    /// State files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The order it was written for; random.
    pub order: u64,
}

/// A savepoint can't be written, read, or begun from. Nothing has been changed but what the text says.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SavepointError {
    /// The system failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The checkpoint store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder isn't free.
    #[error("{} {what}; choose another folder", dir.display())]
    Taken {
        /// The folder.
        dir: PathBuf,
        /// What is in it.
        what: String,
    },
    /// There is no savepoint.
    #[error("{} is not a savepoint: it has no file {RECORD:?}, which is written last; it was not finished, or is something else", dir.display())]
    NotOne {
        /// The folder.
        dir: PathBuf,
    },
    /// It is damaged.
    #[error("the savepoint {} is damaged: {problem}; take it from a copy", dir.display())]
    Damaged {
        /// The folder.
        dir: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// A savepoint that was read.
#[derive(Clone, Debug)]
pub struct Savepoint {
    files: Arc<dyn Files>,
    dir: PathBuf,
    record: SavepointRecord,
    manifest: Manifest,
}

impl Savepoint {
    /// Reads the savepoint in `dir`. Its state files are only looked at by [`Savepoint::verify`].
    ///
    /// # Errors
    /// [`SavepointError`].
    pub fn open(files: &Arc<dyn Files>, dir: &Path) -> Result<Savepoint, SavepointError> {
        let (path, damaged) =
            (dir.join(RECORD), |problem: String| SavepointError::Damaged { dir: dir.into(), problem });
        if files.kind(&path).at("look for", &path)? != Some(false) {
            return Err(SavepointError::NotOne { dir: dir.to_path_buf() });
        }
        let bytes = files.read(&path, RECORD_MAX_BYTES).at("read", &path)?;
        let (record, _): (SavepointRecord, u64) =
            KIND.open(&bytes).map_err(|e: EnvelopeError| damaged(e.to_string()))?;
        let path = dir.join(MANIFEST);
        let bytes = files.read(&path, MANIFEST_MAX_BYTES).at("read", &path)?;
        let (manifest, checksum) = Manifest::decode(&bytes).map_err(|e: ManifestError| damaged(e.to_string()))?;
        let said = (record.job, record.checkpoint, record.attempt, record.checksum);
        if said != (manifest.job, manifest.checkpoint, manifest.attempt, checksum) {
            return Err(damaged("its manifest is that of another checkpoint".to_string()));
        }
        Ok(Savepoint { files: files.clone(), dir: dir.to_path_buf(), record, manifest })
    }

    /// What it says about itself.
    pub fn record(&self) -> &SavepointRecord {
        &self.record
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads every state file to its end and checks every checksum.
    ///
    /// # Errors
    /// [`SavepointError`] with the first that isn't whole.
    pub fn verify(&self) -> Result<(), SavepointError> {
        for file in files_of(&self.manifest) {
            verify(self.files.as_ref(), &self.dir, &self.path_of(file), file)?;
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> ManifestName {
        self.manifest.name()
    }

    pub(crate) fn is_final(&self) -> bool {
        self.manifest.is_final
    }

    fn path_of(&self, file: &StateFile) -> PathBuf {
        self.dir.join(STATE).join(&file.name)
    }
}

fn files_of(manifest: &Manifest) -> impl Iterator<Item = &StateFile> {
    manifest.snapshots.iter().flat_map(|s| &s.chains).flat_map(|chain| &chain.files)
}

/// Checks that the file at `path` is the one that a manifest names, to its last byte.
fn verify(files: &dyn Files, dir: &Path, path: &Path, expected: &StateFile) -> Result<(), SavepointError> {
    let opened = files.open(path, cutwater_platform::Open::Read).at("open", path)?;
    let whole = StateFileReader::open(opened, expected).and_then(|reader| reader.verify().map(|_| ()));
    whole.map_err(|e: ReadError| SavepointError::Damaged { dir: dir.to_path_buf(), problem: e.to_string() })
}

/// Copies a file under a name that must be free, and syncs its bytes.
fn copy(files: &dyn Files, from: &Arc<dyn cutwater_platform::File>, to: &Path) -> Result<(), IoError> {
    const PIECE: usize = 1 << 20;
    let length = from.len().at("look at", to)?;
    let out = files.open(to, cutwater_platform::Open::CreateNew).at("create", to)?;
    let (mut at, mut piece) = (0, vec![]);
    while at < length {
        piece.resize(PIECE.min(usize::try_from(length - at).unwrap_or(PIECE)), 0);
        from.read_exact_at(&mut piece, at).at("read what is copied to", to)?;
        out.write_all_at(&piece, at).at("write", to)?;
        at += piece.len() as u64;
    }
    out.sync_data().at("sync", to)
}
