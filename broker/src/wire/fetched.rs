//! The answer to `Fetch` in pieces, the batches among them as they lie in memory: they are never copied into one frame.
//!
//! Byte for byte what `kafka-protocol` would make of the same response, which a test compares in every version. What lies around
//! the partitions is written here, a partition itself by `kafka-protocol`, with nothing in the place of its records.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::protocol::Encodable;

use super::codec::Refused;

/// The first version with compact lengths and tagged fields.
const FLEXIBLE: i16 = 12;
/// The first version that has errors of its own, and sessions.
const SESSIONS: i16 = 7;
/// The first version that names topics by id.
const IDS: i16 = 13;
/// Smaller batches are copied: a piece of its own costs more.
const COPIED_BYTES: usize = 2 << 10;

/// The whole frame, its size in front. `records` has the batches of each partition in the order of the response, whose partitions
/// have none themselves; those with batches have no tagged fields.
///
/// # Errors
/// A field has no place in this version, or is too long for it: a mistake of ours.
pub(crate) fn pieces(
    version: i16,
    correlation: i32,
    response: &FetchResponse,
    records: &[Vec<Bytes>],
) -> Result<Vec<Bytes>, Refused> {
    let wrong = |e: &dyn std::fmt::Display| Refused::Undecodable(format!("answer to Fetch {version}: {e}"));
    let flexible = version >= FLEXIBLE;
    let lengths: Vec<usize> = records.iter().map(|batches| batches.iter().map(Bytes::len).sum()).collect();
    // A length of nothing takes one byte.
    let longer = |length: usize| length + if flexible { varint(length + 1).len() - 1 } else { 0 };
    let size = response.compute_size(version).map_err(|e| wrong(&e))?;
    let size = 4 + usize::from(flexible) + size + lengths.iter().copied().map(longer).sum::<usize>();
    let mut out = Pieces::default();
    out.open.put_i32(i32::try_from(size).map_err(|e| wrong(&e))?);
    out.open.put_i32(correlation);
    out.tags(flexible);
    out.open.put_i32(response.throttle_time_ms);
    if version >= SESSIONS {
        out.open.put_i16(response.error_code);
        out.open.put_i32(response.session_id);
    }
    out.length(flexible, response.responses.len(), Some(4));
    let mut records = records.iter().zip(lengths);
    for topic in &response.responses {
        if version >= IDS {
            out.open.extend_from_slice(topic.topic_id.as_bytes());
        } else {
            out.length(flexible, topic.topic.len(), Some(2));
            out.open.extend_from_slice(topic.topic.as_bytes());
        }
        out.length(flexible, topic.partitions.len(), Some(4));
        for partition in &topic.partitions {
            partition.encode(&mut out.open, version).map_err(|e| wrong(&e))?;
            let (batches, length) = records.next().ok_or_else(|| wrong(&"a partition too many"))?;
            if length > 0 {
                let nothing: &[u8] = if flexible { &[1, 0] } else { &[0; 4] };
                let Some(kept) = out.open.len().checked_sub(nothing.len()).filter(|at| out.open[*at..] == *nothing)
                else {
                    return Err(wrong(&"a partition with batches has records or tagged fields"));
                };
                out.open.truncate(kept);
                out.length(flexible, length, Some(4));
                batches.iter().for_each(|batch| out.batch(batch));
                out.tags(flexible);
            }
        }
        out.tags(flexible);
    }
    out.tags(flexible);
    out.cut();
    match out.bytes == 4 + size {
        true => Ok(out.done),
        false => Err(wrong(&format!("it has {} bytes, and not {}", out.bytes, 4 + size))),
    }
}

/// A length in compact form.
fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(5);
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[derive(Default)]
struct Pieces {
    done: Vec<Bytes>,
    /// What isn't a piece yet.
    open: BytesMut,
    /// Of all that is done.
    bytes: usize,
}

impl Pieces {
    /// No tagged fields, where there could be some.
    fn tags(&mut self, flexible: bool) {
        if flexible {
            self.open.put_u8(0);
        }
    }

    /// A length; in old versions of so many bytes.
    fn length(&mut self, flexible: bool, length: usize, plain: Option<usize>) {
        match plain {
            _ if flexible => self.open.extend_from_slice(&varint(length + 1)),
            Some(2) => self.open.put_i16(length as i16),
            _ => self.open.put_i32(length as i32),
        }
    }

    fn batch(&mut self, batch: &Bytes) {
        if batch.len() < COPIED_BYTES {
            self.open.extend_from_slice(batch);
            return;
        }
        self.cut();
        self.bytes += batch.len();
        self.done.push(batch.clone());
    }

    /// Makes a piece of what is open.
    fn cut(&mut self) {
        if !self.open.is_empty() {
            self.bytes += self.open.len();
            self.done.push(self.open.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData,
    };
    use kafka_protocol::messages::{ApiKey, BrokerId, ProducerId, TopicName};
    use kafka_protocol::protocol::StrBytes;
    use uuid::Uuid;

    use super::*;
    use crate::wire::apis;
    use crate::wire::codec;

    /// A response with these partitions, each with batches of these sizes, and the same with the batches inside.
    fn made(version: i16, topics: &[&[&[usize]]]) -> (FetchResponse, Vec<Vec<Bytes>>, FetchResponse) {
        let (mut without, mut within) = (FetchResponse::default().with_throttle_time_ms(7), FetchResponse::default());
        within.throttle_time_ms = 7;
        if version >= SESSIONS {
            without = without.with_session_id(77).with_error_code(0);
            within = within.with_session_id(77).with_error_code(0);
        }
        let mut records = Vec::new();
        for (n, partitions) in topics.iter().enumerate() {
            let mut topic = FetchableTopicResponse::default();
            if version >= IDS {
                topic.topic_id = Uuid::from_u128(n as u128 + 1);
            } else {
                topic.topic = TopicName(StrBytes::from_string("t".repeat(100 * n + 1)));
            }
            let (mut bare, mut full) = (topic.clone(), topic);
            for (index, sizes) in partitions.iter().enumerate() {
                let batches: Vec<Bytes> = sizes.iter().map(|size| Bytes::from(vec![*size as u8; *size])).collect();
                let aborted = AbortedTransaction::default().with_producer_id(ProducerId(5)).with_first_offset(9);
                let mut data = PartitionData::default()
                    .with_partition_index(index as i32)
                    .with_high_watermark(1 << 40)
                    .with_last_stable_offset(3)
                    .with_aborted_transactions(Some(vec![aborted; n]))
                    .with_records(Some(Bytes::new()));
                if version >= 5 {
                    data.log_start_offset = 2;
                }
                if version >= 11 {
                    data.preferred_read_replica = BrokerId(-1);
                }
                if version >= FLEXIBLE && batches.is_empty() {
                    data.diverging_epoch = EpochEndOffset::default().with_epoch(3).with_end_offset(30);
                }
                bare.partitions.push(data.clone());
                full.partitions.push(data.with_records(Some(batches.concat().into())));
                records.push(batches);
            }
            without.responses.push(bare);
            within.responses.push(full);
        }
        (without, records, within)
    }

    #[test]
    fn the_pieces_are_what_the_whole_would_be_in_every_version() {
        let large = COPIED_BYTES + 1;
        let shapes: [&[&[&[usize]]]; 6] = [
            &[],
            &[&[&[]]],
            &[&[&[70]], &[&[], &[1, 126], &[1, 127]]],
            &[&[&[large], &[], &[large, large]], &[&[large, 61, 62, large]]],
            &[&[&[1 << 20, 100], &[16_383], &[16_382], &[2_097_151]]],
            &[&[], &[&[COPIED_BYTES, COPIED_BYTES - 1]]],
        ];
        let (first, last) = apis::find(ApiKey::Fetch as i16).expect("it is served").versions;
        for version in first..=last {
            for shape in shapes {
                let (response, records, whole) = made(version, shape);
                let whole = codec::response(ApiKey::Fetch, version, 99, &whole).expect("encodable");
                let pieces = pieces(version, 99, &response, &records).expect("encodable");
                assert!(pieces.concat() == whole, "version {version}, {shape:?}");
                for batch in records.iter().flatten().filter(|batch| batch.len() >= COPIED_BYTES) {
                    assert!(pieces.iter().any(|piece| piece.as_ptr() == batch.as_ptr()), "it isn't copied");
                }
            }
        }
    }

    #[test]
    fn a_partition_that_brings_records_of_its_own_beside_batches_is_refused() {
        let (_, records, whole) = made(17, &[&[&[5_000]]]);
        assert!(pieces(17, 1, &whole, &records).is_err());
        let (response, _, _) = made(17, &[&[&[5_000], &[1]]]);
        assert!(pieces(17, 1, &response, &records).is_err(), "batches of one of two partitions");
    }
}
