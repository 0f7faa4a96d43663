//! Control batches: how the log writes into a partition that a transaction has ended.

use super::encode::seal;
use super::format::{CODEC_NONE, CONTROL, HEADER_BYTES, LENGTH_OVERHEAD, NONE, TRANSACTIONAL};
use super::record::{body_len, put_record};
use super::{BatchError, BatchHeader, Limits, records};

/// Version of the control record's key and of its value.
const VERSION: i16 = 0;
const TYPE_ABORT: i16 = 0;
const TYPE_COMMIT: i16 = 1;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlKind {
    /// Its records count.
    Commit,
    /// Its records never were.
    Abort,
}

/// The marker that ends a producer's transaction in one partition: a batch of one record, base offset 0 for the log to
/// assign. It takes one offset.
pub fn control_batch(
    kind: ControlKind,
    producer_id: i64,
    epoch: i16,
    coordinator_epoch: i32,
    timestamp_ms: i64,
) -> Vec<u8> {
    let code = match kind {
        ControlKind::Abort => TYPE_ABORT,
        ControlKind::Commit => TYPE_COMMIT,
    };
    let mut key = [0; 4];
    key[..2].copy_from_slice(&VERSION.to_be_bytes());
    key[2..].copy_from_slice(&code.to_be_bytes());
    let mut value = [0; 6];
    value[..2].copy_from_slice(&VERSION.to_be_bytes());
    value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
    let body = body_len(0, 0, Some(&key), Some(&value), &[]).expect("ten bytes are no 2 GiB");
    // In one piece: a length of so few bytes takes one.
    let mut batch = Vec::with_capacity(HEADER_BYTES + 1 + body);
    batch.resize(HEADER_BYTES, 0);
    put_record(&mut batch, body, 0, 0, Some(&key), Some(&value), &[]);
    let mut header = BatchHeader {
        base_offset: 0,
        length: (batch.len() - LENGTH_OVERHEAD) as i32,
        leader_epoch: 0,
        crc: 0,
        attributes: CODEC_NONE | TRANSACTIONAL | CONTROL,
        last_offset_delta: 0,
        base_timestamp_ms: timestamp_ms,
        max_timestamp_ms: timestamp_ms,
        producer_id,
        producer_epoch: epoch,
        base_sequence: i32::from(NONE),
        record_count: 1,
    };
    seal(&mut batch, &mut header);
    batch
}

/// What the batch at the front of `bytes` says: `None` when it isn't a control batch, or is one of a type that has
/// nothing to do with transactions. The checksum is not looked at.
///
/// # Errors
/// The batch or its control record isn't well formed.
pub fn control_kind(bytes: &[u8]) -> Result<Option<ControlKind>, BatchError> {
    if !BatchHeader::parse(bytes)?.is_control() {
        return Ok(None);
    }
    let records = records(bytes, &Limits::DEFAULT)?;
    let record = records.iter().next().ok_or(BatchError::Control { what: "it is missing" })??;
    let key = record.key.ok_or(BatchError::Control { what: "it has no key" })?;
    let (version, rest) = key.split_first_chunk().ok_or(BatchError::Control { what: "its key has no version" })?;
    let code = rest.first_chunk().ok_or(BatchError::Control { what: "its key has no type" })?;
    if i16::from_be_bytes(*version) < VERSION {
        return Err(BatchError::Control { what: "its version is negative" });
    }
    Ok(match i16::from_be_bytes(*code) {
        TYPE_ABORT => Some(ControlKind::Abort),
        TYPE_COMMIT => Some(ControlKind::Commit),
        _ => None,
    })
}
