//! Records as they stand in a topic, and how a program's values become records.

use std::fmt::Display;

use cutwater_engine::element::Rejected;

use crate::codec::{Encode, EncodeError};
use crate::csv::Row;
use crate::text::Line;

/// A record read from a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecord {
    /// Its partition.
    pub partition: u32,
    /// Its place in the partition.
    pub offset: u64,
    /// Its time in milliseconds since 1970, as its writer said.
    pub timestamp_ms: i64,
    /// Its key, if it has one. An empty key is not the same as none.
    pub key: Option<Vec<u8>>,
    /// Its value; none is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its headers in the order in which they were written. A name may come more than once.
    pub headers: Vec<Header>,
}

/// A header of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub name: Vec<u8>,
    /// The value.
    pub value: Option<Vec<u8>>,
}

/// The value's bytes, none for a tombstone: so that codecs take a record as it is, `Json::decode::<T>(&record)`.
impl AsRef<[u8]> for LogRecord {
    fn as_ref(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }
}

/// A record on its way into a batch. One is used for all records of a writer, so that none costs an allocation.
#[derive(Debug, Default)]
pub struct RecordBuf {
    pub(crate) has_key: bool,
    pub(crate) key: Vec<u8>,
    pub(crate) has_value: bool,
    pub(crate) value: Vec<u8>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) headers: Vec<Header>,
}

impl RecordBuf {
    /// Empties it and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.has_key = false;
        self.key.clear();
        self.has_value = false;
        self.value.clear();
        self.timestamp_ms = None;
        self.headers.clear();
    }

    /// The record has a key: the bytes to append it to.
    pub fn key(&mut self) -> &mut Vec<u8> {
        self.has_key = true;
        &mut self.key
    }

    /// The record has a value: the bytes to append it to. Without this call it is a tombstone.
    pub fn value(&mut self) -> &mut Vec<u8> {
        self.has_value = true;
        &mut self.value
    }

    /// The record's time. Without this call it is the event time of a stream that has one, else the time of writing.
    pub fn timestamp_ms(&mut self, timestamp_ms: i64) {
        self.timestamp_ms = Some(timestamp_ms);
    }

    /// Adds a header.
    pub fn header(&mut self, name: impl Into<Vec<u8>>, value: Option<Vec<u8>>) {
        self.headers.push(Header { name: name.into(), value });
    }

    /// Bytes of its key, value and headers, about.
    pub(crate) fn bytes(&self) -> usize {
        let header = |h: &Header| h.name.len() + h.value.as_ref().map_or(0, Vec::len) + 16;
        let headers: usize = self.headers.iter().map(header).sum();
        self.key_bytes().map_or(0, <[u8]>::len) + self.value_bytes().map_or(0, <[u8]>::len) + headers
    }

    pub(crate) fn key_bytes(&self) -> Option<&[u8]> {
        self.has_key.then_some(&self.key)
    }

    pub(crate) fn value_bytes(&self) -> Option<&[u8]> {
        self.has_value.then_some(&self.value)
    }
}

/// What can be written to a topic as it is, without a codec.
///
/// A pair of such a value and an error is written with the error's text in the header `error`: dead letters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be written to a topic as it is",
    note = "say how: `log.write(\"topic\").value(Json)`, or implement `ToRecord` for `{Self}`"
)]
pub trait ToRecord {
    /// Fills an empty record.
    fn to_record(&self, record: &mut RecordBuf);
}

impl ToRecord for LogRecord {
    fn to_record(&self, record: &mut RecordBuf) {
        if let Some(key) = &self.key {
            record.key().extend_from_slice(key);
        }
        if let Some(value) = &self.value {
            record.value().extend_from_slice(value);
        }
        record.timestamp_ms(self.timestamp_ms);
        record.headers.extend_from_slice(&self.headers);
    }
}

macro_rules! value_is_bytes {
    ($($type:ty),*) => {$(
        impl ToRecord for $type {
            fn to_record(&self, record: &mut RecordBuf) {
                record.value().extend_from_slice(self.as_ref());
            }
        }
    )*};
}

value_is_bytes!(Vec<u8>, String, &str, &[u8]);

/// The line, with its place in the header `origin`.
impl ToRecord for Line {
    fn to_record(&self, record: &mut RecordBuf) {
        record.value().extend_from_slice(&self.bytes);
        record.header("origin", Some(format!("{}:{}", self.file, self.number).into_bytes()));
    }
}

/// The fields as one CSV line, with the row's place in the header `origin`.
impl ToRecord for Row {
    fn to_record(&self, record: &mut RecordBuf) {
        self.write_line(record.value());
        record.header("origin", Some(format!("{}:{}", self.file, self.line).into_bytes()));
    }
}

/// A record that `try_map` rejected, with the reason in the header `error`.
impl<R: ToRecord> ToRecord for Rejected<R> {
    fn to_record(&self, record: &mut RecordBuf) {
        self.record.to_record(record);
        record.header("error", Some(self.reason.clone().into_bytes()));
    }
}

impl<R: ToRecord, E: Display> ToRecord for (R, E) {
    fn to_record(&self, record: &mut RecordBuf) {
        self.0.to_record(record);
        record.header("error", Some(self.1.to_string().into_bytes()));
    }
}

/// Makes a record's key, value and headers of an item.
pub trait FillRecord<T> {
    /// Fills an empty record.
    ///
    /// # Errors
    /// The codec's.
    fn fill(&self, item: &T, record: &mut RecordBuf) -> Result<(), EncodeError>;
}

/// Items are records already.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsIs;

impl<T: ToRecord> FillRecord<T> for AsIs {
    fn fill(&self, item: &T, record: &mut RecordBuf) -> Result<(), EncodeError> {
        item.to_record(record);
        Ok(())
    }
}

/// A codec makes the value; there is no key unless the sink is told one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCodec<C>(pub(crate) C);

impl<T, C: Encode<T>> FillRecord<T> for ByCodec<C> {
    fn fill(&self, item: &T, record: &mut RecordBuf) -> Result<(), EncodeError> {
        self.0.encode(item, record.value())
    }
}

/// Gives items a key.
pub trait KeyOf<T> {
    /// Puts the key into the record, in place of one that may be there.
    fn put_key(&self, item: &T, record: &mut RecordBuf);
}

/// Whatever key the record has.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnKey;

impl<T> KeyOf<T> for OwnKey {
    fn put_key(&self, _item: &T, _record: &mut RecordBuf) {}
}

/// A key that lies in the item.
#[derive(Clone, Copy, Debug)]
pub struct KeyIn<F>(pub(crate) F);

impl<T, F: for<'a> Fn(&'a T) -> &'a [u8]> KeyOf<T> for KeyIn<F> {
    fn put_key(&self, item: &T, record: &mut RecordBuf) {
        let key = record.key();
        key.clear();
        key.extend_from_slice((self.0)(item));
    }
}

/// A key that is computed.
#[derive(Clone, Copy, Debug)]
pub struct KeyInto<F>(pub(crate) F);

impl<T, F: Fn(&T, &mut Vec<u8>)> KeyOf<T> for KeyInto<F> {
    fn put_key(&self, item: &T, record: &mut RecordBuf) {
        let key = record.key();
        key.clear();
        (self.0)(item, key);
    }
}
