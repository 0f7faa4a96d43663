//! Snappy, in the framing of the Java library `snappy-java` that all Kafka clients follow, known as xerial's.
//!
//! ```text
//! 82 S N A P P Y 00 | version, i32: 1 | readable by version, i32: 1 | (length, i32 | snappy block) ...     big-endian
//! ```
//!
//! librdkafka writes a bare snappy block without any framing, and Java's reader takes it, so it is taken here.

use super::{Bound, malformed};
use crate::batch::BatchError;

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
/// The framing's only version, and the oldest that can read it.
const VERSION: i32 = 1;
/// Bytes that go into one block: what Java's writer has by default.
const BLOCK_BYTES: usize = 32 << 10;
/// No element of a block makes more out of a byte: a copy of 64 bytes takes three.
const EXPANSION_MAX: usize = 64usize.div_ceil(3);

/// Appends `records` in Java's framing.
pub(super) fn compress(records: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>, BatchError> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    let mut block = vec![0; snap::raw::max_compress_len(BLOCK_BYTES)];
    for piece in records.chunks(BLOCK_BYTES) {
        let bytes = encoder.compress(piece, &mut block).map_err(|e| malformed(&e))?;
        out.extend_from_slice(&(bytes as i32).to_be_bytes());
        out.extend_from_slice(block.get(..bytes).unwrap_or_default());
    }
    Ok(out)
}

/// Appends what the blocks hold, framed or bare.
pub(super) fn decompress(block: &[u8], bound: Bound, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let start = out.len();
    let Some(framed) = block.strip_prefix(&MAGIC) else { return bare(block, start, bound, out) };
    let (_version, mut rest) = int(framed).ok_or_else(|| malformed(&"the snappy framing is cut short"))?;
    let readable_by;
    (readable_by, rest) = int(rest).ok_or_else(|| malformed(&"the snappy framing is cut short"))?;
    if readable_by > VERSION {
        return Err(malformed(&format!("snappy framing {readable_by} is newer than {VERSION}")));
    }
    while !rest.is_empty() {
        let (bytes, after) = int(rest).ok_or_else(|| malformed(&"a snappy block is cut short"))?;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
        let split = bytes.and_then(|bytes| after.split_at_checked(bytes));
        let (block, after) = split.ok_or_else(|| malformed(&"a snappy block is empty or cut short"))?;
        bare(block, start, bound, out)?;
        rest = after;
    }
    Ok(())
}

fn int(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (int, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*int), rest))
}

/// One block. What it says of its size is believed only as far as its bytes can go.
fn bare(block: &[u8], start: usize, bound: Bound, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let bytes = snap::raw::decompress_len(block).map_err(|e| malformed(&e))?;
    if bytes > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(malformed(&format!("a snappy block of {} bytes claims to hold {bytes}", block.len())));
    }
    let filled = out.len();
    bound.check((filled - start).saturating_add(bytes))?;
    out.resize(filled + bytes, 0);
    let room = out.get_mut(filled..).unwrap_or_default();
    let found = snap::raw::Decoder::new().decompress(block, room).map_err(|e| malformed(&e))?;
    if found == bytes { Ok(()) } else { Err(malformed(&"a snappy block holds less than it says")) }
}
