//! placeholder
pub mod barrier;
pub mod checkpoint;
pub mod exchange;
pub mod id;
pub mod recovery;
pub mod snapshot;
pub mod state;
pub mod time;
