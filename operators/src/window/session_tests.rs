//! Sessions on the rig, compared with a model that keeps nothing but times.

use cutwater_engine::graph::Timed;
use cutwater_engine::operator::testing::{Collected, Input, Rig, RigSnapshot, Seen};

use super::*;
use crate::key_by::KeyBy;
use crate::testing::Random;
use crate::window::Windows;

/// `(key, number)` at a time.
type Record = (EventTime, (u64, u64));
/// Key, start, end, sum of the numbers; at the session's last millisecond.
type Sum = (EventTime, (u64, i64, i64, u64));

struct Sums {
    rig: Rig,
    input: Input<Record>,
    results: Collected<Sum>,
    late: Collected<Record>,
}

/// Sessions that end after ten silent milliseconds.
fn sums(mut rig: Rig) -> Sums {
    let (input, stream) = rig.input::<(u64, u64), Timed>("numbers");
    let (results, late) = stream
        .key_by(|(key, _)| *key)
        .window(Sessions::millis(10))
        .aggregate(
            "sums",
            || 0,
            |sum, (_, n)| *sum += n,
            |sum, more| *sum += more,
            |key, window, sum| (*key, window.start.0, window.end.0, sum),
        )
        .with_late();
    let (results, late) = (rig.collect(results), rig.collect(late));
    Sums { rig, input, results, late }
}

fn record(time: i64, key: u64, n: u64) -> Record {
    (EventTime(time), (key, n))
}

/// A session by its first and last record.
fn sum(key: u64, first: i64, last: i64, n: u64) -> Sum {
    (EventTime(last + 9), (key, first, last + 10, n))
}

#[test]
fn a_session_ends_when_its_key_is_silent_for_the_gap_and_comes_once() {
    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.push(&input, vec![record(0, 1, 1), record(9, 1, 2), record(19, 1, 4), record(3, 2, 8)]);
    rig.watermark(&input, EventTime(18));
    let first = [Seen::Record(sum(2, 3, 3, 8)), Seen::Watermark(EventTime(18))];
    assert_eq!(results.take(), first, "nine apart is one session, and it still goes on");
    rig.watermark(&input, EventTime(19));
    assert_eq!(results.take(), [Seen::Record(sum(1, 0, 9, 3)), Seen::Watermark(EventTime(19))], "ten apart is two");
    rig.finish();
    let rest = [Seen::Record(sum(1, 19, 19, 4)), Seen::Watermark(EventTime::MAX), Seen::End];
    assert_eq!(results.take(), rest);
    assert_eq!(late.take_records(), []);
    let counters = rig.counters("sums");
    assert_eq!((counters.absorbed, counters.late, counters.emitted), (4, 0, vec![3, 0]));
}

#[test]
fn a_record_between_two_sessions_joins_them() {
    let Sums { mut rig, input, results, .. } = sums(Rig::new());
    rig.push(&input, vec![record(30, 1, 1), record(0, 1, 2), record(15, 1, 4), record(45, 1, 8)]);
    rig.push(&input, vec![record(8, 1, 16), record(22, 1, 32)]);
    rig.finish();
    assert_eq!(results.take_records(), [sum(1, 0, 30, 1 + 2 + 4 + 16 + 32), sum(1, 45, 45, 8)]);
}

#[test]
fn a_late_record_is_one_that_touches_no_open_session_and_whose_own_would_have_ended() {
    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.push(&input, vec![record(0, 1, 1), record(12, 1, 2)]);
    rig.watermark(&input, EventTime(15));
    assert_eq!(results.take_records(), [sum(1, 0, 0, 1)]);
    rig.push(&input, vec![record(5, 2, 4), record(6, 2, 8), record(0, 1, 32), record(5, 1, 16)]);
    rig.finish();
    assert_eq!(late.take_records(), [record(5, 2, 4), record(0, 1, 32)]);
    assert_eq!(results.take_records(), [sum(2, 6, 6, 8), sum(1, 5, 12, 18)], "5 touches the open one of its key");
    let counters = rig.counters("sums");
    assert_eq!((counters.absorbed, counters.late, counters.emitted), (4, 2, vec![3, 2]));
}

#[test]
fn results_come_by_end_and_then_by_key_whatever_room_there_is() {
    let records: Vec<Record> =
        (0..300).rev().flat_map(|key| [40 + key as i64 % 3, 0].map(|time| record(time, key, key))).collect();
    let mut expected: Vec<Sum> = (0..300).map(|key| sum(key, 0, 0, key)).collect();
    for end in 0..3 {
        expected.extend((0..300).filter(|key| key % 3 == end).map(|k| sum(k, 40 + end as i64, 40 + end as i64, k)));
    }
    for room in [1, 7, 299, 300, 301, 100_000] {
        let Sums { mut rig, input, results, .. } = sums(Rig::new());
        rig.set_room(room);
        rig.push(&input, records.clone());
        rig.watermark(&input, EventTime(100));
        let seen = results.take();
        assert_eq!(seen.last(), Some(&Seen::Watermark(EventTime(100))), "room {room}");
        let fired: Vec<Seen<Sum>> = expected.iter().copied().map(Seen::Record).collect();
        assert_eq!(seen[..seen.len() - 1], fired, "room {room}");
    }
}

#[test]
fn sessions_go_on_and_late_stays_late_on_other_workers() {
    // Two workers whose watermarks stand at 5 and 30.
    let (mut snapshots, mut fired, mut fired_keys) = (Vec::<RigSnapshot>::new(), vec![], vec![]);
    for (worker, watermark) in [(0, 5), (1, 30)] {
        let Sums { mut rig, input, results, .. } = sums(Rig::on_worker(worker, 2));
        rig.push(&input, (0..100).flat_map(|key| [0, 25].map(|time| record(time, key, 1))).collect());
        rig.watermark(&input, EventTime(watermark));
        snapshots.push(rig.checkpoint());
        let results = results.take_records();
        fired_keys.extend(results.iter().map(|sum| sum.1.0));
        fired.extend(results);
    }
    assert!((1..100).contains(&fired_keys.len()));
    for workers in [1, 2, 3] {
        let (mut all, mut all_late) = (fired.clone(), vec![]);
        for worker in 0..workers {
            let Sums { mut rig, input, results, late } = sums(Rig::on_worker(worker, workers));
            rig.restore(&snapshots);
            rig.push(&input, (0..100).flat_map(|key| [9, 16].map(|time| record(time, key, 10))).collect());
            rig.finish();
            all.extend(results.take_records());
            all_late.extend(late.take_records());
        }
        all.sort_by_key(|(_, (key, start, ..))| (*key, *start));
        all_late.sort_unstable();
        let expected: Vec<Sum> = (0..100)
            .flat_map(|key| match fired_keys.contains(&key) {
                // 9 is late, 16 touches 25.
                true => vec![sum(key, 0, 0, 1), sum(key, 16, 25, 11)],
                false => vec![sum(key, 0, 25, 22)],
            })
            .collect();
        assert_eq!(all, expected, "{workers} workers: each session once");
        fired_keys.sort_unstable();
        assert_eq!(all_late, fired_keys.iter().map(|key| record(9, *key, 10)).collect::<Vec<_>>());
    }
}

#[test]
fn sessions_with_another_gap_are_refused() {
    let counts = |gap: Sessions, snapshots: &[RigSnapshot]| {
        let mut rig = Rig::new();
        let (input, stream) = rig.input::<u64, Timed>("numbers");
        let sessions = stream.key_by(|n| *n).window(gap);
        sessions.reduce("latest", |latest, n| *latest = *n, |_, _, n| n).drop_late().discard();
        if !snapshots.is_empty() {
            rig.restore(snapshots);
        }
        rig.try_start().map(|()| (rig, input))
    };
    let (mut rig, input) = counts(Sessions::millis(10), &[]).expect("nothing to restore");
    rig.push(&input, vec![(EventTime(1), 1)]);
    let snapshots = [rig.checkpoint()];
    assert!(counts(Sessions::millis(10), &snapshots).is_ok());
    let error = counts(Sessions::millis(20), &snapshots).expect_err("twice as long").to_string();
    assert!(error.contains("a gap of 10 ms") && error.contains("now sessions with a gap of 20 ms"), "{error}");
}

#[test]
fn at_the_ends_of_time_sessions_are_cut_off_and_nothing_wraps() {
    let Sums { mut rig, input, results, .. } = sums(Rig::new());
    rig.push(&input, [i64::MIN, i64::MIN + 9, i64::MAX - 1, i64::MAX].map(|time| record(time, 1, 1)).to_vec());
    rig.finish();
    let expected = [(i64::MIN, i64::MIN + 19, 2), (i64::MAX - 1, i64::MAX, 2)];
    assert_eq!(results.take_records(), expected.map(|(from, to, n)| (EventTime(to - 1), (1, from, to, n))));
}

/// Records, watermarks and restores in a random order, compared with a model that keeps the times of all open records.
#[test]
fn any_order_of_records_watermarks_and_restores_gives_what_the_model_gives() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut model = Model { fired: i64::MIN, open: vec![], results: vec![], late: vec![] };
        let mut running = sums(Rig::new());
        let (mut found, mut found_late) = (vec![], vec![]);
        let mut watermark = 0;
        for _ in 0..60 {
            match random.below(10) {
                0..6 => {
                    let records: Vec<Record> = (0..random.below(8))
                        .map(|n| record(watermark + random.below(80) as i64 - 25, random.below(4), n))
                        .collect();
                    records.iter().for_each(|r| model.record(*r));
                    running.rig.push(&running.input, records);
                }
                6..9 => {
                    watermark += random.below(20) as i64;
                    model.watermark(watermark);
                    running.rig.watermark(&running.input, EventTime(watermark));
                }
                _ => {
                    let snapshot = running.rig.checkpoint();
                    found.extend(running.results.take_records());
                    found_late.extend(running.late.take_records());
                    running = sums(Rig::new());
                    running.rig.set_room(1 + random.below(5) as usize);
                    running.rig.restore(&[snapshot]);
                }
            }
        }
        running.rig.finish();
        model.watermark(i64::MAX);
        found.extend(running.results.take_records());
        found_late.extend(running.late.take_records());
        assert_eq!(found, model.results, "seed {seed}");
        assert_eq!(found_late, model.late, "seed {seed}");
    }
}

struct Model {
    fired: i64,
    /// Records whose session hasn't fired, as key, time and number.
    open: Vec<(u64, i64, u64)>,
    results: Vec<Sum>,
    late: Vec<Record>,
}

impl Model {
    fn record(&mut self, record: Record) {
        let (EventTime(time), (key, n)) = record;
        let near = self.open.iter().any(|(other, at, _)| *other == key && time.abs_diff(*at) < 10);
        if near || time + 10 > self.fired {
            self.open.push((key, time, n));
        } else {
            self.late.push(record);
        }
    }

    fn watermark(&mut self, to: i64) {
        self.fired = self.fired.max(to);
        self.open.sort_unstable();
        let mut sessions: Vec<Vec<(u64, i64, u64)>> = vec![];
        for record in self.open.drain(..) {
            match sessions.last_mut().filter(|s| s[0].0 == record.0 && record.1 - s[s.len() - 1].1 < 10) {
                Some(session) => session.push(record),
                None => sessions.push(vec![record]),
            }
        }
        let mut fired = vec![];
        for session in sessions {
            let (key, first, last) = (session[0].0, session[0].1, session[session.len() - 1].1);
            if last + 10 <= to {
                fired.push((last, key, sum(key, first, last, session.iter().map(|r| r.2).sum())));
            } else {
                self.open.extend(session);
            }
        }
        fired.sort_unstable();
        self.results.extend(fired.into_iter().map(|(_, _, sum)| sum));
    }
}
