//! One step of an operator instance: frames in, effects out. Pure of timely, so that it can be driven by hand.
//!
//! Invariants:
//!
//! * Frames of one channel are handled in their order; of held channels none is (see [`Barriers`]).
//! * A frame is handled whole before the next one, whatever channel that is from: what it produced has been taken as effects.
//!   So a barrier never stands inside the output of a frame.
//! * Records are taken only while there is room downstream. Watermarks are taken too, but what an operator says at them
//!   (a window's results) is under the same rule. Barriers and `End` are taken always.
//! * A unit of credit comes back when its frame has been handled, not before.
//! * After [`Effect::Cut`] or [`Effect::Overtook`] nothing more happens in that step, so that the snapshot is taken exactly there.
//! * What was in flight before a restore is handled before anything new. It costs no credit: nobody of this attempt sent it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::barrier::{AlignError, Alignment, Arrival, Barriers, Merged, WatermarkMerger};
use crate::checkpoint::Counters;
use crate::element::{Batch, Body};
use crate::error::OperatorError;
use crate::exchange::{ChannelIndex, Processed};
use crate::graph::codec::EdgeCodec;
use crate::id::CheckpointId;
use crate::in_flight::Restored;
use crate::operator::context::{Context, Produced};
use crate::operator::overtaking::Overtaking;
use crate::operator::{Flow, Operator};
use crate::state::FrozenState;
use crate::time::Watermark;

/// What the wiring does after a step, in order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send records on an output port.
    Records(usize, Batch),
    /// Send a control frame on every output port.
    Control(Body),
    /// The cut for this checkpoint: forward its barrier on all outputs, then take the snapshot.
    Cut(CheckpointId),
    /// The same, before records that stand before the barrier: they follow as [`Effect::Captured`].
    Overtook(CheckpointId),
    /// The channel state of that cut, whole; `None` if nothing was in flight.
    Captured(CheckpointId, Option<FrozenState>),
    /// Nothing will follow: forward `End`.
    Ended,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is more that could be done at once.
    More,
    /// Nothing to do before a frame comes or, if anything waits, room downstream.
    Waiting,
}

/// The frame that an operator has begun and not finished.
#[derive(Debug)]
enum Unfinished {
    Records {
        channel: ChannelIndex,
        records: u64,
    },
    Watermark {
        channel: ChannelIndex,
    },
    /// It began by itself: at the start, or because it was woken.
    NoFrame,
}

/// Drives one operator instance.
pub(crate) struct Driver {
    pub(crate) operator: Box<dyn Operator>,
    pub(crate) counters: Counters,
    queues: Vec<VecDeque<Body>>,
    port_of: Vec<usize>,
    processed: Vec<Processed>,
    barriers: Barriers,
    /// Barriers that were reached.
    reached: u64,
    merger: WatermarkMerger,
    /// Where barriers may overtake records.
    overtaking: Option<Overtaking>,
    /// What was in flight before the attempt, first to last.
    restored: VecDeque<Restored>,
    /// A frame that came out of its order.
    misplaced: Option<AlignError>,
    unfinished: Option<Unfinished>,
    produced: VecDeque<Produced>,
    turn: usize,
    wake_at: Option<Duration>,
    batch_records: usize,
}

impl Driver {
    /// A driver for an operator whose input channel i belongs to input port `port_of[i]`.
    pub(crate) fn new(
        operator: Box<dyn Operator>,
        port_of: Vec<usize>,
        outputs: usize,
        barriers: Barriers,
        batch_records: usize,
    ) -> Driver {
        let channels = port_of.len();
        let ports = port_of.iter().max().map_or(0, |p| p + 1);
        let counters = Counters { consumed: vec![0; ports], emitted: vec![0; outputs], ..Counters::default() };
        Driver {
            operator,
            counters,
            queues: (0..channels).map(|_| VecDeque::new()).collect(),
            port_of,
            processed: vec![Processed::default(); channels],
            barriers,
            reached: 0,
            merger: WatermarkMerger::new(channels, Watermark::MIN),
            overtaking: None,
            restored: VecDeque::new(),
            misplaced: None,
            unfinished: None,
            produced: VecDeque::new(),
            turn: 0,
            wake_at: None,
            batch_records,
        }
    }

    /// Nothing will come on these channels until they say otherwise; see [`WatermarkMerger::expect_idle`].
    pub(crate) fn expect_idle(&mut self, channels: impl IntoIterator<Item = usize>) {
        for channel in channels {
            self.merger.expect_idle(channel_index(channel));
        }
    }

    /// Lets barriers overtake records of the input ports that have a codec, when `patience` is over.
    pub(crate) fn overtake_after(&mut self, patience: Duration, codecs: Vec<Option<Rc<dyn EdgeCodec>>>) {
        self.overtaking = Some(Overtaking::new(patience, codecs));
    }

    /// What was in flight before this attempt; to be handled before anything new.
    pub(crate) fn replay(&mut self, restored: Vec<Restored>) {
        self.restored = restored.into();
    }

    /// True while something that was in flight before this attempt is still to be handled.
    pub(crate) fn is_replaying(&self) -> bool {
        !self.restored.is_empty()
    }

    /// Lets the operator say what it has to say before the first frame.
    pub(crate) fn start(&mut self, now: Duration, effects: &mut Vec<Effect>) -> Result<(), OperatorError> {
        self.call(usize::MAX, now, Unfinished::NoFrame, effects, |operator, cx| {
            operator.on_start(cx)?;
            Ok(Flow::Done)
        })
        .map(|_| ())
    }

    /// A frame has come; control frames between records keep their place.
    pub(crate) fn enqueue(&mut self, channel: usize, body: Body) {
        let at = channel_index(channel);
        let arrival = match &body {
            Body::Barrier(n) => self.barriers.arrives(at, *n),
            Body::End => self.barriers.end_arrives(at).map(|()| Arrival::Queue),
            Body::Empty | Body::Records(_) | Body::Watermark(_) | Body::Idle | Body::Active => {
                if let (Barriers::Overtaking(machine), Some(overtaking)) = (&self.barriers, &mut self.overtaking)
                    && machine.records(at)
                {
                    overtaking.arrives(channel);
                }
                Ok(Arrival::Queue)
            }
        };
        match arrival {
            Ok(Arrival::Queue) => self.queues[channel].push_back(body),
            Ok(Arrival::Passed) => self.processed[channel].barriers += 1,
            Err(misplaced) => _ = self.misplaced.get_or_insert(misplaced),
        }
    }

    /// What has been handled per channel since this was last asked.
    pub(crate) fn take_processed(&mut self, mut give: impl FnMut(usize, Processed)) {
        for (channel, processed) in self.processed.iter_mut().enumerate() {
            if *processed != Processed::default() {
                give(channel, std::mem::take(processed));
            }
        }
    }

    /// True while the barrier of a checkpoint has come on some channels and not on all.
    pub(crate) fn is_aligning(&self) -> bool {
        self.barriers.are_coming()
    }

    /// How many barriers were reached so far.
    pub(crate) fn barriers_reached(&self) -> u64 {
        self.reached
    }

    /// The checkpoint that is being aligned and the channels whose barrier is missing; see [`Barriers::awaited`].
    pub(crate) fn awaited(&self) -> Option<(CheckpointId, Vec<ChannelIndex>)> {
        self.barriers.awaited()
    }

    /// When there is something to do without a frame, as a point of `now`: the operator wants to be woken, or the patience with
    /// a barrier ends.
    pub(crate) fn wake_at(&self, now: Duration) -> Option<Duration> {
        let patience = self.overtaking.as_ref().and_then(|overtaking| overtaking.ends_at(now));
        self.wake_at.into_iter().chain(patience).min()
    }

    /// Handles at most `frames` frames. `room` is how many records may still be sent downstream.
    pub(crate) fn step(
        &mut self,
        frames: usize,
        room: usize,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, OperatorError> {
        if let Some(misplaced) = self.misplaced.take() {
            return Err(OperatorError::Failed(misplaced.to_string()));
        }
        if let (Barriers::Overtaking(machine), Some(overtaking)) = (&self.barriers, &mut self.overtaking) {
            overtaking.record(machine.recording().is_some(), &self.restored, &self.queues, effects);
        }
        let outcome = self.handle(frames, room, now, effects)?;
        let late = self.overtaking.as_ref().is_some_and(Overtaking::has_to_write);
        Ok(if late { Outcome::More } else { outcome })
    }

    fn handle(
        &mut self,
        mut frames: usize,
        mut room: usize,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, OperatorError> {
        if let Some(unfinished) = self.unfinished.take() {
            if room == 0 {
                self.unfinished = Some(unfinished);
                return Ok(Outcome::Waiting);
            }
            room = self.call(room, now, unfinished, effects, |operator, cx| operator.resume(cx))?;
        }
        if self.unfinished.is_none() && self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            room = self.call(room, now, Unfinished::NoFrame, effects, |operator, cx| operator.on_wake(cx))?;
        }
        while self.unfinished.is_none() {
            if let Some(n) = self.barriers.overdue() {
                effects.push(Effect::Cut(n));
                return Ok(Outcome::More);
            }
            if self.overtake(now, effects) {
                return Ok(Outcome::More);
            }
            if !self.restored.is_empty() {
                if room == 0 {
                    return Ok(Outcome::Waiting);
                }
                if frames == 0 {
                    return Ok(Outcome::More);
                }
                frames -= 1;
                room = self.replay_one(room, now, effects)?;
                continue;
            }
            let Some(channel) = self.next_channel(room) else { return Ok(Outcome::Waiting) };
            if frames == 0 {
                return Ok(Outcome::More);
            }
            frames -= 1;
            if let (Some(overtaking), Some(body)) = (&mut self.overtaking, self.queues[channel].front()) {
                overtaking.takes(channel, body);
            }
            let Some(body) = self.queues[channel].pop_front() else { return Ok(Outcome::Waiting) };
            let at = channel_index(channel);
            match body {
                Body::Empty => {}
                Body::Records(batch) => {
                    let (port, records) = (self.port_of[channel], batch.len() as u64);
                    self.counters.consumed[port] += records;
                    let unfinished = Unfinished::Records { channel: at, records };
                    room = self.call(room, now, unfinished, effects, |op, cx| op.on_batch(port, batch, cx))?;
                }
                Body::Watermark(t) => {
                    let merged = self.merger.watermark(at, t);
                    room = self.merged(merged, at, room, now, effects)?;
                }
                Body::Idle => {
                    let merged = self.merger.idle(at);
                    room = self.merged(merged, at, room, now, effects)?;
                }
                Body::Active => {
                    let merged = self.merger.active(at);
                    room = self.merged(merged, at, room, now, effects)?;
                }
                Body::Barrier(n) => {
                    self.processed[channel].barriers += 1;
                    self.reached += 1;
                    let outcome = self.barriers.barrier(at, n).map_err(|e| OperatorError::Failed(e.to_string()))?;
                    if self.aligned(outcome, effects)? {
                        return Ok(Outcome::More);
                    }
                }
                Body::End => {
                    let outcome = self.barriers.end(at).map_err(|e| OperatorError::Failed(e.to_string()))?;
                    if self.aligned(outcome, effects)? {
                        return Ok(Outcome::More);
                    }
                }
            }
        }
        Ok(if room > 0 { Outcome::More } else { Outcome::Waiting })
    }

    /// Cuts before the records that a barrier waits for, if it may and has waited for long enough.
    fn overtake(&mut self, now: Duration, effects: &mut Vec<Effect>) -> bool {
        let (Barriers::Overtaking(machine), Some(overtaking)) = (&mut self.barriers, &mut self.overtaking) else {
            return false;
        };
        if !overtaking.is_due(machine.coming(), now) || machine.overtakable().is_none() {
            return false;
        }
        let held: Vec<bool> = (0..self.queues.len()).map(|channel| machine.held(channel_index(channel))).collect();
        let Some(n) = machine.overtake() else { return false };
        // The one before has arrived everywhere, or nothing could be overtaken now.
        overtaking.close(&self.restored, &self.queues, effects);
        let mut before = vec![];
        for (channel, queue) in self.queues.iter_mut().enumerate() {
            let end = queue.iter().position(|body| match body {
                Body::Barrier(found) => *found == n,
                Body::End => true,
                _ => false,
            });
            // The barrier of a held channel has been taken out: all that is there stands behind it.
            before.push(if held[channel] { 0 } else { end.unwrap_or(queue.len()) });
            if let Some(end) = end.filter(|end| matches!(queue[*end], Body::Barrier(_))) {
                queue.remove(end);
                self.processed[channel].barriers += 1;
            }
        }
        overtaking.cut(n, &self.port_of, &self.merger, self.restored.len(), &before);
        effects.push(Effect::Overtook(n));
        true
    }

    /// Handles the first of what was in flight before the attempt.
    fn replay_one(&mut self, room: usize, now: Duration, effects: &mut Vec<Effect>) -> Result<usize, OperatorError> {
        if let (Some(overtaking), Some(frame)) = (&mut self.overtaking, self.restored.front()) {
            overtaking.takes_restored(frame);
        }
        match self.restored.pop_front() {
            Some(Restored::Records { channel, batch }) => {
                let port = self.port_of[channel];
                self.counters.consumed[port] += batch.len() as u64;
                self.call(room, now, Unfinished::NoFrame, effects, |op, cx| op.on_batch(port, batch, cx))
            }
            Some(Restored::Watermark(t)) => match self.merger.raise(t) {
                Merged::Advance(t) => {
                    self.call(room, now, Unfinished::NoFrame, effects, |op, cx| op.on_watermark(t, cx))
                }
                _ => Ok(room),
            },
            None => Ok(room),
        }
    }

    /// The next channel whose first frame may be handled now, in turn.
    fn next_channel(&mut self, room: usize) -> Option<usize> {
        let channels = self.queues.len();
        for step in 0..channels {
            let channel = (self.turn + step) % channels;
            let at = channel_index(channel);
            let may = match self.queues[channel].front() {
                None => false,
                Some(Body::Records(_) | Body::Watermark(_)) => room > 0,
                Some(_) => true,
            };
            if may && !self.barriers.held(at) {
                self.turn = (channel + 1) % channels;
                return Some(channel);
            }
        }
        None
    }

    fn merged(
        &mut self,
        merged: Merged,
        channel: ChannelIndex,
        room: usize,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) -> Result<usize, OperatorError> {
        match merged {
            Merged::Advance(t) => {
                let unfinished = Unfinished::Watermark { channel };
                return self.call(room, now, unfinished, effects, |operator, cx| operator.on_watermark(t, cx));
            }
            Merged::Unchanged => {}
            Merged::Idle => effects.push(Effect::Control(Body::Idle)),
            Merged::Active => effects.push(Effect::Control(Body::Active)),
        }
        self.processed[channel.index()].units += 1;
        Ok(room)
    }

    /// True if the step ends here.
    fn aligned(&mut self, outcome: Alignment, effects: &mut Vec<Effect>) -> Result<bool, OperatorError> {
        match outcome {
            Alignment::Wait => return Ok(false),
            Alignment::Cut(n) => effects.push(Effect::Cut(n)),
            Alignment::Ended => {
                self.operator.end()?;
                effects.push(Effect::Ended);
            }
        }
        Ok(true)
    }

    /// Calls the operator, takes what it produced as effects, and notes whether the frame is finished. Returns the room left.
    fn call(
        &mut self,
        mut room: usize,
        now: Duration,
        frame: Unfinished,
        effects: &mut Vec<Effect>,
        f: impl FnOnce(&mut dyn Operator, &mut Context<'_>) -> Result<Flow, OperatorError>,
    ) -> Result<usize, OperatorError> {
        let mut wake_after = None;
        let mut cx = Context {
            produced: &mut self.produced,
            room: &mut room,
            counters: &mut self.counters,
            watermark: self.merger.current(),
            batch_records: self.batch_records,
            now,
            wake_after: &mut wake_after,
        };
        let flow = f(self.operator.as_mut(), &mut cx)?;
        if let Some(after) = wake_after {
            let at = now + after;
            self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
        }
        effects.extend(self.produced.drain(..).map(|produced| match produced {
            Produced::Records(port, batch) => Effect::Records(port, batch),
            Produced::Control(body) => Effect::Control(body),
        }));
        match (flow, frame) {
            (Flow::Pending, frame) => self.unfinished = Some(frame),
            (Flow::Done, Unfinished::Records { channel, records }) => self.processed[channel.index()].units += records,
            (Flow::Done, Unfinished::Watermark { channel }) => self.processed[channel.index()].units += 1,
            (Flow::Done, Unfinished::NoFrame) => {}
        }
        Ok(room)
    }
}

fn channel_index(channel: usize) -> ChannelIndex {
    ChannelIndex(u32::try_from(channel).expect("fewer than 2^32 channels"))
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
