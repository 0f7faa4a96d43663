//! The simulated disk judged for itself: known cases of each policy, and a property over random programs.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use cutwater_platform::{AlignedBuf, BLOCK_BYTES, File, Files, Open};

use super::*;

pub(crate) fn p(path: &str) -> &Path {
    Path::new(path)
}

fn create(disk: &SimDisk, path: &str) -> Arc<dyn File> {
    disk.open(p(path), Open::CreateNew).expect("creatable")
}

pub(crate) fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    disk.read(p(path), 1 << 30).ok()
}

pub(crate) fn blocks(byte: u8, count: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::with_capacity(count * BLOCK_BYTES);
    buf.extend_from_slice(&vec![byte; count * BLOCK_BYTES]);
    buf
}

/// A disk with `base` durable under the name `f`, and the handle.
fn with_durable(base: &[u8]) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new();
    let file = create(&disk, "f");
    file.write_all_at(base, 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir(p(".")).expect("synced");
    (disk, file)
}

// Losses.

#[test]
fn all_lost_keeps_what_was_synced_and_none_lost_keeps_everything() {
    let (disk, file) = with_durable(b"safe");
    file.write_all_at(b"SAFE and more", 0).expect("written");
    create(&disk, "new").write_all_at(b"x", 0).expect("written");
    let lost = disk.restart(LossPolicy::AllLost, 0);
    assert_eq!((content(&lost, "f"), content(&lost, "new")), (Some(b"safe".to_vec()), None));
    let kept = disk.restart(LossPolicy::NoneLost, 0);
    assert_eq!(content(&kept, "f"), Some(b"SAFE and more".to_vec()));
    assert_eq!(content(&kept, "new"), Some(b"x".to_vec()));
}

#[test]
fn a_prefix_is_always_a_moment_of_the_past_and_every_moment_is_drawn() {
    let (disk, file) = with_durable(b"");
    for n in 0..5u8 {
        file.write_all_at(&[n + 1; 512], u64::from(n) * 512).expect("written");
    }
    let mut lengths = BTreeMap::new();
    for seed in 0..200 {
        let found = content(&disk.restart(LossPolicy::Prefix, seed), "f").expect("there");
        assert!(found.chunks(512).enumerate().all(|(n, c)| c == [n as u8 + 1; 512]));
        *lengths.entry(found.len() / 512).or_insert(0) += 1;
    }
    assert_eq!(lengths.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn reordering_keeps_later_writes_without_the_earlier_ones() {
    let (disk, file) = with_durable(&[0; 1024]);
    file.write_all_at(&[1; 512], 0).expect("written");
    file.write_all_at(&[2; 512], 512).expect("written");
    let found: Vec<Vec<u8>> =
        (0..50).filter_map(|seed| content(&disk.restart(LossPolicy::Reordered, seed), "f")).collect();
    let later_alone = [[0u8; 512], [2; 512]].concat();
    assert!(found.contains(&later_alone) && found.iter().all(|f| f[..512] == [0; 512]));
}

#[test]
fn the_last_write_is_torn_in_sectors_or_pages_and_the_earlier_ones_are_whole() {
    for (policy, unit) in [(LossPolicy::LastTorn512, 512), (LossPolicy::LastTorn4K, 4096)] {
        let (disk, file) = with_durable(&[7; 100]);
        file.write_all_at(&[8; 300], 100).expect("written");
        file.write_all_at(&[9; 12_000], 400).expect("written");
        let mut cuts = BTreeMap::new();
        for seed in 0..200 {
            let found = content(&disk.restart(policy, seed), "f").expect("there");
            assert_eq!(found[..400], [[7; 100].as_slice(), &[8; 300]].concat(), "{policy:?} {seed}");
            assert!(found[400..].iter().all(|&b| b == 9), "{policy:?} {seed}");
            assert!(found.len() < 12_400 && (found.len() == 400 || found.len().is_multiple_of(unit)));
            cuts.insert(found.len(), seed);
        }
        assert_eq!(cuts.len(), 12_400_usize.div_ceil(unit), "every cut is drawn: {cuts:?}");
    }
}

#[test]
fn a_grown_file_holds_zeros_or_garbage_and_overwritten_bytes_are_the_old_ones() {
    let (disk, file) = with_durable(b"old!");
    file.write_all_at(b"NEW!and a tail", 0).expect("written");
    let zeros = content(&disk.restart(LossPolicy::GrownZeros, 5), "f").expect("there");
    assert_eq!(zeros, b"old!\0\0\0\0\0\0\0\0\0\0");
    let garbage = content(&disk.restart(LossPolicy::GrownGarbage, 5), "f").expect("there");
    assert_eq!((garbage.len(), &garbage[..4]), (14, b"old!".as_slice()));
    assert!(garbage[4..] != zeros[4..] && garbage[4..] != b"and a tail"[..]);
    assert_eq!(
        Some(garbage),
        content(&disk.restart(LossPolicy::GrownGarbage, 5), "f"),
        "the same seed, the same noise"
    );
}

#[test]
fn names_lost_keeps_bytes_of_known_files_and_forgets_new_names() {
    let (disk, file) = with_durable(b"a");
    file.write_all_at(b"b", 1).expect("written");
    disk.rename(p("f"), p("g")).expect("renamed");
    let next = disk.restart(LossPolicy::NamesLost, 0);
    assert_eq!((content(&next, "f"), content(&next, "g")), (Some(b"ab".to_vec()), None));
}

#[test]
fn random_losses_reach_every_combination_of_sectors() {
    let (disk, file) = with_durable(&[0; 1024]);
    file.write_all_at(&[1; 1024], 0).expect("written");
    let seen = |disk: &SimDisk, seed| {
        let found = content(&disk.restart(LossPolicy::Random, seed), "f").expect("there");
        assert!(found.chunks(512).all(|sector| sector == [sector[0]; 512]), "a sector is never torn");
        (found[0], found[512])
    };
    let mut pairs: Vec<_> = (0..100).map(|seed| seen(&disk, seed)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

#[test]
fn a_sector_written_twice_holds_one_of_its_versions_never_a_mixture() {
    let (disk, file) = with_durable(&[0; 512]);
    file.write_all_at(&[1; 256], 0).expect("written");
    file.write_all_at(&[2; 256], 256).expect("written");
    for policy in LossPolicy::ALL {
        for seed in 0..100 {
            let found = content(&disk.restart(policy, seed), "f").expect("there");
            assert_ne!(
                (found[0], found[511]),
                (0, 2),
                "{policy:?} {seed}: the later bytes came without the earlier ones"
            );
        }
    }
}

// Names.

#[test]
fn a_synced_file_is_gone_if_the_name_was_never_synced() {
    let disk = SimDisk::new();
    let file = create(&disk, "f");
    file.write_all_at(b"safe", 0).expect("written");
    file.sync_data().expect("synced");
    assert_eq!(content(&disk.restart(LossPolicy::AllLost, 0), "f"), None);
    disk.set_name_policy(NamePolicy::Journaled);
    let disk = disk.fork();
    disk.open(p("f"), Open::Write).expect("there").sync_data().expect("synced");
    assert_eq!(
        content(&disk.restart(LossPolicy::AllLost, 0), "f"),
        Some(b"safe".to_vec()),
        "the journal took it along"
    );
}

#[test]
fn a_new_directory_needs_its_parent_synced_too() {
    let disk = SimDisk::new();
    disk.create_dir(p("d")).expect("created");
    create(&disk, "d/f");
    disk.sync_dir(p("d")).expect("synced");
    assert!(!disk.restart(LossPolicy::AllLost, 0).exists(p("d")).expect("readable"));
    let disk = SimDisk::new();
    disk.create_dir_all(p("a/b")).expect("created");
    create(&disk, "a/b/f");
    disk.sync_dir(p("a/b")).expect("synced");
    assert!(disk.restart(LossPolicy::AllLost, 0).exists(p("a/b/f")).expect("readable"));
}

#[test]
fn a_directory_that_a_killed_process_left_unsynced_is_made_durable_by_whoever_creates_it_again() {
    for (path, killed_at) in [("a", 1), ("a/b", 1), ("a/b", 3), ("a/b/c", 5)] {
        let disk = SimDisk::new();
        // Each directory is a step, and so is the sync behind it.
        disk.crash_at_step(killed_at + 1);
        disk.create_dir_all(p(path)).expect_err("it is struck in a sync");
        let next = disk.kill();
        next.create_dir_all(p(path)).expect("created again");
        assert!(
            next.restart(LossPolicy::AllLost, 0).exists(p(path)).expect("readable"),
            "{path}, killed at {killed_at}"
        );
    }
}

#[test]
fn a_rename_is_kept_or_lost_whole_and_replaces() {
    let (disk, _) = with_durable(b"old");
    disk.publish_bytes(p("new"), b"new").expect("published");
    disk.rename(p("new"), p("f")).expect("renamed");
    for seed in 0..50 {
        let next = disk.restart(LossPolicy::Random, seed);
        let found = (content(&next, "f"), content(&next, "new"));
        let before = (Some(b"old".to_vec()), Some(b"new".to_vec()));
        assert!(found == before || found == (Some(b"new".to_vec()), None), "{found:?}");
    }
    let synced = disk.kill();
    synced.sync_dir(p("/")).expect("synced");
    assert_eq!(content(&synced.restart(LossPolicy::AllLost, 0), "f"), Some(b"new".to_vec()));
}

#[test]
fn names_answer_the_errors_that_the_system_gives() {
    let (disk, _) = with_durable(b"x");
    disk.create_dir(p("d")).expect("created");
    create(&disk, "d/inner");
    let kind = |r: std::io::Result<()>| r.expect_err("refused").kind();
    let open = |path: &str, how| disk.open(p(path), how).map(|_| ());
    assert_eq!(kind(open("none", Open::Read)), ErrorKind::NotFound);
    assert_eq!(kind(open("none/f", Open::Create)), ErrorKind::NotFound);
    assert_eq!(kind(open("f/g", Open::Create)), ErrorKind::NotADirectory);
    assert_eq!(kind(open("f", Open::CreateNew)), ErrorKind::AlreadyExists);
    assert_eq!(kind(open("d", Open::Write)), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.create_dir(p("d"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create_dir(p("x/y"))), ErrorKind::NotFound);
    assert_eq!(kind(disk.remove_dir(p("d"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(disk.remove_dir(p("f"))), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.remove_file(p("d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.remove_file(p("none"))), ErrorKind::NotFound);
    assert_eq!(kind(disk.publish(p("f"), p("d/inner"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.publish(p("none"), p("d/inner"))), ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(p("f"), p("d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.rename(p("d"), p("f"))), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.rename(p("d"), p("d/e"))), ErrorKind::InvalidInput);
    assert_eq!(kind(disk.sync_dir(p("none"))), ErrorKind::NotFound);
    assert_eq!(disk.kind(p("none/deeper")).expect("no error"), None);
    let names = |path| disk.read_dir(p(path)).expect("readable").into_iter().map(|e| (e.name, e.is_dir));
    assert_eq!(names("/").collect::<Vec<_>>(), [("d".to_string(), true), ("f".to_string(), false)]);
    disk.rename(p("d"), p("e")).expect("renamed");
    assert_eq!(content(&disk, "e/inner"), Some(vec![]));
}

#[test]
fn a_removed_file_can_be_used_by_its_handles_and_gives_its_room_back_when_they_close() {
    let (disk, file) = with_durable(&[1; 4096]);
    disk.remove_file(p("f")).expect("removed");
    disk.sync_dir(p("/")).expect("synced");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4095).expect("still readable");
    assert_eq!((byte, disk.used_bytes()), ([1], 4096));
    drop(file);
    assert_eq!((disk.used_bytes(), disk.lock_state().files.len()), (0, 0));
}

// Syncs.

#[test]
fn a_synced_write_is_durable_without_any_further_sync() {
    let (disk, file) = with_durable(b"head");
    file.write_synced_at(blocks(5, 2).as_slice(), 4096).expect("aligned");
    let next = disk.restart(LossPolicy::AllLost, 0);
    let found = content(&next, "f").expect("there");
    assert_eq!((found.len(), &found[..4], found[4096]), (3 * 4096, b"head".as_slice(), 5));
    let short = file.write_synced_at(&blocks(5, 1).as_slice()[..100], 0);
    assert!(short.is_err(), "the old handle is dead");
    let file = next.open(p("f"), Open::Write).expect("there");
    let unaligned = blocks(5, 2);
    for (bytes, offset) in
        [(&unaligned.as_slice()[..100], 0), (&unaligned.as_slice()[1..4097], 0), (unaligned.as_slice(), 5)]
    {
        assert_eq!(file.write_synced_at(bytes, offset).expect_err("refused").kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_synced_write_wins_over_a_pending_one_below_it_under_every_policy() {
    let (disk, file) = with_durable(&[0; 8192]);
    file.write_all_at(&[1; 8192], 0).expect("written");
    file.set_len(100).expect("cut");
    file.write_synced_at(blocks(2, 1).as_slice(), 0).expect("aligned");
    for policy in LossPolicy::ALL {
        for seed in 0..50 {
            let found = content(&disk.restart(policy, seed), "f").expect("there");
            assert!(found.len() >= 4096 && found[..4096] == [2; 4096], "{policy:?} {seed}");
        }
    }
}

#[test]
fn a_synced_write_that_is_struck_may_leave_any_of_its_sectors() {
    let (disk, file) = with_durable(&[0; 4096]);
    disk.crash_at_step(disk.steps() + 1);
    file.write_synced_at(blocks(1, 1).as_slice(), 0).expect_err("struck");
    let (mut mixed, mut whole, mut none) = (0, 0, 0);
    for seed in 0..100 {
        let found = content(&disk.restart(LossPolicy::Random, seed), "f").expect("there");
        match found.iter().filter(|&&b| b == 1).count() {
            0 => none += 1,
            4096 => whole += 1,
            _ => mixed += 1,
        }
    }
    assert!(mixed > 10 && whole > 10 && none > 10, "{mixed} {whole} {none}");
}

#[test]
fn after_a_failed_sync_the_next_one_says_ok_and_the_bytes_are_gone_all_the_same() {
    for fault in [SyncFault::KeepCache, SyncFault::RevertCache] {
        let (disk, file) = with_durable(&[0; 5000]);
        file.write_all_at(&[1; 100], 0).expect("written");
        disk.fail_sync(1, fault);
        assert_eq!(file.sync_data().expect_err("EIO").raw_os_error(), Some(5));
        let mut byte = [9];
        file.read_exact_at(&mut byte, 0).expect("readable");
        assert_eq!(byte[0], u8::from(fault == SyncFault::KeepCache));
        file.write_all_at(&[3; 10], 4990).expect("written");
        file.sync_data().expect("the pages count as clean");
        let found = content(&disk.restart(LossPolicy::NoneLost, 0), "f").expect("there");
        assert_eq!((found[0], found[4990]), (0, 3), "{fault:?}: only the later page reached the disk");
    }
}

#[test]
fn a_page_left_behind_by_a_failed_sync_reaches_the_disk_when_it_is_written_again() {
    let (disk, file) = with_durable(&[0; 100]);
    file.write_all_at(&[1; 10], 0).expect("written");
    disk.fail_sync(2, SyncFault::KeepCache);
    file.sync_data().expect("the first of the two is fine");
    file.write_all_at(&[2; 10], 10).expect("written");
    file.sync_data().expect_err("the second fails");
    file.write_all_at(&[3; 10], 20).expect("written");
    file.sync_data().expect("clean again");
    let found = content(&disk.restart(LossPolicy::AllLost, 0), "f").expect("there");
    assert_eq!((found[0], found[10], found[20]), (1, 2, 3), "the page was written whole");
}

#[test]
fn names_behind_a_failed_directory_sync_are_never_written() {
    let disk = SimDisk::new();
    create(&disk, "f");
    disk.fail_sync(1, SyncFault::KeepCache);
    disk.sync_dir(p("/")).expect_err("EIO");
    create(&disk, "g");
    disk.sync_dir(p("/")).expect("says Ok");
    let next = disk.restart(LossPolicy::NoneLost, 0);
    assert_eq!((next.exists(p("f")).expect("no error"), next.exists(p("g")).expect("no error")), (false, true));
}

// Faults.

#[test]
fn a_full_disk_takes_the_blocks_that_fit_and_refuses_the_rest() {
    let (disk, file) = with_durable(&[1; 4096]);
    disk.set_capacity_bytes(3 * 4096);
    let error = file.write_all_at(&[2; 4 * 4096], 2048).expect_err("too much");
    assert_eq!((error.kind(), file.len().expect("alive")), (ErrorKind::StorageFull, 3 * 4096));
    file.write_all_at(&[3; 4096], 0).expect("an overwrite needs no room");
    disk.set_capacity_bytes(None);
    file.write_all_at(&[2; 4 * 4096], 2048).expect("room again");
}

#[test]
fn a_disk_that_is_full_at_the_sync_loses_the_pages_then() {
    let (disk, file) = with_durable(&[1; 4096]);
    disk.set_capacity_bytes(4096);
    disk.set_full_at_sync(true);
    file.write_all_at(&[2; 4096], 4096).expect("allocation is delayed");
    assert_eq!(file.sync_data().expect_err("full").kind(), ErrorKind::StorageFull);
    file.sync_data().expect("clean, says the kernel");
    let found = content(&disk.restart(LossPolicy::NoneLost, 0), "f").expect("there");
    assert!(found[..4096] == [1; 4096] && found[4096..].iter().all(|&b| b == 0));
}

#[test]
fn bad_sectors_flipped_bits_and_short_reads_are_what_the_reader_meets() {
    let (disk, _) = with_durable(&[0; 100]);
    disk.fail_reads_at("f", 50);
    disk.flip_bit("f", 20, 3);
    disk.set_short_reads(7);
    let next = disk.restart(LossPolicy::AllLost, 0);
    let file = next.open(p("f"), Open::Read).expect("there");
    let mut buf = [0; 50];
    file.read_exact_at(&mut buf, 0).expect("in pieces");
    assert_eq!((buf[20], file.read_at(&mut buf, 0).expect("readable")), (8, 7));
    assert_eq!(file.read_at(&mut buf, 45).expect_err("bad").raw_os_error(), Some(5));
    assert_eq!(file.read_at(&mut buf, 51).expect("behind it"), 7);
    next.heal();
    assert_eq!(file.read_at(&mut buf, 45).expect("healed"), 7);
    assert_eq!(file.write_all_at(b"x", 0).expect_err("read only").raw_os_error(), Some(9));
}

// Lives.

#[test]
fn everything_of_the_old_machine_is_dead_and_locks_are_free() {
    let (disk, file) = with_durable(b"x");
    let lock = disk.lock(p("lock")).expect("no error").expect("free");
    assert!(disk.lock(p("lock")).expect("no error").is_none());
    lock.file().write_all_at(b"me", 0).expect("the holder may write");
    disk.crash();
    let text = "the simulated machine is off";
    for error in [
        file.len().expect_err("off"),
        file.read_at(&mut [0], 0).expect_err("off"),
        file.write_all_at(b"y", 0).expect_err("off"),
        file.sync_data().expect_err("off"),
        lock.file().len().expect_err("off"),
        disk.open(p("f"), Open::Read).expect_err("off"),
        disk.read_dir(p("/")).expect_err("off"),
        disk.kind(p("f")).expect_err("off"),
        disk.lock(p("other")).expect_err("off"),
        disk.sync_dir(p("/")).expect_err("off"),
    ] {
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Other, text));
    }
    for next in [disk.restart(LossPolicy::NoneLost, 0), disk.kill()] {
        let held = next.lock(p("lock")).expect("no error").expect("free again");
        assert!(next.lock(p("lock")).expect("no error").is_none());
        drop(held);
        assert!(next.lock(p("lock")).expect("no error").is_some());
    }
    drop(lock);
}

#[test]
fn a_killed_process_leaves_a_cache_that_the_next_power_cut_takes_away() {
    let (disk, file) = with_durable(b"safe");
    file.write_all_at(b", seen", 4).expect("written");
    let next = disk.kill();
    assert!(file.len().is_err());
    assert_eq!(content(&next, "f"), Some(b"safe, seen".to_vec()));
    assert_eq!(content(&next.restart(LossPolicy::AllLost, 0), "f"), Some(b"safe".to_vec()), "a phantom");
    let careful = disk.kill();
    careful.open(p("f"), Open::Write).expect("there").sync_data().expect("synced");
    assert_eq!(content(&careful.restart(LossPolicy::AllLost, 0), "f"), Some(b"safe, seen".to_vec()));
}

#[test]
fn forks_share_nothing_that_is_written_later() {
    let (disk, file) = with_durable(&[1; 9000]);
    let fork = disk.fork();
    file.write_all_at(&[2; 9000], 0).expect("written");
    assert_eq!(content(&fork, "f"), Some(vec![1; 9000]));
    fork.remove_file(p("f")).expect("removed");
    assert_eq!(content(&disk, "f"), Some(vec![2; 9000]));
}

#[test]
fn a_crash_at_a_step_strikes_there_and_the_trace_tells_it() {
    let (disk, file) = with_durable(b"");
    disk.crash_at_step(6);
    file.set_len(10).expect("step 5 (create, write, sync, sync)");
    file.write_all_at(b"abc", 3).expect_err("struck");
    assert!(disk.is_off());
    let lines: Vec<String> = disk.trace().iter().map(ToString::to_string).collect();
    let tail = ["#4 SyncDir .", "#5 SetLen f to 10 bytes", "#6 Write f at 3 + 3 bytes [power off]"];
    assert_eq!(lines[3..], tail);
    assert_eq!(disk.steps(), 6);
    assert_eq!(disk.restart(LossPolicy::NoneLost, 0).steps(), 0);
}

#[test]
fn forks_and_restarts_share_the_bytes_that_nobody_wrote() {
    let (disk, file) = with_durable(&vec![1; 1 << 20]);
    for seed in 0..2_000 {
        let next = disk.fork();
        next.open(p("f"), Open::Write).expect("there").write_all_at(b"x", 1 << 19).expect("written");
        let after = next.restart(LossPolicy::Random, seed);
        let (before, after) = (disk.file_named(p("f")), after.file_named(p("f")));
        let block =
            |(state, id): &(MutexGuard<'_, State>, u64), n| state.files[id].cache.block(n).cloned().expect("written");
        assert!((0..256).filter(|n| *n != 128).all(|n| Arc::ptr_eq(&block(&before, n), &block(&after, n))));
    }
    assert_eq!(file.len().expect("alive"), 1 << 20);
}

#[test]
fn an_operation_of_any_kind_fails_once_half_done_done_after_all_or_for_ever() {
    type Ask = fn(&SimDisk, &Arc<dyn File>) -> std::io::Result<()>;
    type Look = fn(&SimDisk) -> bool;
    let asks: [(Ask, Look); 6] = [
        (|_, f| f.set_len(5), |d| content(d, "f").is_some_and(|c| c.len() == 5)),
        (|d, _| d.open(p("new"), Open::CreateNew).map(drop), |d| content(d, "new").is_some()),
        (|d, _| d.create_dir(p("dir")), |d| d.kind(p("dir")).expect("sound") == Some(true)),
        (|d, _| d.rename(p("f"), p("g")), |d| content(d, "g").is_some()),
        (|d, _| d.publish(p("f"), p("h")), |d| content(d, "h").is_some()),
        (|d, _| d.remove_file(p("f")), |d| content(d, "f").is_none()),
    ];
    let eio = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(5));
    for (number, (ask, is_done)) in asks.into_iter().enumerate() {
        for fault in [OpFault::Once, OpFault::OnceDone, OpFault::Forever, OpFault::ReadOnly] {
            let (disk, file) = with_durable(b"safe");
            disk.fail_operation(1, fault);
            eio(ask(&disk, &file).expect_err("armed"));
            let readable = disk.read_dir(p("/")).is_ok();
            let writable = disk.open(p("later"), Open::CreateNew).is_ok();
            let (reads, writes) = match fault {
                OpFault::Forever => (false, false),
                OpFault::ReadOnly => (true, false),
                OpFault::Once | OpFault::OnceDone => (true, true),
            };
            assert_eq!((readable, writable, disk.has_failed()), (reads, writes, true), "{number} {fault:?}");
            assert_eq!(is_done(&disk.kill()), fault == OpFault::OnceDone, "{number} {fault:?}");
        }
    }
    // Those that only look, and the two that do half of it.
    let (disk, file) = with_durable(b"safe");
    let looks: [Ask; 5] = [
        |d, _| d.read_dir(p("/")).map(drop),
        |d, _| d.kind(p("f")).map(drop),
        |d, _| d.open(p("f"), Open::Read).map(drop),
        |_, f| f.len().map(drop),
        |_, f| f.read_at(&mut [0], 0).map(drop),
    ];
    for look in looks {
        disk.fail_operation(1, OpFault::Once);
        eio(look(&disk, &file).expect_err("armed"));
        look(&disk, &file).expect("once");
    }
    disk.fail_operation(2, OpFault::Once);
    file.write_all_at(b"SA", 0).expect("the first of two");
    eio(file.write_all_at(b"FEST", 2).expect_err("the second"));
    assert_eq!(content(&disk, "f"), Some(b"SAFE".to_vec()), "half of it is there");
    disk.fail_operation(1, OpFault::OnceDone);
    eio(file.sync_data().expect_err("armed"));
    file.sync_data().expect("the pages count as clean");
    assert_eq!(
        content(&disk.restart(LossPolicy::NoneLost, 0), "f"),
        Some(b"safe".to_vec()),
        "nothing reached the disk"
    );
}
