//! Topics from which the broker takes records away while they are written and read: by compaction and by retention.
//!
//! ```text
//!   table    cleanup.policy=compact                      tombstones stay for the whole round
//!   short    cleanup.policy=compact, tombstones for 0.2 s   they may go
//!   window   retention.bytes                             whole segments go from the front
//! ```
//!
//! One idempotent producer writes each, and knows so what stands at each offset. Segments are small and the janitor comes twice a
//! second, so that a round sees hundreds of both. What readers must find all the same is in [`judge`]; here are those who write
//! and read.

pub(crate) mod judge;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_platform::{Platform, SplitMix};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{FetchRequest, ListOffsetsRequest, ProduceRequest};

use self::judge::{Book, Scan};
use crate::Failed;
use crate::plant::{Fault, Plant};
use crate::record::Recorder;
use crate::round::Stage;
use crate::server::rest;
use crate::wire::{self, Client, Keyed, is_passing, produce, produced, topic_name};

/// Keys of a compacted topic.
const KEYS: u64 = 40;

/// The bytes that one fetch brings.
const BYTES: i32 = 16 << 10;

/// So much the window keeps at least.
const WINDOW_BYTES: u64 = 8 << 10;

/// How long a last scan is tried again while the janitor is at work beside it, and how long its work is waited for.
const LAST_WITHIN: Duration = Duration::from_secs(20);

/// What takes a topic's records away, and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Compaction, and tombstones stay.
    Table,
    /// Compaction, and tombstones may go.
    Short,
    /// Retention by size.
    Window,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Table, Kind::Short, Kind::Window];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Short => "short",
            Kind::Window => "window",
        }
    }

    fn settings(self) -> Vec<(&'static str, String)> {
        let compact = |retention: u64| {
            vec![
                ("cleanup.policy", "compact".to_string()),
                ("min.cleanable.dirty.ratio", "0.1".to_string()),
                ("delete.retention.ms", retention.to_string()),
                ("segment.bytes", "2000".to_string()),
            ]
        };
        match self {
            Kind::Table => compact(3_600_000),
            Kind::Short => compact(200),
            Kind::Window => {
                vec![("retention.bytes", WINDOW_BYTES.to_string()), ("segment.bytes", "2000".to_string())]
            }
        }
    }
}

/// What was done to these topics in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) written: u64,
    pub(crate) scans: u64,
    /// Records that were acknowledged and are there no more at the end.
    pub(crate) gone: u64,
}

/// The topics of a round, and what was written into each.
#[derive(Debug)]
pub(crate) struct Kept {
    books: [Mutex<Book>; 3],
}

impl Kept {
    /// Makes the topics.
    pub(crate) fn create(address: SocketAddr) -> Result<Kept, Failed> {
        for kind in Kind::ALL {
            wire::create_topic(address, kind.name(), 1, &kind.settings())?;
        }
        Ok(Kept { books: Kind::ALL.map(|kind| Mutex::new(Book::new(kind))) })
    }

    fn book(&self, kind: Kind) -> MutexGuard<'_, Book> {
        self.books[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who writes or reads one of them.
pub(crate) struct Keeper<'a> {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) kept: &'a Kept,
    pub(crate) recorder: &'a Recorder,
    pub(crate) stage: &'a Stage,
    pub(crate) plant: Option<&'a Plant>,
    pub(crate) random: SplitMix,
    pub(crate) client: Option<Client>,
}

impl Keeper<'_> {
    fn client(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.address).ok()?);
        }
        self.client.as_mut()
    }

    fn again(&mut self) {
        self.client = None;
        rest(Duration::from_millis(30));
    }

    fn trouble(&self, what: &str) {
        self.recorder.trouble(format!("topic {}: {what}", self.kind.name()));
    }

    /// Writes until the stage is over, one batch after the other, each until it is acknowledged.
    pub(crate) fn write(mut self) {
        let Some(producer_id) = wire::producer_id(self.address, || self.stage.is_given_up()) else { return };
        let codecs = [Compression::None, Compression::Lz4, Compression::Zstd];
        while !self.stage.is_over() {
            rest(Duration::from_millis(1 + self.random.next() % 8));
            let from = self.kept.book(self.kind).next();
            let count = 1 + self.random.next() % 6;
            let keyed: Vec<(u64, Option<u64>)> = (from..from + count)
                .map(|number| (self.random.next() % KEYS, (!self.random.next().is_multiple_of(6)).then_some(number)))
                .collect();
            let mut batch = BatchBuilder::new(codecs[(self.random.next() % 3) as usize]);
            for (key, value) in &keyed {
                let value = value.map(|value| value.to_string());
                let value = value.as_ref().map(String::as_bytes);
                batch.push(1_000, Some(key.to_string().as_bytes()), value, &[]).expect("small values fit");
            }
            let base_sequence = (from % (1 << 31)) as i32;
            let stamp = ProducerStamp { producer_id, epoch: 0, base_sequence, transactional: false };
            let bytes = batch.build(stamp).expect("a batch of few records");
            let request = produce(self.kind.name(), None, vec![(0, bytes.into())]);
            self.kept.book(self.kind).puts(&keyed);
            while !self.put(&request, from) {
                if self.stage.is_given_up() {
                    self.trouble(&format!("the batch at {from} was never answered"));
                    return;
                }
                self.again();
            }
        }
    }

    /// Whether it was acknowledged.
    fn put(&mut self, request: &ProduceRequest, expected: u64) -> bool {
        let Some(answer) = self.client().and_then(|client| client.ask(9, request).ok()) else { return false };
        let Some((_, code, base)) = produced(&answer).first().copied() else { return false };
        match code {
            0 => {
                if u64::try_from(base) != Ok(expected) {
                    self.trouble(&format!("the batch at {expected} was acknowledged at {base}"));
                }
                self.kept.book(self.kind).acknowledged();
                true
            }
            code => {
                if !is_passing(code) {
                    self.trouble(&format!("error {code} for the batch at {expected}"));
                }
                false
            }
        }
    }

    /// Reads it from its beginning to its end again and again; how often.
    pub(crate) fn read(mut self) -> u64 {
        let mut scans = 0;
        while !self.stage.is_over() {
            match self.scan() {
                Some(scan) => {
                    scans += 1;
                    let wrong = self.kept.book(self.kind).judge(&scan, false);
                    wrong.iter().for_each(|what| self.trouble(what));
                    // What is wrong is so the next time as well, most likely.
                    if !wrong.is_empty() {
                        return scans;
                    }
                }
                None => self.again(),
            }
            rest(Duration::from_millis(self.random.next() % 60));
        }
        scans
    }

    /// The last look, when nobody writes any more; also at whether anything has gone at all.
    pub(crate) fn last(mut self) -> Done {
        let clock = Platform::real().clock;
        let until = clock.monotonic() + LAST_WITHIN;
        loop {
            let scan = self.scan();
            let book = self.kept.book(self.kind);
            let wrong = match &scan {
                Some(scan) => book.judge(scan, true),
                None => vec!["it couldn't be read to its end".to_string()],
            };
            if let Some(scan) = scan.filter(|_| wrong.is_empty()) {
                let written = book.next();
                return Done { written, scans: 1, gone: written - scan.records.len() as u64 };
            }
            // What is planted doesn't go away.
            if clock.monotonic() > until || self.plant.is_some() {
                drop(book);
                wrong.iter().for_each(|what| self.trouble(what));
                return Done::default();
            }
            drop(book);
            rest(Duration::from_millis(200));
        }
    }

    /// From where it begins to its end, as a consumer that starts there and goes on as it is told.
    fn scan(&mut self) -> Option<Scan> {
        let mut scan = Scan { acknowledged: self.kept.book(self.kind).acked(), ..Scan::default() };
        let mut from = self.start()?;
        scan.start = from;
        let begins = self.kept.book(self.kind).begins_at(from);
        if let Err(what) = begins {
            self.trouble(&what);
        }
        loop {
            let request = wire::fetch(self.kind.name(), 0, from, true, BYTES);
            let answer = self.client()?.ask::<FetchRequest>(11, &request).ok()?;
            let mut keyed = match wire::keyed(&answer, from, true) {
                Ok(keyed) => keyed,
                Err(what) if what == format!("error {}", ResponseError::OffsetOutOfRange.code()) => {
                    // What it read so far has gone meanwhile.
                    if self.kind != Kind::Window {
                        self.trouble(&format!("{from} is out of range, and nothing may go from the front"));
                    }
                    return None;
                }
                Err(what) if what.starts_with("error ") => return None,
                Err(what) => {
                    self.trouble(&what);
                    return None;
                }
            };
            if let Some(plant) = self.plant {
                change(plant, self.kind, scan.start, &mut keyed);
            }
            scan.records.extend(keyed.records);
            scan.bytes += keyed.bytes;
            if keyed.next == from && from >= keyed.high_watermark {
                scan.end = from;
                return Some(scan);
            }
            from = keyed.next;
            if self.stage.is_given_up() {
                return None;
            }
        }
    }

    /// Where the partition begins.
    fn start(&mut self) -> Option<u64> {
        let partition = ListOffsetsPartition::default().with_timestamp(-2);
        let topic =
            ListOffsetsTopic::default().with_name(topic_name(self.kind.name())).with_partitions(vec![partition]);
        let answer = self.client()?.ask(5, &ListOffsetsRequest::default().with_topics(vec![topic])).ok()?;
        let told = answer.topics.first()?.partitions.first().filter(|told| told.error_code == 0)?;
        u64::try_from(told.offset).ok()
    }
}

/// What a wrong broker would have answered.
fn change(plant: &Plant, kind: Kind, start: u64, seen: &mut Keyed) {
    match kind {
        Kind::Table if plant.is(Fault::ForgetsALastValue) => seen.records.retain(|(_, key, _)| *key != 7),
        Kind::Table if plant.is(Fault::ForgetsATombstone) => seen.records.retain(|(.., value)| value.is_some()),
        Kind::Short if plant.is(Fault::ChangesARecord) => {
            // Each, since few may have been written, and most of those be gone.
            seen.records.iter_mut().for_each(|(.., value)| *value = value.map(|value| value + 1));
        }
        Kind::Window if plant.is(Fault::TakesTooMuch) => seen.records.retain(|(offset, ..)| *offset != start + 9),
        _ => {}
    }
}
