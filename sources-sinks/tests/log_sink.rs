//! Topics as a sink, and the group that commits them.

mod common;
#[path = "common/logs.rs"]
mod logs;

use std::slice::from_ref;
use std::sync::{Arc, Mutex};

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::SinkError;
use cutwater_engine::id::Attempt;
use cutwater_engine::sink::{Committed, Sink};
use cutwater_engine::time::EventTime;
use cutwater_partition_log::{Log, LogLimits, LogOptions, OwnerId};
use cutwater_platform::{CrashHook, CrashPoints, Platform, SplitMix};
use cutwater_sources_sinks::codec::{Json, Text};
use cutwater_sources_sinks::log::{Compression, LogHandle, partition_of_key};
use logs::{JOB, Writer, begin, committed, committed_in, crashed, group, open_log, prepare, text, writer_id};

fn writer(log: &LogHandle, sink: &str, attempt: u64, worker: u32, first: Option<u64>) -> Writer<String> {
    log.write(sink).open(&writer_id(sink, attempt, worker, first)).unwrap()
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|v| v.to_string()).collect()
}

#[test]
fn nothing_is_visible_before_commit_and_then_all_sinks_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    assert_eq!(
        log.write::<String>("a").honours().guarantees,
        [GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce, GuaranteeKind::ExactlyOnce]
    );
    let group = begin(&log, 1);
    let (mut a, mut b) = (writer(&log, "a", 1, 0, Some(1)), writer(&log, "b", 1, 1, Some(1)));
    a.write(strings(&["a1", "a2"])).unwrap();
    b.write(strings(&["b1"])).unwrap();
    let handles = [prepare(&mut a, 1).unwrap().unwrap(), prepare(&mut b, 1).unwrap().unwrap()];
    // The next interval goes on meanwhile.
    a.write(strings(&["a3"])).unwrap();
    assert_eq!((committed(&log, "a").len(), committed(&log, "b").len()), (0, 0));
    assert_eq!(group.prepared().unwrap(), 2);
    assert_eq!(group.commit(&handles).unwrap(), Committed { now: 2, already: 0 });
    assert_eq!((committed(&log, "a"), committed(&log, "b")), (strings(&["a1", "a2"]), strings(&["b1"])));
    assert_eq!(group.commit(&handles).unwrap(), Committed { now: 0, already: 2 }, "again");
    let second = prepare(&mut a, 2).unwrap().unwrap();
    assert_eq!(group.commit(&[handles[0].clone(), second]).unwrap(), Committed { now: 1, already: 1 });
    assert_eq!(committed(&log, "a"), strings(&["a1", "a2", "a3"]));
    assert_eq!(group.prepared().unwrap(), 0);
    a.finish().unwrap();
}

#[test]
fn an_interval_without_records_has_nothing_to_prepare_and_commits() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = begin(&log, 1);
    let mut a = writer(&log, "a", 1, 0, Some(1));
    assert_eq!(prepare(&mut a, 1).unwrap(), None);
    a.write(vec![]).unwrap();
    assert_eq!(prepare(&mut a, 2).unwrap(), None);
    assert_eq!(group.commit(&[]).unwrap(), Committed::default());
    assert_eq!(group.abort_all_but(&[]).unwrap(), 0);
    group.forget(&[]).unwrap();
}

#[test]
fn an_older_attempt_is_refused_at_every_call_and_its_prepared_output_survives() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let old = begin(&log, 1);
    let mut sealed = writer(&log, "sealed", 1, 0, Some(1));
    let (mut open, mut idle) = (writer(&log, "open", 1, 0, Some(1)), writer(&log, "idle", 1, 0, Some(1)));
    sealed.write(strings(&["x"])).unwrap();
    let promised = prepare(&mut sealed, 1).unwrap().unwrap();
    sealed.write(strings(&["late"])).unwrap();
    let late = sealed.seal(cutwater_engine::id::CheckpointId(2)).unwrap().unwrap();
    open.write(strings(&["y"])).unwrap();

    // The other process: a group of its own on the same log.
    let platform = Platform::real();
    let other = LogHandle::of(&platform, log.log().unwrap().clone());
    let new = begin(&other, 2);
    let is_fenced =
        |result: Result<(), SinkError>| assert!(matches!(result, Err(SinkError::Fenced { .. })), "{result:?}");
    is_fenced(late().map(drop));
    is_fenced(prepare(&mut open, 1).map(drop));
    idle.write(strings(&["z"])).unwrap();
    is_fenced(prepare(&mut idle, 1).map(drop));
    is_fenced(old.commit(from_ref(&promised)).map(drop));
    is_fenced(old.abort_all_but(&[]).map(drop));
    is_fenced(old.forget(from_ref(&promised)));
    is_fenced(old.prepared().map(drop));
    is_fenced(old.fence(JOB, Attempt(1)));
    is_fenced(new.fence(JOB, Attempt(2)));

    assert_eq!(new.prepared().unwrap(), 1);
    assert_eq!(new.commit(&[promised]).unwrap(), Committed { now: 1, already: 0 });
    assert_eq!(committed(&other, "sealed"), strings(&["x"]));
    assert_eq!(committed(&other, "open"), strings(&[]));
    drop(other);
}

#[test]
fn a_writer_of_an_attempt_that_has_not_fenced_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let sink = log.write::<String>("a");
    let error = sink.open(&writer_id("a", 1, 0, Some(1))).err().expect("refused");
    assert!(error.to_string().contains("fence comes first"), "{error}");
    begin(&log, 2);
    assert!(matches!(sink.open(&writer_id("a", 1, 0, Some(1))), Err(SinkError::Fenced { .. })));
    assert!(sink.open(&writer_id("a", 2, 0, Some(1))).is_ok());
}

#[test]
fn what_was_promised_is_committed_after_a_crash_and_the_rest_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    begin(&log, 1);
    // Three workers; the third is gone after the crash.
    let mut workers: Vec<_> = (0..3).map(|w| writer(&log, "a", 1, w, Some(1))).collect();
    let mut promised = vec![];
    for (w, writer) in workers.iter_mut().enumerate() {
        writer.write(vec![format!("promised {w}")]).unwrap();
        promised.extend(prepare(writer, 1).unwrap());
    }
    workers[0].write(strings(&["prepared, in no manifest"])).unwrap();
    prepare(&mut workers[0], 2).unwrap().unwrap();
    workers[2].write(strings(&["never sealed"])).unwrap();

    let (copy, after) = crashed(dir.path());
    let group = begin(&after, 2);
    assert_eq!(group.commit(&promised).unwrap(), Committed { now: 3, already: 0 });
    assert_eq!(group.abort_all_but(&promised).unwrap(), 1, "found by listing");
    assert_eq!(committed(&after, "a"), strings(&["promised 0", "promised 1", "promised 2"]));
    let mut again = writer(&after, "a", 2, 0, Some(3));
    again.write(strings(&["replayed"])).unwrap();
    let handle = prepare(&mut again, 3).unwrap().unwrap();
    group.commit(&[handle]).unwrap();
    assert_eq!(committed(&after, "a").last().unwrap(), "replayed", "nothing left open holds readers up");

    // Crashed once more before the janitor: the same commits again.
    let (_copy, once_more) = crashed(copy.path());
    let group = begin(&once_more, 3);
    assert_eq!(group.commit(&promised).unwrap(), Committed { now: 0, already: 3 });
    assert_eq!(committed(&once_more, "a").len(), 4);
}

#[test]
fn a_job_that_crashes_often_leaves_no_outcomes_but_those_of_its_manifests() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let mut promised = vec![];
    for attempt in 1..=20 {
        let group = begin(&log, attempt);
        group.commit(&promised).unwrap();
        group.abort_all_but(&promised).unwrap();
        let (mut kept, mut lost) =
            (writer(&log, "a", attempt, 0, Some(attempt)), writer(&log, "a", attempt, 1, Some(attempt)));
        kept.write(vec![format!("{attempt}")]).unwrap();
        lost.write(strings(&["lost"])).unwrap();
        // One manifest is retained; its predecessor was retired, but the crash came before its outcome was forgotten.
        promised = vec![prepare(&mut kept, attempt).unwrap().unwrap()];
        if attempt % 2 == 0 {
            prepare(&mut lost, attempt).unwrap();
        } else {
            drop(lost);
        }
    }
    let group = begin(&log, 21);
    group.commit(&promised).unwrap();
    group.abort_all_but(&promised).unwrap();
    assert_eq!(committed(&log, "a"), (1..=20).map(|n| n.to_string()).collect::<Vec<_>>());
    let owner = log.log().unwrap().claim(&OwnerId(JOB.0), 22).unwrap();
    assert_eq!(owner.outcomes().unwrap().len(), 1, "the retained manifest's");
}

#[test]
fn output_that_is_lost_is_named_and_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = begin(&log, 1);
    let mut a = writer(&log, "late", 1, 3, Some(1));
    let mut one = |checkpoint: u64| {
        a.write(strings(&["x"])).unwrap();
        prepare(&mut a, checkpoint).unwrap().unwrap()
    };
    let (aborted, forgotten, good) = (one(1), one(2), one(3));
    let raw = log.log().unwrap();
    let by_hand = raw.transactions().into_iter().find(|txn| txn.id.checkpoint == 1).unwrap().id;
    raw.force_abort(&by_hand).unwrap();
    assert_eq!(group.abort_all_but(&[aborted.clone(), forgotten.clone(), good.clone()]).unwrap(), 0);
    let fatal = |handles: &[Vec<u8>]| match group.commit(handles) {
        Err(SinkError::Fatal { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let text = fatal(&[good.clone(), aborted]);
    assert!(text.contains("the output of late of checkpoint 1 (writer 3) is lost; somebody aborted"), "{text}");
    assert_eq!(committed(&log, "late"), strings(&[]), "all or nothing");
    group.commit(from_ref(&forgotten)).unwrap();
    group.forget(from_ref(&forgotten)).unwrap();
    group.forget(from_ref(&forgotten)).unwrap();
    assert!(fatal(&[forgotten]).contains("the log doesn't know them"));
    assert!(fatal(&[b"\x07?".to_vec()]).contains("in format 7, this program reads 1"));
    assert_eq!(group.commit(&[good]).unwrap().now, 1);
}

#[test]
fn keys_choose_their_partition_and_records_without_one_stay_together_per_batch() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = begin(&log, 1);
    let keyed = log.write("keyed").partitions(5).key(|s: &String| s.as_bytes()).value(Json);
    let mut keyed = keyed.open(&writer_id("keyed", 1, 0, Some(1))).unwrap();
    let sticky = log.write("sticky").partitions(3).value(Text);
    let mut sticky: Writer<u32> = sticky.open(&writer_id("sticky", 1, 4, Some(1))).unwrap();
    let chosen = log.write("chosen").partitions(4).partition_by(|n: &u32, partitions| n % partitions).value(Text);
    let mut chosen = chosen.open(&writer_id("chosen", 1, 0, Some(1))).unwrap();
    let names: Vec<String> = (0..40).map(|n| format!("key {n}")).collect();
    keyed.write(names.clone()).unwrap();
    for batch in 0..4 {
        sticky.write((0..10).map(|n| 10 * batch + n).collect()).unwrap();
    }
    chosen.write((0..12).collect()).unwrap();
    let handles: Vec<_> = [prepare(&mut keyed, 1), prepare(&mut sticky, 1), prepare(&mut chosen, 1)]
        .into_iter()
        .map(|handle| handle.unwrap().unwrap())
        .collect();
    group.commit(&handles).unwrap();
    for partition in 0..5 {
        let found: Vec<_> = committed_in(&log, "keyed", partition).into_iter().map(|r| r.key.unwrap()).collect();
        let expected = names.iter().filter(|n| partition_of_key(n.as_bytes(), 5) == partition);
        assert_eq!(found, expected.map(|n| n.as_bytes().to_vec()).collect::<Vec<_>>());
    }
    let numbers = |topic: &str, partition| -> Vec<u32> {
        committed_in(&log, topic, partition).into_iter().map(|r| text(r).parse().unwrap()).collect()
    };
    assert_eq!(
        numbers("sticky", 1),
        [(0..10).collect::<Vec<_>>(), (30..40).collect()].concat(),
        "worker 4 begins at 1"
    );
    assert_eq!(numbers("sticky", 2), (10..20).collect::<Vec<_>>());
    assert_eq!(numbers("sticky", 0), (20..30).collect::<Vec<_>>());
    assert_eq!(numbers("chosen", 3), [3, 7, 11]);
}

#[test]
fn records_keep_their_order_per_partition_and_none_is_lost_or_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = begin(&log, 1);
    const PARTITIONS: u32 = 13;
    for compression in [Compression::None, Compression::Lz4] {
        let topic = format!("big-{compression:?}");
        let sink = log.write(&topic).partitions(PARTITIONS).compression(compression);
        let sink = sink.partition_by(|s: &String, n| s.len() as u32 % n);
        let mut writer = sink.open(&writer_id(&topic, 1, 0, Some(1))).unwrap();
        let mut random = SplitMix::new(7);
        let mut expected = vec![vec![]; PARTITIONS as usize];
        for checkpoint in 1..=12 {
            // From nothing to several megabytes in an interval.
            for _ in 0..checkpoint - 1 {
                let batch: Vec<String> = (0..random.below(800))
                    .map(|n| format!("{checkpoint} {n} {}", "x".repeat(random.below(600) as usize)))
                    .collect();
                for record in &batch {
                    expected[record.len() % PARTITIONS as usize].push(record.clone());
                }
                writer.write(batch).unwrap();
            }
            if let Some(handle) = prepare(&mut writer, checkpoint).unwrap() {
                group.commit(&[handle]).unwrap();
            }
        }
        for (partition, expected) in expected.into_iter().enumerate() {
            let found: Vec<_> = committed_in(&log, &topic, partition as u32).into_iter().map(text).collect();
            assert!(found == expected, "partition {partition}: {} records, expected {}", found.len(), expected.len());
        }
    }
}

#[test]
fn a_records_time_is_its_event_time_or_its_own_or_now() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = begin(&log, 1);
    let mut strings_out = writer(&log, "a", 1, 0, Some(1));
    let before = Platform::real().clock.wall().0;
    strings_out.write(strings(&["now"])).unwrap();
    strings_out.write_timed(vec![(EventTime(-5), "then".to_string()), (EventTime::MAX, "last".into())]).unwrap();
    strings_out.write_timed(vec![(EventTime::MIN, "first".to_string()), (EventTime::MAX, "last".into())]).unwrap();
    let handle = prepare(&mut strings_out, 1).unwrap().unwrap();
    group.commit(&[handle]).unwrap();
    let records = committed_in(&log, "a", 0);
    let times: Vec<i64> = records.iter().map(|r| r.timestamp_ms).collect();
    assert!((before..before + 60_000).contains(&times[0]), "{times:?}");
    assert_eq!(times[1..], [-5, i64::MAX, i64::MIN, i64::MAX]);
    // Copied from topic to topic, a record stays what it was.
    let mut copy = log.write("copy").open(&writer_id("copy", 1, 0, Some(2))).unwrap();
    copy.write(records.clone()).unwrap();
    let handle = prepare(&mut copy, 2).unwrap().unwrap();
    group.commit(&[handle]).unwrap();
    assert_eq!(committed_in(&log, "copy", 0), records);
}

#[test]
fn dead_letters_carry_the_record_and_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = begin(&log, 1);
    let mut dead = log.write("dead").open(&writer_id("dead", 1, 0, Some(1))).unwrap();
    dead.write(vec![("LAX,x".to_string(), "field 2 is no number")]).unwrap();
    let handle = prepare(&mut dead, 1).unwrap().unwrap();
    group.commit(&[handle]).unwrap();
    let records = committed_in(&log, "dead", 0);
    assert_eq!(records[0].value.as_deref(), Some(&b"LAX,x"[..]));
    assert_eq!(records[0].headers[0].name, b"error");
    assert_eq!(records[0].headers[0].value.as_deref(), Some(&b"field 2 is no number"[..]));
}

#[test]
fn without_checkpoints_records_are_visible_as_they_come_and_all_of_them_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let mut out = writer(&log, "a", 1, 0, None);
    let mut expected = vec![];
    for n in 0..1000 {
        let batch: Vec<String> = (0..n % 5).map(|i| format!("{n} {i}")).collect();
        expected.extend(batch.clone());
        out.write(batch).unwrap();
    }
    out.finish().unwrap();
    assert_eq!(committed(&log, "a"), expected);
}

#[test]
fn at_least_once_a_barrier_waits_until_everything_shown_before_it_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let mut out = writer(&log, "a", 1, 0, None);
    let mut expected = vec![];
    for checkpoint in 1..20 {
        let batch: Vec<String> = (0..checkpoint * 7).map(|i| format!("{checkpoint} {i}")).collect();
        expected.extend(batch.clone());
        out.write(batch).unwrap();
        assert_eq!(prepare(&mut out, checkpoint).unwrap(), None, "nothing is left to be committed");
        assert_eq!(committed(&log, "a"), expected, "barrier {checkpoint}");
    }
}

#[test]
fn records_behind_the_last_barrier_are_refused_instead_of_lost() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    begin(&log, 1);
    let mut out = writer(&log, "a", 1, 0, Some(1));
    out.write(strings(&["x"])).unwrap();
    let error = out.finish().unwrap_err();
    assert!(error.to_string().contains("1 records came behind the last barrier"), "{error}");
}

#[test]
fn bad_records_and_bad_partitions_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    begin(&log, 1);
    let fatal = |result: Result<(), SinkError>| match result {
        Err(SinkError::Fatal { what, reason }) => format!("{what}: {reason}"),
        other => panic!("{other:?}"),
    };
    let wild = log.write("wild").partition_by(|_: &String, partitions| partitions).value(Text);
    let mut wild = wild.open(&writer_id("wild", 1, 0, Some(1))).unwrap();
    assert_eq!(fatal(wild.write(strings(&["x"]))), "wild: partition_by chose partition 1, the topic has 1");
    let mut nan = log.write("json").value(Json).open(&writer_id("json", 1, 0, Some(1))).unwrap();
    let text = fatal(nan.write(vec![std::collections::BTreeMap::from([((1, 2), 3)])]));
    assert!(text.contains("can't be written as JSON: key must be a string"), "{text}");
    let mut huge = writer(&log, "huge", 1, 0, Some(1));
    let text = fatal(huge.write(vec!["x".repeat(9 << 20)]));
    assert!(text.contains("not appended"), "{text}");
    let four = log.write::<String>("wild").partitions(4).open(&writer_id("wild", 1, 1, Some(1)));
    assert!(four.err().expect("refused").to_string().contains("exists with 1 partitions, 4 were asked for"));
    assert!(log.write::<String>("no topic").open(&writer_id("s", 1, 1, Some(1))).is_err());
}

#[test]
fn over_the_limit_of_an_ending_write_prepare_declines_with_the_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Platform::real();
    let limits = LogLimits { end_bytes_max: 512, ..LogLimits::default() };
    let options = LogOptions { limits, ..LogOptions::default() };
    let log = LogHandle::of(&platform, Log::open(&platform, dir.path(), options).unwrap());
    let group = begin(&log, 1);
    let mut handles = vec![];
    let declined = (0..100).find_map(|n| {
        let mut out = writer(&log, &format!("sink-{n}"), 1, 0, Some(1));
        out.write(strings(&["x"])).unwrap();
        match prepare(&mut out, 1) {
            Ok(handle) => {
                handles.extend(handle);
                None
            }
            Err(error) => Some(error),
        }
    });
    let declined = declined.expect("512 bytes don't end 100 transactions");
    assert!(matches!(&declined, SinkError::Declined { reason, .. } if reason.contains("more than 512")), "{declined}");
    assert_eq!(group.commit(&handles).unwrap().now, handles.len(), "what was prepared can be committed");
}

#[test]
fn no_batch_is_larger_than_the_log_takes_however_many_records_come_between_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Platform::real();
    let limits = LogLimits { batch_bytes_max: 1024, ..LogLimits::default() };
    let log = Log::open(&platform, dir.path(), LogOptions { limits, ..LogOptions::default() }).unwrap();
    let log = LogHandle::of(&platform, log);
    let group = begin(&log, 1);
    let mut out = writer(&log, "sink", 1, 0, Some(1));
    // Small ones, and each of a size that fits alone: beside others it must not.
    let texts: Vec<String> = (0..300).map(|n| "x".repeat([3, 40, 700, 1, 900][n % 5])).collect();
    out.write(strings(&texts.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    let handle = prepare(&mut out, 1).expect("no batch was refused").expect("there is output");
    assert_eq!(group.commit(&[handle]).unwrap().now, 1);
    let too_large = "x".repeat(2_000);
    let error = out.write(strings(&[&too_large])).and_then(|()| prepare(&mut out, 2).map(drop)).unwrap_err();
    assert!(error.to_string().contains("1024"), "{error}");
}

#[test]
fn the_points_of_the_protocol_are_reached_in_their_order() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<&'static str>>);
    impl CrashHook for Seen {
        fn reached(&self, point: &'static str) {
            if !point.starts_with("log.") && !point.starts_with("segment.") {
                self.0.lock().unwrap().push(point);
            }
        }
    }
    let seen = Arc::new(Seen::default());
    let dir = tempfile::tempdir().unwrap();
    let platform = Platform { crash: CrashPoints::shared(seen.clone()), ..Platform::real() };
    let log = LogHandle::of(&platform, Log::open(&platform, dir.path(), LogOptions::default()).unwrap());
    let group = begin(&log, 1);
    group.abort_all_but(&[]).unwrap();
    let mut out = writer(&log, "a", 1, 0, Some(1));
    out.write(strings(&["x"])).unwrap();
    let handle = prepare(&mut out, 1).unwrap().unwrap();
    group.commit(&[handle]).unwrap();
    let points = ["group.fenced", "group.aborted-others", "sink.sealed", "group.commit-sent", "group.committed"];
    assert_eq!(*seen.0.lock().unwrap(), points);
    drop(group);
}

#[test]
fn a_log_whose_last_handle_goes_is_closed_and_can_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let group = group(&log);
    begin(&log, 1);
    drop(log);
    assert!(group.prepared().is_err(), "the group outlives it and says that it is closed");
    let again = open_log(dir.path());
    begin(&again, 2);
}
