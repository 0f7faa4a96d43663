//! The I/O threads of the control plane: what must be durable is done there, in the order in which it was handed over.
//!
//! Publishing is four steps (look for a newer attempt, make the name, make it durable, look again), a commit one, recording and
//! retiring several; between any two the attempt may die. Looking is a step of its own only where a newer attempt may come.

use std::rc::Rc;

use cutwater_engine::checkpoint::{Published, StoredManifest, retire};
use cutwater_engine::snapshot::ManifestName;

use crate::fault::Fault;
use crate::log::{LogError, TxnId};
use crate::protocol::Protocol;
use crate::search::Violation;
use crate::store::{Body, Unsynced};
use crate::world::{Control, End, Job, Kept, Retiring, World};

/// The parts of retiring, each a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retire {
    Check,
    Manifests,
    Records,
    Files,
    Forget,
}

impl Protocol {
    /// The next step of an I/O thread.
    pub(crate) fn io(&self, world: &mut World, life: usize, thread: usize) -> Result<(), Violation> {
        let control = &world.running(life).control;
        let (job, stage) = (control.io[thread][0].clone(), control.stage[thread]);
        match job {
            Job::Publish(name, body) => self.publish(world, life, thread, stage, name, &body),
            Job::Commit(n, ids) => {
                let one_by_one = self.config.has(Fault::CommitOneByOne) && ids.len() > 1;
                let now = if one_by_one { &ids[usize::from(stage)..=usize::from(stage)] } else { &ids[..] };
                if !self.commit(world, life, now)? {
                    return Ok(());
                }
                let control = world.running(life).control.edit();
                if one_by_one && usize::from(stage) + 1 < ids.len() {
                    control.stage[thread] += 1;
                    return Ok(());
                }
                control.done(thread);
                let name = ManifestName { checkpoint: n, attempt: World::attempt(life) };
                control.submit(self.commit_thread(), Job::Record(name));
                if self.config.has(Fault::ForgetAtCommit) {
                    _ = world.log.edit().forget(World::number(life), &ids);
                }
                Ok(())
            }
            Job::Record(name) => {
                if stage == 0 && !self.may_write(world, life) {
                    world.end(life, End::Fenced);
                    return Ok(());
                }
                if stage == 0 && self.config.is_fine() {
                    world.running(life).control.edit().stage[thread] = 1;
                    return Ok(());
                }
                world.store.edit().committed.insert(name);
                let control = world.running(life).control.edit();
                control.done(thread);
                for kept in control.timeline.iter_mut().filter(|kept| kept.name == name) {
                    kept.committed = true;
                }
                control.ledger.committed(name.checkpoint);
                self.retire_next(control);
                Ok(())
            }
            Job::Retire(retiring) => {
                self.retire(world, life, thread, stage, &retiring);
                Ok(())
            }
        }
    }

    /// Looks for a newer attempt, makes the name, makes it durable, looks again.
    fn publish(
        &self,
        world: &mut World,
        life: usize,
        thread: usize,
        from: u8,
        name: ManifestName,
        body: &Rc<Body>,
    ) -> Result<(), Violation> {
        for stage in from..4 {
            match stage {
                1 => {
                    world.store.edit().create_manifest(name, body.clone(), !self.config.power);
                    self.check().named(world, name, world.is_newest(life))?;
                }
                2 if !self.config.has(Fault::PermitBeforeSync) => {
                    world.store.edit().unsynced.remove(&Unsynced::Manifest(name));
                }
                2 => {}
                _ => {
                    if !self.may_write(world, life) {
                        world.end(life, End::Fenced);
                        return Ok(());
                    }
                }
            }
            let is_step = match stage {
                1 => self.config.power,
                0 | 2 => self.config.is_fine(),
                _ => false,
            };
            if is_step {
                world.running(life).control.edit().stage[thread] = stage + 1;
                return Ok(());
            }
        }
        let control = world.running(life).control.edit();
        control.done(thread);
        control.timeline.push(Kept::of(name, body, false));
        let permit = control.ledger.published(Published::modelled(name.checkpoint, name.attempt));
        if !self.config.has(Fault::PermitBeforePublish) {
            let ids = permit.committables().iter().map(TxnId::of);
            let dropped = |id: &TxnId| self.config.has(Fault::CarriedDropped) && !body.transactions().contains(id);
            let ids = ids.filter(|id| !dropped(id)).collect();
            control.submit(self.commit_thread(), Job::Commit(name.checkpoint, ids));
        }
        self.publish_next(world, life);
        Ok(())
    }

    /// The store refuses a manifest before its name is made: the checkpoint is declined after all.
    pub(crate) fn refuse_manifest(&self, world: &mut World, life: usize, thread: usize) {
        let control = world.running(life).control.edit();
        let Some(Job::Publish(name, _)) = control.io[thread].front().cloned() else { unreachable!("asked for first") };
        control.done(thread);
        control.ledger.not_published(name.checkpoint);
        self.publish_next(world, life);
    }

    /// Commits; false if the log refuses because a newer attempt has fenced: then this one has ended.
    pub(crate) fn commit(&self, world: &mut World, life: usize, ids: &[TxnId]) -> Result<bool, Violation> {
        if ids.is_empty() {
            return Ok(true);
        }
        let mut log = world.log.clone();
        match log.edit().commit(World::number(life), ids, self.config.has(Fault::CommitTwice)) {
            Ok(()) => {
                self.check().may_commit(world, life, ids)?;
                world.log = log;
                Ok(true)
            }
            Err(LogError::Fenced) => {
                world.end(life, End::Fenced);
                Ok(false)
            }
            Err(lost) => {
                let promise = "I-6: what a manifest lists commits in the end";
                Err(Violation { promise, found: format!("the output is lost: {lost:?}") })
            }
        }
    }

    /// The janitor looks what may go.
    fn retire_next(&self, control: &mut Control) {
        let stored = |kept: &Kept| StoredManifest {
            name: kept.name,
            committed: kept.committed,
            pinned: false,
            files: kept.files.clone(),
        };
        let stored: Vec<StoredManifest> = control.timeline.iter().map(stored).collect();
        let released = control.ledger.take_released();
        let retirement = retire(&stored, usize::from(self.config.retained), &control.ledger.live_files(), &released);
        control.ledger.release(retirement.still_named().clone());
        if retirement.is_empty() {
            return;
        }
        let manifests = retirement.manifests().to_vec();
        let (gone, stay): (Vec<Kept>, Vec<Kept>) =
            std::mem::take(&mut control.timeline).into_iter().partition(|kept| manifests.contains(&kept.name));
        control.timeline = stay;
        let outcomes = gone.into_iter().flat_map(|kept| kept.txns).collect();
        let retiring = Retiring { manifests, files: retirement.files_after_manifests(), outcomes };
        control.submit(self.commit_thread(), Job::Retire(retiring));
    }

    fn retire(&self, world: &mut World, life: usize, thread: usize, from: u8, retiring: &Retiring) {
        let order = match self.config.fault {
            Some(Fault::FilesBeforeManifests) => {
                [Retire::Check, Retire::Files, Retire::Manifests, Retire::Records, Retire::Check, Retire::Forget]
            }
            Some(Fault::RecordBeforeManifest) => {
                [Retire::Check, Retire::Records, Retire::Forget, Retire::Manifests, Retire::Check, Retire::Files]
            }
            _ => [Retire::Check, Retire::Manifests, Retire::Records, Retire::Check, Retire::Files, Retire::Forget],
        };
        for (stage, part) in (from..).zip(&order[usize::from(from)..]) {
            let store = world.store.edit();
            let is_step = match part {
                Retire::Check => {
                    if !self.may_write(world, life) {
                        world.end(life, End::Fenced);
                        return;
                    }
                    self.config.is_fine()
                }
                Retire::Manifests => {
                    store.manifests.retain(|name, _| !retiring.manifests.contains(name));
                    !retiring.manifests.is_empty()
                }
                Retire::Records => {
                    store.committed.retain(|name| !retiring.manifests.contains(name));
                    !retiring.manifests.is_empty()
                }
                Retire::Files => {
                    store.files.retain(|name, _| !retiring.files.contains(name));
                    !retiring.files.is_empty()
                }
                Retire::Forget => {
                    let is_needed = !retiring.outcomes.is_empty();
                    if is_needed && world.log.edit().forget(World::number(life), &retiring.outcomes).is_err() {
                        world.end(life, End::Fenced);
                        return;
                    }
                    is_needed
                }
            };
            if is_step && usize::from(stage) + 1 < order.len() {
                world.running(life).control.edit().stage[thread] = stage + 1;
                return;
            }
        }
        world.running(life).control.edit().done(thread);
    }
}
