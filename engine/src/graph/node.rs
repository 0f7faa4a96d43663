//! What the build function records: nodes, their factories, the edges between them.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use crate::config::GuaranteeKind;
use crate::element::Batch;
use crate::error::{BuildError, SourceError};
use crate::exchange::GroupAssignment;
use crate::graph::codec::EdgeCodec;
use crate::graph::job::{Environment, Job};
use crate::graph::stream::Stream;
use crate::graph::time_mode::TimeMode;
use crate::id::{Attempt, JobId, OperatorId, WorkerIndex};
use crate::operator::Operator;
use crate::sink::{CommitGroup, Honours, Visibility};
use crate::source::{Follow, Replay, SourceDriver};
use crate::state::AnyMigrations;

/// What an operator's factory is told when its instance is made.
#[derive(Debug, Clone)]
pub struct OperatorSetup {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: Attempt,
    /// The operator's name.
    pub name: String,
    /// The worker.
    pub worker: WorkerIndex,
    /// Which worker owns which key groups.
    pub assignment: GroupAssignment,
    /// When what sinks write becomes visible.
    pub visibility: Visibility,
    /// The world and the options of the job.
    pub environment: Environment,
}

pub(crate) type OperatorFactory = Box<dyn FnOnce(&OperatorSetup) -> Result<Box<dyn Operator>, BuildError>>;
pub(crate) type SourceFactory = Box<dyn FnOnce() -> Box<dyn SourceDriver>>;

/// One node of the graph.
pub(crate) struct Node {
    pub(crate) id: OperatorId,
    pub(crate) name: String,
    /// What it is, for people: "source", "map, filter", "count".
    pub(crate) kind: String,
    pub(crate) inputs: Vec<InputEdge>,
    pub(crate) outputs: usize,
    pub(crate) make: Make,
    /// Names that it had in earlier versions of the program.
    pub(crate) was: Vec<String>,
    /// How its states are read if they were written with other types, by state.
    pub(crate) migrations: Vec<(String, Arc<dyn AnyMigrations>)>,
}

/// How a node's instances are made.
pub(crate) enum Make {
    Source {
        splits: Box<dyn Fn() -> Result<Vec<String>, SourceError>>,
        replay: Replay,
        make: SourceFactory,
        follow: Option<Arc<dyn Follow>>,
    },
    Operator(OperatorFactory),
    Sink {
        make: OperatorFactory,
        honours: Honours,
        group: Option<Arc<dyn CommitGroup>>,
    },
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Make::Source { .. } => "Source",
            Make::Operator(_) => "Operator",
            Make::Sink { .. } => "Sink",
        })
    }
}

/// An edge, seen from the node that reads it.
pub(crate) struct InputEdge {
    pub(crate) from: OperatorId,
    pub(crate) port: usize,
    pub(crate) route: Route,
    /// Turns its records into bytes; without it no barrier overtakes them.
    pub(crate) codec: Option<Rc<dyn EdgeCodec>>,
}

/// How records find the worker that gets them.
pub(crate) enum Route {
    /// The same worker.
    Local,
    /// The worker that owns the record's key group; makes one splitter per sending instance.
    ByKey(Box<dyn FnOnce() -> Box<dyn Splitter>>),
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Route::Local => "on the same worker",
            Route::ByKey(_) => "by key group",
        })
    }
}

/// Divides batches among workers, keeping an open batch for each.
pub(crate) trait Splitter {
    /// Prepares for an assignment of key groups to workers.
    fn prepare(&mut self, assignment: GroupAssignment, batch_records: usize);
    /// Takes a batch; hands over each batch that became full.
    fn split(&mut self, batch: Batch, ship: &mut dyn FnMut(usize, Batch));
    /// Hands over all open batches.
    fn flush(&mut self, ship: &mut dyn FnMut(usize, Batch));
}

/// The outputs of a node, each to be taken once with its type.
#[must_use = "an output that leads nowhere is refused; take it, or discard it"]
#[derive(Debug)]
pub struct Outputs {
    pub(crate) job: Job,
    pub(crate) node: OperatorId,
}

impl Outputs {
    /// The stream of output `port`, which must carry `M::Of<T>`.
    pub fn stream<T: 'static, M: TimeMode>(&self, port: usize) -> Stream<T, M>
    where
        M::Of<T>: Send,
    {
        Stream::from_port(self.job.clone(), self.node, port, PhantomData)
    }
}

impl Make {
    /// Why this node can't honour `wanted`; `None` if it can.
    pub(crate) fn objection(&self, wanted: GuaranteeKind) -> Option<(String, String)> {
        match self {
            Make::Source { replay: Replay::Never(reason), .. } if wanted != GuaranteeKind::AtMostOnce => {
                Some((GuaranteeKind::AtMostOnce.to_string(), reason.clone()))
            }
            Make::Sink { honours, .. } if !honours.guarantees.contains(&wanted) => {
                let names: Vec<String> = honours.guarantees.iter().map(ToString::to_string).collect();
                Some((names.join(", "), honours.reason.clone()))
            }
            _ => None,
        }
    }
}
