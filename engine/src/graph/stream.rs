//! The handles: plain values that can be named, stored and built in loops. No lifetimes, no operator types.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use crate::element::{Batch, Data};
use crate::error::{BuildError, OperatorError, SinkError};
use crate::exchange::{CanonicalKey, GroupAssignment, KeyGroups, group_of};
use crate::graph::codec::{EdgeCodec, KeyHash, KeyedCodec, LocalCodec};
use crate::graph::job::Job;
use crate::graph::node::{InputEdge, Make, Node, OperatorSetup, Outputs, Route, Splitter};
use crate::graph::stage::{Chain, ChainOperator, StageCounts};
use crate::graph::time_mode::{TimeMode, Untimed};
use crate::id::{CheckpointId, OperatorId};
use crate::operator::{Context, Flow, Operator};
use crate::sink::{Prepare, Sink, SinkWriter, WriterId};
use crate::state::{Migrations, StateValue};

/// A stream of `T`. With `M = Timed` its records carry an event time and windows exist on it.
///
/// A stream is consumed by what is done to it; `fork` makes two of one. Stateless steps done to it are collected and become
/// one operator.
#[must_use = "a stream that leads nowhere is refused; send it to a sink, or discard it"]
pub struct Stream<T: 'static, M: TimeMode = Untimed> {
    job: Job,
    node: OperatorId,
    port: usize,
    /// Stateless steps since that port; at first it only gives the records their type back.
    chain: Chain<M::Of<T>>,
    stages: Vec<&'static str>,
    /// Turns the records of that port into bytes, if they may be overtaken.
    codec: Option<Rc<dyn EdgeCodec>>,
}

impl<T: 'static, M: TimeMode> fmt::Debug for Stream<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream<{}>(output {} of operator {})", std::any::type_name::<T>(), self.port, self.node)
    }
}

impl<T: 'static, M: TimeMode> Stream<T, M>
where
    M::Of<T>: Send,
{
    pub(crate) fn from_port(job: Job, node: OperatorId, port: usize, _: PhantomData<(T, M)>) -> Stream<T, M> {
        // Records between two steps may be of any type; only those that cross from one operator to the next must be `Send`.
        let chain = Box::new(|batch: Batch, _: &mut StageCounts| batch.take::<M::Of<T>>());
        Stream { job, node, port, chain, stages: vec![], codec: None }
    }

    /// Lets barriers of *unaligned* checkpoints overtake the records that wait here, between this operator and the next on the same
    /// worker; they then stand in the snapshot. Say it where records wait: before a slow sink, or between a source and the
    /// steps before a `key_by`. Streams between workers need not say it.
    ///
    /// Without it, few records wait here while checkpoints are unaligned, and barriers wait for them. With aligned
    /// checkpoints it changes nothing, but that stateless steps before and after it become two operators.
    ///
    /// A checkpoint with such records in flight can be restored with the same number of workers only, because nobody knows to
    /// which worker they belong; behind keyed operators use [`Stream::overtakable_by`].
    ///
    /// ```
    /// use cutwater_engine::graph::Stream;
    ///
    /// fn to_a_slow_sink(rows: Stream<(u64, String)>) {
    ///     rows.overtakable().discard();
    /// }
    /// ```
    pub fn overtakable(self) -> Stream<T, M>
    where
        M::Of<T>: Data,
    {
        self.with_codec(None)
    }

    /// As [`Stream::overtakable`], for records that come from a keyed operator on this worker: `key` gives the key by which it is
    /// divided, so that a restore with another number of workers finds their new place.
    ///
    /// ```
    /// use cutwater_engine::graph::Stream;
    ///
    /// fn counts_to_a_slow_sink(counts: Stream<(u64, u64)>) {
    ///     counts.overtakable_by(|row| row.0).discard();
    /// }
    /// ```
    pub fn overtakable_by<K: CanonicalKey>(self, key: impl Fn(&T) -> K + 'static) -> Stream<T, M>
    where
        M::Of<T>: Data,
    {
        self.with_codec(Some(Box::new(move |record| key(M::value(record)).key_hash())))
    }

    fn with_codec(self, key_hash: Option<KeyHash<M::Of<T>>>) -> Stream<T, M>
    where
        M::Of<T>: Data,
    {
        let mut closed = self.close();
        closed.codec = Some(Rc::new(LocalCodec::<M::Of<T>>::new(key_hash)));
        closed
    }

    /// Lets the stream lead nowhere: its records are counted and dropped.
    pub fn discard(self) {
        if self.stages.is_empty() {
            self.job.inner.borrow_mut().discarded.push((self.node, self.port));
        } else {
            let _ = self.operator_auto("discard", 0, |_| Ok(Box::new(Discard)));
        }
    }

    /// Adds an operator with one input and `outputs` outputs under a name of the user's, which must be unique: its state is
    /// found again by it.
    ///
    /// `make` is called on each worker that runs the operator. Output port p must emit vectors of `M2::Of<U>` where the
    /// caller takes [`Outputs::stream::<U, M2>(p)`](Outputs::stream).
    pub fn operator(
        self,
        name: impl Into<String>,
        kind: &str,
        outputs: usize,
        make: impl FnOnce(&OperatorSetup) -> Result<Box<dyn Operator>, BuildError> + 'static,
    ) -> Outputs {
        let job = self.job.clone();
        let edge = self.into_edge();
        job.add(name.into(), kind, vec![edge], outputs, Make::Operator(Box::new(make)))
    }

    /// Adds a stateless operator; its name is made up.
    pub fn operator_auto(
        self,
        kind: &str,
        outputs: usize,
        make: impl FnOnce(&OperatorSetup) -> Result<Box<dyn Operator>, BuildError> + 'static,
    ) -> Outputs {
        let job = self.job.clone();
        let edge = self.into_edge();
        let name = job.auto_name(kind);
        job.add(name, kind, vec![edge], outputs, Make::Operator(Box::new(make)))
    }

    /// Adds an operator that reads several streams of one type, one input port each.
    pub fn merge_with(
        self,
        others: Vec<Stream<T, M>>,
        kind: &str,
        make: impl FnOnce(&OperatorSetup) -> Result<Box<dyn Operator>, BuildError> + 'static,
    ) -> Outputs {
        let job = self.job.clone();
        let edges = std::iter::once(self).chain(others).map(Stream::into_edge).collect();
        let name = job.auto_name(kind);
        job.add(name, kind, edges, 1, Make::Operator(Box::new(make)))
    }

    /// Ends the stream in `sink`, under a name by which its transactions are known.
    pub fn sink<S: Sink<Item = T>>(self, name: impl Into<String>, sink: S)
    where
        T: Send,
    {
        let job = self.job.clone();
        let edge = self.into_edge();
        let (honours, group) = (sink.honours(), sink.group());
        let group_name = group.as_ref().map(|g| g.name().to_string());
        let make = move |setup: &OperatorSetup| {
            let id = WriterId {
                job: setup.job,
                attempt: setup.attempt,
                sink: setup.name.clone(),
                worker: setup.worker,
                visibility: setup.visibility,
            };
            let writer = sink.open(&id).map_err(|e| BuildError::refused(format!("sink {:?}", setup.name), e))?;
            Ok(Box::new(SinkOperator::<T, M> { writer, _mode: PhantomData }) as Box<dyn Operator>)
        };
        let kind = group_name.map_or("sink".to_string(), |g| format!("sink in {g}"));
        let _ = job.add(name.into(), kind, vec![edge], 0, Make::Sink { make: Box::new(make), honours, group });
    }

    /// Says that the operator this stream comes from had another name in an earlier version of the program, so that it takes
    /// that one's state from a checkpoint. Say it right behind the operator, as often as it had names.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    ///
    /// let rig = Rig::new();
    /// let (_, lines) = rig.input::<String, Untimed>("lines");
    /// lines.was("rows").discard();
    /// ```
    pub fn was(self, old_name: &str) -> Self {
        self.of_operator("was", |node| node.was.push(old_name.to_owned()))
    }

    /// Says how state `state` of the operator this stream comes from is read if a checkpoint holds it with older types. Say it
    /// right behind the operator, once per state. See [`Migrations`] for what can be migrated.
    pub fn migrate<V: StateValue>(self, state: &str, migrations: Migrations<V>) -> Self {
        self.of_operator("migrate", |node| node.migrations.push((state.to_owned(), Arc::new(migrations))))
    }

    fn of_operator(self, what: &'static str, change: impl FnOnce(&mut Node)) -> Self {
        if self.stages.is_empty() {
            change(&mut self.job.inner.borrow_mut().nodes[self.node.0 as usize]);
        } else {
            let reason = format!(
                "there are stateless steps ({}) between the operator and .{what}(..), so it isn't known which one is meant; \
                 say it right behind the operator",
                self.stages.join(", ")
            );
            self.job.refuse(BuildError::refused(format!(".{what}(..)"), reason));
        }
        self
    }

    /// The job this stream belongs to.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Closes the chain of stateless steps into an operator and gives the edge from it.
    fn into_edge(self) -> InputEdge {
        let closed = self.close();
        InputEdge { from: closed.node, port: closed.port, route: Route::Local, codec: closed.codec }
    }

    /// The same stream with its stateless steps in an operator of their own.
    fn close(self) -> Stream<T, M> {
        if self.stages.is_empty() {
            return self;
        }
        let chain = self.chain;
        let edge = InputEdge { from: self.node, port: self.port, route: Route::Local, codec: self.codec };
        let kind = self.stages.join(", ");
        let name = self.job.auto_name("chain");
        let make = move |_: &OperatorSetup| Ok(Box::new(ChainOperator { chain }) as Box<dyn Operator>);
        let outputs = self.job.add(name, kind, vec![edge], 1, Make::Operator(Box::new(make)));
        outputs.stream::<T, M>(0)
    }
}

impl<T: 'static, M: TimeMode> Stream<T, M> {
    /// Adds a stateless step that takes and gives whole batches. `f` must count what it doesn't pass on.
    pub fn stage<U: 'static, M2: TimeMode>(
        self,
        kind: &'static str,
        mut f: impl FnMut(Vec<M::Of<T>>, &mut StageCounts) -> Vec<M2::Of<U>> + 'static,
    ) -> Stream<U, M2> {
        let Stream { job, node, port, mut chain, mut stages, codec } = self;
        stages.push(kind);
        let chain: Chain<M2::Of<U>> = Box::new(move |batch, counts| f(chain(batch, counts), counts));
        Stream { job, node, port, chain, stages, codec }
    }

    /// Divides the stream by a key: equal keys meet on one worker from here on. `split` gives each record's key and value.
    pub fn keyed<K: CanonicalKey, U: 'static>(self, mut split: impl FnMut(T) -> (K, U) + 'static) -> Keyed<K, U, M> {
        let rows = self.stage::<(K, M::Of<U>), Untimed>("key", move |records, _| {
            records
                .into_iter()
                .map(|record| {
                    let mut key = None;
                    let value = M::map(record, |value| {
                        let (k, value) = split(value);
                        key = Some(k);
                        value
                    });
                    (key.expect("the closure just ran"), value)
                })
                .collect()
        });
        Keyed { rows }
    }
}

/// A stream divided by key. Operators on it see equal keys on one worker, in the order of each sender.
#[must_use = "a stream that leads nowhere is refused; send it to a sink, or discard it"]
pub struct Keyed<K: 'static, T: 'static, M: TimeMode = Untimed> {
    rows: Stream<(K, M::Of<T>), Untimed>,
}

impl<K: 'static, T: 'static, M: TimeMode> fmt::Debug for Keyed<K, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyed<{}, {}>", std::any::type_name::<K>(), std::any::type_name::<T>())
    }
}

impl<K, T: 'static, M: TimeMode> Keyed<K, T, M>
where
    K: Data + CanonicalKey,
    M::Of<T>: Data,
{
    /// Adds an operator with keyed state under a unique name. Its batches are vectors of `(K, M::Of<T>)`, to be taken with
    /// [`Batch::take_wire`].
    pub fn operator(
        self,
        name: impl Into<String>,
        kind: &str,
        outputs: usize,
        make: impl FnOnce(&OperatorSetup) -> Result<Box<dyn Operator>, BuildError> + 'static,
    ) -> Outputs {
        let job = self.rows.job.clone();
        let closed = self.rows.close();
        let route = Route::ByKey(Box::new(|| Box::new(KeySplitter::<K, M::Of<T>>::default())));
        let codec: Rc<dyn EdgeCodec> = Rc::new(KeyedCodec::<K, M::Of<T>>::default());
        let edge = InputEdge { from: closed.node, port: closed.port, route, codec: Some(codec) };
        job.add(name.into(), kind, vec![edge], outputs, Make::Operator(Box::new(make)))
    }
}

/// Divides `(key, value)` rows among the owners of their key groups.
struct KeySplitter<K, V> {
    open: Vec<Vec<(K, V)>>,
    owner_of_group: Vec<u32>,
    groups: KeyGroups,
    batch_records: usize,
}

impl<K, V> Default for KeySplitter<K, V> {
    fn default() -> Self {
        KeySplitter { open: vec![], owner_of_group: vec![], groups: KeyGroups::default(), batch_records: 1 }
    }
}

impl<K: Data + CanonicalKey, V: Data> Splitter for KeySplitter<K, V> {
    fn prepare(&mut self, assignment: GroupAssignment, batch_records: usize) {
        self.owner_of_group = assignment.owners().iter().map(|w| w.0).collect();
        self.groups = assignment.groups();
        self.open = (0..assignment.workers().get()).map(|_| Vec::new()).collect();
        self.batch_records = batch_records;
    }

    fn split(&mut self, batch: Batch, ship: &mut dyn FnMut(usize, Batch)) {
        let rows = batch.take::<(K, V)>();
        if self.open.len() == 1 {
            return ship(0, Batch::wire(rows));
        }
        for row in rows {
            let owner = self.owner_of_group[usize::from(group_of(row.0.key_hash(), self.groups).0)] as usize;
            let open = &mut self.open[owner];
            if open.capacity() == 0 {
                open.reserve_exact(self.batch_records);
            }
            open.push(row);
            if open.len() == self.batch_records {
                ship(owner, Batch::wire(std::mem::take(open)));
            }
        }
    }

    fn flush(&mut self, ship: &mut dyn FnMut(usize, Batch)) {
        for (owner, open) in self.open.iter_mut().enumerate() {
            if !open.is_empty() {
                ship(owner, Batch::wire(std::mem::take(open)));
            }
        }
    }
}

/// The end of a stream that was discarded after stateless steps.
struct Discard;

impl Operator for Discard {
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        cx.counters().absorbed += batch.len() as u64;
        Ok(Flow::Done)
    }
}

/// Hands batches to a sink's writer.
struct SinkOperator<T: 'static, M> {
    writer: Box<dyn SinkWriter<Item = T>>,
    _mode: PhantomData<M>,
}

impl<T: Send + 'static, M: TimeMode> Operator for SinkOperator<T, M>
where
    M::Of<T>: Send,
{
    fn on_batch(&mut self, _port: usize, batch: Batch, cx: &mut Context<'_>) -> Result<Flow, OperatorError> {
        let records = batch.take::<M::Of<T>>();
        let count = records.len() as u64;
        M::write(records, self.writer.as_mut())?;
        cx.counters().passed += count;
        Ok(Flow::Done)
    }

    fn seal(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        self.writer.seal(checkpoint)
    }

    fn unconfirmed(&self) -> u64 {
        self.writer.unconfirmed()
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        Ok(self.writer.finish()?)
    }
}
