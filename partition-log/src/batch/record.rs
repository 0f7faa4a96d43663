//! One record inside a batch: its bytes, written and read.

use super::RecordRef;
use super::varint::{VARINT_BYTES_MAX, put_varint, put_varlong, take_varint, take_varlong, varint_len, varlong_len};

/// The most bytes that a key, value or header may have: their length is a signed 32-bit number.
const FIELD_BYTES_MAX: usize = i32::MAX as usize;

/// A header as a producer gives it.
pub(super) type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// Bytes of the record's body, without its length prefix; `None` when a field or the body is too long for the format.
#[inline]
pub(super) fn body_len(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[HeaderRef<'_>],
) -> Option<usize> {
    let fixed = 1 + varlong_len(timestamp_delta) + varint_len(offset_delta);
    let mut len = fixed + bytes_len(key)? + bytes_len(value)? + varint_len(i32::try_from(headers.len()).ok()?);
    for &(key, value) in headers {
        len += bytes_len(Some(key))? + bytes_len(value)?;
    }
    (len <= FIELD_BYTES_MAX - VARINT_BYTES_MAX).then_some(len)
}

#[inline(always)]
fn bytes_len(bytes: Option<&[u8]>) -> Option<usize> {
    match bytes {
        None => Some(1),
        Some(bytes) if bytes.len() <= FIELD_BYTES_MAX => Some(varint_len(bytes.len() as i32) + bytes.len()),
        Some(_) => None,
    }
}

/// Appends a record whose body has `body` bytes, as [`body_len`] computed from the same fields.
#[inline]
pub(super) fn put_record(
    out: &mut Vec<u8>,
    body: usize,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[HeaderRef<'_>],
) {
    out.reserve(varint_len(body as i32) + body);
    put_varint(out, body as i32);
    out.push(0);
    put_varlong(out, timestamp_delta);
    put_varint(out, offset_delta);
    put_bytes(out, key);
    put_bytes(out, value);
    put_varint(out, headers.len() as i32);
    for &(key, value) in headers {
        put_bytes(out, Some(key));
        put_bytes(out, value);
    }
}

#[inline(always)]
fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}

/// A record with its deltas, before base offset and base timestamp are added.
pub(super) struct RawRecord<'a> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    header_count: i32,
    /// The headers, walked once already: they are well formed.
    headers: &'a [u8],
}

impl<'a> RawRecord<'a> {
    pub(super) fn placed(&self, offset: i64, timestamp_ms: i64) -> RecordRef<'a> {
        RecordRef {
            offset,
            timestamp_ms,
            key: self.key,
            value: self.value,
            header_count: self.header_count,
            headers: self.headers,
        }
    }
}

/// Takes the record at the front of `rest`; the error says what is wrong with it.
#[inline]
pub(super) fn take_record<'a>(rest: &mut &'a [u8]) -> Result<RawRecord<'a>, &'static str> {
    let len = take_varint(rest).ok_or("its length is no number, or it is missing")?;
    let mut body = take_exact(rest, len).ok_or("its length exceeds the batch, or is negative")?;
    let body = &mut body;
    let (&attributes, after) = body.split_first().ok_or("it has no byte")?;
    *body = after;
    if attributes != 0 {
        return Err("its attributes aren't 0");
    }
    let timestamp_delta = take_varlong(body).ok_or("its timestamp delta is no number")?;
    let offset_delta = take_varint(body).ok_or("its offset delta is no number")?;
    let key = take_bytes(body).ok_or("its key exceeds it")?;
    let value = take_bytes(body).ok_or("its value exceeds it")?;
    let header_count = take_varint(body).filter(|&n| n >= 0).ok_or("its count of headers is no count")?;
    let headers = *body;
    for _ in 0..header_count {
        take_header(body).ok_or("a header exceeds it, or its count of headers is too high")?;
    }
    if !body.is_empty() {
        return Err("bytes are left in it behind its headers");
    }
    Ok(RawRecord { timestamp_delta, offset_delta, key, value, header_count, headers })
}

/// Takes one header from the front of `bytes`. A header's key is never null.
pub(super) fn take_header<'a>(bytes: &mut &'a [u8]) -> Option<HeaderRef<'a>> {
    let key = take_bytes(bytes)??;
    Some((key, take_bytes(bytes)?))
}

/// `None`: malformed. `Some(None)`: null.
#[inline]
fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match take_varint(bytes)? {
        -1 => Some(None),
        len => take_exact(bytes, len).map(Some),
    }
}

#[inline]
fn take_exact<'a>(bytes: &mut &'a [u8], len: i32) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}
