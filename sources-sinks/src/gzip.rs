//! A gzip file as a stream of plain bytes in which places can be found again.
//!
//! ```text
//!   packed   |<- member ->|<-    member     ->|<- member ->|        a file may have many, one behind the other
//!   plain    |            |      ^ the place  |            |
//!   position = where the place's member begins, packed and plain, and the place itself
//! ```
//!
//! The promise: whatever was read, opening at the place again gives the same plain bytes from there on. To get there the member is
//! unpacked from its beginning and what comes before the place is thrown away, in steps, so that the worker goes on answering
//! barriers meanwhile. That costs as much as reading it did (some hundred megabytes of plain bytes a second), and for a file that is
//! one member that is everything before the place. Files that shall be quick to go on with have many members (`bgzip`, or parts
//! of 64 MiB packed one by one and joined with `cat`).
//!
//! Memory is bounded (I-9): one chunk of packed bytes, the 32 KiB window of the format, and the begins of those members whose
//! plain bytes somebody may still ask for.
//!
//! A damaged member is noticed where its bytes make no sense, at the latest at its end, where a checksum stands. Rows that came
//! before that are good as far as anyone can tell; none of a file is left out silently. Zero bytes behind the last member are
//! padding.

use std::collections::VecDeque;
use std::io::{self, BufRead, ErrorKind, Read};
use std::sync::Arc;

use cutwater_platform::File;
use flate2::bufread::GzDecoder;

/// What every member begins with: two bytes of magic, and the only method there is.
pub(crate) const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Packed bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Plain bytes thrown away in one step.
const SKIPPED_BYTES: u64 = 8 << 20;

/// Where a member begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// In the file.
    pub(crate) packed: u64,
    /// In the stream of plain bytes.
    pub(crate) plain: u64,
}

/// The plain bytes of a gzip file.
#[derive(Debug)]
pub(crate) struct Unpacked {
    state: State,
    /// Plain bytes handed out or thrown away.
    plain: u64,
    /// Plain bytes before this place are thrown away.
    from: u64,
    /// Begins of members, ascending.
    members: VecDeque<Member>,
}

#[derive(Debug)]
enum State {
    Between(Packed),
    Inside(Box<GzDecoder<Packed>>),
    /// While it is being changed, and after an error.
    Broken,
}

impl Unpacked {
    /// The stream from `place` on, which lies in the member that begins at `member`.
    pub(crate) fn new(file: Arc<dyn File>, end: u64, member: Member, place: u64) -> Unpacked {
        let packed = Packed { file, at: member.packed, end, chunk: vec![], used: 0 };
        Unpacked { state: State::Between(packed), plain: member.plain, from: place, members: VecDeque::from([member]) }
    }

    /// The last member that begins at or before this place.
    pub(crate) fn member_of(&self, place: u64) -> Member {
        let behind = self.members.partition_point(|m| m.plain <= place);
        self.members.get(behind.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Nobody will ask for the member of a place before this one.
    pub(crate) fn forget_before(&mut self, place: u64) {
        while self.members.get(1).is_some_and(|next| next.plain <= place) {
            self.members.pop_front();
        }
    }

    /// Goes towards the place at which the stream is to begin, for a bounded time; true once it is there.
    pub(crate) fn catch_up(&mut self) -> io::Result<bool> {
        let mut thrown = vec![0; CHUNK_BYTES];
        let until = self.from.min(self.plain.saturating_add(SKIPPED_BYTES));
        while self.plain < until {
            let wanted = usize::try_from(until - self.plain).unwrap_or(usize::MAX).min(thrown.len());
            if self.unpack(&mut thrown[..wanted])? == 0 {
                let text = format!("it ends after {} plain bytes, before the place that was read up to", self.plain);
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
            self.forget_before(self.plain.min(self.from));
        }
        Ok(self.plain >= self.from)
    }

    /// Where the packed bytes of what comes next begin, about.
    fn packed_at(&self) -> u64 {
        match &self.state {
            State::Between(packed) => packed.place(),
            State::Inside(decoder) => decoder.get_ref().place(),
            State::Broken => 0,
        }
    }

    fn unpack(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let result = self.unpack_on(buf);
        result.map_err(|e| {
            let at = self.packed_at();
            let member = self.members.back().copied().unwrap_or_default().packed;
            self.state = State::Broken;
            let what = match e.kind() {
                ErrorKind::UnexpectedEof => "it ends in the middle of a gzip member: is it whole?".to_string(),
                ErrorKind::InvalidData | ErrorKind::InvalidInput => format!("it is damaged as a gzip file ({e})"),
                _ => return e,
            };
            let text =
                format!("{what} Noticed at byte {at}, in the member that begins at byte {member}; restore the file");
            io::Error::new(ErrorKind::InvalidData, text)
        })
    }

    fn unpack_on(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.state {
                State::Inside(decoder) => {
                    let n = decoder.read(buf)?;
                    if n > 0 || buf.is_empty() {
                        self.plain += n as u64;
                        return Ok(n);
                    }
                    if let State::Inside(decoder) = std::mem::replace(&mut self.state, State::Broken) {
                        self.state = State::Between(decoder.into_inner());
                    }
                }
                State::Between(packed) => {
                    if !packed.begins_member()? {
                        return Ok(0);
                    }
                    let member = Member { packed: packed.place(), plain: self.plain };
                    if self.members.back() != Some(&member) {
                        self.members.push_back(member);
                    }
                    if let State::Between(packed) = std::mem::replace(&mut self.state, State::Broken) {
                        self.state = State::Inside(Box::new(GzDecoder::new(packed)));
                    }
                }
                State::Broken => return Err(io::Error::other("it could not be read before")),
            }
        }
    }
}

impl Read for Unpacked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !self.catch_up()? {}
        self.unpack(buf)
    }
}

/// The packed bytes, in chunks.
#[derive(Debug)]
struct Packed {
    file: Arc<dyn File>,
    /// Where the next chunk begins.
    at: u64,
    end: u64,
    chunk: Vec<u8>,
    /// Of the chunk.
    used: usize,
}

impl Packed {
    fn place(&self) -> u64 {
        self.at - (self.chunk.len() - self.used) as u64
    }

    /// Whether a member follows; false at the end of the file.
    fn begins_member(&mut self) -> io::Result<bool> {
        let begin = self.place();
        // A member's first bytes may lie in two chunks.
        let mut head = [0; MAGIC.len()];
        let there = usize::try_from(self.end - begin).unwrap_or(usize::MAX).min(head.len());
        self.file.read_exact_at(&mut head[..there], begin)?;
        if head == MAGIC {
            return Ok(true);
        }
        loop {
            let chunk = self.fill_buf()?;
            if chunk.is_empty() {
                return Ok(false);
            }
            if chunk.iter().any(|b| *b != 0) {
                let text = format!("what stands at byte {begin}, where a member ends, is neither a member nor padding");
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            let len = chunk.len();
            self.consume(len);
        }
    }
}

impl Read for Packed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let chunk = self.fill_buf()?;
        let n = chunk.len().min(buf.len());
        buf[..n].copy_from_slice(&chunk[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Packed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.chunk.len() {
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            self.chunk.resize(left, 0);
            self.used = 0;
            let read = if left == 0 { Ok(0) } else { self.file.read_at(&mut self.chunk, self.at) };
            self.chunk.truncate(read.as_ref().copied().unwrap_or(0));
            self.at += read? as u64;
            if left > 0 && self.chunk.is_empty() {
                return Err(crate::file::shrunk(self.end, self.at));
            }
        }
        Ok(&self.chunk[self.used..])
    }

    fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.chunk.len());
    }
}
