//! Windows on the rig: firing, late records, restores, rescales; and a plain model to compare with.

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

/// Windows of ten milliseconds that add up numbers per key.
fn sums(mut rig: Rig) -> Sums {
    let (input, stream) = rig.input::<(u64, u64), Timed>("numbers");
    let (results, late) = stream
        .key_by(|(key, _)| *key)
        .window(Tumbling::millis(10))
        .aggregate("sums", || 0, |sum, (_, n)| *sum += n, |key, window, sum| (*key, window.start.0, sum))
        .with_late();
    let (results, late) = (rig.collect(results), rig.collect(late));
    Sums { rig, input, results, late }
}

fn record(time: i64, key: u64, n: u64) -> Record {
    (EventTime(time), (key, n))
}

fn sum(key: u64, start: i64, n: u64) -> Sum {
    (EventTime(start + 9), (key, start, n))
}

#[test]
fn a_window_fires_once_when_the_watermark_reaches_its_end_and_before_the_watermark_goes_on() {
    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.push(&input, vec![record(5, 1, 100), record(12, 1, 7), record(9, 1, 1), record(0, 2, 3)]);
    rig.watermark(&input, EventTime(9));
    assert_eq!(results.take(), [Seen::Watermark(EventTime(9))]);
    rig.push(&input, vec![record(9, 1, 20)]);
    rig.watermark(&input, EventTime(10));
    let first = [sum(1, 0, 121), sum(2, 0, 3)].map(Seen::Record);
    assert_eq!(results.take(), [&first[..], &[Seen::Watermark(EventTime(10))]].concat());
    rig.finish();
    assert_eq!(results.take(), [Seen::Record(sum(1, 10, 7)), Seen::Watermark(EventTime::MAX), Seen::End]);
    assert_eq!(late.take_records(), []);
    let counters = rig.counters("sums");
    assert_eq!((counters.absorbed, counters.late, counters.emitted), (5, 0, vec![3, 0]));
}

#[test]
fn a_record_of_a_window_that_has_fired_is_late_and_one_of_the_next_window_is_not() {
    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.watermark(&input, EventTime(10));
    rig.push(&input, vec![record(9, 1, 1), record(10, 1, 2), record(-5, 2, 3)]);
    rig.finish();
    assert_eq!(late.take_records(), [record(9, 1, 1), record(-5, 2, 3)]);
    assert_eq!(results.take_records(), [sum(1, 10, 2)]);
    let counters = rig.counters("sums");
    assert_eq!((counters.absorbed, counters.late, counters.emitted), (1, 2, vec![1, 2]));
}

#[test]
fn without_a_late_stream_late_records_are_counted_and_dropped() {
    let mut rig = Rig::new();
    let (input, stream) = rig.input::<u64, Timed>("numbers");
    let windows = stream.key_value(|n| (n, ())).window(Tumbling::millis(10));
    let out = rig.collect(windows.aggregate("counts", || 0u64, |n, ()| *n += 1, |key, _, n| (*key, n)).drop_late());
    rig.watermark(&input, EventTime(10));
    rig.push(&input, vec![(EventTime(3), 1), (EventTime(13), 1)]);
    rig.finish();
    assert_eq!(out.take_records(), [(EventTime(19), (1, 1))]);
    assert_eq!(rig.counters("counts").late, 1);
}

#[test]
fn results_come_by_end_and_then_by_key_whatever_room_there_is() {
    let mut records = vec![];
    for key in (0..300).rev() {
        for start in [20, 0, 10] {
            records.push(record(start + 3, key, key));
        }
    }
    let expected: Vec<Sum> = [0, 10].iter().flat_map(|start| (0..300).map(|key| sum(key, *start, key))).collect();
    for room in [1, 7, 299, 300, 301, 100_000] {
        let Sums { mut rig, input, results, .. } = sums(Rig::new());
        rig.set_room(room);
        rig.push(&input, records.clone());
        rig.watermark(&input, EventTime(29));
        let seen = results.take();
        assert_eq!(seen.last(), Some(&Seen::Watermark(EventTime(29))), "room {room}");
        let fired: Vec<Seen<Sum>> = expected.iter().copied().map(Seen::Record).collect();
        assert_eq!(seen[..seen.len() - 1], fired, "room {room}");
    }
}

#[test]
fn a_restored_window_goes_on_and_fires_what_it_would_have_fired() {
    let Sums { mut rig, input, results, .. } = sums(Rig::new());
    rig.push(&input, vec![record(3, 1, 1), record(13, 1, 10), record(13, 2, 20)]);
    rig.watermark(&input, EventTime(10));
    assert_eq!(results.take_records(), [sum(1, 0, 1)]);
    let snapshot = rig.checkpoint();

    let Sums { mut rig, input, results, late } = sums(Rig::new());
    rig.restore(&[snapshot]);
    // The channels promise nothing yet, and still the first window has fired.
    rig.push(&input, vec![record(4, 1, 99), record(14, 2, 5)]);
    rig.watermark(&input, EventTime(3));
    rig.push(&input, vec![record(5, 1, 98)]);
    rig.finish();
    assert_eq!(late.take_records(), [record(4, 1, 99), record(5, 1, 98)]);
    assert_eq!(results.take_records(), [sum(1, 10, 10), sum(2, 10, 25)]);
}

#[test]
fn windows_that_fired_on_one_worker_never_fire_again_on_another() {
    // Two workers whose watermarks stand at 10 and 30.
    let (mut snapshots, mut fired): (Vec<RigSnapshot>, Vec<Sum>) = (vec![], vec![]);
    let numbers = || (0..100).flat_map(|key| [5, 15, 25, 35].map(|time| record(time, key, 1)));
    for (worker, watermark) in [(0, 10), (1, 30)] {
        let Sums { mut rig, input, results, .. } = sums(Rig::on_worker(worker, 2));
        rig.push(&input, numbers().collect());
        rig.watermark(&input, EventTime(watermark));
        snapshots.push(rig.checkpoint());
        fired.extend(results.take_records());
    }
    let keys_of_second: Vec<u64> = fired.iter().filter(|sum| sum.1.1 == 20).map(|sum| sum.1.0).collect();
    assert!((1..100).contains(&keys_of_second.len()));
    for workers in [1, 3] {
        let (mut all, mut all_late) = (fired.clone(), vec![]);
        for worker in 0..workers {
            let Sums { mut rig, input, results, late } = sums(Rig::on_worker(worker, workers));
            rig.restore(&snapshots);
            rig.push(&input, (0..100).map(|key| record(25, key, 1_000)).collect());
            rig.watermark(&input, EventTime(20));
            rig.push(&input, (0..100).map(|key| record(25, key, 1_000)).collect());
            rig.finish();
            all.extend(results.take_records());
            all_late.extend(late.take_records());
        }
        all.sort_by_key(|(_, (key, start, _))| (*key, *start));
        let window = |key: u64, start| {
            let more = if start == 20 && !keys_of_second.contains(&key) { 2_000 } else { 0 };
            sum(key, start, 1 + more)
        };
        let expected: Vec<Sum> = (0..100).flat_map(|key| [0, 10, 20, 30].map(|start| window(key, start))).collect();
        assert_eq!(all, expected, "{workers} workers: each window once");
        assert_eq!(all_late.len(), 2 * keys_of_second.len(), "{workers} workers: late stays late");
        assert!(all_late.iter().all(|late| keys_of_second.contains(&late.1.0)));
    }
}

#[test]
fn windows_of_another_shape_are_refused() {
    let windows = |tumbling: Tumbling, snapshots: &[RigSnapshot]| {
        let mut rig = Rig::new();
        let (input, stream) = rig.input::<u64, Timed>("numbers");
        let windows = stream.key_value(|n| (n, ())).window(tumbling);
        windows.aggregate("counts", || 0u64, |n, ()| *n += 1, |_, _, n| n).drop_late().discard();
        if !snapshots.is_empty() {
            rig.restore(snapshots);
        }
        rig.try_start().map(|()| (rig, input))
    };
    let (mut rig, input) = windows(Tumbling::millis(10), &[]).expect("nothing to restore");
    rig.push(&input, vec![(EventTime(1), 1)]);
    let snapshots = [rig.checkpoint()];
    assert!(windows(Tumbling::millis(10), &snapshots).is_ok());
    let error = windows(Tumbling::millis(20), &snapshots).expect_err("twice as long").to_string();
    assert!(error.contains("10 ms long") && error.contains("now 20 ms long"), "{error}");
    assert!(windows(Tumbling::millis(10).offset_millis(1), &snapshots).is_err());
}

/// Records, watermarks and restores in a random order, compared with a model that knows nothing of tables and cursors.
#[test]
fn any_order_of_records_watermarks_and_restores_gives_what_the_model_gives() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut model = Model { fired: i64::MIN, open: BTreeMap::new(), results: vec![], late: vec![] };
        let mut running = sums(Rig::new());
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
    open: BTreeMap<(i64, u64), u64>,
    results: Vec<Sum>,
    late: Vec<Record>,
}

impl Model {
    fn record(&mut self, record: Record) {
        let (EventTime(time), (key, n)) = record;
        let start = time.div_euclid(10) * 10;
        if start + 10 <= self.fired {
            self.late.push(record);
        } else {
            *self.open.entry((start, key)).or_default() += n;
        }
    }

    fn watermark(&mut self, to: i64) {
        self.fired = self.fired.max(to);
        while let Some(entry) = self.open.first_entry().filter(|e| e.key().0 + 10 <= to) {
            let ((start, key), n) = entry.remove_entry();
            self.results.push(sum(key, start, n));
        }
    }
}
