//! Rows of CSV files, as RFC 4180 has them: quoted fields may hold separators, quotes and line ends.
//!
//! * Guarantee: exactly-once; a file can be read again from any row.
//! * Position: byte offset and line of the next row, with size, time of last change and head hash of the file.
//! * Staged at a barrier: nothing, it only reads.
//! * Commit: nothing.
//!
//! A bad row (another number of fields than the header has, no UTF-8, a field that doesn't parse) is data: it reaches the job
//! with file and line, so that `try_map` can send it to a dead-letter topic. Only a file that can't be read ends the attempt.
//! Gzip files are read as [`text`](crate::text) reads them.
//!
//! ```no_run
//! # use cutwater_engine::graph::Job;
//! use cutwater_sources_sinks::csv;
//! #[derive(serde::Deserialize)]
//! struct Flight {
//!     origin: String,
//!     delay_minutes: i32,
//! }
//! # fn build(job: &Job) {
//! let rows = job.source("flights", csv::rows(job, "flights.csv")); // then: .try_map(|row| row.decode::<Flight>())
//! # rows.discard();
//! # }
//! ```

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ::csv::{ByteRecord, ErrorKind, Position, ReaderBuilder, StringRecord, Trim, WriterBuilder};
use cutwater_engine::error::SourceError;
use cutwater_engine::graph::Job;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::codec::excerpt;
use crate::file::{FileSet, FileStream, OpenFile, Place};

/// Bytes read from the file at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// A row may have this many bytes, and what has been read ahead; more and a quote was surely never closed.
const ROW_BYTES_MAX: u64 = 16 << 20;

/// One row, with where it stands.
#[derive(Clone, Debug)]
pub struct Row {
    /// The file's path as it was given.
    pub file: Arc<str>,
    /// The line on which it begins, from 1.
    pub line: u64,
    header: Option<Arc<ByteRecord>>,
    fields: ByteRecord,
}

impl Row {
    /// The row as `T`: fields by the names of the header, or by their order if there is none.
    ///
    /// # Errors
    /// [`BadRow`] with file, line and field.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, BadRow> {
        self.check_count()?;
        self.fields.deserialize(self.header.as_deref()).map_err(|e| self.bad(describe(&e, &self.fields)))
    }

    /// The row as text.
    ///
    /// # Errors
    /// [`BadRow`] if a field isn't UTF-8, or the number of fields isn't the header's.
    pub fn text(&self) -> Result<StringRecord, BadRow> {
        self.check_count()?;
        StringRecord::from_byte_record(self.fields.clone()).map_err(|e| {
            let index = e.utf8_error().field();
            self.bad(format!("field {} ({}) isn't UTF-8", index + 1, excerpt(&self.fields[index])))
        })
    }

    /// The bytes of field `index`, from 0.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index)
    }

    /// The bytes of the field that the header calls `name`.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let index = self.header.as_ref()?.iter().position(|h| h == name.as_bytes())?;
        self.fields.get(index)
    }

    /// The fields' bytes.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.fields.iter()
    }

    /// Appends the fields as one line of CSV, without a line end.
    pub(crate) fn write_line(&self, out: &mut Vec<u8>) {
        let before = out.len();
        let mut writer = WriterBuilder::new().has_headers(false).from_writer(&mut *out);
        // Writing into memory can't fail.
        let written = writer.write_byte_record(&self.fields).and_then(|()| Ok(writer.flush()?));
        drop(writer);
        if written.is_err() {
            out.truncate(before);
        } else if out.len() > before {
            out.pop();
        }
    }

    fn check_count(&self) -> Result<(), BadRow> {
        match self.header.as_ref().map(|h| h.len()) {
            Some(expected) if expected != self.fields.len() => {
                Err(self.bad(format!("expected {expected} fields as the header has, found {}", self.fields.len())))
            }
            _ => Ok(()),
        }
    }

    fn bad(&self, reason: String) -> BadRow {
        BadRow { file: self.file.clone(), line: self.line, reason }
    }
}

/// A row that isn't what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file} line {line}: {reason}")]
pub struct BadRow {
    /// The file's path as it was given.
    pub file: Arc<str>,
    /// The line on which the row begins, from 1.
    pub line: u64,
    /// What is wrong, and in which field.
    pub reason: String,
}

/// What is wrong with a row, by field.
fn describe(error: &::csv::Error, fields: &ByteRecord) -> String {
    let ErrorKind::Deserialize { err, .. } = error.kind() else { return error.to_string() };
    match err.field().and_then(|field| Some((field, fields.get(usize::try_from(field).ok()?)?))) {
        Some((field, bytes)) => format!("field {} ({}): {}", field + 1, excerpt(bytes), err.kind()),
        None => err.kind().to_string(),
    }
}

/// A source of rows. See [`rows`].
pub struct CsvRows<T = Row> {
    files: FileSet,
    format: Format,
    convert: fn(Row) -> T,
}

impl<T> fmt::Debug for CsvRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvRows").field("files", &self.files).field("format", &self.format).finish()
    }
}

/// How the files are written.
#[derive(Clone, Copy, Debug)]
struct Format {
    delimiter: u8,
    header: bool,
    trim: bool,
}

/// The rows of one file whose first row is a header.
pub fn rows(job: &Job, path: impl Into<PathBuf>) -> CsvRows {
    rows_of(job, [path])
}

/// The rows of several files, each with its header. They are read side by side; order holds within a file only.
pub fn rows_of(job: &Job, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> CsvRows {
    let paths = paths.into_iter().map(Into::into).collect();
    let format = Format { delimiter: b',', header: true, trim: false };
    CsvRows { files: FileSet::new(job, paths), format, convert: |row| row }
}

impl<T> CsvRows<T> {
    /// Fields are separated by this ASCII character instead of a comma.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> CsvRows<T> {
        self.format.delimiter = delimiter;
        self
    }

    /// The first row is data; fields go by their order, and rows may have any number of them.
    #[must_use]
    pub fn without_header(mut self) -> CsvRows<T> {
        self.format.header = false;
        self
    }

    /// White space around fields and names doesn't count.
    #[must_use]
    pub fn trimmed(mut self) -> CsvRows<T> {
        self.format.trim = true;
        self
    }

    /// Reads each row as `U` at once: good rows as `Ok`, bad ones as `Err`, in their order.
    pub fn typed<U: DeserializeOwned + Send + 'static>(self) -> CsvRows<Result<U, BadRow>> {
        CsvRows { files: self.files, format: self.format, convert: |row| row.decode() }
    }
}

impl<T: Send + 'static> Source for CsvRows<T> {
    type Item = T;

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
    ) -> Result<Box<dyn Reader<Item = T>>, SourceError> {
        let open = self.files.open(split, position)?;
        Ok(Box::new(RowReader::new(open, self.format, position.is_some(), self.convert)?))
    }
}

struct RowReader<T> {
    open: OpenFile,
    reader: ::csv::Reader<FileStream>,
    header: Option<Arc<ByteRecord>>,
    convert: fn(Row) -> T,
}

impl<T> RowReader<T> {
    fn new(open: OpenFile, format: Format, resume: bool, convert: fn(Row) -> T) -> Result<RowReader<T>, SourceError> {
        let mut builder = ReaderBuilder::new();
        // The header is read here and the number of fields checked per row, so that a bad row stays data.
        builder.has_headers(false).flexible(true).delimiter(format.delimiter).buffer_capacity(CHUNK_BYTES);
        builder.trim(if format.trim { Trim::All } else { Trim::None });
        let reader = builder.from_reader(FileStream::new(&open));
        let mut rows = RowReader { open, reader, header: None, convert };
        if format.header {
            let mut header = ByteRecord::new();
            rows.advance(&mut header)?;
            rows.header = Some(Arc::new(header));
        }
        if resume {
            let Place { offset, line } = rows.open.place;
            let mut at = Position::new();
            at.set_byte(offset).set_line(line);
            rows.reader.seek(at).map_err(|e| rows.open.failed(line, &into_io(e)))?;
        }
        Ok(rows)
    }

    /// The line on which the row begins that was just read. The parser's own number for it is that of the row's predecessor
    /// when empty lines or the second half of a `\r\n` were skipped in between, so it is counted back from the row's end.
    fn line_of(&self, row: &ByteRecord) -> u64 {
        let at = self.reader.position();
        let ended = at.byte().checked_sub(1).and_then(|last| self.reader.get_ref().recent(last)) == Some(b'\n');
        let inside = row.as_slice().iter().filter(|b| **b == b'\n').count() as u64;
        at.line().saturating_sub(inside + u64::from(ended))
    }

    /// Reads one row; false at the end.
    fn advance(&mut self, into: &mut ByteRecord) -> Result<bool, SourceError> {
        let line = self.reader.position().line();
        self.reader.get_mut().allow(ROW_BYTES_MAX);
        self.reader.read_byte_record(into).map_err(|e| self.open.failed(line, &into_io(e)))
    }
}

/// What went wrong while a row was read. A row of another length or no UTF-8 is none of it.
fn into_io(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(e) => e,
        other => io::Error::other(format!("{other:?}")),
    }
}

impl<T> Reader for RowReader<T> {
    type Item = T;

    fn read(&mut self, out: &mut Vec<T>, max: usize) -> Result<Read, SourceError> {
        let at = self.reader.position().clone();
        let content = self.reader.get_mut().content();
        content.forget_before(at.byte());
        if !content.catch_up().map_err(|e| self.open.failed(at.line(), &e))? {
            return Ok(Read::More);
        }
        for _ in 0..max {
            let mut fields = ByteRecord::new();
            if !self.advance(&mut fields)? {
                return Ok(Read::Exhausted);
            }
            let line = self.line_of(&fields);
            let (file, header) = (self.open.name.clone(), self.header.clone());
            out.push((self.convert)(Row { file, line, header, fields }));
        }
        Ok(Read::More)
    }

    fn position(&self) -> Vec<u8> {
        let at = self.reader.position();
        self.reader.get_ref().position(Place { offset: at.byte(), line: at.line() })
    }
}
