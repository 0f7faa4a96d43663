//! Coalesces what an instance says about event time, before it leaves on an edge.
//!
//! Watermarks and idleness are a state, not events: only the newest counts. While an edge has no credit the newest is
//! kept here, and older ones vanish. A promise made later than it could have been is still true, so waiting is always
//! safe; but everything said must be flushed before a barrier (the receiver's snapshot must know what the sender's
//! snapshot has said, or it would wait after a restore for something that never comes again) and before `End`.
//!
//! * What is drawn never goes back, never repeats, and is at most two frames: a watermark, then idleness.
//! * A watermark ends idleness, as in [`WatermarkMerger`](crate::barrier::WatermarkMerger); so `Active` is said only
//!   without one.

use crate::barrier::Merged;
use crate::time::Watermark;

/// What leaves on the edge, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signals {
    /// A watermark above the one that left before.
    pub watermark: Option<Watermark>,
    /// A change of idleness that the watermark doesn't imply: `Some(true)` is `Idle`, `Some(false)` is `Active`.
    pub idle: Option<bool>,
}

impl Signals {
    /// How many frames that is: none, one or two.
    pub fn frames(self) -> u64 {
        u64::from(self.watermark.is_some()) + u64::from(self.idle.is_some())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Said {
    watermark: Watermark,
    idle: bool,
}

/// What was said, and what is to be said, on one edge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SignalCoalescer {
    said: Said,
    now: Said,
}

impl Default for SignalCoalescer {
    fn default() -> Self {
        let start = Said { watermark: Watermark::MIN, idle: false };
        SignalCoalescer { said: start, now: start }
    }
}

impl SignalCoalescer {
    /// Takes what a merger answered.
    pub fn take(&mut self, merged: Merged) {
        match merged {
            Merged::Unchanged => {}
            Merged::Advance(t) => {
                self.now.watermark = self.now.watermark.max(t);
                self.now.idle = false;
            }
            Merged::Idle => self.now.idle = true,
            Merged::Active => self.now.idle = false,
        }
    }

    /// Whether there is something to say.
    pub fn pending(&self) -> bool {
        self.said != self.now
    }

    /// What is to be sent now: when the edge is open, or before a barrier or `End`, open or not.
    pub fn draw(&mut self) -> Signals {
        let rises = self.now.watermark > self.said.watermark;
        let heard_idle = self.said.idle && !rises;
        let signals = Signals {
            watermark: rises.then_some(self.now.watermark),
            idle: (self.now.idle != heard_idle).then_some(self.now.idle),
        };
        self.said = self.now;
        signals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::barrier::WatermarkMerger;
    use crate::exchange::ChannelIndex;
    use crate::time::EventTime;

    #[test]
    fn a_merger_behind_the_edge_ends_where_one_without_coalescing_ends() {
        let alphabet = [
            Merged::Advance(EventTime(1)),
            Merged::Advance(EventTime(2)),
            Merged::Advance(EventTime::MAX),
            Merged::Idle,
            Merged::Active,
        ];
        let apply = |merger: &mut WatermarkMerger, signals: Signals| {
            let channel = ChannelIndex(0);
            if let Some(t) = signals.watermark {
                assert!(t > merger.current(), "a watermark was repeated");
                merger.watermark(channel, t);
            }
            match signals.idle {
                Some(true) => merger.idle(channel),
                Some(false) => merger.active(channel),
                None => Merged::Unchanged,
            };
        };
        // All words of up to five events, and for each all ways to draw in between.
        for length in 0..=5u32 {
            for word in 0..5usize.pow(length) {
                let events: Vec<Merged> = (0..length).map(|i| alphabet[word / 5usize.pow(i) % 5]).collect();
                for draws in 0..1u32 << length {
                    let mut every = SignalCoalescer::default();
                    let mut some = SignalCoalescer::default();
                    let mut direct = WatermarkMerger::new(1, EventTime::MIN);
                    let mut behind = WatermarkMerger::new(1, EventTime::MIN);
                    for (i, event) in events.iter().enumerate() {
                        every.take(*event);
                        some.take(*event);
                        apply(&mut direct, every.draw());
                        if draws >> i & 1 == 1 {
                            apply(&mut behind, some.draw());
                        }
                    }
                    apply(&mut behind, some.draw());
                    assert!(!some.pending());
                    assert_eq!(some.draw(), Signals::default(), "something was said twice");
                    assert_eq!(behind, direct, "{events:?}, drawn at {draws:b}");
                }
            }
        }
    }
}
