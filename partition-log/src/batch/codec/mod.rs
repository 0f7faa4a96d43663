//! The records' compressed block: one room per codec, one bound for all.
//!
//! Promises:
//! * Written as the Java clients write it, so that every Kafka client reads it; read as they are found in the field.
//! * Exactly one frame (gzip: member, snappy: stream) fills the block; nothing may follow it.
//! * Nothing is allocated on a block's word. Memory grows with what has come out, up to [`Limits`] and one chunk more
//!   (I-9); zstd besides has a window of at most 8 MiB.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::io::Read;

use super::{BatchError, Compression, Limits};

/// So many bytes may come out of a block whatever its size: a run of equal records shrinks to next to nothing.
const RATIO_FREE_BYTES: usize = 8 << 20;

/// Appends `records`, compressed.
pub(super) fn compress(compression: Compression, records: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>, BatchError> {
    match compression {
        Compression::None => {
            out.extend_from_slice(records);
            Ok(out)
        }
        Compression::Gzip => gzip::compress(records, out),
        Compression::Snappy => snappy::compress(records, out),
        Compression::Lz4 => lz4::compress(records, out),
        Compression::Zstd => Ok(zstd::compress(records, out)),
    }
}

/// Appends what `block` decompresses to. After an error `out` may hold a part of it.
pub(super) fn decompress(
    compression: Compression,
    block: &[u8],
    limits: &Limits,
    out: &mut Vec<u8>,
) -> Result<(), BatchError> {
    let bound = Bound::of(block.len(), limits);
    match compression {
        Compression::None => {
            out.extend_from_slice(block);
            Ok(())
        }
        Compression::Gzip => gzip::decompress(block, bound, out),
        Compression::Snappy => snappy::decompress(block, bound, out),
        Compression::Lz4 => lz4::decompress(block, bound, out),
        Compression::Zstd => zstd::decompress(block, bound, out),
    }
}

/// The most bytes that may come out of one block.
#[derive(Clone, Copy, Debug)]
struct Bound {
    limit: usize,
    why: &'static str,
}

impl Bound {
    fn of(block_bytes: usize, limits: &Limits) -> Bound {
        let by_ratio = block_bytes.saturating_mul(limits.decompressed_ratio).max(RATIO_FREE_BYTES);
        if by_ratio < limits.decompressed_bytes {
            Bound { limit: by_ratio, why: "the limit of the compression ratio" }
        } else {
            Bound { limit: limits.decompressed_bytes, why: "the limit of decompressed bytes" }
        }
    }

    fn check(self, bytes: usize) -> Result<(), BatchError> {
        if bytes > self.limit {
            return Err(BatchError::DecompressedTooLarge { limit: self.limit, why: self.why });
        }
        Ok(())
    }

    /// Appends everything that `reader` has, chunk by chunk.
    fn drain(self, reader: &mut impl Read, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let mut chunk = [0; 16 << 10];
        let start = out.len();
        loop {
            let read = reader.read(&mut chunk).map_err(|e| malformed(&e))?;
            if read == 0 {
                return Ok(());
            }
            self.check(out.len() - start + read)?;
            out.extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
    }
}

fn malformed(error: &dyn std::fmt::Display) -> BatchError {
    BatchError::Compressed { what: error.to_string() }
}

#[cfg(test)]
mod tests;
