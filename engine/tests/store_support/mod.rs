//! What the tests of checkpoint stores share: a small job's life in a store.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;

use cutwater_engine::checkpoint::{Committable, SnapshotRef, StateFile, StateFileKind};
use cutwater_engine::exchange::{GroupAssignment, KeyGroups};
use cutwater_engine::id::{Attempt, CheckpointId, InstanceId, OperatorId, WorkerIndex};
use cutwater_engine::snapshot::{
    CheckpointStore, FsStore, HashIdentity, Manifest, OperatorEntry, Owner, PlanIdentity, SnapshotFiles,
    SnapshotOrigin, StateFileReader, StateName, WrittenState,
};
use cutwater_engine::state::{FrozenState, KeyedState, Ownership, StateKey, StateLoadError};
use cutwater_platform::Platform;

pub const OPERATOR: OperatorId = OperatorId(2);

pub fn name(name: &str) -> StateName {
    StateName::new(name).expect("a good name")
}

pub fn instance(worker: u32) -> InstanceId {
    InstanceId { operator: OPERATOR, worker: WorkerIndex(worker) }
}

pub fn assignment(workers: u32) -> GroupAssignment {
    GroupAssignment::new(KeyGroups::default(), workers.try_into().expect("a worker at least"))
}

pub fn ownership(workers: u32, worker: u32) -> Ownership {
    let assignment = assignment(workers);
    Ownership { groups: assignment.groups(), range: assignment.range_of(WorkerIndex(worker)) }
}

pub fn owns(workers: u32, worker: u32, key: &impl StateKey) -> bool {
    ownership(workers, worker).has_hash(key.group_hash())
}

/// An opened store and a claimed attempt in it.
pub fn claimed(platform: &Platform, dir: &str) -> (Arc<FsStore>, Owner) {
    let store = Arc::new(FsStore::open(platform.clone(), dir).expect("a store"));
    let owner = cutwater_engine::recovery::claim_next(store.as_ref(), platform).expect("claimed");
    (store, owner)
}

/// Freezes a state and gives what is to be written.
pub fn frozen(state: &mut dyn KeyedState, kind: StateFileKind) -> FrozenState {
    state.freeze(kind);
    let mut swept = None;
    while swept.is_none() {
        swept = state.sweep(3);
    }
    swept.expect("the sweep ended")
}

pub fn origin(checkpoint: u64, workers: u32, worker: u32) -> SnapshotOrigin {
    let groups = ownership(workers, worker).range;
    SnapshotOrigin { checkpoint: CheckpointId(checkpoint), instance: instance(worker), groups }
}

pub fn write(
    (store, owner, platform): (&Arc<FsStore>, Owner, &Platform),
    origin: SnapshotOrigin,
    frozen: FrozenState,
) -> WrittenState {
    let files = SnapshotFiles::new(store.clone(), owner, platform.crash.clone());
    files.write(&origin, vec![frozen]).expect("written").remove(0)
}

pub fn load(
    store: &FsStore,
    file: &StateFile,
    state: &mut dyn KeyedState,
    owned: &Ownership,
) -> Result<u64, StateLoadError> {
    let bytes = store.open_state_file(&file.name).expect("it is there");
    state.load(&mut StateFileReader::open(bytes, file)?, owned)
}

/// A manifest of one operator on one worker.
pub fn manifest(owner: Owner, checkpoint: u64, snapshots: Vec<SnapshotRef>) -> Manifest {
    Manifest {
        job: owner.job,
        attempt: owner.attempt,
        checkpoint: CheckpointId(checkpoint),
        is_final: false,
        exact: true,
        workers: u32::try_from(snapshots.len()).expect("few"),
        key_groups: KeyGroups::default(),
        hash: HashIdentity::of_this_program(),
        plan: PlanIdentity {
            fingerprint: 7,
            operators: vec![OperatorEntry { id: OPERATOR, name: "count".to_owned() }],
        },
        snapshots,
        carried: vec![],
    }
}

pub fn snapshot(worker: u32) -> SnapshotRef {
    SnapshotRef {
        instance: instance(worker),
        chains: vec![],
        blobs: vec![],
        committables: vec![],
        counters: Default::default(),
        exhausted: false,
    }
}

pub fn committable(handle: &str) -> Committable {
    Committable { group: "log".to_owned(), handle: handle.as_bytes().to_vec() }
}

pub fn attempt(n: u64) -> Attempt {
    Attempt(n)
}
