//! What the log acts on of a topic's settings, by Kafka's names and with Kafka's meaning.
//!
//! Settings are words that others keep beside a topic; those named here the log reads itself. A word that isn't one is refused
//! when it is set ([`check`]), and means the default where an older program has let it in. Nothing is deleted and nothing
//! compacted unless a topic asks for it: an embedded log doesn't lose records because a week has passed.

use std::collections::BTreeMap;

/// What a topic asks of whoever writes to it or deletes from it: how old records go, as its `cleanup.policy` says, and how large a batch may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// Segments go when they are too old or too much, if the topic says how old and how much.
    pub delete: bool,
    /// Of each key the last record stays. Records need keys then.
    pub compact: bool,
    /// `max.message.bytes`: the largest batch that clients may send, as it is stored. Above all topics' limit it means nothing.
    pub batch_bytes_max: Option<u64>,
}

/// What a topic asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopicPolicy {
    /// `cleanup.policy` contains `delete`, as it does by default: old segments go.
    pub(crate) delete: bool,
    /// `cleanup.policy` contains `compact`: of each key the last record stays.
    pub(crate) compact: bool,
    /// `max.message.bytes`: the largest batch that clients may send.
    pub(crate) batch_bytes_max: Option<u64>,
    /// `retention.ms`: how long after its youngest record a segment stays.
    pub(crate) retention_ms: Option<i64>,
    /// `retention.bytes`: how much of a partition stays at least.
    pub(crate) retention_bytes: Option<u64>,
    /// `segment.bytes`: as the limit of all topics.
    pub(crate) segment_bytes: Option<u32>,
    /// `segment.ms`: how long after its first record a segment is written to.
    pub(crate) segment_ms: Option<i64>,
    /// `delete.retention.ms`: how long a reader has to see a tombstone or a marker before it goes.
    pub(crate) delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: records younger than this aren't compacted.
    pub(crate) min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: a record older than this is compacted, however few there are.
    pub(crate) max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`: so large a part of the bytes must be new before it is worth a round.
    pub(crate) min_dirty_ratio: f64,
}

impl Default for TopicPolicy {
    fn default() -> TopicPolicy {
        TopicPolicy {
            delete: true,
            compact: false,
            batch_bytes_max: None,
            retention_ms: None,
            retention_bytes: None,
            segment_bytes: None,
            segment_ms: None,
            delete_retention_ms: 24 * 3600 * 1000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_dirty_ratio: 0.5,
        }
    }
}

impl TopicPolicy {
    /// What these settings ask for.
    pub(crate) fn of(settings: &BTreeMap<String, String>) -> TopicPolicy {
        let mut policy = TopicPolicy::default();
        for (name, value) in settings {
            // Only what an older program has let in doesn't fit.
            let _ = policy.set(name, value);
        }
        policy
    }

    /// True when the log has nothing to do for it but what everybody gets.
    pub(crate) fn is_idle(&self) -> bool {
        !self.compact
            && (!self.delete || (self.retention_ms.is_none() && self.retention_bytes.is_none()))
            && self.segment_ms.is_none()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "cleanup.policy" => {
                let words: Vec<&str> = value.split(',').map(str::trim).collect();
                if words.is_empty() || !words.iter().all(|word| ["delete", "compact"].contains(word)) {
                    return Err("\"delete\", \"compact\" or \"compact,delete\"");
                }
                (self.delete, self.compact) = (words.contains(&"delete"), words.contains(&"compact"));
            }
            "max.message.bytes" => self.batch_bytes_max = number(value, 0)?.map(i64::cast_unsigned),
            "retention.ms" => self.retention_ms = number(value, -1)?.filter(|ms| *ms < i64::MAX),
            "retention.bytes" => self.retention_bytes = number(value, -1)?.map(i64::cast_unsigned),
            "segment.bytes" => {
                let bytes = number(value, 14)?.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
                self.segment_bytes = bytes.map(|bytes| bytes.clamp(SEGMENT_BYTES_MIN, i32::MAX.unsigned_abs()));
            }
            "segment.ms" => self.segment_ms = number(value, 1)?.filter(|ms| *ms < i64::MAX),
            "delete.retention.ms" => self.delete_retention_ms = number(value, 0)?.unwrap_or(0),
            "min.compaction.lag.ms" => self.min_compaction_lag_ms = number(value, 0)?.unwrap_or(0),
            "max.compaction.lag.ms" => self.max_compaction_lag_ms = number(value, 1)?.unwrap_or(i64::MAX),
            "min.cleanable.dirty.ratio" => {
                let ratio = value.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                self.min_dirty_ratio = ratio.ok_or("a number from 0 to 1")?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The smallest segment: below, a handful of small batches would make one.
const SEGMENT_BYTES_MIN: u32 = 128;

/// A whole number of at least `from`; -1, where that is allowed, is none.
fn number(value: &str, from: i64) -> Result<Option<i64>, &'static str> {
    match value.trim().parse::<i64>() {
        Ok(number) if number >= from => Ok(Some(number).filter(|number| *number >= 0)),
        _ if from < 0 => Err("a whole number of -1 (no limit) or more"),
        _ if from == 0 => Err("a whole number of 0 or more"),
        _ => Err("a larger whole number"),
    }
}

/// Checks one setting that is to be kept; names that the log doesn't know are others' business.
///
/// # Errors
/// What the value should be.
pub(crate) fn check(name: &str, value: &str) -> Result<(), &'static str> {
    TopicPolicy::default().set(name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str)]) -> TopicPolicy {
        TopicPolicy::of(&settings.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect())
    }

    #[test]
    fn settings_mean_what_kafka_means_by_them_and_nothing_goes_by_default() {
        assert!(of(&[]).is_idle() && of(&[("cleanup.policy", "delete"), ("owner", "me")]).is_idle());
        let policy = of(&[("cleanup.policy", "compact, delete"), ("retention.ms", "5"), ("retention.bytes", "-1")]);
        assert!(policy.delete && policy.compact && !policy.is_idle());
        assert_eq!((policy.retention_ms, policy.retention_bytes), (Some(5), None));
        assert!(of(&[("cleanup.policy", "delete"), ("retention.ms", "9223372036854775807")]).is_idle());
        assert_eq!(of(&[("segment.bytes", "14")]).segment_bytes, Some(SEGMENT_BYTES_MIN));
        assert_eq!(of(&[("segment.bytes", "99999999999")]).segment_bytes, Some(i32::MAX.unsigned_abs()));
    }

    #[test]
    fn a_word_that_is_none_is_refused_and_means_the_default_where_it_got_in() {
        for (name, value) in [
            ("cleanup.policy", "shred"),
            ("cleanup.policy", ""),
            ("retention.ms", "-2"),
            ("retention.bytes", "much"),
            ("min.cleanable.dirty.ratio", "NaN"),
            ("segment.ms", "0"),
        ] {
            assert!(check(name, value).is_err(), "{name}={value}");
            assert_eq!(of(&[(name, value)]), TopicPolicy::default());
        }
        assert_eq!(check("compression.type", "whatever"), Ok(()), "not ours to judge");
    }
}
