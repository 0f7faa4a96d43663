//! What an attempt does before any worker runs: claim, fence, read the facts, decide, settle what older attempts left.
//!
//! Order is everything here: fencing before reading (or an older attempt could still change the facts), the base recorded
//! before anything is swept, commits before aborts, all of it before the first worker (so that their number plays no part).

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use cutwater_platform::Platform;

use crate::checkpoint::{BaseRecorded, sweep};
use crate::config::{GuaranteeKind, RestoreFrom};
use crate::id::{CheckpointId, OperatorId};
use crate::observe::{Phase, Progress};
use crate::recovery::{Found, Program, Resolution, Resume, Upgrade, Want, claim_next, compare, read_facts, resolve};
use crate::snapshot::{
    Base, CheckpointStore, CommittedRecord, FsStore, Manifest, ManifestName, ManifestPoint, Owner, StateFileName,
};
use crate::worker::attempt::Failure;
use crate::worker::control::{Kept, commit, stored};
use crate::worker::groups::Groups;
use crate::worker::restore_from::{begin_from, goal};

/// From where an attempt goes on.
pub(crate) struct Recovered {
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) owner: Owner,
    /// The checkpoint to restore from; `None` at a fresh start.
    pub(crate) manifest: Option<Arc<Manifest>>,
    /// What of that goes where in this program.
    pub(crate) upgrade: Option<Arc<Upgrade>>,
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

/// Does all of it. `dir` is the checkpoint store's directory.
pub(crate) fn recover(
    platform: &Platform,
    dir: &Path,
    program: &ProgramHere<'_>,
    wanted: GuaranteeKind,
    groups: &Groups,
    restore: Option<&RestoreFrom>,
    progress: &Progress,
) -> Result<Recovered, Failure> {
    let clock = &platform.clock;
    let mut at = clock.monotonic();
    let mut lap = || {
        let now = clock.monotonic();
        now - std::mem::replace(&mut at, now)
    };
    let refused = |e: crate::snapshot::StoreError| Failure::from(e);

    let savepoint = restore.map(|from| begin_from(platform, dir, from)).transpose()?;
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

    let facts = || read_facts(store.as_ref(), &owner, CheckpointId::default(), |m| foreign(m, wanted)).map_err(refused);
    let (mut found, mut want) = (facts()?, Want::Newest);
    if let Some(savepoint) = &savepoint {
        let changed;
        let fork = restore.is_some_and(|from| from.fork);
        (want, changed) = goal(platform, dir, store.as_ref(), &found, savepoint, fork)?;
        if changed {
            found = facts()?;
        }
    }
    let resolution = resolve(&found.facts, want);
    let upgrade = program.check(&resolution, &found)?.map(Arc::new);
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
                upgrade: None,
                next,
                finished: false,
                timeline: vec![],
                recommitted: 0,
                found_committed: 0,
                aborted,
            }
        }
        Resolution::Resume(resume) => Recovered { upgrade, ..go_on(platform, store, owner, found, resume, groups)? },
        Resolution::Finished { manifest } => {
            let (manifest, published) = found.manifests.get(&manifest).expect("resolved from it");
            let kept = Kept::of(manifest, published.manifest_checksum(), true, clock.monotonic());
            let (manifest, next) = (Some(Arc::new(manifest.clone())), manifest.checkpoint.next());
            Recovered {
                store,
                owner,
                manifest,
                upgrade: None,
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
        Resolution::Refuse(refusal) => return Err(refusal.into()),
    };
    progress.settled(recovered.recommitted, recovered.found_committed, recovered.aborted);
    progress.recovery(|t| t.settle = lap());
    Ok(recovered)
}

/// Why a job that is promised this can't go on from a manifest, whatever its graph is.
pub(crate) fn foreign(manifest: &Manifest, wanted: GuaranteeKind) -> Option<String> {
    let text = "the job ran at-least-once when it was made, so it may count records that come again. Go on with \
                at-least-once, or start in another directory";
    (wanted == GuaranteeKind::ExactlyOnce && !manifest.exact).then(|| text.to_string())
}

/// The program that goes on, for the upgrade check.
pub(crate) struct ProgramHere<'a> {
    pub(crate) program: &'a Program,
    /// What may be dropped.
    pub(crate) allowed: &'a BTreeSet<String>,
    /// Lists the splits of its sources: only done for a job that goes on, since the input of a finished one may be gone.
    pub(crate) splits: Box<dyn Fn() -> Result<Splits, Failure> + 'a>,
}

/// The splits of each source.
type Splits = HashMap<OperatorId, Vec<String>>;

impl ProgramHere<'_> {
    /// What of the checkpoint goes where; an error before anything is recorded if that isn't clear.
    fn check(&self, resolution: &Resolution, found: &Found) -> Result<Option<Upgrade>, Failure> {
        let upgrade = self.look(resolution, found)?;
        if let Some(upgrade) = &upgrade {
            if upgrade.problems().next().is_some() {
                let text =
                    format!("this program can't go on from the checkpoint as it is. What would become of it {upgrade}");
                return Err(Failure::Incompatible(text));
            }
            if upgrade.changes_something() {
                tracing::warn!("going on with a changed program, {upgrade}");
            }
        }
        Ok(upgrade)
    }

    /// What would become of the checkpoint; `None` if there is none, or if it is the last.
    pub(crate) fn look(&self, resolution: &Resolution, found: &Found) -> Result<Option<Upgrade>, Failure> {
        let (name, is_final) = match resolution {
            Resolution::Resume(resume) => (resume.manifest, resume.is_final),
            Resolution::Finished { manifest } => (*manifest, true),
            Resolution::Fresh { .. } | Resolution::Fenced { .. } | Resolution::Refuse(_) => return Ok(None),
        };
        let (manifest, _) = found.manifests.get(&name).expect("resolved from it");
        if is_final {
            let other = manifest.plan.fingerprint != self.program.fingerprint;
            let text = format!(
                "checkpoint {name} is final: the job has finished, and was another job graph. A changed one has nothing to go \
                 on from: run the program that made it, or start in another directory"
            );
            return if other { Err(Failure::Incompatible(text)) } else { Ok(None) };
        }
        Ok(Some(compare(manifest, &self.program.clone().with_splits(&(self.splits)()?), self.allowed)))
    }
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
    // Before anything is recorded: a changed program may not have what must be committed.
    for name in &resume.recommit {
        let (manifest, _) = found.manifests.get(name).expect("resolved from it");
        if let Some(lost) = manifest.committables().find(|c| !groups.contains_key(&c.group)) {
            let text = format!(
                "checkpoint {name} lists output of commit group {:?} that isn't committed, and this job doesn't have that group; \
                 start a program with it once, or put it back",
                lost.group
            );
            return Err(Failure::Incompatible(text));
        }
    }
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
        let committed = match platform.crash.is_planted("recovery.not-committed-again") {
            true => Default::default(),
            false => commit(groups, handles, &groups.marks(manifest))?,
        };
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
    let now = platform.clock.monotonic();
    let timeline: Vec<Kept> = found
        .manifests
        .iter()
        .filter(|(name, _)| **name <= resume.manifest && !resume.orphaned.contains(name))
        .map(|(_, (manifest, published))| Kept::of(manifest, published.manifest_checksum(), true, now))
        .collect();
    let aborted = match platform.crash.is_planted("recovery.others-not-aborted") {
        true => 0,
        false => settle(groups, &timeline)?,
    };
    platform.crash.reach("recovery.aborted-others");
    clean(store.as_ref(), &owner, recorded, &found, &timeline, &resume.orphaned)?;
    platform.crash.reach("recovery.swept");

    let (manifest, _) = found.manifests.get(&resume.manifest).expect("resolved from it");
    let manifest = Some(Arc::new(manifest.clone()));
    Ok(Recovered {
        store,
        owner,
        manifest,
        upgrade: None,
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
    for (name, group) in groups.iter() {
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
