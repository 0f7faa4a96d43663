//! The newest offset of each key, in bounded memory.
//!
//! Keys are kept as 128 bits of xxh3 under a seed of the round's own: two of a billion keys are the same with a chance below
//! 10^-20, and nobody outside can make two that are.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What an entry costs at most, right after the table has grown.
const ENTRY_BYTES: usize = 64;

/// Key to newest offset.
#[derive(Debug)]
pub(crate) struct KeyMap {
    seed: u64,
    entries_max: usize,
    newest: HashMap<[u64; 2], i64>,
}

impl KeyMap {
    /// An empty one that takes about `bytes_max` at most.
    pub(crate) fn new(seed: u64, bytes_max: usize) -> KeyMap {
        KeyMap { seed, entries_max: (bytes_max / ENTRY_BYTES).max(1), newest: HashMap::new() }
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        let hash = xxh3_128_with_seed(key, self.seed);
        [hash as u64, (hash >> 64) as u64]
    }

    /// Hears of a record; offsets rise. False when there is no room for a new key.
    #[must_use]
    pub(crate) fn note(&mut self, key: &[u8], offset: i64) -> bool {
        let hash = self.hash(key);
        let full = self.newest.len() >= self.entries_max;
        match self.newest.get_mut(&hash) {
            Some(newest) => *newest = offset,
            None if full => return false,
            None => _ = self.newest.insert(hash, offset),
        }
        true
    }

    /// The offset of the key's newest record, as far as it was heard of.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<i64> {
        self.newest.get(&self.hash(key)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offset_is_known_and_a_full_map_takes_no_new_key_but_newer_offsets() {
        let mut map = KeyMap::new(9, 3 * ENTRY_BYTES);
        for (offset, key) in ["a", "b", "a", "", "b"].iter().enumerate() {
            assert!(map.note(key.as_bytes(), offset as i64));
        }
        assert!(!map.note(b"c", 5) && map.note(b"a", 6));
        assert_eq!([&b"a"[..], b"b", b"", b"c"].map(|key| map.newest(key)), [Some(6), Some(4), Some(3), None]);
    }
}
