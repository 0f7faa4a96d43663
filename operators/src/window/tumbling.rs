//! Which window a time belongs to. Pure arithmetic.
//!
//! * Every time lies in exactly one window, and windows don't overlap: `start <= t < end`, and the end of one is the start of
//!   the next.
//! * At the ends of the range of times windows are cut off: nothing wraps. The last millisecond of all
//!   ([`EventTime::MAX`]) counts to the last window although that has no millisecond after it to end at.

use std::fmt;

use cutwater_engine::time::EventTime;
use serde::{Deserialize, Serialize};

/// A stretch of event time: from `start` on, until before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first millisecond in it.
    pub start: EventTime,
    /// The first millisecond after it.
    pub end: EventTime,
}

impl Window {
    /// The last millisecond in it: the time that results of the window carry.
    pub fn last(self) -> EventTime {
        self.end.saturating_add_ms(-1)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// Windows of one length that follow each other without gap or overlap.
///
/// They begin at whole multiples of their length since 1970-01-01T00:00, moved by the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tumbling {
    size_ms: i64,
    offset_ms: i64,
}

impl Tumbling {
    /// Windows of `n` milliseconds.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn millis(n: u32) -> Tumbling {
        Tumbling::of(n as i64)
    }

    /// Windows of `n` seconds.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn seconds(n: u32) -> Tumbling {
        Tumbling::of(n as i64 * 1000)
    }

    /// Windows of `n` minutes.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn minutes(n: u32) -> Tumbling {
        Tumbling::of(n as i64 * 60_000)
    }

    /// Windows of `n` hours.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn hours(n: u32) -> Tumbling {
        Tumbling::of(n as i64 * 3_600_000)
    }

    /// Windows of `n` days of 24 hours, from midnight to midnight in whatever calendar the times are.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn days(n: u32) -> Tumbling {
        Tumbling::of(n as i64 * 86_400_000)
    }

    pub(super) const fn of(size_ms: i64) -> Tumbling {
        assert!(size_ms > 0, "a window must be at least a millisecond long");
        Tumbling { size_ms, offset_ms: 0 }
    }

    /// The same windows, beginning this many milliseconds later; weeks that begin on a Monday are `days(7)` moved by four
    /// days, because 1970-01-01 was a Thursday.
    #[must_use]
    pub const fn offset_millis(self, ms: i64) -> Tumbling {
        Tumbling { offset_ms: ms.rem_euclid(self.size_ms), ..self }
    }

    /// How long each window is, in milliseconds.
    pub const fn size_ms(self) -> i64 {
        self.size_ms
    }

    /// By how much their beginnings are moved, from 0 to below the length, in milliseconds.
    pub const fn offset_ms(self) -> i64 {
        self.offset_ms
    }

    /// The window that `t` lies in.
    #[inline]
    pub fn window_of(self, t: EventTime) -> Window {
        let since = match t.0.checked_sub(self.offset_ms) {
            Some(since) => since.rem_euclid(self.size_ms),
            // Below the smallest number: take the offset off the remainder instead.
            None => (t.0.rem_euclid(self.size_ms) - self.offset_ms).rem_euclid(self.size_ms),
        };
        match t.0.checked_sub(since) {
            Some(start) => self.starting_at(start),
            // The very first window begins before the smallest time.
            None => Window { start: EventTime::MIN, end: t.saturating_add_ms(self.size_ms - since) },
        }
    }

    /// The window that [`Tumbling::window_of`] gave this start.
    pub(crate) fn starting_at(self, start: i64) -> Window {
        if start == i64::MIN {
            // Cut off at the beginning, unless it happens to begin there.
            let since = (i128::from(start) - i128::from(self.offset_ms)).rem_euclid(i128::from(self.size_ms));
            let whole = i64::try_from(since).expect("a remainder of a 64-bit number");
            return Window { start: EventTime::MIN, end: EventTime(start.saturating_add(self.size_ms - whole)) };
        }
        Window { start: EventTime(start), end: EventTime(start.saturating_add(self.size_ms)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in numbers that can't overflow.
    fn expected(t: i64, size: i64, offset: i64) -> (i64, i64) {
        let (wide, size, offset) = (i128::from(t), i128::from(size), i128::from(offset));
        let start = (wide - offset).div_euclid(size) * size + offset;
        let cut = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        (cut(start), cut(start + size))
    }

    fn check(t: i64, windows: Tumbling) {
        let window = windows.window_of(EventTime(t));
        let found = (window.start.0, window.end.0);
        assert_eq!(found, expected(t, windows.size_ms(), windows.offset_ms()), "{t} in {windows:?}");
        assert_eq!(windows.starting_at(window.start.0), window, "{t} in {windows:?}");
    }

    #[test]
    fn every_time_lies_in_the_one_window_that_the_definition_says() {
        for size in 1..=12 {
            for offset in -13..=13 {
                let windows = Tumbling::millis(size).offset_millis(offset);
                assert!((0..i64::from(size)).contains(&windows.offset_ms()));
                for t in -40..=40 {
                    check(t, windows);
                    let here = windows.window_of(EventTime(t));
                    let next = windows.window_of(EventTime(t + 1));
                    assert!(here == next || here.end == next.start, "no gap and no overlap at {t} in {windows:?}");
                }
            }
        }
    }

    #[test]
    fn at_the_ends_of_time_windows_are_cut_off_and_nothing_wraps() {
        for windows in [Tumbling::millis(1), Tumbling::millis(7), Tumbling::days(1), Tumbling::days(u32::MAX)] {
            for offset in [0, 1, 3, i64::MAX, i64::MIN] {
                for t in 0..20 {
                    check(i64::MIN + t, windows.offset_millis(offset));
                    check(i64::MAX - t, windows.offset_millis(offset));
                }
            }
        }
    }

    #[test]
    fn days_begin_at_midnight_and_weeks_where_they_are_moved_to() {
        let monday_noon = EventTime(4 * 86_400_000 + 43_200_000);
        assert_eq!(Tumbling::days(1).window_of(monday_noon).start, EventTime(4 * 86_400_000));
        let week = Tumbling::days(7).offset_millis(4 * 86_400_000).window_of(monday_noon);
        assert_eq!((week.start, week.last()), (EventTime(4 * 86_400_000), EventTime(11 * 86_400_000 - 1)));
    }

    #[test]
    #[should_panic(expected = "at least a millisecond")]
    fn a_window_without_length_is_refused() {
        let _ = Tumbling::hours(0);
    }
}
