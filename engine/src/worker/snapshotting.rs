//! An instance's snapshots between its cut and its report: freeze, sweep, write, prepare.
//!
//! ```text
//!   cut(n)     freeze every state (a few us), save, seal         on the worker, at the barrier
//!   in_flight  take the channel state, if the barrier overtook something         when it is whole
//!   advance    sweep a bounded part per batch                     on the worker, between batches
//!   submit     write the encoded states, prepare the sealed output on the I/O thread
//!   poll       one report per cut, in the order of the cuts       on the worker
//! ```
//!
//! A state that could not be written declines the checkpoint and loses nothing: the next snapshot is a base. Output that
//! could not be prepared is another matter: it exists nowhere but in this attempt, so the attempt ends and replays it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, CrashPoints};

use crate::checkpoint::{Blob, Committable, Counters, PartTimes, SnapshotRef, SnapshotReport, StateChain};
use crate::error::SinkError;
use crate::id::{CheckpointId, InstanceId};
use crate::observe::Standing;
use crate::operator::Operator;
use crate::sink::Prepare;
use crate::snapshot::{Chain, ChainLimits, SnapshotFiles, SnapshotOrigin, StoreError, WriteError, WrittenState};
use crate::state::{FrozenState, KeyedState};
use crate::worker::attempt::Failure;
use crate::worker::merging::Merging;
use crate::worker::offload::{Offload, Results};

/// True if no later checkpoint of this attempt could succeed either.
fn ends_attempt(error: &StoreError) -> bool {
    matches!(error, StoreError::Poisoned { .. } | StoreError::Unknown { .. } | StoreError::Fenced { .. })
}

/// The channel state of a cut.
pub(crate) enum InFlight {
    /// There is none.
    Nothing,
    /// It is still being recorded.
    Follows,
    /// It.
    Whole(FrozenState),
}

/// What the I/O thread did for one cut.
struct Written {
    states: Result<Vec<WrittenState>, WriteError>,
    handle: Option<Result<Option<Vec<u8>>, SinkError>>,
    /// When.
    at: Duration,
}

struct Cut {
    checkpoint: CheckpointId,
    blobs: Vec<Blob>,
    counters: Counters,
    frozen: Vec<Option<FrozenState>>,
    in_flight: InFlight,
    prepare: Option<Prepare>,
    times: PartTimes,
}

/// The snapshots of one instance that are under way.
pub(crate) struct Snapshotting {
    instance: InstanceId,
    origin: SnapshotOrigin,
    states: Vec<Rc<RefCell<dyn KeyedState>>>,
    chains: Vec<Chain>,
    limits: ChainLimits,
    files: SnapshotFiles,
    group: Option<String>,
    /// Cut and not yet swept to the end.
    sweeping: VecDeque<Cut>,
    /// Handed to the I/O thread.
    writing: VecDeque<(CheckpointId, Vec<Blob>, Counters, PartTimes, bool)>,
    results: Results<Written>,
    merging: Option<Merging>,
    clock: Arc<dyn Clock>,
    standing: Standing,
    crash: CrashPoints,
}

/// The chain of a state that each snapshot has anew.
fn alone(written: WrittenState) -> StateChain {
    let WrittenState { state, schema, file, .. } = written;
    StateChain { name: state.as_str().to_owned(), schema, files: file.into_iter().collect() }
}

impl Snapshotting {
    #[expect(clippy::too_many_arguments, reason = "called once, from the place that has all of this in hand")]
    pub(crate) fn new(
        origin: SnapshotOrigin,
        states: Vec<Rc<RefCell<dyn KeyedState>>>,
        chains: Vec<Chain>,
        limits: ChainLimits,
        files: SnapshotFiles,
        group: Option<String>,
        results: crate::source::Waker,
        clock: Arc<dyn Clock>,
        standing: Standing,
        crash: CrashPoints,
    ) -> Snapshotting {
        Snapshotting {
            instance: origin.instance,
            origin,
            states,
            chains,
            limits,
            files,
            group,
            sweeping: VecDeque::new(),
            writing: VecDeque::new(),
            results: Results::new(results),
            merging: None,
            clock,
            standing,
            crash,
        }
    }

    /// The same, merging chains that have grown.
    pub(crate) fn merging(self, merging: Option<Merging>) -> Snapshotting {
        Snapshotting { merging, ..self }
    }

    /// Takes the snapshot, at the cut and nowhere else. `reached`: when the checkpoint's first barrier was.
    pub(crate) fn cut(
        &mut self,
        checkpoint: CheckpointId,
        in_flight: InFlight,
        operator: &mut dyn Operator,
        counters: &Counters,
        reached: Duration,
    ) -> Result<(), Failure> {
        let cut = self.clock.monotonic();
        self.standing.encoding(checkpoint);
        for (state, chain) in self.states.iter().zip(&self.chains) {
            state.borrow_mut().freeze(chain.next_kind(&self.limits));
        }
        let blobs = operator.save().into_iter().map(|(name, bytes)| Blob { name, bytes }).collect();
        let prepare = operator.seal(checkpoint)?;
        let frozen = self.states.iter().map(|_| None).collect();
        let times = PartTimes { reached, cut, sealed: self.clock.monotonic(), ..PartTimes::default() };
        self.sweeping.push_back(Cut {
            checkpoint,
            blobs,
            counters: counters.clone(),
            frozen,
            in_flight,
            prepare,
            times,
        });
        self.crash.reach("operator.cut");
        Ok(())
    }

    /// The channel state of a cut is whole; `None` if nothing was overtaken.
    pub(crate) fn in_flight(&mut self, checkpoint: CheckpointId, state: Option<FrozenState>) {
        let cut = self.sweeping.iter_mut().find(|cut| cut.checkpoint == checkpoint);
        let cut = cut.expect("a cut waits for its channel state");
        cut.in_flight = state.map_or(InFlight::Nothing, InFlight::Whole);
    }

    /// True while [`Snapshotting::advance`] has something to sweep.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweeping.iter().any(|cut| cut.frozen.iter().any(Option::is_none))
    }

    /// Sweeps a bounded part of the frozen states; hands what is complete to the I/O thread.
    pub(crate) fn advance(&mut self, words: usize, offload: &Offload) {
        for (index, state) in self.states.iter().enumerate() {
            let Some(frozen) = state.borrow_mut().sweep(words) else { continue };
            // Frozen states come out in the order of the cuts.
            let cut = self.sweeping.iter_mut().find(|cut| cut.frozen[index].is_none());
            cut.expect("a state is frozen once per cut").frozen[index] = Some(frozen);
        }
        let whole =
            |cut: &mut Cut| cut.frozen.iter().all(Option::is_some) && !matches!(cut.in_flight, InFlight::Follows);
        while let Some(cut) = self.sweeping.pop_front_if(whole) {
            self.submit(cut, offload);
        }
    }

    fn submit(&mut self, cut: Cut, offload: &Offload) {
        let Cut { checkpoint, blobs, counters, frozen, in_flight, prepare, times } = cut;
        let mut frozen: Vec<FrozenState> = frozen.into_iter().flatten().collect();
        let overtook = matches!(in_flight, InFlight::Whole(_));
        if let InFlight::Whole(state) = in_flight {
            // The last one: the others stand in the order of the chains.
            frozen.push(state);
        }
        let origin = SnapshotOrigin { checkpoint, ..self.origin };
        let (files, crash, clock) = (self.files.clone(), self.crash.clone(), self.clock.clone());
        let times = PartTimes { encoded: clock.monotonic(), ..times };
        self.standing.writing(checkpoint);
        let standing = self.standing.clone();
        self.writing.push_back((checkpoint, blobs, counters, times, overtook));
        self.results.submit(offload, move || {
            let handle = prepare.map(|prepare| prepare());
            if matches!(handle, Some(Ok(_))) {
                crash.reach("sink.prepared");
            }
            let states = files.write(&origin, frozen);
            standing.reporting(checkpoint);
            Written { states, handle, at: clock.monotonic() }
        });
    }

    /// The next report, if one is ready.
    pub(crate) fn poll(&mut self) -> Result<Option<(CheckpointId, SnapshotReport, PartTimes)>, Failure> {
        if let Some(merging) = &mut self.merging {
            merging.settle(&mut self.chains);
        }
        let Some(result) = self.results.poll() else { return Ok(None) };
        let (checkpoint, blobs, counters, times, overtook) =
            self.writing.pop_front().expect("a result belongs to a cut");
        let Written { states, handle, at } =
            result.map_err(|panic| Failure::Restart(format!("writing a snapshot: {panic}")))?;
        let times = PartTimes { written: at, ..times };
        self.standing.reported(checkpoint);
        let mut committables = vec![];
        if let Some(handle) = handle.transpose()?.flatten() {
            let group = self.group.clone().ok_or_else(|| {
                Failure::Fatal(format!("{} prepared output but its sink names no commit group", self.instance))
            })?;
            committables.push(Committable { group, handle });
        }
        let mut channel_state = None;
        let failed = match states {
            Ok(mut written) => {
                channel_state = written.pop_if(|_| overtook);
                self.extend_chains(written).err()
            }
            Err(WriteError::Store(error)) if ends_attempt(&error) => return Err(error.into()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = failed {
            if !committables.is_empty() {
                return Err(Failure::Restart(format!("{}: {reason}", self.instance)));
            }
            for (state, chain) in self.states.iter().zip(&mut self.chains) {
                if self.crash.is_planted("decline.dirty-set-lost") {
                    continue;
                }
                chain.lost();
                state.borrow_mut().mark_all_dirty();
            }
            return Ok(Some((checkpoint, SnapshotReport::Failed { instance: self.instance, reason }, times)));
        }
        let snapshot = SnapshotRef {
            instance: self.instance,
            chains: self.chains.iter().map(Chain::to_ref).chain(channel_state.map(alone)).collect(),
            blobs,
            committables,
            counters,
            exhausted: !overtook,
        };
        Ok(Some((checkpoint, SnapshotReport::Durable(snapshot), times)))
    }

    fn extend_chains(&mut self, written: Vec<WrittenState>) -> Result<(), String> {
        for (chain, state) in self.chains.iter_mut().zip(written) {
            chain.push(state).map_err(|broken| broken.to_string())?;
        }
        if let Some(merging) = &mut self.merging {
            merging.begin(&self.chains, &self.states);
        }
        Ok(())
    }
}
