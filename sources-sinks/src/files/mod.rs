//! Files in a folder as a sink: rows by a codec, one folder per checkpoint.
//!
//! * Guarantee: exactly-once; at-least-once and at-most-once show parts one by one, each whole.
//! * Position: none.
//! * Staged at a barrier: the parts that a worker wrote since the last one, synced, in the checkpoint's staging folder.
//! * Commit: one rename shows the checkpoint's folder, behind a durable outcome. Repeated, it finds that done.
//!
//! ```text
//!   delays/checkpoint-000000000007/delays-a3-c7-w0-p0.csv     shown: rows of checkpoint 7, written by worker 0
//!   delays/.a3-c8/..                                          not shown yet; names with a dot are not for readers
//! ```
//!
//! Whoever reads the folder takes `checkpoint-*` in their order and sees whole checkpoints (`delays/*/*.csv` in most tools). A
//! folder may be taken away once it is shown: its outcome is remembered as long as any checkpoint of the job could ask for it.
//! Below exactly-once parts lie in the target folder itself.
//!
//! A folder belongs to one job, for good, and so must be on one file system; several sinks of the job may share it, and then show
//! a checkpoint together. A row ends with `\n`; whether it may hold one inside is the codec's affair (CSV quotes it, JSON escapes
//! it, text doesn't). Each checkpoint with rows makes a part per worker at least: choose the interval accordingly.
//!
//! Deliberately not here: columnar formats, folders by key or hour, and joining small parts.
//!
//! ```no_run
//! # use cutwater_engine::graph::Job;
//! # use cutwater_operators::prelude::*;
//! use cutwater_sources_sinks::codec::Csv;
//! use cutwater_sources_sinks::files::files;
//! # use cutwater_sources_sinks::generator::generate;
//! # fn build(job: &Job) {
//! let rows = job.source("numbers", generate(job, 1000, |n| (n, n * n)));
//! rows.sink("squares", files(job, "squares").value(Csv).extension("csv").header("n,square").gzip());
//! # }
//! ```
//!
//! Reading order: this file (what a program says), [`name`] (what lies in the folder), [`folder`] (how it is moved), [`writer`],
//! [`group`].

pub mod group;

mod encoder;
mod folder;
mod name;
mod writer;

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::{BuildError, SinkError};
use cutwater_engine::graph::Job;
use cutwater_engine::sink::{CommitGroup, Honours, Sink, SinkWriter, WriterId};

use crate::codec::{Encode, Text};
use crate::files::encoder::Packing;
use crate::files::folder::Target;
use crate::files::writer::{FileWriter, Format, RowWriter};

pub use group::FileCommitGroup;

/// The default of [`FileSink::part_bytes`].
const PART_BYTES: u64 = 128 << 20;

/// A sink that writes rows of `T` to files. See [`files`].
pub struct FileSink<T, C = Text> {
    /// `None` if the job was refused while it was being built.
    target: Option<Arc<Target>>,
    format: Format,
    has_checkpoints: bool,
    codec: C,
    _takes: PhantomData<fn(T)>,
}

/// Writes files into the folder `dir`, which is created if it isn't there. Rows are what records display as, unless a codec is
/// given.
pub fn files<T>(job: &Job, dir: impl Into<PathBuf>) -> FileSink<T> {
    let dir = dir.into();
    let environment = job.environment();
    let target = environment
        .shared(&format!("files:{}", dir.display()), |environment| Ok(Target::new(&environment.platform, dir.clone())));
    let target = target.map_err(|e| job.refuse(e)).ok();
    let format = Format { packing: Packing::Plain, extension: "txt".to_string(), header: None, part_bytes: PART_BYTES };
    let has_checkpoints = environment.guarantee.kind() != GuaranteeKind::AtMostOnce;
    let sink = FileSink { target, format, has_checkpoints, codec: Text, _takes: PhantomData };
    if dir.to_str().is_none() {
        job.refuse(BuildError::refused(dir.display().to_string(), "the folder's name isn't Unicode; choose another"));
    }
    sink
}

impl<T, C> fmt::Debug for FileSink<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSink({:?})", self.target.as_ref().map(|t| &t.dir))
    }
}

impl<T, C> FileSink<T, C> {
    /// Makes each row with a codec: `Csv`, `Json`, `Text`, `Bytes` or one of your own.
    pub fn value<D>(self, codec: D) -> FileSink<T, D> {
        let FileSink { target, format, has_checkpoints, .. } = self;
        FileSink { target, format, has_checkpoints, codec, _takes: PhantomData }
    }

    /// Files end with this, without a dot before it; `txt` unless told otherwise. Packed files have `.gz` behind it.
    ///
    /// # Panics
    /// If it isn't 1 to 32 ASCII letters, digits, dots or underscores.
    #[must_use]
    pub fn extension(mut self, extension: &str) -> FileSink<T, C> {
        assert!(
            name::is_extension(extension),
            "{extension:?} can't end a file's name: letters, digits, '.' and '_' can"
        );
        self.format.extension = extension.to_string();
        self
    }

    /// Every part begins with this line.
    #[must_use]
    pub fn header(mut self, line: &str) -> FileSink<T, C> {
        self.format.header = Some(format!("{line}\n").into_bytes());
        self
    }

    /// A part is closed once its rows have this many bytes (128 MiB unless told otherwise, counted before they are packed); a new
    /// one begins with each checkpoint anyway.
    #[must_use]
    pub fn part_bytes(mut self, bytes: u64) -> FileSink<T, C> {
        self.format.part_bytes = bytes.max(1);
        self
    }

    /// Packs each part as a gzip file.
    #[must_use]
    pub fn gzip(mut self) -> FileSink<T, C> {
        self.format.packing = Packing::Gzip;
        self
    }

    fn target(&self) -> Result<&Arc<Target>, SinkError> {
        let refused = || SinkError::Fatal { what: "files".to_string(), reason: "the job was refused".to_string() };
        self.target.as_ref().ok_or_else(refused)
    }
}

impl<T: Send + 'static, C: Encode<T> + Clone + 'static> Sink for FileSink<T, C> {
    type Item = T;

    fn honours(&self) -> Honours {
        Honours {
            guarantees: vec![GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce, GuaranteeKind::ExactlyOnce],
            reason: "files are staged durably and shown by one rename, which can be repeated".to_string(),
        }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        self.target.as_ref().map(|target| Arc::new(FileCommitGroup(target.clone())) as Arc<dyn CommitGroup>)
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = T>>, SinkError> {
        let (target, format) = (self.target()?, self.format.clone());
        let writer = FileWriter::open(target, self.codec.clone(), format, self.has_checkpoints, writer)?;
        Ok(Box::new(RowWriter::new(writer)))
    }
}
