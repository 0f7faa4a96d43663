//! What the log keeps of a group's members, so that they go on after a restart with nothing but their heartbeats.
//!
//! Bytes: version (u8, 1), then generation, protocol type, protocol, leader and members; numbers are big-endian, every text
//! and every list has its length in 32 bits in front. Reading allocates nothing on a length that isn't there.

use std::time::Duration;

use super::machine::{Group, Phase};
use super::member::Member;

const VERSION: u8 = 1;

/// The bytes that are kept of a group.
pub(crate) fn write(group: &Group) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&group.generation.to_be_bytes());
    for text in [&group.protocol_type, &group.protocol, &group.leader] {
        put(&mut out, text.as_bytes());
    }
    put_len(&mut out, group.members.len());
    for (id, member) in &group.members {
        put(&mut out, id.as_bytes());
        out.push(u8::from(member.instance.is_some()));
        put(&mut out, member.instance.as_deref().unwrap_or_default().as_bytes());
        put(&mut out, member.client.as_bytes());
        put(&mut out, member.host.as_bytes());
        for time in [member.session, member.rebalance] {
            out.extend_from_slice(&u64::try_from(time.as_millis()).unwrap_or(u64::MAX).to_be_bytes());
        }
        put_len(&mut out, member.protocols.len());
        for (name, metadata) in &member.protocols {
            put(&mut out, name.as_bytes());
            put(&mut out, metadata);
        }
        put(&mut out, &member.assignment);
    }
    out
}

/// A group as it was kept, every member's session beginning at `now`; `None` if that isn't what the bytes are.
pub(crate) fn read(bytes: &[u8], now: Duration) -> Option<Group> {
    let (version, rest) = bytes.split_first()?;
    if *version != VERSION {
        return None;
    }
    let mut rest = Rest(rest);
    let mut group = Group::default();
    group.generation = i32::from_be_bytes(rest.array()?);
    (group.protocol_type, group.protocol, group.leader) = (rest.text()?, rest.text()?, rest.text()?);
    for _ in 0..rest.length()? {
        let id = rest.text()?;
        let [has_instance] = rest.array()?;
        let instance = Some(rest.text()?).filter(|_| has_instance == 1);
        let (client, host) = (rest.text()?, rest.text()?);
        let mut time = || Some(Duration::from_millis(u64::from_be_bytes(rest.array()?)));
        let (session, rebalance) = (time()?, time()?);
        let mut protocols = Vec::new();
        for _ in 0..rest.length()? {
            protocols.push((rest.text()?, rest.bytes()?.to_vec()));
        }
        let assignment = rest.bytes()?.to_vec();
        let deadline = now.checked_add(session)?;
        let member =
            Member { instance, client, host, session, rebalance, protocols, assignment, deadline, ..Member::default() };
        group.members.insert(id, member);
    }
    if !group.members.is_empty() {
        group.phase = Phase::Stable;
    }
    rest.0.is_empty().then_some(group)
}

/// The least bytes of a member: seven lengths, a flag, two times.
const MEMBER_BYTES: usize = 7 * 4 + 1 + 2 * 8;

/// The most memory that reading so many bytes can take: the dearest are those of a lone member, which has a map's node of
/// eleven for itself, and those of a protocol of no name, of which a list has twice as many places as it needs.
pub(crate) fn most_memory(bytes: usize) -> usize {
    let member = (11 * (size_of::<String>() + size_of::<Member>()) + 16).div_ceil(MEMBER_BYTES);
    let protocol = (3 * size_of::<(String, Vec<u8>)>()).div_ceil(8);
    (64 << 10) + bytes * (2 + member.max(protocol))
}

pub(super) fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u32::try_from(len).expect("frames are far below 4 GiB").to_be_bytes());
}

pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn length(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.length()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_back_as_it_was_kept_and_nothing_else_is() {
        let mut group = Group::default();
        (group.generation, group.phase) = (7, Phase::Stable);
        (group.protocol_type, group.protocol, group.leader) = ("consumer".into(), "range".into(), "a".into());
        for (id, instance) in [("a", None), ("b", Some("i".to_string()))] {
            let member = Member {
                instance,
                client: "c".into(),
                host: "h".into(),
                session: Duration::from_secs(10),
                rebalance: Duration::from_secs(20),
                protocols: vec![("range".into(), vec![1, 2])],
                assignment: vec![3],
                deadline: Duration::from_secs(11),
                ..Member::default()
            };
            group.members.insert(id.to_string(), member);
        }
        let bytes = write(&group);
        assert_eq!(read(&bytes, Duration::from_secs(1)), Some(group));
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], Duration::ZERO), None, "cut at {cut}");
        }
        let mut other = bytes.clone();
        other[0] = 2;
        assert_eq!(read(&other, Duration::ZERO), None);
    }
}
