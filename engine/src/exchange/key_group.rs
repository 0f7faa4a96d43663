//! Key -> hash -> key group -> worker, as pure functions.
//!
//! The promise: equal keys meet on one worker, today, after a restart, after a rescale and in another build of the
//! program. So everything here is fixed for the life of a job and is checked against the manifest at every restore: the
//! canonical encoding, the hash ([`HASH_ID`], [`TEST_VECTORS`]) and the number of groups.
//!
//! * The hash is xxh3-64 of the canonical encoding, never `std::hash::Hash` of a user's type: that one may change with
//!   the compiler, the platform and a derive.
//! * The group is taken from bits 32..64 of the hash by multiply-shift. Hash tables use [`table_hash`], a second mix,
//!   so that the keys of one worker, which share their upper bits, still spread over a table.
//! * Every worker owns a contiguous range of groups; the ranges cover all groups and don't overlap.
//!
//! Not here: what a restore does with the ranges (`recovery/rescale.rs`).

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::id::WorkerIndex;

/// Names encoding and hash together. It stands in every manifest; a program with another one must not restore from it.
pub const HASH_ID: &str = "canonical-1/xxh3-64";

/// What [`test_vectors`] must compute. It stands in every manifest beside [`HASH_ID`].
pub const TEST_VECTORS: [u64; 10] = [
    0x2d06_8005_38d3_94c2,
    0xc77b_3abb_6f87_acd9,
    0x5111_c7e4_7d78_4413,
    0xcd6b_1c92_0d3f_662c,
    0x48b2_c926_16fc_193d,
    0x6bd5_b574_9b05_45da,
    0xf0b3_6c77_0399_57bf,
    0x7b84_a018_0f89_23ae,
    0x8018_2177_9e8a_a7ac,
    0xebce_9b76_32ae_733b,
];

/// Where a canonical encoding is written to: a `Vec<u8>`, or the hash itself.
pub trait KeySink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl KeySink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A key with a canonical encoding.
///
/// The encoding is *stable* (the same bytes in every build and on every platform, for ever), *injective* (different
/// keys, different bytes) and *prefix-free* (no key's encoding begins another's of the same type), so that fields
/// simply follow each other. Integers are big-endian in their fixed width, signed ones in two's complement; strings and
/// byte strings have their length before them; an `Option` has a byte 0 or 1 before it.
///
/// There is no implementation for `usize` (its width differs), for floating point (NaN, two zeros) or for hash maps (no
/// order).
///
/// ```
/// use cutwater_engine::exchange::{CanonicalKey, KeySink};
///
/// struct Airport { country: u16, code: String }
///
/// impl CanonicalKey for Airport {
///     fn canonical<S: KeySink>(&self, out: &mut S) {
///         self.country.canonical(out);
///         self.code.canonical(out);
///     }
/// }
///
/// let jfk = Airport { country: 1, code: "JFK".to_owned() };
/// assert_eq!(jfk.key_hash(), (1u16, "JFK").key_hash());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a key: it has no canonical encoding",
    label = "not a key",
    note = "keys are integers, strings, bytes, `Option`s and tuples of these; floating point and `usize` are no keys, turn them \
            into something fixed first",
    note = "for a type of your own implement `CanonicalKey`: write its fields one after the other"
)]
pub trait CanonicalKey {
    /// Appends the canonical encoding to `out`. It must write the same bytes each time it is called for an equal key.
    fn canonical<S: KeySink>(&self, out: &mut S);

    /// xxh3-64 of the canonical encoding. Doesn't allocate. An implementation may override it with something faster
    /// that gives the same value.
    fn key_hash(&self) -> u64 {
        let mut sink = HashSink::new();
        self.canonical(&mut sink);
        sink.finish()
    }
}

/// Keys up to this many bytes are gathered on the stack and hashed in one call; xxh3's streaming form, with its buffers
/// of 576 bytes, costs several times as much for a short key.
const SHORT_KEY_BYTES: usize = 128;

/// Gathers a canonical encoding and hashes it, without allocating.
struct HashSink {
    short: [u8; SHORT_KEY_BYTES],
    len: usize,
    long: Option<Xxh3>,
}

impl HashSink {
    fn new() -> HashSink {
        HashSink { short: [0; SHORT_KEY_BYTES], len: 0, long: None }
    }

    fn finish(self) -> u64 {
        match self.long {
            Some(stream) => stream.digest(),
            None => xxh3_64(&self.short[..self.len]),
        }
    }
}

impl KeySink for HashSink {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(stream) = &mut self.long {
            stream.update(bytes);
        } else if bytes.len() <= SHORT_KEY_BYTES - self.len {
            self.short[self.len..self.len + bytes.len()].copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            let mut stream = Xxh3::new();
            stream.update(&self.short[..self.len]);
            stream.update(bytes);
            self.long = Some(stream);
        }
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl CanonicalKey for $int {
            fn canonical<S: KeySink>(&self, out: &mut S) {
                out.put(&self.to_be_bytes());
            }

            fn key_hash(&self) -> u64 {
                xxh3_64(&self.to_be_bytes())
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl CanonicalKey for bool {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        out.put(&[u8::from(*self)]);
    }
}

impl CanonicalKey for char {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        u32::from(*self).canonical(out);
    }
}

/// The one key of a stream that isn't divided; its encoding is empty.
impl CanonicalKey for () {
    fn canonical<S: KeySink>(&self, _: &mut S) {}
}

impl CanonicalKey for [u8] {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        // Four bytes of length do for all but monsters; `u32::MAX` says that eight follow, so that the encoding is
        // total.
        match u32::try_from(self.len()) {
            Ok(len) if len != u32::MAX => out.put(&len.to_be_bytes()),
            _ => {
                out.put(&u32::MAX.to_be_bytes());
                out.put(&(self.len() as u64).to_be_bytes());
            }
        }
        out.put(self);
    }
}

impl CanonicalKey for str {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        self.as_bytes().canonical(out);
    }
}

impl CanonicalKey for String {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        self.as_bytes().canonical(out);
    }
}

impl CanonicalKey for Vec<u8> {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        self.as_slice().canonical(out);
    }
}

/// Of fixed length, so without a length before it.
impl<const N: usize> CanonicalKey for [u8; N] {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        out.put(self);
    }

    fn key_hash(&self) -> u64 {
        xxh3_64(self)
    }
}

impl<T: CanonicalKey> CanonicalKey for Option<T> {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        match self {
            None => out.put(&[0]),
            Some(value) => {
                out.put(&[1]);
                value.canonical(out);
            }
        }
    }
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: CanonicalKey + ?Sized> CanonicalKey for $pointer {
            fn canonical<S: KeySink>(&self, out: &mut S) {
                (**self).canonical(out);
            }

            fn key_hash(&self) -> u64 {
                (**self).key_hash()
            }
        }
    )*};
}

pointers!(&T, Box<T>, Arc<T>);

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: CanonicalKey),+> CanonicalKey for ($($name,)+) {
            fn canonical<Out: KeySink>(&self, out: &mut Out) {
                $(self.$index.canonical(out);)+
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}

/// The canonical encoding of a key, as bytes of its own.
pub fn canonical_bytes<K: CanonicalKey + ?Sized>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.canonical(&mut bytes);
    bytes
}

/// The hashes of ten fixed keys, computed by *this* program. At a restore they are compared with those in the manifest:
/// a program that hashes differently would look for keys on the wrong worker.
pub fn test_vectors() -> [u64; 10] {
    let long = "cutwater".repeat(40);
    [
        ().key_hash(),
        0u64.key_hash(),
        u64::MAX.key_hash(),
        (-1i32).key_hash(),
        "".key_hash(),
        "JFK".key_hash(),
        long.key_hash(),
        ("EWR", 7u32).key_hash(),
        (Some(1u8), None::<u8>, true, 'ß').key_hash(),
        [1u8, 2, 3].key_hash(),
    ]
}

/// Second mix of a key's hash, for the slots of hash tables: take the low bits. A bijection, so nothing is lost.
pub fn table_hash(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// The smallest movable portion of keyed state, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyGroup(pub u16);

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key group {}", self.0)
    }
}

/// How many key groups a job has: from 1 to 65,536, fixed for its life. It bounds the number of workers that can share
/// the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct KeyGroups(u32);

/// A number of key groups that can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found} key groups: a job has from 1 to {max}; choose a power of two such as 256", max = KeyGroups::MAX.0)]
pub struct KeyGroupsError {
    /// The number asked for.
    pub found: u32,
}

impl KeyGroups {
    /// As many as a `KeyGroup` can name.
    pub const MAX: KeyGroups = KeyGroups(1 << 16);

    /// # Errors
    ///
    /// If `count` is 0 or more than [`KeyGroups::MAX`].
    pub fn new(count: u32) -> Result<KeyGroups, KeyGroupsError> {
        if (1..=KeyGroups::MAX.0).contains(&count) {
            Ok(KeyGroups(count))
        } else {
            Err(KeyGroupsError { found: count })
        }
    }

    /// How many.
    pub fn count(self) -> u32 {
        self.0
    }
}

impl Default for KeyGroups {
    fn default() -> Self {
        KeyGroups(256)
    }
}

impl TryFrom<u32> for KeyGroups {
    type Error = KeyGroupsError;

    fn try_from(count: u32) -> Result<Self, Self::Error> {
        KeyGroups::new(count)
    }
}

impl From<KeyGroups> for u32 {
    fn from(groups: KeyGroups) -> u32 {
        groups.0
    }
}

/// The group of a key with this hash: `(bits 32..64 of the hash x groups) >> 32`, always below `groups`.
pub fn group_of(hash: u64, groups: KeyGroups) -> KeyGroup {
    // Below 65,536: the first factor is below 2^32, the second at most 2^16.
    KeyGroup((((hash >> 32) * u64::from(groups.0)) >> 32) as u16)
}

/// A contiguous range of key groups: `start` is in it, `end` is not. May be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupRange {
    /// The first group.
    pub start: u32,
    /// One after the last group; up to 65,536, so wider than a group.
    pub end: u32,
}

impl GroupRange {
    /// Whether the group lies in the range.
    pub fn contains(self, group: KeyGroup) -> bool {
        (self.start..self.end).contains(&u32::from(group.0))
    }

    /// How many groups.
    pub fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The groups that lie in both; an empty range if there are none.
    #[must_use]
    pub fn intersection(self, other: GroupRange) -> GroupRange {
        let start = self.start.max(other.start);
        GroupRange { start, end: self.end.min(other.end).max(start) }
    }

    /// The groups, rising.
    pub fn groups(self) -> impl Iterator<Item = KeyGroup> {
        (self.start..self.end).map(|group| KeyGroup(group as u16))
    }
}

impl fmt::Display for GroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key groups {}..{}", self.start, self.end)
    }
}

/// Which worker owns which groups: worker w has `ceil(w x groups / workers) .. ceil((w + 1) x groups / workers)`.
///
/// The shares differ by one group at most. With more workers than groups some own nothing; they are legal here and
/// refused where a job is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupAssignment {
    groups: KeyGroups,
    workers: NonZeroU32,
}

impl GroupAssignment {
    /// The assignment of `groups` to `workers`.
    pub fn new(groups: KeyGroups, workers: NonZeroU32) -> GroupAssignment {
        GroupAssignment { groups, workers }
    }

    /// The number of groups.
    pub fn groups(self) -> KeyGroups {
        self.groups
    }

    /// The number of workers.
    pub fn workers(self) -> NonZeroU32 {
        self.workers
    }

    /// The owner of a group.
    ///
    /// # Panics
    ///
    /// If the group isn't one of the job's.
    pub fn worker_of(self, group: KeyGroup) -> WorkerIndex {
        assert!(u32::from(group.0) < self.groups.0, "{group} of only {} groups", self.groups.0);
        // Below `workers`, because the group is below `groups`.
        let worker = u64::from(group.0) * u64::from(self.workers.get()) / u64::from(self.groups.0);
        WorkerIndex(worker as u32)
    }

    /// The groups that a worker owns.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    pub fn range_of(self, worker: WorkerIndex) -> GroupRange {
        assert!(worker.0 < self.workers.get(), "worker {worker} of only {} workers", self.workers);
        let from = |worker: u64| (worker * u64::from(self.groups.0)).div_ceil(u64::from(self.workers.get())) as u32;
        GroupRange { start: from(u64::from(worker.0)), end: from(u64::from(worker.0) + 1) }
    }

    /// The owners of all groups in order: what a router looks up per record instead of dividing.
    pub fn owners(self) -> Box<[WorkerIndex]> {
        (0..self.groups.0).map(|group| self.worker_of(KeyGroup(group as u16))).collect()
    }
}

#[cfg(test)]
#[path = "key_group_tests.rs"]
mod tests;
