//! The judge against a plain reading of the rules: every small log, and larger ones at random.

use proptest::prelude::*;

use super::judge::{Aborted, Fate, Judge, Known, Rules, Seen};
use super::keys::KeyMap;
use crate::batch::BatchHeader;
use crate::batch::format::{CONTROL, DELETE_HORIZON, TRANSACTIONAL};

/// One batch of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A record outside of transactions: its key; true for a tombstone.
    Plain(u8, bool),
    /// A record of this producer's transaction.
    Txn(i64, u8),
    /// The end of it; true for a commit.
    End(i64, bool),
}

/// What lies at an offset, and its delete horizon.
type Item = (i64, Event, Option<i64>);

const ALL: [Event; 9] = [
    Event::Plain(0, false),
    Event::Plain(0, true),
    Event::Plain(1, false),
    Event::Txn(1, 0),
    Event::Txn(1, 1),
    Event::End(1, true),
    Event::End(1, false),
    Event::Txn(2, 0),
    Event::End(2, false),
];

/// Nothing ends that hasn't begun.
fn is_possible(events: &[Event]) -> bool {
    let mut open = [false; 3];
    events.iter().all(|event| match event {
        Event::Plain(..) => true,
        Event::Txn(producer, _) => {
            open[*producer as usize] = true;
            true
        }
        Event::End(producer, _) => std::mem::take(&mut open[*producer as usize]),
    })
}

/// How the transaction of the record at `at` ended, and where; none if it hasn't.
fn end_of(items: &[Item], at: usize) -> Option<(bool, usize)> {
    let Event::Txn(producer, _) = items[at].1 else { return None };
    let later = items.iter().enumerate().skip(at);
    let ends = later.filter_map(|(n, item)| match item.1 {
        Event::End(of, committed) if of == producer => Some((committed, n)),
        _ => None,
    });
    ends.min_by_key(|(_, n)| *n)
}

/// How many items lie below the last stable offset.
fn settled(items: &[Item]) -> usize {
    let undecided = |at: &usize| matches!(items[*at].1, Event::Txn(..)) && end_of(items, *at).is_none();
    (0..items.len()).find(undecided).unwrap_or(items.len())
}

fn key_of(items: &[Item], at: usize) -> Option<u8> {
    match items[at].1 {
        Event::Plain(key, _) => Some(key),
        Event::Txn(_, key) => end_of(items, at)?.0.then_some(key),
        Event::End(..) => None,
    }
}

/// The rules, read plainly: what is left of the first `end` items of `items` at `now`, horizons included.
fn plainly(items: &[Item], end: usize, now: i64, keep_ms: i64) -> Vec<Item> {
    let stamped = |horizon: Option<i64>| horizon.or(Some(now + keep_ms));
    let mut left: Vec<Item> = Vec::new();
    let mut stays = vec![false; items.len()];
    for (at, item) in items.iter().enumerate() {
        let (offset, event, horizon) = *item;
        let expired = horizon.is_some_and(|horizon| horizon <= now);
        match event {
            _ if at >= end => stays[at] = true,
            Event::Plain(..) | Event::Txn(..) => {
                let key = key_of(items, at);
                let newest = key.is_some() && !(at + 1..end).any(|later| key_of(items, later) == key);
                let tombstone = matches!(event, Event::Plain(_, true));
                stays[at] = newest && !(tombstone && expired);
                if stays[at] {
                    left.push((offset, event, if tombstone { stamped(horizon) } else { horizon }));
                }
                continue;
            }
            Event::End(producer, _) => {
                let previous = (0..at).rev().find(|n| matches!(items[*n].1, Event::End(of, _) if of == producer));
                let first = previous.map_or(0, |n| n + 1);
                let needed = (first..at).any(|n| stays[n] && matches!(items[n].1, Event::Txn(of, _) if of == producer));
                stays[at] = needed || !expired;
                if stays[at] {
                    left.push((offset, event, if needed { horizon } else { stamped(horizon) }));
                }
                continue;
            }
        }
        left.push(*item);
    }
    left
}

fn header(item: &Item) -> BatchHeader {
    let (offset, event, horizon) = *item;
    let (producer_id, kind) = match event {
        Event::Plain(..) => (-1, 0),
        Event::Txn(producer, _) => (producer, TRANSACTIONAL),
        Event::End(producer, _) => (producer, TRANSACTIONAL | CONTROL),
    };
    BatchHeader {
        base_offset: offset,
        length: 100,
        leader_epoch: 0,
        crc: 0,
        attributes: kind | if horizon.is_some() { DELETE_HORIZON } else { 0 },
        last_offset_delta: 0,
        base_timestamp_ms: horizon.unwrap_or(0),
        max_timestamp_ms: 0,
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        record_count: 1,
    }
}

/// What the judge leaves. The map takes the keys of the items from `dirty` to `end`.
fn judged(items: &[Item], dirty: usize, end: usize, now: i64, keep_ms: i64, known: &Known) -> Vec<Item> {
    let mut keys = KeyMap::new(7, 1 << 16);
    let mut aborted = Aborted::default();
    for (at, item) in items.iter().enumerate() {
        if let (Event::Txn(producer, _), Some((false, last))) = (item.1, end_of(items, at)) {
            aborted.add(producer, item.0, items[last].0);
        }
        let key = (dirty..end).contains(&at).then(|| key_of(items, at)).flatten();
        assert!(key.is_none_or(|key| keys.note(&[key], item.0)));
    }
    let end = items.get(end).map_or(i64::MAX, |item| item.0);
    let rules = Rules { keys, end, aborted, known: known.clone(), now, delete_retention_ms: keep_ms };
    let mut judge = Judge::new(rules);
    let mut left = Vec::new();
    for item in items {
        let header = header(item);
        let fate = match item.1 {
            Event::End(..) => judge.marker(&header),
            Event::Plain(key, is_tombstone) => {
                judge.data(&header, [Seen { offset: item.0, key: Some(&[key]), is_tombstone }].into_iter())
            }
            Event::Txn(_, key) => {
                judge.data(&header, [Seen { offset: item.0, key: Some(&[key]), is_tombstone: false }].into_iter())
            }
        };
        match fate {
            Fate::Stay => left.push(*item),
            Fate::Less { keep, horizon_ms } => {
                assert_eq!(keep, [true]);
                left.push((item.0, item.1, horizon_ms.or(item.2)));
            }
            Fate::Go => {}
            Fate::Empty => panic!("no producer is known: {item:?}"),
        }
    }
    left
}

/// Rounds at three times, the first two over a part of the log each, against the rules.
fn check(events: &[Event]) {
    let mut items: Vec<Item> = events.iter().zip(0..).map(|(event, offset)| (offset, *event, None)).collect();
    let (keep_ms, known) = (100, Known::default());
    let stable = settled(&items);
    for (dirty, end, now) in
        [(0, stable / 2, 1_000), (stable / 2, stable, 1_050), (stable, stable, 1_149), (stable, stable, 1_150)]
    {
        // Offsets, not places: earlier rounds have taken some away.
        let place = |offset: usize| items.iter().position(|item| item.0 >= offset as i64).unwrap_or(items.len());
        let (dirty, end) = (place(dirty), place(end));
        let expected = plainly(&items, end, now, keep_ms);
        let found = judged(&items, dirty, end, now, keep_ms, &known);
        assert_eq!(found, expected, "{events:?}: of {items:?} from {dirty} to {end} at {now}");
        items = found;
    }
    // For every key the last committed value is what it was, unless it was a deletion.
    let all: Vec<Item> = events.iter().zip(0..).map(|(event, offset)| (offset, *event, None)).collect();
    for key in 0..2 {
        let newest = |items: &[Item], below: i64| {
            let with = (0..items.len()).filter(|at| items[*at].0 < below && key_of(items, *at) == Some(key));
            with.max().map(|at| items[at]).filter(|item| !matches!(item.1, Event::Plain(_, true)))
        };
        let stable = stable as i64;
        assert_eq!(newest(&items, stable).map(|i| i.0), newest(&all, stable).map(|i| i.0), "{events:?} key {key}");
    }
}

#[test]
fn every_log_of_up_to_five_batches_comes_to_what_the_rules_say_in_four_rounds() {
    let mut checked = 0;
    for length in 0..=5u32 {
        for case in 0..ALL.len().pow(length) {
            let events: Vec<Event> = (0..length).map(|n| ALL[case / ALL.len().pow(n) % ALL.len()]).collect();
            if is_possible(&events) {
                check(&events);
                checked += 1;
            }
        }
    }
    assert!(checked > 15_000, "{checked}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn larger_logs_come_to_what_the_rules_say(choices in prop::collection::vec(0..ALL.len(), 0..60)) {
        let mut events: Vec<Event> = Vec::new();
        for choice in choices {
            events.push(ALL[choice]);
            if !is_possible(&events) {
                events.pop();
            }
        }
        check(&events);
    }
}

#[test]
fn a_batch_that_a_producer_is_known_by_stays_empty_and_so_does_its_last_marker() {
    let items = [(0, Event::Txn(1, 0), None), (1, Event::End(1, true), None), (2, Event::Plain(0, false), None)];
    let known = Known { batches: [0].into(), markers: [(1, (0, 0))].into() };
    let mut keys = KeyMap::new(7, 1 << 10);
    assert!(keys.note(&[0], 2));
    let rules = Rules { keys, end: 3, aborted: Aborted::default(), known, now: i64::MAX - 1, delete_retention_ms: 0 };
    let mut judge = Judge::new(rules);
    let seen = |offset| [Seen { offset, key: Some(&[0][..]), is_tombstone: false }].into_iter();
    assert_eq!(judge.data(&header(&items[0]), seen(0)), Fate::Empty);
    assert_eq!(judge.marker(&header(&(1, Event::End(1, true), Some(5)))), Fate::Stay, "a batch of it stays");
    assert_eq!(judge.marker(&header(&(1, Event::End(1, true), Some(5)))), Fate::Stay, "its last trace");
    let older = BatchHeader { producer_epoch: -1, ..header(&(1, Event::End(1, true), Some(5))) };
    assert_eq!(judge.marker(&older), Fate::Go);
    assert_eq!(judge.data(&header(&items[2]), seen(2)), Fate::Stay);
    let keyless = [Seen { offset: 2, key: None, is_tombstone: false }].into_iter();
    assert_eq!(judge.data(&header(&items[2]), keyless), Fate::Go, "nothing could ever replace it");
}
