//! How fast bytes have to move over a connection: judged from the clock and what has moved, without waiting itself.
//!
//! * In each long window (30 seconds) so many must move, or all that is left (I-9: what is held for a client has an end).
//! * While others wait for the memory that is held meanwhile, a short window (5 seconds) asks for much more: one who sends or reads by
//!   drops holds up nobody for long.

use std::time::Duration;

use crate::pool::Pool;

/// In a long window, by the second.
const BYTES_PER_SECOND: u64 = 16 << 10;
/// In a short window, while others wait.
const PRESSED_BYTES: u64 = 1 << 20;

/// The two windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) long: Duration,
    pub(super) short: Duration,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slow {
    /// Slower than anybody may be.
    Idle,
    /// Too slow while others wait.
    InTheWay,
}

/// One frame or answer under way.
#[derive(Debug)]
pub(super) struct Pace {
    windows: Windows,
    long: Window,
    short: Window,
    strains: u64,
}

#[derive(Debug)]
struct Window {
    began: Duration,
    moved: u64,
}

impl Pace {
    pub(super) fn begin(windows: Windows, now: Duration, pool: &Pool) -> Pace {
        let window = || Window { began: now, moved: 0 };
        Pace { windows, long: window(), short: window(), strains: pool.strain().1 }
    }

    /// So many bytes have moved.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.long.moved += bytes as u64;
        self.short.moved += bytes as u64;
    }

    /// Somebody else was waited for, not the client.
    pub(super) fn excuse(&mut self, waited: Duration) {
        self.long.began += waited;
        self.short.began += waited;
    }

    /// When it is judged next at the latest.
    pub(super) fn next(&self, holds: bool) -> Duration {
        let long = self.long.began + self.windows.long;
        if holds { long.min(self.short.began + self.windows.short) } else { long }
    }

    /// Whether it may go on; `pool` is where what it holds was taken from, if it holds anything.
    pub(super) fn judge(&mut self, now: Duration, pool: Option<&Pool>) -> Result<(), Slow> {
        if now >= self.long.began + self.windows.long {
            let least = BYTES_PER_SECOND.saturating_mul(self.windows.long.as_millis() as u64) / 1000;
            if self.long.moved < least {
                return Err(Slow::Idle);
            }
            self.long = Window { began: now, moved: 0 };
        }
        if now >= self.short.began + self.windows.short {
            let strain = pool.map(Pool::strain);
            if strain.is_some_and(|(now, ever)| now || ever > self.strains) && self.short.moved < PRESSED_BYTES {
                return Err(Slow::InTheWay);
            }
            self.strains = strain.map_or(self.strains, |(_, ever)| ever);
            self.short = Window { began: now, moved: 0 };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows { long: Duration::from_secs(30), short: Duration::from_secs(5) };

    /// How long one goes on that moves so many bytes each second; at most an hour.
    fn lasts(bytes: usize, pool: &std::sync::Arc<Pool>, strained: bool) -> (u64, Option<Slow>) {
        let mut pace = Pace::begin(WINDOWS, Duration::ZERO, pool);
        for second in 1..=3600 {
            if strained {
                assert!(pool.take(usize::MAX, Duration::ZERO).is_none());
            }
            pace.moved(bytes);
            if let Err(slow) = pace.judge(Duration::from_secs(second), Some(pool)) {
                return (second, Some(slow));
            }
        }
        (3600, None)
    }

    #[test]
    fn who_is_slow_has_half_a_minute_and_who_is_in_the_way_five_seconds() {
        let pool = Pool::new(10, 10);
        assert_eq!(lasts(0, &pool, false), (30, Some(Slow::Idle)));
        assert_eq!(lasts((16 << 10) - 1, &pool, false), (30, Some(Slow::Idle)));
        assert_eq!(lasts(16 << 10, &pool, false), (3600, None));
        assert_eq!(lasts(16 << 10, &pool, true), (5, Some(Slow::InTheWay)));
        assert_eq!(lasts(256 << 10, &pool, true), (3600, None));
    }

    #[test]
    fn a_burst_at_the_beginning_buys_no_silence_later() {
        let pool = Pool::new(10, 10);
        let mut pace = Pace::begin(WINDOWS, Duration::ZERO, &pool);
        pace.moved(90 << 20);
        assert_eq!(pace.judge(Duration::from_secs(30), None), Ok(()));
        assert_eq!(pace.judge(Duration::from_secs(60), None), Err(Slow::Idle));
    }

    #[test]
    fn who_holds_nothing_is_not_in_the_way_and_waiting_for_us_is_excused() {
        let pool = Pool::new(10, 10);
        let mut pace = Pace::begin(WINDOWS, Duration::ZERO, &pool);
        assert!(pool.take(11, Duration::ZERO).is_none());
        assert_eq!(pace.judge(Duration::from_secs(5), None), Ok(()));
        pace.excuse(Duration::from_secs(100));
        assert_eq!(pace.judge(Duration::from_secs(129), None), Ok(()));
        assert_eq!(pace.judge(Duration::from_secs(130), None), Err(Slow::Idle));
    }
}
