//! What recovery finds in the files of the write-ahead log.
//!
//! Replay begins where the base image ends and follows generations and positions. A frame continues the log only if
//! generation, nonce and position are the expected ones and its checksum fits. The first place where nothing continues is
//! the end, or damage:
//!
//! * It is a **torn tail** (a write that was under way when the process or machine died) unless something proves that the
//!   place was durable.
//! * Proof is: a later frame that is intact, stands where it says, and says that everything below a position beyond this
//!   place was durable; or the header of a later file or generation that says so. Then it is **damage**, and the log
//!   refuses to open.
//!
//! Nothing of a generation beyond the end that the next generation's header names is looked at: that is a torn tail of an
//! earlier recovery.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::{BLOCK_BYTES, Files, IoContext, Open};

use super::frame::{Entry, FILE_HEADER_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FileHeader, FrameHeader, Generation};
use super::ring::{Slot, slot_index, slot_name};
use crate::codec::Cursor;
use crate::error::OpenError;

/// The files and their headers.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) slots: Vec<Slot>,
    /// By slot; `None` where no header was ever written whole.
    headers: Vec<Option<FileHeader>>,
}

/// Where the replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The last generation that was replayed.
    pub(crate) generation: Generation,
    /// Everything below was replayed.
    pub(crate) position: u64,
    /// Bytes of a write that never finished were found there.
    pub(crate) torn: bool,
    /// Frames replayed.
    pub(crate) frames: u64,
    /// The highest generation number seen anywhere.
    pub(crate) highest: u64,
}

fn corrupt(path: &Path, what: impl Into<String>) -> OpenError {
    OpenError::Corrupt { path: path.to_path_buf(), what: what.into() }
}

/// Opens all files and reads their headers.
pub(crate) fn scan(files: &Arc<dyn Files>, dir: &Path) -> Result<Found, OpenError> {
    let mut found = Found { slots: Vec::new(), headers: Vec::new() };
    let entries = files.read_dir(dir).at("list", dir)?;
    let mut indices = Vec::with_capacity(entries.len());
    for entry in entries {
        let index = slot_index(&entry.name).filter(|_| !entry.is_dir);
        indices.push(index.ok_or(OpenError::Foreign { dir: dir.to_path_buf(), name: entry.name })?);
    }
    indices.sort_unstable();
    for (expected, index) in indices.into_iter().enumerate() {
        let path = dir.join(slot_name(index));
        if index != expected {
            return Err(corrupt(&dir.join(slot_name(expected)), "it is missing, but a later one is there"));
        }
        let file = files.open(&path, Open::Write).at("open", &path)?;
        let written = file.len().at("measure", &path)? / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let mut block = vec![0; BLOCK_BYTES];
        let header = if written >= FILE_HEADER_BYTES {
            file.read_exact_at(&mut block, 0).at("read", &path)?;
            let newer = |newer: super::frame::NewerFormat| newer.found;
            FileHeader::decode(&block).map_err(newer).map_err(|found| OpenError::Newer {
                path: path.clone(),
                found,
                known: FORMAT_VERSION,
            })?
        } else {
            None
        };
        found.headers.push(header);
        found.slots.push(Slot { path, file, written, holds: None });
    }
    Ok(found)
}

impl Found {
    /// True when some file holds an intact frame, of whichever life.
    pub(crate) fn has_frames(&self) -> Result<bool, OpenError> {
        let mut buf = Vec::new();
        for slot in &self.slots {
            let mut offset = FILE_HEADER_BYTES;
            while offset < slot.written {
                if read_any_frame(slot, offset, &mut buf)?.is_some() {
                    return Ok(true);
                }
                offset += BLOCK_BYTES as u64;
            }
        }
        Ok(false)
    }

    /// The end of a log that was never used: its creation was cut off before the base image, perhaps more than once.
    pub(crate) fn unused(&self) -> End {
        End { generation: Generation::default(), position: 0, torn: false, frames: 0, highest: self.highest() }
    }

    fn highest(&self) -> u64 {
        self.headers.iter().flatten().map(|h| h.generation.number).max().unwrap_or(0)
    }

    /// Replays everything from `position` of `generation` on, syncs what was replayed, and marks the files that hold it.
    pub(crate) fn replay(
        &mut self,
        generation: Generation,
        position: u64,
        apply: &mut dyn FnMut(Entry) -> Result<(), OpenError>,
    ) -> Result<End, OpenError> {
        let highest = self.highest().max(generation.number);
        let mut end = End { generation, position, torn: false, frames: 0, highest };
        let mut buf = Vec::new();
        loop {
            let next = self.next_generation(end.generation)?;
            let bound = next.map(|(_, header)| header.previous_end);
            self.replay_generation(&mut end, bound, &mut buf, apply)?;
            let Some((_, header)) = next else { break };
            end.generation = header.generation;
            end.position = header.start;
        }
        self.check_unclaimed(&end)?;
        for slot in self.slots.iter().filter(|slot| slot.holds.is_some()) {
            slot.file.sync_data().at("sync", &slot.path)?;
        }
        Ok(end)
    }

    /// The first file of the generation behind `generation`.
    fn next_generation(&self, generation: Generation) -> Result<Option<(usize, FileHeader)>, OpenError> {
        let later = self.headers.iter().enumerate().filter_map(|(i, h)| h.map(|h| (i, h)));
        let later = later.filter(|(_, h)| h.generation.number > generation.number);
        let Some((index, header)) = later.min_by_key(|(_, h)| (h.generation.number, h.start)) else {
            return Ok(None);
        };
        if header.previous != generation.number {
            let what = format!(
                "generation {} follows generation {}, but {} is the last one found before it",
                header.generation.number, header.previous, generation.number
            );
            return Err(corrupt(&self.slots[index].path, what));
        }
        Ok(Some((index, header)))
    }

    fn replay_generation(
        &mut self,
        end: &mut End,
        bound: Option<u64>,
        buf: &mut Vec<u8>,
        apply: &mut dyn FnMut(Entry) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let mut chain: Vec<(usize, FileHeader)> = Vec::new();
        for (index, header) in self.headers.iter().enumerate() {
            if let Some(header) = header
                && header.generation == end.generation
            {
                chain.push((index, *header));
            }
        }
        chain.sort_unstable_by_key(|(_, header)| header.start);
        let first = chain.iter().rposition(|(_, header)| header.start <= end.position);
        let Some(first) = first else {
            let dir = self.slots.first().and_then(|slot| slot.path.parent()).unwrap_or(Path::new("wal"));
            let (position, number) = (end.position, end.generation.number);
            return Err(corrupt(dir, format!("the file with position {position} of generation {number} is missing")));
        };
        for (i, (index, header)) in chain.iter().enumerate().skip(first) {
            let next_start = chain.get(i + 1).map(|(_, next)| next.start);
            let stop = next_start.or(bound);
            self.replay_file(*index, header, stop, end, buf, apply)?;
            let last = next_start.is_none();
            self.slots[*index].holds = Some((header.start, end.position));
            if stop.is_some_and(|stop| stop != end.position) {
                let what = format!(
                    "position {} can't be read, but it was durable: a later header says so (up to {})",
                    end.position,
                    stop.unwrap_or_default()
                );
                return Err(corrupt(&self.slots[*index].path, what));
            }
            if last && bound.is_none() {
                self.check_torn(*index, header, end, buf)?;
            }
        }
        Ok(())
    }

    /// Applies the frames of one file, up to `stop` or the first place where nothing continues.
    fn replay_file(
        &self,
        index: usize,
        header: &FileHeader,
        stop: Option<u64>,
        end: &mut End,
        buf: &mut Vec<u8>,
        apply: &mut dyn FnMut(Entry) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let slot = &self.slots[index];
        while stop.is_none_or(|stop| end.position < stop) {
            let Some(frame) = read_frame(slot, header, end.position, buf)? else { return Ok(()) };
            let mut cursor = Cursor::new(buf.get(FRAME_HEADER_BYTES..frame.frame_bytes()).unwrap_or_default());
            let malformed = |e| corrupt(&slot.path, format!("the frame at position {}: {e}", frame.position));
            for _ in 0..frame.entries {
                apply(Entry::decode(&mut cursor).map_err(malformed)?)?;
            }
            if !cursor.is_empty() {
                return Err(malformed(cursor.malformed("frame with bytes left over")));
            }
            end.position += frame.padded_bytes();
            end.frames += 1;
        }
        Ok(())
    }

    /// The last file ends at `end`: looks for proof, behind that place, that it was durable.
    fn check_torn(&self, index: usize, header: &FileHeader, end: &mut End, buf: &mut Vec<u8>) -> Result<(), OpenError> {
        let slot = &self.slots[index];
        let offset = FILE_HEADER_BYTES + (end.position - header.start);
        if offset < slot.written {
            // Whatever begins like a frame of this place was the write under way.
            let mut head = [0; FRAME_HEADER_BYTES];
            slot.file.read_exact_at(&mut head, offset).at("read", &slot.path)?;
            let begun = FrameHeader::decode(&head);
            end.torn = begun.is_some_and(|f| f.position == end.position && f.generation == end.generation);
        }
        let mut place = end.position + BLOCK_BYTES as u64;
        while FILE_HEADER_BYTES + (place - header.start) < slot.written {
            if let Some(later) = read_frame(slot, header, place, buf)?
                && later.durable > end.position
            {
                return Err(corrupt(&slot.path, proof(end.position, &later)));
            }
            place += BLOCK_BYTES as u64;
        }
        Ok(())
    }

    /// Files whose header is unreadable were never used, or are damaged: then frames that belong behind the end are there.
    fn check_unclaimed(&self, end: &End) -> Result<(), OpenError> {
        let mut buf = Vec::new();
        for (slot, header) in self.slots.iter().zip(&self.headers) {
            let mut offset = if header.is_none() { FILE_HEADER_BYTES } else { slot.written };
            while offset + (BLOCK_BYTES as u64) <= slot.written {
                let frame = read_any_frame(slot, offset, &mut buf)?;
                let newer = |f: &FrameHeader| {
                    f.generation.number > end.generation.number
                        || (f.generation == end.generation && f.position >= end.position)
                };
                if let Some(frame) = frame.filter(newer) {
                    return Err(corrupt(&slot.path, format!("its header is damaged; {}", proof(end.position, &frame))));
                }
                offset += BLOCK_BYTES as u64;
            }
        }
        Ok(())
    }

    /// The paths of the files that hold what was replayed, for messages.
    pub(crate) fn held(&self) -> Vec<PathBuf> {
        self.slots.iter().filter(|slot| slot.holds.is_some()).map(|slot| slot.path.clone()).collect()
    }
}

fn proof(position: u64, later: &FrameHeader) -> String {
    format!(
        "position {position} can't be read, but an intact frame at position {} says that everything below {} was durable",
        later.position, later.durable
    )
}

/// The intact frame of `header`'s generation at `position`, left in `buf`; `None` if there is none.
fn read_frame(
    slot: &Slot,
    header: &FileHeader,
    position: u64,
    buf: &mut Vec<u8>,
) -> Result<Option<FrameHeader>, OpenError> {
    let offset = FILE_HEADER_BYTES + (position - header.start);
    let frame = read_any_frame(slot, offset, buf)?;
    Ok(frame.filter(|frame| frame.position == position && frame.generation == header.generation))
}

/// Whatever intact frame stands at `offset`, left in `buf`.
fn read_any_frame(slot: &Slot, offset: u64, buf: &mut Vec<u8>) -> Result<Option<FrameHeader>, OpenError> {
    let room = slot.written.saturating_sub(offset);
    if room < BLOCK_BYTES as u64 {
        return Ok(None);
    }
    buf.resize(buf.len().max(BLOCK_BYTES), 0);
    slot.file.read_exact_at(&mut buf[..BLOCK_BYTES], offset).at("read", &slot.path)?;
    let Some(frame) = FrameHeader::decode(&buf[..BLOCK_BYTES]) else { return Ok(None) };
    if frame.padded_bytes() > room {
        return Ok(None);
    }
    let len = frame.frame_bytes();
    if len > BLOCK_BYTES {
        buf.resize(buf.len().max(len), 0);
        let rest = &mut buf[BLOCK_BYTES..len];
        slot.file.read_exact_at(rest, offset + BLOCK_BYTES as u64).at("read", &slot.path)?;
    }
    Ok(frame.is_intact(&buf[..len]).then_some(frame))
}
