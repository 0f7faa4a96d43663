//! Trigger and coordinator around the product's [`Ledger`](cutwater_engine::checkpoint::Ledger), as `engine/src/worker/control.rs` wires
//! them; and what an instance's snapshot does between its cut and its report.

use std::rc::Rc;

use cutwater_engine::checkpoint::{Counters, SnapshotRef, SnapshotReport, StateFile, StateFileKind, Trigger};
use cutwater_engine::id::{CheckpointId, InstanceId};
use cutwater_engine::snapshot::{ManifestName, StateFileName, StateName, WrittenState};

use crate::fault::Fault;
use crate::instance::Cut;
use crate::log::TxnId;
use crate::protocol::Protocol;
use crate::search::Violation;
use crate::start::{EARLY, LATE};
use crate::store::{Body, StateBody, Unsynced};
use crate::world::{Control, End, Job, Running, World};

/// How the I/O thread fares with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Well.
    Written,
    /// The state can't be written.
    Failed,
    /// The report is lost, the capability given up.
    Lost,
    /// The report is sent twice.
    Repeated,
}

impl Protocol {
    /// True unless the store finds that a newer attempt is claimed.
    pub(crate) fn may_write(&self, world: &World, life: usize) -> bool {
        world.store.is_newest(World::number(life)) || self.config.has(Fault::StoreNotFenced)
    }

    /// What the trigger does next.
    pub(crate) fn trigger(&self, running: &Running) -> Option<crate::world::Action> {
        use crate::world::Action;
        let control = &running.control;
        if !control.trigger_open {
            return None;
        }
        let exhausted = || running.instances.iter().filter(|i| i.aligner.is_none()).all(|i| i.exhausted);
        if self.config.has(Fault::EndBeforeCommit) && exhausted() {
            return Some(Action::Close);
        }
        match control.ledger.poll(EARLY) {
            Trigger::Start => Some(Action::Trigger(false)),
            Trigger::Close => Some(Action::Close),
            Trigger::Wait | Trigger::WaitUntil(_) => {
                let due = control.ledger.poll(LATE) == Trigger::Start;
                (due && (control.checkpoints_left > 0 || exhausted())).then_some(Action::Trigger(true))
            }
        }
    }

    /// A checkpoint starts: its barrier is on its way to every source.
    pub(crate) fn start_checkpoint(&self, world: &mut World, life: usize, is_due: bool) {
        let running = world.running(life);
        let control = running.control.edit();
        if is_due {
            control.checkpoints_left = control.checkpoints_left.saturating_sub(1);
        }
        let n = control.ledger.start(LATE);
        for source in running.instances.iter_mut().filter(|i| i.aligner.is_none() && !i.ended) {
            source.edit().barriers.push_back(n);
        }
    }

    /// A source has cut: it reports at once.
    pub(crate) fn source_cut(
        &self,
        world: &mut World,
        life: usize,
        place: usize,
        n: CheckpointId,
    ) -> Result<(), Violation> {
        let running = world.running(life);
        let instance = running.instances[place].edit();
        instance.held.remove(&n);
        let report = SnapshotReport::Durable(instance.part());
        running.control.edit().ledger.report(n, report);
        self.reported(world, life)
    }

    /// The next step of an instance's oldest snapshot.
    pub(crate) fn write(&self, world: &mut World, life: usize, place: usize, fate: Fate) -> Result<(), Violation> {
        let instance = &world.running(life).instances[place];
        let (id, cut) = (instance.id, instance.writing[0].clone());
        let mut committables = vec![];
        if !cut.sealed.is_empty() {
            let txn = txn_id(life, id, cut.checkpoint);
            match world.log.edit().prepare(txn, cut.sealed.clone()) {
                Ok(()) => self.check().may_write(world, life, "prepares")?,
                Err(_) => {
                    world.end(life, End::Fenced);
                    return Ok(());
                }
            }
            committables.push(txn.committable());
        }
        let file = cut.frozen.as_ref().and_then(|(kind, counts)| {
            let is_needed = *kind == StateFileKind::Base || !counts.is_empty();
            is_needed.then(|| state_file(life, id, &cut, *kind, counts.len()))
        });
        if let (Some(file), Some((kind, counts)), false) = (&file, &cut.frozen, cut.is_written || fate == Fate::Failed)
        {
            let body = StateBody { kind: *kind, counts: counts.clone() };
            world.store.edit().create_file(file.name.clone(), body, !self.config.power);
            if self.config.power && !self.config.has(Fault::ReportBeforeSync) {
                world.running(life).instances[place].edit().writing[0].is_written = true;
                return Ok(());
            }
        }
        if let Some(file) = file.as_ref().filter(|_| cut.is_written) {
            world.store.edit().unsynced.remove(&Unsynced::File(file.name.clone()));
        }
        let instance = world.running(life).instances[place].edit();
        instance.writing.pop_front();
        instance.held.remove(&cut.checkpoint);
        let kept = match (&mut instance.chain, &cut.frozen) {
            (Some(chain), Some((kind, _))) => {
                let lost =
                    fate == Fate::Failed && !(self.config.has(Fault::DirtySetLost) && *kind == StateFileKind::Delta);
                let file = file.filter(|_| fate != Fate::Failed);
                let written = WrittenState { state: chain.name().clone(), schema: 0, kind: *kind, file };
                if lost {
                    chain.lost();
                    false
                } else {
                    chain.push(written).is_ok() && fate != Fate::Failed
                }
            }
            _ => true,
        };
        let report = match kept {
            true => SnapshotReport::Durable(SnapshotRef { committables, ..instance.part() }),
            false => SnapshotReport::Failed { instance: id, reason: String::new() },
        };
        let control = world.running(life).control.edit();
        if fate != Fate::Lost {
            control.ledger.report(cut.checkpoint, report.clone());
        }
        if fate == Fate::Repeated {
            match self.config.has(Fault::ReportsCounted) {
                true => believe_count(control, cut.checkpoint),
                false => _ = control.ledger.report(cut.checkpoint, report),
            }
        }
        self.reported(world, life)
    }

    /// Something about the ack port has changed.
    fn reported(&self, world: &mut World, life: usize) -> Result<(), Violation> {
        // Seen at once, but where it matters that a checkpoint takes too long although everybody has reported.
        if self.is_frontier_lazy() { Ok(()) } else { self.see_frontier(world, life) }
    }

    /// The frontier is a step of its own.
    pub(crate) fn is_frontier_lazy(&self) -> bool {
        self.config.timeouts > 0
    }

    /// The coordinator looks at the ack frontier, and publishes what has become complete.
    pub(crate) fn see_frontier(&self, world: &mut World, life: usize) -> Result<(), Violation> {
        let is_lazy = self.is_frontier_lazy();
        let running = world.running(life);
        let frontier = running.frontier();
        let control = running.control.edit();
        if is_lazy {
            control.seen = Some(frontier);
        }
        if self.config.has(Fault::FrontierAlone) {
            let newest = CheckpointId(control.ledger.next().0 - 1);
            if frontier.is_none_or(|frontier| newest < frontier) {
                for missing in control.ledger.awaited() {
                    control.ledger.report(newest, SnapshotReport::Durable(nothing(missing)));
                }
            }
        }
        if control.ledger.frontier(frontier).is_err() {
            return self.fail(world, life);
        }
        self.publish_next(world, life);
        Ok(())
    }

    /// An attempt gives up; the run goes on with the next one.
    fn fail(&self, world: &mut World, life: usize) -> Result<(), Violation> {
        let was_newest = world.is_newest(life);
        world.end(life, End::Failed);
        if was_newest {
            if world.lives.len() >= self.config.lives_max() {
                let found = format!("attempt {} ends without anybody's fault", life + 1);
                return Err(Violation { promise: "attempts end for a reason", found });
            }
            world.claim(&self.config);
        }
        Ok(())
    }

    /// Hands the next manifest to the I/O thread, if there is one.
    pub(crate) fn publish_next(&self, world: &mut World, life: usize) {
        let workers = world.lives[life].workers;
        let control = world.running(life).control.edit();
        let Some(draft) = control.ledger.next_publication() else { return };
        let carried = if self.config.has(Fault::CarriedDropped) { vec![] } else { draft.carried };
        let body = Body { is_final: draft.is_final, workers, snapshots: draft.snapshots, carried };
        let name = ManifestName { checkpoint: draft.checkpoint, attempt: World::attempt(life) };
        if self.config.has(Fault::PermitBeforePublish) {
            control.submit(self.commit_thread(), Job::Commit(draft.checkpoint, body.transactions()));
        }
        control.submit(0, Job::Publish(name, Rc::new(body)));
    }

    /// The I/O thread that commits, records and retires.
    pub(crate) fn commit_thread(&self) -> usize {
        usize::from(self.config.parallel_io)
    }
}

impl Running {
    /// The ack frontier: the lowest capability that any instance holds on its ack port.
    pub fn frontier(&self) -> Option<CheckpointId> {
        self.instances.iter().filter_map(|instance| instance.ack_at()).min()
    }
}

impl Control {
    pub(crate) fn submit(&mut self, thread: usize, job: Job) {
        self.io[thread].push_back(job);
    }

    pub(crate) fn done(&mut self, thread: usize) {
        self.io[thread].pop_front();
        self.stage[thread] = 0;
    }
}

/// The fault's way: as many reports as instances are enough.
fn believe_count(control: &mut Control, n: CheckpointId) {
    if let Some(missing) = control.ledger.awaited().first() {
        control.ledger.report(n, SnapshotReport::Durable(nothing(*missing)));
    }
    if control.ledger.awaited().is_empty() {
        _ = control.ledger.frontier(Some(n.next()));
    }
}

/// The part of an instance that has said nothing, as somebody would take it who doesn't ask.
fn nothing(instance: InstanceId) -> SnapshotRef {
    SnapshotRef {
        instance,
        chains: vec![],
        blobs: vec![],
        committables: vec![],
        counters: Counters::default(),
        exhausted: true,
    }
}

fn txn_id(life: usize, instance: InstanceId, checkpoint: CheckpointId) -> TxnId {
    TxnId {
        attempt: World::number(life),
        checkpoint: u8::try_from(checkpoint.0).expect("few checkpoints"),
        sink: u8::try_from(instance.operator.0).expect("few operators"),
        writer: u8::try_from(instance.worker.0).expect("few workers"),
    }
}

fn state_file(life: usize, instance: InstanceId, cut: &Cut, kind: StateFileKind, entries: usize) -> StateFile {
    let name = StateFileName {
        checkpoint: cut.checkpoint,
        attempt: World::attempt(life),
        instance,
        state: StateName::new("counts").expect("a good name"),
        kind,
    };
    // Larger than one delta, smaller than two.
    let bytes = if kind == StateFileKind::Base { 2 } else { 1 };
    StateFile { name: name.to_string(), bytes, checksum: 0, entries: entries as u64, kind }
}
