//! Topics as a source.

mod common;
#[path = "common/logs.rs"]
mod logs;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{check_positions, drain, open};
use cutwater_engine::source::{Read, Replay, Source, Waker};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{OwnerId, TxnName};
use cutwater_platform::{Clock, SystemClock};
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::log::{Header, LogHandle};
use logs::{append, committed, open_log, text};

/// Batches with and without transactions, committed and aborted, compressed and not, the last one still open.
fn mixed(log: &LogHandle) -> Vec<String> {
    let raw = log.log().unwrap();
    let topic = raw.create_topic("mixed", 1).unwrap();
    let owner = raw.claim(&OwnerId(1), 1).unwrap();
    let producer = raw.producer().unwrap();
    let (mut expected, mut n) = (vec![], 0);
    let mut batch = |records: usize, compression, seen: &mut Option<&mut Vec<String>>| {
        let mut batch = BatchBuilder::new(compression);
        for _ in 0..records {
            n += 1;
            batch.push(n, Some(b"k"), Some(format!("v{n}").as_bytes()), &[]).unwrap();
            if let Some(seen) = seen {
                seen.push(format!("v{n}"));
            }
        }
        batch
    };
    for round in 0..4 {
        let compression = if round % 2 == 0 { Compression::None } else { Compression::Lz4 };
        let mut kept = owner.begin(TxnName { checkpoint: round, sink: "kept".into(), writer: 0 }).unwrap();
        let mut gone = owner.begin(TxnName { checkpoint: round, sink: "gone".into(), writer: 0 }).unwrap();
        gone.append(topic, 0, &mut batch(3, compression, &mut None)).unwrap();
        kept.append(topic, 0, &mut batch(2, compression, &mut Some(&mut expected))).unwrap();
        gone.append(topic, 0, &mut batch(1, compression, &mut None)).unwrap();
        producer.append(topic, 0, &mut batch(1, compression, &mut Some(&mut expected))).unwrap();
        kept.append(topic, 0, &mut batch(2, compression, &mut Some(&mut expected))).unwrap();
        if round % 2 == 0 {
            kept.commit().unwrap();
            gone.abort().unwrap();
        } else {
            gone.abort().unwrap();
            kept.commit().unwrap();
        }
    }
    let mut open = owner.begin(TxnName { checkpoint: 9, sink: "open".into(), writer: 0 }).unwrap();
    open.append(topic, 0, &mut batch(2, Compression::None, &mut None)).unwrap();
    producer.append(topic, 0, &mut batch(2, Compression::None, &mut None)).unwrap().wait().unwrap();
    expected
}

#[test]
fn committed_records_are_read_in_order_and_found_again_from_every_position() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let expected = mixed(&log);
    for source in [log.read("mixed"), log.read("mixed").until_latest()] {
        assert_eq!(source.replay(), Replay::FromPosition);
        assert_eq!(source.splits().unwrap(), ["0"]);
        let read: Vec<_> = check_positions(&source, "0").into_iter().map(text).collect();
        assert_eq!(read, expected);
    }
}

#[test]
fn a_position_holds_over_a_clean_close_and_over_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let expected = mixed(&log);
    let mut reader = open(&log.read("mixed").until_latest(), "0", None);
    let mut head = vec![];
    while head.len() < 7 {
        reader.read(&mut head, 1).unwrap();
    }
    let position = reader.position();
    drop(reader);
    let rest = |log: &LogHandle| {
        let source = log.read("mixed").until_latest();
        let (rest, end) = drain(open(&source, "0", Some(&position)).as_mut(), 5).unwrap();
        assert_eq!(end, Read::Exhausted);
        rest.into_iter().map(text).collect::<Vec<_>>()
    };
    let (_copy, crashed) = logs::crashed(dir.path());
    assert_eq!(rest(&crashed), expected[7..]);
    drop(log);
    assert_eq!(rest(&open_log(dir.path())), expected[7..]);
}

#[test]
fn until_latest_is_resolved_once_and_from_latest_starts_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    append(&log, "t", &["a", "b", "c"]);
    let mut reader = open(&log.read("t").until_latest(), "0", None);
    let mut read = vec![];
    reader.read(&mut read, 1).unwrap();
    let position = reader.position();
    let latest = open(&log.read("t").from_latest(), "0", None).position();
    // A batch that begins before the end and one behind it.
    append(&log, "t", &["d"]);
    let values = |source, position: &[u8]| {
        let (records, end) = drain(open(&source, "0", Some(position)).as_mut(), 10).unwrap();
        (records.into_iter().map(text).collect::<Vec<_>>(), end)
    };
    assert_eq!(values(log.read("t").until_latest(), &position), (vec!["b".into(), "c".into()], Read::Exhausted));
    // Whether there is an end is part of the position, not of the program that reads it.
    assert_eq!(values(log.read("t"), &position), (vec!["b".into(), "c".into()], Read::Exhausted));
    assert_eq!(values(log.read("t").from_latest(), &latest), (vec!["d".into()], Read::Wait));
    let (nothing, end) = drain(open(&log.read("t").from_latest().until_latest(), "0", None).as_mut(), 10).unwrap();
    assert_eq!((nothing.len(), end), (0, Read::Exhausted));
}

#[test]
fn a_reader_that_waits_is_woken_by_a_commit_and_shown_nothing_before() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    append(&log, "t", &["first"]);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    let waker = Waker::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut reader = log.read("t").open("0", None, waker).unwrap();
    assert_eq!(drain(reader.as_mut(), 10).unwrap().1, Read::Wait);

    let raw = log.log().unwrap();
    let topic = raw.topic("t").unwrap().id;
    let owner = raw.claim(&OwnerId(1), 1).unwrap();
    let mut txn = owner.begin(TxnName { checkpoint: 1, sink: "s".into(), writer: 0 }).unwrap();
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(0, None, Some(b"second"), &[]).unwrap();
    txn.append(topic, 0, &mut batch).unwrap();
    let prepared = txn.prepare().unwrap();
    assert_eq!(drain(reader.as_mut(), 10).unwrap(), (vec![], Read::Wait), "prepared is not committed");

    let before = woken.load(Ordering::SeqCst);
    owner.commit(&[prepared.id]).unwrap();
    let clock = SystemClock::new();
    while woken.load(Ordering::SeqCst) == before {
        assert!(clock.monotonic() < Duration::from_secs(10), "the reader was never woken");
        std::thread::yield_now();
    }
    let (records, end) = drain(reader.as_mut(), 10).unwrap();
    assert_eq!((text(records[0].clone()).as_str(), records.len(), end), ("second", 1, Read::Wait));

    let dropped = woken.load(Ordering::SeqCst);
    drop(reader);
    append(&log, "t", &["third"]);
    log.log().unwrap().close().unwrap();
    assert_eq!(woken.load(Ordering::SeqCst), dropped, "nobody is called once the reader has gone");
}

#[test]
fn a_record_comes_with_key_time_headers_and_tombstones() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let raw = log.log().unwrap();
    let topic = raw.create_topic("t", 2).unwrap();
    let mut batch = BatchBuilder::new(Compression::None);
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"1")), (b"h", None)];
    batch.push(5, Some(b"k"), Some(b"[1,2]"), &headers).unwrap();
    batch.push(4, None, None, &[]).unwrap();
    raw.producer().unwrap().append(topic, 1, &mut batch).unwrap().wait().unwrap();
    let records = logs::committed_in(&log, "t", 1);
    assert_eq!((records[0].partition, records[0].offset, records[0].timestamp_ms), (1, 0, 5));
    assert_eq!(records[0].key.as_deref(), Some(&b"k"[..]));
    let header = |value: Option<&[u8]>| Header { name: b"h".to_vec(), value: value.map(<[u8]>::to_vec) };
    assert_eq!(records[0].headers, [header(Some(b"1")), header(None)]);
    assert_eq!(Json::decode::<Vec<u32>>(&records[0]), Ok(vec![1, 2]));
    assert_eq!((records[1].offset, records[1].key.clone(), records[1].value.clone()), (1, None, None));
    assert!(Json::decode::<Vec<u32>>(&records[1]).unwrap_err().to_string().contains("found nothing"));
    assert_eq!(committed(&log, "t"), Vec::<String>::new(), "partition 0 is another split");
}

#[test]
fn a_topic_or_log_that_isnt_the_positions_own_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let missing = log.read("t").splits().unwrap_err();
    assert!(missing.fatal && missing.to_string().contains("there is no such topic"), "{missing}");
    append(&log, "t", &["a", "b"]);
    append(&log, "other", &["a", "b"]);
    let mut reader = open(&log.read("t"), "0", None);
    drain(reader.as_mut(), 10).unwrap();
    let position = reader.position();
    let refusal = |log: &LogHandle, topic: &str, split: &str| {
        let error = log.read(topic).open(split, Some(&position), Waker::noop()).err().expect("refused");
        assert!(error.fatal);
        error.to_string()
    };
    assert!(refusal(&log, "other", "0").contains("made anew"));
    assert!(refusal(&log, "t", "1").contains("doesn't exist"));
    assert!(refusal(&log, "t", "x").contains("its number is none"));
    let elsewhere = tempfile::tempdir().unwrap();
    let younger = open_log(elsewhere.path());
    append(&younger, "t", &["a"]);
    let text = refusal(&younger, "t", "0");
    assert!(text.contains("knows offset 2, but the log ends at 1"), "{text}");
}
