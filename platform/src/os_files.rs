//! The machine's file system.

#![expect(clippy::disallowed_methods, reason = "this is the adapter")]

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{OFlags, RenameFlags};

use crate::{BLOCK_BYTES, DirEntry, File, Files, Lock, Open};

/// At most this many slices go into one vectored write (Linux's `UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// The file system of this machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsFiles;

impl OsFiles {
    /// The file system of this machine.
    pub fn new() -> OsFiles {
        OsFiles
    }
}

impl Files for OsFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile { file: options(how).open(path)?, direct: OnceLock::new(), past_cache: OnceLock::new() }))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(DirEntry { name, is_dir: entry.file_type()?.is_dir() });
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        use rustix::fs::CWD;
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Old or foreign file systems don't know the flag; a hard link never replaces either.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::hard_link(from, to)?;
                fs::remove_file(from)
            }
            other => Ok(other?),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(if path.as_os_str().is_empty() { Path::new(".") } else { path })?.sync_all()
    }

    fn kind(&self, path: &Path) -> io::Result<Option<bool>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(found.is_dir())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let file = options(Open::Create).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(OsLock(OsFile { file, direct: OnceLock::new(), past_cache: OnceLock::new() })))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }
}

fn options(how: Open) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    match how {
        Open::Read => {}
        Open::Write => _ = options.write(true),
        Open::Create => _ = options.write(true).create(true).truncate(false),
        Open::CreateNew => _ = options.write(true).create_new(true),
    }
    options
}

#[derive(Debug)]
struct OsFile {
    file: fs::File,
    /// A second handle for synced writes that bypasses the page cache; `None` where the file system refuses it.
    direct: OnceLock<Option<fs::File>>,
    /// A third one for writes that bypass it and are synced later.
    past_cache: OnceLock<Option<fs::File>>,
}

impl OsFile {
    fn direct(&self) -> Option<&fs::File> {
        self.direct.get_or_init(|| self.again(OFlags::DIRECT | OFlags::DSYNC)).as_ref()
    }

    /// The same file, opened for writing once more.
    fn again(&self, flags: OFlags) -> Option<fs::File> {
        // By descriptor, not by name: the file may have been given another name since it was opened.
        let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        fs::OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(same).ok()
    }
}

/// Writes all of `parts` in as few calls as the system takes them in.
fn write_vectored(file: &fs::File, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    let mut parts = parts.to_vec();
    let mut left = parts.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let take = left.len().min(SLICES_MAX);
        match rustix::io::pwritev(file, &left[..take], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                IoSlice::advance_slices(&mut left, n);
                offset += n as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn modified_ns(&self) -> io::Result<Option<i64>> {
        use std::os::unix::fs::MetadataExt;
        let meta = self.file.metadata()?;
        Ok(meta.mtime().checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(meta.mtime_nsec())))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_all_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_vectored(&self.file, parts, offset)
    }

    fn write_past_cache_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let direct = self.past_cache.get_or_init(|| self.again(OFlags::DIRECT));
        match direct.as_ref().map(|direct| write_vectored(direct, parts, offset)) {
            // Not here, not in this unit, or not from this memory: through the cache, from the beginning.
            None => {}
            Some(Err(e)) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {}
            Some(other) => return other,
        }
        self.write_all_vectored_at(parts, offset)
    }

    fn write_synced_at(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        let aligned = (blocks.as_ptr() as usize).is_multiple_of(BLOCK_BYTES)
            && blocks.len().is_multiple_of(BLOCK_BYTES)
            && offset.is_multiple_of(BLOCK_BYTES as u64);
        if !aligned {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a synced write must be aligned to 4096 bytes"));
        }
        if let Some(direct) = self.direct() {
            match direct.write_all_at(blocks, offset) {
                // The device wants a larger unit: fall through to the buffered way.
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {}
                other => return other,
            }
        }
        self.file.write_all_at(blocks, offset)?;
        self.file.sync_data().map_err(crate::room::sync_failed)
    }

    fn take_room(&self, len: u64) -> io::Result<()> {
        use rustix::io::Errno;
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, len) {
            // The system can't: then so.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => crate::files::fill_with_zeros(self, len),
            other => Ok(other?),
        }
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        // Linux begins to write the dirty pages of a range that isn't needed, and lets go of its clean ones; these are
        // still dirty, so they stay readable from memory. A failed write is reported by the next sync, as ever.
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::DontNeed);
        }
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::WillNeed);
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[derive(Debug)]
struct OsLock(OsFile);

impl Lock for OsLock {
    fn file(&self) -> &dyn File {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    #[test]
    fn publishing_never_replaces() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (files, path) = (OsFiles::new(), dir.path().join("manifest"));
        files.publish_bytes(&path, b"first").expect("the name is free");
        let second = files.publish_bytes(&path, b"second").expect_err("the name is taken");
        assert_eq!(second.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(files.read(&path, 100).expect("readable"), b"first");
        assert_eq!(files.read_dir(dir.path()).expect("readable").len(), 1, "no temporary file is left");
    }

    #[test]
    fn synced_writes_demand_alignment_and_can_be_read_back() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = OsFiles::new().open(&dir.path().join("wal"), Open::CreateNew).expect("creatable");
        let mut buf = AlignedBuf::with_capacity(BLOCK_BYTES);
        buf.extend_from_slice(b"hello");
        assert_eq!(file.write_synced_at(buf.as_slice(), 0).expect_err("short").kind(), io::ErrorKind::InvalidInput);
        buf.pad_to_block();
        file.write_synced_at(buf.as_slice(), BLOCK_BYTES as u64).expect("aligned");
        let mut back = [0; 5];
        file.read_exact_at(&mut back, BLOCK_BYTES as u64).expect("written");
        assert_eq!(&back, b"hello");
    }

    #[test]
    fn vectored_writes_take_more_slices_than_the_kernel_does_at_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = OsFiles::new().open(&dir.path().join("segment"), Open::CreateNew).expect("creatable");
        let bytes: Vec<u8> = (0..3_000u32).map(|n| (n % 251) as u8).collect();
        let parts: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
        file.write_all_vectored_at(&parts, 3).expect("written");
        let mut back = vec![0; bytes.len()];
        file.read_exact_at(&mut back, 3).expect("written");
        assert_eq!(back, bytes);
    }

    #[test]
    fn writes_past_the_cache_are_read_back_and_unaligned_ones_go_through_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = OsFiles::new().open(&dir.path().join("state"), Open::CreateNew).expect("creatable");
        let (mut first, mut second) = (AlignedBuf::default(), AlignedBuf::default());
        first.extend_from_slice(&[1; BLOCK_BYTES]);
        second.extend_from_slice(&[2; 2 * BLOCK_BYTES]);
        let parts = [IoSlice::new(first.as_slice()), IoSlice::new(second.as_slice())];
        file.write_past_cache_at(&parts, BLOCK_BYTES as u64).expect("aligned");
        file.write_past_cache_at(&[IoSlice::new(b"odd")], 5).expect("through the cache");
        file.sync_data().expect("synced");
        file.will_read(0, 1 << 30);
        let mut back = vec![9; 4 * BLOCK_BYTES];
        file.read_exact_at(&mut back, 0).expect("written");
        let mut expected = [vec![0; BLOCK_BYTES], vec![1; BLOCK_BYTES], vec![2; 2 * BLOCK_BYTES]].concat();
        expected[5..8].copy_from_slice(b"odd");
        assert!(back == expected);
    }

    #[test]
    fn a_lock_is_refused_to_a_second_holder_until_dropped() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (files, path) = (OsFiles::new(), dir.path().join("lock"));
        let first = files.lock(&path).expect("lockable").expect("free");
        assert!(files.lock(&path).expect("lockable").is_none());
        drop(first);
        assert!(files.lock(&path).expect("lockable").is_some());
    }
}
