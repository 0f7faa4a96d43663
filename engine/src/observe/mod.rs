//! What can be seen of a run: live numbers while it goes on, a verified report at its end.

mod explanation;
mod progress;
mod report;

pub use explanation::{Connector, Explanation};
pub use progress::{Control, Phase, Progress, RecoveryTimes, Seen};
pub use report::{EdgeCount, OperatorCount, Report};

pub(crate) use report::{add, books};
