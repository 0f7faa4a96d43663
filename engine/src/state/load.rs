//! Entries of a state file -> table.
//!
//! The promise: everything that the file holds for the owned keys is in the table, in today's types, or the load is an error and
//! the state is of no use. Entries of older versions are migrated one by one as they are read; those of today's version pay
//! nothing for that.

use super::erased::{Ownership, StateLoadError};
use super::handle::StateValue;
use super::key::StateKey;
use super::migrate::{Older, OlderEntry};
use super::table::Table;
use crate::checkpoint::StateFileKind;
use crate::snapshot::{StateFileReader, StateName, read_entry};

/// What couldn't be read, without where it stands.
enum BadEntry {
    Decode(String),
    Migration { key: String, from: u32, reason: String },
}

pub(super) fn load<K: StateKey, V: StateValue>(
    table: &mut Table<K, V>,
    name: &StateName,
    schema: u64,
    older: &[(u64, Older<V>)],
    file: &mut StateFileReader,
    owned: &Ownership,
) -> Result<u64, StateLoadError> {
    let header = file.header();
    if header.state != name.as_str() {
        let (expected, found) = (name.as_str().to_owned(), header.state.clone());
        return Err(StateLoadError::OtherState { file: file.name().to_owned(), expected, found });
    }
    let found = header.schema;
    if found == schema {
        let read = |bytes: &mut &[u8]| read_entry(bytes).map_err(|e| BadEntry::Decode(e.to_string()));
        return load_with(table, name, file, owned, read);
    }
    let Some((_, older)) = older.iter().find(|(fingerprint, _)| *fingerprint == found) else {
        return Err(StateLoadError::Schema { state: name.as_str().to_owned(), expected: schema, found });
    };
    let from = older.version;
    load_with(table, name, file, owned, |bytes: &mut &[u8]| {
        let before = *bytes;
        let key: K = read_entry(bytes).map_err(|e| BadEntry::Decode(e.to_string()))?;
        let encoded = &before[..before.len() - bytes.len()];
        let value = (older.read)(bytes).map_err(|error| {
            let reason = match error {
                OlderEntry::Decode(reason) => format!("it doesn't decode as its type: {reason}"),
                OlderEntry::Refused { to, reason } => format!("the step to version {to} says: {reason}"),
            };
            BadEntry::Migration { key: hex(encoded), from, reason }
        })?;
        Ok((key, value))
    })
}

fn load_with<K: StateKey, V: StateValue>(
    table: &mut Table<K, V>,
    name: &StateName,
    file: &mut StateFileReader,
    owned: &Ownership,
    read: impl Fn(&mut &[u8]) -> Result<(K, Option<V>), BadEntry>,
) -> Result<u64, StateLoadError> {
    let header = file.header();
    // Keys come in slot order. In a table that is too small they would pile up at its beginning, so new ones wait until
    // their number is known, unless it is known already.
    let all_new = header.kind == StateFileKind::Base && owned.has_all(header.groups) && table.is_empty();
    let whole = owned.has_all(header.groups);
    if all_new {
        table.reserve(usize::try_from(header.entries).unwrap_or(usize::MAX).min(file.entries_max()));
    }
    let (mut taken, mut seen, mut waiting) = (0, 0, Vec::new());
    while let Some(block) = file.next_block()? {
        let mut bytes = block.bytes;
        for _ in 0..block.entries {
            let (key, value) = read(&mut bytes).map_err(|bad| bad.at(name, block.file, seen))?;
            seen += 1;
            if whole || owned.has_hash(key.group_hash()) {
                taken += 1;
                waiting.extend(table.load(key.table_hash(), key, value, !all_new));
            }
        }
        if !bytes.is_empty() {
            let reason = format!("{} bytes follow the last entry of its block", bytes.len());
            let (state, file) = (name.as_str().to_owned(), block.file.to_owned());
            return Err(StateLoadError::Entry { state, file, entry: seen, reason });
        }
    }
    table.reserve(waiting.len());
    for (key, value) in waiting {
        table.load(key.table_hash(), key, Some(value), false);
    }
    Ok(taken)
}

impl BadEntry {
    fn at(self, name: &StateName, file: &str, entry: u64) -> StateLoadError {
        let (state, file) = (name.as_str().to_owned(), file.to_owned());
        match self {
            BadEntry::Decode(reason) => StateLoadError::Entry { state, file, entry, reason },
            BadEntry::Migration { key, from, reason } => {
                StateLoadError::Migration { state, file, entry, key, from, reason }
            }
        }
    }
}

/// Bytes for people. A long key is told by its beginning.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let mut text: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN {
        text += &format!("... ({} bytes)", bytes.len());
    }
    text
}
