//! What can be seen of a run: live numbers while it goes on, a verified report at its end.

mod explanation;
mod history;
mod loss;
mod progress;
mod report;
mod standing;

pub use crate::error::Loss;
pub use explanation::{Connector, ExplainedState, Explanation};
pub use history::{CheckpointPhase, CheckpointRecord, CheckpointState, PhaseTime};
pub use progress::{Control, Paused, Phase, Progress, RecoveryTimes, Seen};
pub use report::{EdgeCount, OperatorCount, Report};
pub use standing::{InstanceName, Stage, Waiting};

pub(crate) use history::Layout;
pub(crate) use loss::LastCount;
pub(crate) use report::{add, books};
pub(crate) use standing::{Standing, in_words};
