//! What an attempt does before any worker runs: claim, fence, read the facts, decide, settle what older attempts left.
//!
//! Order is everything here: fencing before reading (or an older attempt could still change the facts), the base recorded
//! before anything is swept, commits before aborts, all of it before the first worker (so that their number plays no part).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cutwater_platform::Platform;

use crate::checkpoint::{BaseRecorded, sweep};
use crate::config::GuaranteeKind;
use crate::graph::Plan;
use crate::id::CheckpointId;
use crate::observe::{Phase, Progress};
use crate::recovery::{Found, Refusal, Resolution, Resume, Want, claim_next, read_facts, resolve};
use crate::sink::CommitGroup;
use crate::snapshot::{
    Base, CheckpointStore, CommittedRecord, FsStore, Manifest, ManifestName, ManifestPoint, Owner, StateFileName,
};
use crate::worker::attempt::Failure;
use crate::worker::control::{Kept, commit, stored};

/// From where an attempt goes on.
pub(crate) struct Recovered {
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) owner: Owner,
    /// The checkpoint to restore from; `None` at a fresh start.
    pub(crate) manifest: Option<Arc<Manifest>>,
    /// The number of the first checkpoint of this attempt.
    pub(crate) next: CheckpointId,
    /// Nothing is left to do: the final manifest is committed.
    pub(crate) finished: bool,
    /// The timeline's manifests that are in the store.
    pub(crate) timeline: Vec<Kept>,
    /// Transactions of older attempts that were committed now, because manifests list them.
    pub(crate) recommitted: usize,
    /// Transactions that manifests list and that were found committed already.
    pub(crate) found_committed: usize,
    /// Transactions of older attempts that were aborted.
    pub(crate) aborted: usize,
}

pub(crate) type Groups = BTreeMap<String, Arc<dyn CommitGroup>>;

/// Does all of it. `dir` is the checkpoint store's directory.
pub(crate) fn recover(
    platform: &Platform,
    dir: &Path,
    plan: &Plan,
    wanted: GuaranteeKind,
    groups: &Groups,
    progress: &Progress,
) -> Result<Recovered, Failure> {
    let clock = &platform.clock;
    let mut at = clock.monotonic();
    let mut lap = || {
        let now = clock.monotonic();
        now - std::mem::replace(&mut at, now)
    };
    let refused = |e: crate::snapshot::StoreError| Failure::from(e);

    let store: Arc<dyn CheckpointStore> = Arc::new(FsStore::open(platform.clone(), dir).map_err(refused)?);
    let owner = claim_next(store.as_ref(), platform).map_err(refused)?;
    progress.attempt(owner.attempt);
    progress.phase(Phase::Fencing);
    progress.recovery(|t| t.claim = lap());
    tracing::info!(attempt = owner.attempt.0, job = %owner.job, "attempt claimed");

    for group in groups.values() {
        group.fence(owner.job, owner.attempt)?;
    }
    platform.crash.reach("recovery.fenced");
    progress.phase(Phase::Recovering);
    progress.recovery(|t| t.fence = lap());

    let foreign = |m: &Manifest| {
        let mine = plan.fingerprint();
        if wanted == GuaranteeKind::ExactlyOnce && !m.exact {
            let text = "the job ran at-least-once when it was made, so it may count records that come again. Go on with \
                        at-least-once, or start in another directory";
            return Some(text.to_string());
        }
        (m.plan.fingerprint != mine).then(|| {
            let theirs: Vec<&str> = m.plan.operators.iter().map(|o| o.name.as_str()).collect();
            format!(
                "it was made by another job graph (fingerprint {:016x}, this one is {mine:016x}); its operators were: {}. Run \
                 the program that made it, or start in another directory",
                m.plan.fingerprint,
                theirs.join(", ")
            )
        })
    };
    let found = read_facts(store.as_ref(), &owner, CheckpointId::default(), foreign).map_err(refused)?;
    let resolution = resolve(&found.facts, Want::Newest);
    platform.crash.reach("recovery.resolved");
    progress.recovery(|t| t.facts = lap());

    let mut prepared = 0;
    for group in groups.values() {
        prepared += group.prepared()?;
    }
    progress.prepared_found(prepared);
    let recovered = match resolution {
        Resolution::Fresh { next, orphaned } => {
            let base = Base { job: owner.job, attempt: owner.attempt, point: None, forked: false };
            let recorded = store.record_base(&owner, &base).map_err(refused)?;
            let aborted = settle(groups, &[])?;
            clean(store.as_ref(), &owner, recorded, &found, &[], &orphaned)?;
            Recovered {
                store,
                owner,
                manifest: None,
                next,
                finished: false,
                timeline: vec![],
                recommitted: 0,
                found_committed: 0,
                aborted,
            }
        }
        Resolution::Resume(resume) => go_on(platform, store, owner, found, resume, groups)?,
        Resolution::Finished { manifest } => {
            let (manifest, published) = found.manifests.get(&manifest).expect("resolved from it");
            let kept = Kept::of(manifest, published.manifest_checksum(), true);
            let (manifest, next) = (Some(Arc::new(manifest.clone())), manifest.checkpoint.next());
            Recovered {
                store,
                owner,
                manifest,
                next,
                finished: true,
                timeline: vec![kept],
                recommitted: 0,
                found_committed: 0,
                aborted: 0,
            }
        }
        Resolution::Fenced { by } => {
            tracing::warn!(by = by.0, "a newer attempt has taken over");
            return Err(Failure::Fenced);
        }
        Resolution::Refuse(refusal @ Refusal::Foreign { .. }) => {
            return Err(Failure::Incompatible(refusal.to_string()));
        }
        Resolution::Refuse(refusal) => return Err(Failure::Fatal(refusal.to_string())),
    };
    progress.settled(recovered.recommitted, recovered.found_committed, recovered.aborted);
    progress.recovery(|t| t.settle = lap());
    Ok(recovered)
}

fn go_on(
    platform: &Platform,
    store: Arc<dyn CheckpointStore>,
    owner: Owner,
    found: Found,
    resume: Resume,
    groups: &Groups,
) -> Result<Recovered, Failure> {
    let point = |name: ManifestName| {
        let (_, published) = found.manifests.get(&name).expect("resolved from it");
        ManifestPoint { checkpoint: name.checkpoint, attempt: name.attempt, checksum: published.manifest_checksum() }
    };
    let base =
        Base { job: owner.job, attempt: owner.attempt, point: Some(point(resume.manifest)), forked: resume.forks };
    let recorded = store.record_base(&owner, &base)?;
    platform.crash.reach("recovery.base-recorded");

    let (mut recommitted, mut found_committed) = (0, 0);
    for name in &resume.recommit {
        let (manifest, _) = found.manifests.get(name).expect("resolved from it");
        let handles = |group: &str| {
            manifest.committables().filter(|c| c.group == group).map(|c| c.handle.clone()).collect::<Vec<_>>()
        };
        if let Some(lost) = manifest.committables().find(|c| !groups.contains_key(&c.group)) {
            let text =
                format!("manifest {name} lists output of commit group {:?}, which this job doesn't have", lost.group);
            return Err(Failure::Incompatible(text));
        }
        let committed = commit(groups, handles)?;
        recommitted += committed.now;
        found_committed += committed.already;
        tracing::info!(
            checkpoint = name.checkpoint.0,
            now = committed.now,
            already = committed.already,
            "committed again"
        );
        platform.crash.reach("recovery.recommitted");
        let record = CommittedRecord { job: owner.job, manifest: point(*name), by: owner.attempt };
        store.record_committed(&owner, &record)?;
    }
    let timeline: Vec<Kept> = found
        .manifests
        .iter()
        .filter(|(name, _)| **name <= resume.manifest && !resume.orphaned.contains(name))
        .map(|(_, (manifest, published))| Kept::of(manifest, published.manifest_checksum(), true))
        .collect();
    let aborted = settle(groups, &timeline)?;
    platform.crash.reach("recovery.aborted-others");
    clean(store.as_ref(), &owner, recorded, &found, &timeline, &resume.orphaned)?;
    platform.crash.reach("recovery.swept");

    let (manifest, _) = found.manifests.get(&resume.manifest).expect("resolved from it");
    let manifest = Some(Arc::new(manifest.clone()));
    Ok(Recovered {
        store,
        owner,
        manifest,
        next: resume.next,
        finished: resume.is_final,
        timeline,
        recommitted,
        found_committed,
        aborted,
    })
}

/// Aborts what no manifest of the timeline lists, found by listing.
fn settle(groups: &Groups, timeline: &[Kept]) -> Result<usize, Failure> {
    let mut aborted = 0;
    for (name, group) in groups {
        let keep: Vec<Vec<u8>> = timeline.iter().filter_map(|k| k.handles.get(name)).flatten().cloned().collect();
        aborted += group.abort_all_but(&keep)?;
    }
    Ok(aborted)
}

/// Sweeps what older attempts left, now that the base is recorded: orphaned manifests first, durably, then files.
fn clean(
    store: &dyn CheckpointStore,
    owner: &Owner,
    recorded: BaseRecorded,
    found: &Found,
    timeline: &[Kept],
    orphaned: &[ManifestName],
) -> Result<(), Failure> {
    let stored: Vec<_> = timeline.iter().map(stored).collect();
    let names: Vec<(String, crate::id::Attempt)> =
        found.listing.state_files.iter().map(|f| (f.to_string(), f.attempt)).collect();
    let listed = names.iter().map(|(name, attempt)| (name.as_str(), *attempt));
    let retirement = sweep(recorded, &stored, orphaned.iter().copied(), listed);
    store.remove_manifests(owner, retirement.manifests())?;
    let files = retirement.files_after_manifests();
    let files: Vec<StateFileName> = files.iter().filter_map(|name| StateFileName::parse(name)).collect();
    store.remove_state_files(owner, &files)?;
    store.remove_temporaries(owner)?;
    Ok(())
}
