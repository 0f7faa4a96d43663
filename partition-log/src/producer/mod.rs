//! Idempotent producers: what a partition remembers of each, and how a batch is judged by it.
//!
//! Source: Kafka's `ProducerStateManager` and `ProducerAppendInfo`, KIP-98, KIP-360. Unlike Kafka's, the window of five
//! batches survives a restart.

mod snapshot;
mod state;
mod validate;

pub(crate) use snapshot::snapshot;
pub(crate) use state::{Appended, ProducerState};
pub use validate::SequenceError;
pub(crate) use validate::{Verdict, last_sequence, next_sequence, validate};
