//! The simulated machine's disk behind its lock: what is cached, what is durable, what is pending between the two.
//!
//! Invariants: the durable side of a file changes only by a sync, a synced write, or a restart; every cached change is
//! either durable, or in exactly one pending list, or lost by a failed sync (then its page is in `unreached`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cutwater_platform::BLOCK_BYTES;
use cutwater_platform::room::sync_failed;

use super::content::Content;
use super::failing::Failing;
use super::restart;
use super::trace::{DiskOp, Trace, TraceEntry};
use super::{NamePolicy, SyncFault};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a name stands for. Both kinds draw from one sequence of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Dir(u64),
    File(u64),
}

pub(crate) type Names = BTreeMap<OsString, Node>;

/// A directory: its names as processes see them, and as the disk has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dir {
    pub(crate) cache: Arc<Names>,
    pub(crate) durable: Arc<Names>,
}

/// A change of one name.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) dir: u64,
    pub(crate) name: OsString,
    pub(crate) node: Option<Node>,
}

/// Changes of names that a crash keeps or loses together (a rename is two).
#[derive(Clone, Debug)]
pub(crate) struct NameOp {
    pub(crate) seq: u64,
    pub(crate) edits: Vec<Edit>,
}

/// A change of a file that isn't durable.
#[derive(Clone, Debug)]
pub(crate) struct DataOp {
    pub(crate) seq: u64,
    pub(crate) what: Change,
    /// Durable already; it waits here only behind pending changes that it overlaps.
    pub(crate) durable: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Grow(u64),
    Cut(u64),
}

impl Change {
    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            Change::Write { offset, bytes } => (*offset, *offset + bytes.len() as u64),
            Change::Grow(_) | Change::Cut(_) => (0, 0),
        }
    }
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    pub(crate) cache: Arc<Content>,
    pub(crate) durable: Arc<Content>,
    pub(crate) pending: Vec<DataOp>,
    /// Pages that a failed sync marked clean although the disk doesn't have them.
    pub(crate) unreached: BTreeSet<u64>,
    pub(crate) links_cached: u32,
    pub(crate) links_durable: u32,
    pub(crate) handles: u32,
    /// Blocks taken for nothing.
    pub(crate) taken_blocks: u64,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) off: bool,
    pub(crate) files: BTreeMap<u64, Inode>,
    pub(crate) dirs: BTreeMap<u64, Dir>,
    pub(crate) pending_names: Vec<NameOp>,
    pub(crate) next_id: u64,
    next_seq: u64,
    pub(crate) steps: u64,
    /// Reads of files in this life.
    pub(crate) reads: u64,
    pub(crate) crash_at: Option<u64>,
    pub(crate) trace: Trace,
    pub(crate) names: NamePolicy,
    pub(crate) sync_fault: Option<(u64, SyncFault)>,
    pub(crate) failing: Failing,
    /// A plain write gets half its way.
    pub(crate) halve_write: bool,
    pub(crate) capacity_blocks: Option<u64>,
    pub(crate) full_at_sync: bool,
    pub(crate) overwrites_need_room: bool,
    pub(crate) bad_bytes: BTreeMap<u64, BTreeSet<u64>>,
    pub(crate) read_limit: Option<usize>,
    pub(crate) locks: BTreeSet<u64>,
}

/// The id of the root directory.
pub(crate) const ROOT: u64 = 0;

pub(crate) fn off() -> io::Error {
    io::Error::other("the simulated machine is off")
}

pub(crate) fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(28)
}

impl State {
    pub(crate) fn new() -> State {
        State {
            off: false,
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, Dir::default())]),
            pending_names: Vec::new(),
            next_id: ROOT + 1,
            next_seq: 0,
            steps: 0,
            reads: 0,
            crash_at: None,
            trace: Trace::default(),
            names: NamePolicy::SyncDir,
            sync_fault: None,
            failing: Failing::default(),
            halve_write: false,
            capacity_blocks: None,
            full_at_sync: false,
            overwrites_need_room: false,
            bad_bytes: BTreeMap::new(),
            read_limit: None,
            locks: BTreeSet::new(),
        }
    }

    /// The same disk again, without the trace of its steps.
    pub(crate) fn copy(&self) -> State {
        State {
            off: self.off,
            files: self.files.clone(),
            dirs: self.dirs.clone(),
            pending_names: self.pending_names.clone(),
            next_id: self.next_id,
            next_seq: self.next_seq,
            steps: self.steps,
            reads: self.reads,
            crash_at: self.crash_at,
            trace: Trace::default(),
            names: self.names,
            sync_fault: self.sync_fault,
            failing: self.failing,
            halve_write: false,
            capacity_blocks: self.capacity_blocks,
            full_at_sync: self.full_at_sync,
            overwrites_need_room: self.overwrites_need_room,
            bad_bytes: self.bad_bytes.clone(),
            read_limit: self.read_limit,
            locks: self.locks.clone(),
        }
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(crate) fn fresh_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    pub(crate) fn alive(&self) -> io::Result<()> {
        if self.off { Err(off()) } else { Ok(()) }
    }

    /// Counts a step and lets the power fail in it if it is the chosen one. `act` learns whether it is struck: then it
    /// leaves everything it does pending, and nobody hears its answer.
    pub(crate) fn step<T>(
        &mut self,
        op: DiskOp,
        path: &Arc<Path>,
        to: Option<&Path>,
        (offset, len): (u64, u64),
        act: impl FnOnce(&mut State, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        self.alive()?;
        self.steps += 1;
        let (step, to) = (self.steps, to.map(Arc::from));
        self.trace.push(TraceEntry { step, op, path: path.clone(), to, offset, len, fault: None });
        let struck = self.crash_at == Some(step);
        let answer = if struck { act(self, true) } else { self.failing_step(op, |s| act(s, false)) };
        if struck {
            self.trace.mark("power off");
            self.off = true;
            return Err(off());
        }
        answer
    }

    pub(crate) fn file(&mut self, id: u64) -> &mut Inode {
        self.files.get_mut(&id).expect("a file lives as long as its handles and names")
    }

    fn push_change(&mut self, id: u64, what: Change, durable: bool) {
        let seq = self.fresh_seq();
        self.file(id).pending.push(DataOp { seq, what, durable });
    }

    /// A page that a failed sync left behind becomes dirty again as a whole when a part of it is written.
    fn redirty(&mut self, id: u64, offset: u64, end: u64) {
        let inode = self.file(id);
        let pages: Vec<u64> = inode.unreached.range(offset / BLOCK..end.div_ceil(BLOCK)).copied().collect();
        for page in pages {
            let inode = self.file(id);
            inode.unreached.remove(&page);
            let mut bytes = vec![0; BLOCK_BYTES];
            let n = inode.cache.read(&mut bytes, page * BLOCK);
            bytes.truncate(n);
            self.push_change(id, Change::Write { offset: page * BLOCK, bytes: bytes.into() }, false);
        }
    }

    /// How much of a write there is room for.
    fn room_for(&mut self, id: u64, offset: u64, len: u64) -> u64 {
        if self.halve_write {
            return len / 2;
        }
        let Some(capacity) = self.capacity_blocks.filter(|_| !self.full_at_sync) else { return len };
        let mut left = capacity.saturating_sub(self.used_blocks());
        let cache = self.file(id).cache.clone();
        let overwrites = self.overwrites_need_room;
        let missing = |at: u64, len: u64| if overwrites { 1 } else { cache.blocks_missing(at, len) };
        if !overwrites && cache.blocks_missing(offset, len) <= left {
            return len;
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            if missing(at, next - at) > 0 {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            at = next;
        }
        at - offset
    }

    pub(crate) fn used_blocks(&self) -> u64 {
        self.files
            .values()
            .filter(|i| i.links_cached > 0 || i.handles > 0)
            .map(|i| i.cache.blocks() + i.taken_blocks)
            .sum()
    }

    /// Takes room for so many bytes, beside those that the file has.
    pub(crate) fn take_room(&mut self, id: u64, len: u64) -> io::Result<()> {
        let wanted = len.div_ceil(BLOCK).saturating_sub(self.file(id).taken_blocks);
        if self.capacity_blocks.is_some_and(|capacity| self.used_blocks() + wanted > capacity) {
            self.trace.mark("full");
            return Err(full());
        }
        self.file(id).taken_blocks += wanted;
        Ok(())
    }

    pub(crate) fn write(&mut self, id: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fits = self.room_for(id, offset, bytes.len() as u64) as usize;
        let part = &bytes[..fits];
        if !part.is_empty() {
            self.redirty(id, offset, offset + part.len() as u64);
            Arc::make_mut(&mut self.file(id).cache).write(part, offset);
            self.push_change(id, Change::Write { offset, bytes: part.into() }, false);
        }
        if fits < bytes.len() {
            self.trace.mark("full");
            return Err(full());
        }
        Ok(())
    }

    pub(crate) fn write_synced(&mut self, id: u64, blocks: &[u8], offset: u64, struck: bool) -> io::Result<()> {
        let (len, end) = (blocks.len() as u64, offset + blocks.len() as u64);
        if struck {
            return self.write(id, blocks, offset);
        }
        if self.room_for(id, offset, len) < len {
            // What fits is in the file, and no sync has covered it.
            return self.write(id, blocks, offset);
        }
        if self.full_at_sync && self.over_capacity(id, offset, len) {
            self.trace.mark("full");
            return Err(sync_failed(full()));
        }
        if let Some((fault, error)) = self.sync_fails() {
            if fault == SyncFault::KeepCache {
                let inode = self.file(id);
                Arc::make_mut(&mut inode.cache).write(blocks, offset);
                inode.unreached.extend(offset / BLOCK..end / BLOCK);
            }
            return Err(error);
        }
        let inode = self.file(id);
        Arc::make_mut(&mut inode.cache).write(blocks, offset);
        let covered: Vec<u64> = inode.unreached.range(offset / BLOCK..end / BLOCK).copied().collect();
        for page in covered {
            inode.unreached.remove(&page);
        }
        let in_the_way = |op: &DataOp| {
            let (from, to) = op.what.range();
            matches!(op.what, Change::Cut(_)) || from < end && offset < to
        };
        if inode.pending.iter().any(in_the_way) {
            self.push_change(id, Change::Write { offset, bytes: blocks.into() }, true);
        } else {
            let durable = Arc::make_mut(&mut inode.durable);
            durable.set_len(durable.len().max(end));
            for index in offset / BLOCK..end / BLOCK {
                durable.set_block(index, inode.cache.block(index).cloned());
            }
        }
        Ok(())
    }

    fn over_capacity(&mut self, id: u64, offset: u64, len: u64) -> bool {
        let missing = self.file(id).cache.blocks_missing(offset, len);
        self.capacity_blocks.is_some_and(|capacity| self.used_blocks() + missing > capacity)
    }

    pub(crate) fn set_len(&mut self, id: u64, len: u64) {
        let inode = self.file(id);
        let change = if len < inode.cache.len() { Change::Cut(len) } else { Change::Grow(len) };
        Arc::make_mut(&mut inode.cache).set_len(len);
        inode.unreached.split_off(&len.div_ceil(BLOCK));
        self.push_change(id, change, false);
    }

    pub(crate) fn sync_data(&mut self, id: u64, struck: bool) -> io::Result<()> {
        if struck {
            return Ok(());
        }
        if self.full_at_sync && !self.file(id).pending.is_empty() && self.over_capacity(id, 0, 0) {
            self.trace.mark("full");
            self.lose_pending(id, SyncFault::KeepCache);
            return Err(full());
        }
        if let Some((fault, error)) = self.sync_fails() {
            self.lose_pending(id, fault);
            return Err(error);
        }
        let inode = self.file(id);
        let mut durable = inode.cache.clone();
        if !inode.unreached.is_empty() {
            let whole = Arc::make_mut(&mut durable);
            for &page in &inode.unreached {
                whole.set_block(page, inode.durable.block(page).cloned());
            }
            whole.zero_tail();
        }
        inode.durable = durable;
        inode.pending.clear();
        if self.names == NamePolicy::Journaled {
            self.settle_names(|_| true);
        }
        Ok(())
    }

    /// Linux after a failed sync: the pages count as clean, the disk doesn't have them.
    fn lose_pending(&mut self, id: u64, fault: SyncFault) {
        let inode = self.file(id);
        let pending = std::mem::take(&mut inode.pending);
        for op in pending.iter().filter(|op| !op.durable) {
            let (from, to) = op.what.range();
            inode.unreached.extend(from / BLOCK..to.div_ceil(BLOCK));
        }
        let lost: Vec<_> = pending.iter().map(restart::only_durable).collect();
        inode.durable = Arc::new(restart::settle(&inode.durable, &pending, &lost, 0));
        inode.unreached.split_off(&inode.cache.len().div_ceil(BLOCK));
        if fault == SyncFault::RevertCache {
            let cache = Arc::make_mut(&mut inode.cache);
            for &page in &inode.unreached {
                cache.set_block(page, inode.durable.block(page).cloned());
            }
            cache.zero_tail();
        }
    }

    /// Counts a sync and says whether it is the one that fails.
    pub(crate) fn sync_fails(&mut self) -> Option<(SyncFault, io::Error)> {
        let (left, fault) = self.sync_fault.as_mut()?;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        let fault = *fault;
        self.sync_fault = None;
        self.trace.mark("EIO");
        Some((fault, eio()))
    }

    pub(crate) fn read(&mut self, id: u64, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.enter()?;
        self.reads += 1;
        let inode = self.files.get(&id).expect("a file lives as long as its handles");
        let limit = self.read_limit.unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..limit];
        if let Some(bad) = self.bad_bytes.get(&id)
            && bad.range(offset..offset.saturating_add(buf.len() as u64)).next().is_some()
        {
            return Err(eio());
        }
        Ok(inode.cache.read(buf, offset))
    }
}
