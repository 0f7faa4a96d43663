//! Exactly-once dataflow in a Rust program, with the transactional log it needs built in.
//!
//! A job is an ordinary program. It describes sources, operators and sinks; Cutwater runs them on worker threads, cuts their
//! streams consistently while records flow, and after any crash goes back to the last complete checkpoint and goes on as if
//! nothing had happened, its output included.
//!
//! # A first program
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use cutwater::connectors::text;
//! use cutwater::prelude::*;
//!
//! cutwater::mimalloc!();
//!
//! fn main() -> ExitCode {
//!     cutwater::main(build)
//! }
//!
//! fn build(job: &Job) -> Result<(), BuildError> {
//!     let words = job
//!         .source("lines", text::lines(job, "book.txt"))
//!         .flat_map(|line| line.to_string().split_whitespace().map(str::to_owned).collect::<Vec<_>>());
//!     words
//!         .key_value(|word| (word, ()))
//!         .count_at_end("words")
//!         .map(|(word, count)| format!("{word} {count}"))
//!         .sink("counts", job.log().write("word-counts"));
//!     Ok(())
//! }
//! ```
//!
//! Run it with `--dir data`, kill it as often as you like, run it again: the counts in the topic `word-counts` are those of the
//! file, each exactly once. `--help` lists what every job understands, `--explain` shows what would run.
//!
//! # What is where
//!
//! ```text
//!   cutwater (this crate)         one import, and the face of a job: flags, progress, Ctrl-C, report, exit codes
//!      |-- operators              map, filter, key_by, count, timestamps, window ...: what pipelines are written with
//!      |-- connectors             ways in and out: the log, files, generators; codecs
//!      |-- engine                 the dataflow: graph, workers, barriers, state, checkpoints, recovery
//!      |-- partition_log          the transactional log; knows nothing of the engine
//!      `-- platform               disk, clock, randomness and threads behind traits
//! ```
//!
//! Reading order for whoever uses it: [`prelude`], [`operators`], [`connectors`], [`main`] and [`Flags`]. For whoever wants
//! to know how it works: the head of [`engine`], then the modules in the order in which it lists them.

#![forbid(unsafe_code)]

pub use cutwater_engine as engine;
pub use cutwater_operators as operators;
pub use cutwater_partition_log as partition_log;
pub use cutwater_platform as platform;
pub use cutwater_sources_sinks as connectors;

mod face;
pub mod prelude;

pub use face::{BrokerFlags, Exit, Flags, Packing, Promise, main, main_from, main_named, run, run_with};

#[doc(inline)]
pub use cutwater_engine::worker::{check_upgrade, explain};

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The programs in the page about upgrades compile.
#[cfg(doctest)]
#[doc = include_str!("../docs/upgrades.md")]
struct Upgrades;

/// What [`mimalloc!`] names.
#[cfg(feature = "mimalloc")]
#[doc(hidden)]
pub use mimalloc::MiMalloc;

/// Makes mimalloc the allocator of the program: call it once, beside `main`.
///
/// On keys and records that own heap memory it is two to four times as fast as the system's. A library must never choose the
/// allocator, so the program says it.
///
/// ```
/// cutwater::mimalloc!();
/// # fn main() {}
/// ```
#[cfg(feature = "mimalloc")]
#[macro_export]
macro_rules! mimalloc {
    () => {
        #[global_allocator]
        static CUTWATER_ALLOCATOR: $crate::MiMalloc = $crate::MiMalloc;
    };
}
