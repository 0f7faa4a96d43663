//! Counts of crash points, and strikes at chosen ones.
//!
//! A dry run counts how often each named point is reached; [`CrashSchedule`] turns the counts into one strike per point
//! and visit; each strike is then armed in a run of its own. [`CrashCounts::missing`] names the listed points that no run
//! has reached: a green matrix over points that nobody visits proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cutwater_platform::{CrashHook, CrashPoints, SplitMix};

use crate::SimDisk;

/// What happens when an armed point is reached.
pub enum CrashAction {
    /// The power of this disk goes off; the code finds out at its next operation.
    PowerOff(SimDisk),
    /// The thread that reached the point panics.
    Panic,
    /// Anything else, once, on the thread that reached the point. It may arm further strikes.
    Call(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for CrashAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CrashAction::PowerOff(_) => "PowerOff",
            CrashAction::Panic => "Panic",
            CrashAction::Call(_) => "Call",
        })
    }
}

/// A hook that counts every point and strikes at armed ones. Clones share counts and strikes.
///
/// ```
/// use cutwater_testkit::{CrashAction, CrashCounts, SimDisk};
///
/// let (counts, disk) = (CrashCounts::new(), SimDisk::new());
/// counts.arm("log.synced", 2, CrashAction::PowerOff(disk.clone()));
/// let points = counts.points();
/// points.reach("log.synced");
/// assert!(!disk.is_off());
/// points.reach("log.synced");
/// assert!(disk.is_off());
/// assert_eq!(counts.reached()["log.synced"], 2);
/// assert_eq!(counts.missing(&["log.synced", "log.rolled"]), ["log.rolled"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CrashCounts {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    reached: BTreeMap<&'static str, u64>,
    armed: Vec<Armed>,
    struck: Vec<Strike>,
    order: u64,
    planted: BTreeSet<&'static str>,
}

#[derive(Debug)]
struct Armed {
    strike: Strike,
    left: u64,
    action: CrashAction,
}

impl CrashCounts {
    /// Counts at zero, nothing armed.
    pub fn new() -> CrashCounts {
        CrashCounts::default()
    }

    /// The hook to put into a [`Platform`](cutwater_platform::Platform).
    pub fn points(&self) -> CrashPoints {
        CrashPoints::armed(self.clone())
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Strikes once, when `point` is reached for the `nth` time from now (1 is the next).
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn arm(&self, point: impl Into<String>, nth: u64, action: CrashAction) {
        assert!(nth > 0, "the first visit from now is number 1");
        let strike = Strike { point: point.into(), nth };
        self.inner().armed.push(Armed { strike, left: nth, action });
    }

    /// Plants a mistake, which the code makes from now on wherever it asks for it
    /// ([`CrashPoints::is_planted`]; debug builds only).
    pub fn plant(&self, mistake: &'static str) {
        self.inner().planted.insert(mistake);
    }

    /// Takes back all strikes that haven't happened.
    pub fn disarm(&self) {
        self.inner().armed.clear();
    }

    /// How often each point was reached, over all lives.
    pub fn reached(&self) -> BTreeMap<&'static str, u64> {
        self.inner().reached.clone()
    }

    /// The strikes that have happened, in order.
    pub fn struck(&self) -> Vec<Strike> {
        self.inner().struck.clone()
    }

    /// A hash of the points in the order in which they were reached, over all lives.
    pub fn order(&self) -> u64 {
        self.inner().order
    }

    /// Which of the `listed` points were never reached.
    pub fn missing<'a>(&self, listed: &[&'a str]) -> Vec<&'a str> {
        let inner = self.inner();
        listed.iter().filter(|point| !inner.reached.contains_key(*point)).copied().collect()
    }

    /// Which points were reached that aren't `listed`: a point nobody wrote down.
    pub fn unlisted(&self, listed: &[&str]) -> Vec<&'static str> {
        self.inner().reached.keys().filter(|point| !listed.contains(point)).copied().collect()
    }
}

impl CrashHook for CrashCounts {
    fn is_planted(&self, mistake: &'static str) -> bool {
        self.inner().planted.contains(mistake)
    }

    fn reached(&self, point: &'static str) {
        let mut due = Vec::new();
        {
            let mut inner = self.inner();
            *inner.reached.entry(point).or_default() += 1;
            let mixed = point.bytes().fold(inner.order, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3));
            inner.order = mixed.rotate_left(17);
            let mut index = 0;
            while index < inner.armed.len() {
                let armed = &mut inner.armed[index];
                if armed.strike.point == point {
                    armed.left -= 1;
                    if armed.left == 0 {
                        let armed = inner.armed.remove(index);
                        inner.struck.push(armed.strike);
                        due.push(armed.action);
                        continue;
                    }
                }
                index += 1;
            }
        }
        // Outside the lock: an action may reach points or arm others. A panic comes last.
        due.sort_by_key(|action| matches!(action, CrashAction::Panic));
        for action in due {
            match action {
                CrashAction::PowerOff(disk) => disk.crash(),
                CrashAction::Call(call) => call(),
                CrashAction::Panic => panic!("crash point {point} struck"),
            }
        }
    }
}

/// One strike: a point and which of its visits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strike {
    /// The point's name.
    pub point: String,
    /// At its how manieth visit; 1 is the first.
    pub nth: u64,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The form that `CUTWATER_CRASH_AT` takes, so that a failure can be replayed with a real kill.
        write!(f, "{}#{}", self.point, self.nth)
    }
}

/// Which strikes, or which steps, a campaign tries, each in a run of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashSchedule {
    strikes: Vec<Strike>,
}

impl CrashSchedule {
    /// Every point that a dry run reached, at each of its visits; where there were more than `visits_max`, the first, the
    /// last, and others drawn from the seed.
    pub fn from_counts(reached: &BTreeMap<&'static str, u64>, visits_max: u64, seed: u64) -> CrashSchedule {
        let mut strikes = Vec::new();
        for (index, (point, &visits)) in reached.iter().enumerate() {
            let chosen = sample(visits, visits_max, seed ^ index as u64);
            strikes.extend(chosen.into_iter().map(|nth| Strike { point: (*point).to_string(), nth }));
        }
        CrashSchedule { strikes }
    }

    /// The strikes, by point and visit.
    pub fn strikes(&self) -> &[Strike] {
        &self.strikes
    }

    /// Which of a run's `steps` (as [`SimDisk::steps`] counts them) to crash at: all of them if there are at most `max`,
    /// else the first, the last, and others drawn from the seed. Ascending.
    pub fn steps(steps: u64, max: u64, seed: u64) -> Vec<u64> {
        sample(steps, max, seed)
    }
}

impl IntoIterator for CrashSchedule {
    type Item = Strike;
    type IntoIter = std::vec::IntoIter<Strike>;

    fn into_iter(self) -> Self::IntoIter {
        self.strikes.into_iter()
    }
}

/// At most `max` numbers of `1..=count`, both ends among them, ascending: one drawn from each stretch of equal length.
fn sample(count: u64, max: u64, seed: u64) -> Vec<u64> {
    if count <= max.max(1) {
        return (1..=count).collect();
    }
    let mut random = SplitMix::new(seed);
    let between = max.saturating_sub(2);
    let mut chosen = vec![1];
    for stretch in 0..between {
        let inner = u128::from(count - 2);
        let edge = |n: u64| 2 + (inner * u128::from(n) / u128::from(between)) as u64;
        let (from, to) = (edge(stretch), edge(stretch + 1));
        chosen.push(from + random.below((to - from).max(1)));
    }
    if max > 1 {
        chosen.push(count);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_ascending_distinct_within_bounds_and_hold_both_ends() {
        for count in [0u64, 1, 2, 3, 9, 10, 11, 1_000, u64::MAX] {
            for max in [1u64, 2, 3, 10] {
                let chosen = sample(count, max, count ^ max);
                assert_eq!(chosen.len() as u64, count.min(max));
                assert!(chosen.windows(2).all(|w| w[0] < w[1]), "{chosen:?}");
                assert!(chosen.iter().all(|n| (1..=count).contains(n)));
                assert!(max < 2 || count == 0 || chosen.first() == Some(&1) && chosen.last() == Some(&count));
            }
        }
    }

    #[test]
    fn a_schedule_strikes_each_point_at_each_visit_of_the_dry_run() {
        let counts = CrashCounts::new();
        for point in ["b", "a", "b"] {
            counts.points().reach(point);
        }
        let schedule = CrashSchedule::from_counts(&counts.reached(), 10, 1);
        let text: Vec<String> = schedule.into_iter().map(|s| s.to_string()).collect();
        assert_eq!(text, ["a#1", "b#1", "b#2"]);
    }

    #[test]
    fn an_action_may_arm_the_next_strike_and_a_panic_names_its_point() {
        let counts = CrashCounts::new();
        let again = counts.clone();
        let arm_next = move || again.arm("b", 1, CrashAction::Panic);
        counts.arm("a", 1, CrashAction::Call(Box::new(arm_next)));
        let points = counts.points();
        points.reach("b");
        points.reach("a");
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| points.reach("b"))).expect_err("armed");
        assert_eq!(cutwater_platform::spawn::panic_text(panic.as_ref()), "crash point b struck");
        points.reach("b");
        assert_eq!(counts.reached(), BTreeMap::from([("a", 1), ("b", 3)]));
        assert_eq!(counts.struck().len(), 2);
        assert_eq!(counts.unlisted(&["a"]), ["b"]);
    }

    #[test]
    fn a_disarmed_strike_never_happens() {
        let counts = CrashCounts::new();
        counts.arm("a", 1, CrashAction::Panic);
        counts.disarm();
        counts.points().reach("a");
        assert_eq!(counts.struck(), []);
    }
}
