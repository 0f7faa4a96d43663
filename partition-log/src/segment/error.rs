//! What can go wrong with segment files.

use std::path::PathBuf;

use cutwater_platform::IoError;
use thiserror::Error;

use super::Position;
use crate::batch::BatchError;
use crate::room::NoRoom;

/// What went wrong with a partition's segment files.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// The system refused; nothing has changed that a repetition would not change the same way.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A sync failed: what is on the disk is unknown. Further writes and syncs are refused; reopen and recover.
    #[error("{0}; what is on the disk is unknown now: stop, and recover from the write-ahead log")]
    Sync(#[source] IoError),
    /// An earlier sync failed.
    #[error("{} isn't written any more since a sync has failed: reopen and recover from the write-ahead log", path.display())]
    Poisoned {
        /// The partition's directory.
        path: PathBuf,
    },
    /// A file doesn't hold what it must.
    #[error("{} is damaged at byte {position}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        position: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// A file is shorter than what is known to have been synced.
    #[error("{} has {found} bytes, but {expected} were durable: the disk lost data that it had confirmed", path.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// Bytes that must be there.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The offset lies before the first or behind the last one.
    #[error("offset {from} isn't there: the files hold {start} up to but not including {end}")]
    OutOfRange {
        /// The offset asked for.
        from: i64,
        /// The first offset of the files.
        start: i64,
        /// One above the last.
        end: i64,
    },
    /// The files were opened, but nobody has said yet where they end.
    #[error("the end of {} isn't known yet: call truncate_to or view_to first", path.display())]
    EndUnknown {
        /// The partition's directory.
        path: PathBuf,
    },
    /// A write that doesn't begin where the files end.
    #[error("a write at {found:?} was asked for, but the files end at {expected:?}: cut there first to replay")]
    NotAtEnd {
        /// Where they end.
        expected: Position,
        /// Where the write should have gone.
        found: Position,
    },
    /// A batch, roll or mark whose offset doesn't follow.
    #[error("{what}: offset {expected} was expected, {found} was given")]
    Order {
        /// What was given.
        what: &'static str,
        /// The offset that would follow.
        expected: i64,
        /// The offset that was given.
        found: i64,
    },
    /// The segment can't take more: its index couldn't name the place.
    #[error("the segment {segment_base} can't take offset {last_offset} at byte {position}: roll first")]
    MustRoll {
        /// The segment.
        segment_base: i64,
        /// The last offset of the batch.
        last_offset: i64,
        /// Where the batch would lie.
        position: u64,
    },
    /// The keys of a single batch are more than compaction may remember.
    #[error("the keys of the batch at offset {offset} don't fit the {limit} bytes of `compaction_map_bytes`: raise it")]
    KeysDontFit {
        /// The batch.
        offset: i64,
        /// The limit.
        limit: usize,
    },
    /// What should be written isn't a batch.
    #[error("batch {index} of the write is no batch: {source}")]
    NotABatch {
        /// Which one, from 0.
        index: usize,
        /// Why not.
        source: BatchError,
    },
}

impl SegmentError {
    /// What there was no room for, if that was a write of at most so many bytes, which may be done again.
    pub(crate) fn no_room(&self, bytes: u64) -> Option<NoRoom> {
        match self {
            SegmentError::Io(error) => NoRoom::of(error, bytes),
            _ => None,
        }
    }

    /// True when it is unknown what is on the disk: the log must stop and be reopened.
    pub fn poisons(&self) -> bool {
        matches!(self, SegmentError::Sync(_) | SegmentError::Poisoned { .. })
    }
}
