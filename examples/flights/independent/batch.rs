//! One record batch, from `docs/formats/batch.md` (Kafka's format v2).

use std::io::Read;

use super::bytes::Bytes;
use super::crc::crc32c;

/// Bytes of base offset and length, which the length doesn't count.
const FRONT_BYTES: usize = 12;
/// Where the part begins that the checksum covers.
const CHECKED_FROM: usize = 21;
/// Where the records begin.
const RECORDS_FROM: usize = 61;
/// The most that the records of one batch may unpack to.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// A record with the offset that the log gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What a batch is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Records; of a transaction or not.
    Records { transactional: bool, records: Vec<Record> },
    /// The end of the producer's transaction in this partition.
    Marker { commit: bool },
}

/// A batch, read.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) producer: i64,
    pub(crate) content: Content,
}

/// Reads the batch at the front of `bytes` and answers how long it is.
pub(crate) fn read(bytes: &[u8]) -> Result<(Batch, usize), String> {
    let mut header = Bytes(bytes);
    let first_offset = header.i64()?;
    let length = header.i32()?;
    let len = usize::try_from(length).map_err(|_| format!("a length of {length}"))? + FRONT_BYTES;
    if len < RECORDS_FROM || len > bytes.len() {
        return Err(format!("a batch of {len} bytes where {} are left", bytes.len()));
    }
    let batch = &bytes[..len];
    let _leader_epoch = header.i32()?;
    let magic = header.i8()?;
    if magic != 2 {
        return Err(format!("format {magic} instead of 2"));
    }
    let (said, found) = (header.u32()?, crc32c(&batch[CHECKED_FROM..]));
    if said != found {
        return Err(format!("checksum {found:08x} instead of {said:08x}"));
    }
    let attributes = header.i16()?;
    let last_delta = header.i32()?;
    let (_base_time, _max_time) = (header.i64()?, header.i64()?);
    let producer = header.i64()?;
    let (_epoch, _sequence) = (header.i16()?, header.i32()?);
    let count = header.i32()?;
    let packed = &batch[RECORDS_FROM..];
    let unpacked;
    let records = match attributes & 7 {
        0 => packed,
        3 => {
            unpacked = unpack(packed)?;
            &unpacked
        }
        codec => return Err(format!("compressed with codec {codec}, and only lz4 (3) is known here")),
    };
    let (transactional, control) = (attributes & 0x10 != 0, attributes & 0x20 != 0);
    let records = read_records(records, first_offset, count)?;
    let content = if control { marker(&records)? } else { Content::Records { transactional, records } };
    Ok((Batch { first_offset, last_offset: first_offset + i64::from(last_delta), producer, content }, len))
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let mut from = lz4_flex::frame::FrameDecoder::new(packed).take(UNPACKED_BYTES_MAX);
    from.read_to_end(&mut unpacked).map_err(|e| format!("lz4: {e}"))?;
    Ok(unpacked)
}

fn read_records(bytes: &[u8], first_offset: i64, count: i32) -> Result<Vec<Record>, String> {
    let mut rest = Bytes(bytes);
    let mut records = Vec::new();
    for n in 0..count {
        let len = rest.varint()?;
        let mut body = Bytes(rest.take(usize::try_from(len).map_err(|_| format!("record {n} has length {len}"))?)?);
        let _attributes = body.i8()?;
        let _time_delta = body.varint()?;
        let offset = first_offset + body.varint()?;
        let key = body.optional()?.map(<[u8]>::to_vec);
        let value = body.optional()?.map(<[u8]>::to_vec);
        let mut headers = Vec::new();
        for _ in 0..body.varint()? {
            let name = body.optional()?.ok_or("a header without a name")?;
            headers.push((String::from_utf8_lossy(name).into_owned(), body.optional()?.map(<[u8]>::to_vec)));
        }
        if !body.0.is_empty() {
            return Err(format!("record {n} has {} bytes too many", body.0.len()));
        }
        records.push(Record { offset, key, value, headers });
    }
    if !rest.0.is_empty() {
        return Err(format!("{} bytes behind the last record", rest.0.len()));
    }
    Ok(records)
}

/// The control record's key: version, type.
fn marker(records: &[Record]) -> Result<Content, String> {
    let [record] = records else { return Err(format!("a control batch with {} records", records.len())) };
    let mut key = Bytes(record.key.as_deref().ok_or("a control record without a key")?);
    let _version = key.i16()?;
    match key.i16()? {
        0 => Ok(Content::Marker { commit: false }),
        1 => Ok(Content::Marker { commit: true }),
        other => Err(format!("a control record of type {other}")),
    }
}
