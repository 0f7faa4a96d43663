//! A list per key that grows at its end and can be walked.
//!
//! It is flat, as [`MapState`](super::MapState) is: each element is an entry of its own, so a checkpoint writes what was
//! appended and not the lists. The first entry of a list says how long it is, and is written again with each append.

use serde::{Deserialize, Serialize};

use super::erased::OverState;
use super::handle::{State, StateTooLarge, StateValue};
use super::key::{Scoped, StateKey};
use crate::exchange::CanonicalKey;
use crate::snapshot::StateName;

/// An element. What is in snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element<T> {
    /// The length of the list, in its first element; 0 in the others.
    list_len: u64,
    value: T,
}

impl<T> Element<T> {
    /// The same with another value in it.
    pub(crate) fn try_map<B>(self, change: impl Fn(T) -> Result<B, String>) -> Result<Element<B>, String> {
        Ok(Element { list_len: self.list_len, value: change(self.value)? })
    }
}

/// A list per key. See the head of the module.
///
/// ```
/// use cutwater_engine::snapshot::StateName;
/// use cutwater_engine::state::ListState;
///
/// let mut stops: ListState<String, u64> = ListState::new(StateName::new("stops").unwrap(), 1);
/// stops.push(&"JFK".to_string(), 5);
/// stops.push(&"JFK".to_string(), 7);
/// assert_eq!(stops.iter(&"JFK".to_string()).copied().collect::<Vec<_>>(), [5, 7]);
/// ```
#[derive(Debug)]
pub struct ListState<K, T> {
    state: State<Scoped<K, u64>, Element<T>>,
}

impl<K: StateKey + CanonicalKey, T: StateValue> ListState<K, T> {
    /// An empty state; as [`State::new`].
    pub fn new(name: StateName, schema_version: u32) -> ListState<K, T> {
        ListState { state: State::new(name, schema_version) }
    }

    /// The length of the list of `key`.
    pub fn len_of(&self, key: &K) -> u64 {
        self.state.get(&Scoped { key: key.clone(), scope: 0 }).map_or(0, |first| first.list_len)
    }

    /// Puts `value` at the end of the list of `key`.
    pub fn push(&mut self, key: &K, value: T) {
        let mut place = Scoped { key: key.clone(), scope: 0 };
        match self.state.get_mut(&place) {
            None => {
                self.state.insert(place, Element { list_len: 1, value });
            }
            Some(first) => {
                place.scope = first.list_len;
                first.list_len += 1;
                self.state.insert(place, Element { list_len: 0, value });
            }
        }
    }

    /// The list of `key`, from its first element.
    pub fn iter<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a T> + use<'a, K, T> {
        let mut place = Scoped { key: key.clone(), scope: 0 };
        (0..self.len_of(key)).map_while(move |index| {
            place.scope = index;
            self.state.get(&place).map(|element| &element.value)
        })
    }

    /// Removes the list of `key` and gives it back.
    pub fn take(&mut self, key: &K) -> Vec<T> {
        let mut place = Scoped { key: key.clone(), scope: 0 };
        let mut taken = vec![];
        for index in 0..self.len_of(key) {
            place.scope = index;
            taken.extend(self.state.remove(&place).map(|element| element.value));
        }
        taken
    }

    /// As [`State::check_limit`].
    ///
    /// # Errors
    /// [`StateTooLarge`].
    pub fn check_limit(&mut self, limit: usize) -> Result<(), StateTooLarge> {
        self.state.check_limit(limit)
    }
}

impl<K: StateKey + CanonicalKey, T: StateValue> OverState for ListState<K, T> {
    type Inner = State<Scoped<K, u64>, Element<T>>;

    fn inner(&self) -> &Self::Inner {
        &self.state
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::KeyedState;

    #[test]
    fn lists_of_different_keys_grow_and_go_on_their_own() {
        let mut lists: ListState<u64, String> = ListState::new(StateName::new("lists").expect("fits"), 1);
        for n in 0..200u64 {
            lists.push(&(n % 3), n.to_string());
        }
        let of = |lists: &ListState<u64, String>, key| lists.iter(&key).cloned().collect::<Vec<_>>();
        let expected = |key: u64| (0..200).filter(|n| n % 3 == key).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!((of(&lists, 0), lists.len_of(&1)), (expected(0), 67));
        assert_eq!(lists.take(&1), expected(1));
        assert_eq!((of(&lists, 1), lists.take(&1)), (vec![], vec![]));
        lists.push(&1, "again".into());
        assert_eq!((of(&lists, 1), of(&lists, 2)), (vec!["again".to_string()], expected(2)));
        assert_eq!(KeyedState::len(&lists), 67 + 1 + 66);
    }
}
