//! What the log does while its disk is full: who is turned away, who is told what, what is tried again.
//!
//! The decision is [`crate::room`]'s; here it meets the log's locks and tasks. A write is held by whoever does it (the writer its
//! group, the materialiser its work) and tried again each [`RETRY`] by its task. Where nothing runs by itself, whoever is turned away
//! at the door has the tasks try first.

use std::sync::MutexGuard;
use std::time::Duration;

use crate::accept::{Answer, Core, Shared};
use crate::error::{Down, OutcomeUnknown};
use crate::room::{NoRoom, Who};

/// How long a write that found no room rests.
pub(crate) const RETRY: Duration = Duration::from_millis(250);

/// What a request asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// More and more room: records, topics, new transactions.
    Growth,
    /// A frame of the write-ahead log, whose files are used in turn: ends of transactions, deletions, offsets of groups.
    AFrame,
}

/// What becomes of a write that found no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// There is room now: the reserve was given up for it.
    TryAgain,
    /// It stays, and is tried again after [`RETRY`]. Whoever waits for it hears this.
    Stays(Answer),
    /// The log is being closed, or has stopped: nobody waits for room.
    Ending,
}

/// What those hear who wait for something that is held.
fn unknown(what: &NoRoom) -> OutcomeUnknown {
    let NoRoom { path, bytes } = what;
    let reason = format!(
        "the disk has no room ({bytes} bytes for {}); it was accepted, and happens once there is room and the log is still open",
        path.display()
    );
    OutcomeUnknown { reason }
}

impl Shared {
    /// The core, if the log takes such requests.
    pub(crate) fn core_for(&self, needs: Needs) -> Result<MutexGuard<'_, Core>, Down> {
        let (core, refusal) = self.judge_room(needs)?;
        match refusal {
            None => Ok(core),
            Some(_) if self.platform.spawn.is_inline() => {
                drop(core);
                self.try_again();
                let (core, refusal) = self.judge_room(needs)?;
                refusal.map_or(Ok(core), |no_room| Err(no_room.into()))
            }
            Some(no_room) => Err(no_room.into()),
        }
    }

    fn judge_room(&self, needs: Needs) -> Result<(MutexGuard<'_, Core>, Option<NoRoom>), Down> {
        let core = self.lock();
        core.check()?;
        let judged = match needs {
            Needs::Growth => core.room.for_growth(),
            Needs::AFrame => core.room.for_anything(self.backlog.bytes() >= self.limits.unmaterialised_bytes),
        };
        Ok((core, judged.err()))
    }

    /// Has the tasks try now, on this thread.
    fn try_again(&self) {
        // Once for what is held, once for the reserve behind it.
        for _ in 0..2 {
            self.wake_materialiser();
            self.wake_writer();
            while self.platform.spawn.help() {}
        }
    }

    /// A write has found no room. Those who wait for something behind it hear that its outcome is unknown.
    pub(crate) fn hold(&self, who: Who, what: NoRoom) -> Held {
        if self.reserve.give_up() {
            tracing::warn!(
                path = %what.path.display(), bytes = what.bytes, reserve = self.limits.reserve_bytes,
                "the disk is full: the reserve is given up, and nothing is accepted that makes the log larger until there is room for it"
            );
            self.lock().room.spend(who, what);
            self.platform.crash.reach("log.reserve-given-up");
            // It looks for room from now on.
            self.wake_materialiser();
            return Held::TryAgain;
        }
        let mut core = self.lock();
        if core.check().is_err() {
            return Held::Ending;
        }
        let news = core.room.hold(who, what.clone());
        let too_early = self.platform.crash.is_planted("log.held-acknowledged");
        let answer = if too_early { Ok(()) } else { Err(unknown(&what)) };
        if who == Who::Wal {
            core.answer_held(&answer);
        }
        drop(core);
        if news {
            tracing::warn!(
                path = %what.path.display(), bytes = what.bytes,
                "the disk is full: nothing is accepted that makes the log larger until there is room; reading goes on"
            );
            self.platform.crash.reach("log.write-held");
        }
        Held::Stays(answer)
    }

    /// The writer waits for the materialiser: if that is held for lack of room, nobody waits any longer. Answers what they hear.
    pub(crate) fn blocked(&self) -> Option<Answer> {
        let mut core = self.lock();
        let lack = core.room.lack().filter(|_| core.room.is_held(Who::Segments))?;
        let answer = Err(unknown(lack));
        core.answer_held(&answer);
        Some(answer)
    }

    /// Takes room for the time when there is no other, if there is some. Not from what has found none.
    pub(crate) fn tend_reserve(&self) {
        let now = self.platform.clock.monotonic();
        // Where nothing runs by itself nothing is tried too often.
        let rest = if self.platform.spawn.is_inline() { Duration::ZERO } else { RETRY };
        if self.reserve.is_due(now, rest)
            && self.lock().room.is_calm()
            && self.reserve.make(now)
            && self.lock().room.restore()
        {
            tracing::info!(dir = %self.dir.display(), "there is room again: the log takes all requests");
        }
    }

    /// How long the materialiser rests when it has nothing to do.
    pub(crate) fn rest(&self) -> Duration {
        let is_short = self.lock().room.lack().is_some();
        if is_short { RETRY } else { self.limits.look_every() }
    }

    /// What was held is written.
    pub(crate) fn got_on(&self, who: Who) {
        if self.lock().room.got_on(who) {
            self.wake_materialiser();
            tracing::info!(?who, dir = %self.dir.display(), "there is room again: what was held up is written");
        }
    }
}
