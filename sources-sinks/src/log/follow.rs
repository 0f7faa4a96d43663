//! How far a topic's source has come, as the offsets of a consumer group: for tools that show lag. Pure but for the commit group it names.
//!
//! A mark is what the log's commit group hears with the commit of a checkpoint: the group's name, the checkpoint, and the next offset of
//! each partition. It is made and read in one process, or in the one that goes on, so it carries a version like everything that is kept.

use std::fmt;
use std::sync::Arc;

use cutwater_engine::id::CheckpointId;
use cutwater_engine::sink::CommitGroup;
use cutwater_engine::source::{Follow, SplitState};
use cutwater_partition_log::{GroupProgress, Offset, OffsetCommit, TopicId, TopicPartition};

use super::LogCommitGroup;
use super::source::Place;
use crate::position::{Cursor, PositionError};

/// Format of a mark.
const VERSION: u8 = 1;

/// A source that is seen as a group.
pub(crate) struct LogFollow {
    pub(crate) group: String,
    pub(crate) told: Arc<LogCommitGroup>,
}

impl fmt::Debug for LogFollow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogFollow({:?})", self.group)
    }
}

impl Follow for LogFollow {
    fn group(&self) -> Arc<dyn CommitGroup> {
        self.told.clone()
    }

    fn mark(&self, checkpoint: CheckpointId, splits: &[SplitState]) -> Option<Vec<u8>> {
        let place = |split: &SplitState| {
            let partition: u32 = split.split.parse().ok()?;
            let place = Place::decode(split.position.as_deref()?).ok()?;
            Some((place.topic, partition, place.next))
        };
        let places: Vec<_> = splits.iter().filter_map(place).collect();
        (!places.is_empty()).then(|| encode(&self.group, checkpoint, &places))
    }
}

fn encode(group: &str, checkpoint: CheckpointId, places: &[(TopicId, u32, u64)]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&(group.len() as u32).to_le_bytes());
    out.extend_from_slice(group.as_bytes());
    out.extend_from_slice(&checkpoint.0.to_le_bytes());
    out.extend_from_slice(&(places.len() as u32).to_le_bytes());
    for (topic, partition, next) in places {
        out.extend_from_slice(&topic.0.to_le_bytes());
        out.extend_from_slice(&partition.to_le_bytes());
        out.extend_from_slice(&next.to_le_bytes());
    }
    out
}

/// What a mark says.
pub(crate) fn decode(mark: &[u8]) -> Result<GroupProgress, PositionError> {
    let mut cursor = Cursor::new(mark, VERSION)?;
    let group = String::from_utf8(cursor.bytes()?.to_vec()).map_err(|_| PositionError::Damaged)?;
    let metadata = format!("checkpoint {}", cursor.u64()?);
    let mut offsets = vec![];
    for _ in 0..cursor.u32()? {
        let at = TopicPartition::new(TopicId(cursor.u32()?), cursor.u32()?);
        offsets.push(OffsetCommit { at, offset: Offset(cursor.u64()?), metadata: metadata.clone() });
    }
    cursor.end()?;
    Ok(GroupProgress { group, offsets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_bytes_and_a_damaged_one_is_none() {
        let mark = encode("delays", CheckpointId(7), &[(TopicId(3), 0, 12), (TopicId(3), 1, u64::MAX)]);
        let told = decode(&mark).expect("just encoded");
        let at = |partition| TopicPartition::new(TopicId(3), partition);
        let offset = |partition, offset| OffsetCommit {
            at: at(partition),
            offset: Offset(offset),
            metadata: "checkpoint 7".to_string(),
        };
        assert_eq!(
            told,
            GroupProgress { group: "delays".to_string(), offsets: vec![offset(0, 12), offset(1, u64::MAX)] }
        );
        for cut in 0..mark.len() {
            assert!(decode(&mark[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode(&[&mark[..], &[0]].concat()).is_err());
    }
}
