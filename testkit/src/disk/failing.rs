//! The n-th operation of any kind fails: a plain write, a read, a new name as well as a sync.
//!
//! What a failed operation leaves is the worst that a caller must expect, and nothing worse: of a write the first half may be in
//! the file; a failed sync is Linux's ([`SyncFault`](super::SyncFault)); a change of a name, a length or a read did nothing, or
//! (under [`OpFault::OnceDone`]) did everything and answered an error all the same.

use std::io;

use super::SyncFault;
use super::state::{State, eio};
use super::trace::DiskOp;

/// How an operation fails with `EIO`, and what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpFault {
    /// It did nothing (of a write: its first half); everything later is sound.
    Once,
    /// It did what it was asked to do, and says that it didn't: the answer got lost on its way. A sync or a read fails as under
    /// [`OpFault::Once`].
    OnceDone,
    /// It did nothing, and neither does any later one, reads among them: the disk is gone.
    Forever,
    /// It did nothing, and neither does any later one that changes something or makes it durable: a file system that has
    /// made itself read-only. What is there can be read. A read that is chosen fails, and changes do from then on.
    ReadOnly,
}

/// The fault that is armed, and what it has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failing {
    asked: u64,
    armed: Option<(u64, OpFault)>,
    struck: bool,
}

impl Failing {
    /// Operations so far in this life.
    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    pub(crate) fn struck(&self) -> bool {
        self.struck
    }

    pub(crate) fn arm(&mut self, nth: u64, fault: OpFault) {
        (self.armed, self.struck) = (Some((self.asked + nth, fault)), false);
    }

    /// Counts an operation and says how it fails, if it does.
    fn next(&mut self, changes: bool) -> Option<OpFault> {
        self.asked += 1;
        let (at, fault) = self.armed?;
        let fails = match fault {
            OpFault::Once | OpFault::OnceDone => self.asked == at,
            OpFault::Forever => self.asked >= at,
            OpFault::ReadOnly => self.asked == at || self.asked > at && changes,
        };
        self.struck |= fails;
        fails.then_some(fault)
    }
}

impl State {
    /// What every operation that changes nothing asks first.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        self.alive()?;
        match self.failing.next(false) {
            Some(_) => Err(eio()),
            None => Ok(()),
        }
    }

    /// Carries out a step, or lets it fail if it is the chosen one.
    pub(crate) fn failing_step<T>(
        &mut self,
        op: DiskOp,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(fault) = self.failing.next(true) else { return act(self) };
        match op {
            DiskOp::SyncData | DiskOp::WriteSynced | DiskOp::SyncDir => {
                let armed = self.sync_fault.replace((1, SyncFault::KeepCache));
                let answer = act(self);
                self.sync_fault = armed;
                return answer;
            }
            DiskOp::Write => {
                self.halve_write = fault != OpFault::OnceDone;
                _ = act(self);
                self.halve_write = false;
            }
            _ if fault == OpFault::OnceDone => _ = act(self),
            _ => {}
        }
        self.trace.mark("EIO");
        Err(eio())
    }
}
