//! The job of the campaign: two pipelines whose output doesn't depend on who runs when, and plain Rust that says what must come out.
//!
//! ```text
//!   clicks (3 partitions) -> running count per key            -> counts (2 partitions, by key)
//!   events (1 partition, out of order) -> 10 s windows, sum per key  -> windows, late
//! ```
//!
//! Sizes, keys and disorder come from the input's seed. One thing does depend on who runs when: whether an event that comes far too late
//! is late for its window, since a window waits for every worker upstream to say how far it is, or that it has nothing. So what is
//! demanded of such an event is that it is counted once: in its window or among the late ones.

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
    /// For each window start and key, how many events, and their sum; without the late ones.
    windows: BTreeMap<(i64, u64), (u64, u64)>,
    /// Events that come long after their window is over, so that it has fired unless somebody upstream hasn't been heard of.
    late: Vec<Event>,
}

/// Time in ms, key, value.
type Event = (i64, u64, u64);

fn line((t, key, value): &Event) -> String {
    format!("{t} {key} {value}")
}

/// Counts an event in its window.
fn count(windows: &mut BTreeMap<(i64, u64), (u64, u64)>, (t, key, value): Event) {
    let (events, sum) = windows.entry((t.div_euclid(WINDOW_MS) * WINDOW_MS, key)).or_default();
    (*events, *sum) = (*events + 1, *sum + value);
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
    let (mut windows, mut late) = (BTreeMap::new(), vec![]);
    for i in 0..events {
        let on_time = i as i64 * 600 - random.below(DISORDER_MS as u64) as i64;
        // A batch holds less than a window of time, so no batching lets its window wait for it.
        let is_late = i % 40 == 39;
        let t = if is_late { on_time - 3 * WINDOW_MS } else { on_time };
        let event = (t, random.below(keys), random.below(100));
        lines.push(line(&event));
        if is_late {
            late.push(event);
        } else {
            count(&mut windows, event);
        }
    }
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
        let seen = |topic: &str| seen.rows(topic).into_iter().map(crate::Row::text).collect::<Vec<String>>();
        // Of the late ones, those that nobody tells as late must be in their windows.
        let (mut told, mut windows, mut late) = (seen("late"), self.windows.clone(), vec![]);
        for event in &self.late {
            match told.iter().position(|text| *text == line(event)) {
                Some(at) => late.push(told.swap_remove(at)),
                None => count(&mut windows, *event),
            }
        }
        let windows = windows.into_iter().map(|((start, key), (n, sum))| format!("{start} {key} {n} {sum}"));
        let windows =
            multiset_diff(&windows.collect::<Vec<_>>(), &seen("windows")).map(|diff| format!("windows: {diff}"));
        windows.or_else(|| multiset_diff(&late, &seen("late")).map(|diff| format!("late: {diff}")))
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
    late.map(|event| line(&event)).sink("late", log.write("late"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;

    fn rows(texts: &[&str]) -> Vec<Vec<Row>> {
        vec![texts.iter().map(|text| Row { key: None, value: text.as_bytes().to_vec() }).collect()]
    }

    fn judge(windows: &[&str], late: &[&str]) -> Option<String> {
        let expected = Expected {
            counts: BTreeMap::new(),
            windows: [((10_000, 0), (5, 258)), ((10_000, 1), (1, 3))].into(),
            late: vec![(15_966, 0, 0), (-9_839, 2, 9)],
        };
        let topics = [("windows".to_string(), rows(windows)), ("late".to_string(), rows(late))].into();
        expected.wrong(&Output { topics, ..Output::default() })
    }

    #[test]
    fn an_event_that_comes_far_too_late_is_counted_once_wherever_it_is() {
        let late = ["15966 0 0", "-9839 2 9"];
        assert_eq!(judge(&["10000 0 5 258", "10000 1 1 3"], &late), None, "both late");
        assert_eq!(judge(&["10000 0 6 258", "10000 1 1 3"], &late[1..]), None, "one in its window");
        assert_eq!(judge(&["-10000 2 1 9", "10000 0 6 258", "10000 1 1 3"], &[]), None, "none late");
        assert!(judge(&["10000 0 6 258", "10000 1 1 3"], &late).is_some(), "twice");
        assert!(judge(&["10000 0 5 258", "10000 1 1 3"], &late[1..]).is_some(), "nowhere");
        assert!(
            judge(&["10000 0 5 258", "10000 1 1 3"], &["15966 0 0", "15966 0 0", "-9839 2 9"]).is_some(),
            "late twice"
        );
        assert!(
            judge(&["10000 0 4 199", "10000 1 1 3"], &["15966 0 0", "-9839 2 9", "14102 0 59"]).is_some(),
            "not late"
        );
        assert!(judge(&["10000 0 5 258", "10000 1 1 3", "10000 1 1 3"], &late).is_some(), "a window twice");
    }
}
