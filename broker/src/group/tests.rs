//! Every short history of a small group, and the stories that clients live by.
//!
//! The search: two dynamic members and one static one, every order of joins, syncs, heartbeats, departures and of time
//! passing, up to a depth. At every node the promises of [`super::machine`] are checked, and that whoever waits is answered
//! once enough time has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::ResponseError;

use super::machine::{Group, Phase, Rules};
use super::member::{Answer, Join, Joined, Synced, Token, Who};

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(30);
const DELAY: Duration = Duration::from_secs(3);

fn rules() -> Rules {
    Rules { members_max: 10, initial_delay: DELAY, session: (Duration::from_secs(6), Duration::from_secs(60)) }
}

fn join(member: &str, instance: Option<&str>) -> Join {
    Join {
        member: member.to_string(),
        instance: instance.map(String::from),
        client: "c".to_string(),
        host: "/h".to_string(),
        session: SESSION,
        rebalance: REBALANCE,
        protocol_type: "consumer".to_string(),
        protocols: vec![("range".to_string(), vec![1])],
        id_first: instance.is_none(),
        can_skip: true,
    }
}

/// One client: what it was told last.
#[derive(Clone, Debug, Default)]
struct Client {
    instance: Option<&'static str>,
    id: String,
    generation: i32,
    leads: bool,
    others: Vec<String>,
    joining: Option<Token>,
    syncing: Option<Token>,
    assignment: Option<Vec<u8>>,
}

/// A group, its clients, and everything that was asked.
#[derive(Clone, Default)]
struct World {
    group: Group,
    now: Duration,
    clients: Vec<Client>,
    asked: Token,
    answered: BTreeSet<Token>,
    fresh: u32,
    generation: i32,
    /// What the leader of a generation has given to whom.
    given: BTreeMap<(i32, String), Vec<u8>>,
    story: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Join(usize),
    Sync(usize),
    Heartbeat(usize),
    Leave(usize),
    /// The process is gone and comes back without knowing its id.
    Forget(usize),
    Pass(Duration),
}

impl World {
    fn new() -> World {
        let clients = [None, None, Some("i")].map(|instance| Client { instance, ..Client::default() });
        World { clients: clients.to_vec(), now: Duration::from_secs(1), ..World::default() }
    }

    fn token(&mut self) -> Token {
        self.asked += 1;
        self.asked
    }

    fn run(&mut self, op: Op) -> bool {
        self.story.push(format!("{op:?}"));
        let rules = rules();
        match op {
            Op::Join(n) => {
                if self.clients[n].joining.is_some() {
                    return false;
                }
                let token = self.token();
                self.fresh += 1;
                let client = &mut self.clients[n];
                client.joining = Some(token);
                let asked = join(&client.id, client.instance);
                self.group.join(self.now, &rules, token, asked, &format!("m{}", self.fresh));
            }
            Op::Sync(n) => {
                if self.clients[n].id.is_empty()
                    || self.clients[n].joining.is_some()
                    || self.clients[n].syncing.is_some()
                {
                    return false;
                }
                let token = self.token();
                let client = &mut self.clients[n];
                client.syncing = Some(token);
                let generation = client.generation;
                let to = if client.leads { client.others.clone() } else { Vec::new() };
                let to: Vec<_> =
                    to.into_iter().map(|id| (id.clone(), format!("{generation} {id}").into_bytes())).collect();
                let client = self.clients[n].clone();
                let who = Who { member: &client.id, instance: client.instance, generation };
                let before = self.group.phase;
                self.group.sync(self.now, token, who, (Some("consumer"), Some("range")), to.clone());
                if before == Phase::Completing && self.group.phase == Phase::Stable {
                    self.given.extend(to.into_iter().map(|(id, assignment)| ((generation, id), assignment)));
                }
            }
            Op::Heartbeat(n) => {
                let client = &self.clients[n];
                if client.id.is_empty() {
                    return false;
                }
                let who = Who { member: &client.id, instance: client.instance, generation: client.generation };
                let member = self.group.members.contains_key(&client.id) && client.generation == self.group.generation;
                let alive = self.group.heartbeat(self.now, who);
                let expected = member && self.group.phase != Phase::Preparing;
                assert_eq!(alive.is_ok(), expected, "{:?}: {alive:?}", self.story);
            }
            Op::Leave(n) => {
                let client = &self.clients[n];
                if client.id.is_empty() {
                    return false;
                }
                let id = client.id.clone();
                let _ = self.group.leave(self.now, &rules, &id, client.instance);
                assert!(!self.group.members.contains_key(&id), "{:?}", self.story);
                self.lose(n);
            }
            Op::Forget(n) => {
                if self.clients[n].id.is_empty() {
                    return false;
                }
                self.lose(n);
            }
            Op::Pass(time) => {
                self.now += time;
                self.group.tick(self.now, &rules);
            }
        }
        self.hear();
        true
    }

    /// The client is new again; what it has asked for goes nowhere.
    fn lose(&mut self, n: usize) {
        self.hear();
        let instance = self.clients[n].instance;
        self.clients[n] = Client { instance, ..Client::default() };
    }

    fn hear(&mut self) {
        for (token, answer) in self.group.take_answers() {
            assert!(self.answered.insert(token), "{token} is answered twice: {:?}", self.story);
            let Some(client) = self.clients.iter_mut().find(|c| c.joining == Some(token) || c.syncing == Some(token))
            else {
                continue;
            };
            match answer {
                Answer::Join(Ok(Joined { generation, leader, member, members, protocol, skip_assignment, .. })) => {
                    assert_eq!(protocol, "range");
                    assert_eq!(generation, self.group.generation, "{:?}", self.story);
                    let leads = leader == member && !skip_assignment;
                    (client.id, client.generation, client.leads) = (member, generation, leads);
                    client.others = members.into_iter().map(|(id, ..)| id).collect();
                    assert_eq!(leader == client.id, !client.others.is_empty(), "{:?}", self.story);
                    client.joining = None;
                }
                Answer::Join(Err(refusal)) => {
                    client.joining = None;
                    client.id = match refusal.error {
                        ResponseError::MemberIdRequired => refusal.member,
                        ResponseError::UnknownMemberId | ResponseError::FencedInstanceId => String::new(),
                        other => panic!("{other:?}: {:?}", self.story),
                    };
                }
                Answer::Sync(Ok(Synced { assignment, .. })) => {
                    client.syncing = None;
                    let given = self.given.get(&(client.generation, client.id.clone()));
                    // A static member that has come back has the part of its earlier id.
                    if client.instance.is_none() {
                        assert_eq!(given.cloned().unwrap_or_default(), assignment, "{:?}", self.story);
                    }
                    client.assignment = Some(assignment);
                }
                Answer::Sync(Err(error)) => {
                    client.syncing = None;
                    if matches!(error, ResponseError::UnknownMemberId | ResponseError::FencedInstanceId) {
                        client.id.clear();
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        let group = &self.group;
        let story = &self.story;
        assert!(group.generation >= self.generation, "the generation falls: {story:?}");
        self.generation = group.generation;
        let (joining, syncing) = group.waiting();
        assert!(joining.is_empty() || group.phase == Phase::Preparing, "{:?}: {story:?}", group.phase);
        assert!(syncing.is_empty() || group.phase == Phase::Completing, "{:?}: {story:?}", group.phase);
        let waiting: BTreeSet<Token> = joining.iter().chain(&syncing).copied().collect();
        let open: BTreeSet<Token> = (1..=self.asked).filter(|token| !self.answered.contains(token)).collect();
        assert_eq!(waiting, open, "who isn't answered waits in the group: {story:?}");
        match group.phase {
            Phase::Empty => assert!(group.members.is_empty(), "{story:?}"),
            Phase::Completing | Phase::Stable => {
                assert!(group.members.contains_key(&group.leader), "the leader is a member: {story:?}");
                assert!(group.members.values().all(|m| m.supports(&group.protocol)), "{story:?}");
            }
            Phase::Preparing => {}
        }
        let instances: Vec<_> = group.members.values().filter_map(|m| m.instance.clone()).collect();
        assert_eq!(instances.iter().collect::<BTreeSet<_>>().len(), instances.len(), "one id per instance: {story:?}");
    }

    /// Nobody says anything any more: everybody is answered, and in the end nobody is left.
    fn fall_silent(mut self) {
        self.story.push("silence".to_string());
        for _ in 0..12 {
            self.run(Op::Pass(Duration::from_secs(15)));
            self.check();
        }
        assert_eq!(self.answered.len() as Token, self.asked, "somebody waits for ever: {:?}", self.story);
        assert!(self.group.members.is_empty() && self.group.phase == Phase::Empty, "{:?}", self.story);
    }
}

#[test]
fn every_short_history_keeps_the_promises_and_leaves_nobody_waiting() {
    let mut alphabet = vec![Op::Pass(Duration::from_secs(4)), Op::Pass(Duration::from_secs(31))];
    for n in 0..3 {
        alphabet.extend([Op::Join(n), Op::Sync(n), Op::Heartbeat(n)]);
    }
    alphabet.extend([Op::Leave(0), Op::Leave(2), Op::Forget(0), Op::Forget(2)]);
    fn go(world: &World, alphabet: &[Op], left: usize, seen: &mut u64) {
        *seen += 1;
        if left == 0 {
            return world.clone().fall_silent();
        }
        for op in alphabet {
            let mut next = world.clone();
            if next.run(*op) {
                next.check();
                go(&next, alphabet, left - 1, seen);
            }
        }
    }
    let mut seen = 0;
    go(&World::new(), &alphabet, 5, &mut seen);
    // From a group that two members share on.
    let mut settled = World::new();
    for op in [Op::Join(0), Op::Join(0), Op::Join(2), Op::Pass(Duration::from_secs(4)), Op::Sync(2), Op::Sync(0)] {
        settled.run(op);
    }
    assert_eq!((settled.group.phase, settled.group.members.len()), (Phase::Stable, 2));
    go(&settled, &alphabet, 4, &mut seen);
    assert!(seen > 20_000, "{seen} histories");
}

#[test]
fn long_histories_keep_the_promises() {
    let mut random = cutwater_platform::SplitMix::new(3);
    for _ in 0..2_000 {
        let mut world = World::new();
        for _ in 0..30 {
            let n = (random.next() % 3) as usize;
            let op = match random.next() % 12 {
                0..=3 => Op::Join(n),
                4..=6 => Op::Sync(n),
                7 => Op::Heartbeat(n),
                8 => Op::Leave(n),
                9 => Op::Forget(n),
                10 => Op::Pass(Duration::from_secs(random.next() % 5)),
                _ => Op::Pass(Duration::from_secs(random.next() % 40)),
            };
            world.run(op);
            world.check();
        }
        world.fall_silent();
    }
}

#[test]
fn a_static_member_that_comes_back_gets_its_part_without_a_rebalance_and_fences_its_earlier_id() {
    let mut world = World::new();
    for op in [Op::Join(2), Op::Pass(Duration::from_secs(4)), Op::Sync(2)] {
        world.run(op);
    }
    let before = world.clients[2].clone();
    assert_eq!(before.assignment, Some(b"1 m1".to_vec()));
    world.run(Op::Forget(2));
    world.run(Op::Join(2));
    world.run(Op::Sync(2));
    let after = &world.clients[2];
    assert_eq!((after.generation, &after.assignment), (1, &before.assignment));
    assert_ne!(after.id, before.id);
    let zombie = Who { member: &before.id, instance: Some("i"), generation: 1 };
    assert_eq!(world.group.heartbeat(world.now, zombie), Err(ResponseError::FencedInstanceId));
}

#[test]
fn offsets_are_committed_by_members_of_today_or_by_anybody_for_an_empty_group() {
    let mut world = World::new();
    let nobody = Who { member: "", instance: None, generation: -1 };
    assert_eq!(world.group.commits(world.now, nobody), Ok(()));
    for op in [Op::Join(2), Op::Pass(Duration::from_secs(4))] {
        world.run(op);
    }
    let id = world.clients[2].id.clone();
    let now = |generation| Who { member: &id, instance: Some("i"), generation };
    assert_eq!(world.group.commits(world.now, nobody), Err(ResponseError::UnknownMemberId));
    assert_eq!(world.group.commits(world.now, now(1)), Err(ResponseError::RebalanceInProgress));
    world.run(Op::Sync(2));
    assert_eq!(world.group.commits(world.now, now(1)), Ok(()));
    assert_eq!(world.group.commits(world.now, now(0)), Err(ResponseError::IllegalGeneration));
    assert_eq!(world.group.commits_in_transaction(world.now, nobody), Ok(()));
    assert_eq!(world.group.commits_in_transaction(world.now, now(0)), Err(ResponseError::IllegalGeneration));
}

#[test]
fn who_speaks_no_common_protocol_or_asks_for_a_session_out_of_bounds_is_refused() {
    let mut group = Group::default();
    let first = Join { id_first: false, ..join("", None) };
    group.join(Duration::ZERO, &rules(), 1, first, "a");
    let other = Join { protocols: vec![("sticky".to_string(), vec![])], id_first: false, ..join("", None) };
    group.join(Duration::ZERO, &rules(), 2, other, "b");
    let long = Join { session: Duration::from_secs(3600), ..join("", None) };
    group.join(Duration::ZERO, &rules(), 3, long, "c");
    let answers = group.take_answers();
    let errors: Vec<_> = answers
        .iter()
        .map(|(token, answer)| match answer {
            Answer::Join(Err(refusal)) => (*token, refusal.error),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(errors, [(2, ResponseError::InconsistentGroupProtocol), (3, ResponseError::InvalidSessionTimeout)]);
}

#[test]
fn the_protocol_that_most_members_like_best_wins() {
    let mut group = Group::default();
    let with = |names: [&str; 2]| Join {
        protocols: names.map(|name| (name.to_string(), Vec::new())).to_vec(),
        id_first: false,
        ..join("", None)
    };
    for (token, names) in [(1, ["range", "sticky"]), (2, ["sticky", "range"]), (3, ["sticky", "range"])] {
        group.join(Duration::ZERO, &rules(), token, with(names), &format!("m{token}"));
    }
    group.tick(DELAY, &rules());
    assert_eq!((group.phase, group.protocol.as_str()), (Phase::Completing, "sticky"));
}
