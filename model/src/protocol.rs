//! All steps that are possible in a state, and what each leads to.

use std::collections::BTreeMap;

use crate::check::Judge;
use crate::config::Config;
use crate::control::Fate;
use crate::fault::Fault;
use crate::flow::{Flow, Layout};
use crate::instance::Frame;
use crate::search::{Kind, Model, Violation};
use crate::world::{Action, End, Phase, Running, Step, World};

/// The protocol of one configuration.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub(crate) config: Config,
    layouts: BTreeMap<u32, Layout>,
}

impl Protocol {
    /// The protocol of this configuration.
    pub fn new(config: Config) -> Protocol {
        let layouts = config.workers.iter().map(|workers| (*workers, Layout::new(&config, *workers))).collect();
        Protocol { config, layouts }
    }

    pub(crate) fn layout(&self, workers: u32) -> &Layout {
        &self.layouts[&workers]
    }

    pub(crate) fn check(&self) -> Judge<'_> {
        Judge { config: &self.config }
    }

    /// A step that commutes with all others of all instances and that no promise looks at, if there is one: it may be taken at once.
    /// It changes nothing durable, so whoever dies before it dies just as well after it.
    ///
    /// * An instance with one channel handles its first frame: nobody else takes from that channel, and what it sends is appended
    ///   to channels that nobody else writes.
    /// * The trigger closes: it does so only when nothing is under way.
    /// * After that, `End` is sent and handled; nothing else can come on those channels.
    fn at_once(&self, world: &World) -> Option<Step> {
        for (life, running) in running(world) {
            for (place, instance) in running.instances.iter().enumerate() {
                let closed = !running.control.trigger_open;
                for channel in 0..instance.queues.len() {
                    let is_end = || instance.queues[channel].front() == Some(&Frame::End);
                    let commutes = instance.queues.len() == 1 || (closed && is_end());
                    if commutes && Flow::may_handle(&self.config, instance, channel) {
                        return Some(Step::Life(life, Action::Handle(place, channel)));
                    }
                }
                if closed && instance.aligner.is_none() && !instance.ended && instance.barriers.is_empty() {
                    return Some(Step::Life(life, Action::EndSource(place)));
                }
            }
            if self.trigger(running) == Some(Action::Close) {
                return Some(Step::Life(life, Action::Close));
            }
        }
        None
    }

    /// What an attempt may do next. The flag says whether the attempt counts on it: unkindness is nothing to count on.
    fn actions(&self, world: &World, life: usize) -> Vec<(Action, bool)> {
        let running = match &world.lives[life].phase {
            Phase::Over(_) => return vec![],
            Phase::Starting(_) => return vec![(Action::Start, true)],
            Phase::Running(running) => running,
        };
        let mut actions = vec![];
        for place in 0..running.instances.len() {
            self.instance_actions(world, running, place, &mut actions);
        }
        actions.extend(self.trigger(running).map(|action| (action, true)));
        if world.left.timeouts > 0 && running.control.ledger.next_timeout().is_some() {
            actions.push((Action::TimeOut, false));
        }
        if self.is_frontier_lazy() && running.control.seen != Some(running.frontier()) {
            actions.push((Action::SeeFrontier, true));
        }
        for thread in 0..2 {
            match running.control.io[thread].front() {
                None => continue,
                Some(crate::world::Job::Publish(..))
                    if running.control.stage[thread] == 0 && world.left.refused_manifests > 0 =>
                {
                    actions.push((Action::RefuseManifest(thread), false));
                }
                Some(_) => {}
            }
            actions.push((Action::Io(thread), true));
        }
        actions
    }

    fn instance_actions(&self, world: &World, running: &Running, place: usize, actions: &mut Vec<(Action, bool)>) {
        let instance = &running.instances[place];
        if instance.aligner.is_none() && !instance.ended {
            let splits = self.config.graph.splits();
            let unread = |at: &crate::instance::SplitAt| {
                usize::from(at.position) < splits[usize::from(at.split)].1.len()
            };
            if !instance.exhausted && instance.has_room() {
                let readable = (0..instance.splits.len()).filter(|split| unread(&instance.splits[*split]));
                let before = actions.len();
                actions.extend(readable.map(|split| (Action::Read(place, split), true)));
                if actions.len() == before {
                    actions.push((Action::Exhaust(place), true));
                }
            }
            let may_send = instance.has_room() || !self.config.has(Fault::BarrierNeedsCredit);
            if !instance.barriers.is_empty() && may_send {
                actions.push((Action::TakeBarrier(place), true));
            }
            let may_end = !running.control.trigger_open && instance.barriers.is_empty();
            if may_end || (instance.exhausted && self.config.has(Fault::EndAtExhaustion)) {
                actions.push((Action::EndSource(place), true));
            }
        }
        for channel in 0..instance.queues.len() {
            if Flow::may_handle(&self.config, instance, channel) {
                actions.push((Action::Handle(place, channel), true));
            }
        }
        if instance.unsent.front().is_some_and(|(output, _)| instance.credit[*output].open()) {
            actions.push((Action::SendLateBarrier(place), true));
        }
        if let Some(cut) = instance.writing.front() {
            actions.push((Action::Write(place), true));
            if world.left.failed_writes > 0 && cut.frozen.is_some() && !cut.is_written {
                actions.push((Action::WriteFails(place), false));
            }
            // With files in two steps, the second one reports.
            let reports = !self.config.power || cut.frozen.is_none() || cut.is_written;
            if world.left.lost_acks > 0 && reports {
                actions.push((Action::LoseReport(place), false));
            }
            if world.left.repeated_acks > 0 && reports {
                actions.push((Action::RepeatReport(place), false));
            }
        }
    }

    /// What the world may do.
    fn unkindness(&self, world: &World) -> Vec<Step> {
        let newest = world.lives.last().expect("there is a first attempt");
        let mut steps = vec![];
        match newest.phase {
            Phase::Over(End::Done) if world.left.restarts > 0 => steps.push(Step::Restart),
            Phase::Over(_) => {}
            Phase::Starting(_) | Phase::Running(_) => {
                if world.left.crashes > 0 {
                    steps.push(Step::Kill);
                    let others = world.lives.iter().filter(|life| !matches!(life.phase, Phase::Over(_))).count() > 1;
                    let names = world.store.unsynced.len();
                    if self.config.power && (names > 0 || others) {
                        assert!(names < 8, "a small model has few names at once");
                        steps.extend((0..1u32 << names).map(Step::PowerCut));
                    }
                }
                if world.left.zombies > 0 {
                    steps.push(Step::Usurp);
                }
            }
        }
        steps
    }

    fn act(&self, world: &mut World, life: usize, action: Action) -> Result<(), Violation> {
        match action {
            Action::Start => return self.start_step(world, life),
            Action::Read(place, split) => self.flow(world, life, |flow| flow.read(place, split)),
            Action::Exhaust(place) => {
                let running = world.running(life);
                let instance = running.instances[place].edit();
                instance.exhausted = true;
                let id = instance.id;
                running.control.edit().ledger.ready(id);
            }
            Action::TakeBarrier(place) => {
                let n = self.flow(world, life, |flow| flow.take_barrier(place))?;
                self.source_cut(world, life, place, n)?;
            }
            Action::EndSource(place) => {
                self.flow(world, life, |flow| {
                    flow.instances[place].edit().barriers.clear();
                    flow.end(place);
                });
                self.may_be_done(world, life);
            }
            Action::Handle(place, channel) => {
                let handled = self.flow(world, life, |flow| flow.handle(place, channel))?;
                if handled == crate::flow::Handled::Ended {
                    self.may_be_done(world, life);
                }
            }
            Action::SendLateBarrier(place) => self.flow(world, life, |flow| flow.send_late_barrier(place))?,
            Action::Write(place) => self.write(world, life, place, Fate::Written)?,
            Action::WriteFails(place) => {
                world.left.failed_writes -= 1;
                self.write(world, life, place, Fate::Failed)?;
            }
            Action::LoseReport(place) => {
                world.left.lost_acks -= 1;
                self.write(world, life, place, Fate::Lost)?;
            }
            Action::RepeatReport(place) => {
                world.left.repeated_acks -= 1;
                self.write(world, life, place, Fate::Repeated)?;
            }
            Action::Trigger(is_due) => self.start_checkpoint(world, life, is_due),
            Action::Close => world.running(life).control.edit().trigger_open = false,
            Action::TimeOut => {
                world.left.timeouts -= 1;
                world.running(life).control.edit().ledger.time_out(crate::start::LATE);
            }
            Action::SeeFrontier => self.see_frontier(world, life)?,
            Action::Io(thread) => {
                self.io(world, life, thread)?;
                self.may_be_done(world, life);
            }
            Action::RefuseManifest(thread) => {
                world.left.refused_manifests -= 1;
                self.refuse_manifest(world, life, thread);
            }
        }
        Ok(())
    }

    fn flow<R>(&self, world: &mut World, life: usize, act: impl FnOnce(&mut Flow<'_>) -> R) -> R {
        let layout = self.layout(world.lives[life].workers);
        let instances = &mut world.running(life).instances;
        act(&mut Flow { config: &self.config, layout, instances })
    }

    /// An attempt is done when all instances have ended and nothing is left to write.
    fn may_be_done(&self, world: &mut World, life: usize) {
        if let Phase::Running(running) = &world.lives[life].phase
            && running.instances.iter().all(|instance| instance.ended && instance.writing.is_empty())
            && running.control.io.iter().all(|jobs| jobs.is_empty())
        {
            world.end(life, End::Done);
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        World::new(&self.config)
    }

    fn steps(&self, world: &World) -> Vec<Step> {
        if let Some(step) = self.at_once(world).filter(|_| self.config.reduced) {
            return vec![step];
        }
        let of_life = |life| self.actions(world, life).into_iter().map(move |(action, _)| Step::Life(life, action));
        let mut steps: Vec<Step> = (0..world.lives.len()).flat_map(of_life).collect();
        steps.extend(self.unkindness(world));
        steps
    }

    fn after(&self, world: &World, step: &Step) -> Result<World, Violation> {
        let mut after = world.clone();
        match *step {
            Step::Life(life, action) => self.act(&mut after, life, action)?,
            Step::Usurp => {
                after.left.zombies -= 1;
                after.claim(&self.config);
            }
            Step::Restart => {
                after.left.restarts -= 1;
                after.claim(&self.config);
            }
            Step::Kill => {
                after.left.crashes -= 1;
                let newest = after.lives.len() - 1;
                after.end(newest, End::Killed);
                after.claim(&self.config);
            }
            Step::PowerCut(stay) => {
                after.left.crashes -= 1;
                for life in after.lives.iter_mut().filter(|life| !matches!(life.phase, Phase::Over(_))) {
                    life.phase = Phase::Over(End::Killed);
                }
                after.store.edit().power_cut(stay);
                after.claim(&self.config);
            }
        }
        if !after.store.is_same(&world.store) || !after.log.is_same(&world.log) {
            self.check().state(&after)?;
        }
        Ok(after)
    }

    fn judge(&self, world: &World, steps: &[Step]) -> Result<Kind, Violation> {
        if self.config.reduced && self.at_once(world).is_some() {
            return Ok(Kind::Open);
        }
        let mut open = false;
        for life in 0..world.lives.len() {
            if let Phase::Over(_) = world.lives[life].phase {
                continue;
            }
            open = true;
            if !self.actions(world, life).iter().any(|(_, counts)| *counts) {
                let found = format!("attempt {} can't do anything, and isn't at its end", life + 1);
                return Err(Violation { promise: "nothing deadlocks", found });
            }
        }
        if open {
            return Ok(Kind::Open);
        }
        let newest = &world.lives.last().expect("there is a first attempt").phase;
        if !matches!(newest, Phase::Over(End::Done)) {
            let found = format!("the newest attempt came to {newest:?}");
            return Err(Violation { promise: "the newest attempt finishes", found });
        }
        self.check().finished(world)?;
        Ok(if steps.is_empty() { Kind::Final } else { Kind::Open })
    }
}

/// The attempts whose dataflow runs.
fn running(world: &World) -> impl Iterator<Item = (usize, &Running)> {
    world.lives.iter().enumerate().filter_map(|(life, state)| match &state.phase {
        Phase::Running(running) => Some((life, running)),
        Phase::Starting(_) | Phase::Over(_) => None,
    })
}
