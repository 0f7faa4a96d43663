//! Compaction: of each key the last record stays (`cleanup.policy=compact`).
//!
//! ```text
//!   sealed, settled segments --1: keys--> KeyMap (key -> newest offset, bounded)
//!            |                                 |
//!            +--------2: batch by batch-----> Judge --fate--> rewriting --> .cleaned -> .swap -> in their place
//! ```
//!
//! Reading order: [`keys`], [`scope`] (when, and over what), [`judge`] (which records survive; both pure), [`round`] (one round over a partition). The files are
//! `segment::replace`'s business, the bytes of batches `batch::rewrite`'s.
//!
//! Promises:
//! * A reader of committed records that reads from any offset to the end sees for each key the same last record as before; and
//!   a deletion (tombstone) for `delete.retention.ms` at least after it was first compacted.
//! * Offsets never change, and nothing above the last stable offset, in the active segment, or where a replay may begin is
//!   touched. Batches follow each other without a gap: where nothing is left stands one batch without records.
//! * Records of aborted transactions go, whatever their keys. A marker stays while a batch of its transaction does, and
//!   `delete.retention.ms` longer; the transaction index keeps its entry with the marker.
//! * The batches by which live producers are known stay, without records if need be: five of each, as the log remembers, and
//!   their last marker.
//! * Memory is bounded by [`LogLimits::compaction_map_bytes`](crate::LogLimits): a round that would need more ends early, at
//!   the beginning of a batch, and the next one goes on there. Above that place nothing at all is touched (KAFKA-13727).
//!
//! Sources: Kafka's log cleaner (KIP-58, KIP-354, KIP-534); KAFKA-8351, KAFKA-13727, redpanda 15672, 29001.
//!
//! What it deliberately doesn't do: take records away because their key is missing *before* the topic is compacted at all, and
//! remember across a restart how far it had come: after one, a first round looks at everything.

pub(crate) mod judge;
pub(crate) mod keys;
pub(crate) mod round;
pub(crate) mod scope;

#[cfg(test)]
mod tests;
