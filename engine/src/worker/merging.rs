//! Chains that have grown are merged into new bases, beside the run: on a thread of its own, so that no checkpoint waits for it.
//!
//! An instance merges its own chains and names the new base in its next snapshot, so what a manifest lists stays one instance's
//! chain. A merge that fails, or whose chain has gone another way meanwhile, changes nothing: the old files are all there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::checkpoint::{StateChain, StateFile};
use crate::snapshot::{Chain, MergeError, SnapshotFiles, SnapshotOrigin};
use crate::source::Waker;
use crate::state::KeyedState;
use crate::worker::offload::{Offload, Results};

/// The merges of one instance.
pub(crate) struct Merging {
    origin: SnapshotOrigin,
    /// Merge with this many deltas.
    after: usize,
    files: SnapshotFiles,
    offload: Rc<Offload>,
    merged: Results<Result<StateFile, MergeError>>,
    removed: Results<()>,
    /// Which chain, and what of it.
    under_way: VecDeque<(usize, StateChain)>,
    /// The newest file of each chain's last merge: it names what came of it, so it isn't tried again.
    tried: Vec<Option<String>>,
}

impl Merging {
    pub(crate) fn new(
        origin: SnapshotOrigin,
        after: usize,
        files: SnapshotFiles,
        offload: Rc<Offload>,
        waker: Waker,
    ) -> Merging {
        let (merged, removed) = (Results::new(waker.clone()), Results::new(waker));
        Merging { origin, after, files, offload, merged, removed, under_way: VecDeque::new(), tried: vec![] }
    }

    /// Begins to merge the chains for which that pays.
    pub(crate) fn begin(&mut self, chains: &[Chain], states: &[Rc<RefCell<dyn KeyedState>>]) {
        self.tried.resize(chains.len(), None);
        for (index, (chain, state)) in chains.iter().zip(states).enumerate() {
            let Some(part) = chain.to_merge(self.after) else { continue };
            let newest = part.files.last().map(|file| file.name.clone());
            if newest == self.tried[index] || self.under_way.iter().any(|(other, _)| *other == index) {
                continue;
            }
            self.tried[index] = newest;
            self.under_way.push_back((index, part.clone()));
            let (files, origin, reader) = (self.files.clone(), self.origin, state.borrow().entries());
            self.merged.submit(&self.offload, move || files.merge(&origin, &part, reader.as_ref()));
        }
    }

    /// Puts merged bases in the place of what they stand for.
    pub(crate) fn settle(&mut self, chains: &mut [Chain]) {
        while self.removed.poll().is_some() {}
        while let Some(result) = self.merged.poll() {
            let (index, part) = self.under_way.pop_front().expect("a result belongs to a merge");
            let problem = match result {
                Ok(Ok(base)) => {
                    if !chains[index].merged(&part, base.clone()) {
                        let files = self.files.clone();
                        self.removed.submit(&self.offload, move || files.remove_unused(&base));
                    }
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic,
            };
            tracing::warn!(instance = %self.origin.instance, state = part.name, problem, "a chain wasn't merged, and goes on as it is");
        }
    }
}
