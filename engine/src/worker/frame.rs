//! What travels on a timely edge: one frame is one timely container.
//!
//! Timely counts records before they are divided among workers, and a contract must not change that count. A control frame
//! is delivered to every peer, so it is emitted with weight = peers and delivered as peers frames of weight 1.

use timely::Accountable;
use timely::bytes::arc::Bytes;
use timely::dataflow::channels::ContainerBytes;

use crate::element::{Batch, Body};
use crate::id::CheckpointId;
use crate::time::EventTime;

/// A frame and its sender.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// The sending worker: timely's input handles don't show it.
    pub(crate) from: u32,
    /// What a control frame counts in timely's progress tracking.
    pub(crate) weight: u32,
    pub(crate) body: Body,
}

// Timely asks for `Clone` where one output feeds several inputs. Here every output feeds one.
impl Clone for Frame {
    fn clone(&self) -> Self {
        let body = self.body.control_copy().expect("an output has one reader; forks are operators");
        Frame { from: self.from, weight: self.weight, body }
    }
}

impl Frame {
    pub(crate) fn records(from: u32, batch: Batch) -> Frame {
        Frame { from, weight: 0, body: Body::Records(batch) }
    }
}

impl Accountable for Frame {
    #[inline]
    fn record_count(&self) -> i64 {
        match &self.body {
            Body::Empty => 0,
            Body::Records(batch) => i64::try_from(batch.len()).expect("a batch fits in memory"),
            _ => i64::from(self.weight),
        }
    }
}

/// A frame between processes: five little-endian u64 (kind, from, weight, number, payload bytes), the payload, zeros to a
/// multiple of eight. Only ever read by a process of the same attempt and build.
const HEAD_BYTES: usize = 40;

const KIND_EMPTY: u64 = 0;
const KIND_RECORDS: u64 = 1;
const KIND_WATERMARK: u64 = 2;
const KIND_IDLE: u64 = 3;
const KIND_ACTIVE: u64 = 4;
const KIND_BARRIER: u64 = 5;
const KIND_END: u64 = 6;

impl Frame {
    fn payload(&self) -> Vec<u8> {
        let mut bytes = vec![];
        if let Body::Records(batch) = &self.body {
            batch.encode(&mut bytes).expect("only exchanges lead to another process, and their batches encode");
        }
        bytes
    }
}

impl ContainerBytes for Frame {
    fn from_bytes(bytes: Bytes) -> Self {
        let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        let (kind, number, length) = (word(0), word(3), word(4));
        let body = match kind {
            KIND_EMPTY => Body::Empty,
            KIND_RECORDS => {
                let payload = bytes[HEAD_BYTES..HEAD_BYTES + usize::try_from(length).expect("64 bits")].to_vec();
                Body::Records(Batch::encoded(usize::try_from(number).expect("64 bits"), payload))
            }
            KIND_WATERMARK => Body::Watermark(EventTime(number.cast_signed())),
            KIND_IDLE => Body::Idle,
            KIND_ACTIVE => Body::Active,
            KIND_BARRIER => Body::Barrier(CheckpointId(number)),
            KIND_END => Body::End,
            other => panic!("frame of unknown kind {other}: the processes of this attempt run different builds"),
        };
        let narrow = |word: u64| u32::try_from(word).expect("the sender wrote 32 bits");
        Frame { from: narrow(word(1)), weight: narrow(word(2)), body }
    }

    fn length_in_bytes(&self) -> usize {
        HEAD_BYTES + self.payload().len().next_multiple_of(8)
    }

    fn into_bytes<W: std::io::Write>(&self, writer: &mut W) {
        let payload = self.payload();
        let (kind, number) = match &self.body {
            Body::Empty => (KIND_EMPTY, 0),
            Body::Records(batch) => (KIND_RECORDS, batch.len() as u64),
            Body::Watermark(t) => (KIND_WATERMARK, t.0.cast_unsigned()),
            Body::Idle => (KIND_IDLE, 0),
            Body::Active => (KIND_ACTIVE, 0),
            Body::Barrier(n) => (KIND_BARRIER, n.0),
            Body::End => (KIND_END, 0),
        };
        let head = [kind, u64::from(self.from), u64::from(self.weight), number, payload.len() as u64];
        let padding = payload.len().next_multiple_of(8) - payload.len();
        let mut write = |bytes: &[u8]| writer.write_all(bytes).expect("timely gave a buffer of the length asked for");
        head.iter().for_each(|word| write(&word.to_le_bytes()));
        write(&payload);
        write(&[0; 8][..padding]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_way_to_another_process() {
        let bodies = [
            Body::Records(Batch::wire(vec![1u64, 2, 3])),
            Body::Watermark(EventTime(-5)),
            Body::Idle,
            Body::Active,
            Body::Barrier(CheckpointId(9)),
            Body::End,
        ];
        for body in bodies {
            let frame = Frame { from: 3, weight: 2, body };
            let mut bytes = vec![];
            frame.into_bytes(&mut bytes);
            assert_eq!(bytes.len(), frame.length_in_bytes());
            let back = Frame::from_bytes(timely::bytes::arc::BytesMut::from(bytes).freeze());
            assert_eq!((back.from, back.weight, back.record_count()), (3, 2, frame.record_count()));
            match (back.body, frame.body) {
                (Body::Records(b), Body::Records(_)) => assert_eq!(b.take_wire::<u64>(), [1, 2, 3]),
                (b, a) => assert_eq!(format!("{b:?}"), format!("{a:?}")),
            }
        }
    }
}
