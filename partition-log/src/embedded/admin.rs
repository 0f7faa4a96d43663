//! Topics that grow and go, records that are deleted, and what others keep beside a topic or a group.

use std::collections::{BTreeMap, BTreeSet};

use cutwater_platform::WallTime;

use super::Log;
use crate::error::{FetchError, TidyError, TopicError};
use crate::group::GroupError;
use crate::janitor::Tidied;
use crate::offset::Offset;
use crate::policy::Cleanup;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Entry;

impl Log {
    /// Creates a topic together with what is kept beside it, in one write: after a crash there are both or neither. Durable on
    /// return. See [`Log::change_topic_settings`] for what settings the log acts on.
    ///
    /// ```
    /// use cutwater_partition_log::{Log, LogOptions};
    /// # let dir = tempfile::tempdir()?;
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
    /// let settings = [("cleanup.policy".to_string(), "compact".to_string())].into();
    /// let table = log.create_topic_with("airports", 1, &settings)?;
    /// assert!(log.cleanup(table).compact);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Log::create_topic`] and [`Log::change_topic_settings`]; then there is no topic.
    pub fn create_topic_with(
        &self,
        name: &str,
        partitions: u32,
        settings: &BTreeMap<String, String>,
    ) -> Result<TopicId, TopicError> {
        let shared = &self.inner.shared;
        shared.grow(|core| {
            let entries = core.state.plan_topic_with(name, partitions, settings, &shared.limits)?;
            core.push_together(entries);
            Ok(core.state.names.get(name).copied().expect("just created"))
        })
    }

    /// Deletes a topic with all that is in it: records, what open and prepared transactions hold in it, offsets of groups.
    /// Its number is never used again. Durable on return; its files go with the log's next checkpoint.
    ///
    /// # Errors
    /// There is no such topic, or the log is down.
    pub fn delete_topic(&self, name: &str) -> Result<(), TopicError> {
        self.inner.shared.carry_out(|core| {
            let entry = core.state.plan_topic_deletion(name)?;
            core.push(entry);
            Ok(())
        })
    }

    /// Gives a topic more partitions; `partitions` is how many it has then. Durable on return.
    ///
    /// # Errors
    /// There is no such topic, it has as many already, there are too many, or the log is down.
    pub fn grow_topic(&self, name: &str, partitions: u32) -> Result<(), TopicError> {
        let shared = &self.inner.shared;
        shared.grow(|core| {
            let entry = core.state.plan_partitions_added(name, partitions, &shared.limits)?;
            core.push(entry);
            Ok(())
        })
    }

    /// What is kept beside a topic; nothing for a topic that isn't there. See [`Log::change_topic_settings`].
    pub fn topic_settings(&self, name: &str) -> BTreeMap<String, String> {
        let core = self.inner.shared.lock();
        let topic = core.state.names.get(name).and_then(|id| core.state.topic(*id));
        topic.map(|topic| topic.settings.clone()).unwrap_or_default()
    }

    /// Changes what is kept beside a topic: `change` gets what there is, under the log's lock. Durable on return.
    ///
    /// The log itself acts on these, by Kafka's names and meaning: `cleanup.policy`, `retention.ms`, `retention.bytes`,
    /// `segment.bytes`, `segment.ms`, `delete.retention.ms`, `min.compaction.lag.ms`, `max.compaction.lag.ms` and
    /// `min.cleanable.dirty.ratio`. Without them nothing is ever taken away; what they take, the janitor takes within
    /// [`LogLimits::janitor_every`](crate::LogLimits::janitor_every), or [`Log::tidy`] at once.
    ///
    /// ```
    /// use cutwater_partition_log::{Log, LogOptions};
    /// # let dir = tempfile::tempdir()?;
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
    /// log.create_topic("flights", 1)?;
    /// log.change_topic_settings("flights", |settings| {
    ///     settings.insert("retention.ms".to_string(), "604800000".to_string()); // a week
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such topic, a setting of these can't have such a value, they are too long, or the log is down.
    pub fn change_topic_settings(
        &self,
        name: &str,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> Result<(), TopicError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let known = core.state.names.get(name).and_then(|id| core.state.topic(*id));
            let mut settings = known.map(|topic| topic.settings.clone()).unwrap_or_default();
            change(&mut settings);
            let entry = core.state.plan_settings(name, settings.into_iter().collect(), &shared.limits)?;
            core.push(entry);
            Ok(())
        })
    }

    /// How old records of a topic go; a topic that isn't there has the default.
    pub fn cleanup(&self, topic: TopicId) -> Cleanup {
        let core = self.inner.shared.lock();
        let nothing = Cleanup { delete: true, compact: false, batch_bytes_max: None };
        core.state.topic(topic).map_or(nothing, |t| Cleanup {
            delete: t.policy.delete,
            compact: t.policy.compact,
            batch_bytes_max: t.policy.batch_bytes_max,
        })
    }

    /// Makes everything below `before` unreadable, for good; without it, everything up to the high watermark. Answers the
    /// first offset that can be read then. Durable on return. Whole segments below it go with the janitor's next pass, except
    /// for what a transaction holds back.
    ///
    /// # Errors
    /// There is no such partition, `before` lies above the high watermark, or the log is down.
    pub fn delete_records(&self, at: TopicPartition, before: Option<Offset>) -> Result<Offset, FetchError> {
        let offsets = self.offsets(at.topic, at.partition)?;
        let target = before.unwrap_or(offsets.high_watermark);
        if target > offsets.high_watermark {
            let (start, end) = (offsets.log_start, offsets.high_watermark);
            return Err(FetchError::OutOfRange { at, offset: target, start, end });
        }
        self.inner.shared.carry_out(|core| {
            let partition = core.state.partition(at).ok_or(FetchError::UnknownPartition { at })?;
            let start = partition.log_start;
            if target.0 > start {
                core.push(Entry::LogStart { at, start: target.0 });
            }
            Ok(Offset(start.max(target.0)))
        })
    }

    /// Does now what the janitor does by itself every [`LogLimits::janitor_every`](crate::LogLimits::janitor_every), as if it
    /// were `now`: takes away what retention doesn't keep and the files of what can't be read any more, and compacts. Answers what was done;
    /// what is gone is gone on return, what isn't goes with a later pass.
    ///
    /// # Errors
    /// The log is down. A partition that can't be tidied is no error but named in the answer.
    pub fn tidy(&self, now: WallTime) -> Result<Tidied, TidyError> {
        self.inner.shared.tidy(now.0)
    }

    /// What the janitor has done since the log was opened.
    pub fn tidied(&self) -> Tidied {
        self.inner.shared.tidied.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Forgets offsets of a group; those that it doesn't have are fine. Durable on return.
    ///
    /// # Errors
    /// There are too many for one entry, or the log is down.
    pub fn delete_offsets(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), GroupError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let entry = core.state.plan_offsets_deletion(group, partitions, &shared.limits)?;
            core.push_all(entry);
            Ok(())
        })
    }

    /// Groups that have offsets from before `before`, by name: at most `most`, those behind `after`. For [`Log::expire_offsets`], by
    /// whoever knows their members.
    pub fn stale_groups(&self, before: WallTime, after: &str, most: usize) -> Vec<String> {
        self.inner.shared.lock().state.stale_groups(before.0, after, most)
    }

    /// Forgets a group's offsets from before `before`, but for those in topics that are `read`, and those that a live transaction may
    /// still change. An offset's time begins when it is committed, and anew with [`Log::renew_offsets`]. Answers what is forgotten,
    /// durably. The log never does it by itself: who reads what is the business of whoever manages the group.
    ///
    /// ```
    /// use cutwater_partition_log::{Log, LogOptions, Offset, TopicPartition};
    /// use cutwater_platform::WallTime;
    /// # let dir = tempfile::tempdir()?;
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), LogOptions::default())?;
    /// let at = TopicPartition::new(log.create_topic("words", 1)?, 0);
    /// log.commit_offsets("readers", [(at, Offset(7))])?;
    /// assert_eq!(log.expire_offsets("readers", WallTime(0), &[].into())?, []);
    /// assert_eq!(log.expire_offsets("readers", WallTime(i64::MAX), &[at.topic].into())?, []);
    /// assert_eq!(log.expire_offsets("readers", WallTime(i64::MAX), &[].into())?, [at]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The log is down.
    pub fn expire_offsets(
        &self,
        group: &str,
        before: WallTime,
        read: &BTreeSet<TopicId>,
    ) -> Result<Vec<TopicPartition>, GroupError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let (entries, gone) = core.state.plan_offset_expiry(group, before.0, read, &shared.limits);
            core.push_all(entries);
            Ok(gone)
        })
    }

    /// Has the time of a group's offsets begin anew: its last member has left. Durable on return.
    ///
    /// # Errors
    /// The log is down.
    pub fn renew_offsets(&self, group: &str) -> Result<(), GroupError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let entries = core.state.plan_offsets_renewal(group, shared.wall(), &shared.limits);
            core.push_all(entries);
            Ok(())
        })
    }

    /// Forgets a group that has no offsets, and that no live transaction has any of; whether it was one. Durable on return.
    ///
    /// # Errors
    /// The log is down.
    pub fn forget_bare_group(&self, group: &str) -> Result<bool, GroupError> {
        self.inner.shared.carry_out(|core| {
            let is_bare = !core.state.groups.contains_key(group);
            let entry = if is_bare { core.state.plan_group_deletion(group).ok().flatten() } else { None };
            let forgotten = entry.is_some();
            core.push_all(entry);
            Ok(forgotten)
        })
    }

    /// Keeps what the members of a group have agreed on, in the words of whoever manages them. Goes with the group
    /// ([`Log::delete_group`]). Durable on return.
    ///
    /// # Errors
    /// The group's name is none, there are too many groups, it is too long, or the log is down.
    pub fn keep_membership(&self, group: &str, members: Vec<u8>) -> Result<(), GroupError> {
        let shared = &self.inner.shared;
        shared.carry_out(|core| {
            let entry = core.state.plan_membership(group, members, &shared.limits)?;
            core.push(entry);
            Ok(())
        })
    }

    /// What was kept of all groups' members.
    pub fn memberships(&self) -> BTreeMap<String, Vec<u8>> {
        self.inner.shared.lock().state.memberships.clone()
    }

    /// The topic of this number, if it is there.
    pub fn topic_by_id(&self, id: TopicId) -> Option<crate::Topic> {
        let core = self.inner.shared.lock();
        let topic = core.state.topic(id).filter(|topic| !topic.name.is_empty())?;
        Some(crate::Topic { id, name: topic.name.clone(), partitions: topic.partitions.len() as u32 })
    }
}
