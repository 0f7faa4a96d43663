//! After a fence, nothing of an older attempt is done (I-7): it is refused, not ignored.

use std::collections::BTreeMap;

use super::index::Index;
use super::{AnomalyKind, Report};
use crate::history::{Call, Op, Outcome, TxnId};

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    let mut commits: BTreeMap<TxnId, (bool, Option<&Op>)> = BTreeMap::new();
    for op in &index.history.ops {
        let fence = op.by.and_then(|by| index.fenced(by, op.start));
        if let (Call::Commit { txns, .. }, Outcome::Ok | Outcome::Unknown) = (&op.call, op.outcome) {
            for txn in txns {
                let (rightful, zombie) = commits.entry(*txn).or_default();
                *rightful |= fence.is_none();
                *zombie = zombie.or(fence.map(|_| op));
            }
        }
        let Some(fence) = fence else { continue };
        let (value, done) = match &op.call {
            Call::Send { value, .. } => {
                let read = index.seen.contains_key(value) && op.outcome == Outcome::Unknown;
                (Some(*value), op.outcome == Outcome::Ok || read)
            }
            Call::Begin { .. } | Call::Prepare { .. } | Call::Commit { .. } | Call::Abort { .. } => {
                (None, op.outcome == Outcome::Ok)
            }
            _ => (None, false),
        };
        if done {
            report.add(AnomalyKind::ZombieWrite, value, || format!("done after the fence at {}: {op}", fence.end));
        }
    }
    for (id, (rightful, zombie)) in commits {
        if let Some(op) = zombie.filter(|op| op.outcome == Outcome::Unknown && !rightful)
            && index.txns.get(&id).is_some_and(|t| t.seen != super::index::NEVER)
        {
            report.add(AnomalyKind::ZombieWrite, None, || {
                format!("transaction {id} was visible, and only a fenced attempt asked to commit it: {op}")
            });
        }
    }
}
