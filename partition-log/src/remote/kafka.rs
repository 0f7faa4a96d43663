//! The little of Kafka's protocol that a job's reader needs: the header of requests, `ApiVersions` 3, `Fetch` 13, and to be let in
//! `SaslHandshake` 1 and `SaslAuthenticate` 1. Pure.
//!
//! Four messages don't need a library that has them all, and a server's answer is read with the care of the log's own decoders: no
//! length is trusted, nothing is allocated for what isn't there. In the broker's tests the other side is `kafka-protocol`, behind the
//! guard that reads requests to their last byte.

use crate::codec::Put;

/// Kafka's keys.
pub(super) const FETCH: i16 = 1;
pub(super) const SASL_HANDSHAKE: i16 = 17;
pub(super) const API_VERSIONS: i16 = 18;
pub(super) const SASL_AUTHENTICATE: i16 = 36;
/// The versions spoken.
pub(super) const FETCH_VERSION: i16 = 13;
pub(super) const API_VERSIONS_VERSION: i16 = 3;
pub(super) const SASL_VERSION: i16 = 1;

/// Bytes that are no answer to what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoAnswer(pub(super) &'static str);

/// Appends a request's header: the old one, or from flexible versions on the one with tagged fields.
pub(super) fn put_header(out: &mut Vec<u8>, key: i16, version: i16, correlation: i32, client: &str, flexible: bool) {
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&correlation.to_be_bytes());
    let client = client.get(..client.len().min(200)).unwrap_or_default();
    out.extend_from_slice(&(client.len() as i16).to_be_bytes());
    out.extend_from_slice(client.as_bytes());
    if flexible {
        out.put_u8(0);
    }
}

/// Appends an `ApiVersions` request.
pub(super) fn put_api_versions(out: &mut Vec<u8>, software: &str, version: &str) {
    for text in [software, version] {
        put_varint(out, text.len() + 1);
        out.extend_from_slice(text.as_bytes());
    }
    out.put_u8(0);
}

/// The keys with their versions that an answer to `ApiVersions` lists.
pub(super) fn api_versions(body: &[u8]) -> Result<Vec<(i16, i16, i16)>, NoAnswer> {
    let mut reader = Reader(body);
    if reader.int16()? != 0 {
        return Err(NoAnswer("it doesn't speak ApiVersions 3"));
    }
    let count = reader.count(7)?;
    let mut listed = Vec::with_capacity(count);
    for _ in 0..count {
        listed.push((reader.int16()?, reader.int16()?, reader.int16()?));
        reader.tags()?;
    }
    Ok(listed)
}

/// One partition to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) topic: u128,
    pub(super) partition: u32,
    pub(super) from: u64,
}

/// Appends a `Fetch` request for committed records.
pub(super) fn put_fetch(out: &mut Vec<u8>, wishes: &[Wish], wait_ms: i32, partition_bytes: i32, most_bytes: i32) {
    let int32 = |out: &mut Vec<u8>, value: i32| out.extend_from_slice(&value.to_be_bytes());
    int32(out, -1); // no replica
    int32(out, wait_ms);
    int32(out, 1); // any byte is enough
    int32(out, most_bytes);
    out.put_u8(1); // read-committed
    int32(out, 0); // no session
    int32(out, -1);
    put_varint(out, wishes.len() + 1);
    for wish in wishes {
        out.extend_from_slice(&wish.topic.to_be_bytes());
        put_varint(out, 2);
        out.extend_from_slice(&wish.partition.to_be_bytes());
        int32(out, -1); // no belief about the leader's epoch
        out.extend_from_slice(&wish.from.to_be_bytes());
        int32(out, -1); // nor about the last record's
        out.extend_from_slice(&(-1i64).to_be_bytes());
        int32(out, partition_bytes);
        out.put_u8(0);
        out.put_u8(0);
    }
    out.extend_from_slice(&[1, 1, 0]); // nothing forgotten, no rack, no tagged fields
}

/// What came of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) topic: u128,
    pub(super) partition: u32,
    pub(super) error: i16,
    /// Producer and first offset.
    pub(super) aborted: Vec<(i64, u64)>,
    pub(super) records: Vec<u8>,
}

/// The partitions of an answer to `Fetch`, and the error of the whole.
pub(super) fn fetch(body: &[u8]) -> Result<(i16, Vec<Came>), NoAnswer> {
    let mut reader = Reader(body);
    reader.tags()?; // the header's
    reader.take(4)?; // throttle
    let error = reader.int16()?;
    reader.take(4)?; // session
    let topics = reader.count(16 + 2)?;
    let mut came = Vec::new();
    for _ in 0..topics {
        let topic = u128::from_be_bytes(reader.array()?);
        for _ in 0..reader.count(4 + 2 + 3 * 8 + 4 + 3)? {
            let partition = u32::from_be_bytes(reader.array()?);
            let error = reader.int16()?;
            reader.take(3 * 8)?; // high watermark, last stable offset, log start
            let count = reader.count(8 + 8 + 1)?;
            let mut aborted = Vec::with_capacity(count);
            for _ in 0..count {
                aborted.push((i64::from_be_bytes(reader.array()?), u64::from_be_bytes(reader.array()?)));
                reader.tags()?;
            }
            reader.take(4)?; // preferred replica
            let length = reader.count(1)?;
            let records = reader.take(length)?.to_vec();
            reader.tags()?;
            came.push(Came { topic, partition, error, aborted, records });
        }
        reader.tags()?;
    }
    reader.tags()?;
    reader.end()?;
    Ok((error, came))
}

/// Appends a `SaslHandshake` request.
pub(super) fn put_mechanism(out: &mut Vec<u8>, mechanism: &str) {
    out.extend_from_slice(&(mechanism.len() as i16).to_be_bytes());
    out.extend_from_slice(mechanism.as_bytes());
}

/// Its answer: the error, and the mechanisms that are served.
pub(super) fn mechanisms(body: &[u8]) -> Result<(i16, Vec<String>), NoAnswer> {
    let mut reader = Reader(body);
    let error = reader.int16()?;
    let count = reader.int32()?;
    let mut served = Vec::new();
    for _ in 0..count {
        served.push(String::from_utf8_lossy(reader.text()?).into_owned());
    }
    reader.end()?;
    Ok((error, served))
}

/// Appends a `SaslAuthenticate` request. The message may be worth hiding: its memory is the caller's to wipe.
pub(super) fn put_proof(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(&(message.len() as i32).to_be_bytes());
    out.extend_from_slice(message);
}

/// Its answer: the error, and the server's message.
pub(super) fn proof(body: &[u8]) -> Result<(i16, Vec<u8>), NoAnswer> {
    let mut reader = Reader(body);
    let error = reader.int16()?;
    reader.text()?; // what the server says about the error
    let length = usize::try_from(reader.int32()?).map_err(|_| NoAnswer("a message has no length"))?;
    let message = reader.take(length)?.to_vec();
    reader.take(8)?; // how long it holds: for as long as the connection
    reader.end()?;
    Ok((error, message))
}

fn put_varint(out: &mut Vec<u8>, value: usize) {
    let mut value = value;
    while value >= 0x80 {
        out.put_u8((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], NoAnswer> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(NoAnswer("it is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NoAnswer> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(NoAnswer("it is cut short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn int16(&mut self) -> Result<i16, NoAnswer> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn int32(&mut self) -> Result<i32, NoAnswer> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Text of the inflexible versions; null counts as empty.
    fn text(&mut self) -> Result<&'a [u8], NoAnswer> {
        let length = self.int16()?;
        self.take(usize::try_from(length).unwrap_or(0))
    }

    fn end(&self) -> Result<(), NoAnswer> {
        if self.0.is_empty() { Ok(()) } else { Err(NoAnswer("something follows the last field")) }
    }

    fn varint(&mut self) -> Result<usize, NoAnswer> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).map_err(|_| NoAnswer("a length is too large"));
            }
        }
        Err(NoAnswer("a length has too many digits"))
    }

    /// The length of something whose elements take at least so many bytes each; null counts as empty.
    fn count(&mut self, least: usize) -> Result<usize, NoAnswer> {
        let count = self.varint()?.saturating_sub(1);
        let fits = count.checked_mul(least).is_some_and(|needed| needed <= self.0.len());
        if fits { Ok(count) } else { Err(NoAnswer("it promises more than there is")) }
    }

    fn tags(&mut self) -> Result<(), NoAnswer> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let bytes = self.varint()?;
            self.take(bytes)?;
        }
        Ok(())
    }
}
