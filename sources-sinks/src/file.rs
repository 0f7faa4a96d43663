//! What the connectors that read files share: how a file is recognised, where a reader stands in it.
//!
//! The promise: a position is honoured only in the very file in which it was taken. A file is recognised by its size, the time
//! of its last change (where the file system keeps that) and a hash of its first 64 KiB; if one of them differs, opening is
//! refused, because the bytes before the position may not be those that were read.
//!
//! A file that begins as gzip files do is read unpacked ([`gzip`](crate::gzip)); offsets then count plain bytes, and a position
//! names the gzip member too.
//!
//! It deliberately doesn't follow a growing file: the size at first opening is part of the position and the end of the split.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_engine::error::SourceError;
use cutwater_engine::graph::Job;
use cutwater_platform::{File, Files, Open};
use xxhash_rust::xxh3::xxh3_64;

use crate::gzip::{MAGIC, Member, Unpacked};
use crate::position::{Cursor, PositionError};

/// Bytes at the head of a file that are hashed.
const HEAD_BYTES: u64 = 64 * 1024;
/// Format of a position in a file as it is.
const PLAIN: u8 = 1;
/// Format of a position in a gzip file.
const PACKED: u8 = 2;

/// The files of one source, one split each, in the order in which they were given.
#[derive(Debug, Clone)]
pub(crate) struct FileSet {
    files: Arc<dyn Files>,
    paths: Vec<PathBuf>,
}

impl FileSet {
    pub(crate) fn new(job: &Job, paths: Vec<PathBuf>) -> FileSet {
        FileSet { files: job.environment().platform.files.clone(), paths }
    }

    /// A split's name is its path.
    pub(crate) fn splits(&self) -> Result<Vec<String>, SourceError> {
        let mut names: Vec<String> = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let Some(name) = path.to_str() else {
                return Err(SourceError::fatal(path.display().to_string(), "its name isn't Unicode; rename it"));
            };
            if names.iter().any(|other| other == name) {
                return Err(SourceError::fatal(name, "it is given twice; each file is read by one split"));
            }
            names.push(name.to_string());
        }
        Ok(names)
    }

    /// Opens a split at its beginning or at a position, which is refused unless the file is the same.
    pub(crate) fn open(&self, split: &str, position: Option<&[u8]>) -> Result<OpenFile, SourceError> {
        let path = Path::new(split);
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => SourceError::fatal(split, "there is no such file"),
            _ => SourceError::transient(split, e),
        };
        let file = self.files.open(path, Open::Read).map_err(failed)?;
        let identity = Identity::of(file.as_ref()).map_err(failed)?;
        if split.ends_with(".gz") && !identity.packed {
            let reason = "its name says gzip and its first bytes don't: restore it, or give it another name";
            return Err(SourceError::fatal(split, reason));
        }
        let (place, member) = match position {
            None => (Place { offset: 0, line: 1 }, Member::default()),
            Some(bytes) => {
                let (before, place, member) = decode(bytes).map_err(|e| SourceError::fatal(split, e))?;
                if let Some(reason) = before.difference(&identity) {
                    let fix = "restore the file, or start the job afresh";
                    return Err(SourceError::fatal(
                        split,
                        format!("the file was changed since it was read: {reason}; {fix}"),
                    ));
                }
                if member.is_some() != identity.packed {
                    let reason = "the checkpoint was made by a program that read this file's packed bytes as they are: use that one";
                    return Err(SourceError::fatal(split, reason));
                }
                let in_bounds = match member {
                    None => place.offset <= identity.len,
                    Some(member) => member.packed <= identity.len && member.plain <= place.offset,
                };
                if !in_bounds {
                    return Err(SourceError::fatal(split, PositionError::Damaged));
                }
                (place, member.unwrap_or_default())
            }
        };
        Ok(OpenFile { name: Arc::from(split), file, identity, place, member })
    }
}

/// A file that is open at a place.
#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    pub(crate) name: Arc<str>,
    pub(crate) file: Arc<dyn File>,
    identity: Identity,
    pub(crate) place: Place,
    /// The gzip member in which the place lies.
    member: Member,
}

impl OpenFile {
    /// The file's bytes, unpacked if they are packed, from the place at which it was opened, or from its beginning.
    pub(crate) fn content(&self, from_place: bool) -> Content {
        let (end, offset) = (self.identity.len, if from_place { self.place.offset } else { 0 });
        match self.identity.packed {
            false => Content::Plain { file: self.file.clone(), offset, end },
            true => {
                let member = if from_place { self.member } else { Member::default() };
                Content::Packed(Box::new(Unpacked::new(self.file.clone(), end, member, offset)))
            }
        }
    }

    /// The position of `place` in this file, which is read as `content`.
    pub(crate) fn position(&self, place: Place, content: &Content) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(if self.identity.packed { PACKED } else { PLAIN });
        out.extend_from_slice(&self.identity.len.to_le_bytes());
        out.extend_from_slice(&self.identity.modified_ns.unwrap_or(i64::MIN).to_le_bytes());
        out.extend_from_slice(&self.identity.head.to_le_bytes());
        out.extend_from_slice(&place.offset.to_le_bytes());
        out.extend_from_slice(&place.line.to_le_bytes());
        if let Content::Packed(unpacked) = content {
            let member = unpacked.member_of(place.offset);
            out.extend_from_slice(&member.packed.to_le_bytes());
            out.extend_from_slice(&member.plain.to_le_bytes());
        }
        out
    }

    /// The file can't be read on behind this line.
    pub(crate) fn failed(&self, line: u64, error: &io::Error) -> SourceError {
        let what = format!("{} line {line}", self.name);
        match error.kind() {
            // Reading again gives the same.
            io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidData => SourceError::fatal(what, error),
            _ => SourceError::transient(what, error),
        }
    }
}

/// The place of the next record: its first byte and its line, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) line: u64,
}

/// What a file is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    len: u64,
    modified_ns: Option<i64>,
    /// Hash of the first [`HEAD_BYTES`].
    head: u64,
    /// It begins as gzip files do. Decided by the head, so not compared.
    packed: bool,
}

impl Identity {
    fn of(file: &dyn File) -> io::Result<Identity> {
        let len = file.len()?;
        let mut head = vec![0; usize::try_from(len.min(HEAD_BYTES)).expect("64 KiB fit")];
        file.read_exact_at(&mut head, 0)?;
        let packed = head.starts_with(&MAGIC);
        Ok(Identity { len, modified_ns: file.modified_ns()?, head: xxh3_64(&head), packed })
    }

    /// What differs, in words.
    fn difference(&self, now: &Identity) -> Option<String> {
        if self.len != now.len {
            return Some(format!("it had {} bytes and has {}", self.len, now.len));
        }
        if self.head != now.head {
            return Some("its beginning is another".to_string());
        }
        match (self.modified_ns, now.modified_ns) {
            (Some(before), Some(now)) if before != now => {
                Some(format!("its time of last change was {before} ns since 1970 and is {now}"))
            }
            _ => None,
        }
    }
}

/// What the file was, the place, and its member if the file was packed.
fn decode(bytes: &[u8]) -> Result<(Identity, Place, Option<Member>), PositionError> {
    let packed = bytes.first() == Some(&PACKED);
    let mut cursor = Cursor::new(bytes, if packed { PACKED } else { PLAIN })?;
    let len = cursor.u64()?;
    let modified = cursor.u64()?.cast_signed();
    let head = cursor.u64()?;
    let place = Place { offset: cursor.u64()?, line: cursor.u64()? };
    let member = match packed {
        true => Some(Member { packed: cursor.u64()?, plain: cursor.u64()? }),
        false => None,
    };
    cursor.end()?;
    let modified_ns = (modified != i64::MIN).then_some(modified);
    Ok((Identity { len, modified_ns, head, packed }, place, member))
}

/// The bytes of a file, in order.
#[derive(Debug)]
pub(crate) enum Content {
    Plain { file: Arc<dyn File>, offset: u64, end: u64 },
    Packed(Box<Unpacked>),
}

impl Content {
    /// Goes towards the place at which it begins, for a bounded time; true once it is there. Only then reading is quick.
    pub(crate) fn catch_up(&mut self) -> io::Result<bool> {
        match self {
            Content::Plain { .. } => Ok(true),
            Content::Packed(unpacked) => unpacked.catch_up(),
        }
    }

    /// No position before `offset` will be asked for.
    pub(crate) fn forget_before(&mut self, offset: u64) {
        if let Content::Packed(unpacked) = self {
            unpacked.forget_before(offset);
        }
    }
}

impl Read for Content {
    /// 0 only at the end of the split.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Content::Packed(unpacked) => unpacked.read(buf),
            Content::Plain { file, offset, end } => {
                let left = usize::try_from(end.saturating_sub(*offset)).unwrap_or(usize::MAX).min(buf.len());
                if left == 0 {
                    return Ok(0);
                }
                match file.read_at(&mut buf[..left], *offset)? {
                    0 => Err(shrunk(*end, *offset)),
                    n => {
                        *offset += n as u64;
                        Ok(n)
                    }
                }
            }
        }
    }
}

/// Reads a file from front to back for libraries that want a [`Read`], up to the split's end.
///
/// A budget bounds what may be read before [`FileStream::allow`] is called again: a parser that looks for a closing quote
/// would otherwise take the whole file into memory (I-9).
#[derive(Debug)]
pub(crate) struct FileStream {
    open: OpenFile,
    content: Content,
    offset: u64,
    budget: u64,
    /// What the last read gave; it ends at `offset`.
    recent: Vec<u8>,
}

impl FileStream {
    /// From the file's beginning.
    pub(crate) fn new(open: &OpenFile) -> FileStream {
        let content = open.content(false);
        FileStream { open: open.clone(), content, offset: 0, budget: u64::MAX, recent: vec![] }
    }

    /// The byte at `offset`, if it was among those read last.
    pub(crate) fn recent(&self, offset: u64) -> Option<u8> {
        let back = usize::try_from(self.offset.checked_sub(offset)?).ok()?;
        self.recent.get(self.recent.len().checked_sub(back)?).copied()
    }

    /// Lets the next `bytes` be read.
    pub(crate) fn allow(&mut self, bytes: u64) {
        self.budget = bytes;
    }

    pub(crate) fn content(&mut self) -> &mut Content {
        &mut self.content
    }

    /// See [`OpenFile::position`].
    pub(crate) fn position(&self, place: Place) -> Vec<u8> {
        self.open.position(place, &self.content)
    }
}

impl Read for FileStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.budget == 0 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the row is too long; is a quote not closed?"));
        }
        let wanted = usize::try_from(self.budget).unwrap_or(usize::MAX).min(buf.len());
        let n = self.content.read(&mut buf[..wanted])?;
        if n == 0 {
            return Ok(0);
        }
        self.recent.clear();
        self.recent.extend_from_slice(&buf[..n]);
        self.offset += n as u64;
        self.budget = self.budget.saturating_sub(n as u64);
        Ok(n)
    }
}

impl Seek for FileStream {
    /// To the place at which the file was opened, which is all that is ever asked for.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(self.open.place.offset) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.recent.clear();
        self.content = self.open.content(true);
        self.offset = self.open.place.offset;
        Ok(self.offset)
    }
}

/// The file has become shorter while it was read.
pub(crate) fn shrunk(expected: u64, found: u64) -> io::Error {
    let text = format!("the file had {expected} bytes when it was opened and ends at {found} now");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
