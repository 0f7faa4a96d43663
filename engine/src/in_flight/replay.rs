//! Recorded channel state -> what an instance is given before anything new. Pure.
//!
//! * [`Recording`] takes the entries of one former instance and merges the watermarks of its channels as it would have done
//!   itself: what comes out is records, and the merged watermark between them where it rose.
//! * [`in_time_order`] joins those of several instances (at another number of workers): the watermark of the whole is the
//!   lowest of theirs, and records that stood before a rise of their own watermark come before the whole rises so far. As each
//!   sender sends each watermark to every instance, all of them end at the same place. So a record that came too late for its
//!   window still comes too late, and none that was in time does.

use crate::barrier::{Merged, WatermarkMerger};
use crate::exchange::ChannelIndex;
use crate::in_flight::entry::{Entry, EntryError};
use crate::time::Watermark;

/// Something that an instance had before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Records of one of its channels, still as bytes.
    Records {
        /// The former instance's channel.
        channel: u32,
        /// How many.
        records: u32,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// Its merged watermark rose to this.
    Watermark(Watermark),
}

/// What one former instance had before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Where its merged watermark stood at the cut.
    pub(crate) from: Watermark,
    /// What follows.
    pub(crate) items: Vec<Item>,
}

/// Takes the entries of one former instance, in their order.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    merger: Option<(u32, WatermarkMerger)>,
    from: Option<Watermark>,
    items: Vec<Item>,
}

impl Recording {
    /// Takes the entries of one block.
    ///
    /// # Errors
    /// [`EntryError`].
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), EntryError> {
        while let Some(entry) = Entry::take(&mut bytes)? {
            self.entry(entry)?;
        }
        Ok(())
    }

    /// How many channels the instance had.
    pub(crate) fn channels(&self) -> u32 {
        self.merger.as_ref().map_or(0, |(channels, _)| *channels)
    }

    /// Everything.
    pub(crate) fn finish(self) -> Recorded {
        Recorded { from: self.from.unwrap_or(Watermark::MIN), items: self.items }
    }

    fn entry(&mut self, entry: Entry<'_>) -> Result<(), EntryError> {
        let (channels, merger) = match (&mut self.merger, entry) {
            (merger @ None, Entry::Begin { channels }) if channels > 0 => {
                *merger = Some((channels, WatermarkMerger::new(channels as usize, Watermark::MIN)));
                return Ok(());
            }
            (None, _) | (Some(_), Entry::Begin { .. }) => return Err(EntryError::Misplaced),
            (Some((channels, merger)), _) => (*channels, merger),
        };
        let known = |channel: u32| match channel < channels {
            true => Ok(ChannelIndex(channel)),
            false => Err(EntryError::Channel { channel, channels }),
        };
        let merged = match entry {
            Entry::Begin { .. } => return Err(EntryError::Misplaced),
            Entry::Merged(t) => {
                let raised = merger.raise(t);
                if self.from.is_none() {
                    self.from = Some(t);
                    return Ok(());
                }
                raised
            }
            Entry::Watermark(channel, t) => merger.watermark(known(channel)?, t),
            Entry::Idle(channel) => merger.idle(known(channel)?),
            Entry::Active(channel) => merger.active(known(channel)?),
            Entry::Records { channel, records, bytes } => {
                known(channel)?;
                self.items.push(Item::Records { channel, records, bytes: bytes.to_vec() });
                return Ok(());
            }
        };
        if let Merged::Advance(t) = merged {
            self.items.push(Item::Watermark(t));
        }
        Ok(())
    }
}

/// Joins what several former instances had before them, each with something that says which it was.
pub(crate) fn in_time_order<W: Copy>(recorded: Vec<(W, Recorded)>) -> Vec<(W, Item)> {
    struct Source<W> {
        who: W,
        at: Watermark,
        items: std::vec::IntoIter<Item>,
    }
    let mut sources: Vec<Source<W>> =
        recorded.into_iter().map(|(who, r)| Source { who, at: r.from, items: r.items.into_iter() }).collect();
    let lowest = |sources: &[Source<W>]| sources.iter().map(|source| source.at).min();
    let mut joined = vec![];
    let mut whole = lowest(&sources);
    // The one that is furthest behind in time goes first; one without anything left waits for nobody.
    while let Some(next) = sources.iter_mut().filter(|s| s.items.len() > 0).min_by_key(|source| source.at) {
        let who = next.who;
        match next.items.next() {
            Some(Item::Watermark(t)) => next.at = next.at.max(t),
            Some(records) => joined.push((who, records)),
            None => {}
        }
        let now = lowest(&sources);
        if let Some(t) = now.filter(|_| now > whole) {
            joined.push((who, Item::Watermark(t)));
            whole = now;
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::entry::Writer;
    use crate::time::EventTime;

    fn recorded(entries: &[Entry<'_>]) -> Result<Recorded, EntryError> {
        let mut writer = Writer::new(2);
        entries.iter().for_each(|entry| writer.put(entry));
        let mut recording = Recording::default();
        for block in writer.finish(0).blocks {
            recording.take(block.payload())?;
        }
        assert_eq!(recording.channels(), 2);
        Ok(recording.finish())
    }

    fn records(channel: u32, bytes: &[u8]) -> Entry<'_> {
        Entry::Records { channel, records: 1, bytes }
    }

    fn item(channel: u32, byte: u8) -> Item {
        Item::Records { channel, records: 1, bytes: vec![byte] }
    }

    fn w(t: i64) -> Watermark {
        EventTime(t)
    }

    #[test]
    fn one_instances_watermarks_rise_where_they_would_have_risen_there() {
        let entries = [
            Entry::Merged(w(3)),
            Entry::Watermark(0, w(5)),
            Entry::Watermark(1, w(3)),
            records(0, b"a"),
            Entry::Watermark(1, w(4)),
            records(1, b"b"),
            Entry::Idle(1),
            records(0, b"c"),
            Entry::Watermark(0, w(4)),
        ];
        let items = vec![item(0, b'a'), Item::Watermark(w(4)), item(1, b'b'), Item::Watermark(w(5)), item(0, b'c')];
        assert_eq!(recorded(&entries), Ok(Recorded { from: w(3), items }));
    }

    #[test]
    fn entries_that_can_not_be_are_refused() {
        assert_eq!(recorded(&[Entry::Idle(2)]), Err(EntryError::Channel { channel: 2, channels: 2 }));
        assert_eq!(recorded(&[Entry::Begin { channels: 2 }]), Err(EntryError::Misplaced));
        assert_eq!(Recording::default().take(&[0; 24]), Err(EntryError::Version { found: 0 }));
    }

    /// Every pair of instances that saw the same rises, each with a record before and after each: no record is given after the
    /// whole has risen above where its own instance stood when it came, and every rise comes.
    #[test]
    fn the_whole_never_rises_above_an_instance_that_still_has_records() {
        let rises: [&[i64]; 4] = [&[], &[7], &[5, 7], &[4, 5, 7]];
        let build = |from: i64, rises: &[i64]| {
            let mut items = vec![item(0, 0)];
            for (i, rise) in rises.iter().enumerate() {
                items.extend([Item::Watermark(w(*rise)), item(0, 1 + i as u8)]);
            }
            Recorded { from: w(from), items }
        };
        for (i, a) in rises.iter().enumerate() {
            for (j, b) in rises.iter().enumerate() {
                // One that has nothing more to say stood at the end from the beginning.
                let (from_a, from_b) = (if i == 0 { 7 } else { 3 }, if j == 0 { 7 } else { 3 });
                let joined = in_time_order(vec![(0, build(from_a, a)), (1, build(from_b, b))]);
                let (mut whole, mut seen) = (from_a.min(from_b), [0usize; 2]);
                for (who, item) in &joined {
                    match item {
                        Item::Watermark(t) => {
                            assert!(t.0 > whole, "{joined:?}");
                            whole = t.0;
                        }
                        Item::Records { .. } => {
                            let (own, from) = [(a, from_a), (b, from_b)][*who];
                            let stood = if seen[*who] == 0 { from } else { own[seen[*who] - 1] };
                            assert!(whole <= stood, "{joined:?}");
                            // And it had not been given before its own watermark was passed by the whole, where a late one
                            // would have found its window open.
                            if seen[*who] > 0 && a == b {
                                assert_eq!(whole, stood, "{joined:?}");
                            }
                            seen[*who] += 1;
                        }
                    }
                }
                assert_eq!(seen, [a.len() + 1, b.len() + 1], "every record once");
                assert_eq!(whole, 7, "all end where all ended: {joined:?}");
            }
        }
    }
}
