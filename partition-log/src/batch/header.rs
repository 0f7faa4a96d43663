//! The 61 bytes in front of every batch.

use super::BatchError;
use super::format::{
    ATTRIBUTES_AT, BASE_OFFSET_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CODEC_GZIP, CODEC_LZ4, CODEC_MASK, CODEC_NONE,
    CODEC_SNAPPY, CODEC_ZSTD, CONTROL, CRC_AT, HEADER_BYTES, LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT,
    LENGTH_MIN, LENGTH_OVERHEAD, LOG_APPEND_TIME, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT,
    RECORD_COUNT_AT, TRANSACTIONAL,
};

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// One gzip member.
    Gzip,
    /// Snappy blocks in the framing of the Java clients.
    Snappy,
    /// LZ4 frames with independent blocks.
    Lz4,
    /// One Zstandard frame.
    Zstd,
}

impl Compression {
    /// All there are, in the order of their numbers.
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// Its number in a batch's attributes.
    pub fn codec(self) -> i16 {
        match self {
            Compression::None => CODEC_NONE,
            Compression::Gzip => CODEC_GZIP,
            Compression::Snappy => CODEC_SNAPPY,
            Compression::Lz4 => CODEC_LZ4,
            Compression::Zstd => CODEC_ZSTD,
        }
    }
}

/// The header of a batch, field by field. Plain numbers: only length and magic have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes after the length field.
    pub length: i32,
    /// The process generation that appended it.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type and kind, as bits (see [`mod@super::format`]).
    pub attributes: i16,
    /// Offset of the last record minus the base offset.
    pub last_offset_delta: i32,
    /// Timestamp that the records' deltas count from, in milliseconds since 1970.
    pub base_timestamp_ms: i64,
    /// The largest timestamp of its records as its producer says, in milliseconds since 1970.
    pub max_timestamp_ms: i64,
    /// Id of an idempotent producer, -1 without.
    pub producer_id: i64,
    /// The producer's epoch, -1 without.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 without.
    pub base_sequence: i32,
    /// How many records it says it has.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`; what follows it may be missing.
    ///
    /// # Errors
    /// Fewer than 61 bytes, a length that can't be, or another format than v2.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let head: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or(BatchError::Short { expected: HEADER_BYTES, found: bytes.len() })?;
        let magic = i8::from_be_bytes(field::<1>(head, MAGIC_AT));
        if magic != MAGIC {
            return Err(BatchError::Magic { found: magic });
        }
        let length = i32::from_be_bytes(field(head, LENGTH_AT));
        if usize::try_from(length).is_ok_and(|length| length >= LENGTH_MIN) {
            Ok(BatchHeader {
                base_offset: i64::from_be_bytes(field(head, BASE_OFFSET_AT)),
                length,
                leader_epoch: i32::from_be_bytes(field(head, LEADER_EPOCH_AT)),
                crc: u32::from_be_bytes(field(head, CRC_AT)),
                attributes: i16::from_be_bytes(field(head, ATTRIBUTES_AT)),
                last_offset_delta: i32::from_be_bytes(field(head, LAST_OFFSET_DELTA_AT)),
                base_timestamp_ms: i64::from_be_bytes(field(head, BASE_TIMESTAMP_AT)),
                max_timestamp_ms: i64::from_be_bytes(field(head, MAX_TIMESTAMP_AT)),
                producer_id: i64::from_be_bytes(field(head, PRODUCER_ID_AT)),
                producer_epoch: i16::from_be_bytes(field(head, PRODUCER_EPOCH_AT)),
                base_sequence: i32::from_be_bytes(field(head, BASE_SEQUENCE_AT)),
                record_count: i32::from_be_bytes(field(head, RECORD_COUNT_AT)),
            })
        } else {
            Err(BatchError::Length { found: length })
        }
    }

    /// Bytes of the whole batch, header included.
    pub fn total_bytes(&self) -> usize {
        LENGTH_OVERHEAD + self.length as usize
    }

    /// Offset of the last record; the next batch begins one above it.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// True when it belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// True when the log wrote it, to say how a transaction ended.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// True when an idempotent producer wrote it.
    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// True when all its records carry the time of appending instead of times of their own.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// How its records are compressed.
    ///
    /// # Errors
    /// A number that stands for no codec.
    pub fn compression(&self) -> Result<Compression, BatchError> {
        let codec = self.attributes & CODEC_MASK;
        Compression::ALL.into_iter().find(|known| known.codec() == codec).ok_or(BatchError::Codec { codec })
    }

    /// Writes the header to the front of a batch. The magic byte is always 2.
    pub(super) fn write_to(&self, head: &mut [u8; HEADER_BYTES]) {
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(BASE_OFFSET_AT, &self.base_offset.to_be_bytes());
        put(LENGTH_AT, &self.length.to_be_bytes());
        put(LEADER_EPOCH_AT, &self.leader_epoch.to_be_bytes());
        put(MAGIC_AT, &MAGIC.to_be_bytes());
        put(CRC_AT, &self.crc.to_be_bytes());
        put(ATTRIBUTES_AT, &self.attributes.to_be_bytes());
        put(LAST_OFFSET_DELTA_AT, &self.last_offset_delta.to_be_bytes());
        put(BASE_TIMESTAMP_AT, &self.base_timestamp_ms.to_be_bytes());
        put(MAX_TIMESTAMP_AT, &self.max_timestamp_ms.to_be_bytes());
        put(PRODUCER_ID_AT, &self.producer_id.to_be_bytes());
        put(PRODUCER_EPOCH_AT, &self.producer_epoch.to_be_bytes());
        put(BASE_SEQUENCE_AT, &self.base_sequence.to_be_bytes());
        put(RECORD_COUNT_AT, &self.record_count.to_be_bytes());
    }
}

/// `N` bytes of the header; `at` is a position of [`format`](super::format), so they are there.
fn field<const N: usize>(head: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}

/// Gives a verified batch its place in the log: patches base offset and leader epoch, which the checksum leaves out.
///
/// # Panics
/// If `batch` is shorter than a header: it can't have been verified.
pub fn assign(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    assert!(batch.len() >= HEADER_BYTES, "only a verified batch gets an offset");
    batch[BASE_OFFSET_AT..LENGTH_AT].copy_from_slice(&base_offset.to_be_bytes());
    batch[LEADER_EPOCH_AT..MAGIC_AT].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// The checksum that a batch of these bytes must carry. `batch` is at least a header long.
pub(super) fn checksum(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(batch.get(ATTRIBUTES_AT..).unwrap_or_default())
}
