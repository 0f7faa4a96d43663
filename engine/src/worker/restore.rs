//! What a worker gets back from the checkpoint an attempt starts from.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::checkpoint::{Counters, StateChain};
use crate::exchange::{GroupAssignment, KeyGroups};
use crate::id::{InstanceId, OperatorId, WorkerIndex};
use crate::observe;
use crate::operator::{Operator, Saved, SavedInstance};
use crate::recovery::state_pieces;
use crate::snapshot::{Chain, CheckpointStore, Manifest, StateFileReader};
use crate::source::SplitState;
use crate::state::{KeyedState, Ownership};
use crate::worker::attempt::Failure;

/// The checkpoint an attempt starts from, for one worker.
#[derive(Clone, Debug)]
pub(crate) struct Restore {
    /// `None` at a fresh start.
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) store: Option<Arc<dyn CheckpointStore>>,
    pub(crate) worker: WorkerIndex,
    pub(crate) assignment: GroupAssignment,
}

impl Restore {
    fn same_workers(&self) -> bool {
        self.manifest.as_ref().is_some_and(|m| m.workers == self.assignment.workers().get())
    }

    /// What an instance had counted. With another number of workers the first one takes all.
    pub(crate) fn counters(&self, operator: OperatorId, fresh: Counters) -> Counters {
        let Some(manifest) = &self.manifest else { return fresh };
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
        let blobs = manifest.snapshots.iter().filter(|s| s.instance.operator == operator).flat_map(|s| &s.blobs);
        blobs
            .map(|blob| {
                postcard::from_bytes(&blob.bytes)
                    .map_err(|e| Failure::Fatal(format!("the position of split {:?} in the manifest: {e}", blob.name)))
            })
            .collect()
    }

    /// Gives an operator its small state and its keyed state back; returns the chains its next snapshots go on with.
    pub(crate) fn operator(&self, id: InstanceId, operator: &mut dyn Operator) -> Result<Vec<Chain>, Failure> {
        let states = operator.states();
        let fresh = |state: &dyn KeyedState| Chain::new(state.name().clone(), state.schema());
        let Some(manifest) = &self.manifest else {
            return Ok(states.iter().map(|s| fresh(&*s.borrow())).collect());
        };
        let then = GroupAssignment::new(
            self.assignment.groups(),
            NonZeroU32::new(manifest.workers)
                .ok_or_else(|| Failure::Fatal("a manifest without workers".to_string()))?,
        );
        let mut chains = vec![];
        for state in &states {
            chains.push(self.state(manifest, id.operator, &mut *state.borrow_mut(), then)?);
        }
        let saved = Saved {
            instances: saved_instances(manifest, id.operator, then),
            worker: self.worker,
            groups: self.assignment.range_of(self.worker),
            same_workers: self.same_workers(),
        };
        operator.restore(&saved).map_err(|e| Failure::Incompatible(format!("restoring {id}: {e}")))?;
        Ok(chains)
    }

    fn state(
        &self,
        manifest: &Manifest,
        operator: OperatorId,
        state: &mut dyn KeyedState,
        then: GroupAssignment,
    ) -> Result<Chain, Failure> {
        let owned = Ownership { groups: self.assignment.groups(), range: self.assignment.range_of(self.worker) };
        let pieces = state_pieces(self.assignment.groups(), then.workers(), self.assignment.workers(), self.worker);
        let mut own_chain = None;
        for piece in pieces {
            let from = InstanceId { operator, worker: piece.from };
            let chain = manifest.snapshot(from).and_then(|s| s.chains.iter().find(|c| c.name == state.name().as_str()));
            let Some(chain) = chain else { continue };
            self.load_chain(chain, state, &owned)?;
            if self.same_workers() {
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
