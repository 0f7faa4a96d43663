//! Those who read: one who follows each partition, one who begins anywhere again and again, and the last look at everything.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater_platform::SplitMix;
use cutwater_testkit::history::{Call, Outcome, Value};
use kafka_protocol::messages::FetchRequest;

use crate::plant::Plant;
use crate::record::Recorder;
use crate::round::{PARTITIONS, Stage, TOPIC};
use crate::server::rest;
use crate::wire::{Client, Seen, fetch, is_connection, seen};

/// The bytes of an answer; few, so that many batches are asked for in the middle.
const BYTES: i32 = 64 << 10;

/// Who reads to the end and gets no further in so many polls, of 50 ms each when there is nothing, doesn't get there.
const STILL: u32 = 200;

/// The highest last stable offset and high watermark that anybody was told, by partition: neither may move back (I-2).
#[derive(Debug, Default)]
pub(crate) struct Marks {
    stable: [AtomicU64; PARTITIONS as usize],
    high: [AtomicU64; PARTITIONS as usize],
}

impl Marks {
    /// What whoever asks now must be told at least.
    fn before(&self, partition: u32) -> (u64, u64) {
        let at = partition as usize;
        (self.stable[at].load(Ordering::SeqCst), self.high[at].load(Ordering::SeqCst))
    }

    fn hear(&self, partition: u32, before: (u64, u64), seen: &Seen) -> Result<(), String> {
        let at = partition as usize;
        self.stable[at].fetch_max(seen.last_stable, Ordering::SeqCst);
        self.high[at].fetch_max(seen.high_watermark, Ordering::SeqCst);
        let told = (seen.last_stable, seen.high_watermark);
        if told.0 < before.0 || told.1 < before.1 {
            return Err(format!(
                "partition {partition}: last stable offset and high watermark went back from {before:?} to {told:?}"
            ));
        }
        let beyond = seen.last_stable > seen.high_watermark;
        if beyond {
            Err(format!("partition {partition}: last stable offset beyond the high watermark: {told:?}"))
        } else {
            Ok(())
        }
    }
}

/// Reads one partition.
pub(crate) struct Reader<'a> {
    pub(crate) process: u16,
    pub(crate) partition: u32,
    pub(crate) address: SocketAddr,
    pub(crate) recorder: &'a Recorder,
    pub(crate) stage: &'a Stage,
    pub(crate) marks: &'a Marks,
    pub(crate) plant: Option<&'a Plant>,
    pub(crate) client: Option<Client>,
}

impl Reader<'_> {
    /// Follows its partition until the stage is over.
    pub(crate) fn follow(mut self) {
        let mut from = 0;
        while !self.stage.is_over() {
            match self.poll(from) {
                Some(next) => from = next,
                None => self.again(),
            }
        }
    }

    /// Begins anywhere, reads a little, begins anywhere else.
    pub(crate) fn jump(mut self, mut random: SplitMix) {
        while !self.stage.is_over() {
            self.partition = random.next() as u32 % PARTITIONS;
            let (end, _) = self.marks.before(self.partition);
            let mut from = random.next() % (end + 1);
            for _ in 0..random.next() % 6 {
                match self.poll(from) {
                    Some(next) => from = next,
                    None => self.again(),
                }
            }
            rest(Duration::from_millis(20));
        }
    }

    /// Reads from the beginning to the end, which stands still by now; answers whether it got there.
    pub(crate) fn whole(mut self) -> bool {
        let (mut from, mut still) = (0, 0);
        while still < STILL {
            let before = from;
            match self.poll(from) {
                Some(next) => from = next,
                None => self.again(),
            }
            let (stable, high) = self.marks.before(self.partition);
            if from == before && from == stable && stable == high {
                return true;
            }
            still = if from == before { still + 1 } else { 0 };
        }
        false
    }

    fn again(&mut self) {
        self.client = None;
        rest(Duration::from_millis(30));
    }

    fn fetch(&mut self, from: u64, committed: bool) -> Option<Seen> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(self.address).ok()?),
        };
        let request = fetch(TOPIC, self.partition as i32, from, committed, BYTES);
        let answer = match client.ask::<FetchRequest>(11, &request) {
            Ok(answer) => answer,
            Err(error) => {
                if !is_connection(&error) {
                    self.recorder.trouble(format!("a fetch is answered with nonsense: {error}"));
                }
                self.client = None;
                return None;
            }
        };
        let filter = committed && !self.plant.is_some_and(Plant::shows_aborted);
        // An error code: the broker can't now, and is asked again.
        let mut seen = match seen(&answer, from, filter) {
            Ok(seen) => seen,
            Err(what) if what.starts_with("error ") => return None,
            Err(what) => {
                self.recorder.trouble(format!("partition {}: {what}", self.partition));
                return None;
            }
        };
        if let Some(plant) = self.plant {
            plant.change(self.partition, &mut seen);
        }
        Some(seen)
    }

    /// One committed poll, recorded unless it brought nothing; where to go on.
    fn poll(&mut self, from: u64) -> Option<u64> {
        let before = self.marks.before(self.partition);
        let started = self.recorder.start();
        let seen = self.fetch(from, true)?;
        if let Err(what) = self.marks.hear(self.partition, before, &seen) {
            self.recorder.trouble(what);
        }
        let at_end = seen.next >= seen.last_stable;
        if !seen.records.is_empty() || seen.next > from || (at_end && seen.next == seen.high_watermark) {
            let records = seen.records.iter().map(|(offset, value)| (*offset, Value(*value))).collect();
            let call = Call::Poll { partition: self.partition, from, next: seen.next, at_end, records };
            self.recorder.finish(started, self.process, call, Outcome::Ok);
        }
        Some(seen.next)
    }

    /// Everything that stands in the partition, uncommitted and aborted included.
    pub(crate) fn uncommitted(&mut self) -> Option<Vec<(u64, u64)>> {
        let (mut from, mut all) = (0, vec![]);
        for _ in 0..10_000 {
            let Some(seen) = self.fetch(from, false) else {
                self.again();
                continue;
            };
            all.extend(seen.records);
            if seen.next >= seen.high_watermark {
                return Some(all);
            }
            from = seen.next;
        }
        None
    }
}
