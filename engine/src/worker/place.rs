//! A worker's place among others, and its alarm clock: on threads of their own they run as they like and timely wakes them; where
//! they take turns ([`Turns`]) one step is one turn, and time is the platform's.
//!
//! This is all that differs between a run and a simulated run. It does not choose who goes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, Did, Spawn, Turn, Turns};
use timely::scheduling::Activator;
use timely::worker::Worker;

use crate::worker::attempt::Failure;

/// How long a worker may sleep when it has nothing to do; whatever it waits for wakes it earlier.
const PARK_MAX: Duration = Duration::from_millis(100);

/// A worker among others. Dropping it gives the place up, after everything that it did.
pub(crate) struct Place {
    turns: Option<(Arc<dyn Turns>, usize)>,
    alarms: Option<Alarms>,
}

impl Place {
    /// Takes the calling worker's place; where workers take turns, waits for the first.
    pub(crate) fn take(worker: &Worker, spawn: &dyn Spawn, clock: &Arc<dyn Clock>) -> Place {
        let turns = spawn.turns().map(|turns| (turns, worker.index()));
        if let Some((turns, me)) = &turns {
            turns.enter(*me, worker.peers());
        }
        let alarms = turns.is_some().then(|| Alarms { clock: clock.clone(), due: Rc::default() });
        Place { turns, alarms }
    }

    /// What operators of this worker wake themselves with later.
    pub(crate) fn alarms(&self) -> Option<Alarms> {
        self.alarms.clone()
    }

    /// One step of the worker; may wait before it or after it.
    ///
    /// # Errors
    /// Whoever keeps the turns wants the attempt to end.
    pub(crate) fn step(&self, worker: &mut Worker) -> Result<(), Failure> {
        let Some((turns, me)) = &self.turns else {
            worker.step_or_park(Some(PARK_MAX));
            return Ok(());
        };
        let until = self.alarms.as_ref().and_then(Alarms::ring);
        worker.step();
        // What ran in this step counts as active until the next one: nothing active means that nothing ran.
        let idle = worker.activations().borrow().empty_for().is_none();
        let did = if idle { Did::Nothing { until } } else { Did::Work };
        match turns.pass(*me, did) {
            Turn::Again => Ok(()),
            Turn::Leave { why } => Err(Failure::Fatal(why)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((turns, me)) = &self.turns {
            turns.leave(*me);
        }
    }
}

/// Operators that want to be activated later, by the platform's clock.
#[derive(Clone)]
pub(crate) struct Alarms {
    clock: Arc<dyn Clock>,
    due: Rc<RefCell<BTreeMap<Duration, Vec<Activator>>>>,
}

impl Alarms {
    fn set(&self, after: Duration, activator: &Activator) {
        let at = self.clock.monotonic() + after;
        self.due.borrow_mut().entry(at).or_default().push(activator.clone());
    }

    /// Activates whoever is due; answers when the next one will be.
    fn ring(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let mut due = self.due.borrow_mut();
        while let Some(first) = due.first_entry()
            && *first.key() <= now
        {
            first.remove().iter().for_each(Activator::activate);
        }
        due.first_key_value().map(|(at, _)| *at)
    }
}

/// Activates one operator, now or later.
#[derive(Clone)]
pub(crate) struct Alarm {
    activator: Activator,
    alarms: Option<Alarms>,
}

impl Alarm {
    pub(crate) fn new(activator: Activator, alarms: Option<Alarms>) -> Alarm {
        Alarm { activator, alarms }
    }

    /// The operator runs again in the worker's next step.
    pub(crate) fn activate(&self) {
        self.activator.activate();
    }

    /// The operator runs again after this time, or earlier for other reasons.
    pub(crate) fn activate_after(&self, delay: Duration) {
        match &self.alarms {
            Some(alarms) if !delay.is_zero() => alarms.set(delay, &self.activator),
            _ => self.activator.activate_after(delay),
        }
    }
}
