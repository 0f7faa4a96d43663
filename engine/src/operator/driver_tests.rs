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
