//! What the tests of segment files share: a temporary partition, batches of many sizes, a reader of offsets.
#![allow(dead_code, reason = "not every test file uses everything")]

use std::io::IoSlice;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use cutwater_partition_log::batch::{BatchBuilder, BatchHeader, Compression, ProducerStamp, assign};
use cutwater_partition_log::segment::{LogEnd, OpenFiles, PartitionFiles, SegmentConfig};
use cutwater_platform::{CrashPoints, Files, Open, OsFiles};

/// A temporary directory for one partition.
pub(crate) struct Dir {
    dir: tempfile::TempDir,
}

impl Dir {
    pub(crate) fn new() -> Dir {
        Dir { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("topic-0")
    }

    pub(crate) fn files(&self, capacity: usize) -> Arc<OpenFiles> {
        OpenFiles::new(Arc::new(OsFiles), CrashPoints::default(), capacity)
    }

    /// A new, empty partition.
    pub(crate) fn open(&self, config: SegmentConfig) -> PartitionFiles {
        let files = self.reopen(config);
        files.truncate_to(LogEnd::default()).expect("empty");
        files
    }

    /// The partition as the disk has it; its end isn't known yet.
    pub(crate) fn reopen(&self, config: SegmentConfig) -> PartitionFiles {
        PartitionFiles::open(self.files(100), self.path(), config).expect("opened")
    }

    /// A second look at a partition that is open.
    pub(crate) fn open_view(&self, config: SegmentConfig, other: &PartitionFiles) -> PartitionFiles {
        let files = self.reopen(config);
        files.view_to(other.end().expect("known")).expect("whole");
        files
    }

    pub(crate) fn names(&self) -> Vec<String> {
        OsFiles.read_dir(&self.path()).expect("readable").into_iter().map(|entry| entry.name).collect()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        OsFiles.read(&self.path().join(name), u64::MAX).expect("readable")
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let file = OsFiles.open(&self.path().join(name), Open::Create).expect("opened");
        file.write_all_at(bytes, 0).expect("written");
        // Not the other way round: ext4 flushes a file that was emptied when it is closed.
        file.set_len(bytes.len() as u64).expect("cut");
    }

    pub(crate) fn copy_to(&self, other: &Dir) {
        OsFiles.create_dir_all(&other.path()).expect("created");
        for name in self.names() {
            other.write(&name, &self.read(&name));
        }
    }
}

pub(crate) fn log_name(base: i64) -> String {
    format!("{base:020}.log")
}

pub(crate) fn index_name(base: i64) -> String {
    format!("{base:020}.index")
}

/// A batch of `records` records, of a size that depends on its offset.
pub(crate) fn batch_at(base_offset: i64, records: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(if base_offset % 5 == 0 { Compression::Lz4 } else { Compression::None });
    for n in 0..records {
        let value = vec![base_offset as u8; (base_offset as usize * 37 + n as usize * 11) % 90];
        builder.push(1_000 + base_offset, Some(&n.to_be_bytes()), Some(&value), &[]).expect("small");
    }
    let mut batch = builder.build(ProducerStamp::NONE).expect("not empty");
    assign(&mut batch, base_offset, 3);
    batch
}

/// Appends one batch per number, of one to seven records, several per write, and rolls where it is due. Answers first
/// and last offset of each.
pub(crate) fn fill(files: &PartitionFiles, numbers: Range<u32>) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    let mut end = files.end().expect("known");
    for number in numbers {
        let batch = batch_at(end.next_offset, number % 7 + 1);
        let header = BatchHeader::parse(&batch).expect("a batch");
        if files.config().must_roll(&end, batch.len() as u64, header.last_offset()) {
            end = files.roll(end.next_offset, b"producers").expect("rolled");
        }
        end = files.write(end.position(), &[IoSlice::new(&batch)]).expect("written");
        all.push((header.base_offset, header.last_offset()));
    }
    all
}

/// First and last offset of each batch.
pub(crate) fn offsets_of(mut bytes: &[u8]) -> Vec<(i64, i64)> {
    let mut offsets = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::parse(bytes).expect("a batch");
        offsets.push((header.base_offset, header.last_offset()));
        bytes = &bytes[header.total_bytes()..];
    }
    offsets
}
