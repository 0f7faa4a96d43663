//! What is synced, in which order, and what happens when a sync fails.

mod segment_support;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cutwater_partition_log::segment::{LogEnd, OpenFiles, PartitionFiles, SegmentConfig, SegmentError};
use cutwater_platform::{CrashHook, CrashPoints, DirEntry, File, Files, Lock, Open, OsFiles};
use segment_support::{Dir, batch_at, fill};

const SMALL: SegmentConfig = SegmentConfig { segment_bytes: 1_500, index_interval_bytes: 300 };

/// The machine's files, watched: which have unsynced bytes, what was synced, and a switch that makes syncs fail.
#[derive(Debug, Default)]
struct Watch {
    unsynced: Mutex<BTreeMap<PathBuf, bool>>,
    synced: Mutex<Vec<String>>,
    fail: AtomicBool,
    closed_unsynced: Mutex<Vec<PathBuf>>,
}

#[derive(Debug, Clone)]
struct Watched(Arc<Watch>);

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    watch: Arc<Watch>,
}

impl Watch {
    fn sync(&self, path: &Path) -> io::Result<()> {
        if self.fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is gone"));
        }
        self.unsynced.lock().expect("unbroken").insert(path.to_path_buf(), false);
        let name = path.file_name().map(|name| name.to_string_lossy().trim_start_matches('0').to_string());
        self.synced.lock().expect("unbroken").push(name.unwrap_or_default());
        Ok(())
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        if self.watch.unsynced.lock().expect("unbroken").get(&self.path) == Some(&true) {
            self.watch.closed_unsynced.lock().expect("unbroken").push(self.path.clone());
        }
    }
}

impl WatchedFile {
    fn written(&self) {
        self.watch.unsynced.lock().expect("unbroken").insert(self.path.clone(), true);
    }
}

impl File for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.written();
        self.file.write_all_at(bytes, offset)
    }
    fn write_all_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.written();
        self.file.write_all_vectored_at(parts, offset)
    }
    fn write_synced_at(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_synced_at(blocks, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written();
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.watch.sync(&self.path)
    }
}

impl Files for Watched {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = OsFiles.open(path, how)?;
        Ok(Arc::new(WatchedFile { file, path: path.to_path_buf(), watch: self.0.clone() }))
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        OsFiles.read_dir(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsFiles.create_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsFiles.rename(from, to)
    }
    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsFiles.publish(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsFiles.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        OsFiles.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync(path)
    }
    fn kind(&self, path: &Path) -> io::Result<Option<bool>> {
        OsFiles.kind(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        OsFiles.lock(path)
    }
}

/// Notes the crash points in the order in which they are reached.
#[derive(Clone, Default)]
struct Points(Arc<Mutex<Vec<&'static str>>>);

impl CrashHook for Points {
    fn reached(&self, point: &'static str) {
        self.0.lock().expect("unbroken").push(point);
    }
}

fn open(dir: &Dir, watch: &Arc<Watch>, points: &Points, capacity: usize) -> PartitionFiles {
    let files = Arc::new(Watched(watch.clone()));
    let open = OpenFiles::new(files, CrashPoints::armed(points.clone()), capacity);
    let files = PartitionFiles::open(open, dir.path(), SMALL).expect("opened");
    files.truncate_to(LogEnd::default()).expect("empty");
    files
}

#[test]
fn a_sync_covers_every_file_oldest_first_then_the_names() {
    let (dir, watch, points) = (Dir::new(), Arc::<Watch>::default(), Points::default());
    let files = open(&dir, &watch, &points, 100);
    fill(&files, 0..7);
    let bases = files.segment_bases();
    assert_eq!(bases.len(), 2, "{bases:?}");
    assert!(files.dirty_bytes() > 1_000 && watch.synced.lock().expect("unbroken").is_empty(), "writes don't sync");
    let mut pauses = 0;
    files.sync_paced(|| pauses += 1).expect("synced");
    let synced = std::mem::take(&mut *watch.synced.lock().expect("unbroken"));
    let second = bases[1];
    let expected = [".index", ".timeindex", ".log", &format!("{second}.snapshot"), &format!("{second}.log"), "topic-0"];
    assert_eq!(synced[..6], expected, "the second segment's indexes have no entry yet");
    assert_eq!((synced.len(), pauses), (7, 7), "and the parent of the new directory");
    assert!(watch.unsynced.lock().expect("unbroken").values().all(|unsynced| !unsynced));
    assert_eq!((files.dirty_bytes(), files.is_dirty()), (0, false));
    files.sync_paced(|| {}).expect("nothing to do");
    assert!(watch.synced.lock().expect("unbroken").is_empty(), "a clean partition costs no sync");
    let reached = points.0.lock().expect("unbroken").clone();
    assert_eq!(reached.iter().filter(|p| **p == "segment.written").count(), 7);
    let mut rest: Vec<_> = reached.into_iter().filter(|p| *p != "segment.written").collect();
    rest.dedup();
    let expected = ["segment.index-written", "segment.rolled", "segment.synced", "segment.dir-synced"];
    assert_eq!(rest, expected);
}

#[test]
fn a_failed_sync_poisons_and_nothing_is_called_synced_afterwards() {
    let (dir, watch, points) = (Dir::new(), Arc::<Watch>::default(), Points::default());
    let files = open(&dir, &watch, &points, 100);
    fill(&files, 0..16);
    watch.fail.store(true, Ordering::SeqCst);
    let error = files.sync_paced(|| {}).expect_err("the disk fails");
    assert!(error.poisons() && matches!(error, SegmentError::Sync(_)));
    watch.fail.store(false, Ordering::SeqCst);
    let end = files.end().expect("known");
    let batch = batch_at(end.next_offset, 1);
    assert!(matches!(files.sync_paced(|| {}), Err(SegmentError::Poisoned { .. })), "a second try proves nothing");
    assert!(matches!(files.write(end.position(), &[IoSlice::new(&batch)]), Err(SegmentError::Poisoned { .. })));
    assert!(matches!(files.roll(end.next_offset, b"producers"), Err(SegmentError::Poisoned { .. })));
    assert!(matches!(files.truncate_to(end), Err(SegmentError::Poisoned { .. })));
    assert!(!files.read(0, 100, i64::MAX).expect("reading goes on").is_empty());
}

#[test]
fn no_file_is_closed_before_its_bytes_are_synced() {
    let (dir, watch, points) = (Dir::new(), Arc::<Watch>::default(), Points::default());
    let files = open(&dir, &watch, &points, 2);
    fill(&files, 0..120);
    assert!(files.segment_bases().len() > 8, "many more files than may be open");
    assert_eq!(*watch.closed_unsynced.lock().expect("unbroken"), Vec::<PathBuf>::new());
    files.close().expect("synced");
    drop(files);
    assert_eq!(*watch.closed_unsynced.lock().expect("unbroken"), Vec::<PathBuf>::new());
    assert!(watch.unsynced.lock().expect("unbroken").values().all(|unsynced| !unsynced));
}

#[test]
fn a_sync_that_fails_when_another_file_needs_room_poisons_all_partitions() {
    let (dir, watch) = (Dir::new(), Arc::<Watch>::default());
    let open = OpenFiles::new(Arc::new(Watched(watch.clone())), CrashPoints::default(), 1);
    let partition = |name: &str| {
        let path = dir.path().with_file_name(name);
        let files = PartitionFiles::open(open.clone(), path, SMALL).expect("opened");
        files.truncate_to(LogEnd::default()).expect("empty");
        files
    };
    let (first, second) = (partition("t-0"), partition("t-1"));
    fill(&first, 0..2);
    watch.fail.store(true, Ordering::SeqCst);
    let batch = batch_at(0, 1);
    let error =
        second.write(LogEnd::default().position(), &[IoSlice::new(&batch)]).expect_err("the first can't be closed");
    assert!(error.poisons(), "{error}");
    watch.fail.store(false, Ordering::SeqCst);
    assert!(open.is_poisoned());
    assert!(matches!(first.sync_paced(|| {}), Err(SegmentError::Poisoned { .. })), "whose bytes are in doubt");
}

#[test]
fn names_that_a_killed_process_left_unsynced_are_synced_with_the_first_bytes_behind_them() {
    let (dir, watch, points) = (Dir::new(), Arc::<Watch>::default(), Points::default());
    let files = open(&dir, &watch, &points, 100);
    fill(&files, 0..2);
    files.sync_paced(|| {}).expect("synced");
    let end = files.end().expect("known");
    let rolled = files.roll(end.next_offset, b"producers").expect("rolled");
    drop(files); // as good as killed: nobody has synced the new name
    watch.synced.lock().expect("unbroken").clear();
    let shared = OpenFiles::new(Arc::new(Watched(watch.clone())), CrashPoints::default(), 100);
    let files = PartitionFiles::open(shared, dir.path(), SMALL).expect("opened");
    files.truncate_to(rolled).expect("nothing to cut");
    fill(&files, 0..1);
    files.sync_paced(|| {}).expect("synced");
    let synced = watch.synced.lock().expect("unbroken").clone();
    assert_eq!(synced[..2], [format!("{}.log", end.next_offset), "topic-0".to_string()]);
    assert_eq!(synced.len(), 3, "and the parent: {synced:?}");
}
