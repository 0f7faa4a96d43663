//! Looking for records by time: in segments with damaged and missing indexes, and in a running log under both isolations.

mod log_support;
mod segment_support;

use std::io::IoSlice;

use cutwater_partition_log::batch::{BatchBuilder, BatchHeader, Compression, ProducerStamp, assign};
use cutwater_partition_log::segment::{LogEnd, PartitionFiles, SegmentConfig};
use cutwater_partition_log::{Isolation, Log, LogLimits, LogOptions, Offset, OffsetSpec, OwnerId, TopicId, TxnName};
use cutwater_platform::{Files, OsFiles, Platform};
use cutwater_testkit::SimPlatform;
use segment_support::Dir;

const SMALL: SegmentConfig = SegmentConfig { segment_bytes: 4_000, index_interval_bytes: 300 };

/// Times go up in waves, stand still, and fall back.
fn time_of(record: i64) -> i64 {
    match record % 10 {
        0..6 => record * 100,
        6..9 => 0,
        _ => (record - 7) * 100,
    }
}

/// Fills a partition; answers the time of each record.
fn fill(files: &PartitionFiles, batches: i64) -> Vec<i64> {
    let mut times = Vec::new();
    for number in 0..batches {
        let mut builder = BatchBuilder::new(Compression::ALL[(number % 5) as usize]);
        let base = times.len() as i64;
        for record in base..base + number % 4 + 1 {
            builder.push(time_of(record), None, Some(&[7; 60]), &[]).expect("small");
            times.push(time_of(record));
        }
        let mut batch = builder.build(ProducerStamp::NONE).expect("not empty");
        assign(&mut batch, base, 0);
        let last = BatchHeader::parse(&batch).expect("a batch").last_offset();
        let mut end = files.end().expect("known");
        if files.config().must_roll(&end, batch.len() as u64, last) {
            end = files.roll(end.next_offset, b"producers").expect("rolled");
        }
        files.write(end.position(), &[IoSlice::new(&batch)]).expect("written");
    }
    times
}

/// Every question, by the plainest search.
fn check(files: &PartitionFiles, times: &[i64]) {
    let end = times.len() as i64;
    for time in (0..=end * 100 + 50).step_by(50) {
        let plain = times.iter().position(|found| *found >= time).map(|at| (at as i64, times[at]));
        assert_eq!(files.first_at_or_after(time, end).expect("sound"), plain, "time {time}");
    }
    let whole: Vec<i64> = segment_support::offsets_of(&read_all(files)).iter().map(|(_, last)| last + 1).collect();
    for below in whole {
        let plain = times[..below as usize].iter().max().copied();
        assert_eq!(files.largest_timestamp(below).expect("sound"), plain, "below {below}");
        let late = files.first_at_or_after(plain.expect("records") + 1, below).expect("sound");
        assert_eq!(late, None, "nothing at or above the bound {below} is found");
    }
}

fn read_all(files: &PartitionFiles) -> Vec<u8> {
    let (mut all, end) = (Vec::new(), files.end().expect("known").next_offset);
    let mut next = 0;
    while next < end {
        let bytes = files.read(next, usize::MAX, end).expect("sound");
        next = segment_support::offsets_of(&bytes).last().expect("not empty").1 + 1;
        all.extend(bytes);
    }
    all
}

fn times_name(base: i64) -> String {
    format!("{base:020}.timeindex")
}

#[test]
fn every_time_is_found_by_the_index_as_by_reading_everything() {
    let dir = Dir::new();
    let files = dir.open(SMALL);
    let times = fill(&files, 150);
    assert!(files.segment_bases().len() > 4);
    check(&files, &times);
    files.close().expect("synced");
    let again = dir.reopen(SMALL);
    again.truncate_to(files.end().expect("known")).expect("nothing to cut");
    check(&again, &times);
    check(&dir.open_view(SMALL, &files), &times);
}

#[test]
fn a_missing_or_lying_time_index_misleads_nobody_and_is_built_anew_as_it_was() {
    let dir = Dir::new();
    let files = dir.open(SMALL);
    let times = fill(&files, 150);
    files.close().expect("synced");
    let (end, bases) = (files.end().expect("known"), files.segment_bases());
    let lies: [&dyn Fn(Vec<u8>) -> Option<Vec<u8>>; 5] = [
        &|_| None,
        &|_| Some(Vec::new()),
        &|bytes| Some(vec![0; bytes.len()]),
        &|mut bytes| {
            bytes.iter_mut().skip(5).step_by(12).for_each(|byte| *byte ^= 0x11);
            Some(bytes)
        },
        &|mut bytes| {
            bytes.iter_mut().skip(11).step_by(12).for_each(|byte| *byte = byte.wrapping_add(1));
            Some(bytes)
        },
    ];
    for (number, lie) in lies.iter().enumerate() {
        let other = Dir::new();
        dir.copy_to(&other);
        for base in &bases {
            match lie(dir.read(&times_name(*base))) {
                Some(bytes) => other.write(&times_name(*base), &bytes),
                None => OsFiles.remove_file(&other.path().join(times_name(*base))).expect("removed"),
            }
        }
        let files = other.reopen(SMALL);
        files.truncate_to(end).expect("nothing is lost");
        check(&files, &times);
        files.close().expect("synced");
        for base in &bases {
            assert_eq!(other.read(&times_name(*base)), dir.read(&times_name(*base)), "lie {number}, segment {base}");
        }
    }
}

#[test]
fn a_cut_and_a_replay_come_to_the_same_time_indexes() {
    let (dir, whole) = (Dir::new(), Dir::new());
    let files = whole.open(SMALL);
    fill(&files, 60);
    files.close().expect("synced");
    let files = dir.open(SMALL);
    let mut ends = vec![LogEnd::default()];
    for _ in 0..3 {
        let all = read_all_of(&whole, SMALL);
        for (bytes, base) in &all {
            let end = files.end().expect("known");
            if *base < end.next_offset {
                continue;
            }
            let batch = BatchHeader::parse(bytes).expect("a batch");
            if files.config().must_roll(&end, bytes.len() as u64, batch.last_offset()) {
                files.roll(*base, b"producers").expect("rolled");
            }
            let end = files.end().expect("known");
            files.write(end.position(), &[IoSlice::new(bytes)]).expect("written");
            ends.push(files.end().expect("known"));
        }
        // Back to some place, and again from there.
        files.sync_paced(|| {}).expect("synced");
        files.truncate_to(ends[ends.len() / 2]).expect("cut");
        ends.truncate(ends.len() / 2 + 1);
    }
    for (bytes, base) in read_all_of(&whole, SMALL) {
        let end = files.end().expect("known");
        if base >= end.next_offset {
            let last = BatchHeader::parse(&bytes).expect("a batch").last_offset();
            if files.config().must_roll(&end, bytes.len() as u64, last) {
                files.roll(base, b"producers").expect("rolled");
            }
            files.write(files.end().expect("known").position(), &[IoSlice::new(&bytes)]).expect("written");
        }
    }
    files.close().expect("synced");
    assert_eq!(dir.names(), whole.names());
    for name in whole.names() {
        assert_eq!(dir.read(&name), whole.read(&name), "{name}");
    }
}

/// The batches of a closed partition, with their offsets.
fn read_all_of(dir: &Dir, config: SegmentConfig) -> Vec<(Vec<u8>, i64)> {
    let files = dir.reopen(config);
    let last = files.segment_bases().last().copied().expect("a segment");
    let scan = files.scan_segment(last).expect("scanned");
    files.view_to(scan.end).expect("whole");
    let all = read_all(&files);
    let mut rest = &all[..];
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let header = BatchHeader::parse(rest).expect("a batch");
        batches.push((rest[..header.total_bytes()].to_vec(), header.base_offset));
        rest = &rest[header.total_bytes()..];
    }
    batches
}

fn batch(times: &[i64]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Compression::None);
    for time in times {
        builder.push(*time, None, Some(&[1; 50]), &[]).expect("small");
    }
    builder
}

fn find(log: &Log, topic: TopicId, spec: OffsetSpec, isolation: Isolation) -> Option<(u64, Option<i64>)> {
    let found = log.find_offset(topic, 0, spec, isolation).expect("sound");
    found.map(|found| (found.offset.0, found.timestamp_ms))
}

#[test]
fn an_open_transaction_hides_what_lies_behind_it_from_committed_look_ups_alone() {
    use Isolation::{ReadCommitted, ReadUncommitted};
    use OffsetSpec::{Earliest, Latest, MaxTimestamp, Time};
    let sim = SimPlatform::new(3);
    let log = log_support::open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    for isolation in [ReadCommitted, ReadUncommitted] {
        assert_eq!(find(&log, topic, Earliest, isolation), Some((0, None)));
        assert_eq!(find(&log, topic, Latest, isolation), Some((0, None)));
        assert_eq!(find(&log, topic, MaxTimestamp, isolation), None);
        assert_eq!(find(&log, topic, Time(0), isolation), None);
    }
    let producer = log.producer().expect("up");
    producer.append(topic, 0, &mut batch(&[100, 300, 200])).expect("taken").wait().expect("durable");
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let name = |checkpoint| TxnName { checkpoint, sink: "s".to_string(), writer: 0 };
    let mut txn = owner.begin(name(1)).expect("begun");
    txn.append(topic, 0, &mut batch(&[400, 500])).expect("taken");
    producer.append(topic, 0, &mut batch(&[600])).expect("taken").wait().expect("durable");
    assert_eq!(find(&log, topic, Latest, ReadCommitted), Some((3, None)));
    assert_eq!(find(&log, topic, Latest, ReadUncommitted), Some((6, None)));
    assert_eq!(find(&log, topic, Time(350), ReadCommitted), None);
    assert_eq!(find(&log, topic, Time(350), ReadUncommitted), Some((3, Some(400))));
    assert_eq!(find(&log, topic, MaxTimestamp, ReadCommitted), Some((1, Some(300))));
    assert_eq!(find(&log, topic, MaxTimestamp, ReadUncommitted), Some((5, Some(600))));
    assert_eq!(find(&log, topic, Time(150), ReadCommitted), Some((1, Some(300))));
    txn.abort().expect("aborted");
    // The records of an aborted transaction count, as in Kafka: reading from there shows what is younger.
    assert_eq!(find(&log, topic, Time(350), ReadCommitted), Some((3, Some(400))));
    let missing = log.find_offset(topic, 1, Latest, ReadCommitted).expect_err("no such partition");
    assert!(missing.to_string().contains('1'), "{missing}");
}

#[test]
fn times_are_found_wherever_the_records_are_in_memory_in_segments_and_after_a_restart() {
    let sim = SimPlatform::new(5);
    let log = log_support::open(&sim).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let producer = log.producer().expect("up");
    let mut times = Vec::new();
    let check = |log: &Log, times: &[i64]| {
        for time in (0..times.len() as i64 * 100 + 100).step_by(150) {
            let plain = times.iter().position(|found| *found >= time).map(|at| (at as u64, Some(times[at])));
            assert_eq!(find(log, topic, OffsetSpec::Time(time), Isolation::ReadCommitted), plain, "time {time}");
        }
        let largest = times.iter().max().copied();
        let plain = times.iter().position(|found| Some(*found) == largest).map(|at| (at as u64, largest));
        assert_eq!(find(log, topic, OffsetSpec::MaxTimestamp, Isolation::ReadUncommitted), plain);
    };
    for round in 0..40 {
        let new: Vec<i64> = (0..3).map(|n| time_of(round * 3 + n)).collect();
        producer.append(topic, 0, &mut batch(&new)).expect("taken").wait().expect("durable");
        times.extend(new);
        if round % 8 == 0 {
            check(&log, &times);
        }
    }
    check(&log, &times);
    drop((log, producer));
    let log = log_support::open(&sim).expect("recovered");
    check(&log, &times);
    log.close().expect("closed");
    check(&log_support::open(&sim).expect("opened"), &times);
}

#[test]
fn a_client_that_leaves_the_largest_timestamp_unset_is_put_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() };
    let log = Log::open(&Platform::real(), dir.path(), options).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let mut sent = batch(&[70, 90, 80]).build(ProducerStamp::NONE).expect("built");
    sent[35..43].copy_from_slice(&(-1i64).to_be_bytes());
    let crc = crc_of(&sent);
    sent[17..21].copy_from_slice(&crc.to_be_bytes());
    log.append_batch(topic, 0, sent).expect("taken").wait().expect("durable");
    assert_eq!(find(&log, topic, OffsetSpec::Time(75), Isolation::ReadCommitted), Some((1, Some(90))));
    let mut consumer = log.consumer(topic, 0, Offset::ZERO, Isolation::ReadCommitted).expect("exists");
    let fetched = consumer.poll(1000).expect("there");
    let header = BatchHeader::parse(fetched.batches().next().expect("a batch")).expect("sound");
    assert_eq!(header.max_timestamp_ms, 90);
}

/// CRC-32C of a batch, one bit at a time.
fn crc_of(batch: &[u8]) -> u32 {
    !batch[21..].iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}
