//! The target folder of a file sink on the disk: what attempts leave there, found by listing, and moved on step by step.
//!
//! The promise:
//! * An attempt that was overtaken finds a name missing at its next step, and that ends it: what it writes to, and the name that
//!   stands for its right to write, are renamed away by its successor's fence (I-7).
//! * A checkpoint is shown by one rename within the target folder, behind a durable outcome that lists its parts: readers see it
//!   whole or not at all (I-1), and that it was shown is known even if somebody has taken it away since.
//! * What is shown is what was prepared, to the byte: a part is read back and compared with its checksum before its checkpoint is
//!   decided. (Handles of the first format have the length alone.)
//! * No prepared part ever changes its folder: a rename across two folders can lose both names when the power goes off between
//!   their syncs. The folder of a checkpoint is renamed whole; the rare one that covers declined checkpoints is made of copies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cutwater_engine::error::SinkError;
use cutwater_engine::id::JobId;
use cutwater_platform::{CrashPoints, Files, Open, Platform};
use xxhash_rust::xxh3::Xxh3;

use crate::files::name::{Folder, Handle, OUTCOMES, OWNER, PartName, Promised};

/// The disk failed. Not by its kind, for which the standard library has no name.
const EIO: i32 = 5;

/// Parts are read back and copied in pieces of this size.
const PIECE_BYTES: usize = 256 * 1024;

/// The largest outcome: a handle's bytes times the writers of a checkpoint.
const OUTCOME_BYTES_MAX: u64 = 64 << 20;

/// A target folder that all writers of a job's sinks share.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) crash: CrashPoints,
    pub(crate) dir: PathBuf,
    /// What the commit group is called, for errors too.
    pub(crate) name: String,
    /// The attempt that has fenced last in this process. Only the folder itself decides whether it may still write.
    attempt: Mutex<Option<u64>>,
}

/// Everything that isn't shown.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// In which staging folder each part lies.
    pub(crate) parts: BTreeMap<PartName, Folder>,
    folders: Vec<Folder>,
}

impl Target {
    pub(crate) fn new(platform: &Platform, dir: PathBuf) -> Target {
        let name = format!("files:{}", dir.display());
        let (files, crash) = (platform.files.clone(), platform.crash.clone());
        Target { files, crash, dir, name, attempt: Mutex::default() }
    }

    pub(crate) fn path(&self, folder: Folder) -> PathBuf {
        self.dir.join(folder.to_string())
    }

    /// The attempt that writes here.
    pub(crate) fn own(&self) -> Result<u64, SinkError> {
        let own = *self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        own.ok_or_else(|| self.fatal("the folder was not claimed by this attempt yet; fence comes first"))
    }

    /// Makes the folder this job's: another job's output would mix with it, and its fence would take our parts away.
    pub(crate) fn claim(&self, job: JobId) -> Result<(), SinkError> {
        let owner = self.dir.join(OWNER);
        let created = self.files.create_dir_all(&self.dir.join(OUTCOMES));
        created.map_err(|e| self.failed("create the folder", &self.dir, &e))?;
        match self.files.publish_bytes(&owner, job.to_string().as_bytes()) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(self.failed("publish", &owner, &e)),
            _ => {}
        }
        let found = self.files.read(&owner, 1024).map_err(|e| self.failed("read", &owner, &e))?;
        if found != job.to_string().as_bytes() {
            let found = String::from_utf8_lossy(&found).into_owned();
            let reason =
                format!("the folder holds the output of job {found}, this is job {job}; choose another folder");
            return Err(self.fatal(reason));
        }
        // It may be there since a moment ago, by a process that was killed before it was durable.
        self.files.sync_dir(&self.dir).map_err(|e| self.failed("sync", &self.dir, &e))
    }

    /// The right to write of an attempt that has no successors: without checkpoints there is nothing to fence.
    pub(crate) fn stage(&self, own: u64) -> Result<(), SinkError> {
        self.create(Folder::Anchor(own))?;
        *self.attempt.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
        Ok(())
    }

    /// Makes a folder, if it isn't there.
    pub(crate) fn create(&self, folder: Folder) -> Result<PathBuf, SinkError> {
        let path = self.path(folder);
        match self.files.create_dir(&path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(self.failed("create", &path, &e)),
            _ => Ok(path),
        }
    }

    /// Renames away whatever older attempts write to, durably.
    pub(crate) fn fence(&self, own: u64) -> Result<(), SinkError> {
        // First announce oneself, then look around: of two that come at the same time, one at least sees the other.
        let anchor = self.path(Folder::Anchor(own));
        self.files.create_dir(&anchor).map_err(|e| self.failed("create", &anchor, &e))?;
        self.sync()?;
        let found = self.folders()?;
        if found.iter().filter_map(|f| f.attempt()).any(|attempt| attempt > own) {
            return Err(self.fenced());
        }
        // The right to write first, then what was written: an old attempt makes a folder, then looks whether it still has the right.
        self.take_away(own, found.into_iter().filter(|f| matches!(f, Folder::Anchor(_))))?;
        self.take_away(own, self.folders()?.into_iter().filter(|f| f.fenced().is_some()))?;
        self.sync()?;
        *self.attempt.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
        Ok(())
    }

    fn take_away(&self, own: u64, folders: impl Iterator<Item = Folder>) -> Result<(), SinkError> {
        for folder in folders.filter(|f| f.attempt().is_some_and(|attempt| attempt < own)) {
            let (from, to) = (self.path(folder), self.path(folder.fenced().expect("not fenced yet")));
            let renamed = match self.files.rename(&from, &to) {
                // An attempt that came back after it had been fenced leaves a folder of a name that is taken. Any other error says
                // nothing about the name, and the folder may hold what was prepared.
                Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                    self.remove_folder(&from).map_err(|_| e)
                }
                renamed => renamed,
            };
            renamed.map_err(|e| self.failed("rename away", &from, &e))?;
        }
        Ok(())
    }

    /// Removes a folder and the files in it.
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        for entry in self.files.read_dir(path)? {
            self.files.remove_file(&path.join(entry.name))?;
        }
        self.files.remove_dir(path)
    }

    fn folders(&self) -> Result<Vec<Folder>, SinkError> {
        let listed = self.files.read_dir(&self.dir).map_err(|e| self.failed("list", &self.dir, &e))?;
        Ok(listed.into_iter().filter(|entry| entry.is_dir).filter_map(|entry| Folder::parse(&entry.name)).collect())
    }

    /// Everything that isn't shown: this attempt's, and what fenced ones left.
    pub(crate) fn staged(&self) -> Result<Staged, SinkError> {
        let mut staged = Staged::default();
        for folder in self.folders()?.into_iter().filter(|f| f.attempt().is_some()) {
            staged.folders.push(folder);
            if !folder.is_staging() {
                continue;
            }
            let path = self.path(folder);
            let listed = match self.files.read_dir(&path) {
                // Shown a moment ago, by the commit that goes on beside this.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(|e| self.failed("list", &path, &e))?,
            };
            staged.parts.extend(listed.iter().filter_map(|entry| Some((PartName::parse(&entry.name)?, folder))));
        }
        Ok(staged)
    }

    /// The outcomes that are remembered: for each checkpoint what it shows.
    pub(crate) fn outcomes(&self) -> Result<BTreeMap<u64, BTreeSet<PartName>>, SinkError> {
        let dir = self.dir.join(OUTCOMES);
        let listed = self.files.read_dir(&dir).map_err(|e| self.failed("list", &dir, &e))?;
        let numbers = listed.iter().filter_map(|entry| entry.name.parse::<u64>().ok());
        numbers.map(|n| Ok((n, self.outcome(n)?.unwrap_or_default()))).collect()
    }

    fn outcome(&self, checkpoint: u64) -> Result<Option<BTreeSet<PartName>>, SinkError> {
        let path = self.outcome_path(checkpoint);
        let bytes = match self.files.read(&path, OUTCOME_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed("read", &path, &e)),
        };
        let handle = Handle::decode(&bytes).map_err(|_| {
            self.fatal(format!("{} is damaged: it should list the parts of a checkpoint. Restore it", path.display()))
        })?;
        Ok(Some(handle.parts.into_iter().map(|(part, _)| part).collect()))
    }

    fn outcome_path(&self, checkpoint: u64) -> PathBuf {
        self.dir.join(OUTCOMES).join(checkpoint.to_string())
    }

    /// Shows these parts as one checkpoint. True if that is new, false if it was done before.
    pub(crate) fn show(&self, checkpoint: u64, parts: &[(PartName, Promised)]) -> Result<bool, SinkError> {
        let own = self.own()?;
        let shown = self.path(Folder::Shown(checkpoint));
        let decided = self.outcome(checkpoint)?;
        let (staged, is_shown) = (self.staged()?, self.exists(&shown)?);
        let missing = |there: &dyn Fn(&PartName) -> bool| parts.iter().map(|(p, _)| p).find(|p| !there(p)).cloned();
        match &decided {
            Some(listed) => {
                if let Some(part) = missing(&|part| listed.contains(part)) {
                    return Err(self.lost(&part, "the checkpoint was committed without it"));
                }
                // Whoever decided it may have been killed before that was durable, or before the checkpoint was shown.
                let outcomes = self.dir.join(OUTCOMES);
                self.files.sync_dir(&outcomes).map_err(|e| self.failed("sync", &outcomes, &e))?;
                if is_shown || parts.iter().all(|(part, _)| !staged.parts.contains_key(part)) {
                    // Shown, or shown and taken away by whoever reads it.
                    self.sync()?;
                    return Ok(false);
                }
            }
            None if is_shown => {
                // Its outcome was forgotten long ago.
                let there = self.files.read_dir(&shown).map_err(|e| self.failed("list", &shown, &e))?;
                let there: BTreeSet<String> = there.into_iter().map(|entry| entry.name).collect();
                return match missing(&|part| there.contains(&part.to_string())) {
                    Some(part) => Err(self.lost(&part, "the checkpoint is shown without it")),
                    None => Ok(false),
                };
            }
            None => {}
        }
        let (folder, copied) = self.assemble(own, checkpoint, parts, &staged)?;
        self.crash.reach("files.assembled");
        if decided.is_none() {
            let path = self.outcome_path(checkpoint);
            match self.files.publish_bytes(&path, &Handle { parts: parts.to_vec() }.encode()) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(self.failed("publish", &path, &e)),
                _ => {}
            }
        }
        self.crash.reach("files.decided");
        self.check_own(own)?;
        self.files.rename(&folder, &shown).map_err(|e| self.missing("show", &folder, &e))?;
        self.sync()?;
        self.crash.reach("files.shown");
        for (part, folder) in copied {
            let path = self.path(folder);
            let original = path.join(part.to_string());
            self.files.remove_file(&original).map_err(|e| self.missing("remove", &original, &e))?;
            let _ = self.files.remove_dir(&path);
        }
        Ok(true)
    }

    /// A folder that holds these parts and nothing else, and which of them are copies there.
    fn assemble(
        &self,
        own: u64,
        checkpoint: u64,
        parts: &[(PartName, Promised)],
        staged: &Staged,
    ) -> Result<(PathBuf, Vec<(PartName, Folder)>), SinkError> {
        self.check_own(own)?;
        let mut sources = vec![];
        for (part, promised) in parts {
            let Some(folder) = staged.parts.get(part) else {
                return Err(self.lost(part, "it was prepared and is not in the folder any more"));
            };
            let path = self.path(*folder).join(part.to_string());
            let found = self.holds(&path).map_err(|e| self.missing("read back", &path, &e))?;
            if let Some(difference) = difference(*promised, found) {
                let reason = format!(
                    "{difference}: the disk or somebody has changed {}. Nothing of checkpoint {checkpoint} is shown. Bring the file \
                     back as it was and run the job again; without it the job can only begin again from a savepoint before that, \
                     with another folder",
                    path.display()
                );
                return Err(self.lost(part, &reason));
            }
            sources.push((part.clone(), *folder));
        }
        let folder = sources[0].1;
        let in_folder = staged.parts.values().filter(|f| **f == folder).count();
        if in_folder == parts.len() && sources.iter().all(|(_, f)| *f == folder) {
            return Ok((self.path(folder), vec![]));
        }
        let to = self.create(Folder::Commit(own, checkpoint))?;
        // After the folder was made: see `fence`.
        self.check_own(own)?;
        for (part, from) in &sources {
            let (from, to) = (self.path(*from).join(part.to_string()), to.join(part.to_string()));
            self.copy(&from, &to).map_err(|e| self.missing("copy", &from, &e))?;
        }
        self.files.sync_dir(&to).map_err(|e| self.missing("sync", &to, &e))?;
        Ok((to, sources))
    }

    /// What a file holds.
    fn holds(&self, path: &Path) -> io::Result<Promised> {
        let (file, mut sum) = (self.files.open(path, Open::Read)?, Xxh3::new());
        let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
        loop {
            let n = file.read_at(&mut piece, at)?;
            if n == 0 {
                return Ok(Promised { len: at, xxh3: Some(sum.digest()) });
            }
            sum.update(&piece[..n]);
            at += n as u64;
        }
    }

    /// Copies a file durably, in pieces; what an interrupted copy left is overwritten.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.files.open(from, Open::Read)?, self.files.open(to, Open::Create)?);
        to.set_len(0)?;
        let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
        loop {
            let n = from.read_at(&mut piece, at)?;
            if n == 0 {
                return to.sync_data();
            }
            to.write_all_at(&piece[..n], at)?;
            at += n as u64;
        }
    }

    /// Where a part is written that is shown alone, as it is: for guarantees below exactly-once.
    pub(crate) fn hidden(&self, part: &PartName) -> PathBuf {
        self.dir.join(format!(".{part}"))
    }

    /// Shows such a part, which is synced.
    pub(crate) fn show_at_once(&self, part: &PartName) -> Result<(), SinkError> {
        self.check_own(part.attempt)?;
        let from = self.hidden(part);
        self.files.publish(&from, &self.dir.join(part.to_string())).map_err(|e| self.missing("show", &from, &e))?;
        self.sync()
    }

    /// Removes what isn't kept and what is shown already; answers how many writers' checkpoints that were not shown.
    pub(crate) fn abort_all_but(&self, keep: &BTreeSet<PartName>) -> Result<usize, SinkError> {
        let own = self.own()?;
        let (staged, outcomes) = (self.staged()?, self.outcomes()?);
        let mut shown = BTreeSet::new();
        for (checkpoint, parts) in &outcomes {
            if self.exists(&self.path(Folder::Shown(*checkpoint)))? {
                shown.extend(parts);
            }
        }
        let mut aborted = BTreeSet::new();
        for (part, folder) in &staged.parts {
            // The original of a copy that is shown.
            let is_shown = shown.contains(part);
            if !is_shown && !keep.contains(part) {
                aborted.insert(part.unit());
            }
            if is_shown || !keep.contains(part) {
                let path = self.path(*folder).join(part.to_string());
                self.files.remove_file(&path).map_err(|e| self.missing("remove", &path, &e))?;
            }
        }
        self.crash.reach("files.aborted-others");
        for folder in staged.folders.iter().filter(|f| f.attempt() != Some(own)) {
            let path = self.path(*folder);
            // Those that still hold something that is kept stay.
            let _ = if folder.is_staging() { self.files.remove_dir(&path) } else { self.remove_folder(&path) };
        }
        for entry in self.files.read_dir(&self.dir).map_err(|e| self.failed("list", &self.dir, &e))? {
            let part = entry.name.strip_prefix('.').and_then(PartName::parse);
            if part.is_some_and(|part| part.attempt != own) {
                let path = self.dir.join(entry.name);
                self.files.remove_file(&path).map_err(|e| self.missing("remove", &path, &e))?;
            }
        }
        let wanted: BTreeSet<u64> = keep.iter().map(|part| part.checkpoint).collect();
        let dir = self.dir.join(OUTCOMES);
        for entry in self.files.read_dir(&dir).map_err(|e| self.failed("list", &dir, &e))? {
            if !entry.name.parse().is_ok_and(|n| wanted.contains(&n)) {
                self.forget_name(&entry.name)?;
            }
        }
        Ok(aborted.len())
    }

    /// Forgets the outcome of a checkpoint.
    pub(crate) fn forget(&self, checkpoint: u64) -> Result<(), SinkError> {
        self.forget_name(&checkpoint.to_string())
    }

    fn forget_name(&self, name: &str) -> Result<(), SinkError> {
        let path = self.dir.join(OUTCOMES).join(name);
        match self.files.remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(self.failed("remove", &path, &e)),
            _ => Ok(()),
        }
    }

    /// Fails unless this attempt still has the right to write.
    pub(crate) fn check_own(&self, own: u64) -> Result<(), SinkError> {
        if self.exists(&self.path(Folder::Anchor(own)))? { Ok(()) } else { Err(self.fenced()) }
    }

    fn exists(&self, path: &Path) -> Result<bool, SinkError> {
        self.files.exists(path).map_err(|e| self.failed("look for", path, &e))
    }

    pub(crate) fn sync(&self) -> Result<(), SinkError> {
        self.files.sync_dir(&self.dir).map_err(|e| self.failed("sync", &self.dir, &e))
    }

    pub(crate) fn fenced(&self) -> SinkError {
        SinkError::Fenced { what: self.name.clone() }
    }

    pub(crate) fn fatal(&self, reason: impl ToString) -> SinkError {
        SinkError::Fatal { what: self.name.clone(), reason: reason.to_string() }
    }

    fn lost(&self, part: &PartName, why: &str) -> SinkError {
        self.fatal(format!("the output in {part} is lost: {why}"))
    }

    pub(crate) fn failed(&self, action: &str, path: &Path, error: &io::Error) -> SinkError {
        let reason = format!("could not {action} {}: {error}", path.display());
        if error.raw_os_error() == Some(EIO) {
            // What a failed sync was to make durable can still be seen, and the next sync says Ok although it never gets there:
            // another attempt of this process would believe it.
            let fix = "what the folder shows may not be on the disk: look at the disk, restart the machine, run the job again";
            return self.fatal(format!("{reason}; {fix}"));
        }
        SinkError::Failed { what: self.name.clone(), reason }
    }

    /// As [`Target::failed`]; what is missing was renamed away by a newer attempt.
    pub(crate) fn missing(&self, action: &str, path: &Path, error: &io::Error) -> SinkError {
        match error.kind() {
            ErrorKind::NotFound => self.fenced(),
            _ => self.failed(action, path, error),
        }
    }
}

/// How a part differs from what was prepared, if it does.
fn difference(promised: Promised, found: Promised) -> Option<String> {
    if promised.len != found.len {
        return Some(format!("it had {} bytes when it was prepared and has {}", promised.len, found.len));
    }
    let (promised, found) = (promised.xxh3?, found.xxh3?);
    (promised != found).then(|| format!("its checksum was {promised:016x} when it was prepared and is {found:016x}"))
}
