//! Which frames in an instance's queues belong to the channel state of a cut, and their bytes.
//!
//! At the cut they are only *marked*: each queue has a number of frames at its front that belong to the cut, and of those the
//! first so many are written. A frame is written when its turn comes in [`Capture::advance`], or at the latest when it is
//! taken out to be processed ([`Capture::takes`]). So a cut costs a few numbers however much is in flight, and encoding is
//! spread over many activations.
//!
//! Frames of one channel are written in their order; those that were restored and not yet given to the operator come before
//! all others, as they do there.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::barrier::WatermarkMerger;
use crate::element::Body;
use crate::exchange::ChannelIndex;
use crate::graph::codec::EdgeCodec;
use crate::id::CheckpointId;
use crate::in_flight::entry::{Entry, Writer};
use crate::in_flight::{Restored, schema};
use crate::state::FrozenState;
use crate::time::Watermark;

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Frames at the front that belong to the cut.
    marked: usize,
    /// Of those, written.
    written: usize,
}

impl Marks {
    fn to_write(self) -> bool {
        self.written < self.marked
    }
}

/// The channel state of one cut while it is being recorded.
pub(crate) struct Capture {
    checkpoint: CheckpointId,
    codecs: Vec<Option<Rc<dyn EdgeCodec>>>,
    port_of: Vec<usize>,
    restored: Marks,
    queues: Vec<Marks>,
    /// Frames that belong to the cut, written or not.
    frames: u64,
    writer: Writer,
}

impl Capture {
    /// At the cut: `before` says of each channel how many frames of its queue stand before the barrier; `restored` is how many
    /// restored frames the operator hasn't been given.
    pub(crate) fn new(
        checkpoint: CheckpointId,
        codecs: &[Option<Rc<dyn EdgeCodec>>],
        port_of: &[usize],
        merger: &WatermarkMerger,
        restored: usize,
        before: &[usize],
    ) -> Capture {
        let channels = u32::try_from(before.len()).expect("fewer than 2^32 channels");
        let mut writer = Writer::new(channels);
        // Where the channels' time stood: what is overtaken was promised relative to that.
        writer.put(&Entry::Merged(merger.current()));
        for channel in 0..channels {
            let (promised, idle) = merger.channel(ChannelIndex(channel));
            if promised > Watermark::MIN {
                writer.put(&Entry::Watermark(channel, promised));
            }
            if idle {
                writer.put(&Entry::Idle(channel));
            }
        }
        let marks = |frames: usize| Marks { marked: frames, written: 0 };
        Capture {
            checkpoint,
            codecs: codecs.to_vec(),
            port_of: port_of.to_vec(),
            restored: marks(restored),
            queues: before.iter().map(|frames| marks(*frames)).collect(),
            frames: (restored + before.iter().sum::<usize>()) as u64,
            writer,
        }
    }

    /// Of which cut.
    pub(crate) fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// A frame that belongs to the cut has been put at the back of a queue, all of which does.
    pub(crate) fn arrives(&mut self, channel: usize) {
        self.queues[channel].marked += 1;
        self.frames += 1;
    }

    /// The frame at the front of a queue is about to be taken out.
    pub(crate) fn takes(&mut self, channel: usize, body: &Body) {
        let marks = &mut self.queues[channel];
        if marks.marked == 0 {
            return;
        }
        let written = marks.written > 0;
        marks.marked -= 1;
        marks.written = marks.written.saturating_sub(1);
        if !written {
            self.write(channel, body);
        }
    }

    /// The first restored frame is about to be given to the operator.
    pub(crate) fn takes_restored(&mut self, frame: &Restored) {
        if self.restored.marked == 0 {
            return;
        }
        let written = self.restored.written > 0;
        self.restored.marked -= 1;
        self.restored.written = self.restored.written.saturating_sub(1);
        if !written {
            self.write_restored(frame);
        }
    }

    /// Writes at most so many frames.
    pub(crate) fn advance(&mut self, restored: &VecDeque<Restored>, queues: &[VecDeque<Body>], mut frames: usize) {
        while frames > 0 && self.restored.to_write() {
            self.write_restored(&restored[self.restored.written]);
            self.restored.written += 1;
            frames -= 1;
        }
        for channel in 0..queues.len() {
            while frames > 0 && !self.restored.to_write() && self.queues[channel].to_write() {
                self.write(channel, &queues[channel][self.queues[channel].written]);
                self.queues[channel].written += 1;
                frames -= 1;
            }
        }
    }

    /// True if everything that belongs to the cut so far has been written.
    pub(crate) fn is_written(&self) -> bool {
        !self.restored.to_write() && !self.queues.iter().any(|marks| marks.to_write())
    }

    /// The channel state; `None` if the barrier overtook nothing.
    pub(crate) fn finish(self) -> Option<FrozenState> {
        assert!(self.is_written(), "channel state was closed before it was written");
        (self.frames > 0).then(|| self.writer.finish(schema(&self.codecs)))
    }

    fn write(&mut self, channel: usize, body: &Body) {
        let at = u32::try_from(channel).expect("fewer than 2^32 channels");
        match body {
            Body::Records(batch) => {
                let codec = self.codecs[self.port_of[channel]].as_ref();
                self.writer.put_records(at, batch.len(), |out| {
                    codec.expect("only channels with a codec are overtaken").encode(batch, out)
                });
            }
            Body::Watermark(t) => self.writer.put(&Entry::Watermark(at, *t)),
            Body::Idle => self.writer.put(&Entry::Idle(at)),
            Body::Active => self.writer.put(&Entry::Active(at)),
            Body::Empty | Body::Barrier(_) | Body::End => {}
        }
    }

    fn write_restored(&mut self, frame: &Restored) {
        match frame {
            Restored::Records { channel, batch } => {
                let at = u32::try_from(*channel).expect("fewer than 2^32 channels");
                let codec = self.codecs[self.port_of[*channel]].as_ref();
                self.writer
                    .put_records(at, batch.len(), |out| codec.expect("it was decoded with one").encode(batch, out));
            }
            Restored::Watermark(t) => self.writer.put(&Entry::Merged(*t)),
        }
    }
}
