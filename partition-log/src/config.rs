//! Every limit of the log in one place, with the relations between them.

use std::time::Duration;

use cutwater_platform::BLOCK_BYTES;

/// How a log is opened.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Who opens it; written into the lock file, so that a second process can be told.
    pub holder: Holder,
    /// When another process of this machine holds the log: kill exactly that process, wait for the lock, open.
    pub take_over: bool,
    /// Sizes and counts.
    pub limits: LogLimits,
}

/// Who holds a log, in words for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The job's name or id.
    pub job: String,
    /// The job's attempt.
    pub attempt: u64,
}

/// Sizes, counts and times of a log. The defaults suit a machine with a fast disk; tests use [`LogLimits::tiny`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Size of one write-ahead file, header included. A multiple of 4096.
    pub wal_file_bytes: u64,
    /// A file that was never used grows by zeros of this size ahead of the writer. A multiple of 4096.
    pub wal_extend_bytes: usize,
    /// Write-ahead files in the ring; when all are in use the writer waits for the log's checkpoint.
    pub wal_files_max: usize,
    /// At most this much goes into one group (one synced write), one larger entry excepted.
    pub group_bytes: usize,
    /// The largest record batch.
    pub batch_bytes_max: usize,
    /// The largest entry that ends transactions; checked at prepare for all prepared transactions of an owner together.
    pub end_bytes_max: usize,
    /// Bytes accepted but not yet written; beyond it, appenders wait.
    pub queue_bytes: usize,
    /// Bytes durable but not yet in segments; beyond it, the writer waits.
    pub unmaterialised_bytes: usize,
    /// The log's own checkpoint is taken after this many bytes of write-ahead log.
    pub checkpoint_bytes: u64,
    /// A segment is rolled before it would grow beyond this.
    pub segment_bytes: u32,
    /// One entry of a segment's offset index per this many bytes.
    pub index_interval_bytes: u32,
    /// Bytes of newest batches that are kept in memory for readers, over all partitions.
    pub tail_bytes: usize,
    /// Segment bytes of a partition that are written before the system is told to begin their write-back: in small pieces
    /// all the time it never stalls the log's own syncs, and the log's checkpoint finds little left to sync.
    pub write_back_bytes: u64,
    /// Segment and index files open at once. A segment that long runs are written to takes two descriptors.
    pub open_files_max: usize,
    /// Topics.
    pub topics_max: usize,
    /// Partitions of all topics together.
    pub partitions_max: usize,
    /// Open and prepared transactions of one owner.
    pub transactions_max: usize,
    /// Partitions that one transaction may write to.
    pub transaction_partitions_max: usize,
    /// Outcomes kept for one owner until they are forgotten.
    pub outcomes_max: usize,
    /// Offsets of consumer groups that are kept, over all groups and live transactions.
    pub group_offsets_max: usize,
    /// Transactional ids of Kafka clients that are known.
    pub client_ids_max: usize,
    /// Producers that one partition remembers; the longest silent one without an open transaction goes first.
    pub producers_max: usize,
    /// An open transaction older than this is aborted by the log itself, and its producer fenced; a prepared one never is.
    /// More than the longest checkpoint interval.
    pub transaction_timeout: Duration,
    /// A partition forgets a producer that has been silent for so long and has no live transaction.
    pub producer_expiry: Duration,
    /// A transactional id that says nothing for so long is forgotten, unless its transaction is open.
    pub client_expiry: Duration,
    /// A prepared transaction older than this is named in a warning, again and again.
    pub prepared_alarm: Duration,
    /// What compaction may remember of a partition's keys, about 64 bytes each; a round that would need more is done in parts.
    pub compaction_map_bytes: usize,
    /// How often the janitor looks for what can go: by retention, by deletion, by compaction.
    pub janitor_every: Duration,
    /// Room that is taken on the disk and given up when it is full, so that what was accepted becomes durable, transactions end, and
    /// deletions make room. 0 for none. Enough in any case is `queue_bytes` and `unmaterialised_bytes` together, and twice the state.
    pub reserve_bytes: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits {
            wal_file_bytes: 64 << 20,
            wal_extend_bytes: 4 << 20,
            wal_files_max: 4,
            group_bytes: 4 << 20,
            batch_bytes_max: 8 << 20,
            end_bytes_max: 2 << 20,
            queue_bytes: 32 << 20,
            unmaterialised_bytes: 64 << 20,
            checkpoint_bytes: 128 << 20,
            segment_bytes: 256 << 20,
            index_interval_bytes: 4096,
            tail_bytes: 128 << 20,
            write_back_bytes: 1 << 20,
            open_files_max: 1024,
            topics_max: 10_000,
            partitions_max: 100_000,
            transactions_max: 10_000,
            transaction_partitions_max: 10_000,
            outcomes_max: 1_000_000,
            group_offsets_max: 100_000,
            client_ids_max: 100_000,
            producers_max: 100_000,
            transaction_timeout: Duration::from_secs(24 * 3600),
            producer_expiry: Duration::from_secs(24 * 3600),
            client_expiry: Duration::from_secs(7 * 24 * 3600),
            prepared_alarm: Duration::from_secs(15 * 60),
            compaction_map_bytes: 64 << 20,
            janitor_every: Duration::from_secs(5 * 60),
            reserve_bytes: 64 << 20,
        }
    }
}

impl LogLimits {
    /// Limits so small that a handful of appends rolls segments, takes checkpoints of the log and recycles its files.
    pub fn tiny() -> LogLimits {
        LogLimits {
            wal_file_bytes: 8 * BLOCK_BYTES as u64,
            wal_extend_bytes: 4 * BLOCK_BYTES,
            wal_files_max: 3,
            group_bytes: 2 * BLOCK_BYTES,
            batch_bytes_max: BLOCK_BYTES,
            end_bytes_max: BLOCK_BYTES,
            queue_bytes: 8 * BLOCK_BYTES,
            unmaterialised_bytes: 8 * BLOCK_BYTES,
            checkpoint_bytes: 6 * BLOCK_BYTES as u64,
            segment_bytes: 1024,
            index_interval_bytes: 256,
            tail_bytes: 2048,
            write_back_bytes: 1024,
            open_files_max: 4,
            topics_max: 100,
            partitions_max: 1000,
            transactions_max: 100,
            transaction_partitions_max: 100,
            outcomes_max: 1000,
            group_offsets_max: 100,
            client_ids_max: 100,
            producers_max: 100,
            transaction_timeout: Duration::from_secs(3600),
            producer_expiry: Duration::from_secs(24 * 3600),
            client_expiry: Duration::from_secs(7 * 24 * 3600),
            prepared_alarm: Duration::from_secs(15 * 60),
            compaction_map_bytes: 64 * 64,
            janitor_every: Duration::from_secs(5 * 60),
            reserve_bytes: 16 * BLOCK_BYTES as u64,
        }
    }

    /// So many bytes are worth a go of the materialiser.
    pub(crate) fn gathered_bytes(&self) -> usize {
        self.unmaterialised_bytes / 16
    }

    /// At most so much memory of batches is kept for the next ones: what one go of the materialiser may let go of, and some more.
    pub(crate) fn spare_bytes(&self) -> usize {
        (self.tail_bytes / 8).min(16 << 20)
    }

    /// How often an idle log looks for what has been open, silent or prepared for too long.
    pub(crate) fn look_every(&self) -> Duration {
        (self.transaction_timeout.min(self.producer_expiry) / 4).clamp(Duration::from_secs(1), Duration::from_secs(30))
    }

    /// The largest frame, padding included.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        let entry = self.batch_bytes_max.max(self.end_bytes_max) + crate::wal::frame::ENTRY_OVERHEAD;
        (crate::wal::frame::FRAME_HEADER_BYTES + entry.max(self.group_bytes)).next_multiple_of(BLOCK_BYTES)
    }

    /// Says what is wrong with these limits, if something is.
    ///
    /// # Errors
    /// A sentence that names the relation that doesn't hold.
    pub fn check(&self) -> Result<(), String> {
        let block = BLOCK_BYTES as u64;
        let rules = [
            (self.wal_file_bytes.is_multiple_of(block), "wal_file_bytes must be a multiple of 4096"),
            (self.wal_extend_bytes.is_multiple_of(BLOCK_BYTES), "wal_extend_bytes must be a multiple of 4096"),
            (self.wal_extend_bytes > 0, "wal_extend_bytes must not be 0"),
            (self.wal_files_max >= 2, "wal_files_max must be at least 2: one is written while the others are freed"),
            (
                self.wal_file_bytes >= block + self.frame_bytes_max() as u64,
                "wal_file_bytes must hold its header (4096) and the largest frame (group, batch or ending entry)",
            ),
            (self.batch_bytes_max >= 256, "batch_bytes_max must be at least 256, or no record fits"),
            (self.end_bytes_max >= 512, "end_bytes_max must be at least 512, or no transaction can end"),
            (self.queue_bytes >= self.batch_bytes_max, "queue_bytes must hold the largest batch"),
            (self.checkpoint_bytes >= block, "checkpoint_bytes must be at least 4096"),
            (self.segment_bytes >= 128, "segment_bytes must be at least 128"),
            (self.segment_bytes <= i32::MAX.unsigned_abs(), "segment_bytes must fit 31 bits"),
            (self.index_interval_bytes > 0, "index_interval_bytes must not be 0"),
            (self.open_files_max > 0, "open_files_max must not be 0"),
            (self.producers_max > 0, "producers_max must not be 0"),
            (!self.transaction_timeout.is_zero(), "transaction_timeout must not be 0, or no transaction lives"),
            (!self.janitor_every.is_zero(), "janitor_every must not be 0, or the janitor never rests"),
            (!self.producer_expiry.is_zero(), "producer_expiry must not be 0, or no repeated batch is recognised"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err((*rule).to_string()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_limits_fit_each_other_and_a_frame_that_fits_no_file_is_named() {
        assert_eq!(LogLimits::default().check(), Ok(()));
        assert_eq!(LogLimits::tiny().check(), Ok(()));
        let bad = LogLimits { wal_file_bytes: 4096, ..LogLimits::tiny() };
        assert!(bad.check().expect_err("too small").contains("largest frame"));
    }
}
