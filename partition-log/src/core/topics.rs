//! Topics as they come, grow and go.
//!
//! Rules:
//! * A topic's number is never used again: what still names a deleted topic finds nothing, whatever has its name now.
//! * A topic whose name was used before has directories of its own (`name~number-partition`; no topic can be called so),
//!   since those of the old one go later.
//! * With a topic go its records in open and prepared transactions, and the offsets that groups have in it. Whoever deletes
//!   a topic deletes those promises, too.
//! * A partition's start only ever rises, never above what is durable (the caller waits for that), and is kept.

use std::collections::BTreeMap;

use super::apply::{Inconsistent, inconsistent};
use super::{Effect, PartitionState, State, TopicState};
use crate::codec::{Cursor, Malformed, Put};
use crate::config::LogLimits;
use crate::error::TopicError;
use crate::policy::TopicPolicy;
use crate::topic::{TopicId, TopicPartition, check_name};
use crate::wal::frame::{Entry, settings_bytes};

/// What counts as made beside what there is, for who judges several changes before any is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) topics: usize,
    pub(crate) partitions: usize,
}

impl State {
    pub(crate) fn plan_topic(&self, name: &str, partitions: u32, limits: &LogLimits) -> Result<Entry, TopicError> {
        self.judge_topic(name, partitions, limits, Beside::default())?;
        let topic = TopicId(u32::try_from(self.topics.len()).expect("no log lives to see 2^32 topics"));
        Ok(Entry::TopicCreated { topic, partitions, name: name.to_string() })
    }

    /// What [`plan_topic_with`](State::plan_topic_with) would answer if there were more.
    pub(crate) fn judge_topic_with(
        &self,
        name: &str,
        partitions: u32,
        settings: &BTreeMap<String, String>,
        limits: &LogLimits,
        beside: Beside,
    ) -> Result<(), TopicError> {
        self.judge_topic(name, partitions, limits, beside)?;
        let created = Entry::TopicCreated { topic: TopicId(0), partitions, name: name.to_string() };
        check_settings(&pairs(settings), created.encoded_bytes(), limits)
    }

    /// Whether there can be this topic, too.
    fn judge_topic(&self, name: &str, partitions: u32, limits: &LogLimits, beside: Beside) -> Result<(), TopicError> {
        check_name(name)?;
        if self.names.contains_key(name) {
            return Err(TopicError::Exists { name: name.to_string() });
        }
        if partitions == 0 {
            return Err(TopicError::NoPartitions);
        }
        if self.names.len() + beside.topics >= limits.topics_max {
            return Err(TopicError::TooMany { what: "topics", limit: limits.topics_max });
        }
        self.check_room(partitions, limits, beside)
    }

    fn check_room(&self, partitions: u32, limits: &LogLimits, beside: Beside) -> Result<(), TopicError> {
        let known = self.partition_count.saturating_add(beside.partitions);
        if known.saturating_add(partitions as usize) > limits.partitions_max {
            return Err(TopicError::TooMany { what: "partitions", limit: limits.partitions_max });
        }
        Ok(())
    }

    fn named(&self, name: &str) -> Result<(TopicId, &TopicState), TopicError> {
        let unknown = || TopicError::Unknown { name: name.to_string() };
        let topic = *self.names.get(name).ok_or_else(unknown)?;
        Ok((topic, self.topic(topic).ok_or_else(unknown)?))
    }

    pub(crate) fn plan_topic_deletion(&self, name: &str) -> Result<Entry, TopicError> {
        Ok(Entry::TopicDeleted { topic: self.named(name)?.0 })
    }

    /// More partitions for a topic; `partitions` is how many it has then.
    pub(crate) fn plan_partitions_added(
        &self,
        name: &str,
        partitions: u32,
        limits: &LogLimits,
    ) -> Result<Entry, TopicError> {
        let (topic, _) = self.judge_growth(name, partitions, limits, Beside::default())?;
        Ok(Entry::PartitionsAdded { topic, partitions })
    }

    /// Which topic can grow to so many partitions, and by how many.
    pub(crate) fn judge_growth(
        &self,
        name: &str,
        partitions: u32,
        limits: &LogLimits,
        beside: Beside,
    ) -> Result<(TopicId, u32), TopicError> {
        let (topic, known) = self.named(name)?;
        let found = known.partitions.len() as u32;
        if partitions <= found {
            return Err(TopicError::OtherPartitions { name: name.to_string(), found, expected: partitions });
        }
        self.check_room(partitions - found, limits, beside)?;
        Ok((topic, partitions - found))
    }

    /// All settings of a topic anew.
    pub(crate) fn plan_settings(
        &self,
        name: &str,
        settings: Vec<(String, String)>,
        limits: &LogLimits,
    ) -> Result<Entry, TopicError> {
        let topic = self.named(name)?.0;
        check_settings(&settings, 0, limits)?;
        Ok(Entry::Settings { topic, settings })
    }

    /// A topic and its settings, for one write.
    pub(crate) fn plan_topic_with(
        &self,
        name: &str,
        partitions: u32,
        settings: &BTreeMap<String, String>,
        limits: &LogLimits,
    ) -> Result<Vec<Entry>, TopicError> {
        let created = self.plan_topic(name, partitions, limits)?;
        let settings = pairs(settings);
        check_settings(&settings, created.encoded_bytes(), limits)?;
        let topic = TopicId(self.topics.len() as u32);
        let settings = (!settings.is_empty()).then_some(Entry::Settings { topic, settings });
        Ok([created].into_iter().chain(settings).collect())
    }

    pub(super) fn apply_topic_created(
        &mut self,
        topic: TopicId,
        partitions: u32,
        name: &str,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Inconsistent> {
        if topic.0 as usize != self.topics.len() || self.names.contains_key(name) || name.is_empty() {
            return Err(inconsistent(format!("topic \"{name}\" can't be created as number {topic}")));
        }
        // Whatever had the name before has the plain directories, or had them.
        let used = self.topics.iter().any(|old| old.name.is_empty() && old.dir == name);
        let dir = if used { format!("{name}~{topic}") } else { name.to_string() };
        self.names.insert(name.to_string(), topic);
        self.partition_count += partitions as usize;
        let empty = (0..partitions).map(|_| PartitionState::default()).collect();
        let created =
            TopicState { name: name.to_string(), dir: dir.clone(), partitions: empty, ..TopicState::default() };
        self.topics.push(created);
        effects.push(Effect::Topic { topic, dir, partitions });
        Ok(())
    }

    pub(super) fn apply_topic_deleted(
        &mut self,
        topic: TopicId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Inconsistent> {
        let unknown = || inconsistent(format!("topic {topic} is deleted and doesn't exist"));
        let state = self.topics.get_mut(topic.0 as usize).filter(|state| !state.name.is_empty()).ok_or_else(unknown)?;
        self.names.remove(&state.name);
        self.partition_count -= state.partitions.len();
        state.gone = state.partitions.len() as u32;
        state.name.clear();
        state.partitions.clear();
        state.settings.clear();
        state.policy = TopicPolicy::default();
        for txn in self.txns.values_mut() {
            txn.partitions.retain(|at, _| at.topic != topic);
            txn.declared.retain(|at| at.topic != topic);
            forget_topic(&mut txn.offsets, topic);
        }
        forget_topic(&mut self.groups, topic);
        self.offsets_kept = self.count_offsets();
        effects.push(Effect::TopicDeleted { topic });
        Ok(())
    }

    pub(super) fn apply_partitions_added(
        &mut self,
        topic: TopicId,
        partitions: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Inconsistent> {
        let state = self.topics.get_mut(topic.0 as usize).filter(|state| !state.name.is_empty());
        let state = state.filter(|state| (partitions as usize) > state.partitions.len());
        let state =
            state.ok_or_else(|| inconsistent(format!("topic {topic} can't grow to {partitions} partitions")))?;
        self.partition_count += partitions as usize - state.partitions.len();
        state.partitions.resize_with(partitions as usize, PartitionState::default);
        effects.push(Effect::Partitions { topic, partitions });
        Ok(())
    }

    pub(super) fn apply_log_start(
        &mut self,
        at: TopicPartition,
        start: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Inconsistent> {
        let partition =
            self.partition_mut(at).filter(|partition| start > partition.log_start && start <= partition.log_end);
        let partition = partition.ok_or_else(|| inconsistent(format!("{at} can't begin at {start}")))?;
        partition.log_start = start;
        effects.push(Effect::LogStart { at, start });
        Ok(())
    }

    pub(super) fn apply_settings(&mut self, topic: TopicId, settings: &[(String, String)]) -> Result<(), Inconsistent> {
        let state = self.topics.get_mut(topic.0 as usize).filter(|state| !state.name.is_empty());
        let state = state.ok_or_else(|| inconsistent(format!("topic {topic} doesn't exist and gets settings")))?;
        state.settings = settings.iter().cloned().collect();
        state.policy = TopicPolicy::of(&state.settings);
        Ok(())
    }

    /// What images of version 3 say of topics beside what older ones do.
    pub(super) fn encode_topics(&self, out: &mut Vec<u8>) {
        out.put_len(self.topics.len());
        for topic in &self.topics {
            out.put_bytes(topic.dir.as_bytes());
            out.put_u32(topic.gone);
            topic.partitions.iter().for_each(|partition| out.put_u64(partition.log_start));
            out.put_len(topic.settings.len());
            for (key, value) in &topic.settings {
                out.put_bytes(key.as_bytes());
                out.put_bytes(value.as_bytes());
            }
        }
    }

    pub(super) fn decode_topics(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        if cursor.len(12, "topics")? != self.topics.len() {
            return Err(cursor.malformed("topics"));
        }
        for topic in &mut self.topics {
            topic.dir = cursor.string("directory")?;
            topic.gone = cursor.u32("partitions that are gone")?;
            for partition in &mut topic.partitions {
                partition.log_start = cursor.u64("log start")?;
            }
            for _ in 0..cursor.len(8, "settings")? {
                topic.settings.insert(cursor.string("setting")?, cursor.string("setting")?);
            }
            topic.policy = TopicPolicy::of(&topic.settings);
        }
        Ok(())
    }
}

fn pairs(settings: &BTreeMap<String, String>) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether there can be these settings, in one entry of the log that has so many bytes beside it in its write.
fn check_settings(settings: &[(String, String)], beside: usize, limits: &LogLimits) -> Result<(), TopicError> {
    for (setting, value) in settings {
        crate::policy::check(setting, value).map_err(|expected| TopicError::Setting {
            setting: setting.clone(),
            value: value.clone(),
            expected,
        })?;
    }
    if beside + settings_bytes(settings) > limits.end_bytes_max {
        return Err(TopicError::TooMany { what: "bytes of settings", limit: limits.end_bytes_max });
    }
    Ok(())
}

/// Drops what groups have in a topic, and groups that have nothing else.
fn forget_topic(groups: &mut super::groups::Groups, topic: TopicId) {
    groups.retain(|_, offsets| {
        let before = offsets.len();
        offsets.retain(|at, _| at.topic != topic);
        before == 0 || !offsets.is_empty()
    });
}
