//! One JSON document per record.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DecodeError, Encode, EncodeError};

const FORMAT: &str = "JSON";

/// JSON through serde.
///
/// ```
/// use cutwater_sources_sinks::codec::{Encode, Json};
/// let mut out = vec![];
/// Json.encode(&("SFO", 3), &mut out).expect("a tuple has a form in JSON");
/// assert_eq!(out, br#"["SFO",3]"#);
/// let back: (String, u32) = Json::decode(&out).expect("it was just written");
/// assert_eq!(back, ("SFO".to_string(), 3));
/// let bad = Json::decode::<u32>("twelve").expect_err("no number");
/// assert_eq!(bad.to_string(), r#"expected u32 as JSON, found "twelve": expected ident at line 1 column 2"#);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl Json {
    /// Reads one document; nothing but white space may follow.
    ///
    /// # Errors
    /// [`DecodeError`] with the place in the document.
    pub fn decode<T: DeserializeOwned>(bytes: impl AsRef<[u8]>) -> Result<T, DecodeError> {
        let bytes = bytes.as_ref();
        serde_json::from_slice(bytes).map_err(|e| DecodeError::new::<T>(FORMAT, bytes, e))
    }
}

impl<T: Serialize + ?Sized> Encode<T> for Json {
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let before = out.len();
        serde_json::to_writer(&mut *out, value).map_err(|e| {
            out.truncate(before);
            EncodeError { format: FORMAT, type_name: std::any::type_name::<T>(), reason: e.to_string() }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_has_no_form_leaves_the_buffer_as_it_was() {
        let mut out = b"before".to_vec();
        let bad = BTreeMap::from([((1, 2), 3)]);
        let error = Json.encode(&bad, &mut out).expect_err("a key must be a string");
        assert!(error.to_string().contains("key must be a string"), "{error}");
        assert_eq!(out, b"before");
    }

    #[test]
    fn bytes_behind_a_document_are_refused() {
        let error = Json::decode::<u32>(b"1 2").expect_err("two documents");
        assert!(error.reason.contains("trailing"), "{error}");
        assert_eq!(Json::decode::<u32>(b"7 \n"), Ok(7));
    }
}
