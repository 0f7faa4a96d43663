//! Reading the records of a batch, borrowed from its bytes.

use std::borrow::Cow;

use super::record::{take_header, take_record};
use super::{BatchError, BatchHeader, Compression, Limits, codec};
use crate::batch::format::HEADER_BYTES;

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// Its place in the partition.
    pub offset: i64,
    /// Its time, in milliseconds since 1970: its producer's, or the log's when the batch says so.
    pub timestamp_ms: i64,
    /// Its key, if it has one. An empty key is not the same as none.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone in compacted topics.
    pub value: Option<&'a [u8]>,
    pub(super) header_count: i32,
    pub(super) headers: &'a [u8],
}

impl<'a> RecordRef<'a> {
    /// Its headers in the order in which they were written. A key may come more than once; a value may be null.
    pub fn headers(&self) -> HeaderIter<'a> {
        HeaderIter { left: self.header_count, rest: self.headers }
    }
}

/// The headers of one record, in order.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    left: i32,
    rest: &'a [u8],
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        take_header(&mut self.rest)
    }
}

/// The records of one batch: their bytes, decompressed if need be, ready to be walked any number of times.
#[derive(Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    body: Cow<'a, [u8]>,
}

impl Records<'_> {
    /// The batch's header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The same records as if the batch began at offset 0.
    pub(super) fn rebased(mut self) -> Self {
        self.header.base_offset = 0;
        self
    }

    /// Walks the records in order. After an error comes nothing more.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter { header: &self.header, rest: &self.body, index: 0, next_delta: 0, failed: false }
    }
}

impl<'r> IntoIterator for &'r Records<'_> {
    type Item = Result<RecordRef<'r>, BatchError>;
    type IntoIter = RecordIter<'r>;

    fn into_iter(self) -> RecordIter<'r> {
        self.iter()
    }
}

/// The records of one batch, in order.
#[derive(Debug)]
pub struct RecordIter<'r> {
    header: &'r BatchHeader,
    rest: &'r [u8],
    index: i32,
    /// The smallest offset delta that the next record may have.
    next_delta: i32,
    failed: bool,
}

impl<'r> RecordIter<'r> {
    #[inline]
    fn step(&mut self) -> Result<Option<RecordRef<'r>>, &'static str> {
        if self.index >= self.header.record_count {
            return if self.rest.is_empty() { Ok(None) } else { Err("bytes are left behind the last record") };
        }
        let raw = take_record(&mut self.rest)?;
        if raw.offset_delta < self.next_delta || raw.offset_delta > self.header.last_offset_delta {
            return Err("its offset isn't between the record before it and the batch's last");
        }
        let timestamp_ms = if self.header.is_log_append_time() {
            self.header.max_timestamp_ms
        } else {
            self.header.base_timestamp_ms.checked_add(raw.timestamp_delta).ok_or("its timestamp is out of range")?
        };
        let offset = self.header.base_offset.checked_add(i64::from(raw.offset_delta));
        let record = raw.placed(offset.ok_or("its offset is out of range")?, timestamp_ms);
        self.next_delta = raw.offset_delta.saturating_add(1);
        self.index += 1;
        Ok(Some(record))
    }
}

impl<'r> Iterator for RecordIter<'r> {
    type Item = Result<RecordRef<'r>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.step() {
            Ok(record) => record.map(Ok),
            Err(what) => {
                self.failed = true;
                Some(Err(BatchError::Record { index: self.index, what }))
            }
        }
    }
}

/// Opens the batch at the front of `bytes` for reading; more may follow it.
///
/// Uncompressed records are borrowed as they lie; compressed ones are decompressed once into a buffer that the result
/// owns. The checksum is **not** looked at: segment reads and [`verify()`](super::verify()) have done that.
///
/// ```
/// use cutwater_partition_log::batch::{BatchBuilder, Compression, Limits, ProducerStamp, records};
/// let mut builder = BatchBuilder::new(Compression::Lz4);
/// builder.push(1_700_000_000_000, Some(b"JFK"), Some(b"late"), &[(b"via", None), (b"via", Some(b"ORD"))])?;
/// let batch = builder.build(ProducerStamp::NONE)?;
/// let records = records(&batch, &Limits::DEFAULT)?;
/// for record in &records {
///     let record = record?;
///     assert_eq!((record.offset, record.key, record.value), (0, Some(&b"JFK"[..]), Some(&b"late"[..])));
///     assert_eq!(record.headers().count(), 2);
/// }
/// # Ok::<(), cutwater_partition_log::batch::BatchError>(())
/// ```
///
/// # Errors
/// The header isn't one, the batch is cut short, its codec isn't supported, or it doesn't decompress within the limits.
pub fn records<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Records<'a>, BatchError> {
    let (header, block) = split(bytes)?;
    let body = match header.compression()? {
        Compression::None => Cow::Borrowed(block),
        compression => {
            let mut out = Vec::new();
            codec::decompress(compression, block, limits, &mut out)?;
            Cow::Owned(out)
        }
    };
    Ok(Records { header, body })
}

/// As [`records`], but decompresses into `scratch`, whose memory can be used again for the next batch.
///
/// # Errors
/// As [`records`].
pub fn records_reusing<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    scratch: &'a mut Vec<u8>,
) -> Result<Records<'a>, BatchError> {
    let (header, block) = split(bytes)?;
    let body = match header.compression()? {
        Compression::None => block,
        compression => {
            scratch.clear();
            codec::decompress(compression, block, limits, scratch)?;
            scratch
        }
    };
    Ok(Records { header, body: Cow::Borrowed(body) })
}

/// The header, and the records' bytes as they lie.
fn split(bytes: &[u8]) -> Result<(BatchHeader, &[u8]), BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let block = bytes.get(HEADER_BYTES..header.total_bytes());
    let block = block.ok_or(BatchError::Short { expected: header.total_bytes(), found: bytes.len() })?;
    Ok((header, block))
}
