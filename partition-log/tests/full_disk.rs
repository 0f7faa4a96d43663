//! Disks that fill up and get room again under a log that goes on: what was acknowledged is there, what was refused isn't, what was
//! held up happens once, in its order, when there is room; readers notice nothing. Struck at I/O steps besides.

mod log_support;

use std::io::ErrorKind;
use std::path::Path;

use cutwater_partition_log::batch::{BatchHeader, Limits, records};
use cutwater_partition_log::{
    AppendError, CommitError, Down, FetchError, Isolation, Log, LogLimits, LogOptions, Offset, OpenError, Owner,
    OwnerId, Producer, TopicError, TopicId, TopicPartition, TxnId, TxnName,
};
use cutwater_platform::random::Seeded;
use cutwater_platform::{BLOCK_BYTES, Random, WallTime};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{DIR, batch, open, read};

const PARTITIONS: u32 = 2;
const OWNER: OwnerId = OwnerId(0xF111);

/// What whoever asked was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done,
    Unknown,
}

/// A log on a disk that fills up, and all that was asked of it and not refused.
struct Life {
    sim: SimPlatform,
    log: Log,
    topic: TopicId,
    producer: Producer,
    owner: Owner,
    random: Seeded,
    /// The power goes out at some step.
    is_struck: bool,
    next: u64,
    /// By partition, in the order of acceptance.
    accepted: Vec<Vec<(String, Told)>>,
    /// Values of transactions that were prepared, and how their commit went, if it was accepted.
    transactions: Vec<(TxnId, Vec<String>, Option<Told>)>,
    refused: u64,
    unknown: u64,
    /// The highest offset that a reader was shown, by partition.
    shown: Vec<usize>,
}

impl Life {
    fn new(seed: u64) -> Result<Life, String> {
        Life::on(SimPlatform::new(seed), seed)
    }

    fn on(sim: SimPlatform, seed: u64) -> Result<Life, String> {
        // Every other one has put nothing by.
        let reserve_bytes = if seed.is_multiple_of(2) { 0 } else { 8 * BLOCK_BYTES as u64 };
        let limits = LogLimits { reserve_bytes, ..LogLimits::tiny() };
        let log = Log::open(&sim.platform(), Path::new(DIR), with(limits)).map_err(|e| e.to_string())?;
        let topic = log.create_topic("t", PARTITIONS).map_err(|e| e.to_string())?;
        let producer = log.producer().map_err(|e| e.to_string())?;
        let owner = log.claim(&OWNER, 1).map_err(|e| e.to_string())?;
        let none = || (0..PARTITIONS).map(|_| Vec::new()).collect();
        Ok(Life {
            sim,
            log,
            topic,
            producer,
            owner,
            random: Seeded::new(seed),
            is_struck: false,
            next: 0,
            accepted: none(),
            transactions: Vec::new(),
            refused: 0,
            unknown: 0,
            shown: vec![0; PARTITIONS as usize],
        })
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn value(&mut self) -> String {
        self.next += 1;
        let length = self.below(2_500) as usize;
        format!("{}-{}", self.next, "x".repeat(length))
    }

    /// Not a block more than there is now, or a few.
    fn fill(&mut self, slack: u64) {
        let disk = self.sim.disk();
        disk.set_capacity_bytes(disk.used_bytes() + slack * BLOCK_BYTES as u64);
    }

    fn lift(&mut self) {
        self.sim.disk().set_capacity_bytes(None);
        self.sim.disk().set_overwrites_need_room(false);
    }

    fn append(&mut self) -> Result<(), String> {
        let partition = self.below(PARTITIONS.into()) as u32;
        let value = self.value();
        let ticket = match self.producer.append(self.topic, partition, &mut batch(std::slice::from_ref(&value))) {
            Ok(ticket) => ticket,
            Err(AppendError::Down(Down::NoRoom(_))) => {
                self.refused += 1;
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        let accepted = &mut self.accepted[partition as usize];
        accepted.push((value, Told::Unknown));
        match ticket.wait() {
            Ok(_) => accepted.last_mut().expect("just pushed").1 = Told::Done,
            Err(AppendError::OutcomeUnknown(_)) => self.unknown += 1,
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// A whole transaction over both partitions. What can't be begun or filled is aborted.
    fn transact(&mut self) -> Result<(), String> {
        let (checkpoint, sink) = (self.next, "s".to_string());
        let mut txn = match self.owner.begin(TxnName { checkpoint, sink, writer: 0 }) {
            Ok(txn) => txn,
            Err(_) => {
                self.refused += 1;
                return Ok(());
            }
        };
        let mut values = Vec::new();
        for partition in 0..PARTITIONS {
            let value = self.value();
            match txn.append(self.topic, partition, &mut batch(std::slice::from_ref(&value))) {
                Ok(_) => values.push(value),
                Err(AppendError::Down(Down::NoRoom(_))) => {
                    self.refused += 1;
                    let _ = txn.abort();
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        let id = txn.id().clone();
        match txn.prepare() {
            Ok(_) => {}
            // Refused: it stays open. Unknown: it will be prepared.
            Err(_) if self.log.status().no_room.is_some() => {
                let _ = self.owner.abort(std::slice::from_ref(&id));
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
        self.transactions.push((id, values, None));
        let last = self.transactions.len() - 1;
        self.commit(last)
    }

    fn commit(&mut self, index: usize) -> Result<(), String> {
        let (id, _, told) = &mut self.transactions[index];
        match self.owner.commit(std::slice::from_ref(id)) {
            Ok(_) => *told = Some(Told::Done),
            Err(CommitError::Down(Down::NoRoom(_))) => self.refused += 1,
            Err(CommitError::OutcomeUnknown(_)) => *told = Some(Told::Unknown),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Reading goes on: all that was acknowledged is there, and nothing goes back.
    fn check_read(&mut self) {
        for partition in 0..PARTITIONS {
            let seen = match try_plain(&self.log, self.topic, partition) {
                Ok(seen) => seen,
                // The machine is off.
                Err(_) if self.is_struck => return,
                Err(error) => panic!("reading goes on: {error}"),
            };
            let accepted = &self.accepted[partition as usize];
            assert!(seen.len() >= self.shown[partition as usize], "what was shown is shown");
            assert_prefix(&seen, accepted, "while it lives");
            self.shown[partition as usize] = seen.len();
        }
        // What is open or prepared holds readers back.
        if !self.log.transactions().is_empty() {
            return;
        }
        let seen = committed(&self.log, self.topic);
        for (id, values, told) in &self.transactions {
            let there = values.iter().filter(|value| seen.contains(value)).count();
            assert!(there == 0 || there == values.len(), "{id} is there whole or not at all");
            assert!(*told != Some(Told::Done) || there > 0, "{id} was committed");
            assert!(told.is_some() || there == 0, "{id} wasn't committed");
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.below(24) {
            0 => {
                let slack = self.below(6);
                self.fill(slack);
            }
            1 => {
                let copies = self.below(2) == 0;
                self.sim.disk().set_overwrites_need_room(copies);
                self.fill(0);
            }
            2..=4 => self.lift(),
            5..=8 => self.transact()?,
            9 => self.check_read(),
            10 if !self.transactions.is_empty() => {
                let index = self.below(self.transactions.len() as u64) as usize;
                self.commit(index)?;
            }
            _ => self.append()?,
        }
        Ok(())
    }

    /// There is room: everything that was accepted is there, once and in its order, and all goes on.
    fn settle(&mut self) {
        self.lift();
        let before = self.refused + self.unknown;
        self.append().expect("sound");
        self.append().expect("sound");
        assert_eq!(self.refused + self.unknown, before, "there is room: {:?}", self.log.status().no_room);
        assert_eq!(self.log.status().no_room, None);
        for index in 0..self.transactions.len() {
            self.commit(index).expect("sound");
        }
        // Given up when there was no room even for that.
        for live in self.log.transactions() {
            self.owner.abort(&[live.id]).expect("sound");
        }
        self.check_all(&self.log);
    }

    fn check_all(&self, log: &Log) {
        for partition in 0..PARTITIONS {
            let expected: Vec<&String> = self.accepted[partition as usize].iter().map(|(value, _)| value).collect();
            assert_eq!(plain(log, self.topic, partition).iter().collect::<Vec<_>>(), expected, "partition {partition}");
        }
        let seen = committed(log, self.topic);
        let expected: Vec<&String> = self.transactions.iter().flat_map(|(_, values, _)| values).collect();
        let mut found: Vec<&String> = seen.iter().filter(|value| expected.contains(value)).collect();
        found.sort_unstable();
        let mut sorted = expected.clone();
        sorted.sort_unstable();
        assert_eq!(found, sorted, "transactions are there once");
        let plain: usize = self.accepted.iter().map(Vec::len).sum();
        assert_eq!(seen.len(), plain + expected.len(), "nothing else is there");
    }

    /// After a crash: a prefix of what was accepted, all that was acknowledged among it.
    fn check_after(&self, sim: &SimPlatform, story: &str) {
        sim.disk().set_capacity_bytes(None);
        sim.disk().set_overwrites_need_room(false);
        let log = open(sim).unwrap_or_else(|e| panic!("{story}: {e}"));
        for partition in 0..PARTITIONS {
            assert_prefix(&plain(&log, self.topic, partition), &self.accepted[partition as usize], story);
        }
        for live in log.transactions() {
            log.force_abort(&live.id).unwrap_or_else(|e| panic!("{story}: {e}"));
        }
        let seen = committed(&log, self.topic);
        for (id, values, told) in &self.transactions {
            let there = values.iter().filter(|value| seen.contains(value)).count();
            assert!(there == 0 || there == values.len(), "{story}: {id} is there whole or not at all");
            assert!(*told != Some(Told::Done) || there > 0, "{story}: {id} was committed");
        }
        let producer = log.producer().unwrap_or_else(|e| panic!("{story}: {e}"));
        let appended = producer.append(self.topic, 0, &mut batch(&["again".to_string()])).and_then(|t| t.wait());
        appended.unwrap_or_else(|e| panic!("{story}: {e}"));
        log.close().unwrap_or_else(|e| panic!("{story}: {e}"));
    }
}

/// The values outside of transactions.
fn plain(log: &Log, topic: TopicId, partition: u32) -> Vec<String> {
    try_plain(log, topic, partition).expect("reading goes on")
}

fn try_plain(log: &Log, topic: TopicId, partition: u32) -> Result<Vec<String>, FetchError> {
    let mut consumer = log.consumer(topic, partition, Offset::ZERO, Isolation::ReadUncommitted).expect("exists");
    let mut values = Vec::new();
    loop {
        let before = consumer.position();
        let fetched = consumer.poll(4096)?;
        for bytes in fetched.batches() {
            let header = BatchHeader::parse(bytes).expect("a batch");
            if !header.is_transactional() && !header.is_control() {
                let limits = Limits::default();
                let records = records(bytes, &limits).expect("decodable");
                for record in records.iter() {
                    let value = record.expect("decodable").value.expect("a value").to_vec();
                    values.push(String::from_utf8(value).expect("text"));
                }
            }
        }
        if consumer.position() == before {
            return Ok(values);
        }
    }
}

fn committed(log: &Log, topic: TopicId) -> Vec<String> {
    let all = (0..PARTITIONS).flat_map(|partition| read(log, topic, partition, Isolation::ReadCommitted));
    all.map(|(_, value)| value).collect()
}

fn assert_prefix(seen: &[String], accepted: &[(String, Told)], story: &str) {
    let expected: Vec<&String> = accepted.iter().take(seen.len()).map(|(value, _)| value).collect();
    assert!(seen.iter().collect::<Vec<_>>() == expected, "{story}: not in the order of acceptance");
    let lost = accepted.iter().skip(seen.len()).find(|(_, told)| *told == Told::Done);
    assert!(lost.is_none(), "{story}: what was acknowledged is lost");
}

#[test]
fn disks_that_fill_up_and_get_room_again_lose_and_double_nothing() {
    let (mut refused, mut unknown) = (0, 0);
    for seed in 0..60 {
        let mut life = Life::new(seed).expect("opened");
        for _ in 0..150 {
            life.step().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        life.settle();
        life.log.close().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let again = open(&life.sim).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        life.check_all(&again);
        (refused, unknown) = (refused + life.refused, unknown + life.unknown);
    }
    assert!(refused > 500 && unknown > 20, "full disks were met: {refused} refused, {unknown} unknown");
}

/// The same asked again on a machine whose power goes out at some step.
fn struck(seed: u64, step: u64) -> Option<Life> {
    let sim = SimPlatform::new(seed);
    sim.disk().crash_at_step(step);
    let mut life = Life::on(sim, seed).ok()?;
    life.is_struck = true;
    for _ in 0..60 {
        if life.step().is_err() {
            break;
        }
    }
    Some(life)
}

#[test]
fn a_crash_at_any_step_on_a_full_disk_loses_nothing_acknowledged() {
    let mut full = 0;
    for seed in 0..4 {
        let mut whole = Life::new(seed).expect("opened");
        let opened = whole.sim.disk().steps();
        for _ in 0..60 {
            whole.step().expect("sound");
        }
        let steps = whole.sim.disk().steps();
        for step in (opened..=steps).step_by(23) {
            let Some(life) = struck(seed, step) else { continue };
            full += u64::from(life.log.status().no_room.is_some());
            for policy in LossPolicy::ALL {
                life.check_after(
                    &life.sim.restart(policy),
                    &format!("seed {seed}, step {step} of {steps}, {policy:?}"),
                );
            }
            life.check_after(&life.sim.kill(), &format!("seed {seed}, killed at step {step} of {steps}"));
        }
    }
    assert!(full > 20, "{full} were struck while the disk was full");
}

#[test]
fn a_power_cut_when_the_reserve_is_given_up_or_a_write_is_held_loses_nothing_acknowledged() {
    for point in ["log.reserve-given-up", "log.write-held"] {
        let mut times = 0;
        for seed in 0..24 {
            let mut life = Life::new(seed).expect("opened");
            life.is_struck = true;
            life.sim.power_off_at(point, 1 + seed % 3);
            let cut = (0..100).any(|_| life.step().is_err());
            times += u64::from(cut);
            for policy in [LossPolicy::AllLost, LossPolicy::NoneLost, LossPolicy::Random] {
                life.check_after(&life.sim.restart(policy), &format!("{point}, seed {seed}, {policy:?}"));
            }
        }
        assert!(times > 5, "{point} was reached {times} times");
    }
}

/// A check that can't fail proves nothing: a log that answers before the write that it holds has succeeded is found out.
#[test]
fn a_log_that_acknowledges_what_it_only_holds_is_found_out() {
    if !cfg!(debug_assertions) {
        return;
    }
    let found = (0..40).step_by(2).any(|seed| {
        let told = std::panic::catch_unwind(|| {
            let mut life = Life::new(seed).expect("opened");
            life.sim.crashes().plant("log.held-acknowledged");
            for _ in 0..100 {
                life.step().expect("sound");
                if life.log.status().no_room.is_some() {
                    life.check_read();
                    life.check_after(&life.sim.restart(LossPolicy::NoneLost), "planted");
                    return;
                }
            }
        });
        told.is_err()
    });
    assert!(found, "nobody noticed");
}

fn with(limits: LogLimits) -> LogOptions {
    LogOptions { limits, ..LogOptions::default() }
}

/// Fills the disk and appends until it is refused.
fn until_refused(sim: &SimPlatform, log: &Log, producer: &Producer, topic: TopicId) -> u64 {
    sim.disk().set_capacity_bytes(sim.disk().used_bytes() + 4 * BLOCK_BYTES as u64);
    for n in 0..1_000 {
        match producer.append(topic, 0, &mut batch(&["y".repeat(3_000)])).and_then(|ticket| ticket.wait()) {
            Ok(_) => {}
            Err(AppendError::Down(Down::NoRoom(_)) | AppendError::OutcomeUnknown(_)) => return n,
            Err(error) => panic!("{error} ({:?})", log.status()),
        }
    }
    panic!("it was never full");
}

#[test]
fn with_a_reserve_nothing_is_unknown_transactions_end_and_deletions_make_room() {
    let sim = SimPlatform::new(3);
    let limits = LogLimits { reserve_bytes: 64 * BLOCK_BYTES as u64, ..LogLimits::tiny() };
    let log = Log::open(&sim.platform(), Path::new(DIR), with(limits)).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let producer = log.producer().expect("given");
    let name = |writer| TxnName { checkpoint: 1, sink: "s".to_string(), writer };
    for _ in 0..60 {
        let ticket = producer.append(topic, 0, &mut batch(&["z".repeat(3_000)])).expect("accepted");
        ticket.wait().expect("durable");
    }
    let mut prepared = owner.begin(name(0)).expect("begun");
    prepared.append(topic, 0, &mut batch(&["prepared".to_string()])).expect("accepted");
    let id = prepared.id().clone();
    prepared.prepare().expect("prepared");
    let mut open = owner.begin(name(1)).expect("begun");
    open.append(topic, 0, &mut batch(&["open".to_string()])).expect("accepted");
    until_refused(&sim, &log, &producer, topic);
    assert!(log.status().no_room.is_some());
    assert!(matches!(log.create_topic("u", 1), Err(TopicError::Down(Down::NoRoom(_)))));
    // What there is can be ended, read, and deleted.
    owner.commit(&[id]).expect("committed");
    open.abort().expect("aborted");
    log.commit_offsets("group", [(TopicPartition::new(topic, 0), Offset(1))]).expect("committed");
    let seen = read(&log, topic, 0, Isolation::ReadCommitted);
    assert!(seen.len() > 61 && seen[60].1 == "prepared", "{} records", seen.len());
    assert!(producer.append(topic, 0, &mut batch(&["no".to_string()])).is_err(), "still full");
    let start = log.delete_records(TopicPartition::new(topic, 0), None).expect("deleted");
    let tidied = log.tidy(WallTime(0)).expect("tidied");
    assert!(tidied.segments_removed > 0, "{tidied:?}");
    // The deletion has made room, without anybody's help.
    let offset =
        producer.append(topic, 0, &mut batch(&["yes".to_string()])).expect("accepted").wait().expect("durable");
    assert!(offset >= start);
    assert_eq!(log.status().no_room, None);
    log.close().expect("closed");
}

#[test]
fn a_log_is_opened_on_a_full_disk_with_what_an_earlier_life_has_put_by() {
    for spent in [false, true] {
        let sim = SimPlatform::new(4);
        let log = open(&sim).expect("opened");
        let topic = log.create_topic("t", 1).expect("created");
        let producer = log.producer().expect("given");
        if spent {
            until_refused(&sim, &log, &producer, topic);
        } else {
            let ticket = producer.append(topic, 0, &mut batch(&["one".to_string()])).expect("accepted");
            ticket.wait().expect("durable");
        }
        let seen = read(&log, topic, 0, Isolation::ReadUncommitted).len();
        // Not another block.
        sim.disk().set_capacity_bytes(sim.disk().used_bytes());
        drop((producer, log));
        match open(&sim) {
            Ok(log) => assert!(!spent && read(&log, topic, 0, Isolation::ReadUncommitted).len() == seen),
            Err(OpenError::Io(error)) => assert!(spent && error.source.kind() == ErrorKind::StorageFull, "{error}"),
            Err(error) => panic!("{error}"),
        }
        sim.disk().set_capacity_bytes(None);
        let log = open(&sim).expect("opened");
        assert!(read(&log, topic, 0, Isolation::ReadUncommitted).len() >= seen);
        log.close().expect("closed");
    }
}

#[test]
fn a_log_that_is_closed_on_a_full_disk_says_so_and_the_next_open_has_everything_acknowledged() {
    for (seed, copies) in [(6, false), (8, true)] {
        let mut life = Life::new(seed).expect("opened");
        for _ in 0..20 {
            life.append().expect("sound");
        }
        life.sim.disk().set_overwrites_need_room(copies);
        life.fill(0);
        while life.log.status().no_room.is_none() {
            life.append().expect("sound");
        }
        let error = life.log.close().expect_err("there was no room").to_string();
        assert!(error.contains("what was acknowledged is safe"), "{error}");
        life.check_after(&life.sim.kill(), "closed without room");
    }
}

#[test]
fn the_janitor_touches_nothing_while_not_a_frame_can_be_written_and_works_again_with_room() {
    let sim = SimPlatform::new(9);
    let limits = LogLimits { reserve_bytes: 0, ..LogLimits::tiny() };
    let log = Log::open(&sim.platform(), Path::new(DIR), with(limits)).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let producer = log.producer().expect("given");
    for _ in 0..20 {
        let ticket = producer.append(topic, 0, &mut batch(&["z".repeat(3_000)])).expect("accepted");
        ticket.wait().expect("durable");
    }
    sim.inline().expect("nothing runs by itself").run_until_idle();
    log.delete_records(TopicPartition::new(topic, 0), None).expect("deleted");
    sim.disk().set_overwrites_need_room(true);
    sim.disk().set_capacity_bytes(sim.disk().used_bytes());
    let ticket = producer.append(topic, 0, &mut batch(&["held".to_string()])).expect("accepted");
    assert!(matches!(ticket.wait(), Err(AppendError::OutcomeUnknown(_))));
    let tidied = log.tidy(WallTime(0)).expect("nothing to do now");
    assert_eq!((tidied.segments_removed, tidied.failed.len()), (0, 0), "{tidied:?}");
    sim.disk().set_capacity_bytes(None);
    let tidied = log.tidy(WallTime(0)).expect("there is room");
    assert!(tidied.segments_removed > 0, "{tidied:?}");
    let mut reader = log.consumer(topic, 0, Offset(20), Isolation::ReadUncommitted).expect("exists");
    assert_eq!(reader.poll(1 << 20).expect("readable").records_at_most(), 1, "what was held is there");
}

/// On real disks the error may come with the sync: what is on the disk is unknown then, and the log stops as ever.
#[test]
fn a_sync_that_finds_no_room_stops_the_log() {
    let sim = SimPlatform::new(5);
    let limits = LogLimits { reserve_bytes: 0, ..LogLimits::tiny() };
    let log = Log::open(&sim.platform(), Path::new(DIR), with(limits)).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let producer = log.producer().expect("given");
    sim.disk().set_full_at_sync(true);
    until_refused(&sim, &log, &producer, topic);
    assert!(matches!(log.status().down, Some(Down::Poisoned { .. })), "{:?}", log.status());
}
