//! How keys and values stand in a state file: serde, numbers in their fixed width.
//!
//! ```text
//!   bool            1 byte, 0 or 1                     Option      1 byte, 0 or 1, then the value
//!   numbers, char   their width, little-endian         variant     its number as a length, then its fields
//!   text, bytes     length, bytes                      sequence, map   length, elements
//!   length          1 byte below 255; else 255 and 8 bytes
//! ```
//!
//! Structs and tuples are their fields one after the other; a unit takes no byte. Nothing says what it is: the types are in
//! the schema fingerprint of the file.
//!
//! Why not postcard, as everywhere else: its numbers take 1 to 10 bytes each, and the branch on every byte, which a
//! processor can't foresee, costs about 10 ns per number. A checkpoint of a million counters is a million entries; at fixed
//! width each costs 1 to 2 ns. The files are up to three times as large, and compress well.
//!
//! Reading never panics and never allocates on a length that it hasn't checked against the bytes that are there.

mod read;
mod write;

use thiserror::Error;

pub(crate) use read::read_entry;
pub(crate) use write::write_entry;

/// A length below this stands in one byte.
const LONG: u8 = 255;

/// A key or value can't be encoded, or bytes aren't one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum EntryError {
    /// What the type itself says.
    #[error("{0}")]
    Custom(String),
    /// A sequence or map that doesn't know its length beforehand.
    #[error("a sequence or map must know its length before it is written")]
    UnknownLength,
    /// A type that asks the bytes what they are: untagged enums, `flatten`, `serde_json::Value`.
    #[error("it asks the bytes what type they are, and they don't say; use a plain struct or enum")]
    NotSelfDescribing,
    /// The bytes end within a value.
    #[error("{needed} bytes expected, {left} left")]
    Short {
        /// Bytes that the value needs.
        needed: u64,
        /// Bytes there are.
        left: usize,
    },
    /// A byte that can't stand where it stands.
    #[error("{found} is no {expected}")]
    Invalid {
        /// What should stand there.
        expected: &'static str,
        /// What does.
        found: u64,
    },
}

impl serde::ser::Error for EntryError {
    fn custom<T: std::fmt::Display>(what: T) -> Self {
        EntryError::Custom(what.to_string())
    }
}

impl serde::de::Error for EntryError {
    fn custom<T: std::fmt::Display>(what: T) -> Self {
        EntryError::Custom(what.to_string())
    }
}

#[cfg(test)]
mod tests;
