//! State as operators use it: a value per key ([`State`]), or values per key and map key ([`MapState`]).
//!
//! Both own a [`Table`]; both show themselves to the engine's shell as [`KeyedState`]. Methods that end in `_hashed` take
//! the hash that routing has computed already.
//!
//! A `MapState` is flat: its entries are written one by one, so a checkpoint writes the map entries that changed, not the
//! maps. The price: the entries of one key can't be walked. Where that is needed, keep a map as the value of a `State`.

use std::any::TypeId;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::entries::{EntryReader, TypedEntries};
use super::erased::{KeyedState, OverState, Ownership, StateLoadError};
use super::frozen::{Encoder, FrozenState};
use super::key::{Scoped, StateKey, scoped_hash};
use super::load::load;
use super::migrate::{AnyMigrations, Older, OtherValues, SchemaVersion};
use super::schema::{schema_fingerprint, trace};
use super::table::Table;
use crate::checkpoint::StateFileKind;
use crate::error::OperatorError;
use crate::exchange::CanonicalKey;
use crate::snapshot::{StateFileReader, StateName, write_entry};

/// Entries looked at to estimate what keys and values own on the heap.
const SAMPLE: usize = 64;
/// What an allocator keeps beside each heap block, roughly.
const HEAP_OVERHEAD_BYTES: usize = 16;

/// What can be a value in a state.
pub trait StateValue: Clone + Send + Serialize + DeserializeOwned + 'static {}
impl<V: Clone + Send + Serialize + DeserializeOwned + 'static> StateValue for V {}

/// A value per key.
///
/// ```
/// use cutwater_engine::snapshot::StateName;
/// use cutwater_engine::state::State;
///
/// let mut counts: State<String, u64> = State::new(StateName::new("counts").unwrap(), 1);
/// counts.update(&"JFK".to_string(), |n| *n += 1);
/// assert_eq!(counts.get(&"JFK".to_string()), Some(&1));
/// ```
pub struct State<K, V> {
    name: StateName,
    schema: SchemaVersion,
    /// What its entries may have been written as, each with its fingerprint.
    older: Vec<(u64, Older<V>)>,
    table: Table<K, V>,
    /// Where the running sweep puts what it comes to.
    encoder: Encoder,
    /// Frozen states whose sweep was finished by the next freeze.
    done: VecDeque<FrozenState>,
    heap: HeapSample,
}

impl<K, V> fmt::Debug for State<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({:?}, {:?})", self.name.as_str(), self.table)
    }
}

/// Keyed state has outgrown its limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "state {state:?} has {entries} entries and about {bytes} bytes, more than the {limit} bytes it may have; raise \
     Limits::state_bytes, use more workers, or let old keys expire"
)]
pub struct StateTooLarge {
    /// The state.
    pub state: String,
    /// Its entries.
    pub entries: usize,
    /// Its estimated bytes.
    pub bytes: usize,
    /// The limit.
    pub limit: usize,
}

impl From<StateTooLarge> for OperatorError {
    fn from(error: StateTooLarge) -> OperatorError {
        OperatorError::Failed(error.to_string())
    }
}

/// The last estimate of heap bytes per entry, and the number of entries it was made at.
#[derive(Debug, Default)]
struct HeapSample {
    entries: usize,
    bytes_per_entry: usize,
}

impl<K: StateKey, V: StateValue> State<K, V> {
    /// An empty state. `schema_version` is for the changes that the types don't show; see [`schema_fingerprint`].
    pub fn new(name: StateName, schema_version: u32) -> State<K, V> {
        let salt = xxh3_64(name.as_str().as_bytes());
        State {
            schema: SchemaVersion { version: schema_version, fingerprint: schema_fingerprint::<K, V>(schema_version) },
            older: vec![],
            table: Table::new(K::table_hash, salt),
            encoder: Encoder::default(),
            done: VecDeque::new(),
            heap: HeapSample::default(),
            name,
        }
    }

    /// The name.
    pub fn name(&self) -> &StateName {
        &self.name
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.table.get(key.table_hash(), key)
    }

    /// As [`State::get`] with the table hash of `key`.
    #[inline]
    pub fn get_hashed(&self, hash: u64, key: &K) -> Option<&V> {
        self.table.get(hash, key)
    }

    /// The value of `key`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.table.get_mut(key.table_hash(), key)
    }

    /// The value of `key`, to be changed; made by `init` when there is none.
    #[inline]
    pub fn entry(&mut self, key: &K, init: impl FnOnce() -> V) -> &mut V {
        self.table.entry(key.table_hash(), key, init)
    }

    /// As [`State::entry`] with the table hash of `key`.
    #[inline]
    pub fn entry_hashed(&mut self, hash: u64, key: &K, init: impl FnOnce() -> V) -> &mut V {
        self.table.entry(hash, key, init)
    }

    /// Changes the value of `key`, which is made by `V::default` when there is none.
    #[inline]
    pub fn update<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        self.table.update(key.table_hash(), key, change)
    }

    /// As [`State::update`] with the table hash of `key`.
    #[inline]
    pub fn update_hashed<R>(&mut self, hash: u64, key: &K, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        self.table.update(hash, key, change)
    }

    /// Calls `each` with every record and the value of its key, in their order; a new value is made by `init`. Faster than
    /// one [`State::entry`] after the other: see [`Table::visit`].
    #[inline]
    pub fn visit<'r, R>(
        &mut self,
        records: &'r [R],
        key: impl Fn(&'r R) -> &'r K,
        init: impl Fn() -> V,
        each: impl FnMut(&'r R, &mut V),
    ) {
        self.table.visit(records, key, K::table_hash, init, each);
    }

    /// Sets the value of `key` and returns the old one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.table.insert(key.table_hash(), key, value)
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.table.remove(key.table_hash(), key)
    }

    /// Removes every entry and gives it back, in no order that means anything.
    pub fn drain(&mut self) -> Vec<(K, V)> {
        self.table.drain()
    }

    /// The entries, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.table.iter()
    }

    /// Answers an error when the state is larger than `limit` bytes. Cheap enough for once per batch.
    ///
    /// # Errors
    /// [`StateTooLarge`].
    pub fn check_limit(&mut self, limit: usize) -> Result<(), StateTooLarge> {
        let bytes = KeyedState::bytes_estimate(self);
        if bytes <= limit {
            return Ok(());
        }
        Err(StateTooLarge { state: self.name.as_str().to_owned(), entries: self.len(), bytes, limit })
    }

    /// Sweeps a part of the table; what was frozen when that completes it.
    fn sweep_table(&mut self, words: usize) -> Option<FrozenState> {
        if !self.table.is_frozen() || !self.table.sweep(words, |key, value| self.encoder.entry(key, value)) {
            return None;
        }
        let rest = self.table.end_freeze();
        for (key, value) in &rest.copied {
            self.encoder.entry(key, value.as_ref());
        }
        Some(self.encoder.finish(&self.name, self.schema.fingerprint, rest.kind))
    }

    /// Heap bytes per entry, from the encoded size of a few entries; looked at again when the state has grown or shrunk
    /// by an eighth.
    fn heap_bytes_per_entry(&mut self) -> usize {
        let (now, then) = (self.table.len(), self.heap.entries);
        if std::mem::needs_drop::<(K, V)>() && now.abs_diff(then) > then / 8 {
            let start = xxh3_64(&now.to_le_bytes()) as usize;
            let (mut bytes, mut count) = (Vec::new(), 0);
            for entry in self.table.iter_from(start).take(SAMPLE) {
                // What can't be encoded is reported by the next checkpoint, not here.
                let _ = write_entry(&entry, &mut bytes);
                count += 1;
            }
            let bytes = bytes.len() + count * HEAP_OVERHEAD_BYTES;
            self.heap = HeapSample { entries: now, bytes_per_entry: bytes / usize::max(count, 1) };
        }
        self.heap.bytes_per_entry
    }
}

impl<K: StateKey, V: StateValue> KeyedState for State<K, V> {
    fn name(&self) -> &StateName {
        &self.name
    }

    fn schema(&self) -> u64 {
        self.schema.fingerprint
    }

    fn version(&self) -> u32 {
        self.schema.version
    }

    fn older(&self) -> Vec<SchemaVersion> {
        self.older
            .iter()
            .map(|(fingerprint, o)| SchemaVersion { version: o.version, fingerprint: *fingerprint })
            .collect()
    }

    fn adopt(&mut self, migrations: &dyn AnyMigrations) -> Result<(), OtherValues> {
        let older = migrations.older(TypeId::of::<V>()).and_then(|older| older.downcast::<Vec<Older<V>>>().ok());
        let Some(older) = older else {
            return Err(OtherValues { state: self.name.as_str().to_owned(), values: std::any::type_name::<V>() });
        };
        let key = trace::<K>();
        self.older = older.into_iter().map(|older| (older.fingerprint(&key), older)).collect();
        let version = migrations.version();
        self.schema = SchemaVersion { version, fingerprint: schema_fingerprint::<K, V>(version) };
        Ok(())
    }

    fn entries(&self) -> Arc<dyn EntryReader> {
        Arc::new(TypedEntries { schema: self.schema, older: self.older.clone(), key: PhantomData::<fn(K)> })
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn freeze(&mut self, kind: StateFileKind) -> StateFileKind {
        let overtaken = self.sweep_table(usize::MAX);
        self.done.extend(overtaken);
        self.table.freeze(kind)
    }

    fn sweep(&mut self, words: usize) -> Option<FrozenState> {
        self.done.pop_front().or_else(|| self.sweep_table(words))
    }

    fn is_sweeping(&self) -> bool {
        self.table.is_frozen() || !self.done.is_empty()
    }

    fn mark_all_dirty(&mut self) {
        self.table.mark_all_dirty();
    }

    fn load(&mut self, file: &mut StateFileReader, owned: &Ownership) -> Result<u64, StateLoadError> {
        load(&mut self.table, &self.name, self.schema.fingerprint, &self.older, file, owned)
    }

    fn continue_chain(&mut self) {
        self.table.continue_chain();
    }

    fn bytes_estimate(&mut self) -> usize {
        let frozen = self.encoder.bytes() + self.done.iter().map(FrozenState::bytes).sum::<usize>();
        self.table.bytes_estimate() + frozen + self.table.len() * self.heap_bytes_per_entry()
    }
}

/// Values per key and map key, each an entry of its own.
///
/// ```
/// use cutwater_engine::snapshot::StateName;
/// use cutwater_engine::state::MapState;
///
/// let mut windows: MapState<String, i64, u64> = MapState::new(StateName::new("windows").unwrap(), 1);
/// windows.update(&"JFK".to_string(), &60_000, |n| *n += 1);
/// assert_eq!(windows.remove(&"JFK".to_string(), &60_000), Some(1));
/// ```
#[derive(Debug)]
pub struct MapState<K, MK, MV> {
    state: State<Scoped<K, MK>, MV>,
}

impl<K, MK, MV> MapState<K, MK, MV>
where
    K: StateKey + CanonicalKey,
    MK: StateKey + CanonicalKey,
    MV: StateValue,
{
    /// An empty state; as [`State::new`].
    pub fn new(name: StateName, schema_version: u32) -> MapState<K, MK, MV> {
        MapState { state: State::new(name, schema_version) }
    }

    /// Number of entries over all keys.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// The value at `key` and `map_key`.
    #[inline]
    pub fn get(&self, key: &K, map_key: &MK) -> Option<&MV> {
        self.get_hashed(key.key_hash(), key, map_key)
    }

    /// As [`MapState::get`] with the hash of `key`.
    #[inline]
    pub fn get_hashed(&self, key_hash: u64, key: &K, map_key: &MK) -> Option<&MV> {
        self.state.table.get_by(scoped_hash(key_hash, map_key.key_hash()), |k| k.scope == *map_key && k.key == *key)
    }

    /// The value at `key` and `map_key`, to be changed; made by `init` when there is none.
    #[inline]
    pub fn entry(&mut self, key: &K, map_key: &MK, init: impl FnOnce() -> MV) -> &mut MV {
        self.entry_hashed(key.key_hash(), key, map_key, init)
    }

    /// As [`MapState::entry`] with the hash of `key`.
    #[inline]
    pub fn entry_hashed(&mut self, key_hash: u64, key: &K, map_key: &MK, init: impl FnOnce() -> MV) -> &mut MV {
        self.state.table.entry_by(
            scoped_hash(key_hash, map_key.key_hash()),
            |k| k.scope == *map_key && k.key == *key,
            || Scoped { key: key.clone(), scope: map_key.clone() },
            init,
        )
    }

    /// Changes the value at `key` and `map_key`, which is made by `MV::default` when there is none.
    #[inline]
    pub fn update<R>(&mut self, key: &K, map_key: &MK, change: impl FnOnce(&mut MV) -> R) -> R
    where
        MV: Default,
    {
        change(self.entry(key, map_key, MV::default))
    }

    /// Sets the value at `key` and `map_key` and returns the old one.
    pub fn insert(&mut self, key: K, map_key: MK, value: MV) -> Option<MV> {
        self.state.insert(Scoped { key, scope: map_key }, value)
    }

    /// Removes the entry at `key` and `map_key` and returns its value.
    pub fn remove(&mut self, key: &K, map_key: &MK) -> Option<MV> {
        let hash = scoped_hash(key.key_hash(), map_key.key_hash());
        self.state.table.remove_by(hash, |k| k.scope == *map_key && k.key == *key)
    }

    /// All entries of all keys, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &MK, &MV)> {
        self.state.iter().map(|(k, value)| (&k.key, &k.scope, value))
    }

    /// As [`State::check_limit`].
    ///
    /// # Errors
    /// [`StateTooLarge`].
    pub fn check_limit(&mut self, limit: usize) -> Result<(), StateTooLarge> {
        self.state.check_limit(limit)
    }
}

impl<K, MK, MV> OverState for MapState<K, MK, MV>
where
    K: StateKey + CanonicalKey,
    MK: StateKey + CanonicalKey,
    MV: StateValue,
{
    type Inner = State<Scoped<K, MK>, MV>;

    fn inner(&self) -> &Self::Inner {
        &self.state
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut self.state
    }
}
