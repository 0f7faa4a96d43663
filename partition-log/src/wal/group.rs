//! One group made durable: one frame, one synced write, then its effects are shown and its waiters answered.
//!
//! There is no timer: the write in progress is the window in which the next group gathers.
//!
//! A write that finds no room is held: its group stays the next one, and the same frame is written at the same place once there is
//! room. Blocks for a frame are made before its group is taken out of the queue, so that on most disks nothing of a group that is
//! held has been written; on those that copy, what was written is a torn tail to whoever opens the log meanwhile.

use std::sync::{MutexGuard, PoisonError};
use std::thread::Thread;

use cutwater_platform::{BLOCK_BYTES, IoError};

use super::frame::{Entry, FRAME_HEADER_BYTES, FrameBuilder};
use super::ring::Ring;
use crate::accept::{Answer, Group, Shared};
use crate::error::OutcomeUnknown;
use crate::held::Held;
use crate::materialise::Work;
use crate::room::{NoRoom, Who};

/// The write-ahead files and what a write needs.
#[derive(Debug)]
pub(crate) struct Wal {
    pub(crate) ring: Ring,
    builder: FrameBuilder,
    /// Position up to which the last image covers the log.
    imaged: u64,
    /// A group whose frame found no room: the next one to write.
    held: Option<Group>,
    /// What the last group held: the next one has room for as much.
    size: (usize, usize),
    /// The last write found no room.
    is_short: bool,
}

impl Wal {
    /// For a log whose base image covers everything below `imaged`.
    pub(crate) fn new(ring: Ring, imaged: u64) -> Wal {
        Wal { ring, builder: FrameBuilder::default(), imaged, held: None, size: (0, 0), is_short: false }
    }

    /// Whoever waits for what is held waits no longer.
    fn answer(&mut self, answer: &Answer) {
        for waiter in self.held.iter_mut().flat_map(|group| group.take_waiters()) {
            waiter.complete(answer.clone());
        }
    }

    /// What is held won't be written by this life: for a log that has stopped.
    pub(crate) fn let_go(&mut self, unknown: &OutcomeUnknown) {
        self.answer(&Err(unknown.clone()));
        if let Some(image) = self.held.take().and_then(|group| group.image) {
            image.fail(unknown);
        }
    }
}

/// What became of an attempt to write a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It got on; there may be more to do.
    Made,
    /// The queue was empty.
    None,
    /// The materialiser is behind. It wakes the writer task when it has got on.
    Blocked,
    /// The disk has no room. The writer task tries again.
    Held,
}

impl Shared {
    /// The write-ahead files. A panic while they were locked has stopped the log already.
    pub(crate) fn wal(&self) -> MutexGuard<'_, Wal> {
        self.wal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one group and shows it. Only for whoever leads.
    pub(crate) fn write_group(&self) -> Result<Progress, IoError> {
        if self.backlog.bytes() >= self.limits.unmaterialised_bytes {
            if let Some(answer) = self.blocked() {
                self.wal().answer(&answer);
            }
            return Ok(Progress::Blocked);
        }
        // The files are let go of before anybody is told: who listens may ask for the log's status.
        let made = {
            let mut wal = self.wal();
            match self.make_durable(&mut wal) {
                Err(e) => return self.without_room(&mut wal, e),
                Ok(made) => made,
            }
        };
        Ok(match made {
            Made::Group(group, position) => {
                self.publish(group, position);
                Progress::Made
            }
            Made::Room => Progress::Made,
            Made::NoFile => {
                self.blocked();
                Progress::Blocked
            }
            Made::Nothing => Progress::None,
        })
    }

    /// A write has failed. If it was for lack of room, what was accepted stays, in its order, for another try.
    fn without_room(&self, wal: &mut Wal, error: IoError) -> Result<Progress, IoError> {
        let bytes = self.lock().next_group(self.limits.group_bytes).map_or(0, |(_, bytes)| bytes);
        let unknown = OutcomeUnknown { reason: error.to_string() };
        let Some(no_room) = NoRoom::of(&error, bytes as u64) else {
            wal.let_go(&unknown);
            return Err(error);
        };
        wal.is_short = true;
        match self.hold(Who::Wal, no_room) {
            Held::TryAgain => Ok(Progress::Made),
            Held::Stays(answer) => {
                wal.answer(&answer);
                Ok(Progress::Held)
            }
            // Nobody waits for room to close, or to say that the log has stopped.
            Held::Ending => {
                wal.let_go(&unknown);
                Err(error)
            }
        }
    }

    fn make_durable(&self, wal: &mut Wal) -> Result<Made, IoError> {
        if wal.held.is_some() && self.lock().is_poisoned() {
            wal.let_go(&stopped());
            return Ok(Made::Nothing);
        }
        if let Some(group) = wal.held.take() {
            return self.write(wal, group);
        }
        let room = Group::room_like(wal.size);
        let mut core = self.lock();
        if core.images_underway == 0 && core.check().is_ok() {
            let due = wal.ring.position() - wal.imaged >= self.limits.checkpoint_bytes;
            if due || (wal.ring.used() > 1 && wal.ring.used() >= self.limits.wal_files_max) {
                core.push_image(None);
            }
        }
        let Some((items, bytes)) = core.next_group(self.limits.group_bytes) else { return Ok(Made::Nothing) };
        let padded = (FRAME_HEADER_BYTES + bytes).next_multiple_of(BLOCK_BYTES) as u64;
        if bytes > 0 && !wal.ring.fits(padded) {
            let full = !wal.ring.has_free() && wal.ring.used() >= self.limits.wal_files_max;
            if full && core.images_underway > 0 && self.backlog.has_image() {
                // The materialiser wakes the writer task once it has given files back.
                return Ok(Made::NoFile);
            }
            drop(core);
            wal.ring.rotate()?;
            return Ok(Made::Room);
        }
        if bytes > 0 && !wal.ring.is_ready(padded) {
            drop(core);
            wal.ring.make_ready(padded)?;
            return Ok(Made::Room);
        }
        let group = core.take_group(items, bytes, room);
        drop(core);
        wal.size = group.size();
        self.write(wal, group)
    }

    fn write(&self, wal: &mut Wal, group: Group) -> Result<Made, IoError> {
        let position = wal.ring.position();
        if group.entries().next().is_some() {
            wal.builder.begin();
            group.entries().for_each(|entry| wal.builder.push(entry));
            let frame = wal.builder.finish(wal.ring.generation(), position, position);
            self.platform.crash.reach("log.frame-buffered");
            let begun = self.platform.clock.monotonic();
            if let Err(e) = wal.ring.write(frame) {
                wal.held = Some(group);
                return Err(e);
            }
            self.writes.record(self.platform.clock.monotonic().saturating_sub(begun));
            self.platform.crash.reach("log.frame-written");
            self.reach_entries(group.entries());
        }
        if std::mem::take(&mut wal.is_short) {
            self.got_on(Who::Wal);
        }
        let position = wal.ring.position();
        if group.image.is_some() {
            wal.imaged = position;
        }
        Ok(Made::Group(group, position))
    }

    fn reach_entries<'a>(&self, entries: impl Iterator<Item = &'a Entry>) {
        for entry in entries {
            let point = match entry {
                Entry::Claim { .. } => "log.claim-written",
                Entry::Prepare { .. } => "log.prepare-written",
                Entry::End { .. } => "log.end-written",
                Entry::TopicCreated { .. } => "log.topic-created",
                Entry::ProducerBlock { .. } => "log.producer-block",
                Entry::GroupOffsets { .. } => "log.offsets-written",
                Entry::GroupDeleted { .. } => "log.group-deleted",
                Entry::ForgetProducers { .. } => "log.producers-forgotten",
                Entry::Client { .. } => "log.client-written",
                Entry::ClientTxn { .. } => "log.client-txn-written",
                Entry::TopicDeleted { .. } => "log.topic-deleted",
                Entry::PartitionsAdded { .. } => "log.partitions-added",
                Entry::LogStart { .. } => "log.start-moved",
                Entry::Settings { .. } => "log.settings-written",
                _ => continue,
            };
            self.platform.crash.reach(point);
        }
    }

    /// Everything up to `position` is durable: shows it, answers, hands on. No lock is held but the lead, so that groups
    /// are shown in their order.
    fn publish(&self, group: Group, position: u64) {
        if !group.effects.is_empty() {
            let listeners = self.view.write().expect("no panic under the view lock").apply(&group.effects);
            listeners.iter().for_each(|listener| listener.notify());
        }
        let answered = group.waiters().next().is_some();
        let asleep: Vec<Thread> = group.waiters().filter_map(|waiter| waiter.fill(Ok(()))).collect();
        // Where nothing runs by itself nobody sleeps either.
        if !self.platform.spawn.is_inline() {
            self.wakes.settle();
            self.wakes.start(asleep);
        }
        if answered {
            self.platform.crash.reach("log.acknowledged");
        }
        if !group.effects.is_empty() || group.image.is_some() {
            let image = group.image.map(|image| (position, image));
            if self.backlog.push(Work::new(group.effects, image), self.limits.gathered_bytes()) {
                self.wake_materialiser();
            }
        }
    }
}

/// What those hear who wait for a write that a log which has stopped doesn't try again.
pub(crate) fn stopped() -> OutcomeUnknown {
    OutcomeUnknown { reason: "the log has stopped".to_string() }
}

/// What a write has come to.
enum Made {
    /// The group is durable, and so is everything below the position.
    Group(Group, u64),
    /// Room for the group, in the next file.
    Room,
    /// No file to go on in before the materialiser has given one back.
    NoFile,
    /// There is no group.
    Nothing,
}
