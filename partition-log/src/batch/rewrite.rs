//! Batches as compaction leaves them: with fewer records, with none, and what stands where there was a batch.
//!
//! Offsets never change: base offset, last offset and every record's own stay as they were. So does all that names the producer,
//! and the codec, which compresses anew what is left.

use super::encode::seal;
use super::format::{CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, LENGTH_OVERHEAD, NONE};
use super::record::{HeaderRef, body_len, put_record};
use super::{BatchError, BatchHeader, Limits, codec, records};

impl BatchHeader {
    /// When the tombstones and markers of this batch may go, if a compaction has said so.
    pub(crate) fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp_ms)
    }
}

/// The batch at the front of `bytes` with those of its records that `keep` says, in their order, at least one of them. With
/// `horizon_ms` it is stamped so (KIP-534); a stamp that it has stays without.
///
/// # Errors
/// It isn't a good batch; or its times are so far apart that they can't be told from the horizon.
pub(crate) fn rewrite(
    bytes: &[u8],
    limits: &Limits,
    keep: &[bool],
    horizon_ms: Option<i64>,
) -> Result<Vec<u8>, BatchError> {
    let walk = records(bytes, limits)?;
    let mut header = *walk.header();
    let horizon_ms = horizon_ms.or(header.delete_horizon_ms());
    let mut plain = vec![0; HEADER_BYTES];
    let (mut base_ms, mut largest, mut count) = (horizon_ms, i64::MIN, 0);
    let mut of_record: Vec<HeaderRef<'_>> = Vec::new();
    for (record, _) in walk.iter().zip(keep).filter(|(_, keep)| **keep) {
        let record = record?;
        let base = *base_ms.get_or_insert(record.timestamp_ms);
        let far = BatchError::Full { what: "a record's time is too far from the others'" };
        let delta_ms = match header.is_log_append_time() {
            true => 0,
            false => record.timestamp_ms.checked_sub(base).ok_or(far)?,
        };
        let delta = i32::try_from(record.offset - header.base_offset);
        let delta = delta.map_err(|_| BatchError::Full { what: "its offset is too far from the first" })?;
        of_record.clear();
        of_record.extend(record.headers());
        let body = body_len(delta_ms, delta, record.key, record.value, &of_record);
        let body = body.ok_or(BatchError::Full { what: "a record can't have 2 GiB or more" })?;
        put_record(&mut plain, body, delta_ms, delta, record.key, record.value, &of_record);
        largest = largest.max(record.timestamp_ms);
        count += 1;
    }
    if count == 0 {
        return Err(BatchError::Empty);
    }
    let mut batch =
        codec::compress(header.compression()?, plain.get(HEADER_BYTES..).unwrap_or_default(), vec![0; HEADER_BYTES])?;
    header.length = length_of(&batch)?;
    header.record_count = count;
    header.base_timestamp_ms = base_ms.unwrap_or(header.base_timestamp_ms);
    if !header.is_log_append_time() {
        header.max_timestamp_ms = largest;
    }
    if horizon_ms.is_some() {
        header.attributes |= DELETE_HORIZON;
    }
    seal(&mut batch, &mut header);
    Ok(batch)
}

/// A batch of which no record is left, but that its producer is known by: its header alone.
pub(crate) fn emptied(header: &BatchHeader) -> Vec<u8> {
    let attributes = header.attributes & !(CODEC_MASK | DELETE_HORIZON);
    empty(BatchHeader { attributes, ..*header })
}

/// What stands in the place of batches of which nothing is left: one without records and without a producer, over all their
/// offsets, `first` to `last`. So batches go on without a gap.
///
/// # Panics
/// If these are no offsets of one segment.
pub(crate) fn hole(first: i64, last: i64) -> Vec<u8> {
    let span = i32::try_from(last - first).ok().filter(|span| *span >= 0);
    empty(BatchHeader {
        base_offset: first,
        length: 0,
        leader_epoch: 0,
        crc: 0,
        attributes: 0,
        last_offset_delta: span.expect("a hole lies in one segment, which spans 31 bits"),
        base_timestamp_ms: NONE.into(),
        max_timestamp_ms: NONE.into(),
        producer_id: NONE.into(),
        producer_epoch: NONE.into(),
        base_sequence: NONE.into(),
        record_count: 0,
    })
}

fn empty(header: BatchHeader) -> Vec<u8> {
    let mut batch = vec![0; HEADER_BYTES];
    let (base_timestamp_ms, max_timestamp_ms) = (NONE.into(), NONE.into());
    let length = (HEADER_BYTES - LENGTH_OVERHEAD) as i32;
    let mut header = BatchHeader { length, record_count: 0, base_timestamp_ms, max_timestamp_ms, ..header };
    seal(&mut batch, &mut header);
    batch
}

fn length_of(batch: &[u8]) -> Result<i32, BatchError> {
    i32::try_from(batch.len() - LENGTH_OVERHEAD)
        .map_err(|_| BatchError::Full { what: "a batch can't have 2 GiB or more" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Compression, ProducerStamp, assign, verify_stored};

    /// Offset, time, key, value, number of headers of each record.
    type Seen = Vec<(i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, usize)>;

    fn seen(bytes: &[u8]) -> Seen {
        let walk = records(bytes, &Limits::DEFAULT).expect("readable");
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        walk.iter()
            .map(|record| record.expect("a record"))
            .map(|r| (r.offset, r.timestamp_ms, owned(r.key), owned(r.value), r.headers().count()))
            .collect()
    }

    #[test]
    fn what_is_kept_is_as_it_was_under_every_codec_and_every_choice() {
        let stamp = ProducerStamp { producer_id: 7, epoch: 2, base_sequence: 40, transactional: true };
        for compression in Compression::ALL {
            let mut builder = BatchBuilder::new(compression);
            for n in 0..5i64 {
                let value = (n != 3).then(|| vec![b'v'; 50 + n as usize]);
                let headers = [(&b"h"[..], None), (&b"h"[..], Some(&b"again"[..]))];
                let key = format!("key-{n}");
                builder
                    .push(1_000 - n * 7, Some(key.as_bytes()), value.as_deref(), &headers[..n as usize % 3])
                    .expect("fits");
            }
            let mut batch = builder.build(stamp).expect("built");
            assign(&mut batch, 1_000_000, 3);
            let (before, all) = (BatchHeader::parse(&batch).expect("a batch"), seen(&batch));
            for choice in 1..32u32 {
                let keep: Vec<bool> = (0..5).map(|n| choice & (1 << n) != 0).collect();
                for horizon in [None, Some(99_999), Some(5)] {
                    let less = rewrite(&batch, &Limits::DEFAULT, &keep, horizon).expect("rewritten");
                    let header = verify_stored(&less, &Limits::DEFAULT).expect("a good batch");
                    let expected: Seen = all.iter().zip(&keep).filter(|(_, k)| **k).map(|(r, _)| r.clone()).collect();
                    assert_eq!(seen(&less), expected);
                    assert_eq!(header.delete_horizon_ms(), horizon);
                    assert_eq!(header.max_timestamp_ms, expected.iter().map(|r| r.1).max().expect("some"));
                    assert_eq!(header.compression(), before.compression());
                    assert_eq!((header.base_offset, header.last_offset()), (before.base_offset, before.last_offset()));
                    assert_eq!(
                        (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional()),
                        (7, 2, 40, true)
                    );
                    // Again, and the horizon stays.
                    let all_of_it = vec![true; expected.len()];
                    let again = rewrite(&less, &Limits::DEFAULT, &all_of_it, None).expect("rewritten");
                    assert_eq!((seen(&again), BatchHeader::parse(&again).expect("a batch")), (expected, header));
                }
            }
            let gone = rewrite(&batch, &Limits::DEFAULT, &[false; 5], None);
            assert_eq!(gone, Err(BatchError::Empty));
        }
    }

    #[test]
    fn an_emptied_batch_and_a_hole_are_batches_without_records_over_the_same_offsets() {
        let mut builder = BatchBuilder::new(Compression::Zstd);
        builder.push(5, Some(b"k"), Some(b"v"), &[]).expect("fits");
        builder.push(6, Some(b"k"), Some(b"v"), &[]).expect("fits");
        let stamp = ProducerStamp { producer_id: 7, epoch: 2, base_sequence: 40, transactional: true };
        let mut batch = builder.build(stamp).expect("built");
        assign(&mut batch, 10, 0);
        let empty = emptied(&BatchHeader::parse(&batch).expect("a batch"));
        let header = verify_stored(&empty, &Limits::DEFAULT).expect("good");
        assert_eq!((header.base_offset, header.last_offset(), header.record_count, empty.len()), (10, 11, 0, 61));
        assert_eq!((header.producer_id, header.base_sequence, header.is_transactional()), (7, 40, true));
        assert!(seen(&empty).is_empty());
        let hole = hole(12, 5_000_000);
        let header = verify_stored(&hole, &Limits::DEFAULT).expect("good");
        assert_eq!((header.base_offset, header.last_offset(), header.has_producer()), (12, 5_000_000, false));
        assert!(seen(&hole).is_empty());
    }
}
