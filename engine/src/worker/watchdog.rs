//! Ends the process when the workers of a failed attempt don't leave.
//!
//! A worker that is stuck in user code can't be interrupted, and starting the next attempt beside it would let two attempts write
//! (I-7). So nobody waits for it for ever, and nobody goes on without it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutwater_platform::{Clock, Step, Task};

use crate::config::STUCK_EXIT_CODE;
use crate::worker::attempt::AttemptState;

/// How often it looks, at least.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The watch over the workers of one attempt.
pub(crate) struct Watchdog {
    pub(crate) attempt: Arc<AttemptState>,
    /// All have left.
    pub(crate) left: Arc<AtomicBool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) leave_within: Duration,
    /// Running the job again goes on from a checkpoint.
    pub(crate) goes_on: bool,
    /// When it was first seen that the attempt has failed.
    pub(crate) failing_since: Option<Duration>,
}

impl Task for Watchdog {
    fn step(&mut self) -> Step {
        if self.left.load(Ordering::SeqCst) {
            return Step::Done;
        }
        if self.attempt.is_over() {
            let now = self.clock.monotonic();
            if now.saturating_sub(*self.failing_since.get_or_insert(now)) > self.leave_within {
                say(&self.last_words());
                std::process::exit(STUCK_EXIT_CODE);
            }
        }
        Step::Wait(LOOK_EVERY.min(self.leave_within))
    }
}

impl Watchdog {
    fn last_words(&self) -> String {
        let why = self.attempt.failure().map_or(String::new(), |failure| format!(" ({failure})"));
        let next = match self.goes_on {
            true => "Run the job again in the same directory: it goes on from its last checkpoint",
            false => "An at-most-once job can't go on: run it again in another directory",
        };
        format!(
            "the attempt failed{why}, and a worker has not left it within {:?}: it is stuck in a function of the job, or in a \
             source or sink. It can't be interrupted, so the process ends with exit code {STUCK_EXIT_CODE}. {next}. If that \
             function may block for so long, raise Options::leave_within",
            self.leave_within
        )
    }
}

/// Where traces go; to standard error if nobody takes them, for a process must not end without a word.
fn say(text: &str) {
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{text}");
    } else {
        // If that is closed too there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "error: {text}");
    }
}
