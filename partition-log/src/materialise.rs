//! The task behind the writer: puts what is durable into the segments, and takes the log's checkpoints.
//!
//! What finds no room is held and done again, from where it got to; nothing behind it is touched meanwhile, no write-ahead file is
//! given back, and the batches stay in memory for their readers. A failed sync stops the log.
//!
//! A checkpoint of the log: the segments and their directories are synced, then a base image of the state is published,
//! and only then are the write-ahead files that both cover given back. In this order, always.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cutwater_platform::{Step, Task};

use crate::accept::{Image, Shared};
use crate::base_image::{self, BaseImage};
use crate::core::Effect;
use crate::error::OutcomeUnknown;
use crate::held::{Held, RETRY};
use crate::room::{NoRoom, Who};
use crate::segment::SegmentError;
use crate::status;
use crate::topic::TopicPartition;
use crate::wal::group::stopped;

/// How long what is durable may gather before it goes into the segments: many small batches make one write.
const GATHER: Duration = Duration::from_millis(50);
/// At most so many bytes and effects are written in one go.
const PIECE_BYTES: usize = 8 << 20;
const PIECE_EFFECTS: usize = 16 << 10;
/// At most so many batches leave the tail under one lock: who commits waits for that lock.
const EVICTED_AT_ONCE: usize = 256;

/// Durable effects on their way into the segments, and perhaps the image of the state behind them.
#[derive(Debug)]
pub(crate) struct Work {
    /// Group by group, as they came: none is moved to stand behind another.
    groups: Vec<Vec<Effect>>,
    /// Effects of all groups.
    count: usize,
    bytes: usize,
    /// The position that the image covers, and the image.
    image: Option<(u64, Image)>,
}

impl Work {
    pub(crate) fn new(effects: Vec<Effect>, image: Option<(u64, Image)>) -> Work {
        let bytes = |effect: &Effect| if let Effect::Batch { batch, .. } = effect { batch.len() } else { 0 };
        Work { bytes: effects.iter().map(bytes).sum(), count: effects.len(), groups: vec![effects], image }
    }

    /// Whether `next` may be done in the same go.
    fn takes(&self, next: &Work) -> bool {
        self.image.is_none() && self.bytes + next.bytes <= PIECE_BYTES && self.count + next.count <= PIECE_EFFECTS
    }
}

/// The queue between writer and materialiser, with its size.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: Mutex<Queue>,
    /// Bytes and images in the queue and in the materialiser's hands.
    bytes: AtomicUsize,
    images: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    work: VecDeque<Work>,
    bytes: usize,
    /// The materialiser is at work, or looks here soon by itself.
    watched: bool,
}

/// What the materialiser finds in the queue.
enum Found {
    Nothing,
    /// Little, that may gather for some time.
    Little,
    Work(Work),
}

impl Backlog {
    /// True if the materialiser must be woken: there are `enough` bytes, an image, or something at all after nothing.
    #[must_use]
    pub(crate) fn push(&self, work: Work, enough: usize) -> bool {
        self.bytes.fetch_add(work.bytes, Ordering::SeqCst);
        self.images.fetch_add(usize::from(work.image.is_some()), Ordering::SeqCst);
        let mut queue = self.queue();
        let before = queue.bytes;
        queue.bytes += work.bytes;
        let ripe = work.image.is_some() || (before < enough && queue.bytes >= enough);
        queue.work.push_back(work);
        ripe || !std::mem::replace(&mut queue.watched, true)
    }

    /// Takes as much as one go may have, if that is enough or has gathered for long `enough`.
    fn take(&self, enough: usize, gathered: bool) -> Found {
        let mut queue = self.queue();
        let queue = &mut *queue;
        if !gathered && !queue.work.is_empty() && queue.bytes < enough && !self.has_image() {
            return Found::Little;
        }
        let Some(mut work) = queue.work.pop_front() else {
            queue.watched = false;
            return Found::Nothing;
        };
        while let Some(next) = queue.work.pop_front_if(|next| work.takes(next)) {
            work.groups.extend(next.groups);
            work.count += next.count;
            work.bytes += next.bytes;
            work.image = next.image;
        }
        queue.bytes -= work.bytes;
        Found::Work(work)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic under the backlog's lock")
    }

    fn done(&self, bytes: usize, image: bool) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.images.fetch_sub(usize::from(image), Ordering::SeqCst);
    }

    /// Bytes that are durable but not yet in segments.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// True while an image waits here or is being published.
    pub(crate) fn has_image(&self) -> bool {
        self.images.load(Ordering::SeqCst) > 0
    }

    /// Drops everything and tells those who wait for an image.
    pub(crate) fn abandon(&self, unknown: &OutcomeUnknown) {
        let abandoned = {
            let mut queue = self.queue();
            queue.bytes = 0;
            std::mem::take(&mut queue.work)
        };
        for work in &abandoned {
            work.image.iter().for_each(|(_, image)| image.fail(unknown));
            self.done(work.bytes, work.image.is_some());
        }
    }
}

/// Where each partition's last batch ends.
pub(crate) fn ends<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Vec<(TopicPartition, u64)> {
    let mut ends = BTreeMap::new();
    for effect in effects {
        if let Effect::Batch { at, next, .. } = effect {
            ends.insert(*at, *next);
        }
    }
    ends.into_iter().collect()
}

pub(crate) struct Materialiser {
    shared: Arc<Shared>,
    /// When the last warning was given, and when was last looked for a reason, in milliseconds of the wall clock.
    warned: i64,
    looked: i64,
    /// It has waited for more to gather.
    gathered: bool,
    /// What found no room, begun already.
    held: Option<Work>,
}

/// Why work couldn't be done.
enum Trouble {
    /// It can be done again.
    NoRoom(NoRoom),
    /// The log must stop.
    Disk(String),
}

impl Trouble {
    fn of(error: &SegmentError, bytes: usize) -> Trouble {
        match error.no_room(bytes as u64) {
            Some(no_room) => Trouble::NoRoom(no_room),
            None => Trouble::Disk(error.to_string()),
        }
    }
}

impl Materialiser {
    pub(crate) fn new(shared: Arc<Shared>) -> Materialiser {
        Materialiser { shared, warned: i64::MIN, looked: i64::MIN, gathered: false, held: None }
    }

    /// Puts batches into the segments; `again` if a part of that may have been done before.
    fn materialise(&self, work: &Work, again: bool) -> Result<(), Trouble> {
        let shared = &self.shared;
        if work.count == 0 {
            return Ok(());
        }
        let effects = || work.groups.iter().flatten();
        shared.segments.write(effects(), again).map_err(|e| Trouble::of(&e, work.bytes))?;
        let view = || shared.view.write().expect("no panic under the view lock");
        view().materialised(&ends(effects()));
        loop {
            let evicted = view().evict(shared.limits.tail_bytes, EVICTED_AT_ONCE);
            if evicted.is_empty() {
                break;
            }
            shared.spares.give(evicted);
        }
        shared.platform.crash.reach("log.materialised");
        Ok(())
    }

    /// Takes a checkpoint of the log: everything below `position` is in the segments.
    fn checkpoint(&self, position: u64, state: &[u8]) -> Result<(), Trouble> {
        let shared = &self.shared;
        let trouble = |e: SegmentError| Trouble::of(&e, state.len());
        if !shared.platform.crash.is_planted("log.segments-not-synced") {
            shared.segments.sync_all().map_err(trouble)?;
        }
        shared.platform.crash.reach("log.segment-synced");
        let generation = shared.wal().ring.generation();
        let image = BaseImage { generation, position, state };
        base_image::publish(&shared.platform, &shared.dir, &image).map_err(|e| trouble(e.into()))?;
        shared.segments.remove_doomed(&shared.platform.crash).map_err(trouble)?;
        let released = shared.wal().ring.release(position);
        if released > 0 {
            shared.platform.crash.reach("log.file-recycled");
        }
        Ok(())
    }

    fn next(&mut self, enough: usize) -> Found {
        // Without room nothing gathers: what is written is out of the way of the reserve.
        let is_short = self.shared.lock().room.lack().is_some();
        self.shared.backlog.take(enough, std::mem::take(&mut self.gathered) || is_short)
    }

    /// What is held is left to the next open.
    fn let_go(&mut self) {
        if let Some(work) = self.held.take() {
            work.image.iter().for_each(|(_, image)| image.fail(&stopped()));
            self.shared.backlog.done(work.bytes, work.image.is_some());
        }
    }

    /// Looks, now and then, for what has been open, silent or prepared for too long.
    fn look(&mut self) {
        let now = self.shared.wall();
        if now.saturating_sub(self.looked) < self.shared.limits.look_every().as_millis() as i64 {
            return;
        }
        self.looked = now;
        self.expire(now);
        self.warn(now);
    }

    fn expire(&self, now: i64) {
        let mut core = self.shared.lock();
        if core.check().is_err() {
            return;
        }
        self.shared.expire(&mut core, now);
        let wake = core.wants_writer();
        drop(core);
        if wake {
            self.shared.wake_writer();
        }
    }

    fn warn(&mut self, now: i64) {
        let alarm = i64::try_from(self.shared.limits.prepared_alarm.as_millis()).unwrap_or(i64::MAX);
        let late = status::late_prepared(&self.shared.lock().state, now, alarm);
        if let Some(oldest) = late.filter(|_| now.saturating_sub(self.warned) >= alarm) {
            self.warned = now;
            tracing::warn!(
                owner = %oldest.id.owner,
                transaction = %oldest.id,
                bytes = oldest.bytes,
                age_seconds = now.saturating_sub(oldest.since.0) / 1000,
                "a prepared transaction waits for its owner's decision and holds back readers and disk; commit or abort it"
            );
        }
    }
}

impl Drop for Materialiser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.poison("the log's materialiser panicked");
        }
    }
}

impl Task for Materialiser {
    fn step(&mut self) -> Step {
        {
            let core = self.shared.lock();
            if core.stop || core.is_poisoned() {
                drop(core);
                self.let_go();
                return Step::Done;
            }
        }
        self.look();
        let enough = self.shared.limits.gathered_bytes();
        let held = self.held.take();
        let again = held.is_some();
        let work = match held.map_or_else(|| self.next(enough), Found::Work) {
            Found::Nothing => {
                self.shared.tend_reserve();
                return Step::Wait(self.shared.rest());
            }
            Found::Little => {
                self.gathered = true;
                return Step::Wait(GATHER);
            }
            Found::Work(work) => work,
        };
        let mut result = self.materialise(&work, again);
        if let (Ok(()), Some((position, image))) = (&result, &work.image) {
            result = self.checkpoint(*position, &image.state);
        }
        if let Err(Trouble::NoRoom(no_room)) = &result {
            match self.shared.hold(Who::Segments, no_room.clone()) {
                Held::TryAgain => {
                    self.held = Some(work);
                    return Step::Again;
                }
                Held::Stays(_) => {
                    self.held = Some(work);
                    // The writer may wait for this work: its waiters must hear of it.
                    self.shared.wake_writer();
                    return Step::Wait(RETRY);
                }
                Held::Ending => result = Err(Trouble::Disk(no_room.to_string())),
            }
        }
        if again && result.is_ok() {
            self.shared.got_on(Who::Segments);
        }
        if work.image.is_some() {
            self.shared.lock().images_underway -= 1;
        }
        self.shared.backlog.done(work.bytes, work.image.is_some());
        match result {
            Ok(()) => {
                if let Some(done) = work.image.and_then(|(_, image)| image.done) {
                    done.complete(Ok(()));
                }
                // The writer may have waited for room here, or for a file.
                self.shared.wake_writer();
                Step::Again
            }
            Err(Trouble::NoRoom(_)) => unreachable!("held above"),
            Err(Trouble::Disk(reason)) => {
                self.shared.poison(&reason);
                let unknown = OutcomeUnknown { reason };
                work.image.iter().for_each(|(_, image)| image.fail(&unknown));
                Step::Done
            }
        }
    }
}
