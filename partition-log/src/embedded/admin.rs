//! Topics that grow and go, records that are deleted, and what others keep beside a topic or a group.

use std::collections::BTreeMap;

use super::Log;
use crate::error::{FetchError, TopicError};
use crate::group::GroupError;
use crate::offset::Offset;
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Entry;

impl Log {
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
        shared.carry_out(|core| {
            let entry = core.state.plan_partitions_added(name, partitions, &shared.limits)?;
            core.push(entry);
            Ok(())
        })
    }

    /// What is kept beside a topic; nothing for a topic that isn't there. The log itself acts on none of it.
    pub fn topic_settings(&self, name: &str) -> BTreeMap<String, String> {
        let core = self.inner.shared.lock();
        let topic = core.state.names.get(name).and_then(|id| core.state.topic(*id));
        topic.map(|topic| topic.settings.clone()).unwrap_or_default()
    }

    /// Changes what is kept beside a topic: `change` gets what there is, under the log's lock. Durable on return.
    ///
    /// # Errors
    /// There is no such topic, the settings are too long, or the log is down.
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

    /// Makes everything below `before` unreadable, for good; without it, everything up to the high watermark. Answers the
    /// first offset that can be read then. Durable on return. The disk space comes back only with the topic's deletion.
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
