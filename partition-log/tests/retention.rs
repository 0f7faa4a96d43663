//! Retention by time and by size, deletion of records, and what must never go: what is read, held back, or replayed.

mod log_support;

use std::path::Path;
use std::time::Duration;

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{
    FetchError, Isolation, Log, LogLimits, LogOptions, Offset, OffsetSpec, Producer, Tidied, TopicError, TopicId,
    TopicPartition, TxnName,
};
use cutwater_platform::{Files, Platform, WallTime};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{DIR, OWNER, open};

const DAY: i64 = 24 * 3600 * 1000;

fn set(log: &Log, settings: &[(&str, &str)]) {
    let all = settings.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string()));
    log.change_topic_settings("t", |known| known.extend(all)).expect("set");
}

/// One record of that time, in a batch of its own of about 200 bytes: five make a segment.
fn put(producer: &Producer, topic: TopicId, time: i64, value: &str) {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(time, None, Some(format!("{value:-<120}").as_bytes()), &[]).expect("fits");
    producer.append(topic, 0, &mut builder).expect("accepted").wait().expect("durable");
}

fn filled(sim: &SimPlatform, days: i64) -> (Log, TopicId) {
    let log = open(sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    let producer = log.producer().expect("a producer");
    for day in 0..days {
        for n in 0..5 {
            put(&producer, topic, day * DAY + n, &format!("{day}-{n}"));
        }
    }
    (log, topic)
}

fn start(log: &Log, topic: TopicId) -> u64 {
    log.offsets(topic, 0).expect("exists").log_start.0
}

/// Everything from the start on, as offset and value's first word.
fn rest(log: &Log, topic: TopicId, isolation: Isolation) -> Vec<(u64, String)> {
    let from = Offset(start(log, topic));
    let mut consumer = log.consumer(topic, 0, from, isolation).expect("exists");
    let mut seen = Vec::new();
    loop {
        let before = consumer.position();
        let fetched = consumer.poll(500).unwrap_or_else(|e| panic!("at {before}: {e}"));
        let each = |record: cutwater_partition_log::batch::RecordRef<'_>| {
            let value = String::from_utf8_lossy(record.value.expect("a value")).into_owned();
            seen.push((record.offset as u64, value.trim_end_matches('-').to_string()));
        };
        fetched.for_each(each).expect("decodable");
        if consumer.position() == before {
            return seen;
        }
    }
}

/// What a topic of so many days shows from an offset on.
fn days_from(offset: u64, days: i64) -> Vec<(u64, String)> {
    let all = (0..days as u64 * 5).map(|n| (n, format!("{}-{}", n / 5, n % 5)));
    all.filter(|(n, _)| *n >= offset).collect()
}

/// The first offsets of the segments on the disk.
fn bases(sim: &SimPlatform) -> Vec<u64> {
    let entries = sim.disk().read_dir(&Path::new(DIR).join("partitions/t-0")).expect("listed");
    entries.iter().filter_map(|entry| entry.name.strip_suffix(".log")?.parse().ok()).collect()
}

fn tidy(log: &Log, now: i64) -> Tidied {
    let tidied = log.tidy(WallTime(now)).expect("the log is up");
    assert!(tidied.failed.is_empty(), "{tidied:?}");
    tidied
}

#[test]
fn segments_go_by_the_time_of_their_youngest_record_and_a_reader_below_the_start_is_told_where_it_is() {
    let sim = SimPlatform::new(1);
    let (log, topic) = filled(&sim, 10);
    let before = bases(&sim);
    assert!(before.len() >= 8, "{before:?}");
    assert_eq!(tidy(&log, 100 * DAY).segments_removed, 0, "without a setting nothing goes, however old");
    set(&log, &[("retention.ms", &(3 * DAY).to_string())]);
    let tidied = tidy(&log, 9 * DAY);
    let from = start(&log, topic);
    // The records of day 6 and later are young enough; at most one segment of older ones is kept by a young one in it.
    assert!((26..=30).contains(&from), "{from}");
    assert_eq!((tidied.starts_moved, tidied.passes, tidied.last_pass), (1, 1, Some(WallTime(9 * DAY))));
    assert_eq!(bases(&sim).first(), Some(&from), "the files are gone");
    assert_eq!(tidied.segments_removed as usize, before.iter().filter(|base| **base < from).count());
    assert!(tidied.bytes_removed > 150 * from);
    assert_eq!(rest(&log, topic, Isolation::ReadCommitted), days_from(from, 10));
    let mut late = log.consumer(topic, 0, Offset(3), Isolation::ReadCommitted).expect("exists");
    assert!(matches!(late.poll(100), Err(FetchError::OutOfRange { start, .. }) if start == Offset(from)));
    let found = log.find_offset(topic, 0, OffsetSpec::Time(0), Isolation::ReadCommitted).expect("readable");
    assert_eq!(found.map(|found| found.offset), Some(Offset(from)));
    assert_eq!(tidy(&log, 9 * DAY).starts_moved, 0, "once is enough");
    log.close().expect("closed");
    let log = open(&sim).expect("opens");
    assert_eq!((start(&log, topic), rest(&log, topic, Isolation::ReadCommitted)), (from, days_from(from, 10)));
}

#[test]
fn when_everything_is_too_old_the_active_segment_is_sealed_and_goes_in_the_next_pass() {
    let sim = SimPlatform::new(1);
    let (log, topic) = filled(&sim, 4);
    set(&log, &[("retention.ms", "1000")]);
    tidy(&log, 100 * DAY);
    let left = start(&log, topic);
    assert!(left > 0 && left < 20, "the active segment stays at first: {left}");
    put(&log.producer().expect("a producer"), topic, 100 * DAY, "young");
    tidy(&log, 100 * DAY);
    assert_eq!(rest(&log, topic, Isolation::ReadCommitted), [(20, "young".to_string())]);
    assert_eq!(start(&log, topic), 20);
}

#[test]
fn the_front_goes_while_enough_bytes_are_left() {
    let sim = SimPlatform::new(1);
    let (log, topic) = filled(&sim, 10);
    set(&log, &[("retention.bytes", "3000")]);
    tidy(&log, 0);
    let from = start(&log, topic);
    let bytes = |base: u64| {
        let path = Path::new(DIR).join(format!("partitions/t-0/{base:020}.log"));
        sim.disk().read(&path, u64::MAX).expect("readable").len()
    };
    let left: usize = bases(&sim).into_iter().map(bytes).sum();
    assert!((3_000..4_100).contains(&left), "{left} bytes are left");
    assert_eq!(rest(&log, topic, Isolation::ReadCommitted), days_from(from, 10));
}

#[test]
fn what_an_open_or_prepared_transaction_holds_back_stays_until_it_ends() {
    let sim = SimPlatform::new(1);
    let (log, topic) = filled(&sim, 3);
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let mut txn = owner.begin(TxnName { checkpoint: 1, sink: "s".to_string(), writer: 0 }).expect("begun");
    txn.append(topic, 0, &mut log_support::batch(&["held".to_string()])).expect("appended");
    let prepared = txn.prepare().expect("prepared");
    let producer = log.producer().expect("a producer");
    for n in 0..30 {
        put(&producer, topic, 3 * DAY, &format!("behind-{n}"));
    }
    set(&log, &[("retention.ms", "1"), ("retention.bytes", "0")]);
    tidy(&log, 1_000 * DAY);
    let stable = log.offsets(topic, 0).expect("exists").last_stable.0;
    assert_eq!(stable, 15);
    assert!(start(&log, topic) <= stable && start(&log, topic) >= 10, "{}", start(&log, topic));
    // Deletion by hand may move the start further, but the files stay.
    log.delete_records(TopicPartition::new(topic, 0), Some(Offset(40))).expect("moved");
    tidy(&log, 1_000 * DAY);
    assert!(bases(&sim)[0] <= 15, "{:?}", bases(&sim));
    owner.commit(&[prepared.id]).expect("committed");
    tidy(&log, 1_000 * DAY);
    assert!(bases(&sim)[0] > 30, "{:?}", bases(&sim));
}

#[test]
fn deleted_records_give_their_disk_space_back_with_the_next_pass() {
    let sim = SimPlatform::new(1);
    let (log, topic) = filled(&sim, 10);
    let before = bases(&sim);
    let deleted = log.delete_records(TopicPartition::new(topic, 0), Some(Offset(33))).expect("moved");
    assert_eq!(deleted, Offset(33));
    assert_eq!(bases(&sim), before, "the start alone");
    let tidied = tidy(&log, 0);
    assert_eq!((start(&log, topic), tidied.starts_moved), (33, 0), "inside a segment: that stays");
    assert!(bases(&sim)[0] <= 33 && bases(&sim)[1] > 33, "{:?}", bases(&sim));
    assert_eq!(rest(&log, topic, Isolation::ReadCommitted), days_from(33, 10));
    assert_eq!(log.tidied().segments_removed, tidied.segments_removed);
}

#[test]
fn a_topics_own_segment_size_and_age_count_and_what_is_no_value_is_refused() {
    let sim = SimPlatform::new(1);
    let log = open(&sim).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    set(&log, &[("segment.bytes", "400"), ("segment.ms", "1000")]);
    let producer = log.producer().expect("a producer");
    (0..6).for_each(|n| put(&producer, topic, 0, &n.to_string()));
    log.close().expect("closed");
    assert_eq!(bases(&sim), [0, 2, 4], "two batches each");
    let log = open(&sim).expect("opens");
    put(&log.producer().expect("a producer"), topic, 5_000, "6");
    log.close().expect("closed");
    let log = open(&sim).expect("opens");
    tidy(&log, 6_000);
    tidy(&log, 6_001);
    log.close().expect("closed");
    assert_eq!(bases(&sim), [0, 2, 4, 6, 7], "full by size, and then too old to be written to");
    let log = open(&sim).expect("opens");
    let refused = log.change_topic_settings("t", |all| _ = all.insert("retention.ms".to_string(), "soon".to_string()));
    assert!(matches!(refused, Err(TopicError::Setting { .. })), "{refused:?}");
}

/// Whatever is there after a crash: the start is an old one or the new one, and everything from there on.
fn check(sim: &SimPlatform, least: u64, story: &str) {
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: doesn't recover: {e}"));
    let topic = log.topic("t").expect("acknowledged").id;
    let from = start(&log, topic);
    assert!(from >= least, "{story}: the start went back to {from}");
    assert_eq!(rest(&log, topic, Isolation::ReadCommitted), days_from(from, 10), "{story}");
    let mut all = log.consumer(topic, 0, Offset(0), Isolation::ReadUncommitted).expect("exists");
    assert!(from == 0 || all.poll(100).is_err(), "{story}: something below the start is served");
    // The pass is done again, and then nothing is left of what can't be read.
    tidy(&log, 9 * DAY);
    let now = start(&log, topic);
    assert!((26..=30).contains(&now), "{story}: {now}");
    assert_eq!(bases(sim)[0], now, "{story}");
    log.close().unwrap_or_else(|e| panic!("{story}: {e}"));
    let log = open(sim).unwrap_or_else(|e| panic!("{story}: closed, doesn't open: {e}"));
    assert_eq!(rest(&log, topic, Isolation::ReadCommitted), days_from(now, 10), "{story}: closed");
}

/// Fills a log, lets `arm` prepare the crash, tidies until it strikes.
fn cut_off(arm: impl FnOnce(&SimPlatform)) -> SimPlatform {
    let sim = SimPlatform::new(5);
    let (log, _) = filled(&sim, 10);
    set(&log, &[("retention.ms", &(3 * DAY).to_string())]);
    arm(&sim);
    let _ = log.tidy(WallTime(9 * DAY));
    sim
}

#[test]
fn a_crash_at_any_point_of_a_pass_loses_nothing_above_the_start_and_the_next_pass_finishes_it() {
    for (point, visits) in [
        ("log.start-moved", 1),
        ("log.segment-synced", 1),
        ("log.base-image-written", 1),
        ("log.base-image-published", 1),
        ("segment.removed", 5),
    ] {
        for nth in 1..=visits {
            for policy in LossPolicy::ALL {
                let sim = cut_off(|sim| sim.power_off_at(point, nth));
                let reached = sim.crashes().reached().get(point).copied().unwrap_or(0);
                assert!(reached >= nth, "{point} is reached {reached} times");
                let least = if point == "segment.removed" { 26 } else { 0 };
                check(&sim.restart(policy), least, &format!("{point} #{nth}, {policy:?}"));
            }
        }
    }
}

#[test]
fn a_crash_at_every_step_of_a_pass_is_survived() {
    let steps = |sim: &SimPlatform| sim.disk().steps();
    let mut before = 0;
    let whole = cut_off(|sim| before = steps(sim));
    let (first, last) = (before + 1, steps(&whole));
    assert!(last - first > 30, "{first} to {last}");
    for step in first..=last {
        let policies = [LossPolicy::ALL[step as usize % 10], LossPolicy::ALL[(step as usize * 3 + 1) % 10]];
        for policy in policies {
            let sim = cut_off(|sim| sim.disk().crash_at_step(step));
            check(&sim.restart(policy), 0, &format!("step {step} of {first} to {last}, {policy:?}"));
        }
    }
}

/// apache/iggy 4063 and 4128: deleted offsets came back after a power cut, since names were unlinked and never synced.
#[test]
fn incident_segments_that_a_power_cut_brings_back_are_not_served_and_go_again() {
    let sim = cut_off(|_| {});
    let gone = bases(&sim);
    let after = sim.restart(LossPolicy::NamesLost);
    assert!(bases(&after).len() > gone.len(), "the unlinked names are back: {:?}", bases(&after));
    check(&after, 26, "names lost");
}

/// Redpanda 7544 and 7458: the last stable offset went below the start, or back.
#[test]
fn incident_the_last_stable_offset_never_lies_below_the_start() {
    let sim = SimPlatform::new(1);
    let (log, topic) = filled(&sim, 3);
    let owner = log.claim(&OWNER, 1).expect("claimed");
    let mut txn = owner.begin(TxnName { checkpoint: 1, sink: "s".to_string(), writer: 0 }).expect("begun");
    txn.append(topic, 0, &mut log_support::batch(&["open".to_string()])).expect("appended");
    put(&log.producer().expect("a producer"), topic, 0, "behind");
    log.delete_records(TopicPartition::new(topic, 0), None).expect("moved");
    tidy(&log, 0);
    let offsets = log.offsets(topic, 0).expect("exists");
    assert_eq!((offsets.log_start.0, offsets.last_stable.0, offsets.high_watermark.0), (17, 17, 17));
    txn.commit().expect("committed");
    assert_eq!(log.offsets(topic, 0).expect("exists").last_stable.0, 18);
}

#[test]
fn the_task_tidies_by_itself_beside_producers_and_readers() {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = LogLimits { janitor_every: Duration::from_millis(20), ..LogLimits::tiny() };
    let log = Log::open(&Platform::real(), dir.path(), LogOptions { limits, ..LogOptions::default() }).expect("opens");
    let topic = log.create_topic("t", 1).expect("created");
    set(&log, &[("retention.bytes", "5000")]);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let producer = log.producer().expect("a producer");
            for n in 0..100_000 {
                put(&producer, topic, 0, &n.to_string());
                if log.tidied().segments_removed > 20 {
                    return true;
                }
            }
            false
        });
        let mut consumer = log.consumer(topic, 0, Offset(0), Isolation::ReadCommitted).expect("exists");
        let mut last = None;
        while !writing.is_finished() {
            let from = consumer.position();
            match consumer.poll(2_000) {
                Ok(fetched) => {
                    let each = |record: cutwater_partition_log::batch::RecordRef<'_>| {
                        assert!(last < Some(record.offset) && record.offset as u64 >= from.0);
                        last = Some(record.offset);
                        let value = String::from_utf8_lossy(record.value.expect("a value")).into_owned();
                        assert_eq!(value.trim_end_matches('-'), record.offset.to_string());
                    };
                    fetched.for_each(each).expect("decodable");
                }
                Err(FetchError::OutOfRange { start, .. }) => consumer.seek(start.max(Offset(from.0 + 1))),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(writing.join().expect("no panic"), "the janitor never came");
    });
    log.close().expect("closed");
}
