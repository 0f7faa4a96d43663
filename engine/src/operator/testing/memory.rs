//! A snapshot in memory: the real state-file bytes, kept in vectors.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;

use cutwater_platform::File;

use crate::checkpoint::{Counters, StateFile, StateFileKind};
use crate::config::Compression;
use crate::error::OperatorError;
use crate::exchange::GroupRange;
use crate::id::{Attempt, CheckpointId, InstanceId, JobId, OperatorId, WorkerIndex};
use crate::operator::Operator;
use crate::operator::driver::Driver;
use crate::snapshot::{Owner, SnapshotOrigin, StateFileOut, StateFileReader, StoreError, WriteError, write_file};
use crate::state::{FrozenState, Ownership};

/// What one operator saved.
#[derive(Debug)]
pub(super) struct NodeSnapshot {
    pub(super) blobs: Vec<(String, Vec<u8>)>,
    pub(super) counters: Counters,
    states: Vec<StateBytes>,
}

/// The bytes of one state file.
#[derive(Debug)]
struct StateBytes {
    file: StateFile,
    bytes: Vec<u8>,
}

impl NodeSnapshot {
    /// The snapshot of an operator at the cut of `checkpoint`.
    pub(super) fn take(driver: &mut Driver, checkpoint: CheckpointId) -> Result<NodeSnapshot, OperatorError> {
        let mut states = vec![];
        for state in driver.operator.states() {
            let mut state = state.borrow_mut();
            state.freeze(StateFileKind::Base);
            let frozen = state.sweep(usize::MAX).expect("an unbounded sweep is complete");
            let written = write(frozen, checkpoint);
            states.push(written.map_err(|e| OperatorError::Failed(format!("state {}: {e}", state.name())))?);
        }
        Ok(NodeSnapshot { blobs: driver.operator.save(), counters: driver.counters.clone(), states })
    }

    /// Loads the states of `operator` from here.
    pub(super) fn load(&self, operator: &dyn Operator, owned: &Ownership) -> Result<(), Box<dyn std::error::Error>> {
        for (state, saved) in operator.states().iter().zip(&self.states) {
            let file = Arc::new(Bytes(saved.bytes.clone()));
            state.borrow_mut().load(&mut StateFileReader::open(file, &saved.file)?, owned)?;
        }
        Ok(())
    }
}

fn write(state: FrozenState, checkpoint: CheckpointId) -> Result<StateBytes, WriteError> {
    let owner = Owner { job: JobId(1), attempt: Attempt(1) };
    let origin = SnapshotOrigin {
        checkpoint,
        instance: InstanceId { operator: OperatorId(0), worker: WorkerIndex(0) },
        // It may hold keys of any group: the reader picks its own.
        groups: GroupRange { start: 0, end: 1 << 16 },
    };
    let name = state.name().to_string();
    let mut out = Out::default();
    let file = write_file(&mut out, &owner, &origin, &name, state, Compression::None, false)?;
    let bytes = out.0.take();
    Ok(StateBytes { file, bytes })
}

/// A state file being written into a vector.
#[derive(Default)]
struct Out(Rc<RefCell<Vec<u8>>>);

impl StateFileOut for Out {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A file for reading that is a vector.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl File for Bytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_all_vectored_at(&self, _parts: &[IoSlice<'_>], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_synced_at(&self, _blocks: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
