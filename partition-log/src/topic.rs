//! Topics: a name, a number of partitions, and the directory of each partition.

use std::fmt;

use thiserror::Error;

/// The longest topic (and sink) name, as in Kafka.
pub const NAME_BYTES_MAX: usize = 249;

/// Names a topic for the life of its log. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u32);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition, counted from 0.
    pub partition: u32,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    pub fn new(topic: TopicId, partition: u32) -> TopicPartition {
        TopicPartition { topic, partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} of topic {}", self.partition, self.topic)
    }
}

/// A topic as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: u32,
}

/// A name that a topic or sink can't have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{name}\" is no valid name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - (and not \".\" or \"..\")")]
pub struct InvalidName {
    /// The name that was given.
    pub name: String,
}

/// Checks a name against Kafka's alphabet for topics.
///
/// # Errors
/// [`InvalidName`] with the rule.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name != "." && name != "..";
    if fits && name.bytes().all(legal) { Ok(()) } else { Err(InvalidName { name: name.to_string() }) }
}

/// The directory of a partition below `partitions/`.
pub(crate) fn directory_name(topic: &str, partition: u32) -> String {
    format!("{topic}-{partition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_of_kafkas_alphabet_are_refused() {
        for good in ["a", "flights.dead-letter", "A_9", "...", &"x".repeat(249)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(250)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
