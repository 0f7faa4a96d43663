//! One partition's segments: the ordered set, writing behind its end, rolling.
//!
//! One thread writes (others that try wait for it); any number read meanwhile. The state is locked only to look things
//! up or to publish what a finished write has added, never over I/O.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cutwater_platform::{IoContext, Open};

use super::bulk::{Readers, write_past_cache};
use super::names::{self, Kind};
use super::offset_index::{ENTRY_BYTES, OffsetIndex};
use super::open_files::{Handle, OpenFiles};
use super::time_index::{self, TimeIndex};
use super::{INDEX_MAX, LogEnd, Position, SegmentConfig, SegmentError};
use crate::batch::BatchHeader;
use crate::retention::SegmentFacts;

/// The segment files of one partition.
#[derive(Debug)]
pub struct PartitionFiles {
    pub(super) open: Arc<OpenFiles>,
    pub(super) id: u64,
    pub(super) dir: PathBuf,
    pub(super) config: SegmentConfig,
    /// Held by whoever changes files.
    pub(super) writer: Mutex<()>,
    /// Read by whoever reads segments, written by whoever takes segments away or puts others in their place. Taken before
    /// `writer`, never inside it.
    layout: RwLock<()>,
    /// Held by whoever builds an index anew.
    pub(super) rebuilding: Mutex<()>,
    pub(super) readers: Readers,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// By first offset. The last one is active if it begins at the end's segment; that segment's file may not exist yet.
    pub(super) segments: Vec<Segment>,
    pub(super) end: Option<LogEnd>,
    /// The active segment's index.
    pub(super) index: OffsetIndex,
    /// Bytes of the active segment whose write-back was begun.
    pub(super) written_back: u64,
    /// How many of its entries are in the file.
    pub(super) index_flushed: usize,
    /// The active segment's time index, and how many of its entries are in the file.
    pub(super) times: TimeIndex,
    pub(super) times_flushed: usize,
    /// Names were created or removed since the directory was synced.
    pub(super) names_dirty: bool,
    /// The directory itself was created since its parent was synced.
    pub(super) dir_is_new: bool,
}

/// What is known of a segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) base: i64,
    /// Bytes of its log file, once it is sealed and somebody has looked.
    pub(super) sealed_bytes: Option<u64>,
    pub(super) aborts: Aborts,
    /// What retention wants to know, once it is sealed and somebody has looked.
    pub(super) facts: Option<SegmentFacts>,
    /// Bytes of the log file that no sync has covered. Cutting counts as one byte.
    pub(super) dirty_bytes: u64,
    pub(super) index_dirty: bool,
    pub(super) times_dirty: bool,
    pub(super) aborts_dirty: bool,
    pub(super) sums_dirty: bool,
    pub(super) producers_dirty: bool,
}

/// What is known of a segment's transaction index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aborts {
    /// There is no file.
    None,
    /// There is a file and nobody has looked into it.
    Unread,
    /// So many entries.
    Entries(u64),
}

impl Segment {
    pub(super) fn has_dirty_side_files(&self) -> bool {
        self.index_dirty || self.times_dirty || self.aborts_dirty || self.sums_dirty || self.producers_dirty
    }

    pub(super) fn new(base: i64, aborts: Aborts) -> Segment {
        Segment {
            base,
            sealed_bytes: None,
            aborts,
            facts: None,
            dirty_bytes: 0,
            index_dirty: false,
            times_dirty: false,
            aborts_dirty: false,
            sums_dirty: false,
            producers_dirty: false,
        }
    }
}

impl PartitionFiles {
    /// Finds the segments of the partition in `dir`, which need not exist (its parent must). Reads names alone, no file.
    ///
    /// Where the files end must then be said: by [`truncate_to`](Self::truncate_to) (what recovery does: what lies beyond
    /// is junk of a crash) or by [`view_to`](Self::view_to) (which changes no file).
    ///
    /// # Errors
    /// The system's.
    pub fn open(
        open: Arc<OpenFiles>,
        dir: impl Into<PathBuf>,
        config: SegmentConfig,
    ) -> Result<PartitionFiles, SegmentError> {
        let dir = dir.into();
        let segments = segments_in(&open, &dir)?;
        let id = open.next_partition();
        let state = State {
            segments,
            end: None,
            index: OffsetIndex::default(),
            index_flushed: 0,
            times: TimeIndex::default(),
            times_flushed: 0,
            written_back: 0,
            names_dirty: false,
            dir_is_new: false,
        };
        Ok(PartitionFiles {
            open,
            id,
            dir,
            config,
            writer: Mutex::default(),
            layout: RwLock::default(),
            rebuilding: Mutex::default(),
            readers: Readers::default(),
            state: Mutex::new(state),
        })
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How it is laid out.
    pub fn config(&self) -> &SegmentConfig {
        &self.config
    }

    /// Where the files end.
    ///
    /// # Errors
    /// Nobody has said yet.
    pub fn end(&self) -> Result<LogEnd, SegmentError> {
        self.known_end(&self.state())
    }

    /// The first offsets of the segments that have a log file, in order.
    pub fn segment_bases(&self) -> Vec<i64> {
        self.state().segments.iter().map(|segment| segment.base).collect()
    }

    /// Writes whole batches, each in a slice of its own, at `at`, which must be where the files end; creates directory
    /// and segment if need be. Nothing is durable before [`sync_paced`](Self::sync_paced).
    ///
    /// To replay, cut to the end that is known to be durable and write the same again: the files come out the same. After
    /// an error the end is where it was, and the write can be repeated.
    ///
    /// # Errors
    /// The write isn't at the end; a slice isn't one whole batch; offsets don't follow each other without a gap; the
    /// segment must be rolled first; the system's.
    pub fn write(&self, at: Position, batches: &[IoSlice<'_>]) -> Result<LogEnd, SegmentError> {
        let _writer = self.lock_writer();
        let end = self.writable_end()?;
        if at != end.position() {
            return Err(SegmentError::NotAtEnd { expected: end.position(), found: at });
        }
        if batches.is_empty() {
            return Ok(end);
        }
        let (new_end, places) = plan_write(end, batches)?;
        self.ensure_active(end.segment_base)?;
        let handle = self.handle(end.segment_base, Kind::Log, Open::Write)?;
        let bytes = new_end.segment_position - end.segment_position;
        let past_cache = self.readers.allow_past_cache(bytes);
        let written = if past_cache {
            let mut staging = self.open.staging.lock().unwrap_or_else(PoisonError::into_inner);
            let between = || self.open.crash.reach("segment.blocks-written");
            write_past_cache(handle.for_writing(), batches, end.segment_position, &mut staging, between)
        } else {
            handle.for_writing().write_all_vectored_at(batches, end.segment_position)
        };
        written.at("write", &handle.path)?;
        self.readers.note_written(bytes);
        self.open.crash.reach("segment.written");
        let mut state = self.state();
        for place in places {
            let indexed = state.index.add(self.config.index_interval_bytes, place.relative_offset, place.position);
            state.times.add(place.timestamp_ms, place.relative_offset, indexed);
        }
        if let Some(active) = state.segments.last_mut() {
            active.dirty_bytes += bytes;
        }
        if past_cache {
            state.written_back = new_end.segment_position;
        }
        state.end = Some(new_end);
        Ok(new_end)
    }

    /// Seals the active segment and begins one at `new_base`, which must be the next offset. Doing it twice is doing it
    /// once. The new files are created at once, so that a roll is seen in the directory. `producers` is the content of the
    /// new segment's producer snapshot.
    ///
    /// # Errors
    /// Another offset than the next; the system's.
    pub fn roll(&self, new_base: i64, producers: &[u8]) -> Result<LogEnd, SegmentError> {
        let _writer = self.lock_writer();
        let end = self.writable_end()?;
        if new_base != end.next_offset {
            return Err(SegmentError::Order { what: "a roll", expected: end.next_offset, found: new_base });
        }
        if new_base == end.segment_base {
            self.ensure_active(new_base)?;
            return Ok(end);
        }
        self.state().times.seal();
        self.flush_index()?;
        self.create_segment(new_base)?;
        let handle = self.handle(new_base, Kind::Producers, Open::Create)?;
        handle.for_writing().write_all_at(producers, 0).at("write", &handle.path)?;
        let rolled = LogEnd::empty_at(new_base);
        let mut state = self.state();
        if let Some(sealed) = state.segments.last_mut() {
            sealed.sealed_bytes = Some(end.segment_position);
        }
        state.segments.push(Segment { producers_dirty: true, ..Segment::new(new_base, Aborts::None) });
        state.names_dirty = true;
        state.index = OffsetIndex::default();
        state.index_flushed = 0;
        state.times = TimeIndex::default();
        state.times_flushed = 0;
        state.written_back = 0;
        state.end = Some(rolled);
        drop(state);
        self.open.crash.reach("segment.rolled");
        Ok(rolled)
    }

    pub(super) fn remove_segment(&self, base: i64) -> Result<(), SegmentError> {
        // The log file last: without it the others are orphans that the next opening removes.
        for kind in [Kind::Index, Kind::Times, Kind::AbortSums, Kind::Aborts, Kind::Producers, Kind::Log] {
            self.open.remove(self.key(base, kind), &self.path(base, kind))?;
        }
        Ok(())
    }

    /// Writes the active segment's index entries that aren't in their files yet.
    pub(super) fn flush_index(&self) -> Result<(), SegmentError> {
        let Some((base, times, offsets)) = ({
            let state = self.state();
            state.active().map(|active| {
                let times = Flush {
                    kind: Kind::Times,
                    bytes: state.times.to_bytes(state.times_flushed),
                    from: (state.times_flushed * time_index::ENTRY_BYTES) as u64,
                };
                let offsets = Flush {
                    kind: Kind::Index,
                    bytes: state.index.to_bytes(state.index_flushed),
                    from: (state.index_flushed * ENTRY_BYTES) as u64,
                };
                (active.base, (times, state.times.entries.len()), (offsets, state.index.entries.len()))
            })
        }) else {
            return Ok(());
        };
        if let Some(created) = self.flush(base, &times.0)? {
            let mut state = self.state();
            state.times_flushed = times.1;
            state.names_dirty |= created;
            if let Some(active) = state.segments.last_mut() {
                active.times_dirty = true;
            }
        }
        if let Some(created) = self.flush(base, &offsets.0)? {
            self.open.crash.reach("segment.index-written");
            let mut state = self.state();
            state.index_flushed = offsets.1;
            state.names_dirty |= created;
            if let Some(active) = state.segments.last_mut() {
                active.index_dirty = true;
            }
        }
        Ok(())
    }

    /// Writes what is missing of a file and cuts what is too much; `None` when there is nothing to do, else whether the
    /// file may just have been created: a longer one was there before.
    fn flush(&self, base: i64, what: &Flush) -> Result<Option<bool>, SegmentError> {
        let handle = self.handle(base, what.kind, Open::Create)?;
        let whole = what.from + what.bytes.len() as u64;
        let found = handle.file.len().at("look at", &handle.path)?;
        if what.bytes.is_empty() && found == whole {
            return Ok(None);
        }
        let file = handle.for_writing();
        file.write_all_at(&what.bytes, what.from).at("write", &handle.path)?;
        if found > whole {
            file.set_len(whole).at("cut", &handle.path)?;
        }
        Ok(Some(found == 0))
    }

    fn ensure_active(&self, base: i64) -> Result<(), SegmentError> {
        if self.state().active().is_some() {
            return Ok(());
        }
        self.create_segment(base)?;
        let mut state = self.state();
        state.segments.push(Segment::new(base, Aborts::None));
        state.names_dirty = true;
        Ok(())
    }

    /// Makes an empty log file and empty indexes. Files of that name that nobody knows of are emptied: they come from a
    /// roll that failed halfway.
    fn create_segment(&self, base: i64) -> Result<(), SegmentError> {
        if self.open.files.kind(&self.dir).at("look at", &self.dir)?.is_none() {
            self.open.files.create_dir(&self.dir).at("create the directory", &self.dir)?;
            self.state().dir_is_new = true;
        }
        for kind in [Kind::Log, Kind::Index, Kind::Times] {
            let handle = self.handle(base, kind, Open::Create)?;
            if handle.file.len().at("look at", &handle.path)? > 0 {
                handle.for_writing().set_len(0).at("empty", &handle.path)?;
            }
        }
        for kind in [Kind::AbortSums, Kind::Aborts, Kind::Producers] {
            self.open.remove(self.key(base, kind), &self.path(base, kind))?;
        }
        Ok(())
    }

    pub(super) fn handle(&self, base: i64, kind: Kind, how: Open) -> Result<Arc<Handle>, SegmentError> {
        self.open.get(self.key(base, kind), || self.path(base, kind), how)
    }

    pub(super) fn key(&self, base: i64, kind: Kind) -> (u64, i64, Kind) {
        (self.id, base, kind)
    }

    pub(super) fn path(&self, base: i64, kind: Kind) -> PathBuf {
        names::path_of(&self.dir, base, kind)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the state is locked")
    }

    pub(super) fn lock_writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Segments stay where they are while this is held.
    pub(super) fn read_layout(&self) -> RwLockReadGuard<'_, ()> {
        self.layout.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody reads segments while this is held.
    pub(super) fn change_layout(&self) -> RwLockWriteGuard<'_, ()> {
        self.layout.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known_end(&self, state: &State) -> Result<LogEnd, SegmentError> {
        state.end.ok_or_else(|| SegmentError::EndUnknown { path: self.dir.clone() })
    }

    pub(super) fn refuse_if_poisoned(&self) -> Result<(), SegmentError> {
        if self.open.is_poisoned() { Err(SegmentError::Poisoned { path: self.dir.clone() }) } else { Ok(()) }
    }

    pub(super) fn writable_end(&self) -> Result<LogEnd, SegmentError> {
        self.refuse_if_poisoned()?;
        self.end()
    }
}

impl Drop for PartitionFiles {
    fn drop(&mut self) {
        self.open.forget_partition(self.id);
    }
}

impl State {
    /// The active segment, if its file exists.
    pub(super) fn active(&self) -> Option<&Segment> {
        let base = self.end?.segment_base;
        self.segments.last().filter(|segment| segment.base == base)
    }

    /// Which segment an offset falls into.
    pub(super) fn floor_segment(&self, offset: i64) -> Option<usize> {
        self.segments.partition_point(|segment| segment.base <= offset).checked_sub(1)
    }
}

/// The segments that a directory names, in order.
pub(super) fn segments_in(open: &OpenFiles, dir: &Path) -> Result<Vec<Segment>, SegmentError> {
    let names = names_in(open, dir)?;
    let mut segments: Vec<Segment> = Vec::new();
    for &(base, _) in names.iter().filter(|(_, kind)| *kind == Kind::Log) {
        let any = [Kind::Aborts, Kind::AbortSums].iter().any(|kind| names.contains(&(base, *kind)));
        let aborts = if any { Aborts::Unread } else { Aborts::None };
        segments.push(Segment::new(base, aborts));
    }
    segments.sort_by_key(|segment| segment.base);
    Ok(segments)
}

/// The segment files that a directory names; none when it doesn't exist.
pub(super) fn names_in(open: &OpenFiles, dir: &Path) -> Result<Vec<(i64, Kind)>, SegmentError> {
    match open.files.read_dir(dir) {
        Ok(entries) => Ok(entries.iter().filter_map(|entry| names::parse(&entry.name)).collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(Err::<(), _>(source).at("list", dir).expect_err("it is an error").into()),
    }
}

/// Entries on their way into an index file.
struct Flush {
    kind: Kind,
    bytes: Vec<u8>,
    /// Bytes that the file has already.
    from: u64,
}

/// What the indexes hear of a batch.
struct Place {
    /// Of its last record.
    relative_offset: u32,
    position: u32,
    /// Its largest timestamp.
    timestamp_ms: i64,
}

/// Where each batch will lie, and the end after them. Pure.
fn plan_write(end: LogEnd, batches: &[IoSlice<'_>]) -> Result<(LogEnd, Vec<Place>), SegmentError> {
    let mut end = end;
    let mut places = Vec::with_capacity(batches.len());
    for (index, bytes) in batches.iter().enumerate() {
        let header = BatchHeader::parse(bytes).map_err(|source| SegmentError::NotABatch { index, source })?;
        if header.total_bytes() != bytes.len() {
            let source = crate::batch::BatchError::Short { expected: header.total_bytes(), found: bytes.len() };
            return Err(SegmentError::NotABatch { index, source });
        }
        if header.base_offset != end.next_offset {
            let (expected, found) = (end.next_offset, header.base_offset);
            return Err(SegmentError::Order { what: "a batch", expected, found });
        }
        let (position, last_offset) = (end.segment_position, header.last_offset());
        let after = position + bytes.len() as u64;
        let relative = u32::try_from(last_offset - end.segment_base).ok().filter(|&r| u64::from(r) <= INDEX_MAX);
        let place = u32::try_from(position).ok().filter(|_| after <= INDEX_MAX);
        let (Some(relative), Some(place)) = (relative, place) else {
            return Err(SegmentError::MustRoll { segment_base: end.segment_base, last_offset, position });
        };
        places.push(Place { relative_offset: relative, position: place, timestamp_ms: header.max_timestamp_ms });
        end = LogEnd { next_offset: last_offset + 1, segment_position: after, ..end };
    }
    Ok((end, places))
}
