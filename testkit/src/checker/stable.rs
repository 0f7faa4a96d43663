//! What one reader saw, every reader sees: nothing disappears, nothing appears behind a reader (I-2).

use std::collections::BTreeSet;

use super::index::{Index, Partition, Poll};
use super::{AnomalyKind, Report};
use crate::history::{Call, Value};

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    let crashes: Vec<u64> = index.history.ops.iter().filter(|op| op.call == Call::Crash).map(|op| op.end).collect();
    let mut told = BTreeSet::new();
    for partition in index.partitions.values() {
        for poll in &partition.polls {
            within(partition, poll, |kind, value, first| {
                if told.insert((kind, value)) {
                    report.add(kind, Some(value), || story(kind, value, first, poll, &crashes));
                }
            });
        }
        behind_the_end(partition, |value, first, poll| {
            if told.insert((AnomalyKind::Phantom, value)) {
                report.add(AnomalyKind::Phantom, Some(value), || {
                    story(AnomalyKind::Phantom, value, first, poll, &crashes)
                });
            }
        });
    }
}

fn story(kind: AnomalyKind, value: Value, first: u64, poll: &Poll<'_>, crashes: &[u64]) -> String {
    let (process, start, p) = (poll.op.process, poll.op.start, poll.partition);
    let crash = match crashes.iter().find(|c| (first..start).contains(c)) {
        Some(crash) => format!(", after the crash at {crash}"),
        None => String::new(),
    };
    let range = format!("{}..{} of partition {p}", poll.from, poll.next);
    match kind {
        AnomalyKind::Skipped => {
            format!("process {process} passed {range} at {start} without {value:?}, read there by {first}")
        }
        _ => format!(
            "{value:?} was read by {first}, but process {process} no longer found it in {range} at {start}{crash}"
        ),
    }
}

/// Everything known in a poll's range is among its records.
fn within(partition: &Partition<'_>, poll: &Poll<'_>, mut tell: impl FnMut(AnomalyKind, Value, u64)) {
    let mut records: Vec<(u64, Value)> = poll.records.to_vec();
    records.sort_unstable();
    let from = partition.seen.partition_point(|(offset, ..)| *offset < poll.from);
    for &(offset, value, first) in partition.seen[from..].iter().take_while(|(offset, ..)| *offset < poll.next) {
        // Another value at that offset is a conflict, not an absence.
        let at = records.partition_point(|(o, _)| *o < offset);
        if records.get(at).is_none_or(|(o, _)| *o != offset) {
            let gone = first < poll.op.start;
            tell(if gone { AnomalyKind::Phantom } else { AnomalyKind::Skipped }, value, first);
        }
    }
}

/// No poll to the end ends before what had been read by then.
fn behind_the_end<'p>(partition: &'p Partition<'_>, mut tell: impl FnMut(Value, u64, &'p Poll<'p>)) {
    let mut by_time: Vec<&(u64, Value, u64)> = partition.seen.iter().collect();
    by_time.sort_by_key(|(_, _, first)| *first);
    let mut farthest: Option<&(u64, Value, u64)> = None;
    let mut next = by_time.into_iter().peekable();
    for poll in &partition.end_polls {
        while let Some(seen) = next.next_if(|(_, _, first)| *first < poll.op.start) {
            if farthest.is_none_or(|f| seen.0 > f.0) {
                farthest = Some(seen);
            }
        }
        if let Some((_, value, first)) = farthest.filter(|f| f.0 >= poll.next) {
            tell(*value, *first, poll);
        }
    }
}
