//! An open file and a held lock of the simulated disk.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use cutwater_platform::{BLOCK_BYTES, File, Lock};

use super::SimDisk;
use super::trace::DiskOp;

/// A handle. It keeps the file's bytes alive even when its name is gone, and dies with the machine.
pub(crate) struct SimFile {
    disk: SimDisk,
    id: u64,
    path: Arc<Path>,
    writable: bool,
}

impl SimFile {
    /// A handle on file `id`, whose handle count the caller has raised.
    pub(crate) fn new(disk: SimDisk, id: u64, path: Arc<Path>, writable: bool) -> SimFile {
        SimFile { disk, id, path, writable }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn writable(&self) -> io::Result<()> {
        // EBADF, as for a descriptor that was opened for reading.
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(9)) }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.path.display())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        state.file(self.id).handles -= 1;
        state.forget_if_gone(self.id);
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.lock_state();
        state.enter()?;
        Ok(state.file(self.id).cache.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.lock_state().read(self.id, buf, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        let range = (offset, bytes.len() as u64);
        self.disk.lock_state().step(DiskOp::Write, &self.path, None, range, |s, _| s.write(self.id, bytes, offset))
    }

    fn write_all_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        for part in parts {
            bytes.extend_from_slice(part);
        }
        self.write_all_at(&bytes, offset)
    }

    fn write_synced_at(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        let aligned = (blocks.as_ptr() as usize).is_multiple_of(BLOCK_BYTES)
            && blocks.len().is_multiple_of(BLOCK_BYTES)
            && offset.is_multiple_of(BLOCK_BYTES as u64);
        if !aligned {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a synced write must be aligned to 4096 bytes"));
        }
        let range = (offset, blocks.len() as u64);
        self.disk.lock_state().step(DiskOp::WriteSynced, &self.path, None, range, |s, struck| {
            s.write_synced(self.id, blocks, offset, struck)
        })
    }

    fn take_room(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        let mut state = self.disk.lock_state();
        state.step(DiskOp::SetLen, &self.path, None, (len, 0), |s, _| s.take_room(self.id, len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        self.disk.lock_state().step(DiskOp::SetLen, &self.path, None, (len, 0), |s, _| {
            s.set_len(self.id, len);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk
            .lock_state()
            .step(DiskOp::SyncData, &self.path, None, (0, 0), |s, struck| s.sync_data(self.id, struck))
    }
}

/// A held lock; its file's id is the key.
pub(crate) struct SimLock {
    file: SimFile,
}

impl SimLock {
    /// A lock on the file that `file` is open on; the caller has entered it.
    pub(crate) fn new(file: SimFile) -> SimLock {
        SimLock { file }
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLock({})", self.file.path.display())
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.file.disk.lock_state().locks.remove(&self.file.id);
    }
}

impl Lock for SimLock {
    fn file(&self) -> &dyn File {
        &self.file
    }
}
