//! Barriers that may overtake records, of one operator instance, as a pure state machine: when to cut, which channels are held,
//! and which frames are the cut's *channel state*.
//!
//! The promise (I-4): for each checkpoint n, on every channel, what was processed before the cut for n and then what was
//! recorded for n is together exactly what stands before Barrier(n), in its order; provided the caller
//!
//! * says of each barrier and each `End` when it *arrives* in the channel's queue, and of each that is still in the queue when
//!   it is *reached*, both in the channel's order;
//! * processes nothing from a channel that is [held](Overtaker::held);
//! * at [`Overtaker::overtake`] records what stands before the barrier in the queue of each channel that wasn't held, and
//!   from then on every frame that arrives on a channel that [is recorded](Overtaker::records); and takes the barrier out
//!   of the queue, where it has lost its meaning.
//!
//! Invariants:
//!
//! * Barriers on a channel arrive rising by one; nothing follows an `End`, which counts as all barriers to come.
//! * One checkpoint is recorded at a time. The next cut comes only when the barrier of the last one has arrived everywhere: a
//!   channel that is ahead is held meanwhile. As every instance forwards a barrier at once, that isn't long.
//! * A *fixed* channel is never overtaken: its records have no bytes. The cut waits until its barrier is reached, as in
//!   [`Aligner`](super::Aligner).
//! * Without [`Overtaker::overtake`] it decides as `Aligner` does: that is "aligned, until it takes too long".
//!
//! Not here: the clock that says when it has taken too long, the queues, the bytes.
//!
//! Source: Flink's FLIP-76 *Unaligned Checkpoints* (2020), after Chandy and Lamport 1985, whose channel state this is.

use crate::barrier::{AlignError, Alignment};
use crate::exchange::ChannelIndex;
use crate::id::CheckpointId;

/// What the caller does with a barrier that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Put it in its place in the queue.
    Queue,
    /// The cut was before it: what came before it is recorded, and it has no further meaning.
    Passed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Processing is before its next barrier.
    Open,
    /// Processing has come to the barrier of the next cut.
    Held,
    /// Processing has come to the end.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Channel {
    /// The barrier that arrives next; `None` when the end has arrived.
    arrives: Option<CheckpointId>,
    at: At,
    /// Whether its frames can be recorded.
    fixed: bool,
}

impl Channel {
    fn has_arrived(&self, n: CheckpointId) -> bool {
        self.arrives.is_none_or(|next| next > n)
    }
}

/// Decides cuts that need not wait for every channel's barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Overtaker {
    channels: Vec<Channel>,
    /// The next to be cut.
    next: CheckpointId,
    /// Before this one, nothing is overtaken.
    overtakes_from: CheckpointId,
    /// Cut, and its barrier hasn't arrived everywhere: `next - 1`.
    recording: Option<CheckpointId>,
}

impl Overtaker {
    /// `fixed` says of each channel whether its frames can't be recorded; `first` is the number of the first barrier;
    /// barriers before `overtakes_from` are aligned always.
    ///
    /// # Panics
    /// Without channels.
    pub fn new(fixed: &[bool], first: CheckpointId, overtakes_from: CheckpointId) -> Overtaker {
        assert!(!fixed.is_empty(), "an operator without input channels has nothing to cut");
        let channel = |fixed: &bool| Channel { arrives: Some(first), at: At::Open, fixed: *fixed };
        Overtaker { channels: fixed.iter().map(channel).collect(), next: first, overtakes_from, recording: None }
    }

    /// Barrier(`found`) has arrived on `channel`.
    ///
    /// # Errors
    /// If it can't follow what came before; nothing has changed then.
    pub fn arrived(&mut self, channel: ChannelIndex, found: CheckpointId) -> Result<Arrival, AlignError> {
        let recording = self.recording;
        let state = self.channel(channel)?;
        match state.arrives {
            None => return Err(AlignError::AfterEnd { channel }),
            Some(expected) if found < expected => return Err(AlignError::Repeated { channel, expected, found }),
            Some(expected) if found > expected => return Err(AlignError::Skipped { channel, expected, found }),
            Some(_) => state.arrives = Some(found.next()),
        }
        if recording == Some(found) {
            self.close_if_recorded();
            return Ok(Arrival::Passed);
        }
        Ok(Arrival::Queue)
    }

    /// The end of `channel` has arrived.
    ///
    /// # Errors
    /// If it had arrived before.
    pub fn end_arrived(&mut self, channel: ChannelIndex) -> Result<(), AlignError> {
        let state = self.channel(channel)?;
        if state.arrives.take().is_none() {
            return Err(AlignError::AfterEnd { channel });
        }
        self.close_if_recorded();
        Ok(())
    }

    /// Processing has come to Barrier(`found`) on `channel`.
    ///
    /// # Errors
    /// If it isn't the next one there; nothing has changed then.
    pub fn reached(&mut self, channel: ChannelIndex, found: CheckpointId) -> Result<Alignment, AlignError> {
        let expected = self.next;
        let state = self.processable(channel)?;
        if found < expected || !state.has_arrived(found) {
            return Err(AlignError::Repeated { channel, expected, found });
        }
        if found > expected {
            return Err(AlignError::Skipped { channel, expected, found });
        }
        state.at = At::Held;
        Ok(self.overdue().map_or(Alignment::Wait, Alignment::Cut))
    }

    /// Processing has come to the end of `channel`.
    ///
    /// # Errors
    /// If it had before, or if the channel is held; nothing has changed then.
    pub fn end_reached(&mut self, channel: ChannelIndex) -> Result<Alignment, AlignError> {
        self.processable(channel)?.at = At::Ended;
        if self.channels.iter().all(|channel| channel.at == At::Ended) {
            return Ok(Alignment::Ended);
        }
        Ok(self.overdue().map_or(Alignment::Wait, Alignment::Cut))
    }

    /// The next checkpoint, if every channel has been processed up to its barrier; taken. Due also when the one before has been
    /// recorded to its end, with no further event.
    pub fn overdue(&mut self) -> Option<CheckpointId> {
        let aligned = self.recording.is_none()
            && self.channels.iter().any(|channel| channel.at == At::Held)
            && self.channels.iter().all(|channel| channel.at != At::Open);
        aligned.then(|| self.cut())
    }

    /// The checkpoint that [`Overtaker::overtake`] would cut now: its barrier has arrived on some channel, and nothing that can't
    /// be recorded stands before it.
    pub fn overtakable(&self) -> Option<CheckpointId> {
        let n = self.coming()?;
        let free = |channel: &Channel| !channel.fixed || channel.at != At::Open;
        let may = self.recording.is_none() && n >= self.overtakes_from && self.channels.iter().all(free);
        may.then_some(n)
    }

    /// The checkpoint whose barrier has arrived on some channel and that isn't cut.
    pub fn coming(&self) -> Option<CheckpointId> {
        let n = self.next;
        let arrived = |channel: &Channel| channel.arrives.is_some_and(|next| next > n) || channel.at == At::Held;
        self.channels.iter().any(arrived).then_some(n)
    }

    /// Cuts before the records that hold the barrier up: snapshot, forward Barrier(n) on all outputs in one step, and record what
    /// stands before it in the queues. `None` if there is nothing to overtake.
    pub fn overtake(&mut self) -> Option<CheckpointId> {
        let n = self.overtakable()?;
        self.cut();
        self.recording = Some(n);
        self.close_if_recorded();
        Some(n)
    }

    /// Whether a frame that arrives on `channel` now belongs to the channel state that is being recorded.
    pub fn records(&self, channel: ChannelIndex) -> bool {
        let state = self.channels.get(channel.index());
        self.recording.is_some_and(|n| state.is_some_and(|state| !state.has_arrived(n)))
    }

    /// The checkpoint whose barrier is still to arrive on some channel after its cut.
    pub fn recording(&self) -> Option<CheckpointId> {
        self.recording
    }

    /// The checkpoint that waits for barriers, and the channels whose barrier is missing: to be recorded to its end, or else to be
    /// reached.
    pub fn awaited(&self) -> Option<(CheckpointId, Vec<ChannelIndex>)> {
        let missing = |is_missing: &dyn Fn(&Channel) -> bool| {
            (0u32..)
                .zip(&self.channels)
                .filter(|(_, channel)| is_missing(channel))
                .map(|(i, _)| ChannelIndex(i))
                .collect()
        };
        match self.recording {
            Some(n) => Some((n, missing(&|channel| !channel.has_arrived(n)))),
            None => self.coming().map(|n| (n, missing(&|channel| channel.at == At::Open))),
        }
    }

    /// Whether the frames of `channel` must wait.
    pub fn held(&self, channel: ChannelIndex) -> bool {
        self.channels.get(channel.index()).is_some_and(|state| state.at == At::Held)
    }

    /// The checkpoint that is cut next.
    pub fn next(&self) -> CheckpointId {
        self.next
    }

    fn cut(&mut self) -> CheckpointId {
        for channel in self.channels.iter_mut().filter(|channel| channel.at == At::Held) {
            channel.at = At::Open;
        }
        let cut = self.next;
        self.next = cut.next();
        cut
    }

    fn close_if_recorded(&mut self) {
        if self.recording.is_some_and(|n| self.channels.iter().all(|channel| channel.has_arrived(n))) {
            self.recording = None;
        }
    }

    fn channel(&mut self, channel: ChannelIndex) -> Result<&mut Channel, AlignError> {
        let channels = self.channels.len();
        self.channels.get_mut(channel.index()).ok_or(AlignError::NoSuchChannel { channel, channels })
    }

    fn processable(&mut self, channel: ChannelIndex) -> Result<&mut Channel, AlignError> {
        let aligning = self.next;
        let state = self.channel(channel)?;
        match state.at {
            At::Open => Ok(state),
            At::Held => Err(AlignError::WhileHeld { channel, aligning }),
            At::Ended => Err(AlignError::AfterEnd { channel }),
        }
    }
}

#[cfg(test)]
#[path = "unaligned_tests.rs"]
mod tests;
