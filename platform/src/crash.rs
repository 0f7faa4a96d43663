//! Named crash points: places in the protocols where a crash has a meaning of its own.
//!
//! Code says `platform.crash.reach("log.frame-written")` at each of them. Unless armed that is one branch on a `None`.
//! Armed, a hook decides: testkit's counts, and stops the simulated disk; [`KillSelf`] kills this process for real.
//! `docs/recovery.md` lists every point with what is found there afterwards and what is done.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Hears of every crash point that is reached.
pub trait CrashHook: Send + Sync {
    /// Called on the thread that reached `point`, before it goes on.
    fn reached(&self, point: &'static str);
    /// Whether the code shall make this mistake: a test wants to see that it would be found. Asked in debug builds only.
    fn is_planted(&self, _mistake: &'static str) -> bool {
        false
    }
}

/// The hook that code carries. Does nothing unless armed.
#[derive(Clone, Default)]
pub struct CrashPoints(Option<Arc<dyn CrashHook>>);

impl CrashPoints {
    /// Points that report to `hook`.
    pub fn armed(hook: impl CrashHook + 'static) -> CrashPoints {
        CrashPoints(Some(Arc::new(hook)))
    }

    /// Points that report to a shared hook.
    pub fn shared(hook: Arc<dyn CrashHook>) -> CrashPoints {
        CrashPoints(Some(hook))
    }

    /// Says that `point` has been reached.
    #[inline]
    pub fn reach(&self, point: &'static str) {
        if let Some(hook) = &self.0 {
            hook.reached(point);
        }
    }

    /// True if a test has planted this mistake, for the code to make it. Always false in release builds, where the question costs
    /// nothing.
    #[inline]
    pub fn is_planted(&self, mistake: &'static str) -> bool {
        cfg!(debug_assertions) && self.0.as_ref().is_some_and(|hook| hook.is_planted(mistake))
    }
}

impl fmt::Debug for CrashPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "CrashPoints(armed)" } else { "CrashPoints(off)" })
    }
}

/// Kills this very process with `SIGKILL` when a chosen point is reached for the n-th time: nothing is flushed, nothing
/// unwinds, exactly as `kill -9` from outside.
#[derive(Debug)]
pub struct KillSelf {
    point: String,
    left: AtomicU64,
}

impl KillSelf {
    /// Strikes when `point` is reached for the `nth` time (1 is the first).
    pub fn at(point: impl Into<String>, nth: u64) -> KillSelf {
        KillSelf { point: point.into(), left: AtomicU64::new(nth.max(1)) }
    }

    /// Reads `CUTWATER_CRASH_AT=point#n` from the environment; nothing is armed when it is absent or empty.
    pub fn from_env() -> Option<KillSelf> {
        let value = std::env::var("CUTWATER_CRASH_AT").ok().filter(|v| !v.is_empty())?;
        let (point, nth) = value.split_once('#').unwrap_or((&value, "1"));
        Some(KillSelf::at(point, nth.parse().unwrap_or(1)))
    }
}

impl CrashHook for KillSelf {
    fn reached(&self, point: &'static str) {
        if point == self.point && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Cannot fail for our own process; should it, going on would make the test lie.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .expect("a process may kill itself");
        }
    }
}
