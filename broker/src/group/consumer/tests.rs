//! Every short history of three clients, one broker and a network that loses answers; and each rule by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cutwater_partition_log::{TopicId, TopicPartition};
use kafka_protocol::ResponseError;

use super::assign::{Assignor, Reader, assign};
use super::machine::*;
use super::stored;

const SECOND: Duration = Duration::from_secs(1);
const RULES: Rules = Rules { members_max: 3, session: Duration::from_secs(45) };

fn at(topic: u32, partition: u32) -> TopicPartition {
    TopicPartition::new(TopicId(topic), partition)
}

fn set(partitions: &[u32]) -> BTreeSet<TopicPartition> {
    partitions.iter().map(|partition| at(0, *partition)).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Topic "t" is number 0 and has so many partitions; "u" is number 1 and has one.
fn topics(partitions: u32) -> impl Fn(&str) -> Option<Known> {
    move |name: &str| match name {
        "t" => Some((TopicId(0), partitions)),
        "u" => Some((TopicId(1), 1)),
        _ => None,
    }
}

fn joins(member: &str) -> Beat {
    Beat {
        member: member.to_string(),
        topics: Some(names(&["t"])),
        rebalance: Some(10 * SECOND),
        owned: Some(BTreeSet::new()),
        ..Beat::default()
    }
}

fn goes_on(member: &str, epoch: i32, owned: &[u32]) -> Beat {
    Beat { member: member.to_string(), epoch, owned: Some(set(owned)), ..Beat::default() }
}

fn quiet(member: &str, epoch: i32) -> Beat {
    Beat { member: member.to_string(), epoch, ..Beat::default() }
}

/// A group of a fixed topology whose answers are looked at in short: epoch and assignment.
struct Rig {
    group: ConsumerGroup,
    partitions: u32,
    now: Duration,
}

impl Rig {
    fn new(partitions: u32) -> Rig {
        Rig { group: ConsumerGroup::after(0), partitions, now: SECOND }
    }

    fn beat(&mut self, beat: Beat) -> Result<(i32, Option<BTreeSet<TopicPartition>>), ResponseError> {
        let told = self.group.beat(self.now, &RULES, &topics(self.partitions), beat, "fresh")?;
        Ok((told.epoch, told.assignment))
    }
}

#[test]
fn the_first_member_has_everything_and_gives_some_up_before_the_second_gets_it() {
    let mut rig = Rig::new(4);
    assert_eq!(rig.beat(joins("a")), Ok((1, Some(set(&[0, 1, 2, 3])))));
    assert_eq!(rig.beat(quiet("a", 1)), Ok((1, None)));
    assert_eq!(rig.group.state(), "Stable");
    assert_eq!(rig.beat(joins("b")), Ok((2, Some(set(&[])))), "nothing is free yet");
    assert_eq!(rig.group.state(), "Reconciling");
    let (epoch, kept) = rig.beat(quiet("a", 1)).expect("it goes on");
    let kept = kept.expect("it must give some up");
    assert_eq!((epoch, kept.len()), (1, 2), "in its epoch as long as it hasn't given them up");
    assert_eq!(rig.beat(quiet("b", 2)), Ok((2, None)), "still nothing");
    assert_eq!(rig.beat(goes_on("a", 1, &[0, 1, 2, 3])), Ok((1, None)), "it hasn't yet");
    let owned: Vec<u32> = kept.iter().map(|at| at.partition).collect();
    assert_eq!(rig.beat(goes_on("a", 1, &owned)), Ok((2, None)), "it has, and goes over");
    let rest: BTreeSet<_> = set(&[0, 1, 2, 3]).difference(&kept).copied().collect();
    assert_eq!(rig.beat(quiet("b", 2)), Ok((2, Some(rest))));
    assert_eq!(rig.group.state(), "Stable");
    assert_eq!(rig.beat(Beat { epoch: LEAVE, ..quiet("b", LEAVE) }), Ok((LEAVE, None)));
    assert_eq!(rig.beat(quiet("a", 2)), Ok((3, Some(set(&[0, 1, 2, 3])))));
}

#[test]
fn a_member_of_another_epoch_is_refused_and_one_that_missed_an_answer_is_let_on() {
    let mut rig = Rig::new(2);
    assert_eq!(rig.beat(quiet("a", 1)), Err(ResponseError::UnknownMemberId));
    rig.beat(joins("a")).expect("joined");
    assert_eq!(rig.beat(joins("a")), Ok((1, Some(set(&[0, 1])))), "the answer was lost, so it joins again");
    assert_eq!(rig.beat(quiet("a", 2)), Err(ResponseError::FencedMemberEpoch));
    assert_eq!(rig.beat(quiet("a", 7)), Err(ResponseError::FencedMemberEpoch));
    rig.partitions = 3;
    assert_eq!(rig.beat(quiet("a", 1)), Ok((2, Some(set(&[0, 1, 2])))), "the topic has grown");
    rig.partitions = 4;
    assert_eq!(rig.beat(quiet("a", 1)), Err(ResponseError::FencedMemberEpoch), "it must say what it has");
    assert_eq!(rig.beat(goes_on("a", 1, &[0, 1, 3])), Err(ResponseError::FencedMemberEpoch), "it wasn't given 3");
    assert_eq!(rig.beat(goes_on("a", 1, &[0, 1])), Ok((3, Some(set(&[0, 1, 2, 3])))));
    assert_eq!(rig.beat(goes_on("a", 1, &[0, 1])), Ok((3, Some(set(&[0, 1, 2, 3])))), "lost as well");
    assert_eq!(rig.beat(goes_on("a", 3, &[0, 1, 2, 3])), Ok((3, None)));
    assert_eq!(rig.beat(joins("a")), Err(ResponseError::FencedMemberEpoch), "a join that was on its way for long");
}

#[test]
fn a_static_member_that_comes_back_has_what_it_had() {
    let mut rig = Rig::new(2);
    let joins = |id: &str, instance: &str| Beat { instance: Some(instance.to_string()), ..joins(id) };
    let on = |id: &str, instance: &str, epoch| Beat { instance: Some(instance.to_string()), ..quiet(id, epoch) };
    rig.beat(joins("a", "i")).expect("joined");
    rig.beat(joins("b", "j")).expect("joined");
    assert_eq!(rig.beat(on("a", "i", 1)), Ok((1, Some(set(&[0])))), "it is told to give one up");
    assert_eq!(rig.beat(Beat { instance: Some("i".into()), ..goes_on("a", 1, &[0]) }), Ok((2, None)));
    rig.beat(on("b", "j", 2)).expect("given");
    assert_eq!(rig.beat(joins("c", "i")), Err(ResponseError::UnreleasedInstanceId));
    assert_eq!(rig.beat(on("c", "i", 2)), Err(ResponseError::FencedInstanceId));
    assert_eq!(rig.beat(on("a", "k", 2)), Err(ResponseError::UnknownMemberId));
    assert_eq!(rig.beat(on("a", "i", LEAVE_FOR_A_WHILE)), Ok((LEAVE_FOR_A_WHILE, None)));
    assert_eq!(rig.beat(on("a", "i", 2)), Err(ResponseError::FencedMemberEpoch), "it has left");
    assert_eq!(rig.beat(on("b", "j", 2)), Ok((2, None)), "the other one doesn't notice");
    assert_eq!(rig.beat(joins("c", "i")), Ok((2, Some(set(&[0])))), "under another id, in the same epoch");
    assert_eq!(rig.group.members.keys().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(rig.group.state(), "Stable");
    // Gone for longer than a session, it is a member no more.
    rig.beat(on("c", "i", LEAVE_FOR_A_WHILE)).expect("away");
    rig.now += 44 * SECOND;
    rig.beat(on("b", "j", 2)).expect("alive");
    rig.group.tick(rig.now);
    assert_eq!(rig.group.members.len(), 2);
    rig.now += SECOND;
    rig.group.tick(rig.now);
    assert_eq!(rig.beat(on("b", "j", 2)), Ok((3, Some(set(&[0, 1])))));
}

#[test]
fn who_is_silent_or_keeps_what_it_must_give_up_is_out() {
    let mut rig = Rig::new(2);
    rig.beat(joins("a")).expect("joined");
    rig.beat(joins("b")).expect("joined");
    rig.beat(quiet("a", 1)).expect("told to give one up");
    rig.now += 9 * SECOND;
    rig.group.tick(rig.now);
    assert_eq!(rig.beat(goes_on("a", 1, &[0, 1])), Ok((1, None)), "it has its time");
    rig.now += SECOND;
    rig.group.tick(rig.now);
    assert_eq!(rig.beat(goes_on("a", 1, &[0, 1])), Err(ResponseError::UnknownMemberId), "but no more than that");
    assert_eq!(rig.beat(quiet("b", 2)), Ok((3, Some(set(&[0, 1])))));
    rig.now += 45 * SECOND;
    rig.group.tick(rig.now);
    assert!(rig.group.members.is_empty());
    assert_eq!((rig.group.state(), rig.group.epoch), ("Empty", 4));
}

#[test]
fn subscriptions_topics_and_sizes_are_followed_and_a_full_group_takes_nobody() {
    let mut rig = Rig::new(2);
    for member in ["a", "b", "c"] {
        rig.beat(joins(member)).expect("joined");
    }
    assert_eq!(rig.beat(joins("d")), Err(ResponseError::GroupMaxSizeReached));
    let mut rig = Rig::new(2);
    rig.beat(joins("a")).expect("joined");
    let both = Beat { topics: Some(names(&["t", "u", "nowhere"])), ..goes_on("a", 1, &[0, 1]) };
    assert_eq!(rig.beat(both), Ok((2, Some([at(0, 0), at(0, 1), at(1, 0)].into()))));
    let other = Beat { topics: Some(names(&["u"])), ..goes_on("a", 2, &[0, 1]) };
    assert_eq!(rig.beat(other), Ok((2, Some([at(1, 0)].into()))), "the topic is to be given up");
    let done = Beat { owned: Some([at(1, 0)].into()), ..quiet("a", 2) };
    assert_eq!(rig.beat(done), Ok((3, None)));
}

#[test]
fn offsets_are_taken_from_members_of_today_and_from_others_if_there_are_none() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.group.admits("", -1, false), Ok(()));
    rig.beat(joins("a")).expect("joined");
    assert_eq!(rig.group.admits("", -1, false), Err(ResponseError::UnknownMemberId));
    assert_eq!(rig.group.admits("", -1, true), Ok(()), "the writer of a transaction");
    assert_eq!(rig.group.admits("a", 1, false), Ok(()));
    assert_eq!(rig.group.admits("a", 0, false), Err(ResponseError::StaleMemberEpoch));
    assert_eq!(rig.group.admits("a", 2, false), Err(ResponseError::StaleMemberEpoch));
    assert_eq!(rig.group.admits("b", 1, false), Err(ResponseError::UnknownMemberId));
}

#[test]
fn an_operator_takes_members_out_by_id_or_instance() {
    let mut rig = Rig::new(1);
    rig.beat(Beat { instance: Some("i".into()), ..joins("a") }).expect("joined");
    assert_eq!(rig.group.expel("b", None), Err(ResponseError::UnknownMemberId));
    assert_eq!(rig.group.expel("b", Some("i")), Err(ResponseError::FencedInstanceId));
    assert_eq!(rig.group.expel("", Some("i")), Ok(()));
    assert!(rig.group.members.is_empty());
}

#[test]
fn a_group_is_read_back_as_it_was_kept_and_nothing_else_is() {
    let mut rig = Rig::new(4);
    rig.beat(Beat { instance: Some("i".into()), assignor: Some(Assignor::Range), ..joins("a") }).expect("joined");
    rig.beat(Beat { rack: Some("r".into()), client: "c".into(), host: "h".into(), ..joins("b") }).expect("joined");
    rig.beat(Beat { instance: Some("i".into()), ..quiet("a", 1) }).expect("told to give some up");
    let bytes = stored::write(&rig.group);
    let read = stored::read(&bytes, rig.now, RULES.session);
    rig.group.to_keep = false;
    assert_eq!(read, Some(rig.group));
    for cut in 0..bytes.len() {
        assert_eq!(stored::read(&bytes[..cut], SECOND, RULES.session), None, "cut at {cut}");
    }
    for version in [0, 1, 3, 4] {
        assert_eq!(stored::read(&[&[version], &bytes[1..]].concat(), SECOND, RULES.session), None);
    }
}

/// Expressions are beginnings of names here.
struct Shelf {
    version: u64,
    topics: Vec<(&'static str, Known)>,
}

impl Catalog for Shelf {
    fn topic(&self, name: &str) -> Option<Known> {
        self.topics.iter().find(|(known, _)| *known == name).map(|(_, topic)| *topic)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn matching(&self, regex: &str) -> BTreeSet<String> {
        self.topics.iter().filter(|(name, _)| name.starts_with(regex)).map(|(name, _)| name.to_string()).collect()
    }
}

#[test]
fn what_an_expression_matches_is_looked_up_when_topics_have_changed_and_is_kept() {
    let mut shelf = Shelf { version: 1, topics: vec![("ta", (TopicId(0), 1)), ("u", (TopicId(1), 1))] };
    let mut group = ConsumerGroup::after(0);
    let beat = |group: &mut ConsumerGroup, shelf: &Shelf, beat: Beat| {
        group.beat(SECOND, &RULES, shelf, beat, "fresh").map(|told| (told.epoch, told.assignment))
    };
    let by = |regex: &str| Some(regex.to_string());
    let joined = beat(&mut group, &shelf, Beat { topics: None, regex: by("t"), ..joins("a") });
    assert_eq!(joined, Ok((1, Some(set(&[0])))));
    shelf.topics.push(("tb", (TopicId(2), 1)));
    assert_eq!(beat(&mut group, &shelf, quiet("a", 1)), Ok((1, None)), "the version says that nothing has changed");
    shelf.version = 2;
    let both: BTreeSet<_> = [at(0, 0), at(2, 0)].into();
    assert_eq!(beat(&mut group, &shelf, quiet("a", 1)), Ok((2, Some(both.clone()))));
    // Kept and read back it goes on in the same epoch; a member without an expression stays without.
    beat(&mut group, &shelf, joins("b")).expect("joined");
    let bytes = stored::write(&group);
    assert_eq!(bytes[0], 3);
    let mut read = stored::read(&bytes, SECOND, RULES.session).expect("what was written");
    assert_eq!((read.members["a"].regex.as_deref(), read.members["b"].regex.as_deref()), (Some("t"), None));
    assert_eq!(read.members["a"].matched, names(&["ta", "tb"]));
    for cut in 0..bytes.len() {
        assert_eq!(stored::read(&bytes[..cut], SECOND, RULES.session), None, "cut at {cut}");
    }
    let epoch = read.epoch;
    assert_eq!(
        beat(&mut read, &shelf, Beat { owned: Some(both.clone()), ..quiet("a", 2) }).map(|told| told.0),
        Ok(epoch)
    );
    assert_eq!(read.epoch, epoch, "nothing has changed");
    // The same said again is no change; another one that matches the same is kept, and moves nobody.
    read.to_keep = false;
    beat(&mut read, &shelf, Beat { regex: by("t"), ..quiet("a", epoch) }).expect("the same");
    assert!(!read.to_keep);
    beat(&mut read, &shelf, Beat { regex: by("t"), topics: Some(names(&["ta"])), ..quiet("a", epoch) })
        .expect("names, too");
    assert_eq!(read.epoch, epoch + 1, "what it says of itself has changed");
    // An empty one is none.
    let none = beat(&mut read, &shelf, Beat { regex: by(""), ..quiet("a", epoch + 1) });
    assert_eq!(none, Ok((epoch + 1, Some(set(&[0])))), "the other one is to be given up");
    assert_eq!(stored::write(&read)[0], 2, "without expressions the older form will do");
}

/// All small cases: up to three readers of any of two topics, whoever had what before.
#[test]
fn partitions_are_given_away_once_to_those_who_want_them_evenly_and_without_need_to_nobody_else() {
    let known = |topics: u32| -> BTreeSet<Known> {
        [(0, (TopicId(0), 3)), (1, (TopicId(1), 2))]
            .into_iter()
            .filter(|(bit, _)| topics >> bit & 1 == 1)
            .map(|(_, t)| t)
            .collect()
    };
    let all: Vec<TopicPartition> = (0..3).map(|p| at(0, p)).chain((0..2).map(|p| at(1, p))).collect();
    let mut cases = 0;
    for (assignor, wants, had) in [Assignor::Uniform, Assignor::Range].into_iter().flat_map(|assignor| {
        (0..4u32.pow(3)).flat_map(move |wants| (0..4u32.pow(5)).step_by(7).map(move |had| (assignor, wants, had)))
    }) {
        let readers: Vec<Reader> = (0..3u32)
            .map(|reader| Reader {
                id: reader.to_string(),
                order: reader.to_string(),
                topics: known(wants >> (2 * reader) & 3),
                has: all.iter().zip(0..).filter(|(_, n)| had >> (2 * n) & 3 == reader).map(|(at, _)| *at).collect(),
            })
            .collect();
        let given = assign(assignor, readers.clone());
        let wanted = |reader: &Reader, at: &TopicPartition| reader.topics.iter().any(|topic| topic.0 == at.topic);
        for at in &all {
            let owners: Vec<&Reader> = readers.iter().filter(|reader| given[&reader.id].contains(at)).collect();
            let is_wanted = readers.iter().any(|reader| wanted(reader, at));
            assert_eq!(owners.len(), usize::from(is_wanted), "{at} in {given:?} of {readers:?}");
            assert!(owners.iter().all(|owner| wanted(owner, at)));
        }
        let count = |reader: &Reader| given[&reader.id].len();
        if assignor == Assignor::Uniform {
            for (from, at) in readers.iter().flat_map(|from| given[&from.id].iter().map(move |at| (from, at))) {
                let better = readers.iter().filter(|to| wanted(to, at)).find(|to| count(to) + 1 < count(from));
                assert!(better.is_none(), "{at} should be {better:?}'s: {given:?}");
            }
            let again: Vec<Reader> =
                readers.iter().map(|reader| Reader { has: given[&reader.id].clone(), ..reader.clone() }).collect();
            assert_eq!(assign(assignor, again), given, "what is even stays");
        }
        cases += 1;
    }
    assert_eq!(cases, 2 * 64 * 147);
}

#[test]
fn most_partitions_stay_when_a_reader_comes_or_goes() {
    let reader = |id: u32, has: &BTreeSet<TopicPartition>| Reader {
        id: id.to_string(),
        order: id.to_string(),
        topics: [(TopicId(0), 100)].into(),
        has: has.clone(),
    };
    let mut has: BTreeMap<String, BTreeSet<TopicPartition>> = BTreeMap::new();
    for readers in [1, 2, 3, 4, 3, 7, 10, 9] {
        let of = |id: u32| reader(id, has.get(&id.to_string()).unwrap_or(&BTreeSet::new()));
        let given = assign(Assignor::Uniform, (0..readers).map(of).collect());
        let sizes: Vec<usize> = given.values().map(BTreeSet::len).collect();
        assert!(sizes.iter().max().zip(sizes.iter().min()).is_some_and(|(max, min)| max - min <= 1), "{sizes:?}");
        let stayed: usize =
            given.iter().map(|(id, now)| has.get(id).map_or(0, |had| had.intersection(now).count())).sum();
        let before = has.len() as u32;
        let least = if before == 0 {
            0
        } else if readers > before {
            100 * before / readers
        } else {
            100 * readers / before
        };
        assert!(stayed + 2 * readers as usize >= least as usize, "{stayed} of {least} stayed at {readers}");
        has = given;
    }
}

#[test]
fn ranges_are_cut_in_the_order_of_instances_then_ids() {
    let reader = |id: &str, order: &str| Reader {
        id: id.to_string(),
        order: order.to_string(),
        topics: [(TopicId(0), 5), (TopicId(1), 1)].into(),
        has: BTreeSet::new(),
    };
    let given = assign(Assignor::Range, vec![reader("x", "b"), reader("y", "a")]);
    assert_eq!(given["y"], [at(0, 0), at(0, 1), at(0, 2), at(1, 0)].into());
    assert_eq!(given["x"], [at(0, 3), at(0, 4)].into());
}

/// A client as KIP-848 describes it. It has a partition from the moment it hears of it, and gives some up in a step of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    alive: bool,
    epoch: i32,
    owned: BTreeSet<TopicPartition>,
    /// What it shall give up.
    revoking: BTreeSet<TopicPartition>,
    /// What it said last, and was heard to say.
    said: Option<BTreeSet<TopicPartition>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    group: ConsumerGroup,
    clients: [Client; 3],
    partitions: u32,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// It sends a heartbeat; the answer may be lost.
    Beat { lost: bool },
    /// It gives up what it must.
    Revoke,
    /// It leaves, and says so.
    Leave,
    /// It dies, and the group hears of it when its session is over.
    Die,
}

impl World {
    fn beat(&mut self, who: usize, lost: bool) {
        let client = &mut self.clients[who];
        client.alive = true;
        let id = who.to_string();
        let joins_now = client.epoch == 0;
        let say = joins_now || client.said.as_ref() != Some(&client.owned);
        let mut beat = if joins_now { joins(&id) } else { quiet(&id, client.epoch) };
        beat.owned = say.then(|| client.owned.clone());
        if client.said.is_none() {
            // It doesn't know what was heard, and says everything.
            beat.topics = Some(names(&["t"]));
        }
        let answer = self.group.beat(SECOND, &RULES, &topics(self.partitions), beat, "never");
        self.group.to_keep = false;
        if lost {
            // The next one says everything again.
            client.said = None;
            return;
        }
        match answer {
            Ok(told) => {
                client.epoch = told.epoch;
                client.said = Some(client.owned.clone());
                if let Some(shall) = told.assignment {
                    client.revoking = client.owned.difference(&shall).copied().collect();
                    client.owned.extend(shall);
                }
            }
            Err(ResponseError::FencedMemberEpoch | ResponseError::UnknownMemberId) => {
                *client = Client { alive: true, ..Client::default() };
            }
            Err(other) => panic!("{other:?} for {who} in {self:?}"),
        }
    }

    fn step(&mut self, who: usize, op: Op) {
        match op {
            Op::Beat { lost } => self.beat(who, lost),
            Op::Revoke => {
                let client = &mut self.clients[who];
                let gone = std::mem::take(&mut client.revoking);
                client.owned.retain(|at| !gone.contains(at));
            }
            Op::Leave => {
                let beat = Beat { epoch: LEAVE, ..quiet(&who.to_string(), LEAVE) };
                let _ = self.group.beat(SECOND, &RULES, &topics(self.partitions), beat, "never");
                self.group.to_keep = false;
                self.clients[who] = Client::default();
            }
            Op::Die => {
                self.clients[who] = Client::default();
                self.group.remove(&BTreeSet::from([who.to_string()]));
                self.group.to_keep = false;
            }
        }
    }

    fn check(&self, history: &dyn std::fmt::Debug) {
        let mut owners: BTreeMap<TopicPartition, usize> = BTreeMap::new();
        for (who, client) in self.clients.iter().enumerate() {
            for at in &client.owned {
                assert!(owners.insert(*at, who).is_none(), "{at} has two owners after {history:?}: {self:#?}");
            }
        }
        let mut held = BTreeSet::new();
        for (id, member) in &self.group.members {
            assert!(member.epoch <= self.group.epoch, "{id} is ahead of its group");
            for at in member.assigned.iter().chain(&member.revoking) {
                assert!(held.insert(*at), "{at} is given away twice after {history:?}");
            }
        }
    }

    /// Quiet rounds: everybody who is there beats and gives up what it must.
    fn settle(&mut self, history: &dyn std::fmt::Debug) {
        for _ in 0..6 {
            for who in 0..3 {
                if self.clients[who].alive {
                    self.step(who, Op::Beat { lost: false });
                    self.check(history);
                    self.step(who, Op::Revoke);
                }
            }
        }
        let alive: Vec<&Client> = self.clients.iter().filter(|client| client.alive).collect();
        assert_eq!(alive.len(), self.group.members.len(), "after {history:?}: {self:#?}");
        let owned: BTreeSet<TopicPartition> = alive.iter().flat_map(|client| client.owned.iter().copied()).collect();
        let expected =
            if alive.is_empty() { BTreeSet::new() } else { (0..self.partitions).map(|p| at(0, p)).collect() };
        assert_eq!(owned, expected, "after {history:?}: {self:#?}");
        if !alive.is_empty() {
            assert_eq!(self.group.state(), "Stable", "after {history:?}: {self:#?}");
            let sizes = alive.iter().map(|client| client.owned.len());
            assert!(sizes.clone().max().zip(sizes.min()).is_some_and(|(max, min)| max - min <= 1));
        }
    }
}

/// Every history of seven steps (a beat heard or lost, a revocation, a leave, a death, a topic that grows) of three clients: no
/// partition is ever two clients' at once, and from every state that is reached everybody comes to a fair share of all.
#[test]
fn no_partition_is_ever_two_members_and_everybody_converges() {
    const OPS: [Op; 5] = [Op::Beat { lost: false }, Op::Beat { lost: true }, Op::Revoke, Op::Leave, Op::Die];
    const STEPS: usize = 7;
    let start = World { group: ConsumerGroup::default(), clients: Default::default(), partitions: 2 };
    let mut seen = BTreeSet::from([start.clone()]);
    let mut queue = VecDeque::from([(start, Vec::new())]);
    while let Some((world, history)) = queue.pop_front() {
        let mut settled = world.clone();
        settled.settle(&history);
        if history.len() == STEPS {
            continue;
        }
        let mut visit = |next: World, step: (usize, &'static str)| {
            let mut history = history.clone();
            history.push(step);
            next.check(&history);
            if !seen.contains(&next) {
                seen.insert(next.clone());
                queue.push_back((next, history));
            }
        };
        for who in 0..3 {
            // Clients are alike: the second comes behind the first, the third behind the second.
            if who > 0 && !world.clients[who - 1].alive && !world.clients[who].alive {
                continue;
            }
            for op in OPS {
                let mut next = world.clone();
                next.step(who, op);
                let name = match op {
                    Op::Beat { lost: false } => "beats",
                    Op::Beat { lost: true } => "beats in vain",
                    Op::Revoke => "revokes",
                    Op::Leave => "leaves",
                    Op::Die => "dies",
                };
                visit(next, (who, name));
            }
        }
        if world.partitions == 2 {
            visit(World { partitions: 3, ..world.clone() }, (0, "the topic grows"));
        }
    }
    assert!(seen.len() > 10_000, "{} states", seen.len());
}
