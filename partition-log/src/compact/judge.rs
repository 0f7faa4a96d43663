//! Which records survive a round. Pure: batches come in the order of the log, each gets its fate.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::KeyMap;
use crate::batch::BatchHeader;

/// By what live producers are known in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// First offsets of their newest batches.
    pub(crate) batches: BTreeSet<i64>,
    /// Their epoch, and the last offset of their newest batch: a marker behind it is their last trace.
    pub(crate) markers: BTreeMap<i64, (i16, i64)>,
}

/// Which transactions were aborted: by producer, first offset and that of the marker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aborted(BTreeMap<i64, Vec<(i64, i64)>>);

impl Aborted {
    pub(crate) fn add(&mut self, producer: i64, first: i64, last: i64) {
        self.0.entry(producer).or_default().push((first, last));
    }

    /// Whether a transactional batch with this base offset was undone.
    pub(crate) fn holds(&self, producer: i64, base: i64) -> bool {
        self.0.get(&producer).is_some_and(|all| all.iter().any(|(first, last)| (*first..=*last).contains(&base)))
    }
}

/// What holds for a whole round.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) keys: KeyMap,
    /// Nothing at or above is touched: the keys there aren't known.
    pub(crate) end: i64,
    pub(crate) aborted: Aborted,
    pub(crate) known: Known,
    pub(crate) now: i64,
    pub(crate) delete_retention_ms: i64,
}

/// A record, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) offset: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) is_tombstone: bool,
}

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays as it is.
    Stay,
    /// These of its records stay, perhaps under a delete horizon.
    Less { keep: Vec<bool>, horizon_ms: Option<i64> },
    /// Its header stays: its producer is known by it.
    Empty,
    /// It goes.
    Go,
}

/// Judges one batch after the other.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) rules: Rules,
    /// Producers of whose transaction under way a batch stays.
    staying: BTreeSet<i64>,
}

impl Judge {
    pub(crate) fn new(rules: Rules) -> Judge {
        Judge { rules, staying: BTreeSet::new() }
    }

    /// What becomes of a batch of data.
    pub(crate) fn data<'a>(&mut self, header: &BatchHeader, records: impl Iterator<Item = Seen<'a>>) -> Fate {
        let rules = &self.rules;
        let fate = if header.base_offset >= rules.end {
            Fate::Stay
        } else if header.is_transactional() && rules.aborted.holds(header.producer_id, header.base_offset) {
            self.nothing_left(header)
        } else {
            self.of_records(header, records)
        };
        if header.is_transactional() && fate != Fate::Go {
            self.staying.insert(header.producer_id);
        }
        fate
    }

    fn of_records<'a>(&self, header: &BatchHeader, records: impl Iterator<Item = Seen<'a>>) -> Fate {
        let rules = &self.rules;
        let horizon_ms = header.delete_horizon_ms();
        let (mut tombstones, mut all) = (false, true);
        let mut stays = |record: Seen<'_>| {
            // A record without a key replaces nothing, and nothing could ever replace it.
            let is_newest =
                record.key.is_some_and(|key| rules.keys.newest(key).is_none_or(|newest| record.offset >= newest));
            let stays = is_newest && (!record.is_tombstone || horizon_ms.is_none_or(|horizon| horizon > rules.now));
            tombstones |= stays && record.is_tombstone;
            all &= stays;
            stays
        };
        let keep: Vec<bool> = records.map(&mut stays).collect();
        let stamp = (tombstones && horizon_ms.is_none()).then(|| rules.now.saturating_add(rules.delete_retention_ms));
        match () {
            () if !keep.contains(&true) => self.nothing_left(header),
            () if all && stamp.is_none() => Fate::Stay,
            () => Fate::Less { keep, horizon_ms: stamp },
        }
    }

    fn nothing_left(&self, header: &BatchHeader) -> Fate {
        if self.rules.known.batches.contains(&header.base_offset) { Fate::Empty } else { Fate::Go }
    }

    /// What becomes of a marker.
    pub(crate) fn marker(&mut self, header: &BatchHeader) -> Fate {
        let rules = &self.rules;
        let needed = self.staying.remove(&header.producer_id);
        let last_trace = rules.known.markers.get(&header.producer_id);
        let last_trace =
            last_trace.is_some_and(|(epoch, newest)| *epoch == header.producer_epoch && header.base_offset > *newest);
        if needed || last_trace || header.base_offset >= rules.end {
            return Fate::Stay;
        }
        match header.delete_horizon_ms() {
            None => {
                let horizon = rules.now.saturating_add(rules.delete_retention_ms);
                Fate::Less { keep: vec![true], horizon_ms: Some(horizon) }
            }
            Some(horizon) if horizon > rules.now => Fate::Stay,
            Some(_) => Fate::Go,
        }
    }
}
