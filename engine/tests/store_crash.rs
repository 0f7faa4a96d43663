//! A checkpoint store crashed at every step of a job's life, under every policy of loss, and lived on with; and with each operation
//! of the disk failing.

mod store_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cutwater_engine::checkpoint::{SnapshotRef, StateFileKind};
use cutwater_engine::id::{Attempt, CheckpointId, JobId};
use cutwater_engine::recovery::{Resolution, Want, claim_next, read_facts, resolve};
use cutwater_engine::snapshot::{
    Base, Chain, CheckpointStore, CommittedRecord, FsStore, ManifestName, ManifestPoint, StateFileName,
    StateFileReader, StoreError,
};
use cutwater_engine::state::{KeyedState, State};
use cutwater_testkit::{CrashAction, CrashSchedule, DiskOp, LossPolicy, NamePolicy, OpFault, SimPlatform, Strike};
use store_support::*;

const DIR: &str = "data/checkpoints";
/// Checkpoints that a life takes.
const ROUNDS: u64 = 4;

/// Every crash point of the store, the writer and the claim; each has a row in `docs/recovery-checkpoints.md`.
const POINTS: [&str; 12] = [
    "attempt.base-recorded",
    "attempt.claimed",
    "attempt.tmp-written",
    "janitor.committed-recorded",
    "manifest.durable",
    "manifest.published",
    "manifest.tmp-written",
    "retire.file-removed",
    "retire.manifest-removed",
    "snapshot.dir-synced",
    "snapshot.file-synced",
    "snapshot.file-written",
];

/// What the store has acknowledged: it must be there in every later life.
#[derive(Clone, Default)]
struct Acknowledged {
    job: Option<JobId>,
    claimed: BTreeSet<Attempt>,
    bases: BTreeSet<Attempt>,
    manifests: BTreeSet<ManifestName>,
    committed: BTreeSet<ManifestName>,
    /// What was in the state at each checkpoint whose publication was begun.
    state: BTreeMap<ManifestName, BTreeMap<u64, u64>>,
}

fn states() -> State<u64, u64> {
    State::new(name("counts"), 1)
}

fn restore(store: &FsStore, manifest: ManifestName) -> Result<State<u64, u64>, String> {
    let (manifest, _) = store.manifest(manifest).map_err(|e| e.to_string())?;
    let mut state = states();
    for file in &manifest.snapshots[0].chains[0].files {
        let bytes = store.open_state_file(&file.name).map_err(|e| e.to_string())?;
        let mut reader = StateFileReader::open(bytes, file).map_err(|e| e.to_string())?;
        state.load(&mut reader, &ownership(1, 0)).map_err(|e| e.to_string())?;
    }
    Ok(state)
}

fn contents(state: &State<u64, u64>) -> BTreeMap<u64, u64> {
    state.iter().map(|(k, v)| (*k, *v)).collect()
}

/// One attempt: claims, decides, restores, takes some checkpoints, commits and retires. Ends at the first error, which must
/// come from the power going off.
fn live(sim: &SimPlatform, acknowledged: &mut Acknowledged, rounds: u64) -> Result<(), StoreError> {
    let platform = sim.platform();
    let store = Arc::new(FsStore::open(platform.clone(), DIR)?);
    acknowledged.job = Some(store.job());
    let owner = claim_next(store.as_ref(), &platform)?;
    assert!(acknowledged.claimed.insert(owner.attempt), "a number is claimed once");
    let found = read_facts(store.as_ref(), &owner, CheckpointId(0), |_| None)?;
    let (point, next, recommit) = match resolve(&found.facts, Want::Newest) {
        Resolution::Fresh { next, .. } => (None, next, vec![]),
        Resolution::Resume(resume) => (Some(resume.manifest), resume.next, resume.recommit),
        other => panic!("nothing else can be: {other:?}"),
    };
    let checksum = |name: ManifestName| found.manifests[&name].1.manifest_checksum();
    let point_of = |name: ManifestName| ManifestPoint {
        checkpoint: name.checkpoint,
        attempt: name.attempt,
        checksum: checksum(name),
    };
    store.record_base(
        &owner,
        &Base { job: owner.job, attempt: owner.attempt, point: point.map(point_of), forked: false },
    )?;
    acknowledged.bases.insert(owner.attempt);
    for name in recommit {
        store.record_committed(
            &owner,
            &CommittedRecord { job: owner.job, manifest: point_of(name), by: owner.attempt },
        )?;
        acknowledged.committed.insert(name);
    }
    store.remove_temporaries(&owner)?;

    let mut state = states();
    let mut chain = Chain::new(name("counts"), state.schema());
    let mut retained: Vec<(ManifestName, BTreeSet<StateFileName>)> = Vec::new();
    if let Some(manifest) = point {
        state = restore(&store, manifest).map_err(|_| StoreError::Missing { path: DIR.into() })?;
        assert_eq!(contents(&state), acknowledged.state[&manifest], "the state as it was at {manifest}");
        state.continue_chain();
        chain = Chain::resumed(name("counts"), found.manifests[&manifest].0.snapshots[0].chains[0].clone());
        // A janitor that forgot the older ones would take away what they still name.
        retained = found.manifests.iter().map(|(name, (found, _))| (*name, named(&found.snapshots))).collect();
    }
    for checkpoint in (next.0..).take(usize::try_from(rounds).expect("few")) {
        for key in 0..20 {
            state.update(&(key * checkpoint % 31), |n| *n += checkpoint);
        }
        state.remove(&(checkpoint % 31));
        let kind = if checkpoint % 3 == 0 { StateFileKind::Base } else { StateFileKind::Delta };
        let frozen = frozen(&mut state, kind);
        let files = cutwater_engine::snapshot::SnapshotFiles::new(store.clone(), owner, platform.crash.clone());
        let written = files.write(&origin(checkpoint, 1, 0), vec![frozen]).map_err(|e| match e {
            cutwater_engine::snapshot::WriteError::Store(e) => e,
            other => panic!("{other}"),
        })?;
        written.into_iter().for_each(|written| chain.push(written).expect("nothing was lost"));

        let mut snapshot = snapshot(0);
        snapshot.chains = vec![chain.to_ref()];
        let manifest = manifest(owner, checkpoint, vec![snapshot]);
        let encoded = manifest.encode().expect("consistent");
        acknowledged.state.insert(encoded.name, contents(&state));
        let published = store.publish_manifest(&owner, &encoded)?;
        assert_eq!((published.checkpoint().0, published.manifest_checksum()), (checkpoint, encoded.checksum));
        acknowledged.manifests.insert(encoded.name);
        store.record_committed(
            &owner,
            &CommittedRecord { job: owner.job, manifest: encoded.point(), by: owner.attempt },
        )?;
        acknowledged.committed.insert(encoded.name);

        retained.push((encoded.name, named(&manifest.snapshots)));
        while retained.len() > 2 {
            let (gone, files) = retained.remove(0);
            acknowledged.manifests.remove(&gone);
            acknowledged.committed.remove(&gone);
            store.remove_manifests(&owner, &[gone])?;
            let kept: BTreeSet<&StateFileName> = retained.iter().flat_map(|(_, names)| names).collect();
            let free: Vec<StateFileName> = files.into_iter().filter(|file| !kept.contains(file)).collect();
            store.remove_state_files(&owner, &free)?;
        }
    }
    Ok(())
}

fn named(snapshots: &[SnapshotRef]) -> BTreeSet<StateFileName> {
    let files = snapshots.iter().flat_map(|snapshot| &snapshot.chains).flat_map(|chain| &chain.files);
    files.map(|file| StateFileName::parse(&file.name).expect("ours")).collect()
}

/// What must be true of a store whenever somebody looks at it.
fn check(sim: &SimPlatform, acknowledged: &Acknowledged, story: &str) {
    let store = FsStore::open(sim.platform(), DIR).unwrap_or_else(|e| panic!("{story}: {e}"));
    if let Some(job) = acknowledged.job {
        assert_eq!(store.job(), job, "{story}");
    }
    let listing = store.list().unwrap_or_else(|e| panic!("{story}: {e}"));
    assert!(listing.strangers.is_empty(), "{story}: {:?}", listing.strangers);
    let claimed: BTreeSet<Attempt> = listing.attempts.iter().copied().collect();
    assert!(claimed.is_superset(&acknowledged.claimed), "{story}: {claimed:?}");
    assert!(listing.bases.iter().copied().collect::<BTreeSet<_>>().is_superset(&acknowledged.bases), "{story}");
    let manifests: BTreeSet<ManifestName> = listing.manifests.iter().copied().collect();
    assert!(manifests.is_superset(&acknowledged.manifests), "{story}: {manifests:?}");
    let committed: BTreeSet<ManifestName> = listing.committed.iter().copied().collect();
    assert!(committed.is_superset(&acknowledged.committed), "{story}: {committed:?}");
    for attempt in &listing.attempts {
        store.claimant(*attempt).unwrap_or_else(|e| panic!("{story}: {e}"));
    }
    for attempt in &listing.bases {
        store.base(*attempt).unwrap_or_else(|e| panic!("{story}: {e}"));
    }
    for name in &listing.committed {
        store.committed(*name).unwrap_or_else(|e| panic!("{story}: {e}"));
    }
    for name in &listing.manifests {
        // I-5: a manifest that exists is whole, and so is everything that it names.
        let (manifest, _) = store.manifest(*name).unwrap_or_else(|e| panic!("{story}: {e}"));
        for file in manifest.snapshots.iter().flat_map(|s| &s.chains).flat_map(|c| &c.files) {
            let bytes = store.open_state_file(&file.name).unwrap_or_else(|e| panic!("{story}: {e}"));
            let reader = StateFileReader::open(bytes, file).unwrap_or_else(|e| panic!("{story}: {e}"));
            reader.verify().unwrap_or_else(|e| panic!("{story}: {e}"));
        }
        let state = restore(&store, *name).unwrap_or_else(|e| panic!("{story}: {e}"));
        assert_eq!(contents(&state), acknowledged.state[name], "{story}: the state at {name}");
    }
}

/// A life that ends by the power going off at `step`, or runs to its end.
fn life(sim: &SimPlatform, step: Option<u64>, acknowledged: &mut Acknowledged, story: &str) {
    sim.disk().crash_at_step(step);
    match live(sim, acknowledged, ROUNDS) {
        Ok(()) => {}
        Err(e) => assert!(sim.disk().is_off(), "{story}: only the power may end a life: {e}"),
    }
}

fn campaign(names: NamePolicy, every: usize) {
    let dry = SimPlatform::new(1);
    live(&dry, &mut Acknowledged::default(), ROUNDS).expect("nothing fails");
    let steps = dry.disk().steps();
    assert!(steps > 100, "{steps}");
    for step in (1..=steps).step_by(every) {
        for policy in LossPolicy::ALL {
            let sim = SimPlatform::new(step ^ policy as u64);
            sim.disk().set_name_policy(names);
            let story = format!("{names:?}, first life off at step {step} of {steps}, {policy:?}");
            let mut acknowledged = Acknowledged::default();
            life(&sim, Some(step), &mut acknowledged, &story);
            // A second life is cut too, somewhere, and its crash met by another policy.
            let second = sim.restart(policy);
            check(&second, &acknowledged, &story);
            let off = 1 + (step * 7 + policy as u64 * 13) % steps;
            let story = format!("{story}; second off at step {off}");
            life(&second, Some(off), &mut acknowledged, &story);
            let third = second.restart(LossPolicy::ALL[(step as usize + policy as usize) % LossPolicy::ALL.len()]);
            check(&third, &acknowledged, &story);
            life(&third, None, &mut acknowledged, &story);
            check(&third, &acknowledged, &story);
        }
    }
}

#[test]
fn whatever_was_acknowledged_survives_a_power_cut_at_every_step_of_two_lives() {
    campaign(NamePolicy::SyncDir, 1);
}

#[test]
fn it_does_so_too_on_a_journaling_file_system() {
    campaign(NamePolicy::Journaled, 3);
}

#[test]
fn what_a_reader_acted_on_after_a_kill_is_still_there_after_a_power_cut() {
    let dry = SimPlatform::new(1);
    live(&dry, &mut Acknowledged::default(), ROUNDS).expect("nothing fails");
    for step in 1..=dry.disk().steps() {
        let sim = SimPlatform::new(step);
        let mut acknowledged = Acknowledged::default();
        life(&sim, Some(step), &mut acknowledged, "the killed life");
        // The process is gone, the page cache is not: a name may be visible that no disk has.
        let killed = sim.kill();
        let story = format!("killed at step {step}");
        check(&killed, &acknowledged, &story);
        let store = FsStore::open(killed.platform(), DIR).expect("a store");
        acknowledged.job = Some(store.job());
        let listing = store.list().expect("readable");
        acknowledged.claimed.extend(&listing.attempts);
        acknowledged.bases.extend(&listing.bases);
        acknowledged.manifests.extend(&listing.manifests);
        acknowledged.committed.extend(&listing.committed);
        check(&killed.restart(LossPolicy::AllLost), &acknowledged, &story);
    }
}

#[test]
fn every_crash_point_is_reached_known_and_survived() {
    let dry = SimPlatform::new(1);
    live(&dry, &mut Acknowledged::default(), ROUNDS).expect("nothing fails");
    let reached = dry.crashes().reached();
    assert_eq!(reached.keys().copied().collect::<Vec<_>>(), POINTS);
    for Strike { point, nth } in CrashSchedule::from_counts(&reached, 10, 1) {
        for policy in LossPolicy::ALL {
            let sim = SimPlatform::new(nth);
            sim.power_off_at(point.as_str(), nth);
            let mut acknowledged = Acknowledged::default();
            live(&sim, &mut acknowledged, ROUNDS).expect_err("the power went off");
            let next = sim.restart(policy);
            let story = format!("{point}#{nth}, {policy:?}");
            check(&next, &acknowledged, &story);
            live(&next, &mut acknowledged, ROUNDS).unwrap_or_else(|e| panic!("{story}: {e}"));
            check(&next, &acknowledged, &story);
        }
    }
}

#[test]
fn whatever_was_acknowledged_is_there_whichever_operation_fails() {
    let mut cut_off = (SimPlatform::new(1), Acknowledged::default());
    cut_off.0.power_off_at("manifest.durable", 3);
    live(&cut_off.0, &mut cut_off.1, ROUNDS).expect_err("the power went off");
    for (sim, acknowledged) in [(SimPlatform::new(1), Acknowledged::default()), cut_off] {
        let dry = sim.kill();
        live(&dry, &mut acknowledged.clone(), ROUNDS).expect("a sound disk");
        let (operations, mut told) = (dry.disk().operations(), 0);
        for nth in 1..=operations {
            for (index, fault) in
                [OpFault::Once, OpFault::OnceDone, OpFault::ReadOnly, OpFault::Forever].into_iter().enumerate()
            {
                let policy = LossPolicy::ALL[(nth as usize + index) % LossPolicy::ALL.len()];
                told += u64::from(one_fails(&sim.kill(), acknowledged.clone(), (nth, fault), policy));
            }
        }
        assert!(told > 3 * operations, "{told} of {operations} in four ways");
    }
}

/// True if it was told.
fn one_fails(
    sim: &SimPlatform,
    mut acknowledged: Acknowledged,
    (nth, fault): (u64, OpFault),
    policy: LossPolicy,
) -> bool {
    sim.disk().fail_operation(nth, fault);
    let ended = live(sim, &mut acknowledged, ROUNDS);
    let story = format!("operation {nth} failed, {fault:?}: {ended:?}; then {policy:?}\n{}", sim.disk().trace_text());
    let is_told = |e: &StoreError| {
        // `Missing`: what this test makes of a state that can't be read.
        matches!(
            e,
            StoreError::Io(_) | StoreError::Unknown { .. } | StoreError::Poisoned { .. } | StoreError::Missing { .. }
        )
    };
    assert!(ended.as_ref().err().is_none_or(is_told), "{story}");
    let is_sync = |op| matches!(op, DiskOp::SyncData | DiskOp::WriteSynced | DiskOp::SyncDir);
    let mut worlds = vec![sim.restart(policy)];
    // What a failed sync left is seen and not on the disk, and no process can tell: `lost_sync` ends the run.
    if !sim.disk().trace().iter().any(|step| step.fault == Some("EIO") && is_sync(step.op)) {
        worlds.push(sim.kill());
    }
    for world in worlds {
        let mut acknowledged = acknowledged.clone();
        check(&world, &acknowledged, &story);
        live(&world, &mut acknowledged, 1).unwrap_or_else(|e| panic!("{story}\nthen {e}"));
        check(&world.restart(LossPolicy::AllLost), &acknowledged, &story);
    }
    ended.is_err()
}

#[test]
fn the_points_of_this_file_are_those_of_the_documentation() {
    let doc = include_str!("../../docs/recovery-checkpoints.md");
    let rows: Vec<&str> =
        doc.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(point, _)| point)).collect();
    let mut sorted = rows.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, POINTS);
}

#[test]
fn a_claim_that_was_overtaken_between_its_file_and_its_name_takes_the_next_number() {
    let sim = SimPlatform::new(5);
    let platform = sim.platform();
    let store = FsStore::open(platform.clone(), DIR).expect("a store");
    let rival = Arc::new(std::sync::Mutex::new(None));
    let (theirs, other) = (rival.clone(), platform.clone());
    let overtake = move || {
        let store = FsStore::open(other.clone(), DIR).expect("the same store");
        *theirs.lock().expect("no panic") = Some(claim_next(&store, &other).expect("claimed"));
    };
    sim.crashes().arm("attempt.tmp-written", 1, CrashAction::Call(Box::new(overtake)));
    let ours = claim_next(&store, &platform).expect("claimed");
    let theirs = rival.lock().expect("no panic").expect("the rival was called");
    assert_eq!((theirs.attempt, ours.attempt), (Attempt(1), Attempt(2)));
    let fenced = store.check_owner(&theirs).expect_err("replaced");
    assert!(matches!(fenced, StoreError::Fenced { by: Attempt(2), .. }), "{fenced}");
    for attempt in [Attempt(1), Attempt(2)] {
        assert_eq!(store.claimant(attempt).expect("whole").attempt, attempt);
    }
}

#[test]
fn a_manifest_of_an_attempt_that_was_replaced_while_publishing_gives_no_permit() {
    for point in ["manifest.tmp-written", "manifest.published", "manifest.durable"] {
        let sim = SimPlatform::new(6);
        let platform = sim.platform();
        let (store, owner) = claimed(&platform, DIR);
        store
            .record_base(&owner, &Base { job: owner.job, attempt: owner.attempt, point: None, forked: false })
            .expect("recorded");
        let other = platform.clone();
        let replace = move || {
            let store = FsStore::open(other.clone(), DIR).expect("the same store");
            claim_next(&store, &other).expect("claimed");
        };
        sim.crashes().arm(point, 1, CrashAction::Call(Box::new(replace)));
        let encoded = manifest(owner, 1, vec![snapshot(0)]).encode().expect("consistent");
        let error = store.publish_manifest(&owner, &encoded).expect_err("replaced");
        assert!(matches!(error, StoreError::Fenced { by: Attempt(2), .. }), "{point}: {error}");
    }
}

#[test]
fn claims_of_many_threads_on_a_real_disk_are_all_different() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("new/checkpoints");
    let claim = || {
        let platform = cutwater_platform::Platform::real();
        let store = FsStore::open(platform.clone(), &path).expect("a store");
        (0..10).map(|_| claim_next(&store, &platform).expect("claimed")).collect::<Vec<_>>()
    };
    let owners: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let jobs: BTreeSet<JobId> = owners.iter().map(|owner| owner.job).collect();
    assert_eq!(jobs.len(), 1, "one job, whoever made the store");
    let attempts: BTreeSet<Attempt> = owners.iter().map(|owner| owner.attempt).collect();
    assert_eq!(attempts, (1..=40).map(Attempt).collect());
    let platform = cutwater_platform::Platform::real();
    let store = FsStore::open(platform, &path).expect("a store");
    for attempt in attempts {
        assert_eq!(store.claimant(attempt).expect("whole").attempt, attempt);
    }
}
