//! Everything acknowledged is read in the end.

use super::index::{Index, NEVER};
use super::{AnomalyKind, Report, atomic};
use crate::history::{Outcome, Value};

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    for value in &index.values {
        if let Verdict::Missing(kind, story) = verdict(index, *value)
            && !atomic::explains(index, *value)
        {
            report.add(kind, Some(*value), || story);
        }
    }
}

enum Verdict {
    NotAcknowledged,
    Read,
    Missing(AnomalyKind, String),
    Unjudged,
}

/// Acknowledged, read, and unjudged values.
pub(crate) fn count(index: &Index<'_>) -> (usize, usize, usize) {
    let (mut acknowledged, mut unjudged) = (0, 0);
    for value in &index.values {
        match verdict(index, *value) {
            Verdict::NotAcknowledged => {}
            Verdict::Read | Verdict::Missing(..) => acknowledged += 1,
            Verdict::Unjudged => (acknowledged, unjudged) = (acknowledged + 1, unjudged + 1),
        }
    }
    (acknowledged, index.seen.len(), unjudged)
}

fn verdict(index: &Index<'_>, value: Value) -> Verdict {
    let sent = &index.sent[&value];
    let acknowledged = match index.txns.get(&value.txn()) {
        Some(txn) if txn.commit_end != NEVER => txn.commit_end.max(sent.end),
        Some(_) => NEVER,
        None => sent.end,
    };
    if acknowledged == NEVER || sent.outcome != Outcome::Ok {
        return Verdict::NotAcknowledged;
    }
    if index.seen.contains_key(&value) {
        return Verdict::Read;
    }
    let Some(partition) = index.partitions.get(&sent.partition).filter(|p| !p.polls.is_empty()) else {
        return Verdict::Unjudged;
    };
    if index.explained.contains(&value) {
        return Verdict::Unjudged;
    }
    let at = format!("{value:?} was acknowledged in partition {} by {acknowledged}", sent.partition);
    if let Some(offset) = sent.offset.filter(|o| partition.covers(*o)) {
        return Verdict::Missing(
            AnomalyKind::Lost,
            format!("{at}, readers passed its offset {offset}, nobody read it"),
        );
    }
    // The last reading to the end decides: before that, a reader may have been slow.
    let last = partition.end_polls.last().filter(|p| p.op.start > acknowledged);
    match last.and_then(|last| index.absent_after(value, acknowledged.max(last.op.start - 1))) {
        Some(poll) => {
            let story = format!("{at}, and wasn't there when the partition was last read to its end, {}", poll.next);
            Verdict::Missing(AnomalyKind::Unseen, story)
        }
        None => Verdict::Unjudged,
    }
}
