//! An order of keys that is the same in every run: that of their canonical encodings.
//!
//! A table's own order depends on its history, and so would the order of results, were they emitted as they are found.

use cutwater_engine::exchange::CanonicalKey;

/// Where a key's encoding lies, with its first bytes to settle most comparisons without looking.
struct Place {
    prefix: u64,
    begin: usize,
    end: usize,
    index: usize,
}

/// Sorts items by the canonical encodings of their keys. One allocation for all encodings: there may be a million keys.
pub(crate) fn in_canonical_order<T, K: CanonicalKey>(items: Vec<T>, key: impl Fn(&T) -> &K) -> Vec<T> {
    let mut bytes = Vec::with_capacity(items.len() * 16);
    let mut places = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let begin = bytes.len();
        key(item).canonical(&mut bytes);
        let encoding = &bytes[begin..];
        let mut prefix = [0; 8];
        let known = encoding.len().min(8);
        prefix[..known].copy_from_slice(&encoding[..known]);
        places.push(Place { prefix: u64::from_be_bytes(prefix), begin, end: bytes.len(), index });
    }
    // Equal prefixes are settled by the whole encodings: zeros that fill up a short one could be part of a longer one.
    let encoding = |p: &Place| &bytes[p.begin..p.end];
    places.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| encoding(a).cmp(encoding(b))));
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    places.into_iter().filter_map(|place| items[place.index].take()).collect()
}

#[cfg(test)]
mod tests {
    use cutwater_engine::exchange::canonical_bytes;

    use super::*;

    #[test]
    fn keys_come_in_the_order_of_their_encodings_also_when_these_begin_alike() {
        let mut keys = vec![];
        for length in [0, 1, 3, 4, 5, 9, 20] {
            for last in [0u8, 1, 255] {
                let mut key = vec![7; length];
                key.push(last);
                keys.push(key);
            }
        }
        keys.reverse();
        let mut expected = keys.clone();
        expected.sort_by_key(canonical_bytes::<Vec<u8>>);
        assert_eq!(in_canonical_order(keys, |key| key), expected);
        assert_eq!(in_canonical_order(vec![300u64, 2, 1], |key| key), [1, 2, 300]);
    }
}
