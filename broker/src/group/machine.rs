//! One group as a pure state machine over {request, time}.
//!
//! ```text
//!   Empty --join--> Preparing --all joined, or time is up--> Completing --leader's sync--> Stable
//!     ^                 ^  ^                                     |                           |
//!     +---nobody left---+  +------- join, leave, silence --------+---------------------------+
//! ```
//!
//! Promises, all of them checked over every short history in `tests`:
//! * Every request that waits is answered once, at the latest when time is up; joins wait only while `Preparing`, syncs only
//!   while `Completing`.
//! * The generation rises with each rebalance and never falls; a member of an older one is refused, never half obeyed.
//! * The leader is a member, and the protocol is one that all members have.
//! * Of one instance (static member) at most one id is a member; whoever has an older one is fenced at once.
//!
//! Source: Kafka's `GroupCoordinator`, KIP-62, KIP-345, KIP-394, KIP-429 (which asks nothing of a coordinator), KIP-814.
//! Time is any monotonic one. What members say to each other (metadata, assignments) is opaque.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::ResponseError;

use super::member::{Answer, Join, Joined, Member, Refusal, Synced, Token, Who};

/// Where a group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Nobody is in it; its offsets may be there still.
    #[default]
    Empty,
    /// Members are asked to join again.
    Preparing,
    /// The leader decides who reads what.
    Completing,
    /// Everybody knows.
    Stable,
}

impl Phase {
    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Empty => "Empty",
            Phase::Preparing => "PreparingRebalance",
            Phase::Completing => "CompletingRebalance",
            Phase::Stable => "Stable",
        }
    }
}

/// What holds for all groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) members_max: usize,
    pub(crate) initial_delay: Duration,
    pub(crate) session: (Duration, Duration),
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) phase: Phase,
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) members: BTreeMap<String, Member>,
    /// Ids that were given to members who haven't come back with them, and until when they may.
    pub(crate) expected: BTreeMap<String, Duration>,
    /// `Preparing`: when whoever hasn't joined is left behind. `Completing`: when whoever hasn't asked is.
    deadline: Duration,
    /// `Preparing` from `Empty`: until when more members are waited for.
    delay: Duration,
    /// Something happened that must be kept before anybody hears of it.
    pub(crate) to_keep: bool,
    /// Answers that wait to be delivered.
    answers: Vec<(Token, Answer)>,
}

impl Group {
    /// An empty group whose generations go on after this one.
    pub(crate) fn after(generation: i32) -> Group {
        Group { generation, to_keep: true, ..Group::default() }
    }

    /// The answers since the last time.
    pub(crate) fn take_answers(&mut self) -> Vec<(Token, Answer)> {
        std::mem::take(&mut self.answers)
    }

    fn answer_join(&mut self, token: Option<Token>, answer: Result<Joined, Refusal>) {
        self.answers.extend(token.map(|token| (token, Answer::Join(answer))));
    }

    fn answer_sync(&mut self, token: Option<Token>, answer: Result<Synced, ResponseError>) {
        self.answers.extend(token.map(|token| (token, Answer::Sync(answer))));
    }

    /// A member of today, by whatever it says of itself.
    fn check(&self, who: Who<'_>) -> Result<(), ResponseError> {
        if let Some(instance) = who.instance {
            let (known, _) = self.instance(instance).ok_or(ResponseError::UnknownMemberId)?;
            if known != who.member {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        if !self.members.contains_key(who.member) {
            return Err(ResponseError::UnknownMemberId);
        }
        if who.generation != self.generation {
            return Err(ResponseError::IllegalGeneration);
        }
        Ok(())
    }

    fn instance(&self, instance: &str) -> Option<(&String, &Member)> {
        self.members.iter().find(|(_, member)| member.instance.as_deref() == Some(instance))
    }

    /// Somebody joins; `fresh` is an id that nobody has. The answer comes with [`Group::take_answers`], now or later.
    pub(crate) fn join(&mut self, now: Duration, rules: &Rules, token: Token, join: Join, fresh: &str) {
        if let Err(refusal) = self.try_join(now, rules, token, join, fresh) {
            self.answer_join(Some(token), Err(refusal));
        }
        self.advance(now, rules);
    }

    fn try_join(&mut self, now: Duration, rules: &Rules, token: Token, join: Join, fresh: &str) -> Result<(), Refusal> {
        if !(rules.session.0..=rules.session.1).contains(&join.session) {
            return Err(ResponseError::InvalidSessionTimeout.into());
        }
        // What the member itself said before doesn't count: it may have changed.
        let is_itself = |id: &String, member: &Member| {
            *id == join.member || (join.instance.is_some() && member.instance == join.instance)
        };
        let others: Vec<&Member> =
            self.members.iter().filter(|(id, member)| !is_itself(id, member)).map(|(_, member)| member).collect();
        let common = |name: &String| others.iter().all(|member| member.supports(name));
        let fits = !join.protocol_type.is_empty()
            && (others.is_empty() || self.protocol_type == join.protocol_type)
            && join.protocols.iter().any(|(name, _)| common(name));
        if !fits {
            return Err(ResponseError::InconsistentGroupProtocol.into());
        }
        if others.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        let room = self.members.len() + self.expected.len() < rules.members_max;
        let full = || Refusal::from(ResponseError::GroupMaxSizeReached);
        if join.member.is_empty() {
            if let Some(instance) = &join.instance {
                let known = self.instance(instance).map(|(id, _)| id.clone());
                return match known {
                    Some(old) => {
                        self.replace(now, rules, token, join, &old, fresh);
                        Ok(())
                    }
                    None if room => {
                        self.add(now, rules, token, join, fresh);
                        Ok(())
                    }
                    None => Err(full()),
                };
            }
            if !room {
                return Err(full());
            }
            if join.id_first {
                self.expected.insert(fresh.to_string(), now + join.session);
                return Err(Refusal { error: ResponseError::MemberIdRequired, member: fresh.to_string() });
            }
            self.add(now, rules, token, join, fresh);
            return Ok(());
        }
        let id = join.member.clone();
        if self.expected.remove(&id).is_some() {
            self.add(now, rules, token, join, &id);
            return Ok(());
        }
        if let Some(instance) = &join.instance {
            let (known, _) = self.instance(instance).ok_or(ResponseError::UnknownMemberId)?;
            if *known != id {
                return Err(Refusal { error: ResponseError::FencedInstanceId, member: id });
            }
        }
        let member = self.members.get(&id).ok_or(ResponseError::UnknownMemberId)?;
        let same = member.protocols == join.protocols;
        let settled = match self.phase {
            // Its answer was lost.
            Phase::Completing => same,
            Phase::Stable => same && self.leader != id,
            Phase::Empty | Phase::Preparing => false,
        };
        if settled {
            self.touch(now, &id);
            let joined = self.joined(&id);
            self.answer_join(Some(token), Ok(joined));
            return Ok(());
        }
        self.update(now, token, join, &id);
        self.rebalance(now, rules);
        Ok(())
    }

    fn add(&mut self, now: Duration, rules: &Rules, token: Token, join: Join, id: &str) {
        if self.leader.is_empty() {
            self.leader = id.to_string();
        }
        self.members.insert(id.to_string(), Member::default());
        self.update(now, token, join, id);
        self.rebalance(now, rules);
        // Others may be about to come as well.
        if self.phase == Phase::Preparing && self.delay > Duration::ZERO {
            self.delay = (now + rules.initial_delay).min(self.deadline);
        }
    }

    fn update(&mut self, now: Duration, token: Token, join: Join, id: &str) {
        let Some(member) = self.members.get_mut(id) else { return };
        let earlier = member.joining.replace(token);
        member.instance = join.instance;
        member.client = join.client;
        member.host = join.host;
        member.session = join.session;
        member.rebalance = join.rebalance;
        member.protocols = join.protocols;
        member.deadline = now + member.session;
        // It asks twice: the first one has given up.
        self.answer_join(earlier, Err(ResponseError::UnknownMemberId.into()));
    }

    /// A static member comes back under a new id: the old one is fenced at once, its part is the new one's.
    fn replace(&mut self, now: Duration, rules: &Rules, token: Token, join: Join, old: &str, fresh: &str) {
        let Some(mut member) = self.members.remove(old) else { return };
        let fenced = ResponseError::FencedInstanceId;
        let (joining, syncing) = (member.joining.take(), member.syncing.take());
        self.answer_join(joining, Err(Refusal { error: fenced, member: old.to_string() }));
        self.answer_sync(syncing, Err(fenced));
        let same = member.metadata(&self.protocol) == metadata_of(&join, &self.protocol) && {
            let names = |protocols: &[(String, Vec<u8>)]| protocols.iter().map(|p| p.0.clone()).collect::<Vec<_>>();
            names(&member.protocols) == names(&join.protocols)
        };
        self.members.insert(fresh.to_string(), member);
        let leads = self.leader == old;
        if leads {
            self.leader = fresh.to_string();
        }
        let can_skip = join.can_skip;
        self.update(now, token, join, fresh);
        if self.phase == Phase::Stable && same {
            // Nothing has changed for the others. A leader of an older version is told that the old id leads, so that it
            // doesn't assign anew.
            let mut joined = self.joined(fresh);
            if leads && can_skip {
                joined.skip_assignment = true;
            } else if leads {
                joined.leader = old.to_string();
                joined.members.clear();
            }
            if let Some(member) = self.members.get_mut(fresh) {
                member.joining = None;
            }
            self.to_keep = true;
            self.answer_join(Some(token), Ok(joined));
            return;
        }
        self.rebalance(now, rules);
    }

    fn joined(&self, id: &str) -> Joined {
        let all = self.members.iter();
        let all = all.map(|(id, member)| (id.clone(), member.instance.clone(), member.metadata(&self.protocol)));
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            member: id.to_string(),
            skip_assignment: false,
            members: if self.leader == id { all.collect() } else { Vec::new() },
        }
    }

    /// Asks everybody to join again, unless that is so already.
    fn rebalance(&mut self, now: Duration, rules: &Rules) {
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        match self.phase {
            Phase::Preparing => return,
            Phase::Empty => self.delay = now + rules.initial_delay.min(longest),
            Phase::Completing | Phase::Stable => self.delay = Duration::ZERO,
        }
        let waiting: Vec<Token> = self.members.values_mut().filter_map(|member| member.syncing.take()).collect();
        for token in waiting {
            self.answer_sync(Some(token), Err(ResponseError::RebalanceInProgress));
        }
        self.phase = Phase::Preparing;
        self.deadline = now + longest;
    }

    /// Takes whatever step time and the others allow.
    fn advance(&mut self, now: Duration, rules: &Rules) {
        if self.phase != Phase::Preparing {
            return;
        }
        let all = self.expected.is_empty() && self.members.values().all(|member| member.joining.is_some());
        if (all && now >= self.delay) || now >= self.deadline {
            self.begin_generation(now, rules);
        }
    }

    fn begin_generation(&mut self, now: Duration, rules: &Rules) {
        // A static member that is away keeps its place until its session ends.
        self.members.retain(|_, member| member.joining.is_some() || member.instance.is_some());
        let joined = |group: &Group, id: &String| group.members.get(id).is_some_and(|member| member.joining.is_some());
        if !joined(self, &self.leader) {
            let next = self.members.iter().find(|(_, member)| member.joining.is_some()).map(|(id, _)| id.clone());
            match next {
                Some(next) => self.leader = next,
                // Only static members are left, and all of them away: wait for one, or for the ends of their sessions.
                None if !self.members.is_empty() => {
                    self.deadline = now + rules.initial_delay.max(Duration::from_millis(100));
                    return;
                }
                None => self.leader.clear(),
            }
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.delay = Duration::ZERO;
        self.to_keep = true;
        for member in self.members.values_mut() {
            member.assignment.clear();
        }
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.protocol.clear();
            return;
        }
        self.phase = Phase::Completing;
        self.protocol = self.vote();
        self.deadline = now + self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            self.touch(now, &id);
            let token = self.members.get_mut(&id).and_then(|member| member.joining.take());
            let joined = self.joined(&id);
            self.answer_join(token, Ok(joined));
        }
    }

    /// The protocol that most members like best, of those that all have.
    fn vote(&self) -> String {
        let common = |name: &&String| self.members.values().all(|member| member.supports(name));
        let mut votes: BTreeMap<&String, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(name) = member.protocols.iter().map(|(name, _)| name).find(common) {
                *votes.entry(name).or_default() += 1;
            }
        }
        // Of two with as many votes the first in the alphabet.
        let most = votes.values().max().copied().unwrap_or(0);
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    fn touch(&mut self, now: Duration, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.deadline = now + member.session;
        }
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self.members.get(id).map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }

    /// A member asks what it shall read; the leader says it for all. `protocol` is what newer members believe to speak.
    pub(crate) fn sync(
        &mut self,
        now: Duration,
        token: Token,
        who: Who<'_>,
        protocol: (Option<&str>, Option<&str>),
        assignments: Vec<(String, Vec<u8>)>,
    ) {
        let other = protocol.0.is_some_and(|named| named != self.protocol_type)
            || protocol.1.is_some_and(|named| named != self.protocol);
        let refused = match self.check(who) {
            Err(error) => Some(error),
            Ok(()) if other => Some(ResponseError::InconsistentGroupProtocol),
            Ok(()) => match self.phase {
                Phase::Empty => Some(ResponseError::UnknownMemberId),
                Phase::Preparing => Some(ResponseError::RebalanceInProgress),
                Phase::Completing | Phase::Stable => None,
            },
        };
        if let Some(error) = refused {
            return self.answer_sync(Some(token), Err(error));
        }
        self.touch(now, who.member);
        if self.phase == Phase::Stable {
            let synced = self.synced(who.member);
            return self.answer_sync(Some(token), Ok(synced));
        }
        let earlier = self.members.get_mut(who.member).and_then(|member| member.syncing.replace(token));
        self.answer_sync(earlier, Err(ResponseError::UnknownMemberId));
        if self.leader != who.member {
            return;
        }
        for (id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = assignment;
            }
        }
        self.phase = Phase::Stable;
        self.to_keep = true;
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let token = self.members.get_mut(&id).and_then(|member| member.syncing.take());
            let synced = self.synced(&id);
            self.answer_sync(token, Ok(synced));
        }
    }

    /// A member is alive.
    pub(crate) fn heartbeat(&mut self, now: Duration, who: Who<'_>) -> Result<(), ResponseError> {
        self.check(who)?;
        self.touch(now, who.member);
        if self.phase == Phase::Preparing { Err(ResponseError::RebalanceInProgress) } else { Ok(()) }
    }

    /// Whether somebody may commit offsets for the group now. A generation below 0 is somebody without membership.
    pub(crate) fn commits(&mut self, now: Duration, who: Who<'_>) -> Result<(), ResponseError> {
        if who.generation < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        if who.generation < 0 && who.member.is_empty() && who.instance.is_none() {
            return if self.members.is_empty() { Ok(()) } else { Err(ResponseError::UnknownMemberId) };
        }
        self.check(who)?;
        self.touch(now, who.member);
        if self.phase == Phase::Completing { Err(ResponseError::RebalanceInProgress) } else { Ok(()) }
    }

    /// As [`Group::commits`], within a transaction, whose writer need not be a member.
    pub(crate) fn commits_in_transaction(&mut self, now: Duration, who: Who<'_>) -> Result<(), ResponseError> {
        if who.generation < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        if who.generation < 0 && who.member.is_empty() && who.instance.is_none() {
            return Ok(());
        }
        self.check(who)?;
        self.touch(now, who.member);
        Ok(())
    }

    /// A member leaves, by its id or its instance.
    pub(crate) fn leave(
        &mut self,
        now: Duration,
        rules: &Rules,
        member: &str,
        instance: Option<&str>,
    ) -> Result<(), ResponseError> {
        let id = match instance {
            Some(instance) => {
                let (known, _) = self.instance(instance).ok_or(ResponseError::UnknownMemberId)?;
                if !member.is_empty() && known != member {
                    return Err(ResponseError::FencedInstanceId);
                }
                known.clone()
            }
            None if self.expected.remove(member).is_some() => {
                self.advance(now, rules);
                return Ok(());
            }
            None if self.members.contains_key(member) => member.to_string(),
            None => return Err(ResponseError::UnknownMemberId),
        };
        self.remove(now, rules, &BTreeSet::from([id]));
        Ok(())
    }

    fn remove(&mut self, now: Duration, rules: &Rules, ids: &BTreeSet<String>) {
        for id in ids {
            let Some(gone) = self.members.remove(id) else { continue };
            self.answer_join(gone.joining, Err(ResponseError::UnknownMemberId.into()));
            self.answer_sync(gone.syncing, Err(ResponseError::UnknownMemberId));
            if self.leader == *id {
                self.leader = self.members.keys().next().cloned().unwrap_or_default();
            }
        }
        if !ids.is_empty() {
            self.rebalance(now, rules);
            if self.members.is_empty() && self.expected.is_empty() {
                self.deadline = now;
            }
            self.advance(now, rules);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Duration, rules: &Rules) {
        self.expected.retain(|_, until| now < *until);
        // Who waits for others is alive by that.
        let silent = |member: &Member| member.joining.is_none() && member.syncing.is_none() && now >= member.deadline;
        let silent = self.members.iter().filter(|(_, member)| silent(member)).map(|(id, _)| id.clone()).collect();
        self.remove(now, rules, &silent);
        if self.phase == Phase::Completing && now >= self.deadline {
            let away = self.members.iter().filter(|(_, member)| member.syncing.is_none());
            let away: BTreeSet<String> = away.map(|(id, _)| id.clone()).collect();
            // All of them wait for a leader that hasn't decided: it isn't among them.
            self.remove(now, rules, &away);
        }
        self.advance(now, rules);
    }

    /// Nothing is answered any more: whoever waits hears that another coordinator must be found.
    pub(crate) fn stop(&mut self) {
        let waiting = self.members.values_mut().map(|member| (member.joining.take(), member.syncing.take()));
        for (joining, syncing) in waiting.collect::<Vec<_>>() {
            self.answer_join(joining, Err(ResponseError::NotCoordinator.into()));
            self.answer_sync(syncing, Err(ResponseError::NotCoordinator));
        }
    }

    /// Requests that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> (Vec<Token>, Vec<Token>) {
        let members = || self.members.values();
        (members().filter_map(|m| m.joining).collect(), members().filter_map(|m| m.syncing).collect())
    }
}

fn metadata_of(join: &Join, protocol: &str) -> Vec<u8> {
    let of = join.protocols.iter().find(|(name, _)| name == protocol);
    of.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
}
