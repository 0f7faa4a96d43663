//! Beside the run: shows how far it is, and passes a signal on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutwater_engine::config::Options;
use cutwater_engine::observe::{Control, Paused, Phase, Seen};
use cutwater_platform::{Clock, Spawn, Step, Task, TaskHandle};

use super::console::Console;
use super::orders::Desk;
use super::signals::Signals;

/// How often the line is drawn and signals are looked for.
const TICK: Duration = Duration::from_millis(100);
/// How often a line is printed where nothing can be drawn over.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The watch over one run.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    task: TaskHandle,
    spawn: Arc<dyn Spawn>,
    console: Console,
}

impl Watch {
    pub(super) fn start(console: &Console, signals: &Signals, control: &Control, options: &Options) -> Watch {
        let platform = &options.platform;
        let over = Arc::new(AtomicBool::new(false));
        let now = platform.clock.monotonic();
        let watching = Watching {
            over: over.clone(),
            signal: signals.flag(),
            stopping: false,
            control: control.clone(),
            desk: Desk::new(options),
            console: console.clone(),
            clock: platform.clock.clone(),
            rate: Rate { at: now, read: 0, per_second: 0.0 },
            line_at: now + LINE_EVERY,
            paused: None,
        };
        let task = platform.spawn.spawn("cw-face", Box::new(watching));
        Watch { over, task, spawn: platform.spawn.clone(), console: console.clone() }
    }

    /// The run is over: takes the line away.
    pub(super) fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        if let Err(panic) = self.task.join(self.spawn.as_ref()) {
            self.console.complain(&format!("showing progress failed: {panic}"));
        }
        self.console.clear();
    }
}

struct Watching {
    over: Arc<AtomicBool>,
    signal: Arc<AtomicBool>,
    stopping: bool,
    control: Control,
    desk: Desk,
    console: Console,
    clock: Arc<dyn Clock>,
    rate: Rate,
    line_at: Duration,
    paused: Option<Paused>,
}

impl Task for Watching {
    fn step(&mut self) -> Step {
        // Also when all is over: orders are settled then, and somebody waits for their answers.
        let over = self.over.load(Ordering::SeqCst);
        if let Err(error) = self.desk.look(&self.control, over) {
            tracing::warn!(%error, "orders can't be taken or answered");
        }
        if over {
            return Step::Done;
        }
        if self.signal.load(Ordering::SeqCst) && !self.stopping {
            self.stopping = true;
            self.control.stop();
            self.console.say("stopping after a last checkpoint; once more ends at once");
        }
        let paused = self.control.paused();
        if paused != self.paused {
            match &paused {
                Some(paused) => self.console.say(&paused.to_string()),
                None => self.console.say("there is space again: going on"),
            }
            self.paused = paused;
        }
        let (now, seen) = (self.clock.monotonic(), self.control.seen());
        self.rate.update(now, seen.read);
        if self.console.is_terminal() {
            self.console.draw(line(&seen, self.rate.per_second, self.stopping));
        } else if now >= self.line_at {
            self.line_at = now + LINE_EVERY;
            self.console.say(&line(&seen, self.rate.per_second, self.stopping));
        }
        Step::Wait(TICK)
    }
}

/// How fast records are read, over about the last second.
struct Rate {
    at: Duration,
    read: u64,
    per_second: f64,
}

impl Rate {
    fn update(&mut self, now: Duration, read: u64) {
        let since = now.saturating_sub(self.at);
        // An attempt that goes back to a checkpoint reads again: that is no negative speed.
        if read < self.read || since >= Duration::from_secs(1) {
            self.per_second = read.saturating_sub(self.read) as f64 / since.as_secs_f64().max(0.001);
            (self.at, self.read) = (now, read);
        }
    }
}

/// How far a run is, in a line.
fn line(seen: &Seen, per_second: f64, stopping: bool) -> String {
    let doing = match (seen.phase, stopping) {
        (Phase::Building, _) => "building the job",
        (Phase::Fencing, _) => "shutting out older attempts",
        (Phase::Recovering, _) => "recovering",
        (Phase::Loading, _) => "loading state",
        (Phase::Running, false) => "running",
        (Phase::Running, true) => "stopping",
        (Phase::Finished, _) => "finished",
        (Phase::Paused, _) => "paused until there is space on the disk",
    };
    let mut line = format!("{doing}: {} records read", grouped(seen.read));
    if per_second >= 1.0 {
        line += &format!(", {} a second", grouped(per_second as u64));
    }
    if seen.committed.0 > 0 {
        line += &format!(", checkpoint {} committed", seen.committed);
    }
    if seen.declined > 0 {
        line += &format!(", {} declined", seen.declined);
    }
    if seen.reread > 0 {
        line += &format!(", {} read again", grouped(seen.reread));
    }
    if seen.attempt.0 > 1 {
        line += &format!(", attempt {}", seen.attempt);
    }
    line
}

/// A number with commas between its thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_between_their_thousands() {
        let all = [0, 7, 999, 1_000, 27_004, 1_234_567, u64::MAX].map(grouped);
        assert_eq!(all, ["0", "7", "999", "1,000", "27,004", "1,234,567", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn the_rate_is_measured_over_a_second_and_never_negative() {
        let mut rate = Rate { at: Duration::ZERO, read: 0, per_second: 0.0 };
        rate.update(Duration::from_millis(500), 1_000);
        assert_eq!(rate.per_second as u64, 0, "not measured yet");
        rate.update(Duration::from_secs(2), 4_000);
        assert_eq!(rate.per_second as u64, 2_000);
        rate.update(Duration::from_millis(2_100), 1_000);
        assert_eq!(rate.per_second as u64, 0, "a new attempt reads again");
    }

    #[test]
    fn a_line_says_what_is_going_on() {
        let mut seen = Control::new().seen();
        assert_eq!(line(&seen, 0.0, false), "building the job: 0 records read");
        (seen.phase, seen.read, seen.committed.0, seen.attempt.0) = (Phase::Running, 12_345, 7, 2);
        assert_eq!(
            line(&seen, 1_000.4, false),
            "running: 12,345 records read, 1,000 a second, checkpoint 7 committed, attempt 2"
        );
        seen.declined = 1;
        assert_eq!(
            line(&seen, 0.0, true),
            "stopping: 12,345 records read, checkpoint 7 committed, 1 declined, attempt 2"
        );
    }
}
