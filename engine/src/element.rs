//! The alphabet of a channel: batches of records and the control frames between them.
//!
//! On every channel, from the sender's start to its end:
//!
//! ```text
//!   channel = (records | Watermark | Idle | Active | Barrier)*  End
//! ```
//!
//! Watermarks rise, barriers rise by one, nothing follows `End`. FIFO holds per channel and nowhere else: a barrier divides
//! what came before it on *its* channel from what comes after.
//!
//! Records travel in [`Batch`]es whose element type is erased: one virtual call per batch, none per record, and the wiring
//! that knows timely is compiled once instead of once per element type.

use std::any::Any;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::id::CheckpointId;
use crate::time::Watermark;

/// What crosses between workers or stands in a snapshot.
///
/// Between two exchanges any `Send` type will do; this is asked for at `key_by` and in state only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't cross between workers or be kept in a snapshot",
    label = "needs `Serialize`, `Deserialize` and `Send`",
    note = "add `#[derive(serde::Serialize, serde::Deserialize)]` to `{Self}`; it must own its data"
)]
pub trait Data: Send + Serialize + DeserializeOwned + 'static {}

impl<T: Send + Serialize + DeserializeOwned + 'static> Data for T {}

/// A bad record, as it came, and why it is bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected<T> {
    /// The record.
    pub record: T,
    /// What the function said about it.
    pub reason: String,
}

/// A vector of records of one type, the type erased.
pub struct Batch {
    len: usize,
    rows: Box<dyn Rows>,
}

/// The erased side of a `Vec<T>`.
trait Rows: Any + Send {
    fn as_any(&self) -> &dyn Any;
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), String>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Records that stay in this process.
struct Local<T>(Vec<T>);

/// Records that may be sent to another process.
struct Wire<T>(Vec<T>);

/// Records that have come from another process and wait for somebody who knows their type.
struct Encoded(Vec<u8>);

impl<T: Send + 'static> Rows for Local<T> {
    fn encode(&self, _out: &mut Vec<u8>) -> Result<(), String> {
        Err(format!("records of type {} were routed without an exchange", std::any::type_name::<T>()))
    }

    fn as_any(&self) -> &dyn Any {
        &self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.0)
    }
}

impl<T: Data> Rows for Wire<T> {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), String> {
        // For another process of this attempt, or as channel state, beside the fingerprint of its type.
        let taken = std::mem::take(out);
        *out = postcard::to_extend(&self.0, taken).map_err(|e| e.to_string())?;
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        &self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.0)
    }
}

impl Rows for Encoded {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Batch {
    /// Records for an edge within one worker.
    pub fn local<T: Send + 'static>(rows: Vec<T>) -> Batch {
        Batch { len: rows.len(), rows: Box::new(Local(rows)) }
    }

    /// Records for an edge between workers.
    pub fn wire<T: Data>(rows: Vec<T>) -> Batch {
        Batch { len: rows.len(), rows: Box::new(Wire(rows)) }
    }

    /// Records as another process sent them.
    pub(crate) fn encoded(len: usize, bytes: Vec<u8>) -> Batch {
        Batch { len, rows: Box::new(Encoded(bytes)) }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The records of a batch from an edge within one worker.
    ///
    /// # Panics
    /// If the batch holds another type: the graph's builder connects equal types only, so that would be our own mistake.
    pub fn take<T: Send + 'static>(self) -> Vec<T> {
        match self.rows.into_any().downcast::<Vec<T>>() {
            Ok(rows) => *rows,
            Err(_) => panic!("an edge of {} carried another type", std::any::type_name::<T>()),
        }
    }

    /// The records of a batch from an edge between workers; decodes them if they come from another process.
    ///
    /// # Panics
    /// As [`Batch::take`]; and if bytes of our own other process don't decode.
    pub fn take_wire<T: Data>(self) -> Vec<T> {
        let rows = match self.rows.into_any().downcast::<Vec<T>>() {
            Ok(rows) => return *rows,
            Err(other) => other,
        };
        match rows.downcast::<Encoded>() {
            Ok(bytes) => postcard::from_bytes(&bytes.0).expect("the other process of this attempt encoded this type"),
            Err(_) => panic!("an edge of {} carried another type", std::any::type_name::<T>()),
        }
    }

    /// The records, if they are of this type and not still bytes.
    pub(crate) fn rows<T: 'static>(&self) -> Option<&[T]> {
        self.rows.as_any().downcast_ref::<Vec<T>>().map(Vec::as_slice)
    }

    /// Appends the records' bytes, for another process.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), String> {
        self.rows.encode(out)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} records)", self.len)
    }
}

/// What a frame carries.
#[derive(Debug, Default)]
pub enum Body {
    /// Nothing: the default that timely's containers need. Never sent.
    #[default]
    Empty,
    /// Records.
    Records(Batch),
    /// No record below this event time will come on this channel.
    Watermark(Watermark),
    /// This channel has no data for now and must not hold back the watermark of the others.
    Idle,
    /// This channel has data again.
    Active,
    /// Divides the records before checkpoint n's cut from those after it.
    Barrier(CheckpointId),
    /// Nothing follows.
    End,
}

impl Body {
    /// The copy of a control frame that goes to one more peer; records can't be copied.
    pub(crate) fn control_copy(&self) -> Option<Body> {
        match *self {
            Body::Watermark(t) => Some(Body::Watermark(t)),
            Body::Idle => Some(Body::Idle),
            Body::Active => Some(Body::Active),
            Body::Barrier(n) => Some(Body::Barrier(n)),
            Body::End => Some(Body::End),
            Body::Empty | Body::Records(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_it_took_also_through_bytes() {
        let rows = vec![("a".to_string(), 1u64), ("b".to_string(), 2)];
        assert_eq!(Batch::local(rows.clone()).take::<(String, u64)>(), rows);
        let wire = Batch::wire(rows.clone());
        let mut bytes = vec![];
        wire.encode(&mut bytes).expect("a wire batch encodes");
        assert_eq!(Batch::encoded(wire.len(), bytes).take_wire::<(String, u64)>(), rows);
        assert!(Batch::local(rows).encode(&mut vec![]).is_err(), "a local batch must never reach a socket");
    }
}
