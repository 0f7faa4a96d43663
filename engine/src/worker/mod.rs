//! The wiring: from a plan to running workers. The only part of the engine that names timely.
//!
//! ```text
//!   run        attempts of one run: build, claim, fence, resolve, settle, start, restart
//!   restarts   how often a run may start again
//!   recover    what happens before any worker runs
//!   restore_from  beginning from a savepoint
//!   thread     one worker thread of one attempt
//!   outlook    what a start would find, without one
//!   program    what a built job keeps, for the upgrade check
//!   restore    what a worker gets back          build      recorded graph -> timely operators
//!   replay     the records in flight that an instance gets back
//!   instance, source, ports, snapshotting       one operator instance at run time
//!   edge, frame                                 what travels between instances, and credit on its way back
//!   control    trigger, coordinator, committer, janitor                    plane      the same as timely operators
//!   groups     commit groups, and what they are told of sources
//!   offload    the I/O threads                  attempt    what ends an attempt
//!   place      a worker among others: on a thread of its own, or taking turns in a simulation
//!   merging    grown chains into new bases, beside the run
//!   space      waits until a full disk has room again
//!   watchdog   ends the process if a worker is stuck
//! ```

mod attempt;
mod build;
mod control;
mod edge;
mod frame;
mod groups;
mod instance;
mod merging;
mod offload;
mod outlook;
mod place;
mod plane;
mod ports;
mod program;
mod recover;
mod replay;
mod restarts;
mod restore;
mod restore_from;
mod run;
mod snapshotting;
mod source;
mod space;
mod thread;
mod watchdog;

pub use outlook::{Outlook, check_upgrade};
pub use run::{CHECKPOINTS, explain, readers_of, run};
