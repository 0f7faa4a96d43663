//! An operator instance inside timely: pulls everything into the driver's queues, carries out what the driver decides.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, CrashPoints};

use crate::config::Limits;
use crate::element::Body;
use crate::error::OperatorError;
use crate::id::{CheckpointId, InstanceId};
use crate::observe::{LastCount, Standing};
use crate::operator::driver::{Driver, Effect, Outcome};
use crate::worker::attempt::Failure;
use crate::worker::edge::InEdge;
use crate::worker::offload::Offload;
use crate::worker::place::Alarm;
use crate::worker::ports::Ports;
use crate::worker::snapshotting::{InFlight, Snapshotting};

/// Counters of all instances of a worker, filled in when each has ended or is taken down.
pub(crate) type FinalCounters = Rc<RefCell<Vec<LastCount>>>;

/// One operator instance and everything it needs at run time.
pub(crate) struct Instance {
    id: InstanceId,
    name: String,
    driver: Driver,
    ports: Ports,
    inputs: Vec<InEdge>,
    /// For each input the number of its first channel.
    first_channel: Vec<usize>,
    /// Barriers below this one close the checkpoint that was gone back to.
    first: CheckpointId,
    /// `None` without checkpoints.
    snapshots: Option<Snapshotting>,
    offload: Rc<Offload>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    activator: Alarm,
    ended: FinalCounters,
    is_over: bool,
    crash: CrashPoints,
    started: bool,
    effects: Vec<Effect>,
    standing: Standing,
    /// Barriers that were reached when this was last looked at.
    barriers_seen: u64,
    /// When the first barrier of each checkpoint that isn't cut was reached, oldest first.
    met: VecDeque<(CheckpointId, Duration)>,
}

impl Instance {
    #[expect(clippy::too_many_arguments, reason = "called once, from the place that has all of this in hand")]
    pub(crate) fn new(
        id: InstanceId,
        name: String,
        driver: Driver,
        ports: Ports,
        inputs: Vec<InEdge>,
        first: CheckpointId,
        snapshots: Option<Snapshotting>,
        offload: Rc<Offload>,
        limits: Limits,
        clock: Arc<dyn Clock>,
        activator: Alarm,
        ended: FinalCounters,
        crash: CrashPoints,
        standing: Standing,
    ) -> Instance {
        let mut first_channel = vec![];
        let mut next = 0;
        for input in &inputs {
            first_channel.push(next);
            next += input.channels();
        }
        Instance {
            id,
            name,
            driver,
            ports,
            inputs,
            first_channel,
            first,
            snapshots,
            offload,
            limits,
            clock,
            activator,
            ended,
            is_over: false,
            crash,
            started: false,
            effects: vec![],
            standing,
            barriers_seen: 0,
            met: VecDeque::new(),
        }
    }

    /// A frame has come on an input.
    pub(crate) fn enqueue(&mut self, input: usize, from: u32, body: Body) {
        self.driver.enqueue(self.first_channel[input] + from as usize, body);
    }

    /// One activation.
    pub(crate) fn activate(&mut self) -> Result<(), Failure> {
        let now = self.clock.monotonic();
        if !self.started {
            self.started = true;
            let mut effects = std::mem::take(&mut self.effects);
            self.driver.start(now, &mut effects).map_err(|e| self.named(e))?;
            self.carry_out(&mut effects)?;
            self.effects = effects;
        }
        self.ports.flush_signals();
        let mut frames = self.limits.batches_per_step;
        loop {
            let room = self.ports.room();
            let mut effects = std::mem::take(&mut self.effects);
            let outcome = self.driver.step(1, room, now, &mut effects).map_err(|e| self.named(e))?;
            self.note_barriers(now);
            let moved = !effects.is_empty();
            self.carry_out(&mut effects)?;
            self.effects = effects;
            if self.driver.is_replaying() {
                self.crash.reach("operator.replaying");
            }
            if self.driver.is_aligning() {
                self.crash.reach("operator.barrier-on-some-inputs");
            }
            self.sweep()?;
            if outcome == Outcome::Waiting && !moved {
                break;
            }
            frames -= 1;
            if frames == 0 {
                self.activator.activate();
                break;
            }
        }
        let Instance { driver, inputs, first_channel, crash, .. } = self;
        driver.take_processed(|channel, processed| {
            if crash.is_planted("credit.not-returned") {
                return;
            }
            let input = first_channel.partition_point(|first| *first <= channel) - 1;
            inputs[input].give_back(channel - first_channel[input], processed);
        });
        self.report()?;
        if self.snapshots.as_ref().is_some_and(Snapshotting::is_sweeping) {
            self.activator.activate();
        }
        if let Some(at) = self.driver.wake_at(now) {
            self.activator.activate_after(at.saturating_sub(now));
        }
        Ok(())
    }

    /// Notes which barriers have come and which are missing, if that has changed.
    fn note_barriers(&mut self, now: Duration) {
        let reached = self.driver.barriers_reached();
        if reached == std::mem::replace(&mut self.barriers_seen, reached) {
            return;
        }
        if let Some((n, awaited)) = self.driver.awaited() {
            if self.met.back().is_none_or(|(met, _)| *met < n) {
                self.met.push_back((n, now));
            }
            self.standing.aligning(n, awaited.iter().map(|channel| channel.index()));
        }
    }

    fn carry_out(&mut self, effects: &mut Vec<Effect>) -> Result<(), Failure> {
        for effect in effects.drain(..) {
            match effect {
                Effect::Records(port, batch) => self.ports.records(port, batch),
                Effect::Control(body) => self.ports.signal(&body),
                Effect::Cut(n) if n < self.first => self.ports.closing_barrier(n),
                Effect::Cut(n) => self.cut(n, InFlight::Nothing)?,
                Effect::Overtook(n) => {
                    self.cut(n, InFlight::Follows)?;
                    self.crash.reach("operator.overtook");
                }
                Effect::Captured(n, state) => {
                    if let Some(snapshots) = &mut self.snapshots {
                        snapshots.in_flight(n, state);
                        self.crash.reach("operator.captured");
                        snapshots.advance(self.limits.sweep_words, &self.offload);
                    }
                }
                Effect::Ended => {
                    self.ports.end();
                    self.count_last();
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, n: CheckpointId, in_flight: InFlight) -> Result<(), Failure> {
        self.ports.barrier(n, &self.crash);
        let Some(snapshots) = &mut self.snapshots else {
            return Err(Failure::Fatal(format!("{}: a barrier in a job without checkpoints", self.name)));
        };
        let met = self.met.pop_front_if(|(met, _)| *met <= n);
        let reached = met.map_or_else(|| self.clock.monotonic(), |(_, at)| at);
        snapshots.cut(n, in_flight, self.driver.operator.as_mut(), &self.driver.counters, reached)?;
        snapshots.advance(self.limits.sweep_words, &self.offload);
        Ok(())
    }

    fn sweep(&mut self) -> Result<(), Failure> {
        if let Some(snapshots) = &mut self.snapshots
            && snapshots.is_sweeping()
        {
            snapshots.advance(self.limits.sweep_words, &self.offload);
        }
        Ok(())
    }

    fn report(&mut self) -> Result<(), Failure> {
        if let Some(snapshots) = &mut self.snapshots {
            while let Some((n, report, times)) = snapshots.poll()? {
                self.ports.report(n, report, times);
            }
        }
        Ok(())
    }

    /// Leaves its counters behind, once.
    fn count_last(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            let (counters, unconfirmed) = (self.driver.counters.clone(), self.driver.operator.unconfirmed());
            self.ended.borrow_mut().push(LastCount { instance: self.id, counters, unconfirmed });
        }
    }

    fn named(&self, error: OperatorError) -> Failure {
        match error {
            OperatorError::Failed(text) => Failure::Restart(format!("operator {:?}: {text}", self.name)),
            // Overtaken, or beyond help: a restart would be wrong.
            OperatorError::Sink(error) => Failure::from(error),
        }
    }
}

/// An attempt that failed takes its instances down where they are: what they had counted says what was lost.
impl Drop for Instance {
    fn drop(&mut self) {
        self.count_last();
    }
}
