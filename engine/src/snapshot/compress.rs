//! Blocks of state files, smaller: on the I/O threads, each block for itself, many at once where there are cores for it.
//!
//! The promise: what [`unpack`] gives is byte for byte what [`pack`] got, or an error. It never allocates on a length that the
//! packed bytes couldn't have.
//!
//! A packed block is its unpacked length (4 bytes, little-endian), then what the codec made of it. Checksums cover the packed
//! bytes, so nothing is unpacked that isn't what was written.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress as encode};
use thiserror::Error;

use crate::config::Compression;

/// LZ4 says a run of 255 bytes in one.
const LZ4_RATIO_MAX: u64 = 255;
/// The largest window of a zstd frame: what RFC 8878 asks every decoder to bear.
const WINDOW_BYTES: u64 = 8 << 20;
/// Bytes of the length before a packed block.
const LENGTH_BYTES: usize = 4;

/// A block doesn't unpack, although its checksum is right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a block doesn't unpack: {0}")]
pub(crate) struct NotPacked(String);

/// Packs a block behind `room` zeros; `None` if it is to stand as it is.
pub(crate) fn pack(compression: Compression, raw: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut packed = vec![0; room];
    packed.extend_from_slice(&u32::try_from(raw.len()).ok()?.to_le_bytes());
    let start = packed.len();
    match compression {
        Compression::None => None,
        Compression::Lz4 => {
            packed.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
            let written = lz4_flex::block::compress_into(raw, &mut packed[start..]).ok()?;
            packed.truncate(start + written);
            packed.shrink_to_fit();
            Some(packed)
        }
        Compression::Zstd => {
            encode(raw, &mut packed, CompressionLevel::Fastest);
            Some(packed)
        }
    }
}

/// The block that was packed.
pub(crate) fn unpack(compression: Compression, packed: &[u8], into: &mut Vec<u8>) -> Result<(), NotPacked> {
    let wrong = |what: String| NotPacked(what);
    let Some((length, packed)) = packed.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(wrong("it is too short to say its length".to_owned()));
    };
    let length = u64::from(u32::from_le_bytes(*length));
    into.clear();
    match compression {
        Compression::None => return Err(wrong("its file isn't packed".to_owned())),
        Compression::Lz4 => {
            if length > (packed.len() as u64).saturating_mul(LZ4_RATIO_MAX) {
                return Err(wrong(format!("{} bytes can't become {length}", packed.len())));
            }
            into.resize(length as usize, 0);
            let got = lz4_flex::block::decompress_into(packed, into).map_err(|e| wrong(e.to_string()))?;
            into.truncate(got);
        }
        Compression::Zstd => {
            let mut decoder =
                StreamingDecoder::new_with_max_window_size(packed, WINDOW_BYTES).map_err(|e| wrong(e.to_string()))?;
            // Grows with what is there; one byte more than said is one too many.
            decoder.by_ref().take(length + 1).read_to_end(into).map_err(|e| wrong(e.to_string()))?;
        }
    }
    if into.len() as u64 != length {
        return Err(wrong(format!("{length} bytes expected, {} found", into.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    #[test]
    fn what_is_packed_comes_back_and_counters_get_smaller() {
        let raw: Vec<u8> = (0..20_000u64)
            .flat_map(|n| [&(n * 7).to_le_bytes()[..], &[1], &(n % 10).to_le_bytes()[..]].concat())
            .collect();
        for compression in ALL {
            let packed = pack(compression, &raw, 0).expect("it is packed");
            assert!(packed.len() * 2 < raw.len(), "{compression:?}: {} of {}", packed.len(), raw.len());
            let mut back = vec![];
            unpack(compression, &packed, &mut back).expect("it unpacks");
            assert!(back == raw, "{compression:?}");
        }
        assert_eq!(pack(Compression::None, &raw, 0), None);
    }

    #[test]
    fn a_length_that_can_not_be_is_refused_before_anything_is_allocated() {
        for compression in ALL {
            let mut packed = pack(compression, b"aaaaaaaaaaaaaaaaaaaaaaaa", 0).expect("it is packed");
            packed[..4].copy_from_slice(&u32::MAX.to_le_bytes());
            let mut into = vec![];
            unpack(compression, &packed, &mut into).expect_err("four gigabytes can't be in there");
            assert!(into.capacity() < 1 << 20, "{}", into.capacity());
            packed[..4].copy_from_slice(&3u32.to_le_bytes());
            unpack(compression, &packed, &mut into).expect_err("there is more");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(raw in proptest::collection::vec(any::<u8>(), 0..3000)) {
            for compression in ALL {
                let mut back = vec![];
                unpack(compression, &pack(compression, &raw, 0).expect("it is packed"), &mut back).expect("it unpacks");
                prop_assert_eq!(&back, &raw);
            }
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(packed in proptest::collection::vec(any::<u8>(), 0..300)) {
            for compression in ALL {
                let mut into = vec![];
                // No panic, and no more memory than the bytes can stand for.
                let _ = unpack(compression, &packed, &mut into);
                prop_assert!(into.capacity() <= 300 * 256 + (1 << 20));
            }
        }
    }
}
