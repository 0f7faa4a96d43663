//! The protocol of checkpoints and recovery as a model: every state that a small job can come to is visited, whatever the order of
//! its steps, wherever it dies, and with an older attempt that goes on beside a newer one.
//!
//! ```text
//!   product's decisions (cutwater-engine)      Aligner EdgeCredit Chain Ledger retire sweep resolve state_pieces
//!              ^ called by
//!   the model's glue                           flow (channels) . control (trigger .. janitor, I/O) . start (recovery)
//!              ^ around
//!   the modelled world                         store (names, durable or not) . log (transactions) . lives (attempts)
//!              ^ judged by                                     ^ visited by
//!   check (the promises)                       search (nearest first, shortest trace)
//! ```
//!
//! `docs/model.md` says what is modelled, what isn't, and how to read a trace. [`Fault`] plants mistakes in the glue; a test shows that
//! each of them is found.

#![forbid(unsafe_code)]

pub mod catalogue;
mod check;
pub mod config;
mod control;
pub mod fault;
mod flow;
mod instance;
mod io;
mod log;
pub mod overtake;
pub mod protocol;
pub mod search;
pub mod shared;
mod start;
mod store;
mod tell;
mod world;

pub use config::Config;
pub use fault::Fault;
pub use protocol::Protocol;
pub use search::{Visited, search};
