//! The edge of the groups: holds them, lets requests wait for their answers, keeps in the log what must survive, and looks
//! at the clock.
//!
//! What a rebalance has come to is durable before anybody hears of it. If it can't be kept, those who wait are refused and
//! the group goes on in memory: the next rebalance tries again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cutwater_partition_log::{GroupOffsets, Log};
use cutwater_platform::{Completion, Platform, Step, Task};
use kafka_protocol::ResponseError;

use super::consumer::machine::{self as consumer, Beat, ConsumerGroup, JOIN, Told, Topics};
use super::expiry::Sweep;
use super::machine::{Group, Phase, Rules};
use super::member::{Answer, Join, Joined, Refusal, Synced, Token, Who};
use super::{consumer as newer, stored, subscriptions};
use crate::options::BrokerOptions;
use crate::server::peer::{Attended, Peer};
use crate::service::PATIENCE;

/// How often it looks at the clock.
const LOOK: Duration = Duration::from_millis(20);

/// All groups.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(super) log: Log,
    pub(super) platform: Platform,
    rules: Rules,
    consumer_rules: consumer::Rules,
    groups_max: usize,
    groups: Mutex<Groups>,
    /// Where the search for old offsets stands.
    pub(super) sweep: Mutex<Sweep>,
}

#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<String, Arc<Mutex<Hosted>>>,
    stopped: bool,
}

/// A group at a glance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    /// Its protocol.
    pub(crate) kind: &'static str,
    pub(crate) state: &'static str,
    pub(crate) members: usize,
    pub(crate) epoch: u64,
}

type Waiting = Arc<Completion<Answer>>;

/// A group and whoever waits for it.
#[derive(Debug, Default)]
pub(crate) struct Hosted {
    pub(crate) group: Group,
    /// By the newer protocol; then the classic group is nothing.
    pub(crate) consumer: Option<ConsumerGroup>,
    waiting: HashMap<Token, Waiting>,
    next: Token,
    /// When it was settled last, somebody was in it.
    had_members: bool,
    /// It was taken out of the coordinator meanwhile: look again.
    gone: bool,
}

impl Hosted {
    /// The classic group. A consumer group that has no members becomes one, with epochs that go on, if somebody `joins`.
    fn classic(&mut self, joins: bool) -> Result<&mut Group, ResponseError> {
        match &self.consumer {
            None => {}
            Some(_) if !joins => return Err(ResponseError::UnknownMemberId),
            Some(consumer) if !consumer.members.is_empty() => return Err(ResponseError::InconsistentGroupProtocol),
            Some(consumer) => {
                self.group = Group::after(consumer.epoch);
                self.consumer = None;
            }
        }
        Ok(&mut self.group)
    }

    /// The consumer group; the other way round.
    fn consumer(&mut self, joins: bool) -> Result<&mut ConsumerGroup, ResponseError> {
        if self.consumer.is_none() && !(joins && self.is_empty()) {
            return Err(ResponseError::GroupIdNotFound);
        }
        let generation = std::mem::take(&mut self.group).generation;
        Ok(self.consumer.get_or_insert_with(|| ConsumerGroup::after(generation)))
    }

    /// Nobody is in it, by either protocol.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.consumer {
            Some(consumer) => consumer.members.is_empty(),
            None => self.group.phase == Phase::Empty && self.group.expected.is_empty(),
        }
    }

    /// Whether it is kept how long nobody has been in it, if that is so.
    pub(super) fn is_settled(&self) -> bool {
        self.had_members != self.is_empty()
    }

    /// The topics that its members read; `None` if that can't be said of all of them.
    pub(crate) fn topics(&self) -> Option<BTreeSet<String>> {
        if self.is_empty() {
            return Some(BTreeSet::new());
        }
        match &self.consumer {
            Some(consumer) => Some(consumer.members.values().flat_map(consumer::Member::wants).cloned().collect()),
            None => subscriptions::topics(&self.group),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match &self.consumer {
            Some(consumer) => newer::stored::write(consumer),
            None => stored::write(&self.group),
        }
    }

    fn take_to_keep(&mut self) -> bool {
        match &mut self.consumer {
            Some(consumer) => std::mem::take(&mut consumer.to_keep),
            None => std::mem::take(&mut self.group.to_keep),
        }
    }

    /// Its name among protocols, its state, its members, its epoch.
    fn summary(&self) -> Summary {
        let epoch = |epoch: i32| u64::try_from(epoch).unwrap_or(0);
        match &self.consumer {
            Some(group) => Summary {
                kind: "consumer",
                state: group.state(),
                members: group.members.len(),
                epoch: epoch(group.epoch),
            },
            None => Summary {
                kind: "classic",
                state: self.group.phase.name(),
                members: self.group.members.len(),
                epoch: epoch(self.group.generation),
            },
        }
    }
}

impl Coordinator {
    /// The groups whose members were kept in the log, and room for others.
    pub(crate) fn new(platform: &Platform, log: Log, options: &BrokerOptions) -> Coordinator {
        let rules = Rules {
            members_max: options.limits.group_members,
            initial_delay: options.group_initial_delay,
            session: options.group_session,
        };
        let consumer_rules =
            consumer::Rules { members_max: options.limits.group_members, session: options.consumer_session };
        let now = platform.clock.monotonic();
        let mut by_name = HashMap::new();
        for (name, kept) in log.memberships() {
            let classic = stored::read(&kept, now).map(|group| Hosted { group, ..Hosted::default() });
            let hosted = classic.or_else(|| {
                let consumer = Some(newer::stored::read(&kept, now, consumer_rules.session)?);
                Some(Hosted { consumer, ..Hosted::default() })
            });
            match hosted {
                Some(mut hosted) => {
                    hosted.had_members = !hosted.is_empty();
                    by_name.insert(name, Arc::new(Mutex::new(hosted)));
                }
                None => tracing::error!(
                    group = name,
                    "what was kept of a group's members can't be read: they must join anew"
                ),
            }
        }
        let groups = Mutex::new(Groups { by_name, stopped: false });
        Coordinator {
            log,
            platform: platform.clone(),
            rules,
            consumer_rules,
            groups_max: options.limits.groups,
            groups,
            sweep: Mutex::new(Sweep::new(options.offsets_retention, now)),
        }
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().expect("no panic under the groups' lock")
    }

    fn now(&self) -> Duration {
        self.platform.clock.monotonic()
    }

    /// The group of this name; created if `create` says so.
    pub(super) fn hosted(&self, name: &str, create: bool) -> Result<Arc<Mutex<Hosted>>, ResponseError> {
        let mut groups = self.groups();
        if groups.stopped {
            return Err(ResponseError::NotCoordinator);
        }
        if let Some(hosted) = groups.by_name.get(name) {
            return Ok(hosted.clone());
        }
        if !create {
            return Err(ResponseError::UnknownMemberId);
        }
        if name.is_empty() || name.len() > cutwater_partition_log::group::GROUP_NAME_BYTES_MAX {
            return Err(ResponseError::InvalidGroupId);
        }
        if groups.by_name.len() >= self.groups_max {
            return Err(ResponseError::PolicyViolation);
        }
        let hosted = Arc::new(Mutex::new(Hosted::default()));
        groups.by_name.insert(name.to_string(), hosted.clone());
        Ok(hosted)
    }

    /// Does something with a group, keeps what must be kept, and hands out the answers.
    fn with<T>(&self, name: &str, create: bool, act: impl FnOnce(&mut Hosted) -> T) -> Result<T, ResponseError> {
        let hosted = self.hosted(name, create)?;
        let mut hosted = hosted.lock().expect("no panic under a group's lock");
        if hosted.gone {
            return Err(ResponseError::CoordinatorLoadInProgress);
        }
        let done = act(&mut hosted);
        self.settle(name, &mut hosted);
        Ok(done)
    }

    /// Keeps what must be kept and hands out the answers; false if it can't be kept.
    fn settle(&self, name: &str, hosted: &mut Hosted) -> bool {
        let mut failed = false;
        let has_members = !hosted.is_empty();
        if hosted.had_members && !has_members {
            // Before it is kept that nobody is in it: after a crash in between the last one leaves once more.
            match self.log.renew_offsets(name) {
                Ok(()) => hosted.had_members = false,
                Err(error) => tracing::warn!(group = name, %error, "when a group became empty can't be kept yet"),
            }
        } else {
            hosted.had_members = has_members;
        }
        if hosted.take_to_keep()
            && let Err(error) = self.log.keep_membership(name, hosted.bytes())
        {
            tracing::error!(group = name, %error, "what a group has agreed on can't be kept");
            failed = true;
            // The next heartbeat tries again.
            hosted.consumer.iter_mut().for_each(|consumer| consumer.to_keep = true);
        }
        for (token, answer) in hosted.group.take_answers() {
            let answer = match answer {
                Answer::Join(Ok(_)) if failed => Answer::Join(Err(ResponseError::CoordinatorNotAvailable.into())),
                Answer::Sync(Ok(_)) if failed => Answer::Sync(Err(ResponseError::CoordinatorNotAvailable)),
                answer => answer,
            };
            if let Some(waiting) = hosted.waiting.remove(&token) {
                waiting.complete(answer);
            }
        }
        !failed
    }

    fn wait(
        &self,
        name: &str,
        create: bool,
        joins: bool,
        peer: &Peer,
        act: impl FnOnce(&mut Group, Token, Duration),
    ) -> Result<Answer, ResponseError> {
        let waiting = Waiting::default();
        let token = self.with(name, create, |hosted| {
            hosted.classic(joins)?;
            hosted.next += 1;
            let token = hosted.next;
            hosted.waiting.insert(token, waiting.clone());
            act(&mut hosted.group, token, self.now());
            Ok::<_, ResponseError>(token)
        })??;
        // The others may take as long as their rebalance time-outs, and who waits for them be gone.
        let mut client = Attended::new(peer, self.now());
        loop {
            if let Some(answer) = waiting.wait_for(&*self.platform.spawn, PATIENCE) {
                return Ok(answer);
            }
            if client.has_left(self.now()) {
                // It stays a member until its session is over, as one that has gone silent: it may come back over another connection.
                self.with(name, false, |hosted| hosted.waiting.remove(&token))?;
                return waiting.try_take().ok_or(ResponseError::RebalanceInProgress);
            }
        }
    }

    fn number(&self) -> String {
        format!("{:016x}{:016x}", self.platform.random.next_u64(), self.platform.random.next_u64())
    }

    /// A heartbeat of the newer protocol. What it has changed is durable before it is answered.
    pub(crate) fn beat(&self, name: &str, beat: Beat, topics: Topics<'_>) -> Result<Told, ResponseError> {
        let joins = beat.epoch == JOIN;
        let hosted = self.hosted(name, joins).map_err(|error| match error {
            ResponseError::UnknownMemberId => ResponseError::GroupIdNotFound,
            error => error,
        })?;
        let mut hosted = hosted.lock().expect("no panic under a group's lock");
        if hosted.gone {
            return Err(ResponseError::CoordinatorLoadInProgress);
        }
        let told = hosted.consumer(joins)?.beat(self.now(), &self.consumer_rules, topics, beat, &self.number());
        if self.settle(name, &mut hosted) { told } else { Err(ResponseError::CoordinatorNotAvailable) }
    }

    /// Judges who asks for offsets as a member.
    pub(crate) fn reads(&self, name: &str, member: Option<&str>, epoch: i32) -> Result<(), ResponseError> {
        let Some(member) = member.filter(|_| epoch >= 0) else { return Ok(()) };
        let judged = self.look(name, |hosted| match &hosted.consumer {
            Some(consumer) => consumer.admits(member, epoch, false),
            None => Ok(()),
        });
        judged.unwrap_or(Ok(()))
    }

    /// Joins; waits for the others, as long as whoever joins is there.
    pub(crate) fn join(&self, name: &str, join: Join, peer: &Peer) -> Result<Joined, Refusal> {
        let prefix = join.instance.as_deref().unwrap_or(&join.client);
        let fresh = format!("{prefix}-{}", self.number());
        let create = join.member.is_empty();
        let answer =
            self.wait(name, create, true, peer, |group, token, now| group.join(now, &self.rules, token, join, &fresh))?;
        match answer {
            Answer::Join(answer) => answer,
            Answer::Sync(_) => Err(ResponseError::UnknownServerError.into()),
        }
    }

    /// Asks for the assignment, or gives it; waits for the leader, as long as whoever asks is there.
    pub(crate) fn sync(
        &self,
        name: &str,
        who: Who<'_>,
        protocol: (Option<&str>, Option<&str>),
        assignments: Vec<(String, Vec<u8>)>,
        peer: &Peer,
    ) -> Result<Synced, ResponseError> {
        let answer =
            self.wait(name, false, false, peer, |group, token, now| group.sync(now, token, who, protocol, assignments));
        match answer? {
            Answer::Sync(answer) => answer,
            Answer::Join(_) => Err(ResponseError::UnknownServerError),
        }
    }

    pub(crate) fn heartbeat(&self, name: &str, who: Who<'_>) -> Result<(), ResponseError> {
        self.with(name, false, |hosted| hosted.classic(false)?.heartbeat(self.now(), who))?
    }

    pub(crate) fn leave(&self, name: &str, member: &str, instance: Option<&str>) -> Result<(), ResponseError> {
        self.with(name, false, |hosted| match &mut hosted.consumer {
            Some(consumer) => consumer.expel(member, instance),
            None => hosted.group.leave(self.now(), &self.rules, member, instance),
        })?
    }

    /// Judges who commits offsets, and commits them if that is well, while nothing else happens to the group.
    pub(crate) fn commit<T>(
        &self,
        name: &str,
        who: Who<'_>,
        in_transaction: bool,
        commit: impl FnOnce() -> T,
    ) -> Result<T, ResponseError> {
        let known = self.hosted(name, false);
        match known {
            // A group without members is the log's alone.
            Err(ResponseError::UnknownMemberId) if who.generation < 0 => return Ok(commit()),
            // One that has offsets and no members has not this one; of one that isn't there at all no generation is right.
            Err(ResponseError::UnknownMemberId) if who.generation >= 0 => {
                let is_there = |kept: GroupOffsets| !kept.offsets.is_empty() || !kept.unstable.is_empty();
                let is_there = self.log.group_offsets(name).is_ok_and(is_there);
                return Err(if is_there { ResponseError::UnknownMemberId } else { ResponseError::IllegalGeneration });
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.with(name, false, |hosted| {
            let judged = match (&hosted.consumer, in_transaction) {
                (Some(consumer), _) => consumer.admits(who.member, who.generation, in_transaction),
                (None, true) => hosted.group.commits_in_transaction(self.now(), who),
                (None, false) => hosted.group.commits(self.now(), who),
            };
            judged.map(|()| commit())
        })?
    }

    /// Looks at a group; none if nobody has ever been in it.
    pub(crate) fn look<T>(&self, name: &str, look: impl FnOnce(&Hosted) -> T) -> Option<T> {
        self.with(name, false, |hosted| look(hosted)).ok()
    }

    /// A group at a glance; nobody is in one that has none but offsets.
    pub(crate) fn summary(&self, name: &str) -> Summary {
        self.look(name, Hosted::summary).unwrap_or_else(|| Hosted::default().summary())
    }

    /// The names of all groups that have, or had, members.
    pub(crate) fn names(&self) -> Vec<String> {
        self.groups().by_name.keys().cloned().collect()
    }

    /// Takes a group without members out, and does `forget` while nobody can come in.
    pub(crate) fn delete<T>(&self, name: &str, forget: impl FnOnce() -> T) -> Result<T, ResponseError> {
        let mut groups = self.groups();
        if groups.stopped {
            return Err(ResponseError::NotCoordinator);
        }
        if let Some(hosted) = groups.by_name.get(name).cloned() {
            let mut hosted = hosted.lock().expect("no panic under a group's lock");
            if !hosted.is_empty() {
                return Err(ResponseError::NonEmptyGroup);
            }
            hosted.gone = true;
            groups.by_name.remove(name);
        }
        Ok(forget())
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        let all: Vec<(String, Arc<Mutex<Hosted>>)> =
            self.groups().by_name.iter().map(|(name, hosted)| (name.clone(), hosted.clone())).collect();
        for (name, hosted) in all {
            let mut hosted = hosted.lock().expect("no panic under a group's lock");
            match &mut hosted.consumer {
                Some(consumer) => consumer.tick(self.now()),
                None => hosted.group.tick(self.now(), &self.rules),
            }
            self.settle(&name, &mut hosted);
        }
    }

    /// Lets everybody go who waits; later requests are refused.
    pub(crate) fn stop(&self) {
        let all: Vec<Arc<Mutex<Hosted>>> = {
            let mut groups = self.groups();
            groups.stopped = true;
            groups.by_name.values().cloned().collect()
        };
        for hosted in all {
            let mut hosted = hosted.lock().expect("no panic under a group's lock");
            hosted.group.stop();
            for (token, answer) in hosted.group.take_answers() {
                if let Some(waiting) = hosted.waiting.remove(&token) {
                    waiting.complete(answer);
                }
            }
        }
    }
}

/// Looks at the clock for the groups.
pub(crate) struct Ticker(pub(crate) Arc<crate::service::Service>);

impl Task for Ticker {
    fn step(&mut self) -> Step {
        if self.0.is_stopping() {
            return Step::Done;
        }
        self.0.groups.tick();
        self.0.groups.expire_offsets();
        self.0.expire();
        Step::Wait(LOOK)
    }
}
