//! What would run, without running it.

use std::fmt;

use crate::config::{Guarantee, GuaranteeKind};
use crate::graph::Plan;
use crate::graph::node::{Make, Node};
use crate::source::Replay;

/// A job, checked but not run: its plan, its guarantee, and what each connector has to do with that.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The job's name.
    pub name: String,
    /// The operators and the edges between them.
    pub plan: Plan,
    /// The guarantee that would be in force (I-10).
    pub guarantee: Guarantee,
    /// Number of workers.
    pub workers: usize,
    /// The sources and sinks.
    pub connectors: Vec<Connector>,
    /// The keyed states of its operators.
    pub states: Vec<ExplainedState>,
}

/// A keyed state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedState {
    /// The operator that keeps it.
    pub operator: String,
    /// Its name, by which a checkpoint is shown and migrations are registered.
    pub state: String,
    /// The version of its types.
    pub version: u32,
    /// Older versions that can be migrated.
    pub older: Vec<u32>,
}

/// A source or sink of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connector {
    /// Its name in the job.
    pub name: String,
    /// The guarantees it can honour.
    pub honours: Vec<GuaranteeKind>,
    /// How it does that, or why it honours no more.
    pub reason: String,
}

impl Connector {
    /// What a node says about guarantees, if it is a source or sink.
    pub(crate) fn of(node: &Node) -> Option<Connector> {
        let (honours, reason) = match &node.make {
            Make::Source { replay: Replay::FromPosition, .. } => {
                let reason = "reads again from the positions in the checkpoint".to_string();
                (vec![GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce, GuaranteeKind::ExactlyOnce], reason)
            }
            Make::Source { replay: Replay::Never(reason), .. } => (vec![GuaranteeKind::AtMostOnce], reason.clone()),
            Make::Sink { honours, group: Some(group), .. } => {
                (honours.guarantees.clone(), format!("commits in group {:?}; {}", group.name(), honours.reason))
            }
            Make::Sink { honours, group: None, .. } => (honours.guarantees.clone(), honours.reason.clone()),
            Make::Operator(_) => return None,
        };
        Some(Connector { name: node.name.clone(), honours, reason })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {}", self.name)?;
        writeln!(f, "  guarantee     {}", self.guarantee)?;
        writeln!(f, "  workers       {}", self.workers)?;
        writeln!(f, "  operators:")?;
        for line in self.plan.to_string().lines() {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  sources and sinks:")?;
        let width = self.connectors.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
        for connector in &self.connectors {
            let honours: Vec<String> = connector.honours.iter().map(ToString::to_string).collect();
            write!(f, "\n    {:width$}  {}: {}", connector.name, honours.join(" or "), connector.reason)?;
        }
        if !self.states.is_empty() {
            write!(f, "\n  keyed state:")?;
        }
        for ExplainedState { operator, state, version, older } in &self.states {
            write!(f, "\n    {operator}/{state}: version {version}")?;
            if !older.is_empty() {
                let older: Vec<String> = older.iter().map(ToString::to_string).collect();
                write!(f, ", reads {} as well", older.join(", "))?;
            }
        }
        Ok(())
    }
}
