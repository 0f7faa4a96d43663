//! What a read-committed reader keeps of the batches that a fetch brought. Pure.
//!
//! Source: Kafka's `Fetcher`/`CompletedFetch`. The answer lists producer and first offset of every aborted transaction that reaches
//! into its batches; the marker that ends one stands among them, or the transaction goes on behind them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::batch::{BatchError, BatchHeader, ControlKind, control_kind};
use crate::embedded::consumer::Fetched;

/// The batches whose records are committed, and the offset behind the last whole batch.
pub(super) fn committed(
    records: Vec<u8>,
    from: u64,
    aborted: &[(i64, u64)],
    batch_bytes_max: usize,
) -> Result<(Fetched, u64), BatchError> {
    let mut aborted: Vec<(u64, i64)> = aborted.iter().map(|(producer, first)| (*first, *producer)).collect();
    aborted.sort_unstable();
    let mut coming = aborted.into_iter().peekable();
    let mut ending = BTreeSet::new();
    let buffer = Arc::new(records);
    let mut fetched = Fetched::beginning_at(from, batch_bytes_max);
    let (mut start, mut next) = (0, from);
    while start < buffer.len() {
        let Ok(header) = BatchHeader::parse(&buffer[start..]) else { break };
        let end = start.saturating_add(header.total_bytes());
        if end > buffer.len() {
            break;
        }
        let last = header.last_offset().cast_unsigned();
        while let Some((_, producer)) = coming.next_if(|(first, _)| *first <= last) {
            ending.insert(producer);
        }
        if header.is_control() {
            if control_kind(&buffer[start..end])? == Some(ControlKind::Abort) {
                ending.remove(&header.producer_id);
            }
        } else if !(header.is_transactional() && ending.contains(&header.producer_id)) && last >= from {
            fetched.show(&buffer, start, end, &header);
        }
        next = next.max(last + 1);
        start = end;
    }
    if next == from && !buffer.is_empty() {
        // Not one whole batch: the header's own error, or a batch that was cut.
        let header = BatchHeader::parse(&buffer)?;
        return Err(BatchError::Short { expected: header.total_bytes(), found: buffer.len() });
    }
    Ok((fetched, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Compression, ProducerStamp, assign, control_batch};

    fn batch(base: i64, producer: Option<i64>, values: &[&str]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Compression::Lz4);
        for value in values {
            builder.push(1, None, Some(value.as_bytes()), &[]).unwrap();
        }
        let transactional = producer.is_some();
        let stamp = ProducerStamp { producer_id: producer.unwrap_or(99), epoch: 0, base_sequence: 0, transactional };
        let mut bytes = builder.build(stamp).unwrap();
        assign(&mut bytes, base, 0);
        bytes
    }

    fn marker(base: i64, producer: i64, kind: ControlKind) -> Vec<u8> {
        let mut bytes = control_batch(kind, producer, 0, 0, 1);
        assign(&mut bytes, base, 0);
        bytes
    }

    fn read(buffers: &[Vec<u8>], from: u64, aborted: &[(i64, u64)]) -> (Vec<(i64, String)>, u64) {
        let (fetched, next) = committed(buffers.concat(), from, aborted, 1 << 20).unwrap();
        let mut seen = vec![];
        let value = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        fetched.for_each(|record| seen.push((record.offset, value(record.value)))).unwrap();
        (seen, next)
    }

    #[test]
    fn records_of_aborted_transactions_and_markers_are_passed_over() {
        use ControlKind::{Abort, Commit};
        let log = [
            batch(0, Some(1), &["aborted"]),
            batch(1, Some(2), &["kept"]),
            batch(2, None, &["plain"]),
            marker(3, 1, Abort),
            batch(4, Some(1), &["the same producer, committed"]),
            marker(5, 1, Commit),
            marker(6, 2, Commit),
            batch(7, Some(1), &["aborted again"]),
            marker(8, 1, Abort),
        ];
        let (seen, next) = read(&log, 0, &[(1, 7), (1, 0)]);
        let values: Vec<&str> = seen.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!((values, next), (vec!["kept", "plain", "the same producer, committed"], 9));
        // Begun in the middle: what is aborted began before.
        let (seen, _) = read(&log[2..4], 2, &[(1, 0)]);
        assert_eq!(seen, [(2, "plain".to_string())]);
    }

    #[test]
    fn what_lies_below_the_offset_and_a_last_batch_that_is_cut_are_left_out() {
        let log = [batch(0, None, &["a", "b", "c"]), batch(3, None, &["d"])];
        assert_eq!(read(&log, 1, &[]).0, [(1, "b".into()), (2, "c".into()), (3, "d".into())]);
        let whole = log.concat();
        let (_, next) = committed(whole[..whole.len() - 1].to_vec(), 0, &[], 1 << 20).unwrap();
        assert_eq!(next, 3, "the cut one is asked for again");
        assert!(committed(log[0][..log[0].len() - 1].to_vec(), 0, &[], 1 << 20).is_err(), "nothing whole");
        let (fetched, next) = committed(vec![], 5, &[], 1 << 20).unwrap();
        assert!(fetched.is_empty() && next == 5);
    }
}
