//! The task behind the writer: puts what is durable into the segments, and takes the log's checkpoints.
//!
//! A checkpoint of the log: the segments and their directories are synced, then a base image of the state is published,
//! and only then are the write-ahead files that both cover given back. In this order, always.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_platform::{Step, Task};

use crate::accept::{Image, Shared};
use crate::base_image::{self, BaseImage};
use crate::core::Effect;
use crate::error::OutcomeUnknown;
use crate::status;

/// How often an idle log looks for transactions that have been prepared for too long.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Durable effects on their way into the segments, and perhaps the image of the state behind them.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) effects: Vec<Effect>,
    /// The position that the image covers, and the image.
    pub(crate) image: Option<(u64, Image)>,
}

impl Work {
    fn bytes(&self) -> usize {
        let bytes = |effect: &Effect| if let Effect::Batch { batch, .. } = effect { batch.len() } else { 0 };
        self.effects.iter().map(bytes).sum()
    }
}

/// The queue between writer and materialiser, with its size.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: Mutex<VecDeque<Work>>,
    bytes: AtomicUsize,
    images: AtomicUsize,
}

impl Backlog {
    pub(crate) fn push(&self, work: Work) {
        self.bytes.fetch_add(work.bytes(), Ordering::SeqCst);
        self.images.fetch_add(usize::from(work.image.is_some()), Ordering::SeqCst);
        self.queue.lock().expect("no panic under the backlog's lock").push_back(work);
    }

    fn pop(&self) -> Option<Work> {
        self.queue.lock().expect("no panic under the backlog's lock").pop_front()
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
        let queue = std::mem::take(&mut *self.queue.lock().expect("no panic under the backlog's lock"));
        for work in &queue {
            work.image.iter().for_each(|(_, image)| image.fail(unknown));
            self.done(work.bytes(), work.image.is_some());
        }
    }
}

pub(crate) struct Materialiser {
    shared: Arc<Shared>,
    /// When the last warning was given, in milliseconds of the wall clock.
    warned: i64,
}

impl Materialiser {
    pub(crate) fn new(shared: Arc<Shared>) -> Materialiser {
        Materialiser { shared, warned: i64::MIN }
    }

    fn materialise(&self, effects: &[Effect]) -> Result<(), String> {
        let shared = &self.shared;
        if effects.is_empty() {
            return Ok(());
        }
        shared.segments.write(effects).map_err(|e| e.to_string())?;
        let keep = shared.limits.tail_bytes;
        shared.view.write().expect("no panic under the view lock").materialised(effects, keep);
        shared.platform.crash.reach("log.materialised");
        Ok(())
    }

    /// Takes a checkpoint of the log: everything below `position` is in the segments.
    fn checkpoint(&self, position: u64, state: &[u8]) -> Result<(), String> {
        let shared = &self.shared;
        shared.segments.sync_all().map_err(|e| e.to_string())?;
        shared.platform.crash.reach("log.segment-synced");
        let generation = shared.ring.lock().expect("no panic under the ring lock").generation();
        let image = BaseImage { generation, position, state };
        base_image::publish(&shared.platform, &shared.dir, &image).map_err(|e| e.to_string())?;
        let released = shared.ring.lock().expect("no panic under the ring lock").release(position);
        if released > 0 {
            shared.platform.crash.reach("log.file-recycled");
        }
        Ok(())
    }

    fn warn(&mut self) {
        let now = self.shared.wall();
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
                return Step::Done;
            }
        }
        let Some(work) = self.shared.backlog.pop() else {
            self.warn();
            return Step::Wait(LOOK_EVERY);
        };
        let mut result = self.materialise(&work.effects);
        if let (Ok(()), Some((position, image))) = (&result, &work.image) {
            result = self.checkpoint(*position, &image.state);
            self.shared.lock().images_underway -= 1;
        }
        self.shared.backlog.done(work.bytes(), work.image.is_some());
        match result {
            Ok(()) => {
                if let Some(done) = work.image.and_then(|(_, image)| image.done) {
                    done.complete(Ok(()));
                }
                // The writer may have waited for room here, or for a file.
                self.shared.wake_writer();
                Step::Again
            }
            Err(reason) => {
                self.shared.poison(&reason);
                let unknown = OutcomeUnknown { reason };
                work.image.iter().for_each(|(_, image)| image.fail(&unknown));
                Step::Done
            }
        }
    }
}
