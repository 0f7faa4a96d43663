//! The task that makes accepted entries durable.
//!
//! A step takes all that has gathered (up to the group's limit), builds one frame, writes it with one synced write, shows
//! its effects, answers its waiters, and hands the effects to the materialiser. There is no timer: the write in progress
//! is the window in which the next group gathers.

use std::sync::Arc;

use cutwater_platform::{BLOCK_BYTES, IoError, Step, Task};

use super::frame::{Entry, FRAME_HEADER_BYTES, FrameBuilder};
use crate::accept::{Group, Shared};
use crate::error::OutcomeUnknown;
use crate::materialise::Work;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    builder: FrameBuilder,
    /// Position up to which the last image covers the log.
    imaged: u64,
}

impl Writer {
    /// A writer for a log whose base image covers everything below `imaged`.
    pub(crate) fn new(shared: Arc<Shared>, imaged: u64) -> Writer {
        Writer { shared, builder: FrameBuilder::default(), imaged }
    }

    /// Writes one group; false when there is none, or when it must wait for the materialiser.
    fn advance(&mut self) -> Result<bool, IoError> {
        let shared = self.shared.clone();
        if shared.backlog.bytes() >= shared.limits.unmaterialised_bytes {
            return Ok(false);
        }
        let mut ring = shared.ring.lock().expect("no panic under the ring lock");
        let mut core = shared.lock();
        if core.images_underway == 0 && core.check().is_ok() {
            let due = ring.position() - self.imaged >= shared.limits.checkpoint_bytes;
            if due || (ring.used() > 1 && ring.used() >= shared.limits.wal_files_max) {
                core.push_image(None);
            }
        }
        let Some(bytes) = core.next_group_bytes(shared.limits.group_bytes) else { return Ok(false) };
        let padded = (FRAME_HEADER_BYTES + bytes).next_multiple_of(BLOCK_BYTES) as u64;
        if bytes > 0 && !ring.fits(padded) {
            let full = !ring.has_free() && ring.used() >= shared.limits.wal_files_max;
            if full && core.images_underway > 0 && shared.backlog.has_image() {
                // The materialiser wakes this task once it has given files back.
                return Ok(false);
            }
            drop(core);
            ring.rotate()?;
            return Ok(true);
        }
        let group = core.take_group(shared.limits.group_bytes);
        drop(core);
        let mut position = ring.position();
        if !group.entries.is_empty() {
            self.builder.begin();
            group.entries.iter().for_each(|entry| self.builder.push(entry));
            let frame = self.builder.finish(ring.generation(), position, position);
            shared.platform.crash.reach("log.frame-buffered");
            if let Err(e) = ring.write(frame) {
                let unknown = OutcomeUnknown { reason: e.to_string() };
                group.waiters.iter().for_each(|waiter| waiter.complete(Err(unknown.clone())));
                group.image.iter().for_each(|image| image.fail(&unknown));
                return Err(e);
            }
            position = ring.position();
            shared.platform.crash.reach("log.frame-written");
            self.reach_entries(&group.entries);
        }
        drop(ring);
        if group.image.is_some() {
            self.imaged = position;
        }
        self.publish(group, position);
        Ok(true)
    }

    fn reach_entries(&self, entries: &[Entry]) {
        for entry in entries {
            let point = match entry {
                Entry::Claim { .. } => "log.claim-written",
                Entry::Prepare { .. } => "log.prepare-written",
                Entry::End { .. } => "log.end-written",
                Entry::TopicCreated { .. } => "log.topic-created",
                Entry::ProducerBlock { .. } => "log.producer-block",
                _ => continue,
            };
            self.shared.platform.crash.reach(point);
        }
    }

    /// Everything up to `position` is durable: shows it, answers, hands on.
    fn publish(&self, group: Group, position: u64) {
        let shared = &self.shared;
        if !group.effects.is_empty() {
            let listeners = shared.view.write().expect("no panic under the view lock").apply(&group.effects);
            listeners.iter().for_each(|listener| listener.notify());
        }
        let answered = !group.waiters.is_empty();
        group.waiters.iter().for_each(|waiter| waiter.complete(Ok(())));
        if answered {
            shared.platform.crash.reach("log.acknowledged");
        }
        if !group.effects.is_empty() || group.image.is_some() {
            let image = group.image.map(|image| (position, image));
            shared.backlog.push(Work { effects: group.effects, image });
            shared.wake_materialiser();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A bug of ours, or a consumer's callback that panicked: nobody may wait for a task that is gone.
        if std::thread::panicking() {
            self.shared.poison("the log's writer panicked");
        }
    }
}

impl Task for Writer {
    fn step(&mut self) -> Step {
        {
            let core = self.shared.lock();
            if core.stop || core.is_poisoned() {
                return Step::Done;
            }
        }
        match self.advance() {
            Ok(true) => Step::Again,
            Ok(false) => Step::Idle,
            Err(e) => {
                self.shared.poison(&e.to_string());
                Step::Done
            }
        }
    }
}
