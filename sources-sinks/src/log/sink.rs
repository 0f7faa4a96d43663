//! Topics of the partition log as a sink.
//!
//! * Guarantee: exactly-once; at-least-once and at-most-once through an idempotent producer, visible as it comes.
//! * Position: none.
//! * Staged at a barrier: a transaction of the log per worker and checkpoint, prepared beside the worker; it never times out.
//!   Nothing below exactly-once: there a barrier waits until what was written is durable.
//! * Commit: one atomic write of the log for all its sinks, see [`LogCommitGroup`](crate::log::LogCommitGroup).
//!
//! This file has what a program says about a sink; [`writer`](super::writer) does it.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::SinkError;
use cutwater_engine::sink::{CommitGroup, Honours, Sink, SinkWriter, WriterId};
pub use cutwater_partition_log::batch::Compression;

use crate::log::at::{At, Found};
use crate::log::group::fatal;
use crate::log::record::{AsIs, ByCodec, FillRecord, KeyIn, KeyInto, KeyOf, OwnKey};
use crate::log::writer::LogWriter;
use crate::log::{LogHandle, SharedLog};

/// Chooses a record's partition, given their number.
pub(crate) type Choose<T> = Rc<dyn Fn(&T, u32) -> u32>;

/// A sink that writes records of `T` to a topic. See [`LogHandle::write`].
pub struct LogSink<T, V = AsIs, K = OwnKey> {
    handle: LogHandle,
    topic: String,
    partitions: Option<u32>,
    compression: Compression,
    pub(crate) value: V,
    pub(crate) key: K,
    pub(crate) choose: Option<Choose<T>>,
    _takes: PhantomData<fn(T)>,
}

impl<T, V, K> fmt::Debug for LogSink<T, V, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogSink({:?})", self.topic)
    }
}

impl<T> LogSink<T> {
    pub(crate) fn new(handle: LogHandle, topic: String) -> LogSink<T> {
        LogSink {
            handle,
            topic,
            partitions: None,
            compression: Compression::None,
            value: AsIs,
            key: OwnKey,
            choose: None,
            _takes: PhantomData,
        }
    }
}

impl<T, V, K> LogSink<T, V, K> {
    /// Makes each record's value with a codec: `Json`, `Csv`, `Text`, `Bytes` or one of your own.
    pub fn value<C>(self, codec: C) -> LogSink<T, ByCodec<C>, K> {
        let LogSink { handle, topic, partitions, compression, key, choose, _takes, .. } = self;
        LogSink { handle, topic, partitions, compression, value: ByCodec(codec), key, choose, _takes }
    }

    /// Gives each record a key that lies in it. Records with one key go to one partition, in the order of their writer.
    pub fn key<F>(self, key: F) -> LogSink<T, V, KeyIn<F>>
    where
        F: for<'a> Fn(&'a T) -> &'a [u8],
    {
        self.with_key(KeyIn(key))
    }

    /// Gives each record a key that is computed: appended to an empty buffer.
    pub fn key_into<F>(self, key: F) -> LogSink<T, V, KeyInto<F>>
    where
        F: Fn(&T, &mut Vec<u8>),
    {
        self.with_key(KeyInto(key))
    }

    fn with_key<L>(self, key: L) -> LogSink<T, V, L> {
        let LogSink { handle, topic, partitions, compression, value, choose, _takes, .. } = self;
        LogSink { handle, topic, partitions, compression, value, key, choose, _takes }
    }

    /// Chooses the partition of each record, given the number of partitions; the answer must be below it. By default a record
    /// with a key goes where Kafka's own clients would put it, and those without go to one partition per batch, in turn.
    #[must_use]
    pub fn partition_by(self, choose: impl Fn(&T, u32) -> u32 + 'static) -> LogSink<T, V, K> {
        LogSink { choose: Some(Rc::new(choose)), ..self }
    }

    /// The topic has this many partitions: it is created with them if it isn't there, and refused if it has another number.
    /// Without this, a missing topic is created with one.
    #[must_use]
    pub fn partitions(self, partitions: u32) -> LogSink<T, V, K> {
        LogSink { partitions: Some(partitions), ..self }
    }

    /// How batches are compressed; not at all by default.
    #[must_use]
    pub fn compression(self, compression: Compression) -> LogSink<T, V, K> {
        LogSink { compression, ..self }
    }

    fn shared(&self) -> Result<&Arc<SharedLog>, SinkError> {
        self.handle.shared().ok_or_else(|| fatal("the log could not be opened"))
    }

    /// The topic, created if absent. Several workers may ask at once.
    fn topic(&self, log: &At, sink: &str) -> Result<Found, SinkError> {
        let trouble = |e: crate::log::at::TopicTrouble| e.of_sink(sink);
        if let Some(topic) = log.topic(&self.topic, None).map_err(trouble)?
            && self.partitions.is_none_or(|wanted| wanted == topic.partitions)
        {
            return Ok(topic);
        }
        let made = log.topic(&self.topic, Some(self.partitions.unwrap_or(1))).map_err(trouble)?;
        made.ok_or_else(|| fatal("a topic that was made isn't there; was it deleted at once?"))
    }
}

impl<T, V, K> Sink for LogSink<T, V, K>
where
    T: Send + 'static,
    V: FillRecord<T> + Clone + 'static,
    K: KeyOf<T> + Clone + 'static,
{
    type Item = T;

    fn honours(&self) -> Honours {
        Honours {
            guarantees: vec![GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce, GuaranteeKind::ExactlyOnce],
            reason: "the log has transactions that can be prepared and then committed any number of times".to_string(),
        }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        self.handle.shared().map(|shared| shared.group.clone() as Arc<dyn CommitGroup>)
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = T>>, SinkError> {
        let shared = self.shared()?;
        let topic = self.topic(&shared.at, &writer.sink)?;
        Ok(Box::new(LogWriter::open(self, shared, &topic, self.compression, writer)?))
    }
}
