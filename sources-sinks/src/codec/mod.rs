//! Codecs: between a program's types and the bytes that stand in a log or a file.
//!
//! Encoding appends to a buffer of the caller's, so that a sink needs no allocation per record. Decoding is a plain function
//! from bytes, made for `try_map`: a record that can't be decoded is data that takes another way, never an error of the job.
//!
//! | codec | encodes | decodes |
//! |---|---|---|
//! | [`Json`] | whatever serde serialises, one document | whatever serde deserialises from one document |
//! | [`Csv`], [`Delimited`] | a flat struct or tuple, one line without its end | one line, by the order of its fields |
//! | [`Text`] | whatever displays | UTF-8, or whatever parses from it |
//! | [`Bytes`] | bytes | - |

mod bytes;
mod csv;
mod json;

use thiserror::Error;

pub use bytes::{Bytes, Text};
pub use csv::{Csv, Delimited};
pub use json::Json;

/// Turns values into bytes.
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` can't encode `{T}`",
    note = "`Json` and `Csv` need `#[derive(serde::Serialize)]`, `Text` needs `Display`, `Bytes` needs `AsRef<[u8]>`"
)]
pub trait Encode<T: ?Sized> {
    /// Appends the value's bytes to `out`. After an error `out` is as before.
    ///
    /// # Errors
    /// [`EncodeError`]: the value has no such form.
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// A value that has no form in this format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{type_name} can't be written as {format}: {reason}")]
pub struct EncodeError {
    /// The format.
    pub format: &'static str,
    /// The type of the value.
    pub type_name: &'static str,
    /// Why not.
    pub reason: String,
}

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected {wanted} as {format}, found {found}: {reason}")]
pub struct DecodeError {
    /// The format.
    pub format: &'static str,
    /// The type that was expected.
    pub wanted: &'static str,
    /// What was found, shortened.
    pub found: String,
    /// What is wrong with it.
    pub reason: String,
}

impl DecodeError {
    pub(crate) fn new<T>(format: &'static str, bytes: &[u8], reason: impl ToString) -> DecodeError {
        let wanted = std::any::type_name::<T>();
        DecodeError { format, wanted, found: excerpt(bytes), reason: reason.to_string() }
    }
}

/// The most bytes of bad input that an error repeats.
const EXCERPT_BYTES: usize = 60;

/// The beginning of `bytes` for people.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]);
    match bytes.len() {
        0 => "nothing".to_string(),
        n if n > EXCERPT_BYTES => format!("{head:?}.. ({n} bytes)"),
        _ => format!("{head:?}"),
    }
}
