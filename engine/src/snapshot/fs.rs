//! A checkpoint store in a directory; `docs/formats/checkpoint-store.md` has the picture.
//!
//! Publishing is: write under a temporary name, sync, rename without replacing, sync the directory. The temporary name is
//! random: two processes may be writing the same thing, and one must not publish what the other is still writing.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cutwater_platform::{File, IoContext, IoError, Open, Platform};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::envelope::{EnvelopeError, Kind};
use super::layout::{
    ATTEMPTS, COMMITTED, DIRECTORIES, JOB, MANIFESTS, ManifestName, STATE, StateFileName, attempt_name, base_name,
    is_temporary, parse_attempt_name, parse_base_name, temporary,
};
use super::manifest::{EncodedManifest, Manifest};
use super::record::{BASE_KIND, Base, CLAIM_KIND, COMMITTED_KIND, Claimant, CommittedRecord, JOB_KIND, JobRecord};
use super::store::{CREATE_DIRS, CheckpointStore, Owner, StateFileOut, StoreError, StoreListing, is_lost_sync};
use crate::checkpoint::{BaseRecorded, Published};
use crate::id::{Attempt, JobId};

/// No record is longer.
const RECORD_MAX_BYTES: u64 = 64 * 1024;
/// No manifest is longer; one of 2,000 instances with 17 files each has some 5 MB.
pub(super) const MANIFEST_MAX_BYTES: u64 = 1 << 30;

/// A checkpoint store in a directory.
#[derive(Debug)]
pub struct FsStore {
    platform: Platform,
    dir: PathBuf,
    job: JobId,
    poison: Arc<Poison>,
    /// Manifests whose names this store has seen before it synced their directory: reading them needs no further sync, since a
    /// name is given once and never to something else.
    durable: Mutex<BTreeSet<ManifestName>>,
}

/// What has failed.
#[derive(Debug, Default)]
struct Poison {
    /// Set by the first sync or rename that fails, to what it was about.
    first: OnceLock<String>,
    /// Likewise, by the first sync that the disk failed.
    lost_sync: OnceLock<String>,
}

impl Poison {
    fn by(&self, what: &str, source: IoError) -> StoreError {
        self.first.get_or_init(|| format!("{what}: {source}"));
        if is_lost_sync(&source) {
            self.lost_sync.get_or_init(|| format!("{what}: {source}"));
        }
        StoreError::Unknown { what: what.to_owned(), source }
    }
}

/// The crash points of one kind of publishing.
#[derive(Clone, Copy, Default)]
struct Points {
    /// Whole and synced under its temporary name.
    written: Option<&'static str>,
    /// Under its name; the directory isn't synced.
    named: Option<&'static str>,
    /// Durable.
    durable: Option<&'static str>,
}

impl FsStore {
    /// Opens the store in `dir`. An absent or empty directory becomes the store of a new job.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`] for a directory with other things in it, and others.
    pub fn open(platform: Platform, dir: impl Into<PathBuf>) -> Result<FsStore, StoreError> {
        let dir = dir.into();
        let mut store = FsStore { platform, dir, job: JobId(0), poison: Arc::default(), durable: Mutex::default() };
        let (files, dir) = (store.platform.files.clone(), store.dir.clone());
        let created = files.create_dir_all(&dir).at(CREATE_DIRS, &dir);
        created.map_err(|e| if is_lost_sync(&e) { store.poisoned("the checkpoint directory", e) } else { e.into() })?;
        if !files.exists(&dir.join(JOB)).at("look for", &dir.join(JOB))? {
            // Whoever made the job record has done this before, so a store that is there needs it no more.
            store.sync_ancestors()?;
            store.create()?;
        }
        store.sync_dir(&dir, "the job record")?;
        for name in DIRECTORIES {
            let path = dir.join(name);
            if files.kind(&path).at("look for", &path)? != Some(true) {
                return Err(store.not_a_store(format!("its directory {name:?} is missing")));
            }
        }
        let record: JobRecord = store.read_record(&dir.join(JOB), JOB_KIND)?;
        store.job = record.job;
        Ok(store)
    }

    /// Opens the store that is in `dir`, and makes none.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`] if there is none, and others.
    pub fn existing(platform: Platform, dir: impl Into<PathBuf>) -> Result<FsStore, StoreError> {
        let dir = dir.into();
        if !platform.files.exists(&dir.join(JOB)).at("look for", &dir.join(JOB))? {
            let what = "it has no job record: no job has taken a checkpoint here".to_string();
            return Err(StoreError::NotAStore { dir, what });
        }
        FsStore::open(platform, dir)
    }

    /// Makes the directory's own name durable, and those above it: whoever created them may have died before doing so.
    fn sync_ancestors(&self) -> Result<(), StoreError> {
        use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
        for above in self.dir.ancestors().skip(1) {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match self.platform.files.sync_dir(above) {
                Ok(()) => {}
                // In a directory that can't be read or changed, no start of this job has made anything.
                Err(e) if matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported) => {
                    break;
                }
                Err(source) => {
                    let source = IoError { action: "sync the directory", path: above.to_path_buf(), source };
                    return Err(self.poisoned("the checkpoint directory", source));
                }
            }
        }
        Ok(())
    }

    /// Turns an empty directory into a store. The job record comes last: it says that the rest is there.
    fn create(&self) -> Result<(), StoreError> {
        let files = &self.platform.files;
        match self.refuse_strangers() {
            // Another process was faster, and what is here is its store.
            Err(StoreError::NotAStore { .. }) if files.exists(&self.dir.join(JOB)).at("look for", &self.dir)? => {
                return Ok(());
            }
            other => other?,
        }
        for name in DIRECTORIES {
            let path = self.dir.join(name);
            match files.create_dir(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => other.at("create the directory", &path)?,
            }
        }
        self.sync_dir(&self.dir, "the directories of the checkpoint store")?;
        let random = &self.platform.random;
        let job = JobId(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()));
        let record = JobRecord { job, created_ms: self.platform.clock.wall().0 };
        // If another process was faster, its job is the job.
        self.publish_record(&self.dir, JOB, JOB_KIND, &record, Points::default()).map(|_| ())
    }

    /// Refuses a directory that holds anything but what a start that was cut short may have left.
    fn refuse_strangers(&self) -> Result<(), StoreError> {
        let files = &self.platform.files;
        for entry in files.read_dir(&self.dir).at("list", &self.dir)? {
            if is_temporary(&entry.name) {
                continue;
            }
            if !entry.is_dir || !DIRECTORIES.contains(&entry.name.as_str()) {
                return Err(self.not_a_store(format!("it holds {:?} and no job record", entry.name)));
            }
            let path = self.dir.join(&entry.name);
            if let Some(inside) = files.read_dir(&path).at("list", &path)?.first() {
                let what = format!("it has no job record, but {:?} in {:?}", inside.name, entry.name);
                return Err(self.not_a_store(what));
            }
        }
        Ok(())
    }

    fn not_a_store(&self, what: String) -> StoreError {
        StoreError::NotAStore { dir: self.dir.clone(), what }
    }

    fn path(&self, directory: &str, name: &str) -> PathBuf {
        self.dir.join(directory).join(name)
    }

    fn usable(&self) -> Result<(), StoreError> {
        match self.poison.first.get() {
            Some(first) => Err(StoreError::Poisoned { first: first.clone() }),
            None => Ok(()),
        }
    }

    fn poisoned(&self, what: &str, source: IoError) -> StoreError {
        self.poison.by(what, source)
    }

    fn sync_dir(&self, path: &Path, what: &str) -> Result<(), StoreError> {
        self.platform.files.sync_dir(path).at("sync the directory", path).map_err(|e| self.poisoned(what, e))
    }

    fn reach(&self, point: Option<&'static str>) {
        if let Some(point) = point {
            self.platform.crash.reach(point);
        }
    }

    fn publish_record<T: Serialize>(
        &self,
        directory: &Path,
        name: &str,
        kind: Kind,
        record: &T,
        points: Points,
    ) -> Result<bool, StoreError> {
        let (bytes, _) = kind.seal(record).map_err(|problem| self.corrupt(&directory.join(name), problem))?;
        self.publish(directory, name, &bytes, points)
    }

    /// Publishes a file; false when the name is taken.
    fn publish(&self, directory: &Path, name: &str, bytes: &[u8], points: Points) -> Result<bool, StoreError> {
        self.usable()?;
        let (files, path) = (&self.platform.files, directory.join(name));
        let unnamed = directory.join(temporary(self.platform.random.next_u64()));
        let file = files.open(&unnamed, Open::CreateNew).at("create", &unnamed)?;
        let written = file.write_all_at(bytes, 0).at("write", &unnamed);
        let synced = match written {
            Err(e) => Err(e.into()),
            Ok(()) => file.sync_data().at("sync", &unnamed).map_err(|e| self.poisoned(&path.display().to_string(), e)),
        };
        drop(file);
        let published = synced.and_then(|()| {
            self.reach(points.written);
            match files.publish(&unnamed, &path) {
                Ok(()) => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                Err(source) => {
                    let source = IoError { action: "publish", path: path.clone(), source };
                    Err(self.poisoned(&path.display().to_string(), source))
                }
            }
        });
        match published {
            Ok(true) => self.reach(points.named),
            // Left over files do no harm and are swept later, so failing to remove this one is no error.
            Ok(false) | Err(_) => _ = files.remove_file(&unnamed),
        }
        // Also when the name was taken: whoever took it may have died before this, and the caller acts on what is there.
        if published? {
            let too_soon =
                points.durable == Some("manifest.durable") && self.platform.crash.is_planted("manifest.not-synced");
            if !too_soon {
                self.sync_dir(directory, &path.display().to_string())?;
            }
            self.reach(points.durable);
            Ok(true)
        } else {
            self.sync_dir(directory, &path.display().to_string())?;
            Ok(false)
        }
    }

    fn corrupt(&self, path: &Path, problem: impl ToString) -> StoreError {
        let way_out = "Bring the file back from a copy; or move it out of the store, if what it says may be lost.";
        StoreError::Corrupt { path: path.to_path_buf(), problem: problem.to_string(), way_out }
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match self.platform.files.read(path, limit_bytes) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing { path: path.to_path_buf() }),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(self.corrupt(path, e)),
            other => Ok(other.at("read", path)?),
        }
    }

    fn read_record<T: DeserializeOwned>(&self, path: &Path, kind: Kind) -> Result<T, StoreError> {
        let bytes = self.read(path, RECORD_MAX_BYTES)?;
        let (record, _) = kind.open(&bytes).map_err(|problem: EnvelopeError| self.corrupt(path, problem))?;
        Ok(record)
    }

    fn check_job(&self, path: &Path, found: JobId) -> Result<(), StoreError> {
        if found == self.job {
            return Ok(());
        }
        Err(StoreError::OtherJob { path: path.to_path_buf(), expected: self.job, found })
    }

    /// Refuses a record whose file name says something else: a file that was copied or renamed by hand.
    fn check_name<T: PartialEq + std::fmt::Debug>(&self, path: &Path, name: T, content: T) -> Result<(), StoreError> {
        if name == content {
            return Ok(());
        }
        Err(self.corrupt(path, format!("its name says {name:?}, its contents say {content:?}")))
    }

    /// The names in a directory, durable, temporary ones left out.
    fn names(&self, directory: &'static str) -> Result<Vec<String>, StoreError> {
        let path = self.dir.join(directory);
        let entries = self.platform.files.read_dir(&path).at("list", &path)?;
        // Listed first, synced second: everything that was found is durable now.
        self.sync_dir(&path, &format!("what was found in {}", path.display()))?;
        Ok(entries.into_iter().map(|entry| entry.name).filter(|name| !is_temporary(name)).collect())
    }

    fn remove(&self, path: &Path) -> Result<bool, StoreError> {
        match self.platform.files.remove_file(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(IoError { action: "remove", path: path.to_path_buf(), source }.into()),
        }
    }
}

impl CheckpointStore for FsStore {
    fn lost_sync(&self) -> Option<String> {
        self.poison.lost_sync.get().cloned()
    }

    fn job(&self) -> JobId {
        self.job
    }

    fn place(&self) -> String {
        self.dir.display().to_string()
    }

    fn list(&self) -> Result<StoreListing, StoreError> {
        let mut listing = StoreListing::default();
        for directory in DIRECTORIES {
            for name in self.names(directory)? {
                let known = match directory {
                    ATTEMPTS => {
                        let attempt = parse_attempt_name(&name).map(|attempt| listing.attempts.push(attempt));
                        attempt.or_else(|| parse_base_name(&name).map(|attempt| listing.bases.push(attempt)))
                    }
                    MANIFESTS => ManifestName::parse_manifest_file(&name).map(|name| listing.manifests.push(name)),
                    COMMITTED => ManifestName::parse_committed_file(&name).map(|name| listing.committed.push(name)),
                    _ => StateFileName::parse(&name).map(|name| listing.state_files.push(name)),
                };
                if known.is_none() {
                    listing.strangers.push(format!("{directory}/{name}"));
                }
            }
        }
        let seen = listing.manifests.iter().copied();
        self.durable.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
        listing.attempts.sort_unstable();
        listing.bases.sort_unstable();
        listing.manifests.sort_unstable();
        listing.committed.sort_unstable();
        listing.state_files.sort_unstable();
        Ok(listing)
    }

    fn highest_attempt(&self) -> Result<Attempt, StoreError> {
        let path = self.dir.join(ATTEMPTS);
        let entries = self.platform.files.read_dir(&path).at("list", &path)?;
        let number = |name: &str| parse_attempt_name(name).or_else(|| parse_base_name(name));
        Ok(entries.iter().filter_map(|entry| number(&entry.name)).max().unwrap_or_default())
    }

    fn claim(&self, claimant: &Claimant) -> Result<Option<Owner>, StoreError> {
        let path = self.path(ATTEMPTS, &attempt_name(claimant.attempt));
        self.check_job(&path, claimant.job)?;
        let points =
            Points { written: Some("attempt.tmp-written"), durable: Some("attempt.claimed"), ..Points::default() };
        let name = attempt_name(claimant.attempt);
        let won = self.publish_record(&self.dir.join(ATTEMPTS), &name, CLAIM_KIND, claimant, points)?;
        Ok(won.then_some(Owner { job: self.job, attempt: claimant.attempt }))
    }

    fn claimant(&self, attempt: Attempt) -> Result<Claimant, StoreError> {
        let path = self.path(ATTEMPTS, &attempt_name(attempt));
        let claimant: Claimant = self.read_record(&path, CLAIM_KIND)?;
        self.check_job(&path, claimant.job)?;
        self.check_name(&path, attempt, claimant.attempt)?;
        Ok(claimant)
    }

    fn check_owner(&self, owner: &Owner) -> Result<(), StoreError> {
        let path = self.dir.join(ATTEMPTS);
        let entries = self.platform.files.read_dir(&path).at("list", &path)?;
        let newest = entries.iter().filter_map(|entry| parse_attempt_name(&entry.name)).max();
        if self.platform.crash.is_planted("store.attempt-not-checked") {
            return Ok(());
        }
        // Fenced comes before poisoned: a successor may have swept away what a write of ours then failed on.
        if let Some(by) = newest.filter(|by| *by > owner.attempt) {
            return Err(StoreError::Fenced { owner: *owner, by });
        }
        self.usable()?;
        match newest {
            Some(by) if by == owner.attempt && owner.job == self.job => Ok(()),
            _ => Err(StoreError::NotClaimed { owner: *owner, job: self.job }),
        }
    }

    fn record_base(&self, owner: &Owner, base: &Base) -> Result<BaseRecorded, StoreError> {
        self.check_owner(owner)?;
        let name = base_name(owner.attempt);
        let path = self.path(ATTEMPTS, &name);
        self.check_name(&path, *owner, Owner { job: base.job, attempt: base.attempt })?;
        let points = Points { durable: Some("attempt.base-recorded"), ..Points::default() };
        if !self.publish_record(&self.dir.join(ATTEMPTS), &name, BASE_KIND, base, points)?
            && self.base(owner.attempt)? != *base
        {
            return Err(StoreError::Taken { path });
        }
        Ok(BaseRecorded::durable(owner.attempt))
    }

    fn base(&self, attempt: Attempt) -> Result<Base, StoreError> {
        let path = self.path(ATTEMPTS, &base_name(attempt));
        let base: Base = self.read_record(&path, BASE_KIND)?;
        self.check_job(&path, base.job)?;
        self.check_name(&path, attempt, base.attempt)?;
        Ok(base)
    }

    fn publish_manifest(&self, owner: &Owner, manifest: &EncodedManifest) -> Result<Published, StoreError> {
        self.check_owner(owner)?;
        let name = manifest.name.manifest_file();
        let path = self.path(MANIFESTS, &name);
        self.check_name(&path, owner.attempt, manifest.name.attempt)?;
        let points = Points {
            written: Some("manifest.tmp-written"),
            named: Some("manifest.published"),
            durable: Some("manifest.durable"),
        };
        if !self.publish(&self.dir.join(MANIFESTS), &name, &manifest.bytes, points)? {
            return Err(StoreError::Taken { path });
        }
        // A newer attempt may have been claimed in between; it may not have seen this manifest, so this attempt must not
        // act on it.
        match self.check_owner(owner) {
            Ok(()) => Ok(Published::durable(manifest.name.checkpoint, owner.attempt, manifest.checksum)),
            Err(StoreError::Io(source)) => Err(self.poisoned(&path.display().to_string(), source)),
            Err(other) => Err(other),
        }
    }

    fn manifest(&self, name: ManifestName) -> Result<(Manifest, Published), StoreError> {
        let path = self.path(MANIFESTS, &name.manifest_file());
        let bytes = self.read(&path, MANIFEST_MAX_BYTES)?;
        let (manifest, checksum) = Manifest::decode(&bytes).map_err(|problem| StoreError::Corrupt {
            path: path.clone(),
            problem: problem.to_string(),
            way_out: "Bring the file back from a copy; or move it out of the store to go back to the checkpoint before it, \
                      knowing that output committed since then is written again.",
        })?;
        self.check_job(&path, manifest.job)?;
        self.check_name(&path, name, manifest.name())?;
        // Its bytes were synced before it got its name; whoever gave it the name may have died before syncing that.
        if !self.durable.lock().unwrap_or_else(PoisonError::into_inner).contains(&name) {
            self.sync_dir(&self.dir.join(MANIFESTS), &path.display().to_string())?;
        }
        Ok((manifest, Published::durable(name.checkpoint, name.attempt, checksum)))
    }

    fn remove_manifests(&self, owner: &Owner, names: &[ManifestName]) -> Result<(), StoreError> {
        self.check_owner(owner)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            self.remove(&self.path(MANIFESTS, &name.manifest_file()))?;
        }
        self.sync_dir(&self.dir.join(MANIFESTS), "the removal of manifests")?;
        self.platform.crash.reach("retire.manifest-removed");
        // Not before: a manifest without its record would be committed again, after its outcome has been forgotten.
        for name in names {
            self.remove(&self.path(COMMITTED, &name.committed_file()))?;
        }
        self.sync_dir(&self.dir.join(COMMITTED), "the removal of records of commits")
    }

    fn record_committed(&self, owner: &Owner, record: &CommittedRecord) -> Result<(), StoreError> {
        self.check_owner(owner)?;
        let name = record.manifest.name();
        let path = self.path(COMMITTED, &name.committed_file());
        self.check_job(&path, record.job)?;
        let points = Points { durable: Some("janitor.committed-recorded"), ..Points::default() };
        let directory = self.dir.join(COMMITTED);
        if !self.publish_record(&directory, &name.committed_file(), COMMITTED_KIND, record, points)?
            && self.committed(name)?.manifest != record.manifest
        {
            return Err(StoreError::Taken { path });
        }
        Ok(())
    }

    fn committed(&self, name: ManifestName) -> Result<CommittedRecord, StoreError> {
        let path = self.path(COMMITTED, &name.committed_file());
        let record: CommittedRecord = self.read_record(&path, COMMITTED_KIND)?;
        self.check_job(&path, record.job)?;
        self.check_name(&path, name, record.manifest.name())?;
        Ok(record)
    }

    fn create_state_file(&self, owner: &Owner, name: &StateFileName) -> Result<Box<dyn StateFileOut>, StoreError> {
        self.usable()?;
        let path = self.path(STATE, &name.to_string());
        self.check_name(&path, owner.attempt, name.attempt)?;
        let file = self.platform.files.open(&path, Open::CreateNew).at("create", &path)?;
        Ok(Box::new(FsStateFile { file, path, length: 0, poison: self.poison.clone() }))
    }

    fn sync_state_files(&self, _owner: &Owner) -> Result<(), StoreError> {
        self.usable()?;
        self.sync_dir(&self.dir.join(STATE), "the names of state files")
    }

    fn open_state_file(&self, name: &str) -> Result<Arc<dyn File>, StoreError> {
        let path = self.path(STATE, name);
        match self.platform.files.open(&path, Open::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing { path }),
            other => Ok(other.at("open", &path)?),
        }
    }

    fn remove_state_files(&self, owner: &Owner, names: &[StateFileName]) -> Result<(), StoreError> {
        self.check_owner(owner)?;
        for name in names {
            self.remove(&self.path(STATE, &name.to_string()))?;
            self.platform.crash.reach("retire.file-removed");
        }
        if names.is_empty() { Ok(()) } else { self.sync_dir(&self.dir.join(STATE), "the removal of state files") }
    }

    fn remove_temporaries(&self, owner: &Owner) -> Result<usize, StoreError> {
        self.check_owner(owner)?;
        let mut removed = 0;
        for directory in std::iter::once(self.dir.clone()).chain(DIRECTORIES.map(|name| self.dir.join(name))) {
            for entry in self.platform.files.read_dir(&directory).at("list", &directory)? {
                if is_temporary(&entry.name) && !entry.is_dir {
                    removed += usize::from(self.remove(&directory.join(&entry.name))?);
                }
            }
        }
        Ok(removed)
    }
}

/// A state file being written in a directory.
#[derive(Debug)]
struct FsStateFile {
    file: Arc<dyn File>,
    path: PathBuf,
    length: u64,
    poison: Arc<Poison>,
}

impl StateFileOut for FsStateFile {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, self.length).at("write", &self.path)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn write_units(&mut self, parts: &[&[u8]]) -> Result<(), StoreError> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.file.write_past_cache_at(&slices, self.length).at("write", &self.path)?;
        self.length += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        let FsStateFile { file, path, poison, .. } = *self;
        file.sync_data().at("sync", &path).map_err(|e| poison.by(&path.display().to_string(), e))
    }
}
