//! Tools of the planters: picking victims in a valid history, and damaging it.

use cutwater_platform::SplitMix;

use super::index::{Index, NEVER, Txn};
use super::{AnomalyKind, lost};
use crate::history::{Call, History, Op, Outcome, TxnId, Value};

pub(crate) fn pick<T: Clone>(random: &mut SplitMix, from: impl IntoIterator<Item = T>) -> Option<T> {
    let all: Vec<T> = from.into_iter().collect();
    if all.is_empty() { None } else { Some(all[random.below(all.len() as u64) as usize].clone()) }
}

pub(crate) fn edit(index: &Index<'_>, mut change: impl FnMut(&mut Op)) -> History {
    let mut ops = index.history.ops.clone();
    ops.iter_mut().for_each(&mut change);
    History::from_ops(ops)
}

pub(crate) fn with(index: &Index<'_>, more: impl IntoIterator<Item = Op>) -> History {
    let mut ops = index.history.ops.clone();
    ops.extend(more);
    History::from_ops(ops)
}

pub(crate) fn op(process: u16, call: Call, start: u64, end: u64) -> Op {
    Op { process, by: None, call, outcome: Outcome::Ok, start, end }
}

/// Nobody reads these values.
pub(crate) fn strip(index: &Index<'_>, gone: &[Value]) -> History {
    edit(index, |op| {
        if let Call::Poll { records, .. } = &mut op.call {
            records.retain(|(_, value)| !gone.contains(value));
        }
    })
}

/// All (or, with `one`, only one) of the polls that cover `offset` read `value` there.
pub(crate) fn insert(index: &Index<'_>, partition: u32, offset: u64, value: Value, one: bool) -> History {
    let mut done = false;
    edit(index, |op| {
        if let Call::Poll { partition: p, from, next, records, .. } = &mut op.call
            && *p == partition
            && (*from..*next).contains(&offset)
            && !(one && done)
        {
            records.push((offset, value));
            records.sort_unstable();
            done = true;
        }
    })
}

pub(crate) fn polls_over<'i>(index: &'i Index<'_>, partition: u32, offset: u64) -> impl Iterator<Item = &'i Op> {
    let polls = index.partitions.get(&partition).map(|p| p.polls.as_slice()).unwrap_or_default();
    polls.iter().filter(move |p| (p.from..p.next).contains(&offset)).map(|p| p.op)
}

pub(crate) fn plain(index: &Index<'_>, value: Value) -> bool {
    !index.txns.contains_key(&value.txn())
}

pub(crate) fn seen_values(index: &Index<'_>) -> Vec<Value> {
    index.values.iter().copied().filter(|v| index.seen.contains_key(v)).collect()
}

pub(crate) fn place(index: &Index<'_>, value: Value) -> (u32, u64) {
    (index.sent[&value].partition, index.place(value).expect("a value with a place"))
}

/// Offsets of markers that were passed by readers.
pub(crate) fn holes(index: &Index<'_>) -> Vec<(u32, u64)> {
    let mut holes = Vec::new();
    for (number, partition) in &index.partitions {
        for offset in (0..partition.covered_from_zero()).filter(|o| partition.covers(*o)) {
            let free = partition.known.binary_search_by_key(&offset, |(o, _)| *o).is_err();
            if free {
                holes.push((*number, offset));
            }
        }
    }
    holes
}

/// Everything that was acknowledged was read.
pub(crate) fn drained(index: &Index<'_>) -> bool {
    let (acknowledged, _, unjudged) = lost::count(index);
    acknowledged > 0 && unjudged == 0
}

pub(crate) fn checkpoint_txns(index: &Index<'_>) -> Vec<(TxnId, Txn)> {
    let of_job = index.txns.iter().filter(|(_, t)| t.checkpoint.is_some() && t.seen != NEVER);
    of_job.map(|(id, txn)| (*id, txn.clone())).collect()
}

pub(crate) fn all_seen(index: &Index<'_>, values: &[Value]) -> bool {
    !values.is_empty() && values.iter().all(|v| index.seen.contains_key(v))
}

/// A reader that comes to the end right before `value` at `time`, if all below was committed and nothing undecided.
///
/// Whatever else would be missing there must be missing in the same way.
pub(crate) fn end_poll_before(index: &Index<'_>, kind: AnomalyKind, value: Value, time: u64) -> Option<Op> {
    let (partition, offset) = place(index, value);
    let whole = &index.partitions[&partition];
    let settled = |v: &Value| match index.txns.get(&v.txn()) {
        Some(txn) => txn.commit_end.min(txn.abort_end) < time || txn.begun > time + 1,
        None => index.sent[v].outcome != Outcome::Ok || index.sent[v].end < time || index.sent[v].start > time + 1,
    };
    let below: Vec<(u64, Value)> = whole.seen.iter().filter(|(o, ..)| *o < offset).map(|(o, v, _)| (*o, *v)).collect();
    let others = index.values.iter().filter(|v| index.sent[*v].partition == partition && v.txn() != value.txn());
    let own = index.txns.get(&value.txn()).and_then(|t| t.checkpoint);
    let foreign = |v: &&Value| index.txns.get(&v.txn()).is_none_or(|t| t.checkpoint.is_none() || t.checkpoint != own);
    let nobody_behind = whole.seen.iter().all(|(o, _, first)| *o < offset || *first >= time);
    let below_is_committed = below.iter().all(|(_, v)| index.by_rights(*v, time + 1));
    let missing_likewise = whole.known.iter().filter(|(o, _)| *o >= offset).all(|(_, v)| {
        let Some(txn) = index.txns.get(&v.txn()).filter(|t| !t.aborted()) else { return true };
        let checkpoint_seen = txn.checkpoint.map_or(NEVER, |c| index.checkpoint_seen[&c]);
        let later_seen = txn.checkpoint.and_then(|c| index.first_seen_behind(c)).map_or(NEVER, |(_, seen)| seen);
        let seen = |stamp: u64| stamp < time;
        match () {
            () if seen(txn.seen) => kind == AnomalyKind::TornTransaction,
            () if seen(checkpoint_seen) => kind == AnomalyKind::TornCheckpoint,
            () if seen(later_seen) => kind == AnomalyKind::CheckpointOrder,
            () => true,
        }
    });
    let judged_later = whole.end_polls.last().is_some_and(|p| p.op.start > time + 1);
    if !judged_later
        || !missing_likewise
        || !nobody_behind
        || !below_is_committed
        || !others.filter(foreign).all(settled)
    {
        return None;
    }
    let call = Call::Poll { partition, from: 0, next: offset, at_end: true, records: below };
    Some(op(61, call, time, time + 1))
}
