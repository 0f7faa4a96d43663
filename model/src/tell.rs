//! A step in words: traces are read by people.

use crate::config::{Config, Role};
use crate::instance::{Frame, Instance};
use crate::world::{Action, Job, Phase, Running, SettleAt, Start, Step, World};

/// What happens in a state when this step is taken.
pub fn step(config: &Config, world: &World, step: &Step) -> String {
    match step {
        Step::Kill => "the newest attempt is killed; the next one claims its number".to_owned(),
        Step::PowerCut(stay) => {
            let kept = world.store.unsynced.iter().enumerate().filter(|(index, _)| stay >> index & 1 == 1);
            let kept: Vec<_> = kept.map(|(_, name)| name).collect();
            format!("the power goes; of what was not durable stays {kept:?}; the next attempt claims its number")
        }
        Step::Usurp => "another attempt claims its number, while the one before goes on".to_owned(),
        Step::Restart => "the finished job is started again".to_owned(),
        Step::Life(life, action) | Step::AtOnce(life, action) => {
            let told = match &world.lives[*life].phase {
                Phase::Starting(start) => self::start(start),
                Phase::Running(running) => self::action(config, world, running, *action),
                Phase::Over(_) => unreachable!("what is over does nothing"),
            };
            format!("attempt {}: {told}", life + 1)
        }
    }
}

fn start(start: &Start) -> String {
    let settling = match start {
        Start::Fence => return "fences older attempts at the log".to_owned(),
        Start::List => return "lists the store".to_owned(),
        Start::Read(_) => return "reads what it has listed, and decides".to_owned(),
        Start::Settle(settling) => settling,
    };
    let base = settling.from.map_or("nothing".to_owned(), |from| format!("manifest {from}"));
    match settling.at {
        SettleAt::CheckBase | SettleAt::CheckRecord | SettleAt::CheckSweep => "looks for a newer attempt".to_owned(),
        SettleAt::Base => format!("records its base: {base}"),
        SettleAt::Commit => format!("commits again what manifest {} lists", settling.recommit[0]),
        SettleAt::Record => format!("records that manifest {} is committed", settling.recommit[0]),
        SettleAt::Abort => "aborts and forgets what no manifest lists".to_owned(),
        SettleAt::SweepManifests => format!("sweeps orphaned manifests: {:?}", settling.orphaned),
        SettleAt::SweepFiles => "sweeps files that no manifest names".to_owned(),
        SettleAt::Load => format!("restores from {base}, checkpoints from {} on", settling.next),
    }
}

fn action(config: &Config, world: &World, running: &Running, action: Action) -> String {
    let name = |place: usize| name(config, &running.instances[place]);
    let snapshot = |place: usize| {
        let cut = &running.instances[place].writing[0];
        let what = match (&cut.frozen, cut.is_written, cut.sealed.len()) {
            (Some(_), true, _) => "syncs its state file".to_owned(),
            (Some((kind, counts)), false, _) => format!("writes its state ({kind:?} {counts:?})"),
            (None, _, 0) => "has nothing to make durable".to_owned(),
            (None, _, records) => format!("prepares a transaction of {records} records"),
        };
        format!("{} {what} for checkpoint {}", name(place), cut.checkpoint)
    };
    match action {
        Action::Start => unreachable!("it has started"),
        Action::Read(place, split) => {
            let at = running.instances[place].splits[split];
            format!("{} reads record {} of split {}", name(place), at.position, at.split)
        }
        Action::Exhaust(place) => format!("{} has nothing left, and says so", name(place)),
        Action::TakeBarrier(place) => {
            format!("{} cuts, sends Barrier({}) and reports", name(place), running.instances[place].barriers[0])
        }
        Action::EndSource(place) => format!("{} sends End", name(place)),
        Action::Handle(place, channel) => {
            let frame = match running.instances[place].queues[channel].front() {
                Some(Frame::Record(record)) => format!("record {} of split {}", record.offset, record.split),
                Some(Frame::Barrier(n)) => format!("Barrier({n})"),
                Some(Frame::End) => "End".to_owned(),
                None => unreachable!("a step takes what is there"),
            };
            format!("{} handles {frame} of channel {channel}", name(place))
        }
        Action::SendLateBarrier(place) => format!("{} sends the barrier to one more output", name(place)),
        Action::Write(place) => snapshot(place),
        Action::WriteFails(place) => format!("{}: that FAILS, and is reported", snapshot(place)),
        Action::LoseReport(place) => format!("{}: its report gets LOST", snapshot(place)),
        Action::RepeatReport(place) => format!("{}: its report comes TWICE", snapshot(place)),
        Action::Trigger(is_due) => {
            let why = if is_due { "it is due" } else { "nothing is left to read" };
            format!("the trigger starts checkpoint {}: {why}", running.control.ledger.next())
        }
        Action::Close => "the trigger closes".to_owned(),
        Action::TimeOut => "the checkpoint in flight takes TOO LONG".to_owned(),
        Action::SeeFrontier => "the coordinator sees the ack frontier".to_owned(),
        Action::RefuseManifest(_) => "the store REFUSES the manifest".to_owned(),
        Action::Io(thread) => {
            let stage = running.control.stage[thread];
            match &running.control.io[thread][0] {
                Job::Publish(name, body) => {
                    let last = if body.is_final { " (final)" } else { "" };
                    let there = if world.store.manifests.contains_key(name) { "there" } else { "not there" };
                    format!("publishing manifest {name}{last}, step {stage}, its name is {there}")
                }
                Job::Commit(n, ids) => format!("commits {} transactions of checkpoint {n}, step {stage}", ids.len()),
                Job::Record(name) => format!("recording that manifest {name} is committed, step {stage}"),
                Job::Retire(retiring) => format!("retiring {:?}, step {stage}", retiring.manifests),
            }
        }
    }
}

/// An instance in words.
fn name(config: &Config, instance: &Instance) -> String {
    let role = match config.graph.roles[instance.node()] {
        Role::Source(_) => "source",
        Role::Count => "count",
        Role::Pass => "pass",
        Role::Sink => "sink",
    };
    format!("{role} {}/{}", instance.id.operator, instance.id.worker)
}
