//! What crashes and bad disks leave behind: cuts, junk, flipped bytes, lying indexes.

mod segment_support;

use std::io::IoSlice;

use cutwater_partition_log::batch::{BatchHeader, ControlKind, assign, control_batch};
use cutwater_partition_log::segment::offset_index::{ENTRY_BYTES, IndexEntry};
use cutwater_partition_log::segment::{
    AbortedTxn, LogEnd, PartitionFiles, ScanStop, SegmentConfig, SegmentError, transaction_index,
};
use cutwater_platform::{Files, OsFiles};
use segment_support::{Dir, batch_at, fill, index_name, log_name, offsets_of};

const ONE_SEGMENT: SegmentConfig = SegmentConfig { segment_bytes: 1 << 20, index_interval_bytes: 300 };
const MANY_SEGMENTS: SegmentConfig = SegmentConfig { segment_bytes: 2_200, index_interval_bytes: 300 };

/// Everything from `from` on, batch by batch through all segments.
fn read_all(files: &PartitionFiles, from: i64) -> Result<Vec<u8>, SegmentError> {
    let (mut all, mut offset) = (Vec::new(), from);
    loop {
        let start = all.len();
        if files.read_into(offset, 700, i64::MAX, &mut all)? == 0 {
            return Ok(all);
        }
        offset = offsets_of(&all[start..]).last().expect("at least one").1 + 1;
    }
}

/// The whole batches in the first `cut` bytes.
fn whole_batches(log: &[u8], cut: usize) -> LogEnd {
    let mut end = LogEnd::default();
    while let Ok(header) = BatchHeader::parse(&log[end.segment_position as usize..]) {
        if end.segment_position as usize + header.total_bytes() > cut {
            break;
        }
        end.next_offset = header.last_offset() + 1;
        end.segment_position += header.total_bytes() as u64;
    }
    end
}

#[test]
fn every_cut_of_a_segment_recovers_to_whole_batches_and_a_replay_restores_it() {
    let dir = Dir::new();
    let files = dir.open(ONE_SEGMENT);
    fill(&files, 0..25);
    files.close().expect("synced");
    let end = files.end().expect("known");
    let (log, index) = (dir.read(&log_name(0)), dir.read(&index_name(0)));
    assert!(index.len() >= 5 * ENTRY_BYTES && log.len() as u64 == end.segment_position);
    for cut in 0..=log.len() {
        // The tail may be missing, or there but never written, or another file's.
        let zeros = vec![0; (cut * 7) % 200];
        let old = vec![0xA5; (cut * 3) % 100];
        for tail in [&zeros[..], &old, &[]] {
            let torn = [&log[..cut], tail].concat();
            // Zeros may happen to be what was lost.
            let agree = log.iter().zip(&torn).take_while(|(a, b)| a == b).count();
            let expected = whole_batches(&log, agree);
            dir.write(&log_name(0), &torn);
            let files = dir.reopen(ONE_SEGMENT);
            let report = files.scan().expect("readable").expect("one segment");
            assert_eq!(report.end, expected, "cut at {cut}");
            assert_eq!(report.stop.is_none(), expected.segment_position == report.file_bytes);
            files.truncate_to(report.end).expect("cut");
            assert_eq!(read_all(&files, 0).expect("good"), log[..expected.segment_position as usize]);
        }
        if cut % 41 != 0 && cut != log.len() {
            continue;
        }
        let expected = whole_batches(&log, cut);
        let files = dir.reopen(ONE_SEGMENT);
        files.truncate_to(expected).expect("cut already");
        let rest = &log[expected.segment_position as usize..];
        let mut batches = Vec::new();
        let mut left = rest;
        while !left.is_empty() {
            let (batch, after) = left.split_at(BatchHeader::parse(left).expect("a batch").total_bytes());
            batches.push(IoSlice::new(batch));
            left = after;
        }
        assert_eq!(files.write(expected.position(), &batches).expect("replayed"), end);
        files.close().expect("synced");
        assert_eq!((dir.read(&log_name(0)), dir.read(&index_name(0))), (log.clone(), index.clone()), "cut at {cut}");
    }
}

#[test]
fn a_scan_says_why_it_stopped() {
    let dir = Dir::new();
    let files = dir.open(ONE_SEGMENT);
    fill(&files, 0..6);
    files.close().expect("synced");
    let log = dir.read(&log_name(0));
    let end = files.end().expect("known");
    let scan_of = |bytes: &[u8]| {
        dir.write(&log_name(0), bytes);
        dir.reopen(ONE_SEGMENT).scan().expect("readable").expect("one segment")
    };
    let report = scan_of(&log);
    assert_eq!((report.end, report.batches, report.stop), (end, 6, None));
    let torn = scan_of(&log[..log.len() - 1]);
    assert!(matches!(torn.stop, Some(ScanStop::Torn { needs, left }) if needs == left + 1));
    assert_eq!(scan_of(&log[..30]).stop, Some(ScanStop::Torn { needs: 61, left: 30 }));
    assert!(matches!(scan_of(&[&log[..], &[0; 100]].concat()).stop, Some(ScanStop::Damaged(_))));
    let mut foreign = batch_at(end.next_offset + 1, 1);
    let stop = scan_of(&[&log[..], &foreign].concat()).stop;
    assert_eq!(stop, Some(ScanStop::Order { expected: end.next_offset, found: end.next_offset + 1 }));
    assign(&mut foreign, end.next_offset, 0);
    assert_eq!(scan_of(&[&log[..], &foreign].concat()).batches, 7);
}

#[test]
fn any_flipped_byte_of_a_stored_batch_is_detected_at_read() {
    let dir = Dir::new();
    let files = dir.open(MANY_SEGMENTS);
    let batches = fill(&files, 0..18);
    files.close().expect("synced");
    let end = files.end().expect("known");
    let all = read_all(&files, 0).expect("good");
    let bases = files.segment_bases();
    assert!(bases.len() >= 3);
    for base in bases {
        let log = dir.read(&log_name(base));
        for at in 0..log.len() {
            let in_batch = at as u64 - whole_batches(&log, at).segment_position;
            let mut flipped = log.clone();
            flipped[at] ^= 1 << (at % 8);
            dir.write(&log_name(base), &flipped);
            let again = dir.reopen(MANY_SEGMENTS);
            let read = again.view_to(end).and_then(|()| read_all(&again, 0));
            if (12..16).contains(&in_batch) {
                // The leader epoch: outside Kafka's checksum, and of no consequence to the records.
                let same: Vec<_> = read.map(|bytes| offsets_of(&bytes)).expect("no check covers it");
                assert_eq!(same, batches);
            } else {
                assert!(read.is_err(), "byte {at} of segment {base}, byte {in_batch} of its batch");
            }
        }
        dir.write(&log_name(base), &log);
    }
    let again = dir.reopen(MANY_SEGMENTS);
    again.view_to(end).expect("whole");
    assert_eq!(read_all(&again, 0).expect("good"), all, "the last flip was undone");
}

/// Reads one batch from every offset, with fresh eyes.
fn read_everywhere(dir: &Dir, end: LogEnd, batches: &[(i64, i64)]) {
    let files = dir.reopen(MANY_SEGMENTS);
    files.view_to(end).expect("whole");
    for offset in 0..end.next_offset {
        let expected = batches.iter().find(|b| b.0 <= offset && offset <= b.1).expect("no gap");
        assert_eq!(offsets_of(&files.read(offset, 1, i64::MAX).expect("good")), [*expected], "offset {offset}");
    }
}

#[test]
fn a_lying_index_misleads_nobody_and_is_built_anew_as_it_was() {
    let dir = Dir::new();
    let files = dir.open(MANY_SEGMENTS);
    let batches = fill(&files, 0..18);
    files.close().expect("synced");
    let end = files.end().expect("known");
    let base = files.segment_bases()[1];
    let name = index_name(base);
    let good = dir.read(&name);
    assert!(good.len() >= 3 * ENTRY_BYTES, "{} bytes", good.len());
    let check = |bytes: &[u8]| {
        dir.write(&name, bytes);
        read_everywhere(&dir, end, &batches);
    };
    for entries in 0..good.len() / ENTRY_BYTES {
        check(&good[..entries * ENTRY_BYTES]);
        check(&[&good[..entries * ENTRY_BYTES], &good[(entries + 1) * ENTRY_BYTES..]].concat());
    }
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        check(&flipped);
    }
    for useless in [vec![], vec![0; good.len()], vec![0xFF; good.len()]] {
        check(&useless);
        assert_eq!(dir.read(&name), good, "built anew");
    }
    // A missing file is a case like any other.
    OsFiles.remove_file(&dir.path().join(&name)).expect("removed");
    read_everywhere(&dir, end, &batches);
    assert_eq!(dir.read(&name), good, "missing");
    let entry = IndexEntry::from_bytes(good[..ENTRY_BYTES].try_into().expect("eight")).expect("plausible");
    assert!(entry.position > 300, "the first entry lies more than an interval from the front");
}

#[test]
fn the_active_segments_index_is_checked_and_completed_when_it_is_opened() {
    let dir = Dir::new();
    let files = dir.open(ONE_SEGMENT);
    fill(&files, 0..20);
    files.sync_paced(|| {}).expect("synced");
    let early = dir.read(&index_name(0));
    fill(&files, 20..40);
    files.close().expect("synced");
    let end = files.end().expect("known");
    let good = dir.read(&index_name(0));
    assert!(early.len() < good.len() && good.starts_with(&early), "a sync appends what is new");
    let mut bent = good.clone();
    bent[ENTRY_BYTES - 1] ^= 1;
    let mut bent_last = good.clone();
    *bent_last.last_mut().expect("not empty") ^= 1;
    for stored in [early, vec![0; 64], bent, bent_last, [&good[..], &good[..ENTRY_BYTES]].concat(), vec![7; 13]] {
        dir.write(&index_name(0), &stored);
        let again = dir.reopen(ONE_SEGMENT);
        again.truncate_to(end).expect("whole");
        for offset in 0..end.next_offset {
            again.read(offset, 1, i64::MAX).expect("good");
        }
        again.close().expect("synced");
        assert_eq!(dir.read(&index_name(0)), good);
    }
}

#[test]
fn cutting_back_over_several_segments_removes_the_later_ones() {
    let dir = Dir::new();
    let files = dir.open(MANY_SEGMENTS);
    let batches = fill(&files, 0..40);
    files.close().expect("synced");
    let all = read_all(&files, 0).expect("good");
    let bases = files.segment_bases();
    let log = dir.read(&log_name(bases[1]));
    let second = BatchHeader::parse(&log).expect("a batch");
    let end = LogEnd {
        next_offset: second.last_offset() + 1,
        segment_base: bases[1],
        segment_position: second.total_bytes() as u64,
    };
    dir.write(&format!("{}.tmp", index_name(bases[0])), b"half an index");
    dir.write("00000000000000009999.txnindex", b"an orphan");
    dir.write("00000000000000000005.index", b"an orphan");
    dir.write("leave.me", b"not ours");
    let again = dir.reopen(MANY_SEGMENTS);
    again.truncate_to(end).expect("cut");
    assert_eq!(again.segment_bases(), bases[..2]);
    let expected: Vec<String> = bases[..2]
        .iter()
        .flat_map(|&base| {
            let snapshot = (base > 0).then(|| format!("{base:020}.snapshot"));
            [index_name(base), log_name(base)].into_iter().chain(snapshot).chain([format!("{base:020}.timeindex")])
        })
        .chain(["leave.me".to_string()])
        .collect();
    assert_eq!(dir.names(), expected);
    let kept: Vec<_> = batches.iter().copied().filter(|b| b.1 < end.next_offset).collect();
    assert_eq!(offsets_of(&read_all(&again, 0).expect("good")), kept);
    // The same records again, from where it was cut, make the same files.
    let from = kept.len() as u32;
    fill(&again, from..40);
    assert_eq!(read_all(&again, 0).expect("good"), all);
    assert_eq!(again.segment_bases(), bases);
}

#[test]
fn an_end_that_the_files_do_not_reach_or_that_splits_a_batch_is_refused() {
    let dir = Dir::new();
    let files = dir.open(ONE_SEGMENT);
    fill(&files, 0..10);
    files.close().expect("synced");
    let end = files.end().expect("known");
    let refuse = |end: LogEnd| {
        let again = dir.reopen(ONE_SEGMENT);
        let error = again.truncate_to(end).expect_err("no such end");
        assert!(matches!(again.end(), Err(SegmentError::EndUnknown { .. })));
        error
    };
    let beyond = LogEnd { segment_position: end.segment_position + 1, ..end };
    assert!(matches!(refuse(beyond), SegmentError::Lost { .. }), "synced bytes are missing");
    let elsewhere = LogEnd { segment_base: 1_000, ..end };
    assert!(matches!(refuse(elsewhere), SegmentError::Lost { found: 0, .. }), "a synced segment is missing");
    assert!(matches!(refuse(LogEnd { next_offset: end.next_offset + 1, ..end }), SegmentError::Corrupt { .. }));
    assert!(matches!(
        refuse(LogEnd { segment_position: end.segment_position - 1, ..end }),
        SegmentError::Corrupt { .. }
    ));
}

#[test]
fn junk_behind_the_aborts_is_cut_and_a_damaged_abort_is_an_error() {
    let dir = Dir::new();
    let files = dir.open(ONE_SEGMENT);
    fill(&files, 0..10);
    let mut end = files.end().expect("known");
    let mut all = Vec::new();
    for producer_id in 0..200 {
        let mut marker = control_batch(ControlKind::Abort, producer_id, 0, 0, 1);
        assign(&mut marker, end.next_offset, 0);
        let marker_offset = end.next_offset;
        end = files.write(end.position(), &[IoSlice::new(&marker)]).expect("written");
        let (first_offset, last_stable_offset) = (marker_offset - 1, marker_offset + 1);
        let aborted = AbortedTxn { producer_id, first_offset, last_offset: marker_offset, last_stable_offset };
        files.append_abort(aborted).expect("recorded");
        all.push(aborted);
    }
    files.close().expect("synced");
    let name = format!("{:020}.txnindex", 0);
    let good = dir.read(&name);
    assert_eq!(good.len(), 200 * transaction_index::ENTRY_BYTES);
    assert_eq!(transaction_index::ENTRY_BYTES, 34);
    let later = AbortedTxn { producer_id: 1, first_offset: 5, last_offset: end.next_offset, last_stable_offset: 5 };
    for junk in [vec![0; 34], vec![0; 500], vec![3; 20], later.to_bytes().to_vec(), good[..34].to_vec()] {
        dir.write(&name, &[&good[..], &junk].concat());
        let again = dir.reopen(ONE_SEGMENT);
        again.view_to(end).expect("whole");
        assert_eq!(again.aborted(0, i64::MAX).expect("junk isn't looked at"), all);
        let again = dir.reopen(ONE_SEGMENT);
        again.truncate_to(end).expect("cut");
        assert_eq!(again.aborted(0, i64::MAX).expect("good"), all);
        assert_eq!(dir.read(&name), good);
    }
    for (n, aborted) in all.iter().enumerate() {
        let found = dir.reopen(ONE_SEGMENT);
        found.view_to(end).expect("whole");
        assert_eq!(found.aborted(aborted.last_offset, aborted.last_offset + 1).expect("good"), all[n..=n]);
    }
    // Sealed segments were synced: there, a bad entry is no crash's junk but damage.
    let files = dir.reopen(ONE_SEGMENT);
    files.truncate_to(end).expect("whole");
    let rolled = files.roll(end.next_offset, b"producers").expect("rolled");
    files.close().expect("synced");
    let mut bad = good.clone();
    bad[34 * 100..34 * 101].fill(0);
    dir.write(&name, &bad);
    let again = dir.reopen(ONE_SEGMENT);
    again.truncate_to(rolled).expect("the active segment is fine");
    assert!(matches!(again.aborted(0, i64::MAX), Err(SegmentError::Corrupt { position: 3_400, .. })));
}

/// Two sealed segments with aborts and the active one with more of them.
fn with_aborts(dir: &Dir) -> (LogEnd, Vec<AbortedTxn>, Vec<i64>) {
    let files = dir.open(ONE_SEGMENT);
    let mut all = Vec::new();
    for segment in 0..3 {
        let mut end = fill(&files, 0..4).last().map(|_| files.end().expect("known")).expect("some");
        for n in 0..5 {
            let producer_id = segment * 10 + n;
            let mut marker = control_batch(ControlKind::Abort, producer_id, 0, 0, 1);
            assign(&mut marker, end.next_offset, 0);
            let last_offset = end.next_offset;
            end = files.write(end.position(), &[IoSlice::new(&marker)]).expect("written");
            let (first_offset, last_stable_offset) = (last_offset - 2, last_offset + 1);
            let aborted = AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset };
            files.append_abort(aborted).expect("recorded");
            all.push(aborted);
        }
        if segment < 2 {
            files.roll(end.next_offset, b"producers").expect("rolled");
        }
    }
    files.close().expect("synced");
    (files.end().expect("known"), all, files.segment_bases())
}

#[test]
fn any_flipped_bit_of_a_transaction_index_or_of_its_checksums_is_told_and_never_read() {
    let dir = Dir::new();
    let (end, all, bases) = with_aborts(&dir);
    let whole = |dir: &Dir| {
        let files = dir.reopen(ONE_SEGMENT);
        files.truncate_to(end).and_then(|()| files.aborted(0, i64::MAX))
    };
    assert_eq!(whole(&dir).expect("whole"), all);
    for base in bases {
        for suffix in ["txnindex", "txnsum"] {
            let name = format!("{base:020}.{suffix}");
            let good = dir.read(&name);
            for bit in 0..good.len() * 8 {
                let mut flipped = good.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                dir.write(&name, &flipped);
                let told = whole(&dir).expect_err("told").to_string();
                assert!(told.contains(&name), "bit {bit} of {name}: {told}");
            }
            dir.write(&name, &good);
            // A file that ends early is told as well.
            for kept in [0, good.len() - 1] {
                dir.write(&name, &good[..kept]);
                assert!(whole(&dir).is_err(), "{kept} bytes of {name}");
                dir.write(&name, &good);
            }
        }
        let name = format!("{base:020}.txnindex");
        let good = dir.read(&name);
        OsFiles.remove_file(&dir.path().join(&name)).expect("removed");
        assert!(whole(&dir).is_err(), "{name} is missing");
        dir.write(&name, &good);
    }
    assert_eq!(whole(&dir).expect("whole again"), all);
}

#[test]
fn an_index_from_before_there_were_checksums_is_read_and_the_active_one_gets_them() {
    let dir = Dir::new();
    let (end, all, bases) = with_aborts(&dir);
    let sums = |base: i64| format!("{base:020}.txnsum");
    let of_active = dir.read(&sums(end.segment_base));
    for base in &bases {
        OsFiles.remove_file(&dir.path().join(sums(*base))).expect("removed");
    }
    let files = dir.reopen(ONE_SEGMENT);
    files.truncate_to(end).expect("opened");
    assert_eq!(files.aborted(0, i64::MAX).expect("readable"), all);
    files.close().expect("synced");
    assert_eq!(dir.read(&sums(end.segment_base)), of_active);
    assert!(dir.names().iter().all(|name| *name != sums(bases[0])), "sealed segments stay as they are");
}
