//! Channel state: the frames that a barrier has overtaken, on their way into a snapshot and back (I-4).
//!
//! ```text
//!   capture   which frames in an instance's queues belong to the cut, and their bytes, made a few at a time
//!   entry     the bytes of one of them
//!   replay    the recorded frames of one or several instances -> what an instance is given before anything new
//! ```
//!
//! The bytes stand in a state file like any other, under a name that no state of an operator can have, so that durability,
//! checksums and retention are those of state files. `docs/decisions/0013-unaligned.md` has the reasons.
//!
//! Not here: when to cut and what to record ([`crate::barrier::Overtaker`]).

mod capture;
mod entry;
mod replay;

pub(crate) use capture::Capture;
pub(crate) use replay::{Item, Recorded, Recording, in_time_order};

use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;

use crate::element::Batch;
use crate::graph::codec::EdgeCodec;
use crate::time::Watermark;

/// What an instance is given before its first new frame.
#[derive(Debug)]
pub(crate) enum Restored {
    /// Records of one of its channels.
    Records {
        /// Which channel.
        channel: usize,
        /// They.
        batch: Batch,
    },
    /// The merged watermark had come this far when they had been processed.
    Watermark(Watermark),
}

/// The fingerprint of channel state on input ports with these codecs; a mismatch refuses to restore.
pub(crate) fn schema(codecs: &[Option<Rc<dyn EdgeCodec>>]) -> u64 {
    let ports: Vec<String> =
        codecs.iter().map(|codec| codec.as_ref().map_or("-".to_string(), |c| format!("{:016x}", c.schema()))).collect();
    xxh3_64(format!("channel state {} of {}", entry::VERSION, ports.join(" ")).as_bytes())
}
