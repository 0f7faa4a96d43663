//! Reading positions and handles back: versioned bytes that may come from an older program, or from a damaged checkpoint.
//!
//! No decoder here panics or trusts a length.

use thiserror::Error;

/// Bytes that are no position or handle of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum PositionError {
    /// Another format.
    #[error("the checkpoint holds format {found} here, this program reads {known}: use the program that wrote it")]
    Version { found: u8, known: u8 },
    /// Too few bytes, too many, or a field that can't be.
    #[error("the checkpoint is damaged here: expected a position of another shape")]
    Damaged,
}

/// Takes fields from the front of versioned bytes.
#[derive(Debug)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], known: u8) -> Result<Cursor<'a>, PositionError> {
        match Cursor::versioned(bytes, known)? {
            (version, cursor) if version == known => Ok(cursor),
            (found, _) => Err(PositionError::Version { found, known }),
        }
    }

    /// Of a format of which older versions are read too: the version, and what is behind it.
    pub(crate) fn versioned(bytes: &'a [u8], newest: u8) -> Result<(u8, Cursor<'a>), PositionError> {
        match bytes.split_first() {
            Some((&version, rest)) if (1..=newest).contains(&version) => Ok((version, Cursor(rest))),
            Some((&found, _)) => Err(PositionError::Version { found, known: newest }),
            None => Err(PositionError::Damaged),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PositionError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(PositionError::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, PositionError> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PositionError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, PositionError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes behind their length, a u32. The length is checked against what is there.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], PositionError> {
        let len = usize::try_from(self.u32()?).map_err(|_| PositionError::Damaged)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(PositionError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn end(self) -> Result<(), PositionError> {
        if self.0.is_empty() { Ok(()) } else { Err(PositionError::Damaged) }
    }
}
