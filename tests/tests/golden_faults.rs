//! The golden job over a world that says no: a checkpoint that is declined, a disk that is full, one checkpoint restored again and
//! again. For each check a planted fault shows that it can fail.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use cutwater_engine::error::RunError;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::observe::{Control, Report};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Log, LogOptions, OwnerId, TxnId, TxnInfo, TxnName, TxnPhase};
use cutwater_platform::Files;
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::{CrashAction, LossPolicy};
use cutwater_tests::golden::{Expected, Input, live, live_on, live_under};
use cutwater_tests::{End, Machine};

/// A machine with the input of this seed in its log, and what must come out.
fn loaded(seed: u64) -> (Machine, Expected) {
    let input = Input::new(seed);
    let machine = Machine::new(seed);
    input.load(&machine);
    (machine, Expected::of(&input))
}

fn open(machine: &Machine) -> Log {
    Log::open(&machine.platform(), &machine.dir().join("log"), LogOptions::default()).expect("the log opens")
}

/// Refuses the next state file once the third manifest is published.
fn decline_one(machine: &Machine) {
    let files = machine.state_files().clone();
    machine.call_at("coordinator.published", 3, CrashAction::Call(Box::new(move || files.refuse(1))));
}

#[track_caller]
fn assert_finished_with_declined(report: &Report, declined: u64) {
    assert!(report.finished && report.failures.is_empty(), "{report}");
    assert_eq!(report.declined, declined, "{report}");
    report.assert_balanced();
}

#[test]
fn a_declined_checkpoint_followed_by_good_ones_loses_and_repeats_nothing() {
    let (machine, expected) = loaded(21);
    for workers in [1, 2, 3, 8] {
        let machine = machine.fork(workers as u64);
        decline_one(&machine);
        let report = live(&machine, workers).expect("a declined checkpoint ends nothing");
        assert_finished_with_declined(&report, 1);
        let refused = declined(&machine).expect("a state file was refused");
        assert!(report.checkpoint > refused, "good ones came after {refused}: {report}");
        expected.assert_seen(&machine, &format!("{workers} workers, checkpoint {refused} was declined"));
    }
    // Nothing but the refusal declines one.
    let untouched = machine.fork(9);
    assert_finished_with_declined(&live(&untouched, 2).expect("it runs"), 0);
}

/// The checkpoint whose state file was refused, if one was.
fn declined(machine: &Machine) -> Option<CheckpointId> {
    let refused = machine.state_files().refused();
    let name = refused.first()?.file_name()?.to_string_lossy().into_owned();
    let number = name.split('-').next().and_then(|number| number.parse().ok());
    Some(CheckpointId(number.expect("names of state files begin with the checkpoint")))
}

/// Turns the power off at the first visit of this point after a state file was refused.
fn strike_once_refused(machine: &Machine, point: &str) {
    for visit in 1..100 {
        let (disk, files) = (machine.disk().clone(), machine.state_files().clone());
        let strike = move || {
            if !files.refused().is_empty() {
                disk.crash();
            }
        };
        machine.call_at(point, visit, CrashAction::Call(Box::new(strike)));
    }
}

#[test]
fn a_crash_after_a_declined_checkpoint_and_before_the_next_good_one_loses_and_repeats_nothing() {
    let (machine, expected) = loaded(22);
    for (number, point) in
        ["coordinator.all-reported", "manifest.tmp-written", "manifest.durable", "group.commit-sent", "group.committed"]
            .into_iter()
            .enumerate()
    {
        for end in [End::Kill, End::PowerOff(LossPolicy::Random)] {
            let machine = machine.fork(number as u64);
            decline_one(&machine);
            strike_once_refused(&machine, point);
            let story = format!("{point}, {end:?}");
            live(&machine, 2).expect_err("the power goes off");
            assert!(machine.is_off(), "{story}");
            let next = machine.next_life(end);
            let report = live(&next, 3).unwrap_or_else(|e| panic!("{story}: {e}"));
            assert!(report.finished, "{story}");
            expected.assert_seen(&next, &story);
        }
    }
}

/// Shows that the permit after a declined checkpoint really covers what was prepared for it: taken away behind the job's back,
/// it is missed.
#[test]
fn output_of_a_declined_checkpoint_that_is_taken_away_is_missed_at_the_next_commit() {
    let (machine, _) = loaded(23);
    decline_one(&machine);
    let log = open(&machine);
    let handle = LogHandle::of(&machine.platform(), log.clone());
    let taken: Arc<Mutex<Option<TxnId>>> = Arc::default();
    let machine = Arc::new(machine);
    for visit in 3..100 {
        let (log, taken, weak) = (log.clone(), taken.clone(), Arc::downgrade(&machine));
        let take = move || {
            let mut taken = taken.lock().expect("alone");
            let Some(of) = weak.upgrade().and_then(|machine| declined(&machine)) else { return };
            let is_output = |txn: &TxnInfo| txn.id.checkpoint == of.0 && txn.state == TxnPhase::Prepared;
            let output = log.transactions().into_iter().find(is_output);
            if let (None, Some(txn)) = (&*taken, output) {
                log.force_abort(&txn.id).expect("it is there");
                *taken = Some(txn.id);
            }
        };
        machine.call_at("coordinator.published", visit, CrashAction::Call(Box::new(take)));
    }
    let result = live_on(&machine, 2, &handle);
    let taken = taken.lock().expect("alone").clone().expect("the declined checkpoint had output");
    let error = result.expect_err("a promised transaction is gone");
    let told = error.to_string();
    assert!(matches!(error, RunError::Fatal(_)), "{told}");
    assert!(told.contains(&format!("checkpoint {}", taken.checkpoint)) && told.contains("is lost"), "{told}");
}

#[test]
fn a_full_disk_ends_the_job_with_the_reason_and_with_room_again_it_goes_on_exactly() {
    let (machine, expected) = loaded(24);
    for (number, point) in [
        "source.cut",
        "snapshot.file-written",
        "snapshot.dir-synced",
        "sink.sealed",
        "sink.prepared",
        "coordinator.all-reported",
        "coordinator.published",
        "group.commit-sent",
        "committer.committed",
        "log.frame-buffered",
        "segment.written",
    ]
    .into_iter()
    .enumerate()
    {
        for at_sync in [false, true] {
            let machine = machine.fork(number as u64);
            let disk = machine.disk().clone();
            // Not a byte more than there is now.
            let fill = move || {
                disk.set_full_at_sync(at_sync);
                disk.set_capacity_bytes(disk.used_bytes());
            };
            machine.call_at(point, 3, CrashAction::Call(Box::new(fill)));
            let story = format!("full after {point}, told at the {}", if at_sync { "sync" } else { "write" });
            let error = match live(&machine, 2) {
                Err(error) => error.to_string(),
                Ok(report) => panic!("{story}: it went on without room: {report}"),
            };
            // The disk's words, or the log's.
            let says_so = |error: &str| error.contains("No space left") || error.contains("the disk has no room");
            assert!(says_so(&error), "{story}: {error}");
            assert!(!machine.is_off(), "{story}: nobody turned it off");

            // Still full: it says so again and harms nothing.
            // What the log had put by, and has given up, is eaten by others.
            machine.disk().set_capacity_bytes(machine.disk().used_bytes());
            let again = live(&machine, 1).map(|_| ()).expect_err("there is no room");
            assert!(says_so(&again.to_string()), "{story}: {again}");

            machine.disk().set_capacity_bytes(None);
            // Another process on the same machine, or the machine started again.
            let end = if number % 2 == 0 { End::Kill } else { End::PowerOff(LossPolicy::Random) };
            let next = machine.next_life(end);
            let report = live(&next, 3).unwrap_or_else(|e| panic!("{story}: {e}"));
            assert!(report.finished, "{story}");
            expected.assert_seen(&next, &story);
        }
    }
}

/// Goes on with so many workers; answers from which checkpoint.
fn restore(machine: &Machine, workers: usize, story: &str) -> CheckpointId {
    let control = Control::new();
    let report = live_under(machine, workers, &control).unwrap_or_else(|e| panic!("{story}: {e}"));
    assert!(report.finished, "{story}");
    control.seen().resumed_from
}

#[test]
fn one_checkpoint_restored_five_times_gives_the_same_output_each_time() {
    let (machine, expected) = loaded(25);
    for (number, point) in ["coordinator.published", "group.committed", "snapshot.file-written"].into_iter().enumerate()
    {
        let machine = machine.fork(number as u64);
        machine.strike(point, 6);
        live(&machine, 2).expect_err("the power goes off");
        let crashed = machine.next_life(End::Kill);
        let mut from = BTreeSet::new();
        for (seed, workers) in [1, 2, 3, 8, 2].into_iter().enumerate() {
            let story = format!("killed at {point}, restore {seed} with {workers} workers");
            let restored = crashed.fork(seed as u64);
            from.insert(restore(&restored, workers, &story));
            expected.assert_seen(&restored, &story);
        }
        assert!(
            from.len() == 1 && from.first() > Some(&CheckpointId(0)),
            "{point}: the same checkpoint each time: {from:?}"
        );
    }
}

/// Shows that the check above can tell one checkpoint from another: without its newest manifest a store goes back to the one before.
#[test]
fn a_restore_from_another_checkpoint_is_noticed() {
    let (machine, _) = loaded(26);
    machine.strike("manifest.durable", 4);
    live(&machine, 2).expect_err("the power goes off");
    let crashed = machine.next_life(End::Kill);
    let without = crashed.fork(1);
    let manifests = without.dir().join("checkpoints/manifests");
    let newest = without.disk().read_dir(&manifests).expect("a directory").pop().expect("a manifest").name;
    without.disk().remove_file(&manifests.join(newest)).expect("it was there");
    assert!(restore(&without, 2, "one manifest less") < restore(&crashed.fork(2), 2, "all manifests"));
}

/// The second commit must be answered "already": it is the same right, used again.
#[test]
fn what_was_committed_and_not_recorded_is_committed_a_second_time_and_seen_once() {
    let (machine, expected) = loaded(28);
    machine.strike("group.committed", 4);
    live(&machine, 2).expect_err("the power goes off");
    let next = machine.next_life(End::Kill);
    let report = live(&next, 3).expect("it goes on");
    assert!(report.already_committed > 0, "{report}");
    expected.assert_seen(&next, "committed twice");

    let (machine, expected) = loaded(28);
    machine.strike("group.commit-sent", 4);
    live(&machine, 2).expect_err("the power goes off");
    let next = machine.next_life(End::Kill);
    let report = live(&next, 3).expect("it goes on");
    assert_eq!(report.already_committed, 0, "nothing had been committed: {report}");
    expected.assert_seen(&next, "committed once, by the next attempt");
}

/// What the judge says of a machine; `None` if it is content.
fn judged(expected: &Expected, machine: &Machine) -> Option<String> {
    let judged = catch_unwind(AssertUnwindSafe(|| expected.assert_seen(machine, "planted")));
    judged.err().map(|panic| cutwater_platform::spawn::panic_text(panic.as_ref()))
}

#[test]
fn the_judge_finds_a_lost_a_repeated_and_a_foreign_row_and_a_transaction_that_was_left() {
    let (machine, expected) = loaded(27);
    live(&machine, 2).expect("it runs");
    assert_eq!(judged(&expected, &machine.fork(1)), None);

    let mut more = Input::new(27);
    more.clicks.push(more.clicks[0]);
    let lost = judged(&Expected::of(&more), &machine.fork(2)).expect("a click that nobody counted");
    assert!(lost.contains("lost (1)"), "{lost}");
    let mut more = Input::new(27);
    more.events[0].2 += 1;
    let torn = judged(&Expected::of(&more), &machine.fork(2)).expect("an event that counts otherwise");
    assert!(torn.contains("windows: lost (1)"), "{torn}");

    for (topic, row, told) in [
        ("counts", "[0,1]", "too often (1)"),
        ("counts", "[99,1]", "keys that nobody clicked"),
        ("windows", "0 0 1 1", "never expected (1)"),
        ("late", "1 2 3", "never expected (1)"),
    ] {
        let machine = machine.fork(3);
        let log = open(&machine);
        let topic_id = log.topic(topic).expect("it was written").id;
        let mut batch = BatchBuilder::new(Compression::None);
        batch.push(0, None, Some(row.as_bytes()), &[]).expect("it fits");
        let producer = log.producer().expect("a producer");
        producer.append(topic_id, 0, &mut batch).expect("accepted").wait().expect("acknowledged");
        log.close().expect("a clean close");
        let found = judged(&expected, &machine).expect("a row that no job wrote");
        assert!(found.contains(topic) && found.contains(told), "{topic} {row}: {found}");
    }

    let machine = machine.fork(4);
    let log = open(&machine);
    let owner = log.claim(&OwnerId(1), 1).expect("nobody else");
    let name = TxnName { checkpoint: 1, sink: "counts".to_string(), writer: 0 };
    owner.begin(name).expect("a transaction").prepare().expect("prepared");
    log.close().expect("a clean close");
    let left = judged(&expected, &machine).expect("a transaction without an end");
    assert!(left.contains("transactions were left"), "{left}");
}
