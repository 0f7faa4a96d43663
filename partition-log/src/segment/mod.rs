//! The materialised form of a partition: segment files in Kafka's own formats.
//!
//! ```text
//! <directory of the partition>/
//!   00000000000000000000.log        batches, one behind the other, from the offset in the name
//!   00000000000000000000.index      which offset lies where, one entry per 4 KiB; derived from the log file
//!   00000000000000000000.timeindex  how young the records are up to where; derived as well
//!   00000000000000000000.txnindex   transactions aborted here; only if there are any
//!   00000000000000000000.txnsum     its checksums, a file of ours
//!   00000000000000000042.snapshot   the producers up to the segment's first offset; not of the first segment
//! ```
//!
//! The write-ahead log is the commit point: these files are written behind it, unsynced, by one materialiser, and synced
//! before the write-ahead log forgets what they hold. `docs/formats/segment.md` has the byte tables.
//!
//! Reading order: [`partition_files`] (open, write, roll), [`read`](PartitionFiles::read), [`recover`] (ends, cuts,
//! scans), `times` (by time), [`sync`], [`offset_index`], [`time_index`], [`transaction_index`], `abort_sums`, `walk` (from batch to batch), [`open_files`] (bounded
//! descriptors).
//!
//! Promises:
//!
//! * Nothing is read beyond the end that was written or told ([`PartitionFiles::truncate_to`]), whatever the files hold.
//! * Every batch that is returned is whole, undamaged by its checksum, and begins where the one before it ended. (The
//!   four bytes of the leader epoch are outside Kafka's checksum; they alone can't be checked.)
//! * An offset or time index is a hint. Each use checks that the log file says the same and that no entry is missing; if not,
//!   it is built anew from the log file.
//! * No file is closed with bytes that no sync has covered, unless the whole partition is dropped. A failed sync poisons
//!   all partitions that share an [`OpenFiles`]: every later write and sync is refused.
//! * Open files are bounded by [`OpenFiles`], active segments included (I-9).
//!
//! It deliberately doesn't decide: when to roll, what is durable and what a reader may see are the core's business.

pub mod error;
pub mod offset_index;
pub mod open_files;
pub mod partition_files;
pub mod recover;
pub mod sync;
pub mod time_index;
pub mod transaction_index;

mod abort_sums;
mod aborts;
mod bulk;
mod names;
mod read;
mod replace;
mod retain;
mod times;
mod walk;

pub use error::SegmentError;
pub use open_files::OpenFiles;
pub use partition_files::PartitionFiles;
pub use recover::{ScanReport, ScanStop};
pub(crate) use replace::Replacement;
pub(crate) use retain::EachError;
pub use transaction_index::AbortedTxn;

use crate::batch::Limits;

/// The largest position or relative offset that an index entry can hold.
pub(crate) const INDEX_MAX: u64 = i32::MAX as u64;

/// What was written is read back, however large.
pub(crate) const ANY_SIZE: Limits = Limits { batch_bytes: usize::MAX, ..Limits::DEFAULT };

/// How a partition is laid out in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// A segment is rolled before it grows beyond this. At most 2 GiB - 1 count.
    pub segment_bytes: u64,
    /// A batch gets an index entry when it lies more than this behind the last batch that has one.
    pub index_interval_bytes: u64,
}

impl SegmentConfig {
    /// Kafka's defaults: 1 GiB, 4096 bytes.
    pub const DEFAULT: SegmentConfig = SegmentConfig { segment_bytes: 1 << 30, index_interval_bytes: 4096 };

    /// True when a batch of `batch_bytes` that ends with offset `last_offset` has to go to a new segment, because the
    /// active one would grow too large or its index couldn't name the offset. Never true of an empty segment, so that a
    /// batch of any size has a place. Pure.
    pub fn must_roll(&self, end: &LogEnd, batch_bytes: u64, last_offset: i64) -> bool {
        let bytes = end.segment_position.saturating_add(batch_bytes);
        let span = last_offset.saturating_sub(end.segment_base);
        end.segment_position > 0 && (bytes > self.segment_bytes.min(INDEX_MAX) || span > i64::from(i32::MAX))
    }
}

impl Default for SegmentConfig {
    fn default() -> SegmentConfig {
        SegmentConfig::DEFAULT
    }
}

/// A place in a partition's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The segment, by its first offset.
    pub segment_base: i64,
    /// Bytes from the beginning of its log file.
    pub position: u64,
}

/// Where a partition's files end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The offset that the next record gets.
    pub next_offset: i64,
    /// The active segment, by its first offset.
    pub segment_base: i64,
    /// Bytes of whole batches in the active segment's log file.
    pub segment_position: u64,
}

impl LogEnd {
    /// The end of a partition that begins at `offset` and is empty.
    pub const fn empty_at(offset: i64) -> LogEnd {
        LogEnd { next_offset: offset, segment_base: offset, segment_position: 0 }
    }

    /// Where the next batch is written.
    pub const fn position(&self) -> Position {
        Position { segment_base: self.segment_base, position: self.segment_position }
    }
}
