//! What is known about the time of a stream's records, as a type: windows exist only where it is [`Timed`].

use std::fmt::Debug;

use crate::error::SinkError;
use crate::sink::SinkWriter;
use crate::time::EventTime;

/// Whether records carry an event time.
pub trait TimeMode: Debug + Send + Sync + 'static {
    /// How a record travels.
    type Of<T: 'static>: 'static;

    /// Applies `f` to the record and keeps its time.
    fn map<A: 'static, B: 'static>(record: Self::Of<A>, f: impl FnOnce(A) -> B) -> Self::Of<B>;

    /// The record.
    fn value<T: 'static>(record: &Self::Of<T>) -> &T;

    /// The record alone.
    fn into_value<T: 'static>(record: Self::Of<T>) -> T;

    /// Another record with the same time.
    fn with<A: 'static, B: 'static>(record: &Self::Of<A>, other: B) -> Self::Of<B>;

    /// A record at this time, which is dropped where records have none.
    fn at<T: 'static>(time: EventTime, record: T) -> Self::Of<T>;

    /// The record's time, if it has one.
    fn time<T: 'static>(record: &Self::Of<T>) -> Option<EventTime>;

    /// Hands records to a sink's writer, with their times if they have any.
    ///
    /// # Errors
    /// What the writer says.
    fn write<T: 'static>(records: Vec<Self::Of<T>>, writer: &mut dyn SinkWriter<Item = T>) -> Result<(), SinkError>;
}

/// Records without a time.
#[derive(Debug, Clone, Copy)]
pub struct Untimed;

/// Records with an event time, on a stream with watermarks.
#[derive(Debug, Clone, Copy)]
pub struct Timed;

impl TimeMode for Untimed {
    type Of<T: 'static> = T;

    fn map<A: 'static, B: 'static>(record: A, f: impl FnOnce(A) -> B) -> B {
        f(record)
    }

    fn value<T: 'static>(record: &T) -> &T {
        record
    }

    fn into_value<T: 'static>(record: T) -> T {
        record
    }

    fn with<A: 'static, B: 'static>(_record: &A, other: B) -> B {
        other
    }

    fn at<T: 'static>(_time: EventTime, record: T) -> T {
        record
    }

    fn time<T: 'static>(_record: &T) -> Option<EventTime> {
        None
    }

    fn write<T: 'static>(records: Vec<T>, writer: &mut dyn SinkWriter<Item = T>) -> Result<(), SinkError> {
        writer.write(records)
    }
}

impl TimeMode for Timed {
    type Of<T: 'static> = (EventTime, T);

    fn map<A: 'static, B: 'static>((time, record): (EventTime, A), f: impl FnOnce(A) -> B) -> (EventTime, B) {
        (time, f(record))
    }

    fn value<T: 'static>(record: &(EventTime, T)) -> &T {
        &record.1
    }

    fn into_value<T: 'static>(record: (EventTime, T)) -> T {
        record.1
    }

    fn with<A: 'static, B: 'static>(record: &(EventTime, A), other: B) -> (EventTime, B) {
        (record.0, other)
    }

    fn at<T: 'static>(time: EventTime, record: T) -> (EventTime, T) {
        (time, record)
    }

    fn time<T: 'static>(record: &(EventTime, T)) -> Option<EventTime> {
        Some(record.0)
    }

    fn write<T: 'static>(records: Vec<(EventTime, T)>, writer: &mut dyn SinkWriter<Item = T>) -> Result<(), SinkError> {
        writer.write_timed(records)
    }
}
