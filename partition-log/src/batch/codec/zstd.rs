//! Zstandard (RFC 8878): one frame, without a dictionary.
//!
//! Both directions are pure Rust. The encoder has one level, about the reference's first: a batch is small and its
//! compression sits on a producer's path. (Decision 0020.)

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress as encode};

use super::{Bound, malformed};
use crate::batch::BatchError;

/// The largest window: what RFC 8878 asks every decoder to bear, and the most that levels up to 19 use.
const WINDOW_BYTES: u64 = 8 << 20;

/// Appends `records` as one frame.
pub(super) fn compress(records: &[u8], mut out: Vec<u8>) -> Vec<u8> {
    encode(records, &mut out, CompressionLevel::Fastest);
    out
}

/// Appends what the frame holds, block by block (128 KiB at most); its checksum is compared if it has one.
pub(super) fn decompress(block: &[u8], bound: Bound, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let window = WINDOW_BYTES.min(bound.limit as u64);
    let mut decoder = StreamingDecoder::new_with_max_window_size(block, window).map_err(|e| malformed(&e))?;
    bound.drain(&mut decoder, out)?;
    let (rest, decoder) = decoder.into_parts();
    if !rest.is_empty() {
        return Err(malformed(&format!("{} bytes follow the zstd frame", rest.len())));
    }
    match decoder.get_checksum_from_data() {
        Some(expected) if decoder.get_calculated_checksum() != Some(expected) => {
            Err(malformed(&"the checksum of the zstd frame doesn't fit"))
        }
        _ => Ok(()),
    }
}
