//! A source, an operator and a transactional sink in memory, written against the public contracts alone.

#![allow(dead_code, reason = "each test binary uses some of this")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::element::Batch;
use cutwater_engine::error::{OperatorError, SinkError, SourceError};
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::id::{Attempt, CheckpointId, JobId};
use cutwater_engine::operator::{Context, Flow, Operator};
use cutwater_engine::sink::{CommitGroup, Committed, Honours, Prepare, Sink, SinkWriter, WriterId};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_engine::state::{KeyedState, State};
use cutwater_testkit::{RefusingFiles, SimDisk};

/// The numbers 0 .. splits x per_split, each in the split that it equals modulo splits.
pub struct Numbers {
    pub splits: u64,
    pub per_split: u64,
}

struct NumbersReader {
    split: u64,
    splits: u64,
    next: u64,
    end: u64,
}

impl Source for Numbers {
    type Item = u64;

    fn replay(&self) -> Replay {
        Replay::FromPosition
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        Ok((0..self.splits).map(|s| s.to_string()).collect())
    }

    fn open(&self, split: &str, position: Option<&[u8]>, _: Waker) -> Result<Box<dyn Reader<Item = u64>>, SourceError> {
        let next = position.map_or(0, |p| u64::from_le_bytes(p.try_into().expect("eight bytes")));
        let split = split.parse().expect("a number");
        Ok(Box::new(NumbersReader { split, splits: self.splits, next, end: self.per_split }))
    }
}

impl Reader for NumbersReader {
    type Item = u64;

    fn read(&mut self, out: &mut Vec<u64>, max: usize) -> Result<Read, SourceError> {
        let upto = self.end.min(self.next + max as u64);
        out.extend((self.next..upto).map(|i| i * self.splits + self.split));
        self.next = upto;
        Ok(if self.next == self.end { Read::Exhausted } else { Read::More })
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_le_bytes().to_vec()
    }
}

/// A running count per record.
pub struct Counting {
    counts: Rc<RefCell<State<u64, u64>>>,
}

impl Counting {
    pub fn new() -> Counting {
        let name = StateName::new("counts").expect("a good name");
        Counting { counts: Rc::new(RefCell::new(State::new(name, 1))) }
    }
}

impl Operator for Counting {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let rows = batch.take_wire::<(u64, ())>();
        cx.counters().passed += rows.len() as u64;
        let mut counts = self.counts.borrow_mut();
        let count = |(key, ()): (u64, ())| {
            let count = counts.entry_hashed(key.key_hash(), &key, || 0);
            *count += 1;
            (key, *count)
        };
        let out: Vec<(u64, u64)> = rows.into_iter().map(count).collect();
        cx.emit(0, out);
        Ok(Flow::Done)
    }

    fn states(&self) -> Vec<Rc<RefCell<dyn KeyedState>>> {
        vec![self.counts.clone()]
    }
}

type Row = (u64, u64);

#[derive(Clone, Default)]
struct Content {
    /// The attempt that may write.
    attempt: u64,
    prepared: BTreeMap<Vec<u8>, Vec<Row>>,
    decided: BTreeMap<Vec<u8>, bool>,
    visible: Vec<Row>,
}

/// A log in memory that outlives the runs of a test.
#[derive(Default)]
pub struct MemoryLog {
    content: Mutex<Content>,
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryLog")
    }
}

impl MemoryLog {
    pub fn new() -> Arc<MemoryLog> {
        Arc::default()
    }

    /// A log of its own that begins with what is in this one.
    pub fn fork(&self) -> Arc<MemoryLog> {
        Arc::new(MemoryLog { content: Mutex::new(self.content.lock().expect("no panic").clone()) })
    }

    pub fn committed(&self) -> Vec<Row> {
        self.content.lock().expect("no panic").visible.clone()
    }

    pub fn undecided(&self) -> usize {
        self.content.lock().expect("no panic").prepared.len()
    }

    pub fn sink(self: &Arc<Self>) -> MemorySink {
        MemorySink(self.clone())
    }
}

impl CommitGroup for MemoryLog {
    fn name(&self) -> &str {
        "memory"
    }

    fn fence(&self, _job: JobId, attempt: Attempt) -> Result<(), SinkError> {
        let mut content = self.content.lock().expect("no panic");
        if attempt.0 <= content.attempt {
            return Err(SinkError::Fenced { what: "memory".to_string() });
        }
        content.attempt = attempt.0;
        Ok(())
    }

    fn prepared(&self) -> Result<usize, SinkError> {
        Ok(self.undecided())
    }

    fn commit(&self, handles: &[Vec<u8>]) -> Result<Committed, SinkError> {
        let mut content = self.content.lock().expect("no panic");
        let mut committed = Committed::default();
        for handle in handles {
            match (content.prepared.remove(handle), content.decided.get(handle)) {
                (Some(rows), None) => {
                    content.visible.extend(rows);
                    content.decided.insert(handle.clone(), true);
                    committed.now += 1;
                }
                (None, Some(true)) => committed.already += 1,
                (_, decided) => {
                    let reason = format!("a listed transaction is lost: {decided:?}");
                    return Err(SinkError::Fatal { what: "memory".to_string(), reason });
                }
            }
        }
        Ok(committed)
    }

    fn abort_all_but(&self, keep: &[Vec<u8>]) -> Result<usize, SinkError> {
        let mut content = self.content.lock().expect("no panic");
        let before = content.prepared.len();
        let gone: Vec<Vec<u8>> = content.prepared.keys().filter(|h| !keep.contains(h)).cloned().collect();
        for handle in gone {
            content.prepared.remove(&handle);
            content.decided.insert(handle, false);
        }
        Ok(before - content.prepared.len())
    }

    fn forget(&self, handles: &[Vec<u8>]) -> Result<(), SinkError> {
        let mut content = self.content.lock().expect("no panic");
        for handle in handles {
            content.decided.remove(handle);
        }
        Ok(())
    }
}

pub struct MemorySink(Arc<MemoryLog>);

struct MemoryWriter {
    log: Arc<MemoryLog>,
    id: WriterId,
    rows: Vec<Row>,
}

impl Sink for MemorySink {
    type Item = Row;

    fn honours(&self) -> Honours {
        Honours { guarantees: vec![GuaranteeKind::ExactlyOnce], reason: "it only knows transactions".to_string() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        Some(self.0.clone())
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = Row>>, SinkError> {
        Ok(Box::new(MemoryWriter { log: self.0.clone(), id: writer.clone(), rows: vec![] }))
    }
}

impl SinkWriter for MemoryWriter {
    type Item = Row;

    fn write(&mut self, batch: Vec<Row>) -> Result<(), SinkError> {
        self.rows.extend(batch);
        Ok(())
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(None);
        }
        let (log, id) = (self.log.clone(), self.id.clone());
        Ok(Some(Box::new(move || {
            let handle = format!("{}/{}/{}/{}", id.attempt, checkpoint, id.sink, id.worker).into_bytes();
            let mut content = log.content.lock().expect("no panic");
            if content.attempt != id.attempt.0 {
                return Err(SinkError::Fenced { what: "memory".to_string() });
            }
            content.prepared.insert(handle.clone(), rows);
            Ok(Some(handle))
        })))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        match self.rows.len() {
            0 => Ok(()),
            rows => Err(SinkError::Fatal {
                what: "memory".to_string(),
                reason: format!("{rows} rows came behind the last barrier and will never be prepared"),
            }),
        }
    }
}

/// A disk that can be told to make no state files: checkpoints are declined then, and everything else works.
pub fn refusing_state_files(disk: SimDisk) -> RefusingFiles {
    RefusingFiles::new(disk, |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("state")))
}
