//! Writes one worker's share of a file sink: rows into parts, parts into the checkpoint's staging folder.
//!
//! ```text
//!   write    record -> row -> part; a part that is full is closed and the next one begun      on the worker
//!   seal(n)  the last part is closed                                                           on the worker, short
//!   prepare  all parts of the interval and their names are synced                              beside the worker
//!
//!   at-least-once: prepare shows the parts, each whole, after it has synced them
//!   at-most-once:  a part is synced and shown when it is closed
//! ```
//!
//! Promises: rows stand in parts in the order in which this writer took them, and parts in the order of their numbers; an interval
//! without a record has no part; a row is never divided between two parts.

use std::path::PathBuf;
use std::sync::Arc;

use cutwater_engine::error::SinkError;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::sink::{Prepare, SinkWriter, Visibility, WriterId};
use cutwater_platform::{File, Open};
use xxhash_rust::xxh3::Xxh3;

use crate::codec::Encode;
use crate::files::encoder::{Encoder, Packing};
use crate::files::folder::Target;
use crate::files::name::{Folder, Handle, PartName, Promised};

/// Rows are handed to the part when they have this many bytes.
const ROWS_BYTES: usize = 64 * 1024;

/// What a program said about the files.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    pub(crate) packing: Packing,
    pub(crate) extension: String,
    pub(crate) header: Option<Vec<u8>>,
    pub(crate) part_bytes: u64,
}

/// When parts are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    WithCheckpoint,
    WhenSealed,
    WhenClosed,
}

pub(crate) struct FileWriter<C> {
    target: Arc<Target>,
    codec: C,
    format: Format,
    show: Show,
    sink: String,
    attempt: u64,
    worker: u32,
    checkpoint: u64,
    /// Parts begun by this writer, over all checkpoints.
    begun: u32,
    rows: Vec<u8>,
    open: Option<OpenPart>,
    closed: Vec<ClosedPart>,
}

struct OpenPart {
    name: PartName,
    file: Arc<dyn File>,
    encoder: Encoder,
    /// Bytes that are in the file.
    written: u64,
    /// Bytes of rows, before they are packed.
    taken: u64,
    /// Over the bytes that are in the file.
    sum: Xxh3,
}

struct ClosedPart {
    name: PartName,
    file: Arc<dyn File>,
    promised: Promised,
}

impl<C> FileWriter<C> {
    pub(crate) fn open(
        target: &Arc<Target>,
        codec: C,
        format: Format,
        has_checkpoints: bool,
        id: &WriterId,
    ) -> Result<FileWriter<C>, SinkError> {
        let (show, checkpoint) = match id.visibility {
            Visibility::ByCheckpoint { first } => (Show::WithCheckpoint, first.0),
            Visibility::AtOnce if has_checkpoints => (Show::WhenSealed, 0),
            Visibility::AtOnce => (Show::WhenClosed, 0),
        };
        if show == Show::WhenClosed {
            target.claim(id.job)?;
            target.stage(id.attempt.0)?;
        } else if target.own()? != id.attempt.0 {
            // Another attempt has fenced in between.
            return Err(target.fenced());
        }
        let (target, sink) = (target.clone(), id.sink.clone());
        let (attempt, worker) = (id.attempt.0, id.worker.0);
        let (rows, open, closed) = (vec![], None, vec![]);
        Ok(FileWriter { target, codec, format, show, sink, attempt, worker, checkpoint, begun: 0, rows, open, closed })
    }

    /// Hands the gathered rows to the part, which is closed if it is full.
    fn flush(&mut self) -> Result<(), SinkError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut part = match self.open.take() {
            Some(part) => part,
            None => self.begin()?,
        };
        part.taken += self.rows.len() as u64;
        if part.encoder.push(&self.rows) {
            self.hand_on(&mut part)?;
        }
        self.rows.clear();
        match part.taken >= self.format.part_bytes {
            true => self.close(part),
            false => {
                self.open = Some(part);
                Ok(())
            }
        }
    }

    fn begin(&mut self) -> Result<OpenPart, SinkError> {
        let mut extension = self.format.extension.clone();
        if self.format.packing == Packing::Gzip {
            extension.push_str(".gz");
        }
        let name = PartName {
            sink: self.sink.clone(),
            attempt: self.attempt,
            checkpoint: self.checkpoint,
            worker: self.worker,
            number: self.begun,
            extension,
        };
        self.begun += 1;
        // Nobody hinders an attempt that was overtaken from making folders, so it is asked here whether it may.
        self.target.check_own(self.attempt)?;
        if self.show == Show::WithCheckpoint {
            self.target.create(Folder::Staging(self.attempt, self.checkpoint))?;
        }
        let path = path_of(&self.target, self.show, &name);
        let file = self.target.files.open(&path, Open::CreateNew);
        let file = file.map_err(|e| self.target.missing("create", &path, &e))?;
        let mut encoder = Encoder::new(self.format.packing);
        if let Some(header) = &self.format.header {
            encoder.push(header);
        }
        Ok(OpenPart { name, file, encoder, written: 0, taken: 0, sum: Xxh3::new() })
    }

    fn hand_on(&self, part: &mut OpenPart) -> Result<(), SinkError> {
        let bytes = part.encoder.ready();
        let (len, at) = (bytes.len() as u64, part.written);
        part.sum.update(bytes);
        let written = part.file.write_all_at(bytes, at);
        bytes.clear();
        written.map_err(|e| self.refused(&part.name, &e))?;
        // So that the sync at the barrier finds little left.
        part.file.start_write_back(at, len);
        part.written += len;
        Ok(())
    }

    fn close(&mut self, part: OpenPart) -> Result<(), SinkError> {
        let OpenPart { name, file, encoder, written, mut sum, .. } = part;
        let rest = encoder.finish();
        sum.update(&rest);
        file.write_all_at(&rest, written).map_err(|e| self.refused(&name, &e))?;
        let promised = Promised { len: written + rest.len() as u64, xxh3: Some(sum.digest()) };
        let closed = ClosedPart { name, file, promised };
        if self.show == Show::WhenClosed {
            sync(&self.target, self.show, &closed)?;
            return self.target.show_at_once(&closed.name);
        }
        self.closed.push(closed);
        Ok(())
    }

    fn refused(&self, part: &PartName, error: &std::io::Error) -> SinkError {
        self.target.failed("write", &path_of(&self.target, self.show, part), error)
    }

    /// Closes what is open, and answers what the interval has.
    fn cut(&mut self) -> Result<Vec<ClosedPart>, SinkError> {
        self.flush()?;
        if let Some(part) = self.open.take() {
            self.close(part)?;
        }
        Ok(std::mem::take(&mut self.closed))
    }
}

/// Where a part is written.
fn path_of(target: &Target, show: Show, part: &PartName) -> PathBuf {
    match show {
        Show::WithCheckpoint => target.path(Folder::Staging(part.attempt, part.checkpoint)).join(part.to_string()),
        Show::WhenSealed | Show::WhenClosed => target.hidden(part),
    }
}

fn sync(target: &Target, show: Show, part: &ClosedPart) -> Result<(), SinkError> {
    part.file.sync_data().map_err(|e| target.failed("sync", &path_of(target, show, &part.name), &e))
}

/// Makes sealed parts durable; answers their handle, or shows them.
fn prepare(target: &Target, show: Show, parts: Vec<ClosedPart>) -> Result<Option<Vec<u8>>, SinkError> {
    parts.iter().try_for_each(|part| sync(target, show, part))?;
    if show != Show::WithCheckpoint {
        parts.iter().try_for_each(|part| target.show_at_once(&part.name))?;
        return Ok(None);
    }
    let Some(PartName { attempt, checkpoint, .. }) = parts.first().map(|part| part.name.clone()) else {
        return Ok(None);
    };
    let staging = target.path(Folder::Staging(attempt, checkpoint));
    target.files.sync_dir(&staging).map_err(|e| target.missing("sync", &staging, &e))?;
    target.sync()?;
    // Last of all: whoever takes the right away afterwards finds the folder, and what was prepared stays prepared.
    target.check_own(attempt)?;
    let parts = parts.into_iter().map(|part| (part.name, part.promised)).collect();
    Ok(Some(Handle { parts }.encode()))
}

impl<T, C: Encode<T>> SinkWriter for RowWriter<T, C> {
    type Item = T;

    fn write(&mut self, batch: Vec<T>) -> Result<(), SinkError> {
        let writer = &mut self.writer;
        for record in &batch {
            writer.codec.encode(record, &mut writer.rows).map_err(|e| writer.target.fatal(e))?;
            writer.rows.push(b'\n');
            if writer.rows.len() >= ROWS_BYTES {
                writer.flush()?;
            }
        }
        writer.flush()
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        let writer = &mut self.writer;
        let parts = writer.cut()?;
        writer.checkpoint = checkpoint.next().0;
        writer.target.crash.reach("files.sealed");
        if parts.is_empty() {
            return Ok(None);
        }
        let (target, show) = (writer.target.clone(), writer.show);
        Ok(Some(Box::new(move || prepare(&target, show, parts))))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        // At-most-once shows parts as they are closed; otherwise a barrier has taken everything.
        let left = self.writer.cut()?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(self.writer.target.fatal("records came behind the last barrier")),
        }
    }
}

/// A [`FileWriter`] of records of one type.
pub(crate) struct RowWriter<T, C> {
    writer: FileWriter<C>,
    _takes: std::marker::PhantomData<fn(T)>,
}

impl<T, C> RowWriter<T, C> {
    pub(crate) fn new(writer: FileWriter<C>) -> RowWriter<T, C> {
        RowWriter { writer, _takes: std::marker::PhantomData }
    }
}
