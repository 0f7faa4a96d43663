//! Keys of state: a record's key, alone or with something beside it.
//!
//! Two hashes are taken of a state key. The *group hash* says to which key group, and so to which worker, the entry
//! belongs; it must come from the record's key alone, or an entry would move away from its records at a rescale. The *table
//! hash* finds the slot and covers everything.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exchange::CanonicalKey;

/// What can be a key in a state. Implemented for every [`CanonicalKey`], and for [`Scoped`].
pub trait StateKey: Eq + Clone + Send + Serialize + DeserializeOwned + 'static {
    /// The hash that decides the key group: that of the record's key.
    fn group_hash(&self) -> u64;
    /// The hash that decides the slot.
    fn table_hash(&self) -> u64;
}

impl<K: CanonicalKey + Eq + Clone + Send + Serialize + DeserializeOwned + 'static> StateKey for K {
    #[inline]
    fn group_hash(&self) -> u64 {
        self.key_hash()
    }

    #[inline]
    fn table_hash(&self) -> u64 {
        self.key_hash()
    }
}

/// A record's key with something beside it: the start of a window, the key within a map. The key group comes from `key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scoped<K, S> {
    /// The record's key.
    pub key: K,
    /// What is beside it.
    pub scope: S,
}

impl<K, S> StateKey for Scoped<K, S>
where
    K: CanonicalKey + Eq + Clone + Send + Serialize + DeserializeOwned + 'static,
    S: CanonicalKey + Eq + Clone + Send + Serialize + DeserializeOwned + 'static,
{
    #[inline]
    fn group_hash(&self) -> u64 {
        self.key.key_hash()
    }

    #[inline]
    fn table_hash(&self) -> u64 {
        scoped_hash(self.key.key_hash(), self.scope.key_hash())
    }
}

/// The table hash of a [`Scoped`] key, from the hashes of its parts.
#[inline]
pub fn scoped_hash(key_hash: u64, scope_hash: u64) -> u64 {
    // Both are well mixed already; the multiplication only keeps (a, b) and (b, a) apart.
    key_hash.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ scope_hash
}
