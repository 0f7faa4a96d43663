//! A sink of one's own that is exactly-once: lines in files that appear when their checkpoint is committed.
//! `cargo run --release --example custom_sink -- --dir data`, look into `data/out`, kill it, run it again.
//!
//! ```text
//!   out/staging-3/7-squares-0    written by attempt 3 for checkpoint 7, sink "squares", worker 0
//!   out/fenced-2/..              what attempt 2 left: renamed away, so that it finds no place to write any more
//!   out/half-3-7/..              attempt 3 puts checkpoint 7 together: copies, because a file that changes its folder can lose
//!                                both names when the power goes off
//!   out/done-7/..                checkpoint 7, visible by one rename
//! ```
//!
//! * Guarantee: exactly-once.
//! * Staged at a barrier: one synced file per worker; none if nothing was written.
//! * Commit: copies a checkpoint's files into a folder and renames that; does it again if it was stopped before.
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutwater::connectors::generator::generate;
use cutwater::engine::config::GuaranteeKind;
use cutwater::engine::error::SinkError;
use cutwater::engine::id::{Attempt, CheckpointId, JobId};
use cutwater::engine::sink::{CommitGroup, Committed, Honours, Prepare, Sink, SinkWriter, Visibility, WriterId};
use cutwater::platform::{File, Files, Open};
use cutwater::prelude::*;

/// A folder: a sink, and the group that commits what its writers prepare. A handle is `attempt/checkpoint-sink-worker`.
#[derive(Clone, Debug)]
pub(crate) struct Folder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: Arc<dyn Files>,
    dir: PathBuf,
    attempt: AtomicU64,
}

impl Folder {
    pub(crate) fn new(job: &Job, name: &str) -> Folder {
        let (files, dir) = (job.environment().platform.files.clone(), job.environment().dir.join(name));
        Folder(Arc::new(Inner { files, dir, attempt: AtomicU64::new(0) }))
    }

    /// Everything that is staged, by handle; what belongs to older attempts lies in folders that were renamed.
    fn staged(&self) -> Result<Vec<(String, PathBuf)>, SinkError> {
        let mut staged = vec![];
        for folder in self.0.files.read_dir(&self.0.dir).map_err(failed)? {
            let Some((_, attempt)) = attempt_of(&folder.name) else { continue };
            for file in self.0.files.read_dir(&self.0.dir.join(&folder.name)).map_err(failed)? {
                staged.push((format!("{attempt}/{}", file.name), self.0.dir.join(&folder.name).join(&file.name)));
            }
        }
        Ok(staged)
    }
}

impl Sink for Folder {
    type Item = String;

    fn honours(&self) -> Honours {
        Honours { guarantees: vec![GuaranteeKind::ExactlyOnce], reason: "files appear with their checkpoint".into() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        Some(Arc::new(self.clone()))
    }

    fn open(&self, id: &WriterId) -> Result<Box<dyn SinkWriter<Item = String>>, SinkError> {
        let Visibility::ByCheckpoint { first: checkpoint } = id.visibility else {
            return Err(failed(Error::other("it can't show anything before its checkpoint")));
        };
        Ok(Box::new(Writer { folder: self.0.clone(), id: id.clone(), checkpoint, open: None }))
    }
}

struct Writer {
    folder: Arc<Inner>,
    id: WriterId,
    checkpoint: CheckpointId,
    /// The interval's file, its name and size; there is none before the first record.
    open: Option<(Arc<dyn File>, String, u64)>,
}

impl SinkWriter for Writer {
    type Item = String;

    fn write(&mut self, batch: Vec<String>) -> Result<(), SinkError> {
        if self.open.is_none() && !batch.is_empty() {
            let name = format!("{}-{}-{}", self.checkpoint, self.id.sink, self.id.worker);
            let path = self.folder.dir.join(format!("staging-{}", self.id.attempt)).join(&name);
            self.open = Some((self.folder.files.open(&path, Open::CreateNew).map_err(failed)?, name, 0));
        }
        let Some((file, _, size)) = &mut self.open else { return Ok(()) };
        let lines: String = batch.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        file.write_all_at(lines.as_bytes(), *size).map_err(failed)?;
        *size += lines.len() as u64;
        Ok(())
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        self.checkpoint = checkpoint.next();
        let Some((file, name, _)) = self.open.take() else { return Ok(None) };
        let (folder, attempt) = (self.folder.clone(), self.id.attempt);
        Ok(Some(Box::new(move || {
            file.sync_data().map_err(failed)?;
            folder.files.sync_dir(&folder.dir.join(format!("staging-{attempt}"))).map_err(failed)?;
            Ok(Some(format!("{attempt}/{name}").into_bytes()))
        })))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.open.is_none().then_some(()).ok_or_else(|| failed(Error::other("records behind the last barrier")))
    }
}

impl CommitGroup for Folder {
    fn name(&self) -> &str {
        "folder"
    }

    fn fence(&self, _job: JobId, Attempt(own): Attempt) -> Result<(), SinkError> {
        let Inner { files, dir, attempt } = &*self.0;
        files.create_dir_all(dir).map_err(failed)?;
        // First announce oneself, then look around: of two that come at the same time, one at least sees the other.
        files.create_dir(&dir.join(format!("staging-{own}"))).map_err(failed)?;
        for name in files.read_dir(dir).map_err(failed)?.into_iter().map(|entry| entry.name) {
            match attempt_of(&name) {
                Some((_, other)) if other > own => return Err(failed(ErrorKind::NotFound.into())),
                Some(("staging", other)) if other < own => {
                    files.rename(&dir.join(&name), &dir.join(format!("fenced-{other}"))).map_err(failed)?;
                }
                _ => {}
            }
        }
        attempt.store(own, Ordering::SeqCst);
        files.sync_dir(dir).map_err(failed)
    }

    fn prepared(&self) -> Result<usize, SinkError> {
        Ok(self.staged()?.len())
    }

    fn commit(&self, handles: &[Vec<u8>]) -> Result<Committed, SinkError> {
        let Inner { files, dir, attempt } = &*self.0;
        let own = attempt.load(Ordering::SeqCst);
        let lost = |handle: &str| SinkError::fatal(handle, "this output is lost");
        let handles: Vec<_> = handles.iter().map(|handle| String::from_utf8_lossy(handle)).collect();
        let parts = handles.iter().map(|handle| parse(handle).ok_or_else(|| lost(handle)));
        let parts: Vec<(u64, u64, &str)> = parts.collect::<Result<_, _>>()?;
        let Some(checkpoint) = parts.iter().map(|(_, checkpoint, _)| *checkpoint).max() else {
            return Ok(Committed::default());
        };
        let (half, done) = (dir.join(format!("half-{own}-{checkpoint}")), dir.join(format!("done-{checkpoint}")));
        let place = |by: u64, name: &str| {
            dir.join(if by == own { "staging" } else { "fenced" }.to_string() + &format!("-{by}/{name}"))
        };
        let is_done = files.exists(&done).map_err(failed)?;
        if is_done {
            // Synced, because whoever renamed it may have been killed before that.
            files.sync_dir(dir).map_err(failed)?;
        } else {
            files.create_dir_all(&half).map_err(failed)?;
        }
        if !files.exists(&dir.join(format!("staging-{own}"))).map_err(failed)? {
            return Err(failed(ErrorKind::NotFound.into()));
        }
        for ((by, _, name), handle) in parts.iter().zip(&handles) {
            if is_done && files.exists(&done.join(format!("{by}-{name}"))).map_err(failed)? {
                continue;
            }
            // Not shown and not there: nobody prepared it, or it was aborted.
            if is_done || !files.exists(&place(*by, name)).map_err(failed)? {
                return Err(lost(handle));
            }
            let bytes = files.read(&place(*by, name), u64::MAX).map_err(failed)?;
            let copy = files.open(&half.join(format!("{by}-{name}")), Open::Create).map_err(failed)?;
            copy.set_len(0)
                .and_then(|()| copy.write_all_at(&bytes, 0))
                .and_then(|()| copy.sync_data())
                .map_err(failed)?;
        }
        if !is_done {
            files.sync_dir(&half).map_err(failed)?;
            files.rename(&half, &done).map_err(failed)?;
            files.sync_dir(dir).map_err(failed)?;
        }
        for (by, _, name) in &parts {
            let _ = files.remove_file(&place(*by, name)); // The originals; what is left of them is removed with the next start.
        }
        Ok(if is_done {
            Committed { now: 0, already: handles.len() }
        } else {
            Committed { now: handles.len(), already: 0 }
        })
    }

    fn abort_all_but(&self, keep: &[Vec<u8>]) -> Result<usize, SinkError> {
        let keep: BTreeSet<&[u8]> = keep.iter().map(Vec::as_slice).collect();
        let staged = self.staged()?.into_iter().filter(|(handle, _)| !keep.contains(handle.as_bytes()));
        staged
            .map(|(_, path)| self.0.files.remove_file(&path).map_err(failed))
            .try_fold(0, |n, removed| removed.map(|()| n + 1))
    }

    fn forget(&self, _handles: &[Vec<u8>]) -> Result<(), SinkError> {
        Ok(()) // The folder of a checkpoint is its outcome, and stays.
    }
}

/// A folder that isn't there any more was renamed away by a newer attempt.
fn failed(error: Error) -> SinkError {
    match error.kind() {
        ErrorKind::NotFound => SinkError::fenced("folder"),
        _ => SinkError::failed("folder", error),
    }
}

/// `staging-3` or `fenced-3`.
fn attempt_of(folder: &str) -> Option<(&str, u64)> {
    let (kind, attempt) = folder.split_once('-')?;
    Some((kind, attempt.parse().ok()?)).filter(|_| matches!(kind, "staging" | "fenced"))
}

/// A handle's attempt, checkpoint and file name.
fn parse(handle: &str) -> Option<(u64, u64, &str)> {
    let (attempt, name) = handle.split_once('/').filter(|(_, name)| !name.contains('/'))?;
    Some((attempt.parse().ok()?, name.split_once('-')?.0.parse().ok()?, name))
}

fn main() -> ExitCode {
    cutwater::main(|job| {
        let numbers = job.source("numbers", generate(job, 100_000, |n| n).per_second(20_000));
        numbers.map(|n| format!("{n} {}", n * n)).sink("squares", Folder::new(job, "out"));
        Ok(())
    })
}
