//! Barriers of one operator instance that hold nothing back (at-least-once), as a pure state machine.
//!
//! The promise: [`Gatherer`] says *cut* for checkpoint n when Barrier(n) has come on every input channel. The instance has
//! then processed every record before Barrier(n) on every channel, and possibly some after it: a restore processes those
//! again. Nothing before a barrier is ever missing from a checkpoint.
//!
//! Invariants:
//!
//! * Checkpoints are cut in their order, each once. A channel may be several barriers ahead of another.
//! * Barriers on a channel rise by one; nothing follows an `End`, which counts as all barriers to come.
//!
//! Source: Carbone et al., *Lightweight Asynchronous Snapshots for Distributed Dataflows* (2015), without the blocking of
//! channels.

use crate::barrier::{AlignError, Alignment};
use crate::exchange::ChannelIndex;
use crate::id::CheckpointId;

/// Gathers the barriers of one operator instance without holding a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gatherer {
    /// The next barrier of each channel; `None` after its end.
    next: Vec<Option<CheckpointId>>,
    /// The next checkpoint to be cut.
    cut: CheckpointId,
}

impl Gatherer {
    /// `first` is the number of the first checkpoint of this attempt.
    ///
    /// # Panics
    ///
    /// Without channels: what has no input is a source, and cuts when it is told to.
    pub fn new(channels: usize, first: CheckpointId) -> Gatherer {
        assert!(channels > 0, "an operator without input channels has nothing to gather");
        Gatherer { next: vec![Some(first); channels], cut: first }
    }

    /// Barrier(`found`) has been reached on `channel`.
    ///
    /// # Errors
    ///
    /// If it can't follow what came before; nothing has changed then.
    pub fn barrier(&mut self, channel: ChannelIndex, found: CheckpointId) -> Result<Alignment, AlignError> {
        let next = self.open(channel)?;
        match *next {
            expected if found < expected => return Err(AlignError::Repeated { channel, expected, found }),
            expected if found > expected => return Err(AlignError::Skipped { channel, expected, found }),
            _ => *next = found.next(),
        }
        Ok(self.outcome())
    }

    /// The end of `channel` has been reached. More than one checkpoint may be due after it: ask [`Gatherer::overdue`].
    ///
    /// # Errors
    ///
    /// If the channel has ended before; nothing has changed then.
    pub fn end(&mut self, channel: ChannelIndex) -> Result<Alignment, AlignError> {
        self.open(channel)?;
        self.next[channel.index()] = None;
        Ok(self.outcome())
    }

    /// The next checkpoint whose barriers have all come, taken.
    pub fn overdue(&mut self) -> Option<CheckpointId> {
        let slowest = self.next.iter().flatten().min()?;
        let cut = self.cut;
        (*slowest > cut).then(|| {
            self.cut = cut.next();
            cut
        })
    }

    fn outcome(&mut self) -> Alignment {
        match self.overdue() {
            Some(cut) => Alignment::Cut(cut),
            None if self.next.iter().all(Option::is_none) => Alignment::Ended,
            None => Alignment::Wait,
        }
    }

    /// The oldest checkpoint that isn't cut although a barrier of it has come, and the channels whose barrier is missing.
    pub fn awaited(&self) -> Option<(CheckpointId, Vec<ChannelIndex>)> {
        let missing = (0u32..).zip(&self.next).filter(|(_, next)| **next == Some(self.cut));
        self.is_gathering().then(|| (self.cut, missing.map(|(channel, _)| ChannelIndex(channel)).collect()))
    }

    /// Whether a barrier has come on some channel and its checkpoint isn't cut.
    pub fn is_gathering(&self) -> bool {
        self.next.iter().flatten().any(|next| *next > self.cut)
    }

    fn open(&mut self, channel: ChannelIndex) -> Result<&mut CheckpointId, AlignError> {
        let channels = self.next.len();
        match self.next.get_mut(channel.index()) {
            Some(Some(next)) => Ok(next),
            Some(None) => Err(AlignError::AfterEnd { channel }),
            None => Err(AlignError::NoSuchChannel { channel, channels }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every interleaving of three channels with up to three barriers and an end each: checkpoints are cut in order, each as
    /// soon as it can be and never before, and the end comes once, last.
    #[test]
    fn every_interleaving_cuts_each_checkpoint_as_soon_as_all_its_barriers_have_come() {
        const LAST: u64 = 3;
        let first = CheckpointId(1);
        // (gatherer, what each channel has delivered: barriers, then the end as LAST + 1, what was cut)
        let mut open = vec![(Gatherer::new(3, first), [0u64; 3], 0u64)];
        let mut seen = BTreeSet::new();
        let mut ends = 0;
        while let Some((gatherer, delivered, cut)) = open.pop() {
            for channel in 0..3u32 {
                let mut delivered = delivered;
                let at = &mut delivered[channel as usize];
                if *at > LAST {
                    continue;
                }
                *at += 1;
                let is_end = *at > LAST;
                let mut gatherer = gatherer.clone();
                let outcome = match is_end {
                    true => gatherer.end(ChannelIndex(channel)),
                    false => gatherer.barrier(ChannelIndex(channel), CheckpointId(*at)),
                };
                let slowest = delivered.iter().copied().min().expect("three channels");
                let mut cut = cut;
                match outcome.expect("in order") {
                    Alignment::Cut(n) => {
                        assert_eq!((n.0, slowest), (cut + 1, cut + 1), "in order, as soon as it can be");
                        cut = n.0;
                    }
                    Alignment::Wait => assert!(slowest == cut || is_end && slowest == LAST, "nothing can be cut"),
                    Alignment::Ended => {
                        assert_eq!((slowest, cut), (LAST + 1, LAST), "everything was cut before");
                        ends += 1;
                    }
                }
                assert_eq!(gatherer.is_gathering(), delivered.iter().any(|d| *d <= LAST && *d > cut));
                if seen.insert((delivered, cut)) {
                    open.push((gatherer, delivered, cut));
                }
            }
        }
        assert!(ends > 0 && seen.len() >= 4 * 4 * 4, "{ends} ends, {} states", seen.len());
    }

    #[test]
    fn a_channel_that_ended_early_holds_nobody_up() {
        let mut gatherer = Gatherer::new(2, CheckpointId(4));
        let (a, b) = (ChannelIndex(0), ChannelIndex(1));
        for n in 4..7 {
            assert_eq!(gatherer.barrier(a, CheckpointId(n)), Ok(Alignment::Wait));
        }
        assert!(gatherer.is_gathering());
        assert_eq!(gatherer.end(b), Ok(Alignment::Cut(CheckpointId(4))));
        assert_eq!(gatherer.overdue(), Some(CheckpointId(5)));
        assert_eq!(gatherer.overdue(), Some(CheckpointId(6)));
        assert_eq!(gatherer.overdue(), None);
        assert_eq!(gatherer.end(a), Ok(Alignment::Ended));
    }

    #[test]
    fn frames_out_of_order_are_refused_and_change_nothing() {
        let mut gatherer = Gatherer::new(1, CheckpointId(1));
        let before = gatherer.clone();
        let a = ChannelIndex(0);
        assert!(matches!(gatherer.barrier(a, CheckpointId(2)), Err(AlignError::Skipped { .. })));
        assert!(matches!(gatherer.barrier(ChannelIndex(1), CheckpointId(1)), Err(AlignError::NoSuchChannel { .. })));
        assert_eq!(gatherer, before);
        assert_eq!(gatherer.barrier(a, CheckpointId(1)), Ok(Alignment::Cut(CheckpointId(1))));
        assert!(matches!(gatherer.barrier(a, CheckpointId(1)), Err(AlignError::Repeated { .. })));
        assert_eq!(gatherer.end(a), Ok(Alignment::Ended));
        assert!(matches!(gatherer.end(a), Err(AlignError::AfterEnd { .. })));
    }
}
