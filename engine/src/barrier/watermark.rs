//! Merges the watermarks of many channels into one, as a small total state machine.
//!
//! The promise: the merged watermark t is never above what every channel that isn't idle has promised, and it never
//! goes back.
//!
//! A channel is *active* at the watermark it last sent, *idle* (nothing to read for now; it doesn't hold back the
//! others), or *finished* (it promised [`EventTime::MAX`], and stays so for ever). From that:
//!
//! * some channel active: the minimum over the active ones, if it is above what was merged so far;
//! * none active, some idle: idle, and the watermark stays where it was. An idle channel may come back, so that
//!   finished neighbours must not carry the watermark to the end of time: all its records would be late;
//! * all finished: [`EventTime::MAX`].
//!
//! A channel that comes back below the merged watermark doesn't pull it back; it only holds it until it has caught up.
//! A watermark on an idle channel makes it active.
//!
//! Not here, on purpose: the `End` of a channel. It promises nothing about event time: a channel that was stopped
//! without a drain keeps its last promise, so that no window fires for records which the next attempt is still to read.
//! Only `Watermark(MAX)` finishes a channel.

use crate::exchange::ChannelIndex;
use crate::time::Watermark;

/// What an event changed; forward it on every output. At most one thing changes per event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Nothing.
    Unchanged,
    /// The watermark rose to this. Ends idleness, if there was any.
    Advance(Watermark),
    /// No channel is active any more.
    Idle,
    /// A channel is active again; the watermark hasn't risen.
    Active,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Channel {
    promised: Watermark,
    idle: bool,
}

/// Merges the watermarks of the input channels of one operator instance, or of the splits of one source instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatermarkMerger {
    channels: Vec<Channel>,
    merged: Watermark,
    idle: bool,
}

impl WatermarkMerger {
    /// `restored` is where the merged watermark stood in the snapshot, [`EventTime::MIN`](crate::time::EventTime::MIN)
    /// for a fresh start. All channels start active and without a promise. Forward [`WatermarkMerger::announcement`]
    /// before anything else.
    ///
    /// # Panics
    ///
    /// Without channels.
    pub fn new(channels: usize, restored: Watermark) -> WatermarkMerger {
        assert!(channels > 0, "no channels, no watermark");
        let start = Channel { promised: Watermark::MIN, idle: false };
        WatermarkMerger { channels: vec![start; channels], merged: restored, idle: false }
    }

    /// Says before the first event that nothing will come on a channel until it says otherwise, because its sender has
    /// nothing to read. Its own `Idle` will come too, but when, nobody knows: without this it would be a matter of luck
    /// how far the merged watermark is when a record comes, and so which records are late. Idleness of the whole is
    /// still only announced when a channel says so.
    ///
    /// # Panics
    ///
    /// If there is no such channel.
    pub fn expect_idle(&mut self, channel: ChannelIndex) {
        self.channels[channel.index()].idle = true;
    }

    /// What this instance owes its outputs when it starts: its restored watermark, if it has one. The channels
    /// downstream start without a promise, and an instance that stands at
    /// [`EventTime::MAX`](crate::time::EventTime::MAX) will never advance again: without the announcement it would hold
    /// them back for ever.
    pub fn announcement(&self) -> Option<Watermark> {
        (self.merged > Watermark::MIN).then_some(self.merged)
    }

    /// A watermark came. One below what the channel has already promised changes nothing but idleness.
    ///
    /// # Panics
    ///
    /// If there is no such channel.
    pub fn watermark(&mut self, channel: ChannelIndex, t: Watermark) -> Merged {
        let state = &mut self.channels[channel.index()];
        if state.promised == Watermark::MAX {
            return Merged::Unchanged;
        }
        state.promised = state.promised.max(t);
        state.idle = false;
        self.merge()
    }

    /// The channel has nothing for now.
    ///
    /// # Panics
    ///
    /// If there is no such channel.
    pub fn idle(&mut self, channel: ChannelIndex) -> Merged {
        self.set_idle(channel, true)
    }

    /// The channel has records again.
    ///
    /// # Panics
    ///
    /// If there is no such channel.
    pub fn active(&mut self, channel: ChannelIndex) -> Merged {
        self.set_idle(channel, false)
    }

    /// The merged watermark is at least `t`, whoever said so: that of the instance whose channel state is being given back.
    pub fn raise(&mut self, t: Watermark) -> Merged {
        if t <= self.merged {
            return Merged::Unchanged;
        }
        self.merged = t;
        Merged::Advance(t)
    }

    /// What a channel has promised, and whether it is idle.
    ///
    /// # Panics
    ///
    /// If there is no such channel.
    pub fn channel(&self, channel: ChannelIndex) -> (Watermark, bool) {
        let state = &self.channels[channel.index()];
        (state.promised, state.idle)
    }

    /// The merged watermark.
    pub fn current(&self) -> Watermark {
        self.merged
    }

    /// Whether the whole is idle.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    fn set_idle(&mut self, channel: ChannelIndex, idle: bool) -> Merged {
        let state = &mut self.channels[channel.index()];
        if state.promised == Watermark::MAX {
            // Finished: whether it has records for now is no question any more.
            return Merged::Unchanged;
        }
        state.idle = idle;
        self.merge()
    }

    fn merge(&mut self) -> Merged {
        let mut lowest: Option<Watermark> = None;
        let mut any_idle = false;
        for channel in &self.channels {
            if channel.idle {
                any_idle = true;
            } else if channel.promised != Watermark::MAX {
                lowest = Some(lowest.map_or(channel.promised, |t| t.min(channel.promised)));
            }
        }
        let was_idle = self.idle;
        self.idle = lowest.is_none() && any_idle;
        let candidate = match lowest {
            Some(lowest) => lowest,
            None if any_idle => self.merged,
            None => Watermark::MAX,
        };
        if candidate > self.merged {
            self.merged = candidate;
            return Merged::Advance(candidate);
        }
        match (was_idle, self.idle) {
            (false, true) => Merged::Idle,
            (true, false) => Merged::Active,
            _ => Merged::Unchanged,
        }
    }
}

#[cfg(test)]
#[path = "watermark_tests.rs"]
mod tests;
