//! The contract of an operator.
//!
//! An operator instance is stepped by its [`driver`]: it gets one batch or one watermark at a time and puts what it produces
//! into a [`Context`]. It never sees channels, barriers, capabilities, other workers or time.
//!
//! * Output goes into a bounded buffer. An operator that has more to say than there is room for answers
//!   [`Flow::Pending`] and goes on in [`Operator::resume`]; a barrier is handled only when the frame before it has been
//!   emitted whole.
//! * State lives in the states that [`Operator::states`] names, or in the blobs of [`Operator::save`]; never in captures.
//! * Each consumed record is counted once in [`Context::counters`] (I-8); the driver counts `consumed` and `emitted` itself.

pub mod context;
pub(crate) mod driver;
mod overtaking;
pub mod testing;

use std::cell::RefCell;
use std::rc::Rc;

use crate::element::Batch;
use crate::error::{OperatorError, SinkError};
use crate::exchange::GroupRange;
use crate::id::{CheckpointId, WorkerIndex};
use crate::sink::Prepare;
use crate::state::KeyedState;
use crate::time::Watermark;

pub use context::Context;

/// Whether the operator has said all it had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Everything that followed from the last call is in the context.
    Done,
    /// More follows; call [`Operator::resume`] when there is room.
    Pending,
}

/// One instance of an operator.
pub trait Operator: 'static {
    /// Takes a batch from input `port`.
    ///
    /// # Errors
    /// The attempt ends.
    fn on_batch(&mut self, port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError>;

    /// The merged watermark of all inputs has risen to `watermark` ([`Watermark::MAX`] when nothing more will come). By
    /// default it is passed on; an operator that overrides this passes it on itself, when its output is complete.
    ///
    /// # Errors
    /// The attempt ends.
    fn on_watermark(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        cx.watermark(watermark);
        Ok(Flow::Done)
    }

    /// Goes on after [`Flow::Pending`].
    ///
    /// # Errors
    /// The attempt ends.
    fn resume(&mut self, _cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        Ok(Flow::Done)
    }

    /// The time asked for with [`Context::wake_after`] has come. Never called while the operator is pending. If it was asked
    /// for in [`Operator::on_start`] with a time of zero, no frame has been handled yet.
    ///
    /// # Errors
    /// The attempt ends.
    fn on_wake(&mut self, _cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        Ok(Flow::Done)
    }

    /// Called once before the first frame, after [`Operator::restore`]: the place to say again what was promised before the
    /// restore, since channels start without a promise.
    ///
    /// # Errors
    /// The attempt ends.
    fn on_start(&mut self, _cx: &mut Context<'_>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Keyed state, always the same states in the same order.
    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![]
    }

    /// Small state at a barrier: named bytes that go into the manifest.
    fn save(&mut self) -> Vec<(String, Vec<u8>)> {
        vec![]
    }

    /// Takes back what the instances of this operator saved, before the first batch. With the same number of workers,
    /// `saved` has this worker's own entry among all others.
    ///
    /// # Errors
    /// The bytes aren't what this operator writes; the run ends.
    fn restore(&mut self, _saved: &Saved) -> Result<(), OperatorError> {
        Ok(())
    }

    /// For sinks: closes what was written before the barrier; see [`SinkWriter::seal`](crate::sink::SinkWriter::seal).
    ///
    /// # Errors
    /// The attempt ends.
    fn seal(&mut self, _checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        Ok(None)
    }

    /// For sinks: see [`SinkWriter::unconfirmed`](crate::sink::SinkWriter::unconfirmed).
    fn unconfirmed(&self) -> u64 {
        0
    }

    /// Called once when nothing will follow, after the last frame.
    ///
    /// # Errors
    /// The attempt ends.
    fn end(&mut self) -> Result<(), OperatorError> {
        Ok(())
    }
}

/// What all instances of one operator saved at the restored checkpoint.
#[derive(Clone, Debug)]
pub struct Saved {
    /// One entry per instance that saved something, by worker.
    pub instances: Vec<SavedInstance>,
    /// The worker that asks.
    pub worker: WorkerIndex,
    /// The key groups it owns now.
    pub groups: GroupRange,
    /// Whether the number of workers is the same as then.
    pub same_workers: bool,
}

/// What one instance saved.
#[derive(Clone, Debug)]
pub struct SavedInstance {
    /// The worker it ran on.
    pub worker: WorkerIndex,
    /// The key groups it owned.
    pub groups: GroupRange,
    /// What it saved, by name.
    pub blobs: Vec<(String, Vec<u8>)>,
}

impl Saved {
    /// True at a first start.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// The entries named `name`: this worker's own alone if the number of workers is the same, else everybody's.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a SavedInstance, &'a [u8])> {
        self.instances
            .iter()
            .filter(move |i| !self.same_workers || i.worker == self.worker)
            .flat_map(move |i| i.blobs.iter().filter(move |b| b.0 == name).map(move |b| (i, b.1.as_slice())))
    }
}
