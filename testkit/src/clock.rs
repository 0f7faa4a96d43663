//! Time that passes only when somebody waits or a test says so.

use std::sync::Mutex;
use std::time::Duration;

use cutwater_platform::{Clock, WallTime};

/// A virtual clock: [`Clock::sleep`] advances it and returns at once. The wall clock may be made to jump, the monotonic
/// one never goes back.
///
/// ```
/// use cutwater_platform::Clock;
/// use cutwater_testkit::SimClock;
/// use std::time::Duration;
///
/// let clock = SimClock::new();
/// let before = clock.wall();
/// clock.sleep(Duration::from_secs(3_600));
/// assert_eq!(clock.monotonic(), Duration::from_secs(3_600));
/// assert_eq!(clock.wall().0 - before.0, 3_600_000);
/// ```
#[derive(Debug)]
pub struct SimClock {
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    monotonic: Duration,
    wall_offset_ms: i64,
}

/// 2026-01-01T00:00:00Z: where the wall clock begins, so that a test that prints a date prints the same one each time.
const START_MS: i64 = 1_767_225_600_000;

impl Default for SimClock {
    fn default() -> Self {
        SimClock::new()
    }
}

impl SimClock {
    /// A clock at the start of 2026 whose monotonic time is 0.
    pub fn new() -> SimClock {
        SimClock { now: Mutex::new(Now { monotonic: Duration::ZERO, wall_offset_ms: START_MS }) }
    }

    /// Lets time pass.
    pub fn advance(&self, how_long: Duration) {
        let mut now = self.now.lock().expect("no panic while telling the time");
        now.monotonic = now.monotonic.saturating_add(how_long);
    }

    /// Makes the wall clock jump by so many milliseconds, forwards or back.
    pub fn jump_wall_ms(&self, by: i64) {
        let mut now = self.now.lock().expect("no panic while telling the time");
        now.wall_offset_ms = now.wall_offset_ms.saturating_add(by);
    }
}

impl Clock for SimClock {
    fn wall(&self) -> WallTime {
        let now = self.now.lock().expect("no panic while telling the time");
        let passed = i64::try_from(now.monotonic.as_millis()).unwrap_or(i64::MAX);
        WallTime(now.wall_offset_ms.saturating_add(passed))
    }

    fn monotonic(&self) -> Duration {
        self.now.lock().expect("no panic while telling the time").monotonic
    }

    fn sleep(&self, how_long: Duration) {
        self.advance(how_long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_leaves_the_monotonic_one_alone() {
        let clock = SimClock::new();
        clock.sleep(Duration::from_millis(5));
        clock.jump_wall_ms(-3_600_000);
        assert_eq!(clock.monotonic(), Duration::from_millis(5));
        assert_eq!(clock.wall(), WallTime(START_MS + 5 - 3_600_000));
    }
}
