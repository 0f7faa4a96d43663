//! Who writes: whoever waits for an answer while nobody writes, or the writer task.
//!
//! One at a time has the [lead](Lead). A thread that waits for its commit takes it if it is free: it would have to wait
//! for the disk anyway, and two changes of threads are spared. It leads until its own answer is there, then leaves what
//! has gathered meanwhile to the writer task, which goes on for as long as there is something to write. What nobody waits
//! for (the beginning and the batches of an open transaction) is written with the next group, or by the task after
//! [`LINGER`], or at once when it is much. What a full disk holds up is for the task alone to try again.

use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Step, Task};

use super::group::{Progress, stopped};
use crate::accept::{Lead, Shared, Waiter};
use crate::held::RETRY;
use crate::room::Who;

/// How long the log may keep what nobody waits for before it is written.
pub(crate) const LINGER: Duration = Duration::from_millis(5);
/// How long those that have their answers and still sleep may be left to those that are awake.
const LOOK_AFTER: Duration = Duration::from_micros(50);

impl Shared {
    /// Writes groups until `waiter` has its answer. The caller has just taken the lead.
    pub(crate) fn lead(&self, waiter: &Waiter) {
        let guard = PoisonOnPanic(self);
        loop {
            match self.write_group() {
                Ok(Progress::Made) if !waiter.is_complete() => {}
                Ok(_) => break,
                Err(e) => {
                    self.poison(&e.to_string());
                    break;
                }
            }
        }
        drop(guard);
        let wake = self.lock().leave_lead();
        // It looks after those that still sleep, too.
        if wake || self.wakes.are_left() {
            self.wake_writer();
        }
    }
}

/// Nobody may wait for a leader that is gone: by a bug of ours, or because a consumer's callback panicked.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("the log's writer panicked");
        }
    }
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// It has the lead since an earlier step.
    leads: bool,
    /// It has waited for more to come.
    lingered: bool,
    /// It has left sleepers to those that are awake.
    trusted: bool,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Writer {
        Writer { shared, leads: false, lingered: false, trusted: false }
    }

    /// What to do without writing, if anything.
    fn decide(&mut self) -> Option<Step> {
        let mut core = self.shared.lock();
        if core.stop || core.is_poisoned() {
            drop(core);
            self.shared.wal().let_go(&stopped());
            return Some(Step::Done);
        }
        core.lingering = false;
        if core.lead == Lead::Taken && !self.leads {
            return Some(Step::Idle);
        }
        self.leads = false;
        core.lead = Lead::Free;
        if core.is_empty() && !core.room.is_pending(Who::Wal) {
            self.lingered = false;
            return Some(Step::Idle);
        }
        let is_short = core.room.lack().is_some();
        if !is_short && !core.is_urgent() && !std::mem::replace(&mut self.lingered, true) {
            core.lingering = true;
            return Some(Step::Wait(LINGER));
        }
        self.lingered = false;
        self.leads = core.take_lead_again();
        (!self.leads).then_some(Step::Idle)
    }

    /// It has nothing to write: before it rests it sees to it that everybody who has an answer is woken.
    fn rest(&mut self, step: Step) -> Step {
        let wakes = &self.shared.wakes;
        if step == Step::Done {
            wakes.finish();
        } else if std::mem::take(&mut self.trusted) {
            wakes.settle();
        }
        if !wakes.are_left() {
            return step;
        }
        self.trusted = true;
        self.lingered = false;
        Step::Wait(LOOK_AFTER)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(PoisonOnPanic(&self.shared));
    }
}

impl Task for Writer {
    fn step(&mut self) -> Step {
        if let Some(step) = self.decide() {
            return self.rest(step);
        }
        match self.shared.write_group() {
            Ok(Progress::Made | Progress::None) => Step::Again,
            Ok(Progress::Blocked) => {
                self.shared.wakes.finish();
                self.shared.lock().lead = Lead::Free;
                self.leads = false;
                Step::Idle
            }
            Ok(Progress::Held) => {
                self.shared.wakes.finish();
                self.shared.lock().lead = Lead::Free;
                self.leads = false;
                Step::Wait(RETRY)
            }
            Err(e) => {
                self.shared.poison(&e.to_string());
                Step::Done
            }
        }
    }
}
