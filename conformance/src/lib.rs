//! Holds a source or a sink to the contract that exactly-once needs, as `cutwater_engine::source` and `cutwater_engine::sink`
//! state it. Meant for tests of connectors of your own; those that come with Cutwater pass it too.
//!
//! ```text
//!   source(make)               every place is found again, by another instance, on another worker; the end stays the end
//!   sink(make, record, shown)  nothing shows before its commit, everything does after it, once; older attempts are refused;
//!                              and all that through power cuts at every step that the sink takes on the disk
//! ```
//!
//! A kit makes the connector again and again, as a job does for each worker and attempt, plays the engine, and looks at what comes
//! of it. What it finds wrong it names by a [`Rule`], with the story. Panics count as findings.
//!
//! ```
//! use cutwater_conformance::{Rule, source};
//! use cutwater_engine::error::SourceError;
//! use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
//!
//! /// The numbers below ten, in one split. Its position is wrong: it forgets what was read.
//! struct Numbers;
//!
//! struct From(u64);
//!
//! impl Source for Numbers {
//!     type Item = u64;
//!     fn replay(&self) -> Replay {
//!         Replay::FromPosition
//!     }
//!     fn splits(&self) -> Result<Vec<String>, SourceError> {
//!         Ok(vec!["all".into()])
//!     }
//!     fn open(&self, _: &str, at: Option<&[u8]>, _: Waker) -> Result<Box<dyn Reader<Item = u64>>, SourceError> {
//!         let refuse = |_| SourceError::fatal("numbers", "this is no position");
//!         let at = at.map(|bytes| bytes.try_into().map(u64::from_le_bytes)).transpose().map_err(refuse)?;
//!         Ok(Box::new(From(at.unwrap_or(0))))
//!     }
//! }
//!
//! impl Reader for From {
//!     type Item = u64;
//!     fn read(&mut self, out: &mut Vec<u64>, max: usize) -> Result<Read, SourceError> {
//!         let end = self.0.saturating_add(max as u64).min(10).max(self.0);
//!         out.extend(self.0..end);
//!         self.0 = end;
//!         Ok(if end >= 10 { Read::Exhausted } else { Read::More })
//!     }
//!     fn position(&self) -> Vec<u8> {
//!         0u64.to_le_bytes().to_vec()
//!     }
//! }
//!
//! let violations = source(|_| Numbers).run().expect_err("it begins again");
//! assert!(violations.breaks(Rule::PositionResumes), "{violations}");
//! ```
//!
//! What it can't see: whether a system outside loses what it acknowledged, or keeps its promises for longer than the test runs. The
//! power cuts are cuts of [`cutwater_testkit`]'s simulated machine, so they strike what is written through
//! [`Environment::platform`](cutwater_engine::graph::Environment); a sink on a system of its own is only dropped in the middle.
//!
//! Reading order: [`rule`], [`source`](mod@source), [`sink`](mod@sink) (what is asked), then `sink/scenarios.rs` and `sink/crashes.rs`.

#![forbid(unsafe_code)]

pub mod rule;
pub mod sink;
pub mod source;

pub use rule::{Conforms, Rule, Violation, Violations};
pub use sink::{SinkKit, sink};
pub use source::{SourceKit, source};
