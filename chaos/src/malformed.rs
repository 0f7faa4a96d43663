//! Malformed frames, a million of them, at a live broker, while a good client goes on.
//!
//! Frame n is a function of the seed and n, so that a run can begin anywhere (`--from`), and what a frame did can be done again.
//! They are samples and shapes of every API and version, put together wrongly and damaged; some of them are requests after all,
//! and are carried out. Well-formed requests that make topics or partitions are left out: those are things that last.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cutwater_broker::{look_at_frame, made_up_frame};
use cutwater_partition_log::batch::{Compression, ProducerStamp};
use cutwater_platform::{Platform, SplitMix};
use kafka_protocol::messages::{ApiKey, FetchRequest, ProduceRequest};

use crate::Failed;
use crate::result::{put, said_by};
use crate::server::{Server, rest};
use crate::wire::{Client, batch, create_topic, fetch, produce, produced, seen};

/// The good client's topic.
const TOPIC: &str = "good";
/// Frames of one connection, unless it is closed before.
const FRAMES: u64 = 24;
/// How long answers are waited for before a connection is given up.
const PATIENCE: Duration = Duration::from_millis(20);
/// How much memory may have grown, in KiB: caches that fill once, threads' stacks.
const GROWTH_KIB: u64 = 96 << 10;

/// What is sent.
#[derive(Debug, clap::Args)]
pub(crate) struct Malformed {
    /// How many.
    #[arg(long, default_value_t = 1_000_000)]
    frames: u64,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Threads that send them.
    #[arg(long, default_value_t = 4)]
    senders: u64,
    /// Write the result into this file.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
}

/// The `n`-th frame with its size in front, and whether it is a request after all.
fn frame(seed: u64, n: u64) -> Option<(Vec<u8>, bool)> {
    let mut random = SplitMix::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ n);
    let choices: Vec<u8> = (0..32).flat_map(|_| random.next().to_le_bytes()).collect();
    let frame: Bytes = made_up_frame(&choices);
    let is_request = look_at_frame(&frame);
    let key = i16::from_be_bytes([*frame.first()?, *frame.get(1)?]);
    let lasts = [ApiKey::CreateTopics as i16, ApiKey::CreatePartitions as i16];
    if is_request && lasts.contains(&key) {
        return None;
    }
    let mut bytes = i32::try_from(frame.len()).ok()?.to_be_bytes().to_vec();
    bytes.extend_from_slice(&frame);
    // Some sizes lie as well.
    if random.next().is_multiple_of(50) {
        bytes[..4].copy_from_slice(&(random.next() as u32).to_be_bytes());
    }
    Some((bytes, is_request))
}

#[derive(Debug, Default)]
struct Counts {
    next: AtomicU64,
    sent: AtomicU64,
    requests: AtomicU64,
    connections: AtomicU64,
    over: AtomicBool,
}

/// Whether all is well.
pub(crate) fn run(plan: &Malformed) -> Result<bool, Failed> {
    let dir = tempfile::Builder::new().prefix("cutwater-malformed").tempdir();
    let dir = dir.map_err(|e| Failed::of("make a directory", e))?;
    let mut server = Server::new(&dir.path().join("log"))?;
    server.again()?;
    create_topic(server.address(), TOPIC, 1, &[])?;
    let clock = Platform::real().clock;
    let began = clock.monotonic();
    let counts = Counts { next: AtomicU64::new(plan.from), ..Counts::default() };
    let end = plan.from + plan.frames;
    // The first part warms up what grows once.
    let warm = plan.from + plan.frames / 10;
    let (good, before, peak) = std::thread::scope(|scope| {
        let address = server.address();
        let counts = &counts;
        let good = scope.spawn(move || good(address, &counts.over));
        let senders: Vec<_> =
            (0..plan.senders).map(|_| scope.spawn(move || send(address, plan.seed, end, counts))).collect();
        let (mut before, mut peak, mut said) = (0, 0, began);
        while senders.iter().any(|sender| !sender.is_finished()) {
            rest(Duration::from_millis(50));
            let resident = server.resident();
            match counts.next.load(Ordering::SeqCst) {
                next if next < warm => before = resident,
                _ => peak = peak.max(resident),
            }
            if clock.monotonic() > said + Duration::from_secs(30) {
                said = clock.monotonic();
                crate::say(&format!("{} of {end} frames, {resident} KiB", counts.next.load(Ordering::SeqCst)));
            }
        }
        counts.over.store(true, Ordering::SeqCst);
        (good.join().unwrap_or_else(|_| Err("the good client panicked".to_string())), before, peak)
    });
    let mut wrong = vec![];
    if server.has_ended() {
        wrong.push("the broker has ended".to_string());
    }
    if before == 0 || peak > before + GROWTH_KIB {
        wrong.push(format!("memory grew from {before} to {peak} KiB"));
    }
    let done = good.as_ref().map_or(0, |done| *done);
    if let Err(what) = good {
        wrong.push(format!("the good client: {what}"));
    } else if done < 10 {
        wrong.push(format!("the good client got to {done} records alone"));
    }
    let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
    let page = format!(
        "Malformed frames at a live broker: {}\n\n\
         {} frames (seed {}, from {}) over {} connections, commit {}, {}\n\
         {} of them were requests after all, and were carried out\n\
         memory of the broker: {before} KiB after a tenth of them, {peak} KiB at most afterwards\n\
         a good client wrote and read {done} records meanwhile, in order, none missing\n\n\
         cargo run --release -p cutwater-chaos -- malformed --frames {} --seed {} --result FILE\n",
        if wrong.is_empty() { "nothing is wrong".to_string() } else { wrong.join("; ") },
        count(&counts.sent),
        plan.seed,
        plan.from,
        count(&counts.connections),
        said_by("git", &["rev-parse", "--short", "HEAD"]),
        said_by("date", &["-u", "+%F"]),
        count(&counts.requests),
        plan.frames,
        plan.seed,
    );
    crate::say(&page);
    if let Some(path) = &plan.result {
        put(path, &page)?;
    }
    Ok(wrong.is_empty())
}

/// Takes frames until there are none left, and sends them over one connection after another.
fn send(address: SocketAddr, seed: u64, end: u64, counts: &Counts) {
    while counts.next.load(Ordering::SeqCst) < end {
        let Ok(mut client) = Client::connect(address) else {
            rest(Duration::from_millis(50));
            continue;
        };
        counts.connections.fetch_add(1, Ordering::SeqCst);
        for _ in 0..FRAMES {
            let n = counts.next.fetch_add(1, Ordering::SeqCst);
            if n >= end {
                break;
            }
            let Some((bytes, is_request)) = frame(seed, n) else { continue };
            counts.sent.fetch_add(1, Ordering::SeqCst);
            counts.requests.fetch_add(u64::from(is_request), Ordering::SeqCst);
            // Whatever follows one that isn't a request isn't read: the next one begins anew.
            if client.stream.write_all(&bytes).is_err() || !is_request {
                break;
            }
        }
        client.drain(PATIENCE);
    }
}

/// Writes one record after the other and reads them all at the end: how many, or what is wrong.
fn good(address: SocketAddr, over: &AtomicBool) -> Result<u64, String> {
    let connection = |e: std::io::Error| format!("its connection failed: {e}");
    let mut client = Client::connect(address).map_err(connection)?;
    let plain = ProducerStamp { producer_id: -1, epoch: -1, base_sequence: -1, transactional: false };
    let mut written = 0;
    while !over.load(Ordering::SeqCst) {
        let request = produce(TOPIC, None, vec![(0, batch(plain, Compression::None, [written].into_iter()))]);
        let answer = client.ask::<ProduceRequest>(9, &request).map_err(connection)?;
        if produced(&answer) != [(0, 0, written.cast_signed())] {
            return Err(format!("record {written} was answered {:?}", produced(&answer)));
        }
        written += 1;
        rest(Duration::from_millis(2));
    }
    let (mut from, mut read) = (0, vec![]);
    while from < written {
        let answer = client.ask::<FetchRequest>(11, &fetch(TOPIC, 0, from, false, 1 << 20)).map_err(connection)?;
        let found = seen(&answer, from, false)?;
        read.extend(found.records);
        from = found.next;
    }
    let expected: Vec<(u64, u64)> = (0..written).map(|n| (n, n)).collect();
    if read == expected {
        Ok(written)
    } else {
        Err(format!("{written} records were written, {} others read", read.len()))
    }
}
