//! placeholder
pub mod barrier;
pub mod checkpoint;
pub mod config;
pub mod element;
pub mod error;
pub mod exchange;
pub mod graph;
pub mod id;
pub mod observe;
pub mod operator;
pub mod recovery;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod time;
pub mod worker;
