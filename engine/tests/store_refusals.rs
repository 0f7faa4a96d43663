//! A checkpoint store says no: to foreign directories, damaged records, old attempts, and after a failed sync.

mod store_support;

use std::collections::BTreeMap;
use std::path::Path;

use cutwater_engine::checkpoint::StateFileKind;
use cutwater_engine::id::{Attempt, CheckpointId, JobId};
use cutwater_engine::recovery::{ManifestContent, claim_next, read_facts};
use cutwater_engine::snapshot::{
    Base, CheckpointStore, CommittedRecord, FsStore, Manifest, ManifestName, Owner, SnapshotFiles, StoreError,
    WriteError,
};
use cutwater_engine::state::State;
use cutwater_platform::{Files, Platform};
use cutwater_testkit::{SimPlatform, SyncFault};
use store_support::*;

const DIR: &str = "checkpoints";

fn put(files: &dyn Files, path: &str, bytes: &[u8]) {
    let path = Path::new(path);
    files.create_dir_all(path.parent().expect("has a parent")).expect("created");
    if files.exists(path).expect("known") {
        files.remove_file(path).expect("removed");
    }
    files.publish_bytes(path, bytes).expect("published");
}

/// Everything below a directory.
fn tree(files: &dyn Files, dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in files.read_dir(dir).expect("readable") {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            all.insert(path.display().to_string(), vec![]);
            all.extend(tree(files, &path));
        } else {
            all.insert(path.display().to_string(), files.read(&path, 1 << 20).expect("readable"));
        }
    }
    all
}

/// A store with one committed checkpoint.
fn furnished(sim: &SimPlatform) -> (std::sync::Arc<FsStore>, Owner) {
    let (store, owner) = claimed(&sim.platform(), DIR);
    let base = Base { job: owner.job, attempt: owner.attempt, point: None, forked: false };
    store.record_base(&owner, &base).expect("recorded");
    let encoded = manifest(owner, 1, vec![snapshot(0)]).encode().expect("consistent");
    store.publish_manifest(&owner, &encoded).expect("published");
    let record = CommittedRecord { job: owner.job, manifest: encoded.point(), by: owner.attempt };
    store.record_committed(&owner, &record).expect("recorded");
    store.record_committed(&owner, &record).expect("again is Ok");
    (store, owner)
}

#[test]
fn a_directory_with_other_things_in_it_is_refused_and_left_alone() {
    for foreign in
        ["checkpoints/thesis.tex", "checkpoints/state/x", "checkpoints/manifests/000000000001-a000001.manifest"]
    {
        let sim = SimPlatform::new(1);
        let platform = sim.platform();
        put(platform.files.as_ref(), foreign, b"precious");
        let before = tree(platform.files.as_ref(), Path::new(DIR));
        let error = FsStore::open(platform.clone(), DIR).expect_err("foreign");
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        let name = foreign.rsplit('/').next().expect("a name");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(tree(platform.files.as_ref(), Path::new(DIR)), before);
    }
}

#[test]
fn a_store_that_lost_a_directory_is_refused() {
    let sim = SimPlatform::new(1);
    let platform = sim.platform();
    FsStore::open(platform.clone(), DIR).expect("a new store");
    platform.files.remove_dir(Path::new("checkpoints/committed")).expect("empty");
    let error = FsStore::open(platform, DIR).expect_err("incomplete");
    assert!(error.to_string().contains("\"committed\" is missing"), "{error}");
}

#[test]
fn a_store_keeps_its_job_and_strangers_in_it_are_named_and_left_alone() {
    let sim = SimPlatform::new(1);
    let platform = sim.platform();
    let (store, _) = furnished(&sim);
    let again = FsStore::open(platform.clone(), DIR).expect("the same store");
    assert_eq!(store.job(), again.job());
    put(platform.files.as_ref(), "checkpoints/manifests/notes.txt", b"mine");
    put(platform.files.as_ref(), "checkpoints/attempts/1", b"mine");
    assert_eq!(again.list().expect("listed").strangers, ["attempts/1", "manifests/notes.txt"]);
    let owner = claim_next(&again, &platform).expect("claimed");
    assert_eq!(again.remove_temporaries(&owner).expect("nothing to do"), 0);
    assert!(platform.files.exists(Path::new("checkpoints/manifests/notes.txt")).expect("known"));
}

type Read = fn(&FsStore) -> Result<(), StoreError>;

/// Every record, and how it is read.
fn records() -> [(&'static str, Read); 4] {
    const NAME: ManifestName = ManifestName { checkpoint: CheckpointId(1), attempt: Attempt(1) };
    [
        ("checkpoints/attempts/00000001", |s| s.claimant(Attempt(1)).map(drop)),
        ("checkpoints/attempts/00000001.base", |s| s.base(Attempt(1)).map(drop)),
        ("checkpoints/manifests/000000000001-a000001.manifest", |s| s.manifest(NAME).map(drop)),
        ("checkpoints/committed/000000000001-a000001.committed", |s| s.committed(NAME).map(drop)),
    ]
}

#[test]
fn every_damaged_record_is_refused_with_its_name_and_nothing_is_changed() {
    let sim = SimPlatform::new(1);
    let platform = sim.platform();
    let (store, _) = furnished(&sim);
    for (path, read) in records() {
        let good = platform.files.read(Path::new(path), 1 << 20).expect("readable");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            put(platform.files.as_ref(), path, &bad);
            let error = read(&store).expect_err("damaged");
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains(path), "{error}");
            assert_eq!(platform.files.read(Path::new(path), 1 << 20).expect("still there"), bad);
        }
        for len in [0, 7, 31, good.len() - 1] {
            put(platform.files.as_ref(), path, &good[..len]);
            read(&store).expect_err("cut short");
        }
        put(platform.files.as_ref(), path, &good);
        read(&store).expect("whole again");
    }
    let job = platform.files.read(Path::new("checkpoints/job"), 1 << 20).expect("readable");
    for at in 0..job.len() {
        let mut bad = job.clone();
        bad[at] ^= 1;
        put(platform.files.as_ref(), "checkpoints/job", &bad);
        let error = FsStore::open(platform.clone(), DIR).expect_err("damaged");
        assert!(error.to_string().contains("checkpoints/job"), "{error}");
    }
}

#[test]
fn a_record_that_was_renamed_or_comes_from_another_job_is_refused() {
    let (sim, other) = (SimPlatform::new(1), SimPlatform::new(2));
    let (files, theirs) = (sim.platform().files, other.platform().files);
    let (store, _) = furnished(&sim);
    furnished(&other);
    for (path, read) in records() {
        let ours = files.read(Path::new(path), 1 << 20).expect("readable");
        put(files.as_ref(), path, &theirs.read(Path::new(path), 1 << 20).expect("readable"));
        let error = read(&store).expect_err("another job's");
        assert!(matches!(error, StoreError::OtherJob { .. }), "{error}");
        put(files.as_ref(), path, &ours);
    }
    let bytes = files.read(Path::new("checkpoints/attempts/00000001"), 1 << 20).expect("readable");
    put(files.as_ref(), "checkpoints/attempts/00000002", &bytes);
    let error = store.claimant(Attempt(2)).expect_err("a copy");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn nothing_is_ever_replaced() {
    let sim = SimPlatform::new(1);
    let (store, owner) = furnished(&sim);
    let before = tree(sim.platform().files.as_ref(), Path::new(DIR));
    let mut other = manifest(owner, 1, vec![snapshot(0)]);
    other.plan.fingerprint += 1;
    let other = other.encode().expect("consistent");
    let taken = store.publish_manifest(&owner, &other).expect_err("taken");
    assert!(matches!(taken, StoreError::Taken { .. }), "{taken}");
    let record = CommittedRecord { job: owner.job, manifest: other.point(), by: owner.attempt };
    let taken = store.record_committed(&owner, &record).expect_err("taken");
    assert!(matches!(taken, StoreError::Taken { .. }), "{taken}");
    let base = Base { job: owner.job, attempt: owner.attempt, point: Some(other.point()), forked: false };
    let taken = store.record_base(&owner, &base).expect_err("taken");
    assert!(matches!(taken, StoreError::Taken { .. }), "{taken}");
    assert_eq!(tree(sim.platform().files.as_ref(), Path::new(DIR)), before, "no temporary file is left either");
}

#[test]
fn an_old_attempt_is_refused_everywhere_and_a_stranger_too() {
    let sim = SimPlatform::new(1);
    let (store, old) = furnished(&sim);
    let new = claim_next(store.as_ref(), &sim.platform()).expect("claimed");
    let encoded = manifest(old, 2, vec![snapshot(0)]).encode().expect("consistent");
    let record = CommittedRecord { job: old.job, manifest: encoded.point(), by: old.attempt };
    let base = Base { job: old.job, attempt: old.attempt, point: None, forked: false };
    let refused = [
        store.publish_manifest(&old, &encoded).map(drop),
        store.record_committed(&old, &record),
        store.record_base(&old, &base).map(drop),
        store.remove_manifests(&old, &[encoded.name]),
        store.remove_state_files(&old, &[]),
        store.remove_temporaries(&old).map(drop),
        store.check_owner(&old),
    ];
    for (index, result) in refused.into_iter().enumerate() {
        let error = result.expect_err("fenced");
        assert!(matches!(error, StoreError::Fenced { by, .. } if by == new.attempt), "{index}: {error}");
    }
    store.check_owner(&new).expect("the newest");
    let strangers = [Owner { job: JobId(1), ..new }, Owner { attempt: Attempt(9), ..new }];
    for stranger in strangers {
        let error = store.check_owner(&stranger).expect_err("never claimed here");
        assert!(matches!(error, StoreError::NotClaimed { .. }), "{error}");
    }
}

/// Writes one state file; the sync with this number from now fails.
fn write_with_failing_sync(platform: &Platform, sim: &SimPlatform, nth: u64, fault: SyncFault) {
    let (store, owner) = claimed(platform, DIR);
    let files = SnapshotFiles::new(store.clone(), owner, platform.crash.clone());
    let mut state: State<u64, u64> = State::new(name("counts"), 1);
    state.insert(1, 1);
    sim.disk().fail_sync(nth, fault);
    let states = vec![frozen(&mut state, StateFileKind::Base)];
    let error = files.write(&origin(1, 1, 0), states).expect_err("a sync fails");
    assert!(matches!(error, WriteError::Store(StoreError::Unknown { .. })), "{error}");
    state.insert(2, 2);
    let states = vec![frozen(&mut state, StateFileKind::Base)];
    let error = files.write(&origin(2, 1, 0), states).expect_err("poisoned");
    assert!(matches!(error, WriteError::Store(StoreError::Poisoned { .. })), "{error}");
    let encoded = manifest(owner, 3, vec![snapshot(0)]).encode().expect("consistent");
    let error = store.publish_manifest(&owner, &encoded).expect_err("poisoned");
    assert!(matches!(error, StoreError::Poisoned { .. }), "{error}");
    store.list().expect("reading goes on");
}

#[test]
fn after_a_failed_sync_nothing_more_is_written_by_this_attempt_and_the_next_one_can() {
    for fault in [SyncFault::KeepCache, SyncFault::RevertCache] {
        for nth in [1, 2] {
            let sim = SimPlatform::new(1);
            write_with_failing_sync(&sim.platform(), &sim, nth, fault);
            furnished(&sim);
        }
    }
}

#[test]
fn a_manifest_whose_sync_failed_is_called_unknown_once_it_may_be_visible() {
    for (nth, what) in [(1, "its bytes"), (2, "its name")] {
        let sim = SimPlatform::new(1);
        let (store, owner) = furnished(&sim);
        let encoded = manifest(owner, 2, vec![snapshot(0)]).encode().expect("consistent");
        sim.disk().fail_sync(nth, SyncFault::KeepCache);
        let error = store.publish_manifest(&owner, &encoded).expect_err(what);
        assert!(matches!(error, StoreError::Unknown { .. }), "{what}: {error}");
    }
}

#[test]
fn a_full_disk_declines_and_leaves_no_trace() {
    let sim = SimPlatform::new(1);
    let (store, owner) = furnished(&sim);
    let before = tree(sim.platform().files.as_ref(), Path::new(DIR));
    sim.disk().set_capacity_bytes(sim.disk().used_bytes());
    let encoded = manifest(owner, 2, vec![snapshot(0)]).encode().expect("consistent");
    let error = store.publish_manifest(&owner, &encoded).expect_err("full");
    assert!(matches!(error, StoreError::Io(_)), "certainly not published: {error}");
    assert_eq!(tree(sim.platform().files.as_ref(), Path::new(DIR)), before);
    sim.disk().set_capacity_bytes(None);
    store.publish_manifest(&owner, &encoded).expect("there is room again");
}

/// An older attempt may have looked for a newer one just before that one claimed, and remove what it has retired just after that one
/// has listed the store. The model of the protocol found that this ended the newer attempt for good.
#[test]
fn what_an_older_attempt_still_removes_while_the_facts_are_read_is_left_out_of_them() {
    let sim = SimPlatform::new(1);
    let (store, owner) = furnished(&sim);
    let encoded = manifest(owner, 2, vec![snapshot(0)]).encode().expect("consistent");
    store.publish_manifest(&owner, &encoded).expect("published");
    let record = CommittedRecord { job: owner.job, manifest: encoded.point(), by: owner.attempt };
    store.record_committed(&owner, &record).expect("recorded");
    let newer = claim_next(store.as_ref(), &sim.platform()).expect("claimed");

    let reads = std::cell::Cell::new(0);
    let while_reading = |manifest: &Manifest| {
        reads.set(reads.get() + 1);
        if reads.get() == 2 {
            assert_eq!(manifest.checkpoint, CheckpointId(2));
            for gone in ["manifests/000000000001-a000001.manifest", "committed/000000000001-a000001.committed"] {
                sim.platform().files.remove_file(&Path::new(DIR).join(gone)).expect("was there");
            }
        }
        None
    };
    let found = read_facts(store.as_ref(), &newer, CheckpointId(0), while_reading).expect("what is left can be read");
    let two = ManifestName { checkpoint: CheckpointId(2), attempt: owner.attempt };
    assert_eq!(found.facts.manifests.keys().copied().collect::<Vec<_>>(), [two]);
    assert_eq!(found.facts.committed.iter().copied().collect::<Vec<_>>(), [two]);
    assert_eq!(found.listing.manifests, [two], "the listing is the one that was read");
    assert_eq!(reads.get(), 3, "the store was listed again, and what was left was read again");
}

#[test]
fn a_damaged_manifest_is_a_fact_and_a_damaged_base_is_an_error() {
    let sim = SimPlatform::new(1);
    let (store, owner) = furnished(&sim);
    let newer = claim_next(store.as_ref(), &sim.platform()).expect("claimed");
    let found = read_facts(store.as_ref(), &newer, CheckpointId(41), |_| None).expect("readable");
    assert_eq!(found.facts.manifests.values().collect::<Vec<_>>(), [&ManifestContent::Good { is_final: false }]);
    assert_eq!(found.facts.highest_named, CheckpointId(41));
    assert_eq!(found.facts.claimed.into_iter().collect::<Vec<_>>(), [owner.attempt, newer.attempt]);
    let no = |_: &_| Some("another plan".to_owned());
    let found = read_facts(store.as_ref(), &newer, CheckpointId(0), no).expect("readable");
    let foreign = ManifestContent::Foreign { reason: "another plan".to_owned() };
    assert_eq!(found.facts.manifests.values().collect::<Vec<_>>(), [&foreign]);

    sim.disk().flip_bit("checkpoints/manifests/000000000001-a000001.manifest", 40, 3);
    let found = read_facts(store.as_ref(), &newer, CheckpointId(0), |_| None).expect("readable");
    let contents: Vec<_> = found.facts.manifests.values().collect();
    assert!(matches!(contents[..], [ManifestContent::Damaged { reason }] if reason.contains("a000001.manifest")));
    assert!(found.manifests.is_empty());

    sim.disk().flip_bit("checkpoints/attempts/00000001.base", 40, 3);
    let error = read_facts(store.as_ref(), &newer, CheckpointId(0), |_| None).expect_err("nothing can be decided");
    assert!(error.to_string().contains("00000001.base"), "{error}");
}
