use super::*;
use crate::config::GuaranteeKind;

/// Emits each number as many times as it says, under credit; passes watermarks on.
#[derive(Default)]
struct Repeat {
    left: Vec<u64>,
}

impl Operator for Repeat {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let numbers = batch.take::<u64>();
        cx.counters().passed += numbers.len() as u64;
        self.left = numbers.into_iter().flat_map(|n| std::iter::repeat_n(n, n as usize)).rev().collect();
        self.resume(cx)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        while cx.room() > 0 {
            let Some(next) = self.left.pop() else { return Ok(Flow::Done) };
            cx.emit(0, vec![next]);
        }
        Ok(if self.left.is_empty() { Flow::Done } else { Flow::Pending })
    }
}

fn driver(channels: usize) -> Driver {
    let barriers = Barriers::new(GuaranteeKind::ExactlyOnce, channels, CheckpointId(1));
    Driver::new(Box::new(Repeat::default()), (0..channels).collect(), 1, barriers, 1024)
}

/// At-least-once nothing is held: what stands behind an early barrier is processed before the cut, and comes again after a
/// restore.
#[test]
fn barriers_that_hold_nothing_let_later_records_through_and_cut_when_all_have_come() {
    let barriers = Barriers::new(GuaranteeKind::AtLeastOnce, 2, CheckpointId(1));
    let mut driver = Driver::new(Box::new(Repeat::default()), vec![0, 1], 1, barriers, 1024);
    for body in [records(&[1]), Body::Barrier(CheckpointId(1)), records(&[2]), Body::Barrier(CheckpointId(2))] {
        driver.enqueue(0, body);
    }
    let before = run(&mut driver, 100);
    assert!(before.contains(&"[2]".to_string()) && !before.iter().any(|step| step.contains("cut")), "{before:?}");
    assert!(driver.is_aligning());
    driver.enqueue(1, Body::Barrier(CheckpointId(1)));
    driver.enqueue(1, Body::End);
    let after = run(&mut driver, 100);
    let cuts: Vec<&String> = after.iter().filter(|step| step.contains("cut")).collect();
    assert_eq!(cuts.len(), 2, "the end of a channel counts as its barriers: {after:?}");
    assert!(!driver.is_aligning());
}

fn records(numbers: &[u64]) -> Body {
    Body::Records(Batch::local(numbers.to_vec()))
}

/// Steps until nothing can be done and tells what happened, in words.
fn run(driver: &mut Driver, room: usize) -> Vec<String> {
    let mut story = vec![];
    loop {
        let mut effects = vec![];
        let outcome = driver.step(1, room, Duration::ZERO, &mut effects).expect("legal frames");
        let quiet = effects.is_empty();
        for effect in effects {
            story.push(match effect {
                Effect::Records(_, batch) => format!("{:?}", batch.take::<u64>()),
                Effect::Control(Body::Watermark(t)) => format!("w{}", t.0),
                Effect::Control(body) => format!("{body:?}"),
                Effect::Cut(n) => format!("cut {n}"),
                Effect::Overtook(n) => format!("overtook {n}"),
                Effect::Captured(n, state) => format!("captured {n}: {:?}", state.map(|s| s.entries)),
                Effect::Ended => "end".to_string(),
            });
        }
        if outcome == Outcome::Waiting || (quiet && room == 0) {
            return story;
        }
    }
}

#[test]
fn a_barrier_waits_until_the_frame_before_it_has_been_emitted_whole() {
    let mut driver = driver(1);
    driver.enqueue(0, records(&[3]));
    driver.enqueue(0, Body::Barrier(CheckpointId(1)));
    driver.enqueue(0, records(&[1]));
    let mut effects = vec![];
    assert_eq!(driver.step(9, 2, Duration::ZERO, &mut effects).expect("legal"), Outcome::Waiting);
    assert_eq!(effects.len(), 2, "two of three fit");
    assert_eq!(driver.step(9, 0, Duration::ZERO, &mut effects).expect("legal"), Outcome::Waiting);
    let mut units = 0;
    driver.take_processed(|_, p| units += p.units);
    assert_eq!(
        (effects.len(), units),
        (2, 0),
        "without room nothing moves, and credit stays with the unfinished frame"
    );
    assert_eq!(run(&mut driver, 2), ["[3]", "cut 1", "[1]"]);
    driver.take_processed(|_, p| units += p.units);
    assert_eq!(units, 2, "one unit per record consumed");
}

#[test]
fn held_channels_wait_and_barriers_pass_although_there_is_no_room() {
    let mut driver = driver(2);
    driver.enqueue(0, Body::Barrier(CheckpointId(1)));
    driver.enqueue(0, records(&[1]));
    assert_eq!(run(&mut driver, 5), Vec::<String>::new(), "channel 0 is held");
    driver.enqueue(1, Body::Barrier(CheckpointId(1)));
    assert_eq!(run(&mut driver, 0), ["cut 1"], "the cut needs no room, the record does");
    assert_eq!(run(&mut driver, 1), ["[1]"]);
}

#[test]
fn the_watermark_is_the_smaller_one_and_the_end_comes_when_all_have_ended() {
    let mut driver = driver(2);
    driver.enqueue(0, Body::Watermark(Watermark::MAX));
    driver.enqueue(1, Body::Watermark(crate::time::EventTime(5)));
    driver.enqueue(1, Body::Watermark(Watermark::MAX));
    driver.enqueue(0, Body::End);
    driver.enqueue(1, Body::End);
    assert_eq!(run(&mut driver, 1), ["w5", &format!("w{}", i64::MAX), "end"]);
}

/// Says numbers when it is woken, and was told to be woken before anything else.
struct Overdue {
    left: Vec<u64>,
}

impl Operator for Overdue {
    fn on_start(&mut self, cx: &mut Context<'_>) -> Result<(), OperatorError> {
        cx.wake_after(Duration::ZERO);
        Ok(())
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        self.resume(cx)
    }

    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        cx.counters().passed += batch.len() as u64;
        cx.emit(0, batch.take::<u64>());
        Ok(Flow::Done)
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        while !self.left.is_empty() {
            if cx.room() == 0 {
                return Ok(Flow::Pending);
            }
            cx.emit(0, vec![self.left.remove(0)]);
        }
        Ok(Flow::Done)
    }
}

#[test]
fn what_an_operator_says_when_it_is_woken_at_the_start_comes_whole_before_the_first_frame_whatever_room_there_is() {
    for room in [1, 2, 100] {
        let operator = Box::new(Overdue { left: vec![1, 2, 3] });
        let barriers = Barriers::new(GuaranteeKind::ExactlyOnce, 1, CheckpointId(1));
        let mut driver = Driver::new(operator, vec![0], 1, barriers, 1024);
        driver.enqueue(0, Body::Barrier(CheckpointId(1)));
        driver.enqueue(0, records(&[9]));
        let mut effects = vec![];
        driver.start(Duration::ZERO, &mut effects).expect("it starts");
        assert!(effects.is_empty());
        assert_eq!(run(&mut driver, 0), [""; 0], "nothing moves without room, not even the barrier");
        let story: Vec<String> = (0..4).flat_map(|_| run(&mut driver, room)).collect();
        assert_eq!(story, ["[1]", "[2]", "[3]", "cut 1", "[9]"], "room {room}");
        assert_eq!(driver.counters.emitted, [4]);
    }
}

mod overtaking {
    use super::*;
    use crate::barrier::Overtaker;
    use crate::graph::codec::LocalCodec;
    use crate::in_flight::{Item, Recording, in_time_order};
    use crate::time::EventTime;

    const SECOND: Duration = Duration::from_secs(1);

    fn codec() -> Option<Rc<dyn EdgeCodec>> {
        Some(Rc::new(LocalCodec::<u64>::new(None)))
    }

    fn driver(patience: Duration) -> Driver {
        let barriers = Barriers::Overtaking(Overtaker::new(&[false; 2], CheckpointId(1), CheckpointId(1)));
        let mut driver = Driver::new(Box::new(Repeat::default()), vec![0, 1], 1, barriers, 1024);
        driver.overtake_after(patience, vec![codec(), codec()]);
        driver
    }

    fn enqueue(driver: &mut Driver, channel: usize, bodies: impl IntoIterator<Item = Body>) {
        bodies.into_iter().for_each(|body| driver.enqueue(channel, body));
    }

    /// One step; what happened, and the channel state if it came.
    fn step(driver: &mut Driver, room: usize, now: Duration) -> (Vec<String>, Option<FrozenState>) {
        let (mut effects, mut story, mut captured) = (vec![], vec![], None);
        driver.step(1, room, now, &mut effects).expect("legal frames");
        for effect in effects {
            story.push(match effect {
                Effect::Records(_, batch) => format!("{:?}", batch.take::<u64>()),
                Effect::Cut(n) => format!("cut {n}"),
                Effect::Overtook(n) => format!("overtook {n}"),
                Effect::Captured(n, state) => {
                    captured = state;
                    format!("captured {n}")
                }
                other => format!("{other:?}"),
            });
        }
        (story, captured)
    }

    /// What a restore makes of channel state: records and watermarks in words.
    fn told(state: FrozenState) -> (Vec<String>, Vec<Restored>) {
        let mut recording = Recording::default();
        for block in &state.blocks {
            recording.take(block.payload()).expect("whole");
        }
        let (mut words, mut restored) = (vec![], vec![]);
        for (_, item) in in_time_order(vec![((), recording.finish())]) {
            match item {
                Item::Watermark(t) => {
                    words.push(format!("w{}", t.0));
                    restored.push(Restored::Watermark(t));
                }
                Item::Records { channel, records, bytes } => {
                    let decode = || codec().expect("one").decode(records, &bytes).expect("whole");
                    words.push(format!("{channel}:{:?}", decode().take::<u64>()));
                    restored.push(Restored::Records { channel: channel as usize, batch: decode() });
                }
            }
        }
        (words, restored)
    }

    #[test]
    fn a_barrier_overtakes_what_is_in_the_queues_and_what_still_comes_and_a_restore_gives_it_back() {
        let mut driver = driver(Duration::ZERO);
        let w = |t| Body::Watermark(EventTime(t));
        enqueue(&mut driver, 1, [w(3), records(&[1])]);
        enqueue(&mut driver, 0, [w(4), records(&[1]), w(5), Body::Barrier(CheckpointId(1)), records(&[1])]);
        // No room: nothing is handled, and yet the cut is taken.
        assert_eq!(step(&mut driver, 0, SECOND).0, ["overtook 1"]);
        assert_eq!(driver.counters.consumed, [0, 0]);
        enqueue(&mut driver, 1, [records(&[1, 1]), w(6)]);
        for _ in 0..20 {
            assert!(step(&mut driver, 0, SECOND).0.is_empty(), "its barrier hasn't come on channel 1");
        }
        enqueue(&mut driver, 1, [records(&[1, 1, 1]), Body::Barrier(CheckpointId(1)), records(&[1, 1, 1, 1])]);
        let mut credit = vec![];
        let (story, captured) = step(&mut driver, 0, SECOND);
        assert_eq!(story, ["captured 1"]);
        driver.take_processed(|channel, processed| credit.push((channel, processed.barriers, processed.units)));
        assert_eq!(credit, [(0, 1, 0), (1, 1, 0)], "the barriers have gone by, the records wait");
        let (words, restored) = told(captured.expect("records were in flight"));
        assert_eq!(words, ["0:[1]", "w3", "1:[1]", "1:[1, 1]", "w5", "1:[1, 1, 1]"]);

        let mut next = super::overtaking::driver(Duration::ZERO);
        next.replay(restored);
        enqueue(&mut next, 0, [records(&[2])]);
        let story = run(&mut next, 100);
        assert_eq!(story.iter().filter(|s| *s == "[1]").count(), 1 + 1 + 2 + 3, "{story:?}");
        assert_eq!(story[story.len() - 2..], ["[2]", "[2]"], "what is new comes last: {story:?}");
        assert_eq!(next.counters.consumed, [2, 6]);
        let mut credit = 0;
        next.take_processed(|_, processed| credit += processed.units);
        assert_eq!(credit, 1, "what was restored costs nobody anything");
    }

    #[test]
    fn what_is_processed_before_its_turn_to_be_written_is_written_then() {
        let mut driver = driver(Duration::ZERO);
        enqueue(&mut driver, 0, (0..30).map(|_| records(&[1])));
        enqueue(&mut driver, 1, [Body::Barrier(CheckpointId(1))]);
        let (mut captured, mut processed) = (None, 0);
        for _ in 0..200 {
            let (story, state) = step(&mut driver, 100, SECOND);
            processed += story.iter().filter(|s| *s == "[1]").count();
            captured = captured.or(state);
            if processed == 10 {
                enqueue(&mut driver, 0, [records(&[1]), Body::Barrier(CheckpointId(1))]);
            }
        }
        let (words, _) = told(captured.expect("records were in flight"));
        assert_eq!((processed, words), (31, vec!["0:[1]".to_string(); 31]));
    }

    #[test]
    fn restored_frames_that_were_not_given_yet_are_in_flight_again() {
        let mut driver = driver(Duration::ZERO);
        let batch = || Batch::local(vec![1u64]);
        driver.replay(vec![
            Restored::Records { channel: 1, batch: batch() },
            Restored::Watermark(EventTime(7)),
            Restored::Records { channel: 0, batch: batch() },
        ]);
        assert_eq!(step(&mut driver, 1, SECOND).0, ["[1]"]);
        enqueue(&mut driver, 0, [records(&[2]), Body::Barrier(CheckpointId(1))]);
        enqueue(&mut driver, 1, [Body::Barrier(CheckpointId(1))]);
        assert_eq!(step(&mut driver, 0, SECOND).0, ["overtook 1"]);
        let (_, captured) = step(&mut driver, 0, SECOND);
        assert_eq!(told(captured.expect("in flight")).0, ["w7", "0:[1]", "0:[2]"]);
    }

    #[test]
    fn patience_ends_at_its_time_and_nothing_is_overtaken_before() {
        let mut driver = driver(SECOND);
        enqueue(&mut driver, 0, [records(&[1]), Body::Barrier(CheckpointId(1))]);
        assert!(step(&mut driver, 0, SECOND).0.is_empty());
        assert_eq!(driver.wake_at(SECOND), Some(2 * SECOND));
        assert!(step(&mut driver, 0, 2 * SECOND - Duration::from_millis(1)).0.is_empty());
        assert_eq!(step(&mut driver, 0, 2 * SECOND).0, ["overtook 1"]);
        assert_eq!(driver.wake_at(2 * SECOND), None);
        // The next one is aligned in time: nothing is overtaken, and its patience begins anew.
        enqueue(&mut driver, 1, [Body::Barrier(CheckpointId(1)), Body::Barrier(CheckpointId(2))]);
        enqueue(&mut driver, 0, [Body::Barrier(CheckpointId(2))]);
        let story: Vec<String> = (0..6).flat_map(|_| step(&mut driver, 9, 3 * SECOND).0).collect();
        assert_eq!(story, ["captured 1", "[1]", "cut 2"]);
    }

    #[test]
    fn a_barrier_that_overtakes_nothing_has_no_channel_state() {
        let mut driver = driver(Duration::ZERO);
        enqueue(&mut driver, 0, [Body::Barrier(CheckpointId(1)), records(&[1])]);
        enqueue(&mut driver, 1, [Body::Barrier(CheckpointId(1))]);
        assert_eq!(step(&mut driver, 0, SECOND).0, ["overtook 1"]);
        let (story, captured) = step(&mut driver, 0, SECOND);
        assert_eq!((story, captured.is_none()), (vec!["captured 1".to_string()], true));
    }
}
