//! A log for a test, and attempts that write to it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use cutwater_engine::error::SinkError;
use cutwater_engine::id::{Attempt, CheckpointId, JobId, WorkerIndex};
use cutwater_engine::sink::{CommitGroup, Sink, SinkWriter, Visibility, WriterId};
use cutwater_engine::source::{Source, Waker};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::Platform;
use cutwater_sources_sinks::log::{LogHandle, LogRecord};

pub(crate) const JOB: JobId = JobId(0xC0FFEE);

pub(crate) fn open_log(dir: &Path) -> LogHandle {
    let platform = Platform::real();
    LogHandle::of(&platform, Log::open(&platform, dir, LogOptions::default()).unwrap())
}

/// What a `kill -9` at this moment would leave behind: a copy of the files as they are, opened as another log.
pub(crate) fn crashed(dir: &Path) -> (tempfile::TempDir, LogHandle) {
    let copy = tempfile::tempdir().unwrap();
    copy_dir(dir, copy.path());
    let log = open_log(copy.path());
    (copy, log)
}

fn copy_dir(from: &Path, to: &Path) {
    for entry in from.read_dir().unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::DirBuilder::new().create(&to).unwrap();
            copy_dir(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// The group of all sinks on the log.
pub(crate) fn group(log: &LogHandle) -> Arc<dyn CommitGroup> {
    log.write::<String>("unused").group().unwrap()
}

/// Fences for an attempt.
pub(crate) fn begin(log: &LogHandle, attempt: u64) -> Arc<dyn CommitGroup> {
    let group = group(log);
    group.fence(JOB, Attempt(attempt)).unwrap();
    group
}

pub(crate) fn writer_id(sink: &str, attempt: u64, worker: u32, first: Option<u64>) -> WriterId {
    WriterId {
        job: JOB,
        attempt: Attempt(attempt),
        sink: sink.to_string(),
        worker: WorkerIndex(worker),
        visibility: first.map_or(Visibility::AtOnce, |n| Visibility::ByCheckpoint { first: CheckpointId(n) }),
    }
}

pub(crate) type Writer<T> = Box<dyn SinkWriter<Item = T>>;

/// Seals and prepares: the handle, if there was anything to prepare.
pub(crate) fn prepare<T>(writer: &mut Writer<T>, checkpoint: u64) -> Result<Option<Vec<u8>>, SinkError> {
    writer.seal(CheckpointId(checkpoint))?.map(|prepare| prepare()).transpose().map(Option::flatten)
}

/// Everything that is committed in a partition.
pub(crate) fn committed_in(log: &LogHandle, topic: &str, partition: u32) -> Vec<LogRecord> {
    let mut reader = log.read(topic).open(&partition.to_string(), None, Waker::noop()).unwrap();
    crate::common::drain(reader.as_mut(), 1000).unwrap().0
}

/// The values of everything that is committed in partition 0.
pub(crate) fn committed(log: &LogHandle, topic: &str) -> Vec<String> {
    committed_in(log, topic, 0).into_iter().map(text).collect()
}

pub(crate) fn text(record: LogRecord) -> String {
    String::from_utf8(record.value.unwrap()).unwrap()
}

/// Appends one batch outside of transactions.
pub(crate) fn append(log: &LogHandle, topic: &str, values: &[&str]) {
    let log = log.log().unwrap();
    let topic = log.create_topic_if_absent(topic, 1).unwrap();
    let mut batch = BatchBuilder::new(Compression::None);
    for value in values {
        batch.push(7, None, Some(value.as_bytes()), &[]).unwrap();
    }
    log.producer().unwrap().append(topic, 0, &mut batch).unwrap().wait().unwrap();
}
