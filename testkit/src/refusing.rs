//! A disk that refuses to make some files while it is told to, and does everything else: a quota on one kind of file, a directory
//! that was mounted read-only, a limit of open files. A whole disk that is full is [`SimDisk::set_capacity_bytes`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cutwater_platform::{DirEntry, File, Files, Lock, Open};

use crate::SimDisk;

/// A [`SimDisk`] on which opening some files for writing fails with `QuotaExceeded`, as often as was asked for. Clones share what
/// they were told. A refusal changes nothing on the disk and is no step of it.
///
/// ```
/// use cutwater_platform::{Files, Open};
/// use cutwater_testkit::{RefusingFiles, SimDisk};
/// use std::path::Path;
///
/// let files = RefusingFiles::new(SimDisk::new(), |path| path.extension().is_some_and(|e| e == "delta"));
/// files.refuse(1);
/// files.open(Path::new("1.base"), Open::CreateNew)?;
/// assert!(files.open(Path::new("1.delta"), Open::CreateNew).is_err());
/// files.open(Path::new("2.delta"), Open::CreateNew)?;
/// assert_eq!(files.refused(), [Path::new("1.delta")]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct RefusingFiles {
    disk: SimDisk,
    which: fn(&Path) -> bool,
    orders: Arc<Mutex<Orders>>,
}

#[derive(Default)]
struct Orders {
    left: u64,
    refused: Vec<PathBuf>,
}

impl fmt::Debug for RefusingFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusingFiles({} refused, {:?})", self.refused().len(), self.disk)
    }
}

impl RefusingFiles {
    /// Refuses nothing until told to. `which` says of a path whether it is one of the files in question.
    pub fn new(disk: SimDisk, which: fn(&Path) -> bool) -> RefusingFiles {
        RefusingFiles { disk, which, orders: Arc::default() }
    }

    fn orders(&self) -> std::sync::MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next so many are refused, from now on; `u64::MAX` for all, 0 for none.
    pub fn refuse(&self, next: u64) {
        self.orders().left = next;
    }

    /// What was refused so far, in order.
    pub fn refused(&self) -> Vec<PathBuf> {
        self.orders().refused.clone()
    }

    fn refuses(&self, path: &Path) -> bool {
        let mut orders = self.orders();
        let refuses = orders.left > 0;
        if refuses {
            orders.left -= 1;
            orders.refused.push(path.to_path_buf());
        }
        refuses
    }
}

impl Files for RefusingFiles {
    fn temporary_name(&self, path: &Path) -> PathBuf {
        self.disk.temporary_name(path)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        if how != Open::Read && (self.which)(path) && self.refuses(path) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.disk.open(path, how)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.read_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.publish(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<bool>> {
        self.disk.kind(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.disk.lock(path)
    }
}
