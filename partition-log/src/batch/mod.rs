//! Record batches in Kafka's format v2: written, checked and read as bytes.
//!
//! A batch is encoded once by its producer and stays opaque bytes from there to the disk and to the reader; only base
//! offset and leader epoch are patched in, and they lie outside the checksum. `docs/formats/batch.md` has the byte table.
//!
//! Reading order: [`mod@format`] (where each field lies), [`header`] (the 61 bytes in front), [`encode`] (the builder),
//! [`verify()`] (what is refused, from a client and from a disk), [`decode`] (records, borrowed), `codec` (compressed
//! blocks), [`control`] (commit and abort markers).
//!
//! Promises:
//!
//! * No decoder panics, whatever the bytes, and none allocates on the word of a length or count: memory grows only with
//!   bytes that are there, or while decompressing, chunk by chunk, up to [`Limits`] (I-9).
//! * What [`verify()`] has accepted decodes without an error, under the same limits.
//! * Headers are an ordered list and may repeat a key (KIP-82).
//!
//! It deliberately doesn't know the formats before v2, and never compresses anew what a client has compressed.

pub mod control;
pub mod decode;
pub mod encode;
pub mod error;
pub mod format;
pub mod header;
pub mod verify;

mod codec;
mod record;
pub(crate) mod rewrite;
mod varint;

pub use control::{ControlKind, control_batch, control_kind};
pub use decode::{HeaderIter, RecordIter, RecordRef, Records, records, records_reusing};
pub use encode::{BatchBuilder, ProducerStamp, restamp};
pub use error::BatchError;
pub use header::{BatchHeader, Compression, assign};
pub(crate) use verify::accept;
pub use verify::{verify, verify_stored};

/// What a batch may cost its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest whole batch, in bytes as stored. Kafka's `max.message.bytes`.
    pub batch_bytes: usize,
    /// The most bytes that the records of one batch may decompress to.
    pub decompressed_bytes: usize,
    /// The most bytes that may come out of one compressed byte, once more than 8 MiB have come out of a block: a run of
    /// equal records shrinks to next to nothing. Snappy itself can't exceed 21, LZ4 255, gzip 1032.
    pub decompressed_ratio: usize,
}

impl Limits {
    /// 1,048,588 bytes (Kafka's default), decompressing to at most 64 MiB and at most 1000:1.
    pub const DEFAULT: Limits =
        Limits { batch_bytes: 1_048_588, decompressed_bytes: 64 << 20, decompressed_ratio: 1000 };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
