//! Asking for a savepoint, and hearing what became of it.
//!
//! An order is carried out by the first committed checkpoint that was started after it was taken up. If that one comes to nothing
//! the next one does; if the attempt ends, an order lives on in the next attempt of the run. An order that goes with a stop waits
//! for the checkpoint behind which nothing follows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::SavepointRecord;
use crate::id::CheckpointId;

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavepointState {
    /// It waits for a checkpoint.
    Waiting,
    /// It is being written.
    Writing(CheckpointId),
    /// It is there, whole and durable.
    Taken(SavepointRecord),
    /// There is none, and nobody tries any more.
    Failed(String),
}

/// Which checkpoint will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Any that begins after the order.
    Next,
    /// The last one of a job that was stopped.
    Stopped,
    /// The final one: everything was drained.
    Final,
}

/// An order for a savepoint. Cheap to clone.
#[derive(Clone)]
pub struct SavepointTicket(Arc<Ticket>);

struct Ticket {
    number: u64,
    dir: PathBuf,
    which: Which,
    /// The first checkpoint that will do, once known.
    since: Mutex<Option<CheckpointId>>,
    state: Mutex<SavepointState>,
    settled: Condvar,
}

impl fmt::Debug for SavepointTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SavepointTicket({}, {:?})", self.dir().display(), self.state())
    }
}

impl SavepointTicket {
    fn new(number: u64, dir: PathBuf, which: Which) -> SavepointTicket {
        let (since, state) = (Mutex::new(None), Mutex::new(SavepointState::Waiting));
        SavepointTicket(Arc::new(Ticket { number, dir, which, since, state, settled: Condvar::new() }))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// What has become of it so far.
    pub fn state(&self) -> SavepointState {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it is settled: the savepoint is there, or there will be none. A run that ends settles all its orders.
    ///
    /// # Errors
    /// Why there is none.
    pub fn wait(&self) -> Result<SavepointRecord, String> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*state {
                SavepointState::Taken(record) => return Ok(record.clone()),
                SavepointState::Failed(why) => return Err(why.clone()),
                SavepointState::Waiting | SavepointState::Writing(_) => {
                    state = self.0.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    pub(crate) fn set(&self, state: SavepointState) {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.0.settled.notify_all();
    }

    fn since(&self) -> std::sync::MutexGuard<'_, Option<CheckpointId>> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The orders of a run that aren't settled.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    open: Vec<SavepointTicket>,
    /// The run is over, and why nothing can be ordered any more.
    over: Option<String>,
}

impl Orders {
    pub(crate) fn place(&self, number: u64, dir: PathBuf, which: Which) -> SavepointTicket {
        let ticket = SavepointTicket::new(number, dir, which);
        let mut book = self.lock();
        match &book.over {
            Some(why) => ticket.set(SavepointState::Failed(why.clone())),
            None => book.open.push(ticket.clone()),
        }
        drop(book);
        ticket
    }

    /// An attempt begins: what the last one had taken up is to be taken up again.
    pub(crate) fn again(&self) {
        for ticket in &self.lock().open {
            *ticket.since() = None;
            ticket.set(SavepointState::Waiting);
        }
    }

    /// Takes up new orders: checkpoints from `next` on will do. `stopped`: the next one is the last, nothing is read behind it. True
    /// if a checkpoint should start soon.
    pub(crate) fn take_up(&self, next: CheckpointId, stopped: bool) -> bool {
        let mut hurry = false;
        for ticket in &self.lock().open {
            let mut since = ticket.since();
            if since.is_none() && (ticket.0.which != Which::Stopped || stopped) {
                *since = Some(next);
                hurry |= ticket.0.which == Which::Next;
            }
        }
        hurry
    }

    /// The orders that the committed checkpoint `n` carries out; each is given out once. With records in flight it isn't the last of
    /// a job that was stopped.
    pub(crate) fn due(&self, n: CheckpointId, is_final: bool, in_flight: bool) -> Vec<SavepointTicket> {
        let mut due = vec![];
        for ticket in &self.lock().open {
            let begun_after = ticket.since().is_some_and(|since| since <= n);
            let fits = match ticket.0.which {
                Which::Next => begun_after,
                Which::Stopped => begun_after && !in_flight,
                Which::Final => begun_after && is_final,
            };
            if fits && ticket.state() == SavepointState::Waiting {
                ticket.set(SavepointState::Writing(n));
                due.push(ticket.clone());
            }
        }
        due
    }

    /// An order is settled.
    pub(crate) fn settle(&self, ticket: &SavepointTicket, state: SavepointState) {
        self.lock().open.retain(|other| !Arc::ptr_eq(&other.0, &ticket.0));
        ticket.set(state);
    }

    /// A run begins. Orders may have been placed before.
    pub(crate) fn begin(&self) {
        self.lock().over = None;
    }

    /// The run is over.
    pub(crate) fn end(&self, why: &str) {
        let mut book = self.lock();
        book.over = Some(why.to_string());
        for ticket in book.open.drain(..) {
            ticket.set(SavepointState::Failed(why.to_string()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_carried_out_by_the_first_checkpoint_that_began_after_it() {
        let orders = Orders::default();
        let next = orders.place(1, "a".into(), Which::Next);
        let stop = orders.place(2, "b".into(), Which::Stopped);
        let drain = orders.place(3, "c".into(), Which::Final);
        let n = CheckpointId;
        assert!(orders.due(n(9), true, false).is_empty(), "nobody has taken them up");
        assert!(orders.take_up(n(5), false) && !orders.take_up(n(6), false), "once");
        assert!(orders.due(n(4), true, false).is_empty(), "it began before");
        let numbers = |due: Vec<SavepointTicket>| due.iter().map(SavepointTicket::number).collect::<Vec<_>>();
        assert_eq!(numbers(orders.due(n(5), false, false)), [1]);
        assert_eq!((next.state(), stop.state()), (SavepointState::Writing(n(5)), SavepointState::Waiting));
        // The attempt fails before it is written.
        orders.again();
        assert!(orders.take_up(n(7), true));
        assert_eq!(numbers(orders.due(n(7), false, true)), [1], "what is in flight is still to come");
        assert_eq!(numbers(orders.due(n(8), false, false)), [2]);
        assert_eq!(numbers(orders.due(n(9), true, false)), [3]);
        orders.settle(&next, SavepointState::Failed("the disk is full".into()));
        assert_eq!(next.wait(), Err("the disk is full".to_string()));
        orders.end("the run is over");
        assert_eq!((stop.wait(), drain.wait().is_err()), (Err("the run is over".to_string()), true));
        assert!(orders.place(4, "d".into(), Which::Next).wait().is_err(), "nobody would ever settle it");
    }
}
