//! A run that fails now and then goes on for as long as it likes; one that fails in a loop ends.

mod memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::{Job, Untimed};
use cutwater_engine::observe::{Control, Report};
use cutwater_engine::worker::run;
use cutwater_platform::{Clock, SystemClock, WallTime};
use memory::{MemoryLog, Numbers};

const FAILURES: u64 = 6;
const NUMBERS: u64 = 40_000;
const HOUR: Duration = Duration::from_secs(3600);

/// The real clock, but that a test lets hours pass.
#[derive(Debug, Default)]
struct Calendar {
    clock: SystemClock,
    passed: Mutex<Duration>,
}

impl Clock for Calendar {
    fn wall(&self) -> WallTime {
        WallTime(self.clock.wall().0 + self.passed.lock().unwrap().as_millis() as i64)
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + *self.passed.lock().unwrap()
    }

    fn sleep(&self, how_long: Duration) {
        self.clock.sleep(how_long);
    }
}

/// Fails six times on its way, so long after the failure before.
fn run_with(apart: Duration, within: Duration) -> (Result<Report, RunError>, Arc<MemoryLog>) {
    let dir = tempfile::tempdir().unwrap();
    let (log, calendar) = (MemoryLog::new(), Arc::new(Calendar::default()));
    let mut options = Options { workers: 1, pin: false, ..Options::new("test", dir.path()) };
    // One at a time: several workers may fail in one attempt.
    options.guarantee = Guarantee::ExactlyOnce(Snapshots::every(Duration::from_millis(3)));
    (options.restarts_max, options.restarts_within, options.restart_backoff) = (2, within, Duration::from_millis(1));
    options.platform.clock = calendar.clone();
    let (seen, failed, into) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), log.clone());
    let build = move |job: &Job| -> Result<(), BuildError> {
        let (seen, failed, calendar) = (seen.clone(), failed.clone(), calendar.clone());
        job.source("numbers", Numbers { splits: 2, per_split: NUMBERS / 2 })
            .stage::<(u64, u64), Untimed>("fuse", move |records, _| {
                let so_far = seen.fetch_add(records.len() as u64, Ordering::SeqCst);
                let before = failed.load(Ordering::SeqCst);
                let due = before < FAILURES && so_far >= (before + 1) * NUMBERS / (FAILURES + 1);
                if due && failed.compare_exchange(before, before + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                    *calendar.passed.lock().unwrap() += apart;
                    panic!("as planned");
                }
                records.into_iter().map(|n| (n % 7, n)).collect()
            })
            .sink("out", into.sink());
        Ok(())
    };
    (run(build, &options, &Control::new()), log)
}

#[test]
fn failures_that_are_hours_apart_never_end_a_run() {
    let (ran, log) = run_with(2 * HOUR, HOUR);
    let report = ran.unwrap();
    report.assert_balanced();
    assert!(report.finished);
    assert_eq!(report.failures.len() as u64, FAILURES, "{:?}", report.failures);
    assert_eq!(log.committed().len() as u64, NUMBERS);
}

#[test]
fn failures_in_a_row_end_it_and_so_do_failures_of_a_whole_run_if_it_is_asked_for() {
    for (apart, within) in [(Duration::ZERO, HOUR), (HOUR / 4, HOUR), (2 * HOUR, Duration::MAX)] {
        let (ran, _) = run_with(apart, within);
        assert!(matches!(ran, Err(RunError::GaveUp { attempts: 3, .. })), "{apart:?} {within:?}: {ran:?}");
    }
}
