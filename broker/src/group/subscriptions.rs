//! What the members of a classic group read. To the coordinator that is opaque, but whoever deletes offsets has to know: those that are
//! read stay. Consumers say it first thing in what they join with (`ConsumerProtocolSubscription`: version, topics, the rest).

use std::collections::BTreeSet;

use super::machine::Group;

/// The kind of groups whose members say what they read.
const CONSUMER: &str = "consumer";

/// The topics of all members, under whatever protocol; `None` if one doesn't say.
pub(crate) fn topics(group: &Group) -> Option<BTreeSet<String>> {
    if group.protocol_type != CONSUMER {
        return None;
    }
    let mut all = BTreeSet::new();
    for member in group.members.values() {
        for (_, metadata) in &member.protocols {
            all.extend(subscribed(metadata)?);
        }
    }
    Some(all)
}

/// The topics of one subscription.
fn subscribed(mut metadata: &[u8]) -> Option<Vec<String>> {
    let _version = take(&mut metadata, 2)?;
    let count = i32::from_be_bytes(take(&mut metadata, 4)?.try_into().ok()?);
    // A topic has two bytes at least, so a count that lies ends with the bytes.
    let mut topics = Vec::new();
    for _ in 0..count {
        let size = i16::from_be_bytes(take(&mut metadata, 2)?.try_into().ok()?);
        let name = take(&mut metadata, usize::try_from(size).ok()?)?;
        topics.push(String::from_utf8(name.to_vec()).ok()?);
    }
    Some(topics)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::member::Member;

    fn of(kind: &str, metadata: &[&[u8]]) -> Option<Vec<String>> {
        let member = |metadata: &&[u8]| Member {
            protocols: vec![("range".to_string(), metadata.to_vec())],
            ..Member::default()
        };
        let members = metadata.iter().zip(0..).map(|(metadata, at)| (format!("m{at}"), member(metadata))).collect();
        let mut group = Group::default();
        group.protocol_type = kind.to_string();
        group.members = members;
        topics(&group).map(|all| all.into_iter().collect())
    }

    #[test]
    fn what_all_members_read_is_known_or_nothing_is() {
        let two = b"\0\x03\0\0\0\x02\0\x01b\0\x01a the rest";
        let one = b"\0\0\0\0\0\x01\0\x01c";
        assert_eq!(of(CONSUMER, &[two, one]), Some(vec!["a".to_string(), "b".to_string(), "c".to_string()]));
        assert_eq!(of("connect", &[two]), None);
        for cut in 0..two.len() - 9 {
            assert_eq!(of(CONSUMER, &[one, &two[..cut]]), None, "{cut}");
        }
        assert_eq!(of(CONSUMER, &[b"\0\0\x7f\xff\xff\xff\0\x01c"]), None, "more topics than there are bytes");
    }
}
