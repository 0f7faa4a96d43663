//! Replay of files that were put together frame by frame: what continues the log, what ends it, what is damage.

use std::path::Path;
use std::sync::Arc;

use cutwater_platform::{BLOCK_BYTES, Files};
use cutwater_testkit::SimDisk;

use super::frame::{Entry, FileHeader, FrameBuilder, Generation};
use super::replay::{End, scan};
use super::ring::{Ring, Slot};
use crate::error::OpenError;

const BLOCK: u64 = BLOCK_BYTES as u64;
const FIRST: Generation = Generation { number: 1, nonce: 11 };
const SECOND: Generation = Generation { number: 2, nonce: 22 };

fn header(generation: Generation, start: u64, previous: u64, previous_end: u64) -> FileHeader {
    FileHeader { generation, start, previous, previous_end, durable: previous_end }
}

/// The files of a log, with frames in them that each hold one entry with a number.
struct Pieces {
    disk: Arc<dyn Files>,
    slots: Vec<Slot>,
}

impl Pieces {
    fn new() -> Pieces {
        let disk: Arc<dyn Files> = Arc::new(SimDisk::new());
        disk.create_dir(Path::new("wal")).expect("created");
        Pieces { disk, slots: Vec::new() }
    }

    /// Adds a file with this header; its number.
    fn file(&mut self, header: FileHeader) -> usize {
        let dir = Path::new("wal");
        for slot in &mut self.slots {
            slot.holds = Some((0, 0));
        }
        let started = Ring::start(self.disk.clone(), dir, self.slots.clone(), header, 16 * BLOCK, 16 * BLOCK_BYTES);
        drop(started.expect("started"));
        self.slots = scan(&self.disk, dir).expect("readable").slots;
        self.slots.len() - 1
    }

    /// Writes the frame of `generation` that says it stands at `position` into block `block` of a file.
    fn frame(&self, file: usize, block: u64, generation: Generation, position: u64, durable: u64, number: i64) {
        let mut builder = FrameBuilder::default();
        builder.begin();
        builder.push(&Entry::ProducerBlock { end: number });
        let frame = builder.finish(generation, position, durable).to_vec();
        self.slots[file].file.write_all_at(&frame, (1 + block) * BLOCK).expect("written");
    }

    fn replay(&self) -> Result<(Vec<i64>, End), OpenError> {
        let mut seen = Vec::new();
        let end = scan(&self.disk, Path::new("wal"))?.replay(FIRST, 0, &mut |entry| {
            if let Entry::ProducerBlock { end } = entry {
                seen.push(end);
            }
            Ok(())
        })?;
        Ok((seen, end))
    }

    fn seen(&self) -> Vec<i64> {
        self.replay().expect("sound").0
    }

    fn is_damaged(&self) -> bool {
        matches!(self.replay(), Err(OpenError::Corrupt { .. }))
    }
}

#[test]
fn a_frame_continues_only_with_the_expected_generation_nonce_and_position() {
    let others = [
        (Generation { number: 1, nonce: 12 }, BLOCK),
        (Generation { number: 2, nonce: 11 }, BLOCK),
        (Generation { number: 0, nonce: 11 }, BLOCK),
        (FIRST, 0),
        (FIRST, 2 * BLOCK),
    ];
    for (generation, position) in others {
        let mut log = Pieces::new();
        let file = log.file(header(FIRST, 0, 0, 0));
        log.frame(file, 0, FIRST, 0, 0, 1);
        log.frame(file, 1, generation, position, 0, 2);
        assert_eq!(log.seen(), [1], "{generation:?} at {position}");
        log.frame(file, 1, FIRST, BLOCK, 0, 2);
        assert_eq!(log.seen(), [1, 2]);
    }
}

#[test]
fn nothing_of_a_generation_beyond_the_end_that_the_next_one_names_is_looked_at() {
    let mut log = Pieces::new();
    let first = log.file(header(FIRST, 0, 0, 0));
    log.frame(first, 0, FIRST, 0, 0, 1);
    // Torn when the second generation began; whole when read now, as after a sector that came back.
    log.frame(first, 1, FIRST, BLOCK, BLOCK, 2);
    log.frame(first, 2, FIRST, 2 * BLOCK, 2 * BLOCK, 3);
    let second = log.file(header(SECOND, BLOCK, 1, BLOCK));
    assert_eq!(log.seen(), [1]);
    log.frame(second, 0, SECOND, BLOCK, BLOCK, 4);
    assert_eq!(log.seen(), [1, 4]);
    let (_, end) = log.replay().expect("sound");
    assert_eq!((end.generation, end.position, end.highest), (SECOND, 2 * BLOCK, 2));
}

#[test]
fn a_generation_that_ends_before_the_next_one_says_is_damaged() {
    let mut log = Pieces::new();
    let first = log.file(header(FIRST, 0, 0, 0));
    log.frame(first, 0, FIRST, 0, 0, 1);
    log.file(header(SECOND, 2 * BLOCK, 1, 2 * BLOCK));
    assert!(log.is_damaged(), "the frame between is missing");
    log.frame(first, 1, FIRST, BLOCK, BLOCK, 2);
    assert_eq!(log.seen(), [1, 2]);
}

#[test]
fn a_generation_that_is_missing_in_between_is_damage() {
    let mut log = Pieces::new();
    log.file(header(FIRST, 0, 0, 0));
    log.file(header(Generation { number: 3, nonce: 33 }, 0, 2, 0));
    assert!(log.is_damaged());
}

#[test]
fn a_later_frame_is_proof_only_if_it_says_that_the_bad_place_was_durable() {
    for (durable, damaged) in [(0, false), (BLOCK, false), (2 * BLOCK, true)] {
        let mut log = Pieces::new();
        let file = log.file(header(FIRST, 0, 0, 0));
        log.frame(file, 0, FIRST, 0, 0, 1);
        // Block 1 holds nothing: its write was under way together with the next one, or has rotted.
        log.frame(file, 2, FIRST, 2 * BLOCK, durable, 3);
        assert_eq!(log.is_damaged(), damaged, "durable {durable}");
        if !damaged {
            assert_eq!(log.seen(), [1]);
        }
    }
}

#[test]
fn frames_in_a_file_without_a_readable_header_are_damage_only_if_they_belong_behind_the_end() {
    let cases = [(FIRST, 0, false), (FIRST, BLOCK, true), (FIRST, 9 * BLOCK, true), (SECOND, 0, true)];
    for (generation, position, damaged) in cases {
        let mut log = Pieces::new();
        let file = log.file(header(FIRST, 0, 0, 0));
        log.frame(file, 0, FIRST, 0, 0, 1);
        let other = log.file(header(SECOND, BLOCK, 1, BLOCK));
        log.frame(other, 3, generation, position, position, 9);
        log.slots[other].file.write_all_at(&[0; 64], 0).expect("written");
        assert_eq!(log.is_damaged(), damaged, "{generation:?} at {position}");
    }
}

#[test]
fn a_log_goes_on_over_files_and_a_gap_between_them_is_damage() {
    let mut log = Pieces::new();
    let first = log.file(header(FIRST, 0, 0, 0));
    let later = log.file(header(FIRST, 2 * BLOCK, 1, 2 * BLOCK));
    log.frame(later, 0, FIRST, 2 * BLOCK, 2 * BLOCK, 3);
    log.frame(first, 0, FIRST, 0, 0, 1);
    assert!(log.is_damaged(), "the second file says where the first one ended");
    log.frame(first, 1, FIRST, BLOCK, BLOCK, 2);
    assert_eq!(log.seen(), [1, 2, 3]);
}

#[test]
fn a_file_is_used_again_only_after_it_was_given_back() {
    let disk: Arc<dyn Files> = Arc::new(SimDisk::new());
    let dir = Path::new("wal");
    disk.create_dir(dir).expect("created");
    let start = header(FIRST, 0, 0, 0);
    let mut ring = Ring::start(disk, dir, Vec::new(), start, 2 * BLOCK, BLOCK_BYTES).expect("started");
    let write = |ring: &mut Ring| {
        let mut builder = FrameBuilder::default();
        builder.begin();
        builder.push(&Entry::ProducerBlock { end: 1 });
        let position = ring.position();
        ring.write(builder.finish(FIRST, position, position)).expect("written");
    };
    write(&mut ring);
    assert!(!ring.fits(BLOCK));
    ring.rotate().expect("another file");
    write(&mut ring);
    ring.rotate().expect("another file");
    assert_eq!((ring.used(), ring.has_free()), (3, false), "nothing was given back");
    assert_eq!(ring.release(BLOCK - 1), 0, "a part of the first one is still needed");
    assert_eq!(ring.release(BLOCK), 1);
    write(&mut ring);
    ring.rotate().expect("the first file again");
    assert_eq!((ring.used(), ring.has_free(), ring.bytes()), (3, false, 6 * BLOCK));
}
