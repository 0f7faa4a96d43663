//! Codecs side by side: the entries of state files as we write them, beside postcard (our frames), bincode (timely between processes), rkyv and
//! abomonation.
//!
//! `cargo run --release --manifest-path benches/rivals/Cargo.toml -p cutwater-rivals-codec [-- --entries N --rounds N]`
//!
//! Each codec writes a million entries one after the other into one buffer, and reads them back into owned values, whose sum is
//! compared. Two rows show what borrowing saves: abomonation's entries read in place, and rkyv's archive checked and read in place. Abomonation is *unsound*
//! (RUSTSEC-2021-0120) and depends on the machine's layout of types: no reader may take such bytes from a disk or a peer. It is what timely had
//! before bincode, and stands here as the measure of what safety costs.

#![allow(non_local_definitions, reason = "abomonation's derive is of 2019")]

// The engine's own file, so that what is measured is what is shipped, without making it part of the engine's public face.
#[allow(dead_code)]
#[path = "../../../../engine/src/snapshot/entry/mod.rs"]
mod entry;

use abomonation::Abomonation;
use abomonation_derive::Abomonation;
use cutwater_benches::{measure, spread, table};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a job on flights keeps for each airport and day.
#[derive(
    Clone, Debug, PartialEq, Serialize, Deserialize, Abomonation, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
struct Stats {
    airport: String,
    day: u32,
    flights: u64,
    delays: Vec<i32>,
    worst: Option<i32>,
}

fn main() {
    let (mut entries, mut rounds) = (1_000_000, 7);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next().and_then(|v| v.parse::<usize>().ok())) {
            ("--entries", Some(n)) => entries = n,
            ("--rounds", Some(n)) => rounds = n,
            (other, _) => panic!("unknown argument {other}"),
        }
    }
    println!(
        "{entries} entries, {rounds} rounds after one that warms up, one thread; medians, encoding and decoding in ns per entry\n"
    );
    let mixed = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let counters: Vec<(u64, u64)> = (0..entries).map(|i| (mixed(i), i as u64 % 1000)).collect();
    let words: Vec<(String, (u64, f64))> =
        (0..entries).map(|i| (format!("word-{:x}", mixed(i) >> 40), (i as u64, i as f64 / 3.0))).collect();
    let stats: Vec<Stats> = (0..entries)
        .map(|i| Stats {
            airport: ["JFK", "LGA", "EWR"][i % 3].to_string(),
            day: i as u32 % 365,
            flights: i as u64,
            delays: (0..i as i32 % 8).collect(),
            worst: (i % 5 != 0).then_some(i as i32 % 300),
        })
        .collect();
    compare("(u64, u64): a counter", &counters, rounds, |(key, count)| key ^ count);
    compare("(String, (u64, f64)): a word's count and score", &words, rounds, |(word, (n, _))| word.len() as u64 + n);
    compare("Stats: text, list, option", &stats, rounds, |s| {
        s.flights + s.delays.len() as u64 + s.airport.len() as u64
    });
}

/// Everything that the contenders ask of a value.
trait Value: Clone + PartialEq + Serialize + DeserializeOwned + Abomonation + Archived {}
impl<T: Clone + PartialEq + Serialize + DeserializeOwned + Abomonation + Archived> Value for T {}

/// rkyv's part of it, with its own types named once.
trait Archived: Sized {
    fn archive(all: &Vec<Self>) -> rkyv::util::AlignedVec;
    fn owned(bytes: &[u8]) -> Vec<Self>;
    fn checked(bytes: &[u8]) -> usize;
}

impl<T> Archived for T
where
    T: rkyv::Archive
        + for<'a> rkyv::Serialize<
            rkyv::api::high::HighSerializer<
                rkyv::util::AlignedVec,
                rkyv::ser::allocator::ArenaHandle<'a>,
                rkyv::rancor::Error,
            >,
        >,
    T::Archived: rkyv::Deserialize<T, rkyv::api::high::HighDeserializer<rkyv::rancor::Error>>
        + for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rkyv::rancor::Error>>,
{
    fn archive(all: &Vec<T>) -> rkyv::util::AlignedVec {
        rkyv::to_bytes::<rkyv::rancor::Error>(all).expect("it fits in memory")
    }

    fn owned(bytes: &[u8]) -> Vec<T> {
        rkyv::from_bytes::<Vec<T>, rkyv::rancor::Error>(bytes).expect("what was written")
    }

    fn checked(bytes: &[u8]) -> usize {
        rkyv::access::<rkyv::Archived<Vec<T>>, rkyv::rancor::Error>(bytes).expect("what was written").len()
    }
}

/// Encoding and decoding times and the size of one contender.
struct Row {
    name: &'static str,
    encode: Vec<f64>,
    decode: Vec<f64>,
    bytes: usize,
}

fn compare<T: Value>(title: &str, values: &[T], rounds: usize, digest: impl Fn(&T) -> u64 + Copy) {
    let sum = |values: &[T]| values.iter().map(digest).fold(0u64, u64::wrapping_add);
    let expected = sum(values);
    let all: Vec<T> = values.to_vec();
    let mut rows: Vec<Row> = [
        "ours, state files",
        "postcard",
        "bincode 1",
        "rkyv, owned",
        "rkyv, checked in place",
        "abomonation, owned (unsound)",
        "abomonation, in place (unsound)",
    ]
    .map(|name| Row { name, encode: vec![], decode: vec![], bytes: 0 })
    .into();
    for round in 0..=rounds {
        let mut record = |row: usize, encode: f64, decode: f64, bytes: usize| {
            rows[row].bytes = bytes;
            // The first round touches memory for the first time.
            if round > 0 {
                rows[row].encode.push(encode / values.len() as f64);
                rows[row].decode.push(decode / values.len() as f64);
            }
        };
        let mut out: Vec<u8> = Vec::with_capacity(64 << 20);
        let mut back: Vec<T> = Vec::with_capacity(values.len());

        let encode = ns(|| values.iter().for_each(|v| entry::write_entry(v, &mut out).expect("it encodes")));
        let decode = ns(|| {
            let mut rest = out.as_slice();
            while !rest.is_empty() {
                let (value, left) = split_entry(rest);
                back.push(value);
                rest = left;
            }
        });
        assert_eq!(sum(&back), expected);
        record(0, encode, decode, out.len());

        (out.clear(), back.clear());
        let mut scratch = std::mem::take(&mut out);
        let encode = ns(|| {
            for value in values {
                scratch = postcard::to_extend(value, std::mem::take(&mut scratch)).expect("it encodes");
            }
        });
        out = scratch;
        let decode = ns(|| {
            let mut rest = out.as_slice();
            while !rest.is_empty() {
                let (value, left) = postcard::take_from_bytes::<T>(rest).expect("what was written");
                back.push(value);
                rest = left;
            }
        });
        assert_eq!(sum(&back), expected);
        record(1, encode, decode, out.len());

        (out.clear(), back.clear());
        let encode = ns(|| values.iter().for_each(|v| bincode::serialize_into(&mut out, v).expect("it encodes")));
        let decode = ns(|| {
            let mut rest = out.as_slice();
            while !rest.is_empty() {
                back.push(bincode::deserialize_from(&mut rest).expect("what was written"));
            }
        });
        assert_eq!(sum(&back), expected);
        record(2, encode, decode, out.len());

        let mut archive = rkyv::util::AlignedVec::new();
        let encode = ns(|| archive = T::archive(&all));
        let mut owned = vec![];
        let decode = ns(|| owned = T::owned(&archive));
        assert_eq!(sum(&owned), expected);
        record(3, encode, decode, archive.len());
        let decode = ns(|| assert_eq!(T::checked(&archive), values.len()));
        record(4, encode, decode, archive.len());

        (out.clear(), back.clear());
        let encode = ns(|| {
            for value in values {
                // SAFETY: none can be given; that is the point (RUSTSEC-2021-0120).
                unsafe { abomonation::encode(value, &mut out).expect("memory takes it") };
            }
        });
        let bytes = out.len();
        let mut copy = out.clone();
        let decode = ns(|| {
            let mut rest = copy.as_mut_slice();
            while !rest.is_empty() {
                // SAFETY: as above.
                let (value, left) = unsafe { abomonation::decode::<T>(rest) }.expect("what was written");
                back.push(value.clone());
                rest = left;
            }
        });
        assert_eq!(sum(&back), expected);
        record(5, encode, decode, bytes);
        let mut copy = out.clone();
        let mut seen = 0u64;
        let decode = ns(|| {
            let mut rest = copy.as_mut_slice();
            while !rest.is_empty() {
                // SAFETY: as above.
                let (value, left) = unsafe { abomonation::decode::<T>(rest) }.expect("what was written");
                seen = seen.wrapping_add(digest(value));
                rest = left;
            }
        });
        assert_eq!(seen, expected);
        record(6, encode, decode, bytes);
    }
    let mut printed = vec![[title, "encode", "decode", "bytes/entry"].map(String::from).to_vec()];
    printed.extend(rows.into_iter().map(|row| {
        let median = |values: Vec<f64>| format!("{:.1}", spread(values).median);
        let bytes = format!("{:.1}", row.bytes as f64 / values.len() as f64);
        vec![row.name.to_string(), median(row.encode), median(row.decode), bytes]
    }));
    println!("{}", table(&printed));
}

/// One of our entries and what is left.
fn split_entry<T: DeserializeOwned>(bytes: &[u8]) -> (T, &[u8]) {
    let mut rest = bytes;
    let value = entry::read_entry(&mut rest).expect("what was written");
    (value, rest)
}

fn ns(work: impl FnOnce()) -> f64 {
    measure(work).cpu.as_nanos() as f64
}
