//! gzip (RFC 1952), as `java.util.zip` writes it: one member.

use std::io::Write;

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::{Bound, malformed};
use crate::batch::BatchError;

/// Appends `records` as one member.
pub(super) fn compress(records: &[u8], out: Vec<u8>) -> Result<Vec<u8>, BatchError> {
    let mut encoder = GzEncoder::new(out, flate2::Compression::default());
    let written = encoder.write_all(records).map_err(|e| malformed(&e));
    written.and_then(|()| encoder.finish().map_err(|e| malformed(&e)))
}

/// Appends what the member holds; its own checksum and length are compared at its end.
pub(super) fn decompress(block: &[u8], bound: Bound, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let mut decoder = GzDecoder::new(block);
    bound.drain(&mut decoder, out)?;
    match decoder.get_ref() {
        [] => Ok(()),
        rest => Err(malformed(&format!("{} bytes follow the gzip member", rest.len()))),
    }
}
