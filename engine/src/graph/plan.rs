//! The plan of a job: what will run, without how. Compared between workers, stored with each checkpoint, printed by
//! `--explain`.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::graph::job::Building;
use crate::graph::node::{Make, Route};
use crate::id::OperatorId;

/// What a job consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The operators, in the order in which they were made; an operator comes after those it reads from.
    pub nodes: Vec<PlanNode>,
}

/// One operator of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNode {
    /// Its number in this plan.
    pub id: OperatorId,
    /// Its name: the user's, or one made up for stateless operators.
    pub name: String,
    /// What it is, for people.
    pub kind: String,
    /// Its inputs: the operator and output port it reads, and how records find their worker.
    pub inputs: Vec<PlanEdge>,
    /// Number of output ports.
    pub outputs: usize,
    /// What role it plays in a checkpoint.
    pub role: Role,
}

/// An edge of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEdge {
    /// The operator that writes it.
    pub from: OperatorId,
    /// Its output port.
    pub port: usize,
    /// True if records are divided by key group among the workers.
    pub by_key: bool,
}

/// What role an operator plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads splits.
    Source,
    /// Transforms.
    Operator,
    /// Writes.
    Sink,
}

impl Plan {
    pub(crate) fn of(building: &Building) -> Plan {
        let node = |n: &crate::graph::node::Node| PlanNode {
            id: n.id,
            name: n.name.clone(),
            kind: n.kind.clone(),
            inputs: n
                .inputs
                .iter()
                .map(|e| PlanEdge { from: e.from, port: e.port, by_key: matches!(e.route, Route::ByKey(_)) })
                .collect(),
            outputs: n.outputs,
            role: match n.make {
                Make::Source { .. } => Role::Source,
                Make::Operator(_) => Role::Operator,
                Make::Sink { .. } => Role::Sink,
            },
        };
        Plan { nodes: building.nodes.iter().map(node).collect() }
    }

    /// A number that two plans share only if they describe the same graph.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(format!("{:?}", self.nodes).as_bytes())
    }

    /// The first difference to `other` in words; `None` if they are equal.
    pub fn difference(&self, other: &Plan) -> Option<String> {
        for (mine, theirs) in self.nodes.iter().zip(&other.nodes) {
            if mine != theirs {
                return Some(format!(
                    "operator {} is {:?} ({}) here and {:?} ({}) there",
                    mine.id, mine.name, mine.kind, theirs.name, theirs.kind
                ));
            }
        }
        (self.nodes.len() != other.nodes.len())
            .then(|| format!("{} operators here and {} there", self.nodes.len(), other.nodes.len()))
    }

    /// The node of this id.
    pub fn node(&self, id: OperatorId) -> Option<&PlanNode> {
        self.nodes.get(id.0 as usize)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.nodes.iter().map(|n| n.name.chars().count()).max().unwrap_or(0);
        for node in &self.nodes {
            write!(f, "{:>3}  {:width$}  {}", node.id, node.name, node.kind)?;
            for (i, edge) in node.inputs.iter().enumerate() {
                let from = self.node(edge.from).map_or("?", |n| n.name.as_str());
                write!(f, "{} {from}", if i == 0 { "  <-" } else { "," })?;
                if self.node(edge.from).is_some_and(|n| n.outputs > 1) {
                    write!(f, "[{}]", edge.port)?;
                }
                if edge.by_key {
                    f.write_str(" by key")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
