//! Lines of text files.
//!
//! * Guarantee: exactly-once; a file can be read again from any line.
//! * Position: byte offset and number of the next line, with size, time of last change and head hash of the file.
//! * Staged at a barrier: nothing, it only reads.
//! * Commit: nothing.
//!
//! A line ends with `\n` or `\r\n`, neither of which belongs to it; the last one may end with the file. Lines are bytes: what
//! isn't UTF-8 reaches the job as data, and [`Line::text`] says so. Each file is one split. Gzip files, known by their first bytes,
//! are read unpacked; a restore unpacks the gzip member in which the line stands up to it, so a file of one large member takes its
//! time. One that is cut off or damaged ends the run with file and place, and what was committed before is kept.

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use cutwater_engine::error::SourceError;
use cutwater_engine::graph::Job;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};

use crate::codec::{DecodeError, Text};
use crate::file::{Content, FileSet, OpenFile, Place};

/// Bytes read from the file at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// The default of [`Lines::line_bytes_max`].
const LINE_BYTES_MAX: usize = 16 << 20;

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file's path as it was given; `stdin` for standard input.
    pub file: Arc<str>,
    /// Its number, from 1.
    pub number: u64,
    /// Its bytes without the line's end.
    pub bytes: Vec<u8>,
}

impl Line {
    /// The line as text.
    ///
    /// # Errors
    /// It isn't UTF-8.
    pub fn text(&self) -> Result<&str, DecodeError> {
        std::str::from_utf8(&self.bytes).map_err(|e| DecodeError::new::<String>("text", &self.bytes, e))
    }

    /// The line as text, and the line's memory.
    ///
    /// # Errors
    /// It isn't UTF-8.
    pub fn into_text(self) -> Result<String, DecodeError> {
        String::from_utf8(self.bytes).or_else(|e| Text::decode(e.into_bytes()))
    }
}

/// The line as text; what isn't UTF-8 is shown as replacement characters.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.bytes))
    }
}

impl AsRef<[u8]> for Line {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A source of the lines of a file. See [`lines`].
#[derive(Debug, Clone)]
pub struct Lines {
    files: FileSet,
    line_bytes_max: usize,
}

/// The lines of one file.
pub fn lines(job: &Job, path: impl Into<PathBuf>) -> Lines {
    lines_of(job, [path])
}

/// The lines of several files, which are read side by side; order holds within a file only.
pub fn lines_of(job: &Job, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Lines {
    let paths = paths.into_iter().map(Into::into).collect();
    Lines { files: FileSet::new(job, paths), line_bytes_max: LINE_BYTES_MAX }
}

impl Lines {
    /// Lets lines have up to `bytes` bytes (16 MiB unless told otherwise). A longer one ends the job: it would not fit into
    /// memory for ever.
    #[must_use]
    pub fn line_bytes_max(self, bytes: usize) -> Lines {
        Lines { line_bytes_max: bytes, ..self }
    }
}

impl Source for Lines {
    type Item = Line;

    fn replay(&self) -> Replay {
        Replay::FromPosition
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        self.files.splits()
    }

    fn open(
        &self,
        split: &str,
        position: Option<&[u8]>,
        _waker: Waker,
    ) -> Result<Box<dyn Reader<Item = Line>>, SourceError> {
        let open = self.files.open(split, position)?;
        let (next, content) = (open.place, open.content(true));
        Ok(Box::new(LineReader {
            open,
            content,
            next,
            buffer: vec![],
            start: 0,
            searched: 0,
            max: self.line_bytes_max,
        }))
    }
}

/// Cuts chunks of a file into lines.
#[derive(Debug)]
struct LineReader {
    open: OpenFile,
    /// What comes behind the buffer.
    content: Content,
    /// Where the next line begins; `buffer[start]` is its first byte.
    next: Place,
    buffer: Vec<u8>,
    start: usize,
    /// No line ends before this index.
    searched: usize,
    max: usize,
}

impl LineReader {
    /// The index of the next line's end in the buffer.
    fn line_end(&mut self) -> Option<usize> {
        let found = self.buffer[self.searched..].iter().position(|b| *b == b'\n').map(|at| self.searched + at);
        self.searched = found.unwrap_or(self.buffer.len());
        found
    }

    /// Reads one chunk more; false at the end of the split.
    fn refill(&mut self) -> Result<bool, SourceError> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.content.forget_before(self.next.offset);
        let kept = self.buffer.len();
        self.buffer.resize(kept + CHUNK_BYTES, 0);
        let n = self.content.read(&mut self.buffer[kept..]);
        self.buffer.truncate(kept + n.as_ref().copied().unwrap_or(0));
        match n {
            Ok(n) => Ok(n > 0),
            Err(e) => Err(self.open.failed(self.next.line, &e)),
        }
    }

    /// Hands out the line that ends before `end` and goes on at `resume`, both indices of the buffer.
    fn take(&mut self, end: usize, resume: usize) -> Line {
        let bytes = &self.buffer[self.start..end];
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec();
        let line = Line { file: self.open.name.clone(), number: self.next.line, bytes };
        self.next = Place { offset: self.next.offset + (resume - self.start) as u64, line: self.next.line + 1 };
        self.start = resume;
        self.searched = resume;
        line
    }
}

impl Reader for LineReader {
    type Item = Line;

    fn read(&mut self, out: &mut Vec<Line>, max: usize) -> Result<Read, SourceError> {
        if !self.content.catch_up().map_err(|e| self.open.failed(self.next.line, &e))? {
            return Ok(Read::More);
        }
        for _ in 0..max {
            let (end, resume) = loop {
                if let Some(end) = self.line_end() {
                    break (end, end + 1);
                }
                if self.buffer.len() - self.start > self.max {
                    let what = format!("{} line {}", self.open.name, self.next.line);
                    let reason = format!("the line has more than {} bytes; raise line_bytes_max", self.max);
                    return Err(SourceError::fatal(what, reason));
                }
                if !self.refill()? {
                    if self.start == self.buffer.len() {
                        return Ok(Read::Exhausted);
                    }
                    break (self.buffer.len(), self.buffer.len());
                }
            };
            out.push(self.take(end, resume));
        }
        Ok(Read::More)
    }

    fn position(&self) -> Vec<u8> {
        self.open.position(self.next, &self.content)
    }
}
