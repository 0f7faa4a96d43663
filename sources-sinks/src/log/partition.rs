//! Which partition a record goes to.
//!
//! Source: Kafka's `BuiltInPartitioner` and `Utils.murmur2`. Records with one key meet in one partition, the same one that
//! Kafka's own clients choose, as long as the number of partitions stays.

/// The partition of a key, as Kafka's default partitioner chooses it.
///
/// # Panics
/// If `partitions` is 0.
///
/// ```
/// use cutwater_sources_sinks::log::partition_of_key;
/// assert_eq!(partition_of_key(b"SFO", 8), partition_of_key(b"SFO", 8));
/// ```
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    assert!(partitions > 0, "a topic has a partition");
    (murmur2(key) & 0x7FFF_FFFF) % partitions
}

/// MurmurHash2 with 32 bits and Kafka's seed (Austin Appleby; `org.apache.kafka.common.utils.Utils.murmur2`).
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_B28C;
    const M: u32 = 0x5BD1_E995;
    // Kafka's length is a Java int; keys have less than 2 GiB.
    let mut h = SEED ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    let tail = words.remainder();
    for (i, byte) in tail.iter().enumerate() {
        h ^= u32::from(*byte) << (8 * i);
    }
    if !tail.is_empty() {
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_kafkas_own_tests_say() {
        // The vectors of `UtilsTest.testMurmur2` in Apache Kafka; the empty key is kafka-python's.
        let vectors: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (key, expected) in vectors {
            assert_eq!(murmur2(key).cast_signed(), expected, "{key:?}");
        }
    }

    #[test]
    fn every_key_has_a_partition_that_exists() {
        for partitions in 1..20 {
            for key in 0..200u32 {
                assert!(partition_of_key(&key.to_le_bytes(), partitions) < partitions);
            }
        }
    }
}
