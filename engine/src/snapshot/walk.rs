//! A chain of state files as the entries it stands for: each key once, with its newest value, removed ones not at all.
//!
//! The deltas are read first and kept, newest over older; then the base streams by, each of its entries as it is or as the deltas
//! say. So memory is that of the deltas, however large the base is. Entries come in the order of the base, then those that are new.
//!
//! For merging chains ([`super::merge`]) and for looking at them from outside ([`super::inspect`]). A restore loads the files one
//! after the other instead, since a table is what it wants.

use std::collections::HashMap;

use thiserror::Error;

use super::reader::{ReadError, StateFileReader};
use super::store::{CheckpointStore, StoreError};
use crate::checkpoint::{StateFile, StateFileKind};
use crate::state::EntryReader;

/// A chain can't be walked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WalkError {
    /// The store failed, or a file is missing.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file is damaged, foreign or unreadable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An entry can't be understood.
    #[error("entry {entry} of {file} can't be read: {reason}")]
    Entry {
        /// The file.
        file: String,
        /// Which entry, from 0.
        entry: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A chain without a base at its beginning, or with one elsewhere.
    #[error("the files {files:?} are no chain: it begins with a base and goes on with deltas")]
    NoChain {
        /// Their names.
        files: Vec<String>,
    },
}

/// What the deltas say: for each key its newest value, or that it is gone.
struct Newest {
    place: HashMap<Vec<u8>, usize>,
    /// Key and value; `None` once it has been told. In the order in which keys first came.
    entries: Vec<Option<Change>>,
}

/// A key, and its value if it wasn't removed.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// Calls `each` with key and value of every entry that the chain stands for. A callback that answers false ends the walk; the rest of
/// the files is then not checked.
///
/// # Errors
/// [`WalkError`]. What was told before is to be forgotten.
pub(crate) fn walk(
    store: &dyn CheckpointStore,
    chain: &[StateFile],
    reader: &dyn EntryReader,
    mut each: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), WalkError> {
    let Some((base, deltas)) = chain.split_first() else { return Ok(()) };
    if base.kind != StateFileKind::Base || deltas.iter().any(|file| file.kind != StateFileKind::Delta) {
        return Err(WalkError::NoChain { files: chain.iter().map(|file| file.name.clone()).collect() });
    }
    let mut newest = Newest { place: HashMap::new(), entries: vec![] };
    for file in deltas {
        entries(store, file, reader, |key, value| {
            match newest.place.get(key) {
                Some(place) => newest.entries[*place] = Some((key.to_vec(), value.map(<[u8]>::to_vec))),
                None => {
                    newest.place.insert(key.to_vec(), newest.entries.len());
                    newest.entries.push(Some((key.to_vec(), value.map(<[u8]>::to_vec))));
                }
            }
            true
        })?;
    }
    let mut goes_on = true;
    entries(store, base, reader, |key, value| {
        let changed = newest.place.get(key).and_then(|place| newest.entries[*place].take());
        goes_on = match (changed, value) {
            (Some((key, Some(value))), _) => each(&key, &value),
            (Some((_, None)), _) | (None, None) => true,
            (None, Some(value)) => each(key, value),
        };
        goes_on
    })?;
    for (key, value) in newest.entries.into_iter().flatten() {
        goes_on = goes_on && value.is_none_or(|value| each(&key, &value));
    }
    Ok(())
}

/// Calls `each` with every entry of one file, until it answers false.
fn entries(
    store: &dyn CheckpointStore,
    file: &StateFile,
    reader: &dyn EntryReader,
    mut each: impl FnMut(&[u8], Option<&[u8]>) -> bool,
) -> Result<(), WalkError> {
    let mut open = StateFileReader::open(store.open_state_file(&file.name)?, file)?;
    let schema = open.header().schema;
    let mut seen = 0;
    while let Some(block) = open.next_block()? {
        let mut bytes = block.bytes;
        for _ in 0..block.entries {
            let bad = |reason: String| WalkError::Entry { file: file.name.clone(), entry: seen, reason };
            let entry = reader.read(schema, &mut bytes).map_err(bad)?;
            seen += 1;
            if !each(&entry.key, entry.value.as_deref()) {
                return Ok(());
            }
        }
    }
    Ok(())
}
