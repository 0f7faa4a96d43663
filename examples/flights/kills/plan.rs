//! Where the job is to be killed: drawn from the seed, a pure function.

use std::fmt;

use cutwater_platform::SplitMix;

/// One kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The child kills itself when it reaches a named crash point for the nth time.
    Point { name: &'static str, nth: u64 },
    /// The parent kills the child once it has read this many records of the stream.
    Records { at: u64 },
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strike::Point { name, nth } => write!(f, "{name}#{nth}"),
            Strike::Records { at } => write!(f, "{at} rows read"),
        }
    }
}

/// Passed after a transaction was prepared and before it is committed, and only by checkpoints that have one.
const BETWEEN_PREPARE_AND_COMMIT: [&str; 2] = ["sink.prepared", "group.commit-sent"];

/// Passed once by every start, before the first record. Some need a checkpoint to go on from, which there is after
/// the first kills.
const RECOVERY: [&str; 9] = [
    "group.fenced",
    "recovery.fenced",
    "recovery.resolved",
    "group.aborted-others",
    "recovery.base-recorded",
    "recovery.aborted-others",
    "recovery.swept",
    "worker.restored",
    "source.opened",
];

/// Passed by every checkpoint, or every one that has output.
const CHECKPOINT: [&str; 20] = [
    "trigger.fired",
    "source.cut",
    "operator.cut",
    "snapshot.file-written",
    "snapshot.file-synced",
    "snapshot.dir-synced",
    "sink.sealed",
    "sink.prepared",
    "coordinator.report-came",
    "coordinator.all-reported",
    "coordinator.published",
    "committer.permitted",
    "group.commit-sent",
    "group.committed",
    "committer.committed",
    "janitor.recorded",
    "retire.manifest-removed",
    "log.frame-buffered",
    "log.frame-written",
    "log.acknowledged",
];

/// A point of a checkpoint is struck the first, second or third time that it is passed.
const NTH_MAX: u64 = 3;
/// The first and the last part of the stream, in percent, in which the parent doesn't kill.
const SPARED_PERCENT: u64 = 5;

/// `kills` strikes for a stream of `records` records: crash points and record counts in turns, the counts rising. The first two
/// crash points lie between prepare and commit, the third in a recovery; the others are drawn without repeating one before all
/// had their turn.
pub(crate) fn plan(seed: u64, kills: usize, records: u64) -> Vec<Strike> {
    let mut random = SplitMix::new(seed ^ 0x6B69_6C6C);
    let spared = records * SPARED_PERCENT / 100;
    // The last crash point must still be passed after the last count, so the end of the stream is spared twice.
    let step = (records - 3 * spared) / (kills as u64 / 2).max(1);
    let mut first = BETWEEN_PREPARE_AND_COMMIT.to_vec();
    let mut deck: Vec<&'static str> = Vec::new();
    let mut strikes = Vec::with_capacity(kills);
    for kill in 0..kills as u64 {
        if kill % 2 == 1 {
            strikes.push(Strike::Records { at: spared + kill / 2 * step + random.below(step.max(1)) });
            continue;
        }
        if deck.is_empty() {
            deck.extend(RECOVERY.iter().chain(&CHECKPOINT));
        }
        let name = match kill / 2 {
            0 | 1 => draw(&mut random, &mut first),
            2 => RECOVERY[random.below(RECOVERY.len() as u64) as usize],
            _ => draw(&mut random, &mut deck),
        };
        let nth = if RECOVERY.contains(&name) { 1 } else { 1 + random.below(NTH_MAX) };
        strikes.push(Strike::Point { name, nth });
    }
    strikes
}

fn draw(random: &mut SplitMix, from: &mut Vec<&'static str>) -> &'static str {
    from.swap_remove(random.below(from.len() as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 27_224;

    #[test]
    fn a_plan_has_as_many_strikes_as_asked_for_half_of_them_points_and_the_counts_rise_within_the_stream() {
        for (seed, kills) in (0..50).flat_map(|seed| [0, 1, 2, 3, 20, 51, 400].map(|kills| (seed, kills))) {
            let strikes = plan(seed, kills, RECORDS);
            assert_eq!(strikes.len(), kills);
            assert_eq!(strikes, plan(seed, kills, RECORDS));
            let counts: Vec<u64> =
                strikes.iter().filter_map(|s| if let Strike::Records { at } = s { Some(*at) } else { None }).collect();
            assert_eq!(counts.len(), kills / 2);
            assert!(counts.is_sorted());
            assert!(counts.iter().all(|at| (RECORDS / 25..RECORDS * 19 / 20).contains(at)), "{counts:?}");
        }
        assert_ne!(plan(1, 20, RECORDS), plan(2, 20, RECORDS));
    }

    #[test]
    fn the_first_points_lie_between_prepare_and_commit_and_the_next_in_a_recovery() {
        for seed in 0..50 {
            let strikes = plan(seed, 7, RECORDS);
            let name = |kill: usize| match strikes[kill] {
                Strike::Point { name, .. } => name,
                Strike::Records { .. } => panic!("kill {kill} is a point"),
            };
            assert!(BETWEEN_PREPARE_AND_COMMIT.contains(&name(0)) && BETWEEN_PREPARE_AND_COMMIT.contains(&name(2)));
            assert_ne!(name(0), name(2));
            assert!(RECOVERY.contains(&name(4)));
        }
    }

    #[test]
    fn every_point_has_its_turn_before_one_is_repeated() {
        let all = RECOVERY.len() + CHECKPOINT.len();
        let strikes = plan(3, 2 * (3 + all), RECORDS);
        let mut names: Vec<&str> = strikes
            .iter()
            .filter_map(|s| if let Strike::Point { name, .. } = s { Some(*name) } else { None })
            .skip(3)
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
