//! Compaction through the log: what readers see before and after, over transactions, codecs, restarts and crashes.

mod log_support;

use std::collections::BTreeMap;
use std::path::Path;

use cutwater_partition_log::batch::{BatchBuilder, BatchHeader, Compression, Limits, records, verify_stored};
use cutwater_partition_log::{Isolation, Log, LogLimits, LogOptions, Offset, Producer, Tidied, TopicId, Txn, TxnName};
use cutwater_platform::{Files, SplitMix, WallTime};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{DIR, OWNER};

const NOW: i64 = 1_000_000;
const KEEP_MS: i64 = 10_000;

/// Offset, key, value.
type Row = (u64, String, Option<String>);

fn limits() -> LogLimits {
    LogLimits { compaction_map_bytes: 64 * 1000, ..LogLimits::tiny() }
}

fn open_with(sim: &SimPlatform, limits: LogLimits) -> Log {
    Log::open(&sim.platform(), Path::new(DIR), LogOptions { limits, ..LogOptions::default() }).expect("opens")
}

fn open(sim: &SimPlatform) -> Log {
    open_with(sim, limits())
}

fn compacted_topic(log: &Log, more: &[(&str, &str)]) -> TopicId {
    let topic = log.create_topic("t", 1).expect("created");
    let keep = KEEP_MS.to_string();
    let all = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0"), ("delete.retention.ms", &keep)];
    let all = all.iter().chain(more).map(|(name, value)| ((*name).to_string(), (*value).to_string()));
    log.change_topic_settings("t", |known| known.extend(all)).expect("set");
    topic
}

fn batch_of(compression: Compression, rows: &[(&str, Option<&str>)]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(compression);
    for (n, (key, value)) in rows.iter().enumerate() {
        let headers = [(&b"n"[..], Some(&[n as u8][..]))];
        builder.push(1_000 + n as i64, Some(key.as_bytes()), value.map(str::as_bytes), &headers).expect("fits");
    }
    builder
}

fn put(producer: &Producer, topic: TopicId, rows: &[(&str, Option<&str>)]) {
    producer.append(topic, 0, &mut batch_of(Compression::None, rows)).expect("accepted").wait().expect("durable");
}

fn tidy(log: &Log, now: i64) -> Tidied {
    let tidied = log.tidy(WallTime(now)).expect("up");
    assert!(tidied.failed.is_empty(), "{tidied:?}");
    tidied
}

/// Seals what is there: a new segment begins, and is in the files.
fn seal(log: Log, sim: &SimPlatform) -> Log {
    let topic = log.topic("t").expect("there").id;
    let filler = "f".repeat(600);
    let producer = log.producer().expect("a producer");
    for _ in 0..3 {
        put(&producer, topic, &[("filler", Some(&filler))]);
    }
    log.close().expect("closed");
    open(sim)
}

fn rows(log: &Log, topic: TopicId, from: u64, isolation: Isolation) -> Vec<Row> {
    let mut consumer = log.consumer(topic, 0, Offset(from), isolation).expect("exists");
    let mut seen = Vec::new();
    loop {
        let before = consumer.position();
        let fetched = consumer.poll(700).unwrap_or_else(|e| panic!("at {before}: {e}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let each = |r: cutwater_partition_log::batch::RecordRef<'_>| {
            seen.push((r.offset as u64, r.key.map(text).unwrap_or_default(), r.value.map(text)));
        };
        fetched.for_each(each).expect("decodable");
        if consumer.position() == before {
            return seen;
        }
    }
}

/// Files of the partition with this suffix, by base, each taken apart into its batches' headers. They must follow each other
/// without a gap.
fn segments(sim: &SimPlatform) -> BTreeMap<u64, Vec<BatchHeader>> {
    let dir = Path::new(DIR).join("partitions/t-0");
    let mut all = BTreeMap::new();
    let mut next = None;
    for entry in sim.disk().read_dir(&dir).expect("listed") {
        assert!(!entry.name.ends_with(".cleaned") && !entry.name.ends_with(".swap"), "{} is left", entry.name);
        let Some(base) = entry.name.strip_suffix(".log") else { continue };
        let bytes = sim.disk().read(&dir.join(&entry.name), u64::MAX).expect("readable");
        let (mut rest, mut headers) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let header = verify_stored(rest, &Limits::DEFAULT).expect("an intact batch");
            assert!(next.is_none_or(|next| next == header.base_offset), "no gap at {}", header.base_offset);
            next = Some(header.last_offset() + 1);
            records(rest, &Limits::DEFAULT).expect("records").iter().for_each(|r| _ = r.expect("a record"));
            headers.push(header);
            rest = &rest[header.total_bytes()..];
        }
        all.insert(base.parse().expect("a number"), headers);
    }
    all
}

/// What is left of `before` when everything below `end` is compacted.
fn newest(before: &[Row], end: u64) -> Vec<Row> {
    let is_newest = |at: usize| {
        let (offset, key, _) = &before[at];
        *offset >= end || !before[at + 1..].iter().any(|(later, other, _)| other == key && *later < end)
    };
    (0..before.len()).filter(|at| is_newest(*at)).map(|at| before[at].clone()).collect()
}

/// From any offset, under both isolations, the last value of each key is what it was; deletions may be gone.
fn same_tables(log: &Log, topic: TopicId, before: &[Row], story: &str) {
    let table = |rows: &[Row], from: u64| {
        let mut table: BTreeMap<String, Option<String>> = BTreeMap::new();
        table.extend(rows.iter().filter(|row| row.0 >= from).map(|row| (row.1.clone(), row.2.clone())));
        table.retain(|_, value| value.is_some());
        table
    };
    let end = log.offsets(topic, 0).expect("exists").last_stable.0;
    for from in (0..end).step_by(3) {
        let now = rows(log, topic, from, Isolation::ReadCommitted);
        assert_eq!(table(&now, from), table(before, from), "{story}: from {from}");
    }
}

/// A log with everything in it: plain batches and transactions that commit and abort, over several segments, under all codecs.
fn eventful(sim: &SimPlatform, seed: u64, steps: usize) -> Log {
    let log = open(sim);
    let topic = compacted_topic(&log, &[]);
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let mut random = SplitMix::new(seed);
    let (producer, mut open_txns) = (log.producer().expect("a producer"), Vec::<Txn>::new());
    for step in 0..steps {
        let texts: Vec<(String, Option<String>)> = (0..1 + random.below(4))
            .map(|n| {
                let value =
                    (random.below(5) > 0).then(|| format!("{step}-{n}-{}", "v".repeat(random.below(60) as usize)));
                (format!("k{}", random.below(9)), value)
            })
            .collect();
        let of: Vec<(&str, Option<&str>)> = texts.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        let codec = Compression::ALL[random.below(5) as usize];
        match random.below(6) {
            0 | 1 => {
                _ = producer.append(topic, 0, &mut batch_of(codec, &of)).expect("accepted").wait().expect("durable")
            }
            2 if open_txns.len() < 3 => {
                let name = TxnName { checkpoint: step as u64, sink: "s".to_string(), writer: 0 };
                let mut txn = owner.begin(name).expect("begun");
                txn.append(topic, 0, &mut batch_of(codec, &of)).expect("appended");
                open_txns.push(txn);
            }
            3 if !open_txns.is_empty() => {
                let at = random.below(open_txns.len() as u64) as usize;
                open_txns[at].append(topic, 0, &mut batch_of(codec, &of)).expect("appended");
            }
            4 if !open_txns.is_empty() => open_txns.remove(0).commit().map(drop).expect("committed"),
            5 if !open_txns.is_empty() => {
                let at = random.below(open_txns.len() as u64) as usize;
                open_txns.remove(at).abort().expect("aborted");
            }
            _ => {}
        }
    }
    open_txns.drain(..).for_each(|txn| txn.abort().expect("aborted"));
    seal(log, sim)
}

#[test]
fn of_each_key_the_last_record_stays_and_offsets_never_change() {
    let sim = SimPlatform::new(1);
    let log = open(&sim);
    let topic = compacted_topic(&log, &[]);
    let producer = log.producer().expect("a producer");
    for n in 0..40 {
        let (key, value) = (format!("k{}", n % 4), format!("value {n} {}", "x".repeat(50)));
        put(&producer, topic, &[(&key, Some(&value)), ("same", Some(&value))]);
    }
    let log = seal(log, &sim);
    let before = rows(&log, topic, 0, Isolation::ReadCommitted);
    let (old, active) = (segments(&sim), *segments(&sim).keys().last().expect("some"));
    let tidied = tidy(&log, NOW);
    let after = rows(&log, topic, 0, Isolation::ReadCommitted);
    assert_eq!(after, newest(&before, active));
    assert!(tidied.records_removed >= 70 && tidied.bytes_compacted > 3_000, "{tidied:?}");
    assert_eq!(tidied.records_removed as usize, before.len() - after.len(), "every record is accounted for");
    assert_eq!(old.len() as u64, segments(&sim).len() as u64 + tidied.segments_compacted - tidied.segments_written);
    assert_eq!(tidy(&log, NOW).segments_compacted, 0, "nothing is new");
    same_tables(&log, topic, &before, "compacted");
    log.close().expect("closed");
    let log = open(&sim);
    same_tables(&log, topic, &before, "reopened");
    assert_eq!(rows(&log, topic, 0, Isolation::ReadCommitted), after);
    // What is left of the old ones fits fewer segments.
    let log = seal(log, &sim);
    let tidied = tidy(&log, NOW);
    assert!(tidied.segments_compacted > 2 * tidied.segments_written, "neighbours become one: {tidied:?}");
    assert_eq!(
        rows(&log, topic, 0, Isolation::ReadCommitted)[..5],
        after[..5],
        "four keys, and the one that is in all"
    );
}

#[test]
fn logs_of_all_kinds_show_the_same_tables_before_and_after_any_number_of_rounds() {
    for seed in 0..12 {
        let sim = SimPlatform::new(seed);
        let log = eventful(&sim, seed, 150);
        let topic = log.topic("t").expect("there").id;
        let before = rows(&log, topic, 0, Isolation::ReadCommitted);
        let active = *segments(&sim).keys().last().expect("some");
        tidy(&log, NOW);
        let after = rows(&log, topic, 0, Isolation::ReadCommitted);
        assert_eq!(after, newest(&before, active), "seed {seed}");
        // What was aborted is gone for everybody.
        let all = rows(&log, topic, 0, Isolation::ReadUncommitted);
        assert_eq!(all, after, "seed {seed}: aborted records are left");
        same_tables(&log, topic, &before, &format!("seed {seed}"));
        // More, another round when the deletions may go, and once more after a restart.
        let log = seal(log, &sim);
        let before = rows(&log, topic, 0, Isolation::ReadCommitted);
        tidy(&log, NOW + KEEP_MS + 1);
        same_tables(&log, topic, &before, &format!("seed {seed}, second round"));
        let active = *segments(&sim).keys().last().expect("some");
        let gone = rows(&log, topic, 0, Isolation::ReadCommitted);
        assert!(gone.iter().all(|row| row.2.is_some() || row.0 >= active), "seed {seed}: deletions stay for ever");
        segments(&sim);
    }
}

#[test]
fn a_map_too_small_for_all_keys_compacts_in_parts_and_comes_to_the_same() {
    for seed in [3, 4, 5] {
        let sim = SimPlatform::new(seed);
        let log = eventful(&sim, seed, 150);
        let topic = log.topic("t").expect("there").id;
        let before = rows(&log, topic, 0, Isolation::ReadCommitted);
        log.close().expect("closed");
        let active = *segments(&sim).keys().last().expect("some");
        // Five keys of ten at a time: most rounds end in the middle of a segment.
        let log = open_with(&sim, LogLimits { compaction_map_bytes: 64 * 5, ..limits() });
        for round in 0..200 {
            if tidy(&log, NOW).segments_compacted == 0 && round > 150 {
                break;
            }
            let now = rows(&log, topic, 0, Isolation::ReadCommitted);
            let end = newest(&before, active);
            assert!(end.iter().all(|row| now.contains(row)), "seed {seed}: round {round} took what is newest");
        }
        same_tables(&log, topic, &before, &format!("seed {seed}, in parts"));
        let uncommitted = rows(&log, topic, 0, Isolation::ReadUncommitted);
        let committed = rows(&log, topic, 0, Isolation::ReadCommitted);
        assert_eq!(uncommitted, committed, "seed {seed}: aborted records are left");
    }
}

#[test]
fn tombstones_and_markers_stay_for_their_time_and_then_go() {
    let sim = SimPlatform::new(1);
    let log = open(&sim);
    let topic = compacted_topic(&log, &[]);
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let producer = log.producer().expect("a producer");
    put(&producer, topic, &[("gone", Some("value"))]);
    put(&producer, topic, &[("gone", None)]);
    let mut txn = owner.begin(TxnName { checkpoint: 1, sink: "s".to_string(), writer: 0 }).expect("begun");
    txn.append(topic, 0, &mut batch_of(Compression::Lz4, &[("moved", Some("old"))])).expect("appended");
    txn.commit().expect("committed");
    put(&producer, topic, &[("moved", Some("new"))]);
    // Old producers are unknown: nothing must be kept for them.
    log.expire(WallTime(i64::MAX)).expect("up");
    let log = seal(log, &sim);
    let markers = || segments(&sim).values().flatten().filter(|header| header.is_control()).count();
    let tombstones =
        |log: &Log| rows(log, topic, 0, Isolation::ReadCommitted).iter().filter(|row| row.2.is_none()).count();
    tidy(&log, NOW);
    assert_eq!((tombstones(&log), markers()), (1, 1), "seen for the first time");
    assert_eq!(rows(&log, topic, 0, Isolation::ReadCommitted)[0], (1, "gone".to_string(), None));
    let log = seal(log, &sim);
    tidy(&log, NOW + KEEP_MS - 1);
    assert_eq!((tombstones(&log), markers()), (1, 1), "a reader may still be on its way");
    let log = seal(log, &sim);
    tidy(&log, NOW + KEEP_MS);
    assert_eq!((tombstones(&log), markers()), (0, 0));
    assert_eq!(rows(&log, topic, 0, Isolation::ReadCommitted)[0].1, "moved");
}

#[test]
fn a_producer_goes_on_after_its_records_were_compacted_away_and_its_batches_are_still_there_without_them() {
    let sim = SimPlatform::new(1);
    let log = open(&sim);
    let topic = compacted_topic(&log, &[]);
    let producer = log.producer().expect("a producer");
    let stamp = |sequence| cutwater_partition_log::batch::ProducerStamp {
        producer_id: producer.id(),
        epoch: 0,
        base_sequence: sequence,
        transactional: false,
    };
    let send = |log: &Log, sequence: i32| {
        let batch = batch_of(Compression::None, &[("k", Some("v"))]).build(stamp(sequence)).expect("built");
        let ticket = log.append_batch(topic, 0, batch).expect("in order");
        ticket.wait().expect("durable")
    };
    let first: Vec<_> = (0..8).map(|sequence| send(&log, sequence)).collect();
    let log = seal(log, &sim);
    tidy(&log, NOW);
    let kept: Vec<i64> = segments(&sim)
        .values()
        .flatten()
        .filter(|header| header.producer_id == producer.id() && header.base_offset < 8)
        .map(|header| header.base_offset)
        .collect();
    assert_eq!(kept, [3, 4, 5, 6, 7], "its window of five, with records or without");
    assert_eq!(rows(&log, topic, 0, Isolation::ReadCommitted)[0], (7, "k".to_string(), Some("v".to_string())));
    let batch = batch_of(Compression::None, &[("k", Some("v"))]).build(stamp(5)).expect("built");
    let again = log.append_batch(topic, 0, batch).expect("a repeated batch").wait().expect("durable");
    assert_eq!(again, first[5], "a repeated batch gets its first answer");
    send(&log, 8);
}

/// KAFKA-8351: aborted records became visible because the cleaner forgot open transactions between groups of segments.
/// KAFKA-13727: the same when a round ended in the middle of a segment. Redpanda 15672: when compacted twice.
#[test]
fn incident_aborted_records_stay_invisible_over_segments_rounds_and_restarts() {
    for map_bytes in [64 * 2, 64 * 3, 64 * 1000] {
        let sim = SimPlatform::new(2);
        let log = open(&sim);
        let topic = compacted_topic(&log, &[("segment.bytes", "300")]);
        let owner = log.claim(&OWNER, 1).expect("claimed");
        let producer = log.producer().expect("a producer");
        let name = |n| TxnName { checkpoint: n, sink: "s".to_string(), writer: 0 };
        let mut undone = owner.begin(name(1)).expect("begun");
        for n in 0..12 {
            let value = format!("undone {n}");
            undone
                .append(topic, 0, &mut batch_of(Compression::None, &[("a", Some(&value)), ("b", Some("x"))]))
                .expect("ok");
            put(&producer, topic, &[(["a", "b", "c"][n % 3], Some(&format!("good {n}")))]);
        }
        undone.abort().expect("aborted");
        let mut second = owner.begin(name(2)).expect("begun");
        second.append(topic, 0, &mut batch_of(Compression::None, &[("c", Some("undone too"))])).expect("ok");
        second.abort().expect("aborted");
        let mut log = seal(log, &sim);
        for round in 0..12 {
            log.close().expect("closed");
            log = open_with(&sim, LogLimits { compaction_map_bytes: map_bytes, ..limits() });
            let shown = rows(&log, topic, 0, Isolation::ReadCommitted);
            let bad = shown.iter().find(|row| row.2.as_deref().is_some_and(|value| value.starts_with("undone")));
            assert_eq!(bad, None, "map of {map_bytes}, round {round}");
            tidy(&log, NOW + round * KEEP_MS);
        }
        let shown = rows(&log, topic, 0, Isolation::ReadCommitted);
        for (key, value) in [("a", "good 9"), ("b", "good 10"), ("c", "good 11")] {
            let last = shown.iter().rfind(|row| row.1 == key).and_then(|row| row.2.as_deref());
            assert_eq!(last, Some(value), "map of {map_bytes}");
        }
    }
}

#[test]
fn what_is_open_or_prepared_is_not_compacted_and_neither_is_what_lies_behind_it() {
    let sim = SimPlatform::new(1);
    let log = open(&sim);
    let topic = compacted_topic(&log, &[]);
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let producer = log.producer().expect("a producer");
    (0..10).for_each(|n| put(&producer, topic, &[("k", Some(&format!("{n}{}", "-".repeat(100))))]));
    let mut txn = owner.begin(TxnName { checkpoint: 1, sink: "s".to_string(), writer: 0 }).expect("begun");
    txn.append(topic, 0, &mut batch_of(Compression::None, &[("k", Some("prepared"))])).expect("appended");
    let prepared = txn.prepare().expect("prepared");
    let log = seal(log, &sim);
    let all = |log: &Log| rows(log, topic, 0, Isolation::ReadUncommitted);
    let before = all(&log);
    tidy(&log, NOW);
    let after = all(&log);
    assert_eq!(after.iter().filter(|row| row.0 >= 10).count(), before.iter().filter(|row| row.0 >= 10).count());
    assert!(after.len() < before.len());
    let owner = log.claim(&OWNER, 2).expect("claimed");
    owner.commit(&[prepared.id]).expect("committed");
    let log = seal(log, &sim);
    tidy(&log, NOW);
    let shown = rows(&log, topic, 0, Isolation::ReadCommitted);
    assert_eq!(
        shown.iter().filter(|row| row.1 == "k").map(|row| row.2.as_deref()).collect::<Vec<_>>(),
        [Some("prepared")]
    );
}

#[test]
fn a_fetch_below_many_emptied_segments_brings_a_record_nevertheless() {
    let sim = SimPlatform::new(1);
    let log = open(&sim);
    let topic = compacted_topic(&log, &[]);
    let producer = log.producer().expect("a producer");
    (0..30).for_each(|n| put(&producer, topic, &[("k", Some(&format!("{n}{}", "-".repeat(500))))]));
    log.expire(WallTime(i64::MAX)).expect("up");
    let log = seal(log, &sim);
    tidy(&log, NOW);
    assert!(segments(&sim).values().filter(|batches| batches.iter().all(|batch| batch.record_count == 0)).count() > 5);
    let at = cutwater_partition_log::TopicPartition::new(topic, 0);
    for from in [0, 7, 20] {
        let fetched = log.fetch(at, Offset(from), 1, Isolation::ReadCommitted).expect("readable");
        let mut rest = &fetched.buffers[0][..];
        let (mut counts, mut next) = (Vec::new(), None);
        while !rest.is_empty() {
            let header = BatchHeader::parse(rest).expect("a batch");
            assert!(next.is_none_or(|next| next == header.base_offset));
            next = Some(header.last_offset() + 1);
            counts.push(header.record_count);
            rest = &rest[header.total_bytes()..];
        }
        assert!(counts.len() > 1 && counts.pop() == Some(1) && counts.iter().all(|count| *count == 0), "{counts:?}");
    }
}

fn cut_off(arm: impl FnOnce(&SimPlatform)) -> (SimPlatform, Vec<Row>, u64) {
    let sim = SimPlatform::new(4);
    let log = eventful(&sim, 4, 60);
    let topic = log.topic("t").expect("there").id;
    let before = rows(&log, topic, 0, Isolation::ReadCommitted);
    let active = *segments(&sim).keys().last().expect("some");
    arm(&sim);
    let _ = log.tidy(WallTime(NOW));
    (sim, before, active)
}

/// After a crash each record that is newest is there, none is there that wasn't, and another pass comes to the same.
fn check(sim: &SimPlatform, before: &[Row], active: u64, story: &str) {
    let log = Log::open(&sim.platform(), Path::new(DIR), LogOptions { limits: limits(), ..LogOptions::default() });
    let log = log.unwrap_or_else(|e| panic!("{story}: doesn't recover: {e}"));
    let topic = log.topic("t").expect("acknowledged").id;
    let now = rows(&log, topic, 0, Isolation::ReadCommitted);
    let end = newest(before, active);
    assert!(end.iter().all(|row| now.contains(row)), "{story}: something newest is lost");
    assert!(now.iter().all(|row| before.contains(row)), "{story}: something is there that never was");
    same_tables(&log, topic, before, story);
    segments(sim);
    tidy(&log, NOW);
    assert_eq!(rows(&log, topic, 0, Isolation::ReadCommitted), end, "{story}: another pass");
    log.close().unwrap_or_else(|e| panic!("{story}: {e}"));
    assert_eq!(rows(&open(sim), topic, 0, Isolation::ReadCommitted), end, "{story}: reopened");
}

#[test]
fn a_crash_at_any_point_of_a_replacement_leaves_the_old_segments_or_the_new_one() {
    for point in ["compact.cleaned", "compact.swap-named", "compact.sources-removed", "compact.in-place"] {
        let (whole, ..) = cut_off(|_| {});
        let times = whole.crashes().reached().get(point).copied().unwrap_or(0);
        assert!(times >= 2, "{point} is reached {times} times");
        for nth in [1, times] {
            for policy in LossPolicy::ALL {
                let (sim, before, active) = cut_off(|sim| sim.power_off_at(point, nth));
                check(&sim.restart(policy), &before, active, &format!("{point} #{nth}, {policy:?}"));
            }
        }
    }
}

#[test]
fn a_crash_at_every_step_of_a_round_is_survived_and_so_is_one_of_the_recovery() {
    let mut first = 0;
    let (whole, ..) = cut_off(|sim| first = sim.disk().steps());
    let last = whole.disk().steps();
    assert!(last - first > 60, "{first} to {last}");
    for step in first + 1..=last {
        let policy = LossPolicy::ALL[step as usize % 10];
        let (sim, before, active) = cut_off(|sim| sim.disk().crash_at_step(step));
        let story = format!("step {step} of {first} to {last}, {policy:?}");
        check(&sim.restart(policy), &before, active, &story);
        if step % 5 == 0 {
            // The opening that finishes it is cut off as well.
            let second = sim.restart(policy);
            second.disk().crash_at_step(1 + step % 60);
            if let Ok(log) =
                Log::open(&second.platform(), Path::new(DIR), LogOptions { limits: limits(), ..LogOptions::default() })
            {
                let topic = log.topic("t").expect("acknowledged").id;
                let _ = log.consumer(topic, 0, Offset(0), Isolation::ReadCommitted).map(|mut c| c.poll(100).map(drop));
            }
            check(&second.restart(LossPolicy::Random), &before, active, &format!("{story}, and again"));
        }
    }
}
