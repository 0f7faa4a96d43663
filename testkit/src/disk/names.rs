//! The names of the simulated disk: changed in the cache, pending, settled by a sync; and files that nothing reaches any more.

use std::io;
use std::sync::Arc;

use super::NamePolicy;
use super::state::{Dir, Edit, Inode, NameOp, Names, Node, State};

impl State {
    pub(crate) fn add_file(&mut self) -> u64 {
        let id = self.fresh_id();
        self.files.insert(id, Inode::default());
        id
    }

    pub(crate) fn change_names(&mut self, edits: Vec<Edit>) {
        for edit in &edits {
            let dir = self.dirs.get_mut(&edit.dir).expect("a directory lives as long as its names");
            let before = set(&mut dir.cache, edit);
            self.count_links(before, edit.node, |inode| &mut inode.links_cached);
        }
        let seq = self.fresh_seq();
        self.pending_names.push(NameOp { seq, edits });
    }

    fn count_links(&mut self, before: Option<Node>, after: Option<Node>, count: fn(&mut Inode) -> &mut u32) {
        if let Some(Node::File(id)) = after {
            *count(self.file(id)) += 1;
        }
        if let Some(Node::File(id)) = before {
            *count(self.file(id)) -= 1;
        }
    }

    pub(crate) fn settle_names(&mut self, settled: impl Fn(&Edit) -> bool) {
        let mut ops = std::mem::take(&mut self.pending_names);
        let mut touched = Vec::new();
        for op in &mut ops {
            let (now, later) = std::mem::take(&mut op.edits).into_iter().partition(|edit| settled(edit));
            op.edits = later;
            let now: Vec<Edit> = now;
            for edit in now {
                let dir = self.dirs.get_mut(&edit.dir).expect("a directory lives as long as its names");
                let before = set(&mut dir.durable, &edit);
                self.count_links(before, edit.node, |inode| &mut inode.links_durable);
                touched.extend([before, edit.node].into_iter().flatten());
            }
        }
        ops.retain(|op| !op.edits.is_empty());
        self.pending_names = ops;
        for node in touched {
            if let Node::File(id) = node {
                self.forget_if_gone(id);
            }
        }
    }

    pub(crate) fn sync_dir(&mut self, dir: u64) -> io::Result<()> {
        if let Some((_, fault)) = self.sync_fails() {
            // The names stay visible, but nothing will ever write them.
            self.pending_names.retain_mut(|op| {
                op.edits.retain(|edit| edit.dir != dir);
                !op.edits.is_empty()
            });
            return Err(fault);
        }
        match self.names {
            NamePolicy::SyncDir => self.settle_names(|edit| edit.dir == dir),
            NamePolicy::Journaled => self.settle_names(|_| true),
        }
        Ok(())
    }

    /// Forgets a file that no name, no pending change of names and no handle can reach.
    pub(crate) fn forget_if_gone(&mut self, id: u64) {
        let Some(inode) = self.files.get(&id) else { return };
        let named = inode.links_cached > 0 || inode.links_durable > 0;
        let pending = || self.pending_names.iter().flat_map(|op| &op.edits).any(|e| e.node == Some(Node::File(id)));
        if !named && inode.handles == 0 && !pending() {
            self.files.remove(&id);
            self.bad_bytes.remove(&id);
        }
    }

    /// Counts the links anew and forgets what can't be reached; after a restart nobody holds a handle.
    pub(crate) fn recount(&mut self) {
        for inode in self.files.values_mut() {
            (inode.links_cached, inode.links_durable, inode.handles) = (0, 0, 0);
        }
        let dirs: Vec<Dir> = self.dirs.values().cloned().collect();
        for dir in dirs {
            for node in dir.cache.values() {
                self.count_links(None, Some(*node), |inode| &mut inode.links_cached);
            }
            for node in dir.durable.values() {
                self.count_links(None, Some(*node), |inode| &mut inode.links_durable);
            }
        }
        for id in self.files.keys().copied().collect::<Vec<u64>>() {
            self.forget_if_gone(id);
        }
    }
}

/// Changes one name and answers what it stood for.
pub(crate) fn set(names: &mut Arc<Names>, edit: &Edit) -> Option<Node> {
    let names = Arc::make_mut(names);
    match edit.node {
        Some(node) => names.insert(edit.name.clone(), node),
        None => names.remove(&edit.name),
    }
}
