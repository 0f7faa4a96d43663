//! All steps that are possible in a state, and what each leads to.

use std::collections::BTreeMap;

use crate::check::Judge;
use crate::config::Config;
use crate::control::Fate;
use crate::fault::Fault;
use crate::flow::{Flow, Layout};
use crate::instance::{Frame, SplitAt};
use crate::search::{Kind, Model, Violation};
use crate::world::{Action, End, Phase, Running, Step, World};

/// The protocol of one configuration.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub(crate) config: Config,
    layouts: BTreeMap<u32, Layout>,
    /// Records of each split.
    lengths: Vec<u8>,
}

impl Protocol {
    /// The protocol of this configuration.
    pub fn new(config: Config) -> Protocol {
        let layouts = config.workers.iter().map(|workers| (*workers, Layout::new(&config, *workers))).collect();
        let length = |(_, records): &(usize, &[u16])| u8::try_from(records.len()).expect("few records");
        let lengths = config.graph.splits().iter().map(length).collect();
        Protocol { config, layouts, lengths }
    }

    pub(crate) fn layout(&self, workers: u32) -> &Layout {
        &self.layouts[&workers]
    }

    pub(crate) fn check(&self) -> Judge<'_> {
        Judge { config: &self.config }
    }

    /// A step that commutes with all others of all instances and that no promise looks at, if there is one: it may be taken before
    /// everything else.
    ///
    /// * An instance with one channel handles its first frame: nobody else takes from that channel, and what it sends is appended
    ///   to channels that nobody else writes.
    /// * When the trigger has closed, `End` is sent and handled: nothing else can come on those channels.
    ///
    /// It changes nothing durable, so whoever dies before it dies just as well after it; and before it closes, an attempt that has
    /// nothing left to do may die too, as closing itself is never taken at once.
    fn at_once(&self, world: &World) -> Option<Step> {
        for (life, running) in running(world) {
            for (place, instance) in running.instances.iter().enumerate() {
                let closed = !running.control.trigger_open;
                for channel in 0..instance.queues.len() {
                    let is_end = || instance.queues[channel].front() == Some(&Frame::End);
                    let commutes = instance.queues.len() == 1 || (closed && is_end());
                    if commutes && Flow::may_handle(&self.config, instance, channel) {
                        return Some(Step::AtOnce(life, Action::Handle(place, channel)));
                    }
                }
                if closed && instance.aligner.is_none() && !instance.ended && instance.barriers.is_empty() {
                    return Some(Step::AtOnce(life, Action::EndSource(place)));
                }
            }
        }
        None
    }

    /// What an attempt may do next.
    fn actions(&self, world: &World, life: usize) -> Vec<Action> {
        let running = match &world.lives[life].phase {
            Phase::Over(_) => return vec![],
            Phase::Starting(_) => return vec![Action::Start],
            Phase::Running(running) => running,
        };
        let mut actions = vec![];
        for place in 0..running.instances.len() {
            self.instance_actions(world, running, place, &mut actions);
        }
        actions.extend(self.trigger(running));
        if world.left.timeouts > 0 && running.control.ledger.next_timeout().is_some() {
            actions.push(Action::TimeOut);
        }
        if self.is_frontier_lazy() && running.control.seen != Some(running.frontier()) {
            actions.push(Action::SeeFrontier);
        }
        for thread in 0..2 {
            match running.control.io[thread].front() {
                None => continue,
                Some(crate::world::Job::Publish(..))
                    if running.control.stage[thread] == 0 && world.left.refused_manifests > 0 =>
                {
                    actions.push(Action::RefuseManifest(thread));
                }
                Some(_) => {}
            }
            actions.push(Action::Io(thread));
        }
        actions
    }

    /// True if an attempt can do only what nobody else sees: then the order of that and of what others do plays no part, and others may
    /// wait. Whoever dies before such a step dies just as well after it. Left out where a report may be wrong: that ends an attempt, and
    /// the next one claims.
    fn is_alone(&self, actions: &[Action]) -> bool {
        let is_certain = self.config.lost_acks + self.config.repeated_acks == 0;
        self.config.reduced && is_certain && !actions.is_empty() && actions.iter().all(|action| !action.is_seen())
    }

    fn instance_actions(&self, world: &World, running: &Running, place: usize, actions: &mut Vec<Action>) {
        let instance = &running.instances[place];
        if instance.aligner.is_none() && !instance.ended {
            let unread = |at: &SplitAt| at.position < self.lengths[usize::from(at.split)];
            if !instance.exhausted && instance.has_room() {
                let readable = (0..instance.splits.len()).filter(|split| unread(&instance.splits[*split]));
                let before = actions.len();
                actions.extend(readable.map(|split| Action::Read(place, split)));
                if actions.len() == before {
                    actions.push(Action::Exhaust(place));
                }
            }
            let may_send = instance.has_room() || !self.config.barriers_wait;
            if !instance.barriers.is_empty() && may_send {
                actions.push(Action::TakeBarrier(place));
            }
            let may_end = !running.control.trigger_open && instance.barriers.is_empty();
            if may_end || (instance.exhausted && self.config.has(Fault::EndAtExhaustion)) {
                actions.push(Action::EndSource(place));
            }
        }
        for channel in 0..instance.queues.len() {
            if Flow::may_handle(&self.config, instance, channel) {
                actions.push(Action::Handle(place, channel));
            }
        }
        if instance.unsent.front().is_some_and(|(output, _)| instance.credit[*output].open()) {
            actions.push(Action::SendLateBarrier(place));
        }
        if let Some(cut) = instance.writing.front() {
            actions.push(Action::Write(place));
            if world.left.failed_writes > 0 && cut.frozen.is_some() && !cut.is_written {
                actions.push(Action::WriteFails(place));
            }
            // With files in two steps, the second one reports.
            let reports = !self.config.power || cut.frozen.is_none() || cut.is_written;
            if world.left.lost_acks > 0 && reports {
                actions.push(Action::LoseReport(place));
            }
            if world.left.repeated_acks > 0 && reports {
                actions.push(Action::RepeatReport(place));
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
            Action::Write(place) => {
                self.write(world, life, place, Fate::Written)?;
                self.may_be_done(world, life);
            }
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
        let mut steps = vec![];
        for life in 0..world.lives.len() {
            let actions = self.actions(world, life);
            if self.is_alone(&actions) {
                return actions.into_iter().map(|action| Step::AtOnce(life, action)).collect();
            }
            steps.extend(actions.into_iter().map(|action| Step::Life(life, action)));
        }
        steps.extend(self.unkindness(world));
        steps
    }

    fn after(&self, world: &World, step: &Step) -> Result<World, Violation> {
        let mut after = world.clone();
        match *step {
            Step::Life(life, action) | Step::AtOnce(life, action) => self.act(&mut after, life, action)?,
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

    fn tell(&self, world: &World, step: &Step) -> String {
        crate::tell::step(&self.config, world, step)
    }

    fn judge(&self, world: &World, steps: &[Step]) -> Result<Kind, Violation> {
        if matches!(steps.first(), Some(Step::AtOnce(..))) {
            return Ok(Kind::Open);
        }
        let mut open = false;
        for (life, _) in world.lives.iter().enumerate().filter(|(_, life)| !matches!(life.phase, Phase::Over(_))) {
            open = true;
            let goes_on =
                |step: &Step| matches!(step, Step::Life(l, action) if *l == life && action.can_be_counted_on());
            if !steps.iter().any(goes_on) {
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
