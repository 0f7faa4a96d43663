//! The next life of a disk: carries out the fates of pending operations.

use std::collections::HashMap;
use std::sync::Arc;

use cutwater_platform::SplitMix;

use super::LossPolicy;
use super::content::Content;
use super::names::set;
use super::policy::{Fate, Pending, SECTOR, Tear, fates};
use super::state::{Change, DataOp, Node, State};

/// The state of a machine that comes up after a power cut of `old`.
pub(crate) fn after_power_cut(old: &State, policy: LossPolicy, seed: u64) -> State {
    let mut random = SplitMix::new(seed);
    let mut pending: Vec<(u64, Pending)> = Vec::new();
    for inode in old.files.values() {
        pending.extend(inode.pending.iter().map(|op| (op.seq, summary(op))));
    }
    pending.extend(old.pending_names.iter().map(|op| (op.seq, Pending::Name)));
    pending.sort_unstable_by_key(|(seq, _)| *seq);
    let (seqs, ops): (Vec<u64>, Vec<Pending>) = pending.into_iter().unzip();
    let ordered = old.names == super::NamePolicy::Journaled;
    let fates: HashMap<u64, Fate> = seqs.into_iter().zip(fates(policy, &ops, ordered, &mut random)).collect();

    let mut new = old.copy();
    for dir in new.dirs.values_mut() {
        dir.cache = dir.durable.clone();
    }
    for op in old.pending_names.iter().filter(|op| fates[&op.seq] == Fate::Whole) {
        for edit in &op.edits {
            if let Some(dir) = new.dirs.get_mut(&edit.dir) {
                set(&mut dir.cache, edit);
            }
        }
    }
    for inode in new.files.values_mut() {
        let chosen: Vec<Fate> = inode.pending.iter().map(|op| fates[&op.seq]).collect();
        let garbage = random.next();
        if !inode.pending.is_empty() {
            inode.durable = Arc::new(settle(&inode.durable, &inode.pending, &chosen, garbage));
        }
        inode.cache = inode.durable.clone();
        inode.pending.clear();
        inode.unreached.clear();
    }
    for dir in new.dirs.values_mut() {
        dir.durable = dir.cache.clone();
    }
    new.pending_names.clear();
    forget_unreachable_dirs(&mut new);
    new_life(new)
}

/// The same bytes and names in a new process's eyes: nothing pending became durable, all handles and locks are gone.
pub(crate) fn new_life(mut state: State) -> State {
    state.off = false;
    state.steps = 0;
    state.crash_at = None;
    state.sync_fault = None;
    state.failing = Default::default();
    state.locks.clear();
    state.recount();
    state
}

fn forget_unreachable_dirs(state: &mut State) {
    let mut found = std::collections::BTreeSet::from([super::state::ROOT]);
    let mut next = vec![super::state::ROOT];
    while let Some(dir) = next.pop() {
        for node in state.dirs[&dir].cache.values() {
            if let Node::Dir(id) = node
                && found.insert(*id)
            {
                next.push(*id);
            }
        }
    }
    state.dirs.retain(|id, _| found.contains(id));
}

fn summary(op: &DataOp) -> Pending {
    match &op.what {
        _ if op.durable => Pending::Durable,
        Change::Write { offset, bytes } => Pending::Write { offset: *offset, len: bytes.len() as u64 },
        Change::Grow(_) | Change::Cut(_) => Pending::Size,
    }
}

/// The fate of an operation whose sync failed.
pub(crate) fn only_durable(op: &DataOp) -> Fate {
    if op.durable { Fate::Whole } else { Fate::Lost }
}

/// The bytes of a file after its pending changes met their fates.
///
/// A sector that survives with a later change holds what earlier changes wrote there too: the page was written as it
/// stood. So each sector gets every change up to the last one that survives in it.
pub(crate) fn settle(durable: &Content, pending: &[DataOp], fates: &[Fate], garbage: u64) -> Content {
    let mut content = durable.clone();
    let plain = fates.iter().all(|f| *f == Fate::Whole);
    let last = if plain { HashMap::new() } else { last_survivors(pending, fates) };
    for (index, (op, fate)) in pending.iter().zip(fates).enumerate() {
        let (offset, bytes) = match (&op.what, fate) {
            (Change::Grow(len), Fate::Whole) => {
                content.set_len(content.len().max(*len));
                continue;
            }
            (Change::Cut(len), Fate::Whole) => {
                content.set_len(content.len().min(*len));
                continue;
            }
            (Change::Grow(_) | Change::Cut(_), _) => continue,
            (Change::Write { offset, bytes }, _) => (*offset, bytes),
        };
        if plain || *fate == Fate::Whole {
            content.write(bytes, offset);
            continue;
        }
        let end = offset + bytes.len() as u64;
        match fate {
            Fate::SizeOnly { garbage: filled } if content.len() < end => {
                let from = content.len();
                content.set_len(end);
                if *filled {
                    content.write(&noise(garbage ^ op.seq, (end - from) as usize), from);
                }
            }
            Fate::Torn(Tear::Subset { size_kept: true, .. }) => content.set_len(content.len().max(end)),
            _ => {}
        }
        for sector in sectors(offset, end) {
            if last.get(&sector).is_some_and(|&survivor| survivor >= index) {
                let (from, to) = ((sector * SECTOR).max(offset), ((sector + 1) * SECTOR).min(end));
                content.write(&bytes[(from - offset) as usize..(to - offset) as usize], from);
            }
        }
    }
    content
}

fn last_survivors(pending: &[DataOp], fates: &[Fate]) -> HashMap<u64, usize> {
    let mut last = HashMap::new();
    for (index, (op, fate)) in pending.iter().zip(fates).enumerate() {
        let (from, to) = op.what.range();
        let survives = |sector: &u64| match fate {
            Fate::Whole => true,
            Fate::Torn(tear) => tear.keeps(from, *sector),
            Fate::Lost | Fate::SizeOnly { .. } => false,
        };
        last.extend(sectors(from, to).filter(survives).map(|sector| (sector, index)));
    }
    last
}

fn sectors(from: u64, to: u64) -> std::ops::Range<u64> {
    if from == to { 0..0 } else { from / SECTOR..to.div_ceil(SECTOR) }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
