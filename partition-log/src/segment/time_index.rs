//! Where to look for a time: a sparse, derived index, byte for byte as Kafka has it.
//!
//! An entry says: up to and with this offset, no record is younger than this. One is added with every entry of the offset
//! index, and when the segment is sealed, if the largest timestamp so far is larger than that of the last entry. The
//! offset is the last one of the batch that brought the largest timestamp. So entries are a function of the log file and
//! the interval, and their timestamps rise.
//!
//! Nothing here is trusted alone: whoever uses an entry of a file compares it with the batch that it names (see `times`).
//! Times before 1970 count as none, as in Kafka.

use cutwater_platform::File;

use super::INDEX_MAX;

/// Bytes of an entry in a file.
pub const ENTRY_BYTES: usize = 12;

/// "No time": what isn't above it gets no entry.
const NO_TIME: i64 = -1;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// The largest timestamp of the segment up to the offset, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The last offset of the batch that has it, minus the segment's first offset.
    pub relative_offset: u32,
}

impl TimeEntry {
    /// The entry as it lies in a file.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.timestamp_ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.relative_offset.to_be_bytes());
        bytes
    }

    fn is_below(self, next: TimeEntry) -> bool {
        self.timestamp_ms < next.timestamp_ms && self.relative_offset < next.relative_offset
    }

    /// Reads an entry; `None` when no segment can have it.
    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<TimeEntry> {
        let (time, offset) = bytes.split_first_chunk::<8>()?;
        let entry = TimeEntry {
            timestamp_ms: i64::from_be_bytes(*time),
            relative_offset: u32::from_be_bytes(*offset.first_chunk()?),
        };
        (entry.timestamp_ms > NO_TIME && u64::from(entry.relative_offset) <= INDEX_MAX).then_some(entry)
    }
}

/// The index of the active segment, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeIndex {
    pub(crate) entries: Vec<TimeEntry>,
    /// The largest timestamp so far, which may have no entry yet.
    pub(crate) largest: Option<TimeEntry>,
}

impl TimeIndex {
    /// Hears of the next batch of the segment; `indexed` when the offset index has given it an entry.
    pub(crate) fn add(&mut self, timestamp_ms: i64, relative_offset: u32, indexed: bool) {
        if timestamp_ms > self.largest.map_or(NO_TIME, |largest| largest.timestamp_ms) {
            self.largest = Some(TimeEntry { timestamp_ms, relative_offset });
        }
        if indexed {
            self.seal();
        }
    }

    /// Gives the largest timestamp an entry if it has none.
    pub(crate) fn seal(&mut self) {
        if self.largest != self.entries.last().copied() {
            self.entries.extend(self.largest);
        }
    }

    /// The entries of a file up to the first that can't be right for batches up to `last_relative_offset`.
    pub(crate) fn believable(bytes: &[u8], last_relative_offset: u32) -> TimeIndex {
        let mut entries: Vec<TimeEntry> = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
        for chunk in bytes.as_chunks::<ENTRY_BYTES>().0 {
            let Some(entry) = TimeEntry::from_bytes(chunk) else { break };
            let rises = entries.last().is_none_or(|last| last.is_below(entry));
            if !rises || entry.relative_offset > last_relative_offset {
                break;
            }
            entries.push(entry);
        }
        TimeIndex { largest: entries.last().copied(), entries }
    }

    /// The last entry whose timestamp is below this one: up to its offset nothing is as young.
    pub(crate) fn below(&self, timestamp_ms: i64) -> Option<TimeEntry> {
        let after = self.entries.partition_point(|entry| entry.timestamp_ms < timestamp_ms);
        Some(self.entries[after.checked_sub(1)?])
    }

    /// The last entry whose offset is at most this one.
    pub(crate) fn up_to(&self, relative_offset: u32) -> Option<TimeEntry> {
        let after = self.entries.partition_point(|entry| entry.relative_offset <= relative_offset);
        Some(self.entries[after.checked_sub(1)?])
    }

    /// The entries from the `from`-th on, as they lie in a file.
    pub(crate) fn to_bytes(&self, from: usize) -> Vec<u8> {
        self.entries.iter().skip(from).flat_map(|entry| entry.to_bytes()).collect()
    }
}

/// The last entry of a file for which `below` holds, as it does for all before it and for none behind it; searches in
/// the file, so that sealed segments need no memory. Entries that can't be right count as too high. With it comes whether
/// it stands above the entry before it, as it must.
pub(crate) fn floor_in_file(
    file: &dyn File,
    below: impl Fn(&TimeEntry) -> bool,
) -> std::io::Result<Option<(TimeEntry, bool)>> {
    let read = |n: u64| {
        let mut bytes = [0; ENTRY_BYTES];
        file.read_exact_at(&mut bytes, n * ENTRY_BYTES as u64).map(|()| TimeEntry::from_bytes(&bytes))
    };
    let (mut low, mut high) = (0, file.len()? / ENTRY_BYTES as u64);
    let mut floor = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match read(middle)?.filter(&below) {
            Some(entry) => {
                floor = Some(entry);
                low = middle + 1;
            }
            None => high = middle,
        }
    }
    let Some(floor) = floor else { return Ok(None) };
    let rises = match low.checked_sub(2) {
        Some(before) => read(before)?.is_some_and(|before| before.is_below(floor)),
        None => true,
    };
    Ok(Some((floor, rises)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(timestamp_ms: i64, relative_offset: u32) -> TimeEntry {
        TimeEntry { timestamp_ms, relative_offset }
    }

    #[test]
    fn entries_rise_and_name_the_batch_that_brought_the_largest_time() {
        let mut index = TimeIndex::default();
        for (time, offset, indexed) in
            [(5, 0, false), (9, 4, true), (7, 5, true), (9, 6, true), (12, 7, false), (11, 8, true), (-1, 9, true)]
        {
            index.add(time, offset, indexed);
        }
        assert_eq!(index.entries, [entry(9, 4), entry(12, 7)]);
        index.add(20, 12, false);
        assert_eq!((index.below(12), index.below(13), index.below(9)), (Some(entry(9, 4)), Some(entry(12, 7)), None));
        assert_eq!((index.up_to(3), index.up_to(6)), (None, Some(entry(9, 4))));
        index.seal();
        index.seal();
        assert_eq!(index.entries, [entry(9, 4), entry(12, 7), entry(20, 12)]);
        assert_eq!(TimeIndex::believable(&index.to_bytes(0), 12), index);
        assert_eq!(TimeIndex::believable(&index.to_bytes(0), 11).entries.len(), 2, "beyond the end");
        assert_eq!(index.to_bytes(2), [0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 12]);
    }

    #[test]
    fn falling_entries_and_impossible_ones_are_not_believed() {
        for second in [entry(5, 9), entry(4, 9), entry(8, 5), entry(-1, 9), entry(8, u32::MAX), entry(0, 0)] {
            let index = TimeIndex { entries: vec![entry(5, 5), second, entry(20, 40)], largest: None };
            assert_eq!(TimeIndex::believable(&index.to_bytes(0), 100).entries, [entry(5, 5)], "{second:?}");
        }
        assert_eq!(TimeIndex::default().below(5), None);
    }
}
