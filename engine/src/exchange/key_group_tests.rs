use proptest::prelude::*;

use super::*;

fn hash_of_bytes<K: CanonicalKey + ?Sized>(key: &K) -> u64 {
    xxh3_64(&canonical_bytes(key))
}

fn assert_fast_path<K: CanonicalKey + ?Sized>(key: &K) {
    assert_eq!(key.key_hash(), hash_of_bytes(key), "of {:02x?}", canonical_bytes(key));
}

#[test]
fn the_test_vectors_are_what_this_program_computes() {
    assert_eq!(test_vectors(), TEST_VECTORS);
}

#[test]
fn the_empty_encoding_hashes_to_the_published_value_of_xxh3() {
    // From the reference implementation's own test: XXH3_64bits of no bytes, seed 0.
    assert_eq!(().key_hash(), 0x2d06_8005_38d3_94c2);
}

#[test]
fn the_encoding_is_as_documented() {
    assert_eq!(canonical_bytes(&0x0102_0304u32), [1, 2, 3, 4]);
    assert_eq!(canonical_bytes(&-2i16), [0xff, 0xfe]);
    assert_eq!(canonical_bytes("ab"), [0, 0, 0, 2, b'a', b'b']);
    assert_eq!(canonical_bytes(&[7u8, 8]), [7, 8]);
    assert_eq!(canonical_bytes(&vec![7u8, 8]), [0, 0, 0, 2, 7, 8]);
    assert_eq!(canonical_bytes(&'ß'), [0, 0, 0, 0xdf]);
    assert_eq!(canonical_bytes(&(true, Some(3u8), None::<u8>)), [1, 1, 3, 0]);
    assert_eq!(canonical_bytes(&(1u8, ("x".to_owned(), 2u16))), [1, 0, 0, 0, 1, b'x', 0, 2]);
}

#[test]
fn owned_borrowed_and_shared_forms_of_a_key_are_one_key() {
    let owned = "Reykjavík".to_owned();
    let hashes = [
        owned.key_hash(),
        "Reykjavík".key_hash(),
        (&&owned).key_hash(),
        Box::new(owned.clone()).key_hash(),
        Arc::<str>::from("Reykjavík").key_hash(),
    ];
    assert_eq!(hashes, [hash_of_bytes(&owned); 5]);
}

#[test]
fn keys_around_the_size_of_the_stack_buffer_hash_like_their_bytes() {
    for len in 0..400 {
        let text = "k".repeat(len);
        assert_fast_path(&text);
        assert_fast_path(&(7u64, text.as_str(), 1u8));
        assert_fast_path(&(text.as_bytes(), text.clone()));
    }
    assert_fast_path(&[9u8; 300]);
}

/// All values of a small type with pieces that could run into each other.
fn small_keys() -> Vec<(Option<String>, Vec<u8>, Option<u8>)> {
    let texts = [None, Some(""), Some("a"), Some("ab"), Some("\0"), Some("\0\0\0\x01")];
    let bytes: [&[u8]; 5] = [b"", b"a", b"\0", b"\0\0\0\x01", b"\x01"];
    let mut keys = vec![];
    for text in texts {
        for bytes in bytes {
            for small in [None, Some(0), Some(1)] {
                keys.push((text.map(str::to_owned), bytes.to_vec(), small));
            }
        }
    }
    keys
}

#[test]
fn no_encoding_begins_another() {
    let encodings: Vec<Vec<u8>> = small_keys().iter().map(canonical_bytes).collect();
    for (i, one) in encodings.iter().enumerate() {
        for (j, other) in encodings.iter().enumerate() {
            assert!(i == j || !other.starts_with(one), "{one:02x?} begins {other:02x?}");
        }
    }
}

#[test]
fn every_group_has_one_owner_and_the_ranges_are_contiguous_and_even() {
    for groups in [1, 2, 3, 7, 64, 255, 256, 1000] {
        for workers in (1..=70).chain([256, 257, 1001]) {
            let assignment = assignment(groups, workers);
            let mut expected_start = 0;
            for worker in (0..workers).map(WorkerIndex) {
                let range = assignment.range_of(worker);
                assert_eq!(range.start, expected_start, "{groups} groups, {workers} workers, {worker}");
                assert!((groups / workers..=groups.div_ceil(workers)).contains(&range.len()));
                assert!(range.groups().all(|group| assignment.worker_of(group) == worker && range.contains(group)));
                expected_start = range.end;
            }
            assert_eq!(expected_start, groups);
            let owners: Vec<WorkerIndex> = (0..groups).map(|g| assignment.worker_of(KeyGroup(g as u16))).collect();
            assert_eq!(assignment.owners().as_ref(), owners);
        }
    }
}

fn assignment(groups: u32, workers: u32) -> GroupAssignment {
    GroupAssignment::new(KeyGroups::new(groups).unwrap(), NonZeroU32::new(workers).unwrap())
}

#[test]
fn the_most_groups_still_fit_a_group_number() {
    assert_eq!(group_of(u64::MAX, KeyGroups::MAX), KeyGroup(u16::MAX));
    assert_eq!(group_of(0, KeyGroups::MAX), KeyGroup(0));
    let last = assignment(KeyGroups::MAX.count(), 3).range_of(WorkerIndex(2));
    assert_eq!(last.end, 65_536);
    assert!(last.contains(KeyGroup(u16::MAX)));
}

#[test]
fn the_group_comes_from_the_upper_half_of_the_hash_and_stays_what_it_is() {
    let groups = KeyGroups::default();
    let of_hashes =
        [0x0000_0000_ffff_ffff, 0x00ff_ffff_ffff_ffff, 0x0100_0000_0000_0000, 0x8000_0000_0000_0000, u64::MAX];
    assert_eq!(of_hashes.map(|hash| group_of(hash, groups).0), [0, 0, 1, 128, 255]);
    let of_keys = ["JFK", "LGA", "EWR"].map(|key| group_of(key.key_hash(), KeyGroups::new(100).unwrap()).0);
    assert_eq!(of_keys, [42, 33, 83]);
}

#[test]
fn an_impossible_number_of_groups_is_refused() {
    for count in [0, 65_537, u32::MAX] {
        assert_eq!(KeyGroups::new(count), Err(KeyGroupsError { found: count }));
    }
}

#[test]
fn keys_of_one_group_still_spread_over_the_slots_of_a_table() {
    let groups = KeyGroups::default();
    let mut slots = [0u32; 64];
    let one_group = (0..200_000u64).map(|key| key.key_hash()).filter(|hash| group_of(*hash, groups) == KeyGroup(17));
    for hash in one_group {
        slots[(table_hash(hash) % 64) as usize] += 1;
    }
    let total: u32 = slots.iter().sum();
    assert!((600..1000).contains(&total), "a group of 256 has {total} of 200,000 keys");
    // 12 a slot on average; a slot with none or with three times as many would be a broken mix.
    assert!(slots.iter().all(|count| (1..=36).contains(count)), "{slots:?}");
}

#[test]
fn intersections_are_empty_or_inside_both() {
    let range = |start, end| GroupRange { start, end };
    assert_eq!(range(0, 10).intersection(range(5, 20)), range(5, 10));
    assert!(range(0, 5).intersection(range(5, 9)).is_empty());
    assert!(range(7, 9).intersection(range(1, 3)).is_empty());
    assert_eq!(range(0, 5).intersection(range(9, 12)).groups().count(), 0);
}

proptest! {
    #[test]
    fn a_fast_path_gives_the_hash_of_the_bytes(
        a: u64, b: i64, c: u8, d: i32, text in ".{0,200}", bytes: Vec<u8>, flag: Option<bool>, letter: char, wide: i128,
    ) {
        assert_fast_path(&a);
        assert_fast_path(&b);
        assert_fast_path(&c);
        assert_fast_path(&d);
        assert_fast_path(&wide);
        assert_fast_path(&text);
        assert_fast_path(&bytes);
        assert_fast_path(&(a, text, flag, letter));
    }

    #[test]
    fn a_group_is_below_the_number_of_groups_and_rises_with_the_upper_bits(hash: u64, other: u64, count in 1u32..=65_536) {
        let groups = KeyGroups::new(count).unwrap();
        let (one, two) = (group_of(hash, groups), group_of(other, groups));
        prop_assert!(u32::from(one.0) < count);
        prop_assert!(hash > other || one <= two);
    }

    #[test]
    fn the_table_hash_loses_nothing(a: u64, b: u64) {
        prop_assert_eq!(a == b, table_hash(a) == table_hash(b));
    }
}
