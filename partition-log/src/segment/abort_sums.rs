//! Checksums of a transaction index: a file of ours beside Kafka's, which has none.
//!
//! One record per entry, in the same order: the entry's last offset, a checksum over all entries up to it, a checksum of the
//! record itself. So a changed entry, a missing one and two in the wrong order are all noticed, and so is damage here.
//!
//! Promises:
//! * Both files are synced together. In a sealed segment each entry has its record, and either all fit or reading is refused.
//! * In the active segment, what a crash has left behind the partition's end ends at the first record that isn't one. Records
//!   have 16 bytes, so that none lies in two sectors. An entry that belongs to the partition and has no record is damage.
//! * The index of a log from before there were checksums is believed as it was then. The active segment's gets checksums when
//!   it is opened for writing.
//!
//! It deliberately mends nothing: an abort can't be told from one segment alone, and after compaction from none.

use cutwater_platform::IoContext;

use super::SegmentError;
use super::open_files::Handle;
use super::transaction_index::{AbortedTxn, ENTRY_BYTES, believable};
use super::walk::damaged;
use crate::wal::frame::crc32c;

/// Bytes of a record. A divisor of a sector's size.
pub(super) const SUM_BYTES: usize = 16;

/// What vouches for the entries up to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    last_offset: i64,
    /// Over this entry and, through the sum before it, over all others.
    pub(super) chain: u32,
}

impl Sum {
    /// Of an entry behind the one whose sum has `chain`; of the first one behind 0.
    pub(super) fn after(chain: u32, entry: &[u8; ENTRY_BYTES], last_offset: i64) -> Sum {
        let mut covered = [0; 4 + ENTRY_BYTES];
        covered[..4].copy_from_slice(&chain.to_be_bytes());
        covered[4..].copy_from_slice(entry);
        Sum { last_offset, chain: crc32c(&covered) }
    }

    pub(super) fn to_bytes(self) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        bytes[..8].copy_from_slice(&self.last_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.chain.to_be_bytes());
        let own = crc32c(&bytes[..12]);
        bytes[12..].copy_from_slice(&own.to_be_bytes());
        bytes
    }

    /// `None`: no record is like that. Zero bytes aren't one.
    pub(super) fn from_bytes(bytes: &[u8; SUM_BYTES]) -> Option<Sum> {
        let (last_offset, rest) = bytes.split_first_chunk::<8>()?;
        let (chain, own) = rest.split_first_chunk::<4>()?;
        let sum = Sum { last_offset: i64::from_be_bytes(*last_offset), chain: u32::from_be_bytes(*chain) };
        (crc32c(&bytes[..12]) == u32::from_be_bytes(*own.first_chunk()?) && sum.last_offset > 0).then_some(sum)
    }
}

/// The records of whole entries, as they lie in a file.
pub(super) fn of_entries(entries: &[AbortedTxn]) -> Vec<u8> {
    let mut chain = 0;
    let one = |entry: &AbortedTxn| {
        let sum = Sum::after(chain, &entry.to_bytes(), entry.last_offset);
        chain = sum.chain;
        sum.to_bytes()
    };
    entries.iter().flat_map(one).collect()
}

/// How many entries a sealed segment's index has, all of them checked against their sums; unchecked if it has none.
pub(super) fn check_sealed(index: Option<&Handle>, sums: Option<&Handle>) -> Result<u64, SegmentError> {
    let Some(sums) = sums else { return index.map_or(Ok(0), super::transaction_index::count) };
    let records = read(sums)?;
    if !records.len().is_multiple_of(SUM_BYTES) {
        return Err(damaged(sums, records.len() as u64, "it ends within a record"));
    }
    check(index, sums, &records, i64::MAX)
}

/// How many entries of the active segment's index belong to a partition that ends before `next_offset`. An index without
/// sums is believed as far as it can be.
pub(super) fn check_active(
    index: Option<&Handle>,
    sums: Option<&Handle>,
    next_offset: i64,
) -> Result<u64, SegmentError> {
    match (index, sums) {
        (None, None) => Ok(0),
        (Some(index), None) => believable(index, next_offset),
        (index, Some(sums)) => check(index, sums, &read(sums)?, next_offset),
    }
}

fn read(handle: &Handle) -> Result<Vec<u8>, SegmentError> {
    let len = handle.file.len().at("look at", &handle.path)?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    handle.file.read_exact_at(&mut bytes, 0).at("read", &handle.path)?;
    Ok(bytes)
}

/// Checks the entries whose records tell of offsets below `next_offset`: their number.
fn check(index: Option<&Handle>, sums: &Handle, records: &[u8], next_offset: i64) -> Result<u64, SegmentError> {
    let mut known: Vec<Sum> = Vec::new();
    for (n, record) in records.as_chunks::<SUM_BYTES>().0.iter().enumerate() {
        match Sum::from_bytes(record) {
            Some(sum) if sum.last_offset < next_offset => known.push(sum),
            // Of a future that a crash has undone; or, below, damage.
            _ if next_offset < i64::MAX => break,
            _ => {
                return Err(damaged(sums, (n * SUM_BYTES) as u64, "its own checksum doesn't fit: restore the file"));
            }
        }
    }
    let entries = match index {
        Some(index) => read(index)?,
        None => Vec::new(),
    };
    let (mut chain, mut previous) = (0, -1);
    for (n, sum) in known.iter().enumerate() {
        let wrong = |what: &str| match index {
            Some(index) => damaged(index, (n * ENTRY_BYTES) as u64, what),
            None => {
                damaged(sums, (n * SUM_BYTES) as u64, "it vouches for a transaction index that is missing: restore it")
            }
        };
        let entry = entries.as_chunks::<ENTRY_BYTES>().0.get(n).ok_or_else(|| wrong("an entry is missing"))?;
        let of = AbortedTxn::from_bytes(entry).filter(|of| Sum::after(chain, entry, of.last_offset) == *sum);
        let of = of.ok_or_else(|| wrong("the checksum of its entries doesn't fit: restore the file"))?;
        if of.last_offset <= previous {
            return Err(wrong("the markers' offsets don't rise"));
        }
        (chain, previous) = (sum.chain, of.last_offset);
    }
    // An entry that no crash leaves: what lies beyond the end isn't of the partition, or is junk.
    let more = entries.as_chunks::<ENTRY_BYTES>().0.get(known.len()).and_then(AbortedTxn::from_bytes);
    if more.is_some_and(|more| more.last_offset > previous && more.last_offset < next_offset) {
        return Err(damaged(sums, (known.len() * SUM_BYTES) as u64, "it doesn't vouch for an entry: restore the file"));
    }
    if let Some(index) = index.filter(|_| next_offset == i64::MAX && entries.len() != known.len() * ENTRY_BYTES) {
        return Err(damaged(index, (known.len() * ENTRY_BYTES) as u64, "it goes on where its checksums end"));
    }
    Ok(known.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_no_flipped_bit_and_no_zeros_are_one() {
        let entry = AbortedTxn { producer_id: 3, first_offset: 5, last_offset: 9, last_stable_offset: 10 };
        let sum = Sum::after(7, &entry.to_bytes(), 9);
        assert_eq!(Sum::from_bytes(&sum.to_bytes()), Some(sum));
        assert_eq!(Sum::from_bytes(&[0; SUM_BYTES]), None);
        for bit in 0..SUM_BYTES * 8 {
            let mut bytes = sum.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Sum::from_bytes(&bytes), None, "bit {bit}");
        }
        let other = AbortedTxn { first_offset: 6, ..entry };
        assert_ne!(of_entries(&[entry, other])[16..], of_entries(&[other, other])[16..], "they vouch for those before");
    }
}
