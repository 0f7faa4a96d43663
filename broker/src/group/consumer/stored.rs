//! What the log keeps of a consumer group, so that epochs go on and members need nothing but their heartbeats after a restart.
//!
//! Bytes: version (u8, 2, or 3 if a member subscribes by an expression; 1 is a classic group's), then epoch, assignor, topics, members with what they have and what they shall
//! have; numbers are big-endian, every text and every list has its length in 32 bits in front. Reading allocates nothing on a
//! length that isn't there.

use std::collections::BTreeSet;
use std::time::Duration;

use cutwater_partition_log::{TopicId, TopicPartition};

use super::assign::Assignor;
use super::machine::{ConsumerGroup, Member};
use crate::group::stored::{Rest, put, put_len};

/// A classic group's bytes begin with 1.
const VERSION: u8 = 2;
/// Behind its topics each member has an expression and the names that it matched.
const WITH_EXPRESSIONS: u8 = 3;

/// The bytes that are kept of a group.
pub(crate) fn write(group: &ConsumerGroup) -> Vec<u8> {
    let with_expressions = group.members.values().any(|member| member.regex.is_some());
    let mut out = vec![if with_expressions { WITH_EXPRESSIONS } else { VERSION }];
    out.extend_from_slice(&group.epoch.to_be_bytes());
    out.push(u8::from(group.assignor == Assignor::Range));
    put_len(&mut out, group.topics.len());
    for (name, (topic, partitions)) in &group.topics {
        put(&mut out, name.as_bytes());
        out.extend_from_slice(&topic.0.to_be_bytes());
        out.extend_from_slice(&partitions.to_be_bytes());
    }
    put_len(&mut out, group.members.len());
    for (id, member) in &group.members {
        put(&mut out, id.as_bytes());
        for text in [&member.instance, &member.rack] {
            out.push(u8::from(text.is_some()));
            put(&mut out, text.as_deref().unwrap_or_default().as_bytes());
        }
        put(&mut out, member.client.as_bytes());
        put(&mut out, member.host.as_bytes());
        let rebalance = u64::try_from(member.rebalance.as_millis()).unwrap_or(u64::MAX);
        out.extend_from_slice(&rebalance.to_be_bytes());
        put_len(&mut out, member.topics.len());
        for topic in &member.topics {
            put(&mut out, topic.as_bytes());
        }
        if with_expressions {
            put(&mut out, member.regex.as_deref().unwrap_or_default().as_bytes());
            put_len(&mut out, member.matched.len());
            for topic in &member.matched {
                put(&mut out, topic.as_bytes());
            }
        }
        out.push(match member.assignor {
            None => 0,
            Some(Assignor::Uniform) => 1,
            Some(Assignor::Range) => 2,
        });
        out.extend_from_slice(&member.epoch.to_be_bytes());
        out.extend_from_slice(&member.previous.to_be_bytes());
        out.push(u8::from(member.complete));
        let target = group.target.get(id).cloned().unwrap_or_default();
        for partitions in [&member.assigned, &member.revoking, &target] {
            put_len(&mut out, partitions.len());
            for at in partitions {
                out.extend_from_slice(&at.topic.0.to_be_bytes());
                out.extend_from_slice(&at.partition.to_be_bytes());
            }
        }
    }
    out
}

/// A group as it was kept, every member's session beginning at `now`; `None` if that isn't what the bytes are.
pub(crate) fn read(bytes: &[u8], now: Duration, session: Duration) -> Option<ConsumerGroup> {
    let (version, rest) = bytes.split_first()?;
    let with_expressions = match *version {
        VERSION => false,
        WITH_EXPRESSIONS => true,
        _ => return None,
    };
    let mut rest = Rest(rest);
    let mut group = ConsumerGroup { epoch: i32::from_be_bytes(rest.array()?), ..ConsumerGroup::default() };
    let [assignor] = rest.array()?;
    group.assignor = if assignor == 1 { Assignor::Range } else { Assignor::Uniform };
    for _ in 0..rest.length()? {
        let name = rest.text()?;
        let topic = TopicId(u32::from_be_bytes(rest.array()?));
        group.topics.insert(name, (topic, u32::from_be_bytes(rest.array()?)));
    }
    for _ in 0..rest.length()? {
        let id = rest.text()?;
        let mut optional = || {
            let [is_there] = rest.array()?;
            Some(Some(rest.text()?).filter(|_| is_there == 1))
        };
        let (instance, rack) = (optional()?, optional()?);
        let (client, host) = (rest.text()?, rest.text()?);
        let rebalance = Duration::from_millis(u64::from_be_bytes(rest.array()?));
        let topics = names(&mut rest)?;
        let (regex, matched) = match with_expressions {
            true => (Some(rest.text()?).filter(|regex| !regex.is_empty()), names(&mut rest)?),
            false => (None, BTreeSet::new()),
        };
        let matched = if regex.is_some() { matched } else { BTreeSet::new() };
        let [assignor] = rest.array()?;
        let assignor = match assignor {
            1 => Some(Assignor::Uniform),
            2 => Some(Assignor::Range),
            _ => None,
        };
        let (epoch, previous) = (i32::from_be_bytes(rest.array()?), i32::from_be_bytes(rest.array()?));
        let [complete] = rest.array()?;
        let mut partitions = || {
            let mut partitions = BTreeSet::new();
            for _ in 0..rest.length()? {
                let topic = TopicId(u32::from_be_bytes(rest.array()?));
                partitions.insert(TopicPartition::new(topic, u32::from_be_bytes(rest.array()?)));
            }
            Some(partitions)
        };
        let (assigned, revoking, target) = (partitions()?, partitions()?, partitions()?);
        let revoke_until = if revoking.is_empty() { None } else { Some(now.checked_add(rebalance)?) };
        let member = Member {
            instance,
            rack,
            client,
            host,
            rebalance,
            topics,
            regex,
            matched,
            // Topics and rights may have changed meanwhile.
            matched_at: None,
            assignor,
            epoch,
            previous,
            assigned,
            revoking,
            complete: complete == 1,
            alive_until: now.checked_add(session)?,
            revoke_until,
        };
        group.target.insert(id.clone(), target);
        group.members.insert(id, member);
    }
    rest.0.is_empty().then_some(group)
}

fn names(rest: &mut Rest<'_>) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for _ in 0..rest.length()? {
        names.insert(rest.text()?);
    }
    Some(names)
}

/// The least bytes of a member: eight lengths, three flags, a time, two epochs.
const MEMBER_BYTES: usize = 8 * 4 + 3 + 8 + 2 * 4;

/// The most memory that reading so many bytes, writing that and reading it again can take: the dearest are a lone member, which has
/// nodes of eleven in two maps for itself, and a set of one empty name, which has a node of eleven for four bytes.
pub(crate) fn most_memory(bytes: usize) -> usize {
    let entry = 2 * size_of::<String>() + size_of::<Member>() + size_of::<BTreeSet<TopicPartition>>();
    let member = (11 * entry + 64).div_ceil(MEMBER_BYTES);
    let name = (11 * size_of::<String>() + 32).div_ceil(4);
    (64 << 10) + 2 * bytes * (2 + member + name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look_at_membership;

    #[test]
    fn what_is_kept_of_a_consumer_group_is_known_for_such_and_no_part_of_it_is() {
        let mut group = ConsumerGroup { epoch: 7, ..ConsumerGroup::default() };
        group.topics.insert("t".to_string(), (TopicId(3), 4));
        let bytes = write(&group);
        assert!(look_at_membership(&bytes));
        for cut in 0..bytes.len() {
            assert!(!look_at_membership(&bytes[..cut]), "cut at {cut}");
        }
    }
}
