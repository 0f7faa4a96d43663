//! Writing, rolling, reading and reopening segment files.

mod segment_support;

use std::io::IoSlice;

use cutwater_partition_log::batch::{BatchHeader, ControlKind, control_batch};
use cutwater_partition_log::segment::{AbortedTxn, LogEnd, PartitionFiles, Position, SegmentConfig, SegmentError};
use segment_support::{Dir, batch_at, fill, offsets_of};

const SMALL: SegmentConfig = SegmentConfig { segment_bytes: 6_000, index_interval_bytes: 300 };

#[test]
fn reads_from_every_offset_begin_with_the_batch_that_holds_it() {
    let dir = Dir::new();
    let files = dir.open(SMALL);
    let batches = fill(&files, 0..120);
    assert!(files.segment_bases().len() > 3, "several segments: {:?}", files.segment_bases());
    let end = files.end().expect("known").next_offset;
    for reopened in [false, true] {
        let files = if reopened {
            files.close().expect("synced");
            let again = dir.reopen(SMALL);
            again.truncate_to(files.end().expect("known")).expect("nothing to cut");
            again
        } else {
            dir.open_view(SMALL, &files)
        };
        for offset in 0..end {
            let expected = batches.iter().find(|b| b.0 <= offset && offset <= b.1).expect("no gap");
            let bytes = files.read(offset, 1, end).expect("there");
            assert_eq!(offsets_of(&bytes), [*expected], "one batch, even though it is larger than a byte");
            let bytes = files.read(offset, 1_500, end).expect("there");
            let found = offsets_of(&bytes);
            let at = batches.iter().position(|b| b == expected).expect("it is one of them");
            assert_eq!(found, batches[at..at + found.len()], "whole batches without a gap");
            assert!(bytes.len() <= 1_500 && !found.is_empty());
        }
        assert!(files.read(end, 1_000, i64::MAX).expect("at the end").is_empty());
        assert!(files.read(end + 5, 1_000, i64::MAX).expect("beyond the end").is_empty());
        assert!(matches!(files.read(-1, 1_000, end), Err(SegmentError::OutOfRange { from: -1, start: 0, .. })));
    }
}

#[test]
fn nothing_at_or_above_the_bound_is_read() {
    let dir = Dir::new();
    let files = dir.open(SMALL);
    let batches = fill(&files, 0..40);
    let end = files.end().expect("known").next_offset;
    for below in 0..=end {
        let bytes = files.read(0, usize::MAX, below).expect("there");
        let first_segment = files.segment_bases().get(1).copied().unwrap_or(end);
        let expected: Vec<_> = batches.iter().copied().filter(|b| b.1 < below && b.1 < first_segment).collect();
        assert_eq!(offsets_of(&bytes), expected, "below {below}");
    }
}

#[test]
fn writes_must_be_at_the_end_without_a_gap_and_whole() {
    let dir = Dir::new();
    let files = PartitionFiles::open(dir.files(100), dir.path(), SMALL).expect("opened");
    assert!(matches!(files.write(LogEnd::default().position(), &[]), Err(SegmentError::EndUnknown { .. })));
    files.truncate_to(LogEnd::empty_at(7)).expect("empty");
    let good = batch_at(7, 3);
    let at = |position| Position { segment_base: 7, position };
    let write = |position, bytes: &[u8]| files.write(at(position), &[IoSlice::new(bytes)]);
    assert!(matches!(write(1, &good), Err(SegmentError::NotAtEnd { .. })));
    assert!(matches!(write(0, &batch_at(8, 1)), Err(SegmentError::Order { expected: 7, found: 8, .. })));
    assert!(matches!(write(0, &good[..good.len() - 1]), Err(SegmentError::NotABatch { index: 0, .. })));
    assert!(matches!(write(0, &[&good[..], b"x"].concat()), Err(SegmentError::NotABatch { .. })));
    assert_eq!(files.end().expect("known"), LogEnd::empty_at(7), "refused writes change nothing");
    assert!(files.segment_bases().is_empty(), "nor do they make files");
    let end = write(0, &good).expect("written");
    assert_eq!(end, LogEnd { next_offset: 10, segment_base: 7, segment_position: good.len() as u64 });
    assert!(matches!(files.roll(9, b"producers"), Err(SegmentError::Order { expected: 10, found: 9, .. })));
    assert_eq!(files.roll(10, b"producers").expect("rolled"), LogEnd::empty_at(10));
    assert_eq!(files.roll(10, b"producers").expect("a second roll changes nothing"), LogEnd::empty_at(10));
    assert_eq!(files.segment_bases(), [7, 10]);
}

#[test]
fn a_roll_is_due_by_size_and_by_span_but_never_for_an_empty_segment() {
    let end = |segment_position| LogEnd { next_offset: 50, segment_base: 10, segment_position };
    let config = SegmentConfig { segment_bytes: 1_000, ..SegmentConfig::DEFAULT };
    assert!(!config.must_roll(&end(600), 400, 60));
    assert!(config.must_roll(&end(600), 401, 60));
    assert!(!config.must_roll(&end(0), 5_000, 60));
    assert!(!config.must_roll(&end(1), 1, 10 + i64::from(i32::MAX)));
    assert!(config.must_roll(&end(1), 1, 11 + i64::from(i32::MAX)));
    let huge = SegmentConfig { segment_bytes: u64::MAX, ..config };
    assert!(huge.must_roll(&end(i32::MAX as u64), 1, 60), "an index entry has 31 bits for a position");
}

#[test]
fn few_open_files_serve_many_segments_and_partitions() {
    let dir = Dir::new();
    let open = dir.files(3);
    let partitions: Vec<PartitionFiles> = (0..6)
        .map(|n| {
            let files =
                PartitionFiles::open(open.clone(), dir.path().with_file_name(format!("t-{n}")), SMALL).expect("opened");
            files.truncate_to(LogEnd::default()).expect("empty");
            files
        })
        .collect();
    let mut wrote = Vec::new();
    for files in &partitions {
        wrote.push(fill(files, 0..60));
        assert!(open.open_count() <= 3);
    }
    for (files, wrote) in partitions.iter().zip(&wrote) {
        let mut offset = 0;
        let mut found = Vec::new();
        while let bytes @ [_, ..] = files.read(offset, 4_000, i64::MAX).expect("there").as_slice() {
            found.extend(offsets_of(bytes));
            offset = found.last().expect("at least one").1 + 1;
        }
        assert_eq!(&found, wrote);
        assert!(open.open_count() <= 3);
        files.sync_paced(|| {}).expect("synced");
        assert_eq!((files.dirty_bytes(), files.is_dirty()), (0, false));
    }
    drop(partitions);
    assert_eq!(open.open_count(), 0, "a dropped partition closes its files");
}

#[test]
fn aborted_transactions_are_found_across_segments_and_the_search_stops_where_all_is_decided() {
    let dir = Dir::new();
    let files = dir.open(SMALL);
    fill(&files, 0..60);
    let (marker_7, marker_9) = (files.end().expect("known").next_offset, files.end().expect("known").next_offset + 1);
    let mut end = files.end().expect("known");
    for producer in [7, 9] {
        let mut marker = control_batch(ControlKind::Abort, producer, 0, 0, 5);
        cutwater_partition_log::batch::assign(&mut marker, end.next_offset, 0);
        end = files.write(end.position(), &[IoSlice::new(&marker)]).expect("written");
    }
    let bases = files.segment_bases();
    // An early one whose marker lies in the first segment, while one that began before it stays open.
    let early = AbortedTxn { producer_id: 5, first_offset: 4, last_offset: 12, last_stable_offset: 2 };
    let seven = AbortedTxn { producer_id: 7, first_offset: 2, last_offset: marker_7, last_stable_offset: 50 };
    let nine = AbortedTxn { producer_id: 9, first_offset: 50, last_offset: marker_9, last_stable_offset: marker_9 + 1 };
    assert!(bases[1] > 12 && bases[bases.len() - 1] <= marker_7 && bases.len() > 2);
    for aborted in [early, seven, nine] {
        files.append_abort(aborted).expect("recorded");
    }
    assert!(matches!(files.append_abort(nine), Err(SegmentError::Order { .. })), "markers rise");
    let aborted = |from, upper| files.aborted(from, upper).expect("readable");
    assert_eq!(aborted(0, 50), [early, seven], "nine begins at 50; seven tells that all below 50 is decided");
    assert_eq!(aborted(0, 3), [seven]);
    assert_eq!(aborted(13, 51), [seven, nine], "the early one's marker lies before");
    assert_eq!(aborted(12, marker_9 + 1), [early, seven, nine]);
    assert_eq!(aborted(marker_9 + 1, marker_9 + 2), []);
    files.close().expect("synced");
    let again = dir.reopen(SMALL);
    again
        .truncate_to(LogEnd { next_offset: marker_9, segment_position: end.segment_position - 78, ..end })
        .expect("cut");
    assert_eq!(again.aborted(0, i64::MAX).expect("readable"), [early, seven], "the abort beyond the end is gone");
}

#[test]
fn head_segments_are_deleted_whole_and_readers_are_told() {
    let dir = Dir::new();
    let files = dir.open(SMALL);
    fill(&files, 0..100);
    let bases = files.segment_bases();
    assert_eq!(files.delete_below(bases[2] - 1).expect("deleted"), 1, "the second still holds an offset");
    assert_eq!(files.segment_bases(), bases[1..]);
    let refused = files.read(0, 100, i64::MAX).expect_err("gone");
    assert!(matches!(refused, SegmentError::OutOfRange { start, .. } if start == bases[1]));
    assert_eq!(files.delete_below(i64::MAX).expect("deleted"), bases.len() - 2, "the active one stays");
    files.sync_paced(|| {}).expect("synced");
    let left = dir.names();
    assert!(left.iter().all(|name| name.starts_with(&format!("{:020}", bases[bases.len() - 1]))), "{left:?}");
    assert_eq!(
        BatchHeader::parse(&files.read(*bases.last().expect("some"), 1, i64::MAX).expect("there"))
            .expect("a batch")
            .base_offset,
        bases[bases.len() - 1]
    );
}
