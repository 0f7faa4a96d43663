//! Judges by the clock: which transactions have been open for too long, which producers silent. Changes nothing.
//!
//! * A prepared transaction never times out: its owner decides, however long that takes.
//! * A transaction that does is ended with its producer's next epoch (KAFKA-6119): its writer's late batches are refused by
//!   every partition that it has written to.
//! * A producer with a live transaction isn't forgotten, and neither is one whose newest trace is a marker before its time
//!   (KAFKA-9144). The clock is the log's own, never a client's.
//! * Owners are never forgotten, however idle: their attempt number is the fence (I-7). What a transactional id costs, its
//!   outcomes, goes when its owner says so.

use super::{State, TxnPhase};
use crate::config::LogLimits;
use crate::owner::TxnId;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Entry;

/// At most so many producers are looked at in one go: the lock that it takes is everybody's.
const PRODUCERS_AT_ONCE: usize = 10_000;
/// And so many partitions.
const PARTITIONS_AT_ONCE: usize = 10_000;

impl State {
    /// The open transactions of owners that were begun before `deadline`, with their producer ids.
    pub(crate) fn timed_out(&self, deadline: i64) -> (Vec<TxnId>, Vec<i64>) {
        let late = self.txns.iter().filter(|(_, txn)| txn.phase == TxnPhase::Open && txn.since < deadline);
        // Clients' transactions have time-outs of their own.
        late.filter_map(|(producer, txn)| Some((txn.whose.owner()?.clone(), *producer))).unzip()
    }

    /// The entries that forget producers silent since before `deadline`, of the partitions from `from` on, and where to go
    /// on the next time: at the beginning again once all were looked at.
    pub(crate) fn plan_expiry(
        &self,
        from: TopicPartition,
        deadline: i64,
        limits: &LogLimits,
    ) -> (Vec<Entry>, TopicPartition) {
        let per_entry = (limits.end_bytes_max / size_of::<i64>() / 2).max(1);
        let (mut entries, mut looked, mut partitions) = (Vec::new(), 0, 0);
        for (index, topic) in self.topics.iter().enumerate().skip(from.topic.0 as usize) {
            let skip = if index == from.topic.0 as usize { from.partition as usize } else { 0 };
            for (number, partition) in topic.partitions.iter().enumerate().skip(skip) {
                let at = TopicPartition::new(TopicId(index as u32), number as u32);
                if looked >= PRODUCERS_AT_ONCE || partitions >= PARTITIONS_AT_ONCE {
                    return (entries, at);
                }
                looked += partition.producers.len();
                partitions += 1;
                let silent = partition.producers.iter().filter(|(_, state)| state.wall < deadline);
                let silent = silent.map(|(producer, _)| *producer).filter(|producer| !self.txns.contains_key(producer));
                let silent: Vec<i64> = silent.collect();
                let entry = |producers: &[i64]| Entry::ForgetProducers { at, producers: producers.to_vec() };
                entries.extend(silent.chunks(per_entry).map(entry));
            }
        }
        (entries, TopicPartition::new(TopicId(0), 0))
    }
}
