//! A part of a state, shared between the states that don't differ in it, its digest computed once.
//!
//! A step changes one or two parts of a world. The others are neither copied nor hashed again; that is what makes hundreds of
//! thousands of states a second possible without packing them into bits.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_128;

/// A value that is copied when it is written.
pub struct Shared<T> {
    value: Rc<T>,
    digest: Cell<Option<u128>>,
}

impl<T> Shared<T> {
    /// Shares a value.
    pub fn new(value: T) -> Shared<T> {
        Shared { value: Rc::new(value), digest: Cell::new(None) }
    }

    /// True if nobody has edited one of the two since they were the same.
    pub fn is_same(&self, other: &Shared<T>) -> bool {
        Rc::ptr_eq(&self.value, &other.value)
    }
}

impl<T: Clone> Shared<T> {
    /// The value, to be changed; other holders keep what they have.
    pub fn edit(&mut self) -> &mut T {
        self.digest.set(None);
        Rc::make_mut(&mut self.value)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { value: self.value.clone(), digest: self.digest.clone() }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let digest = self.digest.get().unwrap_or_else(|| digest(&*self.value));
        self.digest.set(Some(digest));
        digest.hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// xxh3-128 of what a value's `Hash` says: lengths and variants included, so equal digests mean equal values, but for a chance
/// of about n^2 / 2^129 among n states.
pub fn digest<T: Hash + ?Sized>(value: &T) -> u128 {
    let mut said = Said(Vec::with_capacity(256));
    value.hash(&mut said);
    xxh3_128(&said.0)
}

/// What a value's `Hash` says, as bytes.
struct Said(Vec<u8>);

impl Hasher for Said {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only the bytes are asked for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_seen_by_its_editor_alone_and_changes_the_digest() {
        let one = Shared::new(vec![1, 2]);
        let before = digest(&one);
        let mut other = one.clone();
        assert!(other.is_same(&one));
        other.edit().push(3);
        assert_eq!((&*one, &*other), (&vec![1, 2], &vec![1, 2, 3]));
        assert_eq!(digest(&one), before);
        assert_ne!(digest(&other), before);
        other.edit().pop();
        assert_eq!(digest(&other), before, "equal values have equal digests, whatever their history");
    }
}
