//! Which windows a time belongs to when they overlap, and the panes that they share. Pure arithmetic.
//!
//! * A window begins every `slide`, and is `size` long: a time lies in `size / slide` windows, one more or less if that isn't
//!   whole.
//! * Panes are the largest stretches that no window's beginning or end divides: their length is the greatest common divisor
//!   of size and slide. A time lies in one pane, a window is made of whole panes.
//! * Nothing wraps: starts are computed in 128 bits, and windows and panes cut off at the ends of the range of times.

use cutwater_engine::time::EventTime;

use super::tumbling::{Tumbling, Window};

/// Windows of one length that begin at equal distances and overlap.
///
/// They begin at whole multiples of the distance since 1970-01-01T00:00, moved by the offset. A record is kept once for all
/// windows that it is in.
///
/// ```
/// use cutwater_operators::window::Sliding;
///
/// let last_hour_every_five_minutes = Sliding::hours(1).every_minutes(5);
/// assert_eq!(last_hour_every_five_minutes.pane_ms(), 300_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sliding {
    size_ms: i64,
    slide_ms: i64,
    offset_ms: i64,
}

impl Sliding {
    /// Windows of `n` milliseconds. Without a distance they begin one after the other, as tumbling windows do.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn millis(n: u32) -> Sliding {
        Sliding::of(n as i64)
    }

    /// Windows of `n` seconds.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn seconds(n: u32) -> Sliding {
        Sliding::of(n as i64 * 1000)
    }

    /// Windows of `n` minutes.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn minutes(n: u32) -> Sliding {
        Sliding::of(n as i64 * 60_000)
    }

    /// Windows of `n` hours.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn hours(n: u32) -> Sliding {
        Sliding::of(n as i64 * 3_600_000)
    }

    /// Windows of `n` days of 24 hours.
    ///
    /// # Panics
    /// If `n` is 0.
    pub const fn days(n: u32) -> Sliding {
        Sliding::of(n as i64 * 86_400_000)
    }

    const fn of(size_ms: i64) -> Sliding {
        assert!(size_ms > 0, "a window must be at least a millisecond long");
        Sliding { size_ms, slide_ms: size_ms, offset_ms: 0 }
    }

    /// A window begins every `n` milliseconds.
    ///
    /// # Panics
    /// If `n` is 0, or longer than the windows: what lies between windows would be lost.
    #[must_use]
    pub const fn every_millis(self, n: u32) -> Sliding {
        self.every(n as i64)
    }

    /// A window begins every `n` seconds.
    ///
    /// # Panics
    /// As [`Sliding::every_millis`].
    #[must_use]
    pub const fn every_seconds(self, n: u32) -> Sliding {
        self.every(n as i64 * 1000)
    }

    /// A window begins every `n` minutes.
    ///
    /// # Panics
    /// As [`Sliding::every_millis`].
    #[must_use]
    pub const fn every_minutes(self, n: u32) -> Sliding {
        self.every(n as i64 * 60_000)
    }

    /// A window begins every `n` hours.
    ///
    /// # Panics
    /// As [`Sliding::every_millis`].
    #[must_use]
    pub const fn every_hours(self, n: u32) -> Sliding {
        self.every(n as i64 * 3_600_000)
    }

    /// A window begins every `n` days.
    ///
    /// # Panics
    /// As [`Sliding::every_millis`].
    #[must_use]
    pub const fn every_days(self, n: u32) -> Sliding {
        self.every(n as i64 * 86_400_000)
    }

    const fn every(self, slide_ms: i64) -> Sliding {
        assert!(slide_ms > 0, "windows must begin at least a millisecond apart");
        assert!(slide_ms <= self.size_ms, "windows must not leave anything out between them");
        Sliding { slide_ms, offset_ms: self.offset_ms.rem_euclid(slide_ms), ..self }
    }

    /// The same windows, beginning this many milliseconds later.
    #[must_use]
    pub const fn offset_millis(self, ms: i64) -> Sliding {
        Sliding { offset_ms: ms.rem_euclid(self.slide_ms), ..self }
    }

    /// How long each window is, in milliseconds.
    pub const fn size_ms(self) -> i64 {
        self.size_ms
    }

    /// How far apart they begin, in milliseconds.
    pub const fn slide_ms(self) -> i64 {
        self.slide_ms
    }

    /// By how much their beginnings are moved, from 0 to below the distance, in milliseconds.
    pub const fn offset_ms(self) -> i64 {
        self.offset_ms
    }

    /// How long the panes are that windows share, in milliseconds.
    pub const fn pane_ms(self) -> i64 {
        let (mut a, mut b) = (self.size_ms, self.slide_ms);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    }

    /// The panes, as windows of their own.
    pub(super) fn panes(self) -> Tumbling {
        Tumbling::of(self.pane_ms()).offset_millis(self.offset_ms)
    }

    /// The window that begins at `start`, which may lie outside of the range of times.
    pub(super) fn window(self, start: Start) -> Window {
        let cut = |t: i128| EventTime(t.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        Window { start: cut(start.0), end: cut(start.0 + i128::from(self.size_ms)) }
    }

    /// True if the pane that begins at `pane`, as the panes give it, lies in the window.
    pub(super) fn has(self, window: Start, pane: i64) -> bool {
        self.first(pane) <= window && window <= self.last(pane)
    }

    /// The first window that has this pane.
    pub(super) fn first(self, pane: i64) -> Start {
        let end = self.whole(pane) + i128::from(self.pane_ms());
        // The first window that ends there or later.
        self.at_or_after(end - i128::from(self.size_ms))
    }

    /// The last window that has this pane.
    pub(super) fn last(self, pane: i64) -> Start {
        let since = (self.whole(pane) - i128::from(self.offset_ms)).rem_euclid(i128::from(self.slide_ms));
        Start(self.whole(pane) - since)
    }

    /// The first window whose end `watermark` hasn't reached; `None` at the end of time.
    pub(super) fn first_after(self, watermark: EventTime) -> Option<Start> {
        let end = i128::from(watermark.0) + 1;
        (watermark < EventTime::MAX).then(|| self.at_or_after(end - i128::from(self.size_ms)))
    }

    /// The window after this one.
    pub(super) fn next(self, start: Start) -> Start {
        Start(start.0 + i128::from(self.slide_ms))
    }

    fn at_or_after(self, t: i128) -> Start {
        let missing = (i128::from(self.offset_ms) - t).rem_euclid(i128::from(self.slide_ms));
        Start(t + missing)
    }

    /// Where the pane would begin if the range of times had no beginning.
    fn whole(self, pane: i64) -> i128 {
        let since = (i128::from(pane) - i128::from(self.offset_ms)).rem_euclid(i128::from(self.pane_ms()));
        i128::from(pane) - since
    }
}

/// The start of a window, cut off nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start(i128);

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows that have `t`, by the definition, near `t`.
    fn windows_of(t: i128, size: i128, slide: i128, offset: i128) -> Vec<i128> {
        let around = (t - 2 * size).div_euclid(slide)..=(t + 2 * size).div_euclid(slide);
        around.map(|n| n * slide + offset).filter(|start| *start <= t && t < start + size).collect()
    }

    fn check(windows: Sliding, t: i64) {
        let pane = windows.panes().window_of(EventTime(t)).start.0;
        let mut found = vec![];
        let mut start = windows.first(pane);
        while start <= windows.last(pane) {
            assert!(windows.has(start, pane));
            found.push(start.0);
            start = windows.next(start);
        }
        assert!(!windows.has(start, pane), "one after the last");
        let (size, slide, offset) = (windows.size_ms.into(), windows.slide_ms.into(), windows.offset_ms.into());
        assert_eq!(found, windows_of(t.into(), size, slide, offset), "{t} in {windows:?}");
        for start in found {
            let window = windows.window(Start(start));
            assert!(window.start.0 <= t && (t < window.end.0 || window.end == EventTime::MAX), "{t} in {window}");
        }
        let next = windows.first_after(EventTime(t));
        let Some(next) = next else { return assert_eq!(t, i64::MAX) };
        assert!(next.0 + size > t.into() && next.0 + size - slide <= t.into(), "{t} and {windows:?}");
    }

    #[test]
    fn a_pane_lies_in_exactly_the_windows_that_the_definition_says_for_each_of_its_times() {
        for size in 1..=12 {
            for slide in 1..=size {
                for offset in [-3, 0, 1, 5] {
                    let windows = Sliding::millis(size).every_millis(slide).offset_millis(offset);
                    (-30..=30).for_each(|t| check(windows, t));
                }
            }
        }
    }

    #[test]
    fn at_the_ends_of_time_windows_are_cut_off_and_nothing_wraps() {
        for windows in [Sliding::millis(10).every_millis(4), Sliding::days(u32::MAX).every_days(1 << 30)] {
            for offset in [0, 1, 3, i64::MAX, i64::MIN] {
                for t in 0..30 {
                    check(windows.offset_millis(offset), i64::MIN + t);
                    check(windows.offset_millis(offset), i64::MAX - t);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "leave anything out")]
    fn windows_with_something_between_them_are_refused() {
        let _ = Sliding::seconds(1).every_minutes(1);
    }
}
