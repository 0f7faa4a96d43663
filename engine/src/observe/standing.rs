//! What each instance is doing about checkpoints that it hasn't reported: whom a slow checkpoint waits for, and for what.
//!
//! Every instance notes where it stands when that changes, a few times per checkpoint and never per record. Whoever wants to
//! know looks; nothing is decided from it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::id::{CheckpointId, InstanceId};

/// An instance, for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct InstanceName {
    /// The operator's name.
    pub operator: String,
    /// The worker.
    pub worker: u32,
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on worker {}", self.operator, self.worker)
    }
}

/// What an instance is doing about a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// No barrier has come to it: the checkpoint is held up by those before it, by records that stand before the barrier, or by
    /// a function that doesn't return.
    NoBarrier,
    /// Barriers have come on some channels; these senders' are missing.
    Aligning(Vec<InstanceName>),
    /// The state is frozen and being encoded, between batches.
    Encoding,
    /// State is being written, output is being prepared.
    Writing,
    /// All of that is done, and the instance hasn't come round to reporting it: its worker is busy, or stuck in a function.
    Reporting,
}

/// One instance that a checkpoint waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Which one.
    pub instance: InstanceName,
    /// What it is doing.
    pub stage: Stage,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.instance)?;
        match &self.stage {
            Stage::NoBarrier => f.write_str("has met no barrier"),
            Stage::Aligning(senders) => {
                f.write_str("waits for the barriers of ")?;
                for (i, sender) in senders.iter().enumerate() {
                    write!(f, "{}{sender}", if i == 0 { "" } else { " and " })?;
                }
                Ok(())
            }
            Stage::Encoding => f.write_str("encodes its state"),
            Stage::Writing => f.write_str("writes its state or prepares its output"),
            Stage::Reporting => f.write_str("is done and doesn't come round to saying so"),
        }
    }
}

/// Where one instance notes what it is doing. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Standing(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    name: InstanceName,
    /// Who sends on each input channel.
    senders: Vec<InstanceName>,
    /// Checkpoints that it has met and not reported, oldest first.
    open: Mutex<VecDeque<(CheckpointId, Doing)>>,
}

#[derive(Clone, Debug)]
enum Doing {
    Aligning(Vec<usize>),
    Encoding,
    Writing,
    Reporting,
}

impl Standing {
    /// Barriers have come; those of these channels are missing.
    pub(crate) fn aligning(&self, n: CheckpointId, awaited: impl Iterator<Item = usize>) {
        self.note(n, Doing::Aligning(awaited.collect()));
    }

    /// The cut was made.
    pub(crate) fn encoding(&self, n: CheckpointId) {
        self.note(n, Doing::Encoding);
    }

    /// It was handed to the I/O thread.
    pub(crate) fn writing(&self, n: CheckpointId) {
        self.note(n, Doing::Writing);
    }

    /// The I/O thread is done.
    pub(crate) fn reporting(&self, n: CheckpointId) {
        self.note(n, Doing::Reporting);
    }

    /// It was reported.
    pub(crate) fn reported(&self, n: CheckpointId) {
        self.open().retain(|(open, _)| *open != n);
    }

    fn note(&self, n: CheckpointId, doing: Doing) {
        let mut open = self.open();
        match open.iter_mut().find(|(open, _)| *open == n) {
            Some((_, was)) => *was = doing,
            None => open.push_back((n, doing)),
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, VecDeque<(CheckpointId, Doing)>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage(&self, n: CheckpointId) -> Stage {
        match self.open().iter().find(|(open, _)| *open == n) {
            None => Stage::NoBarrier,
            Some((_, Doing::Aligning(awaited))) => {
                let senders = awaited.iter().filter_map(|channel| self.0.senders.get(*channel).cloned());
                Stage::Aligning(senders.collect())
            }
            Some((_, Doing::Encoding)) => Stage::Encoding,
            Some((_, Doing::Writing)) => Stage::Writing,
            Some((_, Doing::Reporting)) => Stage::Reporting,
        }
    }
}

/// Where the instances of one attempt stand.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    all: Mutex<BTreeMap<InstanceId, Standing>>,
}

impl Standings {
    /// Another attempt begins: nobody stands anywhere.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// A place for an instance. `senders`: who sends on each of its input channels.
    pub(crate) fn join(&self, id: InstanceId, name: &str, senders: Vec<InstanceName>) -> Standing {
        let name = InstanceName { operator: name.to_string(), worker: id.worker.0 };
        let standing = Standing(Arc::new(Slot { name, senders, open: Mutex::default() }));
        self.lock().insert(id, standing.clone());
        standing
    }

    /// What these instances, which haven't reported checkpoint `n`, are doing about it.
    pub(crate) fn waiting(&self, n: CheckpointId, missing: &[InstanceId]) -> Vec<Waiting> {
        let all = self.lock();
        let of = |id: &InstanceId| {
            let standing = all.get(id)?;
            Some(Waiting { instance: standing.0.name.clone(), stage: standing.stage(n) })
        };
        missing.iter().filter_map(of).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<InstanceId, Standing>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At most this many are named in a message.
const NAMED_MAX: usize = 8;

/// Whom a checkpoint waits for, in words; those furthest on in the data's path last. Empty if for nobody.
pub(crate) fn in_words(waiting: &[Waiting]) -> String {
    let mut words: Vec<String> = waiting.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if waiting.len() > NAMED_MAX {
        words.push(format!("and {} more", waiting.len() - NAMED_MAX));
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OperatorId, WorkerIndex};

    #[test]
    fn each_instance_is_found_where_it_last_said_that_it_stands() {
        let standings = Standings::default();
        let id = |operator, worker| InstanceId { operator: OperatorId(operator), worker: WorkerIndex(worker) };
        let name = |operator: &str, worker| InstanceName { operator: operator.into(), worker };
        let source = standings.join(id(0, 0), "numbers", vec![]);
        let count = standings.join(id(1, 0), "count", vec![name("numbers", 0), name("numbers", 1)]);
        let (n, next) = (CheckpointId(7), CheckpointId(8));
        let missing = [id(0, 0), id(1, 0)];
        let stages = |n| -> Vec<Stage> { standings.waiting(n, &missing).into_iter().map(|w| w.stage).collect() };

        assert_eq!(stages(n), [Stage::NoBarrier, Stage::NoBarrier]);
        source.writing(n);
        count.aligning(n, [0, 1].into_iter());
        count.aligning(n, [1].into_iter());
        assert_eq!(stages(n), [Stage::Writing, Stage::Aligning(vec![name("numbers", 1)])]);
        assert_eq!(
            in_words(&standings.waiting(n, &missing[1..])),
            "count on worker 0 waits for the barriers of numbers on worker 1"
        );
        count.encoding(n);
        count.aligning(next, [0].into_iter());
        assert_eq!(stages(n)[1], Stage::Encoding, "two checkpoints may be open at once");
        count.reported(n);
        assert_eq!(stages(next)[1], Stage::Aligning(vec![name("numbers", 0)]));
        standings.clear();
        assert_eq!(standings.waiting(n, &missing), []);
    }

    #[test]
    fn a_message_names_some_and_counts_the_rest() {
        let waiting =
            |worker| Waiting { instance: InstanceName { operator: "count".into(), worker }, stage: Stage::Encoding };
        let all: Vec<Waiting> = (0..10).map(waiting).collect();
        assert!(in_words(&all).ends_with("count on worker 7 encodes its state; and 2 more"), "{}", in_words(&all));
        assert_eq!(in_words(&[]), "");
    }
}
