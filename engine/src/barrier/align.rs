//! Aligned barriers of one operator instance, as a pure state machine: which channels are held, and when to cut.
//!
//! The promise: when [`Alignment::Cut`] comes for checkpoint n, the instance has processed exactly the records before
//! Barrier(n) on every input channel, and none after it (I-4), provided the caller
//!
//! * reports the frames of each channel in their order, and
//! * processes nothing from a channel that is [held](Aligner::held).
//!
//! Invariants:
//!
//! * A channel is held from its Barrier(n) until the cut for n; so at most one checkpoint is being aligned.
//! * Barriers on a channel rise by one; nothing follows an `End`. Anything else is an error of this program, named and
//!   never passed over, because a cut in the wrong place would be silent.
//! * An `End` counts as a barrier that has come. By the design's rule for the end of input it never has to decide an
//!   alignment; it is a safeguard, and without it a forgotten rule would be a job that hangs.
//! * Without barriers (at-most-once) nothing is ever held.
//!
//! Not here: the queues of held channels, and the snapshot.

use crate::exchange::ChannelIndex;
use crate::id::CheckpointId;

/// What the caller does after a barrier or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Go on with the channels that aren't held.
    Wait,
    /// Every channel has come to the barrier: snapshot, forward Barrier(n) on all outputs in one step, then process the
    /// channels again, none of which is held any more.
    Cut(CheckpointId),
    /// Every channel has ended: forward `End`. Comes once.
    Ended,
}

/// A frame that can't follow what came before it on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlignError {
    /// A barrier for an earlier checkpoint than the next one.
    #[error("{channel}: barrier {found} came again; the next must be {expected}")]
    Repeated {
        /// Where.
        channel: ChannelIndex,
        /// The next that may come.
        expected: CheckpointId,
        /// What came.
        found: CheckpointId,
    },
    /// A barrier for a later checkpoint than the next one.
    #[error("{channel}: barrier {found} came before {expected}; one was lost")]
    Skipped {
        /// Where.
        channel: ChannelIndex,
        /// The next that may come.
        expected: CheckpointId,
        /// What came.
        found: CheckpointId,
    },
    /// A barrier or an end after the end.
    #[error("{channel}: a frame came after its End")]
    AfterEnd {
        /// Where.
        channel: ChannelIndex,
    },
    /// The caller processed a frame of a channel that is held.
    #[error("{channel}: a frame was processed while the channel was held at barrier {aligning}")]
    WhileHeld {
        /// Where.
        channel: ChannelIndex,
        /// The checkpoint being aligned.
        aligning: CheckpointId,
    },
    /// A channel that the plan doesn't have.
    #[error("{channel}: the plan has only {channels} input channels here")]
    NoSuchChannel {
        /// What was named.
        channel: ChannelIndex,
        /// How many there are.
        channels: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    /// Its next barrier is the aligner's next.
    Open,
    /// Its barrier has come, others are still to come.
    Held,
    Ended,
}

/// Aligns the input channels of one operator instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Aligner {
    channels: Vec<Channel>,
    next: CheckpointId,
    held: usize,
    ended: usize,
}

impl Aligner {
    /// `first` is the number of the first checkpoint of this attempt.
    ///
    /// # Panics
    ///
    /// Without channels: what has no input is a source, and cuts when it is told to.
    pub fn new(channels: usize, first: CheckpointId) -> Aligner {
        assert!(channels > 0, "an operator without input channels has nothing to align");
        Aligner { channels: vec![Channel::Open; channels], next: first, held: 0, ended: 0 }
    }

    /// Barrier(`found`) has been reached on `channel`.
    ///
    /// # Errors
    ///
    /// If it can't follow what came before; nothing has changed then.
    pub fn barrier(&mut self, channel: ChannelIndex, found: CheckpointId) -> Result<Alignment, AlignError> {
        self.processable(channel)?;
        let expected = self.next;
        if found < expected {
            return Err(AlignError::Repeated { channel, expected, found });
        }
        if found > expected {
            return Err(AlignError::Skipped { channel, expected, found });
        }
        self.channels[channel.index()] = Channel::Held;
        self.held += 1;
        Ok(self.cut_if_aligned())
    }

    /// The end of `channel` has been reached.
    ///
    /// # Errors
    ///
    /// If the channel has ended before or is held; nothing has changed then.
    pub fn end(&mut self, channel: ChannelIndex) -> Result<Alignment, AlignError> {
        self.processable(channel)?;
        self.channels[channel.index()] = Channel::Ended;
        self.ended += 1;
        if self.ended == self.channels.len() {
            // None can be held: a held channel is not ended.
            return Ok(Alignment::Ended);
        }
        Ok(self.cut_if_aligned())
    }

    /// Whether the frames of `channel` must wait. False for a channel that has ended.
    pub fn held(&self, channel: ChannelIndex) -> bool {
        self.channels.get(channel.index()) == Some(&Channel::Held)
    }

    /// The checkpoint for which channels are being held.
    pub fn aligning(&self) -> Option<CheckpointId> {
        (self.held > 0).then_some(self.next)
    }

    /// The checkpoint whose barrier comes next, or is being aligned.
    pub fn next(&self) -> CheckpointId {
        self.next
    }

    /// The channels whose barrier is still to come: who holds up an alignment, for messages about a slow one.
    pub fn awaited(&self) -> impl Iterator<Item = ChannelIndex> {
        (0u32..).zip(&self.channels).filter(|(_, state)| **state == Channel::Open).map(|(index, _)| ChannelIndex(index))
    }

    /// Whether every channel has ended.
    pub fn all_ended(&self) -> bool {
        self.ended == self.channels.len()
    }

    fn processable(&self, channel: ChannelIndex) -> Result<(), AlignError> {
        match self.channels.get(channel.index()) {
            Some(Channel::Open) => Ok(()),
            Some(Channel::Held) => Err(AlignError::WhileHeld { channel, aligning: self.next }),
            Some(Channel::Ended) => Err(AlignError::AfterEnd { channel }),
            None => Err(AlignError::NoSuchChannel { channel, channels: self.channels.len() }),
        }
    }

    fn cut_if_aligned(&mut self) -> Alignment {
        if self.held == 0 || self.held + self.ended < self.channels.len() {
            return Alignment::Wait;
        }
        for state in &mut self.channels {
            if *state == Channel::Held {
                *state = Channel::Open;
            }
        }
        self.held = 0;
        let cut = self.next;
        self.next = cut.next();
        Alignment::Cut(cut)
    }
}

#[cfg(test)]
#[path = "align_tests.rs"]
mod tests;
