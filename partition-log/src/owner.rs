//! Owners, attempts and the names of transactions.
//!
//! An *owner* is a job, known by a random number; an *attempt* is a numbered life of it. A transaction is named by owner,
//! attempt, checkpoint, sink and writer; nobody ever guesses such a name, all are listed.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::codec::{Cursor, Malformed, Put};
use crate::topic::{InvalidName, check_name};

/// Names an owner: a job's random id, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u128);

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

/// A text that names no owner or transaction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{text}\" is no {what}")]
pub struct ParseIdError {
    /// The text.
    pub text: String,
    /// What it should have been.
    pub what: &'static str,
}

impl FromStr for OwnerId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<OwnerId, ParseIdError> {
        let error = || ParseIdError { text: text.to_string(), what: "owner (32 hexadecimal digits)" };
        if text.len() != 32 {
            return Err(error());
        }
        u128::from_str_radix(text, 16).map(OwnerId).map_err(|_| error())
    }
}

/// The part of a transaction's name that its writer chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnName {
    /// The checkpoint whose interval it covers. Checkpoint numbers never return.
    pub checkpoint: u64,
    /// The sink: 1 to 249 characters of Kafka's alphabet for topics.
    pub sink: String,
    /// The writer within the sink.
    pub writer: u32,
}

/// The full name of a transaction. As text: `owner/attempt/checkpoint/sink/writer`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// Whose transaction it is.
    pub owner: OwnerId,
    /// The attempt that began it.
    pub attempt: u64,
    /// The checkpoint whose interval it covers.
    pub checkpoint: u64,
    /// The sink.
    pub sink: String,
    /// The writer within the sink.
    pub writer: u32,
}

impl TxnId {
    pub(crate) fn check(&self) -> Result<(), InvalidName> {
        check_name(&self.sink)
    }

    pub(crate) fn encode(&self, out: &mut impl Put) {
        out.put_u128(self.owner.0);
        out.put_u64(self.attempt);
        out.put_u64(self.checkpoint);
        out.put_u32(self.writer);
        out.put_bytes(self.sink.as_bytes());
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<TxnId, Malformed> {
        let owner = OwnerId(cursor.u128("owner")?);
        let attempt = cursor.u64("attempt")?;
        let checkpoint = cursor.u64("checkpoint")?;
        let writer = cursor.u32("writer")?;
        let sink = cursor.string("sink")?;
        Ok(TxnId { owner, attempt, checkpoint, sink, writer })
    }

    /// The least bytes of an encoded name.
    pub(crate) const BYTES_MIN: usize = 16 + 8 + 8 + 4 + 4;
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}/{}", self.owner, self.attempt, self.checkpoint, self.sink, self.writer)
    }
}

impl FromStr for TxnId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<TxnId, ParseIdError> {
        let error =
            || ParseIdError { text: text.to_string(), what: "transaction (owner/attempt/checkpoint/sink/writer)" };
        let parts: Vec<&str> = text.split('/').collect();
        let [owner, attempt, checkpoint, sink, writer] = parts[..] else { return Err(error()) };
        let id = TxnId {
            owner: owner.parse().map_err(|_| error())?,
            attempt: attempt.parse().map_err(|_| error())?,
            checkpoint: checkpoint.parse().map_err(|_| error())?,
            sink: sink.to_string(),
            writer: writer.parse().map_err(|_| error())?,
        };
        id.check().map_err(|_| error())?;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_text_and_bytes() {
        let id = TxnId { owner: OwnerId(0xAB), attempt: 3, checkpoint: 7, sink: "late.v1".to_string(), writer: 2 };
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_eq!(id.to_string(), "000000000000000000000000000000ab/3/7/late.v1/2");
        let mut bytes = Vec::new();
        id.encode(&mut bytes);
        assert_eq!(TxnId::decode(&mut Cursor::new(&bytes)), Ok(id));
        assert!("x/1/2/s/3".parse::<TxnId>().is_err());
        assert!("000000000000000000000000000000ab/3/7/a b/2".parse::<TxnId>().is_err());
    }
}
