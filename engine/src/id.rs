//! Identifiers. No bare integer stands for one of them in a signature.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A job, for its whole life: random, made at its first start, kept in the checkpoint store. Everything that writes for a
/// job does so as this *owner*.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u128);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A numbered life of a job, from 1. A higher one fences the lower ones (I-7).
    Attempt(u64)
);
number!(
    /// The number of a checkpoint, from 1; also the timely time of everything before its barrier. Numbers never return:
    /// the next one is one more than the highest ever seen.
    CheckpointId(u64)
);
number!(
    /// A node of the job graph, in the order in which the build function made it.
    OperatorId(u32)
);
number!(
    /// A worker thread of the job, from 0.
    WorkerIndex(u32)
);

impl CheckpointId {
    /// The checkpoint after this one.
    pub fn next(self) -> CheckpointId {
        CheckpointId(self.0 + 1)
    }
}

/// One copy of an operator on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId {
    /// The operator.
    pub operator: OperatorId,
    /// The worker it runs on.
    pub worker: WorkerIndex,
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operator {} on worker {}", self.operator, self.worker)
    }
}
