//! Everything read was sent, wasn't refused or aborted, and somebody had asked to commit it.

use std::collections::BTreeSet;

use super::index::{Index, NEVER};
use super::{AnomalyKind, Report};
use crate::history::Outcome;

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    let mut told = BTreeSet::new();
    for poll in index.partitions.values().flat_map(|p| &p.polls) {
        for &(offset, value) in poll.records {
            if index.by_rights(value, poll.op.end) {
                continue;
            }
            let txn = index.txns.get(&value.txn());
            let (kind, why) = match index.sent.get(&value) {
                None => (AnomalyKind::Invented, "nobody ever sent it".to_string()),
                Some(sent) if sent.start > poll.op.end => {
                    (AnomalyKind::Invented, format!("it was sent only from {} on", sent.start))
                }
                Some(sent) if sent.outcome == Outcome::Fail => {
                    (AnomalyKind::AbortedRead, "sending it had failed".to_string())
                }
                Some(_) => match txn {
                    Some(txn) if txn.aborted() => {
                        (AnomalyKind::AbortedRead, format!("its transaction was aborted by {}", txn.abort_end))
                    }
                    Some(txn) if txn.commit_start == NEVER => {
                        (AnomalyKind::UncommittedRead, "its transaction was never to be committed".to_string())
                    }
                    Some(txn) => (
                        AnomalyKind::UncommittedRead,
                        format!("its first commit was asked for at {}", txn.commit_start),
                    ),
                    None => continue,
                },
            };
            if told.insert((kind, value)) {
                report.add(kind, Some(value), || {
                    let (process, end, partition) = (poll.op.process, poll.op.end, poll.partition);
                    format!("process {process} read {value:?} at offset {offset} of partition {partition} by {end}, but {why}")
                });
            }
        }
    }
}
