//! A bounded set of open files, shared by all partitions of a log.
//!
//! The least recently used file is closed first, active segments included: ten thousand partitions must not need ten
//! thousand descriptors. A file with bytes that no sync has covered is synced before it is closed, because a failed
//! write-back is reported reliably only to descriptors that were open when it failed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cutwater_platform::{AlignedBuf, CrashPoints, File, Files, IoContext, Open};

use super::SegmentError;
use super::names::Kind;

/// Which file: partition (a number given out by [`OpenFiles`]), segment, kind.
pub(crate) type FileKey = (u64, i64, Kind);

/// The open files of a log, at most as many as it was made for. In use by a running read or write, a file is never
/// closed, so that the bound may be passed by as many files as there are threads.
#[derive(Debug)]
pub struct OpenFiles {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) crash: CrashPoints,
    capacity: usize,
    partitions: AtomicU64,
    /// A sync has failed. It concerns all partitions: whose bytes it was about may not be the one that asked for it.
    poisoned: Arc<AtomicBool>,
    /// By way of which long runs are written.
    pub(super) staging: Mutex<AlignedBuf>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_key: BTreeMap<FileKey, Slot>,
    by_age: BTreeMap<u64, FileKey>,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    handle: Arc<Handle>,
    used: u64,
}

/// An open file that knows whether it must be synced.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    dirty: AtomicBool,
    poisoned: Arc<AtomicBool>,
}

impl Handle {
    /// A file of nobody's, for reading.
    pub(crate) fn of(file: Arc<dyn File>, path: &Path) -> Handle {
        Handle { file, path: path.to_path_buf(), dirty: AtomicBool::new(false), poisoned: Arc::default() }
    }

    /// The file, for writing to it.
    pub(crate) fn for_writing(&self) -> &dyn File {
        self.dirty.store(true, Ordering::SeqCst);
        self.file.as_ref()
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<(), SegmentError> {
        // A write that comes between these two lines only makes the next sync do too much.
        self.dirty.store(false, Ordering::SeqCst);
        self.file.sync_data().at("sync", &self.path).map_err(|error| {
            self.poisoned.store(true, Ordering::SeqCst);
            SegmentError::Sync(error)
        })
    }
}

impl OpenFiles {
    /// No open file yet, and never more than about `capacity`.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(files: Arc<dyn Files>, crash: CrashPoints, capacity: usize) -> Arc<OpenFiles> {
        assert!(capacity > 0, "a log needs at least one open file");
        Arc::new(OpenFiles {
            files,
            crash,
            capacity,
            partitions: AtomicU64::new(0),
            poisoned: Arc::default(),
            staging: Mutex::default(),
            table: Mutex::default(),
        })
    }

    /// How many files are open.
    pub fn open_count(&self) -> usize {
        self.table().by_key.len()
    }

    /// True once a sync has failed: it is unknown what is on the disk, and no partition is written or synced any more.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn next_partition(&self) -> u64 {
        self.partitions.fetch_add(1, Ordering::Relaxed)
    }

    /// The open file of this key; opens it if need be, and closes others to make room.
    pub(crate) fn get(
        &self,
        key: FileKey,
        path: impl FnOnce() -> PathBuf,
        how: Open,
    ) -> Result<Arc<Handle>, SegmentError> {
        if let Some(handle) = self.table().touch(key) {
            return Ok(handle);
        }
        let path = path();
        let file = self.files.open(&path, how).at("open", &path)?;
        let opened = Arc::new(Handle { file, path, dirty: AtomicBool::new(false), poisoned: self.poisoned.clone() });
        let (handle, closing) = {
            let mut table = self.table();
            // Another thread may have opened it meanwhile; one handle must know of all dirt.
            let handle = table.touch(key).unwrap_or_else(|| table.insert(key, opened));
            (handle, table.make_room(self.capacity))
        };
        for closed in closing {
            if closed.dirty.load(Ordering::SeqCst) {
                closed.sync()?;
            }
        }
        Ok(handle)
    }

    /// A file that has no key, for one use.
    pub(crate) fn unshared(&self, path: &Path, how: Open) -> Result<Arc<Handle>, SegmentError> {
        let file = self.files.open(path, how).at("open", path)?;
        let (path, poisoned) = (path.to_path_buf(), self.poisoned.clone());
        Ok(Arc::new(Handle { file, path, dirty: AtomicBool::new(false), poisoned }))
    }

    /// Closes a file that has been removed or replaced.
    pub(crate) fn forget(&self, key: FileKey) {
        self.table().remove(key);
    }

    /// Closes all files of a partition, unsynced as they are.
    pub(crate) fn forget_partition(&self, partition: u64) {
        let mut table = self.table();
        let first = (partition, i64::MIN, Kind::Log);
        let keys: Vec<FileKey> =
            table.by_key.range(first..).map(|(key, _)| *key).take_while(|k| k.0 == partition).collect();
        for key in keys {
            table.remove(key);
        }
    }

    /// Removes a file's name. Cuts it 64 MiB at a time first: unlinking gigabytes at once stalls the syncs of others.
    pub(crate) fn remove(&self, key: FileKey, path: &Path) -> Result<(), SegmentError> {
        const CUT_BYTES: u64 = 64 << 20;
        self.forget(key);
        let file = match self.files.open(path, Open::Write) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.at("open", path)?,
        };
        let mut len = file.len().at("look at", path)?;
        while len > CUT_BYTES {
            len -= CUT_BYTES;
            file.set_len(len).at("cut", path)?;
        }
        drop(file);
        Ok(self.files.remove_file(path).at("remove", path)?)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no panic while the table is locked")
    }
}

impl Table {
    fn touch(&mut self, key: FileKey) -> Option<Arc<Handle>> {
        self.clock += 1;
        let slot = self.by_key.get_mut(&key)?;
        self.by_age.remove(&slot.used);
        slot.used = self.clock;
        self.by_age.insert(self.clock, key);
        Some(slot.handle.clone())
    }

    fn insert(&mut self, key: FileKey, handle: Arc<Handle>) -> Arc<Handle> {
        self.by_age.insert(self.clock, key);
        self.by_key.insert(key, Slot { handle: handle.clone(), used: self.clock });
        handle
    }

    fn remove(&mut self, key: FileKey) -> Option<Arc<Handle>> {
        let slot = self.by_key.remove(&key)?;
        self.by_age.remove(&slot.used);
        Some(slot.handle)
    }

    /// Takes out the oldest files that nobody is using until the bound holds.
    fn make_room(&mut self, capacity: usize) -> Vec<Arc<Handle>> {
        let excess = self.by_key.len().saturating_sub(capacity);
        let unused = |key: &&FileKey| self.by_key.get(*key).is_some_and(|slot| Arc::strong_count(&slot.handle) == 1);
        let keys: Vec<FileKey> = self.by_age.values().filter(unused).take(excess).copied().collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use cutwater_platform::OsFiles;

    use super::*;

    #[test]
    fn the_least_recently_used_file_is_closed_first_and_used_ones_stay() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let open = OpenFiles::new(Arc::new(OsFiles), CrashPoints::default(), 2);
        let get = |base: i64| open.get((0, base, Kind::Log), || dir.path().join(base.to_string()), Open::Create);
        let held = get(0).expect("opened");
        get(1).expect("opened");
        get(2).expect("opened");
        assert_eq!(open.open_count(), 2);
        let keys: Vec<i64> = open.table().by_key.keys().map(|k| k.1).collect();
        assert_eq!(keys, [0, 2], "1 was unused and older than 2; 0 is held");
        drop(held);
        get(2).expect("opened");
        get(3).expect("opened");
        let keys: Vec<i64> = open.table().by_key.keys().map(|k| k.1).collect();
        assert_eq!(keys, [2, 3]);
        open.forget_partition(0);
        assert_eq!((open.open_count(), open.table().by_age.len()), (0, 0));
    }
}
