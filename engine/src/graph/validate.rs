//! Refuses graphs that could not be checkpointed or whose guarantee would be a lie, with the reason.

use std::collections::HashSet;

use crate::config::GuaranteeKind;
use crate::error::BuildError;
use crate::graph::job::Building;
use crate::graph::node::Make;

/// The longest name an operator may have, so that file names and transaction names made from it stay valid.
const NAME_MAX: usize = 200;

pub(crate) fn validate(building: &mut Building, wanted: GuaranteeKind) -> Result<(), BuildError> {
    if let Some(trouble) = building.trouble.take() {
        return Err(trouble);
    }
    let mut names = HashSet::new();
    for node in &building.nodes {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if node.name.is_empty() || node.name.len() > NAME_MAX || !node.name.chars().all(fits) {
            return Err(BuildError::BadName { name: node.name.clone() });
        }
        if !names.insert(&node.name) {
            return Err(BuildError::DuplicateName { name: node.name.clone() });
        }
        if let Some((honoured, reason)) = node.make.objection(wanted) {
            return Err(BuildError::Guarantee { operator: node.name.clone(), wanted, honoured, reason });
        }
    }
    if !building.nodes.iter().any(|n| matches!(n.make, Make::Source { .. })) {
        return Err(BuildError::NoSource);
    }
    let consumed: HashSet<_> = building.nodes.iter().flat_map(|n| n.inputs.iter().map(|e| (e.from, e.port))).collect();
    for node in &building.nodes {
        for port in 0..node.outputs {
            if !consumed.contains(&(node.id, port)) && !building.discarded.contains(&(node.id, port)) {
                return Err(BuildError::Unconsumed { operator: node.name.clone(), port });
            }
        }
    }
    Ok(())
}
