//! Connection fencing: what an older connection of a producer still sends must not reach its next transaction.
//!
//! In the older transaction protocol (V1) requests carry no number of their transaction. A delayed end of transaction n, sent
//! again over a new connection by its own client and then arriving twice, could end transaction n+1 of the same producer and
//! epoch (KAFKA-17754, found by Jepsen). So connections are numbered as they are accepted, and for each transactional id the
//! newest one that was heard wins: valid requests of an older one are dropped with their connection. One producer uses one
//! connection at a time for them, in sarama, librdkafka and Java alike. Offsets for a transaction may come over a connection
//! of their own (that of the group's coordinator), so that these are told apart by themselves. The newer protocol (V2) needs none of this: every
//! transaction there has an epoch of its own.
//!
//! Only requests that are valid otherwise count: a zombie with an old epoch must not shut out its successor, and hears of its
//! epoch rather than find its connection closed.

use std::collections::HashMap;
use std::sync::Mutex;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Beginning and ending transactions.
    Transactions,
    /// Offsets for them.
    Offsets,
}

/// The newest connections of each transactional id.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    newest: Mutex<HashMap<String, [u64; 2]>>,
}

impl Fences {
    /// Whether a request of this connection comes too late.
    pub(crate) fn is_late(&self, speaks: Speaks, id: &str, connection: u64) -> bool {
        let newest = self.newest.lock().expect("no panic under this lock");
        newest.get(id).is_some_and(|newest| connection < newest[speaks as usize])
    }

    /// A valid request has come over this connection.
    pub(crate) fn heard(&self, speaks: Speaks, id: &str, connection: u64) {
        let mut newest = self.newest.lock().expect("no panic under this lock");
        let newest = &mut newest.entry(id.to_string()).or_default()[speaks as usize];
        *newest = (*newest).max(connection);
    }

    /// How many ids it knows.
    pub(crate) fn len(&self) -> usize {
        self.newest.lock().expect("no panic under this lock").len()
    }

    /// Forgets ids that the log doesn't know any more.
    pub(crate) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.newest.lock().expect("no panic under this lock").retain(|id, _| known(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_connection_is_late_once_a_newer_one_was_heard() {
        let fences = Fences::default();
        assert!(!fences.is_late(Speaks::Transactions, "t", 3), "nobody was heard");
        fences.heard(Speaks::Transactions, "t", 3);
        assert!(!fences.is_late(Speaks::Transactions, "t", 3) && !fences.is_late(Speaks::Transactions, "t", 4));
        fences.heard(Speaks::Transactions, "t", 5);
        fences.heard(Speaks::Transactions, "t", 4);
        assert!(fences.is_late(Speaks::Transactions, "t", 4), "the newest stays");
        assert!(!fences.is_late(Speaks::Transactions, "u", 1), "each id by itself");
        assert!(!fences.is_late(Speaks::Offsets, "t", 3), "offsets have a connection of their own");
        fences.heard(Speaks::Offsets, "t", 2);
        assert!(fences.is_late(Speaks::Offsets, "t", 1) && fences.is_late(Speaks::Transactions, "t", 4));
        fences.retain(|id| id != "t");
        assert!(!fences.is_late(Speaks::Transactions, "t", 1));
    }
}
