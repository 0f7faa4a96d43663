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
use std::fmt;

use crate::checkpoint::Counters;
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

/// What an at-most-once run had read and not delivered when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Records that sources had read.
    pub read: u64,
    /// Records that sinks had written, confirmed if the sink hears of that at all.
    pub delivered: u64,
    /// Records that were between two operators or in the hand of one: lost.
    pub under_way: u64,
    /// Records that sinks were writing or had written without an answer: lost or not.
    pub unconfirmed: u64,
    /// Records that operators had taken into their state: lost as far as their results hadn't been emitted.
    pub absorbed: u64,
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

    /// Records that certainly had no effect on the output.
    pub fn at_least(&self) -> u64 {
        self.under_way
    }

    /// Records that had none, or not all of it, at most.
    pub fn at_most(&self) -> u64 {
        self.under_way + self.unconfirmed + self.absorbed
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { read, delivered, under_way, unconfirmed, absorbed } = self;
        write!(f, "{read} records were read and {delivered} delivered; lost are {under_way} that were under way")?;
        if *unconfirmed > 0 {
            write!(f, ", of {unconfirmed} that were written no answer came")?;
        }
        if *absorbed > 0 {
            write!(f, ", and what {absorbed} records in states hadn't led to yet")?;
        }
        Ok(())
    }
}
