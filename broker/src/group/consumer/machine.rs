//! One group as a pure state machine over {heartbeat, time}.
//!
//! ```text
//!   a member joins, leaves, is silent, subscribes anew; a topic comes, goes, grows
//!        |
//!   group epoch rises, a new target is computed for all       (at once)
//!        |
//!   each member, at its own heartbeats: gives up what the target takes from it -> says so -> takes the target's epoch
//!   and what others have let go of -> what they let go of later
//! ```
//!
//! Promises, checked over every short history of clients in `tests`:
//! * A partition is a member's from the answer that names it until the member has said that it gave it up, or is no member any
//!   more. It is given to nobody else meanwhile. A client must count a partition as its own from the moment it hears of it.
//! * Epochs rise and never fall, over restarts too. A member of another epoch is refused, and nothing of what it asks is done;
//!   one that missed the last answer, and comes with the epoch before, is let on.
//! * Whatever happened, once nothing happens any more each member has its target after a few heartbeats.
//! * Who doesn't give up what it must within its rebalance time-out, or is silent for a session, is no member any more.
//!
//! A member may subscribe by an expression, too. What it matches is looked up again at the member's heartbeats when topics or rights have
//! changed, as that member may see them, and counts like names that it said itself.
//!
//! Source: KIP-848; Kafka's coordinator where that leaves things open. Not here: going over from the classic protocol while members
//! are in the group; what an expression means.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cutwater_partition_log::{TopicId, TopicPartition};
use kafka_protocol::ResponseError;

use super::assign::{self, Assignor};

/// The epoch of a member that joins, of one that leaves, and of a static one that will be back.
pub(crate) const JOIN: i32 = 0;
pub(crate) const LEAVE: i32 = -1;
pub(crate) const LEAVE_FOR_A_WHILE: i32 = -2;

/// What holds for all groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) members_max: usize,
    /// A member that is silent for so long is none any more.
    pub(crate) session: Duration,
}

/// A heartbeat. What isn't said is as it was said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) member: String,
    pub(crate) epoch: i32,
    pub(crate) instance: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) client: String,
    pub(crate) host: String,
    pub(crate) rebalance: Option<Duration>,
    pub(crate) topics: Option<BTreeSet<String>>,
    /// An expression over names of topics; an empty one is none any more.
    pub(crate) regex: Option<String>,
    pub(crate) assignor: Option<Assignor>,
    /// The partitions that the member has.
    pub(crate) owned: Option<BTreeSet<TopicPartition>>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) member: String,
    pub(crate) epoch: i32,
    /// All that the member shall have now, if it may not know.
    pub(crate) assignment: Option<BTreeSet<TopicPartition>>,
}

/// A topic's number and its partitions.
pub(crate) type Known = (TopicId, u32);

/// The topics that there are, as whoever sends the heartbeat may see them.
pub(crate) trait Catalog {
    /// The topic of a name.
    fn topic(&self, name: &str) -> Option<Known>;

    /// Another number whenever an expression could match others.
    fn version(&self) -> u64 {
        0
    }

    /// The names that an expression matches.
    fn matching(&self, _regex: &str) -> BTreeSet<String> {
        BTreeSet::new()
    }
}

/// By names alone.
impl<Find: Fn(&str) -> Option<Known>> Catalog for Find {
    fn topic(&self, name: &str) -> Option<Known> {
        self(name)
    }
}

pub(crate) type Topics<'a> = &'a dyn Catalog;

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) instance: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) client: String,
    pub(crate) host: String,
    pub(crate) rebalance: Duration,
    pub(crate) topics: BTreeSet<String>,
    pub(crate) regex: Option<String>,
    /// What the expression matches, as of this version of the catalog; none if that has to be looked up.
    pub(crate) matched: BTreeSet<String>,
    pub(crate) matched_at: Option<u64>,
    pub(crate) assignor: Option<Assignor>,
    /// The target that it follows; [`LEAVE_FOR_A_WHILE`] while it is away.
    pub(crate) epoch: i32,
    /// The epoch that it had before, in case it hasn't heard of the last one.
    pub(crate) previous: i32,
    /// What it shall have now.
    pub(crate) assigned: BTreeSet<TopicPartition>,
    /// What it shall give up and hasn't said that it did.
    pub(crate) revoking: BTreeSet<TopicPartition>,
    /// It has all of its target; others may still hold some of it if not.
    pub(crate) complete: bool,
    /// When it is given up unless it is heard of.
    pub(crate) alive_until: Duration,
    /// When it is given up unless it has given up what it must.
    pub(crate) revoke_until: Option<Duration>,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConsumerGroup {
    pub(crate) epoch: i32,
    pub(crate) assignor: Assignor,
    pub(crate) members: BTreeMap<String, Member>,
    /// What each member shall have in the end, as of the group's epoch.
    pub(crate) target: BTreeMap<String, BTreeSet<TopicPartition>>,
    /// The topics that the target was computed for.
    pub(crate) topics: BTreeMap<String, Known>,
    /// Something happened that must be kept before anybody hears of it.
    pub(crate) to_keep: bool,
}

impl ConsumerGroup {
    /// An empty group whose epochs go on after `epoch`.
    pub(crate) fn after(epoch: i32) -> ConsumerGroup {
        ConsumerGroup { epoch: epoch.max(0), to_keep: true, ..ConsumerGroup::default() }
    }

    /// Kafka's name of its state.
    pub(crate) fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.members.values().all(|member| member.epoch == self.epoch && member.is_settled()) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    fn by_instance(&self, instance: &str) -> Option<(&String, &Member)> {
        self.members.iter().find(|(_, member)| member.instance.as_deref() == Some(instance))
    }

    /// A heartbeat at `now`; `fresh` is an id that nobody has.
    pub(crate) fn beat(
        &mut self,
        now: Duration,
        rules: &Rules,
        topics: Topics<'_>,
        beat: Beat,
        fresh: &str,
    ) -> Result<Told, ResponseError> {
        if beat.epoch < JOIN {
            return self.leave(now, rules, &beat);
        }
        let id = if beat.epoch == JOIN { self.join(rules, &beat, fresh)? } else { self.find(&beat)? };
        let epoch = beat.epoch;
        let says_topics = beat.topics.is_some() || beat.regex.is_some();
        let (is_full, owned) = (beat.owned.is_some() && says_topics, beat.owned.clone());
        let mut changed = self.members.get(&id).is_none_or(|member| member.epoch == JOIN && member.previous < 0);
        changed |= self.update(&id, beat, topics);
        changed |= self.look_at(topics);
        if changed {
            self.begin_epoch();
        }
        let before = self.members.get(&id).map(|member| (member.epoch, member.assigned.clone()));
        self.reconcile(now, &id, epoch, owned.as_ref());
        let member = self.members.get_mut(&id).ok_or(ResponseError::UnknownMemberId)?;
        member.alive_until = now + rules.session;
        let news = before.is_none_or(|(earlier, assigned)| earlier != epoch || assigned != member.assigned);
        let assignment = (epoch == JOIN || is_full || news).then(|| member.assigned.clone());
        Ok(Told { member: id, epoch: member.epoch, assignment })
    }

    /// The member that joins, or joins again because it has missed the answer; there is one behind this.
    fn join(&mut self, rules: &Rules, beat: &Beat, fresh: &str) -> Result<String, ResponseError> {
        let id = if beat.member.is_empty() { fresh } else { &beat.member };
        if let Some(member) = self.members.get(id)
            && member.instance == beat.instance
            && member.epoch != LEAVE_FOR_A_WHILE
        {
            member.check(beat)?;
            return Ok(id.to_string());
        }
        let earlier = beat.instance.as_deref().and_then(|instance| self.by_instance(instance));
        if let Some((earlier, member)) = earlier.map(|(id, member)| (id.clone(), member.clone())) {
            if member.epoch != LEAVE_FOR_A_WHILE {
                return Err(ResponseError::UnreleasedInstanceId);
            }
            // It is back: what it had is still its own, whatever it is called now.
            self.members.remove(&earlier);
            let target = self.target.remove(&earlier).unwrap_or_default();
            self.target.insert(id.to_string(), target);
            let back = Member { epoch: JOIN, previous: JOIN, revoke_until: None, ..member };
            self.members.insert(id.to_string(), back);
            self.to_keep = true;
            return Ok(id.to_string());
        }
        if self.members.contains_key(id) {
            return Err(ResponseError::FencedInstanceId);
        }
        if self.members.len() >= rules.members_max {
            return Err(ResponseError::GroupMaxSizeReached);
        }
        let member = Member { instance: beat.instance.clone(), previous: -1, ..Member::default() };
        self.members.insert(id.to_string(), member);
        Ok(id.to_string())
    }

    /// The member that goes on.
    fn find(&self, beat: &Beat) -> Result<String, ResponseError> {
        if let Some(instance) = &beat.instance {
            let (known, _) = self.by_instance(instance).ok_or(ResponseError::UnknownMemberId)?;
            if *known != beat.member {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        let member = self.members.get(&beat.member).ok_or(ResponseError::UnknownMemberId)?;
        member.check(beat)?;
        Ok(beat.member.clone())
    }

    /// Takes what a member says of itself; true if the target depends on it and has to be computed anew.
    fn update(&mut self, id: &str, beat: Beat, topics: Topics<'_>) -> bool {
        let Some(member) = self.members.get_mut(id) else { return false };
        let known = (member.topics.clone(), member.matched.clone(), member.assignor);
        let said = member.says_of_itself();
        member.topics = beat.topics.unwrap_or_else(|| std::mem::take(&mut member.topics));
        member.assignor = beat.assignor.or(member.assignor);
        member.rebalance = beat.rebalance.unwrap_or(member.rebalance);
        member.rack = beat.rack.or_else(|| member.rack.take());
        (member.client, member.host) = (beat.client, beat.host);
        if let Some(regex) = beat.regex.filter(|regex| member.regex.as_deref().unwrap_or_default() != regex) {
            member.regex = Some(regex).filter(|regex| !regex.is_empty());
            member.matched_at = None;
        }
        member.look_up(topics);
        self.to_keep |= said != member.says_of_itself();
        known != (member.topics.clone(), member.matched.clone(), member.assignor)
    }

    /// Looks at the topics that members want; true if some have come, gone or grown.
    fn look_at(&mut self, topics: Topics<'_>) -> bool {
        let names: BTreeSet<&String> = self.members.values().flat_map(Member::wants).collect();
        let found: BTreeMap<String, Known> =
            names.into_iter().filter_map(|name| Some((name.clone(), topics.topic(name)?))).collect();
        let changed = found != self.topics;
        self.topics = found;
        changed
    }

    /// The group goes over to a new target.
    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.assignor = assign::elect(self.members.values().filter_map(|member| member.assignor));
        let wanted = |member: &Member| -> BTreeSet<Known> {
            member.wants().filter_map(|name| self.topics.get(name).copied()).collect()
        };
        let members: Vec<assign::Reader> = self
            .members
            .iter()
            .map(|(id, member)| assign::Reader {
                id: id.clone(),
                order: member.instance.clone().unwrap_or_else(|| id.clone()),
                topics: wanted(member),
                has: self.target.get(id).cloned().unwrap_or_default(),
            })
            .collect();
        self.target = assign::assign(self.assignor, members);
        self.to_keep = true;
    }

    /// Takes a member as far towards its target as the others and itself allow. It has come with `epoch`, and says that it
    /// has `owned`.
    fn reconcile(&mut self, now: Duration, id: &str, epoch: i32, owned: Option<&BTreeSet<TopicPartition>>) {
        let Some(member) = self.members.get(id) else { return };
        let still_owns = |partitions: &BTreeSet<TopicPartition>| match owned {
            Some(owned) => !owned.is_disjoint(partitions),
            None => !partitions.is_empty(),
        };
        if still_owns(&member.revoking) || (member.epoch == self.epoch && member.is_settled()) {
            return;
        }
        let target = self.target.get(id).cloned().unwrap_or_default();
        let held: BTreeSet<TopicPartition> = self
            .members
            .iter()
            .filter(|(other, _)| *other != id)
            .flat_map(|(_, other)| other.assigned.iter().chain(&other.revoking).copied())
            .collect();
        let keep: BTreeSet<_> = member.assigned.intersection(&target).copied().collect();
        let revoke: BTreeSet<_> = member.assigned.difference(&target).copied().collect();
        let (unreleased, free): (BTreeSet<_>, BTreeSet<_>) =
            target.difference(&keep).partition(|partition| held.contains(partition));
        let group_epoch = self.epoch;
        let Some(member) = self.members.get_mut(id) else { return };
        let before = (member.epoch, member.assigned.clone(), member.revoking.clone(), member.complete);
        if still_owns(&revoke) {
            member.assigned = keep;
            member.revoking = revoke;
            member.revoke_until = Some(now + member.rebalance);
            member.complete = false;
        } else {
            member.assigned = keep.union(&free).copied().collect();
            member.revoking.clear();
            member.revoke_until = None;
            member.complete = unreleased.is_empty();
            if member.epoch != group_epoch {
                // What it is known to have heard of, which isn't what it was last told if that was lost.
                member.previous = epoch;
                member.epoch = group_epoch;
            }
        }
        self.to_keep |= before != (member.epoch, member.assigned.clone(), member.revoking.clone(), member.complete);
    }

    fn leave(&mut self, now: Duration, rules: &Rules, beat: &Beat) -> Result<Told, ResponseError> {
        if let Some(instance) = &beat.instance {
            let (known, _) = self.by_instance(instance).ok_or(ResponseError::UnknownMemberId)?;
            if *known != beat.member {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        let member = self.members.get_mut(&beat.member).ok_or(ResponseError::UnknownMemberId)?;
        if beat.epoch == LEAVE_FOR_A_WHILE {
            // What it had stays its own until its session ends; it gives up now what it was asked for.
            member.epoch = LEAVE_FOR_A_WHILE;
            member.revoking.clear();
            member.revoke_until = None;
            member.complete = false;
            member.alive_until = now + rules.session;
            self.to_keep = true;
        } else {
            self.remove(&BTreeSet::from([beat.member.clone()]));
        }
        Ok(Told { member: beat.member.clone(), epoch: beat.epoch, assignment: None })
    }

    /// An operator takes a member out, by its id or its instance.
    pub(crate) fn expel(&mut self, member: &str, instance: Option<&str>) -> Result<(), ResponseError> {
        let id = match instance {
            Some(instance) => {
                let (known, _) = self.by_instance(instance).ok_or(ResponseError::UnknownMemberId)?;
                if !member.is_empty() && known != member {
                    return Err(ResponseError::FencedInstanceId);
                }
                known.clone()
            }
            None if self.members.contains_key(member) => member.to_string(),
            None => return Err(ResponseError::UnknownMemberId),
        };
        self.remove(&BTreeSet::from([id]));
        Ok(())
    }

    /// What these members had is free, and the others share it.
    pub(crate) fn remove(&mut self, ids: &BTreeSet<String>) {
        let before = self.members.len();
        self.members.retain(|id, _| !ids.contains(id));
        if self.members.len() < before {
            self.begin_epoch();
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Duration) {
        let late = |member: &Member| now >= member.alive_until || member.revoke_until.is_some_and(|until| now >= until);
        let late = self.members.iter().filter(|(_, member)| late(member)).map(|(id, _)| id.clone()).collect();
        self.remove(&late);
    }

    /// Whether somebody may commit, or ask for, offsets of the group now. An epoch below 0 is somebody without membership: an
    /// operator of an empty group, or the writer of a transaction.
    pub(crate) fn admits(&self, member: &str, epoch: i32, without: bool) -> Result<(), ResponseError> {
        if epoch < 0 && member.is_empty() && (without || self.members.is_empty()) {
            return Ok(());
        }
        let known = self.members.get(member).ok_or(ResponseError::UnknownMemberId)?;
        if known.epoch == epoch { Ok(()) } else { Err(ResponseError::StaleMemberEpoch) }
    }
}

impl Member {
    /// The topics that it wants, by name or by expression; some perhaps twice.
    pub(crate) fn wants(&self) -> impl Iterator<Item = &String> {
        self.topics.iter().chain(&self.matched)
    }

    fn says_of_itself(&self) -> (Duration, [Option<String>; 2], String, String) {
        (self.rebalance, [self.rack.clone(), self.regex.clone()], self.client.clone(), self.host.clone())
    }

    /// Looks up what its expression matches, unless that is known.
    fn look_up(&mut self, topics: Topics<'_>) {
        // Asked first: what comes meanwhile is looked up again.
        let version = topics.version();
        match &self.regex {
            None => (self.matched, self.matched_at) = (BTreeSet::new(), None),
            Some(_) if self.matched_at == Some(version) => {}
            Some(regex) => (self.matched, self.matched_at) = (topics.matching(regex), Some(version)),
        }
    }

    fn is_settled(&self) -> bool {
        self.complete && self.revoking.is_empty()
    }

    /// The epoch that it has; or the one that it is known to have had, if it owns nothing that isn't its own: then it has missed
    /// answers. Kafka doesn't count what it must still give up as its own, and fences it then.
    fn check(&self, beat: &Beat) -> Result<(), ResponseError> {
        if beat.epoch == self.epoch {
            return Ok(());
        }
        let has_missed_an_answer = beat.epoch == self.previous
            && self.epoch >= JOIN
            && beat
                .owned
                .as_ref()
                .is_some_and(|owned| owned.iter().all(|at| self.assigned.contains(at) || self.revoking.contains(at)));
        if has_missed_an_answer { Ok(()) } else { Err(ResponseError::FencedMemberEpoch) }
    }
}
