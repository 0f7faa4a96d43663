//! Bytes as they are, and text.

use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use super::{DecodeError, Encode, EncodeError};

/// Bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl<T: AsRef<[u8]> + ?Sized> Encode<T> for Bytes {
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(value.as_ref());
        Ok(())
    }
}

/// Text in UTF-8: what a value displays as, and back by parsing.
///
/// ```
/// use cutwater_sources_sinks::codec::{Encode, Text};
/// let mut out = vec![];
/// Text.encode(&12.5, &mut out).expect("a number displays");
/// assert_eq!(Text::parse::<f64>(&out), Ok(12.5));
/// let bad = Text::parse::<u8>("300").expect_err("too large");
/// assert_eq!(bad.to_string(), r#"expected u8 as text, found "300": number too large to fit in target type"#);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

const FORMAT: &str = "text";

impl Text {
    /// The text that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`] with the first byte that isn't UTF-8.
    pub fn decode(bytes: impl AsRef<[u8]>) -> Result<String, DecodeError> {
        let bytes = bytes.as_ref();
        std::str::from_utf8(bytes).map(str::to_string).map_err(|e| DecodeError::new::<String>(FORMAT, bytes, e))
    }

    /// The value that this text stands for; white space around it is ignored.
    ///
    /// # Errors
    /// [`DecodeError`] with what the type's parser says.
    pub fn parse<T: FromStr<Err: Display>>(bytes: impl AsRef<[u8]>) -> Result<T, DecodeError> {
        let bytes = bytes.as_ref();
        let text = std::str::from_utf8(bytes).map_err(|e| DecodeError::new::<T>(FORMAT, bytes, e))?;
        text.trim().parse().map_err(|e| DecodeError::new::<T>(FORMAT, bytes, e))
    }
}

impl<T: Display + ?Sized> Encode<T> for Text {
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let before = out.len();
        write!(out, "{value}").map_err(|e| {
            out.truncate(before);
            EncodeError { format: FORMAT, type_name: std::any::type_name::<T>(), reason: e.to_string() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_named() {
        let error = Text::decode(b"ok\xFF").expect_err("no UTF-8");
        assert!(error.reason.contains("index 2"), "{error}");
        assert_eq!(Text::parse::<u32>(" 7\n"), Ok(7));
    }
}
