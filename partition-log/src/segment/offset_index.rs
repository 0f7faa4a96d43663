//! Which offset lies where: a sparse, derived index.
//!
//! An entry says: the batch at this position ends with this offset. A batch gets one when it lies more than the interval
//! behind the last batch that has one (the segment's beginning counts as one). So entries are a function of the log
//! file, none has position 0, and zero bytes can never pass as an entry.
//!
//! Nothing here is trusted: whoever uses an entry compares it with the log file (see `walk`).

use cutwater_platform::File;

use super::INDEX_MAX;

/// Bytes of an entry in a file.
pub const ENTRY_BYTES: usize = 8;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The last offset of the batch, minus the segment's first offset.
    pub relative_offset: u32,
    /// Where the batch begins in the log file. Never 0.
    pub position: u32,
}

impl IndexEntry {
    /// The entry as it lies in a file.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.relative_offset.to_be_bytes());
        bytes[4..].copy_from_slice(&self.position.to_be_bytes());
        bytes
    }

    /// Reads an entry; `None` when no segment can have it.
    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<IndexEntry> {
        let half = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let entry = IndexEntry { relative_offset: half(0), position: half(4) };
        let fits = u64::from(entry.relative_offset) <= INDEX_MAX && u64::from(entry.position) <= INDEX_MAX;
        (fits && entry.position > 0).then_some(entry)
    }
}

/// The index of the active segment, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffsetIndex {
    pub(crate) entries: Vec<IndexEntry>,
}

impl OffsetIndex {
    /// Hears of the next batch of the segment; gives it an entry if it is due, and answers whether it was.
    pub(crate) fn add(&mut self, interval: u64, relative_offset: u32, position: u32) -> bool {
        let last = self.entries.last().map_or(0, |entry| entry.position);
        let due = u64::from(position - last) > interval;
        if due {
            self.entries.push(IndexEntry { relative_offset, position });
        }
        due
    }

    /// The last entry whose offset is at most this one.
    pub(crate) fn floor(&self, relative_offset: u32) -> Option<IndexEntry> {
        let after = self.entries.partition_point(|entry| entry.relative_offset <= relative_offset);
        Some(self.entries[after.checked_sub(1)?])
    }

    /// The entries of a file up to the first that can't be right for a log file that ends at `end`.
    pub(crate) fn believable(bytes: &[u8], end: u64) -> OffsetIndex {
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
        for chunk in bytes.as_chunks::<ENTRY_BYTES>().0 {
            let Some(entry) = IndexEntry::from_bytes(chunk) else { break };
            let rises = entries
                .last()
                .is_none_or(|last| entry.relative_offset > last.relative_offset && entry.position > last.position);
            if !rises || u64::from(entry.position) >= end {
                break;
            }
            entries.push(entry);
        }
        OffsetIndex { entries }
    }

    /// The entries from the `from`-th on, as they lie in a file.
    pub(crate) fn to_bytes(&self, from: usize) -> Vec<u8> {
        self.entries.iter().skip(from).flat_map(|entry| entry.to_bytes()).collect()
    }
}

/// The last entry of a file whose offset is at most this one; searches in the file, so that sealed segments need no
/// memory. Entries that can't be right count as too high.
pub(crate) fn floor_in_file(file: &dyn File, relative_offset: u32) -> std::io::Result<Option<IndexEntry>> {
    let (mut low, mut high) = (0, file.len()? / ENTRY_BYTES as u64);
    let mut floor = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut bytes = [0; ENTRY_BYTES];
        file.read_exact_at(&mut bytes, middle * ENTRY_BYTES as u64)?;
        match IndexEntry::from_bytes(&bytes) {
            Some(entry) if entry.relative_offset <= relative_offset => {
                floor = Some(entry);
                low = middle + 1;
            }
            _ => high = middle,
        }
    }
    Ok(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sparse_rise_and_are_found_by_floor() {
        let mut index = OffsetIndex::default();
        for batch in 0..100u32 {
            index.add(1000, batch * 10 + 9, batch * 300);
        }
        let positions: Vec<u32> = index.entries.iter().map(|e| e.position).collect();
        assert_eq!(positions, (1..=24).map(|n| n * 1200).collect::<Vec<u32>>());
        assert_eq!(index.floor(48), None);
        assert_eq!(index.floor(49).map(|e| e.position), Some(1200));
        assert_eq!(index.floor(88).map(|e| e.position), Some(1200));
        assert_eq!(index.floor(5000), index.entries.last().copied());
        assert_eq!(OffsetIndex::believable(&index.to_bytes(0), 30_000), index);
        assert_eq!(OffsetIndex::believable(&index.to_bytes(0), 1201).entries.len(), 1, "beyond the end");
    }

    #[test]
    fn zero_bytes_and_falling_entries_are_not_believed() {
        assert_eq!(OffsetIndex::believable(&[0; 80], 1000).entries, []);
        let entry = |relative_offset, position| IndexEntry { relative_offset, position };
        for second in [entry(5, 200), entry(4, 200), entry(9, 100), entry(9, 0), entry(u32::MAX, 300)] {
            let index = OffsetIndex { entries: vec![entry(5, 100), second, entry(20, 400)] };
            assert_eq!(OffsetIndex::believable(&index.to_bytes(0), 1000).entries, [entry(5, 100)], "{second:?}");
        }
    }
}
