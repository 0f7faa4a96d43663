use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn scheduler(seed: u64) -> Scheduler {
    Scheduler::new(seed, Arc::new(SimClock::new()), SimDisk::new())
}

/// Lets `workers` threads take turns; each says its number `turns` times and leaves.
fn order_of(scheduler: &Scheduler, workers: usize, turns: usize) -> Vec<usize> {
    let said = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for me in 0..workers {
            let (scheduler, said) = (scheduler.clone(), &said);
            scope.spawn(move || {
                scheduler.enter(me, workers);
                for _ in 0..turns {
                    said.lock().expect("one at a time").push(me);
                    assert_eq!(scheduler.pass(me, Did::Work), Turn::Again);
                }
                scheduler.leave(me);
            });
        }
    });
    said.into_inner().expect("all have left")
}

#[test]
fn the_same_seed_gives_the_same_order_and_others_give_others() {
    let of = |seed| {
        let scheduler = scheduler(seed);
        let order = order_of(&scheduler, 3, 20);
        (order, scheduler.trace())
    };
    let all: Vec<_> = (0..20).map(of).collect();
    for (seed, first) in all.iter().enumerate() {
        assert_eq!(*first, of(seed as u64), "seed {seed}");
        assert_eq!((0..3).map(|w| first.0.iter().filter(|x| **x == w).count()).collect::<Vec<_>>(), [20, 20, 20]);
    }
    let different: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert!(different.len() > 15, "only {} orders from 20 seeds", different.len());
}

struct Counting {
    steps: Arc<AtomicU64>,
    then: Step,
}

impl Task for Counting {
    fn step(&mut self) -> Step {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.then
    }
}

#[test]
fn tasks_run_between_turns_and_time_passes_to_the_next_event_when_nobody_can_go_on() {
    let scheduler = scheduler(3);
    let steps = Arc::new(AtomicU64::new(0));
    let task = Counting { steps: steps.clone(), then: Step::Wait(Duration::from_secs(1)) };
    let _handle = scheduler.spawn("every-second", Box::new(task));
    scheduler.enter(0, 1);
    let turn = scheduler.pass(0, Did::Nothing { until: Some(Duration::from_millis(5_500)) });
    assert_eq!(turn, Turn::Again);
    assert!(steps.load(Ordering::SeqCst) >= 1, "it was stepped");
    let mut asked = 1;
    while scheduler.shared.clock.monotonic() < Duration::from_millis(5_500) {
        scheduler.pass(0, Did::Nothing { until: Some(Duration::from_millis(5_500)) });
        asked += 1;
    }
    assert!(steps.load(Ordering::SeqCst) >= 5, "once a second");
    assert!(asked < 20, "nothing to do until then, or when the task did something: {asked}");
    scheduler.leave(0);
}

#[test]
fn who_waits_for_nothing_is_told_to_leave() {
    let scheduler = scheduler(4);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let scheduler = scheduler.clone();
            scope.spawn(move || {
                scheduler.enter(me, 3);
                let why = loop {
                    match scheduler.pass(me, Did::Nothing { until: None }) {
                        Turn::Again => {}
                        Turn::Leave { why } => break why,
                    }
                };
                assert!(why.contains("stands still"), "{why}");
                scheduler.leave(me);
            });
        }
    });
    assert!(scheduler.stuck().is_some());
}

#[test]
fn a_run_that_never_ends_and_a_machine_that_is_off_are_told_so() {
    let busy = scheduler(5).with_limits(SchedulerLimits { turns_max: 100, ..SchedulerLimits::default() });
    busy.enter(0, 1);
    let mut last = Turn::Again;
    for _ in 0..200 {
        last = busy.pass(0, Did::Work);
    }
    assert_eq!(last, Turn::Leave { why: "not over after 100 turns".to_string() });
    busy.leave(0);

    let sleepy =
        scheduler(6).with_limits(SchedulerLimits { time_max: Duration::from_secs(9), ..SchedulerLimits::default() });
    sleepy.enter(0, 1);
    let turn = sleepy.pass(0, Did::Nothing { until: Some(Duration::from_secs(10)) });
    assert_eq!(turn, Turn::Leave { why: "not over after 9s of simulated time".to_string() });
    sleepy.leave(0);

    let off = scheduler(7);
    off.enter(0, 1);
    off.shared.disk.crash();
    assert_eq!(off.pass(0, Did::Work), Turn::Leave { why: "the power went off".to_string() });
    off.leave(0);
}
