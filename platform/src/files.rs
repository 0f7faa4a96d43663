//! What is asked of a disk, and what it must promise.
//!
//! Promises that [`Files`] makes, and that nothing may assume beyond:
//!
//! * Bytes written by [`File::write_all_at`] are safe from a power cut only after [`File::sync_data`] on that file
//!   answered Ok. Until then any part of them may be there or not, in units of 512 bytes, in any order.
//! * A name that was created, renamed or removed is safe only after [`Files::sync_dir`] on its directory.
//! * A failed sync means: it is unknown what is on the disk. A later sync that succeeds proves nothing about those bytes
//!   (Linux marks the pages clean). The owner must stop and reopen from what is durable.
//! * [`Files::publish`] never replaces: of two callers one gets `AlreadyExists`.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; it is created if absent and keeps its bytes if not.
    Create,
    /// For reading and writing; it must not exist.
    CreateNew,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name alone, without its directory. Names that aren't Unicode are shown with replacement characters.
    pub name: String,
    /// True for a directory.
    pub is_dir: bool,
}

/// A directory tree.
pub trait Files: Send + Sync + fmt::Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// The operating system's, among them `NotFound` and `AlreadyExists`.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// The operating system's.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates one directory; its parent must exist.
    ///
    /// # Errors
    /// The operating system's, among them `AlreadyExists`.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file or directory another name, replacing a file of that name at once.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file another name unless that name is taken; then the error is `AlreadyExists` and nothing has changed.
    ///
    /// # Errors
    /// The operating system's.
    fn publish(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The operating system's; see the promise about failed syncs.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// What kind of thing has this name: `Some(true)` a directory, `Some(false)` a file, `None` nothing.
    ///
    /// # Errors
    /// The operating system's, except `NotFound`.
    fn kind(&self, path: &Path) -> io::Result<Option<bool>>;
    /// Takes the exclusive advisory lock of a file (created if absent) without waiting; `None` when another holder has it.
    /// The lock ends when the value is dropped or its process dies.
    ///
    /// # Errors
    /// The operating system's.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// True when something has this name.
    ///
    /// # Errors
    /// As [`Files::kind`].
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.kind(path)?.is_some())
    }

    /// Creates a directory and its missing ancestors, and makes the name of each that it created durable, and the name of the
    /// deepest that was there already: an earlier call may have been killed between creating it and syncing its parent.
    ///
    /// Ancestors above that are taken as they are. Whoever can't be sure who made them syncs those too, as the log and the
    /// checkpoint store do.
    ///
    /// # Errors
    /// The operating system's. That the parent of what was there already can't be synced because it may not be read, or is
    /// read-only, is no error: then no earlier call can have created anything in it.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        let sync_parent = || self.sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        if self.kind(path)? == Some(true) {
            use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
            return match sync_parent() {
                Err(e) if matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported) => {
                    Ok(())
                }
                other => other,
            };
        }
        self.create_dir_all(parent)?;
        match self.create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.kind(path)? == Some(true) => {}
            other => other?,
        }
        sync_parent()
    }

    /// Reads a whole file of at most `limit_bytes`.
    ///
    /// # Errors
    /// The operating system's; `InvalidData` when the file is larger.
    fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path, Open::Read)?;
        let len = file.len()?;
        if len > limit_bytes {
            let text = format!("{len} bytes, more than the {limit_bytes} that such a file can have");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Writes a new file durably under a temporary name and publishes it: after Ok the file is there whole, whatever
    /// happens; after an error it is there whole or not at all. Never replaces.
    ///
    /// # Errors
    /// The operating system's; `AlreadyExists` when the name was taken.
    fn publish_bytes(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.temporary_name(path);
        let file = self.open(&temporary, Open::CreateNew)?;
        file.write_all_at(bytes, 0)?;
        file.sync_data()?;
        drop(file);
        if let Err(e) = self.publish(&temporary, path) {
            let _ = self.remove_file(&temporary);
            return Err(e);
        }
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }

    /// The name under which the file at `path` is prepared: beside it, and of this caller's own. A simulated disk has names of its
    /// own, which are the same in each run.
    fn temporary_name(&self, path: &Path) -> PathBuf {
        temporary_name(path)
    }
}

/// The name under which a file is prepared: beside it, and of this caller's own, because two processes may be preparing the same
/// thing, and with one name between them one could publish what the other is still writing.
fn temporary_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// An open file. All positions are explicit, so that it can be shared between threads.
pub trait File: Send + Sync + fmt::Debug {
    /// The size in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn len(&self) -> io::Result<u64>;
    /// When its bytes were last changed, in nanoseconds since 1970, if the file system keeps that. For noticing that a file is
    /// not what it was; never for order.
    ///
    /// # Errors
    /// The operating system's.
    fn modified_ns(&self) -> io::Result<Option<i64>> {
        Ok(None)
    }
    /// True when the file has no byte.
    ///
    /// # Errors
    /// The operating system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads some bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`; not durable until synced.
    ///
    /// # Errors
    /// The operating system's; a part may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all of `parts`, one behind the other; not durable until synced.
    ///
    /// # Errors
    /// The operating system's; a part may have been written.
    fn write_all_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Writes blocks durably: after Ok they are on the disk. Memory, offset and length must be multiples of
    /// [`BLOCK_BYTES`](crate::BLOCK_BYTES). The length of the file is part of what is made durable.
    ///
    /// # Errors
    /// `InvalidInput` when something isn't aligned; the operating system's. After an error it is unknown what was written. An error
    /// for lack of room ([`found_no_room`](crate::room::found_no_room)) is the write's: the same bytes may be written there again. A
    /// failed sync is told as another kind ([`sync_failed`](crate::room::sync_failed)), whatever its reason.
    fn write_synced_at(&self, blocks: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all of `parts`, one behind the other, leaving no copy in the system's cache where the system can do without: for bytes
    /// that nobody will read soon. Not durable until synced. Memory, offset and lengths are multiples of
    /// [`BLOCK_BYTES`](crate::BLOCK_BYTES); the default writes through the cache.
    ///
    /// # Errors
    /// The operating system's; a part may have been written.
    fn write_past_cache_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write_all_vectored_at(parts, offset)
    }
    /// Cuts or extends (with zeros) to `len` bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Takes room on the disk for `len` bytes at least, which nobody reads or writes: it is given back with the file. The default
    /// writes zeros.
    ///
    /// # Errors
    /// The operating system's; a part may have been taken.
    fn take_room(&self, len: u64) -> io::Result<()> {
        fill_with_zeros(self, len)
    }
    /// Suggests that the system begin to write `len` bytes at `offset` to the disk, so that a later sync finds little left.
    /// Promises nothing and doesn't wait; the default does nothing.
    fn start_write_back(&self, _offset: u64, _len: u64) {}
    /// Suggests that `len` bytes at `offset` will be read soon, so that the system begins to fetch them. Promises nothing and doesn't
    /// wait; a system may take a large range for a smaller one. The default does nothing.
    fn will_read(&self, _offset: u64, _len: u64) {}
    /// Makes all bytes and the size durable.
    ///
    /// # Errors
    /// The operating system's; see the promise about failed syncs at the head of this module.
    fn sync_data(&self) -> io::Result<()>;

    /// Reads exactly `buf`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; the operating system's.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }
}

/// Writes zeros behind what is there, up to `len` bytes.
pub(crate) fn fill_with_zeros<F: File + ?Sized>(file: &F, len: u64) -> io::Result<()> {
    const PIECE: u64 = 1 << 20;
    let (zeros, mut at) = (vec![0; PIECE as usize], file.len()?);
    while at < len {
        let piece = PIECE.min(len - at);
        file.write_all_at(&zeros[..piece as usize], at)?;
        at += piece;
    }
    Ok(())
}

/// An exclusive lock on a file, held until dropped.
pub trait Lock: Send + Sync + fmt::Debug {
    /// The locked file, for the holder to write who it is.
    fn file(&self) -> &dyn File;
}

/// An I/O error that says what was being done to which path.
#[derive(Debug, Error)]
#[error("could not {action} {}: {source}", path.display())]
pub struct IoError {
    /// What was being done, as a verb phrase: "read", "sync", "create the directory".
    pub action: &'static str,
    /// To what.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Adds where and what to an [`io::Error`].
pub trait IoContext<T> {
    /// On an error, says that `action` on `path` failed.
    ///
    /// # Errors
    /// The same, with its context.
    fn at(self, action: &'static str, path: &Path) -> Result<T, IoError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, IoError> {
        self.map_err(|source| IoError { action, path: path.to_path_buf(), source })
    }
}
