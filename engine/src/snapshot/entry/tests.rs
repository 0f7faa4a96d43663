//! Whatever is written comes back; whatever isn't a value is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{EntryError, read_entry, write_entry};

/// Something of every kind that serde knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    numbers: (u8, i16, u32, i64, u128, i128),
    floats: (f32, f64),
    small: (bool, char, (), Unit),
    text: String,
    list: Vec<Option<u16>>,
    map: BTreeMap<String, Choice>,
    wrapped: Wrapped,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(i32, u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Choice {
    Nothing,
    One(i8),
    Two(u8, String),
    Named { a: u64, b: Option<Box<Choice>> },
}

fn choice() -> impl Strategy<Value = Choice> {
    let leaf = prop_oneof![
        Just(Choice::Nothing),
        any::<i8>().prop_map(Choice::One),
        (any::<u8>(), any::<String>()).prop_map(|(n, text)| Choice::Two(n, text)),
    ];
    leaf.prop_recursive(3, 8, 1, |inner| {
        (any::<u64>(), prop::option::of(inner)).prop_map(|(a, b)| Choice::Named { a, b: b.map(Box::new) })
    })
}

prop_compose! {
    fn everything()(
        numbers in any::<(u8, i16, u32, i64, u128, i128)>(),
        floats in (prop::num::f32::NORMAL, prop::num::f64::NORMAL),
        small in any::<(bool, char)>(),
        text in prop_oneof![any::<String>(), (250usize..260).prop_map(|n| "x".repeat(n))],
        list in prop::collection::vec(any::<Option<u16>>(), 0..300),
        map in prop::collection::btree_map(any::<String>(), choice(), 0..5),
        wrapped in any::<(i32, u64)>(),
    ) -> Everything {
        let small = (small.0, small.1, (), Unit);
        Everything { numbers, floats, small, text, list, map, wrapped: Wrapped(wrapped.0, wrapped.1) }
    }
}

fn bytes_of<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = vec![];
    write_entry(value, &mut out).expect("it can be encoded");
    out
}

proptest! {
    #[test]
    fn what_is_written_comes_back_and_takes_its_own_bytes_only(value in everything(), rest in any::<Vec<u8>>()) {
        let mut bytes = bytes_of(&value);
        bytes.extend(&rest);
        let mut left = &bytes[..];
        prop_assert_eq!(read_entry::<Everything>(&mut left).expect("whole"), value);
        prop_assert_eq!(left, &rest[..]);
    }

    #[test]
    fn a_value_cut_short_is_refused_at_every_length(value in everything()) {
        let bytes = bytes_of(&value);
        for length in 0..bytes.len() {
            read_entry::<Everything>(&mut &bytes[..length]).expect_err("cut short");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(bytes in any::<Vec<u8>>()) {
        let _ = read_entry::<Everything>(&mut &bytes[..]);
        let _ = read_entry::<Vec<String>>(&mut &bytes[..]);
        let _ = read_entry::<BTreeMap<u16, Choice>>(&mut &bytes[..]);
    }
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let value = (1u64, Some(2u16), "ab", [3u8; 2], Choice::Two(4, "c".into()), vec![5i32]);
    let expected: &[&[u8]] =
        &[&[1, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 0], &[2, b'a', b'b'], &[3, 3], &[2, 4, 1, b'c'], &[1, 5, 0, 0, 0]];
    assert_eq!(bytes_of(&value), expected.concat());
    assert_eq!(bytes_of(&"x".repeat(254))[..2], [254, b'x']);
    assert_eq!(bytes_of(&"x".repeat(255))[..10], [255, 255, 0, 0, 0, 0, 0, 0, 0, b'x']);
}

#[test]
fn a_length_beyond_the_bytes_allocates_nothing() {
    let bytes = [255, 255, 255, 255, 255, 255, 255, 255, 127];
    let short = read_entry::<Vec<u64>>(&mut &bytes[..]).expect_err("no elements follow");
    assert_eq!(short, EntryError::Short { needed: 8, left: 0 });
    let short = read_entry::<String>(&mut &bytes[..]).expect_err("no text follows");
    assert_eq!(short, EntryError::Short { needed: i64::MAX as u64, left: 0 });
}

#[test]
fn what_cannot_be_written_or_read_says_why() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u8),
    }
    let bytes = bytes_of(&Untagged::Number(1));
    let error = read_entry::<Untagged>(&mut &bytes[..]).expect_err("the bytes don't say what they are");
    assert!(error.to_string().contains("plain struct or enum"), "{error}");
    assert_eq!(
        read_entry::<bool>(&mut &[2][..]),
        Err(EntryError::Invalid { expected: "0 or 1", found: 2 }),
        "one byte per value"
    );
    assert!(read_entry::<char>(&mut &[0, 0xD8, 0, 0][..]).is_err(), "a surrogate is no character");
    assert!(read_entry::<String>(&mut &[1, 0xFF][..]).is_err(), "not UTF-8");
    assert!(read_entry::<Choice>(&mut &[9][..]).is_err(), "no such variant");
}
