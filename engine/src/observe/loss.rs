//! What an at-most-once job lost when it failed: a balance of the counters that its instances had when they were taken down.
//!
//! It isn't restarted, so what it had read and not delivered is gone, and this says how much that is, as far as a count can:
//!
//! * *Under way* is what an operator had sent and the next one hadn't taken, and what an operator had in its hand. None of that
//!   reached a sink. A record is counted on each edge on which it was.
//! * *Unconfirmed* is what a sink was writing, or had written without an answer. It may be there.
//! * *Absorbed* is what states had taken in. What they would have said about it is lost; what they had said is not, and nobody counts
//!   which record is in which result. So it is an upper bound.
//!
//! It is known only to the process that saw the failure: nothing is written down (that is what at-most-once saves), so of a process
//! that was killed nobody knows. What wasn't read yet isn't lost.

use std::collections::HashSet;

use crate::checkpoint::Counters;
use crate::error::Loss;
use crate::graph::Plan;
use crate::id::{InstanceId, OperatorId};
use crate::observe::books;

/// What one instance had counted when it was taken down.
#[derive(Clone, Debug)]
pub(crate) struct LastCount {
    pub(crate) instance: InstanceId,
    pub(crate) counters: Counters,
    /// Records that a sink had written without an answer.
    pub(crate) unconfirmed: u64,
}

impl Loss {
    /// The balance of an attempt.
    pub(crate) fn of(plan: &Plan, sinks: &HashSet<OperatorId>, last: &[LastCount]) -> Loss {
        let counters: Vec<(InstanceId, Counters)> = last.iter().map(|l| (l.instance, l.counters.clone())).collect();
        let (operators, edges) = books(plan, &counters);
        let mut loss = Loss { unconfirmed: last.iter().map(|l| l.unconfirmed).sum(), ..Loss::default() };
        loss.under_way = edges.iter().map(|edge| edge.sent.saturating_sub(edge.received)).sum();
        for (node, operator) in plan.nodes.iter().zip(&operators) {
            let c = &operator.counters;
            let in_hand = c.consumed.iter().sum::<u64>().saturating_sub(c.accounted());
            if node.inputs.is_empty() {
                loss.read += c.emitted.iter().sum::<u64>();
            } else if sinks.contains(&node.id) {
                loss.unconfirmed += in_hand;
                loss.delivered += c.passed;
            } else {
                loss.under_way += in_hand;
                // What leads nowhere absorbs too.
                loss.absorbed += if node.outputs > 0 { c.absorbed } else { 0 };
            }
        }
        let waiting: u64 = last.iter().map(|l| l.unconfirmed).sum();
        loss.delivered = loss.delivered.saturating_sub(waiting);
        loss
    }
}
