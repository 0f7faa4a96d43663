//! Process functions on the rig: timers of both kinds, side outputs, states, restores, rescales; and a model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cutwater_engine::graph::{Timed, Untimed};
use cutwater_engine::operator::testing::{Collected, Input, Rig, RigSnapshot, Seen};
use cutwater_engine::time::{EventTime, WallTime};

use super::*;
use crate::key_by::KeyBy;
use crate::testing::Random;

/// What a record asks the function for.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
enum Ask {
    /// Say this.
    Say(u64),
    Set(i64),
    Delete(i64),
    SetWall(i64),
    DeleteWall(i64),
}

/// Does what records ask for and says everything with a number per key.
struct Obedient {
    calls: ValueOf<u64, u64>,
}

/// Key, how often it was called before, what was said or fired.
type Said = (u64, u64, String);

impl KeyedProcess<u64, Ask, Timed> for Obedient {
    type Out = Said;

    fn on_record(&mut self, ask: Ask, cx: &mut Scope<'_, u64, Said, Timed>) {
        match ask {
            Ask::Say(n) => self.say(cx, format!("{n}")),
            Ask::Set(t) => cx.set_timer(EventTime(t)),
            Ask::Delete(t) => cx.delete_timer(EventTime(t)),
            Ask::SetWall(t) => cx.set_wall_timer(WallTime(t)),
            Ask::DeleteWall(t) => cx.delete_wall_timer(WallTime(t)),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Scope<'_, u64, Said, Timed>) {
        let what = match timer {
            Timer::Event(t) => format!("event {}", t.0),
            Timer::Wall(t) => format!("wall {}", t.0),
        };
        self.say(cx, what);
    }
}

impl Obedient {
    fn say(&self, cx: &mut Scope<'_, u64, Said, Timed>, what: String) {
        let before = self.calls.update(cx, |calls| {
            *calls += 1;
            *calls - 1
        });
        cx.emit((*cx.key(), before, what));
    }
}

type Record = (EventTime, (u64, Ask));

fn obedient(mut rig: Rig) -> (Rig, Input<Record>, Collected<(EventTime, Said)>) {
    let (input, stream) = rig.input::<(u64, Ask), Timed>("asks");
    let out = stream.key_value(|ask| ask).process("obedient", |has| Obedient { calls: has.value("calls") }).main();
    let out = rig.collect(out);
    (rig, input, out)
}

fn ask(time: i64, key: u64, ask: Ask) -> Record {
    (EventTime(time), (key, ask))
}

fn said(time: i64, key: u64, before: u64, what: &str) -> (EventTime, Said) {
    (EventTime(time), (key, before, what.to_string()))
}

#[test]
fn event_timers_fire_by_time_and_then_by_key_before_the_watermark_whatever_room_there_is() {
    let mut expected: Vec<_> = (0..200).map(|key| Seen::Record(said(10, key, 0, "event 10"))).collect();
    expected.extend((0..200).map(|key| Seen::Record(said(20, key, 1, "event 20"))));
    expected.push(Seen::Watermark(EventTime(20)));
    for room in [1, 7, 200, 100_000] {
        let (mut rig, input, out) = obedient(Rig::new());
        rig.set_room(room);
        let asks = [Ask::Set(20), Ask::Set(10), Ask::Set(21), Ask::Set(10), Ask::Set(15), Ask::Delete(15)];
        rig.push(&input, (0..200).rev().flat_map(|key| asks.map(|a| ask(5, key, a))).collect());
        assert_eq!(out.take(), []);
        rig.watermark(&input, EventTime(20));
        assert_eq!(out.take(), expected, "room {room}");
        let counters = rig.counters("obedient");
        assert_eq!((counters.absorbed, counters.emitted), (1_200, vec![400]));
    }
}

#[test]
fn a_timer_for_a_time_that_has_passed_fires_before_the_next_record() {
    let (mut rig, input, out) = obedient(Rig::new());
    rig.watermark(&input, EventTime(10));
    rig.push(&input, vec![ask(12, 1, Ask::Set(3)), ask(13, 1, Ask::Say(7)), ask(14, 1, Ask::Set(10))]);
    assert_eq!(out.take_records(), [said(3, 1, 0, "event 3"), said(13, 1, 1, "7"), said(10, 1, 2, "event 10")]);
}

#[test]
fn a_timer_of_processing_time_fires_when_the_clock_has_come_there_and_not_when_it_was_deleted() {
    let (mut rig, input, out) = obedient(Rig::new());
    rig.set_wall(WallTime(1_000));
    rig.watermark(&input, EventTime(4));
    let asks =
        [Ask::SetWall(1_500), Ask::SetWall(1_400), Ask::SetWall(1_450), Ask::DeleteWall(1_450), Ask::SetWall(9_000)];
    rig.push(&input, asks.map(|a| ask(5, 1, a)).to_vec());
    rig.pass(Duration::from_millis(399));
    assert_eq!(out.take_records(), []);
    rig.pass(Duration::from_millis(1));
    assert_eq!(out.take_records(), [said(4, 1, 0, "wall 1400")], "it carries the watermark");
    rig.pass(Duration::from_millis(200));
    assert_eq!(out.take_records(), [said(4, 1, 1, "wall 1500")]);
    // Somebody sets the clock: it is looked at every second.
    rig.set_wall(WallTime(100_000));
    rig.pass(Duration::from_millis(1_000));
    assert_eq!(out.take_records(), [said(4, 1, 2, "wall 9000")]);
}

#[test]
fn what_came_due_while_the_job_stood_still_fires_in_due_order_before_the_first_record() {
    let (mut rig, input, _) = obedient(Rig::new());
    rig.push(&input, (0..50).map(|key| ask(0, key, Ask::SetWall(10_000 - key as i64))).collect());
    rig.push(&input, vec![ask(0, 7, Ask::SetWall(20_000))]);
    let saved = rig.checkpoint();
    for room in [1, 3, 1_000] {
        let (mut rig, input, out) = obedient(Rig::new());
        rig.set_room(room);
        rig.set_wall(WallTime(15_000));
        rig.restore(std::slice::from_ref(&saved));
        rig.push(&input, vec![ask(1, 7, Ask::Say(1))]);
        let mut expected: Vec<_> =
            (0..50).rev().map(|key| said(i64::MIN, key, 0, &format!("wall {}", 10_000 - key as i64))).collect();
        expected.push(said(1, 7, 1, "1"));
        assert_eq!(out.take_records(), expected, "room {room}");
        let again = rig.checkpoint();
        let (mut rig, input, out) = obedient(Rig::new());
        rig.restore(&[again]);
        rig.set_wall(WallTime(30_000));
        rig.push(&input, vec![]);
        assert_eq!(out.take_records(), [said(i64::MIN, 7, 2, "wall 20000")], "those that fired don't again");
    }
}

#[test]
fn when_the_input_has_ended_what_still_waits_fires_in_order_and_nothing_is_lost() {
    let (mut rig, input, out) = obedient(Rig::new());
    rig.set_room(1);
    rig.push(&input, vec![ask(0, 2, Ask::SetWall(1 << 40)), ask(0, 1, Ask::SetWall(1 << 39)), ask(0, 3, Ask::Set(77))]);
    rig.finish();
    let max = i64::MAX;
    let expected =
        [said(77, 3, 0, "event 77"), said(max, 1, 0, "wall 549755813888"), said(max, 2, 0, "wall 1099511627776")];
    let expected: Vec<_> = expected.into_iter().map(Seen::Record).collect();
    assert_eq!(out.take(), [&expected[..], &[Seen::Watermark(EventTime::MAX), Seen::End]].concat());
}

#[test]
fn timers_and_values_follow_their_keys_and_fire_once_on_any_number_of_workers() {
    // Two workers whose watermarks stand at 10 and 30.
    let (mut saved, mut all, mut ahead) = (Vec::<RigSnapshot>::new(), vec![], vec![]);
    for (worker, watermark) in [(0, 10), (1, 30)] {
        let (mut rig, input, out) = obedient(Rig::on_worker(worker, 2));
        rig.push(&input, (0..100).flat_map(|key| [5, 25, 45].map(|t| ask(0, key, Ask::Set(t)))).collect());
        rig.push(&input, (0..100).map(|key| ask(0, key, Ask::SetWall(500))).collect());
        rig.watermark(&input, EventTime(watermark));
        saved.push(rig.checkpoint());
        let fired = out.take_records();
        ahead.extend(fired.iter().filter(|said| said.1.2 == "event 25").map(|said| said.1.0));
        all.extend(fired);
    }
    assert!((1..100).contains(&ahead.len()));
    for workers in [1, 2, 3] {
        let mut all = all.clone();
        for worker in 0..workers {
            let (mut rig, input, out) = obedient(Rig::on_worker(worker, workers));
            rig.restore(&saved);
            // The channels promise nothing yet; where 30 had come, 28 has passed.
            rig.push(
                &input,
                (0..100).flat_map(|key| [ask(28, key, Ask::Set(28)), ask(29, key, Ask::Say(1))]).collect(),
            );
            rig.pass(Duration::from_millis(500));
            rig.finish();
            all.extend(out.take_records());
        }
        let mut of_key: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
        for (_, (key, before, what)) in all {
            of_key.entry(key).or_default().push((before, what));
        }
        for (key, found) in of_key {
            let mut order = vec!["event 5"];
            match ahead.contains(&key) {
                true => order.extend(["event 25", "event 28", "1", "wall 500", "event 45"]),
                false => order.extend(["1", "wall 500", "event 25", "event 28", "event 45"]),
            }
            let expected: Vec<_> = (0..).zip(order.into_iter().map(String::from)).collect();
            assert_eq!(found, expected, "key {key}, {workers} workers");
        }
    }
}

const ODD: Side<u64> = Side::new("odd");
const LENGTHS: Side<String> = Side::new("lengths");

/// Uses every kind of state, and two side outputs, on a stream with times.
struct Kinds {
    all: ListOf<u64, u64>,
    by_rest: MapOf<u64, u64, u64>,
    recent: ExpiringOf<u64, u64>,
    odd: SideOut<u64, Timed>,
    lengths: SideOut<String, Timed>,
}

impl KeyedProcess<u64, u64, Timed> for Kinds {
    type Out = (u64, u64, u64);

    fn on_record(&mut self, n: u64, cx: &mut Scope<'_, u64, (u64, u64, u64), Timed>) {
        self.all.push(cx, n);
        self.by_rest.update(cx, &(n % 3), |count| *count += 1);
        self.recent.update(cx, |count| *count += 1);
        if n % 2 == 1 {
            self.odd.emit(cx, n);
        }
        if self.all.len(cx) == 3 {
            let numbers = self.all.take(cx);
            self.lengths.emit(cx, format!("{numbers:?}"));
        }
        let sum = self.all.fold(cx, 0, |sum, n| sum + n);
        let row = (sum, self.by_rest.get(cx, &(n % 3)).unwrap_or_default(), self.recent.get(cx).unwrap_or_default());
        cx.emit(row);
    }
}

#[test]
fn every_kind_of_state_and_both_side_outputs_go_on_after_a_restore() {
    let running = || {
        let mut rig = Rig::new();
        let (input, stream) = rig.input::<u64, Timed>("numbers");
        let processed = stream.key_value(|n| (n / 100, n % 100)).process("kinds", |has| Kinds {
            all: has.list("all"),
            by_rest: has.map("by-rest"),
            recent: has.expiring_after("recent", Duration::from_millis(10)),
            odd: has.side(ODD),
            lengths: has.side(LENGTHS),
        });
        let (main, odd) = (rig.collect(processed.main()), rig.collect(processed.side(ODD)));
        let lengths = rig.collect(processed.side(LENGTHS));
        (rig, input, main, odd, lengths)
    };
    let (mut rig, input, main, odd, lengths) = running();
    rig.push(&input, vec![(EventTime(0), 3), (EventTime(9), 6), (EventTime(9), 104)]);
    let saved = rig.checkpoint();
    assert_eq!(main.take_records().iter().map(|r| r.1).collect::<Vec<_>>(), [(3, 1, 1), (9, 2, 2), (4, 1, 1)]);
    assert_eq!((odd.take_records(), lengths.take_records()), (vec![(EventTime(0), 3)], vec![]));

    let (mut rig, input, main, odd, lengths) = running();
    rig.restore(&[saved]);
    rig.push(&input, vec![(EventTime(12), 9), (EventTime(23), 7)]);
    assert_eq!(main.take_records().iter().map(|r| r.1).collect::<Vec<_>>(), [(0, 3, 3), (7, 1, 1)]);
    assert_eq!(odd.take_records(), [(EventTime(12), 9), (EventTime(23), 7)]);
    assert_eq!(lengths.take_records(), [(EventTime(12), "[3, 6, 9]".to_string())]);
    let counters = rig.counters("kinds");
    assert_eq!((counters.absorbed, counters.emitted), (5, vec![5, 3, 1]));
}

#[test]
#[should_panic(expected = "Side<u64>(\"lengths\") wasn't declared")]
fn a_side_output_of_another_type_is_refused() {
    let mut rig = Rig::new();
    let (_, stream) = rig.input::<u64, Timed>("numbers");
    let processed = stream.key_by(|n| *n).process("kinds", |has| Kinds {
        all: has.list("all"),
        by_rest: has.map("by-rest"),
        recent: has.expiring_after("recent", Duration::from_millis(10)),
        odd: has.side(ODD),
        lengths: has.side(LENGTHS),
    });
    let _ = rig.collect(processed.side(Side::<u64>::new("lengths")));
}

/// Says each key's records in packs, a second after the first: on a stream without times.
struct Packs {
    pack: ListOf<u64, u64>,
}

impl KeyedProcess<u64, u64, Untimed> for Packs {
    type Out = Vec<u64>;

    fn on_record(&mut self, n: u64, cx: &mut Scope<'_, u64, Vec<u64>, Untimed>) {
        if self.pack.is_empty(cx) {
            cx.set_wall_timer(WallTime(cx.wall().0 + 1_000));
        }
        self.pack.push(cx, n);
    }

    fn on_timer(&mut self, _timer: Timer, cx: &mut Scope<'_, u64, Vec<u64>, Untimed>) {
        let pack = self.pack.take(cx);
        cx.emit(pack);
    }
}

#[test]
fn without_event_times_there_is_still_processing_time() {
    let mut rig = Rig::new();
    let (input, stream) = rig.input::<u64, Untimed>("numbers");
    let out = rig.collect(stream.key_by(|n| n % 2).process("packs", |has| Packs { pack: has.list("pack") }).main());
    rig.push(&input, vec![1, 2, 3]);
    rig.pass(Duration::from_millis(999));
    rig.push(&input, vec![5]);
    assert_eq!(out.take_records(), [[0; 0]; 0]);
    rig.pass(Duration::from_millis(1));
    assert_eq!(out.take_records(), [vec![2], vec![1, 3, 5]]);
    rig.push(&input, vec![7, 4]);
    rig.finish();
    assert_eq!(out.take_records(), [vec![4], vec![7]]);
}

#[test]
fn too_much_state_is_a_clear_error() {
    let (mut rig, input, _) = obedient(Rig::new());
    rig.limits().state_bytes = 20_000;
    let asks = (0..10_000).map(|key| ask(0, key, Ask::Set(1))).collect();
    let error = rig.try_push(&input, asks).expect_err("10,000 timers need more");
    assert!(error.to_string().contains("\"event-timers\" has 10000 entries"), "{error}");
}

/// Everything that can be asked for, in a random order with watermarks, time and restores, against sets of timers.
#[test]
fn any_order_of_records_timers_watermarks_and_restores_gives_what_the_model_gives() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut model = Model { watermark: i64::MIN, ..Model::default() };
        let (mut rig, mut input, mut out) = obedient(Rig::new());
        let (mut found, mut watermark, mut wall) = (vec![], 0, 0);
        for _ in 0..80 {
            match random.below(12) {
                0..7 => {
                    let records: Vec<Record> = (0..random.below(8))
                        .map(|n| {
                            let (event, later) =
                                (watermark + random.below(30) as i64 - 5, wall + random.below(40) as i64);
                            let what = match random.below(6) {
                                0 => Ask::Say(n),
                                1 | 2 => Ask::Set(event),
                                3 => Ask::Delete(event),
                                4 => Ask::SetWall(later + 1),
                                _ => Ask::DeleteWall(later),
                            };
                            ask(watermark + random.below(10) as i64, random.below(3), what)
                        })
                        .collect();
                    records.iter().for_each(|record| model.record(*record));
                    rig.push(&input, records);
                }
                7..9 => {
                    watermark += random.below(15) as i64;
                    model.watermark(watermark);
                    rig.watermark(&input, EventTime(watermark));
                }
                9..11 => {
                    let passed = random.below(30);
                    wall += passed as i64;
                    model.fire_wall(wall);
                    rig.pass(Duration::from_millis(passed));
                }
                _ => {
                    let snapshot = rig.checkpoint();
                    found.extend(out.take_records());
                    (rig, input, out) = obedient(Rig::new());
                    rig.set_room(1 + random.below(4) as usize);
                    rig.set_wall(WallTime(wall));
                    rig.restore(&[snapshot]);
                    // The new channels promise it again.
                    rig.watermark(&input, EventTime(watermark));
                    model.watermark(watermark);
                }
            }
        }
        rig.finish();
        model.watermark(i64::MAX);
        model.fire_wall(i64::MAX);
        found.extend(out.take_records());
        assert_eq!(found, model.said, "seed {seed}");
    }
}

#[derive(Default)]
struct Model {
    watermark: i64,
    event: BTreeSet<(i64, u64)>,
    wall: BTreeSet<(i64, u64)>,
    calls: BTreeMap<u64, u64>,
    said: Vec<(EventTime, Said)>,
}

impl Model {
    fn say(&mut self, time: i64, key: u64, what: String) {
        let calls = self.calls.entry(key).or_default();
        self.said.push((EventTime(time), (key, *calls, what)));
        *calls += 1;
    }

    fn record(&mut self, (time, (key, ask)): Record) {
        match ask {
            Ask::Say(n) => self.say(time.0, key, n.to_string()),
            Ask::Set(t) => drop(self.event.insert((t, key))),
            Ask::Delete(t) => drop(self.event.remove(&(t, key))),
            Ask::SetWall(t) => drop(self.wall.insert((t, key))),
            Ask::DeleteWall(t) => drop(self.wall.remove(&(t, key))),
        }
        self.fire();
    }

    fn watermark(&mut self, to: i64) {
        self.watermark = to;
        self.fire();
    }

    fn fire(&mut self) {
        while let Some((time, key)) = self.event.first().copied().filter(|(time, _)| *time <= self.watermark) {
            self.event.pop_first();
            self.say(time, key, format!("event {time}"));
        }
    }

    fn fire_wall(&mut self, to: i64) {
        while let Some((time, key)) = self.wall.first().copied().filter(|(time, _)| *time <= to) {
            self.wall.pop_first();
            self.say(self.watermark, key, format!("wall {time}"));
        }
    }
}
