//! Zigzag varints: small numbers of either sign in few bytes, as Protocol Buffers write them.
//!
//! A reader takes at most 5 bytes for 32 bits and 10 for 64, and refuses bits beyond that width. Longer spellings than
//! needed within these bounds are accepted, because Kafka's own reader accepts them.

/// The most bytes of a 32-bit varint.
pub(super) const VARINT_BYTES_MAX: usize = 5;

const MORE: u8 = 0x80;

fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)).cast_unsigned()
}

fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Appends a 32-bit number.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put(out, u64::from(zigzag32(value)));
}

/// Appends a 64-bit number.
#[inline]
pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put(out, zigzag64(value));
}

#[inline(always)]
fn put(out: &mut Vec<u8>, mut bits: u64) {
    // Nearly all numbers of a record take one byte or two.
    if bits < u64::from(MORE) {
        return out.push(bits as u8);
    }
    if bits < 1 << 14 {
        return out.extend_from_slice(&[bits as u8 | MORE, (bits >> 7) as u8]);
    }
    while bits >= u64::from(MORE) {
        out.push(bits as u8 | MORE);
        bits >>= 7;
    }
    out.push(bits as u8);
}

/// Bytes that [`put_varint`] appends.
#[inline]
pub(super) fn varint_len(value: i32) -> usize {
    len(u64::from(zigzag32(value)))
}

/// Bytes that [`put_varlong`] appends.
#[inline]
pub(super) fn varlong_len(value: i64) -> usize {
    len(zigzag64(value))
}

#[inline(always)]
fn len(bits: u64) -> usize {
    if bits < u64::from(MORE) {
        return 1;
    }
    if bits < 1 << 14 {
        return 2;
    }
    (64 - (bits | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes a 32-bit number from the front of `bytes`; `None` when it is cut short or too wide.
#[inline]
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<i32> {
    let bits = u32::try_from(take::<VARINT_BYTES_MAX>(bytes)?).ok()?;
    Some((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
}

/// Takes a 64-bit number from the front of `bytes`; `None` when it is cut short or too wide.
#[inline]
pub(super) fn take_varlong(bytes: &mut &[u8]) -> Option<i64> {
    let bits = take::<10>(bytes)?;
    Some((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
}

#[inline]
fn take<const MAX: usize>(bytes: &mut &[u8]) -> Option<u64> {
    // Most numbers of a record (lengths below 64, small deltas) take one byte.
    let (&first, rest) = bytes.split_first()?;
    if first < MORE {
        *bytes = rest;
        return Some(u64::from(first));
    }
    let mut bits = 0u64;
    for (i, &byte) in bytes.iter().take(MAX).enumerate() {
        let group = u64::from(byte & !MORE);
        let shifted = group << (7 * i);
        if shifted >> (7 * i) != group {
            return None;
        }
        bits |= shifted;
        if byte < MORE {
            *bytes = bytes.get(i + 1..)?;
            return Some(bits);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_come_back_and_their_length_is_known() {
        let wide = (0..64).flat_map(|shift| [1i64 << shift, (1i64 << shift).wrapping_sub(1), -(1i64 << (shift % 63))]);
        for value in wide.chain([0, -1, i64::MAX, i64::MIN]) {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            assert_eq!(out.len(), varlong_len(value));
            assert_eq!(take_varlong(&mut out.as_slice()), Some(value));
            if let Ok(narrow) = i32::try_from(value) {
                let mut short = Vec::new();
                put_varint(&mut short, narrow);
                assert_eq!((short.len(), &short), (varint_len(narrow), &out), "both widths spell small numbers alike");
                assert_eq!(take_varint(&mut short.as_slice()), Some(narrow));
            } else {
                assert_eq!(take_varint(&mut out.as_slice()), None, "{value} is wider than 32 bits");
            }
        }
    }

    #[test]
    fn known_spellings() {
        for (value, bytes) in
            [(0, &[0u8][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (-64, &[127]), (64, &[128, 1]), (300, &[0xd8, 4])]
        {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(take_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..]), Some(i32::MIN));
    }

    #[test]
    fn cut_and_overlong_numbers_are_refused() {
        assert_eq!(take_varint(&mut &[][..]), None);
        assert_eq!(take_varint(&mut &[0x80][..]), None);
        assert_eq!(take_varint(&mut &[0x80, 0x80, 0x80, 0x80, 0x10][..]), None, "33 bits");
        assert_eq!(take_varint(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]), None, "six bytes");
        assert_eq!(take_varint(&mut &[0x82, 0x80, 0][..]), Some(1), "longer than needed, but within bounds");
        assert_eq!(take_varlong(&mut &[0xff; 11][..]), None);
        assert_eq!(take_varlong(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]), None, "65 bits");
    }
}
