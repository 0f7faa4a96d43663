//! The checkpoint manifest. A checkpoint is complete if and only if its manifest exists (I-5).
//!
//! A manifest names everything that going back to its checkpoint needs, and everything that may be committed because of it
//! (I-6): what was prepared for its own checkpoint stands in the snapshots, what declined checkpoints before it had
//! prepared stands in `carried`.
//!
//! Not here: who publishes it and when (`checkpoint/`), where it is stored ([`super::fs`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::envelope::{EnvelopeError, Kind};
use super::layout::{ManifestName, StateFileName};
use super::record::ManifestPoint;
use crate::checkpoint::{Committable, SnapshotRef, StateChain, StateFileKind};
use crate::exchange::{HASH_ID, KeyGroups, test_vectors};
use crate::id::{Attempt, CheckpointId, InstanceId, JobId, OperatorId, WorkerIndex};

/// The format version that this program writes.
pub const MANIFEST_FORMAT: u32 = 2;
const KIND: Kind = Kind { magic: *b"CWMANIF\0", name: "checkpoint manifest", version: MANIFEST_FORMAT };

/// Everything about a complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The job.
    pub job: JobId,
    /// The attempt that published it.
    pub attempt: Attempt,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// True if every split of every source is exhausted: nothing will follow.
    pub is_final: bool,
    /// Whether it holds, with its channel state, the effect of exactly the records before its barriers (I-4); false in an
    /// at-least-once job.
    pub exact: bool,
    /// Number of workers.
    pub workers: u32,
    /// Number of key groups.
    pub key_groups: KeyGroups,
    /// How keys were hashed.
    pub hash: HashIdentity,
    /// What ran.
    pub plan: PlanIdentity,
    /// One per instance of the plan, in the order of instances.
    pub snapshots: Vec<SnapshotRef>,
    /// What declined checkpoints since the last manifest had prepared, oldest first.
    pub carried: Vec<Committable>,
}

/// How a program hashes keys. With another one, keys would be looked for on the wrong worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashIdentity {
    /// Names encoding and hash.
    pub id: String,
    /// The hashes of fixed keys.
    pub vectors: Vec<u64>,
}

impl HashIdentity {
    /// That of this program, computed now.
    pub fn of_this_program() -> HashIdentity {
        HashIdentity { id: HASH_ID.to_owned(), vectors: test_vectors().to_vec() }
    }
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanIdentity {
    /// The plan's fingerprint.
    pub fingerprint: u64,
    /// Every operator that answers barriers, rising by id.
    pub operators: Vec<OperatorEntry>,
}

/// An operator of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorEntry {
    /// Its number in the plan.
    pub id: OperatorId,
    /// Its name, by which a changed plan finds its state again.
    pub name: String,
}

/// A manifest as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedManifest {
    /// Its name.
    pub name: ManifestName,
    /// The bytes to publish.
    pub bytes: Vec<u8>,
    /// Their checksum, which a permit carries.
    pub checksum: u64,
}

impl EncodedManifest {
    /// The manifest as a point to start from.
    pub fn point(&self) -> ManifestPoint {
        let ManifestName { checkpoint, attempt } = self.name;
        ManifestPoint { checkpoint, attempt, checksum: self.checksum }
    }
}

/// A manifest can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The bytes aren't a whole manifest.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// Its fields contradict each other.
    #[error("the manifest of checkpoint {checkpoint} contradicts itself: {what}")]
    Inconsistent {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What contradicts what.
        what: String,
    },
    /// Keys were hashed in another way.
    #[error(
        "the manifest of checkpoint {checkpoint} was written with hash {found:?}, and this program hashes with {expected:?} \
         (or computes other values); restore with a program that hashes as the old one did"
    )]
    Hash {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// This program's hash.
        expected: String,
        /// The manifest's.
        found: String,
    },
}

impl Manifest {
    /// Its name in a store.
    pub fn name(&self) -> ManifestName {
        ManifestName { checkpoint: self.checkpoint, attempt: self.attempt }
    }

    /// Everything that may be committed because this manifest exists: what was carried over, then its own, in order.
    pub fn committables(&self) -> impl Iterator<Item = &Committable> {
        let own = self.snapshots.iter().flat_map(|snapshot| &snapshot.committables);
        self.carried.iter().chain(own)
    }

    /// The part of an instance.
    pub fn snapshot(&self, instance: InstanceId) -> Option<&SnapshotRef> {
        let index = self.snapshots.binary_search_by_key(&instance, |snapshot| snapshot.instance).ok()?;
        self.snapshots.get(index)
    }

    /// Checks it and turns it into bytes.
    ///
    /// # Errors
    /// It contradicts itself: then nothing is published.
    pub fn encode(&self) -> Result<EncodedManifest, ManifestError> {
        self.verify()?;
        let (bytes, checksum) = KIND.seal(self)?;
        Ok(EncodedManifest { name: self.name(), bytes, checksum })
    }

    /// Reads it back, checked. Also returns its checksum.
    ///
    /// # Errors
    /// [`ManifestError`]. Whether this program hashes in the same way is a question of its own: [`Manifest::check_hash`].
    pub fn decode(bytes: &[u8]) -> Result<(Manifest, u64), ManifestError> {
        let (manifest, checksum): (Manifest, u64) = KIND.open(bytes)?;
        manifest.verify()?;
        Ok((manifest, checksum))
    }

    /// Refuses a manifest whose keys were hashed in another way than this program does.
    ///
    /// # Errors
    /// [`ManifestError::Hash`].
    pub fn check_hash(&self) -> Result<(), ManifestError> {
        let own = HashIdentity::of_this_program();
        if own == self.hash {
            return Ok(());
        }
        let (expected, found) = (own.id, self.hash.id.clone());
        Err(ManifestError::Hash { checkpoint: self.checkpoint, expected, found })
    }

    /// Checks its fields against each other.
    ///
    /// # Errors
    /// [`ManifestError::Inconsistent`] with the first contradiction.
    pub fn verify(&self) -> Result<(), ManifestError> {
        let wrong = |what: String| ManifestError::Inconsistent { checkpoint: self.checkpoint, what };
        if self.checkpoint.0 == 0 || self.attempt.0 == 0 {
            return Err(wrong("checkpoints and attempts are counted from 1".to_owned()));
        }
        self.verify_instances().map_err(wrong)?;
        let mut files = BTreeSet::new();
        for snapshot in &self.snapshots {
            let mut states = BTreeSet::new();
            for chain in &snapshot.chains {
                if !states.insert(&chain.name) {
                    return Err(wrong(format!("{} has two chains of state {:?}", snapshot.instance, chain.name)));
                }
                self.verify_chain(snapshot.instance, chain).map_err(wrong)?;
                for file in &chain.files {
                    if !files.insert(&file.name) {
                        return Err(wrong(format!("state file {} is named twice", file.name)));
                    }
                }
            }
        }
        if self.is_final
            && let Some(snapshot) = self.snapshots.iter().find(|snapshot| !snapshot.exhausted)
        {
            return Err(wrong(format!("it is final, but {} is not exhausted", snapshot.instance)));
        }
        let mut handles = BTreeSet::new();
        if let Some(twice) = self.committables().find(|committable| !handles.insert(*committable)) {
            return Err(wrong(format!("it lists the same thing of commit group {:?} twice", twice.group)));
        }
        Ok(())
    }

    /// One snapshot per operator and worker, in order.
    fn verify_instances(&self) -> Result<(), String> {
        if self.workers == 0 || self.plan.operators.is_empty() {
            return Err("it has no workers or no operators".to_owned());
        }
        let mut names = BTreeMap::new();
        for pair in self.plan.operators.windows(2) {
            if pair[0].id >= pair[1].id {
                return Err(format!("operator {} stands before operator {}", pair[0].id, pair[1].id));
            }
        }
        for operator in &self.plan.operators {
            if let Some(other) = names.insert(&operator.name, operator.id) {
                return Err(format!("operators {other} and {} are both named {:?}", operator.id, operator.name));
            }
        }
        // Counted first: the loop below must not run for as long as a wrong number of workers says.
        let expected = self.plan.operators.len() as u64 * u64::from(self.workers);
        if self.snapshots.len() as u64 != expected {
            let (operators, found) = (self.plan.operators.len(), self.snapshots.len());
            return Err(format!("{operators} operators on {} workers, but {found} snapshots", self.workers));
        }
        let instances = self.plan.operators.iter().flat_map(|operator| {
            (0..self.workers).map(|worker| InstanceId { operator: operator.id, worker: WorkerIndex(worker) })
        });
        for (instance, snapshot) in instances.zip(&self.snapshots) {
            if snapshot.instance != instance {
                return Err(format!("the snapshot of {instance} is missing, that of {} is there", snapshot.instance));
            }
        }
        Ok(())
    }

    /// A chain is a base and its deltas, all written by this instance, none later than this checkpoint.
    fn verify_chain(&self, instance: InstanceId, chain: &StateChain) -> Result<(), String> {
        let mut last = CheckpointId(0);
        for (i, file) in chain.files.iter().enumerate() {
            let Some(name) = StateFileName::parse(&file.name) else {
                return Err(format!("{:?} can't be the name of a state file", file.name));
            };
            let expected = if i == 0 { StateFileKind::Base } else { StateFileKind::Delta };
            let fits = name.instance == instance
                && name.state.as_str() == chain.name
                && name.kind == expected
                && file.kind == expected
                && name.attempt <= self.attempt
                && name.checkpoint <= self.checkpoint
                && name.checkpoint > last;
            if !fits {
                return Err(format!("{} can't be file {i} of state {:?} of {instance}", file.name, chain.name));
            }
            last = name.checkpoint;
        }
        if chain.files.is_empty() {
            return Err(format!("the chain of state {:?} of {instance} has no file", chain.name));
        }
        Ok(())
    }
}
