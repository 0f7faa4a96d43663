//! The transactional log as the protocol sees it: transactions by name, one fence per job, outcomes that are remembered.
//!
//! Everything here is durable when it has happened; what a crash leaves undone inside the log is the log's own affair and tested
//! there. What is still open when its attempt is fenced would be aborted by the fence; here it isn't even written down: a
//! transaction appears when it is prepared.

use std::collections::{BTreeMap, BTreeSet};

use cutwater_engine::checkpoint::Committable;

use crate::config::Rec;

/// The name of a transaction, without its owner: there is one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The attempt that wrote it.
    pub attempt: u8,
    /// The checkpoint it was prepared for.
    pub checkpoint: u8,
    /// The operator that is the sink.
    pub sink: u8,
    /// The worker.
    pub writer: u8,
}

/// The commit group's name in committables.
const GROUP: &str = "log";

impl TxnId {
    /// The handle that goes into a snapshot.
    pub fn committable(self) -> Committable {
        let handle = vec![self.attempt, self.checkpoint, self.sink, self.writer];
        Committable { group: GROUP.to_owned(), handle }
    }

    /// Reads [`TxnId::committable`] back.
    pub fn of(committable: &Committable) -> TxnId {
        match committable.handle[..] {
            [attempt, checkpoint, sink, writer] => TxnId { attempt, checkpoint, sink, writer },
            _ => panic!("a handle that the model didn't make"),
        }
    }
}

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Durable; commit can't be refused any more.
    Prepared,
    /// Visible to readers.
    Committed,
    /// Never to be visible.
    Aborted,
}

/// A transaction that is prepared, or whose outcome is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Txn {
    /// How far it has come.
    pub phase: Phase,
    /// What it contains.
    pub records: Vec<Rec>,
}

/// Why the log refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// A newer attempt has claimed the log.
    Fenced,
    /// These are unknown: never prepared, or forgotten.
    Unknown(Vec<TxnId>),
    /// These were aborted.
    Aborted(Vec<TxnId>),
}

/// The log.
#[derive(Clone, Debug, Default, Hash)]
pub struct Log {
    /// Attempts below are refused.
    pub fence: u8,
    /// Transactions, ended ones until they are forgotten.
    pub txns: BTreeMap<TxnId, Txn>,
    /// What a read-committed reader sees, per sink, in order.
    pub visible: BTreeMap<u8, Vec<Rec>>,
}

impl Log {
    /// Shuts out every attempt below `attempt`.
    pub fn claim(&mut self, attempt: u8) -> Result<(), LogError> {
        self.may(attempt)?;
        self.fence = attempt;
        Ok(())
    }

    /// Makes a transaction durable.
    pub fn prepare(&mut self, id: TxnId, records: Vec<Rec>) -> Result<(), LogError> {
        self.may(id.attempt)?;
        let before = self.txns.insert(id, Txn { phase: Phase::Prepared, records });
        assert!(before.is_none(), "{id:?} was begun twice");
        Ok(())
    }

    /// Ends transactions in one step; those that are committed stay so, unless `again` says to forget to look.
    pub fn commit(&mut self, by: u8, ids: &[TxnId], again: bool) -> Result<(), LogError> {
        self.may(by)?;
        let phase = |id: &TxnId| self.txns.get(id).map(|txn| txn.phase);
        let unknown: Vec<TxnId> = ids.iter().copied().filter(|id| phase(id).is_none()).collect();
        if !unknown.is_empty() {
            return Err(LogError::Unknown(unknown));
        }
        let aborted: Vec<TxnId> = ids.iter().copied().filter(|id| phase(id) == Some(Phase::Aborted)).collect();
        if !aborted.is_empty() {
            return Err(LogError::Aborted(aborted));
        }
        for id in ids {
            let txn = self.txns.get_mut(id).expect("looked for above");
            if txn.phase == Phase::Prepared || again {
                txn.phase = Phase::Committed;
                self.visible.entry(id.sink).or_default().extend(&txn.records);
            }
        }
        Ok(())
    }

    /// Aborts what is undecided and not in `keep`, and forgets every outcome that is not in `keep`.
    pub fn abort_all_but(&mut self, by: u8, keep: &BTreeSet<TxnId>) -> Result<(), LogError> {
        self.may(by)?;
        // An aborted transaction that nothing lists is forgotten at once.
        self.txns.retain(|id, _| keep.contains(id));
        Ok(())
    }

    /// Aborts what has one of these names.
    pub fn abort(&mut self, by: u8, ids: &BTreeSet<TxnId>) -> Result<(), LogError> {
        self.may(by)?;
        for (id, txn) in &mut self.txns {
            if txn.phase == Phase::Prepared && ids.contains(id) {
                txn.phase = Phase::Aborted;
            }
        }
        Ok(())
    }

    /// Forgets outcomes.
    pub fn forget(&mut self, by: u8, ids: &[TxnId]) -> Result<(), LogError> {
        self.may(by)?;
        self.txns.retain(|id, txn| txn.phase == Phase::Prepared || !ids.contains(id));
        Ok(())
    }

    fn may(&self, attempt: u8) -> Result<(), LogError> {
        if attempt < self.fence { Err(LogError::Fenced) } else { Ok(()) }
    }
}
