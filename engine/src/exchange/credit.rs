//! Back-pressure on one edge, seen from the sender: how much may be under way to each receiver.
//!
//! The promise: what is under way to a receiver and not yet *processed* there is bounded, whatever the input does
//! (I-9), and yet no barrier ever waits for a record.
//!
//! * A record costs one unit, and so does a watermark, `Idle` or `Active`. Units come back when the frame has been
//!   processed, not when it was pulled: what an operator keeps in the queue of a held channel is still under way.
//! * A sender may send while [`EdgeCredit::open`]: every receiver has less than the limit under way. The last batch may
//!   overshoot, so that a batch larger than what is left never needs to be split: at most limit - 1 + one batch is
//!   under way.
//! * Barriers and `End` never wait. They have an allowance instead: concurrent checkpoints + 1 barriers and one `End`
//!   per receiver. To exceed it is an error of this program. What [`SignalCoalescer`](super::SignalCoalescer) flushes
//!   before a barrier or `End` (at most two frames) is sent with them and costs units like any other signal, even above
//!   the limit.
//!
//! Together with "a barrier goes to all outputs in one step" this can't deadlock, diamonds included; `credit_tests.rs`
//! shows it by visiting every state of a small model. Gating is per input and sits in the operator, never in the
//! puller: a gated puller would hold back barriers.

/// Why an event can't be. Always an error of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    /// More came back than is under way.
    #[error("receiver {receiver} returned {returned} units, but only {outstanding} are under way")]
    TooMuchReturned {
        /// Which receiver.
        receiver: usize,
        /// What it says it has processed.
        returned: u64,
        /// What it can have.
        outstanding: u64,
    },
    /// More barriers came back than are under way.
    #[error("receiver {receiver} returned {returned} barriers, but only {outstanding} are under way")]
    TooManyBarriersReturned {
        /// Which receiver.
        receiver: usize,
        /// What it says it has processed.
        returned: u32,
        /// What it can have.
        outstanding: u32,
    },
    /// Records were sent although the edge was closed.
    #[error("records were sent to receiver {receiver} although {outstanding} units of at most {limit} were under way")]
    Closed {
        /// Which receiver.
        receiver: usize,
        /// What was under way.
        outstanding: u64,
        /// The limit.
        limit: u64,
    },
    /// More barriers are under way than checkpoints can be open.
    #[error(
        "a barrier was sent while {outstanding} were under way to receiver {receiver}; the allowance is {allowance}"
    )]
    BarrierAllowance {
        /// Which receiver.
        receiver: usize,
        /// What was under way.
        outstanding: u32,
        /// The allowance.
        allowance: u32,
    },
    /// Something was sent after the end.
    #[error("a frame was sent after End")]
    AfterEnd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Receiver {
    units: u64,
    barriers: u32,
}

/// What a receiver has processed since it last said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Processed {
    /// Records, plus one for each watermark, `Idle` or `Active`.
    pub units: u64,
    /// Barriers.
    pub barriers: u32,
}

/// The credit of one sender on one edge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EdgeCredit {
    receivers: Vec<Receiver>,
    limit: u64,
    allowance: u32,
    /// How many receivers are at the limit or above.
    closed: usize,
    ended: bool,
}

impl EdgeCredit {
    /// `limit` is in records per receiver; `concurrent_checkpoints` is how many can be between trigger and completion.
    ///
    /// # Panics
    ///
    /// If the limit is 0 (nothing could ever be sent), or without receivers.
    pub fn new(receivers: usize, limit: u64, concurrent_checkpoints: u32) -> EdgeCredit {
        assert!(limit > 0, "a limit of 0 records lets nothing through");
        assert!(receivers > 0, "an edge without receivers leads nowhere");
        EdgeCredit {
            receivers: vec![Receiver::default(); receivers],
            limit,
            allowance: concurrent_checkpoints + 1,
            closed: 0,
            ended: false,
        }
    }

    /// Whether records and signals may be sent: every receiver is below the limit. It is asked for all together because
    /// the sender can't know where the records of its next input will go.
    pub fn open(&self) -> bool {
        self.closed == 0
    }

    /// What is under way to a receiver, in units.
    ///
    /// # Panics
    ///
    /// If there is no such receiver.
    pub fn outstanding(&self, receiver: usize) -> u64 {
        self.receivers[receiver].units
    }

    /// A batch of `records` leaves for `receiver`.
    ///
    /// # Errors
    ///
    /// If that receiver was closed, or the edge has ended; nothing has changed then.
    ///
    /// # Panics
    ///
    /// If there is no such receiver.
    pub fn send_records(&mut self, receiver: usize, records: u64) -> Result<(), CreditError> {
        let outstanding = self.receivers[receiver].units;
        if self.ended {
            return Err(CreditError::AfterEnd);
        }
        if outstanding >= self.limit {
            return Err(CreditError::Closed { receiver, outstanding, limit: self.limit });
        }
        self.add(receiver, records);
        Ok(())
    }

    /// A further batch of a call that began while the edge was open leaves: one call may make several batches, and what
    /// a router had open joins them, so what is under way is bounded by the limit plus what one call produces.
    ///
    /// # Errors
    ///
    /// If the edge has ended.
    ///
    /// # Panics
    ///
    /// If there is no such receiver.
    pub fn send_more(&mut self, receiver: usize, records: u64) -> Result<(), CreditError> {
        if self.ended {
            return Err(CreditError::AfterEnd);
        }
        self.add(receiver, records);
        Ok(())
    }

    /// How many records may leave for every receiver before the edge closes.
    pub fn room(&self) -> u64 {
        self.receivers.iter().map(|r| self.limit.saturating_sub(r.units)).min().unwrap_or(0)
    }

    /// `frames` watermarks, `Idle` or `Active` leave for every receiver.
    ///
    /// # Errors
    ///
    /// If the edge has ended.
    pub fn send_signals(&mut self, frames: u64) -> Result<(), CreditError> {
        if self.ended {
            return Err(CreditError::AfterEnd);
        }
        for receiver in 0..self.receivers.len() {
            self.add(receiver, frames);
        }
        Ok(())
    }

    /// A barrier leaves for every receiver, whether the edge is open or not.
    ///
    /// # Errors
    ///
    /// If that exceeds the allowance, or the edge has ended; nothing has changed then.
    pub fn send_barrier(&mut self) -> Result<(), CreditError> {
        if self.ended {
            return Err(CreditError::AfterEnd);
        }
        if let Some(receiver) = self.receivers.iter().position(|r| r.barriers >= self.allowance) {
            let outstanding = self.receivers[receiver].barriers;
            return Err(CreditError::BarrierAllowance { receiver, outstanding, allowance: self.allowance });
        }
        for receiver in &mut self.receivers {
            receiver.barriers += 1;
        }
        Ok(())
    }

    /// `End` leaves for every receiver, whether the edge is open or not.
    ///
    /// # Errors
    ///
    /// If it has left before.
    pub fn send_end(&mut self) -> Result<(), CreditError> {
        if self.ended {
            return Err(CreditError::AfterEnd);
        }
        self.ended = true;
        Ok(())
    }

    /// A receiver has processed something. True if that opened the edge: the operator should be activated.
    ///
    /// # Errors
    ///
    /// If it returned more than is under way; nothing has changed then.
    ///
    /// # Panics
    ///
    /// If there is no such receiver.
    pub fn give_back(&mut self, receiver: usize, processed: Processed) -> Result<bool, CreditError> {
        let Receiver { units, barriers } = self.receivers[receiver];
        if processed.units > units {
            return Err(CreditError::TooMuchReturned { receiver, returned: processed.units, outstanding: units });
        }
        if processed.barriers > barriers {
            let returned = processed.barriers;
            return Err(CreditError::TooManyBarriersReturned { receiver, returned, outstanding: barriers });
        }
        let left = units - processed.units;
        self.receivers[receiver] = Receiver { units: left, barriers: barriers - processed.barriers };
        if units >= self.limit && left < self.limit {
            self.closed -= 1;
            return Ok(self.closed == 0);
        }
        Ok(false)
    }

    fn add(&mut self, receiver: usize, units: u64) {
        let state = &mut self.receivers[receiver];
        let was_open = state.units < self.limit;
        state.units += units;
        if was_open && state.units >= self.limit {
            self.closed += 1;
        }
    }
}

#[cfg(test)]
#[path = "credit_tests.rs"]
mod tests;
