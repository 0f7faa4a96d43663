//! The files of the write-ahead log, used in turn.
//!
//! A file keeps its name for life (`wal/0000`, `wal/0001`, ...); its header says which part of the log it holds. Reusing
//! one means overwriting its header, which fits one disk sector: the file is the old one or the new one, never between.
//! What an earlier life left behind the header has another generation or position and can't be taken for new.
//!
//! * A file is given back ([`Ring::release`]) only after segments, directories and a base image that cover it are synced.
//! * A file that was never used grows by written zeros ahead of the frames, so that a synced write later changes no
//!   metadata; holes and unwritten extents would cost a journal commit each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::room::found_no_room;
use cutwater_platform::{AlignedBuf, BLOCK_BYTES, File, Files, IoContext, IoError, Open};

use super::frame::{FILE_HEADER_BYTES, FileHeader, Generation};

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// Bytes that have been written, zeros included.
    pub(crate) written: u64,
    /// First and last position that it holds and that a recovery might need; `None`: free.
    pub(crate) holds: Option<(u64, u64)>,
}

/// The files, and where the next frame goes.
#[derive(Debug)]
pub(crate) struct Ring {
    dir: PathBuf,
    files: Arc<dyn Files>,
    slots: Vec<Slot>,
    active: usize,
    generation: Generation,
    /// Position of the active file's first frame.
    start: u64,
    /// Where the next frame goes; everything below is durable.
    position: u64,
    file_bytes: u64,
    extend_bytes: usize,
    /// Made when a file first grows.
    zeros: AlignedBuf,
}

/// The name of the n-th file.
pub(crate) fn slot_name(index: usize) -> String {
    format!("{index:04}")
}

/// Reads a file's number out of its name.
pub(crate) fn slot_index(name: &str) -> Option<usize> {
    let index = name.parse().ok()?;
    (slot_name(index) == name).then_some(index)
}

impl Ring {
    /// Starts `header.generation` in a free file, or in a new one: after Ok its header is durable.
    pub(crate) fn start(
        files: Arc<dyn Files>,
        dir: &Path,
        slots: Vec<Slot>,
        header: FileHeader,
        file_bytes: u64,
        extend_bytes: usize,
    ) -> Result<Ring, IoError> {
        let mut ring = Ring {
            dir: dir.to_path_buf(),
            files,
            slots,
            active: 0,
            generation: header.generation,
            start: header.start,
            position: header.start,
            file_bytes,
            extend_bytes,
            zeros: AlignedBuf::default(),
        };
        let slot = ring.free_or_new()?;
        ring.enter(slot, header)?;
        Ok(ring)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Where the next frame goes; everything below is durable.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Whether a frame of so many padded bytes fits the active file. An empty file takes a frame of any size: what was
    /// prepared under larger limits can be ended under smaller ones.
    pub(crate) fn fits(&self, padded: u64) -> bool {
        self.position == self.start || FILE_HEADER_BYTES + (self.position - self.start) + padded <= self.file_bytes
    }

    /// Whether a frame of so many padded bytes, which fits the active file, has written blocks to go to.
    pub(crate) fn is_ready(&self, padded: u64) -> bool {
        self.slots[self.active].written >= self.end_of(padded)
    }

    /// Writes blocks for such a frame to go to. The frame's own write then needs no room, but on disks that copy.
    pub(crate) fn make_ready(&mut self, padded: u64) -> Result<(), IoError> {
        self.extend(self.active, self.end_of(padded))
    }

    /// Where a frame of so many bytes would end in the active file.
    fn end_of(&self, padded: u64) -> u64 {
        FILE_HEADER_BYTES + (self.position - self.start) + padded
    }

    /// Files that hold something a recovery might need, the active one included.
    pub(crate) fn used(&self) -> usize {
        self.slots.iter().filter(|slot| slot.holds.is_some()).count()
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.written).sum()
    }

    pub(crate) fn has_free(&self) -> bool {
        self.slots.iter().any(|slot| slot.holds.is_none())
    }

    /// Writes a frame durably at the log's end. After an error for lack of room the same frame may be written again.
    pub(crate) fn write(&mut self, frame: &[u8]) -> Result<(), IoError> {
        let offset = FILE_HEADER_BYTES + (self.position - self.start);
        let end = offset + frame.len() as u64;
        self.extend(self.active, end)?;
        let slot = &mut self.slots[self.active];
        slot.file.write_synced_at(frame, offset).at("write", &slot.path)?;
        self.position += frame.len() as u64;
        slot.holds = Some((self.start, self.position));
        Ok(())
    }

    /// Goes on in a free file, or in a new one.
    pub(crate) fn rotate(&mut self) -> Result<(), IoError> {
        let slot = self.free_or_new()?;
        let header = FileHeader {
            generation: self.generation,
            start: self.position,
            previous: self.generation.number,
            previous_end: self.position,
            durable: self.position,
        };
        self.enter(slot, header)
    }

    /// Gives back the files that hold nothing at or above `position`; their number.
    pub(crate) fn release(&mut self, position: u64) -> usize {
        let mut released = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if index != self.active && slot.holds.is_some_and(|(_, end)| end <= position) {
                slot.holds = None;
                released += 1;
            }
        }
        released
    }

    fn free_or_new(&mut self) -> Result<usize, IoError> {
        if let Some(free) = self.slots.iter().position(|slot| slot.holds.is_none()) {
            return Ok(free);
        }
        let path = self.dir.join(slot_name(self.slots.len()));
        let file = self.files.open(&path, Open::CreateNew).at("create", &path)?;
        self.files.sync_dir(&self.dir).at("sync", &self.dir)?;
        self.slots.push(Slot { path, file, written: 0, holds: None });
        Ok(self.slots.len() - 1)
    }

    fn enter(&mut self, index: usize, header: FileHeader) -> Result<(), IoError> {
        self.extend(index, FILE_HEADER_BYTES)?;
        let slot = &mut self.slots[index];
        slot.file.write_synced_at(header.encode().as_slice(), 0).at("write", &slot.path)?;
        slot.holds = Some((header.start, header.start));
        self.active = index;
        self.start = header.start;
        Ok(())
    }

    /// Writes zeros so that the file has written blocks up to `end` at least; where there is little room, just so many.
    fn extend(&mut self, index: usize, end: u64) -> Result<(), IoError> {
        let slot = &mut self.slots[index];
        let mut ahead = self.extend_bytes as u64;
        while slot.written < end {
            let step = ahead.min(self.file_bytes.saturating_sub(slot.written));
            let step = step.max(end - slot.written).next_multiple_of(BLOCK_BYTES as u64);
            self.zeros.grow_with_zeros(step as usize);
            let zeros = &self.zeros.as_slice()[..step as usize];
            match slot.file.write_synced_at(zeros, slot.written) {
                Ok(()) => slot.written += step,
                // What was written of it is zeros, and is written again.
                Err(e) if found_no_room(&e) && ahead > 0 => ahead = 0,
                Err(e) => return Err(e).at("extend", &slot.path),
            }
        }
        Ok(())
    }
}
