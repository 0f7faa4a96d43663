//! One round: a broker with data of its own, everybody at work while faults strike, then a quiet end, a last look at
//! everything, and the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cutwater_platform::{Platform, SplitMix};
use cutwater_testkit::checker::check;
use cutwater_testkit::history::{Call, History, Outcome};

use crate::Failed;
use crate::admin::{self, Administrator, Begun};
use crate::faults::{Faults, Struck};
use crate::foreign::{self, Foreign};
use crate::kept::{Keeper, Kept, Kind};
use crate::plant::{Fault, Plant};
use crate::proxy::Proxy;
use crate::readers::{Marks, Reader};
use crate::reborn::{self, Party, Reborn};
use crate::record::Recorder;
use crate::server::{Server, rest};
use crate::wire::create_topic;
use crate::writers::{Plain, Transactional};

pub(crate) const TOPIC: &str = "chaos";
pub(crate) const PARTITIONS: u32 = 4;

/// Things that strike in a round, at least: operations come fast, faults take their time.
const STRIKES: u32 = 12;

/// What a round without faults does instead of each of them.
const CALM: Duration = Duration::from_millis(150);

/// A foreign client that did less wasn't there.
const FOREIGN_CALLS: u64 = 200;

/// How long everybody may take to come to an end once nothing strikes any more.
const END_WITHIN: Duration = Duration::from_secs(90);

/// Where a round stands.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    over: AtomicBool,
    given_up: AtomicBool,
}

impl Stage {
    /// Nothing new is begun.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Nothing is waited for any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }
}

/// What a round is to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// It ends once so many calls are recorded, or
    pub(crate) operations: u64,
    /// so much time has passed.
    pub(crate) time: Duration,
    /// Whether anything strikes at all.
    pub(crate) faults: bool,
    pub(crate) plant: Vec<Fault>,
    /// Scripts of other people's clients.
    pub(crate) foreign: Vec<Foreign>,
}

/// What a round, or all of them, had in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    /// Those of them that other people's clients made.
    pub(crate) foreign: u64,
    pub(crate) acknowledged: u64,
    pub(crate) read: u64,
    pub(crate) unjudged: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) full_disks: u64,
    /// Connections.
    pub(crate) cuts: u64,
    /// Transactions that an administrator aborted.
    pub(crate) aborts: u64,
    /// Of topics with compaction or retention: records written, whole reads, records that are there no more.
    pub(crate) kept_written: u64,
    pub(crate) kept_scans: u64,
    pub(crate) kept_gone: u64,
    /// Of the topic that is deleted and made again: how often it was, and values acknowledged.
    pub(crate) deaths: u64,
    pub(crate) reborn_written: u64,
}

impl Counts {
    /// Each of them.
    pub(crate) fn all(&mut self) -> [&mut u64; 15] {
        [
            &mut self.operations,
            &mut self.foreign,
            &mut self.acknowledged,
            &mut self.read,
            &mut self.unjudged,
            &mut self.kills,
            &mut self.stops,
            &mut self.full_disks,
            &mut self.cuts,
            &mut self.aborts,
            &mut self.kept_written,
            &mut self.kept_scans,
            &mut self.kept_gone,
            &mut self.deaths,
            &mut self.reborn_written,
        ]
    }
}

/// What came of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) counts: Counts,
    /// What is wrong: kinds of anomalies, and troubles in words.
    pub(crate) wrong: Vec<String>,
}

/// Plays a round in `dir`, which is to be empty.
pub(crate) fn play(plan: &Plan, dir: &Path) -> Result<Outcomes, Failed> {
    let clock = Platform::real().clock;
    let mut server = Server::new(&dir.join("log"))?;
    let proxy = Proxy::start(server.address())?;
    server.tell(proxy.address());
    server.again()?;
    create_topic(server.address(), TOPIC, PARTITIONS, &[])?;
    let (kept, reborn) = (Kept::create(server.address())?, Reborn::create(server.address())?);
    let (recorder, stage, marks) = (Recorder::default(), Stage::default(), Marks::default());
    let (plant, begun) = ((!plan.plant.is_empty()).then(|| Plant::new(plan.plant.clone())), Begun::default());
    let mut random = SplitMix::new(plan.seed);
    let mut foreigners = foreign::Running::start(&plan.foreign, proxy.address(), recorder.listen()?, plan.seed)?;
    let mut faults = Faults::new(random.next());
    let reader = |process, partition, address| Reader {
        process,
        partition,
        address,
        recorder: &recorder,
        stage: &stage,
        marks: &marks,
        plant: plant.as_ref(),
        client: None,
    };
    let seeds = Seeds::new(random.next());
    let keeper = |kind, address| Keeper {
        kind,
        address,
        kept: &kept,
        recorder: &recorder,
        stage: &stage,
        plant: plant.as_ref(),
        random: seeds.next(),
        client: None,
    };
    let party = |partition, address| Party {
        address,
        partition,
        reborn: &reborn,
        recorder: &recorder,
        stage: &stage,
        plant: plant.as_ref(),
        random: seeds.next(),
        client: None,
    };
    let ended = std::thread::scope(|scope| {
        let (direct, through) = (server.address(), proxy.address());
        let (begun, plant) = (&begun, plant.as_ref());
        let mut at_work = vec![];
        for n in 0..3u16 {
            let random = SplitMix::new(random.next());
            let plain = Plain {
                process: 1 + n,
                partition: u32::from(n),
                address: through,
                recorder: &recorder,
                stage: &stage,
                random,
            };
            at_work.push(scope.spawn(move || plain.run()));
        }
        for n in 0..4u16 {
            let writer = Transactional {
                process: 10 + n,
                address: through,
                recorder: &recorder,
                stage: &stage,
                random: SplitMix::new(random.next()),
                newer: n % 2 == 1,
                begun,
                plant,
                client: None,
                producer: (-1, -1),
                sequences: BTreeMap::new(),
            };
            at_work.push(scope.spawn(move || writer.run()));
        }
        for partition in 0..PARTITIONS {
            let address = if partition % 2 == 0 { direct } else { through };
            let reader = reader(20 + partition as u16, partition, address);
            at_work.push(scope.spawn(move || reader.follow()));
        }
        let (jumper, jumps) = (reader(30, 0, through), SplitMix::new(random.next()));
        at_work.push(scope.spawn(move || jumper.jump(jumps)));

        let mut scans = vec![];
        for kind in Kind::ALL {
            let (writer, reader) = (keeper(kind, through), keeper(kind, direct));
            at_work.push(scope.spawn(move || writer.write()));
            scans.push(scope.spawn(move || reader.read()));
        }
        for partition in 0..reborn::PARTITIONS {
            let (writer, reader) = (party(partition, direct), party(partition, through));
            at_work.push(scope.spawn(move || writer.write()));
            at_work.push(scope.spawn(move || reader.follow()));
        }
        // By name, what the network holds back would hit the next topic of that name.
        let undertaker = party(0, direct);
        at_work.push(scope.spawn(move || undertaker.bury()));
        let administrator = Administrator {
            address: direct,
            recorder: &recorder,
            stage: &stage,
            random: SplitMix::new(random.next()),
            begun,
        };
        let administrator = scope.spawn(move || administrator.run());

        let until = clock.monotonic() + plan.time;
        let mut failed = None;
        let mut strikes = STRIKES;
        // Other clients take seconds to start.
        let all_there =
            || (0..plan.foreign.len()).all(|n| recorder.count_of_hundred(foreign::hundred(n)) >= FOREIGN_CALLS);
        while (recorder.count() < plan.operations || strikes > 0 || !all_there()) && clock.monotonic() < until {
            strikes = strikes.saturating_sub(1);
            if !plan.faults {
                rest(CALM);
            } else if let Err(error) = faults.strike(&mut server, &proxy) {
                failed = Some(error);
                break;
            }
        }
        let calmed = faults.calm(&mut server, &proxy);
        stage.over.store(true, Ordering::SeqCst);
        let foreign_ended = foreigners.end(END_WITHIN);
        // Whoever can't come to an end by then is told, and leaves unknown outcomes behind.
        let until = clock.monotonic() + END_WITHIN;
        while clock.monotonic() < until && at_work.iter().any(|thread| !thread.is_finished()) {
            rest(Duration::from_millis(10));
        }
        stage.given_up.store(true, Ordering::SeqCst);
        let aborts = administrator.join().unwrap_or(0);
        let scans: u64 = scans.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
        failed.map_or(calmed, Err).map(|()| (foreign_ended, aborts, scans))
    });
    let (mut wrong, aborts, scans) = ended?;
    let mut foreign_calls = 0;
    let mut uncommitted = vec![];
    stage.given_up.store(false, Ordering::SeqCst);
    for partition in 0..PARTITIONS {
        if !reader(40, partition, server.address()).whole() {
            wrong.push(format!(
                "partition {partition} couldn't be read to its end: a transaction is open, or nobody answers"
            ));
        }
        uncommitted.push(reader(41, partition, server.address()).uncommitted().unwrap_or_default());
    }
    let done = Kind::ALL.map(|kind| keeper(kind, server.address()).last());
    for partition in 0..reborn::PARTITIONS {
        if !party(partition, server.address()).whole() {
            wrong.push(format!("partition {partition} of the topic that was made again can't be read to its end"));
        }
    }
    let ended_by_itself = server.has_ended();
    if ended_by_itself {
        wrong.push("the broker has ended by itself".to_string());
    }
    let (history, troubles) = recorder.take();
    wrong.extend(troubles);
    wrong.extend(against_uncommitted(&history, &uncommitted));
    wrong.extend(admin::committed_nevertheless(&history));
    if aborts == 0 {
        wrong.push("the administrator aborted nothing: it had no part in this".to_string());
    }
    let report = check(&history);
    for (n, Foreign(line)) in plan.foreign.iter().enumerate() {
        let calls = recorder.count_of_hundred(foreign::hundred(n));
        if calls < FOREIGN_CALLS {
            wrong.push(format!("{line} did {calls} calls: it had no part in this"));
        }
        foreign_calls += calls;
    }
    if !report.is_clean() {
        wrong.push(report.to_string());
    }
    let story = reborn.story();
    wrong.extend(story.judge().into_iter().map(|what| format!("the topic that is made again: {what}")));
    if story.deaths() == 0 {
        wrong.push("no topic was deleted and made again".to_string());
    }
    let Struck { kills, stops, full_disks } = faults.struck;
    let counts = Counts {
        operations: report.operations as u64,
        foreign: foreign_calls,
        acknowledged: report.acknowledged as u64,
        read: report.read as u64,
        unjudged: report.unjudged as u64,
        kills,
        stops,
        full_disks,
        cuts: proxy.cuts(),
        aborts,
        kept_written: done.iter().map(|done| done.written).sum(),
        kept_scans: scans + done.len() as u64,
        kept_gone: done.iter().map(|done| done.gone).sum(),
        deaths: story.deaths(),
        reborn_written: story.written(),
    };
    Ok(Outcomes { counts, wrong })
}

/// Generators for those who are at work, each with a seed of its own.
struct Seeds(Mutex<SplitMix>);

impl Seeds {
    fn new(seed: u64) -> Seeds {
        Seeds(Mutex::new(SplitMix::new(seed)))
    }

    fn next(&self) -> SplitMix {
        SplitMix::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).next())
    }
}

/// What committed readers saw stands there for uncommitted ones as well, and so does everything acknowledged, aborted or not;
/// offsets rise; nothing is there that nobody sent.
fn against_uncommitted(history: &History, uncommitted: &[Vec<(u64, u64)>]) -> Vec<String> {
    let mut wrong = vec![];
    let there: Vec<BTreeMap<u64, u64>> = uncommitted.iter().map(|all| all.iter().copied().collect()).collect();
    for (partition, all) in uncommitted.iter().enumerate() {
        if !all.is_sorted_by(|a, b| a.0 < b.0) {
            wrong.push(format!("partition {partition}: offsets don't rise for uncommitted readers"));
        }
    }
    let mut sent: BTreeSet<u64> = BTreeSet::new();
    for op in &history.ops {
        match &op.call {
            Call::Send { partition, value, offset } => {
                sent.insert(value.0);
                let Some(offset) = offset.filter(|_| op.outcome == Outcome::Ok) else { continue };
                let found = there.get(*partition as usize).and_then(|all| all.get(&offset));
                if found != Some(&value.0) {
                    wrong.push(format!("{value:?} was acknowledged at {offset} of partition {partition}; uncommitted readers find {found:?}"));
                }
            }
            Call::Poll { partition, records, .. } => {
                let all = there.get(*partition as usize);
                for (offset, value) in records {
                    if all.and_then(|all| all.get(offset)) != Some(&value.0) {
                        wrong.push(format!(
                            "{value:?} at {offset} of partition {partition} is there for committed readers alone"
                        ));
                    }
                }
            }
            _ => {}
        }
    }
    let invented = uncommitted.iter().flatten().filter(|(_, value)| !sent.contains(value)).count();
    if invented > 0 {
        wrong.push(format!("{invented} records that nobody sent"));
    }
    wrong.truncate(20);
    wrong
}
