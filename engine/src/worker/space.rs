//! A full disk: noticed at the edge, waited out between attempts.
//!
//! ```text
//!   any write of the job that finds no room -> noted, with its path          whoever wrote it, log and connectors included
//!   the attempt ends, and no checkpoint was committed since the note         -> the run is paused, the restart isn't counted
//!   paused: everything is closed, or stays open for its readers where it can ([`CommitGroup::room`](crate::sink::CommitGroup::room)); a file as large as what is needed is tried from time to time, and removed
//!   there is room                                                            -> what was closed is opened again, the next attempt
//!   a stop, or longer than the options allow                                 -> RunError::NoSpace; what was committed is kept
//! ```
//!
//! The promise: a pause changes nothing but time. The attempt behind it is one like any other, so its output is exact. An attempt
//! that meets a full disk again asks for twice as much room before the next one; a committed checkpoint resets that.
//!
//! Noting is done by a twin of the platform's files, so a sink of your own takes part if it writes through the platform.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cutwater_platform::room::is_lack_of_room;
use cutwater_platform::{DirEntry, File, Files, Lock, Open};

use crate::config::Options;
use crate::error::RunError;
use crate::observe::{Paused, Progress};
use crate::sink::Room;

/// The room that is asked for at least before the job goes on: an attempt alone needs some dozens of small files.
const NEEDS_MIN_BYTES: u64 = 1 << 20;
/// And at most: whatever the job needs, trying must not take long.
const NEEDS_MAX_BYTES: u64 = 1 << 30;
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A stop is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The file with which room is tried. One that a kill left behind is used again.
const PROBE: &str = "space-probe";

/// A write that found no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    path: PathBuf,
    bytes: u64,
    /// Checkpoints that the run had committed by then.
    commits: u64,
}

/// What a run knows about room on its disks.
#[derive(Debug)]
pub(crate) struct Space {
    raw: Arc<dyn Files>,
    noted: Arc<Noted>,
    /// What the last pause asked for; 0 if none, or a checkpoint was committed since.
    needs: u64,
    commits: u64,
    /// How long the run has waited since its last committed checkpoint.
    waited: Duration,
    pub(crate) pauses: u32,
    pub(crate) paused: Duration,
}

#[derive(Debug)]
struct Noted {
    progress: Arc<Progress>,
    last: Mutex<Option<NoRoom>>,
}

impl Noted {
    fn note<T>(&self, result: io::Result<T>, path: &Path, bytes: usize) -> io::Result<T> {
        if let Err(e) = &result
            && is_lack_of_room(e)
        {
            let room = NoRoom { path: path.to_path_buf(), bytes: bytes as u64, commits: self.progress.commits() };
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
        }
        result
    }
}

impl NoRoom {
    /// What a group lacks that has stayed open, if it is that.
    pub(crate) fn of(room: Room, commits: u64) -> Option<NoRoom> {
        match room {
            Room::Lacking { path, bytes } => Some(NoRoom { path, bytes, commits }),
            Room::Unknown | Room::Enough => None,
        }
    }
}

impl Space {
    /// Options whose files note what finds no room.
    pub(crate) fn watch(options: &Options, progress: Arc<Progress>) -> (Space, Options) {
        let raw = options.platform.files.clone();
        let noted = Arc::new(Noted { progress, last: Mutex::default() });
        let mut watched = options.clone();
        watched.platform.files = Arc::new(WatchedFiles { raw: raw.clone(), noted: noted.clone() });
        let space =
            Space { raw, noted, needs: 0, commits: 0, waited: Duration::ZERO, pauses: 0, paused: Duration::ZERO };
        (space, watched)
    }

    /// Whether [`Space::take`] would answer something.
    pub(crate) fn is_full(&self) -> bool {
        let noted = self.noted.last.lock().unwrap_or_else(PoisonError::into_inner);
        noted.as_ref().is_some_and(|note| note.commits == self.noted.progress.commits())
    }

    /// The write for lack of whose room the attempt ended, if that was it.
    pub(crate) fn take(&self) -> Option<NoRoom> {
        let noted = self.noted.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        noted.filter(|note| note.commits == self.noted.progress.commits())
    }

    /// Waits until there is room, and what has stayed open `is_ready`.
    ///
    /// # Errors
    /// [`RunError::NoSpace`]: a stop was asked for, or the wait took longer than the options allow.
    pub(crate) fn wait(
        &mut self,
        room: &NoRoom,
        last: &str,
        options: &Options,
        is_ready: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let progress = self.noted.progress.clone();
        if progress.commits() != self.commits {
            (self.needs, self.waited, self.commits) = (0, Duration::ZERO, progress.commits());
        }
        self.needs = (self.needs * 2).max(room.bytes).clamp(NEEDS_MIN_BYTES, NEEDS_MAX_BYTES);
        let paused = Paused { path: room.path.clone(), needs_bytes: self.needs };
        tracing::warn!(failure = last, "{paused}");
        progress.paused(Some(paused));
        self.pauses += 1;
        let clock = options.platform.clock.as_ref();
        let since = clock.monotonic();
        let result = self.wait_on(room, last, options, &progress, is_ready);
        let took = clock.monotonic().saturating_sub(since);
        (self.paused, self.waited) = (self.paused + took, self.waited + took);
        progress.paused(None);
        if result.is_ok() {
            tracing::info!(after = ?took, "there is room again");
        }
        result
    }

    fn wait_on(
        &self,
        room: &NoRoom,
        last: &str,
        options: &Options,
        progress: &Progress,
        is_ready: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let clock = options.platform.clock.as_ref();
        let probe = probe_path(room, &options.dir);
        let since = clock.monotonic();
        let mut pause = WAIT_MIN;
        loop {
            let until = clock.monotonic() + pause;
            while clock.monotonic() < until {
                let waited = self.waited + clock.monotonic().saturating_sub(since);
                let stopped = progress.stop_requested();
                if stopped || waited >= options.wait_for_space {
                    let (path, needs_bytes, last) = (room.path.clone(), self.needs, last.to_string());
                    return Err(RunError::NoSpace { path, needs_bytes, waited, stopped, last });
                }
                clock.sleep(LOOK_EVERY.min(pause));
            }
            if has_room(self.raw.as_ref(), &probe, self.needs) && is_ready() {
                return Ok(());
            }
            pause = (pause * 2).min(WAIT_MAX);
        }
    }
}

/// In the data directory; beside the file that found no room if that lies elsewhere, perhaps on another disk.
fn probe_path(room: &NoRoom, dir: &Path) -> PathBuf {
    let beside = room.path.parent().filter(|_| !room.path.starts_with(dir));
    beside.unwrap_or(dir).join(PROBE)
}

/// Whether so many bytes can be written. Any trouble but a lack of room is for the next attempt to report.
fn has_room(files: &dyn Files, probe: &Path, bytes: u64) -> bool {
    let fill = || {
        let file = files.open(probe, Open::Create)?;
        let chunk = vec![0xA5; 256 * 1024];
        let mut at = 0;
        while at < bytes {
            let n = chunk.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            file.write_all_at(&chunk[..n], at)?;
            at += n as u64;
        }
        file.sync_data()
    };
    let filled: io::Result<()> = fill();
    let _ = files.remove_file(probe);
    !filled.is_err_and(|e| is_lack_of_room(&e))
}

/// Files that note what finds no room, and are otherwise those below.
#[derive(Debug)]
struct WatchedFiles {
    raw: Arc<dyn Files>,
    noted: Arc<Noted>,
}

impl Files for WatchedFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.noted.note(self.raw.open(path, how), path, 0)?;
        if how == Open::Read {
            return Ok(file);
        }
        Ok(Arc::new(WatchedFile { raw: file, path: path.to_path_buf(), noted: self.noted.clone() }))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.raw.read_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.noted.note(self.raw.create_dir(path), path, 0)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.noted.note(self.raw.rename(from, to), to, 0)
    }

    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.noted.note(self.raw.publish(from, to), to, 0)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.raw.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.raw.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.noted.note(self.raw.sync_dir(path), path, 0)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<bool>> {
        self.raw.kind(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.noted.note(self.raw.lock(path), path, 0)
    }

    fn temporary_name(&self, path: &Path) -> PathBuf {
        self.raw.temporary_name(path)
    }
}

#[derive(Debug)]
struct WatchedFile {
    raw: Arc<dyn File>,
    path: PathBuf,
    noted: Arc<Noted>,
}

impl File for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.raw.len()
    }

    fn modified_ns(&self) -> io::Result<Option<i64>> {
        self.raw.modified_ns()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.raw.read_at(buf, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.noted.note(self.raw.write_all_at(bytes, offset), &self.path, bytes.len())
    }

    fn write_all_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.noted.note(self.raw.write_all_vectored_at(parts, offset), &self.path, bytes)
    }

    fn write_past_cache_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.noted.note(self.raw.write_past_cache_at(parts, offset), &self.path, bytes)
    }

    fn write_synced_at(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        self.noted.note(self.raw.write_synced_at(blocks, offset), &self.path, blocks.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.noted.note(self.raw.set_len(len), &self.path, 0)
    }

    fn take_room(&self, len: u64) -> io::Result<()> {
        // Room in advance, which its owner can do without.
        self.raw.take_room(len)
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        self.raw.start_write_back(offset, len);
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.raw.will_read(offset, len);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.noted.note(self.raw.sync_data(), &self.path, 0)
    }
}
