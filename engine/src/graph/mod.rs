//! What a job is before it runs: typed handles in the user's hands, an untyped graph behind them.
//!
//! The build function is called once on the main thread (to check the job and to know its sinks before anything runs) and
//! once per worker and attempt. It only records nodes and edges; operators are made from the recorded factories by the
//! worker that runs them. The graph's fingerprint is compared between all calls.
//!
//! Reading order: [`time_mode`] (what is known about time, as a type), [`job`] and [`stream`] (the handles), [`stage`]
//! (stateless steps that become one operator), [`node`] (what is recorded), [`validate`], [`plan`].

pub(crate) mod codec;
pub mod job;
pub mod node;
pub mod plan;
pub mod stage;
pub mod stream;
pub mod time_mode;
pub mod validate;

pub use job::{Environment, Job};
pub use node::{OperatorSetup, Outputs};
pub use plan::{Plan, PlanEdge, PlanNode, Role};
pub use stage::StageCounts;
pub use stream::{Keyed, Stream};
pub use time_mode::{TimeMode, Timed, Untimed};
