//! The clock of a rig: it stands still unless it is moved.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cutwater_platform::{Clock, WallTime};

/// Both times of a rig.
#[derive(Debug, Default)]
pub(super) struct RigClock(Mutex<(WallTime, Duration)>);

impl RigClock {
    /// Lets both times go on.
    pub(super) fn pass(&self, how_long: Duration) {
        self.change(|(wall, monotonic)| {
            wall.0 = wall.0.saturating_add(i64::try_from(how_long.as_millis()).unwrap_or(i64::MAX));
            *monotonic += how_long;
        });
    }

    /// Puts the wall clock, as somebody does who sets a machine's clock.
    pub(super) fn set_wall(&self, to: WallTime) {
        self.change(|(wall, _)| *wall = to);
    }

    fn change<R>(&self, change: impl FnOnce(&mut (WallTime, Duration)) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for RigClock {
    fn wall(&self) -> WallTime {
        self.change(|times| times.0)
    }

    fn monotonic(&self) -> Duration {
        self.change(|times| times.1)
    }

    fn sleep(&self, how_long: Duration) {
        self.pass(how_long);
    }
}
