//! Whose a producer id is: known of those that were given out outside of transactions since the start, where rights are asked for.
//!
//! Whoever may write to a topic could otherwise write under another's producer id, and fence it there by a higher epoch. Transactional
//! ids have rights of their own, and the log refuses ids that it never gave out.
//!
//! It deliberately keeps nothing on the disk: after a restart an id is anybody's who may write to the topic, until it is asked for anew.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// So many are remembered; the oldest are forgotten first.
const REMEMBERED: usize = 100_000;

/// Users by the producer ids that they were given.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    given: RwLock<BTreeMap<i64, Arc<str>>>,
}

impl Producers {
    /// This id was given to this user.
    pub(crate) fn give(&self, producer: i64, user: &str) {
        let mut given = self.given.write().expect("no panic under this lock");
        // Ids rise: the smallest is the oldest.
        while given.len() >= REMEMBERED {
            given.pop_first();
        }
        given.insert(producer, user.into());
    }

    /// Whether this user may write under this id: not if it was given to another.
    pub(crate) fn may(&self, producer: i64, user: &str) -> bool {
        self.given.read().expect("no panic under this lock").get(&producer).is_none_or(|given| &**given == user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_users_and_the_oldest_are_forgotten_first() {
        let producers = Producers::default();
        for id in 0..REMEMBERED as i64 + 1 {
            producers.give(id, if id % 2 == 0 { "alice" } else { "bob" });
        }
        assert!(producers.may(2, "alice") && !producers.may(2, "bob") && producers.may(3, "bob"));
        assert!(producers.may(0, "bob"), "forgotten");
        assert!(producers.may(i64::MAX, "bob"), "not known of");
        assert_eq!(producers.given.read().expect("no panic").len(), REMEMBERED);
    }
}
