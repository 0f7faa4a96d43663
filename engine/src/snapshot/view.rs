//! Looking at the keyed state in a checkpoint, and comparing two checkpoints, key by key. From outside: nothing is changed, no job
//! needs to run.
//!
//! Types are needed to take entries apart; the job's own binary knows them ([`crate::worker::readers_of`]). What it doesn't know is
//! told in files and bytes. A chain streams by (`walk.rs`); comparing keeps the older checkpoint's entries of one state in memory, and
//! nothing of a worker whose files are the same in both.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use thiserror::Error;

use super::layout::ManifestName;
use super::manifest::Manifest;
use super::store::{CheckpointStore, StoreError};
use super::walk::{WalkError, walk};
use crate::checkpoint::{StateChain, StateFile};
use crate::exchange::{KeyGroups, group_of};
use crate::id::{CheckpointId, OperatorId, WorkerIndex};
use crate::recovery::is_in_flight;
use crate::state::EntryReader;

/// The readers of a job's states, by the names of operator and state. An operator that was renamed is there under its old names too.
#[derive(Clone, Debug, Default)]
pub struct StateReaders(BTreeMap<(String, String), Arc<dyn EntryReader>>);

impl StateReaders {
    /// Adds the reader of a state.
    pub fn insert(&mut self, operator: &str, state: &str, reader: Arc<dyn EntryReader>) {
        self.0.insert((operator.to_owned(), state.to_owned()), reader);
    }

    /// The reader of a state; `None` if the job doesn't have it.
    pub fn of(&self, operator: &str, state: &str) -> Option<&dyn EntryReader> {
        self.0.get(&(operator.to_owned(), state.to_owned())).map(AsRef::as_ref)
    }
}

/// What was asked for can't be shown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of the state can't be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// There is no such checkpoint.
    #[error("there is no checkpoint {asked}; there are {there:?}")]
    NoCheckpoint {
        /// What was asked for.
        asked: CheckpointId,
        /// What there is.
        there: Vec<u64>,
    },
    /// There is no checkpoint at all.
    #[error("there is no complete checkpoint in {place}")]
    Empty {
        /// The store.
        place: String,
    },
    /// The checkpoint has no such state.
    #[error("checkpoint {checkpoint} has no state {asked:?}; it has {there:?}")]
    NoState {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What was asked for, as `operator/state`.
        asked: String,
        /// What there is.
        there: Vec<String>,
    },
    /// The operator has several states.
    #[error("operator {operator:?} has several states; say one of {there:?}")]
    SeveralStates {
        /// The operator.
        operator: String,
        /// Its states, as `operator/state`.
        there: Vec<String>,
    },
}

/// The manifest of a checkpoint; of the newest one if none is named. Of several attempts' that of the newest.
///
/// # Errors
/// [`ViewError`].
pub fn manifest_of(store: &dyn CheckpointStore, checkpoint: Option<CheckpointId>) -> Result<Manifest, ViewError> {
    let listing = store.list()?;
    let fits = |name: &&ManifestName| checkpoint.is_none_or(|checkpoint| name.checkpoint == checkpoint);
    let found = listing.manifests.iter().rev().find(fits);
    let found = found.ok_or_else(|| match checkpoint {
        Some(asked) if !listing.manifests.is_empty() => {
            ViewError::NoCheckpoint { asked, there: listing.manifests.iter().map(|name| name.checkpoint.0).collect() }
        }
        _ => ViewError::Empty { place: store.place() },
    })?;
    Ok(store.manifest(*found)?.0)
}

/// What to show of a state.
#[derive(Clone, Debug, Default)]
pub struct Show {
    /// The key, as it is shown; all keys if `None`.
    pub key: Option<String>,
    /// At most this many entries; all are counted.
    pub first: usize,
}

/// A state in a checkpoint, all workers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewedState {
    /// The operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// Files of its chains, and their bytes.
    pub files: usize,
    /// Their bytes.
    pub file_bytes: u64,
    /// What its entries come to; `None` if the job doesn't know their types.
    pub entries: Option<ViewedEntries>,
}

/// The entries of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewedEntries {
    /// How many keys there are.
    pub keys: u64,
    /// Bytes of their encoded keys.
    pub key_bytes: u64,
    /// Bytes of their encoded values.
    pub value_bytes: u64,
    /// Per key group that has any: entries, and their bytes.
    pub groups: BTreeMap<u16, (u64, u64)>,
    /// Those that were asked for, key and value.
    pub shown: Vec<(String, String)>,
    /// How many fitted the key that was asked for.
    pub found: u64,
}

/// Looks at a state. `name` is an operator that has one state, or `operator/state`.
///
/// # Errors
/// [`ViewError`].
pub fn view_state(
    store: &dyn CheckpointStore,
    manifest: &Manifest,
    name: &str,
    readers: &StateReaders,
    show: &Show,
) -> Result<ViewedState, ViewError> {
    let all = states_of(manifest);
    let told = |(operator, state): &(String, String)| format!("{operator}/{state}");
    let fitting: Vec<_> = all.iter().filter(|(key, _)| key.0 == name || told(key) == name).collect();
    let ((operator, state), chains) = match fitting[..] {
        [] => {
            let there = all.keys().map(told).collect();
            return Err(ViewError::NoState { checkpoint: manifest.checkpoint, asked: name.to_owned(), there });
        }
        [one] => one,
        [..] => {
            let there = fitting.iter().map(|(key, _)| told(key)).collect();
            return Err(ViewError::SeveralStates { operator: name.to_owned(), there });
        }
    };
    let mut entries = None;
    if let Some(reader) = readers.of(operator, state) {
        let mut seen = ViewedEntries::default();
        for chain in chains.values() {
            walk(store, &chain.files, reader, |key, value| {
                seen.add(manifest.key_groups, reader, key, value, show);
                true
            })?;
        }
        entries = Some(seen);
    }
    let files = || chains.values().flat_map(|chain| &chain.files);
    Ok(ViewedState {
        operator: operator.clone(),
        state: state.clone(),
        files: files().count(),
        file_bytes: files().map(|file| file.bytes).sum(),
        entries,
    })
}

impl ViewedEntries {
    fn add(&mut self, groups: KeyGroups, reader: &dyn EntryReader, key: &[u8], value: &[u8], show: &Show) {
        self.keys += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        if let Ok(hash) = reader.group_hash(key) {
            let group = self.groups.entry(group_of(hash, groups).0).or_default();
            group.0 += 1;
            group.1 += (key.len() + value.len()) as u64;
        }
        if show.key.is_none() && self.shown.len() >= show.first {
            self.found += 1;
            return;
        }
        let told = reader.show_key(key);
        if show.key.as_ref().is_none_or(|wanted| is_key(&told, wanted)) {
            self.found += 1;
            if self.shown.len() < show.first {
                self.shown.push((told, reader.show_value(value)));
            }
        }
    }
}

/// Whether a key that is told like this is what a person means: JSON, or a text without its quotes.
fn is_key(told: &str, wanted: &str) -> bool {
    told == wanted || told.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(wanted)
}

/// The chains of every state, by the names of operator and state, and by worker.
fn states_of(manifest: &Manifest) -> BTreeMap<(String, String), BTreeMap<WorkerIndex, &StateChain>> {
    let names: BTreeMap<OperatorId, &str> =
        manifest.plan.operators.iter().map(|operator| (operator.id, operator.name.as_str())).collect();
    let mut states: BTreeMap<(String, String), BTreeMap<WorkerIndex, &StateChain>> = BTreeMap::new();
    for snapshot in &manifest.snapshots {
        for chain in snapshot.chains.iter().filter(|chain| !is_in_flight(chain)) {
            let operator = names.get(&snapshot.instance.operator).map_or_else(String::new, ToString::to_string);
            states.entry((operator, chain.name.clone())).or_default().insert(snapshot.instance.worker, chain);
        }
    }
    states
}

/// How two checkpoints differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The older one.
    pub from: CheckpointId,
    /// The newer one.
    pub to: CheckpointId,
    /// Each state that one of them has.
    pub states: Vec<StateComparison>,
}

/// How a state differs between two checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateComparison {
    /// The operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// Whether the job knows its types; if not, only its files were compared.
    pub known: bool,
    /// Whether all its files are the same.
    pub same_files: bool,
    /// Keys that only the newer one has.
    pub added: u64,
    /// Keys that only the older one has.
    pub removed: u64,
    /// Keys with other values.
    pub changed: u64,
    /// Keys with the same values, where files had to be read to know.
    pub unchanged: u64,
    /// The first differences.
    pub first: Vec<Difference>,
}

/// A key whose value differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// Its value in the older checkpoint; `None` if it has none.
    pub before: Option<String>,
    /// Its value in the newer one.
    pub after: Option<String>,
}

/// Compares two checkpoints, state by state; `first` differences of each are told. A state whose operator was renamed is two states.
///
/// # Errors
/// [`ViewError`].
pub fn compare_checkpoints(
    store: &dyn CheckpointStore,
    from: &Manifest,
    to: &Manifest,
    readers: &StateReaders,
    first: usize,
) -> Result<Comparison, ViewError> {
    let (before, after) = (states_of(from), states_of(to));
    let names: BTreeSet<&(String, String)> = before.keys().chain(after.keys()).collect();
    let nothing = BTreeMap::new();
    let mut states = vec![];
    for name in names {
        let (before, after) = (before.get(name).unwrap_or(&nothing), after.get(name).unwrap_or(&nothing));
        let reader = readers.of(&name.0, &name.1);
        let mut state = compare_state(store, before, after, reader, from.workers == to.workers, first)?;
        (state.operator, state.state) = name.clone();
        states.push(state);
    }
    Ok(Comparison { from: from.checkpoint, to: to.checkpoint, states })
}

fn compare_state(
    store: &dyn CheckpointStore,
    before: &BTreeMap<WorkerIndex, &StateChain>,
    after: &BTreeMap<WorkerIndex, &StateChain>,
    reader: Option<&dyn EntryReader>,
    same_workers: bool,
    first: usize,
) -> Result<StateComparison, ViewError> {
    // With the same number of workers a key is on the same one, and a worker whose files are the same has changed nothing.
    let same = |worker: &WorkerIndex| same_workers && before.get(worker) == after.get(worker);
    let read = |chains: &BTreeMap<WorkerIndex, &StateChain>| -> Vec<Vec<StateFile>> {
        chains.iter().filter(|(worker, _)| !same(worker)).map(|(_, chain)| chain.files.clone()).collect()
    };
    let (before, after) = (read(before), read(after));
    let mut state = StateComparison {
        known: reader.is_some(),
        same_files: before.is_empty() && after.is_empty(),
        ..StateComparison::default()
    };
    let Some(reader) = reader else { return Ok(state) };
    let mut old: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    for files in before {
        walk(store, &files, reader, |key, value| {
            old.insert(key.to_vec(), value.to_vec());
            true
        })?;
    }
    let tell = |state: &mut StateComparison, key: &[u8], before: Option<&[u8]>, after: Option<&[u8]>| {
        if state.first.len() < first {
            let (before, after) = (before.map(|v| reader.show_value(v)), after.map(|v| reader.show_value(v)));
            state.first.push(Difference { key: reader.show_key(key), before, after });
        }
    };
    for files in after {
        walk(store, &files, reader, |key, value| {
            match old.remove(key) {
                Some(before) if before == value => state.unchanged += 1,
                Some(before) => {
                    state.changed += 1;
                    tell(&mut state, key, Some(&before), Some(value));
                }
                None => {
                    state.added += 1;
                    tell(&mut state, key, None, Some(value));
                }
            }
            true
        })?;
    }
    state.removed = old.len() as u64;
    // A map has no order of its own; keys have.
    let gone: BTreeMap<Vec<u8>, Vec<u8>> = old.into_iter().collect();
    for (key, value) in &gone {
        tell(&mut state, key, Some(value), None);
    }
    Ok(state)
}
