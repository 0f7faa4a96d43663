//! Whole jobs in a simulated world: one machine, one seed, and every crash that can be thought of.
//!
//! The job is the user's own build function, unchanged; engine, log and connectors are the real ones. Disk, clock, randomness and
//! the order in which workers and disk writers run come from a seed ([`cutwater_testkit::Scheduler`]). So a run can be struck
//! at any named crash point or step of the disk, lose what its disk would lose, and start again; and a failure is replayed by
//! its [`Case`], down to the order of every step.
//!
//! ```
//! use cutwater_engine::error::BuildError;
//! use cutwater_engine::graph::Job;
//! use cutwater_operators::prelude::*;
//! use cutwater_simulate::{Crash, Input, Simulate};
//! use cutwater_sources_sinks::log::{JobLog, LogRecord};
//!
//! fn build(job: &Job) -> Result<(), BuildError> {
//!     let text = |r: LogRecord| String::from_utf8_lossy(r.value.as_deref().unwrap_or_default()).into_owned();
//!     job.source("words", job.log().read("words").until_latest())
//!         .map(text)
//!         .key_value(|word| (word, ()))
//!         .count("count")
//!         .map(|(word, count)| format!("{word} {count}"))
//!         .sink("counts", job.log().write("counts"));
//!     Ok(())
//! }
//!
//! let words = Input::new().topic("words", "to be or not to be that is the question".split(' '));
//! let seen = build.simulate().seed(7).crash(Crash::Drawn { schedules: 20 }).run(&words)?;
//! seen.assert_exactly_once();
//! assert_eq!(seen.output.rows("counts").len(), 10);
//! # Ok::<(), cutwater_simulate::SimulationError>(())
//! ```
//!
//! Reading order: [`simulation`] (what a program says, and the judge), [`case`] (what can be replayed), [`input`], [`output`],
//! `life` (one case, life after life), `beside` and `baton` (lives that are stopped and overtaken), [`campaign`] (a million seeds by one command). `docs/simulation.md` tells how to use it.
//!
//! It deliberately does not look into the job: what counts is what readers see.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod case;
pub mod input;
pub mod output;
pub mod simulation;

mod baton;
mod beside;
mod full;
mod life;
mod schedule;
mod settings;

pub use case::{Case, End, NoCase, Strike};
pub use input::Input;
pub use output::{Order, Output, Row};
pub use schedule::Crash;
pub use simulation::{Finding, Simulate, Simulated, Simulation};

/// The data directory of simulated jobs.
pub const DATA_DIR: &str = "data";
/// The log's directory in it.
pub(crate) const LOG_DIR: &str = "log";

/// A simulation that could not begin, or that can judge nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The input could not be put on the simulated disk.
    #[error("the input can't be loaded: {what}: {reason}")]
    Input {
        /// The topic or file.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The job doesn't run even when nothing strikes.
    #[error("the job doesn't run to its end when nothing strikes: {story}")]
    NotEvenStraight {
        /// What happened.
        story: String,
    },
    /// Two runs of the same seed differ: something in the job comes from outside (a random number, a clock, the order of a
    /// `HashMap`).
    #[error(
        "the same seed gave two different runs, so nothing can be replayed or judged: {difference}. Something in the job comes from \
         outside: a random number, a clock, a thread, or the order of a HashMap. Seed {seed}"
    )]
    NotDeterministic {
        /// The seed.
        seed: u64,
        /// What differed.
        difference: String,
    },
    /// Without any crash, what comes out depends on who runs when.
    #[error(
        "what comes out in {topic:?} depends on the order in which workers run, without any crash: seeds {seeds:?} differ. Nobody can \
         say which output would be the right one. {difference}"
    )]
    DependsOnOrder {
        /// The topic, or the reader.
        topic: String,
        /// Two seeds that differ.
        seeds: [u64; 2],
        /// How.
        difference: String,
    },
}
