//! Building a batch from records.

use super::format::{HEADER_BYTES, LENGTH_OVERHEAD, NONE, TRANSACTIONAL};
use super::header::{Compression, checksum};
use super::record::{HeaderRef, body_len, put_record};
use super::{BatchError, BatchHeader, codec};

/// The most bytes of a batch before compression: its length is a signed 32-bit number, and a codec may add a little.
const BYTES_MAX: usize = (i32::MAX as usize) / 256 * 255;

/// Who wrote a batch, for de-duplication and transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// The producer's id, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub epoch: i16,
    /// Sequence of the batch's first record, or -1.
    pub base_sequence: i32,
    /// True when the batch belongs to the producer's open transaction.
    pub transactional: bool,
}

impl ProducerStamp {
    /// Nobody in particular: neither de-duplicated nor transactional.
    pub const NONE: ProducerStamp = ProducerStamp {
        producer_id: NONE as i64,
        epoch: NONE as i16,
        base_sequence: NONE as i32,
        transactional: false,
    };
}

/// Collects records and makes a batch of them. Can be used again after every [`build`](BatchBuilder::build).
///
/// Records are encoded as they are pushed, straight into the buffer that becomes the batch.
#[derive(Debug)]
pub struct BatchBuilder {
    compression: Compression,
    /// Room for the header, then the records, not compressed.
    bytes: Vec<u8>,
    count: i32,
    base_timestamp_ms: i64,
    max_timestamp_ms: i64,
}

impl BatchBuilder {
    /// A builder of batches compressed like this.
    pub fn new(compression: Compression) -> BatchBuilder {
        BatchBuilder { compression, bytes: Vec::new(), count: 0, base_timestamp_ms: 0, max_timestamp_ms: 0 }
    }

    /// Adds a record. The first one's timestamp becomes the batch's base timestamp. Headers keep their order and may
    /// repeat a key.
    ///
    /// # Errors
    /// [`BatchError::Full`] when the record can't be part of this batch (2 GiB, timestamps more than 64 bits apart); the
    /// batch is as before.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> Result<(), BatchError> {
        let full = |what| BatchError::Full { what };
        let base = if self.count == 0 { timestamp_ms } else { self.base_timestamp_ms };
        let timestamp_delta = timestamp_ms.checked_sub(base).ok_or(full("its timestamp is too far from the first"))?;
        let after = self.count.checked_add(1).ok_or(full("the count of records has reached 2^31 - 1"))?;
        let body = body_len(timestamp_delta, self.count, key, value, headers);
        let body = body.ok_or(full("a record can't have 2 GiB or more"))?;
        let room = BYTES_MAX.saturating_sub(self.bytes.len().max(HEADER_BYTES));
        if body.saturating_add(LENGTH_OVERHEAD) > room {
            return Err(full("a batch can't have 2 GiB or more"));
        }
        if self.count == 0 {
            self.bytes.resize(HEADER_BYTES, 0);
            self.base_timestamp_ms = timestamp_ms;
            self.max_timestamp_ms = timestamp_ms;
        }
        put_record(&mut self.bytes, body, timestamp_delta, self.count, key, value, headers);
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp_ms);
        self.count = after;
        Ok(())
    }

    /// How many records have been pushed since the last build.
    pub fn record_count(&self) -> i32 {
        self.count
    }

    /// True when nothing has been pushed since the last build.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch if it were built now: exact without compression, an upper guess with it.
    pub fn encoded_len_estimate(&self) -> usize {
        self.bytes.len().max(HEADER_BYTES)
    }

    /// Makes the batch, with base offset 0 and leader epoch 0 (the log assigns both), and empties the builder.
    ///
    /// # Errors
    /// [`BatchError::Empty`] without records; [`BatchError::Producer`] when the stamp contradicts itself, and then the
    /// records are kept.
    pub fn build(&mut self, stamp: ProducerStamp) -> Result<Vec<u8>, BatchError> {
        self.build_with(stamp, Vec::with_capacity)
    }

    /// As [`build`](BatchBuilder::build), with memory for the next batch from `room`: an empty buffer of so many bytes.
    pub(crate) fn build_with(
        &mut self,
        stamp: ProducerStamp,
        room: impl FnOnce(usize) -> Vec<u8>,
    ) -> Result<Vec<u8>, BatchError> {
        if self.count == 0 {
            return Err(BatchError::Empty);
        }
        super::verify::check_producer(stamp.producer_id, stamp.epoch, stamp.base_sequence, stamp.transactional)?;
        let mut batch = match self.compression {
            Compression::None => {
                // The next batch will be about as large as this one; a little more room saves moving it at the end.
                let next = room(self.bytes.len() + self.bytes.len() / 16 + HEADER_BYTES);
                debug_assert!(next.is_empty(), "records of another batch");
                std::mem::replace(&mut self.bytes, next)
            }
            codec => {
                let out = vec![0; HEADER_BYTES];
                let out = codec::compress(codec, self.bytes.get(HEADER_BYTES..).unwrap_or_default(), out)?;
                self.bytes.clear();
                out
            }
        };
        let mut header = BatchHeader {
            base_offset: 0,
            length: i32::try_from(batch.len() - LENGTH_OVERHEAD).map_err(|_| BatchError::Full { what: "2 GiB" })?,
            leader_epoch: 0,
            crc: 0,
            attributes: self.compression.codec() | if stamp.transactional { TRANSACTIONAL } else { 0 },
            last_offset_delta: self.count - 1,
            base_timestamp_ms: self.base_timestamp_ms,
            max_timestamp_ms: self.max_timestamp_ms,
            producer_id: stamp.producer_id,
            producer_epoch: stamp.epoch,
            base_sequence: stamp.base_sequence,
            record_count: self.count,
        };
        self.count = 0;
        seal(&mut batch, &mut header);
        Ok(batch)
    }
}

/// Puts another producer's stamp on a client's batch that was built before, and a fitting checksum.
///
/// # Errors
/// The bytes aren't exactly one batch, or are a control batch, or the stamp contradicts itself; the batch is as before.
pub fn restamp(batch: &mut [u8], stamp: ProducerStamp) -> Result<(), BatchError> {
    let mut header = BatchHeader::parse(batch)?;
    let (expected, found) = (header.total_bytes(), batch.len());
    if found < expected {
        return Err(BatchError::Short { expected, found });
    }
    if found > expected {
        return Err(BatchError::Trailing { extra: found - expected });
    }
    if header.is_control() {
        return Err(BatchError::Attributes { found: header.attributes, why: "a control batch keeps its stamp" });
    }
    super::verify::check_producer(stamp.producer_id, stamp.epoch, stamp.base_sequence, stamp.transactional)?;
    header.producer_id = stamp.producer_id;
    header.producer_epoch = stamp.epoch;
    header.base_sequence = stamp.base_sequence;
    header.attributes = (header.attributes & !TRANSACTIONAL) | if stamp.transactional { TRANSACTIONAL } else { 0 };
    seal(batch, &mut header);
    Ok(())
}

/// Writes the header in front of the records, with its checksum.
pub(super) fn seal(batch: &mut [u8], header: &mut BatchHeader) {
    put_header(batch, header);
    header.crc = checksum(batch);
    put_header(batch, header);
}

fn put_header(batch: &mut [u8], header: &BatchHeader) {
    header.write_to(batch.first_chunk_mut().expect("room for the header was made first"));
}
