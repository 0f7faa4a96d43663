//! One life of a log under the workload that the tests of crashes and of failing operations share, and what must hold after it.

use std::collections::BTreeMap;

use cutwater_partition_log::{Isolation, Log, Offset};
use cutwater_testkit::{LossPolicy, SimPlatform};

use super::{Driver, Fact, Op, Stopped, open, strangers_model, strangers_view, surviving_prefix};

/// Values with their offsets, by topic and partition.
pub type Served = BTreeMap<(usize, u32), Vec<(u64, String)>>;

/// What readers of committed records are shown; where they meet an error, what they were shown before it.
pub fn served(log: &Log) -> Served {
    let mut served = Served::new();
    for topic in log.topics() {
        for partition in 0..topic.partitions {
            let seen = served.entry((topic.id.0 as usize, partition)).or_default();
            let Ok(mut consumer) = log.consumer(topic.id, partition, Offset::ZERO, Isolation::ReadCommitted) else {
                continue;
            };
            loop {
                let before = consumer.position();
                let Ok(fetched) = consumer.poll(300) else { break };
                let push = |record: cutwater_partition_log::batch::RecordRef<'_>| {
                    let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
                    seen.push((record.offset as u64, value));
                };
                fetched.for_each(push).expect("decodable");
                if consumer.position() == before {
                    break;
                }
            }
        }
    }
    served
}

/// Topics, plain appends, transactions of every fate over two topics, a claim in the middle; with tiny limits also
/// segment rolls, checkpoints of the log and reused files.
pub fn workload() -> Vec<Op> {
    let append = |slot, topic, partition| Op::TxnAppend { slot, topic, partition, count: 2 };
    let mut ops = vec![Op::Topic(2), Op::Claim, Op::Topic(1)];
    let offsets = |slot, group| Op::Offsets { slot, group, topic: 0, partition: group as u32 };
    for round in 0..5usize {
        ops.extend([
            Op::Plain { topic: round, partition: 0, count: 3 },
            Op::Begin,
            append(0, 0, 0),
            append(0, 1, 0),
            offsets(0, 0),
            Op::Begin,
            offsets(1, 1),
            append(1, 0, 1),
            append(1, 0, 0),
            Op::Plain { topic: 0, partition: 0, count: 2 },
            Op::Prepare(0),
            Op::Prepare(0),
            Op::Commit(1),
            offsets(0, 1),
            Op::Begin,
            offsets(0, 0),
            append(0, 0, 1),
            append(0, 1, 0),
        ]);
        ops.extend(match round {
            0 => vec![Op::CommitOpen(0)],
            1 => vec![Op::AbortOpen(0), Op::Forget, Op::DeleteGroup(1)],
            // Left open over the claim.
            2 => vec![Op::Begin, append(1, 0, 0), Op::Prepare(1), Op::Claim, Op::Abort(0)],
            // Left open until it times out, beside a prepared one.
            3 => vec![
                Op::Begin,
                append(1, 1, 0),
                Op::Prepare(0),
                Op::TimeOut,
                Op::Plain { topic: 1, partition: 0, count: 6 },
                Op::Commit(1),
            ],
            _ => vec![Op::Prepare(0)],
        });
    }
    ops
}

/// What became of a run of the workload.
#[derive(Default)]
pub struct Life {
    pub facts: Vec<Fact>,
    pub acknowledged: usize,
    pub floor: BTreeMap<(usize, u32), (u64, u64)>,
    pub finished: bool,
    /// What a log that met an error and goes on shows to readers of committed records.
    pub served: Served,
    /// What was told.
    pub error: Option<String>,
}

/// Runs the workload on `sim` until it is done or something is refused.
pub fn live(sim: &SimPlatform) -> Life {
    let mut life = Life::default();
    let log = match open(sim) {
        Ok(log) => log,
        Err(error) => {
            life.error = Some(error.to_string());
            return life;
        }
    };
    let mut driver = Driver::new(log, Vec::new());
    let done = workload().iter().try_for_each(|op| driver.run(op)).and_then(|()| Ok(driver.log.close()?));
    life.finished = done.is_ok();
    if let Err(error) = done {
        life.error = Some(error.0);
        if !sim.disk().is_off() {
            life.served = served(&driver.log);
        }
    }
    life.facts = driver.facts;
    life.acknowledged = driver.acknowledged;
    life.floor = driver.floor;
    life
}

/// The log on `sim` must show a prefix of the facts with all acknowledged ones, and be good for use.
pub fn check(sim: &SimPlatform, life: &Life, story: &str) {
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: doesn't recover: {e}\n{}", sim.disk().trace_text()));
    let n = surviving_prefix(&log, &life.facts, life.acknowledged, story);
    for topic in log.topics() {
        for partition in 0..topic.partitions {
            let now = log.offsets(topic.id, partition).expect("exists");
            let seen = life.floor.get(&(topic.id.0 as usize, partition)).copied().unwrap_or_default();
            let now = (now.high_watermark.0, now.last_stable.0);
            assert!(now.0 >= seen.0 && now.1 >= seen.1, "{story}: offsets went back from {seen:?} to {now:?}");
        }
    }
    let mut driver = Driver::new(log, life.facts[..n].to_vec());
    let sound = |result: Result<(), Stopped>| result.unwrap_or_else(|e| panic!("{story}: {}", e.0));
    let append = |topic| Op::TxnAppend { slot: 0, topic, partition: 0, count: 2 };
    let plain = Op::Plain { topic: 0, partition: 1, count: 1 };
    for op in [Op::Topic(1), Op::Claim, Op::Commit(1), plain, Op::Begin, append(0), append(1), Op::CommitOpen(0)] {
        sound(driver.run(&op));
    }
    sound(driver.check());
    driver.log.close().unwrap_or_else(|e| panic!("{story}: {e}"));
    let seen = strangers_view(&*sim.platform().files);
    assert_eq!(seen, strangers_model(&driver.model()), "{story}: what a stranger reads");
    let Driver { facts, log, .. } = driver;
    drop(log);
    let mut driver = Driver::new(open(sim).unwrap_or_else(|e| panic!("{story}: after close: {e}")), facts);
    sound(driver.run(&Op::Claim));
    sound(driver.check());
    // What was acknowledged since is as safe as what was acknowledged before.
    let facts = driver.facts.clone();
    drop(driver);
    let after = sim.restart(LossPolicy::AllLost);
    let log = open(&after).unwrap_or_else(|e| panic!("{story}: after a power cut behind it all: {e}"));
    assert_eq!(surviving_prefix(&log, &facts, facts.len(), story), facts.len());
}
