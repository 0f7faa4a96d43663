//! The checkpoint store as the protocol sees it: names that can't be replaced, durable or only visible.
//!
//! Manifests and state files get their names in one step and become durable in another; a power cut may take away what is only
//! visible. Claims, bases and records of commits are durable when they are there: nothing acts on them in between.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cutwater_engine::checkpoint::{Committable, SnapshotRef, StateFileKind};
use cutwater_engine::exchange::KeyGroups;
use cutwater_engine::id::{Attempt, CheckpointId, JobId, OperatorId};
use cutwater_engine::recovery::{BaseFact, Facts, ManifestContent};
use cutwater_engine::snapshot::{HashIdentity, Manifest, ManifestName, OperatorEntry, PlanIdentity, StateFileName};

use crate::log::TxnId;

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    /// Every source is exhausted in it.
    pub is_final: bool,
    /// How many workers the attempt had.
    pub workers: u32,
    /// One part per instance.
    pub snapshots: Vec<SnapshotRef>,
    /// What declined checkpoints had prepared.
    pub carried: Vec<Committable>,
}

impl Body {
    /// Everything that it lists as prepared, in order.
    pub fn transactions(&self) -> Vec<TxnId> {
        let own = self.snapshots.iter().flat_map(|snapshot| &snapshot.committables);
        self.carried.iter().chain(own).map(TxnId::of).collect()
    }

    /// The state files that it names.
    pub fn files(&self) -> BTreeSet<String> {
        let chains = self.snapshots.iter().flat_map(|snapshot| &snapshot.chains);
        chains.flat_map(|chain| &chain.files).map(|file| file.name.clone()).collect()
    }

    /// The product's own judgement of a manifest like this.
    pub fn verify(&self, name: ManifestName, operators: usize) -> Result<(), String> {
        let entry = |node| OperatorEntry { id: OperatorId(node), name: format!("operator {node}") };
        let operators = (0..u32::try_from(operators).expect("few operators")).map(entry).collect();
        let manifest = Manifest {
            job: JobId(1),
            attempt: name.attempt,
            checkpoint: name.checkpoint,
            is_final: self.is_final,
            workers: self.workers,
            key_groups: KeyGroups::default(),
            hash: HashIdentity { id: String::new(), vectors: vec![] },
            plan: PlanIdentity { fingerprint: 0, operators },
            snapshots: self.snapshots.clone(),
            carried: self.carried.clone(),
        };
        manifest.verify().map_err(|error| error.to_string())
    }
}

/// What a state file contains: of each key group that it knows, the count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateBody {
    /// Everything, or what changed.
    pub kind: StateFileKind,
    /// Counts by key group.
    pub counts: BTreeMap<u16, u8>,
}

/// A name that a power cut may take away as long as it isn't synced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unsynced {
    /// A manifest.
    Manifest(ManifestName),
    /// A state file.
    File(String),
}

/// The store.
#[derive(Clone, Debug, Default, Hash)]
pub struct Store {
    /// Attempts up to this one are claimed.
    pub claimed: u8,
    /// Where each attempt started.
    pub bases: BTreeMap<Attempt, Option<ManifestName>>,
    /// The manifests.
    pub manifests: BTreeMap<ManifestName, Rc<Body>>,
    /// Manifests that are recorded as committed.
    pub committed: BTreeSet<ManifestName>,
    /// The state files.
    pub files: BTreeMap<String, StateBody>,
    /// What is visible and not durable.
    pub unsynced: BTreeSet<Unsynced>,
}

impl Store {
    /// True if `attempt` is the newest.
    pub fn is_newest(&self, attempt: u8) -> bool {
        attempt == self.claimed
    }

    /// A state file gets its name.
    pub fn create_file(&mut self, name: String, body: StateBody, durable: bool) {
        if !durable {
            self.unsynced.insert(Unsynced::File(name.clone()));
        }
        let before = self.files.insert(name.clone(), body);
        assert!(before.is_none(), "{name} was replaced");
    }

    /// A manifest gets its name.
    pub fn create_manifest(&mut self, name: ManifestName, body: Rc<Body>, durable: bool) {
        if !durable {
            self.unsynced.insert(Unsynced::Manifest(name));
        }
        let before = self.manifests.insert(name, body);
        assert!(before.is_none(), "{name} was replaced");
    }

    /// The power is gone; of what wasn't durable those stay whose bit is set.
    pub fn power_cut(&mut self, stay: u32) {
        for (index, name) in std::mem::take(&mut self.unsynced).into_iter().enumerate() {
            if stay >> index & 1 == 1 {
                continue;
            }
            match name {
                Unsynced::Manifest(name) => _ = self.manifests.remove(&name),
                Unsynced::File(name) => _ = self.files.remove(&name),
            }
        }
    }

    /// Everything that an attempt finds, as the product's decision takes it.
    pub fn facts(&self, own: u8) -> Facts {
        let content = |body: &Rc<Body>| ManifestContent::Good { is_final: body.is_final };
        let highest = self.files.keys().filter_map(|name| StateFileName::parse(name)).map(|name| name.checkpoint).max();
        Facts {
            own: Attempt(u64::from(own)),
            claimed: (1..=u64::from(self.claimed)).map(Attempt).collect(),
            bases: self.bases.iter().map(|(a, from)| (*a, BaseFact { from: *from, forked: false })).collect(),
            manifests: self.manifests.iter().map(|(name, body)| (*name, content(body))).collect(),
            committed: self.committed.clone(),
            highest_named: highest.unwrap_or(CheckpointId(0)),
        }
    }

    /// The manifests that count, by the chain of recorded bases; written down here once more, as the yardstick of what the product
    /// decides. In order.
    pub fn timeline(&self) -> Vec<ManifestName> {
        let Some((&tip, _)) = self.bases.last_key_value() else { return vec![] };
        let (mut attempt, mut through) = (tip, u64::MAX);
        let mut timeline = vec![];
        while let Some(from) = self.bases.get(&attempt) {
            let above = from.map_or(0, |from| from.checkpoint.0);
            let counts = |m: &&ManifestName| m.attempt == attempt && (above + 1..=through).contains(&m.checkpoint.0);
            timeline.extend(self.manifests.keys().filter(counts));
            let Some(from) = from else { break };
            (attempt, through) = (from.attempt, from.checkpoint.0);
        }
        timeline.sort_unstable();
        timeline
    }
}
