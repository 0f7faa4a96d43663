//! Buffers whose first byte lies on a block boundary, as direct writes demand, without unsafe code.

/// The unit of direct writes: memory, file offset and length must be multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// A growing byte buffer that starts on a [`BLOCK_BYTES`] boundary.
///
/// It over-allocates a `Vec` by one block and begins at the first aligned byte; growing moves the bytes into a new
/// allocation, so the boundary holds for the buffer's whole life.
///
/// ```
/// use cutwater_platform::{AlignedBuf, BLOCK_BYTES};
/// let mut buf = AlignedBuf::with_capacity(10_000);
/// buf.extend_from_slice(b"frame");
/// buf.pad_to_block();
/// assert_eq!(buf.as_slice().len(), BLOCK_BYTES);
/// assert_eq!(buf.as_slice().as_ptr() as usize % BLOCK_BYTES, 0);
/// ```
#[derive(Debug, Default)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuf {
    /// A buffer that can take `capacity` bytes before it moves.
    pub fn with_capacity(capacity: usize) -> AlignedBuf {
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + BLOCK_BYTES);
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES);
        bytes.resize(start, 0);
        AlignedBuf { bytes, start }
    }

    /// Appends `more`.
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.bytes.extend_from_slice(more);
    }

    /// Appends zeros up to the next block boundary.
    pub fn pad_to_block(&mut self) {
        self.grow_with_zeros(self.len().next_multiple_of(BLOCK_BYTES));
    }

    /// Appends zeros up to `len` bytes; a longer buffer stays as it is.
    pub fn grow_with_zeros(&mut self, len: usize) {
        if len > self.len() {
            self.reserve(len - self.len());
            self.bytes.resize(self.start + len, 0);
        }
    }

    /// Makes room for `more` bytes.
    pub fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() >= more {
            return;
        }
        let mut grown = AlignedBuf::with_capacity((self.len() + more).max(self.len() * 2));
        grown.bytes.extend_from_slice(self.as_slice());
        *self = grown;
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    /// Bytes in the buffer.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// True when nothing is in the buffer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes; the first one is aligned.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The bytes, for patching a header in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let start = self.start;
        &mut self.bytes[start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_while_it_grows() {
        let mut buf = AlignedBuf::default();
        for n in 0..5_000usize {
            buf.extend_from_slice(&n.to_le_bytes());
            assert_eq!(buf.as_slice().as_ptr() as usize % BLOCK_BYTES, 0);
        }
        assert_eq!(buf.as_slice()[8 * 4_999..], 4_999usize.to_le_bytes());
        buf.clear();
        assert!(buf.is_empty());
        buf.pad_to_block();
        assert_eq!(buf.len(), 0, "an empty buffer is already padded");
        buf.grow_with_zeros(3);
        buf.grow_with_zeros(1);
        assert_eq!(buf.as_slice(), [0; 3]);
    }
}
