//! One line of comma-separated values per record, as RFC 4180 has it, without a header line.

use ::csv::{ReaderBuilder, StringRecord, Terminator, WriterBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DecodeError, Encode, EncodeError};

const FORMAT: &str = "CSV";

/// Comma-separated values.
///
/// ```
/// use cutwater_sources_sinks::codec::{Csv, Encode};
/// let mut out = vec![];
/// Csv.encode(&("O'Hare, Chicago", 12), &mut out).expect("a flat tuple has a form in CSV");
/// assert_eq!(out, br#""O'Hare, Chicago",12"#);
/// let back: (String, u32) = Csv::decode(&out).expect("it was just written");
/// assert_eq!(back, ("O'Hare, Chicago".to_string(), 12));
/// let bad = Csv::decode::<(String, u32)>("ORD,late").expect_err("no number");
/// assert!(bad.to_string().ends_with(r#"found "ORD,late": field 2 ("late"): invalid digit found in string"#), "{bad}");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Csv;

impl Csv {
    /// Reads one line; fields go by their order.
    ///
    /// # Errors
    /// [`DecodeError`] with the field.
    pub fn decode<T: DeserializeOwned>(bytes: impl AsRef<[u8]>) -> Result<T, DecodeError> {
        Delimited(b',').decode(bytes)
    }
}

/// Values separated by another byte.
#[derive(Clone, Copy, Debug)]
pub struct Delimited(
    /// The byte between two fields: an ASCII character.
    pub u8,
);

impl Delimited {
    /// Reads one line; fields go by their order.
    ///
    /// # Errors
    /// [`DecodeError`] with the field.
    pub fn decode<T: DeserializeOwned>(self, bytes: impl AsRef<[u8]>) -> Result<T, DecodeError> {
        let bytes = bytes.as_ref();
        let record = self.fields(bytes).map_err(|reason| DecodeError::new::<T>(FORMAT, bytes, reason))?;
        record.deserialize(None).map_err(|e| DecodeError::new::<T>(FORMAT, bytes, describe(&e, &record)))
    }

    fn fields(self, bytes: &[u8]) -> Result<StringRecord, String> {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err("it has no field".to_string());
        }
        // Without quotes and line ends there is nothing to parse, and a reader costs more than the splitting.
        if !line.iter().any(|b| matches!(b, b'"' | b'\n' | b'\r')) {
            let text = std::str::from_utf8(line).map_err(|e| e.to_string())?;
            return Ok(text.split(char::from(self.0)).collect());
        }
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).delimiter(self.0).buffer_capacity(line.len());
        let mut reader = builder.from_reader(line);
        let mut record = StringRecord::new();
        reader.read_record(&mut record).map_err(|e| e.to_string())?;
        match reader.read_record(&mut StringRecord::new()) {
            Ok(false) => Ok(record),
            _ => Err("a second line follows".to_string()),
        }
    }
}

/// What is wrong with a record, by field.
pub(crate) fn describe(error: &::csv::Error, record: &StringRecord) -> String {
    let ::csv::ErrorKind::Deserialize { err, .. } = error.kind() else { return error.to_string() };
    match err.field().and_then(|field| Some((field, record.get(usize::try_from(field).ok()?)?))) {
        Some((field, text)) => format!("field {} ({text:?}): {}", field + 1, err.kind()),
        None => err.kind().to_string(),
    }
}

impl<T: Serialize + ?Sized> Encode<T> for Csv {
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Delimited(b',').encode(value, out)
    }
}

impl<T: Serialize + ?Sized> Encode<T> for Delimited {
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let before = out.len();
        let mut builder = WriterBuilder::new();
        builder.has_headers(false).delimiter(self.0).terminator(Terminator::Any(b'\n')).buffer_capacity(LINE_BYTES);
        let written = {
            let mut writer = builder.from_writer(&mut *out);
            writer.serialize(value).and_then(|()| writer.flush().map_err(Into::into))
        };
        let failed = |out: &mut Vec<u8>, reason: String| {
            out.truncate(before);
            Err(EncodeError { format: FORMAT, type_name: std::any::type_name::<T>(), reason })
        };
        match written {
            Err(e) => failed(out, e.to_string()),
            Ok(()) if out.len() == before => failed(out, "it has no field".to_string()),
            Ok(()) => {
                // The line's end isn't part of the record.
                out.pop();
                Ok(())
            }
        }
    }
}

/// Lines of up to this many bytes are written at once.
const LINE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_plain_lines_are_read_alike() {
        let plain: (String, u32) = Csv::decode("a b,2\r\n").expect("two fields");
        let quoted: (String, u32) = Csv::decode("\"a b\",2").expect("two fields");
        assert_eq!(plain, quoted);
        let tabs: (String, u32) = Delimited(b'\t').decode("a b\t2").expect("two fields");
        assert_eq!(plain, tabs);
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        let reason = |text: &str| Csv::decode::<(String, u32)>(text).expect_err("bad").reason;
        assert_eq!(reason(""), "it has no field");
        assert_eq!(reason("a"), "invalid length 1, expected a tuple of size 2");
        assert_eq!(reason("\"a\",1\n\"b\",2"), "a second line follows");
        assert_eq!(reason("\"a\",x"), "field 2 (\"x\"): invalid digit found in string");
    }

    #[test]
    fn what_has_no_form_leaves_the_buffer_as_it_was() {
        let mut out = b"before".to_vec();
        let nested = std::collections::BTreeMap::from([("a", 1)]);
        Csv.encode(&nested, &mut out).expect_err("a map has no fixed fields");
        assert_eq!(out, b"before");
    }
}
