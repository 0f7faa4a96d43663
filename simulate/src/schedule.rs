//! Which cases a simulation tries.

use std::collections::BTreeMap;

use cutwater_platform::SplitMix;
use cutwater_testkit::LossPolicy;

use crate::case::{Case, End, Strike};

/// What strikes a job under simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing: only the order in which workers run differs.
    Never {
        /// How many seeds.
        schedules: u64,
    },
    /// Every crash point that a first life reaches, at its first, middle and last visit, and every one that a recovery reaches;
    /// by kill, and by power cuts with each kind of loss in turn.
    EveryPoint,
    /// Every crash point that a first life reaches, and for each of them every point that the recovery from it reaches: the second
    /// strike comes in the second life.
    EveryPair,
    /// Every crash point of a first life but the log's: there it is stopped, as by SIGSTOP; another process takes over, and the first one comes
    /// back while that runs or when it is over ([`End::Stop`]).
    EveryStop,
    /// Up to four strikes per case, points, visits, steps of the disk and losses drawn from the seed.
    Drawn {
        /// How many seeds.
        schedules: u64,
    },
}

/// Counts of points by name.
pub(crate) type Reached = BTreeMap<&'static str, u64>;

/// The n-th end that is neither a kill nor a panic, round and round.
pub(crate) fn loss(n: usize) -> End {
    End::PowerOff(LossPolicy::ALL[n % LossPolicy::ALL.len()])
}

/// Visits of a point that are worth a case each.
pub(crate) fn visits(count: u64) -> Vec<u64> {
    let mut visits = vec![1, count.div_ceil(2), count];
    visits.dedup();
    visits
}

/// Points at which a panic of the thread that reached them is a fault that the engine must survive in its process: those of
/// workers. What reaches the others holds locks, or is the supervisor itself.
pub(crate) fn may_panic(point: &str) -> bool {
    ["source.", "operator.", "sink.", "worker.", "trigger."].iter().any(|prefix| point.starts_with(prefix))
}

/// Points at which a process can be stopped while its log goes on: all but those of the log, which is a process of its own then.
pub(crate) fn may_stop(point: &str) -> bool {
    !["log.", "segment.", "compact."].iter().any(|prefix| point.starts_with(prefix))
}

/// Turns of workers within which a life is stopped: as many as a short one takes.
const TURNS: u64 = 400;

/// A strike that stops a life somewhere.
fn stop(random: &mut SplitMix, known: &Reached) -> Strike {
    let points: Vec<_> = known.iter().filter(|(point, _)| may_stop(point)).collect();
    if points.is_empty() || random.below(4) == 0 {
        return Strike { point: Strike::TURN.to_string(), nth: 1 + random.below(TURNS), end: End::Stop };
    }
    let (point, count) = points[random.below(points.len() as u64) as usize];
    Strike { point: (*point).to_string(), nth: 1 + random.below(*count), end: End::Stop }
}

/// This case with one or two lives that are stopped and come back, all from its seed.
pub(crate) fn with_stops(mut case: Case, known: &Reached) -> Case {
    let mut random = SplitMix::new(case.seed ^ 0x570B_A6A1_4C0A_E5D1);
    for _ in 0..1 + u64::from(random.below(3) == 0) {
        let at = random.below(case.strikes.len() as u64 + 1) as usize;
        case.strikes.insert(at, stop(&mut random, known));
    }
    case
}

/// This case with one or two lives on a disk that is full for a while, all from its seed.
pub(crate) fn with_full(mut case: Case, known: &Reached) -> Case {
    let mut random = SplitMix::new(case.seed ^ 0xF011_0D15_C0F0_11ED);
    let points: Vec<_> = known.iter().collect();
    for _ in 0..1 + u64::from(random.below(3) == 0) {
        let at = random.below(case.strikes.len() as u64 + 1) as usize;
        let (point, count) = points[random.below(points.len() as u64) as usize];
        let strike = Strike { point: (*point).to_string(), nth: 1 + random.below(*count), end: End::Full };
        case.strikes.insert(at, strike);
    }
    case
}

/// Every point of a first life, struck alone.
pub(crate) fn alone(seed: u64, first: &Reached) -> Vec<Case> {
    let mut cases = vec![];
    for (n, (point, count)) in first.iter().enumerate() {
        for (k, visit) in visits(*count).into_iter().enumerate() {
            cases.push(Case::of(seed).and(*point, visit, if k == 0 { End::Kill } else { loss(n + k) }));
        }
        cases.push(Case::of(seed).and(*point, 1, loss(n)));
        if may_panic(point) {
            cases.push(Case::of(seed).and(*point, count.div_ceil(2), End::Panic));
        }
    }
    cases
}

/// Every point of a first life at which it can be stopped, each at three of its visits.
pub(crate) fn stopped(seed: u64, first: &Reached) -> Vec<Case> {
    let points = first.iter().filter(|(point, _)| may_stop(point));
    points.flat_map(|(p, count)| visits(*count).into_iter().map(|v| Case::of(seed).and(*p, v, End::Stop))).collect()
}

/// Every point of the recovery from this case, struck in it.
pub(crate) fn in_recovery_from(case: &Case, recovery: &Reached) -> Vec<Case> {
    let second = |(n, (point, count)): (usize, (&&'static str, &u64))| {
        // Early and late visits by turns.
        let visit = if n % 3 == 0 { count.div_ceil(2) } else { 1 };
        case.and(*point, visit, if n % 2 == 0 { End::Kill } else { loss(n / 2) })
    };
    recovery.iter().enumerate().map(second).collect()
}

/// A case with up to four strikes, all from its seed. `known` are the points of any life and how often each is reached.
pub(crate) fn drawn(seed: u64, known: &Reached, steps: u64) -> Case {
    // Another stream than the one that the case's lives draw from.
    let mut random = SplitMix::new(seed ^ 0x5EED_0F57_121C_E500);
    let strikes = [0, 1, 1, 1, 2, 2, 3, 4][random.below(8) as usize];
    let mut case = Case::of(seed);
    let points: Vec<_> = known.iter().collect();
    for _ in 0..strikes {
        let end = match random.below(4) {
            0 | 1 => End::Kill,
            _ => loss(random.below(LossPolicy::ALL.len() as u64) as usize),
        };
        if points.is_empty() || random.below(4) == 0 {
            case = case.and(Strike::DISK, 1 + random.below(steps.max(1)), end);
            continue;
        }
        let (point, count) = points[random.below(points.len() as u64) as usize];
        let end = if may_panic(point) && random.below(8) == 0 { End::Panic } else { end };
        case = case.and(*point, 1 + random.below(*count), end);
    }
    case
}
