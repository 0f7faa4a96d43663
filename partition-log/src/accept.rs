//! Where requests are accepted: one lock around the state and the queue to the disk, and no I/O under it.
//!
//! A request is judged, applied and queued under the lock, so that the order of the queue is the order of the state.
//! The log's writer takes what has gathered, makes it durable, and only then are effects shown and waiters answered.
//! After a failed write or sync nothing is accepted any more, and every waiter hears that its outcome is unknown.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use cutwater_platform::{Completion, Platform, TaskHandle};

use crate::batch::{BatchError, BatchHeader, assign};
use crate::config::LogLimits;
use crate::core::decide::AppendPlan;
use crate::core::{Effect, State};
use crate::error::{AppendError, Down, OutcomeUnknown};
use crate::materialise::Backlog;
use crate::segments::Segments;
use crate::topic::TopicPartition;
use crate::view::{Listener, View};
use crate::wal::frame::{Entry, Outcome};
use crate::wal::ring::Ring;

/// What a waiter hears: durable and visible, or unknown.
pub(crate) type Answer = Result<(), OutcomeUnknown>;
/// Somebody who waits for an entry to be durable.
pub(crate) type Waiter = Arc<Completion<Answer>>;

/// What all handles of one log share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) platform: Platform,
    pub(crate) limits: LogLimits,
    pub(crate) dir: PathBuf,
    pub(crate) core: Mutex<Core>,
    pub(crate) view: RwLock<View>,
    pub(crate) ring: Mutex<Ring>,
    pub(crate) backlog: Backlog,
    pub(crate) segments: Segments,
    pub(crate) writer: OnceLock<TaskHandle>,
    pub(crate) materialiser: OnceLock<TaskHandle>,
}

/// The state and the queue to the disk.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) state: State,
    queue: VecDeque<Pending>,
    effects: VecDeque<Effect>,
    queued_bytes: usize,
    /// Appenders that wait for the queue to shrink.
    space: Vec<Arc<Completion<()>>>,
    down: Option<Down>,
    /// Images on their way through the queue or being published.
    pub(crate) images_underway: usize,
    /// The tasks shall end without finishing their work.
    pub(crate) stop: bool,
}

/// One accepted entry, or none and only somebody who waits for those before it, or an image of the state up to here.
#[derive(Debug, Default)]
struct Pending {
    entry: Option<Entry>,
    effects: usize,
    bytes: usize,
    waiter: Option<Waiter>,
    image: Option<Image>,
}

/// The state as it was behind some entry, on its way to become a base image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) state: Vec<u8>,
    /// Whoever waits for it to be published.
    pub(crate) done: Option<Waiter>,
}

impl Image {
    /// It won't be published.
    pub(crate) fn fail(&self, unknown: &OutcomeUnknown) {
        if let Some(done) = &self.done {
            done.complete(Err(unknown.clone()));
        }
    }
}

/// What one write makes durable.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) entries: Vec<Entry>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) waiters: Vec<Waiter>,
    /// The state right behind the last entry.
    pub(crate) image: Option<Image>,
}

impl Core {
    pub(crate) fn new(state: State) -> Core {
        Core { state, ..Core::default() }
    }

    pub(crate) fn check(&self) -> Result<(), Down> {
        self.down.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        matches!(self.down, Some(Down::Poisoned { .. }))
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Applies a planned entry and queues it.
    pub(crate) fn push(&mut self, entry: Entry) {
        let mut effects = Vec::new();
        self.state.apply(&entry, &mut effects).expect("a planned entry fits the state it was planned on");
        let bytes = entry.encoded_bytes();
        self.queued_bytes += bytes;
        self.queue.push_back(Pending { entry: Some(entry), effects: effects.len(), bytes, ..Pending::default() });
        self.effects.extend(effects);
    }

    pub(crate) fn push_all(&mut self, entries: impl IntoIterator<Item = Entry>) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }

    /// Answers once everything accepted so far is durable and visible.
    pub(crate) fn wait_for_all(&mut self) -> Waiter {
        let waiter = Waiter::default();
        match self.queue.back_mut() {
            Some(last) if last.waiter.is_none() && last.image.is_none() => last.waiter = Some(waiter.clone()),
            _ => self.queue.push_back(Pending { waiter: Some(waiter.clone()), ..Pending::default() }),
        }
        waiter
    }

    /// Sends an image of the state behind everything accepted so far.
    pub(crate) fn push_image(&mut self, done: Option<Waiter>) {
        self.images_underway += 1;
        let image = Some(Image { state: self.state.image(), done });
        self.queue.push_back(Pending { image, ..Pending::default() });
    }

    /// Ends live transactions, in as many entries as their size needs.
    pub(crate) fn abort(&mut self, producers: &[i64], wall: i64, limits: &LogLimits) {
        for chunk in self.state.end_chunks(producers, limits.end_bytes_max) {
            let entries = self.state.end_entry(Outcome::Aborted, &chunk, wall, limits);
            self.push_all(entries);
        }
    }

    /// Bytes of the entries that the next group takes: at least one, then as many as fit `limit`.
    pub(crate) fn next_group_bytes(&self, limit: usize) -> Option<usize> {
        self.next_group(limit).map(|(_, bytes)| bytes)
    }

    fn next_group(&self, limit: usize) -> Option<(usize, usize)> {
        let (mut items, mut bytes) = (0, 0);
        for pending in &self.queue {
            if bytes > 0 && bytes + pending.bytes > limit {
                break;
            }
            items += 1;
            bytes += pending.bytes;
            if pending.image.is_some() {
                break;
            }
        }
        (items > 0).then_some((items, bytes))
    }

    /// Takes the next group out of the queue and lets waiting appenders try again.
    pub(crate) fn take_group(&mut self, limit: usize) -> Group {
        let (items, bytes) = self.next_group(limit).unwrap_or_default();
        let mut group = Group::default();
        for pending in self.queue.drain(..items) {
            group.entries.extend(pending.entry);
            group.effects.extend(self.effects.drain(..pending.effects));
            group.waiters.extend(pending.waiter);
            group.image = pending.image;
        }
        self.queued_bytes -= bytes;
        for waiting in self.space.drain(..) {
            waiting.complete(());
        }
        group
    }

    /// Accepts nothing more. Those in the queue hear `answer`, or stay queued if there is none.
    pub(crate) fn take_down(&mut self, down: Down, answer: Option<OutcomeUnknown>) {
        if !self.is_poisoned() {
            self.down = Some(down);
        }
        for waiting in self.space.drain(..) {
            waiting.complete(());
        }
        if let Some(unknown) = answer {
            for pending in self.queue.drain(..) {
                if let Some(waiter) = pending.waiter {
                    waiter.complete(Err(unknown.clone()));
                }
                if let Some(image) = pending.image {
                    image.fail(&unknown);
                }
            }
            self.effects.clear();
            self.queued_bytes = 0;
        }
    }
}

/// What an accepted batch got.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) base: u64,
    pub(crate) waiter: Option<Waiter>,
}

impl Shared {
    pub(crate) fn wall(&self) -> i64 {
        self.platform.clock.wall().0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no panic under the core lock")
    }

    /// The core, if the log takes requests.
    pub(crate) fn core(&self) -> Result<MutexGuard<'_, Core>, Down> {
        let core = self.lock();
        core.check()?;
        Ok(core)
    }

    /// The core, once the queue has room.
    fn core_with_room(&self) -> Result<MutexGuard<'_, Core>, Down> {
        loop {
            let mut core = self.core()?;
            if core.queued_bytes < self.limits.queue_bytes {
                return Ok(core);
            }
            let room = Arc::new(Completion::new());
            core.space.push(room.clone());
            drop(core);
            self.wake_writer();
            room.wait(&*self.platform.spawn);
        }
    }

    pub(crate) fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.wake();
        }
    }

    pub(crate) fn wake_materialiser(&self) {
        if let Some(materialiser) = self.materialiser.get() {
            materialiser.wake();
        }
    }

    /// Wakes the writer and waits for the answer.
    pub(crate) fn wait(&self, waiter: &Waiter) -> Answer {
        self.wake_writer();
        waiter.wait(&*self.platform.spawn)
    }

    /// Accepts a verified batch. With `wait` the answer brings somebody to wait for.
    pub(crate) fn append(&self, at: TopicPartition, mut batch: Vec<u8>, wait: bool) -> Result<Accepted, AppendError> {
        let (bytes, limit) = (batch.len(), self.limits.batch_bytes_max);
        if bytes > limit {
            return Err(AppendError::Batch { at, source: BatchError::TooLarge { bytes, limit } });
        }
        let header = BatchHeader::parse(&batch).map_err(|source| AppendError::Batch { at, source })?;
        let mut core = self.core_with_room()?;
        let base = match core.state.plan_append(at, &header, bytes, &self.limits)? {
            AppendPlan::Duplicate { base } => base,
            AppendPlan::Append { before, base } => {
                core.push_all(before);
                assign(&mut batch, base.cast_signed(), 0);
                core.push(Entry::Append { at, wall: self.wall(), batch: Arc::new(batch) });
                base
            }
        };
        // The waiter of a duplicate stands behind the original, which may still be on its way to the disk.
        let waiter = wait.then(|| core.wait_for_all());
        drop(core);
        self.wake_writer();
        Ok(Accepted { base, waiter })
    }

    /// Stops the log for good after a failed write or sync.
    pub(crate) fn poison(&self, reason: &str) {
        tracing::error!(reason, dir = %self.dir.display(), "the log stops: its disk failed");
        let unknown = OutcomeUnknown { reason: reason.to_string() };
        self.lock().take_down(Down::Poisoned { reason: reason.to_string() }, Some(unknown.clone()));
        self.backlog.abandon(&unknown);
        self.notify_all();
        self.wake_writer();
        self.wake_materialiser();
    }

    /// Wakes every consumer, for them to see that the log has stopped.
    pub(crate) fn notify_all(&self) {
        let listeners = self.view.read().expect("no panic under the view lock").all_listeners();
        listeners.iter().for_each(|listener: &Arc<Listener>| listener.notify());
    }
}
