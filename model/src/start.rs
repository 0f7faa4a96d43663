//! The start of an attempt: fence, read, resolve, record the base, commit again, abort, sweep, restore.
//!
//! What is decided, the product decides: [`resolve`], [`sweep`], [`state_pieces`]. The order of the steps is that of
//! `engine/src/worker/recover.rs`; between any two of them the attempt may die, and another one may do something.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use cutwater_engine::checkpoint::{BaseRecorded, Ledger, Pace, Retirement, StoredManifest, sweep};
use cutwater_engine::id::{Attempt, CheckpointId, WorkerIndex};
use cutwater_engine::recovery::{Facts, Resolution, Want, next_checkpoint, resolve, state_pieces};
use cutwater_engine::snapshot::{ManifestName, StateFileName};

use crate::config::Role;
use crate::fault::Fault;
use crate::flow::splits_of;
use crate::instance::{Instance, instance_id, positions};
use crate::log::{LogError, TxnId};
use crate::protocol::Protocol;
use crate::search::Violation;
use crate::shared::Shared;
use crate::store::{Body, Store};
use crate::world::{Control, End, Kept, Phase, Running, SettleAt, Settling, Start, World, load_chain};

/// Before a checkpoint is due by the interval.
pub const EARLY: Duration = Duration::ZERO;
/// When it is.
pub const LATE: Duration = Duration::from_nanos(1);

const STARTS: &str = "an attempt that nobody has replaced starts";

impl Protocol {
    /// The next step of a start.
    pub(crate) fn start_step(&self, world: &mut World, life: usize) -> Result<(), Violation> {
        let Phase::Starting(start) = &world.lives[life].phase else { unreachable!("only while starting") };
        match (**start).clone() {
            Start::Fence => {
                if !self.config.has(Fault::SinkNotFenced) && world.log.edit().claim(World::number(life)).is_err() {
                    world.end(life, End::Fenced);
                    return Ok(());
                }
                world.lives[life].has_fenced = true;
                set(world, life, Start::List);
                Ok(())
            }
            Start::List => {
                if !self.config.has(Fault::ReaderDoesNotSync) {
                    world.store.edit().unsynced.clear();
                }
                let listing = Rc::new((*world.store).clone());
                match self.config.is_fine() {
                    true => set(world, life, Start::Read(listing)),
                    false => return self.decide(world, life, &listing),
                }
                Ok(())
            }
            Start::Read(listing) => {
                let gone = listing.manifests.keys().find(|name| !world.store.manifests.contains_key(name));
                let unrecorded = listing.committed.iter().find(|name| !world.store.committed.contains(name));
                if gone.or(unrecorded).is_none() {
                    return self.decide(world, life, &listing);
                }
                if self.config.has(Fault::ListedOnce) {
                    let found = format!("it listed manifest {:?}, and then it was gone", gone.or(unrecorded));
                    return Err(Violation { promise: STARTS, found });
                }
                // An older attempt had looked whether it may before this one claimed, and has removed it since: list again.
                set(world, life, Start::List);
                Ok(())
            }
            Start::Settle(settling) => self.settle(world, life, settling),
        }
    }

    fn decide(&self, world: &mut World, life: usize, listing: &Store) -> Result<(), Violation> {
        let facts = listing.facts(World::number(life));
        let answer = match self.config.has(Fault::OldTimeline) {
            true => old_rule(&facts),
            false => resolve(&facts, Want::Newest),
        };
        let refused = |found: String| Err(Violation { promise: STARTS, found });
        let (from, is_final, next, recommit, orphaned) = match answer {
            Resolution::Fresh { next, orphaned } => (None, false, next, vec![], orphaned),
            Resolution::Resume(r) => (Some(r.manifest), r.is_final, r.next, r.recommit, r.orphaned),
            Resolution::Finished { .. } => {
                world.end(life, End::Done);
                return Ok(());
            }
            Resolution::Fenced { by } if world.is_newest(life) => return refused(format!("it is fenced by {by}")),
            Resolution::Fenced { .. } => {
                world.end(life, End::Fenced);
                return Ok(());
            }
            Resolution::Refuse(refusal) => return refused(refusal.to_string()),
        };
        let counts = |name: &ManifestName| from.is_some_and(|from| *name <= from) && !orphaned.contains(name);
        let timeline = listing.manifests.iter().filter(|(name, _)| counts(name));
        let next = if self.config.has(Fault::NumbersRestart) { CheckpointId(1) } else { next };
        let only_base = self.config.has(Fault::BaseRecommittedOnly);
        let settling = Settling {
            from,
            is_final,
            next,
            recommit: recommit.into_iter().filter(|name| !only_base || Some(*name) == from).collect(),
            timeline: timeline.map(|(name, body)| (*name, body.clone())).collect(),
            orphaned,
            listed: listing.files.keys().cloned().collect(),
            at: if self.config.has(Fault::SweepBeforeBase) { SettleAt::SweepManifests } else { SettleAt::CheckBase },
        };
        // Looking for a newer attempt is a step of its own only where one may come.
        match settling.at == SettleAt::CheckBase && !self.config.is_fine() {
            true => set(world, life, Start::Settle(Settling { at: SettleAt::Base, ..settling })),
            false => set(world, life, Start::Settle(settling)),
        }
        Ok(())
    }

    fn settle(&self, world: &mut World, life: usize, mut settling: Settling) -> Result<(), Violation> {
        let number = World::number(life);
        settling.at = match settling.at {
            SettleAt::CheckBase | SettleAt::CheckRecord | SettleAt::CheckSweep => {
                if !self.may_write(world, life) {
                    world.end(life, End::Fenced);
                    return Ok(());
                }
                match settling.at {
                    SettleAt::CheckBase => SettleAt::Base,
                    SettleAt::CheckRecord => SettleAt::Record,
                    _ => self.first_sweep(life, &settling),
                }
            }
            SettleAt::Base => {
                world.store.edit().bases.insert(World::attempt(life), settling.from);
                if settling.recommit.is_empty() { SettleAt::Abort } else { SettleAt::Commit }
            }
            SettleAt::Commit => {
                let name = settling.recommit[0];
                let (_, body) = settling.timeline.iter().find(|(n, _)| *n == name).expect("it was read");
                if !self.commit(world, life, &body.transactions())? {
                    return Ok(());
                }
                if self.config.is_fine() { SettleAt::CheckRecord } else { SettleAt::Record }
            }
            SettleAt::Record => {
                let name = settling.recommit.pop_front().expect("it was committed");
                world.store.edit().committed.insert(name);
                if settling.recommit.is_empty() { SettleAt::Abort } else { SettleAt::Commit }
            }
            SettleAt::Abort => {
                let keep = settling.timeline.iter().flat_map(|(_, body)| body.transactions()).collect();
                let aborted = match self.config.has(Fault::AbortByGuess) {
                    true => world.log.edit().abort(number, &self.guesses(world.lives[life].workers, life, &settling)),
                    false => world.log.edit().abort_all_but(number, &keep),
                };
                match aborted {
                    Ok(()) => {}
                    Err(LogError::Fenced) => {
                        world.end(life, End::Fenced);
                        return Ok(());
                    }
                    Err(other) => unreachable!("aborting asks for nothing else: {other:?}"),
                }
                if self.config.is_fine() { SettleAt::CheckSweep } else { self.first_sweep(life, &settling) }
            }
            SettleAt::SweepManifests => {
                let retirement = retirement(life, &settling);
                let store = world.store.edit();
                for name in retirement.manifests() {
                    store.manifests.remove(name);
                    store.committed.remove(name);
                }
                SettleAt::SweepFiles
            }
            SettleAt::SweepFiles => {
                let files = retirement(life, &settling).files_after_manifests();
                let store = world.store.edit();
                store.files.retain(|name, _| !files.contains(name));
                match store.bases.contains_key(&World::attempt(life)) {
                    true => SettleAt::Load,
                    false => SettleAt::CheckBase,
                }
            }
            SettleAt::Load => return self.load(world, life, &settling),
        };
        set(world, life, Start::Settle(settling));
        Ok(())
    }

    /// Nothing to sweep is no step.
    fn first_sweep(&self, life: usize, settling: &Settling) -> SettleAt {
        if retirement(life, settling).is_empty() || self.config.has(Fault::SweepBeforeBase) {
            SettleAt::Load
        } else {
            SettleAt::SweepManifests
        }
    }

    /// What somebody would try who doesn't list: the last attempt's names, with the number of workers that there are now.
    fn guesses(&self, workers: u32, life: usize, settling: &Settling) -> BTreeSet<TxnId> {
        let sinks = self.config.graph.roles.iter().enumerate().filter(|(_, role)| **role == Role::Sink);
        let checkpoint = settling.from.map_or(1, |from| from.checkpoint.0 + 1);
        let name = |sink: usize, writer: u32| TxnId {
            attempt: u8::try_from(life).expect("few attempts"),
            checkpoint: u8::try_from(checkpoint).expect("few checkpoints"),
            sink: u8::try_from(sink).expect("few operators"),
            writer: u8::try_from(writer).expect("few workers"),
        };
        sinks.flat_map(|(sink, _)| (0..workers).map(move |writer| name(sink, writer))).collect()
    }

    /// Restores the state and starts the workers.
    fn load(&self, world: &mut World, life: usize, settling: &Settling) -> Result<(), Violation> {
        if settling.is_final {
            world.end(life, End::Done);
            return Ok(());
        }
        let base = settling.from.map(|from| {
            let (_, body) = settling.timeline.iter().find(|(name, _)| *name == from).expect("it was read");
            (from, body)
        });
        if world.is_newest(life) {
            self.check().restored(world, base.map(|(name, body)| (name, &**body)))?;
        } else if base.is_some_and(|(_, body)| body.files().iter().any(|file| !world.store.files.contains_key(file))) {
            // Somebody newer has swept what it stands on.
            world.end(life, End::Fenced);
            return Ok(());
        }
        let running = self.dataflow(&world.store, world.lives[life].workers, base.map(|(_, body)| &**body), settling);
        world.lives[life].phase = Phase::Running(running);
        Ok(())
    }

    fn dataflow(&self, store: &Store, workers: u32, base: Option<&Body>, settling: &Settling) -> Running {
        let layout = self.layout(workers);
        let splits = self.config.graph.splits().len();
        let positions = base.map_or(vec![0; splits], |body| positions(&body.snapshots, splits));
        let mut instances = vec![];
        for node in 0..self.config.graph.roles.len() {
            for worker in 0..workers {
                let (channels, receivers) = (layout.channels[node].len(), layout.receivers(node));
                let mut instance = Instance::new(&self.config, node, worker, channels, &receivers, settling.next);
                for split in splits_of(&self.config, node, worker, workers) {
                    let position = positions[usize::from(split)];
                    instance.splits.push(crate::instance::SplitAt { split, position });
                }
                if let Some(body) = base.filter(|_| instance.chain.is_some()) {
                    self.restore(store, &mut instance, body, workers);
                }
                instances.push(Shared::new(instance));
            }
        }
        let plan = (0..self.config.graph.roles.len()).flat_map(|n| (0..workers).map(move |w| instance_id(n, w)));
        let is_source = |node: usize| matches!(self.config.graph.roles[node], Role::Source(_));
        let plan: Vec<_> = plan.collect();
        let sources: Vec<_> = plan.iter().copied().filter(|id| is_source(id.operator.0 as usize)).collect();
        let pace = Pace {
            interval: Duration::ZERO,
            in_flight_max: usize::from(self.config.in_flight),
            uncommitted_max: usize::from(self.config.uncommitted),
            timeout: Duration::ZERO,
            pause: Duration::ZERO,
        };
        let control = Control {
            ledger: Ledger::new(pace, plan, sources, settling.next, LATE),
            trigger_open: true,
            checkpoints_left: self.config.checkpoints,
            seen: None,
            io: Default::default(),
            stage: [0; 2],
            timeline: settling.timeline.iter().map(|(name, body)| Kept::of(*name, body, true)).collect(),
        };
        Running { instances, control: Shared::new(control) }
    }

    /// Gives keyed state back, over another number of workers if need be.
    fn restore(&self, store: &Store, instance: &mut Instance, body: &Body, workers: u32) {
        let then = NonZeroU32::new(body.workers).expect("a manifest has workers");
        let now = NonZeroU32::new(workers).expect("a job has workers");
        let (groups, worker) = (self.config.assignment(workers).groups(), instance.id.worker);
        for piece in state_pieces(groups, then, now, worker) {
            let from = instance_id(instance.node(), piece.from.0);
            let Some(part) = body.snapshots.iter().find(|part| part.instance == from) else { continue };
            let counts = load_chain(store, part).unwrap_or_default();
            let owned = |group: &u16| piece.groups.contains(cutwater_engine::exchange::KeyGroup(*group));
            instance.counts.extend(counts.into_iter().filter(|(group, _)| owned(group)));
            if then == now && piece.from == WorkerIndex(worker.0) {
                instance.resume_chain(part);
            }
        }
    }
}

fn set(world: &mut World, life: usize, start: Start) {
    world.lives[life].phase = Phase::Starting(Shared::new(start));
}

/// What the product would sweep. The proof that the base is recorded is ours to make: only a planted fault lies.
fn retirement(life: usize, settling: &Settling) -> Retirement {
    let stored: Vec<StoredManifest> = settling
        .timeline
        .iter()
        .map(|(name, body)| StoredManifest { name: *name, committed: true, pinned: false, files: body.files() })
        .collect();
    let attempt_of = |name: &String| StateFileName::parse(name).map_or(Attempt(0), |parsed| parsed.attempt);
    let listed = settling.listed.iter().map(|name| (name.as_str(), attempt_of(name)));
    sweep(BaseRecorded::modelled(World::attempt(life)), &stored, settling.orphaned.iter().copied(), listed)
}

/// The rule before `docs/decisions/0010-timeline-by-chain.md`: a manifest of an older attempt counts only if no later attempt's base
/// lies below it.
fn old_rule(facts: &Facts) -> Resolution {
    let counts = |name: &ManifestName| {
        let below = |from: Option<ManifestName>| from.is_none_or(|from| from.checkpoint < name.checkpoint);
        !facts.bases.iter().any(|(attempt, base)| *attempt > name.attempt && below(base.from))
    };
    let timeline: Vec<ManifestName> = facts.manifests.keys().copied().filter(counts).collect();
    let orphaned: Vec<ManifestName> = facts.manifests.keys().copied().filter(|name| !counts(name)).collect();
    let next = next_checkpoint(facts);
    let Some(manifest) = timeline.last().copied() else { return Resolution::Fresh { next, orphaned } };
    let is_final =
        matches!(facts.manifests[&manifest], cutwater_engine::recovery::ManifestContent::Good { is_final: true });
    let recommit: Vec<ManifestName> = timeline.into_iter().filter(|name| !facts.committed.contains(name)).collect();
    if is_final && recommit.is_empty() {
        return Resolution::Finished { manifest };
    }
    Resolution::Resume(cutwater_engine::recovery::Resume { manifest, is_final, recommit, forks: false, orphaned, next })
}
