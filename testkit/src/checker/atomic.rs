//! A transaction appears whole, a checkpoint appears whole, and checkpoints appear in order (I-1, I-6).
//!
//! What was seen first sets the time from which on the rest must be visible. A missing part is torn from its
//! transaction if another part was visible by then, else from its checkpoint, else its checkpoint came out of order.

use super::index::{Index, NEVER, Txn};
use super::{AnomalyKind, Report};
use crate::history::{Checkpoint, Outcome, TxnId, Value};

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    for (id, txn) in &index.txns {
        let evidence = Evidence::of(index, txn);
        if txn.aborted() {
            aborted_part_of_a_visible_checkpoint(index, *id, txn, &evidence, report);
            continue;
        }
        for value in &txn.parts_that_count(index) {
            if let Some((kind, story)) = evidence.against(index, *id, *value) {
                report.add(kind, Some(*value), || story);
            }
        }
    }
}

/// Whether a value that is missing counts as torn or out of order (and so not as lost).
pub(crate) fn explains(index: &Index<'_>, value: Value) -> bool {
    let Some(txn) = index.txns.get(&value.txn()) else { return false };
    Evidence::of(index, txn).against(index, value.txn(), value).is_some()
}

impl Txn {
    fn parts_that_count(&self, index: &Index<'_>) -> Vec<Value> {
        self.parts.iter().copied().filter(|v| !index.explained.contains(v)).collect()
    }
}

/// From when on a transaction's parts must be visible, and for what reason.
struct Evidence {
    own: u64,
    checkpoint: Option<Checkpoint>,
    checkpoint_seen: u64,
    later: Option<Checkpoint>,
    later_seen: u64,
}

impl Evidence {
    fn of(index: &Index<'_>, txn: &Txn) -> Evidence {
        let checkpoint = txn.checkpoint;
        let checkpoint_seen = checkpoint.map_or(NEVER, |c| index.checkpoint_seen[&c]);
        // Out of order is only what somebody meant to commit: numbers that nobody committed may be passed over.
        let later = checkpoint.filter(|_| txn.commit_start != NEVER).and_then(|c| index.first_seen_behind(c));
        Evidence {
            own: txn.seen,
            checkpoint,
            checkpoint_seen,
            later: later.map(|(c, _)| c),
            later_seen: later.map_or(NEVER, |(_, seen)| seen),
        }
    }

    fn against(&self, index: &Index<'_>, id: TxnId, value: Value) -> Option<(AnomalyKind, String)> {
        let visible_from = self.own.min(self.checkpoint_seen).min(self.later_seen);
        if visible_from == NEVER {
            return None;
        }
        let partition = index.sent[&value].partition;
        let passed = !index.seen.contains_key(&value)
            && index.place(value).is_some_and(|offset| index.partitions[&partition].covers(offset));
        let (by, how) = if passed {
            (NEVER, "readers passed it".to_string())
        } else {
            let poll = index.absent_after(value, visible_from)?;
            (poll.op.start, format!("process {} read to the end, {}, at {}", poll.op.process, poll.next, poll.op.start))
        };
        let missing = format!("{value:?} was missing in partition {partition} ({how})");
        Some(if self.own < by {
            (AnomalyKind::TornTransaction, format!("{missing}, but transaction {id} was visible by {}", self.own))
        } else if self.checkpoint_seen < by {
            let number = self.checkpoint.map_or(0, |c| c.number);
            let seen = self.checkpoint_seen;
            (AnomalyKind::TornCheckpoint, format!("{missing}, but its checkpoint {number} was visible by {seen}"))
        } else {
            let numbers = (self.checkpoint.map_or(0, |c| c.number), self.later.map_or(0, |c| c.number));
            let seen = self.later_seen;
            let story =
                format!("{missing}, of checkpoint {}, but checkpoint {} was visible by {seen}", numbers.0, numbers.1);
            (AnomalyKind::CheckpointOrder, story)
        })
    }
}

fn aborted_part_of_a_visible_checkpoint(
    index: &Index<'_>,
    id: TxnId,
    txn: &Txn,
    evidence: &Evidence,
    report: &mut Report,
) {
    let sent = txn.parts.iter().find(|v| index.sent[v].outcome == Outcome::Ok);
    if let Some(value) = sent.filter(|_| evidence.checkpoint_seen != NEVER) {
        report.add(AnomalyKind::TornCheckpoint, Some(*value), || {
            let number = evidence.checkpoint.map_or(0, |c| c.number);
            format!("transaction {id} of checkpoint {number} was aborted, but another one of it was visible")
        });
    }
}
