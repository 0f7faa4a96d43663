//! Where each field of a batch lies. Every position is computed from the one before it.
//!
//! All numbers are big-endian, except the varints inside records (zigzag, least significant group first).

/// Position of the base offset, i64. Outside the checksum.
pub const BASE_OFFSET_AT: usize = 0;
/// Position of the length, i32: how many bytes follow this field.
pub const LENGTH_AT: usize = BASE_OFFSET_AT + 8;
/// Position of the partition leader epoch, i32. Outside the checksum.
pub const LEADER_EPOCH_AT: usize = LENGTH_AT + 4;
/// Position of the magic byte, i8.
pub const MAGIC_AT: usize = LEADER_EPOCH_AT + 4;
/// Position of the checksum, u32: CRC-32C of everything from [`ATTRIBUTES_AT`] to the end.
pub const CRC_AT: usize = MAGIC_AT + 1;
/// Position of the attributes, i16.
pub const ATTRIBUTES_AT: usize = CRC_AT + 4;
/// Position of the last offset delta, i32.
pub const LAST_OFFSET_DELTA_AT: usize = ATTRIBUTES_AT + 2;
/// Position of the base timestamp, i64.
pub const BASE_TIMESTAMP_AT: usize = LAST_OFFSET_DELTA_AT + 4;
/// Position of the largest timestamp, i64.
pub const MAX_TIMESTAMP_AT: usize = BASE_TIMESTAMP_AT + 8;
/// Position of the producer id, i64.
pub const PRODUCER_ID_AT: usize = MAX_TIMESTAMP_AT + 8;
/// Position of the producer epoch, i16.
pub const PRODUCER_EPOCH_AT: usize = PRODUCER_ID_AT + 8;
/// Position of the base sequence, i32.
pub const BASE_SEQUENCE_AT: usize = PRODUCER_EPOCH_AT + 2;
/// Position of the count of records, i32.
pub const RECORD_COUNT_AT: usize = BASE_SEQUENCE_AT + 4;
/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = RECORD_COUNT_AT + 4;

/// Bytes that the length field doesn't count: base offset and the field itself.
pub const LENGTH_OVERHEAD: usize = LENGTH_AT + 4;
/// The smallest value of the length field: a header without records.
pub const LENGTH_MIN: usize = HEADER_BYTES - LENGTH_OVERHEAD;
/// The only format that is read or written.
pub const MAGIC: i8 = 2;

/// The bits of the attributes that say how the records are compressed.
pub const CODEC_MASK: i16 = 0b111;
/// Codec number: not compressed.
pub const CODEC_NONE: i16 = 0;
/// Codec number: gzip.
pub const CODEC_GZIP: i16 = 1;
/// Codec number: snappy, in the framing of the Java clients.
pub const CODEC_SNAPPY: i16 = 2;
/// Codec number: LZ4 frames.
pub const CODEC_LZ4: i16 = 3;
/// Codec number: Zstandard.
pub const CODEC_ZSTD: i16 = 4;
/// Attribute: all records carry the time of appending, which is the largest timestamp of the header.
pub const LOG_APPEND_TIME: i16 = 1 << 3;
/// Attribute: part of a transaction.
pub const TRANSACTIONAL: i16 = 1 << 4;
/// Attribute: a marker written by the log, not a client's data.
pub const CONTROL: i16 = 1 << 5;
/// Attribute: the base timestamp is a delete horizon (compaction).
pub const DELETE_HORIZON: i16 = 1 << 6;
/// Every bit that has a meaning.
pub const ATTRIBUTES_KNOWN: i16 = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON;

/// "None" of producer ids, producer epochs and sequences.
pub const NONE: i8 = -1;

const _: () = assert!(HEADER_BYTES == 61 && ATTRIBUTES_AT == 21 && LENGTH_MIN == 49);
