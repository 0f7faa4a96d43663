//! Up to where time has gone (windows fired, keys were forgotten), per key group.
//!
//! Right after a restore on another number of workers, the groups of one instance come from several, whose watermarks stood
//! at different places; and the watermarks of the new channels begin from nothing. A window of a group has fired if the
//! *larger* of the two says so: the group's *floor* (what its former owner had fired), and the watermark of the channels.
//! Once the channels have passed the highest floor, floors say nothing any more and are dropped.
//!
//! The saved form: version, then per run of groups with one floor: first group, group after the last, floor. Little-endian.

use cutwater_engine::error::OperatorError;
use cutwater_engine::exchange::{CanonicalKey, GroupRange, KeyGroup, KeyGroups, group_of};
use cutwater_engine::graph::OperatorSetup;
use cutwater_engine::operator::Saved;
use cutwater_engine::time::{EventTime, Watermark};

/// The version of the saved form.
const VERSION: u8 = 1;
/// Bytes of one run in the saved form.
const RUN_BYTES: usize = 16;

/// The watermark that counts for each key: that of the channels, or its group's floor where that is larger.
#[derive(Clone, Debug)]
pub(crate) struct TimeOfKeys {
    groups: KeyGroups,
    floors: GroupFloors,
    watermark: Watermark,
}

impl TimeOfKeys {
    /// Nothing has been promised.
    pub(crate) fn new(setup: &OperatorSetup) -> TimeOfKeys {
        let floors = GroupFloors::new(setup.assignment.range_of(setup.worker));
        TimeOfKeys { groups: setup.assignment.groups(), floors, watermark: Watermark::MIN }
    }

    /// Up to where time has gone in this attempt.
    #[inline]
    pub(crate) fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// Up to where time has gone for this key.
    #[inline]
    pub(crate) fn of<K: CanonicalKey>(&self, key: &K) -> Watermark {
        match self.floors.is_empty() {
            true => self.watermark,
            false => self.watermark.max(self.floors.of(group_of(key.key_hash(), self.groups))),
        }
    }

    /// Time goes on.
    pub(crate) fn advance(&mut self, watermark: Watermark) {
        self.watermark = watermark;
        self.floors.passed(watermark);
    }

    /// What is to be saved at a barrier, under `name`.
    pub(crate) fn save(&self, name: &str) -> (String, Vec<u8>) {
        (name.to_string(), self.floors.save(self.watermark))
    }

    /// Takes back what was saved under `name`.
    pub(crate) fn restore(&mut self, saved: &Saved, name: &str) -> Result<(), OperatorError> {
        for (_, bytes) in saved.named(name) {
            let restored = self.floors.restore(bytes);
            restored.map_err(|e| OperatorError::Failed(format!("up to where time had gone can't be restored: {e}")))?;
        }
        Ok(())
    }
}

/// Floors of the key groups that an instance owns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupFloors {
    groups: GroupRange,
    /// One per group; empty when the channels have passed them all.
    floors: Vec<Watermark>,
}

impl GroupFloors {
    /// Nothing has fired.
    fn new(groups: GroupRange) -> GroupFloors {
        GroupFloors { groups, floors: vec![] }
    }

    /// True when the watermark of the channels alone decides.
    #[inline]
    fn is_empty(&self) -> bool {
        self.floors.is_empty()
    }

    /// The floor of a group; of groups that aren't ours nothing is known.
    #[inline]
    fn of(&self, group: KeyGroup) -> Watermark {
        let index = u32::from(group.0).checked_sub(self.groups.start);
        index.and_then(|i| self.floors.get(i as usize)).copied().unwrap_or(Watermark::MIN)
    }

    /// Drops the floors if the channels have passed them all.
    fn passed(&mut self, watermark: Watermark) {
        if self.floors.iter().all(|floor| *floor <= watermark) {
            self.floors.clear();
        }
    }

    /// Takes over what an instance saved, for the groups that are ours.
    fn restore(&mut self, mut saved: &[u8]) -> Result<(), String> {
        match saved {
            [VERSION, runs @ ..] if runs.len().is_multiple_of(RUN_BYTES) => saved = runs,
            [VERSION, ..] | [] => return Err(format!("{} bytes can't be runs of key groups", saved.len())),
            [version, ..] => {
                return Err(format!(
                    "they were saved in version {version}, and this program knows {VERSION}; use a newer one"
                ));
            }
        }
        if self.floors.is_empty() {
            self.floors = vec![Watermark::MIN; self.groups.len() as usize];
        }
        for run in saved.chunks_exact(RUN_BYTES) {
            let number = |at: usize| u32::from_le_bytes(run[at..at + 4].try_into().expect("four bytes"));
            let floor = EventTime(i64::from_le_bytes(run[8..16].try_into().expect("eight bytes")));
            let ours = self.groups.intersection(GroupRange { start: number(0), end: number(4) });
            for group in ours.start..ours.end {
                let known = &mut self.floors[(group - self.groups.start) as usize];
                *known = floor.max(*known);
            }
        }
        self.passed(Watermark::MIN);
        Ok(())
    }

    /// The saved form, with everything fired up to `watermark`.
    fn save(&self, watermark: Watermark) -> Vec<u8> {
        let mut saved = vec![VERSION];
        let mut run: Option<(u32, Watermark)> = None;
        let mut close = |run: Option<(u32, Watermark)>, end: u32| {
            if let Some((start, floor)) = run {
                saved.extend_from_slice(&start.to_le_bytes());
                saved.extend_from_slice(&end.to_le_bytes());
                saved.extend_from_slice(&floor.0.to_le_bytes());
            }
        };
        for group in self.groups.groups() {
            let floor = self.of(group).max(watermark);
            if run.is_none_or(|(_, other)| other != floor) {
                close(run, group.0.into());
                run = Some((group.0.into(), floor));
            }
        }
        close(run, self.groups.end);
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32, end: u32) -> GroupRange {
        GroupRange { start, end }
    }

    fn floors_of(floors: &GroupFloors, groups: std::ops::Range<u16>) -> Vec<i64> {
        groups.map(|group| floors.of(KeyGroup(group)).0).collect()
    }

    #[test]
    fn floors_follow_their_groups_through_any_splitting_and_joining() {
        // Two instances stood at 10 and 20; three go on, and save at once; one goes on from those.
        let saved =
            [GroupFloors::new(range(0, 4)).save(EventTime(10)), GroupFloors::new(range(4, 8)).save(EventTime(20))];
        let restore = |groups, saved: &[Vec<u8>]| {
            let mut floors = GroupFloors::new(groups);
            saved.iter().for_each(|bytes| floors.restore(bytes).expect("saved above"));
            floors
        };
        let thirds = [range(0, 3), range(3, 6), range(6, 8)].map(|groups| restore(groups, &saved));
        assert_eq!(floors_of(&thirds[1], 0..8)[3..6], [10, 20, 20]);
        let again: Vec<_> = thirds.iter().map(|floors| floors.save(EventTime(15))).collect();
        let whole = restore(range(0, 8), &again);
        assert_eq!(floors_of(&whole, 0..8), [15, 15, 15, 15, 20, 20, 20, 20]);
    }

    #[test]
    fn floors_are_dropped_when_the_channels_have_passed_them_all() {
        let mut floors = GroupFloors::new(range(0, 2));
        floors.restore(&GroupFloors::new(range(1, 9)).save(EventTime(5))).expect("saved above");
        floors.passed(EventTime(4));
        assert!(!floors.is_empty());
        floors.passed(EventTime(5));
        assert!(floors.is_empty());
        assert_eq!(floors_of(&floors, 0..2), [i64::MIN; 2]);
        floors.restore(&GroupFloors::new(range(0, 9)).save(EventTime::MIN)).expect("saved above");
        assert!(floors.is_empty(), "nothing had fired");
    }

    #[test]
    fn an_instance_without_groups_saves_and_restores_nothing() {
        let mut floors = GroupFloors::new(range(3, 3));
        let saved = floors.save(EventTime(7));
        assert_eq!(saved, [VERSION]);
        floors.restore(&saved).expect("saved above");
        assert!(floors.is_empty());
    }

    #[test]
    fn what_was_not_saved_here_is_refused() {
        let mut floors = GroupFloors::new(range(0, 2));
        for bytes in [&[][..], &[2], &[1, 0, 0], &[1; 16]] {
            assert!(floors.restore(bytes).is_err(), "{bytes:?}");
        }
        // Groups that nobody has are nobody's.
        let absurd = [&[VERSION][..], &[255; 16]].concat();
        floors.restore(&absurd).expect("a run outside of ours");
        assert!(floors.is_empty());
    }
}
