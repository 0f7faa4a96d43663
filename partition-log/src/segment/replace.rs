//! Puts one compacted segment in the place of one or more neighbours, so that a crash leaves the old ones or the new one.
//!
//! Kafka's protocol, in its names:
//! 1. write `<base>.log.cleaned` and the indexes of that suffix; sync them and the directory;
//! 2. rename the indexes, then the log file to `.swap`; sync the directory after each of these two: from here on the new one counts;
//! 3. remove the segments that it covers, rename the indexes in their places, sync the directory;
//! 4. rename the log file in its place, replacing the old one; sync the directory.
//!
//! [`PartitionFiles::truncate_to`] finishes what a crash has cut off: with a `.log.swap` steps 3 and 4 are done again, and
//! without one what has these suffixes goes. Nobody reads the partition's segments during 3 and 4.

use std::path::PathBuf;
use std::sync::Arc;

use cutwater_platform::{File, IoContext, Open};

use super::names::{self, Kind};
use super::offset_index::OffsetIndex;
use super::partition_files::{Aborts, PartitionFiles, Segment};
use super::time_index::TimeIndex;
use super::walk::Walk;
use super::{INDEX_MAX, SegmentError, abort_sums};
use crate::batch::BatchHeader;
use crate::batch::rewrite::hole;
use crate::segment::AbortedTxn;

/// Suffixes of a segment that is being written, and of one that is whole and counts.
const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";
/// So many bytes are written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// All that may have these suffixes but the log file.
const SIDE: [Kind; 4] = [Kind::Index, Kind::Times, Kind::Aborts, Kind::AbortSums];

/// A segment being written, to replace the one of its base and those that follow up to where it ends.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    files: &'a PartitionFiles,
    base: i64,
    next: i64,
    log: Arc<dyn File>,
    buffer: Vec<u8>,
    /// Bytes that are in the file already.
    written: u64,
    index: OffsetIndex,
    times: TimeIndex,
}

impl PartitionFiles {
    fn suffixed(&self, base: i64, kind: Kind, suffix: &str) -> PathBuf {
        let mut path = self.path(base, kind).into_os_string();
        path.push(suffix);
        path.into()
    }

    fn sync_names(&self) -> Result<(), SegmentError> {
        self.open.files.sync_dir(&self.dir).at("sync the directory", &self.dir).map_err(|error| {
            self.open.poison();
            SegmentError::Sync(error)
        })
    }

    /// Steps 3 and 4, as often as it takes. Only for whoever lets nobody read.
    fn take_place(&self, base: i64, next: i64) -> Result<(), SegmentError> {
        for covered in self.bases_on_disk()?.into_iter().filter(|covered| (base + 1..next).contains(covered)) {
            self.remove_segment(covered)?;
        }
        for kind in SIDE {
            let swap = self.suffixed(base, kind, SWAP);
            if self.open.files.exists(&swap).at("look at", &swap)? {
                self.open.files.rename(&swap, &self.path(base, kind)).at("rename", &swap)?;
            }
            self.open.forget(self.key(base, kind));
        }
        self.sync_names()?;
        self.open.crash.reach("compact.sources-removed");
        let swap = self.suffixed(base, Kind::Log, SWAP);
        self.open.files.rename(&swap, &self.path(base, Kind::Log)).at("rename", &swap)?;
        self.open.forget(self.key(base, Kind::Log));
        self.open.crash.reach("compact.in-place");
        self.sync_names()
    }

    fn bases_on_disk(&self) -> Result<Vec<i64>, SegmentError> {
        let names = super::partition_files::names_in(&self.open, &self.dir)?;
        Ok(names.into_iter().filter(|(_, kind)| *kind == Kind::Log).map(|(base, _)| base).collect())
    }

    /// Finishes replacements that a crash has cut off, and removes those that it left unfinished. True if there were any.
    pub(super) fn finish_replacements(&self) -> Result<bool, SegmentError> {
        let files = &self.open.files;
        let entries = match files.read_dir(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            entries => entries.at("list", &self.dir)?,
        };
        let mut found = false;
        let parsed = |name: &str, suffix: &str| name.strip_suffix(suffix).and_then(names::parse);
        for entry in &entries {
            let Some((base, Kind::Log)) = parsed(&entry.name, SWAP) else { continue };
            found = true;
            // The name may have been in the cache alone; what it covers goes only behind it.
            self.sync_names()?;
            let path = self.suffixed(base, Kind::Log, SWAP);
            let handle = self.open.unshared(&path, Open::Read)?;
            let bytes = handle.file.len().at("look at", &path)?;
            let (_, next) = Walk::new(handle, base, bytes).rebuild(self.config.index_interval_bytes)?;
            self.take_place(base, next)?;
        }
        for entry in entries {
            let left = parsed(&entry.name, CLEANED).or_else(|| parsed(&entry.name, SWAP));
            let path = self.dir.join(&entry.name);
            if left.is_some() && files.exists(&path).at("look at", &path)? {
                found = true;
                files.remove_file(&path).at("remove", &path)?;
            }
        }
        Ok(found)
    }
}

impl<'a> Replacement<'a> {
    /// Begins one; what an earlier attempt has left is overwritten.
    pub(crate) fn begin(files: &'a PartitionFiles, base: i64) -> Result<Replacement<'a>, SegmentError> {
        files.refuse_if_poisoned()?;
        for kind in SIDE {
            for suffix in [CLEANED, SWAP] {
                let left = files.suffixed(base, kind, suffix);
                if files.open.files.exists(&left).at("look at", &left)? {
                    files.open.files.remove_file(&left).at("remove", &left)?;
                }
            }
        }
        let path = files.suffixed(base, Kind::Log, CLEANED);
        let log = files.open.files.open(&path, Open::Create).at("create", &path)?;
        log.set_len(0).at("empty", &path)?;
        let (index, times) = (OffsetIndex::default(), TimeIndex::default());
        Ok(Replacement { files, base, next: base, log, buffer: Vec::new(), written: 0, index, times })
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds a batch; what is missing before it becomes a batch without records.
    pub(crate) fn push(&mut self, batch: &[u8]) -> Result<(), SegmentError> {
        let header = BatchHeader::parse(batch).map_err(|source| SegmentError::NotABatch { index: 0, source })?;
        self.fill_to(header.base_offset)?;
        self.add(&header, batch)
    }

    /// As much room as nothing takes, up to offset `next`.
    pub(crate) fn fill_to(&mut self, next: i64) -> Result<(), SegmentError> {
        if self.next >= next {
            return Ok(());
        }
        let hole = hole(self.next, next - 1);
        let header = BatchHeader::parse(&hole).map_err(|source| SegmentError::NotABatch { index: 0, source })?;
        self.add(&header, &hole)
    }

    fn add(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), SegmentError> {
        if header.base_offset != self.next {
            return Err(SegmentError::Order { what: "a batch", expected: self.next, found: header.base_offset });
        }
        let (position, last_offset) = (self.bytes(), header.last_offset());
        let relative = u32::try_from(last_offset - self.base).ok().filter(|r| u64::from(*r) <= INDEX_MAX);
        let place = u32::try_from(position).ok().filter(|_| position + batch.len() as u64 <= INDEX_MAX);
        let (Some(relative), Some(place)) = (relative, place) else {
            return Err(SegmentError::MustRoll { segment_base: self.base, last_offset, position });
        };
        let indexed = self.index.add(self.files.config.index_interval_bytes, relative, place);
        self.times.add(header.max_timestamp_ms, relative, indexed);
        self.buffer.extend_from_slice(batch);
        self.next = last_offset + 1;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SegmentError> {
        let path = || self.files.suffixed(self.base, Kind::Log, CLEANED);
        self.log.write_all_at(&self.buffer, self.written).at("write", &path())?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Leaves everything as it is.
    pub(crate) fn abandon(self) -> Result<(), SegmentError> {
        let path = self.files.suffixed(self.base, Kind::Log, CLEANED);
        drop(self.log);
        Ok(self.files.open.files.remove_file(&path).at("remove", &path)?)
    }

    /// Makes it durable and puts it in its place. `has_aborts`: the segments that go have transaction indexes; this one's gets
    /// the entries of `aborts`.
    pub(crate) fn put_in_place(mut self, has_aborts: bool, aborts: &[AbortedTxn]) -> Result<(), SegmentError> {
        self.flush()?;
        self.times.seal();
        let (files, base) = (self.files, self.base);
        let path = files.suffixed(base, Kind::Log, CLEANED);
        self.log.sync_data().at("sync", &path).map_err(|error| {
            files.open.poison();
            SegmentError::Sync(error)
        })?;
        let mut side = vec![(Kind::Index, self.index.to_bytes(0)), (Kind::Times, self.times.to_bytes(0))];
        if has_aborts {
            let entries = aborts.iter().flat_map(|txn| txn.to_bytes()).collect();
            side.extend([(Kind::Aborts, entries), (Kind::AbortSums, abort_sums::of_entries(aborts))]);
        }
        for (kind, bytes) in &side {
            let path = files.suffixed(base, *kind, CLEANED);
            let file = files.open.files.open(&path, Open::Create).at("create", &path)?;
            file.set_len(0).at("empty", &path)?;
            file.write_all_at(bytes, 0).at("write", &path)?;
            file.sync_data().at("sync", &path).map_err(|error| {
                files.open.poison();
                SegmentError::Sync(error)
            })?;
        }
        files.sync_names()?;
        files.open.crash.reach("compact.cleaned");
        let rename = |kind: Kind| {
            let from = files.suffixed(base, kind, CLEANED);
            files.open.files.rename(&from, &files.suffixed(base, kind, SWAP)).at("rename", &from)
        };
        side.iter().try_for_each(|(kind, _)| rename(*kind))?;
        files.sync_names()?;
        rename(Kind::Log)?;
        let no_way_back = |error| {
            // Half of it may be done, and only the next opening knows how to go on.
            files.open.poison();
            match error {
                SegmentError::Io(error) => SegmentError::Sync(error),
                other => other,
            }
        };
        files.sync_names()?;
        files.open.crash.reach("compact.swap-named");
        let _layout = files.change_layout();
        files.take_place(base, self.next).map_err(no_way_back)?;
        let mut state = files.state();
        state.segments.retain(|segment| !(base + 1..self.next).contains(&segment.base));
        if let Some(segment) = state.segments.iter_mut().find(|segment| segment.base == base) {
            let aborts = if has_aborts { Aborts::Entries(aborts.len() as u64) } else { Aborts::None };
            *segment = Segment { sealed_bytes: Some(self.written), ..Segment::new(base, aborts) };
        }
        Ok(())
    }
}
