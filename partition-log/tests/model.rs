//! Random operations on the log and on a plain model of it, on the simulated disk, one thread, tiny limits: segments roll,
//! checkpoints of the log are taken and its files are reused all the time.

mod log_support;

use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{Driver, Fact, Op, observe, open, strangers_model, strangers_view, surviving_prefix};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Do(Op),
    /// Closes cleanly and opens again.
    Close,
    /// Drops everything, the machine goes on.
    Kill,
    /// The machine's power goes off and on.
    PowerCut(LossPolicy),
}

fn step() -> impl Strategy<Value = Step> {
    let (slot, topic, partition, count) = (0..4usize, 0..3usize, 0..3u32, 1..4usize);
    let ops = prop_oneof![
        1 => (1..3u32).prop_map(Op::Topic),
        6 => (topic.clone(), partition.clone(), count.clone())
            .prop_map(|(topic, partition, count)| Op::Plain { topic, partition, count }),
        1 => Just(Op::Claim),
        4 => Just(Op::Begin),
        9 => (slot.clone(), topic, partition, count)
            .prop_map(|(slot, topic, partition, count)| Op::TxnAppend { slot, topic, partition, count }),
        4 => slot.clone().prop_map(Op::Prepare),
        2 => slot.clone().prop_map(Op::CommitOpen),
        1 => slot.clone().prop_map(Op::AbortOpen),
        3 => (1..3usize).prop_map(Op::Commit),
        1 => slot.prop_map(Op::Abort),
        1 => Just(Op::Forget),
        1 => Just(Op::TimeOut),
        3 => (0..4usize, 0..2usize, 0..3usize, 0..3u32)
            .prop_map(|(slot, group, topic, partition)| Op::Offsets { slot, group, topic, partition }),
        1 => (0..2usize).prop_map(Op::DeleteGroup),
    ];
    let policy = prop::sample::select(LossPolicy::ALL.to_vec());
    prop_oneof![
        30 => ops.prop_map(Step::Do),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        1 => policy.prop_map(Step::PowerCut),
    ]
}

fn run(steps: Vec<Step>) {
    let mut sim = SimPlatform::new(1);
    let mut driver = Driver::new(open(&sim).expect("opens"), Vec::new());
    for op in [Op::Topic(2), Op::Claim] {
        driver.run(&op).expect("the disk is sound");
    }
    for step in steps {
        match step {
            Step::Do(op) => {
                driver.run(&op).unwrap_or_else(|e| panic!("{op:?}: {}", e.0));
                continue;
            }
            Step::Close => {
                driver.check().expect("the disk is sound");
                let lived = driver.log.state_image();
                driver.log.close().expect("the disk is sound");
                let seen = strangers_view(&*sim.platform().files);
                assert_eq!(seen, strangers_model(&driver.model()), "a stranger sees everything in the segments");
                let Driver { facts, log, .. } = driver;
                drop(log);
                sim = sim.kill();
                driver = reopen(&sim, facts, Some(lived));
            }
            Step::Kill | Step::PowerCut(_) => {
                let (facts, acknowledged) = (driver.facts.clone(), driver.acknowledged);
                drop(driver);
                sim = match step {
                    Step::PowerCut(policy) => sim.restart(policy),
                    _ => sim.kill(),
                };
                let log = open(&sim).expect("recovers");
                let n = surviving_prefix(&log, &facts, acknowledged, "after a kill");
                driver = Driver::new(log, facts[..n].to_vec());
            }
        }
        driver.run(&Op::Claim).expect("the disk is sound");
    }
    driver.check().expect("the disk is sound");
    let lived = driver.log.state_image();
    let facts: Vec<Fact> = driver.facts.clone();
    drop(driver);
    // Dropped, not closed: the state comes from the write-ahead log, and must be the one that was lived (I-3).
    let driver = reopen(&sim.kill(), facts, Some(lived));
    drop(driver);
}

fn reopen(sim: &SimPlatform, facts: Vec<Fact>, lived: Option<Vec<u8>>) -> Driver {
    let driver = Driver::new(open(sim).expect("recovers"), facts);
    assert_eq!(observe(&driver.log), driver.model().observed());
    if let Some(lived) = lived {
        assert_eq!(driver.log.state_image(), lived, "the replayed state is the state that was lived");
    }
    driver
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_log_shows_what_a_plain_model_shows_through_restarts_of_every_kind(steps in prop::collection::vec(step(), 0..120)) {
        run(steps);
    }
}
