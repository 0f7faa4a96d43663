//! Vectors as sources and sinks: for examples and tests.
//!
//! * Guarantee: at-most-once. A vector lives in memory: after a crash nothing proves that the next run is given the same one,
//!   and what a sink has pushed can't be taken back.
//! * Position: none.
//! * Staged at a barrier: nothing; what is written is visible at once.
//! * Commit: nothing.
//!
//! For a source that exactly-once jobs can be tried with, see [`generator`](crate::generator).

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex};

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::{SinkError, SourceError};
use cutwater_engine::id::CheckpointId;
use cutwater_engine::sink::{CommitGroup, Honours, Prepare, Sink, SinkWriter, WriterId};
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};

/// The name of the only split.
const SPLIT: &str = "collection";

/// A source of the records of a vector, read by one worker in their order. See [`collection`].
pub struct Collection<T> {
    records: RefCell<Option<Vec<T>>>,
}

/// The records of a vector, an array or any other finite collection.
pub fn collection<T>(records: impl IntoIterator<Item = T>) -> Collection<T> {
    Collection { records: RefCell::new(Some(records.into_iter().collect())) }
}

impl<T> fmt::Debug for Collection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collection")
    }
}

impl<T: Send + 'static> Source for Collection<T> {
    type Item = T;

    fn replay(&self) -> Replay {
        Replay::Never("a collection lives in memory and is gone after a crash".to_string())
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        Ok(vec![SPLIT.to_string()])
    }

    fn open(
        &self,
        _split: &str,
        position: Option<&[u8]>,
        _waker: Waker,
    ) -> Result<Box<dyn Reader<Item = T>>, SourceError> {
        let records = self.records.borrow_mut().take();
        match records.filter(|_| position.is_none()) {
            Some(records) => Ok(Box::new(CollectionReader { left: records.into_iter() })),
            None => Err(SourceError::fatal(SPLIT, "it has been read before and can't be read again")),
        }
    }
}

struct CollectionReader<T> {
    left: std::vec::IntoIter<T>,
}

impl<T> Reader for CollectionReader<T> {
    type Item = T;

    fn read(&mut self, out: &mut Vec<T>, max: usize) -> Result<Read, SourceError> {
        out.extend(self.left.by_ref().take(max));
        Ok(if self.left.as_slice().is_empty() { Read::Exhausted } else { Read::More })
    }

    fn position(&self) -> Vec<u8> {
        vec![]
    }
}

/// A sink that pushes into a vector which others can look into meanwhile. Clones push into the same one. See [`collect`].
pub struct Collect<T> {
    into: Arc<Mutex<Vec<T>>>,
}

/// Pushes all records into `into`, batch by batch, in the order in which the workers come.
pub fn collect<T>(into: Arc<Mutex<Vec<T>>>) -> Collect<T> {
    Collect { into }
}

impl<T> Clone for Collect<T> {
    fn clone(&self) -> Self {
        Collect { into: self.into.clone() }
    }
}

impl<T> fmt::Debug for Collect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collect")
    }
}

impl<T: Send + 'static> Sink for Collect<T> {
    type Item = T;

    fn honours(&self) -> Honours {
        let reason = "what was pushed into a vector can't be taken back when the job goes back to a checkpoint";
        Honours { guarantees: vec![GuaranteeKind::AtMostOnce], reason: reason.to_string() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        None
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = T>>, SinkError> {
        Ok(Box::new(CollectWriter { into: self.into.clone(), sink: writer.sink.clone() }))
    }
}

struct CollectWriter<T> {
    into: Arc<Mutex<Vec<T>>>,
    sink: String,
}

impl<T> SinkWriter for CollectWriter<T> {
    type Item = T;

    fn write(&mut self, mut batch: Vec<T>) -> Result<(), SinkError> {
        match self.into.lock() {
            Ok(mut into) => {
                into.append(&mut batch);
                Ok(())
            }
            Err(_) => {
                let reason = "another holder of the vector panicked".to_string();
                Err(SinkError::Failed { what: self.sink.clone(), reason })
            }
        }
    }

    fn seal(&mut self, _checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        Ok(None)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
