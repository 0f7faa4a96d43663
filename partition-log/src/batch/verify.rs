//! What is refused: from a client before it is appended, from a disk before it is believed.

use super::format::{ATTRIBUTES_KNOWN, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, NONE};
use super::header::checksum;
use super::{BatchError, BatchHeader, Limits, records};

/// Checks a batch that a client wants appended, by Kafka's rules for produce requests of version 3 and later.
///
/// `bytes` must be exactly one batch of format 2 within the limits, with a fitting checksum and a known codec; not a
/// control batch; with at least one record, offset deltas 0, 1, ... and a last offset delta to match; a producer id
/// brings epoch and sequence, and a transaction needs a producer id. Compressed records are decompressed to look.
/// Base offset and leader epoch are ignored, the log assigns them. The largest timestamp of the header is not compared
/// with the records', because clients in use leave it unset; the log puts it right when it accepts the batch.
///
/// # Errors
/// What is wrong with it.
pub fn verify(bytes: &[u8], limits: &Limits) -> Result<BatchHeader, BatchError> {
    verify_and_look(bytes, limits).map(|(header, _)| header)
}

/// As [`verify`], and puts the records' largest timestamp into the header if something else is there, with a fitting
/// checksum: readers look for times by it (Kafka does the same at its entrance).
///
/// # Errors
/// As [`verify`]; the batch is as before.
pub(crate) fn accept(bytes: &mut [u8], limits: &Limits) -> Result<BatchHeader, BatchError> {
    let (mut header, largest) = verify_and_look(bytes, limits)?;
    if header.max_timestamp_ms != largest {
        header.max_timestamp_ms = largest;
        super::encode::seal(bytes, &mut header);
    }
    Ok(header)
}

/// The header of a good batch, and its records' largest timestamp.
fn verify_and_look(bytes: &[u8], limits: &Limits) -> Result<(BatchHeader, i64), BatchError> {
    if bytes.len() > limits.batch_bytes {
        return Err(BatchError::TooLarge { bytes: bytes.len(), limit: limits.batch_bytes });
    }
    let header = verify_stored(bytes, limits)?;
    if bytes.len() > header.total_bytes() {
        return Err(BatchError::Trailing { extra: bytes.len() - header.total_bytes() });
    }
    check_client_attributes(header.attributes)?;
    if header.record_count < 1 || header.last_offset_delta != header.record_count - 1 {
        return Err(bad_count(&header, "a client's batch has n >= 1 records and last offset delta n - 1"));
    }
    check_producer(header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional())?;
    // Whatever base offset the client wrote must not make the walk overflow.
    let walk = records(bytes, limits)?.rebased();
    let mut largest = i64::MIN;
    for record in &walk {
        largest = largest.max(record?.timestamp_ms);
    }
    Ok((header, largest))
}

/// Checks the stored batch at the front of `bytes`: whole, of format 2, within the limits, undamaged. More may follow.
///
/// Weaker than [`verify`]: control batches and gaps in the offsets are fine, and the records are not walked.
///
/// # Errors
/// What is wrong with it.
pub fn verify_stored(bytes: &[u8], limits: &Limits) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let total = header.total_bytes();
    if total > limits.batch_bytes {
        return Err(BatchError::TooLarge { bytes: total, limit: limits.batch_bytes });
    }
    let batch = bytes.get(..total).ok_or(BatchError::Short { expected: total, found: bytes.len() })?;
    let found = checksum(batch);
    if found != header.crc {
        return Err(BatchError::Crc { expected: header.crc, found });
    }
    if header.record_count < 0 || header.record_count - 1 > header.last_offset_delta || header.last_offset_delta < 0 {
        return Err(bad_count(&header, "n records need a last offset delta of n - 1 or more"));
    }
    header.compression()?;
    Ok(header)
}

fn bad_count(header: &BatchHeader, why: &'static str) -> BatchError {
    BatchError::Count { count: header.record_count, last_offset_delta: header.last_offset_delta, why }
}

fn check_client_attributes(found: i16) -> Result<(), BatchError> {
    let why = if found & CONTROL != 0 {
        "a client can't write a control batch"
    } else if found & LOG_APPEND_TIME != 0 {
        "a client can't set the time of appending"
    } else if found & DELETE_HORIZON != 0 {
        "a client can't set a delete horizon"
    } else if found & !ATTRIBUTES_KNOWN != 0 {
        "a reserved bit is set"
    } else {
        return Ok(());
    };
    Err(BatchError::Attributes { found, why })
}

/// Checks that the fields that name a producer fit each other.
pub(super) fn check_producer(
    producer_id: i64,
    epoch: i16,
    sequence: i32,
    transactional: bool,
) -> Result<(), BatchError> {
    let why = if producer_id >= 0 && (epoch < 0 || sequence < 0) {
        "a producer id needs an epoch and a sequence"
    } else if producer_id < i64::from(NONE) {
        "a producer id is -1 or more"
    } else if producer_id < 0 && transactional {
        "a transaction needs a producer id"
    } else {
        return Ok(());
    };
    Err(BatchError::Producer { producer_id, epoch, sequence, why })
}
