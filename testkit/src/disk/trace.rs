//! What was asked of the disk, for the story of a failure.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The kinds of operations that count as a step: those that change something or make it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskOp {
    /// A file got its name.
    Create,
    /// Bytes went into the cache.
    Write,
    /// Blocks went to the disk.
    WriteSynced,
    /// A file was cut or extended.
    SetLen,
    /// A file's bytes and size were made durable.
    SyncData,
    /// A directory was created.
    CreateDir,
    /// A name was changed, replacing.
    Rename,
    /// A name was changed, not replacing.
    Publish,
    /// A file's name was removed.
    RemoveFile,
    /// A directory was removed.
    RemoveDir,
    /// A directory's names were made durable.
    SyncDir,
}

/// One step of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Its number; the first is 1.
    pub step: u64,
    /// What was asked.
    pub op: DiskOp,
    /// Of which file or directory.
    pub path: Arc<Path>,
    /// The new name of a renamed or published one.
    pub to: Option<Arc<Path>>,
    /// Where in the file, in bytes (the new length for [`DiskOp::SetLen`]).
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// What came of it, when it wasn't simply done: "power off", "EIO", "full".
    pub fault: Option<&'static str>,
}

impl fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {:?} {}", self.step, self.op, self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " -> {}", to.display())?;
        }
        match self.op {
            DiskOp::Write | DiskOp::WriteSynced => write!(f, " at {} + {} bytes", self.offset, self.len)?,
            DiskOp::SetLen => write!(f, " to {} bytes", self.offset)?,
            _ => {}
        }
        match self.fault {
            Some(fault) => write!(f, " [{fault}]"),
            None => Ok(()),
        }
    }
}

/// The newest steps; older ones are forgotten, so that a long run doesn't grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    entries: VecDeque<TraceEntry>,
}

/// How many steps are remembered.
const KEPT: usize = 20_000;

impl Trace {
    pub(crate) fn push(&mut self, entry: TraceEntry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn mark(&mut self, fault: &'static str) {
        if let Some(last) = self.entries.back_mut() {
            last.fault = Some(fault);
        }
    }

    pub(crate) fn list(&self) -> Vec<TraceEntry> {
        self.entries.iter().cloned().collect()
    }
}
