//! Where requests are accepted: one lock around the state and the queue to the disk, and no I/O under it.
//!
//! A request is judged, applied and queued under the lock, so that the order of the queue is the order of the state.
//! The log's writer takes what has gathered, makes it durable, and only then are effects shown and waiters answered.
//! After a failed write or sync nothing is accepted any more, and every waiter hears that its outcome is unknown. On a full disk
//! requests are turned away at this door, before they are judged ([`crate::room`]).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

use cutwater_platform::{Completion, Platform, TaskHandle, Wakes};

use crate::batch::{BatchError, BatchHeader, assign};
use crate::config::LogLimits;
use crate::core::clients::Entrance;
use crate::core::decide::{AppendPlan, How};
use crate::core::{Effect, State};
use crate::error::{AppendError, Down, OutcomeUnknown};
use crate::held::Needs;
use crate::janitor::{Books, Tidied};
use crate::materialise::Backlog;
use crate::meter::Meter;
use crate::owner::TxnId;
use crate::reserve::Reserve;
use crate::room::{Room, Who};
use crate::segments::Segments;
use crate::spares::Spares;
use crate::topic::TopicPartition;
use crate::view::{Listener, View};
use crate::wal::frame::Entry;
use crate::wal::group::Wal;

/// With so many bytes queued a write is worth while even if nobody waits for it.
const EAGER_BYTES: usize = 128 << 10;

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
    /// Locked by whoever [leads](Lead), for one write at a time.
    pub(crate) wal: Mutex<Wal>,
    pub(crate) backlog: Backlog,
    /// How long synced writes of the write-ahead log take.
    pub(crate) writes: Meter,
    pub(crate) segments: Segments,
    /// Who still sleeps although the answer is there.
    pub(crate) wakes: Wakes,
    /// Room for when there is no other.
    pub(crate) reserve: Reserve,
    /// Memory for the next batches.
    pub(crate) spares: Spares,
    pub(crate) writer: OnceLock<TaskHandle>,
    pub(crate) materialiser: OnceLock<TaskHandle>,
    pub(crate) janitor: OnceLock<TaskHandle>,
    /// What the janitor remembers. Locked for as long as it is at work.
    pub(crate) books: Mutex<Books>,
    /// What its passes have done since the log was opened.
    pub(crate) tidied: Mutex<Tidied>,
}

/// The state and the queue to the disk.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) state: State,
    queue: VecDeque<Pending>,
    effects: Vec<Effect>,
    queued_bytes: usize,
    /// How many in the queue somebody waits for.
    awaited: usize,
    pub(crate) lead: Lead,
    /// The writer task will look at the queue within [`crate::wal::writer::LINGER`].
    pub(crate) lingering: bool,
    /// Appenders that wait for the queue to shrink.
    space: Vec<Arc<Completion<()>>>,
    down: Option<Down>,
    /// Producer ids below this lie in blocks whose reservation is known to be durable.
    pub(crate) durable_block_end: i64,
    /// Where the next look for silent producers begins.
    pub(crate) expiry_at: TopicPartition,
    /// Images on their way through the queue or being published.
    pub(crate) images_underway: usize,
    /// Bytes of the last one.
    image_bytes: usize,
    /// How short of room the disk is.
    pub(crate) room: Room,
    /// The tasks shall end without finishing their work.
    pub(crate) stop: bool,
}

/// Who writes. Decided under the core lock, so that nothing queued is ever overlooked: whoever leads looks at the queue
/// again, under that lock, before it lets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lead {
    /// Nobody. Who waits for an answer may write itself: that spares two changes of threads.
    #[default]
    Free,
    /// Somebody.
    Taken,
    /// Whoever led has left the queue to the writer task and has woken it.
    Handed,
}

/// One accepted entry, or none and only somebody who waits for those before it, or an image of the state up to here.
#[derive(Debug, Default)]
struct Pending {
    entry: Option<Entry>,
    effects: usize,
    bytes: usize,
    waiter: Option<Waiter>,
    image: Option<Image>,
    /// The next one is to be in the same write.
    with_next: bool,
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

/// Somebody who waits at once, and who may have to write.
#[derive(Debug)]
#[must_use = "whoever has the lead must write, or nobody ever does"]
struct Turn {
    waiter: Waiter,
    leads: bool,
}

/// What one write makes durable.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pending: VecDeque<Pending>,
    pub(crate) effects: Vec<Effect>,
    /// The state right behind the last entry.
    pub(crate) image: Option<Image>,
}

impl Group {
    /// An empty one with room for as much as `like` this one: what is taken into it needs no memory under the core lock.
    pub(crate) fn room_like(like: (usize, usize)) -> Group {
        let (pending, effects) = like;
        Group { pending: VecDeque::with_capacity(pending), effects: Vec::with_capacity(effects), image: None }
    }

    /// What it holds, in items and effects.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.pending.len(), self.effects.len())
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.pending.iter().filter_map(|pending| pending.entry.as_ref())
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.pending.iter().filter_map(|pending| pending.waiter.as_ref())
    }

    /// Those who wait, who are nobody afterwards.
    pub(crate) fn take_waiters(&mut self) -> impl Iterator<Item = Waiter> {
        self.pending.iter_mut().filter_map(|pending| pending.waiter.take())
    }
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
        let before = self.effects.len();
        self.state.apply(&entry, &mut self.effects).expect("a planned entry fits the state it was planned on");
        let (bytes, effects) = (entry.encoded_bytes(), self.effects.len() - before);
        self.queued_bytes += bytes;
        self.queue.push_back(Pending { entry: Some(entry), effects, bytes, ..Pending::default() });
    }

    pub(crate) fn push_all(&mut self, entries: impl IntoIterator<Item = Entry>) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }

    /// As [`Core::push_all`]; all of them are written in one frame, so that a crash leaves all or none.
    pub(crate) fn push_together(&mut self, entries: Vec<Entry>) {
        let count = entries.len();
        self.push_all(entries);
        for pending in self.queue.iter_mut().rev().take(count).skip(1) {
            pending.with_next = true;
        }
    }

    /// As [`Core::wait_for_all`], for somebody who waits at once: if nobody writes, that one will.
    fn await_all(&mut self) -> Turn {
        Turn { waiter: self.wait_for_all(), leads: self.take_lead() }
    }

    /// Answers once everything accepted so far is durable and visible.
    pub(crate) fn wait_for_all(&mut self) -> Waiter {
        let waiter = Waiter::default();
        match self.queue.back_mut() {
            Some(last) if last.waiter.is_none() && last.image.is_none() => last.waiter = Some(waiter.clone()),
            _ => self.queue.push_back(Pending { waiter: Some(waiter.clone()), ..Pending::default() }),
        }
        self.awaited += 1;
        waiter
    }

    /// Sends an image of the state behind everything accepted so far.
    pub(crate) fn push_image(&mut self, done: Option<Waiter>) {
        self.images_underway += 1;
        // About as large as the last one: it isn't moved again and again, under the lock, while it grows.
        let state = self.state.image_in(Vec::with_capacity(self.image_bytes + self.image_bytes / 8));
        self.image_bytes = state.len();
        let image = Some(Image { state, done });
        self.queue.push_back(Pending { image, ..Pending::default() });
        self.awaited += 1;
    }

    /// Whether there is something to write, and it shouldn't wait for more: somebody waits for it or
    /// for room, or it is much.
    pub(crate) fn is_urgent(&self) -> bool {
        self.awaited > 0 || !self.space.is_empty() || self.queued_bytes >= EAGER_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the lead if nobody has it and there is something to write. Not while a write is held: the writer task tries that
    /// again by itself.
    pub(crate) fn take_lead(&mut self) -> bool {
        !self.room.is_held(Who::Wal) && self.take_lead_again()
    }

    /// As [`Core::take_lead`], for the writer task.
    pub(crate) fn take_lead_again(&mut self) -> bool {
        let is_pending = self.room.is_pending(Who::Wal);
        let takes = self.lead == Lead::Free && (is_pending || !self.queue.is_empty());
        if takes {
            self.lead = Lead::Taken;
        }
        takes
    }

    /// Lets go of the lead, or leaves what has gathered to the writer task; true if that must be woken.
    pub(crate) fn leave_lead(&mut self) -> bool {
        let is_pending = self.room.is_pending(Who::Wal);
        self.lead = if is_pending || self.is_urgent() { Lead::Handed } else { Lead::Free };
        self.lead == Lead::Handed || self.linger()
    }

    /// True if the writer task must be woken to look, a little later, at what nobody waits for.
    fn linger(&mut self) -> bool {
        !self.queue.is_empty() && !std::mem::replace(&mut self.lingering, true)
    }

    /// After a push that nobody waits for: true if the writer task must be woken.
    pub(crate) fn wants_writer(&mut self) -> bool {
        self.lead == Lead::Free && (self.queued_bytes >= EAGER_BYTES || self.linger())
    }

    /// Aborts live transactions, in as many entries as their size needs.
    pub(crate) fn abort(&mut self, how: How, producers: &[i64], wall: i64, limits: &LogLimits) {
        for chunk in self.state.end_chunks(producers, limits.end_bytes_max) {
            let entries = self.state.end_entry(how, &chunk, wall, limits);
            self.push_all(entries);
        }
    }

    /// Items and bytes that the next group takes: at least one item with those that belong to it, then as many as fit `limit`.
    pub(crate) fn next_group(&self, limit: usize) -> Option<(usize, usize)> {
        // Mostly it is all there is.
        if self.queued_bytes <= limit && self.images_underway == 0 {
            return (!self.queue.is_empty()).then_some((self.queue.len(), self.queued_bytes));
        }
        let (mut items, mut bytes) = (0, 0);
        // Those that belong together.
        let (mut more, mut more_bytes) = (0, 0);
        for pending in &self.queue {
            more += 1;
            more_bytes += pending.bytes;
            if pending.with_next {
                continue;
            }
            if bytes > 0 && bytes + more_bytes > limit {
                break;
            }
            items += std::mem::take(&mut more);
            bytes += std::mem::take(&mut more_bytes);
            if pending.image.is_some() {
                break;
            }
        }
        (items > 0).then_some((items, bytes))
    }

    /// Takes the [next group](Core::next_group) out of the queue, into an empty one, and lets waiting appenders try again.
    pub(crate) fn take_group(&mut self, items: usize, bytes: usize, mut group: Group) -> Group {
        if items == self.queue.len() {
            // All of it, in one step: others wait for this lock.
            std::mem::swap(&mut self.queue, &mut group.pending);
            std::mem::swap(&mut self.effects, &mut group.effects);
            self.awaited = 0;
        } else {
            let mut effects = 0;
            for pending in self.queue.drain(..items) {
                self.awaited -= usize::from(pending.waiter.is_some()) + usize::from(pending.image.is_some());
                effects += pending.effects;
                group.pending.push_back(pending);
            }
            group.effects.extend(self.effects.drain(..effects));
        }
        group.image = group.pending.back_mut().and_then(|last| last.image.take());
        self.queued_bytes -= bytes;
        for waiting in self.space.drain(..) {
            waiting.complete(());
        }
        group
    }

    /// What is queued is held up: those who wait for it, or for room in the queue, wait no longer. Whoever waits for an image, does.
    pub(crate) fn answer_held(&mut self, answer: &Answer) {
        for waiting in self.space.drain(..) {
            waiting.complete(());
        }
        for waiter in self.queue.iter_mut().filter_map(|pending| pending.waiter.take()) {
            self.awaited -= 1;
            waiter.complete(answer.clone());
        }
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
            (self.queued_bytes, self.awaited) = (0, 0);
        }
    }
}

/// What an accepted batch got.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) base: u64,
    /// Where its partition begins; durable before the batch is.
    pub(crate) log_start: u64,
    pub(crate) waiter: Option<Waiter>,
}

impl Shared {
    pub(crate) fn wall(&self) -> i64 {
        self.platform.clock.wall().0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no panic under the core lock")
    }

    /// The core, if the log takes requests. Those that make it larger ask [`Shared::core_for`] growth.
    pub(crate) fn core(&self) -> Result<MutexGuard<'_, Core>, Down> {
        self.core_for(Needs::AFrame)
    }

    /// The core, once the queue has room.
    pub(crate) fn core_with_room(&self, needs: Needs) -> Result<MutexGuard<'_, Core>, Down> {
        loop {
            let mut core = self.core_for(needs)?;
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

    /// Waits for the answer; writes itself if nobody does.
    pub(crate) fn wait(&self, waiter: &Waiter) -> Answer {
        if let Some(answer) = waiter.try_take() {
            return answer;
        }
        let leads = self.lock().take_lead();
        self.wait_in_turn(Turn { waiter: waiter.clone(), leads })
    }

    fn wait_in_turn(&self, turn: Turn) -> Answer {
        // Whoever sleeps, or waits for the disk, makes room for others.
        self.wakes.pause();
        if turn.leads {
            self.lead(&turn.waiter);
        }
        turn.waiter.wait(&*self.platform.spawn)
    }

    /// Judges and accepts a request under the core lock, then waits until it, and everything before it, is durable and
    /// visible.
    pub(crate) fn carry_out<T, E: From<Down> + From<OutcomeUnknown>>(
        &self,
        accept: impl FnOnce(&mut Core) -> Result<T, E>,
    ) -> Result<T, E> {
        let (accepted, turn) = {
            let mut core = self.core()?;
            (accept(&mut core)?, core.await_all())
        };
        self.wait_in_turn(turn)?;
        Ok(accepted)
    }

    /// As [`Shared::carry_out`], for what makes the log larger.
    pub(crate) fn grow<T, E: From<Down> + From<OutcomeUnknown>>(
        &self,
        accept: impl FnOnce(&mut Core) -> Result<T, E>,
    ) -> Result<T, E> {
        let (accepted, turn) = {
            let mut core = self.core_for(Needs::Growth)?;
            (accept(&mut core)?, core.await_all())
        };
        self.wait_in_turn(turn)?;
        Ok(accepted)
    }

    /// As [`Shared::carry_out`], for somebody who waits later, or never: the writer task sees to it. Waits only for room in
    /// the queue.
    pub(crate) fn hand_in<E: From<Down>>(&self, accept: impl FnOnce(&mut Core) -> Result<(), E>) -> Result<Waiter, E> {
        let (waiter, wake) = {
            let mut core = self.core_with_room(Needs::AFrame)?;
            accept(&mut core)?;
            (core.wait_for_all(), core.lead == Lead::Free)
        };
        if wake {
            self.wake_writer();
        }
        Ok(waiter)
    }

    /// Accepts a verified batch. With `wait` the answer brings somebody to wait for.
    pub(crate) fn append(&self, at: TopicPartition, batch: Vec<u8>, wait: bool) -> Result<Accepted, AppendError> {
        self.append_through(Entrance::Inside, at, batch, wait)
    }

    /// As [`Shared::append`], for whoever comes through this entrance.
    pub(crate) fn append_through(
        &self,
        entrance: Entrance<'_>,
        at: TopicPartition,
        mut batch: Vec<u8>,
        wait: bool,
    ) -> Result<Accepted, AppendError> {
        let (bytes, limit) = (batch.len(), self.limits.batch_bytes_max);
        if bytes > limit {
            return Err(AppendError::Batch { at, source: BatchError::TooLarge { bytes, limit } });
        }
        let header = BatchHeader::parse(&batch).map_err(|source| AppendError::Batch { at, source })?;
        let mut core = self.core_with_room(Needs::Growth)?;
        let base = match core.state.plan_append(entrance, at, &header, bytes, &self.limits)? {
            AppendPlan::Duplicate { base } => base,
            AppendPlan::Append { before, base } => {
                core.push_all(before);
                assign(&mut batch, base.cast_signed(), 0);
                core.push(Entry::Append { at, wall: self.wall(), batch: Arc::new(batch) });
                base
            }
        };
        let log_start = core.state.partition(at).map_or(0, |partition| partition.log_start);
        // The waiter of a duplicate stands behind the original, which may still be on its way to the disk.
        let waiter = wait.then(|| core.wait_for_all());
        let wake = if wait { core.lead == Lead::Free } else { core.wants_writer() };
        drop(core);
        if wake {
            self.wake_writer();
        }
        Ok(Accepted { base, log_start, waiter })
    }

    /// Ends what has been open for too long as of `now`, and forgets who has been silent. Waits for nothing.
    pub(crate) fn expire(&self, core: &mut Core, now: i64) -> Vec<TxnId> {
        let before = |age: Duration| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let (ids, producers) = core.state.timed_out(before(self.limits.transaction_timeout));
        core.abort(How::Fence, &producers, self.wall(), &self.limits);
        for id in &ids {
            tracing::warn!(transaction = %id, "an open transaction has timed out and was aborted; its writer is refused");
        }
        let deadline = before(self.limits.producer_expiry);
        let (entries, next) = core.state.plan_expiry(core.expiry_at, deadline, &self.limits);
        core.expiry_at = next;
        core.push_all(entries);
        ids
    }

    /// Stops the log for good after a failed write or sync.
    pub(crate) fn poison(&self, reason: &str) {
        tracing::error!(reason, dir = %self.dir.display(), "the log stops: its disk failed");
        let unknown = OutcomeUnknown { reason: reason.to_string() };
        self.lock().take_down(Down::Poisoned { reason: reason.to_string() }, Some(unknown.clone()));
        self.backlog.abandon(&unknown);
        // Whoever is writing at this moment looks for itself when its write fails.
        if let Ok(mut wal) = self.wal.try_lock() {
            wal.let_go(&unknown);
        }
        self.wakes.finish();
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
