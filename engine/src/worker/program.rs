//! What a built job keeps, for the upgrade check: its operators are made once, asked for their states, and thrown away.
//!
//! Nothing is restored into them, nothing is written, no record reaches them; sinks aren't made at all.

use crate::error::BuildError;
use crate::exchange::{GroupAssignment, KeyGroups};
use crate::graph::node::{Make, Node};
use crate::graph::{Environment, Job, OperatorSetup, Plan};
use crate::id::{Attempt, JobId, OperatorId, WorkerIndex};
use crate::operator::Operator;
use crate::recovery::{Program, ProgramOperator, ProgramState};
use crate::sink::Visibility;
use crate::snapshot::StateReaders;
use crate::state::{AnyMigrations, SchemaVersion};

/// Looks at the operators of a job whose graph is never run. Can be done once: an operator's factory makes one instance.
pub(crate) fn program_of(
    job: &Job,
    plan: &Plan,
    environment: &Environment,
) -> Result<(Program, StateReaders), BuildError> {
    let setup = OperatorSetup {
        job: JobId(0),
        attempt: Attempt(0),
        name: String::new(),
        worker: WorkerIndex(0),
        assignment: GroupAssignment::new(KeyGroups::default(), std::num::NonZeroU32::MIN),
        visibility: Visibility::AtOnce,
        environment: environment.clone(),
    };
    let (mut operators, mut readers) = (vec![], StateReaders::default());
    for node in &mut job.inner.borrow_mut().nodes {
        let states = states_of(node, &setup, &mut readers)?;
        let role = plan.nodes[node.id.0 as usize].role;
        operators.push(ProgramOperator {
            id: node.id,
            name: node.name.clone(),
            role,
            was: node.was.clone(),
            states,
            splits: None,
        });
    }
    Ok((Program { fingerprint: plan.fingerprint(), operators }, readers))
}

fn states_of(
    node: &mut Node,
    setup: &OperatorSetup,
    readers: &mut StateReaders,
) -> Result<Vec<ProgramState>, BuildError> {
    let Make::Operator(make) = &mut node.make else {
        return match node.migrations.first() {
            None => Ok(vec![]),
            Some((state, _)) => Err(no_such_state(&node.name, state)),
        };
    };
    let used = |_: &OperatorSetup| Err(BuildError::refused("an operator", "it was made for the upgrade check already"));
    let make = std::mem::replace(make, Box::new(used));
    let mut operator = make(&OperatorSetup { name: node.name.clone(), ..setup.clone() })?;
    adopt(operator.as_mut(), &node.name, &node.migrations)?;
    let states = operator.states();
    let names: Vec<&String> = std::iter::once(&node.name).chain(&node.was).collect();
    for state in &states {
        let state = state.borrow();
        for name in &names {
            readers.insert(name, state.name().as_str(), state.entries());
        }
    }
    let state = |state: &std::rc::Rc<std::cell::RefCell<dyn crate::state::KeyedState>>| {
        let state = state.borrow();
        ProgramState {
            name: state.name().as_str().to_owned(),
            schema: SchemaVersion { version: state.version(), fingerprint: state.schema() },
            older: state.older(),
        }
    };
    Ok(states.iter().map(state).collect())
}

/// Gives an operator's states the migrations that were registered for them.
pub(crate) fn adopt(
    operator: &mut dyn Operator,
    name: &str,
    migrations: &[(String, std::sync::Arc<dyn AnyMigrations>)],
) -> Result<(), BuildError> {
    if migrations.is_empty() {
        return Ok(());
    }
    let states = operator.states();
    for (state, migrations) in migrations {
        let found = states.iter().find(|other| other.borrow().name().as_str() == state);
        let found = found.ok_or_else(|| no_such_state(name, state))?;
        found
            .borrow_mut()
            .adopt(migrations.as_ref())
            .map_err(|e| BuildError::refused(format!(".migrate({state:?}, ..) of {name:?}"), e))?;
    }
    Ok(())
}

fn no_such_state(operator: &str, state: &str) -> BuildError {
    let reason = "the operator has no state of this name; see its documentation for the names of its states";
    BuildError::refused(format!(".migrate({state:?}, ..) of {operator:?}"), reason)
}

impl Program {
    /// Says which splits its sources have.
    pub(crate) fn with_splits(mut self, splits: &std::collections::HashMap<OperatorId, Vec<String>>) -> Program {
        for operator in &mut self.operators {
            operator.splits = splits.get(&operator.id).cloned();
        }
        self
    }
}
