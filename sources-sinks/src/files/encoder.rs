//! Turns a part's bytes into what stands in its file: as they are, or as a gzip member, in pieces of bounded size (I-9).

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes are handed to the file when there are this many.
const BUFFERED_BYTES: usize = 256 * 1024;

/// How parts are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Packing {
    #[default]
    Plain,
    Gzip,
}

/// The bytes of one part that are not in its file yet.
#[derive(Debug)]
pub(crate) enum Encoder {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl Encoder {
    pub(crate) fn new(packing: Packing) -> Encoder {
        match packing {
            Packing::Plain => Encoder::Plain(vec![]),
            // No time of change in the header: the same rows give the same file.
            Packing::Gzip => Encoder::Gzip(Box::new(GzEncoder::new(vec![], Compression::new(4)))),
        }
    }

    /// Takes bytes; answers true when there are enough to be handed on.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        match self {
            Encoder::Plain(out) => {
                out.extend_from_slice(bytes);
                out.len() >= BUFFERED_BYTES
            }
            Encoder::Gzip(gzip) => {
                gzip.write_all(bytes).expect("writing into memory doesn't fail");
                gzip.get_ref().len() >= BUFFERED_BYTES
            }
        }
    }

    /// What can be handed on by now.
    pub(crate) fn ready(&mut self) -> &mut Vec<u8> {
        match self {
            Encoder::Plain(out) => out,
            Encoder::Gzip(gzip) => gzip.get_mut(),
        }
    }

    /// All that is left: the part ends here.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Encoder::Plain(out) => out,
            Encoder::Gzip(gzip) => gzip.finish().expect("writing into memory doesn't fail"),
        }
    }
}
