//! Judges requests. Changes nothing: the answer is the entries to apply, or why there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::clients::{Entrance, Whose};
use super::{END_ENTRY_BYTES, PRODUCER_BLOCK, State, TxnPhase, TxnState, ended_bytes};
use crate::batch::BatchHeader;
use crate::config::LogLimits;
use crate::error::{AbortError, AppendError, ClaimError, CommitError, Fenced, PrepareError, Sent, TxnError};
use crate::owner::{OwnerId, TxnId, TxnName};
use crate::producer::{SequenceError, Verdict, last_sequence, validate};
use crate::topic::{NAME_BYTES_MAX, TopicPartition, check_name};
use crate::wal::frame::{Ended, Entry, Outcome};

/// What to do with a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AppendPlan {
    /// Apply `before` in order, then append at `base`.
    Append { before: Vec<Entry>, base: u64 },
    /// It is there already.
    Duplicate { base: u64 },
}

/// Who asks: an owner's attempt, or an operator for whom every owner's transactions are fair game.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    Attempt { owner: OwnerId, attempt: u64 },
    Operator,
}

/// Transactions to end, by producer id, and those that have ended that way already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EndPlan {
    pub(crate) producers: Vec<i64>,
    pub(crate) now: Vec<TxnId>,
    pub(crate) already: Vec<TxnId>,
}

/// How a transaction begins.
#[derive(Debug)]
pub(crate) struct BeginPlan {
    /// A block of producer ids that must be reserved first.
    pub(crate) block: Option<Entry>,
    pub(crate) begin: Entry,
    pub(crate) id: Arc<TxnId>,
    pub(crate) producer: i64,
    pub(crate) epoch: i16,
}

/// How transactions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Commit,
    /// As a commit, and the client's next transaction has the next epoch.
    CommitAndRaise,
    Abort,
    /// As an abort, and the producers' epochs are used up: whoever still writes with them is refused.
    Fence,
}

impl How {
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            How::Commit | How::CommitAndRaise => Outcome::Committed,
            How::Abort | How::Fence => Outcome::Aborted,
        }
    }
}

/// Where a transaction stands; live ones with their producer id.
#[derive(Clone, Copy, Debug)]
enum Stand {
    Open(i64),
    Prepared(i64),
    Committed,
    Aborted,
    Unknown,
}

/// Transactions by where they stand.
#[derive(Debug, Default)]
struct Sorted {
    open: Vec<(TxnId, i64)>,
    prepared: Vec<(TxnId, i64)>,
    committed: Vec<TxnId>,
    aborted: Vec<TxnId>,
    unknown: Vec<TxnId>,
}

impl State {
    /// Judges a verified batch for `at`. The order is Kafka's: duplicate, transaction, epoch and sequence.
    pub(crate) fn plan_append(
        &self,
        entrance: Entrance<'_>,
        at: TopicPartition,
        header: &BatchHeader,
        bytes: usize,
        limits: &LogLimits,
    ) -> Result<AppendPlan, AppendError> {
        if let Entrance::Attempt { owner, attempt } = entrance {
            self.check_attempt(owner, attempt)?;
        }
        let partition = self.partition(at).ok_or(AppendError::UnknownPartition { at })?;
        let mut before = Vec::new();
        if header.has_producer() {
            let known = partition.producers.get(&header.producer_id);
            let last = last_sequence(header.base_sequence, header.last_offset_delta);
            let verdict = validate(known, header.producer_epoch, header.base_sequence, last);
            if let Ok(Verdict::Duplicate { base_offset, .. }) = verdict {
                return Ok(AppendPlan::Duplicate { base: base_offset });
            }
            before.extend(self.check_transaction(entrance, at, header, limits)?);
            if matches!(entrance, Entrance::Client { .. }) && !header.is_transactional() {
                let raises = known.is_none_or(|known| header.producer_epoch > known.epoch);
                self.check_given(at, header, raises)?;
            }
            verdict.map_err(|source| AppendError::Sequence { at, source })?;
            if known.is_none() && partition.producers.len() >= limits.producers_max {
                before.push(Entry::ForgetProducers { at, producers: self.silent_producers(at) });
            }
        }
        let next = partition.log_end.saturating_add(header.last_offset_delta.max(0).cast_unsigned().into()) + 1;
        let asked = self.topic(at.topic).and_then(|topic| topic.policy.segment_bytes);
        let most = asked.unwrap_or(limits.segment_bytes);
        let full = partition.segment_bytes.saturating_add(bytes as u64) > u64::from(most);
        let far = next - partition.segment_base > u64::from(i32::MAX.unsigned_abs());
        if partition.segment_bytes > 0 && (full || far) {
            before.push(Entry::Roll { at, base: partition.log_end });
        }
        Ok(AppendPlan::Append { before, base: partition.log_end })
    }

    /// Whether a client may write outside of transactions under this producer id: whoever could take any would fence its producer, by an
    /// epoch that the partition doesn't know yet.
    fn check_given(&self, at: TopicPartition, header: &BatchHeader, raises: bool) -> Result<(), AppendError> {
        let (producer, epoch) = (header.producer_id, header.producer_epoch);
        let never = producer >= self.next_producer;
        let another = || {
            self.client_of(producer).is_some_and(|(_, client)| epoch > client.epoch)
                || self.free_producers.iter().any(|(free, _)| *free == producer)
        };
        if never || (raises && another()) { Err(AppendError::OtherProducer { at, producer }) } else { Ok(()) }
    }

    /// Whether a batch may come into its producer's transaction; an entry that begins it, where the batch itself does.
    fn check_transaction(
        &self,
        entrance: Entrance<'_>,
        at: TopicPartition,
        header: &BatchHeader,
        limits: &LogLimits,
    ) -> Result<Option<Entry>, AppendError> {
        let (producer, epoch) = (header.producer_id, header.producer_epoch);
        let live = self.txns.get(&producer);
        if !header.is_transactional() {
            return if live.is_some() { Err(AppendError::InTransaction { producer }) } else { Ok(None) };
        }
        let none = || AppendError::NoTransaction { producer, epoch };
        let begin = match entrance {
            Entrance::Inside | Entrance::Attempt { .. } => None,
            Entrance::Client { id, implicit, wall } => {
                let (known, client) = self.client_of(producer).ok_or_else(none)?;
                if id != Some(known.as_str()) {
                    return Err(AppendError::OtherProducer { at, producer });
                }
                if epoch < client.epoch {
                    let source = SequenceError::OldEpoch { found: epoch, known: client.epoch };
                    return Err(AppendError::Sequence { at, source });
                }
                if epoch > client.epoch {
                    let source = SequenceError::EpochToCome { found: epoch, known: client.epoch };
                    return Err(AppendError::Sequence { at, source });
                }
                (implicit && live.is_none()).then(|| Entry::ClientTxn { producer, wall, partitions: vec![at] })
            }
        };
        if begin.is_some() {
            return Ok(begin);
        }
        let txn = live.filter(|txn| txn.epoch == epoch).ok_or_else(none)?;
        match (&txn.whose, entrance) {
            (Whose::Owner(id), Entrance::Inside) => self.check_attempt(id.owner, id.attempt)?,
            // The attempt is the newest one; the transaction may be another owner's, or an older attempt's that stayed prepared.
            (Whose::Owner(id), Entrance::Attempt { owner, attempt }) if (id.owner, id.attempt) == (owner, attempt) => {}
            (Whose::Client(_), Entrance::Client { implicit, .. }) => {
                let announced = txn.declared.contains(&at) || txn.partitions.contains_key(&at);
                if !implicit && !announced {
                    return Err(none());
                }
            }
            // A client can't write into a job's transaction, nor a job into a client's.
            _ => return Err(none()),
        }
        if txn.phase != TxnPhase::Open {
            return Err(none());
        }
        let partitions = txn.partitions.len();
        let one_more = END_ENTRY_BYTES + ended_bytes(partitions + 1) > limits.end_bytes_max
            || partitions >= limits.transaction_partitions_max;
        if one_more && !txn.partitions.contains_key(&at) {
            return Err(AppendError::TooManyPartitions { partitions });
        }
        Ok(None)
    }

    /// A tenth of the partition's producers, the longest silent first; never one with a transaction here.
    fn silent_producers(&self, at: TopicPartition) -> Vec<i64> {
        let Some(partition) = self.partition(at) else { return Vec::new() };
        let busy: BTreeSet<i64> = partition.open.iter().map(|(_, producer)| *producer).collect();
        let idle = partition.producers.iter().filter(|(producer, _)| !busy.contains(producer));
        let mut by_age: Vec<(i64, i64)> = idle.map(|(producer, state)| (state.wall, *producer)).collect();
        by_age.sort_unstable();
        by_age.truncate((partition.producers.len() / 10).max(1));
        by_age.into_iter().map(|(_, producer)| producer).collect()
    }

    /// The highest attempt that has claimed; 0 if none has.
    pub(crate) fn newest_attempt(&self, owner: OwnerId) -> u64 {
        self.owners.get(&owner).map_or(0, |state| state.attempt)
    }

    /// Only the newest attempt may write (I-7).
    pub(crate) fn check_attempt(&self, owner: OwnerId, attempt: u64) -> Result<(), Fenced> {
        let current = self.newest_attempt(owner);
        if current == attempt { Ok(()) } else { Err(Fenced { owner, attempt, current }) }
    }

    /// The claim, and the transactions that older attempts left open: fenced, they can never be prepared, so they end.
    pub(crate) fn plan_claim(&self, owner: OwnerId, attempt: u64) -> Result<(Entry, Vec<i64>), ClaimError> {
        let current = self.owners.get(&owner).map_or(0, |state| state.attempt);
        if attempt <= current {
            return Err(Fenced { owner, attempt, current }.into());
        }
        let live = self.owners.get(&owner).map(|state| state.live.values().copied()).into_iter().flatten();
        let open = live.filter(|producer| self.phase(*producer) == Some(TxnPhase::Open)).collect();
        Ok((Entry::Claim { owner, attempt }, open))
    }

    fn phase(&self, producer: i64) -> Option<TxnPhase> {
        self.txns.get(&producer).map(|txn| txn.phase)
    }

    /// The entries that begin a transaction: a new block of producer ids if need be, then the beginning.
    pub(crate) fn plan_begin(
        &self,
        owner: OwnerId,
        attempt: u64,
        name: TxnName,
        wall: i64,
        limits: &LogLimits,
    ) -> Result<BeginPlan, TxnError> {
        check_name(&name.sink)?;
        self.check_attempt(owner, attempt)?;
        let TxnName { checkpoint, sink, writer } = name;
        let id = TxnId { owner, attempt, checkpoint, sink, writer };
        if let Some(state) = self.owners.get(&owner) {
            if state.knows(&id) {
                return Err(TxnError::Exists { id });
            }
            if state.live.len() >= limits.transactions_max {
                let (what, fix) = ("live transactions", "commit or abort some");
                return Err(TxnError::TooMany { owner, what, limit: limits.transactions_max, fix });
            }
            if state.live.len() + state.outcomes.len() >= limits.outcomes_max {
                let (what, fix) = ("kept outcomes", "forget those that no manifest lists");
                return Err(TxnError::TooMany { owner, what, limit: limits.outcomes_max, fix });
            }
        }
        let (block, producer, epoch) = match self.free_producers.front() {
            Some((producer, epoch)) => (None, *producer, *epoch),
            None => {
                let (block, producer) = self.plan_producer();
                (block, producer, 0)
            }
        };
        let id = Arc::new(id);
        let begin = Entry::Begin { id: id.clone(), producer, epoch, wall };
        Ok(BeginPlan { block, begin, id, producer, epoch })
    }

    /// The next producer id, and the reservation of a block that must come before it if the last one is used up.
    pub(crate) fn plan_producer(&self) -> (Option<Entry>, i64) {
        if self.next_producer < self.block_end {
            return (None, self.next_producer);
        }
        (Some(Entry::ProducerBlock { end: self.block_end + PRODUCER_BLOCK }), self.block_end)
    }

    /// Prepares an open transaction if everything that committing it could hit is within the limits.
    pub(crate) fn plan_prepare(&self, id: &TxnId, wall: i64, limits: &LogLimits) -> Result<Entry, PrepareError> {
        self.check_attempt(id.owner, id.attempt)?;
        let (producer, txn) = self.live(id).ok_or_else(|| PrepareError::NotOpen { id: id.clone() })?;
        if txn.phase != TxnPhase::Open {
            return Err(PrepareError::NotOpen { id: id.clone() });
        }
        let prepared: usize = self.owners.get(&id.owner).map_or(0, |owner| {
            let live = owner.live.values().filter_map(|producer| self.txns.get(producer));
            live.filter(|txn| txn.phase == TxnPhase::Prepared).map(TxnState::end_bytes).sum()
        });
        let bytes = END_ENTRY_BYTES + prepared + txn.end_bytes();
        if bytes > limits.end_bytes_max {
            return Err(PrepareError::TooLarge { id: id.clone(), bytes, limit: limits.end_bytes_max });
        }
        Ok(Entry::Prepare { producer, wall })
    }

    /// As [`State::plan_prepare`] for a writer that may have missed an answer: nothing to do if that is done already, and refused
    /// unless the transaction holds exactly what the writer sent.
    pub(crate) fn plan_prepare_whole(
        &self,
        id: &TxnId,
        sent: Sent,
        wall: i64,
        limits: &LogLimits,
    ) -> Result<Option<Entry>, PrepareError> {
        self.check_attempt(id.owner, id.attempt)?;
        let (_, txn) = self.live(id).ok_or_else(|| PrepareError::NotOpen { id: id.clone() })?;
        let found = Sent { bytes: txn.bytes, records: txn.records };
        if found != sent {
            return Err(PrepareError::Incomplete { id: id.clone(), found, sent });
        }
        match txn.phase {
            TxnPhase::Prepared => Ok(None),
            TxnPhase::Open => self.plan_prepare(id, wall, limits).map(Some),
        }
    }

    /// As [`State::plan_begin`] for a writer that may have missed an answer: what it began before, and has put nothing in yet, is
    /// begun already.
    pub(crate) fn find_begun(&self, id: &TxnId) -> Result<Option<(i64, i16)>, Fenced> {
        self.check_attempt(id.owner, id.attempt)?;
        let empty = |txn: &&TxnState| txn.phase == TxnPhase::Open && txn.partitions.is_empty();
        Ok(self.live(id).filter(|(_, txn)| empty(txn)).map(|(producer, txn)| (producer, txn.epoch)))
    }

    pub(super) fn live(&self, id: &TxnId) -> Option<(i64, &TxnState)> {
        let producer = *self.owners.get(&id.owner)?.live.get(id)?;
        Some((producer, self.txns.get(&producer)?))
    }

    /// Which transactions a commit ends: all of them or none.
    pub(crate) fn plan_commit(&self, asker: Asker, ids: &[TxnId]) -> Result<EndPlan, CommitError> {
        let sorted = self.sort(asker, ids)?;
        if !sorted.aborted.is_empty() {
            return Err(CommitError::Aborted(sorted.aborted));
        }
        if !sorted.unknown.is_empty() {
            return Err(CommitError::Unknown(sorted.unknown));
        }
        if !sorted.open.is_empty() {
            return Err(CommitError::NotPrepared(sorted.open.into_iter().map(|(id, _)| id).collect()));
        }
        Ok(EndPlan::new(sorted.prepared, sorted.committed))
    }

    /// As [`State::plan_commit`] for one open transaction, without preparing it. Its caller knows its name: the plan doesn't
    /// repeat it.
    pub(crate) fn plan_commit_open(&self, id: &TxnId) -> Result<EndPlan, CommitError> {
        self.check_attempt(id.owner, id.attempt)?;
        match self.stand(id) {
            Stand::Open(producer) | Stand::Prepared(producer) => {
                Ok(EndPlan { producers: vec![producer], ..EndPlan::default() })
            }
            Stand::Committed => Ok(EndPlan::default()),
            Stand::Aborted => Err(CommitError::Aborted(vec![id.clone()])),
            Stand::Unknown => Err(CommitError::Unknown(vec![id.clone()])),
        }
    }

    /// Which transactions an abort ends: all of them or none.
    pub(crate) fn plan_abort(&self, asker: Asker, ids: &[TxnId]) -> Result<EndPlan, AbortError> {
        let mut sorted = self.sort(asker, ids)?;
        if !sorted.committed.is_empty() {
            return Err(AbortError::Committed(sorted.committed));
        }
        if !sorted.unknown.is_empty() {
            return Err(AbortError::Unknown(sorted.unknown));
        }
        sorted.open.append(&mut sorted.prepared);
        Ok(EndPlan::new(sorted.open, sorted.aborted))
    }

    fn sort(&self, asker: Asker, ids: &[TxnId]) -> Result<Sorted, Fenced> {
        if let Asker::Attempt { owner, attempt } = asker {
            self.check_attempt(owner, attempt)?;
        }
        let mut sorted = Sorted::default();
        for id in ids.iter().collect::<BTreeSet<_>>() {
            let foreign = matches!(asker, Asker::Attempt { owner, .. } if owner != id.owner);
            match if foreign { Stand::Unknown } else { self.stand(id) } {
                Stand::Open(producer) => sorted.open.push((id.clone(), producer)),
                Stand::Prepared(producer) => sorted.prepared.push((id.clone(), producer)),
                Stand::Committed => sorted.committed.push(id.clone()),
                Stand::Aborted => sorted.aborted.push(id.clone()),
                Stand::Unknown => sorted.unknown.push(id.clone()),
            }
        }
        Ok(sorted)
    }

    fn stand(&self, id: &TxnId) -> Stand {
        if let Some((producer, txn)) = self.live(id) {
            return if txn.phase == TxnPhase::Open { Stand::Open(producer) } else { Stand::Prepared(producer) };
        }
        match self.owners.get(&id.owner).and_then(|owner| owner.outcomes.get(id)) {
            Some(Outcome::Committed) => Stand::Committed,
            Some(Outcome::Aborted) => Stand::Aborted,
            None => Stand::Unknown,
        }
    }

    /// One entry that ends all of `producers`, behind the rolls that make room for its markers.
    pub(crate) fn end_entry(&self, how: How, producers: &[i64], wall: i64, limits: &LogLimits) -> Vec<Entry> {
        let mut ends: BTreeMap<TopicPartition, u64> = BTreeMap::new();
        let mut ended = Vec::with_capacity(producers.len());
        // Most often there is no roll.
        let mut entries = Vec::with_capacity(1);
        for producer in producers {
            let Some(txn) = self.txns.get(producer) else { continue };
            let mut markers = Vec::with_capacity(txn.partitions.len());
            for at in txn.partitions.keys() {
                let Some(partition) = self.partition(*at) else { continue };
                let mut begin = || {
                    if partition.segment_bytes > 0 && partition.segment_bytes >= u64::from(limits.segment_bytes) {
                        entries.push(Entry::Roll { at: *at, base: partition.log_end });
                    }
                    partition.log_end
                };
                // Of a transaction that ends alone no two markers share a partition.
                if producers.len() == 1 {
                    markers.push((*at, begin()));
                    continue;
                }
                let end = ends.entry(*at).or_insert_with(begin);
                markers.push((*at, *end));
                *end += 1;
            }
            // The largest epoch is never given out, so that there is always one above.
            let raises = matches!(how, How::Fence | How::CommitAndRaise);
            let epoch = if raises { txn.epoch.saturating_add(1) } else { txn.epoch };
            ended.push(Ended { producer: *producer, epoch, markers });
        }
        entries.push(Entry::End { outcome: how.outcome(), wall, ended });
        entries
    }

    /// Divides transactions into groups whose ending entries stay within `limit` bytes; one alone may exceed it. For
    /// aborts, which needn't be atomic together.
    pub(crate) fn end_chunks(&self, producers: &[i64], limit: usize) -> Vec<Vec<i64>> {
        let mut chunks: Vec<Vec<i64>> = Vec::new();
        let mut bytes = limit;
        for producer in producers {
            let needed = self.txns.get(producer).map_or(0, TxnState::end_bytes);
            if bytes + needed > limit {
                bytes = END_ENTRY_BYTES;
                chunks.push(Vec::new());
            }
            bytes += needed;
            if let Some(chunk) = chunks.last_mut() {
                chunk.push(*producer);
            }
        }
        chunks
    }

    /// Forgets outcomes, in as many entries as their size needs. Ids that are unknown are fine, they may have been
    /// forgotten before.
    pub(crate) fn plan_forget(
        &self,
        owner: OwnerId,
        attempt: u64,
        ids: &[TxnId],
        limits: &LogLimits,
    ) -> Result<Vec<Entry>, TxnError> {
        self.check_attempt(owner, attempt)?;
        let refused = |id: &&TxnId| id.owner != owner || self.live(id).is_some();
        let bad: Vec<TxnId> = ids.iter().filter(refused).cloned().collect();
        if !bad.is_empty() {
            return Err(TxnError::NotForgettable { ids: bad });
        }
        let outcomes = self.owners.get(&owner).map(|state| &state.outcomes);
        let known = |id: &&TxnId| outcomes.is_some_and(|outcomes| outcomes.contains_key(*id));
        let known: Vec<TxnId> = ids.iter().filter(known).cloned().collect();
        let per_entry = (limits.end_bytes_max / (TxnId::BYTES_MIN + NAME_BYTES_MAX)).max(1);
        Ok(known.chunks(per_entry).map(|ids| Entry::Forget { ids: ids.to_vec() }).collect())
    }
}

impl EndPlan {
    fn new(live: Vec<(TxnId, i64)>, already: Vec<TxnId>) -> EndPlan {
        let (now, producers) = live.into_iter().unzip();
        EndPlan { producers, now, already }
    }
}
