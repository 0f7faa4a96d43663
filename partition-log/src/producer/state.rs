//! What one partition remembers of one producer.

use std::collections::VecDeque;

use crate::codec::{Cursor, Malformed, Put};

/// Batches remembered per producer and partition: as many as a client may have in flight.
pub(crate) const WINDOW: usize = 5;

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) first_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) base_offset: u64,
    pub(crate) last_offset: u64,
}

/// A producer's epoch and its newest batches, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) epoch: i16,
    pub(crate) window: VecDeque<Appended>,
    /// The log's wall clock at the last batch or marker.
    pub(crate) wall: i64,
}

impl ProducerState {
    /// Takes note of a batch. A new epoch empties the window.
    pub(crate) fn append(&mut self, epoch: i16, batch: Appended, wall: i64) {
        self.enter(epoch, wall);
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(batch);
    }

    /// Takes note of a marker: the same epoch keeps the window.
    pub(crate) fn mark(&mut self, epoch: i16, wall: i64) {
        self.enter(epoch, wall);
    }

    fn enter(&mut self, epoch: i16, wall: i64) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.window.clear();
        }
        self.wall = wall;
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_i16(self.epoch);
        out.put_i64(self.wall);
        out.put_len(self.window.len());
        for batch in &self.window {
            out.put_i32(batch.first_sequence);
            out.put_i32(batch.last_sequence);
            out.put_u64(batch.base_offset);
            out.put_u64(batch.last_offset);
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<ProducerState, Malformed> {
        let (epoch, wall) = (cursor.i16("producer epoch")?, cursor.i64("producer time")?);
        let len = cursor.len(24, "producer window")?;
        if len > WINDOW {
            return Err(cursor.malformed("producer window"));
        }
        let mut window = VecDeque::with_capacity(WINDOW);
        for _ in 0..len {
            window.push_back(Appended {
                first_sequence: cursor.i32("sequence")?,
                last_sequence: cursor.i32("sequence")?,
                base_offset: cursor.u64("offset")?,
                last_offset: cursor.u64("offset")?,
            });
        }
        Ok(ProducerState { epoch, window, wall })
    }
}
