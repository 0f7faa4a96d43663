//! Offsets, and the four named positions of a partition.

use std::fmt;

/// The place of a record in its partition, counted from 0. Markers take an offset too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The first offset.
    pub const ZERO: Offset = Offset(0);
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a partition stands: `log_start <= last_stable <= high_watermark <= log_end`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// The first offset that can still be read; [`Log::delete_records`](crate::Log::delete_records) moves it.
    pub log_start: Offset,
    /// The first offset of the oldest undecided transaction, or the high watermark. Read-committed readers stop before it.
    pub last_stable: Offset,
    /// The first offset that isn't durable yet. All readers stop before it.
    pub high_watermark: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
}

impl PartitionOffsets {
    /// Checks the order of the four.
    ///
    /// # Panics
    /// If it doesn't hold: that is a bug of the log.
    pub(crate) fn checked(self) -> PartitionOffsets {
        assert!(
            self.log_start <= self.last_stable
                && self.last_stable <= self.high_watermark
                && self.high_watermark <= self.log_end,
            "offsets out of order: {self:?}"
        );
        self
    }
}
