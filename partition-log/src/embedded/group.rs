//! Offsets of consumer groups: where a reader goes on after a restart.
//!
//! Committed inside a transaction they become the group's exactly when its records become visible, in the same write. That
//! is what makes consume, transform, produce exact: what was read, and what was made of it, are one.
//!
//! ```
//! use cutwater_partition_log::batch::{BatchBuilder, Compression};
//! use cutwater_partition_log::{Isolation, Log, LogOptions, Offset, OwnerId, TopicPartition, TxnName};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
//! let words = log.create_topic_if_absent("words", 1)?;
//! let shouts = log.create_topic_if_absent("shouts", 1)?;
//! # let mut batch = BatchBuilder::new(Compression::None);
//! # for word in ["one", "two", "three"] {
//! #     batch.push(0, None, Some(word.as_bytes()), &[])?;
//! # }
//! # log.producer()?.append(words, 0, &mut batch)?.wait()?;
//!
//! // The next attempt of this job: whatever an earlier one left open is aborted.
//! let attempt = log.owners().first().map_or(1, |owner| owner.attempt + 1);
//! let owner = log.claim(&OwnerId(7), attempt)?;
//! let from = TopicPartition::new(words, 0);
//!
//! // Consume from where the group stands: nothing is known of it at first.
//! let known = log.group_offsets("shouters")?.offsets.get(&from).map(|kept| kept.offset);
//! let mut consumer = log.consumer(words, 0, known.unwrap_or(Offset::ZERO), Isolation::ReadCommitted)?;
//! for checkpoint in 1.. {
//!     let fetched = consumer.poll(1 << 20)?;
//!     if fetched.is_empty() {
//!         break;
//!     }
//!     // Transform.
//!     let mut batch = BatchBuilder::new(Compression::Zstd);
//!     let mut shouted = Ok(());
//!     fetched.for_each(|record| {
//!         let text = String::from_utf8_lossy(record.value.unwrap_or_default()).to_uppercase();
//!         shouted = shouted.clone().and_then(|()| batch.push(record.timestamp_ms, record.key, Some(text.as_bytes()), &[]));
//!     })?;
//!     shouted?;
//!     // Produce, and say in the same transaction how far was read.
//!     let mut txn = owner.begin(TxnName { checkpoint, sink: "shouts".to_string(), writer: 0 })?;
//!     txn.append(shouts, 0, &mut batch)?;
//!     txn.commit_offsets("shouters", [(from, consumer.position())])?;
//!     txn.commit()?;
//! }
//! let stands = log.group_offsets("shouters")?;
//! assert_eq!(stands.offsets.get(&from).map(|kept| kept.offset), Some(Offset(3)));
//! # let mut read = log.consumer(shouts, 0, Offset::ZERO, Isolation::ReadCommitted)?;
//! # let mut seen = Vec::new();
//! # read.poll(1 << 20)?.for_each(|record| seen.push(record.value.map(<[u8]>::to_vec)))?;
//! # assert_eq!(seen, ["ONE", "TWO", "THREE"].map(|word| Some(word.as_bytes().to_vec())));
//! # Ok(())
//! # }
//! ```
//!
//! It deliberately knows no members: who reads what is the broker's business, or the job's.

use super::Log;
use super::transaction::Txn;
use crate::group::{GroupError, GroupOffsets, OffsetCommit};

impl Log {
    /// Commits offsets of a group at once, outside of transactions. Durable on return. No offsets, nothing to do.
    ///
    /// # Errors
    /// The group's name is none, a partition doesn't exist, too many offsets are kept, or the log is down.
    pub fn commit_offsets<O: Into<OffsetCommit>>(
        &self,
        group: &str,
        offsets: impl IntoIterator<Item = O>,
    ) -> Result<(), GroupError> {
        let shared = &self.inner.shared;
        let offsets = offsets.into_iter().map(Into::into).collect();
        shared.carry_out(|core| {
            let entry = core.state.plan_offsets(None, group, offsets, shared.wall(), &shared.limits)?;
            core.push(entry);
            Ok(())
        })
    }

    /// What a group has committed: everything that is answered is durable, and so are the records that came with it. Nothing
    /// for a group that nobody knows.
    ///
    /// # Errors
    /// The log is down.
    pub fn group_offsets(&self, group: &str) -> Result<GroupOffsets, GroupError> {
        self.inner.shared.carry_out(|core| Ok(core.state.group_offsets(group)))
    }

    /// The groups that have committed offsets, by name. Durable, as all that is answered.
    ///
    /// # Errors
    /// The log is down.
    pub fn groups(&self) -> Result<Vec<String>, GroupError> {
        self.inner.shared.carry_out(|core| Ok(core.state.groups.keys().cloned().collect()))
    }

    /// Forgets a group and its offsets; fine if there is none. Durable on return.
    ///
    /// # Errors
    /// A live transaction holds offsets of it; the log is down.
    pub fn delete_group(&self, group: &str) -> Result<(), GroupError> {
        self.inner.shared.carry_out(|core| {
            let entry = core.state.plan_group_deletion(group)?;
            core.push_all(entry);
            Ok(())
        })
    }
}

impl Txn {
    /// Hands offsets of a group to the transaction: its commit makes them the group's, in the same write that makes its
    /// records visible; its abort drops them. Later ones of the same partition replace earlier ones. Doesn't wait, as
    /// [`Txn::append`].
    ///
    /// # Errors
    /// The group's name is none, a partition doesn't exist, too many offsets are kept, the transaction is fenced or was ended
    /// by somebody, or the log is down.
    pub fn commit_offsets<O: Into<OffsetCommit>>(
        &mut self,
        group: &str,
        offsets: impl IntoIterator<Item = O>,
    ) -> Result<(), GroupError> {
        let shared = &self.inner.shared;
        let offsets = offsets.into_iter().map(Into::into).collect();
        let mut core = shared.core_with_room(crate::held::Needs::AFrame)?;
        let entry = core.state.plan_offsets(Some(&self.id), group, offsets, shared.wall(), &shared.limits)?;
        core.push(entry);
        let wake = core.wants_writer();
        drop(core);
        if wake {
            shared.wake_writer();
        }
        Ok(())
    }
}
