//! The envelope around every small record and around a manifest: says what it is, which version, how long, and whether it
//! is whole.
//!
//! ```text
//!   offset  bytes  what
//!        0      8  magic: which kind of record
//!        8      4  format version, little-endian
//!       12      4  zero
//!       16      8  length of the body, little-endian
//!       24      8  xxh3-64 of bytes 0..24 and the body, little-endian
//!       32      -  the body, in postcard; the file ends with it
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

/// Bytes before the body.
pub(crate) const HEADER_BYTES: usize = 32;

/// Why bytes aren't the record that was expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Another kind of file.
    #[error("this is not a {expected}: it begins with {found:?}")]
    Foreign {
        /// The kind that was expected.
        expected: &'static str,
        /// Its first bytes, as far as they are text.
        found: String,
    },
    /// Written by a newer program.
    #[error("this {kind} has format version {found}, and this program knows up to {known}; use a newer program")]
    Newer {
        /// The kind of record.
        kind: &'static str,
        /// Its version.
        found: u32,
        /// The newest known.
        known: u32,
    },
    /// Shorter or longer than it says.
    #[error("this {kind} should have {expected} bytes and has {found}: it was cut short or added to")]
    Length {
        /// The kind of record.
        kind: &'static str,
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Some bit is wrong.
    #[error("this {kind} is damaged: checksum {expected:016x} expected, {found:016x} found")]
    Checksum {
        /// The kind of record.
        kind: &'static str,
        /// The checksum in the envelope.
        expected: u64,
        /// The checksum of what is there.
        found: u64,
    },
    /// Whole, but not what this program writes.
    #[error("this {kind} is whole but doesn't decode: {reason}")]
    Body {
        /// The kind of record.
        kind: &'static str,
        /// What the decoder said.
        reason: String,
    },
}

/// One kind of record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The first eight bytes.
    pub(crate) magic: [u8; 8],
    /// What people call it.
    pub(crate) name: &'static str,
    /// The format version that this program writes; it reads this one and no other yet.
    pub(crate) version: u32,
}

impl Kind {
    /// Puts `body` into an envelope. Returns the bytes and their checksum.
    pub(crate) fn seal<T: Serialize>(&self, body: &T) -> Result<(Vec<u8>, u64), EnvelopeError> {
        let empty = vec![0; HEADER_BYTES];
        let mut bytes = postcard::to_extend(body, empty)
            .map_err(|e| EnvelopeError::Body { kind: self.name, reason: e.to_string() })?;
        bytes[0..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        let length = (bytes.len() - HEADER_BYTES) as u64;
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        let checksum = checksum(&bytes[..24], &bytes[HEADER_BYTES..]);
        bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
        Ok((bytes, checksum))
    }

    /// Takes the body out of an envelope. Returns it and its checksum.
    pub(crate) fn open<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<(T, u64), EnvelopeError> {
        let kind = self.name;
        if !bytes.starts_with(&self.magic) {
            let found = String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned();
            return Err(EnvelopeError::Foreign { expected: kind, found });
        }
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(EnvelopeError::Length { kind, expected: HEADER_BYTES as u64, found: bytes.len() as u64 });
        };
        let number = |at: usize| header[at..at + 8].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        // The version comes first: a newer format may mean something else by everything behind it.
        let version = number(8) as u32;
        if version > self.version {
            return Err(EnvelopeError::Newer { kind, found: version, known: self.version });
        }
        if number(16) != body.len() as u64 {
            let expected = number(16).saturating_add(HEADER_BYTES as u64);
            return Err(EnvelopeError::Length { kind, expected, found: bytes.len() as u64 });
        }
        let (expected, found) = (number(24), checksum(&header[..24], body));
        if expected != found {
            return Err(EnvelopeError::Checksum { kind, expected, found });
        }
        let refuse = |reason: String| EnvelopeError::Body { kind, reason };
        if version != self.version {
            return Err(refuse(format!(
                "format version {version} was written by no release; go on with the program that wrote it, or start anew"
            )));
        }
        let (decoded, rest) = postcard::take_from_bytes(body).map_err(|e| refuse(e.to_string()))?;
        if !rest.is_empty() {
            return Err(refuse(format!("{} bytes are left over", rest.len())));
        }
        Ok((decoded, found))
    }
}

fn checksum(header: &[u8], body: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(header);
    hash.update(body);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { magic: *b"CWTEST\0\0", name: "test record", version: 1 };

    #[test]
    fn a_record_comes_back_whole() {
        let (bytes, sealed) = KIND.seal(&(7u64, "seven".to_string())).expect("encodes");
        let (body, checksum): ((u64, String), u64) = KIND.open(&bytes).expect("whole");
        assert_eq!((body.0, body.1.as_str(), checksum), (7, "seven", sealed));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_refused() {
        let (bytes, _) = KIND.seal(&(7u64, "seven".to_string())).expect("encodes");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            KIND.open::<(u64, String)>(&bad).expect_err("damaged");
        }
        for len in 0..bytes.len() {
            KIND.open::<(u64, String)>(&bytes[..len]).expect_err("cut short");
        }
        KIND.open::<(u64, String)>(&[bytes.as_slice(), &[0]].concat()).expect_err("added to");
    }

    #[test]
    fn a_newer_version_and_a_foreign_file_are_called_by_name() {
        let newer = Kind { version: 2, ..KIND };
        let (bytes, _) = newer.seal(&1u8).expect("encodes");
        assert!(matches!(KIND.open::<u8>(&bytes), Err(EnvelopeError::Newer { found: 2, known: 1, .. })));
        assert!(matches!(
            KIND.open::<u8>(b"PK\x03\x04 and more, 32 bytes at least"),
            Err(EnvelopeError::Foreign { .. })
        ));
        assert!(matches!(KIND.open::<u8>(b""), Err(EnvelopeError::Foreign { .. })));
    }
}
