//! What pipelines are written with: one operator, one file.
//!
//! Operators reach streams as extension traits, gathered in [`prelude`]. They see the engine's public operator contract and
//! nothing else of it, so one of your own is written the same way.
//!
//! | operator | on | state | what a barrier does to it |
//! |---|---|---|---|
//! | [`map`], [`filter`], [`filter_map`], [`inspect`] | any stream | none | nothing; neighbours become one operator |
//! | [`fused`](mod@fused) | any stream | none | nothing |
//! | [`flat_map`] | any stream | the iterator under way | waits until its rows are out |
//! | [`try_map`] | any stream | none | cuts both outputs at the same place |
//! | [`fork`] | any stream | none | goes to both outputs in one step |
//! | [`union`] | several streams | none | is waited for on every input |
//! | [`key_by`] | any stream | none | nothing; makes the stream keyed |
//! | [`count`] | keyed | a number per key | writes the counts that changed |
//! | [`count_at_end`] | keyed | a number per key | the same; waits until the final counts are out |
//! | [`dedupe`] | keyed, timed | the keys of a time to live | writes new keys, forgotten ones as removals |
//! | [`process`] | keyed | what its function declares, and timers | writes what changed and the timers that are set |
//! | [`reduce`] | keyed | a record per key | writes the values that changed |
//! | [`timestamps`] | untimed | the largest time | saves it |
//! | [`window`] | keyed, timed | an aggregate per key and open window, pane or session | writes those that changed; waits until a firing is out |
//!
//! Functions that are given to operators should depend on their arguments alone. What they keep in captures is in no snapshot,
//! and after a restore it would not be what it was; state that counts belongs into an operator that has it.
//!
//! ```
//! use cutwater_engine::graph::{Job, Untimed};
//! use cutwater_engine::operator::testing::Rig;
//! use cutwater_engine::time::EventTime;
//! use cutwater_operators::prelude::*;
//!
//! let mut rig = Rig::new();
//! let (lines, stream) = rig.input::<String, Untimed>("lines");
//! let (readings, bad) = stream.try_map(|line| match line.split_once(' ') {
//!     Some((at, sensor)) => at.parse::<i64>().map(|at| (at, sensor.to_string())).map_err(|e| e.to_string()),
//!     None => Err("no space".to_string()),
//! });
//! let per_minute = readings
//!     .timestamps(|(at, _)| EventTime(*at), Bounded::seconds(10))
//!     .key_by(|(_, sensor)| sensor.clone())
//!     .window(Tumbling::minutes(1))
//!     .aggregate("per-minute", || 0u64, |n, _| *n += 1, |sensor, window, n| format!("{sensor} {window}: {n}"))
//!     .drop_late();
//! let (per_minute, bad) = (rig.collect(per_minute), rig.collect(bad));
//! rig.push(&lines, ["1000 a", "2000 a", "x", "70001 a"].map(String::from).to_vec());
//! assert_eq!(per_minute.take_records()[0].1, "a [0 ms, 60000 ms): 2");
//! assert_eq!(bad.take_records()[0].reason, "no space");
//! ```

#![forbid(unsafe_code)]

pub mod count;
pub mod count_at_end;
pub mod dedupe;
pub mod filter;
pub mod filter_map;
pub mod flat_map;
mod floors;
pub mod fork;
pub mod fused;
pub mod inspect;
pub mod key_by;
mod key_order;
pub mod map;
pub mod prelude;
pub mod process;
pub mod reduce;
#[cfg(test)]
mod testing;
pub mod timestamps;
pub mod try_map;
pub mod union;
pub mod window;
