//! A state without its types: what the engine's shell needs to snapshot and restore it.

use std::sync::Arc;

use cutwater_platform::IoError;
use thiserror::Error;

use crate::checkpoint::StateFileKind;
use crate::exchange::{GroupRange, KeyGroup, KeyGroups, group_of};
use crate::snapshot::{ReadError, StateFileReader, StateName};
use crate::state::{AnyMigrations, EntryReader, FrozenState, OtherValues, SchemaVersion};

/// The part of the keys that an instance owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// How many key groups the job has.
    pub groups: KeyGroups,
    /// Those that this instance owns.
    pub range: GroupRange,
}

impl Ownership {
    /// Ownership of every group: a single worker.
    pub fn all(groups: KeyGroups) -> Ownership {
        Ownership { groups, range: GroupRange { start: 0, end: groups.count() } }
    }

    /// True when a key with this group hash is owned.
    pub fn has_hash(&self, group_hash: u64) -> bool {
        self.has(group_of(group_hash, self.groups))
    }

    /// True when the group is owned.
    pub fn has(&self, group: KeyGroup) -> bool {
        self.range.contains(group)
    }

    /// True when every group of `range` is owned.
    pub fn has_all(&self, range: GroupRange) -> bool {
        self.range.intersection(range).len() == range.len()
    }
}

/// One named state of an operator instance, its types forgotten.
///
/// Order of calls: `load` any number of files (and [`KeyedState::continue_chain`] when they are the instance's own, whole
/// chain), then for each checkpoint `freeze`, `sweep` until it answers. A freeze while the one before is still being swept
/// finishes that sweep first; frozen states come out in the order of the freezes, none skipped.
pub trait KeyedState {
    /// The name, unique within the operator.
    fn name(&self) -> &StateName;
    /// Fingerprint of key type, value type and schema version; see [`super::schema_fingerprint`].
    fn schema(&self) -> u64;
    /// The version that is in the fingerprint.
    fn version(&self) -> u32;
    /// What entries of this state may have been written as, so that they can still be loaded.
    fn older(&self) -> Vec<SchemaVersion>;
    /// Takes migrations, and their version. To be called before anything is in the state.
    ///
    /// # Errors
    /// They give another type than this state's values have.
    fn adopt(&mut self, migrations: &dyn AnyMigrations) -> Result<(), OtherValues>;
    /// Takes its entries apart, here or on another thread.
    fn entries(&self) -> Arc<dyn EntryReader>;
    /// Number of entries.
    fn len(&self) -> usize;
    /// True when there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Freezes the state as it is now and says as what: a delta is turned into a base when there is nothing it could
    /// follow, or when it would hold nearly everything. Some microseconds for a delta.
    fn freeze(&mut self, kind: StateFileKind) -> StateFileKind;
    /// Encodes a bounded part of the frozen state (`words` x 64 slots); `Some` when one is complete. Call it once per batch
    /// while [`KeyedState::is_sweeping`].
    fn sweep(&mut self, words: usize) -> Option<FrozenState>;
    /// True while a frozen state hasn't come out.
    fn is_sweeping(&self) -> bool;
    /// A frozen state, or its file, has been lost: the next freeze is a base (I-4).
    fn mark_all_dirty(&mut self);
    /// Adds the owned entries of a file, on top of what was loaded before. Returns how many entries it took (removals
    /// included).
    ///
    /// # Errors
    /// [`StateLoadError`]; the state is then unusable.
    fn load(&mut self, file: &mut StateFileReader, owned: &Ownership) -> Result<u64, StateLoadError>;
    /// What was loaded is the whole chain of this very instance, with the same key groups: the next delta may follow it.
    /// Without this call the next freeze is a base.
    fn continue_chain(&mut self);
    /// Estimated bytes in memory, heap of keys and values included.
    fn bytes_estimate(&mut self) -> usize;
}

/// A state that keeps all its entries in another one, and shows itself to the shell as that.
pub(crate) trait OverState {
    /// The other one.
    type Inner: KeyedState;

    fn inner(&self) -> &Self::Inner;
    fn inner_mut(&mut self) -> &mut Self::Inner;
    /// Bytes that it keeps beside the other one.
    fn bytes_beside(&self) -> usize {
        0
    }
}

impl<S: OverState> KeyedState for S {
    fn name(&self) -> &StateName {
        self.inner().name()
    }

    fn schema(&self) -> u64 {
        self.inner().schema()
    }

    fn version(&self) -> u32 {
        self.inner().version()
    }

    fn older(&self) -> Vec<SchemaVersion> {
        self.inner().older()
    }

    fn adopt(&mut self, migrations: &dyn AnyMigrations) -> Result<(), OtherValues> {
        self.inner_mut().adopt(migrations)
    }

    fn entries(&self) -> Arc<dyn EntryReader> {
        self.inner().entries()
    }

    fn len(&self) -> usize {
        self.inner().len()
    }

    fn freeze(&mut self, kind: StateFileKind) -> StateFileKind {
        self.inner_mut().freeze(kind)
    }

    fn sweep(&mut self, words: usize) -> Option<FrozenState> {
        self.inner_mut().sweep(words)
    }

    fn is_sweeping(&self) -> bool {
        self.inner().is_sweeping()
    }

    fn mark_all_dirty(&mut self) {
        self.inner_mut().mark_all_dirty();
    }

    fn load(&mut self, file: &mut StateFileReader, owned: &Ownership) -> Result<u64, StateLoadError> {
        self.inner_mut().load(file, owned)
    }

    fn continue_chain(&mut self) {
        self.inner_mut().continue_chain();
    }

    fn bytes_estimate(&mut self) -> usize {
        self.inner_mut().bytes_estimate() + self.bytes_beside()
    }
}

/// A state file can't be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateLoadError {
    /// The file is damaged, foreign or unreadable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Another operating system error.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The types changed.
    #[error(
        "state {state:?} was written with schema {found:016x}, and this program has {expected:016x}: its key or value type \
         (or its schema version) changed; restore with the old program, or start the operator under a new name"
    )]
    Schema {
        /// The state.
        state: String,
        /// This program's fingerprint.
        expected: u64,
        /// The file's.
        found: u64,
    },
    /// A registered migration refused an entry, or the entry isn't what its version says.
    #[error(
        "entry {entry} of {file}, the key of which is {key} in hexadecimal, can't be migrated from version {from} of state \
         {state:?} ({reason}); mend the migration, or go on with the old program. The checkpoint is as it was"
    )]
    Migration {
        /// The state.
        state: String,
        /// The file.
        file: String,
        /// Which entry, from 0.
        entry: u64,
        /// The encoded key, in hexadecimal.
        key: String,
        /// The version that it was written with.
        from: u32,
        /// What went wrong, and at which version.
        reason: String,
    },
    /// A file of another state.
    #[error("{file} holds state {found:?}, not {expected:?}; the manifest and its files don't belong together")]
    OtherState {
        /// The file.
        file: String,
        /// The state to be loaded.
        expected: String,
        /// The state in the file.
        found: String,
    },
    /// An entry that isn't one, although its checksum is right: the types changed in a way the schema can't see.
    #[error(
        "entry {entry} of {file} doesn't decode as state {state:?} ({reason}): its key or value type changed in a way that \
         the schema fingerprint can't see; restore with the old program, or start the operator under a new name"
    )]
    Entry {
        /// The state.
        state: String,
        /// The file.
        file: String,
        /// Which entry, from 0.
        entry: u64,
        /// What the decoder said.
        reason: String,
    },
}
