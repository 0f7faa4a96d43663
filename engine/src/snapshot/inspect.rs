//! Looking into a checkpoint store from outside: which checkpoints there are, what they hold, whether their files are whole.
//!
//! Needs no types and no running job. Nothing is changed; a job may be running on the store meanwhile, and what it removes
//! while this looks is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::layout::ManifestName;
use super::manifest::Manifest;
use super::reader::StateFileReader;
use super::store::{CheckpointStore, StoreError};
use crate::checkpoint::StateFile;
use crate::id::{JobId, OperatorId};

/// What is in a checkpoint store.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The job.
    pub job: JobId,
    /// Where the store is.
    pub place: String,
    /// Attempts that were claimed.
    pub attempts: usize,
    /// The complete checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointView>,
    /// State files that no readable manifest names: of a checkpoint that is being taken, or left by a crash and swept at the
    /// next start.
    pub unnamed_files: usize,
    /// Names that no part of Cutwater gave.
    pub strangers: Vec<String>,
}

/// One complete checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointView {
    /// Checkpoint and attempt.
    pub name: ManifestName,
    /// Whether its output is recorded as committed. A checkpoint that isn't is committed at the next start.
    pub committed: bool,
    /// What it holds; `None` if its manifest can't be read.
    pub contents: Option<Contents>,
    /// What is wrong with it, a line each; empty if everything that was looked at is whole.
    pub damage: Vec<String>,
}

/// What a checkpoint holds.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Every source is exhausted: the job has finished with it.
    pub is_final: bool,
    /// False for a checkpoint of an at-least-once job.
    pub exact: bool,
    /// Number of workers that took it.
    pub workers: u32,
    /// Transactions that it lists.
    pub transactions: usize,
    /// Each named state, all workers together.
    pub states: Vec<StateView>,
    /// Each split and other small state, and its bytes.
    pub small: usize,
}

/// One named state in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateView {
    /// The operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// Files of all its chains.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their entries. With deltas a key may be counted several times.
    pub entries: u64,
}

/// Looks into `store`; with `verify`, reads every state file to its end and checks every checksum.
///
/// # Errors
/// [`StoreError`] if the store itself can't be read. Damaged checkpoints are no error but a finding.
///
/// ```
/// use std::sync::Arc;
/// use cutwater_engine::snapshot::{FsStore, inspect};
/// use cutwater_platform::Platform;
///
/// let dir = tempfile::tempdir().unwrap();
/// assert!(FsStore::existing(Platform::real(), dir.path()).is_err(), "there is no store, and none is made");
/// let store = FsStore::open(Platform::real(), dir.path().join("checkpoints")).unwrap();
/// assert!(inspect(&store, true).unwrap().checkpoints.is_empty());
/// ```
pub fn inspect(store: &dyn CheckpointStore, verify: bool) -> Result<Inspection, StoreError> {
    let listing = store.list()?;
    let committed: BTreeSet<ManifestName> = listing.committed.iter().copied().collect();
    let (mut checkpoints, mut named) = (vec![], BTreeSet::new());
    // Chains share files; each is read once.
    let mut looked_at: BTreeMap<String, Option<String>> = BTreeMap::new();
    for name in listing.manifests {
        let mut view = CheckpointView { name, committed: committed.contains(&name), contents: None, damage: vec![] };
        match store.manifest(name) {
            Ok((manifest, _)) => {
                for file in files_of(&manifest) {
                    named.insert(file.name.clone());
                    let found = looked_at.entry(file.name.clone()).or_insert_with(|| look_at(store, file, verify));
                    view.damage.extend(found.clone());
                }
                view.contents = Some(Contents::of(&manifest));
            }
            Err(StoreError::Missing { .. }) => continue,
            Err(error) => view.damage.push(error.to_string()),
        }
        checkpoints.push(view);
    }
    let unnamed_files = listing.state_files.iter().filter(|file| !named.contains(&file.to_string())).count();
    Ok(Inspection {
        job: store.job(),
        place: store.place(),
        attempts: listing.attempts.len(),
        checkpoints,
        unnamed_files,
        strangers: listing.strangers,
    })
}

/// What is wrong with a file.
fn look_at(store: &dyn CheckpointStore, file: &StateFile, verify: bool) -> Option<String> {
    let opened = store.open_state_file(&file.name).map_err(|e| e.to_string());
    let reader = opened.and_then(|opened| StateFileReader::open(opened, file).map_err(|e| e.to_string()));
    match reader {
        Ok(reader) if verify => reader.verify().err().map(|e| e.to_string()),
        Ok(_) => None,
        Err(damage) => Some(damage),
    }
}

fn files_of(manifest: &Manifest) -> impl Iterator<Item = &StateFile> {
    manifest.snapshots.iter().flat_map(|s| &s.chains).flat_map(|chain| &chain.files)
}

impl Contents {
    fn of(manifest: &Manifest) -> Contents {
        let names: BTreeMap<OperatorId, &str> =
            manifest.plan.operators.iter().map(|operator| (operator.id, operator.name.as_str())).collect();
        let mut states: BTreeMap<(OperatorId, &str), StateView> = BTreeMap::new();
        for (snapshot, chain) in manifest.snapshots.iter().flat_map(|s| s.chains.iter().map(move |c| (s, c))) {
            let operator = snapshot.instance.operator;
            let view = states.entry((operator, &chain.name)).or_insert_with(|| StateView {
                operator: names.get(&operator).map_or_else(|| operator.to_string(), ToString::to_string),
                state: chain.name.clone(),
                files: 0,
                bytes: 0,
                entries: 0,
            });
            view.files += chain.files.len();
            view.bytes += chain.files.iter().map(|file| file.bytes).sum::<u64>();
            view.entries += chain.files.iter().map(|file| file.entries).sum::<u64>();
        }
        Contents {
            is_final: manifest.is_final,
            exact: manifest.exact,
            workers: manifest.workers,
            transactions: manifest.committables().count(),
            states: states.into_values().collect(),
            small: manifest.snapshots.iter().map(|s| s.blobs.len()).sum(),
        }
    }
}

impl Inspection {
    /// True if nothing that was looked at is damaged.
    pub fn is_whole(&self) -> bool {
        self.checkpoints.iter().all(|checkpoint| checkpoint.damage.is_empty())
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {} in {}: {} attempts", self.job, self.place, self.attempts)?;
        for checkpoint in &self.checkpoints {
            write!(f, "  checkpoint {} of attempt {}", checkpoint.name.checkpoint, checkpoint.name.attempt)?;
            f.write_str(if checkpoint.committed { ", committed" } else { ", not recorded as committed" })?;
            if let Some(contents) = &checkpoint.contents {
                if contents.is_final {
                    f.write_str(", final")?;
                }
                if !contents.exact {
                    f.write_str(", at-least-once")?;
                }
                let Contents { workers, transactions, small, .. } = contents;
                writeln!(f, ": {workers} workers, {transactions} transactions, {small} positions")?;
                for state in &contents.states {
                    let StateView { operator, state, files, bytes, entries } = state;
                    writeln!(f, "    {operator} {state}: {entries} entries in {files} files, {bytes} bytes")?;
                }
            } else {
                writeln!(f)?;
            }
            for damage in &checkpoint.damage {
                writeln!(f, "    DAMAGED: {damage}")?;
            }
        }
        if self.checkpoints.is_empty() {
            writeln!(f, "  no complete checkpoint")?;
        }
        if self.unnamed_files > 0 {
            writeln!(f, "  {} state files that no checkpoint names", self.unnamed_files)?;
        }
        for stranger in &self.strangers {
            writeln!(f, "  {stranger}: not a name of Cutwater's")?;
        }
        Ok(())
    }
}
