//! LZ4 in its frame format, as Kafka uses it.
//!
//! Kafka's Java reader wants independent blocks and one frame, so that is what is written (64 KiB blocks, no checksums:
//! the batch has its own) and what is accepted. The frame's shape is walked here before anything is decompressed,
//! because a reader of frames can't tell a missing end from the end.

use std::io::{BufRead, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{Bound, malformed};
use crate::batch::BatchError;

const FRAME_MAGIC: [u8; 4] = 0x184D_2204u32.to_le_bytes();
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION_1: u8 = 0b0100_0000;
const INDEPENDENT_BLOCKS: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const DICTIONARY: u8 = 1;
/// The top bit of a block's length says that the block isn't compressed.
const BLOCK_IS_RAW: u32 = 1 << 31;

/// Appends `records` as one frame.
pub(super) fn compress(records: &[u8], out: Vec<u8>) -> Result<Vec<u8>, BatchError> {
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    let written = encoder.write_all(records).map_err(|e| malformed(&e));
    written.and_then(|()| encoder.finish().map_err(|e| malformed(&e)))
}

/// Appends what `block` decompresses to, chunk by chunk, so that no limit is passed by more than one chunk.
pub(super) fn decompress(block: &[u8], bound: Bound, out: &mut Vec<u8>) -> Result<(), BatchError> {
    check_frame(block).ok_or(BatchError::Compressed { what: FRAME_WANTED.to_string() })?;
    let start = out.len();
    let mut decoder = FrameDecoder::new(block);
    loop {
        let chunk = decoder.fill_buf().map_err(|e| malformed(&e))?;
        if chunk.is_empty() {
            break;
        }
        bound.check(out.len() - start + chunk.len())?;
        out.extend_from_slice(chunk);
        let len = chunk.len();
        decoder.consume(len);
    }
    // An empty block in the middle looks like the end to the decoder.
    if decoder.get_ref().is_empty() {
        Ok(())
    } else {
        Err(BatchError::Compressed { what: "a block of the frame is empty".to_string() })
    }
}

const FRAME_WANTED: &str = "one LZ4 frame of version 1 with independent blocks, without a dictionary, up to its end mark and nothing behind it is expected";

/// Walks the frame's shape; `None` when it isn't one whole frame as Kafka reads it.
fn check_frame(block: &[u8]) -> Option<()> {
    let mut rest = block.strip_prefix(&FRAME_MAGIC)?;
    let (&flags, _) = rest.split_first()?;
    if flags & VERSION_MASK != VERSION_1 || flags & INDEPENDENT_BLOCKS == 0 || flags & DICTIONARY != 0 {
        return None;
    }
    let sized = if flags & CONTENT_SIZE != 0 { 8 } else { 0 };
    // Flags, block size, checksum of the header.
    rest = rest.get(2 + sized + 1..)?;
    loop {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len);
        if len == 0 {
            rest = after.get(if flags & CONTENT_CHECKSUM != 0 { 4 } else { 0 }..)?;
            return rest.is_empty().then_some(());
        }
        let checksum = if flags & BLOCK_CHECKSUMS != 0 { 4 } else { 0 };
        rest = after.get((len & !BLOCK_IS_RAW) as usize..)?.get(checksum..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { limit: 100_000, why: "a test" };

    fn framed(records: &[u8], info: FrameInfo) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(records).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn a_frame_begins_as_kafkas_own() {
        let block = compress(b"records", vec![]).expect("compressible");
        assert_eq!(block[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82], "magic, independent, 64 KiB, checksum");
    }

    #[test]
    fn other_shapes_of_frames_are_taken_if_kafka_takes_them_and_refused_if_not() {
        let records = b"the same bytes, the same bytes, the same bytes".repeat(40);
        let taken = FrameInfo::new().content_size(Some(records.len() as u64)).content_checksum(true);
        let mut out = Vec::new();
        decompress(&framed(&records, taken.block_checksums(true)), BOUND, &mut out).expect("within the format");
        assert_eq!(out, records);
        let linked = framed(&records, FrameInfo::new().block_mode(BlockMode::Linked));
        // Magic of the legacy format, then one block that is a literal run of one byte.
        let legacy = [&0x184C_2102u32.to_le_bytes()[..], &2u32.to_le_bytes(), &[0x10, b'x']].concat();
        for refused in [linked, legacy] {
            assert!(decompress(&refused, BOUND, &mut vec![]).is_err());
        }
    }
}
