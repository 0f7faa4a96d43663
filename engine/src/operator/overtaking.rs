//! What a driver does so that barriers may overtake records: patience with a barrier, and the capture of one cut at a time.
//!
//! Which frames are captured is decided by [`Overtaker`](crate::barrier::Overtaker); how long is too long, by the
//! configuration. Here are only the clock's arithmetic and the bytes, a few frames per step.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::barrier::WatermarkMerger;
use crate::element::Body;
use crate::graph::codec::EdgeCodec;
use crate::id::CheckpointId;
use crate::in_flight::{Capture, Restored};
use crate::operator::driver::Effect;

/// Frames that are turned into bytes per step: a batch each, so some ten microseconds.
const FRAMES_PER_STEP: usize = 4;

/// One instance's overtaking.
pub(crate) struct Overtaking {
    codecs: Vec<Option<Rc<dyn EdgeCodec>>>,
    patience: Duration,
    /// The checkpoint whose barrier has come, and when that was first seen.
    waiting: Option<(CheckpointId, Duration)>,
    capture: Option<Capture>,
}

impl Overtaking {
    /// `codecs`: one per input port, `None` where nothing may be overtaken.
    pub(crate) fn new(patience: Duration, codecs: Vec<Option<Rc<dyn EdgeCodec>>>) -> Overtaking {
        Overtaking { codecs, patience, waiting: None, capture: None }
    }

    /// Whether the barrier that is coming has waited for long enough.
    pub(crate) fn is_due(&mut self, coming: Option<CheckpointId>, now: Duration) -> bool {
        let Some(n) = coming else {
            self.waiting = None;
            return false;
        };
        let since = match self.waiting {
            Some((waiting, since)) if waiting == n => since,
            _ => now,
        };
        self.waiting = Some((n, since));
        now.saturating_sub(since) >= self.patience
    }

    /// When the patience will end, if it hasn't.
    pub(crate) fn ends_at(&self, now: Duration) -> Option<Duration> {
        self.waiting.map(|(_, since)| since + self.patience).filter(|at| *at > now)
    }

    /// Begins the capture of a cut; the one before is whole.
    pub(crate) fn cut(
        &mut self,
        n: CheckpointId,
        port_of: &[usize],
        merger: &WatermarkMerger,
        restored: usize,
        before: &[usize],
    ) {
        assert!(self.capture.is_none(), "two cuts were captured at once");
        self.waiting = None;
        self.capture = Some(Capture::new(n, &self.codecs, port_of, merger, restored, before));
    }

    /// A frame that belongs to the cut has come.
    pub(crate) fn arrives(&mut self, channel: usize) {
        self.capture.as_mut().expect("frames are recorded after a cut").arrives(channel);
    }

    /// A frame is taken out of a queue.
    pub(crate) fn takes(&mut self, channel: usize, body: &Body) {
        if let Some(capture) = &mut self.capture {
            capture.takes(channel, body);
        }
    }

    /// The first restored frame is taken.
    pub(crate) fn takes_restored(&mut self, frame: &Restored) {
        if let Some(capture) = &mut self.capture {
            capture.takes_restored(frame);
        }
    }

    /// Writes some of the capture; hands it over when it is whole. With `arriving`, more may still come to belong to it.
    pub(crate) fn record(
        &mut self,
        arriving: bool,
        restored: &VecDeque<Restored>,
        queues: &[VecDeque<Body>],
        effects: &mut Vec<Effect>,
    ) {
        let Some(capture) = &mut self.capture else { return };
        capture.advance(restored, queues, FRAMES_PER_STEP);
        if !arriving && capture.is_written() {
            self.hand_over(effects);
        }
    }

    /// Writes the rest of the capture and hands it over: the next cut comes.
    pub(crate) fn close(
        &mut self,
        restored: &VecDeque<Restored>,
        queues: &[VecDeque<Body>],
        effects: &mut Vec<Effect>,
    ) {
        if let Some(capture) = &mut self.capture {
            capture.advance(restored, queues, usize::MAX);
            self.hand_over(effects);
        }
    }

    /// Whether frames wait to be written.
    pub(crate) fn has_to_write(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| !capture.is_written())
    }

    fn hand_over(&mut self, effects: &mut Vec<Effect>) {
        if let Some(capture) = self.capture.take() {
            effects.push(Effect::Captured(capture.checkpoint(), capture.finish()));
        }
    }
}
