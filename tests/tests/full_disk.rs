//! A full disk pauses a job: it isn't restarted in vain, tells why it waits, and goes on with exact output once there is room.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater_engine::error::RunError;
use cutwater_engine::observe::{Control, Phase};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::{Clock, SystemClock};
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::CrashAction;
use cutwater_tests::Machine;
use cutwater_tests::golden::{Expected, Input, live_waiting, live_waiting_on};

const LONG: Duration = Duration::from_secs(300);

/// Waits until the job is paused, and answers for what.
fn until_paused(control: &Control) -> (String, u64) {
    let clock = SystemClock::new();
    let since = clock.monotonic();
    loop {
        if let Some(paused) = control.paused() {
            assert_eq!(control.seen().phase, Phase::Paused);
            return (paused.path.display().to_string(), paused.needs_bytes);
        }
        assert!(clock.monotonic() - since < LONG, "it was never paused: {:?}", control.seen());
        clock.sleep(Duration::from_millis(1));
    }
}

/// A machine with the input whose disk is full from a point's third visit on: not a byte more than there is then.
fn filled_at(from: &Machine, point: &str, at_sync: bool, seed: u64) -> Machine {
    let machine = from.fork(seed);
    let disk = machine.disk().clone();
    let fill = move || {
        disk.set_full_at_sync(at_sync);
        disk.set_capacity_bytes(disk.used_bytes());
    };
    machine.call_at(point, 3, CrashAction::Call(Box::new(fill)));
    machine
}

fn loaded(seed: u64) -> (Machine, Expected) {
    let machine = Machine::new(seed);
    let input = Input::new(seed);
    input.load(&machine);
    (machine, Expected::of(&input))
}

#[test]
fn a_job_waits_for_room_wherever_the_disk_fills_up_and_its_output_is_exact() {
    let (loaded, expected) = loaded(5);
    let points = [
        "source.cut",
        "snapshot.file-written",
        "sink.prepared",
        "coordinator.published",
        "group.commit-sent",
        "committer.committed",
        "log.frame-buffered",
        "segment.written",
    ];
    for (number, point) in points.into_iter().enumerate() {
        let at_sync = number % 2 == 1;
        let story = format!("full after {point}, told at the {}", if at_sync { "sync" } else { "write" });
        let machine = filled_at(&loaded, point, at_sync, number as u64);
        let (control, disk) = (Control::new(), machine.disk().clone());
        let report = std::thread::scope(|scope| {
            let running = scope.spawn(|| live_waiting(&machine, 2, LONG, &control));
            let (path, needs) = until_paused(&control);
            assert!(path.starts_with("data") && needs >= 1 << 20, "{story}: {path}, {needs} bytes");
            // Less than is asked for is no room; then there is.
            disk.set_capacity_bytes(disk.used_bytes() + 64 * 1024);
            SystemClock::new().sleep(Duration::from_millis(120));
            disk.set_capacity_bytes(None);
            running.join().expect("no panic").unwrap_or_else(|e| panic!("{story}: {e}"))
        });
        assert!(report.finished && report.pauses > 0 && report.paused > Duration::ZERO, "{story}: {report}");
        assert!(report.to_string().contains("for lack of space"), "{report}");
        assert_eq!(control.paused(), None, "{story}");
        expected.assert_seen(&machine, &story);
    }
}

#[test]
fn a_pause_ends_with_a_stop_and_with_the_limit_and_the_next_run_goes_on() {
    let (loaded, expected) = loaded(6);
    for stop in [true, false] {
        let machine = filled_at(&loaded, "sink.prepared", false, u64::from(stop));
        let control = Control::new();
        let wait = if stop { LONG } else { Duration::from_millis(400) };
        let ended = std::thread::scope(|scope| {
            let running = scope.spawn(|| live_waiting(&machine, 2, wait, &control));
            until_paused(&control);
            // What the log had put by, and has given up, is eaten by others.
            machine.disk().set_capacity_bytes(machine.disk().used_bytes());
            if stop {
                control.stop();
            }
            running.join().expect("no panic").expect_err("there was no room")
        });
        let RunError::NoSpace { stopped, waited, needs_bytes, .. } = &ended else { panic!("{ended}") };
        assert_eq!(*stopped, stop);
        assert!(stop || *waited >= wait, "{waited:?}");
        assert!(*needs_bytes >= 1 << 20 && ended.to_string().contains("run again to go on"), "{ended}");
        machine.disk().set_capacity_bytes(None);
        let report = live_waiting(&machine, 3, LONG, &Control::new()).expect("there is room");
        assert!(report.finished && report.pauses == 0, "{report}");
        expected.assert_seen(&machine, "run again");
    }
}

#[test]
fn a_disk_that_fills_up_again_and_again_pauses_the_job_each_time_without_counting_restarts() {
    let (loaded, expected) = loaded(7);
    let machine = filled_at(&loaded, "sink.prepared", false, 1);
    let (control, disk) = (Control::new(), machine.disk().clone());
    let fills = Arc::new(AtomicU64::new(0));
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| live_waiting(&machine, 2, LONG, &control));
        until_paused(&control);
        for round in 1..=3 {
            let (refill, count) = (disk.clone(), fills.clone());
            let fill = move || {
                refill.set_capacity_bytes(refill.used_bytes());
                count.fetch_add(1, Ordering::SeqCst);
            };
            machine.call_at("sink.prepared", 2, CrashAction::Call(Box::new(fill)));
            disk.set_capacity_bytes(None);
            while fills.load(Ordering::SeqCst) < round {
                assert!(!running.is_finished(), "it ended in round {round}");
                SystemClock::new().sleep(Duration::from_millis(1));
            }
            until_paused(&control);
        }
        disk.set_capacity_bytes(None);
        running.join().expect("no panic").expect("there is room")
    });
    assert_eq!((report.pauses, report.failures.len()), (4, 0), "{report}");
    expected.assert_seen(&machine, "four times full");
}

/// Every committed record of all topics, by where it is.
fn committed(log: &Log) -> Vec<(String, u32, u64)> {
    let mut seen = vec![];
    for topic in log.topics() {
        for partition in 0..topic.partitions {
            let reader = log.consumer(topic.id, partition, Offset::ZERO, Isolation::ReadCommitted);
            let mut reader = reader.expect("reading goes on");
            loop {
                let before = reader.position();
                let fetched = reader.poll(1 << 20).expect("reading goes on");
                fetched.for_each(|r| seen.push((topic.name.clone(), partition, r.offset as u64))).expect("decodable");
                if reader.position() == before {
                    break;
                }
            }
        }
    }
    seen
}

#[test]
fn others_read_the_log_of_a_job_that_waits_for_room_and_it_is_never_opened_anew() {
    let (loaded, expected) = loaded(8);
    for (number, point) in ["sink.prepared", "log.frame-buffered", "segment.written"].into_iter().enumerate() {
        let machine = filled_at(&loaded, point, false, number as u64);
        let (control, disk) = (Control::new(), machine.disk().clone());
        let log = Log::open(&machine.platform(), Path::new("data/log"), LogOptions::default()).expect("opened");
        let life = log.status().generation;
        let handle = LogHandle::of(&machine.platform(), log.clone());
        let report = std::thread::scope(|scope| {
            let running = scope.spawn(|| live_waiting_on(&machine, 2, LONG, &control, &handle));
            until_paused(&control);
            let seen = committed(&log);
            assert!(!seen.is_empty() && log.status().down.is_none(), "{point}: {:?}", log.status());
            disk.set_capacity_bytes(None);
            let report = running.join().expect("no panic").unwrap_or_else(|e| panic!("{point}: {e}"));
            assert!(committed(&log).starts_with(&seen[..1]) && committed(&log).len() > seen.len(), "{point}");
            report
        });
        assert!(report.finished && report.pauses > 0 && report.failures.is_empty(), "{point}: {report}");
        assert_eq!(log.status().generation, life, "{point}: it stayed open");
        log.close().expect("closed");
        drop((log, handle));
        expected.assert_seen(&machine, point);
    }
}
