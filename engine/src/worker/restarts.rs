//! How often a run may start again: a pure count over a sliding window, so that a job that fails in a loop ends and one that fails once a
//! week doesn't.

use std::collections::VecDeque;
use std::time::Duration;

/// The failures of a run that still count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restarts(VecDeque<Duration>);

impl Restarts {
    /// Notes a failure. How many there were in the window, this one included: `Ok` if the run starts again, `Err` if they are more than
    /// `max`. Memory stays below `max` + 2 times.
    pub(crate) fn failed(&mut self, now: Duration, max: u32, within: Duration) -> Result<u32, u32> {
        while self.0.front().is_some_and(|then| now.saturating_sub(*then) > within) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        let failed = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if failed > max { Err(failed) } else { Ok(failed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_job_that_fails_once_a_week_goes_on_for_years_and_one_that_fails_in_a_loop_ends() {
        let mut restarts = Restarts::default();
        let mut now = Duration::ZERO;
        for _ in 0..500 {
            now += 7 * 24 * HOUR;
            assert_eq!(restarts.failed(now, 3, HOUR), Ok(1));
        }
        assert!(restarts.0.len() <= 1);
        for n in 2..=3 {
            now += Duration::from_secs(1);
            assert_eq!(restarts.failed(now, 3, HOUR), Ok(n));
        }
        assert_eq!(restarts.failed(now, 3, HOUR), Err(4));
    }

    /// All ways in which six failures follow each other at distances of a quarter, a half and the whole of the window: the run ends
    /// exactly when some window holds more than allowed.
    #[test]
    fn what_is_judged_is_what_stands_in_the_window() {
        let steps = [Duration::ZERO, HOUR / 4, HOUR / 2, HOUR, HOUR + Duration::from_nanos(1)];
        for max in 0..4 {
            for choice in 0..steps.len().pow(6) {
                let (mut restarts, mut all, mut now) = (Restarts::default(), vec![], HOUR);
                for place in 0..6 {
                    now += steps[choice / steps.len().pow(place) % steps.len()];
                    all.push(now);
                    let expected = all.iter().filter(|then| now - **then <= HOUR).count() as u32;
                    let judged = restarts.failed(now, max, HOUR);
                    assert_eq!(judged, if expected > max { Err(expected) } else { Ok(expected) });
                    if judged.is_err() {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn without_end_the_window_is_the_run() {
        let mut restarts = Restarts::default();
        for n in 1..=3 {
            assert_eq!(restarts.failed(n * 100 * 24 * HOUR, 3, Duration::MAX), Ok(n));
        }
        assert_eq!(restarts.failed(1000 * 24 * HOUR, 3, Duration::MAX), Err(4));
    }
}
