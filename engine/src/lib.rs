//! The dataflow engine: a job is a graph of sources, operators and sinks; barriers cut its streams consistently; after any crash
//! it goes back to the last complete checkpoint and goes on as if nothing had happened, its output included.
//!
//! ```text
//!   source ---> operator ---> exchange ---> [align] ---> operator + keyed state ---> sink
//!     |            |              |             |               |                     |
//!  position     (chained)    key group      barrier n       snapshot n           prepare n
//!     |                       -> worker    on every input       |                     |
//!     +-----------------------------+---------------------------+---------------------+
//!                                   v  reports, on the ack port
//!                     coordinator: all durable -> manifest n published
//!                                   v  permit
//!                     committer: commit n, one atomic step per commit group -> janitor: recorded, retired
//!
//!   after a crash:  claim attempt -> fence older ones -> facts -> resolve -> record base -> commit, abort -> restore -> go on
//! ```
//!
//! The modules stand in the order of the data's path, and in four strata; imports go downward only:
//!
//! | stratum | modules | knows nothing of |
//! |---|---|---|
//! | words | [`id`], [`time`], [`element`], [`config`], [`error`] | everything below |
//! | decisions | [`barrier`], [`exchange`], [`checkpoint`], [`recovery`], [`graph`] | clock, thread, file, timely |
//! | edges | [`source`], [`operator`], [`state`], [`snapshot`], `in_flight`, [`sink`], [`observe`] | timely |
//! | wiring | [`worker`] | - |
//!
//! Whoever writes a connector reads [`source`] and [`sink`]; whoever writes an operator reads [`operator`]; whoever hunts a bug
//! in the protocol begins with [`checkpoint`] and [`recovery`], where everything is decided without doing anything.

// Words.
pub mod config;
pub mod element;
pub mod error;
pub mod id;
pub mod time;

// What a job is.
pub mod graph;

// The path of a record.
pub mod source;

pub mod operator;

pub mod exchange;

pub mod barrier;

mod in_flight;

pub mod state;

pub mod snapshot;

pub mod sink;

// The checkpoint as a whole, and what follows a crash.
pub mod checkpoint;
pub mod recovery;

// What runs all this, and what can be seen of it.
pub mod worker;

pub mod observe;
