//! Why bytes are no acceptable batch.

use thiserror::Error;

/// Why bytes are no acceptable batch, or records can't become one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("the batch needs {expected} bytes, {found} are there")]
    Short {
        /// Bytes needed.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// The length field is smaller than the header that it counts.
    #[error("the length field says {found}, less than the {} bytes of a header", crate::batch::format::LENGTH_MIN)]
    Length {
        /// What the field says.
        found: i32,
    },
    /// Something follows where exactly one batch was expected.
    #[error("{extra} bytes follow the batch; a partition takes exactly one batch per request")]
    Trailing {
        /// How many bytes follow.
        extra: usize,
    },
    /// The batch is larger than the limit.
    #[error("the batch has {bytes} bytes, more than the limit of {limit}; send smaller batches or raise the limit")]
    TooLarge {
        /// Bytes of the batch.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Another format than v2.
    #[error("the batch has format {found}; only format 2 is supported, use a client of Kafka 0.11 or newer")]
    Magic {
        /// The magic byte.
        found: i8,
    },
    /// The checksum doesn't fit the bytes.
    #[error("the batch is damaged: its checksum says {expected:#010x}, its bytes give {found:#010x}")]
    Crc {
        /// What the batch says.
        expected: u32,
        /// What its bytes give.
        found: u32,
    },
    /// A number that stands for no codec.
    #[error("the batch is compressed by codec {codec}; known are 0 none, 1 gzip, 2 snappy, 3 lz4 and 4 zstd")]
    Codec {
        /// The codec's number.
        codec: i16,
    },
    /// Attributes that a client may not set.
    #[error("the attributes {found:#06x} aren't allowed: {why}")]
    Attributes {
        /// The attributes.
        found: i16,
        /// What is wrong with them.
        why: &'static str,
    },
    /// Producer id, epoch, sequence and the transactional bit contradict each other.
    #[error("producer {producer_id}, epoch {epoch}, sequence {sequence}: {why}")]
    Producer {
        /// The producer's id.
        producer_id: i64,
        /// Its epoch.
        epoch: i16,
        /// The first record's sequence.
        sequence: i32,
        /// The contradiction.
        why: &'static str,
    },
    /// The count of records and the last offset delta contradict each other or the kind of batch.
    #[error("the batch says it has {count} records and last offset delta {last_offset_delta}: {why}")]
    Count {
        /// The count of records.
        count: i32,
        /// The last offset delta.
        last_offset_delta: i32,
        /// The contradiction.
        why: &'static str,
    },
    /// A record isn't well formed.
    #[error("record {index} of the batch is malformed: {what}")]
    Record {
        /// Which record, from 0.
        index: i32,
        /// What is wrong.
        what: &'static str,
    },
    /// The records' compressed block isn't well formed.
    #[error("the records don't decompress: {what}")]
    Compressed {
        /// What is wrong.
        what: String,
    },
    /// The records decompress to more than the limit.
    #[error("the records decompress to more than {limit} bytes ({why})")]
    DecompressedTooLarge {
        /// How many bytes were allowed.
        limit: usize,
        /// Which limit it was.
        why: &'static str,
    },
    /// A batch without records was to be built.
    #[error("a batch needs at least one record")]
    Empty,
    /// A record can't join the batch that is being built: build that one and start another.
    #[error("the record doesn't fit the batch: {what}")]
    Full {
        /// What would overflow.
        what: &'static str,
    },
    /// A control record that isn't well formed.
    #[error("the control record is malformed: {what}")]
    Control {
        /// What is wrong.
        what: &'static str,
    },
}
