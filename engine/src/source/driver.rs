//! One step of a source instance: read, batch, remember where it stands. Knows nothing of barriers or workers.

use std::rc::Rc;

use crate::checkpoint::Blob;
use crate::element::Batch;
use crate::error::SourceError;
use crate::source::{Read, Reader, Source, Waker};

/// A source instance with its item type erased, as the wiring steps it.
pub trait SourceDriver {
    /// Opens the instance's splits, each at its beginning or where it stood.
    ///
    /// # Errors
    /// A split can't be opened there.
    fn open(&mut self, splits: Vec<SplitState>, waker: Waker) -> Result<(), SourceError>;

    /// Reads at most about `max` records.
    ///
    /// # Errors
    /// A split can't be read on.
    fn poll(&mut self, max: usize) -> Result<Polled, SourceError>;

    /// Where each split stands, after everything that `poll` has handed out.
    fn positions(&self) -> Vec<SplitState>;
}

/// Where a split stands.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SplitState {
    /// The split.
    pub split: String,
    /// Where to open it again; `None` at its beginning.
    pub position: Option<Vec<u8>>,
    /// True if it will never have another record.
    pub exhausted: bool,
}

/// True for small state that says where a split stands: it names itself.
pub(crate) fn is_split(blob: &Blob) -> bool {
    postcard::from_bytes::<SplitState>(&blob.bytes).is_ok_and(|state| state.split == blob.name)
}

/// What a poll gave.
#[derive(Debug)]
pub enum Polled {
    /// Records; poll again.
    Records(Batch),
    /// Nothing for now; the waker will be called, or ask again after that many milliseconds.
    Wait(Option<u64>),
    /// Every split is exhausted.
    Exhausted,
}

/// Reads the splits of one instance in turn.
pub(crate) struct ReaderDriver<S: Source> {
    source: Rc<S>,
    open: Vec<OpenSplit<S::Item>>,
    next: usize,
}

struct OpenSplit<T> {
    name: String,
    reader: Option<Box<dyn Reader<Item = T>>>,
    /// The position of a split that was exhausted when it was restored and is not opened again.
    last: Option<Vec<u8>>,
    exhausted: bool,
}

impl<S: Source> ReaderDriver<S> {
    pub(crate) fn new(source: Rc<S>) -> ReaderDriver<S> {
        ReaderDriver { source, open: vec![], next: 0 }
    }
}

impl<S: Source> SourceDriver for ReaderDriver<S> {
    fn open(&mut self, splits: Vec<SplitState>, waker: Waker) -> Result<(), SourceError> {
        for SplitState { split, position, exhausted } in splits {
            let reader = match exhausted {
                true => None,
                false => Some(self.source.open(&split, position.as_deref(), waker.clone())?),
            };
            self.open.push(OpenSplit { name: split, reader, last: position, exhausted });
        }
        Ok(())
    }

    fn poll(&mut self, max: usize) -> Result<Polled, SourceError> {
        let mut again: Option<u64> = None;
        let mut waiting = false;
        for turn in 0..self.open.len() {
            let index = (self.next + turn) % self.open.len();
            let split = &mut self.open[index];
            let Some(reader) = split.reader.as_mut().filter(|_| !split.exhausted) else { continue };
            let mut records = Vec::with_capacity(max);
            let read = reader.read(&mut records, max)?;
            match read {
                Read::More => {}
                Read::Wait => waiting = true,
                Read::WaitMs(ms) => {
                    waiting = true;
                    again = Some(again.map_or(ms, |other| other.min(ms)));
                }
                Read::Exhausted => split.exhausted = true,
            }
            if !records.is_empty() {
                self.next = (index + 1) % self.open.len();
                return Ok(Polled::Records(Batch::local(records)));
            }
            // A reader may say More without a record (it skipped something); it is asked again soon.
            if read == Read::More {
                waiting = true;
                again = Some(0);
            }
        }
        Ok(if waiting { Polled::Wait(again) } else { Polled::Exhausted })
    }

    fn positions(&self) -> Vec<SplitState> {
        let state = |s: &OpenSplit<S::Item>| SplitState {
            split: s.name.clone(),
            position: s.reader.as_ref().map(|r| r.position()).or_else(|| s.last.clone()),
            exhausted: s.exhausted,
        };
        self.open.iter().map(state).collect()
    }
}
