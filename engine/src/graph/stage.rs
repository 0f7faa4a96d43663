//! Stateless steps, chained into one operator.
//!
//! Stages pass batches by value: one virtual call per stage and *batch*. (Measured on a prototype, not on this code: a boxed `FnMut(Vec<A>) -> Vec<B>` with
//! in-place collect costs 0.56 ns per record over three stages where full iterator fusion costs 0.40 and separate timely
//! operators 0.83.)

use crate::element::Batch;
use crate::error::OperatorError;
use crate::operator::{Context, Flow, Operator};

/// What a stage did with the records it took (I-8). What is neither filtered nor rejected has passed.
#[derive(Debug, Default, Clone, Copy)]
pub struct StageCounts {
    /// Records that the user's function dropped.
    pub filtered: u64,
    /// Records that the user's function called bad.
    pub rejected: u64,
}

/// A chain of stages from an erased batch to a batch of `T`.
pub(crate) type Chain<T> = Box<dyn FnMut(Batch, &mut StageCounts) -> Vec<T>>;

/// One operator for a whole chain.
pub(crate) struct ChainOperator<T> {
    pub(crate) chain: Chain<T>,
}

impl<T: Send + 'static> Operator for ChainOperator<T> {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let taken = batch.len() as u64;
        let mut counts = StageCounts::default();
        let records = (self.chain)(batch, &mut counts);
        let counters = cx.counters();
        counters.filtered += counts.filtered;
        counters.rejected += counts.rejected;
        counters.passed += taken - counts.filtered - counts.rejected;
        cx.emit(0, records);
        Ok(Flow::Done)
    }
}
