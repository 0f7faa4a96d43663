//! What the disk gives back isn't what was written: a torn tail is cut, everything else is refused, nothing is overwritten.

mod log_support;

use std::path::{Path, PathBuf};

use cutwater_partition_log::{Isolation, Log, Offset, OpenError};
use cutwater_platform::{BLOCK_BYTES, Files};
use cutwater_testkit::SimPlatform;
use log_support::{DIR, Driver, Op, open, surviving_prefix, tiny};

/// A log that was killed after some appends and a prepared transaction, and its facts.
fn killed() -> (SimPlatform, Driver) {
    let sim = SimPlatform::new(3);
    let mut driver = Driver::new(open(&sim).expect("opens"), Vec::new());
    let append = Op::TxnAppend { slot: 0, topic: 0, partition: 1, count: 2 };
    let plain = Op::Plain { topic: 0, partition: 0, count: 2 };
    for op in [Op::Topic(2), Op::Claim, plain.clone(), Op::Begin, append, Op::Prepare(0), plain] {
        driver.run(&op).expect("the disk is sound");
    }
    (sim, driver)
}

fn wal_files(files: &dyn Files) -> Vec<PathBuf> {
    let dir = Path::new(DIR).join("wal");
    files.read_dir(&dir).expect("listed").into_iter().map(|entry| dir.join(entry.name)).collect()
}

/// The frames of a file: offset and bytes without padding.
fn frames(files: &dyn Files, path: &Path) -> Vec<(u64, usize)> {
    let bytes = files.read(path, u64::MAX).expect("readable");
    let mut frames = Vec::new();
    for offset in (BLOCK_BYTES..bytes.len()).step_by(BLOCK_BYTES) {
        if &bytes[offset..offset + 4] == b"CWFR" {
            let len = u32::from_le_bytes(bytes[offset + 8..offset + 12].try_into().expect("four bytes"));
            frames.push((offset as u64, 48 + len as usize));
        }
    }
    frames
}

#[test]
fn a_tail_torn_at_any_byte_of_the_last_frame_is_cut_and_nothing_else_is_lost() {
    let (sim, driver) = killed();
    let (facts, all) = (driver.facts.clone(), driver.facts.len());
    drop(driver);
    let dead = sim.kill();
    let path = wal_files(&*dead.platform().files).pop().expect("a file");
    let (offset, len) = *frames(&*dead.platform().files, &path).last().expect("a frame");
    let bytes = dead.platform().files.read(&path, u64::MAX).expect("readable");
    for cut in 0..len {
        for filler in [0, 0xA5] {
            let sim = SimPlatform::on(dead.disk().fork(), 5);
            let rest = vec![filler; len - cut];
            let same = bytes[offset as usize + cut..offset as usize + len] == rest[..];
            sim.disk().corrupt(&path, offset + cut as u64, &rest);
            let log = open(&sim).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let n = surviving_prefix(&log, &facts, all - 1, &format!("cut at {cut}"));
            assert_eq!(n, if same { all } else { all - 1 }, "cut at {cut}");
            // The next life isn't disturbed by what is left of the torn frame.
            let mut driver = Driver::new(log, facts[..n].to_vec());
            driver.run(&Op::Claim).expect("usable");
            driver.run(&Op::Plain { topic: 0, partition: 0, count: 1 }).expect("usable");
            let facts = driver.facts.clone();
            drop(driver);
            let log = open(&sim.kill()).expect("recovers");
            assert_eq!(surviving_prefix(&log, &facts, facts.len(), "again"), facts.len());
        }
    }
}

#[test]
fn damage_before_the_last_frame_is_refused_and_nothing_is_changed() {
    let (sim, driver) = killed();
    drop(driver);
    let dead = sim.kill();
    let path = wal_files(&*dead.platform().files).pop().expect("a file");
    let frames = frames(&*dead.platform().files, &path);
    assert!(frames.len() >= 4, "{frames:?}");
    for (offset, len) in &frames[..frames.len() - 1] {
        for byte in [0, 5, 9, 17, 33, 45, len / 2, len - 1] {
            let sim = SimPlatform::on(dead.disk().fork(), 5);
            sim.disk().flip_bit(&path, offset + byte as u64, 3);
            let before = sim.platform().files.read(&path, u64::MAX).expect("readable");
            let error = open(&sim).expect_err("refused");
            assert!(matches!(error, OpenError::Corrupt { .. }), "frame at {offset}, byte {byte}: {error}");
            assert_eq!(sim.platform().files.read(&path, u64::MAX).expect("readable"), before);
        }
    }
}

#[test]
fn a_damaged_header_or_base_image_or_a_missing_file_is_refused() {
    let (sim, driver) = killed();
    drop(driver);
    let dead = sim.kill();
    let files = dead.platform().files;
    let path = wal_files(&*files).pop().expect("a file");
    let base = Path::new(DIR).join("base");
    let base = base.join(&files.read_dir(&base).expect("listed").last().expect("an image").name);
    for (path, byte) in [(&path, 0), (&path, 17), (&path, 40), (&base, 3), (&base, 20), (&base, 50)] {
        let sim = SimPlatform::on(dead.disk().fork(), 5);
        sim.disk().flip_bit(path, byte, 1);
        let error = open(&sim).expect_err("refused");
        assert!(matches!(error, OpenError::Corrupt { .. }), "{}, byte {byte}: {error}", path.display());
    }
    for path in [&path, &base] {
        let sim = SimPlatform::on(dead.disk().fork(), 5);
        sim.platform().files.remove_file(path).expect("removed");
        let newest_only = path == &base && wal_files(&*sim.platform().files).is_empty();
        assert!(!newest_only);
        let error = open(&sim).expect_err("refused");
        assert!(matches!(error, OpenError::Corrupt { .. }), "without {}: {error}", path.display());
    }
}

#[test]
fn a_newer_format_is_named_and_left_alone() {
    let (sim, driver) = killed();
    drop(driver);
    let dead = sim.kill();
    let files = dead.platform().files;
    let base = Path::new(DIR).join("base");
    let base = base.join(&files.read_dir(&base).expect("listed").last().expect("an image").name);
    for path in [wal_files(&*files).pop().expect("a file"), base] {
        let sim = SimPlatform::on(dead.disk().fork(), 5);
        sim.disk().corrupt(&path, 8, &9u32.to_le_bytes());
        let error = open(&sim).expect_err("refused");
        assert!(matches!(error, OpenError::Newer { found: 9, .. }), "{error}");
    }
}

#[test]
fn limits_that_contradict_each_other_are_named_before_anything_is_touched() {
    let sim = SimPlatform::new(1);
    let mut options = tiny();
    options.limits.wal_file_bytes = 4096;
    let error = Log::open(&sim.platform(), Path::new(DIR), options).expect_err("refused");
    assert!(matches!(error, OpenError::Limits { .. }), "{error}");
    assert!(!sim.platform().files.exists(Path::new(DIR)).expect("looked"));
}

#[test]
fn a_log_without_its_segments_is_not_taken_for_an_empty_one() {
    let sim = SimPlatform::new(3);
    let mut driver = Driver::new(open(&sim).expect("opens"), Vec::new());
    for op in [Op::Topic(1), Op::Claim, Op::Plain { topic: 0, partition: 0, count: 2 }] {
        driver.run(&op).expect("the disk is sound");
    }
    driver.log.close().expect("clean");
    drop(driver);
    let files = sim.platform().files;
    let dir = Path::new(DIR).join("partitions/topic-0-0");
    for entry in files.read_dir(&dir).expect("listed") {
        files.remove_file(&dir.join(entry.name)).expect("removed");
    }
    let log = open(&sim).expect("the write-ahead log itself is sound");
    let topic = log.topics()[0].id;
    let mut consumer = log.consumer(topic, 0, Offset::ZERO, Isolation::ReadUncommitted).expect("exists");
    assert!(consumer.poll(1000).is_err(), "missing records are an error, not silence");
}
