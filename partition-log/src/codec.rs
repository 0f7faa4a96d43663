//! Little-endian integers and length-prefixed bytes, for the log's own formats (frames, base images).
//!
//! The reader never panics and never trusts a length: it answers [`Malformed`] with where it stood.

use thiserror::Error;

/// Bytes that don't follow the format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("malformed {what} at byte {at}")]
pub(crate) struct Malformed {
    /// What was being read.
    pub(crate) what: &'static str,
    /// The byte at which reading stopped.
    pub(crate) at: usize,
}

/// Appends to a byte buffer.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_i16(&mut self, value: i16) {
        self.put(&value.to_le_bytes());
    }
    fn put_i32(&mut self, value: i32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    fn put_u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }
    /// A length of 32 bits, then the bytes. Lengths are bounded by the log's limits long before 4 GiB.
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("limits keep every part of a frame below 4 GiB"));
        self.put(bytes);
    }
    fn put_len(&mut self, len: usize) {
        self.put_u32(u32::try_from(len).expect("limits keep every list below 2^32 items"));
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Put for cutwater_platform::AlignedBuf {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Reads what [`Put`] wrote.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or(Malformed { what, at: self.at })?;
        let part = self.bytes.get(self.at..end).ok_or(Malformed { what, at: self.at })?;
        self.at = end;
        Ok(part)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }
    pub(crate) fn i16(&mut self, what: &'static str) -> Result<i16, Malformed> {
        Ok(i16::from_le_bytes(self.array(what)?))
    }
    pub(crate) fn i32(&mut self, what: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array(what)?))
    }
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }
    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }
    pub(crate) fn u128(&mut self, what: &'static str) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.u32(what)?;
        self.take(usize::try_from(len).map_err(|_| self.malformed(what))?, what)
    }

    pub(crate) fn string(&mut self, what: &'static str) -> Result<String, Malformed> {
        let at = self.at;
        let text = std::str::from_utf8(self.bytes(what)?).map_err(|_| Malformed { what, at })?;
        Ok(text.to_string())
    }

    /// The length of a list whose items take at least `item_bytes` each: refused when that many can't be there.
    pub(crate) fn len(&mut self, item_bytes: usize, what: &'static str) -> Result<usize, Malformed> {
        let len = usize::try_from(self.u32(what)?).map_err(|_| self.malformed(what))?;
        let left = self.bytes.len() - self.at;
        if len.checked_mul(item_bytes).is_none_or(|needed| needed > left) {
            return Err(self.malformed(what));
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read_back_and_nothing_beyond_the_end() {
        let mut bytes = Vec::new();
        bytes.put_u8(1);
        bytes.put_u64(2);
        bytes.put_bytes(b"three");
        bytes.put_i16(-4);
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(cursor.u8("a"), Ok(1));
        assert_eq!(cursor.u64("b"), Ok(2));
        assert_eq!(cursor.string("c"), Ok("three".to_string()));
        assert_eq!(cursor.i16("d"), Ok(-4));
        assert!(cursor.is_empty());
        assert_eq!(cursor.u8("e"), Err(Malformed { what: "e", at: bytes.len() }));
    }

    #[test]
    fn a_length_that_cannot_be_there_is_refused_before_anything_is_allocated() {
        let mut bytes = Vec::new();
        bytes.put_u32(u32::MAX);
        assert!(Cursor::new(&bytes).bytes("text").is_err());
        assert!(Cursor::new(&bytes).len(16, "list").is_err());
    }
}
