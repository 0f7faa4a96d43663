//! Names in the target folder of a file sink, and the handles in checkpoints. Pure.
//!
//! ```text
//!   .owner                              the job to which the folder belongs
//!   .a3                                 attempt 3 may write here; its successor's fence takes this name away first
//!   .a3-c7/delays-a3-c7-w0-p0.csv       attempt 3 writes: sink "delays", checkpoint 7, worker 0, its first part
//!   .a3-commit-7/..                     checkpoint 7 with copies of what was prepared for declined ones
//!   .f2 .f2-c7/.. .f2-commit-7/..       what attempt 2 left, renamed away
//!   .delays-a3-c0-w0-p1.csv             below exactly-once: a part that isn't whole yet
//!   .outcomes/7                         checkpoint 7 is decided: its parts are shown, or are about to be
//!   checkpoint-000000000007/..          checkpoint 7, shown by one rename
//! ```
//!
//! The promise: a part's name holds attempt, checkpoint, sink and worker, so no two attempts ever want one name. A name that
//! isn't ours reads as nothing and is left alone. Everything but what is shown begins with a dot, which shells and most readers
//! of folders of data skip.

use std::fmt;

use crate::position::{Cursor, PositionError};

/// Format of a handle: 1 without checksums, 2 with them.
const VERSION: u8 = 2;
pub(crate) const OWNER: &str = ".owner";
pub(crate) const OUTCOMES: &str = ".outcomes";

/// What identifies a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartName {
    pub(crate) sink: String,
    pub(crate) attempt: u64,
    pub(crate) checkpoint: u64,
    pub(crate) worker: u32,
    pub(crate) number: u32,
    /// Without the dot before it.
    pub(crate) extension: String,
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartName { sink, attempt, checkpoint, worker, number, extension } = self;
        write!(f, "{sink}-a{attempt}-c{checkpoint}-w{worker}-p{number}.{extension}")
    }
}

impl PartName {
    /// The part with this file name; `None` if it is no part.
    pub(crate) fn parse(name: &str) -> Option<PartName> {
        let mut words = name.rsplitn(5, '-');
        let (number, extension) = words.next()?.split_once('.')?;
        let number = number.strip_prefix('p')?.parse().ok()?;
        let worker = words.next()?.strip_prefix('w')?.parse().ok()?;
        let checkpoint = words.next()?.strip_prefix('c')?.parse().ok()?;
        let attempt = words.next()?.strip_prefix('a')?.parse().ok()?;
        let sink = words.next()?.to_string();
        let part = PartName { sink, attempt, checkpoint, worker, number, extension: extension.to_string() };
        // `+7` and `007` parse as numbers but aren't how we write them.
        (part.to_string() == name).then_some(part)
    }

    /// What is committed or aborted as one: the parts of one writer and checkpoint.
    pub(crate) fn unit(&self) -> (u64, u64, &str, u32) {
        (self.attempt, self.checkpoint, &self.sink, self.worker)
    }
}

/// True if `extension` can stand in a part's name and be found again there.
pub(crate) fn is_extension(extension: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_');
    (1..=32).contains(&extension.len()) && extension.bytes().all(fits)
}

/// A folder in the target folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Folder {
    /// Stands for the right of this attempt to write; empty.
    Anchor(u64),
    /// Where this attempt writes parts of this checkpoint.
    Staging(u64, u64),
    /// Where this attempt puts a checkpoint together whose parts lie in several folders.
    Commit(u64, u64),
    /// The same three, after the attempt was fenced.
    FencedAnchor(u64),
    /// See [`Folder::FencedAnchor`].
    FencedStaging(u64, u64),
    /// See [`Folder::FencedAnchor`].
    FencedCommit(u64, u64),
    /// A checkpoint that is shown.
    Shown(u64),
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Folder::Anchor(attempt) => write!(f, ".a{attempt}"),
            Folder::Staging(attempt, checkpoint) => write!(f, ".a{attempt}-c{checkpoint}"),
            Folder::Commit(attempt, checkpoint) => write!(f, ".a{attempt}-commit-{checkpoint}"),
            Folder::FencedAnchor(attempt) => write!(f, ".f{attempt}"),
            Folder::FencedStaging(attempt, checkpoint) => write!(f, ".f{attempt}-c{checkpoint}"),
            Folder::FencedCommit(attempt, checkpoint) => write!(f, ".f{attempt}-commit-{checkpoint}"),
            Folder::Shown(checkpoint) => write!(f, "checkpoint-{checkpoint:012}"),
        }
    }
}

impl Folder {
    /// The folder with this name; `None` if it is none of ours.
    pub(crate) fn parse(name: &str) -> Option<Folder> {
        let folder = match name.strip_prefix("checkpoint-") {
            Some(checkpoint) => Folder::Shown(checkpoint.parse().ok()?),
            None => Folder::parse_hidden(name.strip_prefix('.')?)?,
        };
        (folder.to_string() == name).then_some(folder)
    }

    fn parse_hidden(name: &str) -> Option<Folder> {
        let (kind, rest) = name.split_at_checked(1)?;
        let fenced = match kind {
            "a" => false,
            "f" => true,
            _ => return None,
        };
        let Some((attempt, rest)) = rest.split_once('-') else {
            let attempt = rest.parse().ok()?;
            return Some(if fenced { Folder::FencedAnchor(attempt) } else { Folder::Anchor(attempt) });
        };
        let attempt = attempt.parse().ok()?;
        let folder = match rest.strip_prefix("commit-") {
            Some(checkpoint) => Folder::Commit(attempt, checkpoint.parse().ok()?),
            None => Folder::Staging(attempt, rest.strip_prefix('c')?.parse().ok()?),
        };
        if fenced { folder.fenced() } else { Some(folder) }
    }

    /// The attempt that made it; `None` for what is shown.
    pub(crate) fn attempt(self) -> Option<u64> {
        match self {
            Folder::Anchor(a) | Folder::Staging(a, _) | Folder::Commit(a, _) => Some(a),
            Folder::FencedAnchor(a) | Folder::FencedStaging(a, _) | Folder::FencedCommit(a, _) => Some(a),
            Folder::Shown(_) => None,
        }
    }

    /// What a later attempt calls it, if it isn't fenced yet.
    pub(crate) fn fenced(self) -> Option<Folder> {
        match self {
            Folder::Anchor(a) => Some(Folder::FencedAnchor(a)),
            Folder::Staging(a, c) => Some(Folder::FencedStaging(a, c)),
            Folder::Commit(a, c) => Some(Folder::FencedCommit(a, c)),
            _ => None,
        }
    }

    /// True for folders in which parts are written: what lies in others of these names are copies that nobody needs.
    pub(crate) fn is_staging(self) -> bool {
        matches!(self, Folder::Staging(..) | Folder::FencedStaging(..))
    }
}

/// The bytes of a part as they were prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promised {
    pub(crate) len: u64,
    /// xxh3 of them; `None` if the handle is of a program that didn't count it.
    pub(crate) xxh3: Option<u64>,
}

/// What a writer prepared for a checkpoint: its parts, each with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) parts: Vec<(PartName, Promised)>,
}

impl Handle {
    /// In the first format if a part has no checksum: an outcome of handles of both kinds, of which only the names are looked at.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let has_sums = self.parts.iter().all(|(_, promised)| promised.xxh3.is_some());
        let mut out = vec![if has_sums { VERSION } else { 1 }];
        out.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        for (part, promised) in &self.parts {
            let name = part.to_string();
            out.extend_from_slice(&promised.len.to_le_bytes());
            if let (true, Some(xxh3)) = (has_sums, promised.xxh3) {
                out.extend_from_slice(&xxh3.to_le_bytes());
            }
            out.extend_from_slice(&(name.len() as u32).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Handle, PositionError> {
        let (version, mut cursor) = Cursor::versioned(bytes, VERSION)?;
        let count = cursor.u32()?;
        let mut parts = vec![];
        for _ in 0..count {
            let len = cursor.u64()?;
            let xxh3 = if version == 1 { None } else { Some(cursor.u64()?) };
            let name = std::str::from_utf8(cursor.bytes()?).map_err(|_| PositionError::Damaged)?;
            parts.push((PartName::parse(name).ok_or(PositionError::Damaged)?, Promised { len, xxh3 }));
        }
        cursor.end()?;
        if parts.is_empty() {
            return Err(PositionError::Damaged);
        }
        Ok(Handle { parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(sink: &str) -> PartName {
        let extension = "csv.gz".to_string();
        PartName { sink: sink.to_string(), attempt: 3, checkpoint: 12, worker: 1, number: 4, extension }
    }

    #[test]
    fn a_part_is_found_again_by_its_name_whatever_the_sink_is_called() {
        for sink in ["delays", "a-a1-c2-w3-p4.x", "v1.late_rows", "-"] {
            let part = part(sink);
            assert_eq!(PartName::parse(&part.to_string()), Some(part));
        }
        for other in
            ["", "x", "delays-a3-c12-w1-p4", "delays-a3-c12-w1-p+4.csv", "delays-a03-c1-w1-p4.csv", "a-b-c-d-e.f"]
        {
            assert_eq!(PartName::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn folders_are_found_again_and_those_of_others_left_alone() {
        let all = [
            Folder::Anchor(0),
            Folder::Staging(1, 9),
            Folder::Commit(2, 7),
            Folder::FencedAnchor(12),
            Folder::FencedStaging(u64::MAX, 1),
            Folder::FencedCommit(3, 8),
            Folder::Shown(1_000_000_000_000_000),
        ];
        for folder in all {
            assert_eq!(Folder::parse(&folder.to_string()), Some(folder));
        }
        for other in [
            ".",
            ".a",
            ".a01",
            ".a1-",
            ".a1-c",
            ".ä1-c2",
            ".b1-c2",
            ".a1-c2-3",
            ".a1-commit-",
            "checkpoint-7",
            ".owner",
        ] {
            assert_eq!(Folder::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn handles_survive_bytes_and_every_shortened_or_lengthened_one_is_refused() {
        for (version, sums) in [(1, [None, None]), (2, [Some(0), Some(u64::MAX)])] {
            let promised = |len, sum: usize| Promised { len, xxh3: sums[sum] };
            let handle = Handle { parts: vec![(part("a"), promised(7, 0)), (part("b"), promised(u64::MAX, 1))] };
            let bytes = handle.encode();
            assert_eq!((bytes[0], Handle::decode(&bytes)), (version, Ok(handle)));
            for len in 0..bytes.len() {
                assert!(Handle::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
            assert!(Handle::decode(&[&bytes[..], b"x"].concat()).is_err());
            assert!(
                Handle::decode(&[&[version][..], b"\xff\xff\xff\xff"].concat()).is_err(),
                "a length that isn't there"
            );
        }
        assert!(Handle::decode(b"\x02").is_err());
        for version in [0, 3] {
            let refused = Handle::decode(&[version, 1]);
            assert_eq!(refused, Err(PositionError::Version { found: version, known: 2 }));
        }
    }

    #[test]
    fn a_handle_of_the_first_format_is_read_and_one_of_both_kinds_is_written_in_it() {
        let name = part("a").to_string();
        let old = [&b"\x01\x01\0\0\0\x09\0\0\0\0\0\0\0"[..], &[name.len() as u8, 0, 0, 0], name.as_bytes()].concat();
        let read = Handle::decode(&old).expect("the first format");
        assert_eq!(read.parts, [(part("a"), Promised { len: 9, xxh3: None })]);
        assert_eq!(read.encode(), old);
        let mixed = Handle { parts: [read.parts, vec![(part("b"), Promised { len: 1, xxh3: Some(5) })]].concat() };
        let names = |handle: &Handle| handle.parts.iter().map(|(part, _)| part.clone()).collect::<Vec<_>>();
        let again = Handle::decode(&mixed.encode()).expect("ours");
        assert_eq!((mixed.encode()[0], names(&again)), (1, names(&mixed)));
    }
}
