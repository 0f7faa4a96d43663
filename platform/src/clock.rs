//! Time: the wall clock for people and expiry, a monotonic clock for durations.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, as a wall clock says. May jump; never used to order events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(pub i64);

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock.
    fn wall(&self) -> WallTime;
    /// Time since some fixed moment of this process. Never goes back.
    fn monotonic(&self) -> Duration;
    /// Waits. A simulated clock advances itself instead.
    fn sleep(&self, how_long: Duration);
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the adapter")]
    fn sleep(&self, how_long: Duration) {
        std::thread::sleep(how_long);
    }
}
