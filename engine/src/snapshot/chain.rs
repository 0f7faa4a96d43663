//! Which files make up a state, and whether the next one is a base or a delta. Pure.
//!
//! The promise: a chain that is handed out begins with a base, and each delta in it holds what changed since the file
//! before it. A file that got lost breaks the chain until the next base: a delta that follows a hole is refused (I-4).
//! A chain doesn't depend on which checkpoints completed: a file written for a declined checkpoint stays a link.

use thiserror::Error;

use super::layout::StateName;
use super::writer::WrittenState;
use crate::checkpoint::{StateChain, StateFile, StateFileKind};

/// When a chain is replaced by a fresh base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLimits {
    /// With this many deltas; earlier if the deltas together are larger than the base.
    pub deltas_max: usize,
}

/// A delta was written on top of something that isn't there. The snapshot it was for must be called failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the chain of state {state:?} is broken until its next base; this snapshot can't be used")]
pub struct BrokenChain {
    /// The state.
    pub state: String,
}

/// The files of one state of one instance, in the order in which it was frozen.
#[derive(Clone, Debug, Hash)]
pub struct Chain {
    name: StateName,
    schema: u64,
    /// Empty: broken, or nothing written yet.
    files: Vec<StateFile>,
}

impl Chain {
    /// A chain without files.
    pub fn new(name: StateName, schema: u64) -> Chain {
        Chain { name, schema, files: Vec::new() }
    }

    /// Goes on with the chain of a manifest, for the same instance with the same key groups.
    pub fn resumed(name: StateName, chain: StateChain) -> Chain {
        Chain { name, schema: chain.schema, files: chain.files }
    }

    /// The state's name.
    pub fn name(&self) -> &StateName {
        &self.name
    }

    /// What to freeze as next. A base that is asked for too late or too early does no harm.
    pub fn next_kind(&self, limits: &ChainLimits) -> StateFileKind {
        let Some((base, deltas)) = self.files.split_first() else { return StateFileKind::Base };
        let delta_bytes: u64 = deltas.iter().map(|file| file.bytes).sum();
        if deltas.len() >= limits.deltas_max || delta_bytes > base.bytes {
            return StateFileKind::Base;
        }
        StateFileKind::Delta
    }

    /// Adds what was written for the next freeze. Call this, or [`Chain::lost`], exactly once per freeze and in their order.
    ///
    /// # Errors
    /// [`BrokenChain`], for a delta after something was lost.
    pub fn push(&mut self, written: WrittenState) -> Result<(), BrokenChain> {
        match (written.kind, written.file) {
            (StateFileKind::Base, Some(file)) => {
                self.files = vec![file];
                self.schema = written.schema;
            }
            (StateFileKind::Delta, file) if !self.files.is_empty() => self.files.extend(file),
            _ => return Err(BrokenChain { state: self.name.as_str().to_owned() }),
        }
        Ok(())
    }

    /// What was frozen next could not be written.
    pub fn lost(&mut self) {
        self.files.clear();
    }

    /// What to merge into a new base, if there are `after` deltas or more; 0 says never.
    pub fn to_merge(&self, after: usize) -> Option<StateChain> {
        (after > 0 && self.files.len() > after).then(|| self.to_ref())
    }

    /// Puts `base` in the place of the files it stands for. False if the chain has gone another way meanwhile, and the base is
    /// of no use.
    pub fn merged(&mut self, stands_for: &StateChain, base: StateFile) -> bool {
        if stands_for.files.is_empty() || !self.files.starts_with(&stands_for.files) {
            return false;
        }
        self.files.splice(..stands_for.files.len(), [base]);
        true
    }

    /// The chain for a `SnapshotRef`.
    pub fn to_ref(&self) -> StateChain {
        StateChain { name: self.name.as_str().to_owned(), schema: self.schema, files: self.files.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: StateFileKind, bytes: u64) -> WrittenState {
        let file = StateFile { name: String::new(), bytes, checksum: 0, entries: 1, kind };
        WrittenState { state: name(), schema: 1, kind, file: (bytes > 0).then_some(file) }
    }

    fn name() -> StateName {
        StateName::new("counts").expect("a good name")
    }

    fn sizes(chain: &Chain) -> Vec<u64> {
        chain.to_ref().files.iter().map(|file| file.bytes).collect()
    }

    #[test]
    fn a_chain_begins_with_a_base_and_starts_anew_when_its_deltas_outgrow_it() {
        use StateFileKind::{Base, Delta};
        let limits = ChainLimits { deltas_max: 3 };
        let mut chain = Chain::new(name(), 1);
        assert_eq!(chain.next_kind(&limits), Base);
        chain.push(written(Base, 100)).expect("a base fits always");
        for bytes in [40, 40, 0] {
            assert_eq!(chain.next_kind(&limits), Delta);
            chain.push(written(Delta, bytes)).expect("follows");
        }
        assert_eq!(sizes(&chain), [100, 40, 40], "an empty delta has no file");
        chain.push(written(Delta, 1)).expect("follows");
        assert_eq!(chain.next_kind(&limits), Base, "three deltas");
        chain.push(written(Base, 100)).expect("a base fits always");
        chain.push(written(Delta, 101)).expect("follows");
        assert_eq!(chain.next_kind(&limits), Base, "more deltas than base");
    }

    #[test]
    fn a_merged_base_takes_the_place_of_what_it_stands_for_and_of_nothing_else() {
        use StateFileKind::{Base, Delta};
        let named = |kind, bytes| {
            let mut state = written(kind, bytes);
            state.file.iter_mut().for_each(|file| file.name = format!("{bytes}"));
            state
        };
        let merged = named(Base, 120).file.expect("a file");
        let mut chain = Chain::new(name(), 1);
        for (kind, bytes) in [(Base, 100), (Delta, 10), (Delta, 20)] {
            assert_eq!(chain.to_merge(2), None, "too short");
            chain.push(named(kind, bytes)).expect("follows");
        }
        assert_eq!(chain.to_merge(0), None, "never");
        let part = chain.to_merge(2).expect("two deltas");
        chain.push(named(Delta, 30)).expect("follows");
        let mut lost = chain.clone();
        assert!(chain.merged(&part, merged.clone()));
        assert_eq!(sizes(&chain), [120, 30], "what came meanwhile follows");
        assert!(!chain.merged(&part, merged.clone()), "it stands for files that aren't there any more");
        lost.lost();
        assert!(!lost.merged(&part, merged.clone()), "the chain is broken, and a base doesn't heal it");
        lost.push(named(Base, 99)).expect("a base fits always");
        assert!(!lost.merged(&part, merged));
        assert_eq!(sizes(&lost), [99]);
    }

    #[test]
    fn a_delta_after_a_lost_file_is_refused_until_the_next_base() {
        use StateFileKind::{Base, Delta};
        let mut chain = Chain::new(name(), 1);
        chain.push(written(Delta, 1)).expect_err("nothing to follow");
        chain.push(written(Base, 10)).expect("a base");
        chain.lost();
        chain.push(written(Delta, 1)).expect_err("its base is lost");
        chain.push(written(Delta, 0)).expect_err("nor may an empty one be taken for whole");
        chain.push(written(Base, 10)).expect("a base heals");
        chain.push(written(Delta, 1)).expect("follows");
        assert_eq!(sizes(&chain), [10, 1]);
    }
}
