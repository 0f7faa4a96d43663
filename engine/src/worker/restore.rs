//! What a worker gets back from the checkpoint an attempt starts from.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::checkpoint::{Counters, StateChain};
use crate::exchange::{GroupAssignment, KeyGroups};
use crate::id::{InstanceId, OperatorId, WorkerIndex};
use crate::observe;
use crate::operator::{Operator, Saved, SavedInstance};
use crate::recovery::{Upgrade, state_pieces};
use crate::snapshot::{Chain, CheckpointStore, Manifest, StateFileReader};
use crate::source::SplitState;
use crate::state::{KeyedState, Ownership};
use crate::worker::attempt::Failure;

/// The checkpoint an attempt starts from, for one worker.
#[derive(Clone, Debug)]
pub(crate) struct Restore {
    /// `None` at a fresh start.
    pub(crate) manifest: Option<Arc<Manifest>>,
    /// Which of its operators is which of ours; there whenever the manifest is.
    pub(crate) upgrade: Option<Arc<Upgrade>>,
    pub(crate) store: Option<Arc<dyn CheckpointStore>>,
    pub(crate) worker: WorkerIndex,
    pub(crate) assignment: GroupAssignment,
}

impl Restore {
    fn same_workers(&self) -> bool {
        self.manifest.as_ref().is_some_and(|m| m.workers == self.assignment.workers().get())
    }

    /// The operator of the manifest whose state this one takes.
    fn origin(&self, operator: OperatorId) -> Option<OperatorId> {
        self.upgrade.as_ref().and_then(|upgrade| upgrade.origin(operator))
    }

    /// What an instance had counted; nothing after the graph has changed, since the books would never balance: edges are others.
    /// With another number of workers the first one takes all.
    pub(crate) fn counters(&self, operator: OperatorId, fresh: Counters) -> Counters {
        let Some(manifest) = &self.manifest else { return fresh };
        if self.upgrade.as_ref().is_some_and(|upgrade| !upgrade.same_graph) {
            return fresh;
        }
        let mut sum = fresh;
        for snapshot in manifest.snapshots.iter().filter(|s| s.instance.operator == operator) {
            let mine = match self.same_workers() {
                true => snapshot.instance.worker == self.worker,
                false => self.worker.0 == 0,
            };
            if mine {
                observe::add(&mut sum, &snapshot.counters);
            }
        }
        sum
    }

    /// Where the splits of a source stood.
    pub(crate) fn splits(&self, operator: OperatorId) -> Result<Vec<SplitState>, Failure> {
        let Some(manifest) = &self.manifest else { return Ok(vec![]) };
        let Some(origin) = self.origin(operator) else { return Ok(vec![]) };
        let forgotten = |split: &str| {
            self.upgrade.as_ref().is_some_and(|u| u.forgotten_splits.contains(&(operator, split.to_owned())))
        };
        let blobs = manifest.snapshots.iter().filter(|s| s.instance.operator == origin).flat_map(|s| &s.blobs);
        blobs
            .filter(|blob| !forgotten(&blob.name))
            .map(|blob| {
                postcard::from_bytes(&blob.bytes)
                    .map_err(|e| Failure::Fatal(format!("the position of split {:?} in the manifest: {e}", blob.name)))
            })
            .collect()
    }

    /// Gives an operator its small state and its keyed state back; returns the chains its next snapshots go on with.
    pub(crate) fn operator(
        &self,
        id: InstanceId,
        name: &str,
        operator: &mut dyn Operator,
    ) -> Result<Vec<Chain>, Failure> {
        self.operator_named(id, operator).map_err(|failure| match failure {
            Failure::Incompatible(text) => Failure::Incompatible(format!("operator {name:?}: {text}")),
            other => other,
        })
    }

    fn operator_named(&self, id: InstanceId, operator: &mut dyn Operator) -> Result<Vec<Chain>, Failure> {
        let states = operator.states();
        let fresh = |state: &dyn KeyedState| Chain::new(state.name().clone(), state.schema());
        let Some(manifest) = &self.manifest else {
            return Ok(states.iter().map(|s| fresh(&*s.borrow())).collect());
        };
        let Some(origin) = self.origin(id.operator) else {
            // It is new in this version of the program.
            return Ok(states.iter().map(|s| fresh(&*s.borrow())).collect());
        };
        let then = GroupAssignment::new(
            self.assignment.groups(),
            NonZeroU32::new(manifest.workers)
                .ok_or_else(|| Failure::Fatal("a manifest without workers".to_string()))?,
        );
        let mut chains = vec![];
        for state in &states {
            chains.push(self.state(manifest, id.operator, origin, &mut *state.borrow_mut(), then)?);
        }
        let saved = Saved {
            instances: saved_instances(manifest, origin, then),
            worker: self.worker,
            groups: self.assignment.range_of(self.worker),
            same_workers: self.same_workers(),
        };
        operator.restore(&saved).map_err(|e| Failure::Incompatible(format!("restoring it: {e}")))?;
        Ok(chains)
    }

    fn state(
        &self,
        manifest: &Manifest,
        operator: OperatorId,
        origin: OperatorId,
        state: &mut dyn KeyedState,
        then: GroupAssignment,
    ) -> Result<Chain, Failure> {
        let owned = Ownership { groups: self.assignment.groups(), range: self.assignment.range_of(self.worker) };
        let pieces = state_pieces(self.assignment.groups(), then.workers(), self.assignment.workers(), self.worker);
        let mut own_chain = None;
        for piece in pieces {
            let from = InstanceId { operator: origin, worker: piece.from };
            let chain = manifest.snapshot(from).and_then(|s| s.chains.iter().find(|c| c.name == state.name().as_str()));
            let Some(chain) = chain else { continue };
            self.load_chain(chain, state, &owned)?;
            // A chain goes on if its next file can be a delta on top of it: the same instance, by whose number files are named,
            // and the same types.
            if self.same_workers() && origin == operator && chain.schema == state.schema() {
                own_chain = Some(chain.clone());
            }
        }
        match own_chain {
            Some(chain) => {
                state.continue_chain();
                Ok(Chain::resumed(state.name().clone(), chain))
            }
            None => Ok(Chain::new(state.name().clone(), state.schema())),
        }
    }

    fn load_chain(&self, chain: &StateChain, state: &mut dyn KeyedState, owned: &Ownership) -> Result<(), Failure> {
        let store = self.store.as_ref().ok_or_else(|| Failure::Fatal("a manifest without its store".to_string()))?;
        for file in &chain.files {
            let opened = store.open_state_file(&file.name).map_err(Failure::from)?;
            // A file's own errors know its name; people need to know where it is.
            let below = |text: String| format!("{}/state/{text}", store.place());
            let mut reader = StateFileReader::open(opened, file).map_err(|e| Failure::Fatal(below(e.to_string())))?;
            state.load(&mut reader, owned).map_err(|e| match Failure::from(e) {
                Failure::Fatal(text) => Failure::Fatal(below(text)),
                other => other,
            })?;
        }
        Ok(())
    }
}

fn saved_instances(manifest: &Manifest, operator: OperatorId, then: GroupAssignment) -> Vec<SavedInstance> {
    let of = manifest.snapshots.iter().filter(|s| s.instance.operator == operator);
    of.map(|snapshot| SavedInstance {
        worker: snapshot.instance.worker,
        groups: then.range_of(snapshot.instance.worker),
        blobs: snapshot.blobs.iter().map(|b| (b.name.clone(), b.bytes.clone())).collect(),
    })
    .collect()
}

/// The key groups of a job: those of its checkpoints, or the default for a new one.
pub(crate) fn key_groups_of(manifest: Option<&Manifest>) -> KeyGroups {
    manifest.map_or_else(KeyGroups::default, |m| m.key_groups)
}
