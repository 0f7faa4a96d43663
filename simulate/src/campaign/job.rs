//! The job of the campaign: two pipelines whose output doesn't depend on who runs when, and plain Rust that says what must come out.
//!
//! ```text
//!   clicks (3 partitions) -> running count per key            -> counts (2 partitions, by key)
//!   events (1 partition, out of order) -> 10 s windows, sum per key  -> windows, late
//! ```
//!
//! Sizes, keys and disorder come from the input's seed.

use std::collections::BTreeMap;

use cutwater_engine::error::BuildError;
use cutwater_engine::graph::Job;
use cutwater_engine::time::EventTime;
use cutwater_operators::prelude::*;
use cutwater_platform::SplitMix;
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::log::{JobLog, LogRecord};
use cutwater_testkit::{multiset_diff, sequence_diff};

use crate::{Input, Output};

/// Events come at most this much before the newest one of their partition.
const DISORDER_MS: i64 = 4_000;
const WINDOW_MS: i64 = 10_000;
/// Partitions of clicks. Events have one: with more, whether an event is late would depend on who runs when.
const PARTITIONS: u64 = 3;

/// An input, and what must come out of it.
#[derive(Clone, Debug)]
pub struct Expected {
    /// For each key, how many clicks.
    counts: BTreeMap<u64, u64>,
    /// "window start, key, events, sum".
    windows: Vec<String>,
    /// Events that came after their window had fired.
    late: Vec<String>,
}

/// The input of this seed, and what must come out.
pub fn input(seed: u64) -> (Input, Expected) {
    let mut random = SplitMix::new(seed);
    // Every fourth input has so many keys that deltas of the state stay smaller than their base for long.
    let (clicks, keys) = match seed % 4 {
        3 => (200 + random.below(200), 100 + random.below(100)),
        _ => (40 + random.below(120), 1 + random.below(24)),
    };
    let mut counts = BTreeMap::new();
    let mut click_partitions = vec![vec![]; PARTITIONS as usize];
    for _ in 0..clicks {
        let key = random.below(keys);
        *counts.entry(key).or_default() += 1;
        click_partitions[(key % PARTITIONS) as usize].push(key.to_string());
    }

    let (events, keys) = (30 + random.below(100), 1 + random.below(6));
    let mut lines = vec![];
    let (mut windows, mut late) = (BTreeMap::<(i64, u64), (u64, u64)>::new(), vec![]);
    for i in 0..events {
        let on_time = i as i64 * 600 - random.below(DISORDER_MS as u64) as i64;
        // So late that its window has fired under every batching: a batch holds less than a window of time.
        let is_late = i % 40 == 39;
        let t = if is_late { on_time - 3 * WINDOW_MS } else { on_time };
        let (key, value) = (random.below(keys), random.below(100));
        lines.push(format!("{t} {key} {value}"));
        if is_late {
            late.push(format!("{t} {key} {value}"));
        } else {
            let entry = windows.entry((t.div_euclid(WINDOW_MS) * WINDOW_MS, key)).or_default();
            *entry = (entry.0 + 1, entry.1 + value);
        }
    }
    let windows = windows.into_iter().map(|((start, key), (n, sum))| format!("{start} {key} {n} {sum}")).collect();
    let input = Input::new().partitions("clicks", click_partitions).topic("events", lines);
    (input, Expected { counts, windows, late })
}

impl Expected {
    /// What is wrong with what readers saw; `None` if nothing is.
    pub fn wrong(&self, seen: &Output) -> Option<String> {
        let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for row in seen.rows("counts") {
            let text = row.text();
            let pair = text.trim_matches(['[', ']']).split_once(',');
            let pair = pair.and_then(|(key, count)| Some((key.parse().ok()?, count.parse().ok()?)));
            let Some((key, count)) = pair else { return Some(format!("counts: {text:?} is no pair of numbers")) };
            counts.entry(key).or_default().push(count);
        }
        for (key, clicks) in &self.counts {
            let expected: Vec<u64> = (1..=*clicks).collect();
            if let Some(diff) = sequence_diff(&expected, &counts.remove(key).unwrap_or_default()) {
                return Some(format!("counts of key {key}: {diff}"));
            }
        }
        if !counts.is_empty() {
            return Some(format!("counts of keys that nobody clicked: {counts:?}"));
        }
        [("windows", &self.windows), ("late", &self.late)].into_iter().find_map(|(topic, expected)| {
            let seen: Vec<String> = seen.rows(topic).into_iter().map(crate::Row::text).collect();
            multiset_diff(expected, &seen).map(|diff| format!("{topic}: {diff}"))
        })
    }
}

fn text(record: &LogRecord) -> String {
    String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned()
}

/// Describes the job.
///
/// # Errors
/// The log can't be opened.
///
/// # Panics
/// If a record of the input isn't what [`input`] makes.
pub fn build(job: &Job) -> Result<(), BuildError> {
    let log = job.log();
    job.source("clicks", log.read("clicks").until_latest())
        .map(|record| text(&record).parse::<u64>().expect("a number"))
        .key_value(|key| (key, ()))
        .count("count")
        .sink(
            "counts",
            log.write("counts")
                .partitions(2)
                .value(Json)
                .key_into(|(key, _): &(u64, u64), out| out.extend_from_slice(&key.to_be_bytes())),
        );

    let (windows, late) = job
        .source("events", log.read("events").until_latest())
        .map(|record| {
            let line = text(&record);
            let numbers: Vec<i64> = line.split(' ').map(|n| n.parse().expect("a number")).collect();
            (numbers[0], numbers[1].unsigned_abs(), numbers[2].unsigned_abs())
        })
        .timestamps(|event| EventTime(event.0), Bounded::millis(DISORDER_MS as u32))
        .key_by(|event| event.1)
        .window(Tumbling::millis(WINDOW_MS as u32))
        .aggregate(
            "sums",
            || (0u64, 0u64),
            |sum: &mut (u64, u64), event: &(i64, u64, u64)| *sum = (sum.0 + 1, sum.1 + event.2),
            |key: &u64, window: Window, (n, sum)| format!("{} {key} {n} {sum}", window.start.0),
        )
        .with_late();
    windows.sink("windows", log.write("windows"));
    late.map(|(t, key, value)| format!("{t} {key} {value}")).sink("late", log.write("late"));
    Ok(())
}
