//! Making segments durable, before the write-ahead log forgets what they hold.

use cutwater_platform::{IoContext, Open};

use super::names::Kind;
use super::partition_files::PartitionFiles;
use super::{SegmentError, open_files::Handle};

/// A file that must be synced.
struct Dirty {
    base: i64,
    kind: Kind,
}

impl PartitionFiles {
    /// Bytes of log files that were written since they were last synced.
    pub fn dirty_bytes(&self) -> u64 {
        self.state().segments.iter().map(|segment| segment.dirty_bytes).sum()
    }

    /// True when something here isn't durable: bytes, index entries, aborts or names.
    pub fn is_dirty(&self) -> bool {
        let state = self.state();
        let files = state.segments.iter().any(|s| s.dirty_bytes > 0 || s.has_dirty_side_files());
        files
            || state.names_dirty
            || state.dir_is_new
            || state.index_flushed < state.index.entries.len()
            || state.times_flushed < state.times.entries.len()
    }

    /// Has the system begin the write-back of the active segment's newest bytes, if `at_least` so many were written since
    /// the last time. Promises nothing: only [`sync_paced`](Self::sync_paced) makes durable.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn start_write_back(&self, at_least: u64) -> Result<(), SegmentError> {
        let (base, from, len) = {
            let mut state = self.state();
            let (Some(end), Some(base)) = (state.end, state.active().map(|active| active.base)) else { return Ok(()) };
            // A cut may have moved the end back.
            let from = state.written_back.min(end.segment_position);
            let len = end.segment_position - from;
            if len < at_least {
                return Ok(());
            }
            state.written_back = end.segment_position;
            (base, from, len)
        };
        self.handle(base, Kind::Log, Open::Write)?.file.start_write_back(from, len);
        Ok(())
    }

    /// Makes durable everything that was written before the call: writes the active segment's missing index entries,
    /// then syncs file by file, oldest segment first, and at last the directory (and its parent) if names are new.
    /// `between` is called before each sync, so that the caller can let the write-ahead log's own syncs pass.
    ///
    /// Writes may go on meanwhile; they are dirty afterwards.
    ///
    /// # Errors
    /// The system's. A failed sync poisons this and all partitions that share its [`OpenFiles`](super::OpenFiles):
    /// [`SegmentError::poisons`].
    pub fn sync_paced(&self, mut between: impl FnMut()) -> Result<(), SegmentError> {
        self.refuse_if_poisoned()?;
        let result = self.sync_all(&mut between);
        if result.as_ref().is_err_and(SegmentError::poisons) {
            self.open.poison();
        }
        result
    }

    /// Makes everything durable and closes the files; they are opened again when needed.
    ///
    /// # Errors
    /// As [`sync_paced`](Self::sync_paced).
    pub fn close(&self) -> Result<(), SegmentError> {
        self.sync_paced(|| {})?;
        self.open.forget_partition(self.id);
        Ok(())
    }

    fn sync_all(&self, between: &mut impl FnMut()) -> Result<(), SegmentError> {
        {
            let _writer = self.lock_writer();
            self.flush_index()?;
        }
        for dirty in self.take_dirty() {
            between();
            let Some(handle) = self.handle_if_kept(&dirty)? else { continue };
            handle.sync()?;
            self.open.crash.reach("segment.synced");
        }
        let (names_dirty, dir_is_new) = {
            let mut state = self.state();
            (std::mem::take(&mut state.names_dirty), std::mem::take(&mut state.dir_is_new))
        };
        if names_dirty || dir_is_new {
            between();
            self.sync_directory(&self.dir)?;
        }
        if dir_is_new && let Some(parent) = self.dir.parent() {
            between();
            self.sync_directory(parent)?;
        }
        Ok(())
    }

    /// What is dirty, oldest segment first; it counts as clean from here on, so that writes that come during the syncs
    /// are seen by the next one. An error on the way poisons, so that nothing clean by mistake is ever believed.
    fn take_dirty(&self) -> Vec<Dirty> {
        let mut dirty = Vec::new();
        for segment in &mut self.state().segments {
            let base = segment.base;
            let mut add = |is_dirty: bool, kind| is_dirty.then(|| dirty.push(Dirty { base, kind }));
            add(std::mem::take(&mut segment.index_dirty), Kind::Index);
            add(std::mem::take(&mut segment.times_dirty), Kind::Times);
            add(std::mem::take(&mut segment.producers_dirty), Kind::Producers);
            add(std::mem::take(&mut segment.aborts_dirty), Kind::Aborts);
            add(std::mem::take(&mut segment.sums_dirty), Kind::AbortSums);
            add(std::mem::take(&mut segment.dirty_bytes) > 0, Kind::Log);
        }
        dirty
    }

    /// The dirty file, unless retention has removed its segment meanwhile.
    fn handle_if_kept(&self, dirty: &Dirty) -> Result<Option<std::sync::Arc<Handle>>, SegmentError> {
        match self.handle(dirty.base, dirty.kind, Open::Write) {
            Ok(handle) => Ok(Some(handle)),
            Err(_) if !self.segment_bases().contains(&dirty.base) => Ok(None),
            // What couldn't be opened couldn't be synced.
            Err(SegmentError::Io(error)) => Err(SegmentError::Sync(error)),
            Err(error) => Err(error),
        }
    }

    fn sync_directory(&self, dir: &std::path::Path) -> Result<(), SegmentError> {
        self.open.files.sync_dir(dir).at("sync the directory", dir).map_err(SegmentError::Sync)?;
        self.open.crash.reach("segment.dir-synced");
        Ok(())
    }
}
