//! What readers may see: positions, the newest batches, and what was aborted among them.
//!
//! The view changes only when a frame has become durable, and then for all partitions of the frame under one lock: a
//! transaction over several partitions becomes visible everywhere at once (I-1), nothing at or above the high watermark
//! is ever in here (I-2), and the last stable offset never moves back.
//!
//! Invariants, per partition:
//! * The tail holds consecutive batches up to the high watermark, among them all that aren't in segments yet.
//! * `aborted` holds every aborted transaction whose marker is in the tail, in order of the markers. So a read from the
//!   tail never touches the disk.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use crate::core::{AbortedTxn, Effect, State};
use crate::topic::TopicPartition;
use crate::wal::frame::Batch;

/// All partitions, as readers may see them.
#[derive(Debug, Default)]
pub(crate) struct View {
    topics: Vec<Vec<PartitionView>>,
    /// Bytes in all tails.
    tail_bytes: usize,
    /// Batches in all tails, oldest first.
    order: VecDeque<TopicPartition>,
}

#[derive(Debug, Default)]
struct PartitionView {
    log_start: u64,
    high_watermark: u64,
    last_stable: u64,
    /// Everything below is in the segments.
    materialised: u64,
    tail: VecDeque<TailBatch>,
    aborted: VecDeque<AbortedTxn>,
    listeners: Vec<Weak<Listener>>,
}

#[derive(Clone, Debug)]
struct TailBatch {
    base: u64,
    next: u64,
    batch: Batch,
}

impl PartitionView {
    fn tail_start(&self) -> u64 {
        self.tail.front().map_or(self.high_watermark, |batch| batch.base)
    }
}

/// The positions of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visible {
    pub(crate) log_start: u64,
    pub(crate) high_watermark: u64,
    pub(crate) last_stable: u64,
}

/// What a read found in the tail.
#[derive(Debug, Default)]
pub(crate) struct TailRead {
    /// `None`: the records are older than the tail, read the segments.
    pub(crate) batches: Option<Vec<Batch>>,
    /// Aborted transactions of the tail that reach into the range, in order of their markers.
    pub(crate) aborted: Vec<AbortedTxn>,
}

impl View {
    /// The view of a state of which everything is durable and in the segments.
    pub(crate) fn of(state: &State) -> View {
        let mut view = View::default();
        for topic in &state.topics {
            let partitions = topic.partitions.iter().map(|partition| PartitionView {
                log_start: partition.log_start,
                high_watermark: partition.log_end,
                last_stable: partition.last_stable(),
                materialised: partition.log_end,
                ..PartitionView::default()
            });
            view.topics.push(partitions.collect());
        }
        view
    }

    fn get(&self, at: TopicPartition) -> Option<&PartitionView> {
        self.topics.get(at.topic.0 as usize)?.get(at.partition as usize)
    }

    fn get_mut(&mut self, at: TopicPartition) -> Option<&mut PartitionView> {
        self.topics.get_mut(at.topic.0 as usize)?.get_mut(at.partition as usize)
    }

    /// Shows what has become durable. Answers whom to notify once the lock is released.
    pub(crate) fn apply(&mut self, effects: &[Effect]) -> Vec<Arc<Listener>> {
        let mut moved = Vec::new();
        for effect in effects {
            match effect {
                Effect::Topic { topic, partitions, .. } => {
                    assert!(topic.0 as usize == self.topics.len(), "topics become visible in their order");
                    self.topics.push((0..*partitions).map(|_| PartitionView::default()).collect());
                }
                Effect::Roll { .. } => {}
                Effect::Partitions { topic, partitions } => {
                    let known = self.topics.get_mut(topic.0 as usize).expect("a topic grows after it has come");
                    known.resize_with(*partitions as usize, PartitionView::default);
                }
                Effect::TopicDeleted { topic } => {
                    let known = self.topics.get_mut(topic.0 as usize).expect("a topic goes after it has come");
                    for partition in std::mem::take(known) {
                        self.tail_bytes -= partition.tail.iter().map(|batch| batch.batch.len()).sum::<usize>();
                        moved.extend(partition.listeners.iter().filter_map(Weak::upgrade));
                    }
                }
                Effect::LogStart { at, start } => {
                    let partition = self.get_mut(*at).expect("a start moves after its topic has come");
                    partition.log_start = *start;
                    moved.extend(partition.listeners.iter().filter_map(Weak::upgrade));
                }
                Effect::Batch { at, base, next, last_stable, batch, aborted } => {
                    let partition = self.get_mut(*at).expect("a batch comes after its topic");
                    assert!(partition.high_watermark == *base, "the high watermark of {at} has no gaps");
                    assert!(partition.last_stable <= *last_stable, "the last stable offset of {at} moves back");
                    partition.high_watermark = *next;
                    partition.last_stable = *last_stable;
                    partition.tail.push_back(TailBatch { base: *base, next: *next, batch: batch.clone() });
                    partition.aborted.extend(aborted);
                    if !partition.listeners.is_empty() {
                        partition.listeners.retain(|listener| listener.strong_count() > 0);
                        moved.extend(partition.listeners.iter().filter_map(Weak::upgrade));
                    }
                    self.tail_bytes += batch.len();
                    self.order.push_back(*at);
                }
            }
        }
        moved.sort_unstable_by_key(|listener| Arc::as_ptr(listener) as usize);
        moved.dedup_by(|a, b| Arc::ptr_eq(a, b));
        moved
    }

    /// Takes note that everything below these offsets is in the segments.
    pub(crate) fn materialised(&mut self, ends: &[(TopicPartition, u64)]) {
        for (at, end) in ends {
            if let Some(partition) = self.get_mut(*at) {
                partition.materialised = *end;
            }
        }
    }

    /// Takes the oldest batches that are in the segments out of memory, down to `keep_bytes`, so many at most. They are to
    /// be dropped once the lock is released.
    #[must_use]
    pub(crate) fn evict(&mut self, keep_bytes: usize, at_most: usize) -> Vec<Batch> {
        let mut evicted = Vec::new();
        while self.tail_bytes > keep_bytes && evicted.len() < at_most {
            let Some(at) = self.order.front().copied() else { break };
            let Some(partition) = self.get_mut(at) else {
                // Its topic was deleted, and its batches with it.
                self.order.pop_front();
                continue;
            };
            let materialised = partition.materialised;
            let Some(oldest) = partition.tail.pop_front_if(|oldest| oldest.next <= materialised) else { break };
            let bytes = oldest.batch.len();
            evicted.push(oldest.batch);
            let start = partition.tail_start();
            while partition.aborted.front().is_some_and(|aborted| aborted.last < start) {
                partition.aborted.pop_front();
            }
            self.tail_bytes -= bytes;
            self.order.pop_front();
        }
        evicted
    }

    pub(crate) fn visible(&self, at: TopicPartition) -> Option<Visible> {
        let partition = self.get(at)?;
        // An open transaction may begin below what can be read.
        let last_stable = partition.last_stable.max(partition.log_start);
        Some(Visible { log_start: partition.log_start, high_watermark: partition.high_watermark, last_stable })
    }

    /// Reads the tail from the batch that holds `from`: at least one batch, then up to `max_bytes`, none at or above
    /// `below`.
    pub(crate) fn read(&self, at: TopicPartition, from: u64, max_bytes: usize, below: u64) -> TailRead {
        let Some(partition) = self.get(at) else { return TailRead::default() };
        if from < partition.tail_start() {
            // The segments' own index knows the rest; these may not have reached it yet.
            return TailRead { batches: None, aborted: partition.aborted.iter().copied().collect() };
        }
        let first = partition.tail.partition_point(|batch| batch.next <= from);
        let (mut bytes, mut end) = (0, from);
        let mut batches = Vec::new();
        for batch in partition.tail.range(first..).take_while(|batch| batch.base < below) {
            if !batches.is_empty() && bytes + batch.batch.len() > max_bytes {
                break;
            }
            bytes += batch.batch.len();
            end = batch.next;
            batches.push(batch.batch.clone());
        }
        let skip = partition.aborted.partition_point(|aborted| aborted.last < from);
        let aborted = partition.aborted.range(skip..).filter(|aborted| aborted.first < end).copied().collect();
        TailRead { batches: Some(batches), aborted }
    }

    pub(crate) fn listen(&mut self, at: TopicPartition, listener: &Arc<Listener>) {
        if let Some(partition) = self.get_mut(at) {
            partition.listeners.retain(|listener| listener.strong_count() > 0);
            partition.listeners.push(Arc::downgrade(listener));
        }
    }

    pub(crate) fn all_listeners(&self) -> Vec<Arc<Listener>> {
        self.topics.iter().flatten().flat_map(|partition| &partition.listeners).filter_map(Weak::upgrade).collect()
    }
}

/// Called when a partition has new data.
pub(crate) type Callback = Arc<dyn Fn() + Send + Sync>;

/// One consumer, waiting or to be called back.
#[derive(Default)]
pub(crate) struct Listener {
    notified: Mutex<bool>,
    changed: Condvar,
    callback: Mutex<Option<Callback>>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    pub(crate) fn set_callback(&self, callback: Callback) {
        *self.callback.lock().expect("no panic while setting") = Some(callback);
    }

    pub(crate) fn notify(&self) {
        *self.notified.lock().expect("no panic while notifying") = true;
        self.changed.notify_all();
        let callback = self.callback.lock().expect("no panic while setting").clone();
        if let Some(callback) = callback {
            callback();
        }
    }

    /// Forgets earlier notices: look at the view behind this, then wait.
    pub(crate) fn reset(&self) {
        *self.notified.lock().expect("no panic while notifying") = false;
    }

    /// Waits for a notice since the last reset.
    pub(crate) fn wait(&self, at_most: Duration) {
        let notified = self.notified.lock().expect("no panic while notifying");
        let waited = self.changed.wait_timeout_while(notified, at_most, |notified| !*notified);
        drop(waited.expect("no panic while notifying"));
    }
}
