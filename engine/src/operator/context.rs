//! What an operator may touch while it handles a frame: its output, its counters, its watermark.

use std::collections::VecDeque;
use std::time::Duration;

use crate::checkpoint::Counters;
use crate::element::{Batch, Body};
use crate::time::Watermark;

/// What an operator produced in one call, in order.
#[derive(Debug)]
pub(crate) enum Produced {
    /// Records for one output port.
    Records(usize, Batch),
    /// A control frame for all output ports.
    Control(Body),
}

/// The operator's side of its driver.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) produced: &'a mut VecDeque<Produced>,
    pub(crate) room: &'a mut usize,
    pub(crate) counters: &'a mut Counters,
    pub(crate) watermark: Watermark,
    pub(crate) batch_records: usize,
    pub(crate) now: Duration,
    pub(crate) wake_after: &'a mut Option<Duration>,
}

impl Context<'_> {
    /// Emits records of an edge within one worker or to an exchange (the router there makes batches for the wire).
    pub fn emit<T: Send + 'static>(&mut self, port: usize, records: Vec<T>) {
        if records.is_empty() {
            return;
        }
        *self.room = self.room.saturating_sub(records.len());
        if let Some(emitted) = self.counters.emitted.get_mut(port) {
            *emitted += records.len() as u64;
        }
        self.produced.push_back(Produced::Records(port, Batch::local(records)));
    }

    /// Promises on all outputs that no record below `watermark` will follow.
    pub fn watermark(&mut self, watermark: Watermark) {
        self.produced.push_back(Produced::Control(Body::Watermark(watermark)));
    }

    /// Says on all outputs that there is no data for now.
    pub fn idle(&mut self) {
        self.produced.push_back(Produced::Control(Body::Idle));
    }

    /// Takes back [`Context::idle`].
    pub fn active(&mut self) {
        self.produced.push_back(Produced::Control(Body::Active));
    }

    /// Records that may still be emitted in this call. An operator with more to say answers
    /// [`Flow::Pending`](super::Flow::Pending) when this is 0.
    pub fn room(&self) -> usize {
        *self.room
    }

    /// The size of batch to aim at.
    pub fn batch_records(&self) -> usize {
        self.batch_records
    }

    /// Processing time: how long the process has been running. Not the time of any record; two attempts see different times, so
    /// it may decide *when* something is said and never *what*.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Asks for a call of [`Operator::on_wake`](super::Operator::on_wake) after at most this long; an earlier wish stays.
    pub fn wake_after(&mut self, how_long: Duration) {
        *self.wake_after = Some(self.wake_after.map_or(how_long, |other| other.min(how_long)));
    }

    /// The merged watermark of the inputs.
    pub fn input_watermark(&self) -> Watermark {
        self.watermark
    }

    /// Counts of this instance; see [`Counters`].
    pub fn counters(&mut self) -> &mut Counters {
        self.counters
    }
}
