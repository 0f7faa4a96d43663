//! Entries of state files as bytes: taken apart, brought to today's version, told to people. For what works on files without
//! loading a state: merging a chain, looking into a checkpoint, comparing two.
//!
//! An [`EntryReader`] knows the types of one state and nothing else; it can go to another thread.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handle::StateValue;
use super::key::StateKey;
use super::load::hex;
use super::migrate::{Older, OlderEntry, SchemaVersion};
use crate::snapshot::{read_entry, write_entry};

/// An entry as bytes of the state's own version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEntry<'a> {
    /// The encoded key. Equal keys have equal bytes.
    pub key: Cow<'a, [u8]>,
    /// The encoded value; `None` says that the key was removed.
    pub value: Option<Cow<'a, [u8]>>,
}

/// Takes entries of one state apart.
pub trait EntryReader: fmt::Debug + Send + Sync {
    /// The entry at the beginning of `bytes`, which then begin behind it. `schema` is the fingerprint in its file.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn read<'a>(&self, schema: u64, bytes: &mut &'a [u8]) -> Result<RawEntry<'a>, String>;

    /// The hash that says to which key group a key belongs.
    ///
    /// # Errors
    /// The bytes aren't a key.
    fn group_hash(&self, key: &[u8]) -> Result<u64, String>;

    /// A key as JSON, or in hexadecimal if JSON can't say it.
    fn show_key(&self, key: &[u8]) -> String;

    /// A value as JSON, or in hexadecimal if JSON can't say it.
    fn show_value(&self, value: &[u8]) -> String;

    /// The schema that its entries have, and those that it can read.
    fn schemas(&self) -> (SchemaVersion, Vec<SchemaVersion>);
}

/// The reader of a state with these types.
pub(super) struct TypedEntries<K, V> {
    pub(super) schema: SchemaVersion,
    pub(super) older: Vec<(u64, Older<V>)>,
    pub(super) key: PhantomData<fn(K)>,
}

impl<K, V> fmt::Debug for TypedEntries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypedEntries<{}, {}>", std::any::type_name::<K>(), std::any::type_name::<V>())
    }
}

/// The part of `before` that isn't in `after`, its end.
fn taken<'a>(before: &'a [u8], after: &[u8]) -> &'a [u8] {
    before.split_at(before.len() - after.len()).0
}

fn decode<T: DeserializeOwned>(bytes: &mut &[u8], what: &str) -> Result<T, String> {
    read_entry(bytes).map_err(|e| format!("its {what} doesn't decode: {e}"))
}

fn json<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> String {
    let decoded = read_entry::<T>(&mut &*bytes).ok().and_then(|value| serde_json::to_string(&value).ok());
    decoded.unwrap_or_else(|| format!("0x{}", hex(bytes)))
}

impl<K: StateKey, V: StateValue> EntryReader for TypedEntries<K, V> {
    fn read<'a>(&self, schema: u64, bytes: &mut &'a [u8]) -> Result<RawEntry<'a>, String> {
        let before = *bytes;
        decode::<K>(bytes, "key")?;
        let key = Cow::Borrowed(taken(before, bytes));
        if schema == self.schema.fingerprint {
            // An option of a value is a byte and the value.
            if !decode::<bool>(bytes, "value")? {
                return Ok(RawEntry { key, value: None });
            }
            let before = *bytes;
            decode::<V>(bytes, "value")?;
            return Ok(RawEntry { key, value: Some(Cow::Borrowed(taken(before, bytes))) });
        }
        let Some((_, older)) = self.older.iter().find(|(fingerprint, _)| *fingerprint == schema) else {
            return Err(format!("it was written with schema {schema:016x}, which this program doesn't know"));
        };
        let value = (older.read)(bytes).map_err(|error| match error {
            OlderEntry::Decode(reason) => format!("its value doesn't decode: {reason}"),
            OlderEntry::Refused { to, reason } => format!("the migration to version {to} says: {reason}"),
        })?;
        let encode = |value: V| {
            let mut bytes = vec![];
            write_entry(&value, &mut bytes).map_err(|e| e.to_string())?;
            Ok::<_, String>(Cow::Owned(bytes))
        };
        Ok(RawEntry { key, value: value.map(encode).transpose()? })
    }

    fn group_hash(&self, mut key: &[u8]) -> Result<u64, String> {
        Ok(decode::<K>(&mut key, "key")?.group_hash())
    }

    fn show_key(&self, key: &[u8]) -> String {
        json::<K>(key)
    }

    fn show_value(&self, value: &[u8]) -> String {
        json::<V>(value)
    }

    fn schemas(&self) -> (SchemaVersion, Vec<SchemaVersion>) {
        let older = self.older.iter();
        (
            self.schema,
            older.map(|(fingerprint, o)| SchemaVersion { version: o.version, fingerprint: *fingerprint }).collect(),
        )
    }
}
