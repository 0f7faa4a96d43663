//! `dedupe` on the rig: what passes, what is forgotten, restores, rescales; and a model that never forgets.

use std::collections::HashMap;
use std::time::Duration;

use cutwater_engine::operator::testing::{Collected, Input, Rig};
use cutwater_engine::state::Since;

use super::*;
use crate::key_by::KeyBy;
use crate::testing::Random;

/// `(key, number)` at a time.
type Record = (EventTime, (u64, u64));

struct Deduping {
    rig: Rig,
    input: Input<Record>,
    firsts: Collected<Record>,
    late: Collected<Record>,
}

/// Keys are remembered for ten milliseconds.
fn deduping(mut rig: Rig, since: Since) -> Deduping {
    let (input, stream) = rig.input::<(u64, u64), Timed>("numbers");
    let ttl = Ttl::new(Duration::from_millis(10)).since(since);
    let (firsts, late) = stream.key_by(|(key, _)| *key).dedupe("once", ttl).with_late();
    let (firsts, late) = (rig.collect(firsts), rig.collect(late));
    Deduping { rig, input, firsts, late }
}

fn record(time: i64, key: u64) -> Record {
    (EventTime(time), (key, time as u64))
}

#[test]
fn the_first_record_of_a_key_passes_until_the_key_is_forgotten() {
    let Deduping { mut rig, input, firsts, late } = deduping(Rig::new(), Since::Creation);
    rig.push(&input, vec![record(0, 1), record(9, 1), record(3, 2), record(10, 1), record(15, 1), record(12, 2)]);
    assert_eq!(firsts.take_records(), [record(0, 1), record(3, 2), record(10, 1)]);
    rig.watermark(&input, EventTime(13));
    rig.push(&input, vec![record(19, 1), record(13, 2), record(11, 1), record(11, 3)]);
    assert_eq!(firsts.take_records(), [record(13, 2)]);
    assert_eq!(late.take_records(), [record(11, 3)], "a late one that is remembered is a repetition");
    let counters = rig.counters("once");
    assert_eq!((counters.passed, counters.filtered, counters.late, counters.emitted), (4, 5, 1, vec![4, 1]));
}

#[test]
fn a_time_to_live_since_the_latest_record_goes_on_while_there_are_repetitions() {
    let Deduping { mut rig, input, firsts, .. } = deduping(Rig::new(), Since::LastAccess);
    for time in [0, 8, 16, 24, 34] {
        rig.watermark(&input, EventTime(time));
        rig.push(&input, vec![record(time, 1)]);
    }
    assert_eq!(firsts.take_records(), [record(0, 1), record(34, 1)]);
}

#[test]
fn memory_is_bounded_by_the_keys_of_one_time_to_live() {
    let mut deduping = deduping(Rig::new(), Since::Creation);
    deduping.rig.limits().state_bytes = 800_000;
    for n in 0..200_000u64 / 500 {
        let records = (0..500).map(|i| record(n as i64, n * 500 + i)).collect();
        deduping.rig.push(&deduping.input, records);
        deduping.rig.watermark(&deduping.input, EventTime(n as i64));
    }
    assert_eq!(deduping.firsts.take_records().len(), 200_000);
}

#[test]
fn keys_stay_remembered_and_late_stays_late_on_other_workers() {
    // Two workers whose watermarks stand at 5 and 12.
    let (mut saved, mut passed) = (vec![], vec![]);
    for (worker, watermark) in [(0, 5), (1, 12)] {
        let mut one = deduping(Rig::on_worker(worker, 2), Since::Creation);
        one.rig.push(&one.input, (0..100).map(|key| record(key as i64 % 4, key)).collect());
        one.rig.watermark(&one.input, EventTime(watermark));
        let firsts = one.firsts.take_records();
        assert!(firsts.len() > 20);
        passed.push(firsts.iter().map(|r| r.1.0).collect::<Vec<_>>());
        saved.push(one.rig.checkpoint());
    }
    for workers in [1, 2, 3] {
        let (mut firsts, mut late) = (vec![], vec![]);
        for worker in 0..workers {
            let mut one = deduping(Rig::on_worker(worker, workers), Since::Creation);
            one.rig.restore(&saved);
            // At 11 everybody is too late where 12 had come; where 5 had come, those from 0 and 1 are forgotten by then.
            one.rig.push(&one.input, (0..100).map(|key| record(11, key)).collect());
            firsts.extend(one.firsts.take_records());
            late.extend(one.late.take_records());
        }
        let mut expected: Vec<Record> = passed[0].iter().filter(|key| *key % 4 < 2).map(|k| record(11, *k)).collect();
        let mut expected_late: Vec<Record> =
            passed[1].iter().filter(|key| *key % 4 < 3).map(|k| record(11, *k)).collect();
        [&mut firsts, &mut late, &mut expected, &mut expected_late].into_iter().for_each(|all| all.sort_unstable());
        assert_eq!(firsts, expected, "{workers} workers");
        assert_eq!(late, expected_late, "{workers} workers");
    }
}

/// Records, watermarks and restores in a random order, compared with a model that keeps every key for ever.
#[test]
fn any_order_of_records_watermarks_and_restores_gives_what_the_model_gives() {
    for seed in 0..200 {
        let since = [Since::Creation, Since::LastAccess][seed as usize % 2];
        let mut random = Random(seed);
        let (mut until, mut now) = (HashMap::<u64, i64>::new(), 0);
        let (mut expected, mut expected_late, mut found, mut found_late) = (vec![], vec![], vec![], vec![]);
        let mut running = deduping(Rig::new(), since);
        running.rig.watermark(&running.input, EventTime(now));
        for _ in 0..80 {
            match random.below(10) {
                0..6 => {
                    let records: Vec<Record> = (0..random.below(6))
                        .map(|_| record(now + random.below(25) as i64 - 8, random.below(6)))
                        .collect();
                    for record in &records {
                        let (time, key) = (record.0.0, record.1.0);
                        let known = until.get(&key).is_some_and(|until| time.max(now) < *until);
                        if known && since == Since::LastAccess {
                            let entry = until.entry(key).or_default();
                            *entry = (*entry).max(time.max(now) + 10);
                        } else if !known && time < now {
                            expected_late.push(*record);
                        } else if !known {
                            until.insert(key, time + 10);
                            expected.push(*record);
                        }
                    }
                    running.rig.push(&running.input, records);
                }
                6..9 => {
                    now += random.below(8) as i64;
                    running.rig.watermark(&running.input, EventTime(now));
                }
                _ => {
                    let snapshot = running.rig.checkpoint();
                    found.extend(running.firsts.take_records());
                    found_late.extend(running.late.take_records());
                    running = deduping(Rig::new(), since);
                    running.rig.restore(&[snapshot]);
                }
            }
        }
        found.extend(running.firsts.take_records());
        found_late.extend(running.late.take_records());
        assert_eq!(found, expected, "seed {seed}");
        assert_eq!(found_late, expected_late, "seed {seed}");
    }
}
