//! Ways in for fuzzing: every decoder of what lies on the disk, on bytes that nothing has checked before.
//!
//! Checksums are made right first where a format has one, so that a fuzzer needn't guess them: what is asked here is what a
//! decoder does with bytes that pass, and what it takes in memory. Kafka's producer snapshot has no place here: the log writes
//! it and never reads it.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::Arc;

use cutwater_platform::File;

use crate::base_image;
use crate::codec::Cursor;
use crate::core::{OwnerState, PartitionState, State, TopicState, TxnState};
use crate::owner::TxnId;
use crate::producer::ProducerState;
use crate::segment::offset_index::{self, OffsetIndex};
use crate::segment::open_files::Handle;
use crate::segment::time_index::{self, TimeIndex};
use crate::segment::transaction_index;
use crate::wal::frame::{Entry, FRAME_HEADER_BYTES, FileHeader, FrameHeader, crc32c};

/// One kind of file, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A segment's offset index.
    OffsetIndex,
    /// A segment's time index.
    TimeIndex,
    /// A segment's transaction index.
    TransactionIndex,
    /// The header of a write-ahead file.
    WalHeader,
    /// A frame of a write-ahead file.
    WalFrame,
    /// The entries of such a frame, which begin with the first byte.
    WalEntries,
    /// A base image.
    BaseImage,
    /// The state in one, which begins with the first byte.
    State,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::OffsetIndex,
        Kind::TimeIndex,
        Kind::TransactionIndex,
        Kind::WalHeader,
        Kind::WalFrame,
        Kind::WalEntries,
        Kind::BaseImage,
        Kind::State,
    ];

    /// The most memory that looking at so many bytes may take.
    ///
    /// Indexes become lists of entries no larger than their bytes. In entries and states the dearest bytes are those of the
    /// smallest items that become something of their own: one struct, alone in a map's node, which has room for eleven. What is
    /// read is written and read again, so that there are two of it, and the bytes between them.
    pub fn most_memory(self, bytes: usize) -> usize {
        const ALWAYS: usize = 64 << 10;
        let per_byte = match self {
            // The bytes themselves, the list, and its growing copy.
            Kind::OffsetIndex | Kind::TimeIndex | Kind::TransactionIndex | Kind::WalHeader => 4,
            // An entry of the least bytes, or a list in one: two texts of no length, or a transaction's name.
            Kind::WalFrame | Kind::WalEntries => {
                let listed = (2 * size_of::<String>()).div_ceil(8).max(size_of::<TxnId>().div_ceil(TxnId::BYTES_MIN));
                6 + 2 * listed.max(size_of::<Entry>().div_ceil(5))
            }
            Kind::BaseImage | Kind::State => {
                let dearest = [
                    // Least bytes of each, and what it becomes.
                    (8, size_of::<TopicState>() * 3),
                    (22, 11 * (8 + size_of::<ProducerState>()) + 5 * 24 + 16),
                    (28, 11 * (16 + size_of::<OwnerState>()) + 16),
                    (28, size_of::<PartitionState>() + 16),
                    (50, 11 * (8 + size_of::<TxnState>()) + 16),
                    // Groups, memberships, settings: a name and a value in a map.
                    (8, 11 * 2 * size_of::<String>() + 16),
                ];
                dearest.into_iter().map(|(least, becomes): (usize, usize)| becomes.div_ceil(least)).max().unwrap_or(0)
                    * 2
                    + 6
            }
        };
        ALWAYS + bytes * per_byte
    }
}

/// Has the decoder of a kind read the bytes; whether they are such.
pub fn look(kind: Kind, bytes: &[u8]) -> bool {
    match kind {
        Kind::OffsetIndex => {
            let index = OffsetIndex::believable(bytes, u64::MAX);
            let file = ReadOnly(bytes.to_vec());
            let rise =
                index.entries.is_sorted_by(|a, b| a.relative_offset < b.relative_offset && a.position < b.position);
            assert!(rise, "what is believed rises");
            for offset in [0, 1, u32::MAX / 2, u32::MAX] {
                let found = offset_index::floor_in_file(&file, offset).expect("it is all there");
                assert!(found.is_none_or(|entry| entry.relative_offset <= offset), "{found:?} for {offset}");
            }
            !index.entries.is_empty()
        }
        Kind::TimeIndex => {
            let index = TimeIndex::believable(bytes, u32::MAX);
            let file = ReadOnly(bytes.to_vec());
            for time in [0, 1, i64::MAX / 2, i64::MAX] {
                let found =
                    time_index::floor_in_file(&file, |entry| entry.timestamp_ms < time).expect("it is all there");
                assert!(found.is_none_or(|(entry, _)| entry.timestamp_ms < time), "{found:?} for {time}");
            }
            !index.entries.is_empty()
        }
        Kind::TransactionIndex => {
            let handle = Handle::of(Arc::new(ReadOnly(bytes.to_vec())), Path::new("fuzzed"));
            let all = transaction_index::count(&handle).expect("it has a length");
            let believed = transaction_index::believable(&handle, i64::MAX).expect("it is all there");
            assert!(believed <= all, "{believed} of {all}");
            let mut found = Vec::new();
            let searched = transaction_index::search(&handle, believed, 0, i64::MAX, &mut found);
            assert!(searched.is_ok(), "what is believed can be searched");
            found.clear();
            // What isn't believed is refused, or it is fit to be read.
            transaction_index::search(&handle, all, 1, 1 << 40, &mut found).is_ok()
        }
        Kind::WalHeader => {
            let mut block = bytes.to_vec();
            fix(&mut block, 12, 16, 16 + 48);
            matches!(FileHeader::decode(&block), Ok(Some(_)))
        }
        Kind::WalFrame => {
            let Some(header) = FrameHeader::decode(bytes) else { return false };
            let Some(_) = bytes.get(..header.frame_bytes()) else {
                assert!(!header.is_intact(bytes), "a frame that isn't there is none");
                return false;
            };
            let mut frame = bytes.to_vec();
            fix(&mut frame, 4, 8, header.frame_bytes());
            let header = FrameHeader::decode(&frame).expect("only its checksum is another");
            assert!(header.is_intact(&frame), "its checksum is right");
            entries(&frame[FRAME_HEADER_BYTES..header.frame_bytes()], header.entries)
        }
        Kind::WalEntries => entries(bytes, u32::MAX),
        Kind::BaseImage => {
            let mut image = bytes.to_vec();
            fix(&mut image, 12, 16, bytes.len());
            base_image::read(Path::new("fuzzed"), &image).is_ok_and(|image| state(image.state))
        }
        Kind::State => state(bytes),
    }
}

/// Entries one after the other; what is read says the same when it is written.
fn entries(bytes: &[u8], count: u32) -> bool {
    let mut cursor = Cursor::new(bytes);
    for _ in 0..count {
        if cursor.is_empty() {
            break;
        }
        let Ok(entry) = Entry::decode(&mut cursor) else { return false };
        let mut again = Vec::new();
        entry.encode(&mut again);
        assert_eq!(again.len(), entry.encoded_bytes(), "{entry:?} has the size it says");
        assert_eq!(Entry::decode(&mut Cursor::new(&again)), Ok(entry), "written and read again");
    }
    cursor.is_empty()
}

/// A state; what is read says the same when it is written.
fn state(bytes: &[u8]) -> bool {
    let Ok(state) = State::decode(&mut Cursor::new(bytes)) else { return false };
    let image = state.image();
    let again = State::decode(&mut Cursor::new(&image)).map(|state| state.image());
    assert_eq!(again.as_deref(), Ok(&image[..]), "written and read again");
    true
}

/// Puts the checksum of `from..to` at `at`, if all of it is there.
fn fix(bytes: &mut [u8], at: usize, from: usize, to: usize) {
    let Some(covered) = bytes.get(from..to) else { return };
    let crc = crc32c(covered);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// A file that is bytes.
#[derive(Debug)]
struct ReadOnly(Vec<u8>);

impl File for ReadOnly {
    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let bytes = rest.len().min(buf.len());
        buf[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(Error::from(ErrorKind::ReadOnlyFilesystem))
    }

    fn write_all_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> Result<()> {
        Err(Error::from(ErrorKind::ReadOnlyFilesystem))
    }

    fn write_synced_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(Error::from(ErrorKind::ReadOnlyFilesystem))
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(Error::from(ErrorKind::ReadOnlyFilesystem))
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
}
