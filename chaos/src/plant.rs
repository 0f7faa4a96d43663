//! Faults that are planted, to see that the run finds them: what a wrong broker would show, put into what readers are answered.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;

use crate::wire::Seen;

/// What a broker could do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// An acknowledged batch isn't there.
    LosesABatch,
    /// A batch is there twice.
    KeepsABatchTwice,
    /// Records of aborted transactions are shown.
    ShowsAborted,
    /// The last stable offset goes back.
    TakesTheStableOffsetBack,
    /// Two records change places.
    ChangesPlaces,
    /// What an administrator aborted is acknowledged as committed.
    CommitsWhatWasAborted,
    /// Compaction takes the last value of a key.
    ForgetsALastValue,
    /// Compaction takes a tombstone before its time.
    ForgetsATombstone,
    /// An offset has another record than before.
    ChangesARecord,
    /// Retention takes a record that shall stay.
    TakesTooMuch,
    /// A record of a deleted topic is in the next one of its name.
    ShowsTheDeletedTopic,
    /// The offsets of a new topic go on where those of a deleted one ended.
    GoesOnWithOffsets,
}

/// Planted faults, which strike once where it is a matter of once.
#[derive(Debug)]
pub(crate) struct Plant {
    faults: Vec<Fault>,
    struck: Mutex<BTreeSet<(u32, u64)>>,
}

impl Plant {
    pub(crate) fn new(faults: Vec<Fault>) -> Plant {
        Plant { faults, struck: Mutex::default() }
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    pub(crate) fn shows_aborted(&self) -> bool {
        self.is(Fault::ShowsAborted)
    }

    /// Changes an answer of partition 0: the same records every time, so that all readers agree.
    pub(crate) fn change(&self, partition: u32, seen: &mut Seen) {
        if partition != 0 {
            return;
        }
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        if struck.is_empty()
            && let Some((offset, value)) = seen.records.get(seen.records.len() / 2).copied()
            && offset > 20
        {
            struck.insert((partition, offset));
            struck.insert((1, value));
        }
        let Some((_, victim)) = struck.iter().find(|(at, _)| *at == 0).copied() else { return };
        for fault in &self.faults {
            Plant::strike(*fault, victim, &mut struck, seen);
        }
    }

    fn strike(fault: Fault, victim: u64, struck: &mut BTreeSet<(u32, u64)>, seen: &mut Seen) {
        match fault {
            Fault::LosesABatch => seen.records.retain(|(offset, _)| *offset != victim),
            Fault::KeepsABatchTwice => {
                // The record before stands in the place of this one as well.
                if let Some(at) = seen.records.iter().position(|(offset, _)| *offset == victim).filter(|at| *at > 0) {
                    seen.records[at].1 = seen.records[at - 1].1;
                }
            }
            // Several times: the first answers may come to those who asked before anybody was told more.
            Fault::TakesTheStableOffsetBack if seen.last_stable > victim + 50 && struck.len() < 20 => {
                let times = struck.len() as u64;
                struck.insert((2, times));
                seen.last_stable = victim;
                seen.records.retain(|(offset, _)| *offset < victim);
            }
            Fault::ChangesPlaces => {
                if let Some(at) = seen.records.iter().position(|(offset, _)| *offset == victim).filter(|at| *at > 0) {
                    let (before, here) = (seen.records[at - 1].1, seen.records[at].1);
                    (seen.records[at - 1].1, seen.records[at].1) = (here, before);
                }
            }
            _ => {}
        }
    }
}
