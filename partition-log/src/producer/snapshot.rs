//! A partition's producers as Kafka's snapshot file has them, for Kafka's tools. This log never reads it: the base image
//! holds the same and the whole window of five batches besides.
//!
//! Source: Kafka's `ProducerStateManager`. `docs/formats/segment.md` has the byte table.

use std::collections::{BTreeMap, BTreeSet};

use super::ProducerState;
use crate::wal::frame::crc32c;

const VERSION: i16 = 1;
/// Version and checksum.
const HEAD_BYTES: usize = 2 + 4;
const ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
/// "None" of sequences, offsets and coordinator epochs.
const NONE: i8 = -1;

/// The file's bytes. `open` are the first offset and the producer of each live transaction with records here.
pub(crate) fn snapshot(producers: &BTreeMap<i64, ProducerState>, open: &BTreeSet<(u64, i64)>) -> Vec<u8> {
    let first_offsets: BTreeMap<i64, u64> = open.iter().map(|(first, producer)| (*producer, *first)).collect();
    let mut bytes = Vec::with_capacity(HEAD_BYTES + 4 + producers.len() * ENTRY_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; HEAD_BYTES - 2]);
    let count = i32::try_from(producers.len()).expect("the limit on producers is far below 2^31");
    bytes.extend_from_slice(&count.to_be_bytes());
    for (producer, state) in producers {
        let last = state.window.back();
        let sequence = last.map_or(i32::from(NONE), |batch| batch.last_sequence);
        let offset = last.map_or(i64::from(NONE), |batch| batch.last_offset.cast_signed());
        let delta = last.map_or(0, |batch| batch.last_offset - batch.base_offset);
        let first = first_offsets.get(producer).map_or(i64::from(NONE), |first| first.cast_signed());
        bytes.extend_from_slice(&producer.to_be_bytes());
        bytes.extend_from_slice(&state.epoch.to_be_bytes());
        bytes.extend_from_slice(&sequence.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&i32::try_from(delta).unwrap_or(i32::MAX).to_be_bytes());
        bytes.extend_from_slice(&state.wall.to_be_bytes());
        bytes.extend_from_slice(&i32::from(NONE).to_be_bytes());
        bytes.extend_from_slice(&first.to_be_bytes());
    }
    let crc = crc32c(bytes.get(HEAD_BYTES..).unwrap_or_default());
    bytes[2..HEAD_BYTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::Appended;
    use super::*;

    #[test]
    fn a_snapshot_has_kafkas_layout_with_the_newest_batch_and_the_open_transaction() {
        let mut written = ProducerState::default();
        for (first_sequence, base_offset) in [(0, 10), (3, 20)] {
            let (last_sequence, last_offset) = (first_sequence + 2, base_offset + 2);
            written.append(5, Appended { first_sequence, last_sequence, base_offset, last_offset }, 0x0102);
        }
        let mut marked = ProducerState::default();
        marked.mark(1, 7);
        let bytes = snapshot(&[(1, marked), (0x1234, written)].into(), &[(10, 0x1234)].into());
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 2,
            0, 0, 0, 0, 0, 0, 0, 1,  0, 1,  255, 255, 255, 255,  255, 255, 255, 255, 255, 255, 255, 255,  0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 7,  255, 255, 255, 255,  255, 255, 255, 255, 255, 255, 255, 255,
            0, 0, 0, 0, 0, 0, 0x12, 0x34,  0, 5,  0, 0, 0, 5,  0, 0, 0, 0, 0, 0, 0, 22,  0, 0, 0, 2,
            0, 0, 0, 0, 0, 0, 1, 2,  255, 255, 255, 255,  0, 0, 0, 0, 0, 0, 0, 10,
        ];
        assert_eq!(bytes[6..], expected);
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(bytes[2..6], crc32c(&expected).to_be_bytes());
    }
}
