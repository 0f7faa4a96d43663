//! A reader of the log's files that shares no code with the log.
//!
//! It is written from `docs/formats/` alone, names no crate of Cutwater, and works out by itself which transactions were
//! committed: from the markers in the partition. So it can't repeat a mistake of the log's own reader. It reads a directory that was closed
//! cleanly; then the segments hold everything. It is slow and reads a partition as a whole.

mod batch;
mod bytes;
mod crc;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use batch::Record;
use batch::{Batch, Content};

/// A partition as a read-committed reader must see it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Committed records in the order of their offsets.
    pub(crate) records: Vec<Record>,
    /// Transactions of which a commit marker stands here.
    pub(crate) committed: usize,
    /// Transactions of which an abort marker stands here.
    pub(crate) aborted: usize,
    /// Records of aborted transactions: written, and never to be seen.
    pub(crate) aborted_records: usize,
}

/// Reads the segments of one partition's directory.
pub(crate) fn read_partition(directory: &Path) -> Result<Partition, String> {
    let at = |path: &Path, what: String| format!("{}: {what}", path.display());
    let mut segments: Vec<(i64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory).map_err(|e| at(directory, e.to_string()))? {
        let path = entry.map_err(|e| at(directory, e.to_string()))?.path();
        if path.extension().is_some_and(|e| e == "log") {
            let stem = path.file_stem().and_then(|s| s.to_str()).filter(|s| s.len() == 20);
            let base = stem.and_then(|s| s.parse().ok());
            segments.push((base.ok_or_else(|| at(&path, "its name is not 20 digits".to_string()))?, path));
        }
    }
    segments.sort();
    let mut reader = Reader::default();
    for (base, path) in segments {
        let bytes = fs::read(&path).map_err(|e| at(&path, e.to_string()))?;
        reader.segment(base, &bytes).map_err(|what| at(&path, what))?;
    }
    reader.finish().map_err(|what| at(directory, what))
}

/// Follows the transactions of a partition, batch by batch.
#[derive(Default)]
struct Reader {
    partition: Partition,
    /// The offset that the next batch must have; `None` before the first.
    next: Option<i64>,
    /// Records of transactions that haven't ended yet, by producer.
    open: BTreeMap<i64, Vec<Record>>,
}

impl Reader {
    fn segment(&mut self, base: i64, bytes: &[u8]) -> Result<(), String> {
        if self.next.is_some_and(|next| next != base) {
            return Err(format!("begins at offset {base}, and the segment before it ends at {:?}", self.next));
        }
        self.next = Some(base);
        let mut at = 0;
        while at < bytes.len() {
            let (batch, len) = batch::read(&bytes[at..]).map_err(|what| format!("at byte {at}: {what}"))?;
            self.batch(batch).map_err(|what| format!("at byte {at}: {what}"))?;
            at += len;
        }
        Ok(())
    }

    fn batch(&mut self, batch: Batch) -> Result<(), String> {
        if self.next != Some(batch.first_offset) || batch.last_offset < batch.first_offset {
            let (first, last) = (batch.first_offset, batch.last_offset);
            return Err(format!("offsets {first} to {last} where {:?} must follow", self.next));
        }
        self.next = Some(batch.last_offset + 1);
        match batch.content {
            Content::Records { records, .. }
                if records.iter().map(|r| r.offset).ne(batch.first_offset..=batch.last_offset) =>
            {
                return Err("the records' offsets aren't the batch's".to_string());
            }
            Content::Records { transactional: false, records } => self.partition.records.extend(records),
            Content::Records { transactional: true, records } => {
                self.open.entry(batch.producer).or_default().extend(records)
            }
            Content::Marker { commit } => {
                let records = self.open.remove(&batch.producer).unwrap_or_default();
                if commit {
                    self.partition.committed += 1;
                    self.partition.records.extend(records);
                } else {
                    self.partition.aborted += 1;
                    self.partition.aborted_records += records.len();
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Partition, String> {
        if let Some((producer, records)) = self.open.first_key_value() {
            let count = records.len();
            return Err(format!("the transaction of producer {producer} with {count} records has not ended"));
        }
        self.partition.records.sort_by_key(|record| record.offset);
        Ok(self.partition)
    }
}
