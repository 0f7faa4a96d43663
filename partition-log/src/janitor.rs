//! The task that keeps a log from growing for ever: retention and compaction, beside everything else.
//!
//! A *pass* looks at each partition whose topic asks for something, or whose start has moved. First it moves starts, which is an
//! entry of the log like any other; then, once that is durable, it publishes a base image; and only then files go. So at any
//! crash the log knows that what is missing isn't missed: a start is durable before a segment goes, and no replay begins in a
//! segment that has gone. At last it compacts what is dirty enough, below the same floor.
//!
//! It works off the hot path: nobody waits for it, it holds no lock over I/O that a producer needs, and it rests between
//! partitions. A partition that it fails on is named, left as it is, and tried again in the next pass.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Step, Task, WallTime};

use crate::accept::{Shared, Waiter};
use crate::compact::judge::Known;
use crate::compact::round::{Compacted, Round, Terms};
use crate::compact::scope::due;
use crate::core::PartitionState;
use crate::error::{Down, TidyError};
use crate::policy::TopicPolicy;
use crate::retention::{must_seal, retain_from};
use crate::segment::SegmentError;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Entry;

/// How long the task rests after each partition that gave it something to do.
const REST: Duration = Duration::from_millis(5);

/// What the janitor has done, in one pass or since the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Passes that came to their end.
    pub passes: u64,
    /// When the newest of them did, by the clock it was given.
    pub last_pass: Option<WallTime>,
    /// Partitions whose start has moved.
    pub starts_moved: u64,
    /// Segments that were removed because nothing in them can be read any more.
    pub segments_removed: u64,
    /// Bytes of their log files.
    pub bytes_removed: u64,
    /// Segments that compaction has replaced.
    pub segments_compacted: u64,
    /// Segments in their place: neighbours become one.
    pub segments_written: u64,
    /// Bytes that compaction has given back.
    pub bytes_compacted: u64,
    /// Records that compaction has taken away: replaced, aborted, or deleted long enough ago.
    pub records_removed: u64,
    /// Partitions that couldn't be looked at or changed in the newest pass, and why.
    pub failed: BTreeMap<TopicPartition, String>,
}

impl Tidied {
    /// Adds what another pass has done.
    fn add(&mut self, pass: &Tidied) {
        self.passes += pass.passes;
        self.last_pass = pass.last_pass;
        self.starts_moved += pass.starts_moved;
        self.segments_removed += pass.segments_removed;
        self.bytes_removed += pass.bytes_removed;
        self.segments_compacted += pass.segments_compacted;
        self.segments_written += pass.segments_written;
        self.bytes_compacted += pass.bytes_compacted;
        self.records_removed += pass.records_removed;
        self.failed.clone_from(&pass.failed);
    }
}

/// What the janitor remembers.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Where the last round of compaction over a partition ended, since the log was opened.
    compacted_to: BTreeMap<TopicPartition, i64>,
}

/// Below these offsets a partition's files may go, or be replaced: as of a base image that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Nothing below can be read, is held back by a transaction, or would be replayed into.
    pub(crate) start: u64,
    /// No replay begins below, and everything below is decided.
    pub(crate) settled: u64,
}

impl Floor {
    pub(crate) fn of(partition: &PartitionState) -> Floor {
        let settled = partition.segment_base.min(partition.last_stable());
        Floor { start: partition.log_start.min(settled), settled }
    }
}

/// Where a pass stands.
#[derive(Debug)]
enum Phase {
    /// Deciding which starts move and which segments are sealed.
    Plan(VecDeque<TopicPartition>),
    /// What was decided is accepted; nothing may go before it is durable.
    Settle,
    /// Segments go.
    Remove(VecDeque<TopicPartition>),
    /// Of each key the last record stays.
    Compact(VecDeque<TopicPartition>, Option<Box<(TopicPartition, Round)>>),
    Done,
}

/// One look at everything.
#[derive(Debug)]
pub(crate) struct Pass {
    now: i64,
    phase: Phase,
    /// Partitions that may have something to remove.
    started: Vec<TopicPartition>,
    /// Partitions with enough to compact.
    dirty: Vec<TopicPartition>,
    floors: BTreeMap<TopicPartition, Floor>,
    pub(crate) done: Tidied,
}

impl Pass {
    pub(crate) fn new(shared: &Shared, now: i64) -> Pass {
        let core = shared.lock();
        let mut todo = VecDeque::new();
        for (index, topic) in core.state.topics.iter().enumerate() {
            for (number, partition) in topic.partitions.iter().enumerate() {
                if !topic.policy.is_idle() || partition.log_start > 0 {
                    todo.push_back(TopicPartition::new(TopicId(index as u32), number as u32));
                }
            }
        }
        let phase = Phase::Plan(todo);
        let (started, dirty, floors) = (Vec::new(), Vec::new(), BTreeMap::new());
        Pass { now, phase, started, dirty, floors, done: Tidied::default() }
    }

    /// Does the next piece. True when there is more to do.
    pub(crate) fn advance(&mut self, shared: &Shared, books: &mut Books) -> Result<bool, TidyError> {
        let now = self.now;
        match &mut self.phase {
            Phase::Plan(todo) => match todo.pop_front() {
                Some(at) => match plan(shared, at, now, books, &mut self.done) {
                    Ok(Planned { may_remove, may_compact }) => {
                        self.started.extend(may_remove.then_some(at));
                        self.dirty.extend(may_compact.then_some(at));
                    }
                    Err(error) => self.fail(shared, at, error)?,
                },
                None => self.phase = Phase::Settle,
            },
            Phase::Settle => {
                self.settle(shared)?;
                self.phase = Phase::Remove(self.started.drain(..).collect());
            }
            Phase::Remove(todo) => match todo.pop_front() {
                Some(at) => {
                    let floor = self.floors.get(&at).copied();
                    match floor.map_or(Ok(()), |floor| remove(shared, at, floor, &mut self.done)) {
                        Ok(()) => {}
                        Err(error) => self.fail(shared, at, error)?,
                    }
                }
                None => self.phase = Phase::Compact(self.dirty.drain(..).collect(), None),
            },
            Phase::Compact(todo, round) => {
                if let Some(under_way) = round {
                    let (at, going) = (under_way.0, &mut under_way.1);
                    match step(shared, at, going) {
                        Ok(true) => {}
                        Ok(false) => {
                            books.compacted_to.insert(at, going.end);
                            note(&mut self.done, &going.done);
                            *round = None;
                        }
                        Err(error) => {
                            note(&mut self.done, &going.done);
                            *round = None;
                            self.fail(shared, at, error)?;
                        }
                    }
                } else if let Some(at) = todo.pop_front() {
                    let floor = self.floors.get(&at).copied();
                    match floor.map_or(Ok(None), |floor| begin(shared, at, floor, now, books)) {
                        Ok(begun) => *round = begun.map(|round| Box::new((at, round))),
                        Err(error) => self.fail(shared, at, error)?,
                    }
                } else {
                    self.done.passes = 1;
                    self.done.last_pass = Some(WallTime(now));
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
        Ok(!matches!(self.phase, Phase::Done))
    }

    /// Waits until the starts are durable, and behind them an image that no replay goes below.
    fn settle(&mut self, shared: &Shared) -> Result<(), TidyError> {
        if self.done.starts_moved > 0 {
            let waiter = shared.core()?.wait_for_all();
            shared.wait(&waiter)?;
        }
        let floor = |at: &TopicPartition| shared.lock().state.partition(*at).map(Floor::of);
        let has_some = |at: &TopicPartition| {
            let files = shared.segments.find(*at).ok().flatten();
            floor(at).zip(files).is_some_and(|(floor, files)| files.has_below(floor.start.cast_signed()))
        };
        self.started.retain(has_some);
        if self.started.is_empty() && self.dirty.is_empty() {
            return Ok(());
        }
        let published = Waiter::default();
        {
            let mut core = shared.core()?;
            let floor = |at: &TopicPartition| Some((*at, Floor::of(core.state.partition(*at)?)));
            self.floors = self.started.iter().chain(&self.dirty).filter_map(floor).collect();
            core.push_image(Some(published.clone()));
        }
        wait_published(shared, &published)
    }

    fn fail(&mut self, shared: &Shared, at: TopicPartition, error: SegmentError) -> Result<(), TidyError> {
        if error.poisons() {
            shared.poison(&error.to_string());
        }
        tracing::warn!(partition = %at, %error, "the janitor leaves a partition as it is");
        self.done.failed.insert(at, error.to_string());
        Ok(shared.lock().check()?)
    }
}

/// Waits for an image. It may never be published, if the log is let go of meanwhile: then nothing is removed.
fn wait_published(shared: &Shared, published: &Waiter) -> Result<(), TidyError> {
    if !shared.platform.spawn.is_inline() {
        shared.wake_writer();
        while !published.is_complete() {
            if shared.lock().stop {
                return Err(Down::Closed.into());
            }
            shared.platform.clock.sleep(REST);
        }
    }
    Ok(shared.wait(published)?)
}

/// What there may be to do in a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Planned {
    /// Something below its start may still be there.
    may_remove: bool,
    /// Enough is new to compact it.
    may_compact: bool,
}

/// Moves a partition's start and seals its active segment, if its topic asks for that.
fn plan(
    shared: &Shared,
    at: TopicPartition,
    now: i64,
    books: &Books,
    done: &mut Tidied,
) -> Result<Planned, SegmentError> {
    let nothing = Ok(Planned::default());
    let Some(files) = shared.segments.find(at)? else { return nothing };
    let Some(policy) = policy(shared, at) else { return nothing };
    let segments = if policy.is_idle() { Vec::new() } else { files.facts()? };
    let visible = shared.view.read().expect("no panic under the view lock").visible(at);
    let Some(visible) = visible else { return nothing };
    let stable = visible.last_stable.cast_signed();
    let start = retain_from(&segments, &policy, stable, now);
    let active = segments.last().filter(|segment| segment.is_active && must_seal(segment, &policy, now));
    let Ok(mut core) = shared.core() else { return nothing };
    let Some(partition) = core.state.partition(at) else { return nothing };
    let (log_start, log_end, segment_base) = (partition.log_start, partition.log_end, partition.segment_base);
    let is_same = |base: i64| base.cast_unsigned() == segment_base && partition.segment_bytes > 0;
    let seal = active.is_some_and(|active| is_same(active.base));
    if let Some(start) = start.map(i64::cast_unsigned).filter(|start| *start > log_start) {
        core.push(Entry::LogStart { at, start });
        done.starts_moved += 1;
    }
    if seal {
        core.push(Entry::Roll { at, base: log_end });
    }
    let wake = core.wants_writer();
    drop(core);
    if wake {
        shared.wake_writer();
    }
    let compacted_to = books.compacted_to.get(&at).copied().unwrap_or(0);
    let may_compact = due(&segments, &policy, compacted_to, stable, now).is_some();
    Ok(Planned { may_remove: true, may_compact })
}

fn policy(shared: &Shared, at: TopicPartition) -> Option<TopicPolicy> {
    Some(shared.lock().state.topic(at.topic)?.policy.clone())
}

fn remove(shared: &Shared, at: TopicPartition, floor: Floor, done: &mut Tidied) -> Result<(), SegmentError> {
    let _at_work = shared.segments.at_work();
    let Some(files) = shared.segments.find(at)? else { return Ok(()) };
    while let Some(removed) = files.delete_first_below(floor.start.cast_signed())? {
        done.segments_removed += 1;
        done.bytes_removed += removed.bytes;
    }
    Ok(())
}

/// Begins a round of compaction, if one is due over what is settled.
fn begin(
    shared: &Shared,
    at: TopicPartition,
    floor: Floor,
    now: i64,
    books: &Books,
) -> Result<Option<Round>, SegmentError> {
    let Some(files) = shared.segments.find(at)? else { return Ok(None) };
    let Some(policy) = policy(shared, at) else { return Ok(None) };
    let compacted_to = books.compacted_to.get(&at).copied().unwrap_or(0);
    let scope = due(&files.facts()?, &policy, compacted_to, floor.settled.cast_signed(), now);
    let Some(scope) = scope else { return Ok(None) };
    let terms = Terms {
        seed: shared.platform.random.next_u64(),
        map_bytes: shared.limits.compaction_map_bytes,
        segment_bytes: u64::from(policy.segment_bytes.unwrap_or(shared.limits.segment_bytes)),
        known: shared.lock().state.partition(at).map(known).unwrap_or_default(),
        now,
    };
    Round::begin(&files, &scope, &policy, terms)
}

/// By what a partition's producers are known.
fn known(partition: &PartitionState) -> Known {
    let mut known = Known::default();
    for (producer, state) in &partition.producers {
        known.batches.extend(state.window.iter().map(|batch| batch.base_offset.cast_signed()));
        let newest = state.window.back().map_or(-1, |batch| batch.last_offset.cast_signed());
        known.markers.insert(*producer, (state.epoch, newest));
    }
    known
}

/// The next group of a round. Its topic may have been deleted meanwhile.
fn step(shared: &Shared, at: TopicPartition, round: &mut Round) -> Result<bool, SegmentError> {
    let _at_work = shared.segments.at_work();
    let Some(files) = shared.segments.find(at)? else { return Ok(false) };
    round.step(&files)
}

fn note(done: &mut Tidied, round: &Compacted) {
    done.segments_compacted += round.segments_before;
    done.segments_written += round.segments_after;
    done.bytes_compacted += round.bytes_before.saturating_sub(round.bytes_after);
    done.records_removed += round.records_removed;
}

impl Shared {
    fn note_pass(&self, pass: &Tidied) {
        self.tidied.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(pass);
    }

    /// A whole pass, at once.
    pub(crate) fn tidy(&self, now: i64) -> Result<Tidied, TidyError> {
        self.lock().check()?;
        // One at a time: the task's own passes wait for this one.
        let mut books = self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut pass = Pass::new(self, now);
        while pass.advance(self, &mut books)? {}
        self.note_pass(&pass.done);
        Ok(pass.done)
    }
}

/// The task.
pub(crate) struct Janitor {
    shared: Arc<Shared>,
    /// When the newest pass began, by the clock that only rises.
    began: Duration,
    pass: Option<Pass>,
}

impl Janitor {
    pub(crate) fn new(shared: Arc<Shared>) -> Janitor {
        let began = shared.platform.clock.monotonic();
        Janitor { shared, began, pass: None }
    }
}

impl Task for Janitor {
    fn step(&mut self) -> Step {
        {
            let core = self.shared.lock();
            if core.stop || core.check().is_err() {
                return Step::Done;
            }
        }
        let now = self.shared.platform.clock.monotonic();
        let Some(pass) = &mut self.pass else {
            let due = self.began + self.shared.limits.janitor_every;
            if now < due {
                return Step::Wait(due - now);
            }
            self.began = now;
            self.pass = Some(Pass::new(&self.shared, self.shared.wall()));
            return Step::Again;
        };
        // Somebody may have asked for a pass of their own at this moment; the two would undo nothing, but count twice.
        let shared = self.shared.clone();
        let Ok(mut books) = shared.books.try_lock() else { return Step::Wait(REST) };
        let before = pass.done.clone();
        match pass.advance(&self.shared, &mut books) {
            Ok(true) if pass.done == before => Step::Again,
            Ok(true) => Step::Wait(REST),
            Ok(false) => {
                shared.note_pass(&pass.done);
                self.pass = None;
                Step::Again
            }
            // A full disk: the next pass is in time.
            Err(_) if shared.lock().check().is_ok() => {
                self.pass = None;
                Step::Wait(REST)
            }
            // The log is down.
            Err(_) => Step::Done,
        }
    }
}
