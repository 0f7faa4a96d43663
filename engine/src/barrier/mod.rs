//! The cut: what lies before a barrier and what after, and how far event time has come, over many channels.

mod align;
mod gather;
mod unaligned;
mod watermark;

use crate::config::GuaranteeKind;
use crate::exchange::ChannelIndex;
use crate::id::CheckpointId;

pub use align::{AlignError, Aligner, Alignment};
pub use gather::Gatherer;
pub use unaligned::{Arrival, Overtaker};
pub use watermark::{Merged, WatermarkMerger};

/// What barriers do to the channels of an operator instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Barriers {
    /// They hold them until all have come.
    Aligned(Aligner),
    /// They hold nothing back.
    Gathered(Gatherer),
    /// They may overtake records.
    Overtaking(Overtaker),
}

impl Barriers {
    /// Those of a guarantee, for an operator with this many input channels. Without checkpoints none comes.
    pub fn new(guarantee: GuaranteeKind, channels: usize, first: CheckpointId) -> Barriers {
        match guarantee {
            GuaranteeKind::AtLeastOnce => Barriers::Gathered(Gatherer::new(channels, first)),
            GuaranteeKind::ExactlyOnce | GuaranteeKind::AtMostOnce => Barriers::Aligned(Aligner::new(channels, first)),
        }
    }

    /// Barrier(`n`) has arrived in the queue of `channel`.
    ///
    /// # Errors
    /// If it can't follow what came before; nothing has changed then.
    pub fn arrives(&mut self, channel: ChannelIndex, n: CheckpointId) -> Result<Arrival, AlignError> {
        match self {
            Barriers::Overtaking(overtaker) => overtaker.arrived(channel, n),
            Barriers::Aligned(_) | Barriers::Gathered(_) => Ok(Arrival::Queue),
        }
    }

    /// The end has arrived in the queue of `channel`.
    ///
    /// # Errors
    /// If it had arrived before.
    pub fn end_arrives(&mut self, channel: ChannelIndex) -> Result<(), AlignError> {
        match self {
            Barriers::Overtaking(overtaker) => overtaker.end_arrived(channel),
            Barriers::Aligned(_) | Barriers::Gathered(_) => Ok(()),
        }
    }

    /// Barrier(`n`) has been reached on `channel`.
    ///
    /// # Errors
    /// If it can't follow what came before; nothing has changed then.
    pub fn barrier(&mut self, channel: ChannelIndex, n: CheckpointId) -> Result<Alignment, AlignError> {
        match self {
            Barriers::Aligned(aligner) => aligner.barrier(channel, n),
            Barriers::Gathered(gatherer) => gatherer.barrier(channel, n),
            Barriers::Overtaking(overtaker) => overtaker.reached(channel, n),
        }
    }

    /// The end of `channel` has been reached.
    ///
    /// # Errors
    /// If it can't follow what came before; nothing has changed then.
    pub fn end(&mut self, channel: ChannelIndex) -> Result<Alignment, AlignError> {
        match self {
            Barriers::Aligned(aligner) => aligner.end(channel),
            Barriers::Gathered(gatherer) => gatherer.end(channel),
            Barriers::Overtaking(overtaker) => overtaker.end_reached(channel),
        }
    }

    /// A cut that is due besides the one that was just answered: several may be, when a channel has ended.
    pub fn overdue(&mut self) -> Option<CheckpointId> {
        match self {
            Barriers::Aligned(_) => None,
            Barriers::Gathered(gatherer) => gatherer.overdue(),
            Barriers::Overtaking(overtaker) => overtaker.overdue(),
        }
    }

    /// Whether the frames of `channel` must wait.
    pub fn held(&self, channel: ChannelIndex) -> bool {
        match self {
            Barriers::Aligned(aligner) => aligner.held(channel),
            Barriers::Gathered(_) => false,
            Barriers::Overtaking(overtaker) => overtaker.held(channel),
        }
    }

    /// The checkpoint whose barrier has come on some channels and not on all, the oldest if there are several, and the channels
    /// whose barrier is missing.
    pub fn awaited(&self) -> Option<(CheckpointId, Vec<ChannelIndex>)> {
        match self {
            Barriers::Aligned(aligner) => aligner.aligning().map(|n| (n, aligner.awaited().collect())),
            Barriers::Gathered(gatherer) => gatherer.awaited(),
            Barriers::Overtaking(overtaker) => overtaker.awaited(),
        }
    }

    /// Whether a barrier has come on some channels and not on all.
    pub fn are_coming(&self) -> bool {
        match self {
            Barriers::Aligned(aligner) => aligner.aligning().is_some(),
            Barriers::Gathered(gatherer) => gatherer.is_gathering(),
            Barriers::Overtaking(overtaker) => overtaker.coming().is_some(),
        }
    }
}
