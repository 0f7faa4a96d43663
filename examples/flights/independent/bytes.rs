//! Reading numbers from the front of a slice.

/// A slice that is eaten from the front.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        if n > self.0.len() {
            return Err(format!("{n} bytes expected, {} left", self.0.len()));
        }
        let (front, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "a slice has its length".to_string())
    }

    pub(crate) fn i8(&mut self) -> Result<i8, String> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_be_bytes)
    }

    /// A zigzag varint: seven bits a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Result<i64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err("a varint of more than ten bytes".to_string())
    }

    /// A varint length and as many bytes; `None` for a length of -1.
    pub(crate) fn optional(&mut self) -> Result<Option<&'a [u8]>, String> {
        match self.varint()? {
            -1 => Ok(None),
            n => self.take(usize::try_from(n).map_err(|_| format!("a length of {n}"))?).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_zigzag_and_end() {
        let cases: [(&[u8], i64); 5] = [(&[0], 0), (&[1], -1), (&[2], 1), (&[0xac, 0x02], 150), (&[0xff, 0x01], -128)];
        for (bytes, value) in cases {
            assert_eq!(Bytes(bytes).varint(), Ok(value));
        }
        assert!(Bytes(&[0xff; 11]).varint().is_err());
        assert!(Bytes(&[0x80]).varint().is_err());
        assert!(Bytes(&[9, 1]).optional().is_err());
    }
}
