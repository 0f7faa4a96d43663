//! Where the job is to be killed: drawn from the seed, a pure function.

use cutwater_platform::SplitMix;

/// One kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The child kills itself when it reaches a named crash point for the nth time.
    Point { name: &'static str, nth: u64 },
    /// The parent kills the child once it has read this many records of the stream.
    Records { at: u64 },
}

/// What a crash point lies in; which decides how often it can be expected to be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Passed once, before the first record.
    Recovery,
    /// Passed by every checkpoint that has output.
    Checkpoint,
}

/// Reached by every checkpoint after its transactions were prepared and before they are committed.
const PREPARED: [&str; 0] = [];
const POINTS: [(&str, Stage); 0] = [];

/// The first and the last part of the stream, in percent, in which nothing is killed.
const SPARED_PERCENT: u64 = 5;

/// `kills` strikes for a stream of `records` records: crash points and record counts in turns, the counts rising. The first
/// crash point lies between prepare and commit.
pub(crate) fn plan(seed: u64, kills: usize, records: u64) -> Vec<Strike> {
    let mut random = SplitMix::new(seed ^ 0x6B69_6C6C);
    let counted = kills / 2;
    let spared = records * SPARED_PERCENT / 100;
    // What comes last needs room: the last crash point must still be passed after the last count.
    let step = (records - 3 * spared).checked_div(counted as u64).unwrap_or(0);
    let mut deck: Vec<(&'static str, Stage)> = Vec::new();
    (0..kills)
        .map(|kill| {
            if kill % 2 == 1 {
                let at = spared + (kill as u64 / 2) * step + random.below(step.max(1));
                return Strike::Records { at };
            }
            if kill == 0 {
                let name = PREPARED[random.below(PREPARED.len() as u64) as usize];
                return Strike::Point { name, nth: 2 };
            }
            if deck.is_empty() {
                deck = POINTS.to_vec();
            }
            let (name, stage) = deck.swap_remove(random.below(deck.len() as u64) as usize);
            let nth = if stage == Stage::Recovery { 1 } else { 1 + random.below(2) };
            Strike::Point { name, nth }
        })
        .collect()
}
