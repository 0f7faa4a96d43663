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
}

/// A planted fault, which strikes once where it is a matter of once.
#[derive(Debug)]
pub(crate) struct Plant {
    fault: Fault,
    struck: Mutex<BTreeSet<(u32, u64)>>,
}

impl Plant {
    pub(crate) fn new(fault: Fault) -> Plant {
        Plant { fault, struck: Mutex::default() }
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    pub(crate) fn shows_aborted(&self) -> bool {
        self.fault == Fault::ShowsAborted
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
        match self.fault {
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
