//! Sliding windows on the rig, compared with a model that keeps each window on its own.

use std::collections::BTreeMap;

use cutwater_engine::graph::Timed;
use cutwater_engine::operator::testing::{Collected, Input, Rig, RigSnapshot, Seen};

use super::*;
use crate::key_by::KeyBy;
use crate::testing::Random;
use crate::window::Windows;

/// `(key, number)` at a time.
type Record = (EventTime, (u64, u64));
/// Key, start of the window, sum of its numbers; at the window's last millisecond.
type Sum = (EventTime, (u64, i64, u64));

struct Sums {
    rig: Rig,
    input: Input<Record>,
    results: Collected<Sum>,
    late: Collected<Record>,
}

/// Ten milliseconds, every four: panes of two.
const WINDOWS: Sliding = Sliding::millis(10).every_millis(4);

fn sums_of(windows: Sliding, mut rig: Rig) -> Sums {
    let (input, stream) = rig.input::<(u64, u64), Timed>("numbers");
    let (results, late) = stream
        .key_by(|(key, _)| *key)
        .window(windows)
        .aggregate(
            "sums",
            || 0,
            |sum, (_, n)| *sum += n,
            |sum, more| *sum += more,
            |key, window, sum| (*key, window.start.0, sum),
        )
        .with_late();
    let (results, late) = (rig.collect(results), rig.collect(late));
    Sums { rig, input, results, late }
}

fn sums(rig: Rig) -> Sums {
    sums_of(WINDOWS, rig)
}

fn record(time: i64, key: u64, n: u64) -> Record {
    (EventTime(time), (key, n))
}

fn sum(key: u64, start: i64, n: u64) -> Sum {
    (EventTime(start + 9), (key, start, n))
}

#[test]
fn a_record_is_in_every_window_that_has_its_time_and_kept_once() {
    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.push(&input, vec![record(9, 1, 100), record(8, 1, 10), record(6, 2, 1)]);
    rig.watermark(&input, EventTime(10));
    let first = [sum(1, 0, 110), sum(2, 0, 1)].map(Seen::Record);
    assert_eq!(results.take(), [&first[..], &[Seen::Watermark(EventTime(10))]].concat());
    rig.push(&input, vec![record(9, 1, 1_000)]);
    rig.finish();
    let rest = [sum(1, 4, 1_110), sum(2, 4, 1), sum(1, 8, 1_110)].map(Seen::Record);
    assert_eq!(results.take(), [&rest[..], &[Seen::Watermark(EventTime::MAX), Seen::End]].concat());
    assert_eq!(late.take_records(), []);
    let counters = rig.counters("sums");
    assert_eq!((counters.absorbed, counters.late, counters.emitted), (4, 0, vec![5, 0]));
}

#[test]
fn a_record_is_late_when_its_last_window_has_fired() {
    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.watermark(&input, EventTime(14));
    rig.push(&input, vec![record(7, 1, 1), record(8, 1, 2), record(0, 1, 3)]);
    rig.finish();
    assert_eq!(late.take_records(), [record(7, 1, 1), record(0, 1, 3)]);
    assert_eq!(results.take_records(), [sum(1, 8, 2)], "the windows from 0 and 4 had fired without it");
    let counters = rig.counters("sums");
    assert_eq!((counters.absorbed, counters.late, counters.emitted), (1, 2, vec![1, 2]));
}

#[test]
fn results_come_by_end_and_then_by_key_whatever_room_there_is() {
    let records: Vec<Record> = (0..300).rev().flat_map(|key| [1, 9].map(|time| record(time, key, key))).collect();
    let mut expected = vec![];
    for (start, times) in [(-8, 1), (-4, 1), (0, 2), (4, 1), (8, 1)] {
        expected.extend((0..300).map(|key| sum(key, start, times * key)));
    }
    for room in [1, 7, 299, 300, 301, 100_000] {
        let Sums { mut rig, input, results, .. } = sums(Rig::new());
        rig.set_room(room);
        rig.push(&input, records.clone());
        rig.watermark(&input, EventTime(18));
        let seen = results.take();
        assert_eq!(seen.last(), Some(&Seen::Watermark(EventTime(18))), "room {room}");
        let fired: Vec<Seen<Sum>> = expected.iter().copied().map(Seen::Record).collect();
        assert_eq!(seen[..seen.len() - 1], fired, "room {room}");
    }
}

#[test]
fn windows_that_fired_on_one_worker_never_fire_again_on_another() {
    // Two workers whose watermarks stand at 10 and 14: the second has fired the window from 4 too.
    let (mut snapshots, mut fired, mut keys_of_second) = (Vec::<RigSnapshot>::new(), vec![], vec![]);
    for (worker, watermark) in [(0, 10), (1, 14)] {
        let Sums { mut rig, input, results, .. } = sums(Rig::on_worker(worker, 2));
        rig.push(&input, (0..100).map(|key| record(9, key, 1)).collect());
        rig.watermark(&input, EventTime(watermark));
        snapshots.push(rig.checkpoint());
        let results = results.take_records();
        keys_of_second.extend(results.iter().filter(|sum| sum.1.1 == 4).map(|sum| sum.1.0));
        fired.extend(results);
    }
    assert!((1..100).contains(&keys_of_second.len()));
    for workers in [1, 2, 3] {
        let mut all = fired.clone();
        for worker in 0..workers {
            let Sums { mut rig, input, results, late } = sums(Rig::on_worker(worker, workers));
            rig.restore(&snapshots);
            rig.push(&input, (0..100).map(|key| record(9, key, 10)).collect());
            rig.watermark(&input, EventTime(3));
            rig.finish();
            all.extend(results.take_records());
            assert_eq!(late.take_records(), []);
        }
        all.sort_by_key(|(_, (key, start, _))| (*key, *start));
        let of_4 = |key| if keys_of_second.contains(&key) { 1 } else { 11 };
        let expected: Vec<Sum> =
            (0..100).flat_map(|key| [sum(key, 0, 1), sum(key, 4, of_4(key)), sum(key, 8, 11)]).collect();
        assert_eq!(all, expected, "{workers} workers: each window once");
    }
}

#[test]
fn windows_of_another_shape_are_refused() {
    let Sums { mut rig, input, .. } = sums(Rig::new());
    rig.push(&input, vec![record(1, 1, 1)]);
    let snapshots = [rig.checkpoint()];
    let restored = |windows| {
        let mut rig = sums_of(windows, Rig::new()).rig;
        rig.restore(&snapshots);
        rig.try_start()
    };
    assert!(restored(WINDOWS).is_ok());
    let error = restored(WINDOWS.every_millis(2)).expect_err("other panes").to_string();
    assert!(error.contains("10 ms long every 4 ms") && error.contains("now 10 ms long every 2 ms"), "{error}");
}

/// Records, watermarks and restores in a random order, compared with a model that knows nothing of panes.
#[test]
fn any_order_of_records_watermarks_and_restores_gives_what_the_model_gives() {
    let shapes = [(10, 4), (10, 5), (10, 10), (12, 1), (7, 3), (1, 1)];
    for seed in 0..300 {
        let mut random = Random(seed);
        let (size, slide) = shapes[seed as usize % shapes.len()];
        let windows = Sliding::millis(size).every_millis(slide).offset_millis(seed as i64 % 3);
        let mut model = Model { windows, fired: i64::MIN, open: BTreeMap::new(), results: vec![], late: vec![] };
        let mut running = sums_of(windows, Rig::new());
        let (mut found, mut found_late) = (vec![], vec![]);
        let mut watermark = 0;
        for _ in 0..60 {
            match random.below(10) {
                0..6 => {
                    let records: Vec<Record> = (0..random.below(8))
                        .map(|n| record(watermark + random.below(60) as i64 - 25, random.below(4), n))
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
                    running = sums_of(windows, Rig::new());
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
    windows: Sliding,
    fired: i64,
    open: BTreeMap<(i64, u64), u64>,
    results: Vec<Sum>,
    late: Vec<Record>,
}

impl Model {
    fn record(&mut self, record: Record) {
        let (EventTime(time), (key, n)) = record;
        let (size, slide, offset) = (self.windows.size_ms(), self.windows.slide_ms(), self.windows.offset_ms());
        let last = (time - offset).div_euclid(slide) * slide + offset;
        let starts = (0..).map(|back| last - back * slide).take_while(|start| start + size > time);
        let open: Vec<i64> = starts.filter(|start| start + size > self.fired).collect();
        if open.is_empty() {
            self.late.push(record);
        }
        open.into_iter().for_each(|start| *self.open.entry((start, key)).or_default() += n);
    }

    fn watermark(&mut self, to: i64) {
        self.fired = self.fired.max(to);
        let size = self.windows.size_ms();
        while let Some(entry) = self.open.first_entry().filter(|e| e.key().0 + size <= to) {
            let ((start, key), n) = entry.remove_entry();
            self.results.push((EventTime(start + size - 1), (key, start, n)));
        }
    }
}
