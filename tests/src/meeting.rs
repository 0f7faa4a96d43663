//! A job whose streams part and meet again, slow where they have met: records of both ways wait there for barriers.
//!
//! ```text
//!   numbers (2 splits) --+--> count per key --+--> union -> slow -> both
//!                        +--> count per key --+
//! ```

use std::collections::BTreeMap;

use cutwater_engine::config::{Alignment, Guarantee, GuaranteeKind};
use cutwater_engine::error::{BuildError, RunError};
use cutwater_engine::graph::{Job, Stream};
use cutwater_engine::observe::{Control, Report};
use cutwater_operators::prelude::*;
use cutwater_partition_log::Log;
use cutwater_platform::CrashPoints;
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::generator::generate;
use cutwater_sources_sinks::log::JobLog;
use cutwater_testkit::sequence_diff;

use crate::Machine;
use crate::golden::{Deviation, RECORD, guarantee, open, options, pace, read, run_with, snapshots};

const NUMBERS: u64 = 500;
/// Rows that readers must see.
pub const ROWS: u64 = 2 * NUMBERS;
const KEYS: u64 = 7;

/// How records that wait within a worker may be overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// By their keys: any number of workers may go on.
    Keyed,
    /// Without keys: as many as before.
    Unkeyed,
}

/// One life of the job.
///
/// # Errors
/// What ended it.
pub fn live(machine: &Machine, workers: usize, alignment: Alignment, within: Within) -> Result<Report, RunError> {
    let mut options = options(machine, workers);
    options.guarantee = Guarantee::ExactlyOnce(snapshots(alignment));
    options.limits.channel_records = 32;
    run_with(&options, &Control::new(), move |job| build(job, within, &CrashPoints::default()))
}

/// One life of the job under this guarantee, in which each record reaches [`RECORD`] where the ways have met, and that starts again
/// so many times by itself.
///
/// # Errors
/// What ended it.
pub fn live_tapped(
    machine: &Machine,
    workers: usize,
    promise: GuaranteeKind,
    restarts: u32,
) -> Result<Report, RunError> {
    let mut options = options(machine, workers);
    (options.guarantee, options.restarts_max) = (guarantee(promise), restarts);
    options.limits.channel_records = 32;
    let tap = machine.platform().crash;
    run_with(&options, &Control::new(), move |job| build(job, Within::Keyed, &tap))
}

fn build(job: &Job, within: Within, tap: &CrashPoints) -> Result<(), BuildError> {
    let tap = tap.clone();
    let numbers = job.source("numbers", generate(job, NUMBERS, |n| n).in_splits(2));
    let (one, other) = numbers.fork();
    let counted = |stream: Stream<u64>, way: u64, name: &str| {
        stream.key_by(|n| n % KEYS).count(name).map(move |(key, count)| (way, key, count))
    };
    let may_be_overtaken = |rows: Stream<(u64, u64, u64)>| match within {
        Within::Keyed => rows.overtakable_by(|row| row.1),
        Within::Unkeyed => rows.overtakable(),
    };
    let one = may_be_overtaken(counted(one, 1, "one"));
    let other = may_be_overtaken(counted(other, 2, "other"));
    let log = job.log();
    may_be_overtaken(one.union([other]))
        .inspect(|_| pace(true))
        .inspect(move |_| tap.reach(RECORD))
        .sink("both", log.write("both").value(Json));
    Ok(())
}

/// Compares what readers see with what there must be: for each way and key its counts in order.
///
/// # Panics
/// With the story of the first difference.
pub fn assert_seen(machine: &Machine, story: &str) {
    let log = open(&machine.platform());
    let mut seen: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for [way, key, count] in rows(&log) {
        seen.entry((way, key)).or_default().push(count);
    }
    for (way, key, total) in totals() {
        let expected: Vec<u64> = (1..=total).collect();
        let seen = seen.remove(&(way, key)).unwrap_or_default();
        if let Some(diff) = sequence_diff(&expected, &seen) {
            panic!("{story}\nway {way}, key {key}: {diff}");
        }
    }
    assert!(seen.is_empty(), "{story}\nfrom nowhere: {seen:?}");
    assert!(log.transactions().is_empty(), "{story}\ntransactions were left");
    log.close().expect("a clean close");
}

/// For each way and key, how often it must be counted.
fn totals() -> impl Iterator<Item = (u64, u64, u64)> {
    let keys = [1, 2].into_iter().flat_map(|way| (0..KEYS).map(move |key| (way, key)));
    keys.map(|(way, key)| (way, key, (0..NUMBERS).filter(|n| n % KEYS == key).count() as u64))
}

/// What readers see: way, key and count of each row.
fn rows(log: &Log) -> Vec<[u64; 3]> {
    let row = |line: String| {
        let mut numbers = line.trim_matches(['[', ']']).split(',').map(|n| n.parse().expect("numbers in JSON"));
        std::array::from_fn(|_| numbers.next().expect("three numbers"))
    };
    read(log, "both").into_iter().map(row).collect()
}

/// How what readers see deviates, for guarantees that promise less than exactness.
pub fn deviation(machine: &Machine) -> Deviation {
    let log = open(&machine.platform());
    let mut seen: BTreeMap<[u64; 3], u64> = BTreeMap::new();
    for row in rows(&log) {
        *seen.entry(row).or_default() += 1;
    }
    log.close().expect("a clean close");
    let mut deviation = Deviation::default();
    for row in totals().flat_map(|(way, key, total)| (1..=total).map(move |count| [way, key, count])) {
        match seen.remove(&row) {
            Some(times) => deviation.repeated += times - 1,
            None => deviation.lost += 1,
        }
    }
    deviation.repeated += seen.values().sum::<u64>();
    deviation
}
