//! The name of an input channel inside one operator instance.

use std::fmt;

/// Which input channel of an operator instance, from 0, in the order of the plan. A channel is (edge, sending worker):
/// a `union` of two edges on two workers has four. Order is promised inside a channel, never across channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelIndex(pub u32);

impl ChannelIndex {
    /// The place of this channel in a list of all channels of its instance.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ChannelIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}", self.0)
    }
}
