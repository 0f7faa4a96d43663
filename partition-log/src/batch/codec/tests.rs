//! What all codecs have in common.

use super::*;

const CODECS: [Compression; 4] = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
const SMALL: Limits = Limits { batch_bytes: 1 << 20, decompressed_bytes: 200_000, decompressed_ratio: 10 };

fn block(codec: Compression, records: &[u8]) -> Vec<u8> {
    compress(codec, records, vec![]).expect("compressible")
}

#[test]
fn what_was_compressed_comes_back_behind_what_was_there() {
    let noise: Vec<u8> = (0..90_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let text = b"2013-01-01 05:15 UA 1545 EWR IAH".repeat(3_000);
    for codec in CODECS {
        for records in [&noise[..], &text, b"x", &[0; 150_000]] {
            let mut out = b"before".to_vec();
            decompress(codec, &block(codec, records), &SMALL, &mut out).unwrap_or_else(|e| panic!("{codec:?}: {e}"));
            assert!(out[6..] == *records, "{codec:?}");
        }
        assert!(block(codec, &text).len() < text.len() / 5, "{codec:?} compresses text");
    }
}

#[test]
fn every_cut_and_every_extra_byte_is_refused() {
    let records: Vec<u8> = (0..70_000u32).map(|n| (n % 97) as u8).collect();
    for codec in CODECS {
        let whole = block(codec, &records);
        for cut in (0..whole.len()).step_by(7).chain(whole.len() - 20..whole.len()) {
            let mut out = Vec::new();
            let cut_off = decompress(codec, &whole[..cut], &SMALL, &mut out);
            // Snappy's framing has no end mark: cut between two blocks it is whole, and the records are too few.
            assert!(cut_off.is_err() || codec == Compression::Snappy && out != records, "{codec:?} cut at {cut}");
        }
        for extra in [&whole[..], b"x", &[0; 40]] {
            assert!(decompress(codec, &[&whole, extra].concat(), &SMALL, &mut vec![]).is_err(), "{codec:?}");
        }
    }
}

#[test]
fn a_bomb_is_stopped_by_bytes_and_by_ratio() {
    let by_ratio = Limits { decompressed_bytes: usize::MAX, ..SMALL };
    for codec in CODECS {
        let bomb = block(codec, &vec![0; 24 << 20]);
        for limits in [SMALL, by_ratio] {
            let mut out = Vec::new();
            let error = decompress(codec, &bomb, &limits, &mut out).expect_err("too large");
            assert!(matches!(error, BatchError::DecompressedTooLarge { .. }), "{codec:?}: {error}");
            assert!(out.capacity() <= 32 << 20, "{codec:?}: no more memory than twice the limit and a chunk");
        }
    }
}

#[test]
fn equal_records_are_no_bomb_however_small_they_get() {
    let by_ratio = Limits { decompressed_bytes: 64 << 20, ..SMALL };
    for codec in CODECS {
        let mut out = Vec::new();
        decompress(codec, &block(codec, &vec![7; 4 << 20]), &by_ratio, &mut out).expect("below the free bytes");
        assert_eq!(out.len(), 4 << 20, "{codec:?}");
    }
}

#[test]
fn no_block_is_believed_about_its_size() {
    // 2^32 - 1 and 2 GiB claimed by a few bytes, bare and framed.
    let mut out = Vec::new();
    for claim in [&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0][..], &[0x80, 0x80, 0x80, 0x80, 0x08, 4, 1, 2]] {
        let length = (claim.len() as i32).to_be_bytes();
        let framed = [&b"\x82SNAPPY\0"[..], &[0, 0, 0, 1, 0, 0, 0, 1], &length, claim].concat();
        for lie in [claim, &framed] {
            assert!(decompress(Compression::Snappy, lie, &Limits::DEFAULT, &mut out).is_err());
        }
    }
    // A zstd frame with a window of 1 GiB, and one that says it holds 2^60 bytes in a single segment.
    let magic = 0xFD2F_B528u32.to_le_bytes();
    let wide = [&magic[..], &[0, 20 << 3, 1, 0, 0]].concat();
    let single = [&magic[..], &[0b1110_0000], &(1u64 << 60).to_le_bytes(), &[1, 0, 0]].concat();
    for lie in [wide, single] {
        let error = decompress(Compression::Zstd, &lie, &Limits::DEFAULT, &mut out).expect_err("too large");
        assert!(error.to_string().contains("window"), "{error}");
    }
    assert_eq!(out.capacity(), 0);
}
