//! Owners whose program runs in another process: what a server carries out for them, by name instead of by handle.
//!
//! The promise: everything may be asked again when its answer was missed, except a claim, since attempts are used once. A batch is
//! recognised by its sequence, a beginning by its name, a prepare by what the transaction holds, an end by the outcome that is
//! kept. And nothing is judged by the handle: the log looks at the newest attempt each time (I-7).

use super::Log;
use super::owner::Owner;
use super::producer::AppendTicket;
use super::transaction::Txn;
use crate::batch::{Limits, accept};
use crate::core::clients::Entrance;
use crate::error::{AppendError, PrepareError, Sent, TxnError};
use crate::offset::Offset;
use crate::owner::{OwnerId, TxnId, TxnName};
use crate::topic::{TopicId, TopicPartition};

impl Log {
    /// The handle of an attempt that has claimed the log before, perhaps over another connection. Whether it may still write is
    /// decided at each request: an attempt that never claimed, or was followed by a newer one, is answered `Fenced`.
    pub fn attempt(&self, owner: OwnerId, attempt: u64) -> Owner {
        Owner::new(self.inner.clone(), owner, attempt)
    }
}

impl Owner {
    /// As [`Owner::begin`], and answers the same producer id and epoch again as long as nothing was appended. Doesn't wait.
    ///
    /// # Errors
    /// As [`Owner::begin`].
    pub fn begin_for_writer(&self, name: TxnName) -> Result<(i64, i16), TxnError> {
        let TxnName { checkpoint, sink, writer } = name.clone();
        let id = TxnId { owner: self.id(), attempt: self.attempt(), checkpoint, sink, writer };
        let begun = self.inner.shared.core()?.state.find_begun(&id)?;
        match begun {
            Some(begun) => Ok(begun),
            None => self.begin(name).map(|txn| txn.producer()),
        }
    }

    /// Appends a batch that its writer has stamped: with the id and epoch of one of this attempt's open transactions, or with those of
    /// a producer outside of transactions. Doesn't wait, except for room; what becomes of it is heard at the latest at the prepare.
    ///
    /// # Errors
    /// Fenced; the batch isn't acceptable or doesn't continue what came before; its transaction isn't open or is somebody else's.
    pub fn append_stamped(&self, topic: TopicId, partition: u32, batch: Vec<u8>) -> Result<Offset, AppendError> {
        self.append_as_attempt(topic, partition, batch, false).map(|(base, _)| base)
    }

    /// As [`Owner::append_stamped`]; the ticket answers once the batch is durable.
    ///
    /// # Errors
    /// As [`Owner::append_stamped`].
    pub fn append_durably(&self, topic: TopicId, partition: u32, batch: Vec<u8>) -> Result<AppendTicket, AppendError> {
        self.append_as_attempt(topic, partition, batch, true).map(|(_, ticket)| ticket)
    }

    fn append_as_attempt(
        &self,
        topic: TopicId,
        partition: u32,
        mut batch: Vec<u8>,
        wait: bool,
    ) -> Result<(Offset, AppendTicket), AppendError> {
        let shared = &self.inner.shared;
        let at = TopicPartition::new(topic, partition);
        let limits = Limits { batch_bytes: shared.limits.batch_bytes_max, ..Default::default() };
        accept(&mut batch, &limits).map_err(|source| AppendError::Batch { at, source })?;
        let entrance = Entrance::Attempt { owner: self.id(), attempt: self.attempt() };
        let accepted = shared.append_through(entrance, at, batch, wait)?;
        Ok((Offset(accepted.base), AppendTicket::new(self.inner.clone(), accepted)))
    }

    /// Makes one of this attempt's transactions durable, as [`Txn::prepare`], if it holds what its writer `sent`; done already, it
    /// answers the same.
    ///
    /// # Errors
    /// As [`Txn::prepare`]; it holds something else.
    pub fn prepare_for_writer(&self, id: &TxnId, sent: Sent) -> Result<(), PrepareError> {
        let shared = &self.inner.shared;
        if (id.owner, id.attempt) != (self.id(), self.attempt()) {
            return Err(PrepareError::NotOpen { id: id.clone() });
        }
        shared.carry_out(|core| {
            if let Some(entry) = core.state.plan_prepare_whole(id, sent, shared.wall(), &shared.limits)? {
                core.push(entry);
            }
            Ok(())
        })
    }
}

impl Txn {
    /// The producer id and epoch that its batches bear.
    pub fn producer(&self) -> (i64, i16) {
        self.sequences.producer()
    }
}
