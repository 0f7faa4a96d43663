//! State files -> blocks of entries, refusing everything that isn't exactly what the manifest names.
//!
//! The promise: a block is handed out only after its checksum was right; [`StateFileReader::next_block`] answers `None`
//! only after the footer, the totals and the checksum of the whole file were right. Whoever loads must read to the end, and
//! must forget what it loaded if that fails.

use std::fmt;
use std::sync::Arc;

use super::ahead::FETCH_BYTES;
use super::compress::unpack;
use super::format::{
    BLOCK_HEADER_BYTES, FOOTER_BYTES, FOOTER_MAGIC, HEADER_MAX_BYTES, MAGIC, PREFIX_BYTES, STATE_FORMAT,
    STATE_FORMAT_PLAIN, StateFileHeader, Totals, UNIT_BYTES, aligned_checksum, block_checksum, decode_header,
    header_checksum, number, payload_crc,
};
use crate::checkpoint::StateFile;
use crate::config::Compression;
use cutwater_platform::{File, IoError};
use thiserror::Error;

/// How far ahead of the reader a file is fetched that doesn't lie in the system's cache.
const FETCHED_AHEAD_BYTES: u64 = 8 << 20;

/// A state file isn't what it should be. The way out: restore an older checkpoint whose files are whole, or bring the file
/// back from a copy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Not a state file.
    #[error(
        "{file} is not a state file of Cutwater; bring the right file back from a copy, or restore another checkpoint"
    )]
    Foreign {
        /// The file.
        file: String,
    },
    /// Written by a newer program.
    #[error("{file} has format version {found}, and this program knows up to {STATE_FORMAT}; use a newer program")]
    Newer {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
    },
    /// Written before the first release, in a format that is no longer read.
    #[error(
        "{file} has format version {found}, which only programs before the first release wrote; this one reads \
         {STATE_FORMAT_PLAIN} to {STATE_FORMAT}. Finish the job with the program that wrote it, or start it anew in another directory"
    )]
    Older {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
    },
    /// Damaged.
    #[error("{file} is damaged at byte {at}: {what}; bring it back from a copy, or restore another checkpoint")]
    Damaged {
        /// The file.
        file: String,
        /// Where, in bytes from the start.
        at: u64,
        /// What was expected and what was found.
        what: String,
    },
    /// Whole, but not the one that the manifest names.
    #[error("{file} is not the file that the manifest names: {what}; manifest and file don't belong together")]
    Other {
        /// The file.
        file: String,
        /// What differs.
        what: String,
    },
}

/// Reads one state file from front to back.
pub struct StateFileReader {
    file: Arc<dyn File>,
    expected: StateFile,
    header: StateFileHeader,
    seed: u64,
    position: u64,
    /// Whether its parts begin on boundaries. Then it was written past the system's cache, and is fetched ahead.
    aligned: bool,
    /// Up to where that has been asked for.
    fetched: u64,
    /// Where the footer begins, or the zeros before it.
    end: u64,
    totals: Totals,
    /// The block at hand, unpacked.
    buffer: Vec<u8>,
    /// The block at hand as it stands in the file, if that is packed.
    packed: Vec<u8>,
}

impl fmt::Debug for StateFileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateFileReader({:?} at byte {} of {})", self.name(), self.position, self.expected.bytes)
    }
}

/// Some entries, one behind the other, each `(key, Option<value>)` as `snapshot/entry` encodes it.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The file's name.
    pub file: &'a str,
    /// How many.
    pub entries: u32,
    /// Their bytes.
    pub bytes: &'a [u8],
}

impl StateFileReader {
    /// Opens the file that a manifest names as `expected`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(file: Arc<dyn File>, expected: &StateFile) -> Result<StateFileReader, ReadError> {
        let name = expected.name.clone();
        let len = file.len().map_err(|source| io("read the size of", &name, source))?;
        let mut prefix = [0; PREFIX_BYTES];
        if len < prefix.len() as u64 {
            return Err(damaged(&name, len, format!("it ends after {len} bytes")));
        }
        file.read_exact_at(&mut prefix, 0).map_err(|source| io("read", &name, source))?;
        if prefix[..8] != MAGIC {
            return Err(ReadError::Foreign { file: name });
        }
        let version = number(&prefix[8..12]) as u32;
        if version > STATE_FORMAT {
            return Err(ReadError::Newer { file: name, found: version });
        }
        if version < STATE_FORMAT_PLAIN {
            return Err(ReadError::Older { file: name, found: version });
        }
        if len != expected.bytes {
            return Err(damaged(&name, len, format!("it has {len} bytes, and the manifest says {}", expected.bytes)));
        }
        let header_len = number(&prefix[12..16]);
        if header_len > HEADER_MAX_BYTES as u64 || (PREFIX_BYTES + FOOTER_BYTES) as u64 + header_len > len {
            return Err(damaged(&name, 12, format!("a header of {header_len} bytes can't be")));
        }
        let mut buffer = vec![0; header_len as usize];
        file.read_exact_at(&mut buffer, PREFIX_BYTES as u64).map_err(|source| io("read", &name, source))?;
        let seed = header_checksum(&prefix[..16], &buffer);
        if seed != number(&prefix[16..24]) {
            return Err(damaged(&name, 16, "the checksum of its header is wrong".to_owned()));
        }
        let header = decode_header(version, &buffer)
            .ok_or_else(|| damaged(&name, PREFIX_BYTES as u64, "its header doesn't decode".to_owned()))?;
        if (header.kind, header.entries) != (expected.kind, expected.entries) {
            let what = format!(
                "{} entries as {:?} expected, {} as {:?} found",
                expected.entries, expected.kind, header.entries, header.kind
            );
            return Err(ReadError::Other { file: name, what });
        }
        let (position, aligned) = (PREFIX_BYTES as u64 + header_len, version == STATE_FORMAT);
        let unit = UNIT_BYTES as u64;
        if aligned && (!len.is_multiple_of(unit) || len < position.next_multiple_of(unit) + unit) {
            return Err(damaged(&name, len, format!("it has {len} bytes, which isn't a number of whole units")));
        }
        let end = len - if aligned { unit } else { FOOTER_BYTES as u64 };
        let (totals, packed) = (Totals::default(), vec![]);
        let expected = expected.clone();
        let mut reader = StateFileReader {
            file,
            expected,
            header,
            seed,
            position,
            aligned,
            fetched: 0,
            end,
            totals,
            buffer,
            packed,
        };
        if aligned {
            reader.fetch_ahead();
            reader.zeros(position.next_multiple_of(unit))?;
        }
        Ok(reader)
    }

    /// Asks for what comes next, in pieces that the system takes whole.
    fn fetch_ahead(&mut self) {
        while self.aligned && self.fetched < self.end.min(self.position + FETCHED_AHEAD_BYTES) {
            self.file.will_read(self.fetched, FETCH_BYTES);
            self.fetched += FETCH_BYTES;
        }
    }

    /// Reads on up to `to`, and refuses everything but zeros.
    fn zeros(&mut self, to: u64) -> Result<(), ReadError> {
        let (mut bytes, at) = ([0; UNIT_BYTES], self.position);
        let bytes = &mut bytes[..(to - at) as usize];
        self.read(bytes)?;
        match bytes.iter().position(|byte| *byte != 0) {
            Some(i) => Err(self.damaged(at + i as u64, "a zero was expected here")),
            None => Ok(()),
        }
    }

    /// What the file says about itself.
    pub fn header(&self) -> &StateFileHeader {
        &self.header
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.expected.name
    }

    /// About the most entries that a file of this size has: each takes a byte at least, and packed ones are seldom packed denser
    /// than this. To reserve no more memory than that; more may come.
    pub fn entries_max(&self) -> usize {
        let density = if self.header.compression == Compression::None { 1 } else { 8 };
        usize::try_from(self.expected.bytes.saturating_mul(density)).unwrap_or(usize::MAX)
    }

    /// The next block, or `None` at the end of a file that is whole.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        if self.position >= self.end {
            self.check_end()?;
            return Ok(None);
        }
        self.fetch_ahead();
        let at = self.position;
        let mut head = [0; BLOCK_HEADER_BYTES];
        if self.end - at < head.len() as u64 {
            return Err(self.damaged(at, "too few bytes for a block"));
        }
        self.read(&mut head)?;
        let (length, entries) = (number(&head[0..4]), number(&head[4..8]) as u32);
        if length == 0 || entries == 0 || length > self.end - self.position {
            return Err(self.damaged(at, "a block of this length can't be here"));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length as usize, 0);
        self.read(&mut buffer)?;
        self.buffer = buffer;
        let checksum = number(&head[8..16]);
        let found = match self.aligned {
            true => {
                let crc = payload_crc(&self.buffer);
                aligned_checksum(self.seed, self.totals.blocks, entries, self.buffer.len(), crc)
            }
            false => block_checksum(self.seed, self.totals.blocks, entries, &self.buffer),
        };
        if found != checksum {
            return Err(self.damaged(at, "the checksum of a block is wrong"));
        }
        if self.aligned {
            // Not beyond the end, which is a boundary too.
            self.zeros(self.position.next_multiple_of(UNIT_BYTES as u64))?;
        }
        self.totals.add(entries, self.buffer.len(), checksum);
        if self.header.compression != Compression::None {
            std::mem::swap(&mut self.buffer, &mut self.packed);
            unpack(self.header.compression, &self.packed, &mut self.buffer)
                .map_err(|e| self.damaged(at, &e.to_string()))?;
        }
        Ok(Some(Block { file: &self.expected.name, entries, bytes: &self.buffer }))
    }

    /// Reads and checks everything, and forgets it: for looking whether a file is whole.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn verify(mut self) -> Result<StateFileHeader, ReadError> {
        while self.next_block()?.is_some() {}
        Ok(self.header)
    }

    fn check_end(&mut self) -> Result<(), ReadError> {
        if self.position > self.end {
            // Asked again after the end.
            return Ok(());
        }
        let footer_at = self.expected.bytes - FOOTER_BYTES as u64;
        self.zeros(footer_at)?;
        let mut footer = [0; FOOTER_BYTES];
        self.read(&mut footer)?;
        let (expected, checksum) = self.totals.encode(self.seed);
        if footer[..8] != FOOTER_MAGIC || footer != expected {
            return Err(self.damaged(footer_at, "the footer doesn't fit what stands before it"));
        }
        if self.totals.entries != self.header.entries {
            return Err(self.damaged(footer_at, "there are more or fewer entries than the header says"));
        }
        if checksum != self.expected.checksum {
            let what = format!("checksum {:016x} expected, {checksum:016x} found", self.expected.checksum);
            return Err(ReadError::Other { file: self.expected.name.clone(), what });
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), ReadError> {
        self.file.read_exact_at(into, self.position).map_err(|source| io("read", &self.expected.name, source))?;
        self.position += into.len() as u64;
        Ok(())
    }

    fn damaged(&self, at: u64, what: &str) -> ReadError {
        damaged(&self.expected.name, at, what.to_owned())
    }
}

fn damaged(file: &str, at: u64, what: String) -> ReadError {
    ReadError::Damaged { file: file.to_owned(), at, what }
}

fn io(action: &'static str, file: &str, source: std::io::Error) -> ReadError {
    ReadError::Io(IoError { action, path: file.into(), source })
}
